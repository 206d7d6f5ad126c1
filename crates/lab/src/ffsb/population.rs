//! The files that threads share: drawn, added and removed by all of them.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use stele_ground::{Dice, MIB};
use stele_media::Buffer;

use super::folder;
use super::profile::Filesystem;
use crate::error::LabError;
use crate::live::content::{Content, Source};
use crate::live::system_place;

/// A file; `None` once it was deleted. The lock is that of its users.
#[derive(Debug)]
pub struct Shared {
    pub path: PathBuf,
    pub length: RwLock<Option<u64>>,
}

pub struct Population {
    folder: PathBuf,
    filesystem: Filesystem,
    flags: i32,
    next: AtomicU64,
    live: Mutex<Vec<Arc<Shared>>>,
}

impl Drop for Population {
    fn drop(&mut self) {
        // It was made by this run, and nothing else is in it.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Population {
    /// Makes the directory, and the files that there are from the beginning. `each` is asked behind
    /// each whether it goes on.
    pub fn make(
        filesystem: &Filesystem,
        direct: bool,
        dice: &mut Dice,
        each: &mut dyn FnMut() -> bool,
    ) -> Result<Population, LabError> {
        let folder = folder(&filesystem.location);
        let cannot = |error: io::Error| LabError::of(&error, "cannot be made", &folder);
        system_place::refuse_directory(&filesystem.location)?;
        std::fs::create_dir_all(&filesystem.location).map_err(cannot)?;
        std::fs::create_dir(&folder).map_err(cannot)?;
        let flags = if direct { libc::O_DIRECT } else { 0 };
        let population = Population {
            folder: folder.clone(),
            filesystem: filesystem.clone(),
            flags,
            next: AtomicU64::new(0),
            live: Mutex::new(Vec::new()),
        };
        for number in 0..filesystem.directories {
            std::fs::create_dir(folder.join(format!("d{number}"))).map_err(cannot)?;
        }
        let (mut buffer, mut source) = (Buffer::zeroed(MIB as usize), Content::default().source(dice.fork(), None));
        for _ in 0..filesystem.files {
            let path = population.new_path();
            let length = population.length(dice);
            let made = File::create_new(&path).and_then(|file| write(&file, 0, length, &mut buffer, &mut source));
            made.map_err(|error| LabError::of(&error, "cannot be made", &path))?;
            population.add(path, length);
            if !each() {
                return Err(LabError::Stopped(format!("{}: stopped while it was filled", folder.display())));
            }
        }
        Ok(population)
    }

    pub fn block(&self) -> Option<u64> {
        self.filesystem.block
    }

    /// Of a file that is made.
    pub fn length(&self, dice: &mut Dice) -> u64 {
        let Filesystem { least, most, sizes, .. } = &self.filesystem;
        let mut drawn = dice.below(sizes.iter().map(|size| size.1).sum::<u64>().max(1));
        for (size, weight) in sizes {
            if drawn < *weight {
                return *size;
            }
            drawn -= weight;
        }
        least + dice.below(most - least + 1)
    }

    pub fn new_path(&self) -> PathBuf {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.folder.join(format!("d{}/f{number}", number % self.filesystem.directories))
    }

    pub fn new_directory(&self) -> PathBuf {
        self.folder.join(format!("m{}", self.next.fetch_add(1, Ordering::Relaxed)))
    }

    pub fn add(&self, path: PathBuf, length: u64) {
        let file = Shared { path, length: RwLock::new(Some(length)) };
        self.live.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::new(file));
    }

    /// Any file; none where none is left.
    pub fn any(&self, dice: &mut Dice) -> Option<Arc<Shared>> {
        let live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        dice.pick(&live).cloned()
    }

    /// Takes any file out: it is drawn no more.
    pub fn take(&self, dice: &mut Dice) -> Option<Arc<Shared>> {
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        let count = live.len() as u64;
        (count > 0).then(|| live.swap_remove(dice.below(count) as usize))
    }

    pub fn open(&self, path: &Path, writes: bool, new: bool) -> io::Result<File> {
        OpenOptions::new().read(!writes).write(writes).create_new(new).custom_flags(self.flags).open(path)
    }
}

/// Writes so many bytes from a place on, a buffer at a time.
pub fn write(file: &File, at: u64, length: u64, buffer: &mut [u8], source: &mut Source) -> io::Result<()> {
    let mut done = 0;
    while done < length {
        let part = (buffer.len() as u64).min(length - done) as usize;
        source.make(&mut buffer[..part], at + done);
        file.write_all_at(&buffer[..part], at + done)?;
        done += part as u64;
    }
    Ok(())
}
