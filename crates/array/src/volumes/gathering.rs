//! Which writes of a volume are held back until the rest of their stripe has come.
//!
//! Writers in order send pieces that end anywhere in a stripe. Each piece alone goes through the
//! log, or has the rest of its stripe read and written once more; together they are one whole
//! stripe. A writer with several requests under way sends the rest of a stripe when others of them
//! are answered, so the piece that begins a stripe waits for that.
//!
//! A writer that has one request under way waits for nothing: only a write that goes on where
//! another one ended is held, and only while pieces that are not held are under way. After a wait
//! in vain the stream's next pieces are not held.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::rc::Rc;

use stele_ground::Duration;
use stele_media::Shared;

use crate::runtime::sync::Notify;

/// Writers in order that a volume knows at once.
const STREAMS_MAX: usize = 32;
/// A piece of less than one part in so many of its stripe is not held: too many would make the
/// stripe.
const PIECES_MAX: usize = 16;
/// The rest has so long to come when nothing else is under way any more, and so long in all.
pub const GRACE: Duration = Duration::from_micros(500);
pub const WAIT_MAX: Duration = Duration::from_millis(100);
/// Writes of a stream that are not held after a wait in vain; twice as many after the next one, up
/// to the last of these.
const PAUSE: u32 = 8;
const PAUSE_MAX: u32 = 1 << 14;

/// What a write has within one stripe.
#[derive(Clone)]
pub struct Part {
    pub at: u64,
    pub data: Vec<Shared>,
    pub length: usize,
}

/// What one volume knows of its writers.
#[derive(Default)]
pub struct Gathering {
    /// The one that wrote last is the last.
    streams: RefCell<Vec<Stream>>,
    /// Pieces under way, held ones included.
    under_way: Cell<usize>,
    /// Pieces in stripes whose rest is waited for.
    held: Cell<usize>,
    /// No piece is under way that is not held.
    calm: Notify,
    /// Stripes whose pieces wait.
    open: RefCell<BTreeMap<u64, Rc<Gather>>>,
}

/// A writer in order.
#[derive(Clone, Copy, Debug)]
struct Stream {
    /// Where it goes on.
    next: u64,
    /// So many of its writes are not held.
    pause: u32,
    /// The next pause is so long.
    next_pause: u32,
}

/// What became of the pieces of a stripe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// All of them are durable in the stripe's slot.
    Written,
    /// Each has to find its own place.
    Apart,
}

/// The pieces of one stripe that have come. They do not overlap.
pub struct Gather {
    pieces: RefCell<Vec<Part>>,
    bytes: Cell<usize>,
    outcome: Cell<Option<Outcome>>,
    pub settled: Notify,
    /// Where its stream goes on behind the first piece, which names the stream.
    begun_at: u64,
}

impl Gather {
    pub fn outcome(&self) -> Option<Outcome> {
        self.outcome.get()
    }

    /// Tells everybody who waits.
    pub fn settle(&self, outcome: Outcome) {
        self.outcome.set(Some(outcome));
        self.settled.wake_all();
    }

    /// All pieces in order, each of which is held until the outcome is known.
    pub fn in_order(&self) -> Vec<Part> {
        let mut pieces = self.pieces.borrow().clone();
        pieces.sort_unstable_by_key(|piece| piece.at);
        pieces
    }
}

/// A piece under way.
pub struct UnderWay<'a>(&'a Gathering);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// What a piece is to do.
pub enum Turn {
    /// It goes alone.
    Alone,
    /// The stripe is not complete: wait for what becomes of it. The task with the first piece sees
    /// to it that no piece waits in vain.
    Wait { gather: Rc<Gather>, first: bool },
    /// This piece completes the stripe, and its request writes it.
    Write(Rc<Gather>),
}

/// Whether a request, or a piece of one, of so many bytes is long enough for a stripe of so many.
pub fn is_long(length: usize, stripe: usize) -> bool {
    length * PIECES_MAX >= stripe
}

impl Gathering {
    /// A request to write begins. Answers whether it goes on where another one ended.
    pub fn note(&self, at: u64, length: u64) -> bool {
        let mut streams = self.streams.borrow_mut();
        let found = streams.iter().rposition(|stream| stream.next == at);
        let before = found.map(|place| streams.remove(place));
        let stream = before.unwrap_or(Stream { next: at, pause: 0, next_pause: PAUSE });
        if streams.len() >= STREAMS_MAX {
            streams.remove(0);
        }
        streams.push(Stream { next: at + length, pause: stream.pause.saturating_sub(1), ..stream });
        found.is_some()
    }

    /// A piece begins; it is under way until the guard is dropped.
    pub fn begin(&self) -> UnderWay<'_> {
        self.enter();
        UnderWay(self)
    }

    /// A piece begins, which is under way until `leave`.
    pub fn enter(&self) {
        self.under_way.set(self.under_way.get() + 1);
    }

    pub fn leave(&self) {
        self.under_way.set(self.under_way.get() - 1);
        self.note_calm();
    }

    /// All pieces under way are held.
    pub fn is_calm(&self) -> bool {
        self.under_way.get() <= self.held.get()
    }

    /// Answers when a piece that is not held has ended, or the last one has come to be held.
    pub fn calm(&self) -> impl Future<Output = ()> + '_ {
        self.calm.changed()
    }

    fn note_calm(&self) {
        if self.is_calm() {
            self.calm.wake_all();
        }
    }

    /// A piece of a stripe of `whole` bytes has come, of a request that ends at `next` and
    /// continues a stream or not.
    pub fn take(&self, piece: &Part, stripe: u64, whole: usize, in_order: bool, next: u64) -> Turn {
        let mut open = self.open.borrow_mut();
        if let Some(gather) = open.get(&stripe).cloned() {
            if !gather.add(piece) {
                return Turn::Alone;
            }
            self.held.set(self.held.get() + 1);
            if gather.bytes.get() < whole {
                self.note_calm();
                return Turn::Wait { gather, first: false };
            }
            open.remove(&stripe);
            self.held.set(self.held.get() - gather.pieces.borrow().len());
            self.change(gather.begun_at, |stream| stream.next_pause = PAUSE);
            return Turn::Write(gather);
        }
        let streams = self.streams.borrow();
        let stream = streams.iter().rfind(|stream| stream.next == next);
        // This piece is not held yet.
        let others = self.under_way.get() > self.held.get() + 1;
        if !others || !in_order || stream.is_none_or(|stream| stream.pause > 0) {
            return Turn::Alone;
        }
        let gather = Rc::new(Gather {
            pieces: RefCell::new(vec![piece.clone()]),
            bytes: Cell::new(piece.length),
            outcome: Cell::new(None),
            settled: Notify::default(),
            begun_at: next,
        });
        open.insert(stripe, Rc::clone(&gather));
        self.held.set(self.held.get() + 1);
        Turn::Wait { gather, first: true }
    }

    /// The rest of these pieces has not come yet.
    pub fn is_waited_for(&self, stripe: u64, gather: &Rc<Gather>) -> bool {
        self.open.borrow().get(&stripe).is_some_and(|here| Rc::ptr_eq(here, gather))
    }

    /// Pieces of the stripe wait.
    pub fn is_open(&self, stripe: u64) -> bool {
        self.open.borrow().contains_key(&stripe)
    }

    /// The rest of a stripe did not come in time. False if it did after all.
    pub fn give_up(&self, stripe: u64, gather: &Rc<Gather>) -> bool {
        if !self.is_waited_for(stripe, gather) {
            return false;
        }
        self.open.borrow_mut().remove(&stripe);
        self.held.set(self.held.get() - gather.pieces.borrow().len());
        self.change(gather.begun_at, |stream| {
            stream.pause = stream.next_pause;
            stream.next_pause = (stream.next_pause * 2).min(PAUSE_MAX);
        });
        true
    }

    /// Changes the stream that went on from there, or has come near since.
    fn change(&self, begun_at: u64, how: impl FnOnce(&mut Stream)) {
        let mut streams = self.streams.borrow_mut();
        let near = streams.iter_mut().filter(|stream| stream.next >= begun_at).min_by_key(|stream| stream.next);
        if let Some(stream) = near {
            how(stream);
        }
    }
}

impl Gather {
    /// False if another piece has bytes of it.
    fn add(&self, piece: &Part) -> bool {
        let mut pieces = self.pieces.borrow_mut();
        let end = |of: &Part| of.at + of.length as u64;
        if pieces.iter().any(|other| other.at < end(piece) && piece.at < end(other)) {
            return false;
        }
        pieces.push(piece.clone());
        self.bytes.set(self.bytes.get() + piece.length);
        true
    }
}
