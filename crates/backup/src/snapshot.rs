//! Snapshots: which chunks are needed, readable by the server, and a sealed description that only
//! the key opens.
//!
//! ```text
//! magic 8 | repository 16 | references | salt 32 | length 8 | sealed description, tag
//! ```
//!
//! The name of a snapshot is the BLAKE3 hash of its bytes. The store's clock dates it: the
//! description has the agent's time too. It decides only the order of snapshots that the store
//! dates by the same second. The description opens only behind the references that it was sealed
//! with, so no writer without the key makes a new snapshot of an old one. Those of the first
//! version, which are still read, were not bound; a beginning long before the store's date shows
//! such a forgery, see [`Description::doubt`].

use std::io::Read;

use crate::codec::{Decoder, put_bytes, put_varint};
use crate::crypt::{ChunkId, Keys, Salt, TAG_BYTES, hex};
use crate::error::{BackupError, Result};
use crate::newer;
use crate::references::References;
use crate::tree::{NAME_MAX, PATH_MAX};

pub const MAGIC: [u8; 8] = *b"STLBSNP2";
/// The first version: its description is bound to the repository alone.
const MAGIC_UNBOUND: [u8; 8] = *b"STLBSNP1";
/// A backup that took longer is doubtful.
const BACKUP_SECONDS_MAX: u64 = 14 * 86_400;
/// The end of a backup and the store's date of its snapshot differ by no more, unless a clock is
/// wrong or the date moved.
pub const DRIFT_SECONDS_MAX: u64 = 2 * 86_400;
/// Bytes of the longest snapshot: about 100 million files.
pub const SNAPSHOT_BYTES_MAX: u64 = 1 << 30;
/// Nanoseconds of a second.
pub const NANOS: u64 = 1_000_000_000;
const PURPOSE: &str = "snapshot";
const VERSION: u64 = 2;
/// The version of a description whose tree has a volume. Programs that know none refuse it as a
/// whole.
const VERSION_VOLUME: u64 = 3;
/// The first version of the description has no end.
const VERSION_ENDLESS: u64 = 1;
/// Paths, tags and excludes of one snapshot.
const WORDS_MAX: usize = 10_000;
/// Problems that a snapshot lists, with paths and texts that are cut at their limits. Their number
/// has no limit.
pub const ISSUES_MAX: usize = 1000;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SnapshotId(pub [u8; 32]);

impl SnapshotId {
    /// The first digits, for tables.
    pub fn short(&self) -> String {
        hex(self.0.get(..4).unwrap_or_default())
    }
}

impl std::fmt::Display for SnapshotId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl std::fmt::Debug for SnapshotId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}

/// Figures of a backup.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    pub files: u64,
    pub directories: u64,
    pub others: u64,
    /// Bytes of all files.
    pub bytes: u64,
    /// Files that were read, because they are new or changed.
    pub files_read: u64,
    /// Bytes of content that no earlier backup had.
    pub bytes_new: u64,
    /// Bytes that this backup stored.
    pub bytes_stored: u64,
}

/// A file or directory that could not be saved as it was.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Issue {
    pub path: Vec<u8>,
    pub text: String,
}

/// What only the key opens.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Description {
    pub host: String,
    pub user: String,
    pub program: String,
    /// Beginning of the backup by the agent's clock: seconds since 1970.
    pub begun: u64,
    /// End of the backup by the agent's clock: nanoseconds since 1970. Those of the first version
    /// have their beginning.
    pub finished: u64,
    /// The paths that were saved.
    pub paths: Vec<Vec<u8>>,
    pub tags: Vec<String>,
    pub excludes: Vec<String>,
    pub counts: Counts,
    /// Problems in all. Zero: the snapshot is complete.
    pub problems: u64,
    /// The first of them.
    pub issues: Vec<Issue>,
    /// The chunks of the tree, each with the path of its first entry.
    pub tree: Vec<(ChunkId, Vec<u8>)>,
    /// Whether the tree has a volume.
    pub has_volume: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Snapshot {
    pub references: References,
    pub description: Description,
}

impl Description {
    /// Whether a reader opens what [`Description::encode`] makes of it. A backup asks before it
    /// reads any file.
    pub fn check(&self) -> Result<()> {
        let invalid = |text: String| Err(BackupError::Invalid(text));
        for (what, number) in
            [("paths", self.paths.len()), ("tags", self.tags.len()), ("exclude patterns", self.excludes.len())]
        {
            if number > WORDS_MAX {
                return invalid(format!("a snapshot has at most {WORDS_MAX} {what}, and these are {number}"));
            }
        }
        let firsts = self.tree.iter().map(|(_, first)| first);
        if self.paths.iter().chain(firsts).any(|path| path.len() > PATH_MAX) {
            return invalid(format!("a path exceeds {PATH_MAX} bytes"));
        }
        let names = [("host", &self.host), ("user", &self.user), ("program", &self.program)];
        let tags = self.tags.iter().map(|tag| ("tag", tag));
        let excludes = self.excludes.iter().map(|pattern| ("exclude pattern", pattern));
        match names.into_iter().chain(tags).chain(excludes).find(|(_, text)| text.len() > NAME_MAX) {
            Some((what, _)) => invalid(format!("the {what} exceeds {NAME_MAX} bytes")),
            None => Ok(()),
        }
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        put_varint(&mut bytes, if self.has_volume { VERSION_VOLUME } else { VERSION });
        for text in [&self.host, &self.user, &self.program] {
            put_bytes(&mut bytes, text.as_bytes());
        }
        put_varint(&mut bytes, self.begun);
        put_varint(&mut bytes, self.finished);
        put_varint(&mut bytes, self.paths.len() as u64);
        self.paths.iter().for_each(|path| put_bytes(&mut bytes, path));
        for words in [&self.tags, &self.excludes] {
            put_varint(&mut bytes, words.len() as u64);
            words.iter().for_each(|word| put_bytes(&mut bytes, word.as_bytes()));
        }
        let is = &self.counts;
        for count in [is.files, is.directories, is.others, is.bytes, is.files_read, is.bytes_new, is.bytes_stored] {
            put_varint(&mut bytes, count);
        }
        put_varint(&mut bytes, self.problems);
        put_varint(&mut bytes, self.issues.len().min(ISSUES_MAX) as u64);
        for issue in self.issues.iter().take(ISSUES_MAX) {
            put_bytes(&mut bytes, issue.path.get(..PATH_MAX).unwrap_or(&issue.path));
            let end = issue.text.floor_char_boundary(NAME_MAX);
            put_bytes(&mut bytes, issue.text.get(..end).unwrap_or_default().as_bytes());
        }
        put_varint(&mut bytes, self.tree.len() as u64);
        for (id, first) in &self.tree {
            bytes.extend_from_slice(&id.0);
            put_bytes(&mut bytes, first);
        }
        bytes
    }

    fn decode(bytes: &[u8]) -> Result<Description> {
        let mut decoder = Decoder::new(bytes, "snapshot description");
        let version = decoder.varint()?;
        if version > VERSION_VOLUME {
            return Err(newer::error("the description of the snapshot", version, VERSION_VOLUME));
        }
        if ![VERSION_ENDLESS, VERSION, VERSION_VOLUME].contains(&version) {
            return Err(decoder.damaged("no version has this number"));
        }
        let mut is = Description {
            host: text(&mut decoder)?,
            user: text(&mut decoder)?,
            program: text(&mut decoder)?,
            begun: decoder.varint()?,
            has_volume: version == VERSION_VOLUME,
            ..Description::default()
        };
        is.finished = match version {
            VERSION_ENDLESS => is.begun.saturating_mul(NANOS),
            _ => decoder.varint()?,
        };
        for _ in 0..decoder.up_to(WORDS_MAX as u64)? {
            is.paths.push(decoder.bytes(PATH_MAX)?.to_vec());
        }
        for _ in 0..decoder.up_to(WORDS_MAX as u64)? {
            is.tags.push(text(&mut decoder)?);
        }
        for _ in 0..decoder.up_to(WORDS_MAX as u64)? {
            is.excludes.push(text(&mut decoder)?);
        }
        is.counts = Counts {
            files: decoder.varint()?,
            directories: decoder.varint()?,
            others: decoder.varint()?,
            bytes: decoder.varint()?,
            files_read: decoder.varint()?,
            bytes_new: decoder.varint()?,
            bytes_stored: decoder.varint()?,
        };
        is.problems = decoder.varint()?;
        for _ in 0..decoder.up_to(ISSUES_MAX as u64)? {
            is.issues.push(Issue { path: decoder.bytes(PATH_MAX)?.to_vec(), text: text(&mut decoder)? });
        }
        for _ in 0..decoder.count(33)? {
            is.tree.push((ChunkId(decoder.array()?), decoder.bytes(PATH_MAX)?.to_vec()));
        }
        decoder.end()?;
        Ok(is)
    }

    /// Why a snapshot that the store dates so may be no new one: it began long before.
    pub fn doubt(&self, stored: u64) -> Option<String> {
        let days = stored.saturating_sub(self.begun) / 86_400;
        (days * 86_400 > BACKUP_SECONDS_MAX).then(|| {
            format!(
                "its backup began {days} days before it was stored: the agent's clock is wrong, or it is an old one"
            )
        })
    }

    /// Whether the store's date is not that of the commit: the object was copied, or stored again
    /// under its name, or a clock was wrong. The first version of the description has no end, and
    /// is compared by its beginning.
    pub fn is_misdated(&self, stored: u64) -> bool {
        let has_end = self.finished != self.begun.saturating_mul(NANOS);
        let most = if has_end { DRIFT_SECONDS_MAX } else { BACKUP_SECONDS_MAX };
        stored.abs_diff(self.finished / NANOS) > most
    }

    /// The chunks of the tree that can hold `path` and the entries below it. Empty: the whole tree.
    pub fn tree_of(&self, path: &[u8]) -> &[(ChunkId, Vec<u8>)] {
        use std::cmp::Ordering::Greater;
        let below = |first: &[u8]| path.is_empty() || is_within(first, path);
        let from = self.tree.partition_point(|(_, first)| crate::tree::order(first, path) != Greater).saturating_sub(1);
        let rest = self.tree.get(from..).unwrap_or_default();
        let length = rest.iter().skip(1).take_while(|(_, first)| below(first)).count();
        rest.get(..rest.len().min(length + 1)).unwrap_or_default()
    }
}

/// Whether `path` is `above` or lies below it.
pub fn is_within(path: &[u8], above: &[u8]) -> bool {
    above.is_empty() || path.strip_prefix(above).is_some_and(|rest| rest.first().is_none_or(|byte| *byte == b'/'))
}

fn text(decoder: &mut Decoder<'_>) -> Result<String> {
    let bytes = decoder.bytes(NAME_MAX)?;
    String::from_utf8(bytes.to_vec()).map_err(|_| decoder.damaged("a text is no UTF-8"))
}

impl Snapshot {
    /// The bytes of the snapshot, and its name.
    pub fn encode(&self, repository: &[u8; 16], keys: &Keys, salt: Salt) -> Result<(SnapshotId, Vec<u8>)> {
        let mut bytes = [MAGIC.as_slice(), repository].concat();
        self.references.encode(&mut bytes);
        let bound = bound(repository, &bytes);
        bytes.extend_from_slice(&salt);
        self.description.check()?;
        let plain = self.description.encode();
        if plain.len() as u64 > SNAPSHOT_BYTES_MAX {
            return Err(BackupError::Invalid(format!("the description exceeds {SNAPSHOT_BYTES_MAX} bytes")));
        }
        let failed = |error: std::io::Error| BackupError::Failed(format!("the compression library failed: {error}"));
        let mut sealed = zstd::bulk::compress(&plain, crate::compress::LEVEL_DEFAULT).map_err(failed)?;
        let tag = keys.sealing(PURPOSE, &salt).seal(0, &bound, &mut sealed)?;
        bytes.extend_from_slice(&((sealed.len() + TAG_BYTES) as u64).to_le_bytes());
        bytes.extend_from_slice(&sealed);
        bytes.extend_from_slice(&tag);
        if bytes.len() as u64 > SNAPSHOT_BYTES_MAX {
            return Err(BackupError::Invalid(format!("the snapshot exceeds {SNAPSHOT_BYTES_MAX} bytes")));
        }
        Ok((SnapshotId(*blake3::hash(&bytes).as_bytes()), bytes))
    }

    /// The references alone, as a server without the key reads them.
    pub fn decode_references(bytes: &[u8], id: &SnapshotId, repository: &[u8; 16]) -> Result<References> {
        let start = start(bytes, id, repository)?;
        References::decode(&mut start.references.clone())
    }

    /// Whether the description opens only with these references: not in the first version.
    pub fn is_bound(bytes: &[u8]) -> bool {
        bytes.starts_with(&MAGIC)
    }

    pub fn decode(bytes: &[u8], id: &SnapshotId, repository: &[u8; 16], keys: &Keys) -> Result<Snapshot> {
        let Start { references, rest: mut decoder, bound } = start(bytes, id, repository)?;
        let salt = decoder.array()?;
        let length = decoder.u64()?;
        let mut sealed = decoder.take(usize::try_from(length).unwrap_or(usize::MAX))?.to_vec();
        decoder.end()?;
        let opened = keys.sealing(PURPOSE, &salt).open(0, &bound, &mut sealed);
        let opened = opened.ok_or_else(|| BackupError::Damaged(format!("snapshot {id}: it is not authentic")))?;
        let plain = decompress(opened);
        let plain = plain.map_err(|_| BackupError::Damaged(format!("snapshot {id}: it does not decompress")))?;
        // Only now: the list of a stranger's snapshot takes no memory.
        let references = References::decode(&mut references.clone())?;
        Ok(Snapshot { references, description: Description::decode(&plain)? })
    }
}

/// Takes memory as the content comes. The agent that holds the key wrote it, so its length is
/// trusted up to the limit.
fn decompress(compressed: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut plain = Vec::new();
    zstd::stream::read::Decoder::new(compressed)?.take(SNAPSHOT_BYTES_MAX + 1).read_to_end(&mut plain)?;
    match plain.len() as u64 <= SNAPSHOT_BYTES_MAX {
        true => Ok(plain),
        false => Err(std::io::ErrorKind::FileTooLarge.into()),
    }
}

/// The additional data of the description: the repository, and all bytes before the salt.
fn bound(repository: &[u8; 16], before: &[u8]) -> Vec<u8> {
    [repository.as_slice(), blake3::hash(before).as_bytes()].concat()
}

/// The beginning of a snapshot.
struct Start<'a> {
    /// From the references on, which were checked.
    references: Decoder<'a>,
    /// From the salt on.
    rest: Decoder<'a>,
    /// What the description is bound to.
    bound: Vec<u8>,
}

fn start<'a>(bytes: &'a [u8], id: &SnapshotId, repository: &[u8; 16]) -> Result<Start<'a>> {
    if blake3::hash(bytes).as_bytes() != &id.0 {
        return Err(BackupError::Damaged(format!("snapshot {id}: its hash differs")));
    }
    if let Some(error) = newer::refusal(&format!("snapshot {id}"), bytes, &MAGIC) {
        return Err(error);
    }
    let mut decoder = Decoder::new(bytes, "snapshot");
    let magic = decoder.array()?;
    if magic != MAGIC && magic != MAGIC_UNBOUND {
        return Err(decoder.damaged("it begins as no snapshot does"));
    }
    if decoder.array::<16>()? != *repository {
        return Err(decoder.damaged("it is of another repository"));
    }
    let references = decoder.clone();
    References::skip(&mut decoder)?;
    let before = bytes.get(..bytes.len() - decoder.left()).unwrap_or_default();
    let bound = if magic == MAGIC { bound(repository, before) } else { repository.to_vec() };
    Ok(Start { references, rest: decoder, bound })
}

#[cfg(test)]
mod tests;
