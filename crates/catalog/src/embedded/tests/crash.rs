//! Power cuts at every write and flush, and again during recovery. After each, the catalog must
//! hold all acknowledged transactions, and nothing but a prefix of the requested ones.

use stele_ground::{Bytes, Dice, MIB};

use super::power::{Image, PowerCut};
use crate::embedded::layout::Layout;
use crate::embedded::{Format, InlineCatalog, Loader, Options, format};
use crate::suite::{alike, draw, same};
use crate::{Catalog, CatalogError, MemoryCatalog, Snapshot, Transaction};

const SIZE: u64 = 48 * MIB;

fn options() -> Options {
    // Take a checkpoint every few transactions.
    Options { cache: Bytes(MIB), overlay: Bytes(600), ..Options::default() }
}

fn formatted() -> Image {
    let volume = PowerCut::new(SIZE, Image::default(), 0, None);
    format(&volume.handle(), &Format { id: [3; 16], journal: None }).unwrap();
    volume.image()
}

/// The expected answers, and the expected contents after each transaction.
struct History {
    transactions: Vec<Transaction>,
    answers: Vec<Result<crate::Receipt, CatalogError>>,
    states: Vec<Box<dyn Snapshot>>,
}

impl History {
    fn new(seed: u64, length: usize) -> History {
        let (mut dice, twin) = (Dice::new(seed), MemoryCatalog::new());
        let mut history =
            History { transactions: Vec::new(), answers: Vec::new(), states: vec![twin.snapshot().unwrap()] };
        while history.transactions.len() < length {
            let mut transaction = draw(&mut dice);
            transaction.preconditions.truncate(dice.below(2) as usize);
            history.answers.push(twin.commit(transaction.clone()).wait());
            history.transactions.push(transaction);
            history.states.push(twin.snapshot().unwrap());
        }
        history
    }

    /// Continues from the state after `done` transactions. Returns the number certainly done when
    /// the power goes.
    fn tell(&self, catalog: &InlineCatalog, done: usize) -> usize {
        for (at, transaction) in self.transactions.iter().enumerate().skip(done) {
            let answer = catalog.commit(transaction.clone()).wait();
            if matches!(answer, Err(CatalogError::Stopped(_))) {
                return at;
            }
            assert!(alike(&answer, &self.answers[at]), "transaction {at}: {answer:?} is not {:?}", self.answers[at]);
        }
        self.transactions.len()
    }

    /// Checks that the state is one of the expected ones and not before `done`; returns its number.
    fn judge(&self, catalog: &InlineCatalog, done: usize) -> usize {
        let view = catalog.snapshot().unwrap();
        let mut at = done;
        // The transaction in flight during the cut may have been committed; refused ones leave no
        // trace.
        while at + 1 < self.states.len() && self.states[at].commit_number() < view.commit_number() {
            at += 1;
        }
        assert!(at <= done + 1, "{} transactions ahead of what was asked", at - done);
        same(&*view, &*self.states[at]);
        at
    }
}

/// Runs until the power goes at `step`; returns the image and the number of completed transactions.
fn run(history: &History, image: Image, seed: u64, step: Option<u64>, done: usize) -> (Image, usize, u64) {
    let volume = PowerCut::new(SIZE, image, seed, step);
    let mut sure = done;
    if let Ok(catalog) = InlineCatalog::open(&volume.handle(), options()) {
        sure = history.judge(&catalog, done);
        sure = history.tell(&catalog, sure);
    } else {
        assert!(volume.is_dead(), "it opens while there is power");
    }
    (volume.cut(), sure, volume.steps())
}

fn crash_everywhere(seed: u64, length: usize, again_every: u64) {
    let (history, blank) = (History::new(seed, length), formatted());
    let (_, all, steps) = run(&history, blank.clone(), seed, None, 0);
    assert_eq!(all, length);
    let mut crashes = 0;
    for step in 1..=steps {
        let (image, sure, _) = run(&history, blank.clone(), seed ^ step, Some(step), 0);
        let mut next = 1 + step % again_every;
        loop {
            // Cut again during or soon after recovery, each time a little later, until it
            // completes.
            let (image, sure, _) = run(&history, image.clone(), seed ^ (step << 8) ^ next, Some(next), sure);
            crashes += 1;
            let (_, end, steps) = run(&history, image, seed, None, sure);
            assert_eq!(end, length, "seed {seed}, step {step}, then {next}");
            next += again_every;
            if next > steps {
                break;
            }
        }
    }
    println!("seed {seed}: {steps} steps, {crashes} second crashes");
}

#[test]
fn a_power_cut_at_every_write_loses_nothing_acknowledged() {
    for seed in 0..5 {
        crash_everywhere(seed, 40, 60);
    }
}

#[test]
fn a_power_cut_at_every_write_of_the_recovery_loses_nothing_acknowledged() {
    crash_everywhere(100, 12, 1);
}

#[test]
fn creation_cut_short_leaves_no_catalog_or_an_empty_one() {
    let volume = PowerCut::new(SIZE, Image::default(), 0, None);
    format(&volume.handle(), &Format { id: [3; 16], journal: None }).unwrap();
    for step in 1..=volume.steps() {
        let volume = PowerCut::new(SIZE, formatted(), step, Some(step));
        assert!(format(&volume.handle(), &Format { id: [4; 16], journal: None }).is_err());
        let volume = PowerCut::new(SIZE, volume.cut(), step, None);
        match InlineCatalog::open(&volume.handle(), options()) {
            Ok(catalog) => assert_eq!(catalog.snapshot().unwrap().commit_number(), 0),
            Err(error) => {
                let said =
                    matches!(&error, CatalogError::Damaged(said) if said.contains("no catalog is on this volume"));
                assert!(said, "step {step}: {error}");
            }
        }
        format(&volume.handle(), &Format { id: [5; 16], journal: None }).unwrap();
        assert!(InlineCatalog::open(&volume.handle(), options()).is_ok());
    }
}

#[test]
fn an_unfinished_load_leaves_no_superblock() {
    let volume = PowerCut::new(128 * MIB, Image::default(), 0, None);
    let mut loader = Loader::new(&volume.handle(), &Format { id: [3; 16], journal: None }).unwrap();
    for number in 0..40u32 {
        loader.put(crate::Table(1), number.to_be_bytes().to_vec(), vec![1; 1 << 20]).unwrap();
    }
    drop(loader);
    let opened = Layout::read(&volume.handle());
    assert!(matches!(&opened, Err(CatalogError::Damaged(said)) if said.contains("no catalog")), "{opened:?}");
    for at in [0, 128 * MIB - 4096] {
        assert!(volume.handle().read_blocking(at, 4096).unwrap().iter().all(|byte| *byte == 0), "the copy at {at}");
    }
}

#[test]
fn a_failed_journal_write_stops_the_store_and_reads_go_on() {
    let volume = PowerCut::new(SIZE, formatted(), 1, None);
    let catalog = InlineCatalog::open(&volume.handle(), options()).unwrap();
    let put = |key: &'static str| catalog.commit(Transaction::new().put(crate::Table(1), key, "x")).wait();
    put("before").unwrap();
    volume.cut();
    assert!(matches!(put("after"), Err(CatalogError::Stopped(_))));
    assert!(matches!(put("later"), Err(CatalogError::Stopped(_))));
    assert!(catalog.status().stopped);
    let view = catalog.snapshot().unwrap();
    assert_eq!(view.get(crate::Table(1), b"before"), Ok(Some("x".into())));
    assert_eq!(view.get(crate::Table(1), b"after"), Ok(None));
}

#[test]
fn a_hole_in_the_journal_is_reported() {
    let volume = PowerCut::new(SIZE, formatted(), 1, None);
    let options = Options { overlay: Bytes(MIB), ..options() };
    let catalog = InlineCatalog::open(&volume.handle(), options).unwrap();
    for key in ["one", "two", "three"] {
        catalog.commit(Transaction::new().put(crate::Table(1), key, "x")).wait().unwrap();
    }
    drop(catalog);
    let reopened = |flip: Option<u64>| {
        let mut image = volume.image();
        flip.into_iter().for_each(|at| image.flip(at));
        let volume = PowerCut::new(SIZE, image, 1, None);
        InlineCatalog::open(&volume.handle(), options).map(|catalog| catalog.snapshot().unwrap().commit_number())
    };
    assert_eq!(reopened(None), Ok(3));
    // The journal starts after the superblock, with one batch in each block.
    for (block, name) in [(1, "the first"), (2, "the second")] {
        let hole = reopened(Some(4096 * block + 130));
        assert!(matches!(&hole, Err(CatalogError::Damaged(message)) if message.contains("batch")), "{name}: {hole:?}");
    }
    // A damaged last batch cannot be told from a torn one that was never acknowledged.
    assert_eq!(reopened(Some(4096 * 3 + 130)), Ok(2));
    assert_eq!(reopened(Some(100)), Ok(3), "one copy of the superblock is enough");
}

/// Bytes that changed below the volume's own checks: a read may return any answer, but must not
/// panic. (On a write to such a tree redb may abort the process. The store recovers from that crash
/// and finds the damage again.)
#[test]
fn a_changed_tree_is_damage_or_unchanged_records() {
    let volume = PowerCut::new(SIZE, formatted(), 1, None);
    let table = crate::Table(1);
    {
        let catalog = InlineCatalog::open(&volume.handle(), Options { cache: Bytes(0), ..options() }).unwrap();
        for number in 0..600u32 {
            catalog.commit(Transaction::new().put(table, number.to_be_bytes().to_vec(), vec![1; 100])).wait().unwrap();
        }
        catalog.checkpoint().unwrap();
    }
    let (mut dice, mut damaged) = (Dice::new(5), 0);
    for _ in 0..300 {
        let mut image = volume.image();
        // A place in the first pages of the tree.
        let page = 4096 + 20 * MIB + 4096 * dice.below(60);
        (0..8).for_each(|_| image.flip(page + dice.below(64)));
        let volume = PowerCut::new(SIZE, image, 1, None);
        match InlineCatalog::open(&volume.handle(), options()) {
            Ok(catalog) => {
                let view = catalog.snapshot().unwrap();
                let read = view.range(table, &crate::KeyRange::all(), usize::MAX, crate::Direction::Forward);
                damaged += u32::from(read.is_err());
            }
            Err(error) => {
                assert!(matches!(error, CatalogError::Damaged(_)), "{error}");
                damaged += 1;
            }
        }
    }
    assert!(damaged > 10, "{damaged}");
}

#[test]
fn an_unreadable_journal_or_tree_is_damage() {
    let volume = PowerCut::new(SIZE, formatted(), 1, None);
    for at in [4096, 4096 + 20 * MIB] {
        let spoilt = PowerCut::new(SIZE, volume.image(), 1, None);
        spoilt.spoil(at);
        let opened = InlineCatalog::open(&spoilt.handle(), options()).map(drop);
        assert!(matches!(opened, Err(CatalogError::Damaged(_))), "{opened:?}");
    }
}
