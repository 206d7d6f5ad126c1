use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::mpsc;
use std::sync::{Mutex, PoisonError};

use stele_codes::Code;
use stele_ground::{Dice, Instant, MIB, VolumeId};
use stele_media::conformance::{self, Subject};
use stele_media::{
    Buffer, Completion, DriveFile, Geometry, MediaError, MediaFault, MemoryDrive, Op, Priority, Remote, Request,
};

use super::*;
use crate::model::{Action, AlarmKind, DigestUnit, Event, Severity, VolumeSpec, WriteMode};
use crate::pool::State;

/// The simplest machine there is: volume 0 is drive 0. Operations on volume 1 are held for a while;
/// on volume 2 for ever; on volume 3 they break it.
struct Through {
    state: State,
    geometry: Geometry,
    now: Instant,
    events: Vec<Event>,
    actions: Vec<Action>,
    hosts: BTreeMap<u64, (VolumeId, u64)>,
    held: Vec<(Instant, VolumeId, Request)>,
    next: u64,
    attached: u32,
    /// Its beginning: a flush of drive 0, so that starting takes a completion.
    begins: bool,
}

const HOLD: Duration = Duration::from_millis(3);

impl Through {
    fn new(attached: Vec<Attached>) -> Through {
        Through {
            state: State::Starting,
            geometry: attached[0].geometry,
            now: Instant(0),
            events: Vec::new(),
            actions: Vec::new(),
            hosts: BTreeMap::new(),
            held: Vec::new(),
            next: 1,
            attached: attached.len() as u32,
            begins: true,
        }
    }

    fn finish(&mut self, volume: VolumeId, tag: u64, op: Op, result: Result<(), MediaError>) {
        self.actions.push(Action::Finished { volume, completion: Completion { tag, op, result } });
    }

    fn reply(&mut self, id: u64, reply: Reply) {
        self.actions.push(Action::Reply { id, reply: Ok(reply) });
    }

    fn status(&self, id: u32) -> VolumeStatus {
        let spec = VolumeSpec {
            name: format!("v{id}"),
            code: Code::mirror(2).expect("a code"),
            size: self.geometry.size,
            strip: Bytes(65536),
            block: self.geometry.block,
            digest: DigestUnit::Block,
            mode: WriteMode::WriteBack,
            fully_allocated: false,
            spread: false,
            owner: None,
        };
        VolumeStatus::empty(VolumeId(id), spec)
    }
}

impl Machine for Through {
    fn event(&mut self, event: Event) {
        self.events.push(event);
    }

    fn run(&mut self, now: Instant) {
        self.now = now;
        if std::mem::take(&mut self.begins) {
            let request = Request { tag: 0, op: Op::Flush, priority: Priority::Urgent, deadline: None };
            self.actions.push(Action::Drive { drive: 0, request });
        }
        for event in std::mem::take(&mut self.events) {
            match event {
                Event::Submit { volume: VolumeId(0), request } => {
                    let Request { tag, op, priority, deadline } = request;
                    self.hosts.insert(self.next, (VolumeId(0), tag));
                    let request = Request { tag: self.next, op, priority, deadline };
                    self.actions.push(Action::Drive { drive: 0, request });
                    self.next += 1;
                }
                Event::Submit { volume: VolumeId(1), request } => self.held.push((now + HOLD, VolumeId(1), request)),
                Event::Submit { volume: VolumeId(2), request } => {
                    self.held.push((Instant(u64::MAX), VolumeId(2), request));
                }
                Event::Submit { .. } | Event::SubmitOrdered { .. } | Event::SubmitAtomic { .. } => {
                    panic!("a belief is broken")
                }
                Event::Completed { completion: Completion { tag: 0, result, .. }, .. } => {
                    self.state = match result {
                        Ok(()) => State::Ready { read_only: false },
                        Err(error) => State::Failed(ArrayError::Damaged(error.message.into_owned())),
                    };
                }
                Event::Completed { completion, .. } => {
                    let (volume, tag) = self.hosts.remove(&completion.tag).expect("known");
                    self.finish(volume, tag, completion.op, completion.result);
                }
                Event::Command { id, command: Command::ListVolumes } => {
                    let volumes = (0..4).map(|volume| self.status(volume)).collect();
                    self.reply(id, Reply::Volumes(volumes));
                }
                Event::Command { id, command: Command::ResizeVolume { size, .. } } => {
                    self.geometry.size = size;
                    self.actions.push(Action::Resized { volume: VolumeId(0), size });
                    self.reply(id, Reply::Done);
                }
                Event::Command { id, command: Command::Close } => {
                    self.state = State::Closed;
                    self.reply(id, Reply::Done);
                }
                Event::Command { id, command: Command::StartScrub } => {
                    let message = "scrubbing".to_owned();
                    let alarm =
                        Alarm::now(AlarmKind::ScrubFinished, Severity::Notice, None, Instant::default(), message);
                    self.actions.push(Action::Alarm(alarm));
                    self.reply(id, Reply::Done);
                }
                Event::Command { command: Command::Checkpoint, .. } => {
                    self.state = State::Failed(ArrayError::Damaged("every log replica is gone".to_owned()));
                }
                // Never answered.
                Event::Command { .. } => {}
                Event::Attach(_) => self.attached += 1,
                Event::Detach { .. } => self.attached -= 1,
            }
        }
        let due: Vec<_> = self.held.extract_if(.., |(at, ..)| *at <= now).collect();
        for (_, volume, request) in due {
            self.finish(volume, request.tag, request.op, Ok(()));
        }
    }

    fn actions(&mut self, out: &mut Vec<Action>) {
        out.append(&mut self.actions);
    }

    fn next_wake(&self) -> Option<Instant> {
        self.held.iter().map(|(at, ..)| *at).filter(|at| at.0 < u64::MAX).min()
    }

    fn state(&self) -> &State {
        &self.state
    }
}

fn start(sources: Vec<Source>, options: ServerOptions) -> Result<Server, ArrayError> {
    Server::start(sources, options, Through::new)
}

fn on_memory(options: ServerOptions) -> Server {
    start(vec![Source::other(MemoryDrive::new(Bytes(8 * MIB)), "memory", 0)], options).expect("started")
}

fn volume(server: &Server, name: &str) -> Handle {
    let Ok(Reply::Volumes(all)) = server.command_blocking(Command::ListVolumes) else { panic!("a list") };
    server.volume_of(all.iter().find(|volume| volume.spec.name == name).expect("a volume"))
}

fn spins() -> [Duration; 2] {
    [Duration(0), Duration::from_micros(50)]
}

/// Where test files live: on the disk of the build.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let parent = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/scratch");
        let path = parent.join(format!("reactor-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("a scratch directory");
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

struct Far {
    drive: Remote,
    _server: Server,
}

impl Subject for Far {
    fn drive(&mut self) -> &mut dyn stele_media::Drive {
        &mut self.drive
    }
    fn whole_blocks(&self) -> bool {
        false
    }
}

#[test]
fn what_is_behind_a_reactor_conforms_on_memory_and_on_files() {
    for spin in spins() {
        conformance::check("reactor on memory", 1, &mut |_| {
            let server = on_memory(ServerOptions { spin, ..ServerOptions::default() });
            Box::new(Far { drive: Remote::new(volume(&server, "v0")), _server: server })
        });
    }
    let scratch = Scratch::new("conform");
    for engine in [Engine::Best, Engine::Threads] {
        conformance::check("reactor on a file", 2, &mut |seed| {
            let path = scratch.0.join(format!("{seed}-{engine:?}"));
            let file = DriveFile::create(&path, Bytes(4 * MIB), Space::Sparse).expect("created");
            let options = ServerOptions { engine, ..ServerOptions::default() };
            let server = start(vec![Source::file(file, 0)], options).expect("started");
            Box::new(Far { drive: Remote::new(volume(&server, "v0")), _server: server })
        });
    }
}

#[test]
fn no_completion_is_lost_among_many_threads() {
    for spin in spins() {
        let server = on_memory(ServerOptions { spin, mailbox: 64, ..ServerOptions::default() });
        let handles = [volume(&server, "v0"), volume(&server, "v1")];
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let handles = &handles;
                scope.spawn(move || {
                    let mut dice = Dice::new(thread);
                    let (sender, receiver) = mpsc::channel();
                    let mut answered = 0;
                    while answered < 3000 {
                        let handle = &handles[usize::from(dice.one_in(50))];
                        let burst = 1 + dice.below(100);
                        for _ in 0..burst {
                            let sender = sender.clone();
                            let op = Op::Read { at: dice.below(2048) * 4096, buffer: Buffer::stale(4096) };
                            let done = move |op: Op, result: Result<(), MediaError>| {
                                assert!(matches!(op, Op::Read { .. }));
                                sender.send(result.map_err(|error| error.fault)).expect("the test waits");
                            };
                            handle.submit(op, Priority::Host, Box::new(done));
                        }
                        for _ in 0..burst {
                            match receiver.recv().expect("every operation is answered") {
                                Ok(()) => answered += 1,
                                Err(MediaFault::Retry) => std::thread::yield_now(),
                                Err(other) => panic!("{other:?}"),
                            }
                        }
                        assert!(receiver.try_recv().is_err(), "an operation is answered once");
                    }
                });
            }
        });
        server.command_blocking(Command::Close).expect("closed");
    }
}

#[test]
fn at_the_mailbox_limit_submitters_get_retry_and_commands_still_pass() {
    let server = on_memory(ServerOptions { mailbox: 10, ..ServerOptions::default() });
    let held = volume(&server, "v2");
    let answers = Arc::new(Mutex::new(Vec::new()));
    let total = HOST_MAX + 5000;
    for _ in 0..total {
        let answers = Arc::clone(&answers);
        let done = move |_, result: Result<(), MediaError>| {
            let fault = result.expect_err("held for ever").fault;
            answers.lock().unwrap_or_else(PoisonError::into_inner).push(fault);
        };
        held.submit(Op::Flush, Priority::Host, Box::new(done));
    }
    let seen = || answers.lock().unwrap_or_else(PoisonError::into_inner).clone();
    assert!(seen().len() >= 4990 && seen().iter().all(|fault| *fault == MediaFault::Retry), "{}", seen().len());
    assert!(server.command_blocking(Command::ListVolumes).is_ok(), "a command passes");
    drop(server);
    assert_eq!(seen().len(), total, "everybody is answered in the end");
    assert_eq!(seen().last(), Some(&MediaFault::Gone));
    assert_eq!(held.flush_blocking().expect_err("stopped").fault, MediaFault::Gone);
}

#[test]
fn a_wake_comes_at_its_time_without_any_event() {
    for spin in spins() {
        let server = on_memory(ServerOptions { spin, ..ServerOptions::default() });
        let held = volume(&server, "v1");
        let before = now();
        held.flush_blocking().expect("held, then done");
        assert!(now().since(before) >= HOLD);
    }
}

#[test]
fn when_a_belief_breaks_everybody_is_told() {
    let server = on_memory(ServerOptions::default());
    let waiting = volume(&server, "v2");
    let (sender, receiver) = mpsc::channel();
    waiting.submit(Op::Flush, Priority::Host, Box::new(move |_, result| sender.send(result).expect("waiting")));
    let breaking = volume(&server, "v3");
    assert_eq!(breaking.flush_blocking().expect_err("it broke").fault, MediaFault::Gone);
    assert_eq!(receiver.recv().expect("answered").expect_err("it broke").fault, MediaFault::Gone);
    assert!(matches!(server.command_blocking(Command::Status), Err(ArrayError::Stopped(_))));
    assert!(matches!(
        server.attach_on(Source::other(MemoryDrive::new(Bytes(MIB)), "m", 0)),
        Err(ArrayError::Stopped(_))
    ));
    while !server.is_stopped() {
        std::thread::yield_now();
    }
}

#[test]
fn when_the_pool_fails_everybody_is_told_why() {
    let server = on_memory(ServerOptions::default());
    let waiting = volume(&server, "v2");
    let (sender, receiver) = mpsc::channel();
    waiting.submit(Op::Flush, Priority::Host, Box::new(move |_, result| sender.send(result).expect("waiting")));
    let reply = server.command_blocking(Command::Checkpoint).expect_err("it fails");
    assert_eq!(reply, ArrayError::Damaged("every log replica is gone".to_owned()));
    let error = receiver.recv().expect("answered").expect_err("it failed");
    assert_eq!((error.fault, &*error.message), (MediaFault::Gone, "every log replica is gone"));
    assert_eq!(waiting.flush_blocking().expect_err("stopped").message, "every log replica is gone");
    assert_eq!(server.command_blocking(Command::Status).expect_err("stopped"), reply);
}

#[test]
fn a_command_that_is_never_answered_ends_with_the_server() {
    let server = Arc::new(Mutex::new(Some(on_memory(ServerOptions::default()))));
    let (sender, receiver) = mpsc::channel();
    let guard = server.lock().unwrap_or_else(PoisonError::into_inner);
    let shared = guard.as_ref().expect("there").shared.clone();
    let answer = move |reply: Result<Reply, ArrayError>| sender.send(reply).expect("waiting");
    assert!(shared.orders.post(Order::Command { command: Command::Status, answer: Box::new(answer) }).is_ok());
    drop(guard);
    drop(server);
    assert!(matches!(receiver.recv().expect("told"), Err(ArrayError::Stopped(_))));
}

#[test]
fn alarms_are_heard_and_handles_know_the_size_of_a_volume() {
    let (sender, receiver) = mpsc::channel();
    let alarms = Box::new(move |alarm: Alarm| sender.send(alarm.message).expect("the test listens"));
    let server = on_memory(ServerOptions { alarms: Some(alarms), ..ServerOptions::default() });
    server.command_blocking(Command::StartScrub).expect("begun");
    assert_eq!(receiver.recv().expect("an alarm"), "scrubbing");
    let volume = volume(&server, "v0");
    assert_eq!(volume.geometry().size, Bytes(8 * MIB));
    for size in [Bytes(8 * MIB), Bytes(9 * MIB), Bytes(6 * MIB)] {
        let resize = Command::ResizeVolume { name: "v0".to_owned(), size };
        server.command_blocking(resize).expect("resized");
        assert_eq!(volume.geometry().size, size);
    }
}

/// A memory drive that keeps its operations until told.
struct Slow {
    inner: MemoryDrive,
    open: Arc<std::sync::atomic::AtomicBool>,
}

impl stele_media::Drive for Slow {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }
    fn submit(&mut self, request: Request) {
        self.inner.submit(request);
    }
    fn reap(&mut self, now: Instant, finished: &mut Vec<Completion>) {
        if self.open.load(std::sync::atomic::Ordering::Acquire) {
            self.inner.reap(now, finished);
        }
    }
}

#[test]
fn a_detached_drive_finishes_what_is_under_way_and_then_answers_gone() {
    let open = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let slow = Slow { inner: MemoryDrive::new(Bytes(MIB)), open: Arc::clone(&open) };
    let server = start(vec![Source::other(slow, "slow", 0)], ServerOptions::default()).expect("started");
    let volume = volume(&server, "v0");
    open.store(false, std::sync::atomic::Ordering::Release);
    let (sender, receiver) = mpsc::channel();
    volume.submit(Op::Flush, Priority::Host, Box::new(move |_, result| sender.send(result).expect("waiting")));
    // The answer to a listing shows that the flush has been handed on.
    server.command_blocking(Command::ListVolumes).expect("a list");
    server.detach(0);
    assert_eq!(volume.flush_blocking().expect_err("detached").fault, MediaFault::Gone);
    open.store(true, std::sync::atomic::Ordering::Release);
    receiver.recv().expect("answered").expect("it was under way");
    assert_eq!(server.attach_on(Source::other(MemoryDrive::new(Bytes(MIB)), "more", 1)).expect("attached"), 1);
}

#[test]
fn a_server_may_be_dropped_by_a_completion() {
    let server = on_memory(ServerOptions::default());
    let volume = volume(&server, "v0");
    let (sender, receiver) = mpsc::channel();
    volume.submit(
        Op::Read { at: 0, buffer: Buffer::zeroed(4096) },
        Priority::Host,
        Box::new(move |_, _| {
            drop(server);
            sender.send(()).expect("the test waits");
        }),
    );
    receiver.recv().expect("it did not hang");
}

#[test]
fn a_machine_that_fails_to_start_is_reported() {
    struct Broken;
    impl stele_media::Drive for Broken {
        fn geometry(&self) -> Geometry {
            Geometry { size: Bytes(MIB), block: Bytes(4096) }
        }
        fn submit(&mut self, _request: Request) {
            panic!("a drive that breaks");
        }
        fn reap(&mut self, _now: Instant, _finished: &mut Vec<Completion>) {}
    }
    let died = start(vec![Source::other(Broken, "broken", 0)], ServerOptions::default()).map(drop);
    assert!(matches!(died, Err(ArrayError::Stopped(_))));
}

/// The thread on which each answer came.
type Answers = Vec<(std::thread::ThreadId, Result<(), MediaError>)>;

/// A session on one reactor that keeps requests to a volume of another one under way.
struct Caller {
    bell: EventFd,
    volume: Handle,
    left: usize,
    under_way: usize,
    finished: Arc<Mutex<Answers>>,
    seen: usize,
    waker: Option<stele_media::Waker>,
    done: mpsc::Sender<Answers>,
}

impl Caller {
    fn new(volume: Handle, requests: usize) -> (Caller, mpsc::Receiver<Answers>) {
        let (done, receiver) = mpsc::channel();
        let bell = EventFd::new().expect("an eventfd");
        let caller =
            Caller { bell, volume, left: requests, under_way: 0, finished: Arc::default(), seen: 0, waker: None, done };
        (caller, receiver)
    }
}

impl ReactorSession for Caller {
    fn descriptor(&self) -> std::os::fd::RawFd {
        std::os::fd::AsRawFd::as_raw_fd(&self.bell)
    }
    fn start(&mut self, waker: stele_media::Waker) {
        self.waker = Some(waker);
    }
    fn turn(&mut self, _now: Instant) -> stele_media::Interest {
        let finished = self.finished.lock().unwrap_or_else(PoisonError::into_inner).len();
        self.under_way -= finished - self.seen;
        self.seen = finished;
        while self.left > 0 && self.under_way < 32 {
            (self.left, self.under_way) = (self.left - 1, self.under_way + 1);
            let (answers, waker) = (Arc::clone(&self.finished), self.waker.clone());
            let done = move |_, result| {
                answers.lock().unwrap_or_else(PoisonError::into_inner).push((std::thread::current().id(), result));
                waker.iter().for_each(stele_media::Waker::wake);
            };
            self.volume.submit(Op::Read { at: 0, buffer: Buffer::zeroed(4096) }, Priority::Host, Box::new(done));
        }
        if self.under_way > 0 {
            return stele_media::Interest::default();
        }
        let answers = std::mem::take(&mut *self.finished.lock().unwrap_or_else(PoisonError::into_inner));
        drop(self.done.send(answers));
        stele_media::Interest { end: true, ..stele_media::Interest::default() }
    }
}

#[test]
fn requests_to_another_reactor_are_answered_on_the_thread_of_their_session() {
    for spin in spins() {
        let [here, there] = [0, 1].map(|_| on_memory(ServerOptions { spin, ..ServerOptions::default() }));
        // Each has sessions that ask the other; more than its mailbox would take at once.
        let asked: Vec<_> = [(&here, &there), (&there, &here), (&here, &there)]
            .into_iter()
            .map(|(from, to)| {
                let (caller, answers) = Caller::new(volume(to, "v0"), 2_000);
                from.serve(Box::new(caller));
                (from.thread.as_ref().expect("it runs").thread().id(), answers)
            })
            .collect();
        for (thread, answers) in asked {
            let answers = answers.recv().expect("all are answered");
            assert_eq!(answers.len(), 2_000);
            assert!(answers.iter().all(|(on, result)| *on == thread && result.is_ok()));
        }
    }
}

/// Volume 2 holds its requests for ever, and its reactor takes few: the others are answered
/// `Retry`.
/// When that reactor stops, the rest is answered, too.
#[test]
fn requests_to_a_reactor_that_is_full_or_stops_are_all_answered() {
    let here = on_memory(ServerOptions::default());
    let there = on_memory(ServerOptions { mailbox: 4, ..ServerOptions::default() });
    let (caller, answers) = Caller::new(volume(&there, "v2"), 40);
    here.serve(Box::new(caller));
    assert!(answers.try_recv().is_err());
    there.command_blocking(Command::ListVolumes).expect("it answers");
    drop(there);
    let answers = answers.recv().expect("all are answered");
    assert_eq!(answers.len(), 40);
    assert!(answers.iter().all(|(_, result)| {
        matches!(result, Err(error) if [MediaFault::Retry, MediaFault::Gone].contains(&error.fault))
    }));
    // The other way round: the session's reactor stops first.
    let there = on_memory(ServerOptions::default());
    let (caller, answers) = Caller::new(volume(&there, "v2"), 40);
    here.serve(Box::new(caller));
    here.command_blocking(Command::ListVolumes).expect("it answers");
    drop(here);
    drop(there);
    assert!(answers.recv().is_err(), "the session went with its reactor");
}
