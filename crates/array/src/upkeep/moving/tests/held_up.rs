//! What moving says of itself, and what it leaves behind where it cannot go on.

use std::cell::Cell;
use std::rc::Rc;

use stele_ground::Duration;

use super::*;
use crate::drives::label::DriveState;
use crate::engine::Engine;
use crate::model::mutation::Mutation;
use crate::model::place::RowId;
use crate::model::{CreateOptions, DigestUnit, OpenOptions};
use crate::testing::drives::TestDrives;

/// A pool that gives no drive up and moves whole stripes, with a volume full of what is not dirty.
fn patient(
    drives: usize,
    enclosures: u32,
    written: VolumeSpec,
    change: impl FnOnce(&mut OpenOptions),
) -> (Fixture, VolumeId, Vec<u8>) {
    let mut options = OpenOptions { rebuild_after: Duration::from_secs(24 * 3600), ..OpenOptions::default() };
    change(&mut options);
    let mut fixture = Fixture::blank(drives, enclosures, 1, options);
    assert_eq!(fixture.settle(), Ok(()));
    let data = pattern(7, written.size.0 as usize);
    let volume = fixture.create_volume(written).id;
    fixture.write(volume, 0, &data).expect("written");
    fixture.command(Command::Checkpoint).expect("a checkpoint");
    fixture.command(Command::Close).expect("closed");
    fixture.mutations = fixture.mutations.with(Mutation::OwnStrip);
    fixture.open().expect("opened");
    (fixture, volume, data)
}

fn rows(engine: &Engine) -> Vec<RowId> {
    let layout = engine.layout.read();
    layout.rows().filter(|row| row.class.kind == RowKind::Data).map(|row| row.id).collect()
}

fn filled(engine: &Engine) -> Vec<RowId> {
    rows(engine).into_iter().filter(|row| engine.look(|core| core.space.used(*row)) > 0).collect()
}

fn rows_on(engine: &Engine, drive: u16) -> Vec<RowId> {
    let layout = engine.layout.read();
    let on = |row: &&crate::space::layout::Row| row.class.kind == RowKind::Data && row.uses(DriveNumber(drive));
    layout.rows().filter(on).map(|row| row.id).collect()
}

fn drives_of(engine: &Engine, row: RowId) -> Vec<usize> {
    let layout = engine.layout.read();
    let row = layout.row(row).expect("a row");
    row.members.iter().map(|member| usize::from(member.cell.drive.0)).collect()
}

/// Lets drive operations end, one after the other, until something is so.
fn run_until(fixture: &mut Fixture, is_so: impl Fn(&Fixture) -> bool) {
    let mut operations = 0;
    while !is_so(fixture) {
        assert!(operations < 200_000, "it does not come to that");
        fixture.run_operations(1);
        operations += 1;
    }
}

/// Lets the pool move, which says how far it is: bytes done, and in all.
fn told_of_moving(fixture: &mut Fixture, case: &str) {
    let mut told = Vec::new();
    for _ in 0..3000 {
        fixture.run_operations(4);
        told.extend(fixture.status().moving.map(|moving| (moving.done.0, moving.total.0)));
    }
    assert!(told.iter().any(|(done, total)| 0 < *done && done < total), "{case}: {told:?}");
    fixture.idle();
    assert!(fixture.status().moving.is_none(), "{case}: it has an end");
}

#[test]
fn moving_says_how_far_it_has_come() {
    let mut away = scene(9, 2);
    away.fixture.command(Command::RemoveDrive { drive: 4 }).expect("begun");
    told_of_moving(&mut away.fixture, "off a drive");
    let mut onto = scene(7, 1);
    let add = onto.blanks(3);
    onto.fixture.command(add).expect("added");
    told_of_moving(&mut onto.fixture, "onto drives");
    let (mut fixture, ..) = patient(9, 3, spec("a", "4+2", SIZE as u64), |_| ());
    fixture.command(Command::SetDrive { drive: 0, enclosure: 1 }).expect("set");
    told_of_moving(&mut fixture, "out of a crowd");
}

#[test]
fn a_row_that_cannot_move_is_told_of_once_and_left_as_it_was() {
    let (mut fixture, volume, data) = patient(12, 12, spec("a", "4+2", 24 << 20), |_| ());
    let own = fixture.engine();
    let before = filled(&own);
    let away: Vec<usize> =
        drives_of(&own, rows_on(&own, 0)[0]).into_iter().filter(|drive| *drive != 0).take(3).collect();
    fixture.command(Command::RemoveDrive { drive: 0 }).expect("begun");
    fixture.pull(&away);
    fixture.pass(Duration::from_secs(60));
    let told = fixture.told(AlarmKind::MovingPutOff);
    assert!(told.len() == 1 && told[0].contains("drives that are away"), "{told:?}");
    assert!(fixture.status().moving_put_off.is_some());
    // The row that was made for its stripes is given back, and what is free in it is hosts' again.
    assert_eq!(rows(&own), before);
    assert!(before.iter().all(|row| !own.look(|core| core.space.is_closed(*row))));
    let on = rows_on(&own, 0);
    assert!(on.len() > 2, "{on:?}");
    for drive in away {
        fixture.give_back(drive);
    }
    run_until(&mut fixture, |_| rows_on(&own, 0).len() < on.len());
    assert_eq!(fixture.status().moving_put_off, None, "it says that nothing moves, and moves");
    fixture.idle();
    assert_eq!(names(&fixture.status()), ["drives/0"]);
    assert!(fixture.read(volume, 0, data.len()).expect("read") == data);
}

/// Three enclosures, one of which is a single drive without room for a strip of every stripe.
#[test]
fn a_crowd_that_nothing_can_be_done_about_is_told_of_once() {
    let options = OpenOptions { rebuild_after: Duration::from_secs(24 * 3600), ..OpenOptions::default() };
    let drives = TestDrives::new(6, Bytes(40 << 20), 1);
    let mut fixture =
        Fixture::begin_on(drives, 2, 1, options, |create: &mut CreateOptions| create.spare_drives = Some(0));
    assert_eq!(fixture.settle(), Ok(()));
    let volume = fixture.create_volume(spec("a", "2+1", 1 << 30)).id;
    for at in 0..70 {
        fixture.write(volume, at << 20, &pattern(at, 1 << 20)).expect("written");
    }
    fixture.command(Command::SetDrive { drive: 5, enclosure: 2 }).expect("set");
    let before = fixture.status().crowded_stripes;
    fixture.pass(Duration::from_secs(120));
    let status = fixture.status();
    assert!(0 < status.crowded_stripes && status.crowded_stripes < before, "{before}, {}", status.crowded_stripes);
    assert!(status.moving.is_none(), "nothing moves: {:?}", status.moving);
    assert!(status.moving_put_off.is_some_and(|(why, _)| why.contains("in one enclosure")));
    let told = fixture.told(AlarmKind::MovingPutOff);
    assert!(told.len() == 1 && told[0].contains("in one enclosure"), "{told:?}");
    // It was said wrongly, and no row is crowded any more.
    fixture.command(Command::SetDrive { drive: 5, enclosure: 1 }).expect("set");
    fixture.pass(Duration::from_secs(10));
    assert_eq!((fixture.status().crowded_stripes, fixture.status().moving_put_off), (0, None));
}

#[test]
fn a_row_waits_a_while_for_what_is_being_written_to_it() {
    let (mut fixture, volume, data) = patient(10, 10, spec("a", "4+2", 62 << 16), |_| ());
    let own = fixture.engine();
    let row = rows(&own)[0];
    let drive = drives_of(&own, row)[0];
    // A slot of the row is a writer's.
    let slot = Rc::new(Cell::new(None));
    let (task, given) = (Rc::clone(&own), Rc::clone(&slot));
    own.io.spawn(async move {
        let volume = task.volume(volume).expect("the volume");
        given.set(task.allocate(&volume, 0, false).await.expect("a slot"));
    });
    fixture.run_operations(1);
    let allocation = slot.get().filter(|allocation| allocation.slot.row == row).expect("a slot of the row");
    fixture.command(Command::RemoveDrive { drive: drive as u32 }).expect("begun");
    fixture.pass(Duration::from_secs(40));
    assert_eq!(fixture.told(AlarmKind::MovingPutOff), [""; 0]);
    assert!(rows_on(&own, drive as u16).contains(&row));
    fixture.pass(Duration::from_secs(30));
    let told = fixture.told(AlarmKind::MovingPutOff);
    assert!(told.len() == 1 && told[0].contains("1 on their way"), "{told:?}");
    own.abandon(allocation);
    fixture.idle();
    assert_eq!(own.drive_state(DriveNumber(drive as u16)), DriveState::Retired);
    assert!(fixture.read(volume, 0, data.len()).expect("read") == data);
}

#[test]
fn nothing_moves_any_more_where_the_pool_only_reads() {
    let (mut fixture, _, _) = patient(10, 10, spec("a", "4+2", 4 << 20), |_| ());
    let own = fixture.engine();
    let row = rows(&own)[0];
    let used = || own.look(|core| core.space.used(row));
    let (whole, drive) = (used(), drives_of(&own, row)[0]);
    fixture.command(Command::RemoveDrive { drive: drive as u32 }).expect("begun");
    run_until(&mut fixture, |_| used() < whole);
    own.only_read(AlarmKind::ReadOnly, "as where too few drives agree".into());
    let then = used();
    fixture.pass(Duration::from_secs(60));
    // What was on its way may arrive.
    assert!(used() + 8 >= then, "{whole}, {then}, {}", used());
}

#[test]
fn moving_leaves_hosts_their_share() {
    let rate = Bytes(4 << 20);
    let (mut fixture, ..) = patient(9, 9, spec("a", "4+2", 12 << 20), |options| options.background_rate = Some(rate));
    fixture.command(Command::RemoveDrive { drive: 0 }).expect("begun");
    let own = fixture.engine();
    assert!(own.admission.begin(), "a host is active");
    fixture.pass(Duration::from_millis(1500));
    let moving = fixture.status().moving.expect("it goes on");
    assert!((4 << 20..8 << 20).contains(&moving.done.0), "in a second and a half: {moving:?}");
    own.admission.end();
    fixture.idle();
    assert_eq!(names(&fixture.status()), ["drives/0"]);
}

/// Errors that pass would be losses: what does not go along is gone.
#[test]
fn what_a_second_read_gives_moves_with_its_row() {
    let written = VolumeSpec { digest: DigestUnit::Strip, ..spec("a", "2+1", 32 << 10) };
    let (mut fixture, volume, data) = patient(6, 6, written, |_| ());
    let own = fixture.engine();
    let drives = drives_of(&own, rows(&own)[0]);
    // Each second read fails: not the first, which hosts have made, but the next.
    drives.iter().take(2).for_each(|drive| fixture.test_drives.drives[*drive].fails_reads = true);
    assert!(fixture.read(volume, 0, data.len()).expect("read") == data);
    fixture.command(Command::RemoveDrive { drive: drives[2] as u32 }).expect("begun");
    run_until(&mut fixture, |fixture| rows_on(&own, drives[2] as u16).is_empty() || !fixture.alarms.is_empty());
    drives.iter().take(2).for_each(|drive| fixture.test_drives.drives[*drive].fails_reads = false);
    fixture.idle();
    assert_eq!(names(&fixture.status()), [format!("drives/{}", drives[2])]);
    assert_eq!(fixture.told(AlarmKind::StripeLost), [""; 0]);
    assert_eq!(fixture.told(AlarmKind::MovingPutOff), [""; 0]);
    assert!(fixture.read(volume, 0, data.len()).expect("read") == data);
}

/// Which blocks can be read. What is read is what was written.
fn readable(fixture: &mut Fixture, volume: VolumeId, data: &[u8]) -> Vec<bool> {
    let block = |at: usize| match fixture.read(volume, at as u64, 4096) {
        Ok(read) => {
            assert!(read == data[at..at + 4096], "the block at {at} is invented");
            true
        }
        Err(NoAnswer::Media(_)) => false,
        Err(other) => panic!("{other:?}"),
    };
    (0..data.len()).step_by(4096).map(block).collect()
}

/// What is lost of a stripe counts as zeros in its parity: the rest of it is as safe as before.
#[test]
fn the_rest_of_a_lost_stripe_that_moved_is_as_safe_as_any() {
    let (mut fixture, volume, data) = patient(8, 8, spec("a", "4+2", 4 << 20), |_| ());
    let own = fixture.engine();
    let members = drives_of(&own, rows(&own)[0]);
    // One block of three strips of each stripe.
    for (member, drive) in members.iter().enumerate().take(3) {
        let cell = own.layout.read().row(rows(&own)[0]).expect("a row").members[member].cell;
        let at = own.drives.labels.configuration().cell_at(cell);
        (0..8).for_each(|slot| fixture.test_drives.damage(*drive, at + slot * (16 << 10), 4096));
    }
    fixture.command(Command::RemoveDrive { drive: members[5] as u32 }).expect("begun");
    fixture.idle();
    assert_eq!(names(&fixture.status()).len(), 1);
    let before = readable(&mut fixture, volume, &data);
    let lost = before.iter().filter(|is_readable| !**is_readable).count();
    assert!(0 < lost && lost <= 24, "{lost}");
    let drives = drives_of(&own, rows(&own)[0]);
    drop(own);
    for pair in drives.chunks(2) {
        fixture.command(Command::Close).expect("closed");
        pair.iter().for_each(|drive| fixture.test_drives.drives[*drive].gone = true);
        fixture.open().expect("opened");
        assert!(readable(&mut fixture, volume, &data) == before, "without {pair:?}");
        pair.iter().for_each(|drive| fixture.test_drives.drives[*drive].gone = false);
        fixture.crash().expect("opened");
        fixture.idle();
    }
}

/// Drives go away from under the stripes that move to them.
#[test]
fn slots_that_nothing_came_of_are_free_again() {
    let (mut fixture, volume, data) = patient(10, 10, spec("a", "4+2", 4 << 20), |_| ());
    let own = fixture.engine();
    let held = || rows(&own).iter().map(|row| own.look(|core| core.space.held(*row))).sum::<usize>();
    let drive = drives_of(&own, rows(&own)[0])[0];
    fixture.test_drives.held = Some(12 << 20..62 << 20);
    fixture.command(Command::RemoveDrive { drive: drive as u32 }).expect("begun");
    // So many stripes move at once.
    run_until(&mut fixture, |_| held() == 8);
    let to = *rows(&own).last().expect("the row that they move to");
    let away: Vec<usize> = drives_of(&own, to).into_iter().take(3).collect();
    fixture.pull(&away);
    fixture.test_drives.held = None;
    fixture.pass(Duration::from_secs(30));
    let told = fixture.told(AlarmKind::MovingPutOff);
    assert!(told.len() == 1 && told[0].contains("could be written"), "{told:?}");
    assert_eq!(held(), 0);
    for drive in away {
        fixture.give_back(drive);
    }
    fixture.idle();
    assert_eq!(own.drive_state(DriveNumber(drive as u16)), DriveState::Retired);
    assert!(fixture.read(volume, 0, data.len()).expect("read") == data);
}

/// Nothing is free but the spare space, and the drive that was added.
#[test]
fn the_stripes_of_a_full_pool_move_to_an_added_drive() {
    let mut fixture = Fixture::new(11, 11, 1);
    let volume = fixture.create_volume(spec("a", "4+2", 1 << 30)).id;
    let mut stored = 0;
    while fixture.write(volume, stored << 20, &pattern(stored, 1 << 20)).is_ok() {
        stored += 1;
    }
    fixture.command(Command::Checkpoint).expect("a checkpoint");
    let index = fixture.add_blank() as u32;
    fixture.command(Command::AddDrives { drives: vec![(index, DriveId([50; 16]))] }).expect("added");
    fixture.idle();
    let status = fixture.status();
    let (most, least) = spread(&status);
    assert!(least * 10 >= most * 8, "{} and {}", Bytes(most), Bytes(least));
    assert_eq!(fixture.told(AlarmKind::MovingPutOff), [""; 0]);
    // Less than a row of six more.
    assert!(status.used.0 < status.raw.0 - status.spare.0 + (6 << 20));
    for at in 0..stored {
        assert!(fixture.read(volume, at << 20, 1 << 20).expect("read") == pattern(at, 1 << 20), "{at} MiB");
    }
}
