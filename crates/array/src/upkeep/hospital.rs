//! The hospital: which drives are not well, and what is done about each.
//!
//! - A drive whose reads take much longer than its peers' is **slow**: hosts' reads go round it
//!   (see `stripe/hedge.rs`), and the log leaves it where another drive can take its place.
//!   Slowness alone gives no drive up: it still holds redundancy.
//! - Errors are counted over a window. A few make a drive **suspect**; many make it **failed**: its
//!   strips move into spare space, and it serves as one more source for them until it is replaced.
//! - A drive that does not answer a request at all is **silent**: it is let go as if it had been
//!   pulled out, and taken back when it has answered everything it owes.
//!
//! No drive is given up or let go where a stripe, the log, or the majority of labels needs it: it
//! is kept, and the alarm says why. Nothing here reads a clock; what is measured is the time that
//! the driver hands in. Charts are lost with the process, except that a drive was given up: that is
//! in the labels.

use stele_ground::Duration;
use stele_media::{MediaError, MediaFault};

use crate::engine::Engine;
use crate::model::mutation::Mutation;
use crate::model::place::DriveNumber;
use crate::model::{AlarmKind, Severity};
use crate::runtime::io::service::Service;
use crate::state::hospital::{
    DAY, LATE_ABOVE, LATE_MAX, LATE_TIMES, MEAN_TIMES, OVERDUE_MAX, OVERDUE_MIN, OVERDUE_TIMES, READS_MIN, ReadPolicy,
    SUSPECT, Trouble,
};

pub mod condition;
mod monitor;
mod probe;

impl Engine {
    /// How to go about a read of the drive.
    pub fn read_policy(&self, drive: DriveNumber) -> ReadPolicy {
        if self.hospital.wants_comparison(self.io.now()) {
            self.compare();
        }
        self.hospital.earn();
        if self.io.is_disabled(Mutation::Hedge) { ReadPolicy::AskFor(DAY) } else { self.hospital.read_policy(drive) }
    }

    /// Present, up to date, and answering as its peers do.
    pub fn is_prompt(&self, drive: DriveNumber) -> bool {
        self.drives.is_sound(drive) && !self.hospital.is_slow(drive) && !self.hospital.is_silent(drive)
    }

    /// Compares the drives' reads.
    fn compare(&self) {
        let hospital = &self.hospital;
        let now = self.io.now();
        hospital.begin_comparison(now);
        let usable = self.drives.labels.usable().into_iter();
        let served: Vec<(DriveNumber, Service)> = usable
            .filter_map(|drive| Some((drive, self.io.service(self.drives.index(drive)?))))
            .filter(|(_, service)| service.reads >= READS_MIN)
            .collect();
        let mut means: Vec<Duration> = served.iter().map(|(_, service)| service.mean).collect();
        means.sort_unstable();
        if means.len() < 3 || self.io.is_disabled(Mutation::Peers) {
            hospital.set_patience(OVERDUE_MAX);
            return;
        }
        let median = means[means.len() / 2];
        let mut shares: Vec<Duration> = served.iter().map(|(_, service)| service.share).collect();
        shares.sort_unstable();
        let share = shares[shares.len() / 2];
        let times = |span: Duration| span.0.saturating_mul(MEAN_TIMES);
        hospital.set_patience(Duration(median.0.saturating_mul(OVERDUE_TIMES)).clamp(OVERDUE_MIN, OVERDUE_MAX));
        self.io.set_late_after(Duration((median.0.saturating_mul(LATE_TIMES)).max(median.0 + LATE_ABOVE.0)));
        let was = hospital.slow();
        let mut slow: Vec<(Duration, DriveNumber)> = served
            .iter()
            .filter(|(drive, service)| match was.contains(drive) {
                true => hospital.stays_slow(*drive, service, now),
                false => {
                    service.late_of(32) >= LATE_MAX
                        && service.mean.0 > times(median).max(median.0 + LATE_ABOVE.0)
                        && service.share.0 > times(share)
                }
            })
            .map(|(drive, service)| (service.mean, *drive))
            .collect();
        // Where many are slow they are of another kind, or busy: no drive is left to go to instead.
        if slow.len() > (served.len() / 4).max(1) {
            slow.clear();
        }
        for (mean, drive) in &slow {
            if !was.contains(drive) {
                hospital.call_slow(*drive, (*mean, median), now);
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
            hospital.call_prompt(*drive);
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
        let (hopeless, suspect) = self.hospital.note_trouble(drive, trouble, self.io.now());
        if suspect && self.drive_state(drive).votes() {
            let text = format!("{drive} had {SUSPECT} errors within a day; what it lost is repaired");
            self.alarm(AlarmKind::DriveSuspect, Severity::Warning, Some(drive), text);
        }
        if hopeless {
            self.hospital.want_verdict();
        }
    }
}

#[cfg(test)]
mod tests;
