//! What can go wrong in the laboratory, by what the caller can do about it.

use std::fmt;

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LabError {
    /// Asked for wrongly: ask otherwise.
    Usage(String),
    /// Would destroy something, or lacks a right: say so, or choose another target.
    Refused(String),
    /// There is no such target, workload or file.
    Missing(String),
    /// No room for the target.
    Full(String),
    /// No server answers at the address: try again later, or correct the address.
    Unreachable(String),
    /// The target failed.
    Failed(String),
    /// The target gave back something else than was written, or a result file is damaged.
    Damaged(String),
    /// The caller ended it before anything was measured.
    Stopped(String),
}

impl LabError {
    /// From the system, about a path.
    pub fn of(error: &std::io::Error, what: &str, path: &std::path::Path) -> LabError {
        let text = format!("{}: {what}: {error}", path.display());
        match error.kind() {
            std::io::ErrorKind::NotFound => LabError::Missing(text),
            std::io::ErrorKind::PermissionDenied
            | std::io::ErrorKind::ResourceBusy
            | std::io::ErrorKind::ReadOnlyFilesystem => LabError::Refused(text),
            std::io::ErrorKind::StorageFull => LabError::Full(text),
            std::io::ErrorKind::IsADirectory | std::io::ErrorKind::NotADirectory => LabError::Usage(text),
            _ => LabError::Failed(text),
        }
    }

    /// The same error with the place in front of it, such as the file that asked for it.
    pub fn of_place(self, place: &dyn fmt::Display) -> LabError {
        let named = |text: String| format!("{place}: {text}");
        match self {
            LabError::Usage(text) => LabError::Usage(named(text)),
            LabError::Refused(text) => LabError::Refused(named(text)),
            LabError::Missing(text) => LabError::Missing(named(text)),
            LabError::Full(text) => LabError::Full(named(text)),
            LabError::Unreachable(text) => LabError::Unreachable(named(text)),
            LabError::Failed(text) => LabError::Failed(named(text)),
            LabError::Damaged(text) => LabError::Damaged(named(text)),
            LabError::Stopped(text) => LabError::Stopped(named(text)),
        }
    }

    /// From the words of an access that failed: a target without room is full, and one that does
    /// not permit it refuses, whatever the way to it.
    pub fn of_access(text: String) -> LabError {
        let has = |all: &[&str]| all.iter().any(|words| text.contains(words));
        match (has(&NO_ROOM), has(&NOT_PERMITTED)) {
            (true, _) => LabError::Full(text),
            (_, true) => LabError::Refused(text),
            _ => LabError::Failed(text),
        }
    }

    /// From the attempt to reach a target over the network; `text` names both.
    pub fn reaching(error: &std::io::Error, text: String) -> LabError {
        use std::io::ErrorKind as Cause;
        match error.kind() {
            Cause::ConnectionRefused
            | Cause::HostUnreachable
            | Cause::NetworkUnreachable
            | Cause::NetworkDown
            | Cause::ConnectionReset
            | Cause::ConnectionAborted
            | Cause::BrokenPipe
            | Cause::UnexpectedEof
            | Cause::TimedOut
            | Cause::WouldBlock => LabError::Unreachable(text),
            Cause::PermissionDenied => LabError::Refused(text),
            _ => LabError::Missing(text),
        }
    }
}

/// How targets say that they have no room: files, devices and NBD (ENOSPC, EDQUOT), NFS, SCSI and
/// S3.
const NO_ROOM: [&str; 6] =
    ["(os error 28)", "(os error 122)", "(NFS status 28)", "(NFS status 69)", "/27/07)", "the server answers 507"];

/// How they say that they may only be read (EROFS, and SCSI in several ways), or not by this user
/// (EPERM, EACCES).
const NOT_PERMITTED: [&str; 5] = ["(os error 30)", "(NFS status 30)", "(NFS status 1)", "(NFS status 13)", "/27/0"];

/// The cause of an error in a TOML file, on one line: its place, the text there, and what is wrong.
/// The parser's own text draws the place over several lines, which a message may not have.
pub fn toml_cause(text: &str, error: &toml::de::Error) -> String {
    let message: Vec<&str> = error.message().lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let message = message.join(", ");
    let Some(before) = error.span().and_then(|span| text.get(..span.start)) else { return message };
    let number = before.matches('\n').count() + 1;
    let line = text.lines().nth(number - 1).map_or("", str::trim);
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    let quoted = match line.chars().count() {
        0 => String::new(),
        1..=QUOTED_MAX => format!(" (`{line}`)"),
        _ => format!(" (`{}...`)", line.chars().take(QUOTED_MAX).collect::<String>()),
    };
    format!("line {number}, column {column}{quoted}: {message}")
}

/// Characters of a line that an error quotes.
const QUOTED_MAX: usize = 60;

impl fmt::Display for LabError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LabError::Usage(text)
            | LabError::Refused(text)
            | LabError::Missing(text)
            | LabError::Full(text)
            | LabError::Unreachable(text)
            | LabError::Failed(text)
            | LabError::Damaged(text)
            | LabError::Stopped(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for LabError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_does_not_answer_is_no_missing_target() {
        use std::io::ErrorKind as Cause;
        let kind = |cause: Cause| LabError::reaching(&cause.into(), "x".into());
        for cause in [
            Cause::ConnectionRefused,
            Cause::TimedOut,
            Cause::WouldBlock,
            Cause::HostUnreachable,
            Cause::UnexpectedEof,
            Cause::ConnectionReset,
        ] {
            assert_eq!(kind(cause), LabError::Unreachable("x".into()), "{cause}");
        }
        assert_eq!(kind(Cause::InvalidData), LabError::Missing("x".into()), "an export that the server lacks");
        assert_eq!(kind(Cause::PermissionDenied), LabError::Refused("x".into()));
    }

    #[test]
    fn a_file_system_that_may_only_be_read_refuses() {
        let error = std::io::Error::from_raw_os_error(libc::EROFS);
        let refused = LabError::of(&error, "cannot be made", std::path::Path::new("/mnt/x"));
        assert!(
            matches!(&refused, LabError::Refused(text) if text.starts_with("/mnt/x: cannot be made")),
            "{refused:?}"
        );
    }

    #[test]
    fn a_target_without_room_is_full_whatever_the_way_to_it() {
        let full = std::io::Error::from_raw_os_error(libc::ENOSPC).to_string();
        let quota = std::io::Error::from_raw_os_error(libc::EDQUOT).to_string();
        let unit = "data protect: there is no room left to write to (sense 7/27/07)";
        let file = "there is no room left (NFS status 28)";
        for text in [full.as_str(), &quota, unit, file, "the server answers 507 InsufficientStorage: no free segment"] {
            assert_eq!(LabError::of_access(text.into()), LabError::Full(text.into()));
        }
        let other = std::io::Error::from_raw_os_error(libc::EIO).to_string();
        assert_eq!(LabError::of_access(other.clone()), LabError::Failed(other));
    }

    #[test]
    fn a_target_that_may_only_be_read_refuses() {
        let system = std::io::Error::from_raw_os_error(libc::EROFS).to_string();
        let unit = "data protect: it is write-protected (sense 7/27/00)";
        let switch = "data protect: it is write-protected (sense 7/27/01)";
        let denied = "the server denies access (NFS status 13)";
        for text in [system.as_str(), unit, switch, denied, "it may only be read (NFS status 30)"] {
            assert_eq!(LabError::of_access(text.into()), LabError::Refused(text.into()));
        }
    }

    #[test]
    fn a_place_in_front_of_an_error_leaves_its_kind() {
        let placed = |error: LabError| error.of_place(&"job.fio");
        assert_eq!(placed(LabError::Full("no room".into())), LabError::Full("job.fio: no room".into()));
        assert_eq!(placed(LabError::Refused("no".into())), LabError::Refused("job.fio: no".into()));
        assert_eq!(placed(LabError::Stopped("told".into())), LabError::Stopped("job.fio: told".into()));
    }

    #[test]
    fn the_cause_of_an_error_in_toml_is_one_line_with_its_place() {
        for (text, starts, ends) in [
            ("on = 'null'\n[load]\n  outstandig = 3\n", "line 3, column 3 (`outstandig = 3`): unknown field", "`"),
            ("on = 5\n", "line 1, column 6 (`on = 5`): invalid type: integer `5`, expected ", "string"),
            ("[load]\noutstanding = 'x'\n", "line 2, column 15 (`outstanding = 'x'`): ", "a list of such values"),
            ("[load\n", "line 1, column 6 (`[load`): ", "`]`"),
        ] {
            let error = toml::from_str::<crate::job::Job>(text).unwrap_err();
            let cause = toml_cause(text, &error);
            assert!(cause.starts_with(starts) && cause.contains(ends), "{cause}");
            assert!(!cause.contains('\n'), "{cause}");
        }
        let long = format!("{} = 1", "a".repeat(200));
        let cause = toml_cause(&long, &toml::from_str::<crate::job::Job>(&long).unwrap_err());
        assert!(cause.starts_with(&format!("line 1, column 1 (`{}...`): unknown field", "a".repeat(60))), "{cause}");
    }
}
