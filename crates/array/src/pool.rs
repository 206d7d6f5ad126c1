//! The pool as its drivers see it: events in, actions out.

use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::rc::Rc;

use stele_ground::{Instant, VolumeId};
use stele_media::{Completion, MediaError, MediaFault, Request};

use crate::engine::serving::Serving;
use crate::hosts::Manner;
use crate::model::mutation::Mutations;
use crate::model::{Action, ArrayError, Attached, CreateOptions, Event, OpenOptions};
use crate::runtime::io::Io;
use crate::runtime::task::Tasks;

mod commands;
pub mod inspect;
mod recovery;
mod resize;
mod serving;
mod status;

use recovery::Recovered;

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum State {
    /// Reading labels, log and checkpoint; host operations wait.
    Starting,
    Ready {
        read_only: bool,
    },
    /// Could not be opened, or an invariant of the outside world broke; nothing is served.
    Failed(ArrayError),
    Closed,
}

/// A pool of drives. Neither `Send` nor shared: one driver owns it.
pub struct Pool {
    tasks: Tasks,
    io: Io,
    state: State,
    shared: Rc<Shared>,
    /// Host operations and commands that came before the pool was ready.
    early: Vec<Event>,
}

/// What the opening task leaves for the pool.
#[derive(Default)]
struct Shared {
    opened: RefCell<Option<Result<Recovered, ArrayError>>>,
    serving: RefCell<Option<Rc<Serving>>>,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pool({:?}, {} tasks)", self.state, self.tasks.count())
    }
}

impl Pool {
    /// Begins to write a new pool onto drives. Refuses drives that carry a label (the driver clears
    /// those it may).
    pub fn create(options: CreateOptions, open: OpenOptions, drives: Vec<Attached>, now: Instant) -> Pool {
        Pool::begin(&drives.clone(), now, |io| recovery::create(io, options, open, drives))
    }

    /// Begins to open the pool found on the drives: labels, checkpoint, log replay, repair of
    /// replicas.
    pub fn open(options: OpenOptions, drives: Vec<Attached>, now: Instant) -> Pool {
        Pool::begin(&drives.clone(), now, |io| recovery::open(io, options, drives))
    }

    fn begin<F>(drives: &[Attached], now: Instant, start: impl FnOnce(Io) -> F) -> Pool
    where
        F: Future<Output = Result<Recovered, ArrayError>> + 'static,
    {
        let tasks = Tasks::new();
        let io = Io::new(&tasks, now);
        drives.iter().for_each(|_| {
            io.attach();
        });
        let shared = Rc::new(Shared::default());
        let opening = start(io.clone());
        let place = Rc::clone(&shared);
        tasks.spawn(async move {
            let result = opening.await;
            *place.opened.borrow_mut() = Some(result);
        });
        Pool { tasks, io, state: State::Starting, shared, early: Vec::new() }
    }

    /// Takes away protections, so that a test can show that it would notice. Never outside tests.
    #[doc(hidden)]
    pub fn set_mutations(&mut self, mutations: Mutations) {
        self.io.set_mutations(mutations);
    }

    /// Inverts a bit of what waits to be destaged, as failing memory does. False where nothing
    /// waits. Never outside tests.
    #[doc(hidden)]
    pub fn spoil_memory(&mut self, which: u64, bit: usize) -> bool {
        self.serving().is_some_and(|serving| serving.engine.step(|core| core.cache.spoil(which, bit)))
    }

    /// Takes in one event. A read that the cache can answer is answered here; nothing else runs
    /// before `run`.
    pub fn event(&mut self, event: Event) {
        match event {
            Event::Completed { drive, completion } => {
                let gone = matches!(&completion.result, Err(error) if error.fault == MediaFault::Gone);
                self.io.complete(drive, completion);
                // Whichever task asked: the log and the tables must not count on the drive either.
                if let Some(serving) = self.serving().filter(|_| gone) {
                    serving.engine.drive_gone(drive);
                }
            }
            Event::Detach { drive } => match self.serving() {
                Some(serving) => {
                    serving.engine.hospital.forget(drive);
                    serving.engine.drive_gone(drive);
                }
                None => self.io.detach(drive),
            },
            Event::Attach(attached) => {
                let index = self.io.attach();
                match self.serving() {
                    Some(serving) => serving.attach(index, attached),
                    None => self.early.push(Event::Attach(attached)),
                }
            }
            Event::Submit { volume, request } => match self.serving() {
                Some(serving) => serving.submit(volume, request, Manner::Plain),
                None if self.state == State::Starting => self.early.push(Event::Submit { volume, request }),
                None => self.refuse(volume, request),
            },
            Event::SubmitOrdered { volume, request } => match self.serving() {
                Some(serving) => serving.submit(volume, request, Manner::Ordered),
                None if self.state == State::Starting => self.early.push(Event::SubmitOrdered { volume, request }),
                None => self.refuse(volume, request),
            },
            Event::SubmitAtomic { volume, request } => match self.serving() {
                Some(serving) => serving.submit(volume, request, Manner::Atomic),
                None if self.state == State::Starting => self.early.push(Event::SubmitAtomic { volume, request }),
                None => self.refuse(volume, request),
            },
            Event::Command { id, command } => match self.serving() {
                Some(serving) => serving.command(id, command),
                None if self.state == State::Starting => self.early.push(Event::Command { id, command }),
                None => self.io.emit(Action::Reply { id, reply: Err(self.stopped()) }),
            },
        }
    }

    /// Runs everything that can run at this time, then returns. Actions wait in `actions`.
    pub fn run(&mut self, now: Instant) {
        self.io.advance(now);
        loop {
            self.tasks.run_ready();
            let opened = self.shared.opened.borrow_mut().take();
            match opened {
                Some(Ok(recovered)) => self.begin_serving(recovered),
                Some(Err(error)) => self.fail(error),
                None => break,
            }
        }
        let Some(serving) = self.serving() else { return };
        serving.engine.watch_agreement();
        if serving.is_closed() {
            self.state = State::Closed;
        } else if self.state == State::Starting || matches!(self.state, State::Ready { .. }) {
            self.state = State::Ready { read_only: serving.engine.standing.is_read_only() };
        }
        if !matches!(self.state, State::Ready { .. }) {
            self.shared.serving.take();
        }
    }

    fn begin_serving(&mut self, recovered: Recovered) {
        let serving = Serving::start(recovered);
        *self.shared.serving.borrow_mut() = Some(Rc::clone(&serving));
        // Drives that left while the pool was opening: no engine was there yet to note it.
        for index in (0..self.io.drives()).filter(|index| self.io.is_gone(*index)) {
            serving.engine.drive_gone(index);
        }
        let mut attached = self.early.iter().filter(|event| matches!(event, Event::Attach(_))).count();
        for event in std::mem::take(&mut self.early) {
            match event {
                Event::Attach(drive) => {
                    // Its place among the drives was taken when it came.
                    let index = self.io.drives() - attached;
                    attached -= 1;
                    if let Some(serving) = self.serving() {
                        serving.attach(index, drive);
                    }
                }
                event => self.event(event),
            }
        }
    }

    fn fail(&mut self, error: ArrayError) {
        self.state = State::Failed(error);
        for event in std::mem::take(&mut self.early) {
            if !matches!(event, Event::Attach(_)) {
                self.event(event);
            }
        }
    }

    pub(crate) fn serving(&self) -> Option<Rc<Serving>> {
        self.shared.serving.borrow().clone()
    }

    fn stopped(&self) -> ArrayError {
        match &self.state {
            State::Failed(error) => ArrayError::Stopped(format!("the pool has stopped: {error}")),
            _ => ArrayError::Stopped("the pool is closed; open it again".into()),
        }
    }

    fn refuse(&self, volume: VolumeId, request: Request) {
        let error = MediaError::new(MediaFault::Gone, self.stopped().to_string());
        let completion = Completion { tag: request.tag, op: request.op, result: Err(error) };
        self.io.emit(Action::Finished { volume, completion });
    }

    /// Moves out what the driver must do, in order.
    pub fn actions(&mut self, out: &mut Vec<Action>) {
        self.io.drain(out);
    }

    /// When `run` wants to be called although no event came.
    pub fn next_wake(&self) -> Option<Instant> {
        match self.state {
            State::Closed | State::Failed(_) => None,
            _ => self.io.next_wake(),
        }
    }

    pub fn state(&self) -> &State {
        &self.state
    }
}

#[cfg(test)]
mod tests;
