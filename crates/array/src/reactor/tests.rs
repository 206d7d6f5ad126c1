use std::collections::BTreeMap;
use std::sync::mpsc;
use std::sync::{Mutex, PoisonError};

use stele_codes::Code;
use stele_ground::{Dice, Instant, MIB, VolumeId};
use stele_media::conformance::{self, Subject};
use stele_media::{Buffer, Completion, Geometry, MediaError, MediaFault, MemoryDrive, Op, Priority, Remote, Request};

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

fn start(sources: Vec<Source>, options: ServerOptions) -> Result<PoolServer, ArrayError> {
    PoolServer::start(sources, options, Through::new)
}

fn on_memory(options: ServerOptions) -> PoolServer {
    start(vec![Source::other(MemoryDrive::new(Bytes(8 * MIB)), "memory", 0)], options).expect("started")
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
    _server: PoolServer,
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
            Box::new(Far { drive: Remote::new(server.volume("v0").expect("a volume")), _server: server })
        });
    }
    let scratch = Scratch::new("conform");
    for engine in [Engine::Best, Engine::Threads] {
        conformance::check("reactor on a file", 2, &mut |seed| {
            let path = scratch.0.join(format!("{seed}-{engine:?}"));
            let file = DriveFile::create(&path, Bytes(4 * MIB), Space::Sparse).expect("created");
            let options = ServerOptions { engine, ..ServerOptions::default() };
            let server = start(vec![Source::file(file, 0)], options).expect("started");
            Box::new(Far { drive: Remote::new(server.volume("v0").expect("a volume")), _server: server })
        });
    }
}

#[test]
fn no_completion_is_lost_among_many_threads() {
    for spin in spins() {
        let server = on_memory(ServerOptions { spin, mailbox: 64, ..ServerOptions::default() });
        let handles = [server.volume("v0").expect("a volume"), server.volume("v1").expect("a volume")];
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
        server.close().expect("closed");
    }
}

#[test]
fn at_the_mailbox_limit_submitters_get_retry_and_commands_still_pass() {
    let server = on_memory(ServerOptions { mailbox: 10, ..ServerOptions::default() });
    let held = server.volume("v2").expect("a volume");
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
    assert!(server.volume("v0").is_ok(), "a command passes");
    drop(server);
    assert_eq!(seen().len(), total, "everybody is answered in the end");
    assert_eq!(seen().last(), Some(&MediaFault::Gone));
    assert_eq!(held.flush_blocking().expect_err("stopped").fault, MediaFault::Gone);
}

#[test]
fn a_wake_comes_at_its_time_without_any_event() {
    for spin in spins() {
        let server = on_memory(ServerOptions { spin, ..ServerOptions::default() });
        let held = server.volume("v1").expect("a volume");
        let before = now();
        held.flush_blocking().expect("held, then done");
        assert!(now().since(before) >= HOLD);
    }
}

#[test]
fn when_a_belief_breaks_everybody_is_told() {
    let server = on_memory(ServerOptions::default());
    let waiting = server.volume("v2").expect("a volume");
    let (sender, receiver) = mpsc::channel();
    waiting.submit(Op::Flush, Priority::Host, Box::new(move |_, result| sender.send(result).expect("waiting")));
    let breaking = server.volume("v3").expect("a volume");
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
    let waiting = server.volume("v2").expect("a volume");
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
    let volume = server.volume("v0").expect("a volume");
    assert_eq!(volume.geometry().size, Bytes(8 * MIB));
    for size in [Bytes(8 * MIB), Bytes(9 * MIB), Bytes(6 * MIB)] {
        let resize = Command::ResizeVolume { name: "v0".to_owned(), size };
        server.command_blocking(resize).expect("resized");
        assert_eq!(volume.geometry().size, size);
    }
    assert!(matches!(server.volume("none"), Err(ArrayError::Missing(_))));
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
    let volume = server.volume("v0").expect("a volume");
    open.store(false, std::sync::atomic::Ordering::Release);
    let (sender, receiver) = mpsc::channel();
    volume.submit(Op::Flush, Priority::Host, Box::new(move |_, result| sender.send(result).expect("waiting")));
    // The answer to a listing shows that the flush has been handed on.
    server.volume("v0").expect("a volume");
    server.detach(0);
    assert_eq!(volume.flush_blocking().expect_err("detached").fault, MediaFault::Gone);
    open.store(true, std::sync::atomic::Ordering::Release);
    receiver.recv().expect("answered").expect("it was under way");
    assert_eq!(server.attach_on(Source::other(MemoryDrive::new(Bytes(MIB)), "more", 1)).expect("attached"), 1);
}

#[test]
fn a_server_may_be_dropped_by_a_completion() {
    let server = on_memory(ServerOptions::default());
    let volume = server.volume("v0").expect("a volume");
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
