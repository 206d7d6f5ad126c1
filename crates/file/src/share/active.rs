//! Files whose content is not archived, in the order in which archiving takes them.
//!
//! A look at a share with a million of them takes the few that are next, and none is looked at
//! again before there is a reason for it. A file that is being stored, or that could not be stored
//! just now, is out of the order meanwhile. What is done for each archived file must not grow with
//! the number of the others, since all callers of the share wait for it.

use std::collections::{BTreeMap, BTreeSet};

use stele_ground::{Duration, Instant};

/// A change so soon after the one before leaves the file at its place, so that a stream of writes
/// does not move it with each.
const COARSE: Duration = Duration(100_000_000);

/// Ordered by time, and by number where the times are the same.
type Order = BTreeSet<(Instant, u64)>;

#[derive(Default)]
pub struct Active {
    files: BTreeMap<u64, File>,
    /// All of them, by their last change.
    ages: Order,
    /// Those that may be taken, by their last change.
    ready: Order,
    /// Those that wait for another attempt, by the last one.
    waiting: Order,
    taken: BTreeSet<u64>,
    /// Files that were looked at.
    #[cfg(test)]
    looks: usize,
}

#[derive(Clone, Copy)]
struct File {
    changed: Instant,
    place: Place,
}

#[derive(Clone, Copy)]
enum Place {
    Ready,
    Waiting(Instant),
    Taken,
}

impl Active {
    /// The file has changed. Answers whether it was not here.
    pub fn note(&mut self, inode: u64, now: Instant) -> bool {
        let Some(file) = self.files.get_mut(&inode) else {
            self.files.insert(inode, File { changed: now, place: Place::Ready });
            self.ages.insert((now, inode));
            self.ready.insert((now, inode));
            return true;
        };
        if now.since(file.changed) < COARSE {
            return false;
        }
        let before = std::mem::replace(&mut file.changed, now);
        self.ages.remove(&(before, inode));
        self.ages.insert((now, inode));
        if self.ready.remove(&(before, inode)) {
            self.ready.insert((now, inode));
        }
        false
    }

    pub fn remove(&mut self, inode: u64) {
        let Some(file) = self.files.remove(&inode) else { return };
        self.ages.remove(&(file.changed, inode));
        self.leave(inode, file);
    }

    fn leave(&mut self, inode: u64, file: File) {
        match file.place {
            Place::Ready => self.ready.remove(&(file.changed, inode)),
            Place::Waiting(tried) => self.waiting.remove(&(tried, inode)),
            Place::Taken => self.taken.remove(&inode),
        };
    }

    /// Takes the file that was left alone longest, if it was for so long.
    pub fn take_idle(&mut self, now: Instant, patience: Duration) -> Option<u64> {
        #[cfg(test)]
        {
            self.looks += 1;
        }
        let (changed, inode) = *self.ready.first()?;
        if now.since(changed) < patience {
            return None;
        }
        self.ready.remove(&(changed, inode));
        self.taken.insert(inode);
        if let Some(file) = self.files.get_mut(&inode) {
            file.place = Place::Taken;
        }
        Some(inode)
    }

    /// The file is not taken again for a while.
    pub fn put_off(&mut self, inode: u64, now: Instant) {
        let Some(file) = self.files.get(&inode).copied() else { return };
        self.leave(inode, file);
        self.waiting.insert((now, inode));
        self.files.insert(inode, File { place: Place::Waiting(now), ..file });
    }

    /// Files that have waited for so long may be taken again; no more than `most` at once.
    pub fn wake(&mut self, now: Instant, again: Duration, most: usize) {
        for _ in 0..most {
            let Some((tried, inode)) = self.waiting.first().copied() else { return };
            if now.since(tried) < again {
                return;
            }
            #[cfg(test)]
            {
                self.looks += 1;
            }
            self.waiting.remove(&(tried, inode));
            self.make_ready(inode);
        }
    }

    /// What was taken and is not stored may be taken again: the round that took it went away.
    pub fn give_back(&mut self) {
        for inode in std::mem::take(&mut self.taken) {
            self.make_ready(inode);
        }
    }

    fn make_ready(&mut self, inode: u64) {
        if let Some(file) = self.files.get_mut(&inode) {
            file.place = Place::Ready;
            self.ready.insert((file.changed, inode));
        }
    }

    pub fn contains(&self, inode: u64) -> bool {
        self.files.contains_key(&inode)
    }

    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// The last change of a file.
    pub fn changed(&self, inode: u64) -> Option<Instant> {
        self.files.get(&inode).map(|file| file.changed)
    }

    /// All of them with their last change, from the one that was left alone longest on.
    pub fn by_age(&self) -> impl Iterator<Item = (Instant, u64)> {
        self.ages.iter().copied()
    }

    /// The last change of the file that was left alone longest.
    pub fn oldest(&self) -> Option<Instant> {
        self.ages.first().map(|(changed, _)| *changed)
    }

    #[cfg(test)]
    pub fn looks(&self) -> usize {
        self.looks
    }
}

#[cfg(test)]
mod tests {
    use stele_ground::Dice;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// The same answers from a plain map.
    #[derive(Default)]
    struct Model(BTreeMap<u64, (u64, Option<u64>, bool)>);

    impl Model {
        fn take(&mut self, now: u64, patience: u64) -> Option<u64> {
            let free = self.0.iter().filter(|(_, file)| file.1.is_none() && !file.2);
            let (inode, changed) =
                free.map(|(inode, file)| (*inode, file.0)).min_by_key(|(inode, at)| (*at, *inode))?;
            if now - changed < patience {
                return None;
            }
            self.0.get_mut(&inode)?.2 = true;
            Some(inode)
        }
    }

    #[test]
    fn files_are_taken_as_from_a_plain_map() {
        let (mut dice, mut active, mut model, mut now) = (Dice::new(3), Active::default(), Model::default(), 0);
        for _ in 0..20_000 {
            now += dice.below(3) * SECOND;
            let (inode, at) = (dice.below(40), Instant(now));
            match dice.below(7) {
                0..=2 => {
                    active.note(inode, at);
                    model.0.entry(inode).or_insert((now, None, false)).0 = now;
                }
                3 => {
                    active.remove(inode);
                    model.0.remove(&inode);
                }
                4 => {
                    active.put_off(inode, at);
                    if let Some(file) = model.0.get_mut(&inode) {
                        (file.1, file.2) = (Some(now), false);
                    }
                }
                5 => {
                    active.wake(at, Duration(5 * SECOND), usize::MAX);
                    let due = |file: &&mut (u64, Option<u64>, bool)| file.1.is_some_and(|at| now - at >= 5 * SECOND);
                    model.0.values_mut().filter(due).for_each(|file| file.1 = None);
                    if dice.one_in(4) {
                        active.give_back();
                        model.0.values_mut().for_each(|file| file.2 = false);
                    }
                }
                _ => assert_eq!(active.take_idle(at, Duration(4 * SECOND)), model.take(now, 4 * SECOND)),
            }
            let oldest = model.0.values().map(|file| Instant(file.0)).min();
            assert_eq!((active.len(), active.oldest()), (model.0.len(), oldest));
            assert_eq!(active.ready.len() + active.waiting.len() + active.taken.len(), active.len());
        }
    }

    #[test]
    fn a_stream_of_writes_leaves_its_file_at_its_place() {
        let mut active = Active::default();
        active.note(1, Instant(0));
        active.note(1, Instant(COARSE.0 - 1));
        assert_eq!(active.oldest(), Some(Instant(0)));
        active.note(1, Instant(COARSE.0));
        assert_eq!(active.oldest(), Some(Instant(COARSE.0)));
    }
}
