//! Mounts a tree of files in memory, until Enter, the end of the input, or someone else unmounts
//! it.
//!
//!     cargo run --release -p stele-file --example fuse_memory -- /mnt [cache=SECONDS] [threads=N] [read-only] [dos-attributes]

use std::io::{Error, ErrorKind, Result};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use stele_file::fuse::{MountOptions, mount};
use stele_file::{MemoryFiles, Moment};

/// More than this many bytes of content get ENOSPC.
const CAPACITY: u64 = 8 << 30;

fn main() -> Result<()> {
    let wrong = |text: &str| Error::new(ErrorKind::InvalidInput, format!("not understood: {text}"));
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().ok_or_else(|| wrong("a directory is missing"))?;
    let mut options = MountOptions { name: "memory".into(), ..MountOptions::default() };
    for argument in arguments {
        match argument.split_once('=') {
            Some(("cache", seconds)) => {
                options.cache = Duration::from_secs(seconds.parse().map_err(|_| wrong(&argument))?);
            }
            None if argument == "dos-attributes" => options.dos_attributes = true,
            Some(("threads", count)) => options.threads = count.parse().map_err(|_| wrong(&argument))?,
            None if argument == "read-only" => options.read_only = true,
            _ => return Err(wrong(&argument)),
        }
    }
    let runtime = tokio::runtime::Runtime::new()?;
    let now = || {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Moment::from_nanoseconds(since.as_nanos() as i128)
    };
    let files = Arc::new(MemoryFiles::new(now).with_capacity(CAPACITY));
    let mut mounted = mount(files, Path::new(&directory), &options, None, runtime.handle().clone())?;
    println!("mounted at {}; Enter unmounts", mounted.directory().display());
    std::io::stdin().read_line(&mut String::new())?;
    mounted.unmount()
}
