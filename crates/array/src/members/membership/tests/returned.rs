//! Drives that are given up, come back, and count again.

use std::cell::RefCell;
use std::rc::Rc;

use super::replaced::{patient, state};
use super::*;
use crate::drives::label::DriveState;
use crate::model::OpenOptions;

/// Places of strips.
const DATA: std::ops::Range<u64> = 12 << 20..62 << 20;
/// The log.
const LOG: std::ops::Range<u64> = 4 << 20..12 << 20;
/// The first two copies of labels.
const LABELS: std::ops::Range<u64> = 0..128 << 10;

/// A drive of another pool is pushed in while this one is open: it is said, and status shows it.
#[test]
fn a_stranger_that_is_attached_is_named_with_the_reason() {
    let mut fixture = Fixture::new(5, 5, 1);
    let blank = fixture.add_blank();
    assert_eq!(fixture.told(AlarmKind::DriveRejected), [""; 0], "a blank drive is no trouble");
    fixture.test_drives.drives[blank] = Fixture::of_pool(4, 4, 2, 9).test_drives.drives[0].clone();
    fixture.pull(&[blank]);
    let index = fixture.give_back(blank);
    fixture.idle();
    let name = format!("drives/{index}");
    let told = fixture.told(AlarmKind::DriveRejected);
    assert!(matches!(told[..], [text] if text.contains(&name) && text.contains("belongs to pool")), "{told:?}");
    let status = fixture.status();
    let shown = status.drives.iter().find(|drive| drive.index == u32::MAX).expect("status shows it");
    assert_eq!((&shown.name, shown.health, shown.enclosure), (&name, DriveHealth::Rejected, index as u32 % 5));
    assert!(shown.note.contains("belongs to pool"), "{shown:?}");
}

#[test]
fn a_drive_given_up_takes_no_part_when_it_is_attached() {
    let mut fixture = Fixture::new(8, 8, 2);
    fixture.command(Command::FailDrive { drive: 3 }).expect("given up");
    fixture.give_back(3);
    fixture.idle();
    assert_eq!(fixture.status().drives[3].health, DriveHealth::Failed);
    assert_eq!(fixture.told(AlarmKind::DriveRejected), [""; 0], "its state says why");
    assert_eq!(fixture.told(AlarmKind::DriveStale), [""; 0]);
}

/// It goes by the name under which it was attached last, and an opening finds nothing to fill.
#[test]
fn a_drive_that_was_brought_up_to_date_is_like_any_other() {
    let (mut fixture, volume, _) = patient(7, "4+2", 3);
    fixture.pull(&[2]);
    fixture.write(volume, 0, &pattern(1, 1 << 20)).expect("written");
    let index = fixture.give_back(2);
    fixture.idle();
    let drive = fixture.status().drives[2].clone();
    assert_eq!((drive.name, drive.health), (format!("drives/{index}"), DriveHealth::Healthy));
    for _ in 0..3 {
        fixture.engine().note_digest_errors(DriveNumber(2), 1);
    }
    let suspect = fixture.status().drives[2].clone();
    assert_eq!(suspect.health, DriveHealth::Suspect);
    assert!(!suspect.note.contains("was away"), "{suspect:?}");
    fixture.alarms.clear();
    fixture.crash().expect("opened");
    assert_eq!(fixture.told(AlarmKind::DriveStale), [""; 0]);
    assert_eq!(fixture.status().drives[2].health, DriveHealth::Healthy);
}

/// The log does not wait until all strips of the drive are right.
#[test]
fn a_drive_that_comes_back_carries_the_log_before_it_is_filled() {
    let (mut fixture, volume, _) = patient(4, "2+1", 4);
    fixture.pull(&[2]);
    fixture.write(volume, 0, &pattern(1, 1 << 20)).expect("written");
    fixture.pass(Duration::from_secs(1));
    assert!(fixture.status().log_trouble.is_some());
    fixture.test_drives.held = Some(DATA);
    fixture.begin_to_give_back(2);
    fixture.pass(Duration::from_millis(100));
    let status = fixture.status();
    assert_eq!((status.drives[2].health, status.log_trouble), (DriveHealth::Stale, None));
}

#[test]
fn what_waits_for_a_drive_is_destaged_as_soon_as_it_is_back() {
    let (mut fixture, volume, _) = patient(9, "4+2", 5);
    let row = fixture.drives_of_rows("4+2", 3);
    for stripe in 0..64_u64 {
        fixture.write(volume, stripe << 16, &pattern(stripe, 4096)).expect("written");
    }
    fixture.pull(&row);
    fixture.pass(Duration::from_secs(4));
    // All were tried just now, and are tried again in a second.
    let are_put_off = |fixture: &Fixture| {
        let (engine, soon) = (fixture.engine(), fixture.test_drives.now() + Duration::from_millis(700));
        let stuck = engine.destaging.stuck();
        stuck.len() == 64 && stuck.iter().all(|key| !engine.destaging.may_try(*key, soon))
    };
    for _ in 0..100 {
        if are_put_off(&fixture) {
            break;
        }
        fixture.pass(Duration::from_millis(50));
    }
    assert!(are_put_off(&fixture));
    // Two may be away.
    fixture.begin_to_give_back(row[0]);
    fixture.pass(Duration::from_millis(500));
    assert_eq!(fixture.status().dirty, Bytes(0));
}

/// Calls a drive whole, and answers what came of it in a second.
fn call_whole(fixture: &mut Fixture, drive: DriveNumber) -> Rc<RefCell<Option<Result<(), ArrayError>>>> {
    let answer = Rc::new(RefCell::new(None));
    let (own, slot) = (fixture.engine(), Rc::clone(&answer));
    fixture.engine().io.spawn(async move { *slot.borrow_mut() = Some(own.filled(drive).await) });
    fixture.pass(Duration::from_secs(1));
    answer
}

/// After a crash the strips would be back in spare cells, and no drive be filled.
#[test]
fn a_drive_is_called_whole_only_when_the_log_is_durable() {
    let mut fixture = Fixture::new(6, 6, 11);
    fixture.idle();
    fixture.test_drives.held = Some(LOG);
    fixture.begin_command(Command::CreateVolume(spec("a", "2+1", 1 << 20)));
    let answer = call_whole(&mut fixture, DriveNumber(2));
    assert_eq!(answer.take(), None);
    fixture.test_drives.held = None;
    fixture.pass(Duration::from_secs(1));
    assert_eq!(answer.take(), Some(Ok(())));
}

/// A drive whose strips lie in spare cells lacks what was written to those.
#[test]
fn a_drive_is_not_called_whole_while_its_strips_are_elsewhere() {
    let mut fixture = Fixture::new(8, 8, 6);
    let volume = fixture.create_volume(spec("a", "4+2", 4 << 20)).id;
    fixture.write(volume, 0, &pattern(6, 4 << 20)).expect("written");
    fixture.command(Command::Checkpoint).expect("a checkpoint");
    let drive = fixture.drives_of_rows("4+2", 1)[0];
    fixture.pull(&[drive]);
    fixture.idle();
    fixture.test_drives.held = Some(DATA);
    fixture.begin_to_give_back(drive);
    fixture.pass(Duration::from_secs(1));
    let number = DriveNumber(drive as u16);
    let called = call_whole(&mut fixture, number);
    assert!(matches!(called.take(), Some(Err(ArrayError::Degraded(_)))));
    assert_eq!(state(&fixture, number.0), DriveState::Filling);
}

/// A rebuild that was quick calls it whole while the labels are being told that it is to be filled.
#[test]
fn a_drive_called_whole_before_the_labels_knew_is_filled() {
    let mut fixture = Fixture::new(9, 9, 7);
    fixture.options.rebuild_after = Duration::from_secs(30);
    fixture.command(Command::Close).expect("closed");
    fixture.open().expect("opened");
    let volume = fixture.create_volume(spec("a", "4+2", 1 << 20)).id;
    fixture.write(volume, 0, &pattern(6, 1 << 20)).expect("written");
    fixture.command(Command::Checkpoint).expect("a checkpoint");
    fixture.pull(&[2, 5]);
    fixture.pass(Duration::from_secs(25));
    fixture.test_drives.held = Some(LABELS);
    fixture.begin_to_give_back(2);
    // What the other one holds is rebuilt meanwhile.
    fixture.pass(Duration::from_secs(8));
    assert!(fixture.engine().drives.is_sound(DriveNumber(2)), "it was called whole");
    assert_eq!(state(&fixture, 2), DriveState::Active);
    fixture.test_drives.held = None;
    fixture.idle();
    assert_eq!(fixture.status().drives[2].health, DriveHealth::Healthy);
}

#[test]
fn the_log_leaves_a_drive_given_up_though_nothing_is_written() {
    let mut fixture = Fixture::new(8, 8, 8);
    fixture.idle();
    let drive = fixture.engine().log.members().0[0];
    fixture.command(Command::FailDrive { drive: u32::from(drive.0) }).expect("given up");
    fixture.pass(Duration::from_secs(1));
    let (members, wanted) = fixture.engine().log.members();
    assert!(members.len() == wanted && !members.contains(&drive), "{members:?}");
}

/// At a low rate a row may have to wait for minutes, and the others would wait for it.
#[test]
fn stripes_of_a_drive_declared_failed_wait_for_no_others() {
    let rate =
        OpenOptions { background_rate: Some(Bytes(4096)), background_run: Bytes(16 << 10), ..Default::default() };
    let mut fixture = Fixture::blank(10, 10, 12, rate);
    assert_eq!(fixture.settle(), Ok(()));
    let volume = fixture.create_volume(spec("a", "2+2", 8 << 20)).id;
    fixture.write(volume, 0, &pattern(12, 8 << 20)).expect("written");
    fixture.command(Command::Checkpoint).expect("a checkpoint");
    let drives = fixture.drives_of_rows("2+2", 2);
    let serve = |fixture: &mut Fixture| {
        for _ in 0..200 {
            fixture.read(volume, 0, 4096).expect("read");
            fixture.pass(Duration::from_millis(10));
        }
    };
    fixture.pull(&drives[..1]);
    serve(&mut fixture);
    fixture.command(Command::FailDrive { drive: drives[1] as u32 }).expect("given up");
    let critical = fixture.status().critical_stripes;
    serve(&mut fixture);
    let status = fixture.status();
    assert!(critical > 0 && status.critical_stripes == 0, "{critical} {}", status.critical_stripes);
    assert!(status.rebuild.is_some(), "the others wait");
}

#[test]
fn an_addition_that_was_cut_off_is_finished_by_the_next_opening() {
    let mut cut_between = 0;
    for moment in (1..200).step_by(4) {
        let mut fixture = Fixture::new(5, 5, moment);
        let added = [fixture.add_blank(), fixture.add_blank()];
        let drives = added.map(|index| (index as u32, DriveId([90 + index as u8; 16])));
        fixture.test_drives.cut_at = Some(fixture.test_drives.operations + moment);
        let answer = fixture.command(Command::AddDrives { drives: drives.to_vec() });
        fixture.crash().expect("opened");
        fixture.idle();
        let states: Vec<DriveState> = {
            let engine = fixture.engine();
            let configuration = engine.drives.labels.configuration();
            configuration.drives[5..].iter().map(|entry| entry.state).collect()
        };
        cut_between += u32::from(matches!(answer, Err(NoAnswer::PowerCut)) && !states.is_empty());
        let alike = states.iter().all(|state| *state == DriveState::Active)
            || answer.is_err() && states.iter().all(|state| *state == DriveState::Retired);
        assert!(alike && (answer.is_err() || states.len() == 2), "after {moment} operations: {states:?}");
    }
    assert!(cut_between > 3, "{cut_between}");
}

/// Before it is known whose it is, nothing tells the engine that the drive has left.
#[test]
fn a_drive_that_leaves_before_a_loss_is_settled_is_not_here() {
    let mut fixture = Fixture::new(6, 6, 9);
    fixture.pull(&[5]);
    fixture.idle();
    // The loss of another drive is settled only when the labels are written.
    fixture.test_drives.held = Some(LABELS);
    fixture.pull(&[4]);
    fixture.begin_to_give_back(5);
    fixture.pass(Duration::from_secs(1));
    let index = fixture.test_drives.drives.len() - 1;
    assert_eq!(fixture.engine().drives.labels.number(index), None, "the loss comes first");
    fixture.pull(&[index]);
    fixture.test_drives.held = None;
    fixture.idle();
    assert_eq!(fixture.engine().drives.labels.number(index), None);
    assert_eq!(fixture.status().drives[5].health, DriveHealth::Missing);
}

/// It is missing since then, and nothing of it is rebuilt before its time.
#[test]
fn a_drive_that_leaves_while_it_is_called_whole_is_waited_for() {
    let mut fixture = Fixture::new(7, 7, 3);
    fixture.options.rebuild_after = Duration::from_secs(600);
    fixture.command(Command::Close).expect("closed");
    fixture.open().expect("opened");
    let volume = fixture.create_volume(spec("a", "4+2", 4 << 20)).id;
    fixture.write(volume, 0, &pattern(1, 4 << 20)).expect("written");
    fixture.command(Command::Checkpoint).expect("a checkpoint");
    fixture.pass(Duration::from_secs(700));
    fixture.pull(&[2]);
    fixture.write(volume, 0, &pattern(1, 1 << 20)).expect("written");
    fixture.begin_to_give_back(2);
    while state(&fixture, 2) != DriveState::Filling {
        fixture.run_operations(1);
    }
    fixture.test_drives.held = Some(LABELS);
    fixture.pass(Duration::from_secs(1));
    let index = fixture.test_drives.drives.len() - 1;
    fixture.pull(&[index]);
    fixture.pass(Duration::from_secs(1));
    fixture.test_drives.held = None;
    fixture.pass(Duration::from_secs(60));
    let status = fixture.status();
    assert!(status.drives[2].since.is_some(), "{:?}", status.drives[2]);
    assert_eq!(status.spare_used, Bytes(0));
}
