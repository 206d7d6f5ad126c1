//! Procedures on one file: attributes, access, reading, writing and commit.

use bytes::Bytes;

use crate::model::SIZE_MAX;
use crate::nfs::attributes::{self, put, put_after, put_changed, put_unknown};
use crate::nfs::status;
use crate::nfs::xdr::Writer;
use crate::{Access, FileError, Files, Stability};

use super::{Failure, Outcome, Request, TRANSFER_MAX};

const READ: u32 = 0x01;
const LOOKUP: u32 = 0x02;
const MODIFY: u32 = 0x04;
const EXTEND: u32 = 0x08;
const DELETE: u32 = 0x10;
const EXECUTE: u32 = 0x20;

pub async fn get_attributes<F: Files>(request: &mut Request<F>, out: &mut Vec<u8>) -> Outcome {
    let file = request.files().attributes(request.subject()?).await?;
    out.put_u32(status::OK);
    put(out, request.share(), &file);
    Ok(())
}

pub async fn set_attributes<F: Files>(request: &mut Request<F>, out: &mut Vec<u8>) -> Outcome {
    let inode = request.subject()?;
    let changes = attributes::changes(&mut request.arguments)?;
    let guard = match request.arguments.bool()? {
        true => Some(attributes::moment(&mut request.arguments)?),
        false => None,
    };
    let changed = request.files().set_attributes(&request.caller, inode, changes, guard).await?;
    out.put_u32(status::OK);
    put_changed(out, request.share(), &changed);
    Ok(())
}

pub async fn access<F: Files>(request: &mut Request<F>, out: &mut Vec<u8>) -> Outcome {
    let inode = request.subject()?;
    let asked = request.arguments.u32()?;
    let changing = !request.read_only;
    let wanted = Access {
        read: asked & READ != 0,
        lookup: asked & LOOKUP != 0,
        modify: asked & MODIFY != 0 && changing,
        extend: asked & EXTEND != 0 && changing,
        delete: asked & DELETE != 0 && changing,
        execute: asked & EXECUTE != 0,
    };
    let granted = request.files().access(&request.caller, inode, wanted).await?;
    let file = request.attributes(inode).await;
    let bits = [
        (granted.read, READ),
        (granted.lookup, LOOKUP),
        (granted.modify, MODIFY),
        (granted.extend, EXTEND),
        (granted.delete, DELETE),
        (granted.execute, EXECUTE),
    ];
    out.put_u32(status::OK);
    put_after(out, request.share(), file.as_ref());
    out.put_u32(bits.into_iter().filter(|(granted, _)| *granted).map(|(_, bit)| bit).sum());
    Ok(())
}

pub async fn read_link<F: Files>(request: &mut Request<F>, out: &mut Vec<u8>) -> Outcome {
    let inode = request.subject()?;
    let target = request.files().read_link(&request.caller, inode).await?;
    let file = request.attributes(inode).await;
    out.put_u32(status::OK);
    put_after(out, request.share(), file.as_ref());
    out.put_opaque(&target);
    Ok(())
}

/// Answers the content, which follows the other results.
pub async fn read<F: Files>(request: &mut Request<F>, out: &mut Vec<u8>) -> Outcome<Vec<Bytes>> {
    let inode = request.subject()?;
    let offset = request.arguments.u64()?;
    let count = request.arguments.u32()?.min(TRANSFER_MAX);
    let files = request.files();
    let data = files.read(&request.caller, inode, offset, count).await?;
    let file = request.attributes(inode).await;
    let length: usize = data.pieces.iter().map(Bytes::len).sum();
    out.put_u32(status::OK);
    put_after(out, request.share(), file.as_ref());
    out.put_u32(length as u32);
    out.put_bool(data.end);
    out.put_u32(length as u32);
    Ok(data.pieces)
}

pub async fn write<F: Files>(request: &mut Request<F>, out: &mut Vec<u8>) -> Outcome {
    let inode = request.subject()?;
    let arguments = &mut request.arguments;
    let (offset, count) = (arguments.u64()?, arguments.u32()?);
    let stability = match arguments.u32()? {
        0 => Stability::Unstable,
        1 => Stability::Data,
        2 => Stability::File,
        _ => return Err(Failure::Malformed),
    };
    let content = arguments.opaque(usize::MAX)?;
    if content.len() != count as usize {
        return Err(Failure::Malformed);
    }
    if offset.checked_add(u64::from(count)).is_none_or(|end| end > SIZE_MAX) {
        return Err(FileError::TooLarge.into());
    }
    let files = request.files();
    // Taken before the write: if the write is lost right after it, COMMIT answers another one.
    let verifier = files.verifier();
    let (changed, reached) = files.write(&request.caller, inode, offset, vec![content], stability).await?;
    out.put_u32(status::OK);
    put_changed(out, request.share(), &changed);
    out.put_u32(count);
    out.put_u32(match reached {
        Stability::Unstable => 0,
        Stability::Data => 1,
        Stability::File => 2,
    });
    out.put_fixed(&verifier);
    Ok(())
}

pub async fn commit<F: Files>(request: &mut Request<F>, out: &mut Vec<u8>) -> Outcome {
    let inode = request.subject()?;
    // The range is only a hint: committing more than asked for is right.
    request.arguments.u64()?;
    request.arguments.u32()?;
    let file = request.files().commit(inode).await?;
    out.put_u32(status::OK);
    put_unknown(out, request.share(), Some(&file));
    // Taken after the commit: writes that were lost before it are among those that it should have
    // made durable.
    out.put_fixed(&request.files().verifier());
    Ok(())
}
