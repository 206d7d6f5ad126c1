//! The timing of a simulated drive: the waiting command to serve next, and its duration.

use stele_ground::{Dice, Duration, Instant};

use crate::Op;

/// The work of a command, as far as time is concerned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CommandWork {
    Read {
        at: u64,
        length: u64,
    },
    Write {
        at: u64,
        length: u64,
        fua: bool,
    },
    Flush,
    /// Discards and queries of extents.
    Other,
}

impl CommandWork {
    pub fn of(op: &Op) -> CommandWork {
        match op {
            Op::Read { at, buffer } => CommandWork::Read { at: *at, length: buffer.len() as u64 },
            Op::Write { at, data, fua } => {
                CommandWork::Write { at: *at, length: data.iter().map(|piece| piece.len() as u64).sum(), fua: *fua }
            }
            Op::Zero { at, length } => CommandWork::Write { at: *at, length: *length, fua: false },
            Op::Flush => CommandWork::Flush,
            Op::Discard { .. } | Op::View { .. } | Op::Extents { .. } => CommandWork::Other,
        }
    }
}

/// A model of a drive's mechanics. Mechanical and flash models keep their own state (head, dies) in
/// it.
pub trait Model: Send {
    /// Number of commands served at once.
    fn channels(&self) -> usize;

    /// Number of waiting commands that the drive itself holds and chooses among; the others wait in
    /// the host, in order.
    fn window(&self) -> usize {
        usize::MAX
    }

    /// Chooses the next command; `waiting` is in order of arrival, not empty, and within the
    /// window.
    fn choose(&mut self, _now: Instant, _waiting: &[CommandWork]) -> usize {
        0
    }

    /// Duration of the command from its start.
    fn service(&mut self, now: Instant, work: CommandWork) -> Duration;
}

/// A drive without mechanics: a fixed time for each command, a rate, and a jitter that reorders
/// completions.
#[derive(Clone, Debug)]
pub struct Plain {
    pub channels: usize,
    pub command: Duration,
    pub flush: Duration,
    /// Bytes a second of one channel.
    pub rate: u64,
    /// Largest additional time, evenly distributed.
    pub jitter: Duration,
    pub dice: Dice,
}

impl Plain {
    /// Roughly a SATA flash drive: 60 us, 400 MB/s, flush 400 us.
    pub fn flash(dice: Dice) -> Plain {
        Plain {
            channels: 8,
            command: Duration::from_micros(60),
            flush: Duration::from_micros(400),
            rate: 400_000_000,
            jitter: Duration::from_micros(60),
            dice,
        }
    }

    /// All commands at once, in no time and in order.
    pub fn instant() -> Plain {
        Plain {
            channels: usize::MAX,
            command: Duration(0),
            flush: Duration(0),
            rate: u64::MAX,
            jitter: Duration(0),
            dice: Dice::new(0),
        }
    }
}

impl Model for Plain {
    fn channels(&self) -> usize {
        self.channels
    }

    /// It serves commands in order.
    fn window(&self) -> usize {
        1
    }

    fn service(&mut self, _now: Instant, work: CommandWork) -> Duration {
        let fixed = match work {
            CommandWork::Flush => self.flush,
            CommandWork::Write { fua: true, .. } => Duration(self.command.0 + self.flush.0 / 2),
            _ => self.command,
        };
        let length = match work {
            CommandWork::Read { length, .. } | CommandWork::Write { length, .. } => length,
            CommandWork::Flush | CommandWork::Other => 0,
        };
        let moving = (u128::from(length) * 1_000_000_000 / u128::from(self.rate)) as u64;
        let jitter = if self.jitter.0 == 0 { 0 } else { self.dice.below(self.jitter.0) };
        Duration(fixed.0 + moving + jitter)
    }
}
