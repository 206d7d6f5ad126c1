//! The time around a checkpoint: its space counts as taken until it is measured, and an overlay
//! that found no room is tried again.

use stele_ground::{Bytes, MIB};

use super::fresh;
use crate::embedded::Options;
use crate::embedded::checkpoint::Checkpointer;
use crate::embedded::store::{Checkpoints, Frozen, Writer, open};
use crate::{CatalogError, Receipt, Table, Template, Transaction};

const RECORDS: Table = Table(1);

/// Checkpoints in two steps: the survey happens when the writer waits. Without room, a start does
/// nothing.
struct Steps {
    checkpointer: Checkpointer,
    unmeasured: bool,
    has_room: bool,
    starts: u32,
}

impl Checkpoints for Steps {
    fn start(&mut self, frozen: Frozen) {
        self.starts += 1;
        if self.has_room {
            self.checkpointer.write(&frozen).unwrap();
            self.unmeasured = true;
        }
    }

    fn wait(&mut self) {
        if std::mem::take(&mut self.unmeasured) {
            self.checkpointer.survey().unwrap();
        }
    }
}

fn opened(size: u64, overlay: u64) -> (Writer, Steps) {
    let options = Options { cache: Bytes(16 * MIB), overlay: Bytes(overlay), ..Options::default() };
    let (writer, checkpointer) = open(&fresh(size), options).unwrap();
    (writer, Steps { checkpointer, unmeasured: false, has_room: true, starts: 0 })
}

fn one(writer: &mut Writer, steps: &mut Steps, transaction: Transaction) -> Result<Receipt, CatalogError> {
    writer.commit(&[transaction], steps).remove(0)
}

fn put(number: u32, length: usize) -> Transaction {
    Transaction::new().put(RECORDS, number.to_be_bytes().to_vec(), vec![number as u8; length])
}

#[test]
fn ordinary_transactions_leave_the_reserve_while_space_is_measured() {
    const LENGTH: usize = MIB as usize;
    let (mut writer, mut steps) = opened(256 * MIB, 256 * MIB);
    let free = |writer: &Writer| writer.shared.status().free;
    let mut number = 0;
    let reserve = writer.shared.status().reserve.0;
    // So little is counted to the page.
    while free(&writer).0 > 7 * reserve / 2 {
        one(&mut writer, &mut steps, put(number, LENGTH)).unwrap();
        number += 1;
        writer.checkpoint(&mut steps);
        steps.wait();
    }
    // An overlay of more than the reserve is written, and its space is not measured yet.
    while writer.shared.view().active.size().pages * 4096 < 5 * reserve / 4 {
        one(&mut writer, &mut steps, put(number, LENGTH)).unwrap();
        number += 1;
    }
    writer.checkpoint(&mut Gap(&mut steps));
    assert!(steps.unmeasured && writer.shared.view().frozen.is_none());
    let before = number;
    while one(&mut writer, &mut steps, put(number, LENGTH)).is_ok() {
        number += 1;
    }
    assert!(number > before, "there is some space above the reserve");
    writer.checkpoint(&mut steps);
    steps.wait();
    for number in 0..100 {
        let record = Template::new().number().bytes(vec![2; 500]);
        let append = Transaction::new().append((Table(2), "head"), Table(2), Template::new().number(), record);
        let answer = one(&mut writer, &mut steps, append.with_reserve());
        assert!(answer.is_ok(), "record {number} of the reserve: {answer:?}, {:?}", writer.shared.status());
    }
}

/// A checkpoint that is under way until the writer waits for it.
struct UnderWay {
    checkpointer: Checkpointer,
    frozen: Option<Frozen>,
}

impl Checkpoints for UnderWay {
    fn start(&mut self, frozen: Frozen) {
        self.frozen = Some(frozen);
    }

    fn wait(&mut self) {
        if let Some(frozen) = self.frozen.take() {
            self.checkpointer.run(&frozen);
        }
    }
}

/// As a rebuild fills the smallest catalog. Each counts as half of it, and takes a hundredth.
#[test]
fn large_transactions_wait_for_the_checkpoint_before() {
    let (mut writer, Steps { checkpointer, .. }) = opened(128 * MIB, 32 * MIB);
    let mut under_way = UnderWay { checkpointer, frozen: None };
    for round in 0..6u32 {
        let numbers = round * 4000..(round + 1) * 4000;
        let puts =
            numbers.fold(Transaction::new(), |puts, number| puts.put(RECORDS, number.to_be_bytes().to_vec(), "x"));
        let answer = writer.commit(&[puts], &mut under_way).remove(0);
        assert!(answer.is_ok(), "round {round}: {answer:?}, {:?}", writer.shared.status());
        writer.tend(&mut under_way);
    }
}

/// The same checkpoints, with the survey left for later.
struct Gap<'a>(&'a mut Steps);

impl Checkpoints for Gap<'_> {
    fn start(&mut self, frozen: Frozen) {
        self.0.start(frozen);
    }
    fn wait(&mut self) {}
}

fn deletes(from: u32, count: u32) -> Transaction {
    (from..from + count).fold(Transaction::new(), |all, number| all.delete(RECORDS, number.to_be_bytes().to_vec()))
}

#[test]
fn an_overlay_without_room_is_tried_again_when_a_view_is_dropped() {
    let (mut writer, mut steps) = opened(512 * MIB, MIB / 2);
    let old = writer.shared.view();
    one(&mut writer, &mut steps, put(0, 100)).unwrap();
    writer.checkpoint(&mut steps);
    steps.wait();
    steps.has_room = false;
    let commit = |writer: &mut Writer, steps: &mut Steps, from: u32, count: u32| {
        one(writer, steps, deletes(from, count)).unwrap();
        writer.tend(steps);
    };
    // It is frozen, and tried again as the one above it doubles.
    (0..3).for_each(|round| commit(&mut writer, &mut steps, round * 10_000, 10_000));
    let starts = steps.starts;
    assert_eq!(starts, 1 + 3, "with the checkpoint before");
    commit(&mut writer, &mut steps, 30_000, 1000);
    assert_eq!(steps.starts, starts, "nothing has changed");
    drop(old);
    steps.has_room = true;
    commit(&mut writer, &mut steps, 31_000, 1000);
    assert_eq!(steps.starts, starts + 1);
    assert!(writer.shared.view().frozen.is_none(), "it was written");
}

#[test]
fn deletions_above_a_stuck_overlay_have_a_limit() {
    let (mut writer, mut steps) = opened(512 * MIB, 2 * MIB);
    steps.has_room = false;
    let mut refused = None;
    for round in 0..100 {
        match one(&mut writer, &mut steps, deletes(round * 10_000, 10_000).with_reserve()) {
            Ok(_) => writer.tend(&mut steps),
            Err(error) => {
                refused = Some(error);
                break;
            }
        }
    }
    assert_eq!(refused, Some(CatalogError::Busy), "they may be tried again");
    let active = writer.shared.view().active.size().bytes as u64;
    assert!((8 * MIB..12 * MIB).contains(&active), "{}", Bytes(active));
    // With room they go on.
    steps.has_room = true;
    writer.checkpoint(&mut steps);
    steps.wait();
    one(&mut writer, &mut steps, deletes(0, 10)).unwrap();
}
