//! The log on simulated drives that lose power, tear writes, break and vanish. The twin is a plain
//! list of records.

use super::*;
use crate::drives::label::{Configuration, Discovery, discover};
use crate::durable::records::Record;
use crate::model::mutation::Mutations;
use crate::testing::drives::{End, TestDrives};
use stele_ground::{BLOCK, Bytes, Dice, DriveId, MIB, PoolId, VolumeId};

mod faults;
mod flow;
mod linger;
mod members;
mod recovery;
mod relief;

const SIZE: Bytes = Bytes(64 * MIB);

/// A pool's log with the twin beside it.
struct Bench {
    test_drives: TestDrives,
    dice: Dice,
    /// Every record appended that may be in the log, by LSN - 1.
    twin: Vec<Record>,
    acknowledged: u64,
    /// What a durable anchor would say.
    anchor: LogPosition,
    ring: u64,
    /// Taken away while opening.
    opening: Mutations,
    /// The operator accepts to miss writes.
    override_quorum: bool,
}

fn configuration(drives: usize, ring: u64, tolerates: u32) -> Configuration {
    let drive = |at: usize| crate::drives::label::DriveEntry {
        identity: DriveId([at as u8 + 1; 16]),
        enclosure: at as u32 / 2,
        size: SIZE,
        leaving: false,
        state: crate::drives::label::DriveState::Active,
        joined: 1,
    };
    Configuration {
        pool: PoolId([9; 16]),
        name: "log".to_owned(),
        created: 0,
        features: Default::default(),
        epoch: 1,
        seed: 0,
        unit_size: Bytes(MIB),
        log_size: Bytes(ring),
        spare_drives: 2,
        tolerates,
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

const FIRST: LogPosition = LogPosition { lsn: Lsn(1), group: 1, offset: 0, previous: 0 };

impl Bench {
    fn new(drives: usize, ring: u64, seed: u64) -> Bench {
        let mut test_drives = TestDrives::new(drives, SIZE, seed);
        let (own_tasks, own_io) = test_drives.start();
        let labels = Labels::new(&own_io, configuration(drives, ring, 2), (0..drives).collect());
        let inner = own_io.clone();
        test_drives
            .finish(&own_tasks, &own_io, async move {
                let log = Log::create(&inner, &labels).await?;
                drop(log);
                labels.publish().await
            })
            .expect("no cut")
            .expect("created");
        Bench {
            test_drives,
            dice: Dice::new(seed),
            twin: vec![Record::Checkpoint { sequence: 0 }],
            acknowledged: 1,
            anchor: FIRST,
            ring,
            opening: Mutations::default(),
            override_quorum: false,
        }
    }

    fn discovery(&mut self) -> Result<Discovery, ArrayError> {
        let (tasks, io) = self.test_drives.start();
        let attached = self.test_drives.attached(|at| at as u32 / 2);
        let own = io.clone();
        self.test_drives.finish(&tasks, &io, async move { discover(&own, &attached).await }).expect("no cut here")
    }

    /// Opens the log and compares it with the twin; none when the power went before it was open.
    fn open(&mut self) -> Option<Result<Opened, ArrayError>> {
        let cut = self.test_drives.cut_at.take();
        let discovery = match self.discovery() {
            Ok(discovery) => discovery,
            Err(error) => return Some(Err(error)),
        };
        self.test_drives.cut_at = cut;
        let (tasks, io) = self.test_drives.start();
        io.set_mutations(self.opening);
        let labels = Labels::resume(&io, &discovery, self.override_quorum);
        let (own, anchor) = (io.clone(), self.anchor);
        let opened = self.test_drives.finish(&tasks, &io, async move {
            labels.promise(&discovery).await?;
            labels.claim(&discovery.stale()).await?;
            let mut found = Vec::new();
            let (log, recovery) = Log::recover(&own, &labels, anchor, false, async |lsn, record| {
                found.push((lsn, record));
                Ok(())
            })
            .await?;
            Ok((log, recovery, labels, found))
        })?;
        let (log, recovery, labels, found) = match opened {
            Ok(opened) => opened,
            Err(error) => return Some(Err(error)),
        };
        self.compare(&found);
        Some(Ok(Opened { tasks, io, log, labels, recovery }))
    }

    fn compare(&mut self, found: &[(Lsn, Record)]) {
        for (at, (lsn, record)) in found.iter().enumerate() {
            assert_eq!(lsn.0, self.anchor.lsn.0 + at as u64, "records follow one another");
            assert_eq!(Some(record), self.twin.get(lsn.0 as usize - 1), "{lsn} is not what was appended");
        }
        let last = found.last().map_or(0, |(lsn, _)| lsn.0);
        assert!(last >= self.acknowledged, "LSN {} was acknowledged, but only {last} came back", self.acknowledged);
        // What was not acknowledged may be there or not; from now on it is as it was found.
        self.twin.truncate(last as usize);
        self.acknowledged = last;
    }

    fn record(&mut self) -> Record {
        let volume = VolumeId(self.dice.below(4) as u32);
        let at = self.dice.below(1 << 30);
        match self.dice.below(6) {
            0 => Record::Zero { volume, at, length: self.dice.below(1 << 20), unmap: true },
            1 => Record::Destaged { volume, stripe: at, covers: Lsn(self.dice.roll()) },
            _ => {
                let mut data = vec![0; self.dice.below(20_000) as usize];
                self.dice.fill(&mut data);
                Record::Write { volume, at, data: vec![data.into()] }
            }
        }
    }

    /// Appends so many records from several tasks at once, trimming on the way, until done or the
    /// power goes.
    fn work(&mut self, opened: &Opened, count: usize) -> End {
        let shared = Rc::new(RefCell::new((std::mem::take(&mut self.twin), self.acknowledged, self.anchor)));
        let records: VecDeque<Record> = (0..count).map(|_| self.record()).collect();
        let records = Rc::new(RefCell::new(records));
        let acknowledged_in_order = Rc::new(Cell::new(self.acknowledged));
        for _ in 0..6 {
            let (log, shared, records) = (opened.log.clone(), Rc::clone(&shared), Rc::clone(&records));
            let order = Rc::clone(&acknowledged_in_order);
            opened.tasks.spawn(async move {
                loop {
                    let Some(record) = records.borrow_mut().pop_front() else { return };
                    let Ok(mut paid) = log.reserve(log.cost(&record), Purpose::Host).await else { return };
                    let lsn = {
                        let mut shared = shared.borrow_mut();
                        let lsn = log.append(&record, &mut paid);
                        assert_eq!(lsn.0, shared.0.len() as u64 + 1);
                        shared.0.push(record);
                        lsn
                    };
                    if log.durable(lsn).await.is_err() {
                        return;
                    }
                    assert!(log.durable_lsn() >= lsn);
                    order.set(order.get().max(lsn.0));
                    let mut shared = shared.borrow_mut();
                    shared.1 = shared.1.max(lsn.0);
                    if log.wants_checkpoint() {
                        let position = log.position(lsn);
                        shared.2 = position;
                        log.trim(position);
                    }
                }
            });
        }
        let end = self.test_drives.run(&opened.tasks, &opened.io);
        (self.twin, self.acknowledged, self.anchor) = shared.take();
        end
    }
}

struct Opened {
    tasks: crate::runtime::task::Tasks,
    io: Io,
    log: Log,
    labels: Labels,
    recovery: Recovery,
}

/// A log with its members and the drives beside them.
struct Carried {
    bench: Bench,
    opened: Opened,
    members: Vec<DriveNumber>,
    beside: Vec<DriveNumber>,
}

impl Carried {
    fn new(drives: u16, seed: u64) -> Carried {
        Carried::with_ring(drives, MIB, seed)
    }

    fn with_ring(drives: u16, ring: u64, seed: u64) -> Carried {
        let mut bench = Bench::new(usize::from(drives), ring, seed);
        let opened = bench.open().expect("no cut").expect("opens");
        bench.work(&opened, 20);
        let (members, _) = opened.log.members();
        let beside = (0..drives).map(DriveNumber).filter(|drive| !members.contains(drive)).collect();
        Carried { bench, opened, members, beside }
    }
}
