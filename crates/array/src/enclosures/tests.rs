//! Drives of one enclosure that hold more of a stripe than its code can lose, and how that ends.

use stele_ground::{DriveId, VolumeId};

use crate::testing::{Bed, Trouble, pattern, spec};
use crate::{ArrayError, Command, DriveHealth};

const SIZE: usize = 12 << 20;

fn set(bed: &mut Bed, drive: u32, enclosure: u32) {
    bed.command(Command::SetDrive { drive, enclosure }).expect("set");
}

fn enclosures(bed: &mut Bed) -> Vec<u32> {
    let drives = bed.status().drives;
    // Of those that are no strangers.
    drives.iter().filter(|drive| drive.index != u32::MAX).map(|drive| drive.enclosure).collect()
}

fn written(bed: &mut Bed, code: &str) -> (VolumeId, Vec<u8>) {
    let volume = bed.create_volume(spec("a", code, SIZE as u64)).id;
    let data = pattern(7, SIZE);
    bed.write(volume, 0, &data).expect("written");
    bed.command(Command::Checkpoint).expect("a checkpoint");
    (volume, data)
}

/// Reads everything without the drives of each enclosure in turn.
fn reads_without_any_enclosure(bed: &mut Bed, volume: VolumeId, data: &[u8]) {
    bed.options.rebuild_after = stele_ground::Duration::from_secs(3600);
    let of = enclosures(bed);
    for enclosure in 0..=of.iter().copied().max().unwrap_or(0) {
        let away: Vec<usize> = (0..of.len()).filter(|drive| of[*drive] == enclosure).collect();
        bed.command(Command::Close).expect("closed");
        away.iter().for_each(|drive| bed.yard.drives[*drive].gone = true);
        bed.open().expect("opened");
        assert!(bed.read(volume, 0, SIZE).expect("read") == data, "without enclosure {enclosure}");
        away.iter().for_each(|drive| bed.yard.drives[*drive].gone = false);
        bed.crash().expect("opened");
        bed.idle();
    }
}

#[test]
fn a_replacement_is_in_the_enclosure_of_the_drive_before_it() {
    let mut bed = Bed::new(6, 3, 1);
    let before = enclosures(&mut bed);
    for (old, said, expected) in [(4u32, None, before[4]), (5, Some(7), 7)] {
        bed.pull(&[old as usize]);
        bed.idle();
        // Attached by a driver that knows of no enclosure.
        let new = bed.add_blank();
        let identity = DriveId([100 + old as u8; 16]);
        let command = Command::ReplaceDrive { old, new: new as u32, identity, enclosure: said, give_up: false };
        bed.command(command).expect("replaced");
        bed.idle();
        let drive = &bed.status().drives[old as usize];
        assert_eq!((drive.identity, drive.enclosure), (identity, expected), "drive {old}");
        assert_eq!(drive.health, DriveHealth::Healthy);
    }
    bed.crash().expect("opened");
    assert_eq!(enclosures(&mut bed), [before[0], before[1], before[2], before[3], before[4], 7]);
}

#[test]
fn strips_that_crowd_an_enclosure_move_until_none_does() {
    let mut bed = Bed::new(9, 3, 2);
    let (volume, data) = written(&mut bed, "4+2");
    assert_eq!((bed.status().exposed_stripes, bed.status().crowded_stripes), (0, 0));
    // It was plugged in elsewhere than was said.
    set(&mut bed, 0, 1);
    let status = bed.status();
    assert!(status.exposed_stripes > 0, "stripes have three strips in one enclosure now");
    assert_eq!(status.exposed_stripes, status.crowded_stripes, "and need not");
    bed.idle();
    let status = bed.status();
    assert_eq!((status.exposed_stripes, status.crowded_stripes, status.moving.is_some()), (0, 0, false));
    assert_eq!(bed.scrub(), (0, 0));
    reads_without_any_enclosure(&mut bed, volume, &data);
}

#[test]
fn stripes_keep_the_rule_as_soon_as_added_drives_allow_it() {
    let mut bed = Bed::new(6, 2, 3);
    let (volume, data) = written(&mut bed, "4+2");
    let status = bed.status();
    assert!(status.exposed_stripes > 0 && status.crowded_stripes == 0, "two enclosures allow no better");
    let drives = (0..3).map(|_| bed.add_blank() as u32);
    let drives = drives.map(|index| (index, DriveId([100 + index as u8; 16]))).collect();
    bed.command(Command::AddDrives { drives }).expect("added");
    for drive in [6, 7, 8] {
        set(&mut bed, drive, 2);
    }
    bed.idle();
    let status = bed.status();
    assert_eq!((status.exposed_stripes, status.crowded_stripes, status.moving.is_some()), (0, 0, false));
    reads_without_any_enclosure(&mut bed, volume, &data);
}

#[test]
fn a_crash_anywhere_while_strips_spread_leaves_them_to_be_spread() {
    let mut cut = 0;
    for moment in (20..2_000).step_by(60) {
        let mut bed = Bed::new(9, 3, moment);
        let (volume, data) = written(&mut bed, "4+2");
        set(&mut bed, 0, 1);
        bed.yard.cut_at = Some(bed.yard.operations + moment);
        let set = bed.command(Command::SetDrive { drive: 1, enclosure: 0 });
        if set.is_ok() {
            bed.idle();
        }
        let at = bed.yard.cut_at.take();
        if at.is_some_and(|at| bed.yard.operations >= at) {
            cut += 1;
            bed.crash().expect("opened");
            bed.command(Command::SetDrive { drive: 1, enclosure: 0 }).expect("set again");
            bed.idle();
        }
        assert_eq!(bed.status().crowded_stripes, 0, "moment {moment}");
        assert!(bed.read(volume, 0, SIZE).expect("read") == data, "moment {moment}");
        assert_eq!(bed.scrub(), (0, 0), "moment {moment}");
    }
    assert!(cut > 10, "{cut}");
}

#[test]
fn an_enclosure_is_said_only_of_a_drive_that_is_in_use() {
    let mut bed = Bed::new(8, 4, 4);
    written(&mut bed, "2+1");
    let refused = |bed: &mut Bed, drive: u32, words: &str| match bed.command(Command::SetDrive { drive, enclosure: 9 })
    {
        Err(Trouble::Array(error @ (ArrayError::Refused(_) | ArrayError::Missing(_)))) => {
            assert!(error.to_string().contains(words), "{error}");
        }
        other => panic!("{other:?}"),
    };
    refused(&mut bed, 77, "no drive 77");
    refused(&mut bed, 1 << 20, "no drive");
    bed.command(Command::FailDrive { drive: 2 }).expect("failed");
    refused(&mut bed, 2, "stele pool replace 2 PATH@9");
    bed.command(Command::RemoveDrive { drive: 3 }).expect("begun");
    refused(&mut bed, 3, "being emptied");
    bed.idle();
    refused(&mut bed, 3, "left the pool");
    set(&mut bed, 4, 0);
    set(&mut bed, 4, 5);
    bed.crash().expect("opened");
    assert_eq!(bed.status().drives.iter().find(|drive| drive.index == 4).map(|drive| drive.enclosure), Some(5));
}
