//! Procedures on names: looking up, creating, removing, renaming and linking.

use crate::nfs::attributes::{changes, put_after, put_changed};
use crate::nfs::status;
use crate::nfs::xdr::Writer;
use crate::{Changes, Creation, Entry, Files, Kind, Node, Removal};

use super::{Failure, Outcome, Request};

const UNCHECKED: u32 = 0;
const GUARDED: u32 = 1;
const EXCLUSIVE: u32 = 2;

const BLOCK_DEVICE: u32 = 3;
const CHARACTER_DEVICE: u32 = 4;
const SOCKET: u32 = 6;
const PIPE: u32 = 7;

pub async fn lookup<F: Files>(request: &mut Request<F>, out: &mut Vec<u8>) -> Outcome {
    let directory = request.subject()?;
    let name = request.name()?;
    let file = request.files().lookup(&request.caller, directory, &name).await?;
    let around = request.attributes(directory).await;
    out.put_u32(status::OK);
    request.put_handle(out, file.inode);
    put_after(out, request.share(), Some(&file));
    put_after(out, request.share(), around.as_ref());
    Ok(())
}

pub async fn create<F: Files>(request: &mut Request<F>, out: &mut Vec<u8>) -> Outcome {
    let directory = request.subject()?;
    let name = request.name()?;
    let arguments = &mut request.arguments;
    let how = match arguments.u32()? {
        UNCHECKED => Creation::Unchecked(changes(arguments)?),
        GUARDED => Creation::Guarded(changes(arguments)?),
        EXCLUSIVE => Creation::Exclusive(arguments.fixed()?),
        _ => return Err(Failure::Malformed),
    };
    let entry = request.files().create(&request.caller, directory, &name, how).await?;
    put_entry(request, out, &entry);
    Ok(())
}

pub async fn make_directory<F: Files>(request: &mut Request<F>, out: &mut Vec<u8>) -> Outcome {
    let name = request.name()?;
    let changes = changes(&mut request.arguments)?;
    make(request, out, &name, Node::Directory, changes).await
}

pub async fn make_link<F: Files>(request: &mut Request<F>, out: &mut Vec<u8>) -> Outcome {
    let name = request.name()?;
    let changes = changes(&mut request.arguments)?;
    let target = request.arguments.opaque(usize::MAX)?;
    make(request, out, &name, Node::Link { target }, changes).await
}

pub async fn make_special<F: Files>(request: &mut Request<F>, out: &mut Vec<u8>) -> Outcome {
    let name = request.name()?;
    let arguments = &mut request.arguments;
    let kind = arguments.u32()?;
    let (changes, kind) = match kind {
        BLOCK_DEVICE | CHARACTER_DEVICE => {
            let changes = changes(arguments)?;
            let (major, minor) = (arguments.u32()?, arguments.u32()?);
            let block = kind == BLOCK_DEVICE;
            let device =
                if block { Kind::BlockDevice { major, minor } } else { Kind::CharacterDevice { major, minor } };
            (changes, device)
        }
        SOCKET => (changes(arguments)?, Kind::Socket),
        PIPE => (changes(arguments)?, Kind::Pipe),
        _ => return Err(Failure::Status(status::BADTYPE)),
    };
    make(request, out, &name, Node::Special(kind), changes).await
}

async fn make<F: Files>(
    request: &mut Request<F>,
    out: &mut Vec<u8>,
    name: &[u8],
    node: Node,
    changes: Changes,
) -> Outcome {
    let directory = request.subject()?;
    let entry = request.files().make(&request.caller, directory, name, node, changes).await?;
    put_entry(request, out, &entry);
    Ok(())
}

fn put_entry<F: Files>(request: &Request<F>, out: &mut Vec<u8>, entry: &Entry) {
    out.put_u32(status::OK);
    out.put_bool(true);
    request.put_handle(out, entry.file.inode);
    put_after(out, request.share(), Some(&entry.file));
    put_changed(out, request.share(), &entry.directory);
}

pub async fn remove<F: Files>(request: &mut Request<F>, out: &mut Vec<u8>, what: Removal) -> Outcome {
    let directory = request.subject()?;
    let name = request.name()?;
    let changed = request.files().remove(&request.caller, directory, &name, what).await?;
    out.put_u32(status::OK);
    put_changed(out, request.share(), &changed);
    Ok(())
}

pub async fn rename<F: Files>(request: &mut Request<F>, out: &mut Vec<u8>) -> Outcome {
    let from = request.subject()?;
    let old = request.name()?;
    let to = request.second()?;
    let new = request.name()?;
    let (left, entered) = request.files().rename(&request.caller, (from, &old), (to, &new)).await?;
    out.put_u32(status::OK);
    put_changed(out, request.share(), &left);
    put_changed(out, request.share(), &entered);
    Ok(())
}

pub async fn link<F: Files>(request: &mut Request<F>, out: &mut Vec<u8>) -> Outcome {
    let inode = request.subject()?;
    let directory = request.second()?;
    let name = request.name()?;
    let entry = request.files().link(&request.caller, inode, directory, &name).await?;
    out.put_u32(status::OK);
    put_after(out, request.share(), Some(&entry.file));
    put_changed(out, request.share(), &entry.directory);
    Ok(())
}
