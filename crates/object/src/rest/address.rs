//! The paths of the protocol, and the keys of the objects behind them.

use crate::query::decode;

/// Largest config, key or lock: restic's have less than 1 KiB.
const SMALL_MAX: u64 = 1 << 20;
/// Largest snapshot or index file.
const MEDIUM_MAX: u64 = 256 << 20;
/// Largest pack. restic's have at most 128 MiB; other clients make packs of up to 4 GiB.
const PACK_MAX: u64 = (4 << 30) + (64 << 20);

/// The folders of a repository.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Keys,
    Locks,
    Snapshots,
    Data,
    Index,
}

/// A file of a repository.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum File {
    Config,
    /// A file whose name is the SHA-256 of its content.
    Named(Kind, [u8; 32]),
}

/// What a path names within a repository.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// The repository itself.
    Repository,
    /// All files of a folder.
    List(Kind),
    File(File),
}

/// A path of the protocol.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Address {
    pub bucket: String,
    /// The beginning of all keys of the repository: empty, or with a slash at its end.
    pub prefix: String,
    pub place: Place,
}

impl Kind {
    const ALL: [Kind; 5] = [Kind::Keys, Kind::Locks, Kind::Snapshots, Kind::Data, Kind::Index];

    pub fn folder(self) -> &'static str {
        match self {
            Kind::Keys => "keys",
            Kind::Locks => "locks",
            Kind::Snapshots => "snapshots",
            Kind::Data => "data",
            Kind::Index => "index",
        }
    }

    fn of(folder: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.folder() == folder)
    }
}

impl File {
    pub fn length_max(self) -> u64 {
        match self {
            File::Config | File::Named(Kind::Keys | Kind::Locks, _) => SMALL_MAX,
            File::Named(Kind::Snapshots | Kind::Index, _) => MEDIUM_MAX,
            File::Named(Kind::Data, _) => PACK_MAX,
        }
    }

    pub fn is_lock(self) -> bool {
        matches!(self, File::Named(Kind::Locks, _))
    }

    /// The key below the repository's prefix, as in restic's layout for S3.
    fn key(self) -> String {
        match self {
            File::Config => "config".to_owned(),
            File::Named(kind, name) => {
                let name = hex(&name);
                match kind {
                    Kind::Data => format!("data/{}/{name}", name.get(..2).unwrap_or_default()),
                    _ => format!("{}/{name}", kind.folder()),
                }
            }
        }
    }
}

impl Address {
    /// `None`: the path is not one of the protocol.
    pub fn parse(path: &str) -> Option<Address> {
        let path = decode(path, false)?;
        let mut parts: Vec<&str> = path.strip_prefix('/')?.split('/').collect();
        let folder = parts.len() > 1 && parts.last().is_some_and(|part| part.is_empty());
        if folder {
            parts.pop();
        }
        let (place, length) = match *parts.as_slice() {
            [_, .., "config"] if !folder => (Place::File(File::Config), 1),
            [_, .., kind] if Kind::of(kind).is_some() => (Place::List(Kind::of(kind)?), 1),
            [_, .., kind, name] if Kind::of(kind).is_some() => {
                (Place::File(File::Named(Kind::of(kind)?, name_of(name).filter(|_| !folder)?)), 2)
            }
            _ => (Place::Repository, 0),
        };
        parts.truncate(parts.len().checked_sub(length)?);
        let (bucket, folders) = parts.split_first()?;
        let plain = |part: &&str| !part.is_empty() && !matches!(*part, "." | "..");
        if bucket.is_empty() || !folders.iter().all(plain) {
            return None;
        }
        let prefix = folders.iter().map(|folder| format!("{folder}/")).collect();
        Some(Address { bucket: (*bucket).to_owned(), prefix, place })
    }

    /// The key of a file of this repository.
    pub fn key(&self, file: File) -> String {
        format!("{}{}", self.prefix, file.key())
    }

    /// The key of the addressed file.
    pub fn own_key(&self) -> Option<String> {
        match self.place {
            Place::File(file) => Some(self.key(file)),
            _ => None,
        }
    }

    /// The beginning of the keys of a folder.
    pub fn folder(&self, kind: Kind) -> String {
        format!("{}{}/", self.prefix, kind.folder())
    }

    /// The name of the file that a key below a folder stands for. Other objects are no files of the
    /// repository.
    pub fn name_in(kind: Kind, below: &str) -> Option<&str> {
        let name = match kind {
            Kind::Data => below.split_once('/').filter(|(two, name)| name.get(..2) == Some(two))?.1,
            _ => below,
        };
        name_of(name).map(|_| name)
    }
}

/// The SHA-256 of 64 lower-case digits.
fn name_of(text: &str) -> Option<[u8; 32]> {
    if text.len() != 64 || !text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
        return None;
    }
    hex_simd::decode_to_vec(text).ok()?.try_into().ok()
}

/// Lower-case digits.
pub fn hex(bytes: &[u8]) -> String {
    hex_simd::encode_to_string(bytes, hex_simd::AsciiCase::Lower)
}

#[cfg(test)]
mod tests;
