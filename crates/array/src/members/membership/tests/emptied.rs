//! Drives that are emptied to leave, and drives that stay after all.

use stele_ground::{Duration, VolumeId};

use super::*;

fn pool(drives: usize, code: &str, rebuild_after: Duration) -> (Fixture, VolumeId) {
    let options = crate::model::OpenOptions { rebuild_after, ..Default::default() };
    let mut fixture = Fixture::blank(drives, drives as u32, 2, options);
    assert_eq!(fixture.settle(), Ok(()));
    let volume = fixture.create_volume(spec("a", code, 16 << 20)).id;
    fixture.write(volume, 0, &pattern(2, 16 << 20)).expect("written");
    fixture.command(Command::Checkpoint).expect("a checkpoint");
    (fixture, volume)
}

#[test]
fn a_drive_that_stays_takes_new_strips_at_once() {
    let (mut fixture, _) = pool(7, "2+1", Duration::from_secs(3600));
    fixture.command(Command::RemoveDrive { drive: 3 }).expect("begun");
    let wide = || Command::CreateVolume(spec("wide", "5+2", 1 << 20));
    let answer = fixture.command(wide());
    assert!(format!("{answer:?}").contains("needs 7 drives"), "it takes nothing more: {answer:?}");
    fixture.command(Command::KeepDrive { drive: 3 }).expect("it stays");
    fixture.command(wide()).expect("created");
}

#[test]
fn a_drive_that_stays_carries_the_log_again() {
    let mut fixture = Fixture::new(4, 4, 3);
    let volume = fixture.create_volume(spec("a", "2+1", 4 << 20)).id;
    fixture.write(volume, 0, &pattern(3, 4 << 20)).expect("written");
    fixture.command(Command::RemoveDrive { drive: 1 }).expect("begun");
    let mut operations = 0;
    while fixture.engine().log.members().0.contains(&DriveNumber(1)) {
        assert!(operations < 100_000, "the log does not leave it");
        fixture.run_operations(1);
        operations += 1;
    }
    fixture.command(Command::KeepDrive { drive: 1 }).expect("it stays");
    fixture.idle();
    let status = fixture.status();
    assert_eq!((status.log_trouble, status.drives[1].health), (None, DriveHealth::Healthy));
    assert!(fixture.engine().log.members().0.contains(&DriveNumber(1)));
}

#[test]
fn nothing_is_said_to_be_put_off_when_the_drive_stays() {
    let (mut fixture, _) = pool(6, "mirror-3", Duration::from_secs(3600));
    fixture.command(Command::RemoveDrive { drive: 5 }).expect("begun");
    fixture.pull(&[2, 3]);
    let mut passed = 0;
    while fixture.status().moving_put_off.is_none() {
        assert!(passed < 600, "it goes on without two drives");
        fixture.pass(Duration::from_millis(100));
        passed += 1;
    }
    fixture.command(Command::KeepDrive { drive: 5 }).expect("it stays");
    fixture.pass(Duration::from_secs(1));
    assert_eq!(fixture.status().moving_put_off, None);
}

#[test]
fn a_drive_whose_stripes_cannot_be_read_is_not_emptied() {
    let (mut fixture, volume) = pool(9, "4+1", Duration::from_secs(3600));
    let row = fixture.drives_of_rows("4+1", 3);
    fixture.pull(&row[..2]);
    fixture.pass(Duration::from_secs(1));
    let answer = fixture.command(Command::RemoveDrive { drive: row[2] as u32 });
    assert!(matches!(&answer, Err(NoAnswer::Array(ArrayError::Refused(_)))), "{answer:?}");
    assert!(format!("{answer:?}").contains("cannot be read now, and so not be moved"), "{answer:?}");
    // One of them is enough, and what lies in the rows then can be read.
    fixture.give_back(row[0]);
    fixture.idle();
    fixture.command(Command::RemoveDrive { drive: row[2] as u32 }).expect("begun");
    fixture.idle();
    assert!(fixture.status().drives.iter().all(|drive| drive.index != row[2] as u32));
    assert!(fixture.read(volume, 0, 16 << 20).expect("read") == pattern(2, 16 << 20));
}
