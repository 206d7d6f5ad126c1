//! What a checkpoint keeps for the next opening, and what is said when none can be written.

use std::cell::RefCell;
use std::rc::Rc;

use super::*;
use crate::model::{ArrayError, Reply};

#[test]
fn what_a_volume_takes_is_known_after_an_orderly_end() {
    let mut fixture = Fixture::new(6, 3, 11);
    let volume = fixture.create_volume(spec("a", "4+2", 8 << 20)).id;
    for at in 0..5 {
        fixture.write(volume, at * 64 * KIB as u64, &pattern(at, 64 * KIB)).expect("written");
    }
    let allocated = |fixture: &mut Fixture| match fixture.command(Command::ShowVolume { name: "a".into() }) {
        Ok(Reply::Detail(detail)) => detail.status.allocated,
        other => panic!("{other:?}"),
    };
    let before = allocated(&mut fixture);
    assert_eq!(before, Bytes(5 * 64 * KIB as u64));
    fixture.command(Command::Close).expect("closed");
    fixture.open().expect("opened");
    assert_eq!(allocated(&mut fixture), before);
    // Only the next one counts: nothing was counted twice, or would be below zero.
    for at in 0..5 {
        fixture.discard(volume, at * 64 * KIB as u64, 64 * KIB as u64).expect("discarded");
    }
    fixture.command(Command::Checkpoint).expect("a checkpoint");
    assert_eq!(allocated(&mut fixture), Bytes(0));
}

#[test]
fn a_checkpoint_knows_what_it_kept() {
    let mut fixture = Fixture::new(6, 3, 12);
    let volume = fixture.create_volume(spec("a", "4+2", 8 << 20)).id;
    fixture.write(volume, 0, &pattern(1, 4 * KIB)).expect("written");
    fixture.command(Command::Checkpoint).expect("a checkpoint");
    let trimmed = fixture.engine().checkpointing.trimmed();
    fixture.write(volume, 0, &pattern(2, 4 * KIB)).expect("written");
    fixture.command(Command::Checkpoint).expect("a checkpoint");
    assert!(trimmed.0 > 0 && fixture.engine().checkpointing.trimmed() > trimmed);
}

#[test]
fn a_pool_that_only_reads_writes_no_checkpoint() {
    let mut fixture = Fixture::new(6, 3, 13);
    fixture.command(Command::Close).expect("closed");
    fixture.options.read_only = true;
    fixture.open().expect("opened");
    let (engine, result) = (fixture.engine(), Rc::new(RefCell::new(None)));
    let (own, note) = (Rc::clone(&engine), Rc::clone(&result));
    engine.io.spawn(async move { *note.borrow_mut() = Some(own.checkpoint().await) });
    fixture.idle();
    let ended = result.borrow_mut().take();
    assert!(matches!(ended, Some(Err(ArrayError::Refused(_)))), "{ended:?}");
}

#[test]
fn a_checkpoint_that_fails_is_told_once_and_forgotten_when_one_succeeds() {
    // Enough drives for the log, however many of those that fail are given up.
    let mut fixture = Fixture::new(12, 3, 14);
    let volume = fixture.create_volume(spec("a", "mirror-2", 16 << 20)).id;
    fixture.command(Command::Checkpoint).expect("a checkpoint");
    fixture.alarms.clear();
    fixture.test_drives.drives.iter_mut().for_each(|drive| drive.fails_writes = true);
    for at in 0..2_000 {
        if fixture.write(volume, at * 8 * KIB as u64 % (16 << 20), &pattern(at, 4 * KIB)).is_err()
            || fixture.engine().checkpointing.is_failing()
        {
            break;
        }
    }
    fixture.pass(stele_ground::Duration::from_secs(5));
    assert!(fixture.engine().checkpointing.is_failing());
    let no_checkpoint = |text: &&&str| text.starts_with("no checkpoint can be written");
    assert_eq!(fixture.told(AlarmKind::LogDegraded).iter().filter(no_checkpoint).count(), 1);
    let trouble = fixture.status().log_trouble;
    assert!(trouble.is_some_and(|(text, since)| text.starts_with("no checkpoint") && since.is_some()));
    fixture.test_drives.drives.iter_mut().for_each(|drive| drive.fails_writes = false);
    fixture.pass(stele_ground::Duration::from_secs(20));
    assert!(!fixture.engine().checkpointing.is_failing());
    assert_eq!(fixture.status().log_trouble, None);
}

#[test]
fn tables_on_fewer_drives_than_they_should_be_on_are_told_once() {
    let mut fixture = Fixture::new(5, 5, 15);
    fixture.options.rebuild_after = stele_ground::Duration::from_secs(3600);
    fixture.command(Command::Close).expect("closed");
    fixture.open().expect("opened");
    let volume = fixture.create_volume(spec("a", "2+1", 8 << 20)).id;
    fixture.command(Command::Checkpoint).expect("a checkpoint");
    assert_eq!(fixture.told(AlarmKind::TableDegraded), Vec::<&str>::new());
    fixture.pull(&[0, 1]);
    for at in 0..3 {
        fixture.write(volume, at << 20, &pattern(at, 32 * KIB)).expect("written");
        fixture.command(Command::Checkpoint).expect("a checkpoint");
    }
    let told = fixture.told(AlarmKind::TableDegraded);
    assert!(told.len() == 1 && told[0].contains("lie on 3 drives where 4 are wanted"), "{told:?}");
}
