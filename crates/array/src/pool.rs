//! The pool as its drivers see it: events in, actions out.

use stele_ground::{Instant, VolumeId};
use stele_media::{Completion, Geometry, Request};

use crate::{Alarm, ArrayError, Command, CreateOptions, OpenOptions, Reply};

/// A drive as the driver hands it over. Its index is its place in the list given to `create` or `open`, and stays:
/// the driver addresses completions by it. (The pool's own drive numbers, in labels and status, may differ.)
#[derive(Clone, Debug)]
pub struct Attached {
    pub geometry: Geometry,
    /// What an operator calls it: its path.
    pub name: String,
    /// Failure domain; used at creation and when the drive joins, afterwards the label's word counts.
    pub enclosure: u32,
}

/// What the driver tells the pool.
#[derive(Debug)]
pub enum Event {
    /// A host operation on a volume. Its tag comes back with the completion.
    Submit {
        volume: VolumeId,
        request: Request,
    },
    Command {
        id: u64,
        command: Command,
    },
    /// A drive finished a request that an action handed out.
    Completed {
        drive: usize,
        completion: Completion,
    },
    /// A further drive (new or returned) with the next free index.
    Attach(Attached),
    /// The driver lost the drive; requests outstanding on it complete with `Gone`.
    Detach {
        drive: usize,
    },
}

/// What the pool asks of its driver.
#[derive(Debug)]
pub enum Action {
    Drive { drive: usize, request: Request },
    Finished { volume: VolumeId, completion: Completion },
    Reply { id: u64, reply: Result<Reply, ArrayError> },
    Alarm(Alarm),
}

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
#[derive(Debug)]
pub struct Pool {
    state: State,
}

impl Pool {
    /// Begins to write a new pool onto drives. Refuses drives that carry a label (the driver clears those it may).
    pub fn create(_options: CreateOptions, _open: OpenOptions, _drives: Vec<Attached>, _now: Instant) -> Pool {
        Pool { state: State::Starting }
    }

    /// Begins to open the pool found on the drives: labels, checkpoint, log replay, repair of replicas.
    pub fn open(_options: OpenOptions, _drives: Vec<Attached>, _now: Instant) -> Pool {
        Pool { state: State::Starting }
    }

    /// Takes in one event. Nothing runs before `run`.
    pub fn event(&mut self, _event: Event) {}

    /// Runs everything that can run at this time, then returns. Actions wait in `actions`.
    pub fn run(&mut self, _now: Instant) {}

    /// Moves out what the driver must do, in order.
    pub fn actions(&mut self, _out: &mut Vec<Action>) {}

    /// When `run` wants to be called although no event came.
    pub fn next_wake(&self) -> Option<Instant> {
        None
    }

    pub fn state(&self) -> &State {
        &self.state
    }
}
