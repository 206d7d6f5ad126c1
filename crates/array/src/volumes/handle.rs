//! The handle of a volume or snapshot: what stays the same to its hosts while layers come and go
//! behind it.

use std::cell::Cell;
use std::rc::Rc;

use stele_ground::VolumeId;

use crate::model::place::Lsn;
use crate::runtime::sync::{Permit, Semaphore};
use crate::volumes::ahead::Ahead;
use crate::volumes::gathering::Gathering;

/// More writes than this under way on one volume wait.
const WRITES: u64 = 1 << 20;

pub struct VolumeHandle {
    /// The number that hosts and commands use.
    pub id: VolumeId,
    /// Held by every write from its choice of the layer to its end.
    gate: Semaphore,
    pub ahead: Ahead,
    pub gathering: Gathering,
    /// The newest record of a write that was said to be ordered.
    ordered: Cell<Lsn>,
    /// Reads answered from memory alone, and the others; since the pool was opened.
    hits: Cell<u64>,
    misses: Cell<u64>,
}

impl std::fmt::Debug for VolumeHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "VolumeHandle({})", self.id)
    }
}

impl VolumeHandle {
    /// `ahead`: stripes read ahead.
    pub fn new(id: VolumeId, ahead: u8) -> Rc<VolumeHandle> {
        Rc::new(VolumeHandle {
            id,
            gate: Semaphore::new(WRITES),
            ahead: Ahead::of(ahead),
            gathering: Gathering::default(),
            ordered: Cell::new(Lsn(0)),
            hits: Cell::new(0),
            misses: Cell::new(0),
        })
    }

    /// A read was answered from memory alone.
    pub fn note_hit(&self) {
        self.hits.set(self.hits.get() + 1);
    }

    pub fn note_miss(&self) {
        self.misses.set(self.misses.get() + 1);
    }

    /// Reads answered from memory alone, and the others; since the pool was opened.
    pub fn reads(&self) -> (u64, u64) {
        (self.hits.get(), self.misses.get())
    }

    /// Writes up to this record are said to be ordered.
    pub fn note_ordered(&self, newest: Lsn) {
        self.ordered.set(self.ordered.get().max(newest));
    }

    /// The newest record of a write that was said to be ordered: it may not be durable yet.
    pub fn ordered(&self) -> Lsn {
        self.ordered.get()
    }

    /// Held while a write is under way.
    pub async fn write(&self) -> Permit {
        self.gate.acquire(1).await
    }

    /// As `write`, where that does not have to wait.
    pub fn try_write(&self) -> Option<Permit> {
        self.gate.try_acquire(1)
    }

    /// Answers when no write is under way; those that come wait until the permit is dropped.
    pub async fn stop_writes(&self) -> Permit {
        self.gate.acquire(WRITES).await
    }
}
