//! Keys that a tree can hold.

use stele_archive::{ArchiveError, Result};

use crate::model::NAME_MAX;

/// The longest key of S3, in bytes. What lies deeper in a tree has no key.
pub const KEY_MAX: usize = 1024;

/// A key as the names of a path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Path<'k> {
    pub names: Vec<&'k [u8]>,
    /// The key ends with `/`.
    pub directory: bool,
}

impl Path<'_> {
    /// Refuses a key that no path of a share has, and names the rule.
    pub fn parse(key: &str) -> Result<Path<'_>> {
        let refuse =
            |rule: String| Err(ArchiveError::InvalidRequest(format!("`{key}` names no file of a share: {rule}")));
        let (path, directory) = match key.strip_suffix('/') {
            Some(path) => (path, true),
            None => (key, false),
        };
        let mut names = Vec::new();
        for name in path.split('/') {
            match name {
                "" => return refuse("a key has a name before, between and behind its slashes".into()),
                "." | ".." => return refuse(format!("`{name}` is not a name")),
                _ if name.len() > NAME_MAX => {
                    return refuse(format!("a name has at most {NAME_MAX} bytes, and one here has {}", name.len()));
                }
                _ if name.contains('\0') => return refuse("a name has no zero byte".into()),
                _ => names.push(name.as_bytes()),
            }
        }
        Ok(Path { names, directory })
    }

    pub fn owned(&self) -> Vec<Vec<u8>> {
        self.names.iter().map(|name| name.to_vec()).collect()
    }
}
