//! The reactor's loop, one turn at a time.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};

use stele_ground::{Bytes, Duration, Instant, VolumeId};
use stele_media::mailbox::Mailbox;
use stele_media::system::now;
use stele_media::{
    Completion, Done, MediaError, MediaFault, Op, Ordered, Priority, ReactorSession, Request, SessionSet,
};

use super::ServerOptions;
use super::drives::{DriveSet, Source};
use super::hand_over::{self, Answered, Handed, Peer};
use crate::model::{Action, Alarm, ArrayError, Attached, Command, Event, Reply, Severity, VolumeStatus};
use crate::pool::{Pool, State};

/// Host operations inside the pool at one time; more wait in the mailbox.
pub const HOST_MAX: usize = 4096;
/// Mail taken in one turn, so that completions are never kept waiting by a flood.
const BATCH_MAX: usize = 256;

/// How long a reactor looks for the answers of others before it sleeps. They are at work on them,
/// and most take less time than a sleep and a wake-up.
const ANSWER_SOON: Duration = Duration::from_micros(20);

/// A state machine that a reactor can drive. [`Pool`] is the one; tests have a simpler one.
pub trait Machine: 'static {
    fn event(&mut self, event: Event);
    fn run(&mut self, now: Instant);
    fn actions(&mut self, out: &mut Vec<Action>);
    fn next_wake(&self) -> Option<Instant>;
    fn state(&self) -> &State;
}

impl Machine for Pool {
    fn event(&mut self, event: Event) {
        Pool::event(self, event);
    }
    fn run(&mut self, now: Instant) {
        Pool::run(self, now);
    }
    fn actions(&mut self, out: &mut Vec<Action>) {
        Pool::actions(self, out);
    }
    fn next_wake(&self) -> Option<Instant> {
        Pool::next_wake(self)
    }
    fn state(&self) -> &State {
        Pool::state(self)
    }
}

/// A host operation for the pool.
pub struct Mail {
    pub volume: VolumeId,
    pub op: Op,
    pub priority: Priority,
    /// For a write that another is to follow.
    pub ordered: Option<Ordered>,
    /// For a write that is there as a whole or not at all; not together with `ordered`.
    pub whole: bool,
    pub done: Done,
}

/// The caller that waits for a host operation in the pool.
struct Waiting {
    volume: VolumeId,
    ordered: Option<Ordered>,
    done: Done,
    /// The reactor whose session asked.
    peer: Option<Peer>,
}

pub type Answering<T> = Box<dyn FnOnce(T) + Send>;

/// Everything else: rare, and never held up by host operations.
pub enum Order {
    Command {
        command: Command,
        answer: Answering<Result<Reply, ArrayError>>,
    },
    Attach {
        source: Source,
        answer: Answering<u32>,
    },
    Detach {
        drive: usize,
    },
    /// A session of a frontend that runs on this thread from now on.
    Serve {
        session: Box<dyn ReactorSession>,
    },
    Stop,
}

/// What the reactor shares with other threads.
pub struct Shared {
    pub mail: Mailbox<Mail>,
    /// What other reactors hand over.
    pub handed: Mailbox<Handed>,
    pub orders: Mailbox<Order>,
    sizes: Mutex<BTreeMap<VolumeId, Arc<AtomicU64>>>,
    /// Why the pool stopped by itself.
    cause: Mutex<Option<ArrayError>>,
}

impl Shared {
    pub fn new(mail: Mailbox<Mail>, handed: Mailbox<Handed>, orders: Mailbox<Order>) -> Shared {
        Shared { mail, handed, orders, sizes: Mutex::default(), cause: Mutex::default() }
    }

    /// The answer of a server that has stopped.
    pub fn stopped(&self) -> ArrayError {
        let cause = self.cause.lock().unwrap_or_else(PoisonError::into_inner).clone();
        cause.unwrap_or_else(|| ArrayError::Stopped("the pool's server has stopped; open the pool again".to_owned()))
    }

    /// The volume's size, shared by all its handles. What the pool itself said of it since it was
    /// opened counts for more than the status, which may be older.
    pub fn size_of(&self, status: &VolumeStatus) -> Arc<AtomicU64> {
        let mut sizes = self.sizes.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(sizes.entry(status.id).or_insert_with(|| Arc::new(AtomicU64::new(status.spec.size.0))))
    }

    fn resized(&self, volume: VolumeId, size: Bytes) {
        let mut sizes = self.sizes.lock().unwrap_or_else(PoisonError::into_inner);
        sizes.entry(volume).or_default().store(size.0, Ordering::Relaxed);
    }
}

/// Answers everybody who still waits, however the thread ends.
struct LastWords {
    shared: Arc<Shared>,
    /// Host operations in the pool; a tag is a place in the table.
    hosts: Vec<Option<Waiting>>,
    free: Vec<usize>,
    /// Requests of other reactors that wait to enter the pool.
    waiting: VecDeque<(Mail, Option<Peer>)>,
    commands: BTreeMap<u64, Answering<Result<Reply, ArrayError>>>,
    started: Option<Sender<Result<(), ArrayError>>>,
}

impl Drop for LastWords {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tracing::error!(
                "the pool's thread has died of a broken belief; nothing more is written, open the pool again"
            );
        }
        self.shared.mail.close();
        self.shared.handed.close();
        self.shared.orders.close();
        let stopped = self.shared.stopped();
        let gone = || MediaError::new(MediaFault::Gone, stopped.to_string());
        // The operation itself is lost inside the pool; an empty one takes its place.
        for waiting in self.hosts.drain(..).flatten() {
            (waiting.done)(Op::Flush, Err(gone()));
        }
        let mut mail = Vec::new();
        self.shared.mail.take(usize::MAX, &mut mail);
        for mail in mail.into_iter().chain(self.waiting.drain(..).map(|(mail, _)| mail)) {
            (mail.done)(mail.op, Err(gone()));
        }
        let mut handed = Vec::new();
        self.shared.handed.take(usize::MAX, &mut handed);
        handed.into_iter().for_each(|handed| hand_over::refuse(handed, &stopped.to_string()));
        hand_over::end();
        for (_, answer) in std::mem::take(&mut self.commands) {
            answer(Err(stopped.clone()));
        }
        // Orders not taken drop the senders of their answers: their askers are told by that.
        self.shared.orders.take(usize::MAX, &mut Vec::new());
    }
}

pub struct Reactor<M: Machine> {
    // Before the drives: no caller is to be answered by a drive that is being dropped.
    words: LastWords,
    machine: M,
    drives: DriveSet,
    sessions: SessionSet,
    options: ServerOptions,
    next_command: u64,
    stop: bool,
    mail: Vec<Mail>,
    handed: Vec<Handed>,
    orders: Vec<Order>,
    completions: Vec<(usize, Completion)>,
    actions: Vec<Action>,
}

impl<M: Machine> Reactor<M> {
    pub fn new(
        shared: Arc<Shared>,
        sources: Vec<Source>,
        options: ServerOptions,
        started: Sender<Result<(), ArrayError>>,
        begin: impl FnOnce(Vec<Attached>) -> M,
    ) -> Reactor<M> {
        let mut drives = DriveSet::new(shared.mail.bell(), options.engine);
        let sessions = SessionSet::new(shared.mail.bell());
        let attached = sources.into_iter().map(|source| drives.attach(source)).collect();
        let words = LastWords {
            shared,
            hosts: Vec::new(),
            free: Vec::new(),
            waiting: VecDeque::new(),
            commands: BTreeMap::new(),
            started: Some(started),
        };
        Reactor {
            words,
            machine: begin(attached),
            drives,
            sessions,
            options,
            next_command: 0,
            stop: false,
            mail: Vec::new(),
            handed: Vec::new(),
            orders: Vec::new(),
            completions: Vec::new(),
            actions: Vec::new(),
        }
    }

    pub fn run(mut self) {
        hand_over::begin(&self.words.shared);
        let mut idle_since = None;
        // The first turn runs the machine without an event: it has its own beginning to make.
        let mut due = true;
        loop {
            let time = now();
            let busy = self.take_in(time);
            due |= self.machine.next_wake().is_some_and(|at| at <= time);
            if busy || std::mem::take(&mut due) {
                self.machine.run(time);
                self.carry_out();
                idle_since = None;
                if self.ended() {
                    return;
                }
                continue;
            }
            let since = *idle_since.get_or_insert(time);
            let idle = time.since(since);
            let soon = idle < ANSWER_SOON && hand_over::awaits();
            if idle < self.options.spin || soon || self.drives.must_poll() {
                std::hint::spin_loop();
                if soon || self.drives.must_poll() {
                    std::thread::yield_now();
                }
                continue;
            }
            self.sleep(time);
        }
    }

    fn in_pool(&self) -> usize {
        self.words.hosts.len() - self.words.free.len()
    }

    /// Turns mail, orders and completions into events. False if there was nothing.
    fn take_in(&mut self, time: Instant) -> bool {
        // First: what sessions ask for is then in this turn's mail.
        let lively = self.sessions.run(time, self.drives.ring());
        let handed = self.take_handed();
        // At once: the others can begin with what sessions ask of them.
        hand_over::flush();
        let shared = &self.words.shared;
        shared.mail.take(BATCH_MAX.min(HOST_MAX - self.in_pool()), &mut self.mail);
        shared.orders.take(BATCH_MAX, &mut self.orders);
        self.drives.reap(time, &mut self.completions);
        let busy = lively || handed || !(self.mail.is_empty() && self.orders.is_empty() && self.completions.is_empty());
        for (drive, completion) in self.completions.drain(..) {
            let gone = matches!(&completion.result, Err(error) if error.fault == MediaFault::Gone);
            self.machine.event(Event::Completed { drive, completion });
            if gone {
                // It is not asked again under this index; its path can be opened anew when it is
                // back.
                self.drives.detach(drive);
            }
        }
        let mut mail = std::mem::take(&mut self.mail);
        mail.drain(..).for_each(|mail| self.enter(mail, None));
        self.mail = mail;
        for order in std::mem::take(&mut self.orders) {
            self.obey(order);
        }
        busy
    }

    /// Takes what other reactors handed over: answers are called, and requests enter as far as the
    /// pool has room. The others wait; beyond the mailbox's limit they are answered `Retry`. False
    /// if nothing could be done.
    fn take_handed(&mut self) -> bool {
        let shared = Arc::clone(&self.words.shared);
        shared.handed.take(BATCH_MAX, &mut self.handed);
        let mut any = !self.handed.is_empty();
        for handed in self.handed.drain(..) {
            match handed {
                Handed::Answers(answers) => hand_over::receive(answers),
                Handed::Requests { from, mail } => {
                    let peer = hand_over::peer(&from);
                    let room = self.options.mailbox.saturating_sub(self.words.waiting.len());
                    let mut mail = mail.into_iter();
                    self.words.waiting.extend(mail.by_ref().take(room).map(|mail| (mail, peer)));
                    for Mail { op, done, .. } in mail {
                        let message = "the shard has all the operations it can hold: ask again when some have finished";
                        let result = Err(MediaError::new(MediaFault::Retry, message));
                        let answered = Answered { done, op, result };
                        match peer {
                            Some(peer) => hand_over::answer(peer, answered),
                            None => answered.call(),
                        }
                    }
                }
            }
        }
        for _ in 0..BATCH_MAX.min(HOST_MAX - self.in_pool()) {
            let Some((mail, peer)) = self.words.waiting.pop_front() else { break };
            self.enter(mail, peer);
            any = true;
        }
        any
    }

    /// Hands a request to the machine.
    fn enter(&mut self, mail: Mail, peer: Option<Peer>) {
        let Mail { volume, op, priority, ordered, whole, done } = mail;
        let place = self.words.free.pop().unwrap_or_else(|| {
            self.words.hosts.push(None);
            self.words.hosts.len() - 1
        });
        let request = Request { tag: place as u64, op, priority, deadline: None };
        self.machine.event(match ordered {
            Some(_) => Event::SubmitOrdered { volume, request },
            None if whole => Event::SubmitAtomic { volume, request },
            None => Event::Submit { volume, request },
        });
        self.words.hosts[place] = Some(Waiting { volume, ordered, done, peer });
    }

    fn obey(&mut self, order: Order) {
        match order {
            Order::Command { command, answer } => {
                let id = self.next_command;
                self.next_command += 1;
                self.words.commands.insert(id, answer);
                self.machine.event(Event::Command { id, command });
            }
            Order::Attach { source, answer } => {
                let index = self.drives.len();
                let attached = self.drives.attach(source);
                self.machine.event(Event::Attach(attached));
                answer(index as u32);
            }
            Order::Detach { drive } => {
                if drive < self.drives.len() {
                    self.drives.detach(drive);
                    self.machine.event(Event::Detach { drive });
                }
            }
            Order::Serve { session } => self.sessions.add(session),
            Order::Stop => self.stop = true,
        }
    }

    /// Does what the machine asks, in its order, and starts the drives once for all of it.
    fn carry_out(&mut self) {
        let mut actions = std::mem::take(&mut self.actions);
        self.machine.actions(&mut actions);
        for action in actions.drain(..) {
            match action {
                Action::Drive { drive, request } => self.drives.submit(drive, request),
                Action::Ordered { volume, tag } => self.ordered(volume, tag),
                Action::Finished { volume, completion } => self.finished(volume, completion),
                Action::Reply { id, reply } => match self.words.commands.remove(&id) {
                    Some(answer) => answer(reply),
                    None => panic!("the pool answered command {id} twice or unasked"),
                },
                Action::Resized { volume, size } => self.words.shared.resized(volume, size),
                Action::Alarm(alarm) => self.alarm(alarm),
            }
        }
        self.actions = actions;
        self.drives.kick();
        hand_over::flush();
    }

    fn ordered(&mut self, volume: VolumeId, tag: u64) {
        let waiting = self.words.hosts.get_mut(tag as usize).and_then(Option::as_mut);
        match waiting.filter(|waiting| waiting.volume == volume).and_then(|waiting| waiting.ordered.take()) {
            Some(ordered) => ordered(),
            None => panic!("the pool ordered operation {tag} of {volume} twice or unasked"),
        }
    }

    fn finished(&mut self, volume: VolumeId, completion: Completion) {
        let Completion { tag, op, result } = completion;
        let place = tag as usize;
        match self.words.hosts.get_mut(place).and_then(Option::take) {
            Some(waiting) if waiting.volume == volume => {
                self.words.free.push(place);
                if let Some(ordered) = waiting.ordered.filter(|_| result.is_ok()) {
                    ordered();
                }
                let answered = Answered { done: waiting.done, op, result };
                match waiting.peer {
                    Some(peer) => hand_over::answer(peer, answered),
                    None => answered.call(),
                }
            }
            _ => panic!("the pool completed operation {tag} of {volume} twice or unasked"),
        }
    }

    fn alarm(&mut self, alarm: Alarm) {
        if let Some(heard) = &mut self.options.alarms {
            return heard(alarm);
        }
        match alarm.severity {
            Severity::Notice => tracing::info!(kind = ?alarm.kind, "{}", alarm.message),
            Severity::Warning => tracing::warn!(kind = ?alarm.kind, "{}", alarm.message),
            Severity::Critical => tracing::error!(kind = ?alarm.kind, "{}", alarm.message),
        }
    }

    /// Tells who started us how it went, once; true when the thread has nothing left to do.
    fn ended(&mut self) -> bool {
        let outcome = match self.machine.state() {
            State::Starting => return self.stop,
            State::Ready { .. } | State::Closed => Ok(()),
            State::Failed(error) => Err(error.clone()),
        };
        let over = !matches!(self.machine.state(), State::Ready { .. });
        if let Err(error) = &outcome {
            *self.words.shared.cause.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.clone());
        }
        match self.words.started.take() {
            Some(started) => drop(started.send(outcome)),
            None => {
                if let Err(error) = outcome {
                    tracing::error!("the pool has stopped: {error}");
                }
            }
        }
        self.stop || over
    }

    /// Sleeps until there is something to do. At the limit of host operations it does not listen
    /// for more of them.
    fn sleep(&mut self, time: Instant) {
        let shared = &self.words.shared;
        let listening = self.in_pool() < HOST_MAX;
        let asleep = shared.orders.fall_asleep()
            && (!listening || shared.mail.fall_asleep())
            && shared.handed.fall_asleep()
            && self.sessions.fall_asleep();
        if asleep {
            let events = [self.machine.next_wake(), self.drives.next_event(), self.sessions.next_event()];
            let until = events.into_iter().flatten().min();
            // A wake that is due, or all but due, is not worth a sleep.
            let span = until.map(|at| at.since(time));
            if span.is_none_or(|span| span > Duration::from_micros(1)) {
                self.drives.ring().wait(span);
            }
        }
        shared.mail.woken();
        shared.handed.woken();
        shared.orders.woken();
        self.sessions.woken();
    }
}
