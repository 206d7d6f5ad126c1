//! Redo records: in several groups of columns, and in a pool opened read-only.

use stele_ground::{Bytes, Duration, VolumeId};

use super::KIB;
use crate::model::{Command, DigestUnit, VolumeSpec};
use crate::testing::{Fixture, Trouble, pattern, spec};

const SIZE: usize = 16 << 20;
const STRIPE: usize = 4 << 20;

/// Stripes so wide that a destage in place takes two groups of columns, with 200 dirty columns in each.
fn wide(seed: u64) -> (Fixture, VolumeId, Vec<u8>) {
    let mut fixture = Fixture::new(9, 9, seed);
    fixture.options.rebuild_after = Duration::from_secs(3600);
    fixture.command(Command::Close).expect("closed");
    fixture.open().expect("opened");
    let volume = fixture.create_volume(VolumeSpec { strip: Bytes(1 << 20), ..spec("wide", "4+2", SIZE as u64) }).id;
    let mut model = pattern(seed, SIZE);
    fixture.write(volume, 0, &model).expect("written");
    fixture.command(Command::Close).expect("closed");
    fixture.open().expect("opened");
    for stripe in 0..SIZE / STRIPE {
        let new = pattern(50 + stripe as u64, 800 * KIB);
        fixture.write(volume, (stripe * STRIPE) as u64, &new).expect("written");
        model[stripe * STRIPE..][..new.len()].copy_from_slice(&new);
    }
    (fixture, volume, model)
}

#[test]
fn a_power_cut_between_two_groups_of_columns_loses_neither() {
    for case in 0..24u64 {
        let (mut fixture, volume, model) = wide(case);
        fixture.test_drives.cut_at = Some(fixture.test_drives.operations + 8 + case * 6);
        let cut = fixture.command(Command::Checkpoint);
        assert!(matches!(cut, Ok(_) | Err(Trouble::PowerCut)), "case {case}: {cut:?}");
        fixture.crash().expect("opened");
        // From the drives, not from what replay put into the cache.
        fixture.command(Command::Close).expect("closed");
        fixture.open().expect("opened");
        assert!(fixture.read(volume, 0, SIZE).expect("read") == model, "case {case}");
        assert_eq!(fixture.scrub(), (0, 0), "case {case}");
    }
}

#[test]
fn a_pool_opened_read_only_after_a_power_cut_reads_everything() {
    let mut owing = 0;
    for case in 0..24u64 {
        let mut fixture = Fixture::new(8, 8, case);
        let size = 1 << 20;
        let volume = fixture.create_volume(VolumeSpec { digest: DigestUnit::Strip, ..spec("a", "4+2", size) }).id;
        let mut model = pattern(case, size as usize);
        fixture.write(volume, 0, &model).expect("written");
        fixture.command(Command::Close).expect("closed");
        fixture.open().expect("opened");
        for stripe in 0..16 {
            let (at, new) = (stripe * 64 * KIB + 4 * KIB, pattern(stripe as u64, 4 * KIB));
            fixture.write(volume, at as u64, &new).expect("written");
            model[at..at + new.len()].copy_from_slice(&new);
        }
        fixture.test_drives.cut_at = Some(fixture.test_drives.operations + case * 16);
        let cut = fixture.command(Command::Checkpoint);
        assert!(matches!(cut, Ok(_) | Err(Trouble::PowerCut)), "case {case}: {cut:?}");
        fixture.options.read_only = true;
        fixture.crash().expect("opened");
        owing += fixture.pool.serving().expect("open").engine.look(|core| core.redo.bytes());
        let before = fixture.test_drives.operations;
        assert!(fixture.read(volume, 0, size as usize).expect("read") == model, "case {case}");
        assert!(fixture.test_drives.operations > before, "the drives were asked");
        fixture.options.read_only = false;
        fixture.crash().expect("opened");
        assert!(fixture.read(volume, 0, size as usize).expect("read") == model, "case {case}, writable");
        assert_eq!(fixture.scrub(), (0, 0), "case {case}");
    }
    assert!(owing > 0, "no case left redo images");
}

#[test]
fn a_drive_lost_while_redo_is_put_in_place_does_not_stop_the_opening() {
    for case in 0..32u64 {
        let mut fixture = Fixture::new(8, 8, case);
        let size = 1 << 20;
        let volume = fixture.create_volume(spec("a", "4+2", size)).id;
        let mut model = pattern(case, size as usize);
        fixture.write(volume, 0, &model).expect("written");
        fixture.command(Command::Close).expect("closed");
        fixture.open().expect("opened");
        for stripe in 0..16 {
            let (at, new) = (stripe * 64 * KIB + 4 * KIB, pattern(stripe as u64, 4 * KIB));
            fixture.write(volume, at as u64, &new).expect("written");
            model[at..at + new.len()].copy_from_slice(&new);
        }
        fixture.test_drives.cut_at = Some(fixture.test_drives.operations + 150);
        let cut = fixture.command(Command::Checkpoint);
        assert!(matches!(cut, Ok(_) | Err(Trouble::PowerCut)), "case {case}: {cut:?}");
        fixture.test_drives.cut();
        fixture.test_drives.lose_at =
            Some((fixture.test_drives.operations + 150 + case * 6, vec![(case % 8) as usize]));
        fixture.open().unwrap_or_else(|error| panic!("case {case}: {error:?}"));
        assert!(fixture.read(volume, 0, size as usize).expect("read") == model, "case {case}");
    }
}

/// The images stay while their stripe is dirty, and reads lay them over what drives give: a strip that missed them looks right
/// then, and is not.
#[test]
fn a_drive_that_missed_redone_images_is_filled() {
    let mut missed = 0;
    for case in 0..24u64 {
        let mut fixture = Fixture::new(8, 8, case);
        fixture.options.rebuild_after = Duration::from_secs(3600);
        let size = 1 << 20;
        let volume = fixture.create_volume(spec("a", "4+2", size)).id;
        let mut model = pattern(case, size as usize);
        fixture.write(volume, 0, &model).expect("written");
        fixture.command(Command::Close).expect("closed");
        fixture.open().expect("opened");
        let mut write = |fixture: &mut Fixture, stripe: usize, block: usize, seed: u64| {
            let (at, new) = (stripe * 64 * KIB + block * 4 * KIB, pattern(seed, 4 * KIB));
            fixture.write(volume, at as u64, &new).expect("written");
            model[at..at + new.len()].copy_from_slice(&new);
        };
        (0..16).for_each(|stripe| write(&mut fixture, stripe, 1, 100 + stripe as u64));
        fixture.test_drives.cut_at = Some(fixture.test_drives.operations + 30 + case * 6);
        let cut = fixture.command(Command::Checkpoint);
        assert!(matches!(cut, Ok(_) | Err(Trouble::PowerCut)), "case {case}: {cut:?}");
        fixture.test_drives.cut();
        let away = (case % 8) as usize;
        fixture.test_drives.drives[away].gone = true;
        fixture.open().expect("opened without a drive");
        missed += fixture.pool.serving().expect("open").engine.look(|core| core.redo.bytes());
        (0..16).for_each(|stripe| write(&mut fixture, stripe, 7, 200 + stripe as u64));
        fixture.give_back(away);
        fixture.pass(Duration::from_secs(1));
        fixture.command(Command::Checkpoint).expect("a checkpoint");
        assert_eq!(fixture.scrub(), (0, 0), "case {case}: the drive that was away was called whole");
        assert!(fixture.read(volume, 0, size as usize).expect("read") == model, "case {case}");
    }
    assert!(missed > 0, "no case left images");
}
