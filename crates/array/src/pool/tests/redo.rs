//! Redo records: in several groups of columns, and in a pool opened read-only.

use stele_ground::{Bytes, Duration, VolumeId};

use super::KIB;
use crate::testing::{Bed, Trouble, pattern, spec};
use crate::{Command, DigestUnit, VolumeSpec};

const SIZE: usize = 16 << 20;
const STRIPE: usize = 4 << 20;

/// Stripes so wide that a destage in place takes two groups of columns, with 200 dirty columns in each.
fn wide(seed: u64) -> (Bed, VolumeId, Vec<u8>) {
    let mut bed = Bed::new(9, 9, seed);
    bed.options.rebuild_after = Duration::from_secs(3600);
    bed.command(Command::Close).expect("closed");
    bed.open().expect("opened");
    let volume = bed.create_volume(VolumeSpec { strip: Bytes(1 << 20), ..spec("wide", "4+2", SIZE as u64) }).id;
    let mut model = pattern(seed, SIZE);
    bed.write(volume, 0, &model).expect("written");
    bed.command(Command::Close).expect("closed");
    bed.open().expect("opened");
    for stripe in 0..SIZE / STRIPE {
        let new = pattern(50 + stripe as u64, 800 * KIB);
        bed.write(volume, (stripe * STRIPE) as u64, &new).expect("written");
        model[stripe * STRIPE..][..new.len()].copy_from_slice(&new);
    }
    (bed, volume, model)
}

#[test]
fn a_power_cut_between_two_groups_of_columns_loses_neither() {
    for case in 0..24u64 {
        let (mut bed, volume, model) = wide(case);
        bed.yard.cut_at = Some(bed.yard.operations + 8 + case * 6);
        let cut = bed.command(Command::Checkpoint);
        assert!(matches!(cut, Ok(_) | Err(Trouble::PowerCut)), "case {case}: {cut:?}");
        bed.crash().expect("opened");
        // From the drives, not from what replay put into the cache.
        bed.command(Command::Close).expect("closed");
        bed.open().expect("opened");
        assert!(bed.read(volume, 0, SIZE).expect("read") == model, "case {case}");
        assert_eq!(bed.scrub(), (0, 0), "case {case}");
    }
}

#[test]
fn a_pool_opened_read_only_after_a_power_cut_reads_everything() {
    let mut owing = 0;
    for case in 0..24u64 {
        let mut bed = Bed::new(8, 8, case);
        let size = 1 << 20;
        let volume = bed.create_volume(VolumeSpec { digest: DigestUnit::Strip, ..spec("a", "4+2", size) }).id;
        let mut model = pattern(case, size as usize);
        bed.write(volume, 0, &model).expect("written");
        bed.command(Command::Close).expect("closed");
        bed.open().expect("opened");
        for stripe in 0..16 {
            let (at, new) = (stripe * 64 * KIB + 4 * KIB, pattern(stripe as u64, 4 * KIB));
            bed.write(volume, at as u64, &new).expect("written");
            model[at..at + new.len()].copy_from_slice(&new);
        }
        bed.yard.cut_at = Some(bed.yard.operations + case * 16);
        let cut = bed.command(Command::Checkpoint);
        assert!(matches!(cut, Ok(_) | Err(Trouble::PowerCut)), "case {case}: {cut:?}");
        bed.options.read_only = true;
        bed.crash().expect("opened");
        owing += bed.pool.serving().expect("open").engine.redo.bytes();
        let before = bed.yard.operations;
        assert!(bed.read(volume, 0, size as usize).expect("read") == model, "case {case}");
        assert!(bed.yard.operations > before, "the drives were asked");
        bed.options.read_only = false;
        bed.crash().expect("opened");
        assert!(bed.read(volume, 0, size as usize).expect("read") == model, "case {case}, writable");
        assert_eq!(bed.scrub(), (0, 0), "case {case}");
    }
    assert!(owing > 0, "no case left redo images");
}

#[test]
fn a_drive_lost_while_redo_is_put_in_place_does_not_stop_the_opening() {
    for case in 0..32u64 {
        let mut bed = Bed::new(8, 8, case);
        let size = 1 << 20;
        let volume = bed.create_volume(spec("a", "4+2", size)).id;
        let mut model = pattern(case, size as usize);
        bed.write(volume, 0, &model).expect("written");
        bed.command(Command::Close).expect("closed");
        bed.open().expect("opened");
        for stripe in 0..16 {
            let (at, new) = (stripe * 64 * KIB + 4 * KIB, pattern(stripe as u64, 4 * KIB));
            bed.write(volume, at as u64, &new).expect("written");
            model[at..at + new.len()].copy_from_slice(&new);
        }
        bed.yard.cut_at = Some(bed.yard.operations + 150);
        let cut = bed.command(Command::Checkpoint);
        assert!(matches!(cut, Ok(_) | Err(Trouble::PowerCut)), "case {case}: {cut:?}");
        bed.yard.cut();
        bed.yard.lose_at = Some((bed.yard.operations + 150 + case * 6, vec![(case % 8) as usize]));
        bed.open().unwrap_or_else(|error| panic!("case {case}: {error:?}"));
        assert!(bed.read(volume, 0, size as usize).expect("read") == model, "case {case}");
    }
}

/// The images stay while their stripe is dirty, and reads lay them over what drives give: a strip that missed them looks right
/// then, and is not.
#[test]
fn a_drive_that_missed_redone_images_is_filled() {
    let mut missed = 0;
    for case in 0..24u64 {
        let mut bed = Bed::new(8, 8, case);
        bed.options.rebuild_after = Duration::from_secs(3600);
        let size = 1 << 20;
        let volume = bed.create_volume(spec("a", "4+2", size)).id;
        let mut model = pattern(case, size as usize);
        bed.write(volume, 0, &model).expect("written");
        bed.command(Command::Close).expect("closed");
        bed.open().expect("opened");
        let mut write = |bed: &mut Bed, stripe: usize, block: usize, seed: u64| {
            let (at, new) = (stripe * 64 * KIB + block * 4 * KIB, pattern(seed, 4 * KIB));
            bed.write(volume, at as u64, &new).expect("written");
            model[at..at + new.len()].copy_from_slice(&new);
        };
        (0..16).for_each(|stripe| write(&mut bed, stripe, 1, 100 + stripe as u64));
        bed.yard.cut_at = Some(bed.yard.operations + 30 + case * 6);
        let cut = bed.command(Command::Checkpoint);
        assert!(matches!(cut, Ok(_) | Err(Trouble::PowerCut)), "case {case}: {cut:?}");
        bed.yard.cut();
        let away = (case % 8) as usize;
        bed.yard.drives[away].gone = true;
        bed.open().expect("opened without a drive");
        missed += bed.pool.serving().expect("open").engine.redo.bytes();
        (0..16).for_each(|stripe| write(&mut bed, stripe, 7, 200 + stripe as u64));
        bed.give_back(away);
        bed.pass(Duration::from_secs(1));
        bed.command(Command::Checkpoint).expect("a checkpoint");
        assert_eq!(bed.scrub(), (0, 0), "case {case}: the drive that was away was called whole");
        assert!(bed.read(volume, 0, size as usize).expect("read") == model, "case {case}");
    }
    assert!(missed > 0, "no case left images");
}
