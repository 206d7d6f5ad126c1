//! A volume that fills up: ordinary transactions are refused in time, deletes and records continue,
//! and space comes back.

use stele_ground::{Bytes, Dice, MIB};

use super::{fresh, small};
use crate::embedded::layout::VOLUME_MIN;
use crate::embedded::{InlineCatalog, Options};
use crate::{Catalog, CatalogError, Direction, KeyRange, Table, Template, Transaction};

const RECORDS: Table = Table(1);
const LOG: Table = Table(2);

fn key(number: u64) -> Vec<u8> {
    // Scattered keys, so that deletes leave holes everywhere.
    blake3::hash(&number.to_le_bytes()).as_bytes()[..16].to_vec()
}

fn logged(transaction: Transaction) -> Transaction {
    transaction.append((LOG, "head"), LOG, Template::new().number(), Template::new().bytes(vec![1; 40]).previous())
}

/// Puts records until the catalog reports that it is full; returns their number.
fn fill(catalog: &InlineCatalog, from: u64, length: impl Fn(u64) -> usize) -> u64 {
    for number in from.. {
        let put = Transaction::new().put(RECORDS, key(number), vec![number as u8; length(number)]);
        match catalog.commit(logged(put)).wait() {
            Ok(_) => {}
            Err(CatalogError::Full(_)) => return number,
            Err(other) => panic!("{number}: {other}"),
        }
    }
    unreachable!("a volume has an end")
}

fn check_all(catalog: &InlineCatalog, numbers: std::ops::Range<u64>, length: impl Fn(u64) -> usize) {
    let view = catalog.snapshot().unwrap();
    for number in numbers {
        let value = view.get(RECORDS, &key(number)).unwrap().unwrap_or_else(|| panic!("{number} is there"));
        assert!(value.len() == length(number) && value.iter().all(|byte| *byte == number as u8), "{number}");
    }
}

fn fills_and_empties(size: u64, options: Options, length: impl Fn(u64) -> usize + Copy) {
    let volume = fresh(size);
    let catalog = InlineCatalog::open(&volume, options).unwrap();
    let count = fill(&catalog, 0, length);
    let bytes: usize = (0..count).map(length).sum();
    assert!(
        bytes as u64 > catalog.status().area.0 / 4,
        "{} records of {bytes} bytes fill {}",
        count,
        catalog.status().area
    );
    assert!(catalog.status().full);
    check_all(&catalog, 0..count, length);
    // After a restart it is still full.
    drop(catalog);
    let catalog = InlineCatalog::open(&volume, options).unwrap();
    check_all(&catalog, 0..count, length);
    let put = |number: u64| logged(Transaction::new().put(RECORDS, key(number), vec![0; length(number)]));
    let count = fill(&catalog, count, length);
    // Delete half of the records, and log each deletion.
    for number in 0..count / 2 {
        let delete = logged(Transaction::new().present(RECORDS, key(number)).delete(RECORDS, key(number)));
        catalog.commit(delete.with_reserve()).wait().unwrap_or_else(|error| panic!("{number}: {error}"));
    }
    check_all(&catalog, count / 2..count, length);
    let more = (0..1000).take_while(|number| (0..20).any(|_| catalog.commit(put(*number)).wait().is_ok())).count();
    assert!(more as u64 >= (count / 8).min(1000), "room for {more} after {} of {count} were deleted", count / 2);
    let log = catalog.snapshot().unwrap().range(LOG, &KeyRange::all(), usize::MAX, Direction::Forward).unwrap();
    assert_eq!(log.len() as u64, 1 + count + count / 2 + more as u64);
    drop(catalog);
    let catalog = InlineCatalog::open(&volume, options).unwrap();
    check_all(&catalog, count / 2..count, length);
}

#[test]
fn it_fills_with_small_records_and_empties() {
    // The fewest records that fill a catalog: each is a commit.
    fills_and_empties(VOLUME_MIN, Options { overlay: Bytes(MIB), ..small() }, |_| 500);
}

#[test]
fn it_fills_with_mixed_records_and_empties() {
    let length = |number: u64| match Dice::new(number).below(20) {
        0 => 200_000,
        1..4 => 9_000,
        other => other as usize * 50,
    };
    fills_and_empties(64 * MIB, Options { overlay: Bytes(4 * MIB), ..small() }, length);
}

#[test]
fn it_fills_with_the_largest_records_and_empties() {
    fills_and_empties(64 * MIB, Options::default(), |_| crate::VALUE_MAX);
}

#[test]
fn a_full_store_with_an_old_snapshot_refuses_and_recovers() {
    let volume = fresh(VOLUME_MIN);
    let catalog = InlineCatalog::open(&volume, Options { overlay: Bytes(MIB), ..small() }).unwrap();
    let count = fill(&catalog, 0, |_| 500) / 2;
    for number in 0..count {
        catalog.commit(Transaction::new().delete(RECORDS, key(number)).with_reserve()).wait().unwrap();
    }
    let old = catalog.snapshot().unwrap();
    // Every round replaces every record; the old snapshot keeps all replaced ones.
    let mut refused = 0;
    for round in 0..4 {
        for number in count..2 * count {
            let put = Transaction::new().put(RECORDS, key(number), vec![round; 500]);
            match catalog.commit(put).wait() {
                Ok(_) => {}
                Err(CatalogError::Full(_)) => refused += 1,
                Err(other) => panic!("{other}"),
            }
        }
    }
    assert!(refused > 0, "the snapshot holds on to space");
    let value = old.get(RECORDS, &key(count)).unwrap().unwrap();
    assert!(value.iter().all(|byte| *byte == count as u8));
    drop(old);
    let accepted = (0..500)
        .filter(|number| {
            catalog.commit(Transaction::new().put(RECORDS, key(count + number), vec![9; 500])).wait().is_ok()
        })
        .count();
    assert!(accepted > 300, "{accepted} of 500 after the snapshot is gone");
}

#[test]
fn what_may_use_half_of_the_reserve_leaves_the_other_half() {
    let volume = fresh(64 * MIB);
    let catalog = InlineCatalog::open(&volume, Options { overlay: Bytes(MIB), ..small() }).unwrap();
    // Large records first, for the test's speed, then small ones to fill the last bytes.
    let large = fill(&catalog, 0, |_| 6_000);
    fill(&catalog, large, |_| 500);
    let many = |number: u64| logged(Transaction::new().put(RECORDS, format!("many {number}"), vec![1; 500]));
    let taken =
        (0..).take_while(|number| catalog.commit(many(*number).with_reserve().within_half_reserve()).wait().is_ok());
    let taken = taken.count();
    assert!(taken > 100, "{taken} of those that may use half of it");
    assert!(catalog.commit(many(0)).wait().is_err(), "ordinary ones may use nothing of it");
    // Transactions that must stop them have as much space again.
    for number in 0..taken as u64 / 2 {
        let record = logged(Transaction::new().put(RECORDS, format!("few {number}"), vec![2; 500]));
        catalog.commit(record.with_reserve()).wait().unwrap_or_else(|error| panic!("{number} of {taken}: {error}"));
    }
}
