//! What destage knows: what presses, what is under way, and which stripes were put off.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;

use stele_ground::{Bytes, Duration, Instant};

use crate::model::place::{Lsn, StripeKey};
use crate::runtime::sync::{Notify, Permit, Semaphore};

/// How finely the age of records is known.
pub const AGE_STEP: Duration = Duration::from_millis(200);
/// Moments that are kept of one age: the longer it is, the less finely it is known.
const AGE_MARKS: u64 = 4096;

/// On slow drives so many times as many destages are under way at once. Those that are chosen
/// together lie near each other, so an arm goes less far from one command to the next.
const ON_SLOW_DRIVES: u64 = 4;

/// A stripe whose last destage failed.
#[derive(Clone, Copy, Debug)]
pub struct Stuck {
    /// It is tried again then.
    pub again: Instant,
    /// Something about the stripe itself has to change first. Else the log only had no room for its
    /// destage.
    pub lasting: bool,
}

pub struct Destaging {
    /// The flow has a reason to look.
    wanted: Notify,
    turns: Semaphore,
    /// Dirty blocks go down from the high mark to the low one.
    flushing: Cell<bool>,
    /// Dirty bytes of the stripes whose destage the flow has begun.
    under_way: Cell<u64>,
    /// So many wait until everything is destaged, whatever its age: checkpoints, or a close.
    drains: Cell<u32>,
    /// They are taken out when they are destaged or written otherwise, or when a drive comes.
    stuck: RefCell<BTreeMap<StripeKey, Stuck>>,
    /// Which LSN came next at some moments, for the age of dirty blocks.
    age_marks: RefCell<VecDeque<(Instant, Lsn)>>,
    /// When something was last destaged.
    settled: Cell<Instant>,
}

impl Destaging {
    /// `turns`: destages under way at once, on drives that are not slow.
    pub fn new(turns: u64, now: Instant) -> Destaging {
        Destaging {
            wanted: Notify::default(),
            turns: Semaphore::new(turns * ON_SLOW_DRIVES),
            flushing: Cell::new(false),
            under_way: Cell::new(0),
            drains: Cell::new(0),
            stuck: RefCell::default(),
            age_marks: RefCell::default(),
            settled: Cell::new(now),
        }
    }

    pub fn want(&self) {
        self.wanted.wake_all();
    }

    pub fn wanted(&self) -> impl Future<Output = ()> + '_ {
        self.wanted.changed()
    }

    /// Held while a stripe is destaged.
    pub fn turn(&self, on_slow_drives: bool) -> impl Future<Output = Permit> + use<> {
        self.turns.acquire(if on_slow_drives { 1 } else { ON_SLOW_DRIVES })
    }

    /// The flow begins with a stripe of so many dirty bytes.
    pub fn begin(&self, bytes: u64) {
        self.under_way.set(self.under_way.get() + bytes);
    }

    pub fn end(&self, bytes: u64) {
        self.under_way.set(self.under_way.get() - bytes);
    }

    pub fn under_way(&self) -> u64 {
        self.under_way.get()
    }

    /// Whether dirty blocks are to go down, now that there are so many: from above the high mark to
    /// the low one.
    pub fn watch_marks(&self, dirty: u64, (high, low): (Bytes, Bytes)) -> bool {
        if dirty > high.0 {
            self.flushing.set(true);
        } else if dirty <= low.0 {
            self.flushing.set(false);
        }
        self.flushing.get()
    }

    pub fn is_flushing(&self) -> bool {
        self.flushing.get()
    }

    pub fn begin_drain(&self) {
        self.drains.set(self.drains.get() + 1);
    }

    pub fn end_drain(&self) {
        self.drains.set(self.drains.get() - 1);
    }

    pub fn is_draining(&self) -> bool {
        self.drains.get() > 0
    }

    /// Dirty blocks became fewer.
    pub fn settle(&self, now: Instant) {
        self.settled.set(now);
    }

    pub fn settled_at(&self) -> Instant {
        self.settled.get()
    }

    /// Records below this LSN are of that age. `next` is the LSN that comes next now.
    pub fn aged(&self, age: Duration, next: Lsn, now: Instant) -> Lsn {
        let mut marks = self.age_marks.borrow_mut();
        let step = AGE_STEP.max(Duration(age.0 / AGE_MARKS));
        if marks.back().is_none_or(|(at, _)| now.since(*at) >= step) {
            marks.push_back((now, next));
        }
        while marks.get(1).is_some_and(|(at, _)| now.since(*at) >= age) {
            marks.pop_front();
        }
        marks.front().filter(|(at, _)| now.since(*at) >= age).map_or(Lsn(0), |(_, lsn)| *lsn)
    }
}

/// Stripes that were put off.
impl Destaging {
    pub fn put_off(&self, key: StripeKey, stuck: Stuck) {
        self.stuck.borrow_mut().insert(key, stuck);
    }

    /// The stripe was destaged, or written otherwise.
    pub fn forgive(&self, key: StripeKey) {
        self.stuck.borrow_mut().remove(&key);
    }

    /// Its stripes are gone.
    pub fn forget(&self, is_gone: impl Fn(&StripeKey) -> bool) {
        self.stuck.borrow_mut().retain(|key, _| !is_gone(key));
    }

    /// Drives changed: every stripe may be tried again at once.
    pub fn forgive_all(&self) {
        self.stuck.borrow_mut().clear();
    }

    pub fn may_try(&self, key: StripeKey, now: Instant) -> bool {
        self.stuck.borrow().get(&key).is_none_or(|stuck| stuck.again <= now)
    }

    pub fn is_put_off(&self, key: StripeKey) -> bool {
        self.stuck.borrow().contains_key(&key)
    }

    /// The stripe cannot be destaged before something about it changes.
    pub fn is_stuck(&self, key: StripeKey) -> bool {
        self.stuck.borrow().get(&key).is_some_and(|stuck| stuck.lasting)
    }

    /// Those stripes, in order.
    pub fn stuck(&self) -> Vec<StripeKey> {
        let stuck = self.stuck.borrow();
        stuck.iter().filter(|(_, stuck)| stuck.lasting).map(|(key, _)| *key).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_age_of_blocks_takes_little_memory_however_old_they_may_become() {
        const YEAR: u64 = 365 * 24 * 3600;
        let destaging = Destaging::new(1, Instant(0));
        let (age, step) = (Duration::from_secs(100 * YEAR), Duration::from_secs(YEAR / 365));
        let mut now = Instant(0);
        for day in 0..400 * 365 {
            let old = destaging.aged(age, Lsn(day), now);
            let expected = day.saturating_sub(100 * 365);
            assert!(old.0 <= expected && old.0 + 30 >= expected, "day {day}: {old}, not {expected}");
            now = now + step;
        }
        let marks = destaging.age_marks.borrow().len() as u64;
        assert!(marks <= AGE_MARKS + 2, "{marks}");
    }
    #[test]
    fn slow_drives_get_more_destages_at_once() {
        let destaging = Destaging::new(3, Instant(0));
        let at_once = |slow: bool| {
            let mut held = Vec::new();
            while let Some(permit) = futures_util::FutureExt::now_or_never(destaging.turn(slow)) {
                held.push(permit);
            }
            held.len()
        };
        assert_eq!((at_once(false), at_once(true)), (3, 12));
    }
}
