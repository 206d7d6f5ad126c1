//! How the strips of a drive that leaves move by themselves.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

use stele_ground::{Bytes, Duration, VolumeId};

use super::{Need, Task, engine, moved_strips, step_by_step};
use crate::engine::Engine;
use crate::model::mutation::Mutation;
use crate::model::place::{DriveNumber, RowId, StripCell};
use crate::model::{AlarmKind, Command, DriveHealth, OpenOptions};
use crate::space::layout::{Row, RowKind};
use crate::testing::{Fixture, pattern, spec};

const SIZE: usize = 12 << 20;

/// Everything is on the strips, in runs of single ones, and nothing in the log.
fn written(drives: usize, code: &str, seed: u64) -> (Fixture, VolumeId, Vec<u8>) {
    let mut fixture = step_by_step(drives, seed);
    fixture.options.rebuild_after = Duration::from_secs(24 * 3600);
    let volume = fixture.create_volume(spec("a", code, SIZE as u64)).id;
    let data = pattern(seed, SIZE);
    fixture.write(volume, 0, &data).expect("written");
    fixture.command(Command::Checkpoint).expect("a checkpoint");
    fixture.command(Command::Close).expect("closed");
    fixture.open().expect("opened");
    (fixture, volume, data)
}

fn rows(engine: &Engine) -> Vec<Row> {
    let layout = engine.layout.read();
    layout.rows().filter(|row| row.class.kind == RowKind::Data).cloned().collect()
}

/// The first row of which strips have left the drive, and others not yet: the row, the member, and
/// where its strips go.
fn under_way(engine: &Engine, drive: u16) -> Option<(Row, usize, StripCell)> {
    rows(engine).into_iter().find_map(|row| {
        let of = row.members.iter().position(|member| member.cell.drive.0 == drive)?;
        let to = row.members[of].replacement?;
        let (moved, all) = moved_strips(engine, &row, of);
        (0 < moved && moved < all).then_some((row, of, to))
    })
}

fn run_until_under_way(fixture: &mut Fixture, drive: u16) -> (Row, usize, StripCell) {
    let engine = engine(fixture);
    for _ in 0..200_000 {
        if let Some(found) = under_way(&engine, drive) {
            return found;
        }
        fixture.run_operations(1);
    }
    panic!("no row is under way");
}

/// Nothing is amiss, without any two drives that are left either.
fn is_as_safe_as_any(fixture: &mut Fixture, volume: VolumeId, data: &[u8], case: &str) {
    assert!(fixture.read(volume, 0, SIZE).expect("read") == data, "{case}");
    assert_eq!(fixture.scrub(), (0, 0), "{case}");
    let status = fixture.status();
    let drives: Vec<usize> = status.drives.iter().map(|drive| drive.index as usize).collect();
    assert!(status.drives.iter().all(|drive| drive.health == DriveHealth::Healthy), "{case}: {:?}", status.drives);
    assert_eq!((status.lost_stripes, status.moving.is_some()), (0, false), "{case}");
    let own = engine(fixture);
    assert!(rows(&own).iter().all(|row| row.members.iter().all(|of| of.replacement.is_none())), "{case}");
    assert_eq!(stale(&own), 0, "{case}");
    drop(own);
    for pair in drives.windows(2).step_by(3) {
        fixture.command(Command::Close).expect("closed");
        pair.iter().for_each(|drive| fixture.test_drives.drives[*drive].gone = true);
        fixture.open().expect("opened");
        assert!(fixture.read(volume, 0, SIZE).expect("read") == data, "{case}: without {pair:?}");
        pair.iter().for_each(|drive| fixture.test_drives.drives[*drive].gone = false);
        fixture.crash().expect("opened");
        fixture.idle();
    }
}

#[test]
fn of_each_stripe_only_the_strip_on_a_drive_that_leaves_moves() {
    let (mut fixture, volume, data) = written(10, "4+2", 1);
    let own = engine(&fixture);
    let before: BTreeMap<RowId, Row> = rows(&own).into_iter().map(|row| (row.id, row)).collect();
    let on = |row: &&Row| row.uses(DriveNumber(3));
    let strips: u32 = before.values().filter(on).map(|row| own.look(|core| core.space.used(row.id))).sum();
    assert!(strips > 100);
    let counted = (own.count.rebuilt.get(), own.count.reconstructed.get());
    // A host is active: the others compute nothing for the drive then.
    assert!(own.admission.begin());
    fixture.command(Command::RemoveDrive { drive: 3 }).expect("begun");
    fixture.pass(Duration::from_secs(60));
    own.admission.end();
    fixture.idle();
    assert_eq!(fixture.status().removed.len(), 1);
    assert_eq!(own.count.rebuilt.get(), counted.0, "what leaves a drive was not lost");
    assert_eq!(own.count.reconstructed.get(), counted.1, "units that were computed");
    let mut changed = 0;
    for row in rows(&own) {
        for (now, then) in row.members.iter().zip(&before[&row.id].members) {
            let leaves = then.cell.drive == DriveNumber(3);
            assert_eq!(now.cell != then.cell, leaves, "{row:?}");
            changed += usize::from(leaves);
        }
    }
    assert_eq!((changed, rows(&own).len()), (before.values().filter(on).count(), before.len()));
    drop(own);
    fixture.test_drives.erase(3, 0, 64 << 20);
    is_as_safe_as_any(&mut fixture, volume, &data, "gone");
}

/// Idle drives compute what the one that leaves has no time for.
#[test]
fn without_hosts_the_others_compute_what_waits_for_a_drive_that_leaves() {
    let (mut fixture, volume, data) = written(10, "4+2", 2);
    let own = engine(&fixture);
    fixture.pass(Duration::from_secs(1));
    fixture.command(Command::RemoveDrive { drive: 3 }).expect("begun");
    fixture.idle();
    assert_eq!(fixture.status().removed.len(), 1);
    assert!(own.count.reconstructed.get() > 0);
    drop(own);
    is_as_safe_as_any(&mut fixture, volume, &data, "gone");
}

#[test]
fn what_does_not_verify_on_a_drive_that_leaves_is_computed() {
    let (mut fixture, volume, data) = written(9, "4+2", 3);
    fixture.test_drives.damage(4, 12 << 20, 40 << 20);
    fixture.command(Command::RemoveDrive { drive: 4 }).expect("begun");
    fixture.idle();
    assert_eq!(fixture.status().removed.len(), 1);
    assert_eq!(fixture.told(AlarmKind::MovingPutOff), [""; 0]);
    is_as_safe_as_any(&mut fixture, volume, &data, "gone");
}

#[test]
fn a_spare_cell_that_lacks_a_strip_does_not_become_the_members() {
    let (mut fixture, volume, data) = written(9, "4+2", 9);
    fixture.command(Command::RemoveDrive { drive: 4 }).expect("begun");
    let (row, member, _) = run_until_under_way(&mut fixture, 4);
    let (own, result) = (engine(&fixture), Rc::new(Cell::new(None)));
    let (task, answer) = (Rc::clone(&own), Rc::clone(&result));
    let of = Task { left: u32::MAX, need: Need::Leave, row: row.id, member: member as u8 };
    own.io.spawn(async move { answer.set(Some(task.make_home(of).await.is_ok_and(|is_done| !is_done))) });
    while result.get().is_none() {
        fixture.run_operations(1);
    }
    assert_eq!(result.get(), Some(true), "it is to be tried again");
    assert_eq!(own.home_cell(row.id, member as u8), Some(row.members[member].cell));
    drop(own);
    fixture.idle();
    is_as_safe_as_any(&mut fixture, volume, &data, "gone");
}

/// What has moved off a drive that stays after all is copied back; what a host wrote meanwhile
/// counts wherever it lies.
#[test]
fn a_removal_that_is_taken_back_half_way_leaves_nothing_in_two_cells() {
    for crashes in [false, true] {
        let (mut fixture, volume, mut data) = written(9, "4+2", 4);
        fixture.command(Command::RemoveDrive { drive: 4 }).expect("begun");
        run_until_under_way(&mut fixture, 4);
        for at in (0..SIZE).step_by(256 << 10) {
            let new = pattern(at as u64, 8 << 10);
            fixture.write(volume, at as u64, &new).expect("written");
            data[at..at + new.len()].copy_from_slice(&new);
        }
        if crashes {
            fixture.crash().expect("opened");
        }
        fixture.command(Command::KeepDrive { drive: 4 }).expect("kept");
        fixture.idle();
        assert_eq!(fixture.status().removed.len(), 0);
        is_as_safe_as_any(&mut fixture, volume, &data, "kept");
    }
}

/// The drive itself, or one that its strips go to.
#[test]
fn a_drive_that_is_lost_while_another_leaves_counts_for_what_lies_on_it() {
    for is_source in [true, false] {
        let (mut fixture, volume, data) = written(10, "4+2", 5);
        fixture.options.rebuild_after = Duration::from_secs(1);
        fixture.crash().expect("opened");
        fixture.command(Command::RemoveDrive { drive: 4 }).expect("begun");
        let (row, _, to) = run_until_under_way(&mut fixture, 4);
        let lost = if is_source { DriveNumber(4) } else { to.drive };
        let own = engine(&fixture);
        assert_eq!(own.strips_without(&row, |drive| drive == lost), 1);
        drop(own);
        fixture.pull(&[usize::from(lost.0)]);
        for _ in 0..4 {
            fixture.idle();
        }
        assert!(fixture.read(volume, 0, SIZE).expect("read") == data);
        let (status, own) = (fixture.status(), engine(&fixture));
        assert_eq!((status.lost_stripes, status.moving.is_some()), (0, false));
        assert!(!rows(&own).iter().any(|row| row.members.iter().any(|of| of.cell.drive == DriveNumber(4))));
        assert!(rows(&own).iter().all(|row| own.strips_without(row, |_| false) == 0));
    }
}

/// Bits that a crash kept from being cleared would say of the next spare cell what is not so.
#[test]
fn bits_of_a_former_spare_cell_are_cleared_before_there_is_another() {
    let (mut fixture, volume, data) = written(10, "4+2", 7);
    let given = fixture.mutations;
    fixture.pool.set_mutations(given.with(Mutation::StaleBits));
    fixture.command(Command::RemoveDrive { drive: 4 }).expect("begun");
    fixture.idle();
    assert_eq!(fixture.status().removed.len(), 1);
    assert!(stale(&engine(&fixture)) > 0, "there are none");
    fixture.options.rebuild_after = Duration::from_secs(1);
    fixture.crash().expect("opened");
    for drive in [0, 5, 9] {
        fixture.pull(&[drive]);
        fixture.idle();
        assert_eq!(fixture.scrub(), (0, 0), "without {drive}");
        assert!(fixture.read(volume, 0, SIZE).expect("read") == data, "without {drive}");
    }
}

/// Strips that count as moved although their member has no replacement.
fn stale(engine: &Engine) -> usize {
    let of = |row: &Row| {
        let bare = (0..row.members.len()).filter(|at| row.members[*at].replacement.is_none());
        bare.map(|at| moved_strips(engine, row, at).0).sum::<usize>()
    };
    rows(engine).iter().map(of).sum()
}

#[test]
fn rows_that_are_written_to_one_new_drive_take_turns() {
    let options = OpenOptions { background_run: Bytes(16 << 10), ..OpenOptions::default() };
    let mut fixture = Fixture::blank(6, 6, 8, options);
    assert_eq!(fixture.settle(), Ok(()));
    let volume = fixture.create_volume(spec("a", "4+2", SIZE as u64)).id;
    let data = pattern(8, SIZE);
    fixture.write(volume, 0, &data).expect("written");
    fixture.command(Command::Checkpoint).expect("a checkpoint");
    let new = fixture.add_blank() as u32;
    let add = Command::AddDrives { drives: vec![(new, stele_ground::DriveId([50; 16]))] };
    fixture.command(add).expect("added");
    fixture.command(Command::RemoveDrive { drive: 2 }).expect("begun");
    let own = engine(&fixture);
    assert!(own.admission.begin(), "a host is active");
    let mut most = 0;
    while fixture.status().removed.is_empty() {
        fixture.run_operations(5);
        let to = |row: &&Row| row.members.iter().any(|of| of.replacement.is_some());
        most = most.max(rows(&own).iter().filter(to).count());
    }
    own.admission.end();
    assert!((1..=super::ROWS_TO_DRIVE + 1).contains(&most), "{most} rows at once");
    drop(own);
    fixture.idle();
    is_as_safe_as_any(&mut fixture, volume, &data, "replaced");
}
