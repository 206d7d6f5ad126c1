//! Drives that an operator takes back: filled before they count, whatever happens in between.

use stele_ground::{Duration, VolumeId};

use crate::model::{AlarmKind, ArrayError, Command, DriveHealth};
use crate::testing::{Fixture, NoAnswer, pattern, spec};

const SIZE: usize = 4 << 20;

/// Writes all of the volume anew, whole stripes, so that every drive takes part.
fn rewrite(fixture: &mut Fixture, volume: VolumeId, seed: u64) -> Vec<u8> {
    let data = pattern(seed, SIZE);
    for (at, piece) in data.chunks(256 << 10).enumerate() {
        fixture.write(volume, (at * (256 << 10)) as u64, piece).expect("written");
    }
    fixture.command(Command::Checkpoint).expect("a checkpoint");
    data
}

/// Drive 3 was given up for its errors, answers again, and holds what is old.
fn given_up(seed: u64) -> (Fixture, VolumeId, Vec<u8>) {
    let mut fixture = Fixture::new(8, 8, seed);
    let volume = fixture.create_volume(spec("a", "4+2", SIZE as u64)).id;
    rewrite(&mut fixture, volume, 1);
    fixture.test_drives.drives[3].fails_writes = true;
    rewrite(&mut fixture, volume, 2);
    rewrite(&mut fixture, volume, 3);
    fixture.idle();
    assert_eq!(fixture.status().drives[3].health, DriveHealth::Failed);
    fixture.test_drives.drives[3].fails_writes = false;
    let data = rewrite(&mut fixture, volume, 4);
    fixture.idle();
    (fixture, volume, data)
}

fn is_whole(fixture: &mut Fixture, volume: VolumeId, data: &[u8], context: &str) {
    fixture.idle();
    let drive = fixture.status().drives[3].clone();
    assert_eq!(drive.health, DriveHealth::Healthy, "{context}: {drive:?}");
    assert_eq!((fixture.scrub(), fixture.status().lost_stripes), ((0, 0), 0), "{context}");
    fixture.pull(&[0, 6]);
    assert!(fixture.read(volume, 0, SIZE).expect("read without two others") == data, "{context}");
}

#[test]
fn a_drive_given_up_for_a_second_of_errors_comes_back() {
    let (mut fixture, volume, data) = given_up(1);
    assert!(fixture.status().drives[3].next.contains("stele drive clear 3"), "{:?}", fixture.status().drives[3]);
    fixture.alarms.clear();
    fixture.command(Command::ClearDrive { drive: 3 }).expect("taken back");
    let drive = fixture.status().drives[3].clone();
    assert_eq!(drive.health, DriveHealth::Stale, "it does not count before it is filled: {drive:?}");
    assert!(fixture.read(volume, 0, SIZE).expect("read meanwhile") == data);
    is_whole(&mut fixture, volume, &data, "cleared");
    assert!(fixture.alarms.iter().all(|alarm| !matches!(alarm.kind, AlarmKind::DriveFailed | AlarmKind::DriveSuspect)));
}

#[test]
fn a_drive_taken_back_counts_only_when_it_is_filled() {
    for moment in (0..240).step_by(6) {
        let (mut fixture, volume, data) = given_up(2);
        fixture.begin_command(Command::ClearDrive { drive: 3 });
        fixture.run_operations(moment);
        fixture.crash().expect("opened");
        let health = fixture.status().drives[3].health;
        assert!(matches!(health, DriveHealth::Failed | DriveHealth::Stale | DriveHealth::Healthy), "{health:?}");
        // Without as many drives as the code tolerates: what the drive holds must not be taken for
        // current.
        assert!(fixture.read(volume, 0, SIZE).expect("read") == data, "after {moment} operations");
        fixture.idle();
        if fixture.status().drives[3].health == DriveHealth::Failed {
            fixture.command(Command::ClearDrive { drive: 3 }).expect("taken back after the crash");
        }
        is_whole(&mut fixture, volume, &data, &format!("after {moment} operations"));
    }
}

#[test]
fn a_drive_given_up_before_a_restart_comes_back() {
    let (mut fixture, volume, data) = given_up(3);
    fixture.command(Command::Close).expect("closed");
    fixture.open().expect("opened");
    assert_eq!(fixture.status().drives[3].health, DriveHealth::Failed);
    fixture.command(Command::ClearDrive { drive: 3 }).expect("taken back");
    let rejected = fixture.status().drives.iter().filter(|drive| drive.index == u32::MAX).count();
    assert_eq!(rejected, 0, "{:?}", fixture.status().drives);
    is_whole(&mut fixture, volume, &data, "after a restart");
}

#[test]
fn a_drive_pulled_and_given_up_comes_back_by_name() {
    let (mut fixture, volume, data) = given_up(4);
    fixture.pull(&[3]);
    let refused = fixture.command(Command::ClearDrive { drive: 3 });
    assert!(matches!(&refused, Err(NoAnswer::Array(ArrayError::Degraded(text))) if text.contains("drive online 3")));
    let index = fixture.give_back(3) as u32;
    fixture.command(Command::OnlineDrive { drive: 3, index }).expect("taken back");
    fixture.idle();
    assert_eq!(fixture.status().drives[3].health, DriveHealth::Healthy);
    assert!(fixture.alarms.iter().all(|alarm| alarm.kind != AlarmKind::DriveRejected), "{:?}", fixture.alarms);
    // One that was only away, too.
    fixture.pull(&[5]);
    fixture.idle();
    let index = fixture.give_back(5) as u32;
    fixture.command(Command::OnlineDrive { drive: 5, index }).expect("taken back");
    is_whole(&mut fixture, volume, &data, "online");
}

#[test]
fn what_is_not_the_drive_that_was_given_up_is_refused() {
    let (mut fixture, volume, data) = given_up(5);
    fixture.pull(&[3]);
    let blank = fixture.add_blank() as u32;
    let online = |fixture: &mut Fixture, index| fixture.command(Command::OnlineDrive { drive: 3, index });
    let refused = online(&mut fixture, blank);
    assert!(matches!(refused, Err(NoAnswer::Array(ArrayError::Refused(_)))), "blank: {refused:?}");
    let refused = online(&mut fixture, 5);
    assert!(matches!(refused, Err(NoAnswer::Array(ArrayError::Refused(_)))), "another member: {refused:?}");
    // Its place was given to another drive: the old one never comes back by itself.
    let identity = stele_ground::DriveId([99; 16]);
    fixture
        .command(Command::ReplaceDrive { old: 3, new: blank, identity, enclosure: None, give_up: true })
        .expect("replaced");
    fixture.idle();
    let old = fixture.give_back(3) as u32;
    let refused = online(&mut fixture, old);
    assert!(matches!(refused, Err(NoAnswer::Array(_))), "replaced: {refused:?}");
    for drive in [8, 4000, u32::MAX] {
        let refused = fixture.command(Command::ClearDrive { drive });
        assert!(matches!(refused, Err(NoAnswer::Array(ArrayError::Missing(_)))), "{drive}: {refused:?}");
    }
    fixture.pass(Duration::from_secs(5));
    is_whole(&mut fixture, volume, &data, "strangers");
}

#[test]
fn clearing_a_suspect_drive_forgets_its_errors() {
    let mut fixture = Fixture::new(8, 8, 6);
    let volume = fixture.create_volume(spec("a", "4+2", SIZE as u64)).id;
    rewrite(&mut fixture, volume, 1);
    fixture.test_drives.drives[3].fails_writes = true;
    for stripe in 0..64u64 {
        fixture.write(volume, stripe << 16, &pattern(stripe, 64 << 10)).expect("written");
        if fixture.status().drives[3].write_errors >= 3 {
            break;
        }
    }
    fixture.test_drives.drives[3].fails_writes = false;
    fixture.idle();
    fixture.pass(Duration::from_secs(600));
    assert_eq!(fixture.status().drives[3].health, DriveHealth::Suspect);
    fixture.command(Command::ClearDrive { drive: 3 }).expect("cleared");
    let drive = fixture.status().drives[3].clone();
    assert_eq!((drive.health, drive.note.as_str()), (DriveHealth::Healthy, ""), "{drive:?}");
}
