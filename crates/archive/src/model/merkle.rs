//! A binary Merkle tree as in RFC 6962, over BLAKE3: its root, and the proofs that need no other
//! leaf.
//!
//! A leaf is BLAKE3(00 || value), a node BLAKE3(01 || left || right). A tree of n leaves splits at
//! the largest power of two below n, which is the same as letting an odd node go up unchanged.
//!
//! [`MerkleTree`] keeps the roots of all complete subtrees, so that a root or a proof takes a
//! logarithmic number of hashes. The functions that verify take untrusted input: they never fail,
//! they answer `None` or false.

use std::ops::Range;

pub type Hash = [u8; 32];

pub fn leaf_hash(value: &Hash) -> Hash {
    hash(&[&[0], value])
}

fn node_hash(left: &Hash, right: &Hash) -> Hash {
    hash(&[&[1], left, right])
}

fn hash(parts: &[&[u8]]) -> Hash {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        hasher.update(part);
    }
    *hasher.finalize().as_bytes()
}

/// A tree that grows at its end.
#[derive(Clone, Default, Debug)]
pub struct MerkleTree {
    /// `levels[k][i]` is the root of the 2^k leaves from i * 2^k on.
    levels: Vec<Vec<Hash>>,
}

/// A tree, cut at a number of leaves, with perhaps one more leaf behind them that is not the tree's
/// own.
#[derive(Clone, Copy)]
pub struct MerkleView<'a> {
    tree: &'a MerkleTree,
    own: u64,
    extra: Option<Hash>,
}

impl MerkleTree {
    pub fn push(&mut self, value: &Hash) {
        let mut node = leaf_hash(value);
        for level in 0.. {
            if level == self.levels.len() {
                self.levels.push(Vec::new());
            }
            let row = &mut self.levels[level];
            row.push(node);
            if row.len() % 2 == 1 {
                return;
            }
            node = node_hash(&row[row.len() - 2], &row[row.len() - 1]);
        }
    }

    pub fn leaves(&self) -> u64 {
        self.levels.first().map_or(0, Vec::len) as u64
    }

    /// The tree of its first `own` leaves, and of `extra` behind them. It must have so many leaves.
    pub fn view(&self, own: u64, extra: Option<&Hash>) -> MerkleView<'_> {
        assert!(own <= self.leaves(), "a view of more leaves than the tree has");
        MerkleView { tree: self, own, extra: extra.map(leaf_hash) }
    }

    pub fn whole(&self) -> MerkleView<'_> {
        self.view(self.leaves(), None)
    }
}

impl MerkleView<'_> {
    pub fn leaves(&self) -> u64 {
        self.own + u64::from(self.extra.is_some())
    }

    /// Zeros for a tree without leaves.
    pub fn root(&self) -> Hash {
        if self.leaves() == 0 { Hash::default() } else { self.node(0..self.leaves()) }
    }

    /// The nodes beside the way from a leaf to the root, the lowest first.
    pub fn path(&self, index: u64) -> Vec<Hash> {
        let (mut range, mut path) = (0..self.leaves(), Vec::new());
        while range.end - range.start > 1 {
            let middle = split(&range);
            let (taken, beside) = match index < middle {
                true => (range.start..middle, middle..range.end),
                false => (middle..range.end, range.start..middle),
            };
            path.push(self.node(beside));
            range = taken;
        }
        path.reverse();
        path
    }

    /// The proof that the tree of the first `old` leaves is the beginning of this one.
    pub fn growth(&self, old: u64) -> Vec<Hash> {
        let (mut range, mut whole, mut path) = (0..self.leaves(), true, Vec::new());
        while range.end > old {
            let middle = split(&range);
            if old <= middle {
                path.push(self.node(middle..range.end));
                range = range.start..middle;
            } else {
                path.push(self.node(range.start..middle));
                (range, whole) = (middle..range.end, false);
            }
        }
        if !whole {
            path.push(self.node(range));
        }
        path.reverse();
        path
    }

    /// The root over a range that the tree's shape has as a subtree.
    fn node(&self, range: Range<u64>) -> Hash {
        let count = range.end - range.start;
        if range.start == self.own
            && let Some(extra) = self.extra
        {
            return extra;
        }
        if count.is_power_of_two() && range.end <= self.own {
            let level = count.trailing_zeros() as usize;
            return self.tree.levels[level][(range.start >> level) as usize];
        }
        let middle = split(&range);
        node_hash(&self.node(range.start..middle), &self.node(middle..range.end))
    }
}

/// The place where a subtree of at least two leaves splits.
fn split(range: &Range<u64>) -> u64 {
    let count = range.end - range.start;
    range.start + (count.next_power_of_two() >> 1)
}

/// The root of the tree of `leaves` leaves in which this leaf stands at `index`. None: the path is
/// not of that shape.
pub fn root_of(value: &Hash, index: u64, leaves: u64, path: &[Hash]) -> Option<Hash> {
    climb(value, value, index, leaves, path).map(|(_, root)| root)
}

/// Two roots from one path: of the tree that ends with `old` at `index`, and of the tree of
/// `leaves` leaves that has `new` there. Both have the same leaves before `index`.
pub fn climb(old: &Hash, new: &Hash, index: u64, leaves: u64, path: &[Hash]) -> Option<(Hash, Hash)> {
    if index >= leaves {
        return None;
    }
    let (mut at, mut last) = (index, leaves - 1);
    let (mut ended, mut whole) = (leaf_hash(old), leaf_hash(new));
    for beside in path {
        if last == 0 {
            return None;
        }
        if at & 1 == 1 || at == last {
            (ended, whole) = (node_hash(beside, &ended), node_hash(beside, &whole));
            while at & 1 == 0 && at != 0 {
                (at, last) = (at >> 1, last >> 1);
            }
        } else {
            whole = node_hash(&whole, beside);
        }
        (at, last) = (at >> 1, last >> 1);
    }
    (last == 0).then_some((ended, whole))
}

/// Whether a tree of `old` leaves with the one root is the beginning of a tree of `new` leaves with
/// the other.
pub fn has_grown(old: u64, new: u64, old_root: &Hash, new_root: &Hash, path: &[Hash]) -> bool {
    if old == 0 || old > new {
        return false;
    }
    if old == new {
        return path.is_empty() && old_root == new_root;
    }
    // A complete tree is a node of the larger one, so that the path begins behind it.
    let (first, rest) = match (old.is_power_of_two(), path.split_first()) {
        (true, _) => (*old_root, path),
        (false, Some((first, rest))) => (*first, rest),
        (false, None) => return false,
    };
    let shift = (old - 1).trailing_ones();
    let (mut at, mut last) = ((old - 1) >> shift, (new - 1) >> shift);
    let (mut before, mut after) = (first, first);
    for beside in rest {
        if last == 0 {
            return false;
        }
        if at & 1 == 1 || at == last {
            (before, after) = (node_hash(beside, &before), node_hash(beside, &after));
            while at & 1 == 0 && at != 0 {
                (at, last) = (at >> 1, last >> 1);
            }
        } else {
            after = node_hash(&after, beside);
        }
        (at, last) = (at >> 1, last >> 1);
    }
    last == 0 && before == *old_root && after == *new_root
}

#[cfg(test)]
mod tests;
