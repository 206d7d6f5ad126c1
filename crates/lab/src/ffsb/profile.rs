//! A profile as text. What is not known is an error that names its line.

use std::path::PathBuf;

use stele_ground::{Bytes, Duration};

use crate::error::LabError;

/// What a thread does at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OperationKind {
    Read,
    ReadAll,
    Write { sync: bool },
    WriteAll { sync: bool },
    Create { sync: bool },
    Append { sync: bool },
    Delete,
    Stat,
    OpenClose,
    CreateDirectory,
}

/// Keys of weights, as FFSB calls them.
const WEIGHTS: &[(&str, OperationKind)] = &[
    ("read", OperationKind::Read),
    ("readall", OperationKind::ReadAll),
    ("write", OperationKind::Write { sync: false }),
    ("write_fsync", OperationKind::Write { sync: true }),
    ("writeall", OperationKind::WriteAll { sync: false }),
    ("writeall_fsync", OperationKind::WriteAll { sync: true }),
    ("create", OperationKind::Create { sync: false }),
    ("create_fsync", OperationKind::Create { sync: true }),
    ("append", OperationKind::Append { sync: false }),
    ("append_fsync", OperationKind::Append { sync: true }),
    ("delete", OperationKind::Delete),
    ("stat", OperationKind::Stat),
    ("open_close", OperationKind::OpenClose),
    ("createdir", OperationKind::CreateDirectory),
];

impl OperationKind {
    pub fn name(self) -> &'static str {
        WEIGHTS.iter().find(|(_, kind)| *kind == self).map_or("", |(name, _)| name)
    }
}

/// Keys that say how FFSB reports, or what is measured in other ways here.
const WITHOUT_EFFECT: &[&str] = &["verbose", "alignio", "bufferedio", "reuse", "fsync_file"];

#[derive(Clone, PartialEq, Debug)]
pub struct Filesystem {
    pub location: PathBuf,
    pub files: u64,
    pub directories: u64,
    pub least: u64,
    pub most: u64,
    /// Sizes of files with their weights, instead of a range.
    pub sizes: Vec<(u64, u64)>,
    /// Of creations, where that is said.
    pub block: Option<u64>,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Group {
    pub name: String,
    pub threads: u32,
    pub weights: Vec<(OperationKind, u64)>,
    pub read_size: u64,
    pub read_block: u64,
    pub read_random: bool,
    pub write_size: u64,
    pub write_block: u64,
    pub write_random: bool,
    /// Between two operations of a thread.
    pub delay: Duration,
    /// One file system only, by its number.
    pub bound: Option<usize>,
}

#[derive(Clone, PartialEq, Debug)]
pub struct FfsbProfile {
    pub time: Duration,
    pub direct: bool,
    pub seed: u64,
    pub filesystems: Vec<Filesystem>,
    pub groups: Vec<Group>,
}

/// Where a line stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Within {
    Top,
    Filesystem,
    Group,
    /// A section that changes nothing here, and how many are open within it.
    Nothing,
}

pub fn parse(text: &str) -> Result<FfsbProfile, LabError> {
    let mut profile =
        FfsbProfile { time: Duration(0), direct: false, seed: 1, filesystems: Vec::new(), groups: Vec::new() };
    let mut open: Vec<Within> = Vec::new();
    for (at, raw) in text.lines().enumerate() {
        let line = raw.split('#').next().unwrap_or_default().trim();
        let wrong = |why: String| LabError::Usage(format!("line {}: {line}: {why}", at + 1));
        if line.is_empty() {
            continue;
        }
        let within = open.last().copied().unwrap_or(Within::Top);
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            let name = name.trim().to_ascii_lowercase();
            match name {
                name if name.starts_with("end") => drop(open.pop()),
                name if name.starts_with("stats") => open.push(Within::Nothing),
                // One within a file system would age it, which `agefs` has to ask for.
                _ if within == Within::Filesystem || within == Within::Nothing => open.push(Within::Nothing),
                name if name.starts_with("filesystem") => {
                    profile.filesystems.push(Filesystem::none());
                    open.push(Within::Filesystem);
                }
                name if name.starts_with("threadgroup") => {
                    profile.groups.push(Group::none(name));
                    open.push(Within::Group);
                }
                _ => return Err(wrong("no such section is known here".into())),
            }
            continue;
        }
        let (key, value) = line.split_once(['=', ' ', '\t']).unwrap_or((line, ""));
        let (key, value) = (key.trim().to_ascii_lowercase(), value.trim_start_matches([' ', '\t', '=']).trim());
        let taken = match (within, profile.filesystems.last_mut(), profile.groups.last_mut()) {
            (Within::Nothing, ..) => Ok(()),
            (Within::Filesystem, Some(filesystem), _) => filesystem.take(&key, value),
            (Within::Group, _, Some(group)) => group.take(&key, value),
            _ => profile.take(&key, value),
        };
        taken.map_err(wrong)?;
    }
    profile.check()?;
    Ok(profile)
}

fn bytes(value: &str) -> Result<u64, String> {
    Bytes::parse(value).map(|bytes| bytes.0).ok_or_else(|| "say it in bytes, like 4k".into())
}

fn count(value: &str) -> Result<u64, String> {
    value.parse().map_err(|_| "a whole number is needed".into())
}

fn truth(value: &str) -> Result<bool, String> {
    match value {
        "0" => Ok(false),
        "1" => Ok(true),
        _ => Err("it is 0 or 1".into()),
    }
}

/// A key of something that is not done here.
fn unknown(value: &str) -> Result<(), String> {
    match value {
        "0" => Ok(()),
        _ => Err("this key is not known here".into()),
    }
}

impl FfsbProfile {
    fn take(&mut self, key: &str, value: &str) -> Result<(), String> {
        match key {
            "time" => self.time = Duration::from_secs(count(value)?),
            "directio" => self.direct = truth(value)?,
            key if WITHOUT_EFFECT.contains(&key) => {}
            _ => return unknown(value),
        }
        Ok(())
    }

    fn check(&self) -> Result<(), LabError> {
        let wrong = |why: &str| Err(LabError::Usage(why.into()));
        if self.filesystems.is_empty() || self.groups.is_empty() {
            return wrong("the profile has no [filesystem] or no [threadgroup]");
        }
        for one in &self.filesystems {
            if one.location.as_os_str().is_empty() {
                return wrong("a [filesystem] has no location");
            }
            if one.least > one.most || (one.sizes.is_empty() && one.most == 0) {
                return wrong("a [filesystem] needs min_filesize and a max_filesize that is not less, or size_weight");
            }
        }
        for group in &self.groups {
            let named = |why: &str| Err(LabError::Usage(format!("[{}]: {why}", group.name)));
            if group.weights.is_empty() {
                return named("no operation has a weight");
            }
            if group.bound.is_some_and(|number| number >= self.filesystems.len()) {
                return named("bindfs names a file system that the profile does not have");
            }
            for (kind, _) in &group.weights {
                match kind {
                    OperationKind::Read if group.read_size == 0 => return named("read_weight needs a read_size"),
                    OperationKind::Write { .. } | OperationKind::Append { .. } if group.write_size == 0 => {
                        return named("write_weight and append_weight need a write_size");
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

impl Filesystem {
    fn none() -> Filesystem {
        Filesystem {
            location: PathBuf::new(),
            files: 0,
            directories: 1,
            least: 0,
            most: 0,
            sizes: Vec::new(),
            block: None,
        }
    }

    fn take(&mut self, key: &str, value: &str) -> Result<(), String> {
        match key {
            "location" => self.location = PathBuf::from(value),
            "num_files" => self.files = count(value)?,
            "num_dirs" => self.directories = count(value)?.max(1),
            "min_filesize" => self.least = bytes(value)?,
            "max_filesize" => self.most = bytes(value)?,
            "create_blocksize" => self.block = Some(bytes(value)?).filter(|block| *block > 0),
            "size_weight" => {
                let (size, weight) = value.split_once([' ', '\t']).ok_or("it is a size and a weight, like 4k 33")?;
                self.sizes.push((bytes(size)?, count(weight.trim())?));
            }
            "age_blocksize" => {}
            key if WITHOUT_EFFECT.contains(&key) => {}
            _ => return unknown(value),
        }
        Ok(())
    }
}

/// Of reads and writes where nothing is said.
const BLOCK: u64 = 4096;

impl Group {
    fn none(name: String) -> Group {
        Group {
            name,
            threads: 1,
            weights: Vec::new(),
            read_size: 0,
            read_block: BLOCK,
            read_random: false,
            write_size: 0,
            write_block: BLOCK,
            write_random: false,
            delay: Duration(0),
            bound: None,
        }
    }

    fn take(&mut self, key: &str, value: &str) -> Result<(), String> {
        let block = |value: &str| {
            bytes(value).and_then(|block| match block {
                1..=0x4000_0000 => Ok(block),
                _ => Err("from 1 to 1g".into()),
            })
        };
        if let Some(name) = key.strip_suffix("_weight") {
            let kind = WEIGHTS.iter().find(|(known, _)| *known == name);
            return match (kind, count(value)?) {
                (_, 0) => Ok(()),
                (Some((_, kind)), weight) => {
                    self.weights.push((*kind, weight));
                    Ok(())
                }
                (None, _) => Err("this operation is not known here".into()),
            };
        }
        match key {
            "num_threads" => {
                self.threads =
                    value.parse().ok().filter(|count| *count > 0).ok_or("a whole number above 0 is needed")?;
            }
            "read_size" => self.read_size = bytes(value)?,
            "read_blocksize" => self.read_block = block(value)?,
            "read_random" => self.read_random = truth(value)?,
            "write_size" => self.write_size = bytes(value)?,
            "write_blocksize" => self.write_block = block(value)?,
            "write_random" => self.write_random = truth(value)?,
            "op_delay" => self.delay = Duration::from_millis(count(value)?),
            "bindfs" => self.bound = Some(count(value)? as usize),
            key if WITHOUT_EFFECT.contains(&key) => {}
            _ => return unknown(value),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
