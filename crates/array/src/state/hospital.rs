//! What the hospital knows of each drive: its history, whether it is slow or silent, and what
//! hedging may cost.
//!
//! The rules are in `upkeep/hospital.rs`. All of it is lost with the process.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::Future;

use stele_ground::{Duration, Instant};

use crate::model::place::DriveNumber;
use crate::runtime::io::overdue::Out;
use crate::runtime::io::service::Service;
use crate::runtime::sync::Notify;

/// Errors within this span decide whether a drive is given up.
pub const WINDOW: Duration = Duration::from_secs(600);
/// So many failed writes within the window: what is not written is not redundant.
pub const WRITES_MAX: usize = 10;
/// So many failed reads, each a strip at most. A few bad places are repaired where they are; a
/// drive that keeps losing them will lose more.
pub const READS_MAX: usize = 50;
/// So many strips that did not verify: a drive that lies.
pub const DIGESTS_MAX: usize = 50;
/// So many errors of any kind within a day make a drive suspect.
pub const SUSPECT: usize = 3;
pub const DAY: Duration = Duration::from_secs(24 * 3600);
/// Errors remembered of a drive; older ones go.
const KEPT: usize = 128;

/// Drives are compared at most so often.
const COMPARE_EVERY: Duration = Duration::from_millis(100);
/// Reads of a drive before it is compared with others.
pub const READS_MIN: u64 = 16;
/// Late: so many times the median of the drives' means, and this much above it.
pub const LATE_TIMES: u64 = 4;
pub const LATE_ABOVE: Duration = Duration::from_millis(2);
/// Slow, all of these:
/// - So many late ones among the last 32 reads.
/// - A mean so many times the median, lest the first drives to show that all have much to do were
///   called slow. The mean is also as much above it as a late read, lest a drive were whose peers
///   answer from memory.
/// - So many times also of each request's share of the time, lest a drive were that has the longest
///   queue.
///
/// Well again: no late one among the last eight for half a minute, lest a drive that stalls now and
/// then were called slow and well by turns.
pub const LATE_MAX: u32 = 8;
pub const MEAN_TIMES: u64 = 2;
const WELL_AFTER: Duration = Duration::from_secs(30);
/// A read is overdue after so many times the median of the means, within bounds: short stalls of
/// flash drives pass, and no host waits for more than the upper one where others can answer.
pub const OVERDUE_TIMES: u64 = 8;
pub const OVERDUE_MIN: Duration = Duration::from_millis(10);
pub const OVERDUE_MAX: Duration = Duration::from_secs(1);
/// Reconstructions for hosts' reads under way at once; further reads wait for the drive itself.
const HEDGES_MAX: u32 = 32;
/// Each read that hedging an overdue one takes is earned by so many reads of hosts, so that drives
/// with much to do get but a sixteenth more. So many are saved up for when a drive stops answering.
const READS_A_READ: u32 = 16;
const READS_SAVED: u32 = 64 * 8 * READS_A_READ;
/// Of the reads that go round a slow drive, one in so many asks it too, so that it can show that it
/// is well again.
const PROBE_EVERY: u64 = 16;

/// What went wrong on a drive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trouble {
    Read,
    Write,
    Digest,
}

/// How a read of a drive is gone about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadPolicy {
    /// The others too, if it takes longer.
    AskFor(Duration),
    /// The drive and the others.
    AskBoth,
    /// The others only, where they can answer.
    Avoid,
}

/// What is known of a drive.
#[derive(Default, Debug)]
pub struct DriveHistory {
    pub errors: VecDeque<(Instant, Trouble)>,
    pub suspect_since: Option<Instant>,
    pub slow_since: Option<Instant>,
    /// The means, its own and its peers', when it was found slow.
    pub means: (Duration, Duration),
    /// Last found late.
    pub late_at: Instant,
    pub silent_since: Option<Instant>,
    /// Given up for its errors since then: what they were.
    pub failed: Option<(Instant, String)>,
    /// Why it is kept although it should not be.
    pub kept: Option<String>,
    pub departures: VecDeque<Instant>,
}

pub struct Hospital {
    histories: RefCell<BTreeMap<DriveNumber, DriveHistory>>,
    slow: RefCell<BTreeSet<DriveNumber>>,
    /// Some drive was found slow.
    slowed: Notify,
    silent: RefCell<BTreeSet<DriveNumber>>,
    /// The oldest request out on each drive, by index, and at how many looks it was the same.
    looks: RefCell<BTreeMap<usize, (Out, u32)>>,
    /// Drives let go for their silence, by index, and when they are asked again.
    let_go: RefCell<BTreeMap<usize, (DriveNumber, Instant)>>,
    patience: Cell<Duration>,
    compare_at: Cell<Instant>,
    under_way: Cell<u32>,
    /// In reads.
    credit: Cell<u32>,
    rounds: Cell<u64>,
    /// Strips that were reconstructed so that no read waited for their drive.
    hedged: Cell<u64>,
    /// Some drive has too many errors.
    wanted: Notify,
    /// No drive answers; said once.
    all_silent: Cell<bool>,
}

impl Default for Hospital {
    fn default() -> Hospital {
        Hospital {
            histories: RefCell::default(),
            slow: RefCell::default(),
            slowed: Notify::default(),
            silent: RefCell::default(),
            looks: RefCell::default(),
            let_go: RefCell::default(),
            patience: Cell::new(OVERDUE_MAX),
            compare_at: Cell::default(),
            under_way: Cell::new(0),
            credit: Cell::new(READS_SAVED),
            rounds: Cell::new(0),
            hedged: Cell::new(0),
            wanted: Notify::default(),
            all_silent: Cell::new(false),
        }
    }
}

/// One of the reconstructions under way.
pub struct Hedge<'a>(&'a Hospital);

impl Drop for Hedge<'_> {
    fn drop(&mut self) {
        self.0.under_way.set(self.0.under_way.get() - 1);
    }
}

impl Hospital {
    fn history<R>(&self, drive: DriveNumber, with: impl FnOnce(&mut DriveHistory) -> R) -> R {
        with(self.histories.borrow_mut().entry(drive).or_default())
    }

    /// The drive's history, if it has one.
    pub fn look_up<R>(&self, drive: DriveNumber, read: impl FnOnce(&DriveHistory) -> R) -> Option<R> {
        self.histories.borrow().get(&drive).map(read)
    }

    pub fn is_slow(&self, drive: DriveNumber) -> bool {
        self.slow.borrow().contains(&drive)
    }

    pub fn is_silent(&self, drive: DriveNumber) -> bool {
        self.silent.borrow().contains(&drive)
    }

    /// The driver has lost the drive at this index: it is not asked again.
    pub fn forget(&self, index: usize) {
        self.let_go.borrow_mut().remove(&index);
        self.looks.borrow_mut().remove(&index);
    }

    /// Another drive stands in its place now.
    pub fn replaced(&self, drive: DriveNumber) {
        self.histories.borrow_mut().remove(&drive);
        self.slow.borrow_mut().remove(&drive);
        self.silent.borrow_mut().remove(&drive);
    }
}

/// Reads that go round a drive.
impl Hospital {
    /// How to go about a read of the drive, as long as reads are hedged at all.
    pub fn read_policy(&self, drive: DriveNumber) -> ReadPolicy {
        if self.is_silent(drive) {
            return ReadPolicy::Avoid;
        }
        if !self.is_slow(drive) {
            return ReadPolicy::AskFor(self.patience.get());
        }
        let round = self.rounds.get() + 1;
        self.rounds.set(round);
        if round.is_multiple_of(PROBE_EVERY) { ReadPolicy::AskBoth } else { ReadPolicy::Avoid }
    }

    /// None at the limit.
    pub fn begin_hedge(&self) -> Option<Hedge<'_>> {
        let under_way = self.under_way.get();
        (under_way < HEDGES_MAX).then(|| {
            self.under_way.set(under_way + 1);
            Hedge(self)
        })
    }

    /// False where reads have not earned another hedge that takes so many yet.
    pub fn pay_for_hedge(&self, reads: usize) -> bool {
        let left = self.credit.get().checked_sub(READS_A_READ * reads as u32);
        if let Some(left) = left {
            self.credit.set(left);
        }
        left.is_some()
    }

    /// A host reads.
    pub fn earn(&self) {
        self.credit.set((self.credit.get() + 1).min(READS_SAVED));
    }

    /// So many strips were reconstructed so that no read waited for their drives.
    pub fn note_hedged(&self, strips: u64) {
        self.hedged.set(self.hedged.get() + strips);
    }

    pub fn hedged(&self) -> u64 {
        self.hedged.get()
    }
}

/// Comparing drives.
impl Hospital {
    pub fn wants_comparison(&self, now: Instant) -> bool {
        now >= self.compare_at.get()
    }

    pub fn begin_comparison(&self, now: Instant) {
        self.compare_at.set(now + COMPARE_EVERY);
    }

    /// So long a read may take before others are asked.
    pub fn set_patience(&self, patience: Duration) {
        self.patience.set(patience);
    }

    pub fn slow(&self) -> BTreeSet<DriveNumber> {
        self.slow.borrow().clone()
    }

    pub fn has_slow(&self) -> bool {
        !self.slow.borrow().is_empty()
    }

    /// Answers after the next drive is found slow.
    pub fn slowed(&self) -> impl Future<Output = ()> + '_ {
        self.slowed.changed()
    }

    /// A slow drive was late again lately.
    pub fn stays_slow(&self, drive: DriveNumber, service: &Service, now: Instant) -> bool {
        self.history(drive, |history| {
            if service.late_of(8) > 0 {
                history.late_at = now;
            }
            now < history.late_at + WELL_AFTER
        })
    }

    /// The drive is slow from now on; the means are its own and its peers'.
    pub fn call_slow(&self, drive: DriveNumber, means: (Duration, Duration), now: Instant) {
        self.history(drive, |history| (history.slow_since, history.late_at, history.means) = (Some(now), now, means));
        self.slow.borrow_mut().insert(drive);
        self.slowed.wake_all();
    }

    pub fn call_prompt(&self, drive: DriveNumber) {
        self.slow.borrow_mut().remove(&drive);
        self.history(drive, |history| history.slow_since = None);
    }
}

/// Errors.
impl Hospital {
    /// Answers whether the drive has too many errors to be kept, and whether it has become suspect
    /// by this one.
    pub fn note_trouble(&self, drive: DriveNumber, trouble: Trouble, now: Instant) -> (bool, bool) {
        self.history(drive, |history| {
            if history.errors.len() == KEPT {
                history.errors.pop_front();
            }
            history.errors.push_back((now, trouble));
            let today = Instant(now.0.saturating_sub(DAY.0));
            let newly = history.errors_since(today) >= SUSPECT && history.suspect_since.is_none();
            if newly {
                history.suspect_since = Some(now);
            }
            (history.failed.is_none() && history.hopeless(now).is_some(), newly)
        })
    }

    /// Some drive has too many errors: the flow is to look.
    pub fn want_verdict(&self) {
        self.wanted.wake_all();
    }

    pub fn verdict_wanted(&self) -> impl Future<Output = ()> + '_ {
        self.wanted.changed()
    }

    /// Drives with too many errors that were not given up for them, and what went wrong.
    pub fn hopeless(&self, now: Instant) -> Vec<(DriveNumber, String)> {
        let histories = self.histories.borrow();
        let open = histories.iter().filter(|(_, history)| history.failed.is_none());
        open.filter_map(|(drive, history)| Some((*drive, history.hopeless(now)?))).collect()
    }

    pub fn call_failed(&self, drive: DriveNumber, what: String, now: Instant) {
        self.history(drive, |history| {
            history.failed = Some((now, what));
            history.kept = None;
        });
    }

    /// The drive is not well, and is kept. True where that was not known before.
    pub fn call_kept(&self, drive: DriveNumber, reason: String) -> bool {
        self.history(drive, |history| history.kept.replace(reason)).is_none()
    }
}

/// Drives that do not answer.
impl Hospital {
    /// At how many looks in a row the same request was the oldest of the drive at this index.
    pub fn looks_at(&self, index: usize, oldest: Out) -> u32 {
        let mut looks = self.looks.borrow_mut();
        let look = looks.entry(index).or_insert((oldest, 0));
        *look = if look.0 == oldest { (oldest, look.1 + 1) } else { (oldest, 1) };
        look.1
    }

    /// Nothing is out on the drive at this index.
    pub fn has_answered(&self, index: usize) {
        self.looks.borrow_mut().remove(&index);
    }

    /// No drive answers, or some do again. True where that none does is news.
    pub fn note_all_silent(&self, all: bool) -> bool {
        !self.all_silent.replace(all) && all
    }

    /// From now on these are silent, and no others. Answers those that were.
    pub fn note_silent(&self, silent: &BTreeSet<DriveNumber>, now: Instant) -> BTreeSet<DriveNumber> {
        let before = self.silent.replace(silent.clone());
        for drive in silent.difference(&before) {
            self.history(*drive, |history| history.silent_since = Some(now));
        }
        for drive in before.difference(silent) {
            self.history(*drive, |history| history.silent_since = None);
        }
        before
    }

    /// The drive was let go for its silence.
    pub fn let_go(&self, index: usize, drive: DriveNumber, now: Instant) {
        self.silent.borrow_mut().remove(&drive);
        self.history(drive, |history| {
            history.departures.push_back(now);
            history.kept = None;
        });
        self.ask_again(index, drive, now);
    }

    /// A drive that was let go is asked then.
    pub fn ask_again(&self, index: usize, drive: DriveNumber, at: Instant) {
        self.let_go.borrow_mut().insert(index, (drive, at));
    }

    pub fn has_let_go(&self) -> bool {
        !self.let_go.borrow().is_empty()
    }

    /// Drives that were let go and may be asked now, if they have answered everything.
    pub fn due(&self, now: Instant, has_answered: impl Fn(usize) -> bool) -> Vec<(usize, DriveNumber)> {
        let let_go = self.let_go.borrow();
        let due = let_go.iter().filter(|(index, (_, at))| *at <= now && has_answered(**index));
        due.map(|(index, (drive, _))| (*index, *drive)).collect()
    }

    /// The drive is no longer waited for. Answers how often it was let go since then.
    pub fn discharge(&self, index: usize, drive: DriveNumber, since: Instant) -> usize {
        self.let_go.borrow_mut().remove(&index);
        self.history(drive, |history| {
            history.departures.retain(|at| *at >= since);
            history.departures.len()
        })
    }
}

impl DriveHistory {
    fn count(&self, trouble: Trouble, since: Instant) -> usize {
        self.errors.iter().filter(|(at, kind)| *kind == trouble && *at >= since).count()
    }

    /// Errors since then.
    pub fn errors_since(&self, since: Instant) -> usize {
        self.errors.iter().filter(|(at, _)| *at >= since).count()
    }

    /// What went wrong too often within the window.
    pub fn hopeless(&self, now: Instant) -> Option<String> {
        let since = Instant(now.0.saturating_sub(WINDOW.0));
        let kinds = [
            (Trouble::Write, WRITES_MAX, "writes failed"),
            (Trouble::Read, READS_MAX, "reads failed"),
            (Trouble::Digest, DIGESTS_MAX, "strips did not verify"),
        ];
        let minutes = WINDOW.0 / 60_000_000_000;
        kinds.into_iter().find_map(|(kind, most, what)| {
            let count = self.count(kind, since);
            (count >= most).then(|| format!("{count} {what} within {minutes} minutes"))
        })
    }
}
