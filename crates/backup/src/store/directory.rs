//! A repository in a directory of a local or mounted file system.
//!
//! A new object is written under a temporary name, forced to the drive, and linked to its name. A
//! link fails if the name exists, so nothing is replaced. On a file system without hard links, such
//! as exFAT, the file is renamed, which a name that exists refuses too. A crash leaves at most a
//! temporary file, which the next listing passes over and which `prune` removes when it is old.
//! Such a file may be a further link of a committed object, so none is ever opened again: every
//! name is random, and only a new file is written. Local files have no retention: a user who may
//! write in the directory may delete.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{CWD, RenameFlags};

use super::{Folder, Listed, Name, Store};
use crate::crypt::hex;
use crate::error::{BackupError, Result};
use crate::repository::Surroundings;

const TEMPORARY: &str = "tmp";
/// A temporary file of this age belongs to no living writer.
const TEMPORARY_AGE_SECONDS: u64 = 2 * 86_400;

pub struct Directory {
    root: PathBuf,
    /// Names temporary files.
    surroundings: Arc<dyn Surroundings>,
    /// Folders whose entries above them are known to be on the drive.
    durable: Mutex<BTreeSet<PathBuf>>,
}

impl Directory {
    pub fn new(root: &Path, surroundings: Arc<dyn Surroundings>) -> Directory {
        Directory { root: root.to_owned(), surroundings, durable: Mutex::default() }
    }

    fn path(&self, name: &Name) -> PathBuf {
        self.root.join(name.text())
    }

    /// Makes a folder of the repository, durably. One that is there may be of a process that died
    /// before it forced it to the drive, so the first use of each forces it: up to the root, and
    /// that one too.
    fn make_folder(&self, folder: &Path) -> Result<()> {
        let durable = || self.durable.lock().unwrap_or_else(PoisonError::into_inner);
        if durable().contains(folder) {
            return Ok(());
        }
        let failed = |error: std::io::Error| BackupError::io("create", folder, &error);
        make_folders(folder, &mut sync).map_err(failed)?;
        let inside = folder.ancestors().take_while(|path| path.starts_with(&self.root));
        for path in inside {
            match sync(above(path)) {
                // It belongs to another user, who made the folder: an agent may enter it without
                // the right to list it.
                Err(error) if error.kind() == ErrorKind::PermissionDenied => {}
                synced => synced.map_err(failed)?,
            }
        }
        durable().insert(folder.to_owned());
        Ok(())
    }

    /// Writes the bytes durably under a temporary name.
    fn write_temporary(&self, bytes: &[u8]) -> Result<PathBuf> {
        let folder = self.root.join(TEMPORARY);
        self.make_folder(&folder)?;
        let mut id = [0; 16];
        self.surroundings.entropy(&mut id);
        let path = folder.join(hex(&id));
        let failed = |error: &std::io::Error| match error.kind() {
            // Not that of the object, which would pass for stored.
            ErrorKind::AlreadyExists => BackupError::Failed(format!("{} exists already", path.display())),
            _ => BackupError::io("write", &path, error),
        };
        let write = |file: &mut File| file.write_all(bytes).and_then(|()| file.sync_all());
        make_file(&path, write).map_err(|error| failed(&error))?;
        Ok(path)
    }

    fn place_at(&self, name: &Name, bytes: &[u8], place: impl Fn(&Path, &Path) -> std::io::Result<()>) -> Result<()> {
        let path = self.path(name);
        let folder = path.parent().unwrap_or(&self.root);
        self.make_folder(folder)?;
        let temporary = self.write_temporary(bytes)?;
        let placed = place(&temporary, &path).and_then(|()| File::open(folder)?.sync_all());
        let _ = fs::remove_file(&temporary);
        placed.map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => BackupError::Exists(format!("{} exists already", path.display())),
            _ => BackupError::io("store", &path, &error),
        })
    }

    fn open(&self, name: &Name) -> Result<(File, PathBuf)> {
        let path = self.path(name);
        let file = File::open(&path).map_err(|error| BackupError::reading(&path, &error))?;
        Ok((file, path))
    }

    fn list_in(&self, folder: Folder, dir: &Path, each: &mut dyn FnMut(Listed) -> Result<()>) -> Result<()> {
        let entries = match fs::read_dir(dir) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            entries => entries.map_err(|error| BackupError::io("list", dir, &error))?,
        };
        for entry in entries {
            let entry = entry.map_err(|error| BackupError::io("list", dir, &error))?;
            let path = entry.path();
            let metadata = match entry.metadata() {
                // It was removed meanwhile.
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                metadata => metadata.map_err(|error| BackupError::io("list", &path, &error))?,
            };
            if metadata.is_dir() && folder == Folder::Segments && dir.parent() == Some(&self.root) {
                self.list_in(folder, &path, each)?;
            }
            let text = path.strip_prefix(&self.root).ok().and_then(|path| path.to_str());
            if let Some(name) = text.and_then(|text| Name::parse(folder, text)).filter(|_| metadata.is_file()) {
                each(Listed { name, size: metadata.len(), stored: stored(&metadata) })?;
            }
        }
        Ok(())
    }
}

fn stored(metadata: &fs::Metadata) -> u64 {
    u64::try_from(metadata.mtime()).unwrap_or(0)
}

/// Makes a folder and those above it that are missing, the highest first. `sync` forces the entries
/// of a folder to the drive: of each that was made, that of the folder above it.
fn make_folders(path: &Path, sync: &mut dyn FnMut(&Path) -> std::io::Result<()>) -> std::io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let above = above(path);
    if above != path {
        make_folders(above, sync)?;
    }
    match fs::create_dir(path) {
        // Another process made it at the same moment.
        Err(error) if error.kind() == ErrorKind::AlreadyExists && path.is_dir() => {}
        made => made?,
    }
    sync(above)
}

/// The folder above, which the current one is for a name alone.
fn above(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Makes a new file. One that cannot be written goes at once: a full drive would keep it full.
fn make_file(path: &Path, write: impl FnOnce(&mut File) -> std::io::Result<()>) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    write(&mut file).inspect_err(|_| {
        let _ = fs::remove_file(path);
    })
}

/// Gives a file its name, unless that is taken.
fn place_new(from: &Path, to: &Path, link: impl Fn(&Path, &Path) -> std::io::Result<()>) -> std::io::Result<()> {
    let refused = match link(from, to) {
        Err(error) if [ErrorKind::PermissionDenied, ErrorKind::Unsupported].contains(&error.kind()) => error,
        linked => return linked,
    };
    match rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE).map_err(std::io::Error::from) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(refused),
        renamed => renamed,
    }
}

fn sync(folder: &Path) -> std::io::Result<()> {
    File::open(folder)?.sync_all()
}

impl Store for Directory {
    fn place(&self) -> String {
        self.root.display().to_string()
    }

    fn create(&self, name: &Name, bytes: &[u8]) -> Result<()> {
        self.place_at(name, bytes, |from, to| place_new(from, to, |from, to| fs::hard_link(from, to)))
    }

    fn replace(&self, name: &Name, bytes: &[u8]) -> Result<()> {
        self.place_at(name, bytes, |from, to| fs::rename(from, to))
    }

    fn get(&self, name: &Name, max: u64) -> Result<Vec<u8>> {
        let (file, path) = self.open(name)?;
        let mut bytes = Vec::new();
        let read = file.take(max + 1).read_to_end(&mut bytes);
        read.map_err(|error| BackupError::reading(&path, &error))?;
        if bytes.len() as u64 > max {
            return Err(BackupError::Damaged(format!("{} is longer than {max} bytes", path.display())));
        }
        Ok(bytes)
    }

    fn get_range(&self, name: &Name, range: Range<u64>) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.get_range_into(name, range, &mut bytes)?;
        Ok(bytes)
    }

    fn get_range_into(&self, name: &Name, range: Range<u64>, into: &mut Vec<u8>) -> Result<()> {
        let (file, path) = self.open(name)?;
        into.resize((range.end.saturating_sub(range.start)) as usize, 0);
        file.read_exact_at(into, range.start).map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => BackupError::Damaged(format!("{} is too short", path.display())),
            _ => BackupError::reading(&path, &error),
        })
    }

    fn list(&self, folder: Folder, each: &mut dyn FnMut(Listed) -> Result<()>) -> Result<()> {
        self.list_in(folder, &self.root.join(folder.name()), each)
    }

    fn remove(&self, name: &Name) -> Result<()> {
        let path = self.path(name);
        fs::remove_file(&path).map_err(|error| BackupError::io("remove", &path, &error))
    }

    /// The time that a new file gets: a file system of another machine dates by that one's clock.
    /// Where none can be made, nothing is stored, and the clock of this machine serves.
    fn now(&self) -> Result<u64> {
        let folder = self.root.join(TEMPORARY);
        let _ = fs::create_dir(&folder);
        let mut id = [0; 16];
        self.surroundings.entropy(&mut id);
        let path = folder.join(hex(&id));
        let dated = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).and_then(|file| {
            let is = file.metadata();
            let _ = fs::remove_file(&path);
            is
        });
        let machine = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        Ok(dated.map_or_else(|_| machine(), |is| stored(&is)))
    }

    fn is_local(&self) -> bool {
        true
    }

    fn tidy(&self) -> Result<()> {
        let now = self.now()?;
        let Ok(entries) = fs::read_dir(self.root.join(TEMPORARY)) else { return Ok(()) };
        for entry in entries.flatten() {
            let old = entry.metadata().is_ok_and(|is| stored(&is) + TEMPORARY_AGE_SECONDS < now);
            if old {
                let _ = fs::remove_file(entry.path());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Temporary;

    #[test]
    fn a_file_that_cannot_be_written_is_removed() {
        let folder = Temporary::new();
        let path = folder.join("new");
        let full = |file: &mut File| {
            file.write_all(b"the first part")?;
            Err(ErrorKind::StorageFull.into())
        };
        assert_eq!(make_file(&path, full).unwrap_err().kind(), ErrorKind::StorageFull);
        assert!(!path.exists());
        make_file(&path, |file| file.write_all(b"whole")).unwrap();
        // One that was there is another writer's.
        assert_eq!(make_file(&path, full).unwrap_err().kind(), ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&path).unwrap(), b"whole");
    }

    #[test]
    fn without_hard_links_a_name_that_is_taken_is_refused_too() {
        let folder = Temporary::new();
        let name = folder.join("name");
        let place = |content: &str, why: ErrorKind| {
            place_new(&folder.write("new", content), &name, |_, _| Err(why.into())).map_err(|error| error.kind())
        };
        assert_eq!(place("a", ErrorKind::StorageFull), Err(ErrorKind::StorageFull));
        assert!(!name.exists(), "only what has no links is renamed");
        assert_eq!(place("b", ErrorKind::PermissionDenied), Ok(()));
        assert_eq!(place("c", ErrorKind::Unsupported), Err(ErrorKind::AlreadyExists));
        assert_eq!(fs::read(&name).unwrap(), b"b");
        // The cause is that of the link where neither is possible.
        fs::remove_file(&name).unwrap();
        let placed = place_new(&folder.join("gone"), &name, |_, _| Err(ErrorKind::Unsupported.into()));
        assert_eq!(placed.unwrap_err().kind(), ErrorKind::Unsupported);
    }

    #[test]
    fn each_folder_that_is_made_is_forced_into_the_one_above() {
        let folder = Temporary::new();
        let (mut synced, path) = (Vec::new(), folder.join("a/b/keys"));
        let mut sync = |above: &Path| {
            synced.push(above.to_owned());
            Ok(())
        };
        make_folders(&path, &mut sync).unwrap();
        make_folders(&path, &mut sync).unwrap();
        assert!(path.is_dir());
        assert_eq!(synced, [folder.0.clone(), folder.join("a"), folder.join("a/b")]);
        assert_eq!(
            (above(Path::new("a")), above(Path::new("/a")), above(Path::new("/"))),
            (Path::new("."), Path::new("/"), Path::new("."))
        );
    }
}
