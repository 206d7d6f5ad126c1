//! Drives that leave, or are given up, while they are being called whole.

use stele_ground::VolumeId;
use stele_media::{Priority, Request};

use super::*;
use crate::model::OpenOptions;

/// Where the log lies on every drive.
const LOG: std::ops::Range<u64> = 4 << 20..12 << 20;
const MIB: usize = 1 << 20;

/// A drive without the log was away and is filled. The log is held back, so that nothing calls it
/// whole yet. The volume, the drive's number, and its index.
fn filled_with_the_log_held_back(drives: usize) -> (Fixture, VolumeId, usize, usize) {
    let options = OpenOptions { rebuild_after: Duration::from_secs(24 * 3600), ..OpenOptions::default() };
    let mut fixture = Fixture::blank(drives, drives as u32, 1, options);
    fixture.settle().expect("created");
    let volume = fixture.create_volume(spec("a", "4+2", 8 << 20)).id;
    fixture.write(volume, 0, &pattern(1, 8 * MIB)).expect("written");
    fixture.command(Command::Checkpoint).expect("a checkpoint");
    let members = fixture.engine().log.members().0;
    let number = (0..drives).find(|at| members.iter().all(|drive| usize::from(drive.0) != *at));
    let number = number.expect("a drive without the log");
    fixture.pull(&[number]);
    fixture.pass(Duration::from_secs(1));
    fixture.test_drives.held = Some(LOG);
    begin_to_write(&mut fixture, volume, 512 << 10, &pattern(2, 4096));
    fixture.begin_to_give_back(number);
    fixture.pass(Duration::from_millis(500));
    let index = fixture.test_drives.drives.len() - 1;
    (fixture, volume, number, index)
}

fn begin_to_write(fixture: &mut Fixture, volume: VolumeId, at: u64, data: &[u8]) {
    let op = Op::Write { at, data: vec![Buffer::copy_of(data).freeze()], fua: false };
    let request = Request { tag: 1 << 41 | at, op, priority: Priority::Host, deadline: None };
    fixture.pool.event(Event::Submit { volume, request });
}

/// It would count as whole without what was written while it was away.
#[test]
fn a_drive_that_left_while_it_was_called_whole_is_filled_again() {
    let (mut fixture, volume, number, index) = filled_with_the_log_held_back(6);
    fixture.pull(&[index]);
    let data = pattern(3, 64 << 10);
    begin_to_write(&mut fixture, volume, 0, &data);
    fixture.pass(Duration::from_millis(200));
    fixture.begin_to_give_back(index);
    fixture.pass(Duration::from_millis(200));
    fixture.test_drives.held = None;
    fixture.pass(Duration::from_secs(60));
    assert_eq!(fixture.status().drives[number].health, DriveHealth::Healthy);
    fixture.command(Command::Close).expect("closed");
    fixture.open().expect("opened");
    let others: Vec<usize> = (0..6).filter(|drive| *drive != number).take(2).collect();
    fixture.pull(&others);
    let read = fixture.read(volume, 0, 64 << 10);
    assert!(read.is_ok_and(|read| read == data), "a drive that lacks a strip was called whole");
}

/// A drive that has failed and counts as whole would never be rebuilt.
#[test]
fn a_drive_that_is_given_up_while_it_is_called_whole_is_rebuilt() {
    let (mut fixture, _, number, index) = filled_with_the_log_held_back(8);
    fixture.test_drives.drives[index].is_loose = true;
    fixture.begin_command(Command::StartScrub);
    fixture.pass(Duration::from_secs(2));
    fixture.test_drives.held = None;
    fixture.pass(Duration::from_secs(60));
    let shown = fixture.status().drives[number].clone();
    assert_eq!((shown.health, &*shown.done), (DriveHealth::Failed, "rebuilt into spare space"));
}
