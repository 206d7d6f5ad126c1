//! What the catalog holds of shares: one row type per table, each a CBOR array of numbered fields.
//!
//! Fields are only ever added at the end, optional; readers skip fields that they do not know.
//! FORMAT/file.md lists them. Every key starts with the share's number, so that one share is one
//! range of each table.

use std::collections::BTreeMap;

use bytes::Bytes;
use minicbor::{Decode, Encode};
use stele_catalog::Table;

use crate::model::{Attributes, Inode, Kind, Moment};
use crate::{FileError, Result};

/// Share, inode: [`InodeRow`].
pub const INODES: Table = Table(65);
/// Share, directory, name: [`EntryRow`].
pub const ENTRIES: Table = Table(66);
/// Share, directory, cookie: [`CookieRow`]. Listings go by it.
pub const COOKIES: Table = Table(67);
/// Share, inode, number of a MiB of the file: [`Group`].
pub const BLOCKS: Table = Table(68);
/// Share: the number that the next inode or cookie may have, 8 bytes big-endian. Lower ones may be
/// in use.
pub const NUMBERS: Table = Table(69);
/// Share, inode: a file without names, whose content is to be cleared away. Empty.
pub const ORPHANS: Table = Table(70);
/// Share, inode: a file whose content is not archived. Empty.
pub const ACTIVE: Table = Table(71);

/// Share, inode: a file whose content stays in the cache. Empty.
pub const PINS: Table = Table(72);
/// Share: how often it was opened, 8 bytes big-endian.
pub const STARTS: Table = Table(73);

/// The directory at the top of every share.
pub const ROOT: u64 = 1;

/// A file of any kind.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub struct InodeRow {
    #[n(0)]
    pub kind: KindRow,
    #[n(1)]
    pub mode: u32,
    #[n(2)]
    pub uid: u32,
    #[n(3)]
    pub gid: u32,
    /// Names. A directory counts itself and each directory in it.
    #[n(4)]
    pub links: u32,
    #[n(5)]
    pub size: u64,
    #[n(6)]
    pub accessed: MomentRow,
    #[n(7)]
    pub modified: MomentRow,
    #[n(8)]
    pub changed: MomentRow,
    #[n(9)]
    pub change: u64,
    /// Where its names are; the root has none.
    #[n(10)]
    pub names: Vec<NameRow>,
    /// Entries, of a directory.
    #[n(11)]
    pub entries: u64,
    /// Of a symbolic link.
    #[cbor(n(12), with = "minicbor::bytes")]
    pub target: Option<Vec<u8>>,
    /// Of an exclusive creation.
    #[cbor(n(13), with = "minicbor::bytes")]
    pub verifier: Option<[u8; 8]>,
    #[n(14)]
    pub attributes: BTreeMap<ByteString, ByteString>,
    /// The version that holds the content, or a part of it.
    #[n(15)]
    pub archived: Option<ArchivedRow>,
    /// The content differs from the archived version, or there is none.
    #[n(16)]
    pub open: bool,
    /// The end of retention, milliseconds since 1970; the file is committed.
    #[n(17)]
    pub committed: Option<u64>,
    /// Committed files below a directory.
    #[n(18)]
    pub committed_below: u64,
    /// Bytes of content, holes left out.
    #[n(19)]
    pub used: u64,
    /// The content may have changed up to this time, later than `modified` says.
    #[n(20)]
    pub lags: Option<MomentRow>,
    /// [`APPENDS`], [`RESTORING`].
    #[n(21)]
    pub marks: Option<u32>,
    /// Of an open file: the number of the share's start in which the row was written.
    #[n(22)]
    pub start: Option<u64>,
}

/// More writes than a file can have between two starts.
const LAGGING_WRITES: u64 = 1 << 32;

/// A committed file that can only grow.
const APPENDS: u32 = 1;
/// Of the root: the tree is being made anew from versions, and lacks some of them.
const RESTORING: u32 = 2;

/// Bytes, encoded as such.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Encode, Decode)]
#[cbor(transparent)]
pub struct ByteString(#[cbor(n(0), with = "minicbor::bytes")] pub Vec<u8>);

#[derive(Clone, Copy, PartialEq, Eq, Debug, Encode, Decode)]
pub enum KindRow {
    #[n(0)]
    File,
    #[n(1)]
    Directory,
    #[n(2)]
    Link,
    #[n(3)]
    Block(#[n(0)] u32, #[n(1)] u32),
    #[n(4)]
    Character(#[n(0)] u32, #[n(1)] u32),
    #[n(5)]
    Pipe,
    #[n(6)]
    Socket,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Encode, Decode)]
pub struct MomentRow {
    #[n(0)]
    pub seconds: i64,
    #[n(1)]
    pub nanoseconds: u32,
}

/// The archived version under a file's inode number.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub struct ArchivedRow {
    /// As `VersionId` prints it.
    #[n(0)]
    pub version: String,
    /// Bytes of the version.
    #[n(1)]
    pub size: u64,
    /// Bytes from the start that the file still takes from it; less than `size` after a truncation.
    #[n(2)]
    pub used: u64,
}

/// Where a name is: the record at its directory and cookie in [`COOKIES`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Encode, Decode)]
pub struct NameRow {
    #[n(0)]
    pub directory: u64,
    #[n(1)]
    pub cookie: u64,
}

#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub struct EntryRow {
    #[n(0)]
    pub inode: u64,
    #[n(1)]
    pub cookie: u64,
}

#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub struct CookieRow {
    #[n(0)]
    pub inode: u64,
    #[cbor(n(1), with = "minicbor::bytes")]
    pub name: Vec<u8>,
}

/// Bytes of a slot: the unit of allocation on the cache volume.
pub const SLOT: u64 = 64 << 10;
/// Bytes of a block: the unit of what is valid in a slot, and of access to the cache volume.
pub const BLOCK: u64 = 4 << 10;
/// Slots that one record maps.
pub const GROUP: u64 = 16;

/// Where 1 MiB of a file lies on the cache volume.
#[derive(Clone, PartialEq, Eq, Default, Debug, Encode, Decode)]
pub struct Group {
    #[n(0)]
    pub slots: [SlotRow; GROUP as usize],
}

/// 64 KiB of a file.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Encode, Decode)]
#[cbor(array)]
pub struct SlotRow {
    /// The slot's number on the volume, plus 1; 0: none.
    #[n(0)]
    pub place: u64,
    /// A bit per block, the first block lowest: its content is here. Others come from the archived
    /// version, or are zeros.
    #[n(1)]
    pub valid: u16,
}

impl Group {
    /// Slots that are taken.
    pub fn taken(&self) -> u64 {
        self.slots.iter().filter(|slot| slot.place != 0).count() as u64
    }

    pub fn is_empty(&self) -> bool {
        self.slots.iter().all(|slot| slot.place == 0)
    }
}

impl From<Moment> for MomentRow {
    fn from(moment: Moment) -> MomentRow {
        MomentRow { seconds: moment.seconds, nanoseconds: moment.nanoseconds }
    }
}

impl From<MomentRow> for Moment {
    fn from(row: MomentRow) -> Moment {
        Moment { seconds: row.seconds, nanoseconds: row.nanoseconds }
    }
}

impl From<Kind> for KindRow {
    fn from(kind: Kind) -> KindRow {
        match kind {
            Kind::File => KindRow::File,
            Kind::Directory => KindRow::Directory,
            Kind::Link => KindRow::Link,
            Kind::BlockDevice { major, minor } => KindRow::Block(major, minor),
            Kind::CharacterDevice { major, minor } => KindRow::Character(major, minor),
            Kind::Pipe => KindRow::Pipe,
            Kind::Socket => KindRow::Socket,
        }
    }
}

impl From<KindRow> for Kind {
    fn from(row: KindRow) -> Kind {
        match row {
            KindRow::File => Kind::File,
            KindRow::Directory => Kind::Directory,
            KindRow::Link => Kind::Link,
            KindRow::Block(major, minor) => Kind::BlockDevice { major, minor },
            KindRow::Character(major, minor) => Kind::CharacterDevice { major, minor },
            KindRow::Pipe => Kind::Pipe,
            KindRow::Socket => Kind::Socket,
        }
    }
}

impl InodeRow {
    /// A new file with these attributes and no content.
    pub fn new(attributes: &Attributes) -> InodeRow {
        InodeRow {
            kind: attributes.kind.into(),
            mode: attributes.mode,
            uid: attributes.uid,
            gid: attributes.gid,
            links: attributes.links,
            size: attributes.size,
            accessed: attributes.accessed.into(),
            modified: attributes.modified.into(),
            changed: attributes.changed.into(),
            change: attributes.change,
            names: Vec::new(),
            entries: 0,
            target: None,
            verifier: None,
            attributes: BTreeMap::new(),
            archived: None,
            open: attributes.kind == Kind::File,
            committed: None,
            committed_below: 0,
            used: 0,
            lags: None,
            marks: None,
            start: None,
        }
    }

    /// The row as the share sees it since its start of this number. Where the file is open and its
    /// row older, writes may be gone. Then its times are the latest that they can be, and its
    /// change counter is one that no client has seen.
    pub fn caught_up(mut self, start: u64) -> InodeRow {
        let missed = start.saturating_sub(self.start.unwrap_or(0));
        if self.open && missed > 0 {
            if let Some(lags) = self.lags.take() {
                self.modified = Moment::from(lags).max(self.modified.into()).into();
                self.changed = Moment::from(self.changed).max(self.modified.into()).into();
            }
            self.change = self.change.saturating_add(LAGGING_WRITES.saturating_mul(missed));
        }
        self
    }

    /// A committed file that can only grow.
    pub fn appends(&self) -> bool {
        self.is_marked(APPENDS)
    }

    pub fn set_appends(&mut self, appends: bool) {
        self.mark(APPENDS, appends);
    }

    /// Of the root: the tree is being made anew from versions.
    pub fn restoring(&self) -> bool {
        self.is_marked(RESTORING)
    }

    pub fn set_restoring(&mut self, restoring: bool) {
        self.mark(RESTORING, restoring);
    }

    fn is_marked(&self, mark: u32) -> bool {
        self.marks.is_some_and(|marks| marks & mark != 0)
    }

    fn mark(&mut self, mark: u32, set: bool) {
        let marks = self.marks.unwrap_or(0) & !mark;
        self.marks = Some(if set { marks | mark } else { marks }).filter(|marks| *marks != 0);
    }

    /// Takes over attributes that a caller may set.
    pub fn show(&mut self, attributes: &Attributes) {
        self.mode = attributes.mode;
        self.uid = attributes.uid;
        self.gid = attributes.gid;
        self.accessed = attributes.accessed.into();
        self.modified = attributes.modified.into();
        self.changed = attributes.changed.into();
        self.change = attributes.change;
    }

    /// The directory of its first name; the root's is the root.
    pub fn parent(&self) -> u64 {
        self.names.first().map_or(ROOT, |name| name.directory)
    }

    pub fn is_directory(&self) -> bool {
        self.kind == KindRow::Directory
    }

    pub fn is_file(&self) -> bool {
        self.kind == KindRow::File
    }

    pub fn attributes(&self, inode: u64) -> Attributes {
        Attributes {
            inode: Inode(inode),
            kind: self.kind.into(),
            mode: self.mode,
            links: self.links,
            uid: self.uid,
            gid: self.gid,
            size: self.size,
            used: self.used,
            accessed: self.accessed.into(),
            modified: self.modified.into(),
            changed: self.changed.into(),
            change: self.change,
        }
    }

    /// Content or entries change.
    pub fn touch(&mut self, now: Moment) {
        self.modified = now.into();
        self.alter(now);
    }

    /// Attributes change.
    pub fn alter(&mut self, now: Moment) {
        self.changed = now.into();
        self.change += 1;
    }
}

pub fn encode<T: Encode<()>>(row: &T) -> Bytes {
    minicbor::to_vec(row).map(Bytes::from).unwrap_or_default()
}

pub fn decode<'b, T: Decode<'b, ()>>(table: Table, key: &[u8], bytes: &'b [u8]) -> Result<T> {
    minicbor::decode(bytes).map_err(|error| {
        let key: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
        FileError::Damaged(format!("the record {key} of table {} of the catalog does not decode: {error}", table.0))
    })
}

pub fn share_key(share: u32) -> Bytes {
    Bytes::copy_from_slice(&share.to_be_bytes())
}

/// Of an inode, an orphan or an active file.
pub fn inode_key(share: u32, inode: u64) -> Bytes {
    joined(&[&share.to_be_bytes(), &inode.to_be_bytes()])
}

pub fn entry_key(share: u32, directory: u64, name: &[u8]) -> Bytes {
    joined(&[&share.to_be_bytes(), &directory.to_be_bytes(), name])
}

/// Of a cookie, or of a group of blocks.
pub fn numbered_key(share: u32, inode: u64, number: u64) -> Bytes {
    joined(&[&share.to_be_bytes(), &inode.to_be_bytes(), &number.to_be_bytes()])
}

/// The last eight bytes of a key, as a number.
pub fn last_number(key: &[u8]) -> u64 {
    key.last_chunk::<8>().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

fn joined(parts: &[&[u8]]) -> Bytes {
    parts.concat().into()
}
