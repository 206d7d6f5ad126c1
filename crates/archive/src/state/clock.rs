//! The compliance clock, by which retention ends. It moves forward with real elapsed time and at
//! most a bounded slew faster. It never moves back, and never past the wall clock.
//!
//! Failure model: a change of the system clock moves retention by nothing but the slew. A jump
//! between two readings, or an unusually long absence, freezes expiration and raises an alarm until
//! the clock is accepted. Time for which the store was closed is made up at the slew, or at once if
//! two officers agree.
//!
//! The clock stores how long the store was closed: from the last moment at which it was open, which
//! is its opening plus real elapsed time, to the next opening. Setting the system clock while the
//! store is open adds nothing to that. The time made up by the slew is subtracted.
//!
//! It also counts for how long the store was ever open, by real elapsed time alone. No system clock
//! holds that count back, as one that is set back holds the compliance clock.

use crate::model::time::{DAY, Reading, SECOND, Timestamp};
use crate::record::settings::ClockRow;

/// The tolerated distance of the wall clock from elapsed time, in milliseconds, and the part of the
/// elapsed time that it may drift on top.
const TOLERANCE: u64 = 120 * SECOND;
const DRIFT: u64 = 1_000;
/// The longest usual absence.
const ABSENCE: u64 = 2 * DAY;
/// Days in a year by which the clock may run fast while it is behind.
const SLEW_DAYS: u64 = 7;
const YEAR_DAYS: u64 = 365;
/// Bytes of reasons for a freeze beyond which no more are added, and the same of alarms that wait
/// to be reported: one audit record takes those.
const REASONS_MAX: usize = 500;
const UNREPORTED_MAX: usize = 3000;
/// Between one reason and the next.
const THEN: &str = "; then ";

#[derive(Clone, Debug)]
pub(crate) struct ComplianceClock {
    /// Nanoseconds since 1970.
    shown: u64,
    /// The reading at its last move.
    last: Reading,
    /// The wall clock is compared with the time elapsed from here on, so that many small jumps add
    /// up.
    base: Reading,
    frozen: Option<String>,
    /// Reasons for the freeze beyond those kept in words.
    more: u64,
    alarm: Option<String>,
    /// The reading at the opening. With real elapsed time it gives the last moment at which the
    /// store was open.
    opened: Reading,
    /// The latest such moment of earlier openings.
    seen: Timestamp,
    /// Nanoseconds for which the store was closed and that are not made up.
    closed: u64,
    /// Nanoseconds for which the store was ever open.
    open: u64,
}

/// The effect of a credit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Credit {
    pub from: Timestamp,
    pub to: Timestamp,
}

const MILLISECOND: u64 = 1_000_000;

impl ComplianceClock {
    /// The clock of a new store. The operator has confirmed the wall clock.
    pub fn start(now: Reading) -> ComplianceClock {
        let (seen, closed) = (now.wall, 0);
        ComplianceClock {
            shown: nanos(now.wall),
            last: now,
            base: now,
            frozen: None,
            more: 0,
            alarm: None,
            opened: now,
            seen,
            closed,
            open: 0,
        }
    }

    /// Continues from the stored row.
    pub fn resume(row: &ClockRow, now: Reading) -> ComplianceClock {
        let seen = row.seen.unwrap_or(row.wall);
        // A system clock that was ahead at the closing adds nothing.
        let last = seen.max(row.wall);
        let before = row.closed.unwrap_or(0).saturating_mul(MILLISECOND);
        let mut clock = ComplianceClock {
            shown: nanos(row.shown),
            last: now,
            base: now,
            frozen: row.frozen.clone(),
            more: row.more.unwrap_or(0),
            alarm: None,
            opened: now,
            seen: seen.max(now.wall),
            closed: before.saturating_add(nanos(now.wall).saturating_sub(nanos(last))),
            open: row.open.unwrap_or(0).saturating_mul(MILLISECOND),
        };
        let (was, is) = (row.wall.0, now.wall.0);
        if is.saturating_add(TOLERANCE) < was {
            clock.freeze(format!(
                "the system clock went back from {} to {} while the store was closed",
                row.wall, now.wall
            ));
        } else if is > was.saturating_add(ABSENCE) {
            clock.freeze(format!(
                "the store was closed from {} to {}, or the system clock was set ahead; the compliance clock stays at {}",
                row.wall, now.wall, row.shown
            ));
        }
        clock
    }

    pub fn row(&self) -> ClockRow {
        ClockRow {
            shown: self.shown(),
            wall: self.last.wall,
            frozen: self.frozen.clone(),
            seen: Some(self.seen()),
            closed: Some(self.closed / MILLISECOND),
            more: Some(self.more),
            open: Some(self.open()),
        }
    }

    /// Milliseconds for which the store was ever open, by real elapsed time. After a crash up to
    /// half a minute of it is not counted.
    pub fn open(&self) -> u64 {
        self.open / MILLISECOND
    }

    /// The latest moment at which the store was open: the system clock at an opening, and real
    /// elapsed time since.
    pub fn seen(&self) -> Timestamp {
        let open = self.last.monotonic.since(self.opened.monotonic).0 / MILLISECOND;
        self.seen.max(Timestamp(self.opened.wall.0.saturating_add(open)))
    }

    /// Freezes expiration. Each reason is an alarm of its own, also during a freeze; the first few
    /// are kept, and the others are counted.
    pub fn freeze(&mut self, reason: String) {
        // Several may come before one is reported.
        add(&mut self.alarm, &reason, UNREPORTED_MAX);
        self.more += u64::from(!add(&mut self.frozen, &reason, REASONS_MAX));
    }

    /// Moves the clock to a reading. Requests read the clocks beside each other: a reading that
    /// comes after a later one says nothing new, and the time between them must not count again.
    pub fn advance(&mut self, now: Reading) {
        if now.monotonic < self.last.monotonic {
            return;
        }
        let elapsed = now.monotonic.since(self.last.monotonic).0;
        self.open = self.open.saturating_add(elapsed);
        let span = now.monotonic.since(self.base.monotonic).0 / MILLISECOND;
        let expected = self.base.wall.0.saturating_add(span);
        if now.wall.0.abs_diff(expected) > TOLERANCE + span / DRIFT {
            self.freeze(format!("the system clock jumped from {} to {}", Timestamp(expected), now.wall));
            self.base = now;
        }
        let slew = u64::try_from(u128::from(elapsed) * u128::from(SLEW_DAYS) / u128::from(YEAR_DAYS)).unwrap_or(0);
        let most = self.shown.saturating_add(elapsed).saturating_add(slew);
        let before = self.shown;
        self.shown = most.min(nanos(now.wall).max(self.shown));
        let made_up = (self.shown - before).saturating_sub(elapsed);
        self.closed = self.closed.saturating_sub(made_up);
        self.last = now;
    }

    pub fn shown(&self) -> Timestamp {
        Timestamp(self.shown / MILLISECOND)
    }

    /// Why expiration is frozen: the first reasons, and the number of the others. Each alarm makes
    /// it another text.
    pub fn frozen(&self) -> Option<String> {
        let reasons = self.frozen.as_ref()?;
        Some(match self.more {
            0 => reasons.clone(),
            more => format!("{reasons}; and {more} more, in the audit log"),
        })
    }

    /// A freeze that has not been reported.
    pub fn alarm(&self) -> Option<String> {
        self.alarm.clone()
    }

    /// That freeze is reported. One that came since is not.
    pub fn reported(&mut self, alarm: &str) {
        self.alarm = self.alarm.take().and_then(|unreported| match unreported.strip_prefix(alarm) {
            Some(since) => since.strip_prefix(THEN).map(str::to_owned),
            None => Some(unreported),
        });
    }

    /// The alarms with these words are accepted. Expiration continues, unless
    /// another alarm came since; the clock does not step.
    pub fn accept(&mut self, reason: &str) {
        if self.frozen().as_deref() == Some(reason) {
            (self.frozen, self.more) = (None, 0);
        }
    }

    /// The credit that two officers can agree to: the time closed and not made up, never past the
    /// wall clock. The system clock counts only as far as the store was closed.
    pub fn creditable(&self) -> Credit {
        let most = self.shown.saturating_add(self.closed);
        let to = most.min(nanos(self.last.wall).max(self.shown));
        Credit { from: self.shown(), to: Timestamp(to / MILLISECOND) }
    }

    /// Credits the time for which the store was closed, up to the agreed limit. An alarm stays.
    pub fn credit(&mut self, agreed: Credit) {
        let to = agreed.to.min(self.creditable().to);
        let before = self.shown;
        self.shown = self.shown.max(nanos(to));
        self.closed = self.closed.saturating_sub(self.shown - before);
    }
}

/// Adds a reason to those before, unless these have so many bytes already.
fn add(reasons: &mut Option<String>, reason: &str, most: usize) -> bool {
    match reasons {
        Some(before) if before.len() >= most => return false,
        Some(before) => before.extend([THEN, reason]),
        none => *none = Some(reason.to_owned()),
    }
    true
}

fn nanos(time: Timestamp) -> u64 {
    time.0.saturating_mul(MILLISECOND)
}

#[cfg(test)]
mod tests;
