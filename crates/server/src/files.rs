//! Small files that are written atomically: a kill or a power cut leaves the old or the new
//! contents.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use crate::failure::{Failure, Outcome, io_failure};
use crate::node::surroundings::random;

const PUBLIC: u32 = 0o644;
/// The umask of the process takes from it.
const USUAL: u32 = 0o666;
const PRIVATE: u32 = 0o600;
/// What is kept of a mode: only the owner may write a file of the server.
const KEPT: u32 = 0o755;
const GROUP: u32 = 0o070;

/// Writes a file, and replaces an existing one. A user who could not read the old file cannot read
/// the new one: it keeps mode and owner, without writing by others.
pub fn replace(path: &Path, bytes: &[u8]) -> Outcome<()> {
    let written =
        beside(path, bytes, Access::of(path)).and_then(|new| fs::rename(new, path)).and_then(|()| sync_folder(path));
    written.map_err(|error| io_failure("write", path, &error))
}

/// The same, readable by its owner only.
pub fn replace_private(path: &Path, bytes: &[u8]) -> Outcome<()> {
    let written = beside(path, bytes, Access::New(PRIVATE))
        .and_then(|new| fs::rename(new, path))
        .and_then(|()| sync_folder(path));
    written.map_err(|error| io_failure("write", path, &error))
}

/// Replaces a file that only its owner may read, or removes it (`None`). If that fails, the former
/// contents are put back, so that the next start does not find a change that was refused.
pub fn change_private(path: &Path, bytes: Option<&[u8]>) -> Outcome<()> {
    let present = || match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        read => read.map(Some).map_err(|error| io_failure("read", path, &error)),
    };
    let put = |bytes: Option<&[u8]>| bytes.map_or_else(|| remove(path), |bytes| replace_private(path, bytes));
    // What cannot be read is replaced as well: the change is how it is mended.
    let former = present();
    let Err(failure) = put(bytes) else { return Ok(()) };
    let former = former?;
    // It failed before the file took its place.
    if present().is_ok_and(|present| present == former) {
        return Err(failure);
    }
    let Err(again) = put(former.as_deref()) else { return Err(failure) };
    let error =
        format!("{}; nor can what was there be put back, so that the next start may find the change", again.error);
    tracing::error!("{error}");
    Err(Failure { error, ..failure }.next("repeat the command when the disk of the data directory takes writes again"))
}

/// Replaces a file in a directory where other people may write too. The bytes go to a new file
/// under a name that they cannot foresee, so that no link planted there leads the bytes to a file
/// elsewhere. A link in the file's own place is replaced, and not followed.
pub fn replace_among_others(path: &Path, bytes: &[u8]) -> Outcome<()> {
    let mut draft = Draft::open(path, PUBLIC).map_err(|error| io_failure("write", path, &error))?;
    draft.put(bytes)?;
    draft.replace()
}

/// Makes a new file that only its owner may read. It never overwrites an existing file.
pub fn create_private(path: &Path, bytes: &[u8]) -> Outcome<()> {
    let mut draft = Draft::private(path)?;
    draft.put(bytes)?;
    draft.keep()
}

/// Makes a new file as [`create_private`] does, which others may read.
pub fn create(path: &Path, bytes: &[u8]) -> Outcome<()> {
    let mut draft = Draft::new(path)?;
    draft.put(bytes)?;
    draft.keep()
}

/// A new file that gets its name when all of it is durable. Until then it has a name in the same
/// directory that no other user can foresee. What is not kept is removed.
pub struct Draft {
    path: PathBuf,
    beside: PathBuf,
    file: File,
}

impl Draft {
    /// For a new file that its owner alone may read.
    pub fn private(path: &Path) -> Outcome<Draft> {
        taken(path).and_then(|()| Draft::open(path, PRIVATE)).map_err(|error| io_failure("write", path, &error))
    }

    /// For a new file with the usual mode of this process.
    pub fn new(path: &Path) -> Outcome<Draft> {
        taken(path).and_then(|()| Draft::open(path, USUAL)).map_err(|error| io_failure("write", path, &error))
    }

    fn open(path: &Path, mode: u32) -> io::Result<Draft> {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{:016x}.new", u64::from_be_bytes(random())));
        let beside = path.with_file_name(name);
        let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&beside)?;
        Ok(Draft { path: path.to_owned(), beside, file })
    }

    /// Proves that the place takes so many bytes, before something is done that cannot be done
    /// twice.
    pub fn reserve(&mut self, bytes: usize) -> Outcome<()> {
        let zeros = vec![0; bytes];
        let tried = self.file.write_all(&zeros).and_then(|()| self.file.sync_all()).and_then(|()| self.file.rewind());
        self.told(tried)
    }

    pub fn put(&mut self, bytes: &[u8]) -> Outcome<()> {
        let written = self.file.write_all(bytes);
        self.told(written)
    }

    /// Gives the file its name, unless another file has got that name meanwhile.
    pub fn keep(mut self) -> Outcome<()> {
        let kept = self.finish().and_then(|()| match fs::hard_link(&self.beside, &self.path) {
            // The second name goes with the draft.
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(error),
            // File systems of USB sticks and network shares often lack links.
            Err(_) => taken(&self.path).and_then(|()| fs::rename(&self.beside, &self.path)),
        });
        let kept = kept.map(|()| drop(fs::remove_file(&self.beside))).and_then(|()| self.sync_name());
        self.told(kept)
    }

    /// Gives the file its name, in the place of the one that has it.
    pub fn replace(mut self) -> Outcome<()> {
        let kept = self.finish().and_then(|()| fs::rename(&self.beside, &self.path)).and_then(|()| self.sync_name());
        self.told(kept)
    }

    /// What was reserved and not written goes.
    fn finish(&mut self) -> io::Result<()> {
        let length = self.file.stream_position()?;
        self.file.set_len(length).and_then(|()| self.file.sync_all())
    }

    /// Some network shares cannot make a directory durable on request, and do it by themselves.
    fn sync_name(&self) -> io::Result<()> {
        match sync_folder(&self.path) {
            Err(error) if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) => Ok(()),
            synced => synced,
        }
    }

    fn told<T>(&self, done: io::Result<T>) -> Outcome<T> {
        done.map_err(|error| io_failure("write", &self.path, &error))
    }
}

impl Write for Draft {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // Once it has its name, nothing is there.
        let _ = fs::remove_file(&self.beside);
    }
}

/// Removes a file durably. A missing file is no error.
pub fn remove(path: &Path) -> Outcome<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed.and_then(|()| sync_folder(path)).map_err(|error| io_failure("remove", path, &error)),
    }
}

/// Makes a directory durably; it may exist already.
pub fn folder(path: &Path) -> Outcome<()> {
    folder_for(path, 0o777)
}

/// Makes a directory that no other user can enter, durably. It may exist already, and keeps its
/// mode then.
pub fn private_folder(path: &Path) -> Outcome<()> {
    folder_for(path, 0o700)
}

fn folder_for(path: &Path, mode: u32) -> Outcome<()> {
    match fs::DirBuilder::new().mode(mode).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made.and_then(|()| sync_folder(path)).map_err(|error| io_failure("make", path, &error)),
    }
}

fn taken(path: &Path) -> io::Result<()> {
    if path.exists() { Err(io::ErrorKind::AlreadyExists.into()) } else { Ok(()) }
}

/// Writes the bytes durably under another name in the same directory, over any remains of a killed
/// process. That name is the server's own: files that operators name are made by a [`Draft`].
fn beside(path: &Path, bytes: &[u8], access: Access) -> io::Result<PathBuf> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let new = path.with_file_name(name);
    match fs::remove_file(&new) {
        // The name is the server's own: no path that was given is the wrong one.
        Err(error) if error.kind() == io::ErrorKind::IsADirectory => {
            return Err(io::Error::other(format!("{} is in the way, which is a directory", new.display())));
        }
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    fresh(&new, bytes, access)?;
    Ok(new)
}

/// Writes a new file durably. Whatever has its name already, also a link, is an error.
fn fresh(new: &Path, bytes: &[u8], access: Access) -> io::Result<()> {
    let mode = match access {
        Access::New(mode) => mode,
        Access::Kept { .. } => PRIVATE,
    };
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(new)?;
    file.write_all(bytes).and_then(|()| access.keep(&file)).and_then(|()| file.sync_all()).inspect_err(|_| {
        let _ = fs::remove_file(new);
    })
}

/// Who may use a new file.
#[derive(Clone, Copy)]
enum Access {
    /// This mode, and the user of this process.
    New(u32),
    /// The mode and the owner of the file that it replaces.
    Kept { mode: u32, user: u32, group: u32 },
}

impl Access {
    fn of(path: &Path) -> Access {
        match fs::metadata(path) {
            Ok(about) if about.is_file() => {
                Access::Kept { mode: about.mode() & KEPT, user: about.uid(), group: about.gid() }
            }
            _ => Access::New(PUBLIC),
        }
    }

    /// A user other than root cannot give a file away. The group then is another one, and may not
    /// read it.
    fn keep(self, file: &File) -> io::Result<()> {
        let Access::Kept { mode, user, group } = self else { return Ok(()) };
        let about = file.metadata()?;
        let is_kept = (about.uid(), about.gid()) == (user, group) || fchown(file, Some(user), Some(group)).is_ok();
        file.set_permissions(Permissions::from_mode(if is_kept { mode } else { mode & !GROUP }))
    }
}

fn sync_folder(path: &Path) -> io::Result<()> {
    #[cfg(test)]
    failing::take()?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

/// Failures to make directories durable, for tests.
#[cfg(test)]
pub mod failing {
    use std::cell::RefCell;
    use std::collections::VecDeque;
    use std::io;

    thread_local! {
        static NEXT: RefCell<VecDeque<bool>> = const { RefCell::new(VecDeque::new()) };
    }

    /// Which of the next attempts of this thread fail.
    pub fn set(attempts: &[bool]) {
        NEXT.with_borrow_mut(|next| *next = attempts.iter().copied().collect());
    }

    pub fn take() -> io::Result<()> {
        let fails = NEXT.with_borrow_mut(|next| next.pop_front().unwrap_or(false));
        if fails { Err(io::Error::other("the disk failed")) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_that_fails_behind_the_replacement_is_taken_back() {
        let folder = std::env::temp_dir().join(format!("stele-files-back-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("exports.json");
        let present = || fs::read(&path).ok();
        for former in [None, Some(&b"former"[..])] {
            for new in [Some(&b"new"[..]), None] {
                change_private(&path, former).unwrap();
                failing::set(&[true]);
                let changed = change_private(&path, new);
                assert_eq!((changed.is_err(), present().as_deref()), (former.is_some() || new.is_some(), former));
                failing::set(&[]);
            }
        }
        assert!(present().is_some());
        failing::set(&[true, true]);
        let failure = change_private(&path, Some(b"new")).unwrap_err();
        assert!(failure.error.contains("the next start may find the change"), "{failure}");
        // The next change counts.
        change_private(&path, Some(b"newer")).unwrap();
        assert_eq!(present().as_deref(), Some(&b"newer"[..]));
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn what_cannot_be_read_is_replaced() {
        let folder = std::env::temp_dir().join(format!("stele-files-unread-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("exports.json");
        // A link that leads to itself cannot be read, not even by root, and can be replaced.
        std::os::unix::fs::symlink(&path, &path).unwrap();
        assert!(fs::read(&path).is_err_and(|error| error.kind() != io::ErrorKind::NotFound));
        change_private(&path, Some(b"new")).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_file_half_written_by_a_killed_process_is_no_obstacle() {
        let folder = std::env::temp_dir().join(format!("stele-files-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("master.key");
        // To make a file removes no other file, which may be an operator's own.
        fs::write(folder.join("master.key.new"), b"hal").unwrap();
        create_private(&path, b"whole").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"whole");
        assert_eq!(fs::read(folder.join("master.key.new")).unwrap(), b"hal");
        assert!(create_private(&path, b"other").is_err(), "a key is never written over");
        assert_eq!(fs::read(&path).unwrap(), b"whole");
        replace(&path, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "nothing is left behind");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_draft_that_is_not_kept_leaves_nothing() {
        let folder = std::env::temp_dir().join(format!("stele-files-draft-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("log.jsonl");
        let names = || fs::read_dir(&folder).unwrap().count();
        let mut draft = Draft::new(&path).unwrap();
        draft.reserve(4096).unwrap();
        draft.put(b"half").unwrap();
        assert!(!path.exists() && names() == 1);
        drop(draft);
        assert_eq!(names(), 0);
        let mut draft = Draft::private(&path).unwrap();
        draft.reserve(4096).unwrap();
        draft.put(b"whole").unwrap();
        draft.keep().unwrap();
        assert_eq!((fs::read(&path).unwrap().as_slice(), names()), (b"whole".as_slice(), 1));
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, PRIVATE);
        assert!(Draft::new(&path).is_err(), "an existing file is never written over");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_replaced_file_keeps_who_may_read_it() {
        let folder = std::env::temp_dir().join(format!("stele-files-mode-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("stele.toml");
        let mode = || fs::metadata(&path).unwrap().mode() & 0o777;
        replace(&path, b"new").unwrap();
        assert_eq!(mode() & !PUBLIC, 0);
        for (set, kept) in [(0o600, 0o600), (0o640, 0o640), (0o666, 0o644)] {
            fs::set_permissions(&path, Permissions::from_mode(set)).unwrap();
            replace(&path, b"changed").unwrap();
            assert_eq!(mode(), kept, "{set:o}");
        }
        // Only root can see that the owner is kept.
        if crate::node::own_uid() == 0 {
            std::os::unix::fs::chown(&path, Some(12345), Some(12346)).unwrap();
            replace(&path, b"again").unwrap();
            let about = fs::metadata(&path).unwrap();
            assert_eq!((about.uid(), about.gid(), mode()), (12345, 12346, 0o644));
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
