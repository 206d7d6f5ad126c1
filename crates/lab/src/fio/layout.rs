//! The files of a job: their names, which part of each is used, and making those that are missing
//! or too short, as fio does before anything runs.
//!
//! One difference from fio: what the laboratory did not make is written over only where the caller
//! says so.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use stele_ground::{Bytes, Dice, MIB};
use stele_media::{Buffer, system};

use super::options::{IoEngine, Options, Preallocation};
use super::places::Region;
use super::units::Amount;
use crate::error::LabError;
use crate::live::content::Content;
use crate::live::{local, system_place};

/// A file of one copy of a job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Laid {
    pub path: PathBuf,
    pub region: Region,
    /// It has to be made, or made longer.
    pub short: bool,
}

/// The files of one copy, and the bytes after which it is over.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layout {
    pub files: Vec<Laid>,
    /// `size`, where the files have as much.
    pub size: u64,
}

fn names(options: &Options, copy: u32) -> Vec<PathBuf> {
    let format = options.name_format.as_deref().unwrap_or("$jobname.$jobnum.$filenum");
    let made = |number: u32| {
        let name = format.replace("$jobname", &options.name).replace("$jobnum", &copy.to_string());
        name.replace("$filenum", &number.to_string())
    };
    let names = match options.names.is_empty() {
        true => (0..options.files).map(made).collect(),
        false => options.names.clone(),
    };
    let within = |name: String| match &options.directory {
        Some(directory) => PathBuf::from(format!("{directory}/{name}")),
        None => PathBuf::from(name),
    };
    names.into_iter().map(within).collect()
}

/// Lengths of files that will have been made before.
pub type Made = BTreeMap<PathBuf, u64>;

/// Bytes of what is there, and whether it is a device; none where nothing is.
fn length_of(path: &Path, made: &Made) -> Result<Option<(u64, bool)>, LabError> {
    if let Some(length) = made.get(path) {
        return Ok(Some((*length, false)));
    }
    let cannot = |error: io::Error| LabError::of(&error, "cannot be looked at", path);
    let found = match std::fs::metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(cannot(error)),
    };
    let kind = found.file_type();
    if kind.is_block_device() {
        let device = File::open(path).map_err(cannot)?;
        return Ok(Some((system::device_size(&device).map_err(cannot)?, true)));
    }
    match kind.is_file() {
        true => Ok(Some((found.len(), false))),
        false => Err(LabError::Usage(format!("{}: is neither a file nor a block device", path.display()))),
    }
}

/// What a copy uses. Files that it makes are there for those behind it.
pub fn layout(options: &Options, copy: u32, made: &mut Made) -> Result<Layout, LabError> {
    let names = names(options, copy);
    let count = names.len().max(1) as u64;
    let asked = match options.size {
        Amount::Bytes(size) => size,
        _ => 0,
    };
    let (mut files, mut total) = (Vec::new(), 0);
    for path in names {
        let found = if options.engine == IoEngine::Null { None } else { length_of(&path, made)? };
        let (real, device) = found.unwrap_or((0, false));
        let region = region(options, copy, asked / count, real)
            .map_err(|why| LabError::Usage(format!("{}: {why}", path.display())))?;
        let end = region.offset + region.length;
        if device && end > real {
            let (real, end) = (Bytes(real), Bytes(end));
            return Err(LabError::Usage(format!("{}: has {real}, and offset and size need {end}", path.display())));
        }
        total += match options.io_size {
            Amount::Percent(share) => region.length * share / 100,
            _ => region.length,
        };
        let short = options.engine != IoEngine::Null && end > real;
        if short {
            made.insert(path.clone(), region.file);
        }
        files.push(Laid { path, region, short });
    }
    let used = files.iter().fold(0, |sum: u64, laid: &Laid| sum.saturating_add(laid.region.length));
    let least = options.block_least();
    if used < least {
        return Err(LabError::Usage(format!("size is {}, less than one access of {}", Bytes(used), Bytes(least))));
    }
    Ok(Layout { files, size: if asked == 0 { total } else { asked.min(total) } })
}

fn region(options: &Options, copy: u32, each: u64, real: u64) -> Result<Region, String> {
    let of_real = |amount: Amount| match amount {
        Amount::Unsaid => 0,
        Amount::Bytes(bytes) => bytes,
        Amount::Percent(share) => real * share / 100,
    };
    let mut offset = of_real(options.offset) + of_real(options.offset_increment) * u64::from(copy);
    // A share of a file is no whole number of blocks.
    let align = match (options.offset_align, options.offset) {
        (0, Amount::Percent(_)) => options.block_least(),
        (align, _) => align,
    };
    if align > 0 {
        offset -= offset % align;
    }
    let mut length = match options.file_size {
        Some(size) if real != size => size.checked_sub(offset).ok_or("the offset is beyond filesize")?,
        Some(_) => real.checked_sub(offset).ok_or("the offset is beyond the file's end")?,
        None if each > 0 => each,
        None => real.checked_sub(offset).ok_or("the offset is beyond the file's end")?,
    };
    if let Amount::Percent(share) = options.size
        && share < 100
    {
        let part = (length + offset) * share / 100;
        length = part.min(length);
        length -= length % options.block_least();
    }
    match length {
        0 => Err("nothing says how large it shall be; add size= or filesize=".into()),
        length => Ok(Region { offset, length, file: real.max(offset + length) }),
    }
}

/// Looks whether a job may use the files, before anything is changed.
pub fn admit(options: &Options, layout: &Layout, destroy: bool) -> Result<(), LabError> {
    for laid in &layout.files {
        let exists = options.engine != IoEngine::Null && laid.path.exists();
        // To remove a file is to write over all of it.
        if exists && (options.writes || laid.short || options.unlink) {
            local::may_write(&laid.path, destroy)?;
        }
        if !exists && laid.short {
            system_place::refuse_file(&laid.path)?;
        }
    }
    Ok(())
}

/// Makes what is missing or too short. As in fio it is written to its end where it is read, or
/// where `overwrite` asks for it; elsewhere only its blocks are set aside.
pub fn make(
    options: &Options,
    layout: &Layout,
    goes_on: &dyn Fn() -> bool,
    tell: &dyn Fn(&str),
) -> Result<(), LabError> {
    for laid in layout.files.iter().filter(|laid| laid.short) {
        let cannot = |error: io::Error| LabError::of(&error, "cannot be made", &laid.path);
        tell(&format!("making {}, {}", laid.path.display(), Bytes(laid.region.file)));
        if let Some(parent) = laid.path.parent() {
            std::fs::create_dir_all(parent).map_err(cannot)?;
        }
        let written = options.reads || options.overwrite;
        let mut open = OpenOptions::new();
        // Content of before does not stay: neither here nor in fio.
        let file = open.write(true).create(true).truncate(true).open(&laid.path).map_err(cannot)?;
        local::claim(&file);
        let set_aside = match options.preallocation {
            Preallocation::Blocks => system::allocate(&file, 0, 0, laid.region.file),
            Preallocation::Length => file.set_len(laid.region.file),
            Preallocation::None => Ok(()),
        };
        let made = match set_aside {
            // A file system that cannot set blocks aside still makes files.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOSYS)) => Ok(()),
            made => made,
        };
        let made =
            made.and_then(|()| if written { fill(&file, laid.region.file, options.seed, goes_on) } else { Ok(()) });
        made.map_err(|error| {
            if error.kind() == io::ErrorKind::StorageFull {
                // Its blocks are given back: half a file is of no use on a full file system.
                let _ = std::fs::remove_file(&laid.path);
            }
            match goes_on() {
                true => cannot(error),
                false => LabError::Stopped(format!("{}: stopped while it was filled", laid.path.display())),
            }
        })?;
    }
    Ok(())
}

fn fill(file: &File, length: u64, seed: u64, goes_on: &dyn Fn() -> bool) -> io::Result<()> {
    let mut source = Content::default().source(Dice::new(seed), None);
    let mut buffer = Buffer::zeroed(MIB.min(length) as usize);
    for at in (0..length).step_by(MIB as usize) {
        let part = MIB.min(length - at) as usize;
        source.make(&mut buffer[..part], at);
        file.write_all_at(&buffer[..part], at)?;
        if !goes_on() {
            return Err(io::Error::new(io::ErrorKind::Interrupted, "stopped while it was filled"));
        }
    }
    file.sync_all()
}

/// Opens a file as the job uses it.
pub fn open(options: &Options, laid: &Laid) -> Result<File, LabError> {
    let flags = options.sync_flags | if options.direct { libc::O_DIRECT } else { 0 };
    let mut open = OpenOptions::new();
    open.read(true).write(options.writes).custom_flags(flags);
    let opened = open.open(&laid.path);
    let file = opened.map_err(|error| match options.direct && error.raw_os_error() == Some(libc::EINVAL) {
        true => LabError::Failed(format!(
            "{}: the file system does not let the page cache be passed by ({error}); leave direct=1 out, or name another one",
            laid.path.display()
        )),
        false => LabError::of(&error, "cannot be opened", &laid.path),
    })?;
    if options.writes {
        local::take_up(&file);
    }
    Ok(file)
}

#[cfg(test)]
mod tests;
