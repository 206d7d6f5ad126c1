//! Drives that an operator takes back: filled before they count, whatever happens in between.

use stele_ground::{Duration, VolumeId};

use crate::testing::{Bed, Trouble, pattern, spec};
use crate::{AlarmKind, ArrayError, Command, DriveHealth};

const SIZE: usize = 4 << 20;

/// Writes all of the volume anew, whole stripes, so that every drive takes part.
fn rewrite(bed: &mut Bed, volume: VolumeId, seed: u64) -> Vec<u8> {
    let data = pattern(seed, SIZE);
    for (at, piece) in data.chunks(256 << 10).enumerate() {
        bed.write(volume, (at * (256 << 10)) as u64, piece).expect("written");
    }
    bed.command(Command::Checkpoint).expect("a checkpoint");
    data
}

/// Drive 3 was given up for its errors, answers again, and holds what is old.
fn given_up(seed: u64) -> (Bed, VolumeId, Vec<u8>) {
    let mut bed = Bed::new(8, 8, seed);
    let volume = bed.create_volume(spec("a", "4+2", SIZE as u64)).id;
    rewrite(&mut bed, volume, 1);
    bed.yard.drives[3].fails_writes = true;
    rewrite(&mut bed, volume, 2);
    rewrite(&mut bed, volume, 3);
    bed.idle();
    assert_eq!(bed.status().drives[3].health, DriveHealth::Failed);
    bed.yard.drives[3].fails_writes = false;
    let data = rewrite(&mut bed, volume, 4);
    bed.idle();
    (bed, volume, data)
}

fn is_whole(bed: &mut Bed, volume: VolumeId, data: &[u8], context: &str) {
    bed.idle();
    let drive = bed.status().drives[3].clone();
    assert_eq!(drive.health, DriveHealth::Healthy, "{context}: {drive:?}");
    assert_eq!((bed.scrub(), bed.status().lost_stripes), ((0, 0), 0), "{context}");
    bed.pull(&[0, 6]);
    assert!(bed.read(volume, 0, SIZE).expect("read without two others") == data, "{context}");
}

#[test]
fn a_drive_given_up_for_a_second_of_errors_comes_back() {
    let (mut bed, volume, data) = given_up(1);
    assert!(bed.status().drives[3].next.contains("stele drive clear 3"), "{:?}", bed.status().drives[3]);
    bed.alarms.clear();
    bed.command(Command::ClearDrive { drive: 3 }).expect("taken back");
    let drive = bed.status().drives[3].clone();
    assert_eq!(drive.health, DriveHealth::Stale, "it does not count before it is filled: {drive:?}");
    assert!(bed.read(volume, 0, SIZE).expect("read meanwhile") == data);
    is_whole(&mut bed, volume, &data, "cleared");
    assert!(bed.alarms.iter().all(|alarm| !matches!(alarm.kind, AlarmKind::DriveFailed | AlarmKind::DriveSuspect)));
}

#[test]
fn a_drive_taken_back_counts_only_when_it_is_filled() {
    for moment in (0..240).step_by(6) {
        let (mut bed, volume, data) = given_up(2);
        bed.begin_command(Command::ClearDrive { drive: 3 });
        bed.run_operations(moment);
        bed.crash().expect("opened");
        let health = bed.status().drives[3].health;
        assert!(matches!(health, DriveHealth::Failed | DriveHealth::Stale | DriveHealth::Healthy), "{health:?}");
        // Without as many drives as the code tolerates: what the drive holds must not be taken for current.
        assert!(bed.read(volume, 0, SIZE).expect("read") == data, "after {moment} operations");
        bed.idle();
        if bed.status().drives[3].health == DriveHealth::Failed {
            bed.command(Command::ClearDrive { drive: 3 }).expect("taken back after the crash");
        }
        is_whole(&mut bed, volume, &data, &format!("after {moment} operations"));
    }
}

#[test]
fn a_drive_given_up_before_a_restart_comes_back() {
    let (mut bed, volume, data) = given_up(3);
    bed.command(Command::Close).expect("closed");
    bed.open().expect("opened");
    assert_eq!(bed.status().drives[3].health, DriveHealth::Failed);
    bed.command(Command::ClearDrive { drive: 3 }).expect("taken back");
    let rejected = bed.status().drives.iter().filter(|drive| drive.index == u32::MAX).count();
    assert_eq!(rejected, 0, "{:?}", bed.status().drives);
    is_whole(&mut bed, volume, &data, "after a restart");
}

#[test]
fn a_drive_pulled_and_given_up_comes_back_by_name() {
    let (mut bed, volume, data) = given_up(4);
    bed.pull(&[3]);
    let refused = bed.command(Command::ClearDrive { drive: 3 });
    assert!(matches!(&refused, Err(Trouble::Array(ArrayError::Degraded(text))) if text.contains("drive online 3")));
    let index = bed.give_back(3) as u32;
    bed.command(Command::OnlineDrive { drive: 3, index }).expect("taken back");
    bed.idle();
    assert_eq!(bed.status().drives[3].health, DriveHealth::Healthy);
    assert!(bed.alarms.iter().all(|alarm| alarm.kind != AlarmKind::DriveRejected), "{:?}", bed.alarms);
    // One that was only away, too.
    bed.pull(&[5]);
    bed.idle();
    let index = bed.give_back(5) as u32;
    bed.command(Command::OnlineDrive { drive: 5, index }).expect("taken back");
    is_whole(&mut bed, volume, &data, "online");
}

#[test]
fn what_is_not_the_drive_that_was_given_up_is_refused() {
    let (mut bed, volume, data) = given_up(5);
    bed.pull(&[3]);
    let blank = bed.add_blank() as u32;
    let online = |bed: &mut Bed, index| bed.command(Command::OnlineDrive { drive: 3, index });
    let refused = online(&mut bed, blank);
    assert!(matches!(refused, Err(Trouble::Array(ArrayError::Refused(_)))), "blank: {refused:?}");
    let refused = online(&mut bed, 5);
    assert!(matches!(refused, Err(Trouble::Array(ArrayError::Refused(_)))), "another member: {refused:?}");
    // Its place was given to another drive: the old one never comes back by itself.
    let identity = stele_ground::DriveId([99; 16]);
    bed.command(Command::ReplaceDrive { old: 3, new: blank, identity, enclosure: None, give_up: true })
        .expect("replaced");
    bed.idle();
    let old = bed.give_back(3) as u32;
    let refused = online(&mut bed, old);
    assert!(matches!(refused, Err(Trouble::Array(_))), "replaced: {refused:?}");
    for drive in [8, 4000, u32::MAX] {
        let refused = bed.command(Command::ClearDrive { drive });
        assert!(matches!(refused, Err(Trouble::Array(ArrayError::Missing(_)))), "{drive}: {refused:?}");
    }
    bed.pass(Duration::from_secs(5));
    is_whole(&mut bed, volume, &data, "strangers");
}

#[test]
fn clearing_a_suspect_drive_forgets_its_errors() {
    let mut bed = Bed::new(8, 8, 6);
    let volume = bed.create_volume(spec("a", "4+2", SIZE as u64)).id;
    rewrite(&mut bed, volume, 1);
    bed.yard.drives[3].fails_writes = true;
    for stripe in 0..64u64 {
        bed.write(volume, stripe << 16, &pattern(stripe, 64 << 10)).expect("written");
        if bed.status().drives[3].write_errors >= 3 {
            break;
        }
    }
    bed.yard.drives[3].fails_writes = false;
    bed.idle();
    bed.pass(Duration::from_secs(600));
    assert_eq!(bed.status().drives[3].health, DriveHealth::Suspect);
    bed.command(Command::ClearDrive { drive: 3 }).expect("cleared");
    let drive = bed.status().drives[3].clone();
    assert_eq!((drive.health, drive.note.as_str()), (DriveHealth::Healthy, ""), "{drive:?}");
}
