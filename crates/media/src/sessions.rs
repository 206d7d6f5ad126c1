//! Sessions of a frontend that run on the thread of the drives they use, so that an operation
//! needs no other thread to wake up. A session owns a descriptor (a socket) and is given turns.
//!
//! Rules: a turn never blocks and does a bounded amount of work. Ready sessions take turns in the
//! order in which they became ready. A session becomes ready by its descriptor, by its [`Waker`]
//! from any thread, or at a requested time.
//!
//! Limit: [`SESSIONS_MAX`] sessions. A further session is dropped, which closes its descriptor.

use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use stele_ground::Instant;

use crate::Ring;
use crate::mailbox::Mailbox;
use crate::system::EventFd;

/// Largest number of sessions of one reactor.
pub const SESSIONS_MAX: usize = 4096;

/// The requests of a session at the end of its turn.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Interest {
    /// A turn when the descriptor is readable.
    pub read: bool,
    /// A turn when the descriptor is writable.
    pub write: bool,
    /// A turn after all other ready sessions.
    pub again: bool,
    /// A turn at this time.
    pub at: Option<Instant>,
    /// No further turn: the session is dropped.
    pub end: bool,
}

/// A session that runs on a reactor.
pub trait ReactorSession: Send {
    /// The descriptor to watch; it stays open and the same for the whole life of the session.
    fn descriptor(&self) -> RawFd;

    /// Called once, before the first turn.
    fn start(&mut self, waker: Waker);

    /// Takes a turn; may be called without a reason.
    fn turn(&mut self, now: Instant) -> Interest;
}

/// Asks for a turn, from any thread. Cheap if a request is pending already.
#[derive(Clone)]
pub struct Waker(Arc<Call>);

struct Call {
    key: usize,
    called: AtomicBool,
    /// `None` has no receiver: for sessions that a test drives by hand.
    calls: Option<Arc<Mailbox<usize>>>,
}

impl Waker {
    /// For a session that a test drives by hand.
    pub fn idle() -> Waker {
        Waker(Arc::new(Call { key: 0, called: AtomicBool::new(false), calls: None }))
    }

    pub fn wake(&self) {
        if self.0.called.swap(true, Ordering::AcqRel) {
            return;
        }
        if let Some(calls) = &self.0.calls {
            // A closed mailbox means that the reactor has ended, and its sessions with it.
            let _ = calls.post(self.0.key);
        }
    }
}

struct Entry {
    /// `None`: the session has left, and the polls of its descriptor have not returned yet.
    session: Option<Box<dyn ReactorSession>>,
    call: Arc<Call>,
    /// Whether polls are under way, for reading and for writing.
    watched: [bool; 2],
    queued: bool,
    at: Option<Instant>,
}

/// The sessions of one reactor, which shares its ring and its bell with them.
pub struct SessionSet {
    entries: Vec<Option<Entry>>,
    free: Vec<usize>,
    calls: Arc<Mailbox<usize>>,
    queue: VecDeque<usize>,
    called: Vec<usize>,
    ready: Vec<u64>,
    /// No session asked for a turn at a time before this one.
    earliest: Option<Instant>,
}

impl SessionSet {
    pub fn new(bell: &Arc<EventFd>) -> SessionSet {
        SessionSet {
            entries: Vec::new(),
            free: Vec::new(),
            calls: Arc::new(Mailbox::with_bell(usize::MAX, Arc::clone(bell))),
            queue: VecDeque::new(),
            called: Vec::new(),
            ready: Vec::new(),
            earliest: None,
        }
    }

    /// Admits a session and gives it a turn soon. At the limit the session is dropped.
    pub fn add(&mut self, mut session: Box<dyn ReactorSession>) {
        let key = match self.free.pop() {
            Some(key) => key,
            None if self.entries.len() >= SESSIONS_MAX => {
                tracing::warn!("a connection is turned away: {SESSIONS_MAX} are served by this pool already");
                return;
            }
            None => {
                self.entries.push(None);
                self.entries.len() - 1
            }
        };
        let call = Arc::new(Call { key, called: AtomicBool::new(false), calls: Some(Arc::clone(&self.calls)) });
        session.start(Waker(Arc::clone(&call)));
        self.entries[key] = Some(Entry { session: Some(session), call, watched: [false; 2], queued: true, at: None });
        self.queue.push_back(key);
    }

    /// Gives one turn to each ready session. Returns false if none was ready.
    pub fn run(&mut self, now: Instant, ring: &Ring) -> bool {
        self.gather(now, ring);
        let turns = self.queue.len();
        for _ in 0..turns {
            let Some(key) = self.queue.pop_front() else { break };
            self.give_turn(key, now, ring);
        }
        turns > 0
    }

    /// The earliest requested time, or an earlier one: a session may have withdrawn its request.
    pub fn next_event(&self) -> Option<Instant> {
        self.earliest
    }

    /// Like [`Mailbox::fall_asleep`]; also returns false while sessions wait for a turn.
    pub fn fall_asleep(&self) -> bool {
        self.queue.is_empty() && self.calls.fall_asleep()
    }

    pub fn woken(&self) {
        self.calls.woken();
    }

    fn gather(&mut self, now: Instant, ring: &Ring) {
        let (mut ready, mut called) = (std::mem::take(&mut self.ready), std::mem::take(&mut self.called));
        ring.reap_ready(&mut ready);
        for token in ready.drain(..) {
            let (key, side) = ((token >> 1) as usize, (token & 1) as usize);
            let Some(entry) = self.entries.get_mut(key).and_then(Option::as_mut) else { continue };
            entry.watched[side] = false;
            if entry.session.is_some() {
                self.enqueue(key);
            } else if entry.watched == [false; 2] {
                self.entries[key] = None;
                self.free.push(key);
            }
        }
        self.calls.take(usize::MAX, &mut called);
        for key in called.drain(..) {
            self.enqueue(key);
        }
        (self.ready, self.called) = (ready, called);
        if self.earliest.is_some_and(|at| at <= now) {
            self.earliest = None;
            for key in 0..self.entries.len() {
                let Some(at) = self.entries[key].as_ref().and_then(|entry| entry.at) else { continue };
                if at <= now {
                    self.enqueue(key);
                } else {
                    self.note(at);
                }
            }
        }
    }

    fn note(&mut self, at: Instant) {
        self.earliest = Some(self.earliest.map_or(at, |earliest| earliest.min(at)));
    }

    fn enqueue(&mut self, key: usize) {
        if let Some(Some(entry)) = self.entries.get_mut(key)
            && entry.session.is_some()
            && !std::mem::replace(&mut entry.queued, true)
        {
            self.queue.push_back(key);
        }
    }

    fn give_turn(&mut self, key: usize, now: Instant, ring: &Ring) {
        let Some(Some(entry)) = self.entries.get_mut(key) else { return };
        let Some(session) = &mut entry.session else { return };
        entry.queued = false;
        // Clear before the turn: a wake-up during the turn asks for another one.
        entry.call.called.store(false, Ordering::Release);
        let interest = session.turn(now);
        entry.at = interest.at;
        let descriptor = session.descriptor();
        if interest.end {
            entry.session = None;
            entry.at = None;
            for side in 0..2 {
                if entry.watched[side] {
                    ring.unwatch(token(key, side));
                }
            }
            if entry.watched == [false; 2] {
                self.entries[key] = None;
                self.free.push(key);
            }
            return;
        }
        if interest.again {
            entry.queued = true;
            self.queue.push_back(key);
            return;
        }
        for (side, wanted) in [interest.read, interest.write].into_iter().enumerate() {
            if wanted && !entry.watched[side] {
                entry.watched[side] = true;
                ring.watch(token(key, side), descriptor, side == 1);
            }
        }
        if let Some(at) = interest.at {
            self.note(at);
        }
    }
}

fn token(key: usize, side: usize) -> u64 {
    (key as u64) << 1 | side as u64
}

#[cfg(test)]
mod tests;
