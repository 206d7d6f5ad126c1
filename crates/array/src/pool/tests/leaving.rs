//! Drives that are given up at an operator's word, and drives that come back.

use super::*;
use crate::drives::label::DriveState;
use crate::model::ArrayError;
use crate::model::place::DriveNumber;

fn state(fixture: &Fixture, drive: u16) -> DriveState {
    fixture.engine().drive_state(DriveNumber(drive))
}

fn told(fixture: &Fixture, kind: AlarmKind, drive: u32) -> Vec<&str> {
    let of = fixture.alarms.iter().filter(|alarm| alarm.kind == kind && alarm.drive == Some(drive));
    of.map(|alarm| alarm.message.as_str()).collect()
}

fn refused(answer: Result<crate::model::Reply, NoAnswer>) -> ArrayError {
    match answer {
        Err(NoAnswer::Array(error)) => error,
        other => panic!("{other:?}"),
    }
}

/// A pool that waits long before it rebuilds, with a volume full of what is not dirty.
fn patient(drives: usize, code: &str, seed: u64) -> (Fixture, stele_ground::VolumeId) {
    let rebuild_after = stele_ground::Duration::from_secs(24 * 3600);
    let options = crate::model::OpenOptions { rebuild_after, ..Default::default() };
    let mut fixture = Fixture::blank(drives, drives as u32, seed, options);
    assert_eq!(fixture.settle(), Ok(()));
    let volume = fixture.create_volume(spec("a", code, 1 << 20)).id;
    fixture.write(volume, 0, &pattern(seed, 1 << 20)).expect("written");
    fixture.command(Command::Checkpoint).expect("a checkpoint");
    (fixture, volume)
}

#[test]
fn a_drive_declared_failed_is_asked_nothing_more_and_is_rebuilt() {
    let (mut fixture, volume) = patient(8, "4+2", 1);
    let (members, _) = fixture.engine().log.members();
    let drive = members[0];
    let number = u32::from(drive.0);
    fixture.command(Command::FailDrive { drive: number }).expect("given up");
    assert_eq!(state(&fixture, drive.0), DriveState::Failed);
    let own = fixture.engine();
    assert!(own.io.is_gone(usize::from(drive.0)) && own.drives.labels.index(drive).is_none());
    assert_eq!(told(&fixture, AlarmKind::DriveFailed, number), [format!("drive {number} was declared failed")]);
    let seen = fixture.status().drives[usize::from(drive.0)].clone();
    assert_eq!(seen.health, DriveHealth::Failed, "{seen:?}");
    assert!(seen.note.contains("declared failed") && seen.since.is_some(), "{seen:?}");
    // Its part of the log and its strips have other drives at once, although the pool waits for
    // drives that are missing.
    fixture.pass(stele_ground::Duration::from_secs(60));
    let (members, wanted) = own.log.members();
    assert!(members.len() == wanted && !members.contains(&drive), "{members:?}");
    assert!(fixture.status().rebuild.is_none() && own.exposure().1 == 0);
    assert!(fixture.status().rebuilt > 0);
    assert!(fixture.read(volume, 0, 1 << 20).expect("read") == pattern(1, 1 << 20));
    assert_eq!(fixture.scrub(), (0, 0));
    // It is not given up twice, nor is one that the pool does not have.
    let again = refused(fixture.command(Command::FailDrive { drive: number }));
    assert!(matches!(&again, ArrayError::Invalid(text) if text.contains("no longer in use")), "{again:?}");
    let missing = refused(fixture.command(Command::FailDrive { drive: 99 }));
    assert!(matches!(missing, ArrayError::Missing(_)), "{missing:?}");
}

#[test]
fn a_drive_that_is_removed_while_a_close_fails_leaves() {
    let (mut fixture, volume) = patient(8, "2+1", 3);
    fixture.idle();
    fixture.fail_to_close(|fixture| fixture.begin_command(Command::RemoveDrive { drive: 1 }));
    fixture.idle();
    assert_eq!(state(&fixture, 1), DriveState::Retired);
    assert!(fixture.read(volume, 0, 1 << 20).expect("read") == pattern(3, 1 << 20));
    assert_eq!(fixture.scrub(), (0, 0));
}

#[test]
fn a_drive_that_stripes_or_the_labels_need_is_not_declared_failed() {
    let (mut fixture, _) = patient(8, "4+2", 2);
    let away = fixture.drives_of_rows("4+2", 3);
    fixture.pull(&away[..2]);
    fixture.pass(stele_ground::Duration::from_secs(1));
    let needed = refused(fixture.command(Command::FailDrive { drive: away[2] as u32 }));
    assert!(matches!(&needed, ArrayError::Refused(text) if text.contains("unreadable")), "{needed:?}");
    assert_eq!(state(&fixture, away[2] as u16), DriveState::Active);
    // A pool without data, of which two of five drives are away: two would be no majority of four.
    let mut fixture = Fixture::new(5, 5, 3);
    fixture.pull(&[0, 1]);
    fixture.pass(stele_ground::Duration::from_secs(1));
    let needed = refused(fixture.command(Command::FailDrive { drive: 2 }));
    assert!(matches!(&needed, ArrayError::Refused(_)), "{needed:?}");
    assert_eq!(state(&fixture, 2), DriveState::Active);
    assert!(!fixture.engine().standing.is_read_only());
}

#[test]
fn a_pool_that_only_reads_gives_no_drive_up() {
    let (mut fixture, _) = patient(8, "4+2", 4);
    fixture.command(Command::Close).expect("closed");
    fixture.options.read_only = true;
    fixture.open().expect("opened");
    let error = refused(fixture.command(Command::FailDrive { drive: 1 }));
    assert!(matches!(&error, ArrayError::Refused(_)), "{error:?}");
    assert_eq!(state(&fixture, 1), DriveState::Active);
}

#[test]
fn a_drive_that_comes_back_counts_for_nothing_before_it_is_filled() {
    let (mut fixture, volume) = patient(8, "4+2", 5);
    fixture.pull(&[2]);
    // Whole stripes, so that it lacks strips and not only what the log holds.
    fixture.write(volume, 0, &pattern(100, 1 << 20)).expect("written");
    let missing = fixture.status().drives[2].clone();
    assert_eq!(missing.health, DriveHealth::Missing, "{missing:?}");
    assert!(missing.since.is_some(), "{missing:?}");
    // Nothing moves to it meanwhile.
    fixture.test_drives.held = Some(12 << 20..62 << 20);
    fixture.begin_to_give_back(2);
    let mut operations = 0;
    while state(&fixture, 2) != DriveState::Filling {
        assert!(operations < 5_000, "it counts as whole: {:?}", fixture.status().drives[2]);
        fixture.run_operations(1);
        operations += 1;
    }
    fixture.run_operations(50);
    assert_eq!(state(&fixture, 2), DriveState::Filling);
    let back = fixture.status().drives[2].clone();
    assert_eq!((back.health, back.note.as_str()), (DriveHealth::Stale, "was away; being brought up to date"));
    assert_eq!(told(&fixture, AlarmKind::DriveStale, 2), ["drive 2 is back and is brought up to date"]);
    fixture.test_drives.held = None;
    fixture.pass(stele_ground::Duration::from_secs(60));
    let whole = fixture.status().drives[2].clone();
    assert_eq!((state(&fixture, 2), whole.health), (DriveState::Active, DriveHealth::Healthy), "{whole:?}");
    assert_eq!((whole.note.as_str(), whole.since), ("", None));
    // It is worth as much as any other.
    fixture.pull(&[0, 1]);
    assert!(fixture.read(volume, 0, 1 << 20).expect("read") == pattern(100, 1 << 20), "what it was filled with");
}

#[test]
fn a_drive_that_is_removed_carries_nothing_when_it_leaves() {
    for seed in 0..3 {
        let (mut fixture, volume) = patient(8, "4+2", 10 + seed);
        let own = fixture.engine();
        let drive = own.log.members().0[0];
        fixture.command(Command::RemoveDrive { drive: u32::from(drive.0) }).expect("begun");
        let mut operations = 0;
        while state(&fixture, drive.0) != DriveState::Retired {
            assert!(operations < 100_000, "it does not leave");
            fixture.run_operations(1);
            operations += 1;
        }
        // Neither the log nor a row lies on it, nor may an opening look for any of them there.
        assert!(!own.log.members().0.contains(&drive));
        assert!(own.layout.read().rows().all(|row| !row.uses(drive)));
        let epochs = own.drives.labels.configuration().log.clone();
        let oldest = own.log.position(own.checkpointing.trimmed()).group;
        let ended = |at: usize| epochs.get(at + 1).is_some_and(|next| next.first_group <= oldest);
        let needed = epochs.iter().enumerate().filter(|(at, _)| !ended(*at));
        assert!(needed.clone().count() > 0);
        assert!(needed.into_iter().all(|(_, epoch)| !epoch.members.contains(&drive)), "{epochs:?}, {oldest}");
        fixture.pass(stele_ground::Duration::from_secs(5));
        assert!(own.io.is_gone(usize::from(drive.0)) && own.drives.labels.index(drive).is_none());
        let status = fixture.status();
        assert!(status.drives.iter().all(|other| other.index != u32::from(drive.0)));
        assert!(status.removed.iter().any(|departed| departed.index == Some(u32::from(drive.0))));
        assert_eq!((status.log_trouble, status.stripes_without_spare), (None, 0));
        drop(own);
        fixture.crash().expect("opened");
        assert!(fixture.read(volume, 0, 1 << 20).expect("read") == pattern(10 + seed, 1 << 20));
        assert_eq!(fixture.scrub(), (0, 0));
    }
}
