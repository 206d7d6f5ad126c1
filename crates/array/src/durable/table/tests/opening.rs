//! Openings at which drives do not give the newest checkpoint, for a moment or for good.

use std::collections::BTreeSet;

use super::faults::UNITS_AT;
use super::*;
use crate::durable::anchor::{SLOT, slot_at};

const DRIVES: usize = 6;
/// More than the table's rows take.
const HELD: usize = 20 * MIB as usize;
/// Of a log of 2 MiB: behind two checkpoints with as much after each, the older one's part is
/// written over.
const ROUND: u64 = MIB + MIB / 16;

/// A table whose newest checkpoint drives may fail to give.
struct Stored {
    bench: Bench,
    /// Sequence of the newest checkpoint.
    newest: u64,
    /// By drive: the blocks of pages that it wrote.
    written: Vec<BTreeSet<u64>>,
}

/// Steps one after another, so that each has a group of the log to itself.
fn fill(bench: &mut Bench, running: &Running, steps: usize) {
    let mut next = || Step { id: PageId { table: 1, index: bench.dice.below(8) as u32 }, value: bench.dice.roll() };
    let steps: Vec<Step> = (0..steps).map(|_| next()).collect();
    bench.twin.extend(steps.iter().copied().map(Some));
    let (log, table) = (running.log.clone(), running.table.clone());
    let filled = async move {
        for step in steps {
            let page = table.page(step.id).await?;
            let record = record(step);
            let mut paid = log.reserve(log.cost(&record), Purpose::Host).await?;
            let lsn = log.append(&record, &mut paid);
            apply(&page, step.value);
            log.durable(lsn).await?;
        }
        Ok::<(), ArrayError>(())
    };
    bench.test_drives.finish(&running.tasks, &running.io, filled).expect("no cut").expect("room");
    bench.acknowledged = bench.twin.len() as u64;
}

impl Stored {
    /// Two checkpoints with so many bytes of log behind each, and then the power goes.
    fn new(seed: u64, log: u64) -> Stored {
        let mut bench = Bench::new(DRIVES, seed);
        let running = bench.open().expect("no cut").expect("opens");
        let pages = |bench: &Bench| -> Vec<Vec<u8>> {
            (0..DRIVES).map(|drive| bench.test_drives.peek(drive, UNITS_AT, HELD)).collect()
        };
        let mut stored = Vec::new();
        for _ in 0..2 {
            bench.checkpoint(&running).expect("room");
            stored.push(pages(&bench));
            while running.log.used().0 < log {
                fill(&mut bench, &running, 16);
            }
        }
        let newest = running.table.sequence();
        drop(running);
        bench.test_drives.cut();
        let block = stele_ground::BLOCK;
        let changed = |(before, after): (&Vec<u8>, &Vec<u8>)| {
            let blocks = before.chunks(block).zip(after.chunks(block)).zip(UNITS_AT / block as u64..);
            blocks.filter(|((before, after), _)| before != after).map(|(_, number)| number).collect()
        };
        let written = stored[0].iter().zip(&stored[1]).map(changed).collect();
        Stored { bench, newest, written }
    }

    fn drives(&mut self) -> impl Iterator<Item = &mut crate::testing::drives::TestDrive> {
        self.bench.test_drives.drives.iter_mut()
    }

    /// The drives fail to read these blocks from now on, or none any more.
    fn hide(&mut self, blocks: Vec<BTreeSet<u64>>) {
        let mut blocks = blocks.into_iter();
        self.drives().for_each(|drive| drive.unreadable = blocks.next().unwrap_or_default());
    }

    fn open_and_compare(&mut self) -> Result<u64, ArrayError> {
        let opened = self.bench.open().expect("no cut");
        let sequence = opened.map(|running| {
            self.bench.compare(&running);
            running.table.sequence()
        });
        self.bench.test_drives.cut();
        sequence
    }
}

#[test]
fn anchors_that_no_drive_gives_at_first_are_asked_for_again() {
    let mut stored = Stored::new(61, ROUND);
    let newest = slot_at(stored.newest);
    stored.drives().for_each(|drive| (drive.read_retries, drive.read_retries_at) = (1, newest..newest + SLOT));
    assert_eq!(stored.open_and_compare(), Ok(stored.newest + 1));
}

#[test]
fn a_directory_that_no_drive_gives_at_first_is_asked_for_again() {
    let mut stored = Stored::new(62, ROUND);
    let pages = UNITS_AT..UNITS_AT + HELD as u64;
    stored.drives().for_each(|drive| (drive.read_retries, drive.read_retries_at) = (1, pages.clone()));
    assert_eq!(stored.open_and_compare(), Ok(stored.newest + 1));
}

#[test]
fn an_opening_that_cannot_read_the_newest_checkpoint_leaves_it_to_the_next() {
    let mut stored = Stored::new(63, ROUND);
    let written = stored.written.clone();
    stored.hide(written);
    let refused = stored.open_and_compare();
    assert!(matches!(refused, Err(ArrayError::Damaged(_))), "the log does not reach back: {refused:?}");
    stored.hide(Vec::new());
    assert_eq!(stored.open_and_compare(), Ok(stored.newest + 1));
}

#[test]
fn an_older_checkpoint_is_taken_up_where_the_log_reaches_back_to_it() {
    let mut stored = Stored::new(64, MIB / 4);
    let written = stored.written.clone();
    stored.hide(written);
    let newest = stored.newest;
    assert_eq!(stored.open_and_compare(), Ok(newest), "the one before, written again");
    stored.hide(Vec::new());
    assert_eq!(stored.open_and_compare(), Ok(newest + 1), "what was newer counts no more");
}

/// The newest anchor is on three drives at least.
#[test]
fn a_pool_whose_newest_anchor_may_be_on_drives_that_do_not_give_it_is_not_opened() {
    for (hidden, opens) in [(2, true), (3, false)] {
        let mut stored = Stored::new(65, ROUND);
        let block = slot_at(stored.newest) / stele_ground::BLOCK as u64;
        stored.hide(vec![BTreeSet::from([block]); hidden]);
        let opened = stored.open_and_compare();
        match opens {
            true => assert_eq!(opened, Ok(stored.newest + 1)),
            false => assert!(matches!(&opened, Err(ArrayError::Degraded(why)) if why.contains("anchor")), "{opened:?}"),
        }
        stored.hide(Vec::new());
        assert!(stored.open_and_compare().is_ok());
    }
}
