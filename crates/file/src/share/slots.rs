//! Which slots of the cache volume are in use, and how many each file has. The records of all files say so; this is their
//! sum, kept in memory.
//!
//! A slot is given back only after the transaction that drops its record is durable, and while its file's gate is held, so
//! that no read and no write of the former owner is under way.

use std::collections::BTreeMap;

/// A bit per slot; 16 KiB of memory per 8 GiB of cache. And a number per file that has slots.
#[derive(Debug)]
pub struct Slots {
    words: Vec<u64>,
    count: u64,
    used: u64,
    /// Where the next search begins, so that slots taken one after another are neighbours.
    next: u64,
    files: BTreeMap<u64, u64>,
}

impl Slots {
    pub fn new(count: u64) -> Slots {
        Slots { words: vec![0; count.div_ceil(64) as usize], count, used: 0, next: 0, files: BTreeMap::new() }
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

    /// Marks a slot that a record of a file names. False: it is none of the volume's, or two records name it.
    #[must_use]
    pub fn occupy(&mut self, file: u64, slot: u64) -> bool {
        let Some(word) = self.words.get_mut((slot / 64) as usize).filter(|_| slot < self.count) else { return false };
        let bit = 1 << (slot % 64);
        let free = *word & bit == 0;
        *word |= bit;
        if free {
            self.used += 1;
            *self.files.entry(file).or_default() += 1;
        }
        free
    }

    /// A free slot, which is the file's from here on.
    pub fn take(&mut self, file: u64) -> Option<u64> {
        if self.used == self.count {
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
            self.used += 1;
            *self.files.entry(file).or_default() += 1;
            self.next = (slot + 1) % self.count;
            return Some(slot);
        }
        None
    }

    /// A slot that is not in use, or is another file's, is an error of ours: two files could own it.
    pub fn free(&mut self, file: u64, slot: u64) {
        let bit = 1 << (slot % 64);
        let word = self.words.get_mut((slot / 64) as usize).filter(|word| **word & bit != 0);
        let word = word.unwrap_or_else(|| panic!("slot {slot} was given back and is not in use"));
        *word &= !bit;
        self.used -= 1;
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
    use std::collections::BTreeMap;

    use stele_ground::Dice;

    use super::Slots;

    #[test]
    fn slots_agree_with_a_set() {
        let mut dice = Dice::new(7);
        for count in [1, 63, 64, 65, 130, 1000] {
            let (mut slots, mut model) = (Slots::new(count), BTreeMap::new());
            for _ in 0..4 * count {
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
                for file in 0..4 {
                    let held = model.values().filter(|owner| **owner == file).count() as u64;
                    assert_eq!(slots.held(file), held);
                }
            }
        }
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
