//! The hash chain of the audit log, and the Merkle tree over its links.

use stele_catalog::{Direction, KeyRange, Snapshot, link};

use crate::model::error::{ArchiveError, Result};
use crate::model::merkle::MerkleTree;
use crate::record::audit::CheckpointRow;
use crate::record::{AUDIT, CHECKPOINTS, decode, keys};

/// Records per read.
const PAGE: usize = 1024;
pub(crate) use crate::state::log_tree::RUN;

pub(crate) type Link = [u8; 32];

/// The chain's link at record `number`. None: the log does not reach so far.
pub(crate) fn link_at(snapshot: &dyn Snapshot, number: u64) -> Result<Option<Link>> {
    let (mut covered, mut found) = (number / RUN * RUN, None);
    while covered > 0 && snapshot.get(CHECKPOINTS, &keys::number(covered - RUN + 1))?.is_none() {
        covered -= RUN;
    }
    let start = (covered, last_link(snapshot, covered)?);
    if start.0 == number {
        return Ok(Some(start.1));
    }
    walk_links(snapshot, start, |at, link| {
        found = (at == number).then_some(*link);
        at < number
    })?;
    Ok(found)
}

/// Calls `each` with every record's number and link behind `from`, until it answers false.
pub(crate) fn walk_links(
    snapshot: &dyn Snapshot,
    from: (u64, [u8; 32]),
    mut each: impl FnMut(u64, &[u8; 32]) -> bool,
) -> Result<()> {
    let (mut number, mut end) = from;
    loop {
        let range = KeyRange::all().after(crate::record::keys::number(number));
        let page = snapshot.range(AUDIT, &range, 1024, stele_catalog::Direction::Forward)?;
        if page.is_empty() {
            return Ok(());
        }
        for (key, value) in page {
            number = key.as_ref().try_into().map_or(u64::MAX, u64::from_be_bytes);
            end = link(&end, number, &value);
            if !each(number, &end) {
                return Ok(());
            }
        }
    }
}

/// The roots of all checkpoints, and the last record they cover.
pub(crate) fn roots(snapshot: &dyn Snapshot) -> Result<(Vec<Link>, u64)> {
    let (mut roots, mut covered) = (Vec::new(), 0);
    let mut range = KeyRange::all();
    loop {
        let page = snapshot.range(CHECKPOINTS, &range, PAGE, Direction::Forward)?;
        let Some((last, _)) = page.last() else { return Ok((roots, covered)) };
        range = KeyRange::all().after(last.clone());
        for (key, value) in page {
            let row: CheckpointRow = decode(CHECKPOINTS, &key, &value)?;
            roots.push(row.root);
            covered = row.last;
        }
    }
}

/// The chain's link at record `covered`, the last one under a checkpoint.
pub(crate) fn last_link(snapshot: &dyn Snapshot, covered: u64) -> Result<Link> {
    if covered == 0 {
        return Ok(Link::default());
    }
    let key = keys::number(covered - RUN + 1);
    let bytes = snapshot.get(CHECKPOINTS, &key)?;
    let row: Option<CheckpointRow> = bytes.as_ref().map(|bytes| decode(CHECKPOINTS, &key, bytes)).transpose()?;
    row.map(|row| row.link)
        .ok_or_else(|| ArchiveError::damaged("the audit log", format!("the checkpoint at record {covered} is missing")))
}

/// The root of a Merkle tree over links or roots.
pub(crate) fn merkle(leaves: &[Link]) -> Link {
    let mut tree = MerkleTree::default();
    leaves.iter().for_each(|leaf| tree.push(leaf));
    tree.whole().root()
}

pub(crate) fn number_of(key: &[u8]) -> u64 {
    key.try_into().map_or(u64::MAX, u64::from_be_bytes)
}

pub(super) fn checkpoint_message(store: &[u8; 16], last: u64, link: &Link, root: &Link) -> Vec<u8> {
    [b"stele audit checkpoint 1".as_slice(), store, &last.to_be_bytes(), link, root].concat()
}
