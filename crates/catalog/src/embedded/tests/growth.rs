//! A volume that grows under its catalog: transactions refused for lack of space succeed, nothing
//! is lost, and a power cut at any moment leaves a catalog that opens.

use stele_ground::{Bytes, Dice, MIB};

use super::power::{Image, PowerCut};
use crate::embedded::layout::Layout;
use crate::embedded::{EmbeddedCatalog, Format, InlineCatalog, Options, format};
use crate::{Catalog, CatalogError, Snapshot, Table, Transaction};

const RECORDS: Table = Table(1);
const SMALL: u64 = 48 * MIB;

fn options() -> Options {
    Options { cache: Bytes(MIB), overlay: Bytes(MIB), ..Options::default() }
}

fn formatted() -> Image {
    let volume = PowerCut::new(SMALL, Image::default(), 0, None);
    format(&volume.handle(), &Format { id: [3; 16], journal: None }).unwrap();
    volume.image()
}

fn put(number: u32, length: usize) -> Transaction {
    Transaction::new().put(RECORDS, number.to_be_bytes().to_vec(), vec![number as u8; length])
}

fn holds(view: &dyn Snapshot, numbers: std::ops::Range<u32>, length: usize) {
    for number in numbers {
        let value = view.get(RECORDS, &number.to_be_bytes()).unwrap().unwrap_or_else(|| panic!("{number} is there"));
        assert!(value.len() == length && value.iter().all(|byte| *byte == number as u8), "{number}");
    }
}

/// Puts records until the catalog reports that it is full; returns the first refused number.
fn fill(catalog: &dyn Catalog, from: u32, length: usize) -> u32 {
    (from..)
        .find(|number| match catalog.commit(put(*number, length)).wait() {
            Ok(_) => false,
            Err(CatalogError::Full(_)) => true,
            Err(other) => panic!("{number}: {other}"),
        })
        .unwrap()
}

fn gone(error: stele_media::MediaError) -> CatalogError {
    CatalogError::Stopped(error.to_string())
}

#[test]
fn a_full_catalog_takes_more_on_a_volume_that_grew() {
    let length = 30_000;
    let volume = PowerCut::new(SMALL, formatted(), 1, None);
    let catalog = EmbeddedCatalog::open(&volume.handle(), options()).unwrap();
    let first = fill(&catalog, 0, length);
    let (before, theirs) = (catalog.status(), volume.clone());
    assert!(before.full);
    catalog.grow(move || theirs.grow(2 * SMALL).map_err(gone)).wait().unwrap();
    assert_eq!(catalog.status().area.0, before.area.0 + SMALL, "it uses all that came");
    catalog.commit(put(first, length)).wait().expect("room at once");
    assert!(!catalog.status().full);
    let second = fill(&catalog, first + 1, length);
    assert!(second > 2 * first, "{first} on the small volume, {second} on one twice as large");
    holds(&*catalog.snapshot().unwrap(), 0..second, length);
    drop(catalog);
    // Check after a restart as well, and once more.
    let catalog = EmbeddedCatalog::open(&volume.handle(), options()).unwrap();
    holds(&*catalog.snapshot().unwrap(), 0..second, length);
    // A failed growth returns its error and changes nothing.
    let refused = catalog.grow(|| Err(CatalogError::Full("the pool has no room".into()))).wait();
    assert_eq!(refused, Err(CatalogError::Full("the pool has no room".into())));
    assert_eq!(catalog.status().area.0, before.area.0 + SMALL);
    let theirs = volume.clone();
    catalog.grow(move || theirs.grow(3 * SMALL + 5 * 4096).map_err(gone)).wait().unwrap();
    let third = fill(&catalog, second, length);
    assert!(third > 3 * first, "{first}, {second}, {third}");
    drop(catalog);
    let catalog = EmbeddedCatalog::open(&volume.handle(), options()).unwrap();
    holds(&*catalog.snapshot().unwrap(), 0..third, length);
}

/// Three writes of the superblock, on a volume that may grow before each; the power may go in each.
#[test]
fn whatever_write_of_the_superblock_is_cut_the_last_whole_one_is_found() {
    let image = formatted();
    let layout = Layout::read(&PowerCut::new(SMALL, image.clone(), 0, None).handle()).unwrap();
    for seed in 0..2000 {
        let mut dice = Dice::new(seed);
        let (mut image, mut size, mut known) = (image.clone(), SMALL, layout.clone());
        for round in 0..3 {
            let volume = PowerCut::new(size, image, seed << 2 | round, Some(1 + dice.below(4)));
            let handle = volume.handle();
            if dice.below(2) == 0 && known.prepare_to_grow(&handle).is_ok() {
                let _ = volume.grow(size + MIB);
            }
            let next = Layout { generation: known.generation + 1, ..known.on(volume.size()) };
            let written = next.write(&handle).is_ok();
            size = volume.size();
            image = volume.cut();
            let found = Layout::read(&PowerCut::new(size, image.clone(), 0, None).handle());
            let found = found.unwrap_or_else(|error| panic!("seed {seed}, round {round}: {error}"));
            assert!(found == next || !written && found == known, "seed {seed}, round {round}: {found:?}");
            known = found;
        }
    }
}

/// Length of the large records; the small volume holds some of them.
const LENGTH: usize = 1_900_000;
const COUNT: u32 = 11;

/// Continues from the present state, and grows the volume when it is full, until the end or a power
/// cut. Returns the volume and the number of puts that are certainly done.
fn run(size: u64, image: Image, seed: u64, step: Option<u64>, done: u32) -> (PowerCut, u32) {
    let volume = PowerCut::new(size, image, seed, step);
    let Ok(catalog) = InlineCatalog::open(&volume.handle(), options()) else {
        assert!(volume.is_dead(), "it opens while there is power");
        return (volume, done);
    };
    let view = catalog.snapshot().unwrap();
    holds(&*view, 0..done, LENGTH);
    let mut done = view.commit_number() as u32;
    drop(view);
    while done < COUNT && !volume.is_dead() {
        match catalog.commit(put(done, LENGTH)).wait() {
            Ok(_) => done += 1,
            Err(CatalogError::Full(_)) => {
                let _ = catalog.grow(|| volume.grow(2 * SMALL).map_err(gone));
            }
            Err(error) => assert!(volume.is_dead(), "{done}: {error}"),
        }
    }
    (volume, done)
}

#[test]
fn a_power_cut_at_every_write_of_a_growth_and_soon_after_loses_nothing() {
    let volume = PowerCut::new(SMALL, formatted(), 1, None);
    let full = fill(&InlineCatalog::open(&volume.handle(), options()).unwrap(), 0, LENGTH);
    assert!(full < COUNT - 1, "{full}");
    let image = volume.cut();
    let (volume, all) = run(SMALL, image.clone(), 1, None, full);
    assert_eq!(all, COUNT);
    let steps = volume.steps();
    let mut grown_unknown = 0;
    for step in 1..=steps {
        let (first, done) = run(SMALL, image.clone(), step, Some(step), full);
        let (size, image) = (first.size(), first.cut());
        let left = PowerCut::new(size, image.clone(), 0, None);
        grown_unknown += u32::from(Layout::read(&left.handle()).unwrap().volume < size);
        // A second cut soon after, at each place in turn.
        let (second, done) = run(size, image, step << 8, Some(1 + step % 19), done);
        let (size, image) = (second.size(), second.cut());
        let (third, all) = run(size, image, step << 16, None, done);
        assert_eq!(all, COUNT, "step {step} of {steps}");
        let again = InlineCatalog::open(&third.handle(), options()).unwrap();
        holds(&*again.snapshot().unwrap(), 0..COUNT, LENGTH);
    }
    assert!(grown_unknown > 0, "a cut between the volume's growth and the superblock is among them");
}
