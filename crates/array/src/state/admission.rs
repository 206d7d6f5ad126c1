//! Hosts' operations under way, and what those wait for that have no room yet.

use std::cell::Cell;
use std::future::Future;

use stele_ground::{Duration, Instant};

use crate::runtime::sync::{Mutex, Notify, Permit};

/// Host operations under way at most; more are answered `Retry`.
const HOSTS_MAX: u64 = 16 << 10;
/// Hosts count as active for so long after they asked for something.
const LINGER: Duration = Duration::from_millis(20);

pub struct Admission {
    active: Cell<u64>,
    last: Cell<Instant>,
    /// Something left the cache or became clean: the writer that is first in line for room looks
    /// again.
    room: Notify,
    /// Writers wait in line for room among the dirty blocks, and for room in the log. Only the
    /// first of each line watches, or every destage would wake them all.
    room_line: Mutex,
    reservation_line: Mutex,
}

impl Admission {
    pub fn new(now: Instant) -> Admission {
        Admission {
            active: Cell::new(0),
            last: Cell::new(now),
            room: Notify::default(),
            room_line: Mutex::default(),
            reservation_line: Mutex::default(),
        }
    }

    /// A host asks for something.
    pub fn note_host(&self, now: Instant) {
        self.last.set(now);
    }

    /// False where as many operations as may be are under way.
    pub fn begin(&self) -> bool {
        let active = self.active.get();
        let admitted = active < HOSTS_MAX;
        self.active.set(active + u64::from(admitted));
        admitted
    }

    pub fn end(&self) {
        self.active.set(self.active.get() - 1);
    }

    /// True when hosts asked for something within the last moments.
    pub fn hosts_wait(&self, now: Instant) -> bool {
        self.active.get() > 0 || now.since(self.last.get()) < LINGER
    }

    pub fn make_room(&self) {
        self.room.wake_all();
    }

    /// Answers after the next change that may have made room.
    pub fn room_made(&self) -> impl Future<Output = ()> + '_ {
        self.room.changed()
    }

    /// No writer waits for room.
    pub fn has_no_line(&self) -> bool {
        self.room_line.is_free() && self.reservation_line.is_free()
    }

    pub fn room_line(&self) -> impl Future<Output = Permit> + use<> {
        self.room_line.lock()
    }

    pub fn reservation_line(&self) -> impl Future<Output = Permit> + use<> {
        self.reservation_line.lock()
    }
}
