//! What the rebuild does first, how fast, and when it calls itself done.

use std::rc::Rc;

use futures_util::FutureExt;
use stele_ground::{Bytes, Duration, Instant};

use super::breadth::{ROWS_TO_DRIVE, RUNS_OF_ROW};
use super::leave::Leave;
use super::{Done, Need, Task};
use crate::durable::table::PAGE;
use crate::engine::Engine;
use crate::formats::{entry, map};
use crate::model::place::{DriveNumber, RowId, SlotId, StripCell};
use crate::model::{AlarmKind, Command, DriveHealth, OpenOptions};
use crate::space::layout::{Row, RowKind};
use crate::state::throttle::TokenBucket;
use crate::testing::drives::TestDrives;
use crate::testing::{Fixture, pattern, spec};

mod cells;
mod drained;
mod rounds;
mod telling;

fn engine(fixture: &Fixture) -> Rc<Engine> {
    Rc::clone(&fixture.pool.serving().expect("it is open").engine)
}

/// A pool whose runs are single strips, so that there is much to see between the first and the
/// last.
fn step_by_step(drives: usize, seed: u64) -> Fixture {
    let options = OpenOptions { seed, background_run: Bytes(16 << 10), ..OpenOptions::default() };
    let mut fixture = Fixture::blank(drives, drives as u32, seed, options);
    assert_eq!(fixture.settle(), Ok(()));
    fixture
}

/// Strips under way at once, at most.
fn moves(engine: &Engine) -> usize {
    let row = engine.layout.read().rows().find(|row| row.class.kind == RowKind::Data).map(|row| row.id);
    let breadth = engine.breadth(row.expect("a row of data"));
    breadth.rows * RUNS_OF_ROW * breadth.run as usize
}

/// Two drives that a row with data lies on.
fn two_of_a_row(fixture: &Fixture) -> [usize; 2] {
    let engine = engine(fixture);
    let layout = engine.layout.read();
    let row =
        layout.rows().find(|row| row.class.kind == RowKind::Data && engine.look(|core| core.space.used(row.id)) > 0);
    let row = row.expect("a row with data");
    [0, 1].map(|member| usize::from(row.members[member].cell.drive.0))
}

/// A pool that waits long before it gives a missing drive up.
fn patient(drives: usize, seed: u64) -> Fixture {
    let options = OpenOptions { rebuild_after: Duration::from_secs(24 * 3600), ..OpenOptions::default() };
    let mut fixture = Fixture::blank(drives, drives as u32, seed, options);
    assert_eq!(fixture.settle(), Ok(()));
    fixture
}

#[test]
fn a_drive_is_not_called_whole_while_what_it_lacks_lies_on_one_that_is_away() {
    let mut fixture = patient(6, 1);
    let volume = fixture.create_volume(spec("a", "2+1", 4 << 20)).id;
    let mut data = pattern(1, 4 << 20);
    fixture.write(volume, 0, &data).expect("written");
    fixture.command(crate::model::Command::Checkpoint).expect("a checkpoint");
    let [one, other] = two_of_a_row(&fixture);
    fixture.pull(&[one]);
    for at in (0..4 << 20).step_by(32 << 10) {
        let piece = pattern(at as u64, 4096);
        data[at..at + 4096].copy_from_slice(&piece);
        fixture.write(volume, at as u64, &piece).expect("written without it");
    }
    fixture.command(crate::model::Command::Checkpoint).expect("a checkpoint");
    fixture.pull(&[other]);
    fixture.give_back(one);
    fixture.idle();
    let status = fixture.status();
    assert_eq!(status.lost_stripes, 0, "the other drive may still bring back what this one lacks");
    assert_eq!(status.drives[one].health, DriveHealth::Stale);
    fixture.give_back(other);
    fixture.idle();
    let status = fixture.status();
    assert!(status.drives.iter().all(|drive| drive.health == DriveHealth::Healthy), "{:?}", status.drives);
    assert_eq!((status.lost_stripes, fixture.scrub()), (0, (0, 0)));
    assert!(fixture.read(volume, 0, 4 << 20).expect("read") == data);
}

#[test]
fn a_drive_that_returns_while_another_is_filled_makes_both_whole() {
    for moment in (0..400).step_by(10) {
        let mut fixture = patient(6, 1);
        let volume = fixture.create_volume(spec("a", "2+1", 4 << 20)).id;
        fixture.write(volume, 0, &pattern(1, 4 << 20)).expect("written");
        fixture.command(crate::model::Command::Checkpoint).expect("a checkpoint");
        let [one, other] = two_of_a_row(&fixture);
        fixture.pull(&[one]);
        for at in (0..4 << 20).step_by(32 << 10) {
            fixture.write(volume, at as u64, &pattern(at as u64, 4096)).expect("written without it");
        }
        fixture.command(crate::model::Command::Checkpoint).expect("a checkpoint");
        fixture.pull(&[other]);
        fixture.begin_to_give_back(one);
        fixture.run_operations(moment);
        fixture.begin_to_give_back(other);
        fixture.idle();
        let status = fixture.status();
        let whole = status.drives.iter().all(|drive| drive.health == DriveHealth::Healthy);
        assert!(whole, "the other after {moment} operations: {:?}", status.drives);
        assert_eq!((status.lost_stripes, fixture.scrub()), (0, (0, 0)), "{moment}");
    }
}

/// Unaided, a scrub has to find everything in its place: what it finds is charged to drives that
/// did nothing wrong.
fn nothing_is_wrong(fixture: &mut Fixture, lost: &[usize], context: &str) {
    assert_eq!(fixture.scrub(), (0, 0), "{context}");
    let status = fixture.status();
    assert_eq!(status.lost_stripes, 0, "{context}");
    for (at, drive) in status.drives.iter().enumerate().filter(|(at, _)| !lost.contains(at)) {
        assert_eq!((drive.digest_errors, drive.health), (0, DriveHealth::Healthy), "{context}: drive {at}");
    }
}

#[test]
fn what_had_moved_to_a_drive_that_is_lost_next_moves_once_more() {
    for seed in 0..8 {
        let mut fixture = Fixture::new(12, 6, seed);
        let volume = fixture.create_volume(spec("a", "4+2", 8 << 20)).id;
        let data = pattern(seed, 8 << 20);
        fixture.write(volume, 0, &data).expect("written");
        let engine = engine(&fixture);
        let [first, _] = two_of_a_row(&fixture);
        fixture.pull(&[first]);
        fixture.idle();
        fixture.pass(Duration::from_secs(3600));
        // The drive with most of what has moved.
        let spares: Vec<usize> = {
            let layout = engine.layout.read();
            let members = layout.rows().flat_map(|row| row.members.to_vec());
            members.filter_map(|member| Some(usize::from(member.replacement?.drive.0))).collect()
        };
        let held = |drive: usize| spares.iter().filter(|spare| **spare == drive).count();
        let second = (0..12).max_by_key(|drive| held(*drive)).expect("a drive");
        assert!(held(second) > 0, "something has moved");
        fixture.pull(&[second]);
        fixture.idle();
        fixture.pass(Duration::from_secs(3600));
        let mut lost = vec![first, second];
        nothing_is_wrong(&mut fixture, &lost, &format!("seed {seed}"));
        // The rebuild is done: as many as the code tolerates may go again.
        let row = engine.layout.read().rows().find(|row| row.class.kind == RowKind::Data).cloned();
        let members = row.expect("a row of data").members.into_iter();
        let places = members.map(|member| usize::from(member.replacement.unwrap_or(member.cell).drive.0));
        lost = places.take(2).collect();
        fixture.pull(&lost);
        assert!(fixture.read(volume, 0, 8 << 20).expect("read") == data, "seed {seed}");
    }
}

#[test]
fn a_rebuild_that_found_no_spare_does_not_say_that_it_finished() {
    let mut fixture = Fixture::new(3, 3, 1);
    let volume = fixture.create_volume(spec("a", "2+1", 1 << 30)).id;
    // Full first: the alarm about room must not stand for the one about spare cells.
    let mut at = 0;
    while fixture.write(volume, at, &pattern(at, 1 << 20)).is_ok() {
        at += 1 << 20;
    }
    assert!(fixture.alarms.iter().any(|alarm| alarm.kind == AlarmKind::SpaceLow));
    fixture.alarms.clear();
    fixture.pull(&[2]);
    fixture.idle();
    let said = |kind| fixture.alarms.iter().filter(|alarm| alarm.kind == kind).count();
    assert_eq!((said(AlarmKind::SpareExhausted), said(AlarmKind::RebuildFinished)), (1, 0), "{:?}", fixture.alarms);
}

#[test]
fn a_power_cut_at_any_moment_of_the_way_back_leaves_nothing_in_spare_cells() {
    for moment in 0..60 {
        let mut fixture = Fixture::new(7, 7, moment);
        let volume = fixture.create_volume(spec("a", "2+1", 4 << 20)).id;
        let data = pattern(1, 3 << 20);
        fixture.write(volume, 0, &data).expect("written");
        let [drive, _] = two_of_a_row(&fixture);
        fixture.pull(&[drive]);
        fixture.idle();
        assert!(fixture.status().spare_used.0 > 0, "something moved");
        fixture.give_back(drive);
        // Something that takes cells as soon as they are free.
        fixture.test_drives.cut_at = Some(fixture.test_drives.operations + moment * 17);
        let other = spec("b", "2+1", 32 << 20);
        let _ = fixture.command(crate::model::Command::CreateVolume(other));
        fixture.idle();
        fixture.crash().unwrap_or_else(|error| panic!("moment {moment}: {error:?}"));
        fixture.idle();
        let status = fixture.status();
        assert_eq!((status.lost_stripes, status.spare_used.0), (0, 0), "moment {moment}: {:?}", status.drives);
        assert!(fixture.read(volume, 0, 3 << 20).expect("read") == data, "moment {moment}");
        assert_eq!(fixture.scrub(), (0, 0), "moment {moment}");
    }
}

#[test]
fn the_stripes_that_may_lose_nothing_more_come_first() {
    let task = |left, need, row| Task { left, need, row: RowId(row), member: 0 };
    let mut tasks = [task(1, Need::Spare, 0), task(0, Need::Fill, 9), task(2, Need::Spare, 1), task(0, Need::Spare, 5)];
    tasks.sort_unstable();
    assert_eq!(tasks.iter().map(|task| task.row.0).collect::<Vec<_>>(), [5, 9, 0, 1]);

    let mut fixture = Fixture::new(10, 10, 4);
    let volume = fixture.create_volume(spec("a", "2+2", 40 << 20)).id;
    fixture.write(volume, 0, &pattern(1, 24 << 20)).expect("written");
    let lost = [2, 7];
    fixture.pull(&lost);
    let engine = engine(&fixture);
    let lacks = |row: &crate::space::layout::Row| {
        row.members.iter().filter(|member| lost.contains(&usize::from(member.cell.drive.0))).count()
    };
    let of_data = |row: &&crate::space::layout::Row| row.class.kind == RowKind::Data;
    let critical = engine.layout.read().rows().filter(of_data).filter(|row| lacks(row) == 2).count();
    assert!(critical > 0, "some rows lie on both drives");
    // Until every critical row has its spare cells, no other row has one.
    for _ in 0..10_000 {
        fixture.run_operations(2);
        let layout = engine.layout.read();
        let spared = |row: &&crate::space::layout::Row| row.members.iter().any(|member| member.replacement.is_some());
        let rows: Vec<_> = layout.rows().filter(of_data).filter(spared).map(|row| (lacks(row), row.clone())).collect();
        let both =
            |row: &crate::space::layout::Row| row.members.iter().filter(|m| m.replacement.is_some()).count() == 2;
        let safe = rows.iter().filter(|(lacks, row)| *lacks == 2 && both(row)).count();
        if safe == critical {
            return;
        }
        assert!(rows.iter().all(|(lacks, _)| *lacks == 2), "a row that lacks one drive came before one that lacks two");
    }
    panic!("the critical rows never got spare cells");
}

/// Strips of a row's member that have moved to its replacement, and how many there are.
fn moved_strips(engine: &Engine, row: &crate::space::layout::Row, member: usize) -> (usize, usize) {
    let heads = (0..engine.look(|core| core.space.slots(row.id))).filter_map(|index| {
        let slot = SlotId { row: row.id, index };
        let (page, at) = Engine::slot_page_id(&engine.row_shape(slot)?, slot);
        Some(engine.table.cached(page)?.read(|bytes| entry::head(bytes, at)))
    });
    let used: Vec<bool> = heads.filter(|head| !head.is_free()).map(|head| head.exceptions >> member & 1 == 1).collect();
    (used.iter().filter(|moved| **moved).count(), used.len())
}

#[test]
fn stripes_that_lose_a_second_strip_overtake_a_rebuild_under_way() {
    let mut fixture = step_by_step(10, 4);
    let volume = fixture.create_volume(spec("a", "2+2", 40 << 20)).id;
    fixture.write(volume, 0, &pattern(1, 24 << 20)).expect("written");
    fixture.pull(&[2]);
    let engine = engine(&fixture);
    // Rows with a member on the drive, and which member that is.
    let rows: Vec<(crate::space::layout::Row, usize)> = {
        let layout = engine.layout.read();
        let on = |row: &crate::space::layout::Row| row.members.iter().position(|member| member.cell.drive.0 == 2);
        let data = layout.rows().filter(|row| row.class.kind == RowKind::Data);
        data.filter_map(|row| Some((row.clone(), on(row)?)))
            .filter(|(row, _)| engine.look(|core| core.space.used(row.id)) > 0)
            .collect()
    };
    let counted = |chosen: &dyn Fn(&crate::space::layout::Row) -> bool| {
        let chosen = rows.iter().filter(|(row, _)| chosen(row));
        chosen.map(|(row, member)| moved_strips(&engine, row, *member)).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1))
    };
    // A drive whose rows wait for their turn, while a row without it is half moved.
    let mut second = None;
    for _ in 0..100_000 {
        fixture.run_operations(1);
        let uses = |drive: usize| {
            move |row: &crate::space::layout::Row| row.members.iter().any(|m| m.cell.drive.0 as usize == drive)
        };
        let busy = rows.iter().find(|(row, member)| {
            let (moved, all) = moved_strips(&engine, row, *member);
            moved > 0 && moved < all / 2
        });
        let Some((busy, _)) = busy else { continue };
        second = (0..10).filter(|drive| *drive != 2 && !uses(*drive)(busy)).find(|drive| {
            let (moved, all) = counted(&uses(*drive));
            let spare = engine.layout.read();
            let spare = spare
                .rows()
                .any(|row| row.members.iter().any(|m| m.replacement.is_some_and(|c| usize::from(c.drive.0) == *drive)));
            moved < all && !spare
        });
        if second.is_some() {
            break;
        }
    }
    let second = second.expect("a moment in the middle of a row");
    fixture.pull(&[second]);
    let critical = |row: &crate::space::layout::Row| row.members.iter().any(|m| usize::from(m.cell.drive.0) == second);
    let others = |row: &crate::space::layout::Row| !critical(row);
    let before = counted(&others).0;
    // One of its two strips is enough for a row to be no more urgent than others.
    let is_safe = |row: &crate::space::layout::Row| {
        let lost = row.members.iter().enumerate().filter(|(_, m)| [2, second].contains(&usize::from(m.cell.drive.0)));
        lost.map(|(member, _)| moved_strips(&engine, row, member)).any(|(moved, all)| moved == all)
    };
    assert!(!rows.iter().filter(|(row, _)| critical(row)).all(|(row, _)| is_safe(row)), "rows are in danger");
    for _ in 0..100_000 {
        if rows.iter().filter(|(row, _)| critical(row)).all(|(row, _)| is_safe(row)) {
            let since = counted(&others).0 - before;
            assert!(since <= moves(&engine), "{since} strips of stripes that lack one came before those that lack two");
            break;
        }
        fixture.run_operations(1);
    }
    // The rows that were overtaken are not done: the rebuild has not finished before they are.
    for _ in 0..100_000 {
        if !fixture.told(AlarmKind::RebuildFinished).is_empty() {
            let (moved, all) = counted(&|_| true);
            assert_eq!(moved, all, "the rebuild said that it finished");
            return;
        }
        fixture.run_operations(1);
    }
    panic!("the stripes were not rebuilt");
}

#[test]
fn what_hosts_read_is_rebuilt_before_its_turn() {
    let mut fixture = step_by_step(8, 5);
    let volume = fixture.create_volume(spec("a", "2+1", 24 << 20)).id;
    fixture.write(volume, 0, &pattern(1, 24 << 20)).expect("written");
    fixture.command(crate::model::Command::Close).expect("closed");
    fixture.open().expect("opened, with nothing cached");
    fixture.pull(&[4]);
    let engine = engine(&fixture);
    let overtook = telling::overtaken(&mut fixture, &engine, volume, (24 << 20) / (32 << 10));
    assert!(overtook <= 2 * moves(&engine), "{overtook} strips were moved before the one a host wanted");
}

#[test]
fn what_hosts_write_while_runs_move_is_what_stands() {
    const STRIPE: usize = 32 << 10;
    for moment in 0..24 {
        let mut fixture = Fixture::new(6, 6, moment);
        let volume = fixture.create_volume(spec("a", "2+2", 6 << 20)).id;
        let mut data = pattern(moment, 6 << 20);
        fixture.write(volume, 0, &data).expect("written");
        fixture.command(crate::model::Command::Checkpoint).expect("a checkpoint");
        let [one, other] = two_of_a_row(&fixture);
        fixture.pull(&[one]);
        // Whole stripes go to other slots, and free those whose strips are on their way; parts
        // change them in place.
        for round in 0..6 {
            fixture.run_operations(moment * 5 + round * 40);
            for stripe in (round as usize..data.len() / STRIPE).step_by(3) {
                let length = if stripe % 2 == 0 { STRIPE } else { 4096 };
                let piece = pattern(moment * 1000 + round * 100 + stripe as u64, length);
                data[stripe * STRIPE..][..length].copy_from_slice(&piece);
                fixture.write(volume, (stripe * STRIPE) as u64, &piece).expect("written without it");
            }
            fixture.command(crate::model::Command::Checkpoint).expect("a checkpoint");
        }
        fixture.idle();
        nothing_is_wrong(&mut fixture, &[one], &format!("moment {moment}"));
        // What was rebuilt is needed now.
        fixture.pull(&[other]);
        assert!(fixture.read(volume, 0, 6 << 20).expect("read") == data, "moment {moment}");
    }
}

/// A pool whose drives each carry many rows of mirrors.
pub(super) fn full_of_mirrors() -> Fixture {
    let drives = TestDrives::new(12, Bytes(96 << 20), 1);
    let mut fixture = Fixture::begin_on(drives, 12, 1, OpenOptions::default(), |_| ());
    assert_eq!(fixture.settle(), Ok(()));
    let volume = fixture.create_volume(spec("a", "mirror-2", 96 << 20)).id;
    for at in 0..80 {
        fixture.write(volume, at << 20, &pattern(at, 1 << 20)).expect("written");
    }
    fixture
}

#[test]
fn a_drive_that_is_filled_has_a_short_line() {
    let mut fixture = full_of_mirrors();
    fixture.command(crate::model::Command::Checkpoint).expect("a checkpoint");
    let engine = engine(&fixture);
    let rows_on = |drive: usize| {
        let layout = engine.layout.read();
        let data = layout.rows().filter(|row| engine.look(|core| core.space.used(row.id)) > 0);
        data.filter(|row| row.members.iter().any(|member| usize::from(member.cell.drive.0) == drive)).count()
    };
    let drive = (0..12).max_by_key(|drive| rows_on(*drive)).expect("a drive");
    let rows = rows_on(drive);
    assert!(rows > ROWS_TO_DRIVE + 1, "{rows} rows have strips to copy back");
    fixture.pull(&[drive]);
    fixture.idle();
    fixture.begin_to_give_back(drive);
    let index = fixture.test_drives.drives.len() - 1;
    let mut longest = 0;
    for _ in 0..4_000 {
        fixture.run_operations(1);
        longest = longest.max(engine.io.load(index));
    }
    fixture.idle();
    assert_eq!(fixture.status().drives[drive].health, DriveHealth::Healthy);
    // One more for its label.
    let most = ROWS_TO_DRIVE * RUNS_OF_ROW + 1;
    assert!((2..=most).contains(&longest), "{longest} requests in line, of up to 4 MiB");
}

#[test]
fn one_flush_that_fails_is_charged_once_for_each_run() {
    let mut fixture = Fixture::new(7, 7, 2);
    let volume = fixture.create_volume(spec("a", "2+1", 16 << 20)).id;
    let mut data = pattern(1, 16 << 20);
    fixture.write(volume, 0, &data).expect("written");
    fixture.command(crate::model::Command::Checkpoint).expect("a checkpoint");
    // Every other slot is free: no two strips of a run are neighbours.
    for stripe in 0..512 {
        let (page, at) = Engine::map_page_id(volume, stripe);
        let home = engine(&fixture).table.cached(page).map(|page| page.read(|bytes| map::get(bytes, at)));
        if matches!(home, Some(map::Home::Slot(slot)) if slot.index % 2 == 1) {
            fixture.discard(volume, stripe * (32 << 10), 32 << 10).expect("discarded");
            data[stripe as usize * (32 << 10)..][..32 << 10].fill(0);
        }
    }
    fixture.command(crate::model::Command::Checkpoint).expect("a checkpoint");
    let [drive, _] = two_of_a_row(&fixture);
    fixture.pull(&[drive]);
    fixture.idle();
    assert!(fixture.status().spare_used.0 > 0, "something moved");
    fixture.begin_to_give_back(drive);
    let index = fixture.test_drives.drives.len() - 1;
    fixture.test_drives.drives[index].fails_flushes = 1;
    fixture.idle();
    let status = fixture.status();
    let returned = &status.drives[drive];
    assert_eq!(fixture.test_drives.drives[index].fails_flushes, 0, "a flush failed");
    assert!((1..=(ROWS_TO_DRIVE * RUNS_OF_ROW) as u64).contains(&returned.write_errors), "{returned:?}");
    assert_eq!((returned.health, status.spare_used.0), (DriveHealth::Healthy, 0), "{returned:?}");
    assert_eq!(fixture.scrub(), (0, 0));
    assert!(fixture.read(volume, 0, 16 << 20).expect("read") == data);
}

#[test]
fn a_rebuild_and_a_scrub_pass_with_hardly_any_memory_for_the_table() {
    let options = OpenOptions { table_cache: Bytes(2 * PAGE as u64), ..OpenOptions::default() };
    let mut fixture = Fixture::blank(8, 8, 3, options);
    assert_eq!(fixture.settle(), Ok(()));
    let volume = fixture.create_volume(spec("a", "2+2", 24 << 20)).id;
    let data = pattern(1, 24 << 20);
    fixture.write(volume, 0, &data).expect("written");
    fixture.command(crate::model::Command::Checkpoint).expect("a checkpoint");
    let [one, other] = two_of_a_row(&fixture);
    fixture.pull(&[one]);
    fixture.idle();
    nothing_is_wrong(&mut fixture, &[one], "rebuilt");
    fixture.give_back(one);
    fixture.idle();
    nothing_is_wrong(&mut fixture, &[], "copied back");
    assert_eq!(fixture.status().spare_used.0, 0);
    fixture.pull(&[other]);
    assert!(fixture.read(volume, 0, 24 << 20).expect("read") == data);
}

#[test]
fn the_bucket_lets_so_many_bytes_through_a_second() {
    let start = Instant(50_000_000_000);
    let bucket = TokenBucket::new(start);
    let rate = 10 << 20;
    assert_eq!(bucket.take(1 << 20, rate, start), start, "the first goes at once");
    let mut at = start;
    for _ in 0..50 {
        at = bucket.take(1 << 20, rate, at);
    }
    assert_eq!(at.since(start), Duration::from_millis(5000), "50 MiB more at 10 MiB a second");
    // A pause saves up a tenth of a second, no more.
    let later = at + Duration::from_secs(60);
    let early = later.since(bucket.take(1 << 20, rate, later));
    assert_eq!(early, Duration::from_millis(100));
    assert!(bucket.take(1 << 20, rate, later) <= later, "the burst");
    assert!(bucket.take(1 << 20, rate, later) > later - Duration::from_millis(100));
}

#[test]
fn a_task_whose_row_is_gone_records_nothing_of_the_row_that_has_its_number_now() {
    let mut fixture = Fixture::new(6, 6, 1);
    let volume = fixture.create_volume(spec("a", "2+1", 1 << 20)).id;
    fixture.write(volume, 0, &pattern(1, 256 << 10)).expect("written");
    fixture.command(Command::Checkpoint).expect("a checkpoint");
    let engine = engine(&fixture);
    let of_kind = |kind| engine.layout.read().rows().find(|row| row.class.kind == kind).cloned().expect("a row");
    let (data, tables) = (of_kind(RowKind::Data), of_kind(RowKind::Table));
    let mut read = Row { id: tables.id, ..data };
    read.members[0].replacement = Some(StripCell { drive: DriveNumber(5), unit: 7 });
    let task = Task { left: 1, need: Need::Fill, row: tables.id, member: 0 };
    let before = engine.log.next_lsn();
    assert_eq!(engine.release_spare(task, &read).now_or_never(), Some(Ok(true)));
    assert!(matches!(engine.leave_spare(task, &read).now_or_never(), Some(Ok(Leave::Done))));
    assert_eq!(engine.choose_replacement(read, 0, Need::Spare).now_or_never(), Some(Ok(true)));
    assert_eq!(engine.log.next_lsn(), before);
    assert_eq!(of_kind(RowKind::Table), tables);
    // The row that has the number now is narrower, and lacks the member.
    let beyond = Task { member: tables.members.len() as u8, ..task };
    for need in [Need::Spare, Need::Fill] {
        let carried = engine.carry_out(Task { need, ..beyond }, 1, &Done::default()).now_or_never();
        assert_eq!(carried, Some(Ok(true)), "{need:?}");
    }
}
