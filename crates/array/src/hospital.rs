//! The hospital: which drives are not well, and what is done about each.
//!
//! - A drive whose reads take much longer than its peers' is **slow**: hosts' reads go round it (see `stripe/hedge.rs`), and the
//!   log leaves it where another drive can take its place. Slowness alone gives no drive up: it still holds redundancy.
//! - Errors are counted over a window. A few make a drive **suspect**; many make it **failed**: its strips move into spare
//!   space, and it serves as one more source for them until it is replaced.
//! - A drive that does not answer a request at all is **silent**: it is let go as if it had been pulled out, and
//!   taken back when it has answered everything it owes.
//!
//! No drive is given up or let go where a stripe, the log, or the majority of labels needs it: it is kept, and the alarm
//! says why. Nothing here reads a clock; what is measured is the time that the driver hands in. Charts are lost with the
//! process, except that a drive was given up: that is in the labels.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use stele_ground::{Duration, Instant};
use stele_media::{MediaError, MediaFault};

use crate::engine::Engine;
use crate::io::overdue::Out;
use crate::io::service::Service;
use crate::mutation::Mutation;
use crate::place::DriveNumber;
use crate::sync::Notify;
use crate::{AlarmKind, Severity};

pub mod condition;
mod probe;
mod ward;

/// Errors within this span decide whether a drive is given up.
pub const WINDOW: Duration = Duration::from_secs(600);
/// So many failed writes within the window: what is not written is not redundant.
pub const WRITES_MAX: usize = 10;
/// So many failed reads, each a strip at most. A few bad places are repaired where they are; a drive that keeps losing
/// them will lose more.
pub const READS_MAX: usize = 50;
/// So many strips that did not verify: a drive that lies.
pub const DIGESTS_MAX: usize = 50;
/// So many errors of any kind within a day make a drive suspect.
pub const SUSPECT: usize = 3;
const DAY: Duration = Duration::from_secs(24 * 3600);
/// Errors remembered of a drive; older ones go.
const KEPT: usize = 128;

/// Drives are compared at most so often.
const COMPARE_EVERY: Duration = Duration::from_millis(100);
/// Reads of a drive before it is compared with others.
const READS_MIN: u64 = 16;
/// Late: so many times the median of the drives' means, and this much above it.
const LATE_TIMES: u64 = 4;
const LATE_ABOVE: Duration = Duration::from_millis(2);
/// Slow: so many late ones among the last 32 reads; a mean so many times the median, lest the first drives to show that all
/// have much to do were called slow, and as much above it as a late read, lest a drive were whose peers answer from memory;
/// and so many times also of each request's share of the time, lest a drive were that has the longest queue. Well again: no
/// late one among the last eight for half a minute, lest a drive that stalls now and then were called slow and well by turns.
const LATE_MAX: u32 = 8;
const MEAN_TIMES: u64 = 2;
const WELL_AFTER: Duration = Duration::from_secs(30);
/// A read is overdue after so many times the median of the means, within bounds: short stalls of flash drives pass,
/// and no host waits for more than the upper one where others can answer.
const OVERDUE_TIMES: u64 = 8;
const OVERDUE_MIN: Duration = Duration::from_millis(10);
const OVERDUE_MAX: Duration = Duration::from_secs(1);
/// Reconstructions for hosts' reads under way at once; further reads wait for the drive itself.
const HEDGES_MAX: u32 = 32;
/// Each read that hedging an overdue one takes is earned by so many reads of hosts, so that drives with much to do get but a
/// sixteenth more; and so many are saved up for when a drive stops answering.
const READS_A_READ: u32 = 16;
const READS_SAVED: u32 = 64 * 8 * READS_A_READ;
/// Of the reads that go round a slow drive, one in so many asks it too, so that it can show that it is well again.
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
pub enum Course {
    /// The others too, if it takes longer.
    AskFor(Duration),
    /// The drive and the others.
    AskBoth,
    /// The others only, where they can answer.
    Avoid,
}

/// What is known of a drive.
#[derive(Default, Debug)]
pub(crate) struct Chart {
    errors: VecDeque<(Instant, Trouble)>,
    suspect_since: Option<Instant>,
    slow_since: Option<Instant>,
    /// The means, its own and its peers', when it was found slow.
    means: (Duration, Duration),
    /// Last found late.
    late_at: Instant,
    silent_since: Option<Instant>,
    /// Given up for its errors since then: what they were.
    failed: Option<(Instant, String)>,
    /// Why it is kept although it should not be.
    kept: Option<String>,
    departures: VecDeque<Instant>,
}

pub struct Hospital {
    charts: RefCell<BTreeMap<DriveNumber, Chart>>,
    slow: RefCell<BTreeSet<DriveNumber>>,
    /// Some drive was found slow.
    slowed: Notify,
    silent: RefCell<BTreeSet<DriveNumber>>,
    /// The oldest request out on each drive, by index, and at how many looks it was the same.
    looks: RefCell<BTreeMap<usize, (Out, u32)>>,
    /// Drives let go for their silence, by index, and when they are asked again.
    ward: RefCell<BTreeMap<usize, (DriveNumber, Instant)>>,
    patience: Cell<Duration>,
    compare_at: Cell<Instant>,
    under_way: Cell<u32>,
    /// In reads.
    credit: Cell<u32>,
    rounds: Cell<u64>,
    /// Strips that were reconstructed so that nobody waited for their drive.
    pub hedged: Cell<u64>,
    /// Some drive has too many errors.
    wanted: Notify,
    /// No drive answers; said once.
    all_silent: Cell<bool>,
}

impl Default for Hospital {
    fn default() -> Hospital {
        Hospital {
            charts: RefCell::default(),
            slow: RefCell::default(),
            slowed: Notify::default(),
            silent: RefCell::default(),
            looks: RefCell::default(),
            ward: RefCell::default(),
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
    fn chart<R>(&self, drive: DriveNumber, with: impl FnOnce(&mut Chart) -> R) -> R {
        with(self.charts.borrow_mut().entry(drive).or_default())
    }

    pub fn is_slow(&self, drive: DriveNumber) -> bool {
        self.slow.borrow().contains(&drive)
    }

    pub fn is_silent(&self, drive: DriveNumber) -> bool {
        self.silent.borrow().contains(&drive)
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

    fn earn(&self) {
        self.credit.set((self.credit.get() + 1).min(READS_SAVED));
    }

    /// The driver has lost the drive at this index: it is not asked again.
    pub fn forget(&self, index: usize) {
        self.ward.borrow_mut().remove(&index);
        self.looks.borrow_mut().remove(&index);
    }

    /// Another drive stands in its place now.
    pub fn replaced(&self, drive: DriveNumber) {
        self.charts.borrow_mut().remove(&drive);
        self.slow.borrow_mut().remove(&drive);
        self.silent.borrow_mut().remove(&drive);
    }
}

impl Chart {
    fn count(&self, trouble: Trouble, since: Instant) -> usize {
        self.errors.iter().filter(|(at, kind)| *kind == trouble && *at >= since).count()
    }

    /// What went wrong too often within the window.
    fn hopeless(&self, now: Instant) -> Option<String> {
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

impl Engine {
    /// How to go about a read of the drive.
    pub fn course(&self, drive: DriveNumber) -> Course {
        let hospital = &self.hospital;
        if self.io.now() >= hospital.compare_at.get() {
            self.compare();
        }
        hospital.earn();
        if self.io.lacks(Mutation::Hedge) {
            return Course::AskFor(DAY);
        }
        if hospital.is_silent(drive) {
            return Course::Avoid;
        }
        if !hospital.is_slow(drive) {
            return Course::AskFor(hospital.patience.get());
        }
        let round = hospital.rounds.get() + 1;
        hospital.rounds.set(round);
        if round.is_multiple_of(PROBE_EVERY) { Course::AskBoth } else { Course::Avoid }
    }

    /// Present, up to date, and answering as its peers do.
    pub fn is_prompt(&self, drive: DriveNumber) -> bool {
        self.drives.is_sound(drive) && !self.hospital.is_slow(drive) && !self.hospital.is_silent(drive)
    }

    /// Compares the drives' reads.
    fn compare(&self) {
        let hospital = &self.hospital;
        let now = self.io.now();
        hospital.compare_at.set(now + COMPARE_EVERY);
        let usable = self.drives.labels.usable().into_iter();
        let served: Vec<(DriveNumber, Service)> = usable
            .filter_map(|drive| Some((drive, self.io.service(self.drives.index(drive)?))))
            .filter(|(_, service)| service.reads >= READS_MIN)
            .collect();
        let mut means: Vec<Duration> = served.iter().map(|(_, service)| service.mean).collect();
        means.sort_unstable();
        if means.len() < 3 || self.io.lacks(Mutation::Peers) {
            hospital.patience.set(OVERDUE_MAX);
            return;
        }
        let median = means[means.len() / 2];
        let mut shares: Vec<Duration> = served.iter().map(|(_, service)| service.share).collect();
        shares.sort_unstable();
        let share = shares[shares.len() / 2];
        let times = |span: Duration| span.0.saturating_mul(MEAN_TIMES);
        hospital.patience.set(Duration(median.0.saturating_mul(OVERDUE_TIMES)).clamp(OVERDUE_MIN, OVERDUE_MAX));
        self.io.set_late_after(Duration((median.0.saturating_mul(LATE_TIMES)).max(median.0 + LATE_ABOVE.0)));
        let was = hospital.slow.borrow().clone();
        let mut slow: Vec<(Duration, DriveNumber)> = served
            .iter()
            .filter(|(drive, service)| match was.contains(drive) {
                true => hospital.chart(*drive, |chart| {
                    if service.late_of(8) > 0 {
                        chart.late_at = now;
                    }
                    now < chart.late_at + WELL_AFTER
                }),
                false => {
                    service.late_of(32) >= LATE_MAX
                        && service.mean.0 > times(median).max(median.0 + LATE_ABOVE.0)
                        && service.share.0 > times(share)
                }
            })
            .map(|(drive, service)| (service.mean, *drive))
            .collect();
        // Where many are slow they are of another kind, or busy with something: there is nobody to go to instead.
        if slow.len() > (served.len() / 4).max(1) {
            slow.clear();
        }
        for (mean, drive) in &slow {
            if !was.contains(drive) {
                hospital.chart(*drive, |chart| {
                    (chart.slow_since, chart.late_at, chart.means) = (Some(now), now, (*mean, median));
                });
                hospital.slow.borrow_mut().insert(*drive);
                hospital.slowed.wake_all();
                self.alarm(
                    AlarmKind::DriveSlow,
                    Severity::Warning,
                    Some(*drive),
                    format!("{drive} is slow: {mean} a read and more, its peers {median}; reads go round it"),
                );
            }
            let avoid = slow.iter().map(|(_, drive)| *drive).collect();
            self.log.relieve(*drive, &avoid);
        }
        for drive in was.iter().filter(|drive| !slow.iter().any(|(_, still)| still == *drive)) {
            hospital.slow.borrow_mut().remove(drive);
            hospital.chart(*drive, |chart| chart.slow_since = None);
            if self.drives.index(*drive).is_some() {
                let text = format!("{drive} answers as fast as its peers again");
                self.alarm(AlarmKind::DriveRecovered, Severity::Notice, Some(*drive), text);
            }
        }
    }

    /// A read of the drive is overdue: late already, whenever it ends.
    pub fn note_overdue(&self, drive: DriveNumber) {
        if let Some(index) = self.drives.index(drive) {
            self.io.note_late(index);
        }
    }

    pub fn note_read_error(&self, drive: DriveNumber, error: &MediaError) {
        if error.fault == MediaFault::Gone || self.hospital.is_silent(drive) {
            return;
        }
        self.drives.change(drive, |seen| {
            seen.read_errors += 1;
            seen.note = format!("the last read that failed: {error}");
        });
        self.note_trouble(drive, Trouble::Read);
    }

    pub fn note_write_error(&self, index: usize, error: &MediaError) {
        if error.fault == MediaFault::Gone {
            self.drive_gone(index);
            return;
        }
        if let Some(drive) = self.drives.labels.number(index) {
            self.drives.change(drive, |seen| {
                seen.write_errors += 1;
                seen.note = format!("the last write that failed: {error}");
            });
            self.note_trouble(drive, Trouble::Write);
        }
    }

    /// So many units of one strip did not verify.
    pub fn note_digest_errors(&self, drive: DriveNumber, units: u64) {
        self.drives.change(drive, |seen| seen.digest_errors += units);
        self.note_trouble(drive, Trouble::Digest);
    }

    fn note_trouble(&self, drive: DriveNumber, trouble: Trouble) {
        let now = self.io.now();
        let (hopeless, suspect) = self.hospital.chart(drive, |chart| {
            if chart.errors.len() == KEPT {
                chart.errors.pop_front();
            }
            chart.errors.push_back((now, trouble));
            let today = Instant(now.0.saturating_sub(DAY.0));
            let many = chart.errors.iter().filter(|(at, _)| *at >= today).count() >= SUSPECT;
            let newly = many && chart.suspect_since.is_none();
            if newly {
                chart.suspect_since = Some(now);
            }
            (chart.failed.is_none() && chart.hopeless(now).is_some(), newly)
        });
        if suspect && self.drive_state(drive).votes() {
            let text = format!("{drive} had {SUSPECT} errors within a day; what it lost is repaired");
            self.alarm(AlarmKind::DriveSuspect, Severity::Warning, Some(drive), text);
        }
        if hopeless {
            self.hospital.wanted.wake_all();
        }
    }
}

#[cfg(test)]
mod tests;
