//! Which slots of the cache volume are in use, and how many each file has. The records of all files
//! say so; this is their sum, kept in memory.
//!
//! A slot is given back only after the transaction that drops its record is durable, and while its
//! file's gate is held. So no read and no write of the former owner is under way.
//!
//! A free slot that was ever written keeps its space in the pool until the volume discards it. Such
//! a slot is loose. Files get loose slots before others, so that the cache takes no more space than
//! it had in use at once. While a slot is being discarded it is away, and no file gets it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// The part of the cache that files without names may have together: such content is never
/// archived, never leaves the cache while it is in use, and no one can find it to remove it.
const NAMELESS_PART: u64 = 4;

/// Two bits per slot; 32 KiB of memory per 8 GiB of cache. And a number per file that has slots.
#[derive(Debug)]
pub struct Slots {
    /// Slots that are used or away.
    words: Vec<u64>,
    /// Slots that may take space in the pool.
    backed: Vec<u64>,
    count: u64,
    /// Neighbours that take space in the pool, and give it back, as a whole.
    unit: u64,
    used: u64,
    /// Slots that are backed and free.
    loose: u64,
    away: u64,
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
    /// Every slot may take space in the pool: what an earlier start left there is not known.
    pub fn new(count: u64, unit: u64) -> Slots {
        let words = vec![0; count.div_ceil(64) as usize];
        Slots {
            backed: vec![u64::MAX; words.len()],
            words,
            count,
            unit: unit.max(1),
            used: 0,
            loose: count,
            away: 0,
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

    /// Slots that a file can get.
    pub fn free_count(&self) -> u64 {
        self.count - self.used - self.away
    }

    /// Free slots that may take space in the pool.
    pub fn loose(&self) -> u64 {
        self.loose
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

    /// A slot that was free is the file's. With it, its whole unit takes space in the pool.
    fn gain(&mut self, file: u64, slot: u64) {
        self.used += 1;
        self.nameless.gain(file);
        self.bound.gain(file);
        *self.files.entry(file).or_default() += 1;
        if bit(&self.backed, slot) {
            self.loose -= 1;
            return;
        }
        for other in self.unit_of(slot) {
            if !bit(&self.backed, other) {
                set(&mut self.backed, other, true);
                self.loose += u64::from(!bit(&self.words, other));
            }
        }
    }

    fn unit_of(&self, slot: u64) -> Range<u64> {
        let first = slot / self.unit * self.unit;
        first..(first + self.unit).min(self.count)
    }

    /// Marks a slot that a record of a file names. False: it is none of the volume's, or two
    /// records name it.
    #[must_use]
    pub fn occupy(&mut self, file: u64, slot: u64) -> bool {
        let free = slot < self.count && !bit(&self.words, slot);
        if free {
            set(&mut self.words, slot, true);
            self.gain(file, slot);
        }
        free
    }

    /// A free slot, which is the file's from here on.
    pub fn take(&mut self, file: u64) -> Option<u64> {
        if self.free_count() == 0 || self.refuses(file) {
            return None;
        }
        let slot = self.next_free(self.loose > 0)?;
        set(&mut self.words, slot, true);
        self.gain(file, slot);
        self.next = (slot + 1) % self.count;
        Some(slot)
    }

    /// The next free slot, or the next loose one.
    fn next_free(&self, loose: bool) -> Option<u64> {
        let words = self.words.len() as u64;
        let first = self.next / 64;
        // The first word twice: its bits below `next` come last.
        for step in 0..=words {
            let index = (first + step) % words;
            let below = if step == 0 { (1 << (self.next % 64)) - 1 } else { 0 };
            let backed = if loose { *self.backed.get(index as usize)? } else { u64::MAX };
            let free = !(*self.words.get(index as usize)? | below) & backed;
            let slot = index * 64 + u64::from(free.trailing_zeros());
            if free != 0 && slot < self.count {
                return Some(slot);
            }
        }
        None
    }

    /// A slot that is not in use, or is another file's, is an error of ours: two files could own
    /// it.
    pub fn free(&mut self, file: u64, slot: u64) {
        assert!(slot < self.count && bit(&self.words, slot), "slot {slot} was given back and is not in use");
        set(&mut self.words, slot, false);
        self.used -= 1;
        self.loose += 1;
        self.nameless.lose(file);
        self.bound.lose(file);
        let held = self.files.get_mut(&file);
        let held = held.unwrap_or_else(|| panic!("slot {slot} was given back by inode {file}, which has none"));
        *held -= 1;
        if *held == 0 {
            self.files.remove(&file);
        }
    }

    /// The next whole units from `from` on that are free and take space in the pool, no more than
    /// about `most` slots. They are away until [`Slots::come_back`].
    pub fn send_away(&mut self, from: u64, most: u64) -> Option<Range<u64>> {
        let mut at = from;
        while at < self.count && self.loose > 0 {
            at = self.loose_from(at)?;
            let unit = self.unit_of(at);
            if !self.is_free(unit.clone()) {
                at = unit.end;
                continue;
            }
            let mut run = unit;
            while run.end < self.count && run.end - run.start < most {
                let next = self.unit_of(run.end);
                if !bit(&self.backed, next.start) || !self.is_free(next.clone()) {
                    break;
                }
                run.end = next.end;
            }
            for slot in run.clone() {
                set(&mut self.words, slot, true);
                self.loose -= u64::from(bit(&self.backed, slot));
            }
            self.away += run.end - run.start;
            return Some(run);
        }
        None
    }

    /// These slots are free again. `discarded`: they take no space in the pool any more.
    pub fn come_back(&mut self, run: Range<u64>, discarded: bool) {
        self.away -= run.end - run.start;
        for slot in run {
            set(&mut self.words, slot, false);
            if discarded {
                set(&mut self.backed, slot, false);
            }
            self.loose += u64::from(bit(&self.backed, slot));
        }
    }

    fn loose_from(&self, from: u64) -> Option<u64> {
        let mut below = (1 << (from % 64)) - 1;
        for index in from / 64..self.words.len() as u64 {
            let loose = self.backed.get(index as usize)? & !(*self.words.get(index as usize)? | below);
            let slot = index * 64 + u64::from(loose.trailing_zeros());
            if loose != 0 {
                return Some(slot).filter(|slot| *slot < self.count);
            }
            below = 0;
        }
        None
    }

    fn is_free(&self, mut slots: Range<u64>) -> bool {
        slots.all(|slot| !bit(&self.words, slot))
    }
}

fn bit(words: &[u64], slot: u64) -> bool {
    words.get((slot / 64) as usize).is_some_and(|word| word & (1 << (slot % 64)) != 0)
}

fn set(words: &mut [u64], slot: u64, value: bool) {
    let word = words.get_mut((slot / 64) as usize).unwrap_or_else(|| panic!("slot {slot} is none of the volume's"));
    match value {
        true => *word |= 1 << (slot % 64),
        false => *word &= !(1 << (slot % 64)),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::ops::Range;

    use stele_ground::Dice;

    use super::Slots;

    #[test]
    fn slots_agree_with_a_set() {
        let mut dice = Dice::new(7);
        for (count, unit) in [(1, 1), (63, 4), (64, 1), (65, 8), (130, 3), (1000, 10), (1000, 1)] {
            let (mut slots, mut model) = (Slots::new(count, unit), BTreeMap::new());
            let mut bound = BTreeSet::new();
            let mut away: Vec<Range<u64>> = Vec::new();
            let mut backed: BTreeSet<u64> = (0..count).collect();
            for _ in 0..8 * count {
                if dice.one_in(6)
                    && let Some(run) = slots.send_away(dice.below(count), 1 + dice.below(20))
                {
                    let whole = run.end == count || run.end.is_multiple_of(unit);
                    assert!(run.start.is_multiple_of(unit) && whole && run.start < run.end, "{run:?} is no whole unit");
                    assert!(run.clone().all(|slot| !model.contains_key(&slot)), "a used slot of {run:?} is sent away");
                    assert!(run.clone().any(|slot| backed.contains(&slot)), "{run:?} takes no space");
                    assert!(!away.iter().any(|other| other.start < run.end && run.start < other.end));
                    away.push(run);
                }
                if dice.one_in(4)
                    && let Some(run) = away.pop()
                {
                    let discarded = dice.one_in(2);
                    if discarded {
                        backed.retain(|slot| !run.contains(slot));
                    }
                    slots.come_back(run, discarded);
                }
                let gone: u64 = away.iter().map(|run| run.end - run.start).sum();
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
                    let could = slots.loose() > 0;
                    match slots.take(file) {
                        Some(slot) => {
                            let before = model.insert(slot, file);
                            assert!(slot < count && before.is_none(), "slot {slot} of {count} is taken twice");
                            assert!(!away.iter().any(|run| run.contains(&slot)), "slot {slot} is away, and taken");
                            assert_eq!(backed.contains(&slot), could, "loose slots come first");
                            let first = slot / unit * unit;
                            backed.extend(first..(first + unit).min(count));
                        }
                        None => assert_eq!(model.len() as u64 + gone, count, "a volume with free slots gave none"),
                    }
                }
                let is_loose = |slot: &&u64| !model.contains_key(slot) && !away.iter().any(|run| run.contains(slot));
                assert_eq!(slots.loose(), backed.iter().filter(is_loose).count() as u64);
                assert_eq!(slots.free_count(), count - model.len() as u64 - gone);
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
        let mut slots = Slots::new(100, 1);
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
        let mut slots = Slots::new(200, 1);
        let taken: Vec<u64> = (0..200).filter_map(|_| slots.take(1)).collect();
        assert_eq!(taken, (0..200).collect::<Vec<u64>>());
        assert_eq!(slots.take(1), None);
    }

    #[test]
    fn a_record_of_a_slot_in_use_or_beyond_the_volume_is_refused() {
        let mut slots = Slots::new(10, 1);
        assert!(slots.occupy(1, 9) && !slots.occupy(2, 9) && !slots.occupy(1, 10));
        assert_eq!((slots.used(), slots.held(1), slots.held(2)), (1, 1, 0));
    }
}
