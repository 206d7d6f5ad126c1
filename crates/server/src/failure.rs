//! The failure of a command: kind, cause and place, and the next step.
//!
//! The kind decides the exit code, so that scripts need not read prose, and travels as JSON between
//! server and command.

use std::fmt;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use stele_backup::BackupError;
use stele_ground::Shown;
use stele_lab::error::LabError;

/// The kinds of failure, each with its exit code.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A failure outside the command: a disk, the network, the server. Exit code 1.
    Failed,
    /// The command line or configuration is wrong. Exit code 2, as the argument parser's own.
    Usage,
    /// Forbidden: retention, a hold, a protected volume, a missing right. Exit code 3.
    Refused,
    /// No such pool, volume, bucket, key or version. Exit code 4.
    Missing,
    /// Stored bytes are damaged, or too few drives are there. Exit code 5.
    Damaged,
    /// No space. Exit code 6.
    Full,
    /// Another process holds the drives, or no server answers. Exit code 7.
    Busy,
    /// Drives did not answer in time; the process ends without waiting for them. Exit code 8.
    Stuck,
    /// The object to create exists already. Exit code 9.
    Exists,
    /// The reader of the output has gone, as in `stele audit export | head -1`. No message is
    /// printed. Exit code 141, as a shell reports for a program ended by SIGPIPE.
    Unread,
    /// A measurement did not reach a steady state. Exit code 10.
    Unsteady,
    /// A measurement has no validity for its target: the generator was late. Exit code 11.
    Void,
    /// A measurement was stopped, or its target or a host failed; the figures so far are kept. Exit
    /// code 12.
    Partial,
    /// A measurement became worse than its baseline, or missed its objective. Exit code 13.
    Regressed,
    /// Some files could not be saved or restored; the rest was. Exit code 3.
    Incomplete,
    /// There is no backup repository at the place. Exit code 10.
    NoRepository,
    /// Another process prunes the backup repository. Exit code 11.
    Locked,
    /// The password opens no key of the backup repository. Exit code 12.
    WrongPassword,
    /// A signal ended a backup or restore; what is stored stays. Exit code 130, as a shell reports
    /// for SIGINT.
    Interrupted,
}

impl Kind {
    pub fn exit_code(self) -> u8 {
        match self {
            Kind::Failed => 1,
            Kind::Usage => 2,
            Kind::Refused => 3,
            Kind::Missing => 4,
            Kind::Damaged => 5,
            Kind::Full => 6,
            Kind::Busy => 7,
            Kind::Stuck => 8,
            Kind::Exists => 9,
            Kind::Unread => 141,
            Kind::Unsteady => 10,
            Kind::Void => 11,
            Kind::Partial => 12,
            Kind::Regressed => 13,
            Kind::Incomplete => 3,
            Kind::NoRepository => 10,
            Kind::Locked => 11,
            Kind::WrongPassword => 12,
            Kind::Interrupted => 130,
        }
    }
}

/// A failure for an operator. It may quote untrusted text: [`fmt::Display`] makes that safe to
/// display, and JSON has the exact text.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Failure {
    pub kind: Kind,
    /// Cause and place.
    pub error: String,
    /// The next step; empty if the cause already contains it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub next: String,
}

pub type Outcome<T> = Result<T, Failure>;

impl Failure {
    pub fn new(kind: Kind, error: impl Into<String>) -> Failure {
        Failure { kind, error: error.into(), next: String::new() }
    }

    pub fn failed(error: impl Into<String>) -> Failure {
        Failure::new(Kind::Failed, error)
    }

    pub fn usage(error: impl Into<String>) -> Failure {
        Failure::new(Kind::Usage, error)
    }

    pub fn missing(error: impl Into<String>) -> Failure {
        Failure::new(Kind::Missing, error)
    }

    /// Cause and next step on one line, for the log and for alarms.
    pub fn on_one_line(&self) -> String {
        if self.next.is_empty() { self.error.clone() } else { format!("{}; {}", self.error, self.next) }
    }

    /// Adds the next step if it has none.
    pub fn or_next(self, next: impl Into<String>) -> Failure {
        if self.next.is_empty() { self.next(next) } else { self }
    }

    /// Adds the next step.
    pub fn next(mut self, next: impl Into<String>) -> Failure {
        self.next = next.into();
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Shown(&self.error))?;
        if !self.next.is_empty() {
            write!(f, "\n  next: {}", Shown(&self.next))?;
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}

impl From<stele_media::MediaFault> for Kind {
    fn from(fault: stele_media::MediaFault) -> Kind {
        use stele_media::MediaFault;
        match fault {
            MediaFault::Damaged => Kind::Damaged,
            MediaFault::Full => Kind::Full,
            MediaFault::Refused => Kind::Refused,
            MediaFault::Invalid => Kind::Usage,
            MediaFault::Retry => Kind::Busy,
            MediaFault::Gone => Kind::Failed,
        }
    }
}

impl From<stele_array::ArrayError> for Failure {
    fn from(error: stele_array::ArrayError) -> Failure {
        use stele_array::ArrayError;
        let kind = match &error {
            ArrayError::Invalid(_) => Kind::Usage,
            ArrayError::Exists(_) => Kind::Exists,
            ArrayError::Refused(_) => Kind::Refused,
            ArrayError::Busy(_) => Kind::Busy,
            ArrayError::Full(_) => Kind::Full,
            ArrayError::Degraded(_) | ArrayError::Damaged(_) => Kind::Damaged,
            ArrayError::Missing(_) => Kind::Missing,
            ArrayError::Stopped(_) => Kind::Failed,
        };
        Failure::new(kind, error.to_string())
    }
}

/// A part of the archive that has stopped takes changes again after a start only.
const STOPPED_NEXT: &str =
    "mend what the message names, such as a full file system under file drives; then start the server again";

impl From<stele_archive::ArchiveError> for Failure {
    fn from(error: stele_archive::ArchiveError) -> Failure {
        use stele_archive::ArchiveError::*;
        let kind = match &error {
            NoSuchBucket(_)
            | NoSuchKey { .. }
            | NoSuchVersion { .. }
            | NoSuchUpload(_)
            | NoSuchAccessKey(_)
            | NoSuchConfiguration { .. }
            | NoSuchThing(_) => Kind::Missing,
            ExpiredAccessKey(_)
            | InvalidToken(_)
            | Denied(_)
            | Retained { .. }
            | Weaker(_)
            | ReadOnly(_)
            | Unpaired(_)
            | Newer(_)
            | WrongKey(_)
            | CustomerKey(_) => Kind::Refused,
            NoSpace(_) | QuotaExceeded { .. } => Kind::Full,
            Damaged { .. } | KeyNotDestroyed(_) => Kind::Damaged,
            Busy(_) | Conflict(_) => Kind::Busy,
            Stopped(_) => Kind::Failed,
            BucketExists { .. } | ExistsAlready(_) => Kind::Exists,
            _ => Kind::Usage,
        };
        let next = if matches!(error, Stopped(_)) { STOPPED_NEXT } else { "" };
        Failure::new(kind, error.to_string()).next(next)
    }
}

impl From<BackupError> for Failure {
    fn from(error: BackupError) -> Failure {
        let kind = match &error {
            BackupError::NoRepository(_) => Kind::NoRepository,
            BackupError::WrongPassword => Kind::WrongPassword,
            BackupError::Locked(_) => Kind::Locked,
            BackupError::Damaged(_) => Kind::Damaged,
            BackupError::Missing(_) => Kind::Missing,
            BackupError::Exists(_) => Kind::Exists,
            BackupError::Refused(_) | BackupError::Newer(_) => Kind::Refused,
            BackupError::Full(_) => Kind::Full,
            BackupError::Invalid(_) => Kind::Usage,
            BackupError::Unreachable(_) => Kind::Busy,
            BackupError::Failed(_) => Kind::Failed,
            BackupError::Stopped => Kind::Interrupted,
        };
        let next = match &error {
            // The bucket itself is missing.
            BackupError::NoRepository(text) if text.contains("NoSuchBucket") => "`stele bucket create` makes it",
            BackupError::NoRepository(_) => "`stele backup init` makes one",
            BackupError::Locked(_) => "wait until it has ended",
            // As the kernel tells it. A repository of the largest size says what to do itself.
            BackupError::Full(text) if text.contains("os error") => {
                "make room on the file system there, or raise the disk quota; then repeat the command"
            }
            BackupError::Full(text) if text.contains("QuotaExceeded") => {
                "raise the quota of the bucket or the key: `stele bucket set --quota`, `stele key set --quota`"
            }
            BackupError::Full(text) if text.contains("InsufficientStorage") => {
                "add drives there (`stele pool add`), or delete what may be deleted"
            }
            _ => "",
        };
        Failure::new(kind, error.to_string()).next(next)
    }
}

impl From<LabError> for Failure {
    fn from(error: LabError) -> Failure {
        let kind = match &error {
            LabError::Usage(_) => Kind::Usage,
            LabError::Refused(_) => Kind::Refused,
            LabError::Missing(_) => Kind::Missing,
            LabError::Full(_) => Kind::Full,
            LabError::Unreachable(_) => Kind::Busy,
            LabError::Failed(_) => Kind::Failed,
            LabError::Damaged(_) => Kind::Damaged,
            LabError::Stopped(_) => Kind::Partial,
        };
        Failure::new(kind, error.to_string())
    }
}

/// The packaged unit shows its server every directory read-only but the server's own ones.
pub const READ_ONLY_NEXT: &str = "mount it for writing; if the packaged unit is to write there, name the directory in \
    ReadWritePaths= with `systemctl edit stele`, and start the server again";

/// The limit of open files is used up, mostly by connections.
const OPEN_FILES_NEXT: &str = "raise LimitNOFILE of the service, or `ulimit -n`; see `stele doctor`";

/// Whether a file is longer than what was to be read (`whole.rs`), and the kernel said nothing.
fn is_another_file(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::FileTooLarge && error.raw_os_error().is_none()
}

/// An operating-system error with the attempted action and the path.
pub fn io_failure(what: &str, path: &std::path::Path, error: &std::io::Error) -> Failure {
    let kind = match error.kind() {
        std::io::ErrorKind::NotFound => Kind::Missing,
        std::io::ErrorKind::PermissionDenied => Kind::Refused,
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => Kind::Full,
        std::io::ErrorKind::AlreadyExists => Kind::Exists,
        std::io::ErrorKind::BrokenPipe => Kind::Unread,
        // A directory in the place of a file, or a file in the place of a directory.
        std::io::ErrorKind::IsADirectory | std::io::ErrorKind::NotADirectory => Kind::Usage,
        _ if is_another_file(error) => Kind::Usage,
        _ => Kind::Failed,
    };
    let said = match kind {
        Kind::Exists => "it is there already".to_owned(),
        _ => error.to_string(),
    };
    let failure = Failure::new(kind, format!("cannot {what} {}: {said}", path.display()));
    match error.kind() {
        _ if matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE)) => failure.next(OPEN_FILES_NEXT),
        std::io::ErrorKind::ReadOnlyFilesystem => failure.next(READ_ONLY_NEXT),
        std::io::ErrorKind::StorageFull => failure.next("make room on the file system there; `df` shows it"),
        std::io::ErrorKind::QuotaExceeded => failure.next("make room there, or raise the disk quota of this user"),
        std::io::ErrorKind::IsADirectory => failure.next("name a file there, and no directory"),
        std::io::ErrorKind::NotADirectory => failure.next("a part of this path is a file, and no directory"),
        _ if is_another_file(error) => failure.next("name the right file there"),
        _ => failure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_bucket_and_a_missing_repository_have_advice() {
        let next = |text: &str| Failure::from(BackupError::NoRepository(text.to_owned())).next;
        let of_bucket = next("s3://host/vault: GET /vault was answered with 404 NoSuchBucket: there is none");
        assert!(of_bucket.contains("stele bucket create"), "{of_bucket}");
        assert!(next("there is no repository in s3://host/vault").contains("stele backup init"));
    }

    /// `stele backup init` on a full disk ended without a next step.
    #[test]
    fn a_repository_without_room_has_a_next_step() {
        let full = std::io::Error::from_raw_os_error(libc::ENOSPC);
        for (text, next) in [
            (format!("cannot write /mnt/backup/tmp/1: {full}"), "make room"),
            ("PUT /vault/k was answered with 507 InsufficientStorage: the pool is full".to_owned(), "`stele pool add`"),
            ("PUT /vault/k was answered with 403 QuotaExceeded: no".to_owned(), "`stele bucket set --quota`"),
        ] {
            let failure = Failure::from(BackupError::Full(text));
            assert!(failure.kind == Kind::Full && failure.next.contains(next), "{failure}");
        }
        let largest = Failure::from(BackupError::Full("the repository has 9 segments; begin another one".to_owned()));
        assert_eq!(largest.next, "");
    }

    /// As OPERATIONS.md has them.
    #[test]
    fn stores_and_targets_that_cannot_be_used_have_their_exit_codes() {
        let code = |failure: Failure| failure.kind.exit_code();
        for (store, target, expected) in [
            (BackupError::Failed(String::new()), LabError::Failed(String::new()), 1),
            (BackupError::Refused(String::new()), LabError::Refused(String::new()), 3),
            (BackupError::Newer(String::new()), LabError::Refused(String::new()), 3),
            (BackupError::Missing(String::new()), LabError::Missing(String::new()), 4),
            (BackupError::Damaged(String::new()), LabError::Damaged(String::new()), 5),
            (BackupError::Full(String::new()), LabError::Full(String::new()), 6),
            (BackupError::Unreachable(String::new()), LabError::Unreachable(String::new()), 7),
        ] {
            assert_eq!((code(store.into()), code(target.into())), (expected, expected));
        }
    }

    #[test]
    fn a_file_that_is_there_already_is_told_in_words() {
        use std::io::{Error, ErrorKind};
        for error in [Error::from(ErrorKind::AlreadyExists), Error::from_raw_os_error(17)] {
            let failure = io_failure("write", std::path::Path::new("a.key"), &error);
            assert_eq!(
                (failure.kind, failure.error.as_str()),
                (Kind::Exists, "cannot write a.key: it is there already")
            );
        }
    }

    #[test]
    fn a_disk_without_room_is_full_and_has_a_next_step() {
        use std::io::Error;
        for (code, next) in [(libc::ENOSPC, "make room on the file system"), (libc::EDQUOT, "disk quota")] {
            let failure = io_failure("write", std::path::Path::new("exports.json"), &Error::from_raw_os_error(code));
            assert!(failure.kind == Kind::Full && failure.next.contains(next), "{failure}");
        }
    }

    #[test]
    fn a_limit_of_open_files_that_is_reached_has_a_next_step() {
        for code in [libc::EMFILE, libc::ENFILE] {
            let error = std::io::Error::from_raw_os_error(code);
            let failure = io_failure("write", std::path::Path::new("heads/1.head"), &error);
            assert!(failure.kind == Kind::Failed && failure.next.contains("LimitNOFILE"), "{failure}");
        }
    }

    /// Another folder for a socket helps nothing where the file system takes no writes.
    #[test]
    fn a_next_step_that_follows_from_the_error_is_kept() {
        use std::io::{Error, ErrorKind};
        let told = |kind: ErrorKind| {
            let error = Error::from(kind);
            io_failure("make the socket", std::path::Path::new("stele.sock"), &error).or_next("set another path").next
        };
        assert_eq!(told(ErrorKind::ReadOnlyFilesystem), READ_ONLY_NEXT);
        assert!(told(ErrorKind::StorageFull).contains("make room"));
        assert_eq!(told(ErrorKind::NotFound), "set another path");
    }

    /// As SEMANTICS/json.md says, whatever the command.
    #[test]
    fn a_directory_in_place_of_a_file_is_wrong_usage() {
        let folder = std::env::temp_dir();
        let read = |path: &std::path::Path| {
            let error = std::fs::read(path).unwrap_err();
            (io_failure("read", path, &error), LabError::of(&error, "cannot be read", path))
        };
        for path in [folder.clone(), std::path::Path::new("/proc/self/status/x").to_owned()] {
            let (failure, of_lab) = read(&path);
            assert!(failure.kind == Kind::Usage && !failure.next.is_empty(), "{failure}");
            assert_eq!(Failure::from(of_lab).kind, Kind::Usage, "{}", path.display());
        }
    }

    #[test]
    fn a_name_that_is_not_there_or_there_already_has_its_own_kind() {
        use stele_archive::ArchiveError::*;
        for (error, kind) in [
            (NoSuchThing("there is no matter `x`".into()), Kind::Missing),
            (NoSuchBucket("x".into()), Kind::Missing),
            (ExistsAlready("the matter `x` was opened already".into()), Kind::Exists),
            (Weaker("version 2 is weaker".into()), Kind::Refused),
            (InvalidState("the matter `x` is closed".into()), Kind::Usage),
            (InvalidBucketName("`A B` cannot name a bucket".into()), Kind::Usage),
        ] {
            assert_eq!(Failure::from(error.clone()).kind, kind, "{error}");
        }
    }

    #[test]
    fn an_archive_that_has_stopped_names_the_next_start() {
        let failure = Failure::from(stele_archive::ArchiveError::Stopped("the catalog has stopped".into()));
        assert_eq!((failure.kind, failure.next.as_str()), (Kind::Failed, STOPPED_NEXT));
    }
}
