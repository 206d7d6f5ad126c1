//! The table with a log beside it, as the engine uses them: records and page changes in one step,
//! checkpoints while changes go on, power cuts anywhere. The twin is a list of changes; its state
//! at any LSN is computed by replaying it from the start.

use super::*;
use crate::drives::label::{Configuration, discover};
use crate::durable::log::{Log, Purpose, Recovery};
use crate::durable::records::Record;
use crate::model::mutation::Mutations;
use crate::model::place::{DriveNumber, Lsn};
use crate::runtime::task::Tasks;
use crate::space::layout::Layout;
use crate::testing::drives::{End, TestDrives};
use stele_ground::{Dice, DriveId, MIB, PoolId, VolumeId};

mod faults;
mod flow;
mod late;
mod moving;
mod opening;

const SIZE: Bytes = Bytes(96 * MIB);

/// One step: a value goes to a page. The record says the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Step {
    id: PageId,
    value: u64,
}

struct Bench {
    test_drives: TestDrives,
    dice: Dice,
    cache: Bytes,
    /// By LSN - 1; none for the records of log and table themselves.
    twin: Vec<Option<Step>>,
    acknowledged: u64,
    /// Sequence of the last checkpoint that was said to be done.
    stored: Rc<Cell<u64>>,
    /// Pages a step may touch.
    spread: u64,
    /// Checkpoints have log to spare for pages that they leave out, sometimes.
    late: bool,
}

struct Running {
    tasks: Tasks,
    io: Io,
    labels: Labels,
    layout: SharedLayout,
    log: Log,
    table: Table,
    opened: Option<Opened>,
    recovery: Recovery,
}

fn configuration(drives: usize) -> Configuration {
    let drive = |at: usize| crate::drives::label::DriveEntry {
        identity: DriveId([at as u8 + 1; 16]),
        enclosure: at as u32 / 2,
        size: SIZE,
        leaving: false,
        state: crate::drives::label::DriveState::Active,
        joined: 1,
    };
    Configuration {
        pool: PoolId([5; 16]),
        name: "table".to_owned(),
        created: 0,
        features: Default::default(),
        epoch: 1,
        seed: 1,
        unit_size: Bytes(MIB),
        log_size: Bytes(2 * MIB),
        spare_drives: 1,
        tolerates: 2,
        drives: (0..drives).map(drive).collect(),
        log: Vec::new(),
        protected: false,
        clean: false,
        growing: false,
        settled: 0,
        overrides: Vec::new(),
        shard: Default::default(),
        loss_accepted: false,
        rolling_back: None,
    }
}

fn apply(page: &PageRef, value: u64) {
    // A history of values, so that both a lost and a doubled change show.
    let count = page.read(|bytes| u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes")));
    let at = 8 + (count as usize % 2000) * 8;
    if value.is_multiple_of(4) {
        return page.change(|bytes| {
            bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
            bytes[..8].copy_from_slice(&(count + 1).to_le_bytes());
        });
    }
    let words = |at: usize, number: u64| [(at, number as u32), (at + 4, (number >> 32) as u32)];
    page.patch(words(at, value).into_iter().chain(words(0, count + 1)));
}

fn record(step: Step) -> Record {
    Record::Destaged { volume: VolumeId(step.id.table), stripe: step.id.index.into(), covers: Lsn(step.value) }
}

fn step_of(record: &Record) -> Option<Step> {
    match record {
        Record::Destaged { volume, stripe, covers } => {
            Some(Step { id: PageId { table: volume.0, index: *stripe as u32 }, value: covers.0 })
        }
        _ => None,
    }
}

impl Bench {
    fn new(drives: usize, seed: u64) -> Bench {
        let mut test_drives = TestDrives::new(drives, SIZE, seed);
        let (tasks, io) = test_drives.start();
        let labels = Labels::new(&io, configuration(drives), (0..drives).collect());
        let layout = SharedLayout::new(Layout::new(&labels.configuration()));
        let cache = Bytes(2 * MIB);
        let own = io.clone();
        let made = async move {
            let log = Log::create(&own, &labels).await?;
            let table = Table::create(&own, &labels, &layout, cache);
            let mut paid = log.reserve(checkpoint_cost(&log), Purpose::Checkpoint).await?;
            table.begin_checkpoint(&log, log.next_lsn(), b"first".to_vec(), Some(&mut paid)).write().await?;
            labels.publish().await
        };
        test_drives.finish(&tasks, &io, made).expect("no cut").expect("created");
        // The log's first record, and the checkpoint's.
        Bench {
            test_drives,
            dice: Dice::new(seed),
            cache,
            twin: vec![None, None],
            acknowledged: 2,
            stored: Rc::new(Cell::new(1)),
            spread: 300,
            late: false,
        }
    }

    /// Opens everything and replays; none when the power went first.
    fn open(&mut self) -> Option<Result<Running, ArrayError>> {
        let cut = self.test_drives.cut_at.take();
        let attached = self.test_drives.attached(|at| at as u32 / 2);
        let (tasks, io) = self.test_drives.start();
        let own = io.clone();
        let discovery =
            self.test_drives.finish(&tasks, &io, async move { discover(&own, &attached).await }).expect("no cut here");
        let discovery = match discovery {
            Ok(discovery) => discovery,
            Err(error) => return Some(Err(error)),
        };
        self.test_drives.cut_at = cut;
        let (tasks, io) = self.test_drives.start();
        let labels = Labels::resume(&io, &discovery, false);
        let layout = SharedLayout::new(Layout::new(&labels.configuration()));
        let (own, own_labels, own_layout, cache) = (io.clone(), labels.clone(), layout.clone(), self.cache);
        let found = Rc::new(Cell::new(0));
        let last = Rc::clone(&found);
        let opened = self.test_drives.finish(&tasks, &io, async move {
            own_labels.promise(&discovery).await?;
            own_labels.claim(&discovery.stale()).await?;
            let (table, opened) = Table::open(&own, &own_labels, &own_layout, cache, false).await?;
            let (log, recovery) = Log::recover(&own, &own_labels, opened.replay, false, async |lsn, record| {
                last.set(lsn.0);
                if lsn < opened.cut {
                    return Ok(());
                }
                if let Some(step) = step_of(&record) {
                    apply(&table.page(step.id).await?, step.value);
                }
                if let Record::Patches { pages } = record {
                    for patch in pages {
                        let words = patch.words.iter().map(|(at, word)| (usize::from(*at), *word));
                        table.page(patch.id).await?.patch(words);
                    }
                }
                Ok(())
            })
            .await?;
            table.settle_anchor().await?;
            Ok((table, log, opened, recovery))
        })?;
        let (table, log, opened, recovery) = match opened {
            Ok(opened) => opened,
            Err(error) => return Some(Err(error)),
        };
        let last = found.get();
        assert!(last >= self.acknowledged, "LSN {} was acknowledged, the log ends at {last}", self.acknowledged);
        self.twin.truncate(last as usize);
        self.acknowledged = last;
        let stored = self.stored.get();
        // The opening wrote the anchor that it found once more, with the next sequence.
        assert!(opened.sequence > stored, "checkpoint {stored} was done, {} came back", opened.sequence - 1);
        Some(Ok(Running { tasks, io, labels, layout, log, table, opened: Some(opened), recovery }))
    }

    /// Compares every page with the twin.
    fn compare(&mut self, running: &Running) {
        let mut expected: BTreeMap<PageId, Vec<u8>> = BTreeMap::new();
        for step in self.twin.iter().flatten() {
            let bytes = expected.entry(step.id).or_insert_with(|| vec![0; PAGE]);
            let count = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
            let at = 8 + (count as usize % 2000) * 8;
            bytes[at..at + 8].copy_from_slice(&step.value.to_le_bytes());
            bytes[..8].copy_from_slice(&(count + 1).to_le_bytes());
        }
        let table = running.table.clone();
        let compared = self.test_drives.finish(&running.tasks, &running.io, async move {
            for (id, bytes) in expected {
                let page = table.page(id).await?;
                page.read(|found| assert!(found == bytes, "{id} differs from the twin"));
                assert!(table.pages(id.table) > id.index);
            }
            Ok::<(), ArrayError>(())
        });
        compared.expect("no cut").expect("every page is readable");
        running.layout.read().check();
    }

    /// Changes pages and writes checkpoints until done or the power goes.
    fn work(&mut self, running: &Running, steps: usize) -> End {
        let twin = Rc::new(RefCell::new((std::mem::take(&mut self.twin), self.acknowledged)));
        let todo: VecDeque<Step> = (0..steps)
            .map(|_| Step {
                id: PageId { table: 1 + self.dice.below(3) as u32, index: self.dice.below(self.spread) as u32 * 37 },
                value: self.dice.roll(),
            })
            .collect();
        let todo = Rc::new(RefCell::new(todo));
        for _ in 0..4 {
            let (log, table, twin, todo) =
                (running.log.clone(), running.table.clone(), Rc::clone(&twin), Rc::clone(&todo));
            running.tasks.spawn(async move {
                loop {
                    let Some(step) = todo.borrow_mut().pop_front() else { return };
                    let Ok(page) = table.page(step.id).await else { return };
                    let record = record(step);
                    let Ok(mut paid) = log.reserve(log.cost(&record), Purpose::Host).await else { return };
                    let lsn = log.append(&record, &mut paid);
                    apply(&page, step.value);
                    twin.borrow_mut().0.push(Some(step));
                    assert_eq!(twin.borrow().0.len() as u64, lsn.0);
                    drop(page);
                    if log.durable(lsn).await.is_err() {
                        return;
                    }
                    let mut twin = twin.borrow_mut();
                    twin.1 = twin.1.max(lsn.0);
                }
            });
        }
        let (log, table, own, left) = (running.log.clone(), running.table.clone(), Rc::clone(&twin), todo);
        let (io, stored) = (running.io.clone(), Rc::clone(&self.stored));
        let every = 20 + self.dice.below(60) as usize;
        let (late, mut dice) = (self.late, Dice::new(every as u64));
        running.tasks.spawn(async move {
            let mut next = left.borrow().len().saturating_sub(every);
            while !left.borrow().is_empty() {
                let due = left.borrow().len() <= next;
                if !(due || log.wants_checkpoint() || table.wants_checkpoint()) {
                    io.sleep(stele_ground::Duration(1_000)).await;
                    continue;
                }
                next = next.saturating_sub(every);
                let spare = if late { dice.below(3) * (24 << 10) } else { 0 };
                let cost = checkpoint_cost(&log) + spare;
                let Ok(mut paid) = log.reserve(cost, Purpose::Checkpoint).await else { return };
                let checkpoint = table.begin_checkpoint(&log, log.next_lsn(), b"later".to_vec(), Some(&mut paid));
                own.borrow_mut().0.push(None);
                assert_eq!(own.borrow().0.len() as u64, checkpoint.lsn().0);
                own.borrow_mut().0.resize(log.next_lsn().0 as usize - 1, None);
                let sequence = checkpoint.sequence();
                if checkpoint.write().await.is_err() {
                    return;
                }
                stored.set(sequence);
            }
        });
        let end = self.test_drives.run(&running.tasks, &running.io);
        (self.twin, self.acknowledged) = twin.take();
        end
    }

    fn checkpoint(&mut self, running: &Running) -> Result<(), ArrayError> {
        let (log, table) = (running.log.clone(), running.table.clone());
        self.twin.push(None);
        let result = self.test_drives.finish(&running.tasks, &running.io, async move {
            let mut paid = log.reserve(checkpoint_cost(&log), Purpose::Checkpoint).await?;
            table.begin_checkpoint(&log, log.next_lsn(), b"asked".to_vec(), Some(&mut paid)).write().await
        });
        let result = result.expect("no cut");
        if result.is_ok() {
            self.acknowledged = self.twin.len() as u64;
        }
        result
    }
}
