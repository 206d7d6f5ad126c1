//! Requests that a drive does not answer: noticing them, and answering in the drive's place.
//!
//! A request answered in the drive's place stays owed: its number is not used again before the
//! driver hands it back. The drive is not taken in again while it owes any, so that no write of
//! before lands on what came after.

use std::collections::BTreeMap;

use stele_ground::Instant;
use stele_media::{Completion, MediaError, MediaFault, Op, Request};

use super::{Io, IoState, NEVER, SlotState, gone};

/// Names a request that is out on a drive.
pub type Out = (Instant, usize, u32);

impl Io {
    /// Whether the drive takes a flush, which is sent to it even if nothing is left to flush.
    pub async fn answers(&self, drive: usize) -> bool {
        if let Some(state) = self.0.drives.borrow_mut().get_mut(drive) {
            state.unflushed = true;
        }
        self.flush(drive).await.is_ok()
    }

    /// The request that has been out on the drive for the longest.
    pub fn oldest_out(&self, drive: usize) -> Option<Out> {
        let drives = self.0.drives.borrow();
        let slots = drives.get(drive)?.slots.iter().enumerate();
        slots.filter(|(_, slot)| slot.is_out()).map(|(at, slot)| (slot.submitted, at, slot.tenant)).min()
    }

    /// Requests out on the drive.
    pub fn out(&self, drive: usize) -> usize {
        self.0.drives.borrow().get(drive).map_or(0, |state| state.out)
    }

    /// Requests that were answered in the drive's place and that the driver has not handed back.
    pub fn owed(&self, drive: usize) -> usize {
        self.0.drives.borrow().get(drive).map_or(0, |state| state.slots.iter().filter(|slot| slot.owed).count())
    }

    /// From now on the drive answers `Gone`; what is out on it is still completed by the driver.
    pub fn detach(&self, drive: usize) {
        let waiting: Vec<Request> = {
            let mut drives = self.0.drives.borrow_mut();
            let Some(state) = drives.get_mut(drive) else { return };
            state.gone = true;
            let lines = [std::mem::take(&mut state.waiting), std::mem::take(&mut state.held)];
            lines.into_iter().flat_map(BTreeMap::into_values).chain(std::mem::take(&mut state.backlog)).collect()
        };
        for request in waiting {
            self.complete(drive, Completion { tag: request.tag, op: request.op, result: Err(gone(drive)) });
        }
        let joining = self.0.drives.borrow_mut().get_mut(drive).and_then(|state| state.joining.take());
        if let Some(round) = joining {
            round.resolve(Err(gone(drive)));
        }
    }

    /// The drive answers `Gone` from now on, also to what is out on it.
    pub fn let_go(&self, drive: usize) {
        self.detach(drive);
        self.answer_for(drive, |_| true, || gone(drive));
    }

    /// Answers reads that went out before this with an error: their drive is needed and does not
    /// answer.
    pub fn fail_reads(&self, drive: usize, before: Instant) {
        let silent = || MediaError::new(MediaFault::Retry, format!("drive at index {drive} does not answer"));
        let reads = |out: &super::Slot| out.reads && out.submitted < before;
        self.answer_for(drive, reads, silent);
    }

    /// A drive that was let go is used again. Only when it owes nothing.
    pub fn take_back(&self, drive: usize) {
        assert_eq!(self.owed(drive), 0, "a drive is taken back while requests of before are out on it");
        let mut drives = self.0.drives.borrow_mut();
        let Some(state) = drives.get_mut(drive) else { return };
        state.gone = false;
        state.unflushed = true;
    }

    fn answer_for(&self, drive: usize, which: impl Fn(&super::Slot) -> bool, error: impl Fn() -> MediaError) {
        let mut wakers = Vec::new();
        let mut round = None;
        {
            let mut drives = self.0.drives.borrow_mut();
            let Some(state) = drives.get_mut(drive) else { return };
            let IoState { slots, flushing, .. } = state;
            for (at, slot) in slots.iter_mut().enumerate().filter(|(_, slot)| slot.is_out()) {
                if !which(slot) {
                    continue;
                }
                slot.owed = true;
                let tag = u64::from(slot.tenant) << 32 | at as u64;
                // The operation is with the drive; an empty one takes its place.
                let answer = Completion { tag, op: Op::Flush, result: Err(error()) };
                match std::mem::replace(&mut slot.state, SlotState::Free) {
                    SlotState::Waiting(waker) => {
                        slot.state = SlotState::Done(answer);
                        wakers.extend(waker);
                    }
                    SlotState::Flush => round = flushing.take(),
                    SlotState::Abandoned | SlotState::Free | SlotState::Done(_) => {}
                }
            }
        }
        if let Some(round) = round {
            round.resolve(Err(error()));
        }
        wakers.into_iter().for_each(std::task::Waker::wake);
    }

    /// Answers when a request is out on some drive.
    pub async fn busy(&self) {
        loop {
            let busy = self.0.busy.changed();
            if self.0.drives.borrow().iter().any(|state| state.out > 0) {
                return;
            }
            self.0.watching.set(false);
            busy.await;
        }
    }

    /// Wakes the watch flow, which looks after drives that work.
    pub(super) fn watch(&self) {
        if !self.0.watching.replace(true) {
            self.0.busy.wake_all();
        }
    }
}

impl super::Slot {
    pub(super) fn is_out(&self) -> bool {
        let asked = matches!(self.state, SlotState::Waiting(_) | SlotState::Abandoned | SlotState::Flush);
        asked && self.submitted != NEVER && !self.owed
    }
}
