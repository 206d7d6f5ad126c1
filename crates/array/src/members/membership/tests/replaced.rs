//! Drives that are put in the place of others: what is refused, and what is left when it fails.

use super::*;
use crate::drives::label::{DriveState, LOG_AT, places};
use crate::durable::log::group::Header;
use crate::model::{OpenOptions, Reply};
use crate::space::layout::RowKind;

const SIZE: usize = 4 << 20;

/// A pool that rebuilds nothing by itself, with a volume full of what is not dirty.
pub fn patient(drives: usize, code: &str, seed: u64) -> (Fixture, stele_ground::VolumeId, Vec<u8>) {
    let options = OpenOptions { rebuild_after: Duration::from_secs(24 * 3600), ..OpenOptions::default() };
    let mut fixture = Fixture::blank(drives, drives as u32, seed, options);
    assert_eq!(fixture.settle(), Ok(()));
    let volume = fixture.create_volume(spec("a", code, SIZE as u64)).id;
    let data = pattern(seed, SIZE);
    fixture.write(volume, 0, &data).expect("written");
    fixture.command(Command::Checkpoint).expect("a checkpoint");
    fixture.idle();
    (fixture, volume, data)
}

pub fn state(fixture: &Fixture, drive: u16) -> DriveState {
    fixture.engine().drive_state(DriveNumber(drive))
}

fn refused(answer: Result<Reply, NoAnswer>) -> ArrayError {
    match answer {
        Err(NoAnswer::Array(error)) => error,
        other => panic!("{other:?}"),
    }
}

fn put(old: u32, new: usize, identity: u8) -> Command {
    Command::ReplaceDrive { old, new: new as u32, identity: DriveId([identity; 16]), enclosure: None, give_up: true }
}

/// The sequences of what lies in a drive's ring.
fn groups(fixture: &Fixture, drive: usize) -> Vec<u64> {
    let ring = fixture.test_drives.peek(drive, LOG_AT, 8 << 20);
    ring.chunks(4096).filter_map(Header::decode).map(|header| header.sequence).collect()
}

/// Drives that status lists beside those of the pool.
fn strangers(fixture: &mut Fixture) -> Vec<String> {
    let drives = fixture.status().drives;
    drives.into_iter().filter(|drive| drive.index == u32::MAX).map(|drive| drive.name).collect()
}

/// Nothing of a pool that is open for reading is written to, nor is what is attached to it.
#[test]
fn a_pool_that_only_reads_takes_no_drive_in_anothers_place() {
    let (mut fixture, ..) = patient(7, "4+2", 1);
    fixture.command(Command::Close).expect("closed");
    fixture.options.read_only = true;
    fixture.open().expect("opened");
    let new = fixture.add_blank();
    let operations = fixture.test_drives.operations;
    let error = refused(fixture.command(put(3, new, 93)));
    assert!(matches!(&error, ArrayError::Refused(text) if text.contains("read-only")), "{error:?}");
    assert_eq!(fixture.test_drives.operations, operations);
    assert_eq!(fixture.status().drives[3].identity, DriveId([4; 16]));
}

#[test]
fn a_drive_of_another_pool_takes_no_place_in_this_one() {
    let (mut fixture, ..) = patient(7, "4+2", 2);
    let new = fixture.add_blank();
    fixture.test_drives.drives[new] = Fixture::of_pool(4, 4, 2, 9).test_drives.drives[0].clone();
    let error = refused(fixture.command(put(3, new, 93)));
    assert!(matches!(&error, ArrayError::Refused(text) if text.contains("wipe the drive first")), "{error:?}");
    assert_eq!(state(&fixture, 3), DriveState::Active);
}

/// It may be a drive of any pool: one that a later version wrote, or whose labels are damaged.
#[test]
fn a_drive_whose_label_cannot_be_read_takes_no_place() {
    for (what, byte) in [("another format", 8), ("damage", 100)] {
        let (mut fixture, ..) = patient(7, "4+2", 2);
        fixture.pull(&[3]);
        let new = fixture.add_blank();
        fixture.test_drives.drives[new] = Fixture::of_pool(4, 4, 2, 9).test_drives.drives[0].clone();
        for copy in places(fixture.test_drives.size.0) {
            fixture.test_drives.damage(new, copy + byte, 1);
        }
        let before = fixture.test_drives.peek(new, 0, 64 << 20);
        let error = refused(fixture.command(put(3, new, 93)));
        assert!(matches!(&error, ArrayError::Refused(text) if text.contains("wipe it first")), "{what}: {error:?}");
        assert!(fixture.test_drives.peek(new, 0, 64 << 20) == before, "{what}: it was written to");
    }
}

/// Else what was its label before would count as the newer one when the pool is opened next.
#[test]
fn a_drive_that_had_a_place_in_the_pool_may_get_another() {
    let (mut fixture, volume, data) = patient(8, "4+2", 3);
    fixture.command(Command::FailDrive { drive: 3 }).expect("given up");
    fixture.command(Command::FailDrive { drive: 5 }).expect("given up");
    let index = fixture.give_back(3);
    fixture.command(put(5, index, 95)).expect("it carries a label of this pool");
    fixture.crash().expect("opened");
    fixture.idle();
    let drive = fixture.status().drives[5].clone();
    assert_eq!((drive.health, drive.identity), (DriveHealth::Healthy, DriveId([95; 16])), "{drive:?}");
    assert!(fixture.read(volume, 0, SIZE).expect("read") == data);
}

#[test]
fn a_drive_whose_place_was_taken_is_named_until_it_has_one() {
    let (mut fixture, ..) = patient(8, "4+2", 4);
    let new = fixture.add_blank();
    fixture.command(put(3, new, 93)).expect("replaced");
    fixture.pull(&[3]);
    let old = fixture.give_back(3);
    fixture.idle();
    let name = format!("drives/{old}");
    assert!(fixture.told(AlarmKind::DriveRejected)[0].contains("another drive has taken its place"));
    assert_eq!(strangers(&mut fixture), [name]);
    fixture.command(put(4, old, 94)).expect("replaced");
    assert_eq!(strangers(&mut fixture), [""; 0]);
}

/// The drive would be given up first, and the pool be left without either.
#[test]
fn a_drive_that_takes_no_writes_replaces_none() {
    let (mut fixture, ..) = patient(7, "4+2", 5);
    let new = fixture.add_blank();
    fixture.test_drives.drives[new].fails_at = 0..fixture.test_drives.size.0;
    let error = refused(fixture.command(put(3, new, 93)));
    assert!(matches!(&error, ArrayError::Degraded(text) if text.contains("nothing has changed")), "{error:?}");
    let drive = fixture.status().drives[3].clone();
    assert_eq!((drive.health, drive.identity), (DriveHealth::Healthy, DriveId([4; 16])));
}

#[test]
fn a_drive_that_takes_no_label_leaves_the_place_to_the_next() {
    let (mut fixture, volume, data) = patient(7, "4+2", 6);
    let new = fixture.add_blank();
    fixture.test_drives.drives[new].fails_at = 0..128 << 10;
    let error = refused(fixture.command(put(3, new, 93)));
    assert!(matches!(&error, ArrayError::Degraded(text) if text.contains("by another drive")), "{error:?}");
    assert_eq!(state(&fixture, 3), DriveState::Failed);
    assert_eq!(fixture.engine().drives.labels.number(new), None, "it is asked for nothing");
    let next = fixture.add_blank();
    fixture.command(put(3, next, 94)).expect("replaced");
    fixture.idle();
    fixture.crash().expect("opened");
    let drive = fixture.status().drives[3].clone();
    assert_eq!((drive.health, drive.identity), (DriveHealth::Healthy, DriveId([94; 16])), "{drive:?}");
    assert!(fixture.read(volume, 0, SIZE).expect("read") == data);
}

/// A pool without data, whose tables lie on as many drives as may be lost at once, and one more.
#[test]
fn a_drive_that_alone_has_the_tables_is_not_replaced() {
    let (mut fixture, ..) = patient(9, "2+1", 7);
    fixture.command(Command::DeleteVolume { name: "a".into() }).expect("deleted");
    fixture.idle();
    let tables: Vec<usize> = {
        let engine = fixture.engine();
        let layout = engine.layout.read();
        let row = layout.rows().find(|row| row.class.kind == RowKind::Table).expect("the tables lie somewhere");
        row.members.iter().map(|member| usize::from(member.replacement.unwrap_or(member.cell).drive.0)).collect()
    };
    let (last, others) = tables.split_last().expect("members");
    fixture.pull(others);
    fixture.pass(Duration::from_secs(1));
    let new = fixture.add_blank();
    let error = refused(fixture.command(put(*last as u32, new, 99)));
    assert!(matches!(&error, ArrayError::Refused(text) if text.contains("tables")), "{error:?}");
    assert_eq!(state(&fixture, *last as u16), DriveState::Active);
}

/// The new drive would join, and have to be emptied again.
#[test]
fn nothing_joins_for_a_drive_that_cannot_be_emptied() {
    let (mut fixture, ..) = patient(9, "4+2", 8);
    let row = fixture.drives_of_rows("4+2", 4);
    fixture.pull(&row[..3]);
    fixture.pass(Duration::from_secs(1));
    let new = fixture.add_blank();
    let error = refused(fixture.command(replace(row[3] as u32, new, false)));
    assert!(matches!(&error, ArrayError::Refused(text) if text.contains("cannot be read now")), "{error:?}");
    assert_eq!(fixture.engine().drives.labels.configuration().drives.len(), 9);
}

#[test]
fn a_drive_replaced_while_it_answers_is_asked_nothing_more() {
    let (mut fixture, volume, _) = patient(8, "4+2", 9);
    let old = fixture.engine().log.members().0[0];
    fixture.write(volume, 0, &pattern(1, 4096)).expect("written");
    let epoch = fixture.engine().drives.labels.configuration().log.last().map(|log| log.epoch);
    let new = fixture.add_blank();
    fixture.command(put(u32::from(old.0), new, 99)).expect("replaced");
    let engine = fixture.engine();
    assert!(engine.io.is_gone(usize::from(old.0)));
    // Groups from before do not count as lying on the new drive.
    fixture.pass(Duration::from_millis(100));
    assert_ne!(engine.drives.labels.configuration().log.last().map(|log| log.epoch), epoch);
}

/// Groups of the log that a drive kept from another time would count as acknowledged.
#[test]
fn a_drive_that_is_put_in_brings_no_groups_of_the_log_along() {
    let (mut fixture, volume, _) = patient(8, "4+2", 10);
    let member = fixture.engine().log.members().0[0];
    let old = usize::from(member.0);
    for at in 0..8 {
        fixture.write(volume, at << 15, &pattern(at, 4096)).expect("written");
    }
    fixture.command(Command::Checkpoint).expect("a checkpoint");
    let before = groups(&fixture, old);
    assert!(before.len() > 4, "{before:?}");
    fixture.command(Command::FailDrive { drive: u32::from(member.0) }).expect("given up");
    let index = fixture.give_back(old);
    fixture.command(put(u32::from(member.0), index, 99)).expect("replaced");
    let kept = groups(&fixture, index).into_iter().filter(|sequence| before.contains(sequence));
    assert_eq!(kept.count(), 0);
}

#[test]
fn a_drive_that_was_put_in_takes_new_stripes() {
    let (mut fixture, ..) = patient(6, "4+2", 11);
    let new = fixture.add_blank();
    fixture.command(put(3, new, 93)).expect("replaced");
    fixture.idle();
    let before = fixture.status();
    let volume = fixture.create_volume(spec("b", "4+2", SIZE as u64)).id;
    fixture.write(volume, 0, &pattern(12, SIZE)).expect("written");
    fixture.command(Command::Checkpoint).expect("a checkpoint");
    let after = fixture.status();
    let grown = |drive: usize| after.drives[drive].used.0 - before.drives[drive].used.0;
    assert!(grown(3) > 0 && grown(3) == grown(4), "{} {}", grown(3), grown(4));
    fixture.pull(&[0, 1]);
    assert!(fixture.read(volume, 0, SIZE).expect("read without two others") == pattern(12, SIZE));
}

/// Stripes go to drives by the same table of drives that the next opening finds.
#[test]
fn room_is_told_as_the_next_opening_tells_it() {
    let (mut fixture, ..) = patient(7, "4+2", 12);
    let room = |fixture: &mut Fixture| {
        fixture.idle();
        let status = fixture.status();
        (status.codes, status.spare)
    };
    let healthy = room(&mut fixture);
    fixture.command(Command::FailDrive { drive: 3 }).expect("given up");
    let failed = room(&mut fixture);
    assert_ne!(failed, healthy);
    fixture.crash().expect("opened");
    assert_eq!(room(&mut fixture), failed);
    fixture.test_drives.drives[3].gone = true;
    let new = fixture.add_blank();
    fixture.command(put(3, new, 93)).expect("replaced");
    let replaced = room(&mut fixture);
    fixture.crash().expect("opened");
    assert_eq!(room(&mut fixture), replaced);
}

/// Before a drive is put in, each shard says whether it would take it. It says so of the whole
/// command: an old drive that answers also leaves.
#[test]
fn what_a_check_allows_is_what_a_replacement_does() {
    let mut answers = [0, 0];
    for (drives, away) in [(5, &[][..]), (5, &[1]), (5, &[1, 2]), (7, &[1, 2]), (4, &[1])] {
        for give_up in [true, false] {
            let (mut fixture, ..) = patient(drives, "mirror-3", 5);
            fixture.pull(away);
            let new = fixture.add_blank();
            fixture.pass(Duration::from_secs(5));
            let ask = Command::ReplaceDrive {
                old: 0,
                new: new as u32,
                identity: DriveId([93; 16]),
                enclosure: None,
                give_up,
            };
            let before = fixture.status().epoch;
            let check = fixture.command(Command::CheckDrives(Box::new(ask.clone())));
            assert_eq!(fixture.status().epoch, before, "a check changes nothing");
            let done = fixture.command(ask);
            let case = format!("{drives} drives, away: {away:?}, given up: {give_up}: {check:?}, {done:?}");
            assert_eq!(check.is_ok(), done.is_ok(), "{case}");
            if let (Err(check), Err(done)) = (&check, &done) {
                assert_eq!(format!("{check:?}"), format!("{done:?}"), "{case}");
            }
            answers[usize::from(done.is_ok())] += 1;
        }
    }
    assert!(answers.iter().all(|count| *count > 1), "{answers:?}");
}
