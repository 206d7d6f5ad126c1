//! How one worker's accesses reach a target.

use stele_ground::Duration;
use stele_media::Buffer;

use crate::workload::Access;

/// An answer: the slot that was used, and what went wrong.
pub type SlotResult = (u32, Result<(), String>);

/// Carries out accesses in slots, each with a buffer of its own. A slot is used again only after
/// its answer.
pub trait Engine {
    /// Places for accesses under way.
    fn slots(&self) -> u32;

    /// Takes an access; it may go to the target now, or with the next `flush` or `reap`.
    fn start(&mut self, slot: u32, access: &Access);

    /// Lets go what was started, where that is worth its cost.
    fn flush(&mut self) {}

    /// Lets everything go that was started, waits until `least` have been answered (no more than
    /// are under way), but no longer than `limit`, and hands over the answers there are.
    fn reap(&mut self, least: u32, limit: Option<Duration>, answers: &mut Vec<SlotResult>);

    /// The slot's memory: what a write sends, and what a read brought. As long as the longest
    /// access.
    fn buffer(&mut self, slot: u32) -> &mut [u8];
}

/// Answers at once, without touching a byte.
pub struct Null {
    slots: u32,
    answers: Vec<SlotResult>,
    buffer: Buffer,
}

impl Null {
    pub fn new(slots: u32, length_max: usize) -> Null {
        Null { slots, answers: Vec::with_capacity(slots as usize), buffer: Buffer::zeroed(length_max) }
    }
}

impl Engine for Null {
    fn slots(&self) -> u32 {
        self.slots
    }

    fn start(&mut self, slot: u32, _: &Access) {
        self.answers.push((slot, Ok(())));
    }

    fn reap(&mut self, least: u32, limit: Option<Duration>, answers: &mut Vec<SlotResult>) {
        if least > 0 && self.answers.is_empty() {
            std::thread::sleep(
                limit.map_or(std::time::Duration::ZERO, |limit| std::time::Duration::from_nanos(limit.0)),
            );
        }
        answers.append(&mut self.answers);
    }

    fn buffer(&mut self, _: u32) -> &mut [u8] {
        &mut self.buffer
    }
}
