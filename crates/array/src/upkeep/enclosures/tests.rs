//! Drives of one enclosure that hold more of a stripe than its code can lose, and how that ends.

use stele_ground::{DriveId, VolumeId};

use crate::model::{ArrayError, Command, DriveHealth};
use crate::testing::{Fixture, NoAnswer, pattern, spec};

const SIZE: usize = 12 << 20;

fn set(fixture: &mut Fixture, drive: u32, enclosure: u32) {
    fixture.command(Command::SetDrive { drive, enclosure }).expect("set");
}

fn enclosures(fixture: &mut Fixture) -> Vec<u32> {
    let drives = fixture.status().drives;
    // Of those that are no strangers.
    drives.iter().filter(|drive| drive.index != u32::MAX).map(|drive| drive.enclosure).collect()
}

fn written(fixture: &mut Fixture, code: &str) -> (VolumeId, Vec<u8>) {
    let volume = fixture.create_volume(spec("a", code, SIZE as u64)).id;
    let data = pattern(7, SIZE);
    fixture.write(volume, 0, &data).expect("written");
    fixture.command(Command::Checkpoint).expect("a checkpoint");
    (volume, data)
}

/// Reads everything without the drives of each enclosure in turn.
fn reads_without_any_enclosure(fixture: &mut Fixture, volume: VolumeId, data: &[u8]) {
    fixture.options.rebuild_after = stele_ground::Duration::from_secs(3600);
    let of = enclosures(fixture);
    for enclosure in 0..=of.iter().copied().max().unwrap_or(0) {
        let away: Vec<usize> = (0..of.len()).filter(|drive| of[*drive] == enclosure).collect();
        fixture.command(Command::Close).expect("closed");
        away.iter().for_each(|drive| fixture.test_drives.drives[*drive].gone = true);
        fixture.open().expect("opened");
        assert!(fixture.read(volume, 0, SIZE).expect("read") == data, "without enclosure {enclosure}");
        away.iter().for_each(|drive| fixture.test_drives.drives[*drive].gone = false);
        fixture.crash().expect("opened");
        fixture.idle();
    }
}

#[test]
fn a_replacement_is_in_the_enclosure_of_the_drive_before_it() {
    let mut fixture = Fixture::new(6, 3, 1);
    let before = enclosures(&mut fixture);
    for (old, said, expected) in [(4u32, None, before[4]), (5, Some(7), 7)] {
        fixture.pull(&[old as usize]);
        fixture.idle();
        // Attached by a driver that knows of no enclosure.
        let new = fixture.add_blank();
        let identity = DriveId([100 + old as u8; 16]);
        let command = Command::ReplaceDrive { old, new: new as u32, identity, enclosure: said, give_up: false };
        fixture.command(command).expect("replaced");
        fixture.idle();
        let drive = &fixture.status().drives[old as usize];
        assert_eq!((drive.identity, drive.enclosure), (identity, expected), "drive {old}");
        assert_eq!(drive.health, DriveHealth::Healthy);
    }
    fixture.crash().expect("opened");
    assert_eq!(enclosures(&mut fixture), [before[0], before[1], before[2], before[3], before[4], 7]);
}

#[test]
fn strips_that_crowd_an_enclosure_move_until_none_does() {
    let mut fixture = Fixture::new(9, 3, 2);
    let (volume, data) = written(&mut fixture, "4+2");
    assert_eq!((fixture.status().exposed_stripes, fixture.status().crowded_stripes), (0, 0));
    // It was plugged in elsewhere than was said.
    set(&mut fixture, 0, 1);
    let status = fixture.status();
    assert!(status.exposed_stripes > 0, "stripes have three strips in one enclosure now");
    assert_eq!(status.exposed_stripes, status.crowded_stripes, "and need not");
    fixture.idle();
    let status = fixture.status();
    assert_eq!((status.exposed_stripes, status.crowded_stripes, status.moving.is_some()), (0, 0, false));
    assert_eq!(fixture.scrub(), (0, 0));
    reads_without_any_enclosure(&mut fixture, volume, &data);
}

#[test]
fn stripes_keep_the_rule_as_soon_as_added_drives_allow_it() {
    let mut fixture = Fixture::new(6, 2, 3);
    let (volume, data) = written(&mut fixture, "4+2");
    let status = fixture.status();
    assert!(status.exposed_stripes > 0 && status.crowded_stripes == 0, "two enclosures allow no better");
    let drives = (0..3).map(|_| fixture.add_blank() as u32);
    let drives = drives.map(|index| (index, DriveId([100 + index as u8; 16]))).collect();
    fixture.command(Command::AddDrives { drives }).expect("added");
    for drive in [6, 7, 8] {
        set(&mut fixture, drive, 2);
    }
    fixture.idle();
    let status = fixture.status();
    assert_eq!((status.exposed_stripes, status.crowded_stripes, status.moving.is_some()), (0, 0, false));
    reads_without_any_enclosure(&mut fixture, volume, &data);
}

#[test]
fn a_crash_anywhere_while_strips_spread_leaves_them_to_be_spread() {
    let mut cut = 0;
    for moment in (20..2_000).step_by(60) {
        let mut fixture = Fixture::new(9, 3, moment);
        let (volume, data) = written(&mut fixture, "4+2");
        set(&mut fixture, 0, 1);
        fixture.test_drives.cut_at = Some(fixture.test_drives.operations + moment);
        let set = fixture.command(Command::SetDrive { drive: 1, enclosure: 0 });
        if set.is_ok() {
            fixture.idle();
        }
        let at = fixture.test_drives.cut_at.take();
        if at.is_some_and(|at| fixture.test_drives.operations >= at) {
            cut += 1;
            fixture.crash().expect("opened");
            fixture.command(Command::SetDrive { drive: 1, enclosure: 0 }).expect("set again");
            fixture.idle();
        }
        assert_eq!(fixture.status().crowded_stripes, 0, "moment {moment}");
        assert!(fixture.read(volume, 0, SIZE).expect("read") == data, "moment {moment}");
        assert_eq!(fixture.scrub(), (0, 0), "moment {moment}");
    }
    assert!(cut > 10, "{cut}");
}

#[test]
fn an_enclosure_is_said_only_of_a_drive_that_is_in_use() {
    let mut fixture = Fixture::new(8, 4, 4);
    written(&mut fixture, "2+1");
    let refused = |fixture: &mut Fixture, drive: u32, words: &str| match fixture
        .command(Command::SetDrive { drive, enclosure: 9 })
    {
        Err(NoAnswer::Array(error @ (ArrayError::Refused(_) | ArrayError::Missing(_)))) => {
            assert!(error.to_string().contains(words), "{error}");
        }
        other => panic!("{other:?}"),
    };
    refused(&mut fixture, 77, "no drive 77");
    refused(&mut fixture, 1 << 20, "no drive");
    fixture.command(Command::FailDrive { drive: 2 }).expect("failed");
    refused(&mut fixture, 2, "stele pool replace 2 PATH@9");
    fixture.command(Command::RemoveDrive { drive: 3 }).expect("begun");
    refused(&mut fixture, 3, "being emptied");
    fixture.idle();
    refused(&mut fixture, 3, "left the pool");
    set(&mut fixture, 4, 0);
    set(&mut fixture, 4, 5);
    fixture.crash().expect("opened");
    assert_eq!(fixture.status().drives.iter().find(|drive| drive.index == 4).map(|drive| drive.enclosure), Some(5));
}
