//! What a drive has done, and how long its reads take beside those of its peers.
//!
//! The mean follows slowly (a 32nd a read), so that it tells the drive and not its last request.
//! Beside it stand the last 32 reads as late or not: one stall among quick reads moves the mean,
//! but does not make a slow drive.

use stele_ground::{Duration, Instant};
use stele_media::Op;

use super::Io;

/// The mean is taken over all reads until there are so many.
const SETTLED: u64 = 32;

/// A drive's reads, and how fast it takes commands of all kinds.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Service {
    pub reads: u64,
    /// From handing out to completion.
    pub mean: Duration,
    /// Mean of the same spans, each divided by the requests that were out: a drive with a longer
    /// queue is no slower drive.
    pub share: Duration,
    /// The same of all commands but runs of background work, flushes among them.
    pub pace: Duration,
    commands: u64,
    /// One bit for each of the last reads that were compared, the newest lowest: it was late.
    late: u32,
    compared: u32,
}

impl Service {
    pub fn note(&mut self, elapsed: Duration, depth: u32, late_after: Duration) {
        self.reads += 1;
        self.mean = follow(self.mean, elapsed.0, self.reads);
        self.share = follow(self.share, elapsed.0 / u64::from(depth.max(1)), self.reads);
        if late_after.0 > 0 {
            self.late = self.late << 1 | u32::from(elapsed > late_after);
            self.compared = (self.compared + 1).min(u32::BITS);
        }
    }

    /// A command of any kind.
    pub fn note_command(&mut self, elapsed: Duration, depth: u32) {
        self.commands += 1;
        self.pace = follow(self.pace, elapsed.0 / u64::from(depth.max(1)), self.commands);
    }

    /// Late ones among the last so many, at most 32.
    pub fn late_of(&self, last: u32) -> u32 {
        let compared = last.min(self.compared);
        (self.late & (u64::from(u32::MAX) >> (32 - compared.min(32))) as u32).count_ones()
    }
}

/// The mean of so many, the last one taken in.
fn follow(mean: Duration, span: u64, count: u64) -> Duration {
    let weight = count.min(SETTLED);
    Duration(mean.0 - mean.0 / weight + span / weight)
}

/// What came in with the events of a turn, before its time was told: reckoned with the time of the
/// turn before, a request that was alone on its drive would have taken none.
#[derive(Default)]
pub(super) struct Untimed {
    pub ended: Vec<Ended>,
    /// Handed out in the place of what ended: drive and tag.
    pub begun: Vec<(usize, u64)>,
}

pub(super) struct Ended {
    pub drive: usize,
    pub submitted: Instant,
    /// Of what was done and is no run: requests that were out when it was handed out.
    depth: Option<u32>,
    reads: bool,
    /// Kind, bytes, and whether it was done, of what is counted.
    pub counted: Option<(OpKind, u64, bool)>,
}

impl Ended {
    pub fn new(drive: usize, submitted: Instant, depth: Option<u32>, reads: bool) -> Ended {
        Ended { drive, submitted, depth, reads, counted: None }
    }
}

impl Io {
    /// The time of the turn whose events came in.
    pub(super) fn reckon(&self, now: Instant) {
        let mut untimed = self.0.untimed.borrow_mut();
        let mut drives = self.0.drives.borrow_mut();
        for ended in untimed.ended.drain(..) {
            let Some(state) = drives.get_mut(ended.drive) else { continue };
            let elapsed = now.since(ended.submitted);
            if let Some(depth) = ended.depth {
                state.service.note_command(elapsed, depth);
                if ended.reads {
                    state.service.note(elapsed, depth, self.0.late_after.get());
                }
            }
            if let Some((kind, bytes, done)) = ended.counted {
                state.counters.count(kind, bytes, elapsed, done);
            }
        }
        for (drive, tag) in untimed.begun.drain(..) {
            let slots = drives.get_mut(drive).map(|state| &mut state.slots);
            let slot = slots.and_then(|slots| slots.get_mut((tag as u32) as usize));
            if let Some(slot) = slot.filter(|slot| slot.tenant == (tag >> 32) as u32 && slot.is_out()) {
                slot.submitted = now;
            }
        }
    }

    pub fn service(&self, drive: usize) -> Service {
        self.0.drives.borrow().get(drive).map_or_else(Service::default, |state| state.service)
    }

    /// A read is out for so long that it will be late.
    pub fn note_late(&self, drive: usize) {
        if let Some(state) = self.0.drives.borrow_mut().get_mut(drive) {
            state.service.late = state.service.late << 1 | 1;
            state.service.compared = (state.service.compared + 1).min(u32::BITS);
        }
    }

    /// From now on a read that takes longer than this counts as late; zero: none is compared.
    pub fn set_late_after(&self, span: Duration) {
        self.0.late_after.set(span);
    }
}

/// What a drive has done since it was attached.
#[derive(Clone, Copy, Default, Debug)]
pub struct DriveCounters {
    pub reads: u64,
    pub writes: u64,
    pub flushes: u64,
    pub read_bytes: u64,
    pub written_bytes: u64,
    pub read_errors: u64,
    pub write_errors: u64,
    /// Exponential mean (an eighth each) of the time from handing out to completion.
    pub read_time: Duration,
    pub write_time: Duration,
    pub flush_time: Duration,
    /// Requests out, and waiting to go out.
    pub out: usize,
    pub waiting: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum OpKind {
    Read,
    Write,
    Flush,
}

pub(super) fn kind(op: &Op) -> OpKind {
    match op {
        Op::Read { .. } | Op::View { .. } | Op::Extents { .. } => OpKind::Read,
        Op::Write { .. } | Op::Zero { .. } | Op::Discard { .. } => OpKind::Write,
        Op::Flush => OpKind::Flush,
    }
}

impl DriveCounters {
    pub(super) fn count(&mut self, kind: OpKind, bytes: u64, elapsed: Duration, done: bool) {
        let (count, moved, errors, time) = match kind {
            OpKind::Read => (&mut self.reads, &mut self.read_bytes, &mut self.read_errors, &mut self.read_time),
            OpKind::Write => (&mut self.writes, &mut self.written_bytes, &mut self.write_errors, &mut self.write_time),
            OpKind::Flush => (&mut self.flushes, &mut 0, &mut self.write_errors, &mut self.flush_time),
        };
        *count += 1;
        *moved += bytes;
        *errors += u64::from(!done);
        let first = *count == 1;
        time.0 = if first { elapsed.0 } else { time.0 - time.0 / 8 + elapsed.0 / 8 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_longer_queue_is_no_slower_drive() {
        let (mut busy, mut idle) = (Service::default(), Service::default());
        for _ in 0..200 {
            busy.note(Duration::from_millis(80), 16, Duration::from_millis(30));
            idle.note(Duration::from_millis(5), 1, Duration::from_millis(30));
        }
        assert_eq!(busy.late_of(32), 32);
        assert!(busy.mean.0 > 15 * idle.mean.0 && busy.share.0 < idle.share.0 + 1_000_000, "{busy:?} {idle:?}");
    }
}
