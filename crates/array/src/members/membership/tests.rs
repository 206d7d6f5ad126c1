//! Drives that come and go at awkward moments.

use stele_ground::{Bytes, DriveId, Duration};
use stele_media::{Buffer, Op};

use crate::model::place::DriveNumber;
use crate::model::{AlarmKind, ArrayError, Command, DriveHealth, Event};
use crate::pool::State;
use crate::testing::{Fixture, NoAnswer, pattern, spec};

mod called_whole;
mod emptied;
mod newcomers;
mod replaced;
mod returned;

#[test]
fn a_drive_that_leaves_while_the_pool_opens_is_missed_and_may_come_back() {
    let mut left_while_opening = 0;
    for moment in 1..40 {
        let mut fixture = Fixture::new(6, 6, moment);
        let volume = fixture.create_volume(spec("a", "2+1", 4 << 20)).id;
        let data = pattern(3, 1 << 20);
        fixture.write(volume, 0, &data).expect("written");
        fixture.test_drives.cut();
        fixture.begin_to_open();
        fixture.run_operations(moment * 2);
        if *fixture.pool.state() != State::Starting {
            break;
        }
        left_while_opening += 1;
        fixture.pull(&[5]);
        fixture.settle().expect("opened without the drive");
        assert_eq!(fixture.status().drives[5].health, DriveHealth::Missing, "moment {moment}");
        fixture.give_back(5);
        fixture.idle();
        assert_eq!(fixture.status().drives[5].health, DriveHealth::Healthy, "moment {moment}: {:?}", fixture.alarms);
        fixture.scrub();
        assert!(fixture.read(volume, 0, 1 << 20).expect("read") == data, "moment {moment}");
    }
    assert!(left_while_opening > 5, "{left_while_opening}");
}

#[test]
fn a_write_that_lost_its_drives_is_answered_when_the_pool_becomes_read_only() {
    let mut fixture = Fixture::new(4, 4, 2);
    let volume = fixture.create_volume(spec("a", "2+1", 4 << 20)).id;
    fixture.write(volume, 0, &pattern(1, 1 << 20)).expect("written");
    // Half of the drives go while a whole stripe is on its way: no majority can agree on their
    // loss.
    let write = |at: u64| Op::Write { at, data: vec![Buffer::copy_of(&pattern(at, 32 << 10)).freeze()], fua: false };
    let (_, answers) =
        fixture.submit_all_and(volume, (0..8).map(|at| write(at * (32 << 10))).collect(), |test_drives, pool| {
            for drive in [2, 3] {
                test_drives.drives[drive].gone = true;
                pool.event(Event::Detach { drive });
            }
        });
    assert!(answers.iter().all(Option::is_some), "{answers:?}");
    fixture.idle();
    assert!(fixture.status().read_only);
}

#[test]
fn a_drive_that_dies_under_the_redo_images_does_not_keep_the_pool_from_opening() {
    for moment in 1..200 {
        let mut fixture = Fixture::new(6, 6, 3);
        let volume = fixture.create_volume(spec("a", "2+1", 4 << 20)).id;
        fixture.write(volume, 0, &pattern(1, 1 << 20)).expect("written");
        fixture.command(Command::Checkpoint).expect("a checkpoint");
        // In-place destages under way when the power goes.
        for at in 0..16 {
            fixture.write(volume, at << 15, &pattern(at, 8 << 10)).expect("written");
        }
        fixture.test_drives.cut_at = Some(fixture.test_drives.operations + 60 + moment % 20);
        let _ = fixture.command(Command::Checkpoint);
        fixture.test_drives.cut();
        fixture.begin_to_open();
        fixture.run_operations(moment);
        if *fixture.pool.state() != State::Starting {
            break;
        }
        fixture.pull(&[moment as usize % 6]);
        assert_eq!(fixture.settle(), Ok(()), "moment {moment}");
    }
}

fn replace(old: u32, new: usize, give_up: bool) -> Command {
    Command::ReplaceDrive { old, new: new as u32, identity: DriveId([90 + old as u8; 16]), enclosure: None, give_up }
}

#[test]
fn a_drive_that_answers_is_replaced_without_less_redundancy_meanwhile() {
    let mut fixture = Fixture::new(9, 9, 5);
    fixture.options.rebuild_after = Duration::from_secs(3600);
    // So that reads go to the drives.
    fixture.options.block_cache = Bytes(64 << 10);
    fixture.command(Command::Close).expect("closed");
    fixture.open().expect("opened");
    let volume = fixture.create_volume(spec("a", "4+2", 4 << 20)).id;
    let data = pattern(5, 4 << 20);
    fixture.write(volume, 0, &data).expect("written");
    fixture.command(Command::Checkpoint).expect("a checkpoint");
    fixture.pull(&[2]);
    let new = fixture.add_blank();
    fixture.command(replace(3, new, false)).expect("replaced");
    // Two drives may be lost, and it is the second: the replaced one is still there.
    fixture.pull(&[4]);
    assert!(fixture.read(volume, 0, 4 << 20).expect("read") == data);
    fixture.give_back(2);
    fixture.give_back(4);
    fixture.idle();
    let status = fixture.status();
    assert!(status.drives.iter().all(|drive| drive.index != 3), "it has left: {:?}", status.drives);
    assert_eq!(status.removed.iter().map(|departed| departed.name.as_str()).collect::<Vec<_>>(), ["drives/3"]);
    let joined = status.drives.iter().find(|drive| drive.identity == DriveId([93; 16])).expect("it has joined");
    assert_eq!((joined.enclosure, joined.health), (3, DriveHealth::Healthy));
    let rejected = fixture.alarms.iter().find(|alarm| alarm.kind == AlarmKind::DriveRejected);
    assert_eq!(rejected, None, "a drive that is put in is no stranger");
    assert_eq!(fixture.scrub(), (0, 0));
    assert!(fixture.read(volume, 0, 4 << 20).expect("read") == data);
}

#[test]
fn a_drive_is_not_given_up_while_stripes_need_it() {
    let mut fixture = Fixture::new(7, 7, 6);
    fixture.options.rebuild_after = Duration::from_secs(3600);
    fixture.command(Command::Close).expect("closed");
    fixture.open().expect("opened");
    let volume = fixture.create_volume(spec("a", "4+1", 4 << 20)).id;
    let data = pattern(6, 4 << 20);
    fixture.write(volume, 0, &data).expect("written");
    fixture.command(Command::Checkpoint).expect("a checkpoint");
    fixture.pull(&[2]);
    let new = fixture.add_blank();
    let refused = |fixture: &mut Fixture, command: Command| match fixture.command(command) {
        Err(NoAnswer::Array(error @ ArrayError::Refused(_))) => assert!(error.to_string().contains("unreadable")),
        other => panic!("{other:?}"),
    };
    // It answers: asked for or not.
    refused(&mut fixture, replace(3, new, true));
    fixture.pull(&[3]);
    // Both are away, and either may come back.
    refused(&mut fixture, replace(3, new, false));
    let third = fixture.give_back(3);
    fixture.give_back(2);
    fixture.idle();
    assert!(fixture.read(volume, 0, 4 << 20).expect("read") == data);
    fixture.pull(&[third]);
    fixture.command(replace(3, new, false)).expect("replaced");
    fixture.idle();
    assert_eq!(fixture.status().drives[3].identity, DriveId([93; 16]));
    assert!(fixture.read(volume, 0, 4 << 20).expect("read") == data);
}

/// A drive that is replaced under its number is told of as one that left, so that its driver lets
/// go of the device.
#[test]
fn a_drive_given_up_and_replaced_has_left() {
    let mut fixture = Fixture::new(7, 7, 8);
    fixture.options.rebuild_after = Duration::from_secs(3600);
    fixture.command(Command::Close).expect("closed");
    fixture.open().expect("opened");
    let new = fixture.add_blank();
    fixture.command(replace(3, new, true)).expect("replaced");
    fixture.idle();
    let status = fixture.status();
    assert_eq!(status.drives[3].identity, DriveId([93; 16]));
    let left: Vec<(Option<u32>, &str)> =
        status.removed.iter().map(|departed| (departed.index, departed.name.as_str())).collect();
    assert_eq!(left, [(Some(3), "drives/3")]);
}

/// What its predecessor did wrong is not the new drive's.
#[test]
fn a_new_drive_begins_without_errors() {
    let mut fixture = Fixture::new(7, 7, 8);
    fixture.options.block_cache = Bytes(64 << 10);
    fixture.command(Command::Close).expect("closed");
    fixture.open().expect("opened");
    let volume = fixture.create_volume(spec("a", "4+2", 4 << 20)).id;
    let data = pattern(8, 4 << 20);
    fixture.write(volume, 0, &data).expect("written");
    fixture.command(Command::Checkpoint).expect("a checkpoint");
    let engine = std::rc::Rc::clone(&fixture.pool.serving().expect("it is open").engine);
    engine.note_digest_errors(crate::model::place::DriveNumber(3), 5);
    drop(engine);
    assert_eq!(fixture.status().drives[3].digest_errors, 5);
    fixture.pull(&[3]);
    let new = fixture.add_blank();
    fixture.command(replace(3, new, false)).expect("replaced");
    fixture.idle();
    let drive = &fixture.status().drives[3];
    assert_eq!(drive.identity, DriveId([93; 16]));
    assert_eq!((drive.read_errors, drive.write_errors, drive.digest_errors, drive.repaired), (0, 0, 0, 0));
}

/// The log has at least four members where there are as many drives: it goes on with three.
#[test]
fn a_drive_leaves_a_pool_that_has_as_few_drives_as_the_log_has_members() {
    for (drives, code, failed) in [(4, "2+1", None), (5, "2+1", Some(4))] {
        let mut fixture = Fixture::new(drives, drives as u32, 3);
        let volume = fixture.create_volume(spec("a", code, 4 << 20)).id;
        let data = pattern(3, 4 << 20);
        fixture.write(volume, 0, &data).expect("written");
        if let Some(failed) = failed {
            fixture.command(Command::FailDrive { drive: failed }).expect("given up");
            fixture.idle();
        }
        fixture.command(Command::RemoveDrive { drive: 1 }).expect("begun");
        fixture.pass(Duration::from_secs(120));
        let status = fixture.status();
        assert!(status.drives.iter().all(|drive| drive.index != 1), "{failed:?}: {:?}", status.drives[1]);
        assert!(fixture.read(volume, 0, 4 << 20).expect("read") == data, "{failed:?}");
        fixture.crash().expect("opened");
        assert!(fixture.read(volume, 0, 4 << 20).expect("read") == data, "{failed:?}");
    }
}

#[test]
fn a_removal_that_is_taken_back_leaves_the_drive_in_the_pool() {
    for moment in [1, 30, 200, 1_000, 4_000] {
        let mut fixture = Fixture::new(8, 8, moment);
        let volume = fixture.create_volume(spec("a", "4+2", 4 << 20)).id;
        let data = pattern(moment, 4 << 20);
        fixture.write(volume, 0, &data).expect("written");
        fixture.command(Command::RemoveDrive { drive: 3 }).expect("begun");
        fixture.run_operations(moment);
        match fixture.command(Command::KeepDrive { drive: 3 }) {
            Ok(_) => {
                fixture.crash().expect("opened");
                fixture.idle();
                let status = fixture.status();
                assert_eq!(
                    (status.drives.len(), status.drives[3].health),
                    (8, DriveHealth::Healthy),
                    "moment {moment}"
                );
            }
            Err(NoAnswer::Array(ArrayError::Missing(_))) => assert!(moment >= 200, "it has left: moment {moment}"),
            other => panic!("{other:?}"),
        }
        assert_eq!(fixture.scrub().0, 0, "moment {moment}");
        assert!(fixture.read(volume, 0, 4 << 20).expect("read") == data, "moment {moment}");
    }
    let mut fixture = Fixture::new(6, 6, 1);
    let asked = fixture.command(Command::KeepDrive { drive: 1 });
    assert!(matches!(asked, Err(NoAnswer::Array(ArrayError::Invalid(_)))), "{asked:?}");
}

#[test]
fn a_new_drive_takes_its_label_though_the_one_before_it_was_silent_and_kept() {
    let mut fixture = Fixture::new(6, 6, 4);
    let volume = fixture.create_volume(spec("a", "2+1", 1 << 20)).id;
    fixture.write(volume, 0, &pattern(1, 64 << 10)).expect("written");
    let new = fixture.add_blank();
    {
        let engine = &fixture.pool.serving().expect("it is open").engine;
        engine.drives.labels.note_silent(&std::collections::BTreeSet::from([DriveNumber(4)]));
    }
    fixture.pull(&[4]);
    fixture.command(replace(4, new, false)).expect("replaced");
}

#[test]
fn a_drive_that_leaves_while_it_is_received_is_asked_nothing_more() {
    let (mut left_before, mut left_after) = (0, 0);
    for moment in 0..60 {
        let mut fixture = Fixture::new(6, 6, 2);
        let volume = fixture.create_volume(spec("a", "2+1", 4 << 20)).id;
        fixture.write(volume, 0, &pattern(1, 1 << 20)).expect("written");
        fixture.pull(&[5]);
        fixture.idle();
        // It is received while another loss is being settled, and leaves at any moment of that.
        fixture.pull(&[4]);
        let index = fixture.test_drives.drives.len();
        fixture.begin_to_give_back(5);
        fixture.run_operations(moment);
        let known = |fixture: &Fixture| {
            let serving = fixture.pool.serving().expect("it is open");
            (serving.engine.drives.labels.number(index).is_some(), serving.engine.io.is_gone(index))
        };
        *(if known(&fixture).0 { &mut left_after } else { &mut left_before }) += 1;
        fixture.pull(&[index]);
        assert!(known(&fixture).1, "moment {moment}");
        fixture.idle();
        assert_eq!(known(&fixture), (false, true), "moment {moment}");
        let status = fixture.status();
        assert_eq!(status.drives[5].health, DriveHealth::Missing, "moment {moment}");
        assert_eq!(status.drives.len(), 6, "moment {moment}");
        let rejected = fixture.alarms.iter().find(|alarm| alarm.kind == AlarmKind::DriveRejected);
        assert!(rejected.is_none(), "moment {moment}: {rejected:?}");
        let data = pattern(1, 1 << 20);
        assert!(fixture.read(volume, 0, 1 << 20).expect("read") == data, "moment {moment}");
    }
    assert!(left_before > 3 && left_after > 3, "{left_before} {left_after}");
}
