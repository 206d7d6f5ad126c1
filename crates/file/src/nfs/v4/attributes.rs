//! Attributes on the wire (`fattr4`), in the order of their numbers.

use super::super::handle;
use super::super::procedures::TRANSFER_MAX;
use super::super::xdr::{Reader, Writer};
use super::bitmap::Bitmap;
use super::{Failure, LEASE, Outcome, status};
use crate::model::{LINKS_MAX, NAME_MAX, SIZE_MAX};
use crate::{Attributes, Changes, Kind, Moment, SetTime, Space};

pub const SUPPORTED_ATTRS: u32 = 0;
pub const TYPE: u32 = 1;
pub const FH_EXPIRE_TYPE: u32 = 2;
pub const CHANGE: u32 = 3;
pub const SIZE: u32 = 4;
pub const LINK_SUPPORT: u32 = 5;
pub const SYMLINK_SUPPORT: u32 = 6;
pub const NAMED_ATTR: u32 = 7;
pub const FSID: u32 = 8;
pub const UNIQUE_HANDLES: u32 = 9;
pub const LEASE_TIME: u32 = 10;
pub const RDATTR_ERROR: u32 = 11;
pub const ACLSUPPORT: u32 = 13;
pub const CANSETTIME: u32 = 15;
pub const CASE_INSENSITIVE: u32 = 16;
pub const CASE_PRESERVING: u32 = 17;
pub const CHOWN_RESTRICTED: u32 = 18;
pub const FILEHANDLE: u32 = 19;
pub const FILEID: u32 = 20;
pub const FILES_AVAIL: u32 = 21;
pub const FILES_FREE: u32 = 22;
pub const FILES_TOTAL: u32 = 23;
pub const HOMOGENEOUS: u32 = 26;
pub const MAXFILESIZE: u32 = 27;
pub const MAXLINK: u32 = 28;
pub const MAXNAME: u32 = 29;
pub const MAXREAD: u32 = 30;
pub const MAXWRITE: u32 = 31;
pub const MODE: u32 = 33;
pub const NO_TRUNC: u32 = 34;
pub const NUMLINKS: u32 = 35;
pub const OWNER: u32 = 36;
pub const OWNER_GROUP: u32 = 37;
pub const RAWDEV: u32 = 41;
pub const SPACE_AVAIL: u32 = 42;
pub const SPACE_FREE: u32 = 43;
pub const SPACE_TOTAL: u32 = 44;
pub const SPACE_USED: u32 = 45;
pub const TIME_ACCESS: u32 = 47;
pub const TIME_ACCESS_SET: u32 = 48;
pub const TIME_DELTA: u32 = 51;
pub const TIME_METADATA: u32 = 52;
pub const TIME_MODIFY: u32 = 53;
pub const TIME_MODIFY_SET: u32 = 54;
pub const MOUNTED_ON_FILEID: u32 = 55;
pub const SUPPATTR_EXCLCREAT: u32 = 75;

/// Attributes that can be read.
pub const READABLE: Bitmap = Bitmap::of(&[
    SUPPORTED_ATTRS,
    TYPE,
    FH_EXPIRE_TYPE,
    CHANGE,
    SIZE,
    LINK_SUPPORT,
    SYMLINK_SUPPORT,
    NAMED_ATTR,
    FSID,
    UNIQUE_HANDLES,
    LEASE_TIME,
    RDATTR_ERROR,
    ACLSUPPORT,
    CANSETTIME,
    CASE_INSENSITIVE,
    CASE_PRESERVING,
    CHOWN_RESTRICTED,
    FILEHANDLE,
    FILEID,
    FILES_AVAIL,
    FILES_FREE,
    FILES_TOTAL,
    HOMOGENEOUS,
    MAXFILESIZE,
    MAXLINK,
    MAXNAME,
    MAXREAD,
    MAXWRITE,
    MODE,
    NO_TRUNC,
    NUMLINKS,
    OWNER,
    OWNER_GROUP,
    RAWDEV,
    SPACE_AVAIL,
    SPACE_FREE,
    SPACE_TOTAL,
    SPACE_USED,
    TIME_ACCESS,
    TIME_DELTA,
    TIME_METADATA,
    TIME_MODIFY,
    MOUNTED_ON_FILEID,
    SUPPATTR_EXCLCREAT,
]);

/// Attributes that can be set, also by an exclusive OPEN: its verifier is kept beside the
/// attributes.
pub const SETTABLE: Bitmap = Bitmap::of(&[SIZE, MODE, OWNER, OWNER_GROUP, TIME_ACCESS_SET, TIME_MODIFY_SET]);
const WRITE_ONLY: Bitmap = Bitmap::of(&[TIME_ACCESS_SET, TIME_MODIFY_SET]);
const SPACE: Bitmap = Bitmap::of(&[FILES_AVAIL, FILES_FREE, FILES_TOTAL, SPACE_AVAIL, SPACE_FREE, SPACE_TOTAL]);
const SUPPORTED: Bitmap = READABLE.or(&SETTABLE);

const NANOSECONDS: u32 = 1_000_000_000;
const MODE_BITS: u32 = 0o7777;
/// The longest owner that is read from the wire.
const OWNER_MAX: usize = 1024;
/// The longest list of attributes that is read from the wire.
const LIST_MAX: usize = 16 << 10;
/// The clock of the gateway counts nanoseconds.
const DELTA: Moment = Moment { seconds: 0, nanoseconds: 1 };

/// A file with all that its attributes say.
pub struct FileAttributes {
    pub file: Attributes,
    pub handle: [u8; handle::LENGTH],
    pub file_system: (u64, u64),
    /// The number of the file that this one is mounted on; its own if it is no root.
    pub mounted_on: u64,
    /// Known if [`wants_space`].
    pub space: Option<Space>,
}

pub fn wants_space(wanted: &Bitmap) -> bool {
    !wanted.and(&SPACE).is_empty()
}

/// Reads which attributes a client wants. Those that can only be set are refused, and unknown ones
/// are left out.
pub fn wanted(reader: &mut Reader) -> Outcome<Bitmap> {
    let wanted = Bitmap::read(reader)?;
    match wanted.and(&WRITE_ONLY).is_empty() {
        true => Ok(wanted.and(&READABLE)),
        false => Err(Failure::Status(status::INVAL)),
    }
}

/// `nfs_ftype4`.
fn kind(kind: Kind) -> u32 {
    match kind {
        Kind::File => 1,
        Kind::Directory => 2,
        Kind::BlockDevice { .. } => 3,
        Kind::CharacterDevice { .. } => 4,
        Kind::Link => 5,
        Kind::Socket => 6,
        Kind::Pipe => 7,
    }
}

/// `fattr4` of the wanted attributes.
pub fn put(out: &mut Vec<u8>, wanted: &Bitmap, shown: &FileAttributes) {
    let given = wanted.and(&READABLE);
    given.put(out);
    let mut list = Vec::with_capacity(256);
    given.iter().for_each(|number| put_one(&mut list, number, shown));
    out.put_opaque(&list);
}

fn put_one(out: &mut Vec<u8>, number: u32, shown: &FileAttributes) {
    let file = &shown.file;
    let space = shown.space.unwrap_or(Space { total: 0, free: 0, files_total: 0, files_free: 0 });
    match number {
        SUPPORTED_ATTRS => SUPPORTED.put(out),
        TYPE => out.put_u32(kind(file.kind)),
        // Handles stay valid.
        FH_EXPIRE_TYPE => out.put_u32(0),
        CHANGE => out.put_u64(file.change),
        SIZE => out.put_u64(file.size),
        LINK_SUPPORT | SYMLINK_SUPPORT | UNIQUE_HANDLES | CANSETTIME | CASE_PRESERVING | CHOWN_RESTRICTED
        | HOMOGENEOUS | NO_TRUNC => out.put_bool(true),
        NAMED_ATTR | CASE_INSENSITIVE => out.put_bool(false),
        FSID => {
            out.put_u64(shown.file_system.0);
            out.put_u64(shown.file_system.1);
        }
        LEASE_TIME => out.put_u32(LEASE.as_secs() as u32),
        RDATTR_ERROR | ACLSUPPORT => out.put_u32(0),
        FILEHANDLE => out.put_opaque(&shown.handle),
        FILEID => out.put_u64(file.inode.0),
        FILES_AVAIL | FILES_FREE => out.put_u64(space.files_free),
        FILES_TOTAL => out.put_u64(space.files_total),
        MAXFILESIZE => out.put_u64(SIZE_MAX),
        MAXLINK => out.put_u32(LINKS_MAX),
        MAXNAME => out.put_u32(NAME_MAX as u32),
        MAXREAD | MAXWRITE => out.put_u64(u64::from(TRANSFER_MAX)),
        MODE => out.put_u32(file.mode),
        NUMLINKS => out.put_u32(file.links),
        OWNER => out.put_opaque(file.uid.to_string().as_bytes()),
        OWNER_GROUP => out.put_opaque(file.gid.to_string().as_bytes()),
        RAWDEV => {
            let (major, minor) = match file.kind {
                Kind::BlockDevice { major, minor } | Kind::CharacterDevice { major, minor } => (major, minor),
                _ => (0, 0),
            };
            out.put_u32(major);
            out.put_u32(minor);
        }
        SPACE_AVAIL | SPACE_FREE => out.put_u64(space.free),
        SPACE_TOTAL => out.put_u64(space.total),
        SPACE_USED => out.put_u64(file.used),
        TIME_ACCESS => put_time(out, file.accessed),
        TIME_DELTA => put_time(out, DELTA),
        TIME_METADATA => put_time(out, file.changed),
        TIME_MODIFY => put_time(out, file.modified),
        MOUNTED_ON_FILEID => out.put_u64(shown.mounted_on),
        SUPPATTR_EXCLCREAT => SETTABLE.put(out),
        _ => {}
    }
}

/// `nfstime4`.
fn put_time(out: &mut Vec<u8>, moment: Moment) {
    out.put_u64(moment.seconds as u64);
    out.put_u32(moment.nanoseconds);
}

/// `fattr4` to set: the attributes that it names, and what becomes of them.
pub fn changes(reader: &mut Reader) -> Outcome<(Bitmap, Changes)> {
    let named = Bitmap::read(reader)?;
    let mut list = Reader::new(reader.opaque(LIST_MAX)?);
    if !named.is_within(&SUPPORTED) {
        return Err(Failure::Status(status::ATTRNOTSUPP));
    }
    if !named.is_within(&SETTABLE) {
        return Err(Failure::Status(status::INVAL));
    }
    let mut changes = Changes::default();
    for number in named.iter() {
        match number {
            SIZE => changes.size = Some(list.u64()?),
            MODE => {
                let mode = list.u32()?;
                if mode & !MODE_BITS != 0 {
                    return Err(Failure::Status(status::INVAL));
                }
                changes.mode = Some(mode);
            }
            OWNER => changes.uid = Some(owner(&mut list)?),
            OWNER_GROUP => changes.gid = Some(owner(&mut list)?),
            TIME_ACCESS_SET => changes.accessed = Some(set_time(&mut list)?),
            _ => changes.modified = Some(set_time(&mut list)?),
        }
    }
    match list.remaining() {
        0 => Ok((named, changes)),
        _ => Err(Failure::Status(status::BADXDR)),
    }
}

/// A number in decimal. Names of users are refused: this server knows none.
fn owner(list: &mut Reader) -> Outcome<u32> {
    let text = list.borrowed(OWNER_MAX)?;
    let number = std::str::from_utf8(text).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    number.and_then(|text| text.parse().ok()).ok_or(Failure::Status(status::BADOWNER))
}

/// `settime4`.
fn set_time(list: &mut Reader) -> Outcome<SetTime> {
    match list.u32()? {
        0 => Ok(SetTime::Now),
        1 => {
            let (seconds, nanoseconds) = (list.u64()? as i64, list.u32()?);
            match nanoseconds < NANOSECONDS {
                true => Ok(SetTime::At(Moment { seconds, nanoseconds })),
                false => Err(Failure::Status(status::INVAL)),
            }
        }
        _ => Err(Failure::Status(status::BADXDR)),
    }
}

/// `fattr4` to compare with a file. Attributes that say nothing about a file are refused.
pub fn to_compare(reader: &mut Reader) -> Outcome<(Bitmap, bytes::Bytes)> {
    let named = Bitmap::read(reader)?;
    let list = reader.opaque(LIST_MAX)?;
    if !named.is_within(&SUPPORTED) {
        return Err(Failure::Status(status::ATTRNOTSUPP));
    }
    if named.has(RDATTR_ERROR) || !named.and(&WRITE_ONLY).is_empty() {
        return Err(Failure::Status(status::INVAL));
    }
    Ok((named, list))
}
