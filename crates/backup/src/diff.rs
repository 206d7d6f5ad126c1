//! The differences of two snapshots, in the order of their trees.

use std::cmp::Ordering;

use crate::error::Result;
use crate::repository::Indexed;
use crate::repository::trees::{Found, Walk};
use crate::snapshot::Description;
use crate::tree::{Content, Entry, order};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    Added,
    Removed,
    /// Another content, target or kind.
    Content,
    /// The same content with other owners, rights, times or attributes.
    Metadata,
}

/// Calls `each` with every difference at and below `within`. Whether either snapshot has that.
pub fn run(
    indexed: &Indexed,
    first: &Description,
    second: &Description,
    within: &[u8],
    each: &mut dyn FnMut(Change, &Found) -> Result<()>,
) -> Result<bool> {
    let (mut before, mut after) = (Walk::new(indexed, first, within), Walk::new(indexed, second, within));
    let (mut old, mut new) = (before.step()?, after.step()?);
    let is_there = old.is_some() || new.is_some();
    loop {
        let side = match (&old, &new) {
            (None, None) => return Ok(is_there),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(old), Some(new)) => order(&old.path, &new.path),
        };
        match (side, &old, &new) {
            (Ordering::Less, Some(found), _) => each(Change::Removed, found)?,
            (Ordering::Greater, _, Some(found)) => each(Change::Added, found)?,
            (_, Some(was), Some(is)) => {
                if let Some(change) = compare(&was.entry, &is.entry) {
                    each(change, is)?;
                }
            }
            _ => {}
        }
        if side != Ordering::Greater {
            old = before.step()?;
        }
        if side != Ordering::Less {
            new = after.step()?;
        }
    }
}

fn compare(was: &Entry, is: &Entry) -> Option<Change> {
    let same_content = match (&was.content, &is.content) {
        // The snapshot of the array that a volume was read from is another one in each backup.
        (
            Content::File { size, pieces, lists, volume },
            Content::File { size: other, pieces: others, lists: more, volume: second },
        ) => size == other && pieces == others && lists == more && volume.is_some() == second.is_some(),
        (was, is) => was == is,
    };
    if !same_content {
        return Some(Change::Content);
    }
    let seen = |entry: &Entry| {
        let is = &entry.metadata;
        (is.mode, is.user, is.group, is.modified, is.xattrs.clone())
    };
    (seen(was) != seen(is)).then_some(Change::Metadata)
}

#[cfg(test)]
mod tests;
