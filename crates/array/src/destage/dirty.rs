//! The dirty blocks of one stripe, as a destage takes them: an array in the order of their numbers.
//! A stripe has one or two of them where hosts write at random, and every tree of so few costs an
//! allocation.

use crate::cache::DirtyBlock;

/// Dirty blocks by number within the stripe.
#[derive(Clone, Default)]
pub struct Dirty(Vec<(u32, DirtyBlock)>);

impl Dirty {
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn get(&self, number: u32) -> Option<&DirtyBlock> {
        let at = self.0.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        self.0.get(at).map(|(_, block)| block)
    }

    pub fn contains(&self, number: u32) -> bool {
        self.get(number).is_some()
    }

    pub fn numbers(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().map(|(number, _)| *number)
    }

    pub fn blocks(&self) -> impl Iterator<Item = &DirtyBlock> {
        self.0.iter().map(|(_, block)| block)
    }

    pub fn iter(&self) -> std::slice::Iter<'_, (u32, DirtyBlock)> {
        self.0.iter()
    }

    /// Those that the test wants.
    pub fn filtered(&self, wanted: impl Fn(u32, &DirtyBlock) -> bool) -> Dirty {
        Dirty(self.0.iter().filter(|(number, block)| wanted(*number, block)).cloned().collect())
    }
}

impl From<Vec<(u32, DirtyBlock)>> for Dirty {
    fn from(blocks: Vec<(u32, DirtyBlock)>) -> Dirty {
        assert!(
            blocks.is_sorted_by(|(one, _), (next, _)| one < next),
            "dirty blocks come in the order of their numbers"
        );
        Dirty(blocks)
    }
}

impl<'a> IntoIterator for &'a Dirty {
    type Item = &'a (u32, DirtyBlock);
    type IntoIter = std::slice::Iter<'a, (u32, DirtyBlock)>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}
