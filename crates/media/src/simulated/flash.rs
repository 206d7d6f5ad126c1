//! A flash drive in virtual time: parallel dies, channels that they share, and stalls while space
//! is reclaimed.
//!
//! A command is cut into pages, and a page's address decides its die. A read occupies its die, then
//! the die's channel. A write crosses the channel into the drive's memory, and is programmed from
//! there. With power-loss protection, a write completes once it is in memory, as long as there is
//! room, and a flush waits for nothing. Without it, a flush or a write through waits for all
//! programming. After every [`FlashSpec::reclaim_every`] programmed bytes, a die is busy with an
//! erasure.

use stele_ground::{Duration, Instant};

use super::{CommandWork, Model};

/// The properties of a drive from its data sheet, and some that the data sheet omits.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FlashSpec {
    pub channels: usize,
    pub dies_per_channel: usize,
    /// Bytes that a die reads or programs at once.
    pub page: u64,
    pub read: Duration,
    pub program: Duration,
    pub erase: Duration,
    /// Bytes that a die programs between two erasures.
    pub reclaim_every: u64,
    /// Bytes a second of one channel.
    pub channel_rate: u64,
    /// Fixed time of every command.
    pub overhead: Duration,
    /// Whether writes survive a power cut once they are in the drive's memory.
    pub power_loss_protection: bool,
    /// Bytes of the drive's memory for writes.
    pub buffer: u64,
}

impl FlashSpec {
    /// Roughly an enterprise NVMe drive: 8 channels of 8 dies, 16 KiB pages, 70 us a read, 600 us a
    /// program.
    pub const fn enterprise() -> FlashSpec {
        FlashSpec {
            channels: 8,
            dies_per_channel: 8,
            page: 16 << 10,
            read: Duration::from_micros(70),
            program: Duration::from_micros(600),
            erase: Duration::from_micros(4_000),
            reclaim_every: 16 << 20,
            channel_rate: 1_200_000_000,
            overhead: Duration::from_micros(8),
            power_loss_protection: true,
            buffer: 64 << 20,
        }
    }
}

#[derive(Clone, Copy, Default, Debug)]
struct Die {
    free_at: u64,
    programmed: u64,
}

#[derive(Clone, Debug)]
pub struct Flash {
    spec: FlashSpec,
    dies: Vec<Die>,
    /// The time at which each channel becomes free.
    channels: Vec<u64>,
    /// The time at which all writes so far are programmed.
    settled: u64,
}

impl Flash {
    pub fn new(spec: FlashSpec) -> Flash {
        assert!(spec.channels > 0 && spec.dies_per_channel > 0 && spec.page > 0, "a flash drive has dies and pages");
        Flash {
            dies: vec![Die::default(); spec.channels * spec.dies_per_channel],
            channels: vec![0; spec.channels],
            settled: 0,
            spec,
        }
    }

    /// Neighbouring pages lie on different channels, then on different dies of a channel.
    fn die_of(&self, page: u64) -> (usize, usize) {
        let die = (page % self.dies.len() as u64) as usize;
        (die, die % self.spec.channels)
    }

    fn moving(&self, bytes: u64) -> u64 {
        (u128::from(bytes) * 1_000_000_000 / u128::from(self.spec.channel_rate)) as u64
    }

    fn read(&mut self, begin: u64, at: u64, length: u64) -> u64 {
        let mut done = begin;
        for (page, bytes) in pages(self.spec.page, at, length) {
            let (die, channel) = self.die_of(page);
            let sensed = self.dies[die].free_at.max(begin) + self.spec.read.0;
            let moved = sensed.max(self.channels[channel]) + self.moving(bytes);
            self.dies[die].free_at = sensed;
            self.channels[channel] = moved;
            done = done.max(moved);
        }
        done
    }

    fn write(&mut self, begin: u64, at: u64, length: u64, through: bool) -> u64 {
        let (mut taken, mut programmed) = (begin, begin);
        for (page, bytes) in pages(self.spec.page, at, length) {
            let (die, channel) = self.die_of(page);
            let moved = begin.max(self.channels[channel]) + self.moving(bytes);
            self.channels[channel] = moved;
            taken = taken.max(moved);
            let die = &mut self.dies[die];
            // Small writes share the programming of a page.
            let time = self.spec.program.0 * bytes / self.spec.page;
            die.free_at = die.free_at.max(moved) + time;
            die.programmed += bytes;
            if die.programmed >= self.spec.reclaim_every {
                die.programmed -= self.spec.reclaim_every;
                die.free_at += self.spec.erase.0;
            }
            programmed = programmed.max(die.free_at);
        }
        self.settled = self.settled.max(programmed);
        if through && !self.spec.power_loss_protection {
            return programmed;
        }
        // Unprogrammed data fills the memory; further writes wait for the dies.
        let page_time = (self.spec.program.0 / self.dies.len() as u64).max(1);
        let held = self.spec.buffer / self.spec.page * page_time;
        taken.max(programmed.saturating_sub(held))
    }
}

/// Cuts a range into pages: number and bytes of each.
fn pages(page: u64, at: u64, length: u64) -> impl Iterator<Item = (u64, u64)> {
    let end = at + length;
    (at / page..end.div_ceil(page)).map(move |number| {
        let (from, to) = (at.max(number * page), end.min((number + 1) * page));
        (number, to - from)
    })
}

impl Model for Flash {
    fn channels(&self) -> usize {
        usize::MAX
    }

    fn service(&mut self, now: Instant, work: CommandWork) -> Duration {
        let begin = now.0 + self.spec.overhead.0;
        let done = match work {
            CommandWork::Read { at, length } => self.read(begin, at, length),
            CommandWork::Write { at, length, fua } => self.write(begin, at, length, fua),
            CommandWork::Flush if !self.spec.power_loss_protection => self.settled.max(begin),
            CommandWork::Flush | CommandWork::Other => begin,
        };
        Duration(done - now.0)
    }
}

#[cfg(test)]
mod tests;
