//! What the tests stand on: an archive on memory, a cache volume that can lose power, and a clock
//! that moves when told.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures_channel::oneshot;
use stele_archive::{
    Archive, BucketChange, DefaultRetention, Foundation, MasterKey, NewBucket, NoGuard, Options, Period, Reading,
    Surroundings, Timestamp,
};
use stele_catalog::embedded::{self, Format, InlineCatalog};
use stele_catalog::{Catalog, CatalogError, MemoryCatalog, Pending, Receipt, Snapshot, Transaction};
use stele_ground::{Bytes as Size, Dice, Instant};
use stele_media::{
    Done, Drive, ExtentState, Geometry, Handle, MediaError, MediaFault, MemoryDrive, Op, Port, Priority, Request,
};

use crate::files::Files;
use crate::share::autocommit::RETURN;
use crate::share::{BODY_MAX, Ground, Root, Settings, Share};
use crate::{Caller, Changes, Creation, Inode, Moment, Stability};

pub const NAME: &str = "files";
pub const CACHE: u64 = 64 << 20;
/// As of a volume of 4+2.
pub const CACHE_UNIT: u64 = 256 << 10;
const DATA: u64 = 512 << 20;

/// Surroundings that repeat.
pub struct Clock {
    state: Mutex<(Dice, Reading)>,
}

impl Surroundings for Clock {
    fn now(&self) -> Reading {
        self.state.lock().expect("no test panics with the clock").1
    }

    fn entropy(&self, into: &mut [u8]) {
        self.state.lock().expect("no test panics with the clock").0.fill(into);
    }
}

/// A volume of memory that answers at once, unless it has lost power.
#[derive(Clone)]
pub struct Volume(Arc<Mutex<(MemoryDrive, Option<u64>)>>, Arc<Mutex<Refused>>);

/// How operations fail, or wait.
#[derive(Default)]
struct Refused {
    writes: Option<MediaFault>,
    reads: Option<MediaFault>,
    discards: Option<MediaFault>,
    /// Discards wait here.
    held: Option<Vec<(Op, Done)>>,
}

impl Volume {
    fn new(size: u64) -> Volume {
        Volume::of(MemoryDrive::volatile(Size(size)))
    }

    fn of(drive: MemoryDrive) -> Volume {
        Volume(Arc::new(Mutex::new((drive, None))), Arc::default())
    }

    /// Writes fail like this from here on, or take place again.
    pub fn refuse_writes(&self, fault: Option<MediaFault>) {
        self.1.lock().expect("no test panics with the volume").writes = fault;
    }

    /// The same for reads.
    pub fn refuse_reads(&self, fault: Option<MediaFault>) {
        self.1.lock().expect("no test panics with the volume").reads = fault;
    }

    /// The same for discards.
    pub fn refuse_discards(&self, fault: Option<MediaFault>) {
        self.1.lock().expect("no test panics with the volume").discards = fault;
    }

    /// Discards wait from here on.
    pub fn hold_discards(&self) {
        self.1.lock().expect("no test panics with the volume").held = Some(Vec::new());
    }

    /// Discards that wait take place. Answers how many there were.
    pub fn let_discards_go(&self) -> usize {
        let held = self.1.lock().expect("no test panics with the volume").held.take().unwrap_or_default();
        let count = held.len();
        held.into_iter().for_each(|(op, done)| self.submit(op, Priority::Host, done));
        count
    }

    /// Bytes that take space.
    pub async fn backed(&self) -> u64 {
        let extents = Handle::new(self.clone()).extents(0, CACHE).await.expect("a volume of memory tells its extents");
        extents.iter().filter(|extent| extent.state == ExtentState::Data).map(|extent| extent.length).sum()
    }

    /// Power fails before the operation that comes after this many others.
    pub fn cut_after(&self, operations: u64) {
        self.0.lock().expect("no test panics with the volume").1 = Some(operations);
    }

    pub fn power_on(&self) {
        let mut state = self.0.lock().expect("no test panics with the volume");
        state.0.cut_power();
        state.1 = None;
    }
}

impl Port for Volume {
    fn geometry(&self) -> Geometry {
        self.0.lock().expect("no test panics with the volume").0.geometry()
    }

    fn submit(&self, op: Op, priority: Priority, done: Done) {
        let refused = {
            let mut refused = self.1.lock().expect("no test panics with the volume");
            match &op {
                Op::Write { .. } => refused.writes,
                Op::Read { .. } => refused.reads,
                Op::Discard { .. } => match &mut refused.held {
                    Some(held) => return held.push((op, done)),
                    None => refused.discards,
                },
                _ => None,
            }
        };
        if let Some(fault) = refused {
            return done(op, Err(MediaError::new(fault, "the test says so")));
        }
        let mut state = self.0.lock().expect("no test panics with the volume");
        match &mut state.1 {
            Some(0) => {
                drop(state);
                return done(op, Err(MediaError::new(MediaFault::Gone, "power is gone")));
            }
            Some(left) => *left -= 1,
            None => {}
        }
        let mut finished = Vec::new();
        state.0.submit(Request { tag: 0, op, priority, deadline: None });
        state.0.reap(Instant(0), &mut finished);
        drop(state);
        let completion = finished.pop().expect("a drive of memory answers at once");
        done(completion.op, completion.result);
    }
}

type Queue = VecDeque<(Transaction, oneshot::Sender<Result<Receipt, CatalogError>>)>;

/// A catalog that holds transactions back while it is told to, and refuses those of a kind once.
#[derive(Clone)]
pub struct Held {
    catalog: Arc<MemoryCatalog>,
    state: Arc<Mutex<HeldState>>,
}

#[derive(Default)]
struct HeldState {
    holding: bool,
    /// Every transaction is to come again.
    busy: bool,
    queue: Queue,
}

impl Held {
    fn locked(&self) -> std::sync::MutexGuard<'_, HeldState> {
        self.state.lock().expect("no test panics with the queue")
    }

    /// From here on transactions wait.
    pub fn hold(&self) {
        self.locked().holding = true;
    }

    /// Transactions that wait.
    pub fn waiting(&self) -> usize {
        self.locked().queue.len()
    }

    /// The first transaction that waits takes effect.
    pub async fn release_one(&self) {
        let first = self.locked().queue.pop_front();
        if let Some((transaction, answerer)) = first {
            drop(answerer.send(self.catalog.commit(transaction).await));
        }
    }

    /// Transactions that wait take effect in their order, and later ones at once.
    pub async fn release(&self) {
        let queue = {
            let mut state = self.locked();
            state.holding = false;
            std::mem::take(&mut state.queue)
        };
        for (transaction, answerer) in queue {
            drop(answerer.send(self.catalog.commit(transaction).await));
        }
    }

    /// The last transaction that waits is answered as refused for want of space.
    pub fn refuse_last(&self) {
        if let Some((_, answerer)) = self.locked().queue.pop_back() {
            drop(answerer.send(Err(CatalogError::Full("the test says so".into()))));
        }
    }

    /// Transactions that wait are answered as refused for want of space, and later ones take effect
    /// at once.
    pub fn refuse(&self) {
        self.refuse_with(&CatalogError::Full("the test says so".into()));
    }

    /// The same, but they are to come again.
    pub fn put_off(&self) {
        self.refuse_with(&CatalogError::Busy);
    }

    /// The same, and later ones too.
    pub fn put_all_off(&self) {
        self.locked().busy = true;
        self.put_off();
    }

    fn refuse_with(&self, error: &CatalogError) {
        let mut state = self.locked();
        state.holding = false;
        for (_, answerer) in std::mem::take(&mut state.queue) {
            drop(answerer.send(Err(error.clone())));
        }
    }
}

impl Catalog for Held {
    fn commit(&self, transaction: Transaction) -> Pending<Receipt> {
        let mut state = self.locked();
        if state.busy {
            return Pending::ready(Err(CatalogError::Busy));
        }
        if !state.holding {
            drop(state);
            return self.catalog.commit(transaction);
        }
        let (answerer, answer) = oneshot::channel();
        state.queue.push_back((transaction, answerer));
        Pending::future(async move {
            answer.await.unwrap_or_else(|_| Err(CatalogError::Stopped("the test has ended".into())))
        })
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot>, CatalogError> {
        self.catalog.snapshot()
    }
}

/// A catalog whose transactions take effect a moment after they were handed over, in order.
struct Late {
    catalog: Arc<MemoryCatalog>,
    queue: Arc<Mutex<Queue>>,
}

impl Catalog for Late {
    fn commit(&self, transaction: Transaction) -> Pending<Receipt> {
        let (answerer, answer) = oneshot::channel();
        let (catalog, queue) = (Arc::clone(&self.catalog), Arc::clone(&self.queue));
        queue.lock().expect("no test panics with the queue").push_back((transaction, answerer));
        tokio::spawn(async move {
            for _ in 0..3 {
                tokio::task::yield_now().await;
            }
            let next = queue.lock().expect("no test panics with the queue").pop_front();
            if let Some((transaction, answerer)) = next {
                drop(answerer.send(catalog.commit(transaction).await));
            }
        });
        Pending::future(async move {
            answer.await.unwrap_or_else(|_| Err(CatalogError::Stopped("the test has ended".into())))
        })
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot>, CatalogError> {
        self.catalog.snapshot()
    }
}

#[derive(Clone)]
pub struct Stage {
    pub clock: Arc<Clock>,
    pub cache: Volume,
    pub data: Volume,
    master: Arc<std::sync::OnceLock<MasterKey>>,
    catalog: Arc<MemoryCatalog>,
    late: bool,
    /// In place of the catalog in memory.
    other: Option<Arc<dyn Catalog>>,
    pub held: Held,
    archive: Arc<tokio::sync::OnceCell<Archive>>,
    pub settings: Settings,
    pub bucket: NewBucket,
}

impl Stage {
    pub fn new(seed: u64) -> Stage {
        let catalog = Arc::new(MemoryCatalog::new());
        let reading = Reading { monotonic: Instant(0), wall: Timestamp::from_secs(1_800_000_000) };
        Stage {
            clock: Arc::new(Clock { state: Mutex::new((Dice::new(seed), reading)) }),
            cache: Volume::new(CACHE),
            data: Volume::new(DATA),
            master: Arc::default(),
            held: Held { catalog: Arc::clone(&catalog), state: Arc::default() },
            catalog,
            late: false,
            other: None,
            archive: Arc::default(),
            settings: Settings::default(),
            bucket: NewBucket::default(),
        }
    }

    /// Files are committed by removing every write permission; the default is 10 days.
    pub fn committing(mut self) -> Stage {
        self.bucket.object_lock = true;
        let mode = stele_archive::RetentionMode::Compliance;
        self.bucket.default_retention = Some(DefaultRetention { mode, period: Period::Days(10) });
        self
    }

    /// The catalog answers each commit after a moment, in which other tasks run.
    pub fn late(mut self) -> Stage {
        self.late = true;
        self
    }

    /// The catalog of servers, in so many bytes of memory. That in memory copies all of its records
    /// for each transaction.
    pub fn embedded(self, size: u64) -> Stage {
        let volume = Volume::of(MemoryDrive::new(Size(size)));
        let handle = Handle::new(volume);
        embedded::format(&handle, &Format { id: [7; 16], journal: None }).expect("a new catalog");
        let catalog = InlineCatalog::open(&handle, embedded::Options::default()).expect("the catalog opens");
        self.with_catalog(Arc::new(catalog))
    }

    pub fn with_catalog(mut self, catalog: Arc<dyn Catalog>) -> Stage {
        self.other = Some(catalog);
        self
    }

    pub fn with_cache(mut self, size: u64) -> Stage {
        self.cache = Volume::new(size);
        self
    }

    pub async fn archive(&self) -> &Archive {
        self.archive
            .get_or_init(async || {
                let archive = Archive::create(self.foundation(), options()).await.expect("a new store");
                let admin = stele_archive::Caller::local(0);
                archive.create_bucket(&admin, NAME, self.bucket.clone()).await.expect("a new bucket");
                archive
                    .change_bucket(&admin, NAME, BucketChange::Share)
                    .await
                    .expect("an empty bucket becomes a share");
                archive
            })
            .await
    }

    /// Free segments of the archive.
    pub async fn data_free(&self) -> u32 {
        self.archive().await.space().free
    }

    fn foundation(&self) -> Foundation {
        Foundation {
            catalog: match (&self.other, self.late) {
                (Some(other), _) => Arc::clone(other),
                (None, true) => Arc::new(Late { catalog: Arc::clone(&self.catalog), queue: Arc::default() }),
                (None, false) => Arc::new(self.held.clone()),
            },
            data: Handle::new(self.data.clone()),
            surroundings: Arc::clone(&self.clock) as Arc<dyn Surroundings>,
            guard: Arc::new(NoGuard),
            master: self.master.get_or_init(|| MasterKey::generate(&*self.clock)).clone(),
        }
    }

    /// Opens the archive anew, as after a crash of the server.
    pub async fn reopen(&mut self) {
        let archive = Archive::open(self.foundation(), options()).await.expect("the store opens");
        self.archive = Arc::new(tokio::sync::OnceCell::new_with(Some(archive)));
    }

    pub async fn share(&self) -> Arc<Share> {
        self.share_with_bodies(BODY_MAX).await
    }

    /// Longer files are stored in parts.
    pub async fn share_with_bodies(&self, body_max: u64) -> Arc<Share> {
        let ground = Ground {
            archive: self.archive().await.clone(),
            cache: Handle::new(self.cache.clone()),
            cache_unit: CACHE_UNIT,
            surroundings: Arc::clone(&self.clock) as Arc<dyn Surroundings>,
        };
        let root = Root { owner: (0, 0), mode: 0o755 };
        Share::open_with_bodies(ground, NAME, 1, self.settings.clone(), root, body_max).await.expect("the share opens")
    }

    /// Deletes every record of files, as a rebuild of the catalog does.
    pub async fn forget_files(&self) {
        use stele_catalog::{Direction, KeyRange, Table};
        let records = self.archive().await.records();
        let mut transaction = Transaction::new();
        for table in (64..=73).map(Table) {
            let stored =
                records.snapshot().expect("a snapshot").range(table, &KeyRange::all(), 10_000, Direction::Forward);
            for (key, _) in stored.expect("the records") {
                transaction = transaction.delete(table, key);
            }
        }
        records.commit(transaction).await.expect("a commit");
    }

    pub fn pass(&self, seconds: u64) {
        let mut state = self.clock.state.lock().expect("no test panics with the clock");
        state.1.monotonic = Instant(state.1.monotonic.0 + seconds * 1_000_000_000);
        state.1.wall = Timestamp(state.1.wall.0 + seconds * 1_000);
    }

    /// Clients have come back since the start: files that are left alone are committed.
    pub async fn pass_return(&self, share: &Share) {
        share.commit_round().await.expect("the first round");
        self.pass(RETURN.0 / 1_000_000_000);
    }

    /// Sets the system clock ahead. No time has passed.
    pub fn set_ahead(&self, seconds: u64) {
        let mut state = self.clock.state.lock().expect("no test panics with the clock");
        state.1.wall = Timestamp(state.1.wall.0 + seconds * 1_000);
    }

    /// Sets the system clock back. No time has passed.
    pub fn set_back(&self, seconds: u64) {
        let mut state = self.clock.state.lock().expect("no test panics with the clock");
        state.1.wall = Timestamp(state.1.wall.0 - seconds * 1_000);
    }

    pub fn moment(&self) -> Moment {
        Moment::from_nanoseconds(i128::from(self.clock.now().wall.0) * 1_000_000)
    }
}

fn options() -> Options {
    Options { segment: Size(4 << 20), ..Options::default() }
}

/// Content that repeats for a seed.
pub fn content(seed: u64, length: usize) -> Bytes {
    let mut bytes = vec![0; length];
    Dice::new(seed).fill(&mut bytes);
    bytes.into()
}

/// A file below the root with this content, committed to the cache.
pub async fn file(share: &Share, name: &str, data: &Bytes) -> Inode {
    let changes = Changes { mode: Some(0o644), ..Changes::default() };
    let how = Creation::Unchecked(changes);
    let entry = share.create(&Caller::ROOT, share.root(), name.as_bytes(), how).await.expect("a new file");
    write(share, entry.file.inode, 0, data).await;
    share.commit(entry.file.inode).await.expect("a commit");
    entry.file.inode
}

pub async fn write(share: &Share, inode: Inode, offset: u64, data: &Bytes) {
    share.write(&Caller::ROOT, inode, offset, vec![data.clone()], Stability::Unstable).await.expect("a write");
}

pub async fn read(share: &Share, inode: Inode) -> Vec<u8> {
    let mut all = Vec::new();
    loop {
        let data = share.read(&Caller::ROOT, inode, all.len() as u64, 100_000).await.expect("a read");
        data.pieces.iter().for_each(|piece| all.extend_from_slice(piece));
        if data.end {
            return all;
        }
    }
}

/// Lets background work go on until it has nothing to do.
pub async fn settle(stage: &Stage, share: &Share) {
    for _ in 0..50 {
        stage.pass(11);
        let worked = share.work().await.expect("background work");
        if worked == Default::default() {
            return;
        }
    }
    panic!("background work does not come to an end");
}
