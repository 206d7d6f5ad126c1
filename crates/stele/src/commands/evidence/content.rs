//! Copies of the objects of a retention proof, compared with what the proof says of them.

use std::path::{Path, PathBuf};

use stele_archive::{ContentDigests, Finding, ProvenVersion};

use super::digests;

/// A directory of copies. The newest version of a key that has content is the file of the key's
/// name; an older one may be there as KEY@VERSION.
pub(super) struct Copies<'a> {
    dir: &'a Path,
    /// The key whose newest version was compared.
    key: Option<String>,
    compared: u64,
    left: u64,
}

impl<'a> Copies<'a> {
    pub fn new(dir: &'a Path) -> Copies<'a> {
        Copies { dir, key: None, compared: 0, left: 0 }
    }

    /// Versions that were compared.
    pub fn compared(&self) -> u64 {
        self.compared
    }

    /// Versions whose keys name no file.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Compares a version. Versions come by key, the newest of a key first.
    pub fn compare(&mut self, version: &ProvenVersion) -> Result<(), Finding> {
        if version.delete_marker {
            return Ok(());
        }
        let is_newest = self.key.as_deref() != Some(&version.key);
        self.key = Some(version.key.clone());
        let Some(path) = self.path_of(&version.key) else {
            self.left += 1;
            return Ok(());
        };
        let older = PathBuf::from(format!("{}@{}", path.display(), version.version));
        let path = match is_newest {
            true => path,
            false if older.is_file() => older,
            false => return Ok(()),
        };
        let digests = digests(&path, version.parts.as_deref()).map_err(|failure| failure.error)?;
        differs(version, &digests).map_err(|finding| format!("{}: {finding}", path.display()))?;
        self.compared += 1;
        Ok(())
    }

    /// The path of a key, if it names a file below the directory and no other one.
    fn path_of(&self, key: &str) -> Option<PathBuf> {
        let is_name = |name: &str| !name.is_empty() && name != "." && name != ".." && !name.contains(['\0', '\\']);
        key.split('/').all(is_name).then(|| self.dir.join(key))
    }
}

fn differs(version: &ProvenVersion, digests: &ContentDigests) -> Result<(), Finding> {
    let hex = stele_server::witness::hex;
    if digests.size != version.size_bytes || hex(&digests.blake3) != version.blake3 {
        return Err("size or BLAKE3 of the content is another".into());
    }
    match version.sha256.as_deref() {
        Some(sha256) if sha256 != hex(&digests.sha256) => Err("the SHA-256 of the content is another".into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_leads_elsewhere_names_no_file() {
        let dir = PathBuf::from("/copies");
        let copies = Copies::new(&dir);
        for key in ["a", "a/b", "a b/c.d", "...", "a@b"] {
            assert_eq!(copies.path_of(key), Some(dir.join(key)), "{key}");
        }
        for key in ["", "/a", "a/", "a//b", "../a", "a/../b", "a/.", "a\0b"] {
            assert_eq!(copies.path_of(key), None, "{key}");
        }
    }
}
