//! Transactions that share a batch: refused together, within the journal's limit, and never
//! forgotten in a queue.

use std::sync::{Arc, Mutex, OnceLock};

use stele_ground::{Bytes, MIB};
use stele_media::{MediaFault, Op};

use super::fresh;
use super::port::{Fate, Scripted, is_forced};
use super::power::{Image, PowerCut};
use crate::embedded::store::{Checkpoints, Frozen, open};
use crate::embedded::{EmbeddedCatalog, Format, InlineCatalog, Options, format};
use crate::suite::draw;
use crate::{Catalog, CatalogError, Direction, KeyRange, Table, Transaction, VALUE_MAX};

const RECORDS: Table = Table(1);

fn options() -> Options {
    Options { cache: Bytes(MIB), overlay: Bytes(32 * MIB), ..Options::default() }
}

fn large(key: &str) -> Transaction {
    let value = vec![1; VALUE_MAX - 100];
    Transaction::new().put(RECORDS, format!("{key} 1"), value.clone()).put(RECORDS, format!("{key} 2"), value)
}

/// The second of two creations is refused because of the first, which then does not take place.
fn rivals() -> [Transaction; 2] {
    ["one", "other"].map(|value| Transaction::new().absent(RECORDS, "k").put(RECORDS, "k", value))
}

/// Holds the first forced write, and gives the later ones this fate.
fn hold_first(port: &Scripted, later: Fate) {
    let mut forced = 0;
    port.set(move |op| {
        forced += u32::from(is_forced(op));
        match (is_forced(op), forced) {
            (false, _) => Fate::Pass,
            (true, 1) => Fate::Hold,
            (true, _) => later,
        }
    });
}

#[test]
fn a_refusal_does_not_rest_on_a_batch_that_failed() {
    let port = Scripted::new(fresh(64 * MIB));
    let catalog = EmbeddedCatalog::open(&port.handle(), options()).unwrap();
    hold_first(&port, Fate::Fail(MediaFault::Gone));
    let first = catalog.commit(Transaction::new().put(RECORDS, "first", "1"));
    port.wait_held();
    let answers = rivals().map(|rival| catalog.commit(rival));
    let invalid = catalog.commit(Transaction::new().put(RECORDS, vec![0; crate::KEY_MAX + 1], ""));
    port.release();
    first.wait().unwrap();
    for answer in answers {
        let answer = answer.wait();
        assert!(matches!(answer, Err(CatalogError::Stopped(_))), "{answer:?}");
    }
    assert!(matches!(invalid.wait(), Err(CatalogError::Invalid(_))), "its own fault");
}

/// Checkpoints that never find room.
struct NoRoom;

impl Checkpoints for NoRoom {
    fn start(&mut self, _: Frozen) {}
    fn wait(&mut self) {}
}

#[test]
fn a_refusal_does_not_rest_on_a_batch_without_room() {
    let (mut writer, _checkpointer) = open(&fresh(128 * MIB), options()).unwrap();
    let mut number = 0;
    while writer.commit(&[large(&number.to_string())], &mut NoRoom)[0].is_ok() {
        number += 1;
    }
    assert!(number > 3, "the journal took {number}");
    let [one, other] = rivals().map(|rival| rival.put(RECORDS, "padding", vec![0; VALUE_MAX]));
    for answer in writer.commit(&[one, other], &mut NoRoom) {
        assert!(matches!(answer, Err(CatalogError::Full(_))), "{answer:?}");
    }
}

#[test]
fn many_short_keys_stay_within_a_batch_of_the_journal() {
    const STEPS: u32 = 16_384;
    let volume = fresh(256 * MIB);
    let port = Scripted::new(volume.clone());
    let catalog = EmbeddedCatalog::open(&port.handle(), Options { overlay: Bytes(256 * MIB), ..options() }).unwrap();
    let key = |number: u32| [&[7][..], &number.to_be_bytes()].concat();
    let puts = (0..100).fold(Transaction::new(), |puts, number| puts.put(RECORDS, key(number * STEPS / 2), "x"));
    catalog.commit(puts).wait().unwrap();
    hold_first(&port, Fate::Pass);
    let first = catalog.commit(Transaction::new().put(RECORDS, "first", "1"));
    port.wait_held();
    let deletes: Vec<_> = (0..51)
        .map(|round| {
            let keys = (round * STEPS..(round + 1) * STEPS).map(key);
            catalog.commit(keys.fold(Transaction::new(), |deletes, key| deletes.delete(RECORDS, key)))
        })
        .collect();
    port.release();
    first.wait().unwrap();
    deletes.into_iter().for_each(|answer| drop(answer.wait().unwrap()));
    // 51 times 16,384 changes of 15 bytes: a batch that no reader of the journal accepts.
    assert!(catalog.status().batches >= 2 + 3, "{:?}", catalog.status());
    drop(catalog);
    let catalog = EmbeddedCatalog::open(&volume, options()).unwrap();
    let left = catalog.snapshot().unwrap().range(RECORDS, &KeyRange::all(), 200, Direction::Forward).unwrap();
    assert_eq!(left.len(), 1, "only the first record is left");
}

#[test]
fn the_size_of_a_transaction_covers_its_journal() {
    use crate::embedded::batch::Batch;
    let (writer, _checkpointer) = open(&fresh(64 * MIB), options()).unwrap();
    let view = writer.shared.view();
    let mut dice = stele_ground::Dice::new(1);
    let mut judged = 0;
    for _ in 0..3000 {
        let transaction = draw(&mut dice);
        let mut batch = Batch::new(&view);
        if batch.apply(&transaction).is_ok() {
            let bytes: usize = batch
                .changes
                .iter()
                .map(|((_, key), change)| 10 + key.len() + change.as_ref().map_or(0, |value| value.len()))
                .sum();
            assert!(bytes <= transaction.size(), "{bytes} of {}: {transaction:?}", transaction.size());
            judged += 1;
        }
    }
    assert!(judged > 300, "{judged}");
}

/// While a checkpoint writes, the world commits more than one batch may hold.
#[test]
fn an_inline_catalog_carries_out_what_came_during_a_checkpoint() {
    let volume = PowerCut::new(128 * MIB, Image::default(), 0, None);
    format(&volume.handle(), &Format { id: [3; 16], journal: Some(Bytes(32 * MIB)) }).unwrap();
    let port = Scripted::new(volume.handle());
    let catalog = Arc::new(InlineCatalog::open(&port.handle(), options()).unwrap());
    catalog.commit(Transaction::new().put(RECORDS, "first", "1")).wait().unwrap();
    let (theirs, answers) = (Arc::new(OnceLock::new()), Arc::new(Mutex::new(Vec::new())));
    let world = (Arc::clone(&theirs), Arc::clone(&answers));
    port.set(move |op| {
        let mut answers = world.1.lock().unwrap();
        if let (Op::Write { .. }, Some(catalog), true) = (op, world.0.get(), answers.is_empty()) {
            let catalog: &Arc<InlineCatalog> = catalog;
            answers.extend(["a", "b", "c"].map(|key| catalog.commit(large(key))));
        }
        Fate::Pass
    });
    assert!(theirs.set(Arc::clone(&catalog)).is_ok());
    catalog.checkpoint().unwrap();
    let records = |catalog: &InlineCatalog| {
        catalog.snapshot().unwrap().range(RECORDS, &KeyRange::all(), 20, Direction::Forward).unwrap().len()
    };
    port.set(|_| Fate::Pass);
    assert_eq!(records(&catalog), 7, "{} came meanwhile", answers.lock().unwrap().len());
    drop(catalog);
    let catalog = InlineCatalog::open(&volume.handle(), options()).unwrap();
    assert_eq!(records(&catalog), 7, "after a restart too");
}
