//! Attributes on the wire: `fattr3`, `sattr3`, `wcc_data` and times.

use crate::{Attributes, Changed, Changes, Kind, Moment, SetTime};

use super::xdr::{Malformed, Reader, Writer};

/// Bytes of `fattr3`.
pub const ATTRIBUTES: usize = 84;
const NANOSECONDS: u32 = 1_000_000_000;

/// `ftype3`.
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

/// The wire counts seconds from 0 to 2106; a time outside is the nearest one inside.
fn time(moment: Moment) -> [u8; 8] {
    let (seconds, nanoseconds) = match u32::try_from(moment.seconds) {
        Ok(seconds) => (seconds, moment.nanoseconds),
        Err(_) if moment.seconds < 0 => (0, 0),
        Err(_) => (u32::MAX, NANOSECONDS - 1),
    };
    let word = u64::from(seconds) << 32 | u64::from(nanoseconds);
    word.to_be_bytes()
}

/// `fattr3`. The share's number is the file system's identity.
pub fn put(out: &mut Vec<u8>, share: u32, file: &Attributes) {
    let (major, minor) = match file.kind {
        Kind::BlockDevice { major, minor } | Kind::CharacterDevice { major, minor } => (major, minor),
        _ => (0, 0),
    };
    for word in [kind(file.kind), file.mode, file.links, file.uid, file.gid] {
        out.put_u32(word);
    }
    out.put_u64(file.size);
    out.put_u64(file.used);
    out.put_u32(major);
    out.put_u32(minor);
    out.put_u64(u64::from(share));
    out.put_u64(file.inode.0);
    for moment in [file.accessed, file.modified, file.changed] {
        out.put_fixed(&time(moment));
    }
}

/// `post_op_attr`.
pub fn put_after(out: &mut Vec<u8>, share: u32, file: Option<&Attributes>) {
    out.put_bool(file.is_some());
    if let Some(file) = file {
        put(out, share, file);
    }
}

/// `wcc_data`.
pub fn put_changed(out: &mut Vec<u8>, share: u32, changed: &Changed) {
    out.put_bool(true);
    out.put_u64(changed.before.size);
    out.put_fixed(&time(changed.before.modified));
    out.put_fixed(&time(changed.before.changed));
    put_after(out, share, Some(&changed.after));
}

/// `wcc_data` where the state before is not known.
pub fn put_unknown(out: &mut Vec<u8>, share: u32, after: Option<&Attributes>) {
    out.put_bool(false);
    put_after(out, share, after);
}

/// `nfstime3`.
pub fn moment(reader: &mut Reader) -> Result<Moment, Malformed> {
    let (seconds, nanoseconds) = (reader.u32()?, reader.u32()?);
    match nanoseconds < NANOSECONDS {
        true => Ok(Moment { seconds: i64::from(seconds), nanoseconds }),
        false => Err(Malformed),
    }
}

/// `sattr3`.
pub fn changes(reader: &mut Reader) -> Result<Changes, Malformed> {
    fn word(reader: &mut Reader) -> Result<Option<u32>, Malformed> {
        Ok(if reader.bool()? { Some(reader.u32()?) } else { None })
    }
    Ok(Changes {
        mode: word(reader)?.map(|mode| mode & 0o7777),
        uid: word(reader)?,
        gid: word(reader)?,
        size: if reader.bool()? { Some(reader.u64()?) } else { None },
        accessed: set_time(reader)?,
        modified: set_time(reader)?,
    })
}

fn set_time(reader: &mut Reader) -> Result<Option<SetTime>, Malformed> {
    match reader.u32()? {
        0 => Ok(None),
        1 => Ok(Some(SetTime::Now)),
        2 => Ok(Some(SetTime::At(moment(reader)?))),
        _ => Err(Malformed),
    }
}

#[cfg(test)]
mod tests;
