use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;

use stele_ground::Dice;

use super::*;
use crate::backup::{BackupProgress, Saved, Source, run};
use crate::repository::Repository;
use crate::restore::volume::{self as restore, VolumeWriter};
use crate::store::{Folder, Store};
use crate::testing::{Temporary, options, random, repository};
use crate::verify;

const BLOCK: u64 = 64 << 10;

/// A volume of stripes, its snapshots, and what was read of it. A stripe that is not there reads as
/// zeros.
#[derive(Default)]
struct Array {
    size: u64,
    now: BTreeMap<u64, Vec<u8>>,
    snapshots: BTreeMap<u32, BTreeMap<u64, Vec<u8>>>,
    /// The stripes that were written since each snapshot.
    written: BTreeMap<u32, Vec<u64>>,
    /// Blocks of 4096 that cannot be read.
    bad: std::collections::BTreeSet<u64>,
}

impl Array {
    fn write(&mut self, stripe: u64, content: Vec<u8>) {
        self.now.insert(stripe, content);
        self.note(stripe);
    }

    fn trim(&mut self, stripe: u64) {
        self.now.remove(&stripe);
        self.note(stripe);
    }

    fn note(&mut self, stripe: u64) {
        self.written.values_mut().for_each(|written| written.push(stripe));
    }

    fn snapshot(&mut self, number: u32) -> Taken<'_> {
        self.snapshots.insert(number, self.now.clone());
        // What changed between two snapshots is what was written before the later one.
        let since = self.written.clone();
        self.written.insert(number, Vec::new());
        Taken { array: self, number, since, read: AtomicU64::new(0) }
    }
}

struct Taken<'a> {
    array: &'a Array,
    number: u32,
    since: BTreeMap<u32, Vec<u64>>,
    read: AtomicU64,
}

impl VolumeReader for Taken<'_> {
    fn size(&self) -> u64 {
        self.array.size
    }

    fn origin(&self) -> Origin {
        Origin {
            cell: CELL,
            block: 4096,
            strip: BLOCK,
            digests_strips: false,
            code: "mirror-2".to_owned(),
            snapshot: format!("snapshot-{}", self.number),
            number: self.number,
            made: 7,
        }
    }

    fn has_base(&self, base: &Origin) -> Result<bool> {
        Ok(self.array.snapshots.contains_key(&base.number))
    }

    fn runs(&self, at: u64, length: u64, since: Option<&Origin>) -> Result<Vec<(u64, bool)>> {
        let owned = &self.array.snapshots[&self.number];
        let is = |stripe: u64| match since {
            Some(base) => self.since[&base.number].contains(&stripe),
            None => owned.contains_key(&stripe),
        };
        Ok((at / BLOCK..(at + length).div_ceil(BLOCK))
            .map(|stripe| (BLOCK.min(at + length - stripe * BLOCK), is(stripe)))
            .collect())
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Result<()> {
        if let Some(bad) = self.array.bad.range(at / 4096..(at + into.len() as u64).div_ceil(4096)).next() {
            // What a failed read leaves in the buffer is no content.
            into.fill(0xEE);
            return Err(BackupError::Damaged(format!("block {bad} is lost")));
        }
        self.read.fetch_add(into.len() as u64, Ordering::Relaxed);
        for (at, part) in (at..).step_by(4096).zip(into.chunks_mut(4096)) {
            match self.array.snapshots[&self.number].get(&(at / BLOCK)) {
                Some(content) => part.copy_from_slice(&content[(at % BLOCK) as usize..][..part.len()]),
                None => part.fill(0),
            }
        }
        Ok(())
    }
}

/// A new volume: blocks of 4096 that were written.
#[derive(Default)]
struct Blank(Mutex<BTreeMap<u64, Vec<u8>>>);

impl VolumeWriter for Blank {
    fn write(&self, at: u64, content: &[u8]) -> Result<()> {
        let mut blocks = self.0.lock().unwrap();
        (0..).zip(content.chunks(4096)).for_each(|(number, block)| {
            assert!(blocks.insert(at / 4096 + number, block.to_vec()).is_none(), "written twice");
        });
        Ok(())
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Result<()> {
        let blocks = self.0.lock().unwrap();
        for (number, part) in (at / 4096..).zip(into.chunks_mut(4096)) {
            part.copy_from_slice(blocks.get(&number).map_or(&[0; 4096][..], |block| block)[..part.len()].as_ref());
        }
        Ok(())
    }
}

fn save_it(repository: &Repository, taken: &Taken<'_>) -> Result<Saved> {
    let options = options(std::path::Path::new("/"));
    run(repository, Source::Volume { name: "vm".to_owned(), reader: taken }, &options, &BackupProgress::default())
}

#[track_caller]
fn restored(repository: &Repository, saved: &Saved, array: &Array, number: u32) {
    let (indexed, _) = repository.index(&repository.epoch().unwrap(), None).unwrap();
    let description = indexed.snapshot(&saved.id).unwrap().description;
    let volume = restore::select(&indexed, &description, b"").unwrap();
    let blank = Blank::default();
    let done = restore::run(&indexed, &volume, &blank, 2, true, &Default::default()).unwrap();
    assert_eq!((done.problems, done.issues), (saved.description.problems, saved.description.issues.clone()));
    assert_eq!(volume.size, array.size);
    let blocks = blank.0.into_inner().unwrap();
    let owned = &array.snapshots[&number];
    let mut expected = BTreeMap::new();
    for (stripe, content) in owned {
        for (at, block) in (stripe * BLOCK / 4096..).zip(content.chunks(4096)) {
            let is_lost = array.bad.contains(&at);
            if block.iter().any(|byte| *byte != 0) && at * 4096 < array.size && !is_lost {
                expected.insert(at, block.to_vec());
            }
        }
    }
    assert!(blocks == expected, "the volume differs from its snapshot");
}

#[test]
fn only_what_changed_is_read_and_every_snapshot_is_restored() {
    let (repository, _) = repository(1);
    let mut array = Array { size: (2 << 30) + 3 * 4096, ..Array::default() };
    let mut dice = Dice::new(1);
    let last = array.size / BLOCK;
    for stripe in [0, 1, 5, 4095, 4096, 16_383, 16_384, 20_000, last] {
        array.write(stripe, random(dice.roll(), BLOCK as usize));
    }
    array.write(40, vec![0; BLOCK as usize]);
    let taken = array.snapshot(1);
    let first = save_it(&repository, &taken).unwrap();
    let figures = first.volume.unwrap();
    assert_eq!((first.parent, figures.unchanged), (None, 0));
    assert_eq!(figures.read, taken.read.into_inner());
    assert_eq!(figures.read, 8 * CELL + 3 * 4096, "whole cells, and none that owns no space");
    restored(&repository, &first, &array, 1);

    let taken = array.snapshot(2);
    let same = save_it(&repository, &taken).unwrap();
    assert_eq!((same.parent, taken.read.into_inner()), (Some(first.id), 0), "nothing changed, nothing is read");
    assert!(same.description.counts.bytes_new < 1000, "the tree names another snapshot, and that is all");
    restored(&repository, &same, &array, 2);

    array.write(5, random(dice.roll(), BLOCK as usize));
    array.trim(4096);
    array.trim(0);
    array.write(30_000, random(dice.roll(), BLOCK as usize));
    let taken = array.snapshot(3);
    let third = save_it(&repository, &taken).unwrap();
    // The cells of stripes 0 and 5 still own space; that of 4096 owns none.
    assert_eq!((third.parent, taken.read.into_inner()), (Some(same.id), 3 * CELL));
    restored(&repository, &third, &array, 3);
    restored(&repository, &first, &array, 1);

    // Larger: the last cell is another one.
    array.size += 5 * CELL;
    array.write(last + 1, random(dice.roll(), BLOCK as usize));
    let taken = array.snapshot(4);
    let grown = save_it(&repository, &taken).unwrap();
    assert!(taken.read.into_inner() <= 2 * CELL);
    restored(&repository, &grown, &array, 4);
    assert!(verify::run(&repository, true, 2, &Default::default()).unwrap().is_good());
}

#[test]
fn without_its_base_a_volume_is_read_in_full() {
    let (repository, _) = repository(2);
    let mut array = Array { size: 64 << 20, ..Array::default() };
    (0..64).for_each(|stripe| array.write(stripe * 7, random(stripe, BLOCK as usize)));
    let first = save_it(&repository, &array.snapshot(1)).unwrap();
    array.write(7, random(99, BLOCK as usize));
    let second = save_it(&repository, &array.snapshot(2)).unwrap();
    assert_eq!(second.parent, Some(first.id));
    // The latest base is gone, and the one before is there: that one is used.
    array.snapshots.remove(&2);
    array.write(14, random(100, BLOCK as usize));
    let taken = array.snapshot(3);
    let third = save_it(&repository, &taken).unwrap();
    assert_eq!((third.parent, taken.read.into_inner()), (Some(first.id), 2 * CELL));
    restored(&repository, &third, &array, 3);
    // None is left.
    (1..=3).for_each(|number| drop(array.snapshots.remove(&number)));
    array.trim(21);
    let taken = array.snapshot(4);
    let fourth = save_it(&repository, &taken).unwrap();
    assert_eq!(fourth.parent, None);
    assert_eq!(fourth.volume.unwrap().unchanged, 0);
    assert_eq!(taken.read.into_inner(), fourth.volume.unwrap().read);
    restored(&repository, &fourth, &array, 4);
}

#[test]
fn a_chunk_that_is_damaged_is_read_again() {
    let (repository, store) = repository(3);
    let mut array = Array { size: 16 << 20, ..Array::default() };
    (0..40).for_each(|stripe| array.write(stripe * 6, random(stripe, BLOCK as usize)));
    save_it(&repository, &array.snapshot(1)).unwrap();
    let name = store.names(Folder::Segments).first().unwrap().clone();
    store.damage(&name, |bytes| bytes[100] ^= 1);
    assert!(!verify::run(&repository, true, 2, &Default::default()).unwrap().is_good());
    let taken = array.snapshot(2);
    let second = save_it(&repository, &taken).unwrap();
    assert!(taken.read.into_inner() >= CELL, "the damaged cell is read, although it did not change");
    restored(&repository, &second, &array, 2);
    assert_eq!(verify::run(&repository, true, 2, &Default::default()).unwrap().lost_files, 0);
}

#[test]
fn what_cannot_be_read_is_listed_and_all_else_is_saved() {
    let (repository, _) = repository(6);
    let mut array = Array { size: (64 << 20) + 3 * 4096, ..Array::default() };
    (0..40).for_each(|stripe| array.write(stripe * 6, random(stripe, BLOCK as usize)));
    let last = array.size / BLOCK;
    array.write(last, random(77, BLOCK as usize));
    let first = save_it(&repository, &array.snapshot(1)).unwrap();
    // Written since, and lost: two blocks side by side, one alone, and the last one. Stripe 6 is
    // lost too, but the first backup has it, and it did not change.
    for stripe in [60, 120, last] {
        array.write(stripe, random(100 + stripe, BLOCK as usize));
    }
    array.bad = [60 * 16 + 3, 60 * 16 + 4, 120 * 16 + 15, last * 16 + 2, 6 * 16].into();
    let second = save_it(&repository, &array.snapshot(2)).unwrap();
    assert_eq!((second.parent, second.description.problems), (Some(first.id), 3));
    assert_eq!(second.volume.unwrap().lost, 4 * 4096);
    let places: Vec<String> =
        second.description.issues.iter().map(|is| is.text.split(" cannot").next().unwrap().to_owned()).collect();
    for (from, blocks) in [(60 * BLOCK + 3 * 4096, 2), (120 * BLOCK + 15 * 4096, 1), (last * BLOCK + 2 * 4096, 1)] {
        let place = format!("bytes {from} to {}", from + blocks * 4096);
        assert!(places.contains(&place), "{place}: {places:?}");
    }
    assert!(second.description.issues.iter().all(|is| is.path == b"stele-volumes/vm"));
    array.bad.remove(&(6 * 16));
    restored(&repository, &second, &array, 2);
    let target = Temporary::new();
    let as_file = crate::testing::restore(&repository, &second, "/".as_ref(), &target.0).unwrap();
    assert_eq!((as_file.files, as_file.problems), (1, 3));
    assert_eq!(as_file.issues, second.description.issues);
    // The next backup goes on from the complete one, although the other one is later, and reads
    // what changed since.
    array.bad.clear();
    array.write(180, random(200, BLOCK as usize));
    let taken = array.snapshot(3);
    let third = save_it(&repository, &taken).unwrap();
    assert_eq!((third.parent, third.description.problems), (Some(first.id), 0));
    assert_eq!(taken.read.into_inner(), 3 * CELL + 3 * 4096, "four cells changed since the complete backup");
    restored(&repository, &third, &array, 3);
    restored(&repository, &first, &array, 1);
}

#[test]
fn a_volume_of_which_nothing_can_be_read_leaves_no_snapshot() {
    let (repository, _) = repository(7);
    let mut array = Array { size: 1 << 20, ..Array::default() };
    array.write(3, random(3, BLOCK as usize));
    array.bad = (0..256).collect();
    let failure = save_it(&repository, &array.snapshot(1)).unwrap_err();
    assert!(matches!(&failure, BackupError::Damaged(text) if text.contains("no part of volume 'vm'")), "{failure}");
    assert!(repository.snapshots().unwrap().is_empty());
}

#[test]
fn a_snapshot_that_cannot_be_read_back_is_an_error() {
    let (repository, store) = repository(4);
    let mut array = Array { size: 1 << 20, ..Array::default() };
    array.write(3, random(3, BLOCK as usize));
    let saved = save_it(&repository, &array.snapshot(1)).unwrap();
    let (indexed, _) = repository.index(&repository.epoch().unwrap(), None).unwrap();
    let segments: Vec<SegmentId> = indexed.segments().unwrap().into_iter().map(|(id, _)| id).collect();
    let confirm = |id, segments: &[SegmentId]| confirm(&indexed, id, segments, &BackupProgress::default());
    confirm(&saved.id, &segments).unwrap();
    store.damage(&Name::segment(&segments[0]), |bytes| bytes[60] ^= 1);
    assert!(matches!(confirm(&saved.id, &segments), Err(BackupError::Damaged(_))));
    assert!(matches!(confirm(&SnapshotId([9; 32]), &[]), Err(BackupError::Missing(_))));
}

#[test]
fn a_snapshot_that_takes_more_than_a_day_to_be_read_back_stays() {
    let (repository, store) = repository(5);
    let mut array = Array { size: 1 << 20, ..Array::default() };
    array.write(3, random(3, BLOCK as usize));
    let later = 1_000_000 + 2 * crate::repository::epochs::SESSION_SECONDS;
    store.jump_at_reading(Folder::Segments, later);
    let saved = save_it(&repository, &array.snapshot(1)).unwrap();
    assert_eq!(store.now().unwrap(), later, "no segment was read back");
    assert_eq!(repository.snapshots().unwrap().iter().map(|dated| dated.id).collect::<Vec<_>>(), [saved.id]);
    // A stop is heard while it is read back.
    let (indexed, _) = repository.index(&repository.epoch().unwrap(), None).unwrap();
    let segments: Vec<SegmentId> = indexed.segments().unwrap().into_iter().map(|(id, _)| id).collect();
    let progress = BackupProgress::default();
    progress.stop.store(true, Ordering::Relaxed);
    assert!(matches!(confirm(&indexed, &saved.id, &segments, &progress), Err(BackupError::Stopped)));
}

#[test]
fn names_and_sizes_beyond_the_limits_are_refused() {
    for name in ["", "..", "a/b"] {
        assert!(matches!(path(name), Err(BackupError::Invalid(_))), "{name}");
    }
    assert_eq!(cell_of(1 << 44).unwrap(), CELL);
    assert_eq!(cell_of((1 << 44) + 4096).unwrap(), 2 * CELL);
    assert_eq!(cell_of(1 << 48).unwrap(), CELL_MAX);
    assert!(matches!(cell_of((1 << 48) + 4096), Err(BackupError::Invalid(_))));
}

#[test]
fn an_answer_of_another_length_ends_the_backup() {
    let part = Part { from: 0, length: 3 * CELL, cell: CELL };
    assert_eq!(part.marks(&[(CELL, false), (1, true), (2 * CELL - 1, false)]).unwrap(), [false, true, false]);
    for runs in [vec![(CELL, true)], vec![(4 * CELL, true)], vec![(u64::MAX, true), (u64::MAX, true)]] {
        assert!(part.marks(&runs).is_err());
    }
    let chunk = |length| Piece::Chunk { id: ChunkId([1; 32]), length };
    let old = [Piece::Hole(CELL), chunk(CELL as u32 - 1), chunk(CELL as u32 + 1)];
    assert_eq!(part.known(&old), [Some(Piece::Hole(CELL)), None, None], "chunks beside the grid are no cells");
}
