//! What the gateway knows of how far a file is on its way into the archive.

use stele_archive::Timestamp;

/// How far a file is on its way.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileState {
    /// In the archive.
    pub key: String,
    /// The version that holds the content; none while the file is open.
    pub version: Option<String>,
    /// The end of its retention.
    pub committed: Option<Timestamp>,
}

impl FileState {
    /// The word for it, at this compliance time.
    pub fn word(&self, now: Timestamp) -> &'static str {
        match (&self.version, self.committed) {
            (_, Some(until)) if until > now => "locked",
            (Some(_), _) => "archived",
            (None, _) => "open",
        }
    }
}
