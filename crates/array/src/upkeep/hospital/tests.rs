//! When a drive is given up for its errors, and when not.

use std::cell::RefCell;
use std::rc::Rc;

use stele_ground::Duration;

use crate::model::{AlarmKind, Command, DriveHealth, OpenOptions};
use crate::space::layout::RowKind;
use crate::state::hospital::{READS_MAX, WRITES_MAX};
use crate::testing::{Fixture, pattern, spec};

const MIB: u64 = 1 << 20;

fn patient(drives: usize, seed: u64) -> Fixture {
    let options = OpenOptions { rebuild_after: Duration::from_secs(24 * 3600), ..OpenOptions::default() };
    let mut fixture = Fixture::blank(drives, drives as u32, seed, options);
    assert_eq!(fixture.settle(), Ok(()));
    fixture
}

fn alarms(fixture: &Fixture, kind: AlarmKind) -> usize {
    fixture.alarms.iter().filter(|alarm| alarm.kind == kind).count()
}

/// Writes all of the volume anew, whole stripes, so that every drive takes part.
fn rewrite(fixture: &mut Fixture, volume: stele_ground::VolumeId, seed: u64) -> Vec<u8> {
    let data = pattern(seed, 4 << 20);
    for (at, piece) in data.chunks(256 << 10).enumerate() {
        fixture.write(volume, (at * (256 << 10)) as u64, piece).expect("written");
    }
    fixture.command(Command::Checkpoint).expect("a checkpoint");
    data
}

#[test]
fn a_drive_that_keeps_failing_writes_is_given_up_and_stays_so() {
    let mut fixture = Fixture::new(8, 8, 1);
    let volume = fixture.create_volume(spec("a", "4+2", 4 * MIB)).id;
    rewrite(&mut fixture, volume, 1);
    fixture.test_drives.drives[3].fails_writes = true;
    rewrite(&mut fixture, volume, 2);
    let data = rewrite(&mut fixture, volume, 3);
    fixture.idle();
    let drive = fixture.status().drives[3].clone();
    assert_eq!(drive.health, DriveHealth::Failed, "{drive:?}");
    assert!(drive.write_errors >= WRITES_MAX as u64, "{drive:?}");
    assert!(drive.note.contains("writes failed within 10 minutes") && drive.since.is_some(), "{drive:?}");
    assert_eq!(drive.done, "rebuilt into spare space");
    assert!(drive.next.contains("stele pool replace 3"), "{drive:?}");
    assert_eq!((alarms(&fixture, AlarmKind::DriveSuspect), alarms(&fixture, AlarmKind::DriveFailed)), (1, 1));
    assert!(fixture.read(volume, 0, 4 << 20).expect("read") == data);
    // All of it is redundant without the drive.
    fixture.pull(&[3, 5]);
    assert!(fixture.read(volume, 0, 4 << 20).expect("read without two") == data);
    let mut fixture = {
        fixture.test_drives.drives[3].gone = false;
        fixture.test_drives.drives[3].fails_writes = false;
        fixture.test_drives.drives[5].gone = false;
        fixture
    };
    fixture.open().expect("opened");
    let drive = fixture.status().drives[3].clone();
    assert_eq!(drive.health, DriveHealth::Failed, "it was given up, and stays so: {drive:?}");
    assert!(drive.next.contains("stele pool replace 3") && !drive.note.is_empty(), "{drive:?}");
    fixture.idle();
    assert!(fixture.read(volume, 0, 4 << 20).expect("read") == data);
}

#[test]
fn a_drive_that_cannot_be_read_is_given_up_and_still_serves_what_it_can() {
    let mut fixture = Fixture::new(8, 8, 2);
    let volume = fixture.create_volume(spec("a", "2+1", 24 * MIB)).id;
    fixture.write(volume, 0, &pattern(1, 24 << 20)).expect("written");
    fixture.command(Command::Checkpoint).expect("a checkpoint");
    // Every second read fails: the rest serves as a source while its strips move.
    fixture.test_drives.drives[1].fails_reads = true;
    fixture.scrub();
    let drive = fixture.status().drives[1].clone();
    assert!(drive.read_errors >= READS_MAX as u64, "{drive:?}");
    assert_eq!((drive.health, alarms(&fixture, AlarmKind::DriveFailed)), (DriveHealth::Failed, 1), "{drive:?}");
    fixture.idle();
    assert_eq!(fixture.status().lost_stripes, 0);
    assert!(fixture.read(volume, 0, 24 << 20).expect("read") == pattern(1, 24 << 20));
}

#[test]
fn a_drive_that_a_stripe_needs_is_never_given_up() {
    let mut fixture = patient(6, 3);
    let volume = fixture.create_volume(spec("a", "2+1", 4 * MIB)).id;
    let mut data = rewrite(&mut fixture, volume, 1);
    fixture.pull(&[0]);
    fixture.test_drives.drives[3].fails_writes = true;
    for round in 0..40u64 {
        let piece = pattern(round + 10, 4096);
        let at = round * 100 * 1024 / 4096 * 4096;
        if fixture.write(volume, at, &piece).is_ok() {
            data[at as usize..][..4096].copy_from_slice(&piece);
        }
        fixture.pass(Duration::from_secs(2));
    }
    let drive = fixture.status().drives[3].clone();
    assert!(drive.write_errors >= WRITES_MAX as u64, "{drive:?}");
    assert_eq!(drive.health, DriveHealth::Suspect, "{drive:?}");
    assert!(drive.done.contains("kept, since it is needed"), "{drive:?}");
    assert_eq!((alarms(&fixture, AlarmKind::DriveNeeded), alarms(&fixture, AlarmKind::DriveFailed)), (1, 0));
    assert_eq!(fixture.status().standing.iter().filter(|alarm| alarm.kind == AlarmKind::DriveNeeded).count(), 1);
    // The other comes back: this one is needed no more.
    fixture.give_back(0);
    fixture.idle();
    assert_eq!(fixture.status().drives[3].health, DriveHealth::Failed, "{:?}", fixture.alarms);
    assert!(fixture.read(volume, 0, 4 << 20).expect("read") == data);
    assert_eq!(fixture.status().lost_stripes, 0);
}

#[test]
fn a_drive_that_the_majority_needs_is_never_given_up() {
    let mut fixture = patient(4, 4);
    let volume = fixture.create_volume(spec("a", "mirror-3", MIB)).id;
    fixture.write(volume, 0, &pattern(1, 1 << 20)).expect("written");
    fixture.command(Command::Checkpoint).expect("a checkpoint");
    fixture.pull(&[0]);
    fixture.idle();
    fixture.test_drives.drives[2].fails_writes = true;
    for round in 0..60u64 {
        fixture.write(volume, round % 16 * 65536, &pattern(round, 65536)).ok();
        fixture.pass(Duration::from_secs(1));
    }
    let status = fixture.status();
    assert!(!status.read_only, "its loss was proposed without a majority");
    assert_eq!(status.drives[2].health, DriveHealth::Suspect, "{:?}", status.drives[2]);
    assert!(status.drives[2].done.contains("no majority"), "{:?}", status.drives[2]);
    assert!(fixture.read(volume, 0, 1 << 20).is_ok());
}

#[test]
fn an_error_now_and_then_gives_no_drive_up() {
    let mut fixture = Fixture::new(8, 8, 5);
    let volume = fixture.create_volume(spec("a", "4+2", 4 * MIB)).id;
    rewrite(&mut fixture, volume, 1);
    for round in 0..30u64 {
        fixture.test_drives.drives[3].fails_writes = true;
        fixture.write(volume, 0, &pattern(round, 64 << 10)).expect("written");
        fixture.test_drives.drives[3].fails_writes = false;
        fixture.pass(Duration::from_secs(400));
    }
    let drive = fixture.status().drives[3].clone();
    assert!(drive.write_errors > WRITES_MAX as u64, "{drive:?}");
    assert_eq!(drive.health, DriveHealth::Suspect, "{drive:?}");
    assert_eq!(alarms(&fixture, AlarmKind::DriveSuspect), 1);
}

/// All other copies of a row of the tables are out of date, and the row is on its way to another
/// drive. Until it has arrived, its drive is not given up.
#[test]
fn a_drive_is_needed_until_its_tables_have_arrived_elsewhere() {
    let mut fixture = patient(9, 7);
    fixture.create_volume(spec("a", "2+1", 4 * MIB));
    fixture.command(Command::Checkpoint).expect("a checkpoint");
    let engine = fixture.engine();
    let (row, drives) = {
        let layout = engine.layout.read();
        let row = layout.rows().find(|row| row.class.kind == RowKind::Table).expect("the tables have a row");
        (row.id, row.members.iter().map(|member| member.cell.drive).collect::<Vec<_>>())
    };
    let said = Rc::new(RefCell::new(Vec::new()));
    let (asked, answers) = (Rc::clone(&engine), Rc::clone(&said));
    engine.io.spawn(async move {
        let others_are_stale =
            |stale| drives[1..].iter().for_each(|drive| asked.drives.change(*drive, |seen| seen.stale = stale));
        let ask = || {
            others_are_stale(true);
            let answer = asked.can_do_without(drives[0]);
            others_are_stale(false);
            answers.borrow_mut().push(answer);
        };
        let watch = async {
            let has_begun = || asked.layout.read().row(row).is_some_and(|row| row.members[0].replacement.is_some());
            while !has_begun() {
                asked.io.sleep(Duration(1_000)).await;
            }
            ask();
        };
        let (moved, ()) = futures_util::join!(asked.table.evacuate(drives[0]), watch);
        moved.expect("there is room");
        ask();
    });
    fixture.idle();
    let needed = Err("a page of the pool's tables lies on no other drive".to_owned());
    assert_eq!(*said.borrow(), [needed, Ok(())]);
}
