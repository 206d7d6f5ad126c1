//! What can go wrong in the laboratory, by what the caller can do about it.

use std::fmt;

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LabError {
    /// Asked for wrongly: ask otherwise.
    Usage(String),
    /// Would destroy something: say so, or choose another target.
    Refused(String),
    /// There is no such target, workload or file.
    Missing(String),
    /// No room for the target.
    Full(String),
    /// The target failed.
    Failed(String),
    /// The target gave back something else than was written.
    Damaged(String),
}

impl LabError {
    /// From the system, about a path.
    pub fn of(error: &std::io::Error, what: &str, path: &std::path::Path) -> LabError {
        let text = format!("{}: {what}: {error}", path.display());
        match error.kind() {
            std::io::ErrorKind::NotFound => LabError::Missing(text),
            std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ResourceBusy => LabError::Refused(text),
            std::io::ErrorKind::StorageFull => LabError::Full(text),
            _ => LabError::Failed(text),
        }
    }
}

impl fmt::Display for LabError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LabError::Usage(text)
            | LabError::Refused(text)
            | LabError::Missing(text)
            | LabError::Full(text)
            | LabError::Failed(text)
            | LabError::Damaged(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for LabError {}
