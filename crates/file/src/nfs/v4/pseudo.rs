//! The directories above the exports, which no share holds.
//!
//! PUTROOTFH leads to the top of this tree. It has the paths of all exports that the client may
//! mount, and nothing else. Its directories are numbered by a digest of their path, so that their
//! handles stay valid. An export below another export's path is not part of the tree: clients of
//! version 3 mount it by its path.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use super::super::export::{Export, Exports};
use crate::{Attributes, Inode, Kind, Moment};

/// The share number of handles of this tree. No share has it.
pub const SHARE: u32 = u32::MAX;
const MODE: u32 = 0o555;
const TOP: &str = "/";

/// A directory of the tree, or the export at its place.
pub enum PseudoNode<F> {
    Directory(u64),
    Export(Arc<Export<F>>),
}

/// The number of the directory with this path.
pub fn number(path: &str) -> u64 {
    let digest = blake3::hash(path.as_bytes());
    digest.as_bytes().first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes)) >> 1
}

/// Every directory of the tree as this client sees it, from the top, with its path.
fn paths<F>(exports: &Exports<F>, client: IpAddr) -> BTreeSet<&str> {
    let mut paths = BTreeSet::from([TOP]);
    for export in exports.iter().filter(|export| export.rule(client).is_some()) {
        let path = export.path.as_str();
        paths.extend(path.match_indices('/').skip(1).filter_map(|(at, _)| path.get(..at)));
    }
    paths
}

fn at<F>(exports: &Exports<F>, client: IpAddr, path: &str) -> Option<PseudoNode<F>> {
    let export = exports.iter().find(|export| export.path == path && export.rule(client).is_some());
    match export {
        Some(export) => Some(PseudoNode::Export(export.clone())),
        None => paths(exports, client).contains(path).then(|| PseudoNode::Directory(number(path))),
    }
}

/// Where PUTROOTFH leads: to the tree, or to the one export at `/`.
pub fn top<F>(exports: &Exports<F>, client: IpAddr) -> PseudoNode<F> {
    at(exports, client, TOP).unwrap_or(PseudoNode::Directory(number(TOP)))
}

/// The path of a directory of the tree.
pub fn path<F>(exports: &Exports<F>, client: IpAddr, directory: u64) -> Option<&str> {
    paths(exports, client).into_iter().find(|path| number(path) == directory)
}

pub fn lookup<F>(exports: &Exports<F>, client: IpAddr, directory: u64, name: &[u8]) -> Option<PseudoNode<F>> {
    let above = path(exports, client, directory)?;
    let name = std::str::from_utf8(name).ok()?;
    at(exports, client, &format!("{}/{name}", above.trim_end_matches('/')))
}

/// The number of the directory above this path; none above the top.
pub fn above(path: &str) -> Option<u64> {
    let (above, name) = path.rsplit_once('/')?;
    (!name.is_empty()).then(|| number(if above.is_empty() { TOP } else { above }))
}

/// The names in a directory, in order.
pub fn names<F>(exports: &Exports<F>, client: IpAddr, directory: u64) -> Vec<String> {
    let Some(above) = path(exports, client, directory) else { return Vec::new() };
    let visible = exports.iter().filter(|export| export.rule(client).is_some());
    let names = visible.filter_map(|export| {
        let rest = export.path.strip_prefix(above.trim_end_matches('/'))?.strip_prefix('/')?;
        let name = rest.split('/').next()?;
        (!name.is_empty()).then(|| name.to_owned())
    });
    names.collect::<BTreeSet<_>>().into_iter().collect()
}

/// `change` rises with every change of the exports.
pub fn attributes(directory: u64, change: u64) -> Attributes {
    Attributes {
        inode: Inode(directory),
        kind: Kind::Directory,
        mode: MODE,
        links: 2,
        uid: 0,
        gid: 0,
        size: 4096,
        used: 0,
        accessed: Moment::default(),
        modified: Moment::default(),
        changed: Moment::default(),
        change,
    }
}
