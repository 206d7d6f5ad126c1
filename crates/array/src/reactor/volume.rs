//! A volume as a port: how other threads reach it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use stele_ground::{Bytes, VolumeId};
use stele_media::mailbox::Refused;
use stele_media::{Done, Geometry, Handle, MediaError, MediaFault, Op, Order, Ordered, Port, Priority};

use super::hand_over;
use super::turn::{Mail, Shared};
use crate::hosts::atomic::ATOMIC_WRITE_MAX;
use crate::model::VolumeStatus;

struct VolumePort {
    shared: Arc<Shared>,
    volume: VolumeId,
    block: Bytes,
    /// Changes when the volume is resized.
    size: Arc<AtomicU64>,
}

pub fn handle(shared: &Arc<Shared>, status: &VolumeStatus) -> Handle {
    let size = shared.size_of(status);
    Handle::new(VolumePort { shared: Arc::clone(shared), volume: status.id, block: status.spec.block, size })
}

impl Port for VolumePort {
    fn geometry(&self) -> Geometry {
        Geometry { size: Bytes(self.size.load(Ordering::Relaxed)), block: self.block }
    }

    /// All volumes of a pool share its log.
    fn order(&self) -> Option<Order> {
        Some(Order(Arc::as_ptr(&self.shared) as usize as u64))
    }

    fn submit(&self, op: Op, priority: Priority, done: Done) {
        self.post(op, priority, None, false, done);
    }

    fn submit_ordered(&self, op: Op, priority: Priority, ordered: Ordered, done: Done) {
        self.post(op, priority, Some(ordered), false, done);
    }

    fn whole_max(&self) -> Bytes {
        ATOMIC_WRITE_MAX
    }

    fn submit_whole(&self, op: Op, priority: Priority, done: Done) {
        self.post(op, priority, None, true, done);
    }
}

impl VolumePort {
    /// At the mailbox's limit it answers `Retry` at once, on the caller's thread.
    fn post(&self, op: Op, priority: Priority, ordered: Option<Ordered>, whole: bool, done: Done) {
        let mail = Mail { volume: self.volume, op, priority, ordered, whole, done };
        let Err(mail) = hand_over::collect(&self.shared, mail) else { return };
        match self.shared.mail.post(mail) {
            Ok(()) => {}
            Err(Refused::Full(mail)) => {
                let message = "the pool has all the operations it can hold: ask again when some have finished";
                (mail.done)(mail.op, Err(MediaError::new(MediaFault::Retry, message)));
            }
            Err(Refused::Closed(mail)) => {
                let message = self.shared.stopped().to_string();
                (mail.done)(mail.op, Err(MediaError::new(MediaFault::Gone, message)));
            }
        }
    }
}
