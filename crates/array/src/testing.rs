//! A fixture for tests of whole pools: simulated drives, a pool on them, and verbs that wait for
//! the answer.

use std::rc::Rc;

use stele_codes::Code;
use stele_ground::{Bytes, DriveId, PoolId, VolumeId};
use stele_media::{Buffer, Extent, MediaError, Op, Priority, Request};

use crate::drives::label::ANCHOR_AT;
use crate::durable::anchor::SLOT;
use crate::engine::Engine;
use crate::model::mutation::Mutations;
use crate::model::{
    Action, Alarm, AlarmKind, ArrayError, Attached, Command, CreateOptions, DigestUnit, Event, OpenOptions, PoolStatus,
    Reply, VolumeSpec, VolumeStatus, WriteMode,
};
use crate::pool::{Pool, State};
use crate::testing::drives::{End, TestDrive, TestDrives};

pub mod drives;

pub struct Fixture {
    pub test_drives: TestDrives,
    pub pool: Pool,
    pub options: OpenOptions,
    pub alarms: Vec<Alarm>,
    pub mutations: Mutations,
    /// A drive that has half its size when the pool is opened.
    pub shrunk: Option<usize>,
    enclosures: u32,
    next: u64,
}

/// An operation as it came back, its buffers in it, and what came of it.
pub type Answer = (Op, Result<(), MediaError>);

/// Why an answer did not come.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NoAnswer {
    PowerCut,
    Media(MediaError),
    Array(ArrayError),
    Silence,
}

pub fn spec(name: &str, code: &str, size: u64) -> VolumeSpec {
    VolumeSpec {
        name: name.into(),
        code: code.parse::<Code>().expect("a code"),
        size: Bytes(size),
        strip: Bytes(16 << 10),
        block: Bytes(4096),
        digest: DigestUnit::Block,
        mode: WriteMode::WriteBack,
        fully_allocated: false,
        spread: false,
        owner: None,
    }
}

fn identities(count: usize) -> Vec<DriveId> {
    (0..count).map(|at| DriveId([at as u8 + 1; 16])).collect()
}

impl Fixture {
    /// A new pool, ready.
    pub fn new(drives: usize, enclosures: u32, seed: u64) -> Fixture {
        let options = OpenOptions { seed, ..OpenOptions::default() };
        let mut fixture = Fixture::blank(drives, enclosures, seed, options);
        assert_eq!(fixture.settle(), Ok(()), "{:?}", fixture.pool.state());
        fixture
    }

    /// A new pool with an identity of its own.
    pub fn of_pool(drives: usize, enclosures: u32, seed: u64, pool: u8) -> Fixture {
        let mut fixture =
            Fixture::begin(drives, enclosures, seed, OpenOptions::default(), |create| create.pool = PoolId([pool; 16]));
        assert_eq!(fixture.settle(), Ok(()));
        fixture
    }

    /// A new pool whose creation has only begun.
    pub fn blank(drives: usize, enclosures: u32, seed: u64, options: OpenOptions) -> Fixture {
        Fixture::begin(drives, enclosures, seed, options, |_| ())
    }

    /// As `blank`, created otherwise than by default.
    pub fn begin(
        drives: usize,
        enclosures: u32,
        seed: u64,
        options: OpenOptions,
        change: impl FnOnce(&mut CreateOptions),
    ) -> Fixture {
        Fixture::begin_on(TestDrives::new(drives, Bytes(64 << 20), seed), enclosures, seed, options, change)
    }

    /// As `begin`, on these drives.
    pub fn begin_on(
        test_drives: TestDrives,
        enclosures: u32,
        seed: u64,
        options: OpenOptions,
        change: impl FnOnce(&mut CreateOptions),
    ) -> Fixture {
        let drives = test_drives.drives.len();
        let attached = attached(&test_drives, enclosures);
        let mut create = CreateOptions {
            pool: PoolId([7; 16]),
            name: "fixture".into(),
            drives: identities(drives),
            seed,
            log: Some(Bytes(8 << 20)),
            spare_drives: None,
            created: 1_700_000_000,
            shard: Default::default(),
        };
        change(&mut create);
        let pool = Pool::create(create, options.clone(), attached, test_drives.now());
        Fixture {
            test_drives,
            pool,
            options,
            alarms: Vec::new(),
            mutations: Mutations::default(),
            shrunk: None,
            enclosures,
            next: 0,
        }
    }

    /// Runs until the pool is ready, failed or closed.
    pub fn settle(&mut self) -> Result<(), NoAnswer> {
        let mut answers = Vec::new();
        let end = self.test_drives.run_pool(&mut self.pool, &mut answers, |_, pool| *pool.state() != State::Starting);
        self.note(answers);
        match (end, self.pool.state()) {
            (_, State::Ready { .. } | State::Closed) => Ok(()),
            (End::PowerCut, _) => Err(NoAnswer::PowerCut),
            (_, State::Failed(error)) => Err(NoAnswer::Array(error.clone())),
            (_, State::Starting) => Err(NoAnswer::Silence),
        }
    }

    /// The power goes, and comes back: the pool is opened again.
    pub fn crash(&mut self) -> Result<(), NoAnswer> {
        self.test_drives.cut();
        self.open()
    }

    pub fn open(&mut self) -> Result<(), NoAnswer> {
        self.begin_to_open();
        self.settle()
    }

    /// Opens the pool on all drives, and leaves it there.
    pub fn begin_to_open(&mut self) {
        let mut drives = attached(&self.test_drives, self.enclosures);
        if let Some(drive) = self.shrunk.and_then(|shrunk| drives.get_mut(shrunk)) {
            drive.geometry.size.0 /= 2;
        }
        self.pool = Pool::open(self.options.clone(), drives, self.test_drives.now());
        self.pool.set_mutations(self.mutations);
    }

    /// Lets so many drive operations end.
    pub fn run_operations(&mut self, count: u64) {
        let mut answers = Vec::new();
        let mut left = count;
        self.test_drives.run_pool(&mut self.pool, &mut answers, |_, _| {
            let done = left == 0;
            left = left.saturating_sub(1);
            done
        });
        self.note(answers);
    }

    fn note(&mut self, answers: Vec<Action>) -> Vec<Action> {
        let mut rest = Vec::new();
        for answer in answers {
            match answer {
                Action::Alarm(alarm) => self.alarms.push(alarm),
                other => rest.push(other),
            }
        }
        rest
    }

    /// Several operations at once; answers in the order given. The power may go before all have
    /// answered.
    pub fn submit_all(&mut self, volume: VolumeId, ops: Vec<Op>) -> (End, Vec<Option<Answer>>) {
        self.submit_all_and(volume, ops, |_, _| ())
    }

    /// As `submit_all`, and when the operations have been begun something else happens.
    pub fn submit_all_and(
        &mut self,
        volume: VolumeId,
        ops: Vec<Op>,
        and: impl FnOnce(&mut TestDrives, &mut Pool),
    ) -> (End, Vec<Option<Answer>>) {
        let first = self.next;
        let count = ops.len();
        for op in ops {
            let request = Request { tag: self.next, op, priority: Priority::Host, deadline: None };
            self.next += 1;
            self.pool.event(Event::Submit { volume, request });
        }
        let mut answers = Vec::new();
        self.pool.run(self.test_drives.now());
        and(&mut self.test_drives, &mut self.pool);
        let finished = |answers: &[Action], _: &Pool| {
            answers.iter().filter(|answer| matches!(answer, Action::Finished { .. })).count() == count
        };
        let end = self.test_drives.run_pool(&mut self.pool, &mut answers, finished);
        let mut results: Vec<Option<Answer>> = (0..count).map(|_| None).collect();
        for answer in self.note(answers) {
            if let Action::Finished { completion, .. } = answer
                && completion.tag >= first
            {
                results[(completion.tag - first) as usize] = Some((completion.op, completion.result));
            }
        }
        (end, results)
    }

    fn submit(&mut self, volume: VolumeId, op: Op) -> Result<Op, NoAnswer> {
        let (end, mut results) = self.submit_all(volume, vec![op]);
        match (results.pop().flatten(), end) {
            (Some((op, Ok(()))), _) => Ok(op),
            (Some((_, Err(error))), _) => Err(NoAnswer::Media(error)),
            (None, End::PowerCut) => Err(NoAnswer::PowerCut),
            (None, End::Idle) => Err(NoAnswer::Silence),
        }
    }

    pub fn write(&mut self, volume: VolumeId, at: u64, data: &[u8]) -> Result<(), NoAnswer> {
        let data = vec![Buffer::copy_of(data).freeze()];
        self.submit(volume, Op::Write { at, data, fua: false }).map(drop)
    }

    /// A write that is to be there as a whole or not at all.
    pub fn write_atomic(&mut self, volume: VolumeId, at: u64, data: &[u8]) -> Result<(), NoAnswer> {
        let tag = self.next;
        self.next += 1;
        let op = Op::Write { at, data: vec![Buffer::copy_of(data).freeze()], fua: false };
        let request = Request { tag, op, priority: Priority::Host, deadline: None };
        self.pool.event(Event::SubmitAtomic { volume, request });
        let mut answers = Vec::new();
        let finished =
            |answers: &[Action], _: &Pool| answers.iter().any(|answer| matches!(answer, Action::Finished { .. }));
        let end = self.test_drives.run_pool(&mut self.pool, &mut answers, finished);
        for answer in self.note(answers) {
            if let Action::Finished { completion, .. } = answer
                && completion.tag == tag
            {
                return completion.result.map_err(NoAnswer::Media);
            }
        }
        Err(if let End::PowerCut = end { NoAnswer::PowerCut } else { NoAnswer::Silence })
    }

    /// By a read or by a view, in turn.
    pub fn read(&mut self, volume: VolumeId, at: u64, length: usize) -> Result<Vec<u8>, NoAnswer> {
        let op = match self.next.is_multiple_of(2) {
            true => Op::Read { at, buffer: Buffer::zeroed(length) },
            false => Op::View { at, length: length as u64, pieces: Vec::new() },
        };
        match self.submit(volume, op)? {
            Op::Read { buffer, .. } => Ok(buffer.to_vec()),
            Op::View { pieces, .. } => Ok(pieces.concat()),
            other => panic!("{other:?}"),
        }
    }

    pub fn discard(&mut self, volume: VolumeId, at: u64, length: u64) -> Result<(), NoAnswer> {
        self.submit(volume, Op::Discard { at, length }).map(drop)
    }

    pub fn extents(&mut self, volume: VolumeId, length: u64, since: Option<VolumeId>) -> Vec<Extent> {
        match self.submit(volume, Op::Extents { at: 0, length, since, extents: Vec::new() }) {
            Ok(Op::Extents { extents, .. }) => extents,
            other => panic!("{other:?}"),
        }
    }

    pub fn command(&mut self, command: Command) -> Result<Reply, NoAnswer> {
        self.pool.event(Event::Command { id: self.next, command });
        self.next += 1;
        let mut answers = Vec::new();
        let replied =
            |answers: &[Action], _: &Pool| answers.iter().any(|answer| matches!(answer, Action::Reply { .. }));
        let end = self.test_drives.run_pool(&mut self.pool, &mut answers, replied);
        for answer in self.note(answers) {
            if let Action::Reply { reply, .. } = answer {
                return reply.map_err(NoAnswer::Array);
            }
        }
        Err(if end == End::PowerCut { NoAnswer::PowerCut } else { NoAnswer::Silence })
    }

    /// As `command`; after so many drive operations something else happens.
    pub fn command_and(
        &mut self,
        command: Command,
        operations: u64,
        and: impl FnOnce(&mut TestDrives),
    ) -> Result<Reply, NoAnswer> {
        self.begin_command(command);
        let mut answers = Vec::new();
        let replied = |answers: &[Action]| answers.iter().any(|answer| matches!(answer, Action::Reply { .. }));
        let mut left = operations;
        self.test_drives.run_pool(&mut self.pool, &mut answers, |answers, _| {
            let is_over = left == 0 || replied(answers);
            left = left.saturating_sub(1);
            is_over
        });
        and(&mut self.test_drives);
        let end = self.test_drives.run_pool(&mut self.pool, &mut answers, |answers, _| replied(answers));
        for answer in self.note(answers) {
            if let Action::Reply { reply, .. } = answer {
                return reply.map_err(NoAnswer::Array);
            }
        }
        Err(if end == End::PowerCut { NoAnswer::PowerCut } else { NoAnswer::Silence })
    }

    /// Gives a command whose answer no test waits for.
    pub fn begin_command(&mut self, command: Command) {
        self.pool.event(Event::Command { id: self.next, command });
        self.next += 1;
    }

    /// Several commands at once; answers in the order given.
    pub fn command_all(&mut self, commands: Vec<Command>) -> Vec<Option<Result<Reply, ArrayError>>> {
        let (first, count) = (self.next, commands.len());
        commands.into_iter().for_each(|command| self.begin_command(command));
        let mut answers = Vec::new();
        self.test_drives.run_pool(&mut self.pool, &mut answers, |answers, _| {
            answers.iter().filter(|answer| matches!(answer, Action::Reply { .. })).count() == count
        });
        let mut replies: Vec<_> = (0..count).map(|_| None).collect();
        for answer in self.note(answers) {
            if let Action::Reply { id, reply } = answer
                && let Some(place) = replies.get_mut((id - first) as usize)
            {
                *place = Some(reply);
            }
        }
        replies
    }

    pub fn create_volume(&mut self, spec: VolumeSpec) -> VolumeStatus {
        match self.command(Command::CreateVolume(spec)) {
            Ok(Reply::Volume(volume)) => volume,
            other => panic!("{other:?}"),
        }
    }

    pub fn status(&mut self) -> PoolStatus {
        match self.command(Command::Status) {
            Ok(Reply::Status(status)) => *status,
            other => panic!("{other:?}"),
        }
    }

    /// A close that fails, since no drive takes an anchor; something else happens meanwhile.
    pub fn fail_to_close(&mut self, meanwhile: impl FnOnce(&mut Fixture)) {
        let anchors = ANCHOR_AT..ANCHOR_AT + 2 * SLOT;
        let moment = stele_ground::Duration::from_millis(100);
        self.test_drives.held = Some(anchors.clone());
        self.begin_command(Command::Close);
        self.pass(moment);
        assert!(self.engine().standing.is_closing(), "the close is held up");
        meanwhile(self);
        self.pass(moment);
        self.test_drives.drives.iter_mut().for_each(|drive| drive.fails_at = anchors.clone());
        self.test_drives.held = None;
        self.pass(moment);
        self.test_drives.drives.iter_mut().for_each(|drive| drive.fails_at = 0..0);
        assert!(!self.engine().standing.is_closing(), "the close has failed");
    }

    /// The engine of the open pool.
    pub fn engine(&self) -> Rc<Engine> {
        Rc::clone(&self.pool.serving().expect("it is open").engine)
    }

    /// The messages of all alarms of a kind so far.
    pub fn told(&self, kind: AlarmKind) -> Vec<&str> {
        self.alarms.iter().filter(|alarm| alarm.kind == kind).map(|alarm| alarm.message.as_str()).collect()
    }

    /// Lets the pool do what it wants to do on its own.
    pub fn idle(&mut self) {
        let mut answers = Vec::new();
        self.test_drives.run_pool(&mut self.pool, &mut answers, |_, _| false);
        self.note(answers);
    }

    /// Lets so much time go by.
    pub fn pass(&mut self, span: stele_ground::Duration) {
        let end = self.test_drives.now() + span;
        let mut answers = Vec::new();
        self.test_drives.run_pool_until(&mut self.pool, &mut answers, end);
        self.note(answers);
    }

    /// Three drives with strips of the same stripes, of ten strips each.
    pub fn drives_of_a_row(&self) -> Vec<usize> {
        self.drives_of_rows("8+2", 3)
    }

    /// So many drives with strips of the same stripes of the code.
    pub fn drives_of_rows(&self, code: &str, count: usize) -> Vec<usize> {
        let engine = &self.pool.serving().expect("it is open").engine;
        let code: Code = code.parse().expect("a code");
        let layout = engine.layout.read();
        let mut rows = layout.rows().filter(|row| row.class.code == code);
        let row = rows.find(|row| engine.look(|core| core.space.used(row.id)) > 0).expect("a row with data");
        row.members.iter().take(count).map(|member| usize::from(member.cell.drive.0)).collect()
    }

    /// Takes drives away.
    pub fn pull(&mut self, drives: &[usize]) {
        for drive in drives {
            self.test_drives.drives[*drive].gone = true;
            self.pool.event(Event::Detach { drive: *drive });
        }
    }

    /// Attaches a drive that was pulled, as it is, under a new index.
    pub fn give_back(&mut self, drive: usize) -> usize {
        self.begin_to_give_back(drive);
        self.settle_attached()
    }

    /// As `give_back`, and the pool has not looked yet.
    pub fn begin_to_give_back(&mut self, drive: usize) {
        let mut returned = std::mem::take(&mut self.test_drives.drives[drive]);
        self.test_drives.drives[drive].gone = true;
        returned.gone = false;
        self.test_drives.drives.push(returned);
        self.attach_last();
    }

    /// Attaches a blank drive.
    pub fn add_blank(&mut self) -> usize {
        self.test_drives.drives.push(TestDrive::default());
        self.attach_last();
        self.settle_attached()
    }

    fn attach_last(&mut self) {
        let attached = attached(&self.test_drives, self.enclosures).pop().expect("a drive");
        self.pool.event(Event::Attach(attached));
    }

    fn settle_attached(&mut self) -> usize {
        let index = self.test_drives.drives.len() - 1;
        let mut answers = Vec::new();
        let until = self.test_drives.now() + stele_ground::Duration::from_millis(5);
        let test_drives = &mut self.test_drives;
        test_drives.run_pool(&mut self.pool, &mut answers, |_, pool| pool.next_wake().is_none_or(|at| at > until));
        self.note(answers);
        index
    }

    /// Verifies everything; answers damage found and repaired by the last pass.
    pub fn scrub(&mut self) -> (u64, u64) {
        let before = self.status().scrubs_finished;
        self.command(Command::StartScrub).expect("a scrub begins");
        self.idle();
        let status = self.status();
        assert_eq!(status.scrubs_finished, before + 1, "the scrub finished");
        (status.scrub_damage_found, status.scrub_damage_repaired)
    }
}

fn attached(test_drives: &TestDrives, enclosures: u32) -> Vec<Attached> {
    test_drives.attached(|at| at as u32 % enclosures)
}

/// Bytes that tell where they belong.
pub fn pattern(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    stele_ground::Dice::new(seed).fill(&mut bytes);
    bytes
}
