//! What a client asks about a whole share: FSSTAT, FSINFO and PATHCONF.

use crate::Files;
use crate::model::{LINKS_MAX, NAME_MAX, SIZE_MAX};
use crate::nfs::attributes::put_after;
use crate::nfs::status;
use crate::nfs::xdr::Writer;

use super::{Outcome, Request, TRANSFER_MAX};

/// Offsets and lengths that suit the gateway's blocks.
const MULTIPLE: u32 = 4096;
const DIRECTORY_PREFERRED: u32 = 64 << 10;
/// Hard links, symbolic links, the same answers for every file, and times that can be set.
const PROPERTIES: u32 = 0x01 | 0x02 | 0x08 | 0x10;

pub async fn fsstat<F: Files>(request: &mut Request<F>, out: &mut Vec<u8>) -> Outcome {
    let inode = request.subject()?;
    let space = request.files().space().await?;
    let file = request.files().attributes(inode).await?;
    out.put_u32(status::OK);
    put_after(out, request.share(), Some(&file));
    let files = [space.files_total, space.files_free, space.files_free];
    for number in [space.total, space.free, space.free].into_iter().chain(files) {
        out.put_u64(number);
    }
    // The numbers may change at any moment.
    out.put_u32(0);
    Ok(())
}

pub async fn fsinfo<F: Files>(request: &mut Request<F>, out: &mut Vec<u8>) -> Outcome {
    let file = request.files().attributes(request.subject()?).await?;
    out.put_u32(status::OK);
    put_after(out, request.share(), Some(&file));
    // Reads and writes: at most, preferred, multiple.
    for word in [TRANSFER_MAX, TRANSFER_MAX, MULTIPLE, TRANSFER_MAX, TRANSFER_MAX, MULTIPLE, DIRECTORY_PREFERRED] {
        out.put_u32(word);
    }
    out.put_u64(SIZE_MAX);
    // Times count nanoseconds.
    out.put_u32(0);
    out.put_u32(1);
    out.put_u32(PROPERTIES);
    Ok(())
}

pub async fn pathconf<F: Files>(request: &mut Request<F>, out: &mut Vec<u8>) -> Outcome {
    let file = request.files().attributes(request.subject()?).await?;
    out.put_u32(status::OK);
    put_after(out, request.share(), Some(&file));
    out.put_u32(LINKS_MAX);
    out.put_u32(NAME_MAX as u32);
    // Long names are refused, only root gives files away, and names keep and mean their case.
    for yes in [true, true, false, true] {
        out.put_bool(yes);
    }
    Ok(())
}
