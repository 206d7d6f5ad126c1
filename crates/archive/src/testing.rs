//! What tests stand on: a stage with a clock that moves when told, dice for entropy, and volumes of
//! memory.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use stele_catalog::{Catalog, Direction, KeyRange, Table};
use stele_ground::{Bytes, Dice, Instant};
use stele_media::memory::MemoryDrive;
use stele_media::{Done, Drive, Geometry, Handle, MediaError, MediaFault, Op, Port, Priority, Request};

use crate::model::time::{Reading, Surroundings, Timestamp};
use crate::record::properties::{INDEX, IndexRow, IndexStage, in_words, index_of};
use crate::record::version::VersionRow;
use crate::record::{PROPERTIES, SETTINGS, VERSIONS, decode};

/// Surroundings that repeat.
pub(crate) struct Stage {
    state: Mutex<(Dice, Reading)>,
}

impl Stage {
    pub fn new(seed: u64) -> Arc<Stage> {
        let reading = Reading { monotonic: Instant(0), wall: Timestamp::from_secs(1_800_000_000) };
        Arc::new(Stage { state: Mutex::new((Dice::new(seed), reading)) })
    }

    fn state(&self) -> MutexGuard<'_, (Dice, Reading)> {
        self.state.lock().expect("no test panics while it holds the stage")
    }

    /// Time passes on both clocks.
    pub fn pass(&self, milliseconds: u64) {
        let mut state = self.state();
        state.1.monotonic = Instant(state.1.monotonic.0 + milliseconds * 1_000_000);
        state.1.wall = Timestamp(state.1.wall.0 + milliseconds);
    }

    /// Sets the wall clock, as an administrator can.
    pub fn set_wall(&self, wall: Timestamp) {
        self.state().1.wall = wall;
    }
}

impl Surroundings for Stage {
    fn now(&self) -> Reading {
        self.state().1
    }

    fn entropy(&self, into: &mut [u8]) {
        self.state().0.fill(into);
    }
}

/// How often its first size a bench can reach.
const GROWTH_MAX: u64 = 3;

/// A volume of memory that answers on the caller's thread, can lose power, be damaged and run full.
#[derive(Clone)]
pub(crate) struct Bench {
    inner: Arc<Mutex<BenchState>>,
    gate: Gate,
}

struct BenchState {
    drive: MemoryDrive,
    /// What of the drive is the volume.
    size: u64,
    /// After this many more writes everything fails, as if power were gone.
    writes_left: Option<u64>,
    dead: bool,
    full: bool,
    /// No block is written that was not written before: what a volume without a free stripe
    /// answers.
    no_new: bool,
    written: std::collections::BTreeSet<u64>,
    /// Nothing here can be read or written.
    lost: std::ops::Range<u64>,
    lost_fault: MediaFault,
    /// Writes of several blocks that only show their first one yet, as on a volume of many stripes.
    late: Option<Vec<(Op, Done)>>,
    pub writes: u64,
    pub reads: u64,
}

impl Bench {
    pub fn new(size: Bytes) -> Bench {
        let state = BenchState {
            drive: MemoryDrive::volatile(Bytes(GROWTH_MAX * size.0)),
            size: size.0,
            writes_left: None,
            dead: false,
            full: false,
            no_new: false,
            written: Default::default(),
            lost: 0..0,
            lost_fault: MediaFault::Damaged,
            late: None,
            writes: 0,
            reads: 0,
        };
        Bench { inner: Arc::new(Mutex::new(state)), gate: Gate::default() }
    }

    fn state(&self) -> MutexGuard<'_, BenchState> {
        self.inner.lock().expect("no test panics while it holds the bench")
    }

    pub fn handle(&self) -> Handle {
        Handle::new(self.clone())
    }

    pub fn size(&self) -> u64 {
        self.state().size
    }

    /// Makes the volume larger, durably. It counts as a write: where power fails in it, it is done
    /// or not, as `done` says.
    pub fn grow(&self, size: u64, done: bool) -> crate::Result<()> {
        let mut state = self.state();
        let cut = state.count_write();
        if !state.dead || cut && done {
            assert!(size >= state.size && size <= state.drive.geometry().size.0);
            state.size = size;
        }
        if state.dead { Err(crate::ArchiveError::Stopped("power is gone".into())) } else { Ok(()) }
    }

    /// Power fails after `writes` more writes.
    pub fn cut_after(&self, writes: u64) {
        self.state().writes_left = Some(writes);
    }

    pub fn is_dead(&self) -> bool {
        self.state().dead
    }

    /// Power comes back; what was not promised is gone.
    pub fn power_on(&self) {
        let mut state = self.state();
        state.drive.cut_power();
        state.dead = false;
        state.writes_left = None;
    }

    pub fn set_full(&self, full: bool) {
        self.state().full = full;
    }

    pub fn set_no_new(&self, no_new: bool) {
        self.state().no_new = no_new;
    }

    /// From here on writes of several blocks show their first one, and end when `finish_late` is
    /// called.
    pub fn be_late(&self) {
        self.state().late = Some(Vec::new());
    }

    pub fn finish_late(&self) {
        let late = self.state().late.take();
        late.into_iter().flatten().for_each(|(op, done)| self.answer(op, done));
    }

    /// A region that can be neither read nor written, as where a code has lost more than it has
    /// parity.
    pub fn lose(&self, region: std::ops::Range<u64>) {
        let mut state = self.state();
        (state.lost, state.lost_fault) = (region, MediaFault::Damaged);
    }

    /// The same where the pool does not say what is there, as after its log has stopped.
    pub fn refuse(&self, region: std::ops::Range<u64>) {
        let mut state = self.state();
        (state.lost, state.lost_fault) = (region, MediaFault::Retry);
    }

    /// Changes a byte behind everybody's back.
    pub fn flip(&self, at: u64) {
        let mut state = self.state();
        let block = at / 4096 * 4096;
        let mut bytes = state.run(Op::Read { at: block, buffer: stele_media::Buffer::zeroed(4096) }).0;
        if let Op::Read { buffer, .. } = &mut bytes {
            buffer[(at - block) as usize] ^= 0x40;
        }
        if let Op::Read { buffer, .. } = bytes {
            let written = state.run(Op::Write { at: block, data: vec![buffer.freeze()], fua: true });
            assert_eq!(written.1, Ok(()));
        }
    }
}

impl BenchState {
    /// Whether power fails in this write.
    fn count_write(&mut self) -> bool {
        self.writes += 1;
        let was = self.dead;
        if let Some(left) = &mut self.writes_left {
            match *left {
                0 => self.dead = true,
                _ => *left -= 1,
            }
        }
        self.dead && !was
    }

    fn blocks(op: &Op) -> std::ops::Range<u64> {
        op.range().map_or(0..0, |(at, length)| at / 4096..(at + length) / 4096)
    }

    fn has_written(&self, op: &Op) -> bool {
        BenchState::blocks(op).all(|block| self.written.contains(&block))
    }

    fn run(&mut self, op: Op) -> (Op, Result<(), MediaError>) {
        self.drive.submit(Request { tag: 0, op, priority: Priority::Host, deadline: None });
        let mut finished = Vec::new();
        self.drive.reap(Instant(0), &mut finished);
        let done = finished.pop().expect("a memory drive finishes at once");
        (done.op, done.result)
    }
}

fn touches(op: &Op, region: &std::ops::Range<u64>) -> bool {
    op.range().is_some_and(|(at, length)| at < region.end && region.start < at + length)
}

impl Port for Bench {
    fn geometry(&self) -> Geometry {
        let state = self.state();
        Geometry { size: Bytes(state.size), ..state.drive.geometry() }
    }

    fn submit(&self, op: Op, _priority: Priority, done: Done) {
        let bench = self.clone();
        let mut state = self.state();
        if state.late.is_some()
            && let Op::Write { at, data, .. } = &op
            && BenchState::blocks(&op).count() > 1
        {
            let first = vec![data[0].slice(..4096)];
            assert_eq!(state.run(Op::Write { at: *at, data: first, fua: false }).1, Ok(()));
            if let Some(late) = &mut state.late {
                late.push((op, done));
            }
            return;
        }
        drop(state);
        self.gate.pass(move || bench.answer(op, done));
    }
}

impl Bench {
    fn answer(&self, op: Op, done: Done) {
        let (op, result) = {
            let mut state = self.state();
            let write = matches!(op, Op::Write { .. } | Op::Zero { .. } | Op::Discard { .. });
            if write {
                state.count_write();
            } else {
                state.reads += 1;
            }
            if state.dead {
                (op, Err(MediaError::new(MediaFault::Gone, "power is gone")))
            } else if touches(&op, &state.lost) {
                (op, Err(MediaError::new(state.lost_fault, "a stripe is lost")))
            } else if write && state.full || matches!(op, Op::Write { .. }) && state.no_new && !state.has_written(&op) {
                (op, Err(MediaError::new(MediaFault::Full, "no room")))
            } else {
                if write {
                    state.written.extend(BenchState::blocks(&op));
                }
                state.run(op)
            }
        };
        done(op, result);
    }
}

/// Lets work through at once. Closed, it lets work through one by one when told, so that a test can
/// drop a waiting request.
#[derive(Clone, Default)]
pub(crate) struct Gate(Arc<Mutex<GateState>>);

type Work = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct GateState {
    closed: bool,
    waiting: VecDeque<Work>,
}

impl Gate {
    fn state(&self) -> MutexGuard<'_, GateState> {
        self.0.lock().expect("no test panics while it holds the gate")
    }

    fn pass(&self, work: impl FnOnce() + Send + 'static) {
        let mut state = self.state();
        if state.closed {
            state.waiting.push_back(Box::new(work));
        } else {
            drop(state);
            work();
        }
    }

    pub fn close(&self) {
        self.state().closed = true;
    }

    pub fn open(&self) {
        while self.step() {}
        self.state().closed = false;
    }

    /// What waits never takes place, as when power fails.
    pub fn cut(&self) {
        let waiting = std::mem::take(&mut self.state().waiting);
        drop(waiting);
        self.state().closed = false;
    }

    /// Lets one through. False: none waits.
    pub fn step(&self) -> bool {
        let work = self.state().waiting.pop_front();
        work.map(|work| work()).is_some()
    }

    /// Polls to the end, letting through what is waited for, or gives up after `polls`. None:
    /// dropped before its end.
    pub fn drive<T>(&self, future: impl Future<Output = T>, polls: usize) -> Option<T> {
        let mut future = std::pin::pin!(future);
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        for _ in 0..polls {
            if let std::task::Poll::Ready(answer) = future.as_mut().poll(&mut context) {
                return Some(answer);
            }
            if !self.step() {
                // Budgets of the runtime's primitives may need a poll more, and so may one future
                // that waits for another.
                if let std::task::Poll::Ready(answer) = future.as_mut().poll(&mut context) {
                    return Some(answer);
                }
                assert!(self.step(), "it waits for something that never comes");
            }
        }
        None
    }
}

/// A catalog whose commits wait at a gate.
pub(crate) struct WaitingCatalog {
    inner: Arc<stele_catalog::MemoryCatalog>,
    gate: Gate,
}

impl stele_catalog::Catalog for WaitingCatalog {
    fn commit(&self, transaction: stele_catalog::Transaction) -> stele_catalog::Pending<stele_catalog::Receipt> {
        let (answerer, pending) = stele_catalog::Pending::channel();
        let inner = Arc::clone(&self.inner);
        self.gate.pass(move || answerer.answer(inner.commit(transaction).wait()));
        pending
    }

    fn snapshot(&self) -> Result<Box<dyn stele_catalog::Snapshot>, stele_catalog::CatalogError> {
        self.inner.snapshot()
    }
}

/// A store on a bench, with everything around it, that can be closed and opened again.
pub(crate) struct World {
    pub stage: Arc<Stage>,
    pub bench: Bench,
    pub catalog: Arc<dyn stele_catalog::Catalog>,
    pub master: crate::MasterKey,
    pub guard: Arc<Watched>,
    pub options: crate::Options,
}

/// A guard that remembers what it was told.
#[derive(Default)]
pub(crate) struct Watched {
    pub told: Mutex<Vec<bool>>,
}

impl crate::Guard for Watched {
    fn protect(&self, retained: bool) -> std::pin::Pin<Box<dyn Future<Output = Result<(), String>> + Send>> {
        self.told.lock().expect("no test panics while it holds the guard").push(retained);
        Box::pin(std::future::ready(Ok(())))
    }
}

pub(crate) const MIB: u64 = 1 << 20;

impl World {
    pub fn new(seed: u64) -> World {
        World::sized(seed, 64 * MIB, MIB)
    }

    pub fn sized(seed: u64, volume: u64, segment: u64) -> World {
        let stage = Stage::new(seed);
        World {
            master: crate::MasterKey::generate(&*stage),
            stage,
            bench: Bench::new(Bytes(volume)),
            catalog: Arc::new(stele_catalog::MemoryCatalog::new()),
            guard: Arc::default(),
            options: crate::Options { segment: Bytes(segment), ..crate::Options::default() },
        }
    }

    /// Volume and catalog answer when the gate lets them.
    pub fn gated(seed: u64, volume: u64, segment: u64) -> (World, Gate) {
        let mut world = World::sized(seed, volume, segment);
        let gate = world.bench.gate.clone();
        world.catalog = Arc::new(WaitingCatalog { inner: Arc::default(), gate: gate.clone() });
        (world, gate)
    }

    /// As `gated`, with a gate for the volume and another one for the catalog.
    pub fn gated_apart(seed: u64, volume: u64, segment: u64) -> (World, Gate, Gate) {
        let mut world = World::sized(seed, volume, segment);
        let (volume, catalog) = (world.bench.gate.clone(), Gate::default());
        world.catalog = Arc::new(WaitingCatalog { inner: Arc::default(), gate: catalog.clone() });
        (world, volume, catalog)
    }

    pub fn foundation(&self) -> crate::Foundation {
        crate::Foundation {
            catalog: Arc::clone(&self.catalog),
            data: self.bench.handle(),
            surroundings: Arc::clone(&self.stage) as Arc<dyn Surroundings>,
            guard: Arc::clone(&self.guard) as Arc<dyn crate::Guard>,
            master: self.master.clone(),
        }
    }

    pub async fn create(&self) -> crate::Archive {
        crate::Archive::create(self.foundation(), self.options.clone()).await.expect("a new store")
    }

    pub async fn open(&self) -> crate::Archive {
        self.check_index();
        crate::Archive::open(self.foundation(), self.options.clone()).await.expect("the store opens")
    }

    /// The index of properties, where it is complete, has exactly the records of the stored
    /// versions.
    pub fn check_index(&self) {
        check_index(&*self.catalog);
    }
}

/// The counts of every bucket are those of its rows.
pub(crate) fn check_counts(archive: &crate::Archive) {
    use crate::record::{VERSIONS, decode, keys, version::VersionRow};
    use crate::state::usage::BucketCounts;
    use crate::store::scan::Scan;
    let store = archive.store();
    let snapshot = store.snapshot().expect("a snapshot");
    for bucket in store.buckets().all() {
        let range = stele_catalog::KeyRange::prefix(keys::prefix(bucket.number, ""));
        let (mut rows, mut counts) = (Scan::new(&*snapshot, VERSIONS, range), BucketCounts::default());
        while let Some((key, value)) = rows.next().expect("the versions") {
            let row: VersionRow = decode(VERSIONS, &key, &value).expect("a version");
            (counts.versions, counts.bytes) = (counts.versions + 1, counts.bytes + row.size as i64);
        }
        let parts = crate::store::uploads::parts_of_bucket(&*snapshot, &bucket).expect("the parts");
        (counts.held, counts.gateway) = (counts.bytes + parts.clients, parts.gateway);
        assert_eq!(bucket.counts(&*snapshot).expect("the counters"), counts, "bucket `{}`", bucket.name());
    }
    check_owned(archive);
}

/// Checks the counters of what access keys own, against all rows.
fn check_owned(archive: &crate::Archive) {
    use crate::Actor;
    use crate::record::{OWNED, UPLOADS, VERSIONS, decode, upload::UploadRow, version::VersionRow};
    use crate::store::scan::Scan;
    let store = archive.store();
    let snapshot = store.snapshot().expect("a snapshot");
    let mut sums = std::collections::BTreeMap::<String, (i64, i64)>::new();
    let mut add = |owner: Actor, versions: i64, bytes: i64| {
        if let Actor::Key(id) = owner {
            let sum = sums.entry(id).or_default();
            *sum = (sum.0 + versions, sum.1 + bytes);
        }
    };
    let all = stele_catalog::KeyRange::all();
    let mut rows = Scan::new(&*snapshot, VERSIONS, all.clone());
    while let Some((key, value)) = rows.next().expect("the versions") {
        let row: VersionRow = decode(VERSIONS, &key, &value).expect("a version");
        add(row.owner, 1, row.size as i64);
    }
    let mut rows = Scan::new(&*snapshot, UPLOADS, all.clone());
    while let Some((key, value)) = rows.next().expect("the uploads") {
        let row: UploadRow = decode(UPLOADS, &key, &value).expect("an upload");
        let parts = crate::store::uploads::part_rows(&*snapshot, row.object).expect("the parts");
        add(row.owner, 0, crate::store::uploads::size_of(parts.values()));
    }
    let mut counted = std::collections::BTreeMap::<String, (i64, i64)>::new();
    let mut rows = Scan::new(&*snapshot, OWNED, all);
    while let Some((key, value)) = rows.next().expect("the counters") {
        let (id, letter) = key.split_at(key.len() - 2);
        let count = stele_catalog::transaction::counter(Some(&value)).expect("a counter");
        let sum = counted.entry(String::from_utf8_lossy(id).into_owned()).or_default();
        match letter {
            [0, b'v'] => sum.0 = count,
            _ => sum.1 = count,
        }
    }
    sums.retain(|_, sum| *sum != (0, 0));
    counted.retain(|_, sum| *sum != (0, 0));
    assert_eq!(counted, sums, "what access keys own");
}

pub(crate) fn admin() -> crate::Caller {
    crate::Caller::local(0)
}

/// A retention officer with a key of its own, as a user of this machine.
pub(crate) fn officer(key: &str, uid: u32) -> crate::Caller {
    let mut officer = crate::Caller::anonymous().at(uid);
    officer.actor = crate::Actor::Key(key.into());
    officer.rights = Arc::new(crate::Rights::officer());
    officer
}

/// Content that repeats for a seed.
pub(crate) fn content(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    Dice::new(seed).fill(&mut bytes);
    bytes
}

pub(crate) async fn put(
    archive: &crate::Archive,
    bucket: &str,
    key: &str,
    data: &[u8],
) -> crate::Result<crate::ObjectInfo> {
    let request = crate::PutRequest { bucket: bucket.into(), key: key.into(), ..crate::PutRequest::default() };
    put_as(archive, &admin(), request, data).await
}

pub(crate) async fn put_as(
    archive: &crate::Archive,
    caller: &crate::Caller,
    request: crate::PutRequest,
    data: &[u8],
) -> crate::Result<crate::ObjectInfo> {
    let mut writer = archive.put(caller, request).await?;
    for chunk in data.chunks(100_000) {
        writer.write(bytes::Bytes::copy_from_slice(chunk)).await?;
    }
    writer.finish(crate::Expected::default()).await
}

pub(crate) async fn get(archive: &crate::Archive, bucket: &str, key: &str) -> crate::Result<Vec<u8>> {
    get_with(archive, crate::GetRequest { bucket: bucket.into(), key: key.into(), ..crate::GetRequest::default() })
        .await
}

pub(crate) async fn get_with(archive: &crate::Archive, request: crate::GetRequest) -> crate::Result<Vec<u8>> {
    let mut reader = archive.get(&admin(), request).await?;
    let mut all = Vec::new();
    while let Some(bytes) = reader.next().await {
        all.extend_from_slice(&bytes?);
    }
    assert_eq!(all.len() as u64, reader.range.end - reader.range.start);
    Ok(all)
}

/// Every record of a table.
pub(crate) fn records(catalog: &dyn Catalog, table: Table) -> Vec<(bytes::Bytes, bytes::Bytes)> {
    let snapshot = catalog.snapshot().unwrap();
    snapshot.range(table, &KeyRange::all(), usize::MAX, Direction::Forward).unwrap()
}

pub(crate) fn check_index(catalog: &dyn Catalog) {
    let row = catalog.snapshot().unwrap().get(SETTINGS, INDEX).unwrap();
    let row: Option<IndexRow> = row.and_then(|raw| minicbor::decode(&raw).ok());
    if row.is_none_or(|row| row.stage != IndexStage::Complete) {
        return;
    }
    let mut expected = BTreeSet::new();
    for (key, value) in records(catalog, VERSIONS) {
        // Some tests damage a row.
        let Ok(version) = decode::<VersionRow>(VERSIONS, &key, &value) else { return };
        expected.extend(index_of(&version, &key).map(|(_, record, _)| record));
    }
    let stored: BTreeSet<_> = records(catalog, PROPERTIES).into_iter().map(|(record, _)| record).collect();
    let wrong: Vec<String> = stored.symmetric_difference(&expected).map(|record| in_words(record).unwrap()).collect();
    assert!(wrong.is_empty(), "{} of {} records are missing or too many: {wrong:?}", wrong.len(), expected.len());
}
