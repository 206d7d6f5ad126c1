//! A volume that refuses operations for a time: a full queue is waited for, and data out of reach
//! is not called damage.

use stele_ground::{Bytes, MIB};
use stele_media::{MediaFault, Op};

use super::port::{Fate, Scripted, is_forced};
use super::power::{Image, PowerCut};
use crate::embedded::layout::Layout;
use crate::embedded::{EmbeddedCatalog, Format, InlineCatalog, Options, format};
use crate::{Catalog, CatalogError, Direction, KeyRange, Table, Transaction};

const RECORDS: Table = Table(1);
const SIZE: u64 = 48 * MIB;
const FORMAT: Format = Format { id: [3; 16], journal: None };

fn options() -> Options {
    Options { cache: Bytes(0), overlay: Bytes(MIB), ..Options::default() }
}

/// A formatted volume behind a port. It answers on the caller's thread, so nothing waits for the
/// clock.
fn formatted() -> (PowerCut, Scripted) {
    let volume = PowerCut::new(SIZE, Image::default(), 0, None);
    format(&volume.handle(), &FORMAT).unwrap();
    let port = Scripted::new(volume.handle());
    (volume, port)
}

fn put(number: u32, length: usize) -> Transaction {
    Transaction::new().put(RECORDS, number.to_be_bytes().to_vec(), vec![number as u8; length])
}

#[test]
fn a_queue_that_is_full_for_long_stops_nothing() {
    let (_volume, port) = formatted();
    let catalog = EmbeddedCatalog::open(&port.handle(), options()).unwrap();
    let mut left = 20_000;
    port.set(move |_| {
        left -= i32::from(left > 0);
        if left > 0 { Fate::Fail(MediaFault::Retry) } else { Fate::Pass }
    });
    catalog.commit(put(1, 100)).wait().expect("the journal's write waits for the queue");
    assert!(!catalog.status().stopped);
}

#[test]
fn every_operation_may_find_the_queue_full() {
    let volume = PowerCut::new(SIZE, Image::default(), 0, None);
    let port = Scripted::new(volume.handle());
    let mut turn = false;
    port.set(move |_| {
        turn = !turn;
        if turn { Fate::Fail(MediaFault::Retry) } else { Fate::Pass }
    });
    format(&port.handle(), &FORMAT).unwrap();
    let catalog = InlineCatalog::open(&port.handle(), options()).unwrap();
    let before = catalog.status().laid_out;
    for number in 0..10 {
        catalog.commit(put(number, MIB as usize)).wait().unwrap();
    }
    catalog.checkpoint().unwrap();
    assert!(catalog.status().laid_out > before, "the superblock was written for a new length");
    catalog.grow(|| volume.grow(2 * SIZE).map_err(|error| CatalogError::Stopped(error.to_string()))).unwrap();
    catalog.commit(put(10, 100)).wait().unwrap();
    drop(catalog);
    let catalog = InlineCatalog::open(&port.handle(), options()).unwrap();
    let records = catalog.snapshot().unwrap().range(RECORDS, &KeyRange::all(), 20, Direction::Forward).unwrap();
    assert_eq!(records.len(), 11);
}

/// Each copy of the superblock in turn cannot be written when the volume has just grown.
#[test]
fn a_growth_whose_superblock_fails_is_taken_up_later() {
    const LENGTH: usize = 1_900_000;
    for copy in 0..2 {
        let (volume, port) = formatted();
        let catalog = EmbeddedCatalog::open(&port.handle(), options()).unwrap();
        let full = (0..).find(|number| catalog.commit(put(*number, LENGTH)).wait().is_err()).unwrap();
        let (before, theirs, script) = (catalog.status().area, volume.clone(), port.clone());
        let failed = catalog.grow(move || {
            theirs.grow(2 * SIZE).map_err(|error| CatalogError::Stopped(error.to_string()))?;
            let mut forced = 0;
            script.set(move |op| {
                forced += u32::from(is_forced(op));
                if is_forced(op) && forced == copy + 1 { Fate::Fail(MediaFault::Refused) } else { Fate::Pass }
            });
            Ok(())
        });
        assert!(failed.wait().is_err(), "copy {copy}");
        assert_eq!(catalog.status().area, before, "copy {copy}: what is not durable is not used");
        assert!(!catalog.status().stopped);
        port.set(|op| {
            let at_old_end = matches!(op, Op::Write { at, .. } if is_forced(op) && *at == SIZE - 4096);
            assert!(!at_old_end, "no reader of the grown volume looks there");
            Fate::Pass
        });
        catalog.grow(|| Ok(())).wait().unwrap();
        assert_eq!(catalog.status().area.0, before.0 + SIZE, "copy {copy}");
        catalog.commit(put(full, LENGTH)).wait().expect("room at once");
        drop(catalog);
        let catalog = EmbeddedCatalog::open(&port.handle(), options()).unwrap();
        assert_eq!(catalog.status().area.0, before.0 + SIZE, "copy {copy}");
        let view = catalog.snapshot().unwrap();
        assert!((0..=full).all(|number| view.get(RECORDS, &number.to_be_bytes()).unwrap().is_some()));
    }
}

/// A growth that was never taken up, and then another one: no copy of the superblock goes to the
/// old end.
#[test]
fn a_second_growth_takes_up_the_first() {
    let (volume, port) = formatted();
    let catalog = InlineCatalog::open(&port.handle(), options()).unwrap();
    let before = catalog.status().area;
    volume.grow(SIZE + 8 * MIB).unwrap();
    let theirs = volume.clone();
    port.set(move |op| {
        if let Op::Write { at, .. } = op {
            let lies = |size: u64| *at == 0 || (4096 + 20 * MIB..size - 4096).contains(at) || *at == size - 4096;
            assert!(!is_forced(op) || lies(theirs.size()) && *at != SIZE - 4096, "a copy at {at}");
        }
        Fate::Pass
    });
    catalog.grow(|| volume.grow(SIZE + 16 * MIB).map_err(|error| CatalogError::Stopped(error.to_string()))).unwrap();
    assert_eq!(catalog.status().area.0, before.0 + 16 * MIB);
    assert_eq!(Layout::read(&volume.handle()).unwrap().volume, SIZE + 16 * MIB);
}

#[test]
fn a_volume_out_of_reach_is_no_damage() {
    let (_volume, port) = formatted();
    {
        let catalog = InlineCatalog::open(&port.handle(), options()).unwrap();
        (0..50).for_each(|number| drop(catalog.commit(put(number, 3000)).wait().unwrap()));
        catalog.checkpoint().unwrap();
        catalog.commit(put(50, 3000)).wait().unwrap();
    }
    let mut refused = 0;
    for first in 0.. {
        let mut reads = 0;
        port.set(move |op| {
            reads += u32::from(matches!(op, Op::Read { .. }));
            if reads > first { Fate::Fail(MediaFault::Refused) } else { Fate::Pass }
        });
        match InlineCatalog::open(&port.handle(), options()) {
            Ok(_) => break,
            Err(CatalogError::Stopped(message)) => {
                assert!(
                    message.contains("Refused by the script") && !message.contains("rebuild"),
                    "{first}: {message}"
                );
                refused += 1;
            }
            Err(other) => panic!("read {first}: {other:?}"),
        }
    }
    assert!(refused > 10, "superblock, tree and journal: {refused}");
    port.set(|_| Fate::Fail(MediaFault::Retry));
    assert_eq!(InlineCatalog::open(&port.handle(), options()).map(drop), Err(CatalogError::Busy));
}

#[test]
fn a_failed_read_keeps_its_cause_and_stops_the_store() {
    for fault in [MediaFault::Refused, MediaFault::Retry, MediaFault::Damaged] {
        let (_volume, port) = formatted();
        let catalog = InlineCatalog::open(&port.handle(), options()).unwrap();
        (0..100).for_each(|number| drop(catalog.commit(put(number, 3000)).wait().unwrap()));
        catalog.checkpoint().unwrap();
        // It fails once, and a full queue stays full. A volume calls data damaged, too, whose
        // drives are away for a moment.
        let mut failed = false;
        port.set(move |op| match op {
            Op::Read { .. } if !std::mem::replace(&mut failed, fault != MediaFault::Retry) => Fate::Fail(fault),
            _ => Fate::Pass,
        });
        let view = catalog.snapshot().unwrap();
        // redb names the cause of the first failure only.
        for attempt in 0..3u32 {
            match view.get(RECORDS, &(10 * attempt).to_be_bytes()).map(drop).unwrap_err() {
                CatalogError::Damaged(message) if attempt == 0 && fault == MediaFault::Damaged => {
                    let (again, rebuild) = (message.find("start the server again"), message.find("rebuild"));
                    assert!(again.is_some() && again < rebuild, "{message}");
                }
                CatalogError::Stopped(message) => {
                    assert!(message.contains("by the script") && !message.contains("rebuild"), "{message}");
                    assert!(attempt == 0 || message.contains("start the server again"), "{message}");
                }
                other => panic!("{fault:?}, attempt {attempt}: {other}"),
            }
        }
        let judged = catalog.commit(Transaction::new().present(RECORDS, 50u32.to_be_bytes().to_vec())).wait();
        assert!(matches!(judged, Err(CatalogError::Stopped(_))), "{judged:?}");
        assert!(catalog.status().stopped, "{fault:?}");
    }
}

#[test]
fn a_view_that_outlives_its_catalog_is_no_damage() {
    let (_volume, port) = formatted();
    let catalog = EmbeddedCatalog::open(&port.handle(), options()).unwrap();
    (0..100).for_each(|number| drop(catalog.commit(put(number, 3000)).wait().unwrap()));
    catalog.checkpoint().wait().unwrap();
    let view = catalog.snapshot().unwrap();
    drop(catalog);
    let read = view.get(RECORDS, &50u32.to_be_bytes()).map(drop);
    assert!(matches!(&read, Err(CatalogError::Stopped(message)) if message.contains("closed")), "{read:?}");
}
