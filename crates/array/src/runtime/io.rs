//! The only way to a drive. Tasks await operations; the pool's driver moves requests out and
//! completions in.
//!
//! Rules kept here:
//! - at most [`DEPTH`] requests are out on a drive; more wait, the more urgent first, then first
//!   come, and one in eight is the oldest of the less urgent, so that none waits for ever;
//! - flushes are shared: at most one is out on a drive, and everybody who asks meanwhile joins the
//!   next one. A flush leaves only when the actions are drained, so it covers every write whose
//!   completion a joiner had seen;
//! - a flush costs nothing where no write completed since the last one was handed out;
//! - beside hosts a drive has one run of background work at a time, see `turns`;
//! - a slow drive has a few commands of destages at a time, see `backlog`;
//! - a drive that is detached answers everything with `Gone`.
//!
//! A dropped future abandons its operation: the drive still does it, and the answer is ignored.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::{Future, poll_fn};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use stele_ground::{Duration, Instant};
use stele_media::{Buffer, BufferPool, Completion, Extent, MediaError, MediaFault, Op, Priority, Request, Shared};

use crate::model::Action;
use crate::model::mutation::{Mutation, Mutations};
use crate::runtime::sync::Notify;
use crate::runtime::task::{Spawner, Tasks};

mod backlog;
mod breaks;
mod memory;
pub mod overdue;
pub mod service;
mod slots;
mod together;
mod turns;

pub use service::DriveCounters;
use service::{Ended, OpKind, Service, Untimed, kind};

/// Requests handed out to one drive at a time.
pub const DEPTH: usize = 128;

/// A longer request counts as several for those behind it. Background ones judge no drive.
const LONG: u64 = 256 << 10;
const LONG_WEIGHT: u32 = 16;

/// Access to all drives, the clock and the executor. Cheap to clone.
#[derive(Clone)]
pub struct Io(Rc<Inner>);

struct Inner {
    now: Cell<Instant>,
    mutations: Cell<Mutations>,
    spawner: Spawner,
    actions: RefCell<Vec<Action>>,
    drives: RefCell<Vec<IoState>>,
    timers: RefCell<BTreeMap<(Instant, u64), Waker>>,
    next_timer: Cell<u64>,
    buffers: BufferPool,
    /// A read that takes longer is late, as its drive's peers go.
    late_after: Cell<Duration>,
    untimed: RefCell<Untimed>,
    /// A host asked for something last.
    last_host: Cell<Instant>,
    /// How often a drive was attached, or a flush failed.
    breaks: Cell<u64>,
    /// The watch flow looks after drives that do not answer, and need not be told of work.
    watching: Cell<bool>,
    busy: Notify,
}

#[derive(Default)]
struct IoState {
    slots: Vec<Slot>,
    free: Vec<usize>,
    waiting: BTreeMap<(Priority, u64), Request>,
    /// Runs of background work that wait for their turn beside hosts.
    held: BTreeMap<(Priority, u64), Request>,
    /// Commands of destages that wait for a place among those in the line or out.
    backlog: VecDeque<Request>,
    destages: u32,
    arrivals: u64,
    /// Requests handed out of the line since a less urgent one had its turn, and runs.
    turns: u32,
    run_turns: u32,
    out: usize,
    /// Of those, long ones.
    long_out: u32,
    /// Of those, runs of background work, and what acknowledgements and hosts wait for.
    runs_out: u32,
    hosts_out: u32,
    /// Requests of hosts handed out since the last run.
    passed: u32,
    gone: bool,
    /// A write completed since the last flush went out. True at first, for an earlier process.
    unflushed: bool,
    /// `breaks` when a flush last failed.
    broke: u64,
    flushing: Option<Rc<Round>>,
    joining: Option<Rc<Round>>,
    counters: DriveCounters,
    service: Service,
}

struct Slot {
    /// Distinguishes tenants of the slot, so that a late completion meets no other tenant.
    tenant: u32,
    submitted: Instant,
    /// Requests out on the drive then, this one among them.
    depth: u32,
    state: SlotState,
    reads: bool,
    /// For more than `LONG` bytes.
    long: bool,
    /// Long, and of background work.
    is_run: bool,
    /// Hosts wait for it.
    is_hosts: bool,
    /// Of a destage, and in the line or out.
    is_destage: bool,
    /// Answered in the drive's place; the driver has yet to hand it back.
    owed: bool,
}

enum SlotState {
    Free,
    Waiting(Option<Waker>),
    Done(Completion),
    Abandoned,
    Flush,
}

/// One flush and everybody who waits for it.
#[derive(Default)]
struct Round {
    result: RefCell<Option<Result<(), MediaError>>>,
    waiters: RefCell<Vec<Waker>>,
}

impl Io {
    pub fn new(tasks: &Tasks, now: Instant) -> Io {
        Io(Rc::new(Inner {
            now: Cell::new(now),
            mutations: Cell::default(),
            spawner: tasks.spawner(),
            actions: RefCell::default(),
            drives: RefCell::default(),
            timers: RefCell::default(),
            next_timer: Cell::new(0),
            buffers: memory::buffers(),
            late_after: Cell::new(Duration(0)),
            untimed: RefCell::default(),
            last_host: Cell::new(NEVER),
            breaks: Cell::new(0),
            watching: Cell::new(true),
            busy: Notify::default(),
        }))
    }

    pub fn now(&self) -> Instant {
        self.0.now.get()
    }

    /// Memory for a caller that overwrites all of it: its content is stale.
    pub fn buffer(&self, length: usize) -> Buffer {
        self.0.buffers.take(length)
    }

    pub fn spawn(&self, future: impl Future<Output = ()> + 'static) {
        self.0.spawner.spawn(future);
    }

    /// True when a test has taken this protection away.
    #[inline]
    pub fn is_disabled(&self, protection: Mutation) -> bool {
        self.0.mutations.get().has(protection)
    }

    pub fn set_mutations(&self, mutations: Mutations) {
        self.0.mutations.set(mutations);
    }

    /// Lets every task that is ready now run first.
    pub async fn yield_now(&self) {
        let mut yielded = false;
        poll_fn(|cx| {
            if std::mem::replace(&mut yielded, true) {
                return Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }

    pub async fn sleep_until(&self, at: Instant) {
        let number = self.0.next_timer.replace(self.0.next_timer.get() + 1);
        let _cancel = Timer { io: self, key: (at, number) };
        poll_fn(|cx| {
            if self.now() >= at {
                return Poll::Ready(());
            }
            self.0.timers.borrow_mut().insert((at, number), cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    pub async fn sleep(&self, span: Duration) {
        self.sleep_until(self.now() + span).await;
    }

    /// Reads `length` bytes into fresh memory.
    pub async fn read(&self, drive: usize, at: u64, length: usize, priority: Priority) -> Result<Buffer, MediaError> {
        self.read_into(drive, at, self.buffer(length), priority).await.map_err(|(error, _)| error)
    }

    /// Fills the whole buffer; gives it back on failure too.
    pub async fn read_into(
        &self,
        drive: usize,
        at: u64,
        buffer: Buffer,
        priority: Priority,
    ) -> Result<Buffer, (MediaError, Option<Buffer>)> {
        let Completion { op, result, .. } = self.run(drive, Op::Read { at, buffer }, priority).await;
        match (op, result) {
            (Op::Read { buffer, .. }, Ok(())) => Ok(buffer),
            (Op::Read { buffer, .. }, Err(error)) => Err((error, Some(buffer))),
            (_, Err(error)) => Err((error, None)),
            (op, Ok(())) => Err((wrong_answer(&op), None)),
        }
    }

    /// Writes the pieces one after another. A later `flush` of the drive makes them durable.
    pub async fn write(&self, drive: usize, at: u64, data: Vec<Shared>, priority: Priority) -> Result<(), MediaError> {
        self.run(drive, Op::Write { at, data, fua: false }, priority).await.result
    }

    /// As `write`; durable by itself when it answers.
    pub async fn write_durable(
        &self,
        drive: usize,
        at: u64,
        data: Vec<Shared>,
        priority: Priority,
    ) -> Result<(), MediaError> {
        self.run(drive, Op::Write { at, data, fua: true }, priority).await.result
    }

    pub async fn zero(&self, drive: usize, at: u64, length: u64, priority: Priority) -> Result<(), MediaError> {
        self.run(drive, Op::Zero { at, length }, priority).await.result
    }

    pub async fn discard(&self, drive: usize, at: u64, length: u64, priority: Priority) -> Result<(), MediaError> {
        self.run(drive, Op::Discard { at, length }, priority).await.result
    }

    pub async fn extents(&self, drive: usize, at: u64, length: u64) -> Result<Vec<Extent>, MediaError> {
        let answer =
            self.run(drive, Op::Extents { at, length, since: None, extents: Vec::new() }, Priority::Host).await;
        answer.result?;
        match answer.op {
            Op::Extents { extents, .. } => Ok(extents),
            op => Err(wrong_answer(&op)),
        }
    }

    async fn run(&self, drive: usize, op: Op, priority: Priority) -> Completion {
        match self.start(drive, op, priority) {
            Ok(pending) => pending.await,
            Err(refused) => refused,
        }
    }

    fn start(&self, drive: usize, op: Op, priority: Priority) -> Result<Pending<'_>, Completion> {
        let mut drives = self.0.drives.borrow_mut();
        let Some(state) = drives.get_mut(drive) else {
            return Err(Completion { tag: 0, op, result: Err(no_such_drive(drive)) });
        };
        if state.gone {
            return Err(Completion { tag: 0, op, result: Err(gone(drive)) });
        }
        let (index, tag) = state.occupy(SlotState::Waiting(None));
        state.slots[index].reads = matches!(op, Op::Read { .. });
        let long = op.range().is_some_and(|(_, length)| length > LONG);
        let is_run = long && priority >= Priority::Rebuild;
        let slot = &mut state.slots[index];
        (slot.long, slot.is_run, slot.is_hosts) = (long, is_run, priority <= Priority::Host);
        self.watch();
        let mut request = Request { tag, op, priority, deadline: None };
        if priority == Priority::Destage {
            match state.admit_destage(request) {
                Some(admitted) => request = admitted,
                None => return Ok(Pending { io: self, drive, index, tag }),
            }
        }
        let beside_hosts = self.is_beside_hosts();
        if is_run && !state.takes_run(beside_hosts) {
            state.arrivals += 1;
            state.held.insert((priority, state.arrivals), request);
        } else if state.out < DEPTH && state.waiting.is_empty() {
            state.hand_out(drive, request, self.now(), &mut self.0.actions.borrow_mut());
        } else {
            state.arrivals += 1;
            state.waiting.insert((priority, state.arrivals), request);
        }
        Ok(Pending { io: self, drive, index, tag })
    }

    // What the pool does for its driver, and for itself.

    /// Adds a drive; its index is the next free one.
    pub fn attach(&self) -> usize {
        let mut drives = self.0.drives.borrow_mut();
        drives.push(IoState { unflushed: true, ..IoState::default() });
        drives.len() - 1
    }

    /// Number of drives ever attached.
    pub fn drives(&self) -> usize {
        self.0.drives.borrow().len()
    }

    pub fn is_gone(&self, drive: usize) -> bool {
        self.0.drives.borrow().get(drive).is_none_or(|state| state.gone)
    }

    pub fn counters(&self, drive: usize) -> DriveCounters {
        let drives = self.0.drives.borrow();
        let Some(state) = drives.get(drive) else { return DriveCounters::default() };
        DriveCounters { out: state.out, waiting: state.line(), ..state.counters }
    }

    /// Requests out on the drive, and waiting to go out.
    pub fn load(&self, drive: usize) -> usize {
        let drives = self.0.drives.borrow();
        drives.get(drive).map_or(usize::MAX, |state| state.out + state.line())
    }

    /// Queues an answer to a host or operator in order with what goes to the drives.
    pub fn emit(&self, action: Action) {
        self.0.actions.borrow_mut().push(action);
    }

    /// Moves out what the driver must do, in order; flushes that were joined leave last.
    pub fn drain(&self, out: &mut Vec<Action>) {
        let mut actions = self.0.actions.borrow_mut();
        let now = self.now();
        for (drive, state) in self.0.drives.borrow_mut().iter_mut().enumerate() {
            if state.flushing.is_none()
                && let Some(round) = state.joining.take()
            {
                state.flushing = Some(round);
                state.unflushed = false;
                let (_, tag) = state.occupy(SlotState::Flush);
                state.hand_out(
                    drive,
                    Request { tag, op: Op::Flush, priority: Priority::Urgent, deadline: None },
                    now,
                    &mut actions,
                );
            }
        }
        out.append(&mut actions);
    }

    /// Takes in one completion; ignores what was not asked. The next time gives its duration.
    pub fn complete(&self, drive: usize, completion: Completion) {
        let now = self.now();
        let mut untimed = self.0.untimed.borrow_mut();
        let mut drives = self.0.drives.borrow_mut();
        let Some(state) = drives.get_mut(drive) else { return };
        let (tenant, index) = ((completion.tag >> 32) as u32, (completion.tag as u32) as usize);
        let Some(slot) = state.slots.get_mut(index).filter(|slot| slot.tenant == tenant) else { return };
        let was_out = slot.submitted != NEVER;
        let (long, is_run, is_hosts) = (slot.long, slot.is_run, slot.is_hosts);
        let is_destage = std::mem::take(&mut slot.is_destage);
        let timed = !slot.is_run && was_out && completion.result.is_ok();
        let owed = std::mem::take(&mut slot.owed);
        let mut ended = Ended::new(drive, slot.submitted, timed.then_some(slot.depth), slot.reads);
        let mut flushed = None;
        let mut waker = None;
        let (done, counted) = (completion.result.is_ok(), kind(&completion.op));
        let volatile = counted == OpKind::Write && !(done && matches!(completion.op, Op::Write { fua: true, .. }));
        match std::mem::replace(&mut slot.state, SlotState::Free) {
            // It was answered in the drive's place; the asker may still have to fetch that answer.
            SlotState::Done(answer) if owed => slot.state = SlotState::Done(answer),
            SlotState::Free if owed => {
                slot.tenant = slot.tenant.wrapping_add(1);
                state.free.push(index);
            }
            SlotState::Free | SlotState::Done(_) => return,
            SlotState::Waiting(waiting) => {
                let bytes = completion.op.range().map_or(0, |(_, length)| length);
                waker = waiting;
                ended.counted = was_out.then_some((counted, bytes, done));
                state.unflushed |= volatile;
                slot.state = SlotState::Done(completion);
            }
            SlotState::Abandoned => {
                state.unflushed |= volatile;
                slot.tenant = slot.tenant.wrapping_add(1);
                state.free.push(index);
            }
            SlotState::Flush => {
                ended.counted = Some((OpKind::Flush, 0, done));
                state.unflushed |= !done;
                if !done {
                    state.broke = self.note_break();
                }
                flushed = state.flushing.take().map(|round| (round, completion.result));
                slot.tenant = slot.tenant.wrapping_add(1);
                state.free.push(index);
            }
        }
        untimed.ended.push(ended);
        if is_destage {
            state.destage_left();
        }
        if was_out {
            state.out -= 1;
            state.long_out -= u32::from(long);
            state.runs_out -= u32::from(is_run);
            state.hosts_out -= u32::from(is_hosts);
            let beside_hosts = self.is_beside_hosts();
            while state.out < DEPTH
                && let Some(request) = state.next_waiting().or_else(|| state.next_run(beside_hosts))
            {
                if !state.drop_unwanted(&request) {
                    untimed.begun.push((drive, request.tag));
                    state.hand_out(drive, request, now, &mut self.0.actions.borrow_mut());
                }
            }
        }
        drop(drives);
        if let Some((round, result)) = flushed {
            round.resolve(result);
        }
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Moves the clock on and wakes the tasks that slept until now.
    pub fn advance(&self, now: Instant) {
        assert!(now >= self.now(), "the clock handed to the pool went backwards");
        self.0.now.set(now);
        self.reckon(now);
        loop {
            let waker = {
                let mut timers = self.0.timers.borrow_mut();
                match timers.first_key_value() {
                    Some((&(at, _), _)) if at <= now => timers.pop_first(),
                    _ => None,
                }
            };
            let Some((_, waker)) = waker else { return };
            waker.wake();
        }
    }

    /// When the earliest sleeper wants to wake.
    pub fn next_wake(&self) -> Option<Instant> {
        self.0.timers.borrow().first_key_value().map(|(&(at, _), _)| at)
    }

    fn forget(&self, drive: usize, index: usize, tag: u64) {
        let mut drives = self.0.drives.borrow_mut();
        let Some(state) = drives.get_mut(drive) else { return };
        let Some(slot) = state.slots.get_mut(index).filter(|slot| slot.tenant == (tag >> 32) as u32) else { return };
        match slot.state {
            SlotState::Waiting(_) => slot.state = SlotState::Abandoned,
            SlotState::Done(_) if slot.owed => slot.state = SlotState::Free,
            SlotState::Done(_) => {
                slot.state = SlotState::Free;
                slot.tenant = slot.tenant.wrapping_add(1);
                state.free.push(index);
            }
            SlotState::Free | SlotState::Abandoned | SlotState::Flush => {}
        }
    }
}

const NEVER: Instant = Instant(u64::MAX);

impl Round {
    fn resolve(&self, result: Result<(), MediaError>) {
        *self.result.borrow_mut() = Some(result);
        for waiter in self.waiters.take() {
            waiter.wake();
        }
    }
}

/// An operation out on a drive, or waiting to go.
struct Pending<'a> {
    io: &'a Io,
    drive: usize,
    index: usize,
    tag: u64,
}

impl Future for Pending<'_> {
    type Output = Completion;

    fn poll(self: std::pin::Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Completion> {
        let mut drives = self.io.0.drives.borrow_mut();
        let state = &mut drives[self.drive];
        let slot = &mut state.slots[self.index];
        assert_eq!(slot.tenant, (self.tag >> 32) as u32, "an operation was polled after it had answered");
        match std::mem::replace(&mut slot.state, SlotState::Free) {
            SlotState::Done(completion) => {
                if !slot.owed {
                    slot.tenant = slot.tenant.wrapping_add(1);
                    state.free.push(self.index);
                }
                Poll::Ready(completion)
            }
            _ => {
                slot.state = SlotState::Waiting(Some(cx.waker().clone()));
                Poll::Pending
            }
        }
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        self.io.forget(self.drive, self.index, self.tag);
    }
}

struct Timer<'a> {
    io: &'a Io,
    key: (Instant, u64),
}

impl Drop for Timer<'_> {
    fn drop(&mut self) {
        self.io.0.timers.borrow_mut().remove(&self.key);
    }
}

fn gone(drive: usize) -> MediaError {
    MediaError::new(MediaFault::Gone, format!("drive at index {drive} is detached"))
}

fn no_such_drive(drive: usize) -> MediaError {
    MediaError::new(MediaFault::Gone, format!("no drive is attached at index {drive}"))
}

fn wrong_answer(op: &Op) -> MediaError {
    MediaError::new(MediaFault::Gone, format!("a drive answered with another operation than was asked: {op:?}"))
}

#[cfg(test)]
mod tests;
