//! Which slots of the cache volume are in use, and how many each file has. The records of all files
//! say so; this is their sum, kept in memory.
//!
//! A slot is given back only after the transaction that drops its record is durable, and while its
//! file's gate is held. So no read and no write of the former owner is under way.

use std::collections::{BTreeMap, BTreeSet};

/// The part of the cache that files without names may have together: such content is never
/// archived, never leaves the cache while it is in use, and no one can find it to remove it.
const NAMELESS_PART: u64 = 4;

/// A bit per slot; 16 KiB of memory per 8 GiB of cache. And a number per file that has slots.
#[derive(Debug)]
pub struct Slots {
    words: Vec<u64>,
    count: u64,
    used: u64,
    /// Where the next search begins, so that slots taken one after another are neighbours.
    next: u64,
    files: BTreeMap<u64, u64>,
    /// Files without names that are in use.
    nameless: Subset,
    /// Files whose slots eviction cannot take.
    bound: Subset,
}

/// Some of the files, and the slots of all of them.
#[derive(Default, Debug)]
struct Subset {
    files: BTreeSet<u64>,
    used: u64,
}

impl Subset {
    /// Says whether a file, which has so many slots, belongs to it.
    fn set(&mut self, file: u64, belongs: bool, held: u64) {
        match belongs {
            true if self.files.insert(file) => self.used += held,
            false if self.files.remove(&file) => self.used -= held,
            _ => {}
        }
    }

    fn gain(&mut self, file: u64) {
        self.used += u64::from(self.files.contains(&file));
    }

    fn lose(&mut self, file: u64) {
        self.used -= u64::from(self.files.contains(&file));
    }
}

impl Slots {
    pub fn new(count: u64) -> Slots {
        let words = vec![0; count.div_ceil(64) as usize];
        Slots {
            words,
            count,
            used: 0,
            next: 0,
            files: BTreeMap::new(),
            nameless: Subset::default(),
            bound: Subset::default(),
        }
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    pub fn used(&self) -> u64 {
        self.used
    }

    /// Slots of a file.
    pub fn held(&self, file: u64) -> u64 {
        self.files.get(&file).copied().unwrap_or(0)
    }

    /// Files that have slots.
    pub fn files(&self) -> impl Iterator<Item = u64> {
        self.files.keys().copied()
    }

    /// Says whether a file has lost its last name and is still in use.
    pub fn set_nameless(&mut self, file: u64, nameless: bool) {
        self.nameless.set(file, nameless, self.held(file));
    }

    /// Says whether eviction cannot take a file's slots.
    pub fn set_bound(&mut self, file: u64, bound: bool) {
        self.bound.set(file, bound, self.held(file));
    }

    /// Slots that eviction can take.
    pub fn evictable(&self) -> u64 {
        self.used - self.bound.used
    }

    /// Whether the file gets no further slot although there may be free ones: it has no name, and
    /// the files without names have their part.
    pub fn refuses(&self, file: u64) -> bool {
        self.nameless.files.contains(&file) && self.nameless.used >= self.count / NAMELESS_PART
    }

    fn gain(&mut self, file: u64) {
        self.used += 1;
        self.nameless.gain(file);
        self.bound.gain(file);
        *self.files.entry(file).or_default() += 1;
    }

    /// Marks a slot that a record of a file names. False: it is none of the volume's, or two
    /// records name it.
    #[must_use]
    pub fn occupy(&mut self, file: u64, slot: u64) -> bool {
        let Some(word) = self.words.get_mut((slot / 64) as usize).filter(|_| slot < self.count) else { return false };
        let bit = 1 << (slot % 64);
        let free = *word & bit == 0;
        *word |= bit;
        if free {
            self.gain(file);
        }
        free
    }

    /// A free slot, which is the file's from here on.
    pub fn take(&mut self, file: u64) -> Option<u64> {
        if self.used == self.count || self.refuses(file) {
            return None;
        }
        let words = self.words.len() as u64;
        let first = self.next / 64;
        // The first word twice: its bits below `next` come last.
        for step in 0..=words {
            let index = (first + step) % words;
            let word = self.words.get_mut(index as usize)?;
            let below = if step == 0 { (1 << (self.next % 64)) - 1 } else { 0 };
            let free = !(*word | below);
            if free == 0 {
                continue;
            }
            let slot = index * 64 + u64::from(free.trailing_zeros());
            if slot >= self.count {
                continue;
            }
            *word |= 1 << (slot % 64);
            self.gain(file);
            self.next = (slot + 1) % self.count;
            return Some(slot);
        }
        None
    }

    /// A slot that is not in use, or is another file's, is an error of ours: two files could own
    /// it.
    pub fn free(&mut self, file: u64, slot: u64) {
        let bit = 1 << (slot % 64);
        let word = self.words.get_mut((slot / 64) as usize).filter(|word| **word & bit != 0);
        let word = word.unwrap_or_else(|| panic!("slot {slot} was given back and is not in use"));
        *word &= !bit;
        self.used -= 1;
        self.nameless.lose(file);
        self.bound.lose(file);
        let held = self.files.get_mut(&file);
        let held = held.unwrap_or_else(|| panic!("slot {slot} was given back by inode {file}, which has none"));
        *held -= 1;
        if *held == 0 {
            self.files.remove(&file);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use stele_ground::Dice;

    use super::Slots;

    #[test]
    fn slots_agree_with_a_set() {
        let mut dice = Dice::new(7);
        for count in [1, 63, 64, 65, 130, 1000] {
            let (mut slots, mut model) = (Slots::new(count), BTreeMap::new());
            let mut bound = BTreeSet::new();
            for _ in 0..4 * count {
                if dice.one_in(4) {
                    let (file, binds) = (dice.below(4), dice.one_in(2));
                    slots.set_bound(file, binds);
                    if binds {
                        bound.insert(file)
                    } else {
                        bound.remove(&file)
                    };
                }
                if dice.one_in(3) && !model.is_empty() {
                    let held: Vec<(u64, u64)> = model.iter().map(|(slot, file)| (*slot, *file)).collect();
                    let (slot, file) = *dice.pick(&held).expect("the set is not empty");
                    slots.free(file, slot);
                    model.remove(&slot);
                } else {
                    let file = dice.below(4);
                    match slots.take(file) {
                        Some(slot) => {
                            let before = model.insert(slot, file);
                            assert!(slot < count && before.is_none(), "slot {slot} of {count} is taken twice")
                        }
                        None => assert_eq!(model.len() as u64, count, "a volume with free slots gave none"),
                    }
                }
                assert_eq!(slots.used(), model.len() as u64);
                let free_to_go = model.values().filter(|owner| !bound.contains(owner)).count() as u64;
                assert_eq!(slots.evictable(), free_to_go);
                for file in 0..4 {
                    let held = model.values().filter(|owner| **owner == file).count() as u64;
                    assert_eq!(slots.held(file), held);
                }
            }
        }
    }

    #[test]
    fn files_without_names_have_a_quarter_together() {
        let mut slots = Slots::new(100);
        let all = |slots: &mut Slots, file| std::iter::from_fn(|| slots.take(file)).count();
        assert!((0..20).all(|_| slots.take(1).is_some()));
        [1, 2].into_iter().for_each(|file| slots.set_nameless(file, true));
        assert_eq!((all(&mut slots, 2), slots.refuses(1), slots.refuses(3)), (5, true, false));
        slots.free(1, 0);
        assert_eq!(all(&mut slots, 1), 1);
        // A file that no client uses any more is about to be cleared away, and counts no longer.
        slots.set_nameless(1, false);
        assert_eq!((all(&mut slots, 2), all(&mut slots, 3)), (20, 55));
    }

    #[test]
    fn neighbours_come_one_after_another() {
        let mut slots = Slots::new(200);
        let taken: Vec<u64> = (0..200).filter_map(|_| slots.take(1)).collect();
        assert_eq!(taken, (0..200).collect::<Vec<u64>>());
        assert_eq!(slots.take(1), None);
    }

    #[test]
    fn a_record_of_a_slot_in_use_or_beyond_the_volume_is_refused() {
        let mut slots = Slots::new(10);
        assert!(slots.occupy(1, 9) && !slots.occupy(2, 9) && !slots.occupy(1, 10));
        assert_eq!((slots.used(), slots.held(1), slots.held(2)), (1, 1, 0));
    }
}
