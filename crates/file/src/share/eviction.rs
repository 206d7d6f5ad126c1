//! The order in which eviction looks at files: a clock whose hand passes over those that were used
//! since it came last.
//!
//! Only files that may have slots and are not open are in it. An open file leaves it when the hand
//! comes to it, and comes back when it is archived. A step of the hand looks at a bounded number of
//! files, and the next one goes on behind them.

use std::collections::VecDeque;

use super::core::Core;

/// Files that one look passes over at most.
const LOOKS_MAX: usize = 4096;

/// Files, and the tickets with which they were put here. One whose content has another ticket, or
/// none, is here no longer.
#[derive(Default)]
pub struct Clock {
    hand: VecDeque<(u64, u64)>,
    tickets: u64,
}

impl Clock {
    pub fn is_empty(&self) -> bool {
        self.hand.is_empty()
    }

    fn push(&mut self, inode: u64) -> u64 {
        self.tickets += 1;
        self.hand.push_back((inode, self.tickets));
        self.tickets
    }
}

impl Core {
    /// A file that may have slots is to be looked at. An open one is not: its content cannot go.
    pub fn enqueue(&mut self, inode: u64) {
        let Some(content) = self.contents.get_mut(&inode) else { return };
        if content.queued.is_none() && !self.active.contains(inode) {
            content.queued = Some(self.clock.push(inode));
        }
    }

    /// The file is not open any more: what the cache has of it may go.
    pub fn archived(&mut self, inode: u64) {
        self.active.remove(inode);
        if self.slots.held(inode) > 0 && self.content(inode).is_ok() {
            self.enqueue(inode);
        }
    }

    /// The next file to take slots from. One that was used since the last look gets another round.
    /// None: there is none, or those that could go come later in the order.
    pub fn next_victim(&mut self) -> Option<u64> {
        self.next_file(true)
    }

    /// The next file that has slots and is archived, also one that is used or pinned.
    pub fn next_archived(&mut self) -> Option<u64> {
        self.next_file(false)
    }

    fn next_file(&mut self, spares: bool) -> Option<u64> {
        for _ in 0..LOOKS_MAX.min(2 * self.clock.hand.len()) {
            #[cfg(test)]
            {
                self.victim_looks += 1;
            }
            let (inode, ticket) = self.clock.hand.pop_front()?;
            let content = self.contents.get_mut(&inode).filter(|content| content.queued == Some(ticket));
            let Some(content) = content else { continue };
            if self.active.contains(inode) {
                content.queued = None;
                continue;
            }
            self.clock.hand.push_back((inode, ticket));
            if spares && (std::mem::take(&mut content.touched) || self.pinned.contains(&inode)) {
                continue;
            }
            return Some(inode);
        }
        None
    }

    /// Entries of files, also of such as are here no longer.
    pub fn queued(&self) -> usize {
        self.clock.hand.len()
    }

    /// Eviction has taken all slots of the file.
    pub fn evicted(&mut self, inode: u64) {
        let Some(content) = self.contents.get_mut(&inode) else { return };
        let ticket = content.queued.take();
        // It was put behind all others when it was picked. From elsewhere the hand takes it.
        if self.clock.hand.back().is_some_and(|(other, last)| *other == inode && Some(*last) == ticket) {
            self.clock.hand.pop_back();
        }
    }
}
