//! Writes of hosts that are in the log and not answered yet, in the order of the log.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::Future;
use std::rc::Rc;

use stele_ground::VolumeId;
use stele_media::Op;

use crate::model::place::Lsn;
use crate::runtime::sync::{Notify, Permit};
use crate::volumes::handle::VolumeHandle;

/// A write that has its place in the log.
pub struct Appended {
    pub lsn: Lsn,
    /// The number of the handle that hosts use.
    pub volume: VolumeId,
    pub tag: u64,
    pub op: Op,
    /// Until it is answered the volume gets no other layer.
    pub permit: Permit,
    /// The volume's handle, where the write is among those that pieces of a stripe wait for.
    pub watched: Option<Rc<VolumeHandle>>,
}

#[derive(Default)]
pub struct Unanswered {
    waiting: RefCell<VecDeque<Appended>>,
    came: Notify,
}

impl Unanswered {
    pub fn push(&self, write: Appended) {
        let mut waiting = self.waiting.borrow_mut();
        assert!(
            waiting.back().is_none_or(|last| last.lsn < write.lsn),
            "writes come to be answered in the order of the log"
        );
        waiting.push_back(write);
        if waiting.len() == 1 {
            self.came.wake_all();
        }
    }

    /// Answers when there is a write again after there was none.
    pub fn came(&self) -> impl Future<Output = ()> + '_ {
        self.came.changed()
    }

    pub fn first(&self) -> Option<Lsn> {
        self.waiting.borrow().front().map(|write| write.lsn)
    }

    /// The first write, if the log holds it as far as that.
    pub fn take(&self, durable: Lsn) -> Option<Appended> {
        let mut waiting = self.waiting.borrow_mut();
        let is_durable = waiting.front().is_some_and(|write| write.lsn <= durable);
        if is_durable { waiting.pop_front() } else { None }
    }
}
