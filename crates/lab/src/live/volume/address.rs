//! How a volume of this process is named: `volume:CODE`, then what shall be otherwise than usual.

use std::fmt;
use std::path::PathBuf;

use stele_array::WriteMode;
use stele_codes::Code;
use stele_ground::{Bytes, MIB};

use crate::error::LabError;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VolumeAddress {
    pub code: Code,
    /// As many as a stripe is wide, and a pool needs, where nothing is said.
    pub drives: u32,
    pub mode: WriteMode,
    /// Bytes: 512 or 4096.
    pub block: u64,
    /// What was read is kept in so much memory.
    pub cache: Bytes,
    /// The drives are files there, else memory.
    pub directory: Option<PathBuf>,
}

/// Of a pool, and of what one process drives.
const DRIVES_MIN: u32 = 3;
const DRIVES_MAX: u32 = 128;
const BLOCK: u64 = 4096;
const CACHE: Bytes = Bytes(128 * MIB);
const SHAPE: &str =
    "volume:CODE[,drives=N][,block=512][,cache=SIZE][,write-through][,dir=PATH], as in volume:8+2,drives=12";

impl std::str::FromStr for VolumeAddress {
    type Err = LabError;
    fn from_str(text: &str) -> Result<VolumeAddress, LabError> {
        let bad = |why: String| LabError::Usage(format!("target '{text}': {why}; say {SHAPE}"));
        let rest = text.strip_prefix("volume:").ok_or_else(|| bad("is no volume".into()))?;
        // A path may hold commas, so it comes last.
        let (rest, directory) = match rest.split_once(",dir=") {
            Some((_, "")) => return Err(bad("dir= names no directory".into())),
            Some((rest, path)) => (rest, Some(PathBuf::from(path))),
            None => (rest, None),
        };
        let mut words = rest.split(',');
        let code: Code = words.next().unwrap_or_default().parse().map_err(|error| bad(format!("{error}")))?;
        let least = DRIVES_MIN.max(code.width() as u32);
        let mut address =
            VolumeAddress { code, drives: least, mode: WriteMode::WriteBack, block: BLOCK, cache: CACHE, directory };
        for word in words {
            match word.split_once('=').unwrap_or((word, "")) {
                ("drives", count) => {
                    let count = count.parse().ok().filter(|count| (least..=DRIVES_MAX).contains(count));
                    address.drives = count.ok_or_else(|| {
                        bad(format!("{code} takes {least} drives at least, and {DRIVES_MAX} are the most"))
                    })?;
                }
                ("block", "512") => address.block = 512,
                ("block", "4096") => address.block = BLOCK,
                ("cache", size) => {
                    address.cache = Bytes::parse(size).ok_or_else(|| bad(format!("'{size}' is no size")))?;
                }
                ("memory", "") if address.directory.is_none() => {}
                ("write-back", "") => address.mode = WriteMode::WriteBack,
                ("write-through", "") => address.mode = WriteMode::WriteThrough,
                _ => return Err(bad(format!("'{word}' is not known here"))),
            }
        }
        Ok(address)
    }
}

impl fmt::Display for VolumeAddress {
    /// What is usual is left out, but for the number of drives.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "volume:{},drives={}", self.code, self.drives)?;
        if self.block != BLOCK {
            write!(f, ",block={}", self.block)?;
        }
        if self.cache != CACHE {
            write!(f, ",cache={}", self.cache.0)?;
        }
        if self.mode == WriteMode::WriteThrough {
            f.write_str(",write-through")?;
        }
        match &self.directory {
            Some(path) => write!(f, ",dir={}", path.display()),
            None => Ok(()),
        }
    }
}
