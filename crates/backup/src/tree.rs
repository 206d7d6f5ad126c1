//! The tree of a snapshot: entries in the order of the walk, a directory before what it contains,
//! names in the order of their bytes.
//!
//! The sequence is cut into chunks at entries that the hash of their name selects. An unchanged
//! directory therefore gives the same chunks in the next snapshot, and neither writer nor reader
//! holds more than one chunk in memory. Each chunk begins with the path of the directory of its
//! first entry, so it can be read without those before it.

use crate::chunker::CHUNK_MAX;
use crate::codec::{Decoder, put_bytes, put_signed, put_varint};
use crate::crypt::ChunkId;
use crate::error::{BackupError, Result};

mod origin;

pub use origin::{Origin, STRIPS};

const VERSION: u8 = 1;
/// Bytes of a tree chunk below which it is not cut.
const CUT_MIN: usize = 64 << 10;
/// Bytes of a tree chunk above which every entry ends it.
const CUT_MAX: usize = 1 << 20;
/// One name in this many ends a chunk.
const CUT_ONE_IN: u64 = 512;

/// Bytes of a name, of a link's target, and of a path.
pub const NAME_MAX: usize = 4096;
pub const PATH_MAX: usize = 1 << 20;
/// Extended attributes of one entry, and the bytes of one.
pub const XATTRS_MAX: u64 = 4096;
pub const XATTR_MAX: usize = 64 << 10;
/// Bytes of all extended attributes of one entry, with their names. Tests have a limit that any
/// file system can exceed.
pub const XATTRS_BYTES_MAX: usize = if cfg!(test) { 2048 } else { 1 << 20 };
/// Pieces that an entry holds itself. A longer file has its pieces in lists of this length.
pub const PIECES_MAX: usize = 4096;
/// Lists of pieces of one file: 67 million pieces, about 64 TiB.
pub const LISTS_MAX: usize = 16_384;

/// The longest entry behind a chunk that is just not cut, and the longest path before it, fit into
/// a chunk.
const _: () = {
    let xattrs = (1 << 20) + XATTRS_MAX as usize * 8;
    let entry = xattrs + LISTS_MAX * 32 + PIECES_MAX * 37 + 4 * NAME_MAX;
    assert!(CUT_MAX + PATH_MAX + entry <= CHUNK_MAX);
};

/// A point in time of a file: seconds since 1970, and nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub struct Stamp {
    pub seconds: i64,
    pub nanos: u32,
}

#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Metadata {
    /// Permissions with the set-user, set-group and sticky bits.
    pub mode: u32,
    pub user: u32,
    pub group: u32,
    pub modified: Stamp,
    /// When the inode changed. It cannot be restored; it shows that a file changed.
    pub changed: Stamp,
    pub device: u64,
    pub inode: u64,
    pub links: u64,
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// A piece of a file's content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Piece {
    Chunk { id: ChunkId, length: u32 },
    Hole(u64),
}

impl Piece {
    pub fn length(&self) -> u64 {
        match self {
            Piece::Chunk { length, .. } => u64::from(*length),
            Piece::Hole(length) => *length,
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Content {
    Directory,
    File {
        size: u64,
        pieces: Vec<Piece>,
        /// Chunks that hold the pieces, if they are too many; then `pieces` is empty.
        lists: Vec<ChunkId>,
        /// The snapshot of an array that it was read from, if it is a volume.
        volume: Option<Box<Origin>>,
    },
    Symlink(Vec<u8>),
    Fifo,
    Socket,
    CharacterDevice(u64),
    BlockDevice(u64),
}

impl Content {
    pub fn letter(&self) -> char {
        match self {
            Content::Directory => 'd',
            Content::File { volume: Some(_), .. } => 'v',
            Content::File { volume: None, .. } => '-',
            Content::Symlink(_) => 'l',
            Content::Fifo => 'p',
            Content::Socket => 's',
            Content::CharacterDevice(_) => 'c',
            Content::BlockDevice(_) => 'b',
        }
    }

    pub fn size(&self) -> u64 {
        if let Content::File { size, .. } = self { *size } else { 0 }
    }

    fn code(&self) -> u8 {
        match self {
            Content::Directory => 0,
            Content::File { volume: None, .. } => 1,
            Content::File { volume: Some(_), .. } => 7,
            Content::Symlink(_) => 2,
            Content::Fifo => 3,
            Content::Socket => 4,
            Content::CharacterDevice(_) => 5,
            Content::BlockDevice(_) => 6,
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    pub name: Vec<u8>,
    pub metadata: Metadata,
    pub content: Content,
}

impl Entry {
    fn encode(&self, into: &mut Vec<u8>) {
        into.push(self.content.code());
        put_bytes(into, &self.name);
        let is = &self.metadata;
        for number in [is.mode.into(), is.user.into(), is.group.into()] {
            put_varint(into, number);
        }
        for stamp in [is.modified, is.changed] {
            put_signed(into, stamp.seconds);
            put_varint(into, stamp.nanos.into());
        }
        for number in [is.device, is.inode, is.links, is.xattrs.len() as u64] {
            put_varint(into, number);
        }
        for (name, value) in &is.xattrs {
            put_bytes(into, name);
            put_bytes(into, value);
        }
        match &self.content {
            Content::File { size, pieces, lists, volume } => {
                put_varint(into, *size);
                put_varint(into, lists.len() as u64);
                lists.iter().for_each(|id| into.extend_from_slice(&id.0));
                encode_pieces(pieces, into);
                volume.iter().for_each(|origin| origin.encode(into));
            }
            Content::Symlink(target) => put_bytes(into, target),
            Content::CharacterDevice(device) | Content::BlockDevice(device) => put_varint(into, *device),
            Content::Directory | Content::Fifo | Content::Socket => {}
        }
    }

    fn decode(decoder: &mut Decoder<'_>) -> Result<Entry> {
        let code = decoder.byte()?;
        let name = decoder.bytes(NAME_MAX)?.to_vec();
        if !is_name(&name) {
            return Err(decoder.damaged("a name is empty, a dot, or contains a slash"));
        }
        let mode = decoder.up_to(0o7777)? as u32;
        let (user, group) = (decoder.up_to(u32::MAX.into())? as u32, decoder.up_to(u32::MAX.into())? as u32);
        let mut stamp = || Ok(Stamp { seconds: decoder.signed()?, nanos: decoder.up_to(999_999_999)? as u32 });
        let (modified, changed) = (stamp()?, stamp()?);
        let (device, inode, links) = (decoder.varint()?, decoder.varint()?, decoder.varint()?);
        let mut xattrs = Vec::new();
        for _ in 0..decoder.up_to(XATTRS_MAX)? {
            xattrs.push((decoder.bytes(NAME_MAX)?.to_vec(), decoder.bytes(XATTR_MAX)?.to_vec()));
        }
        let metadata = Metadata { mode, user, group, modified, changed, device, inode, links, xattrs };
        let content = match code {
            0 => Content::Directory,
            1 | 7 => {
                let size = decoder.varint()?;
                let lists =
                    (0..decoder.count(32)?).map(|_| Ok(ChunkId(decoder.array()?))).collect::<Result<Vec<_>>>()?;
                let pieces = decode_pieces(decoder)?;
                if lists.is_empty() && total(&pieces) != Some(size) {
                    return Err(decoder.damaged("the pieces of a file do not add up to its size"));
                }
                let volume = if code == 7 { Some(Box::new(Origin::decode(decoder)?)) } else { None };
                Content::File { size, pieces, lists, volume }
            }
            2 => Content::Symlink(decoder.bytes(NAME_MAX)?.to_vec()),
            3 => Content::Fifo,
            4 => Content::Socket,
            5 => Content::CharacterDevice(decoder.varint()?),
            6 => Content::BlockDevice(decoder.varint()?),
            _ => return Err(decoder.damaged("an entry is of an unknown kind")),
        };
        Ok(Entry { name, metadata, content })
    }
}

/// The sum of the lengths. None: it exceeds 64 bits.
pub fn total(pieces: &[Piece]) -> Option<u64> {
    pieces.iter().try_fold(0_u64, |sum, piece| sum.checked_add(piece.length()))
}

/// Whether a directory can contain the name.
pub fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && name != b"." && name != b".." && !name.contains(&b'/') && !name.contains(&0)
}

pub fn encode_pieces(pieces: &[Piece], into: &mut Vec<u8>) {
    put_varint(into, pieces.len() as u64);
    for piece in pieces {
        match piece {
            Piece::Chunk { id, length } => {
                put_varint(into, u64::from(*length) << 1);
                into.extend_from_slice(&id.0);
            }
            // Twice the length may exceed 64 bits, so the length follows.
            Piece::Hole(length) => {
                put_varint(into, 1);
                put_varint(into, *length);
            }
        }
    }
}

pub fn decode_pieces(decoder: &mut Decoder<'_>) -> Result<Vec<Piece>> {
    let count = decoder.count(2)?;
    if count > PIECES_MAX {
        return Err(decoder.damaged("an entry has too many pieces"));
    }
    let mut pieces = Vec::with_capacity(count);
    for _ in 0..count {
        let word = decoder.up_to(1 << 33)?;
        pieces.push(match word & 1 {
            1 if word == 1 => Piece::Hole(decoder.varint()?),
            1 => return Err(decoder.damaged("a piece is of an unknown kind")),
            _ => {
                let length = u32::try_from(word >> 1).map_err(|_| decoder.damaged("a piece is too long"))?;
                Piece::Chunk { length, id: ChunkId(decoder.array()?) }
            }
        });
    }
    Ok(pieces)
}

/// The order of the walk. A directory's name is a prefix of the paths in it, and `/` comes before
/// every other byte.
pub fn order(first: &[u8], second: &[u8]) -> std::cmp::Ordering {
    let place = |byte: &u8| if *byte == b'/' { 0 } else { *byte };
    first.iter().map(place).cmp(second.iter().map(place))
}

/// The path of a name in a directory. The top directory has the empty path.
pub fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    let slash: &[u8] = if directory.is_empty() { b"" } else { b"/" };
    [directory, slash, name].concat()
}

/// Encodes entries into chunks.
#[derive(Default, Debug)]
pub struct TreeWriter {
    chunk: Vec<u8>,
    /// The path of the directory of the next entry, and the length of the path at each level above
    /// it.
    path: Vec<u8>,
    levels: Vec<usize>,
    /// The path of the first entry of the chunk.
    first: Vec<u8>,
}

/// A chunk of a tree, with the path of its first entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cut {
    pub bytes: Vec<u8>,
    pub first: Vec<u8>,
}

impl TreeWriter {
    /// Adds an entry that is `depth` directories below the top. Gives a chunk if the entry ends
    /// one.
    pub fn add(&mut self, depth: usize, entry: &Entry) -> Option<Cut> {
        let up = self.levels.len().saturating_sub(depth);
        if self.chunk.is_empty() {
            self.leave(up);
            self.first = join(&self.path, &entry.name);
            self.chunk.push(VERSION);
            put_bytes(&mut self.chunk, &self.path);
            put_varint(&mut self.chunk, 0);
        } else {
            put_varint(&mut self.chunk, up as u64);
            self.leave(up);
        }
        entry.encode(&mut self.chunk);
        if entry.content == Content::Directory {
            self.levels.push(self.path.len());
            self.path = join(&self.path, &entry.name);
        }
        let ends = self.chunk.len() >= CUT_MIN && hash(&entry.name).is_multiple_of(CUT_ONE_IN);
        if ends || self.chunk.len() >= CUT_MAX { self.finish() } else { None }
    }

    /// The path of a name that is `depth` directories below the top.
    pub fn path(&self, depth: usize, name: &[u8]) -> Vec<u8> {
        let length = self.levels.get(depth).copied().unwrap_or(self.path.len());
        join(self.path.get(..length).unwrap_or_default(), name)
    }

    fn leave(&mut self, up: usize) {
        for _ in 0..up {
            let length = self.levels.pop().unwrap_or(0);
            self.path.truncate(length);
        }
    }

    /// The last chunk, unless it is empty.
    pub fn finish(&mut self) -> Option<Cut> {
        let cut = Cut { bytes: std::mem::take(&mut self.chunk), first: std::mem::take(&mut self.first) };
        (!cut.bytes.is_empty()).then_some(cut)
    }
}

/// FNV-1a: it only selects where a chunk ends.
fn hash(name: &[u8]) -> u64 {
    let folded = name
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    folded >> 20
}

/// Decodes one chunk of a tree.
#[derive(Debug)]
pub struct TreeReader<'a> {
    decoder: Decoder<'a>,
    path: Vec<u8>,
    /// The directory of the last entry, if that is a directory.
    entered: Option<Vec<u8>>,
}

impl<'a> TreeReader<'a> {
    pub fn new(bytes: &'a [u8]) -> Result<TreeReader<'a>> {
        let mut decoder = Decoder::new(bytes, "tree chunk");
        if decoder.byte()? != VERSION {
            return Err(decoder.damaged("it is of another version"));
        }
        let path = decoder.bytes(PATH_MAX)?.to_vec();
        if !path.is_empty() && !path.split(|byte| *byte == b'/').all(is_name) {
            return Err(decoder.damaged("its path is no path"));
        }
        Ok(TreeReader { decoder, path, entered: None })
    }

    /// The next entry with the path of its directory.
    pub fn step(&mut self) -> Result<Option<(&[u8], Entry)>> {
        if self.decoder.is_empty() {
            return Ok(None);
        }
        if let Some(name) = self.entered.take() {
            self.path = join(&self.path, &name);
            if self.path.len() > PATH_MAX {
                return Err(self.decoder.damaged("a path is too long"));
            }
        }
        for _ in 0..self.decoder.up_to(PATH_MAX as u64)? {
            if self.path.is_empty() {
                return Err(BackupError::damaged("tree chunk: it leaves the top directory"));
            }
            let end = self.path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
            self.path.truncate(end);
        }
        let entry = Entry::decode(&mut self.decoder)?;
        if entry.content == Content::Directory {
            self.entered = Some(entry.name.clone());
        }
        Ok(Some((&self.path, entry)))
    }
}

#[cfg(test)]
mod tests;
