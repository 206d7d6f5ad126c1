//! When the rebuild begins a round, what it says at its end, and where the tables go meanwhile.

use std::ops::Range;

use stele_ground::{Bytes, DriveId, Duration, VolumeId};

use super::{engine, two_of_a_row};
use crate::drives::label::ANCHOR_AT;
use crate::durable::anchor::SLOT;
use crate::model::place::{DriveNumber, StripCell};
use crate::model::{AlarmKind, Command, DriveHealth, OpenOptions};
use crate::space::layout::{Row, RowKind};
use crate::testing::{Fixture, pattern, spec};

const HOUR: Duration = Duration::from_secs(3600);
const MIB: u64 = 1 << 20;

/// Drives are given up at once, and a run is a strip.
fn strip_by_strip() -> OpenOptions {
    OpenOptions { background_run: Bytes(16 << 10), ..OpenOptions::default() }
}

/// Drives may be away for an hour.
fn patient() -> OpenOptions {
    OpenOptions { rebuild_after: HOUR, ..strip_by_strip() }
}

/// A pool with a volume of the code that is written, and in its slots.
fn written(drives: usize, code: &str, size: u64, options: OpenOptions) -> (Fixture, VolumeId) {
    let mut fixture = Fixture::blank(drives, drives as u32, 1, options);
    assert_eq!(fixture.settle(), Ok(()));
    let volume = fixture.create_volume(spec("a", code, 2 * size)).id;
    fixture.write(volume, 0, &pattern(1, size as usize)).expect("written");
    fixture.command(Command::Checkpoint).expect("a checkpoint");
    (fixture, volume)
}

fn rows(fixture: &Fixture, kind: RowKind) -> Vec<Row> {
    engine(fixture).layout.read().rows().filter(|row| row.class.kind == kind).cloned().collect()
}

/// Where the strips or pages of a row lie, or are to lie.
fn places(row: &Row) -> impl Iterator<Item = StripCell> + '_ {
    row.members.iter().map(|member| member.replacement.unwrap_or(member.cell))
}

/// The tables' cells on the drive.
fn tables_on(fixture: &Fixture, drive: usize) -> Vec<Range<u64>> {
    let rows = rows(fixture, RowKind::Table);
    let cells = rows.iter().flat_map(places).filter(|cell| usize::from(cell.drive.0) == drive);
    let engine = engine(fixture);
    let configuration = engine.drives.labels.configuration();
    cells.map(|cell| configuration.cell_at(cell)).map(|at| at..at + configuration.unit_size.0).collect()
}

/// Drives with cells of the tables, in order.
fn with_tables(fixture: &Fixture) -> Vec<usize> {
    (0..fixture.test_drives.drives.len()).filter(|drive| !tables_on(fixture, *drive).is_empty()).collect()
}

/// The drive of a spare cell, as soon as there is one.
fn first_spare(fixture: &mut Fixture) -> usize {
    for _ in 0..100_000 {
        let members = rows(fixture, RowKind::Data).into_iter().flat_map(|row| row.members);
        if let Some(cell) = members.filter_map(|member| member.replacement).next() {
            return usize::from(cell.drive.0);
        }
        fixture.run_operations(1);
    }
    panic!("no row got a spare cell");
}

fn finished(fixture: &Fixture) -> usize {
    fixture.told(AlarmKind::RebuildFinished).len()
}

#[test]
fn as_many_drives_may_go_again_when_a_rebuild_says_that_it_finished() {
    let (mut fixture, _) = written(12, "4+2", 8 * MIB, strip_by_strip());
    let [first, _] = two_of_a_row(&fixture);
    fixture.pull(&[first]);
    fixture.idle();
    assert_eq!(finished(&fixture), 1, "{:?}", fixture.alarms);
    // What lies in spare cells moves once more.
    let second = first_spare(&mut fixture);
    fixture.pull(&[second]);
    for _ in 0..100_000 {
        if finished(&fixture) > 1 {
            break;
        }
        fixture.run_operations(1);
    }
    assert_eq!(finished(&fixture), 2);
    for row in rows(&fixture, RowKind::Data) {
        let gone = places(&row).find(|cell| [first, second].contains(&usize::from(cell.drive.0)));
        assert_eq!(gone, None, "a member of row {} lies nowhere", row.id.0);
    }
    assert_eq!(fixture.status().critical_stripes, 0);
}

#[test]
fn no_rebuild_has_finished_while_the_drive_of_a_spare_cell_is_away() {
    let (mut fixture, _) = written(9, "2+2", 8 * MIB, patient());
    let [first, _] = two_of_a_row(&fixture);
    fixture.command(Command::FailDrive { drive: first as u32 }).expect("given up");
    let second = first_spare(&mut fixture);
    fixture.pull(&[second]);
    fixture.idle();
    assert_eq!(finished(&fixture), 0, "what lies on the missing drive is not safe");
    fixture.give_back(second);
    fixture.idle();
    let status = fixture.status();
    assert_eq!((status.lost_stripes, status.critical_stripes, fixture.scrub()), (0, 0, (0, 0)));
}

/// Its number may be that of another row by now, with a member on the drive.
#[test]
fn what_a_round_left_of_a_row_that_is_gone_keeps_no_drive_from_being_whole() {
    for (is_gone, health) in [(false, DriveHealth::Stale), (true, DriveHealth::Healthy)] {
        let (mut fixture, _) = written(6, "2+1", 4 * MIB, patient());
        let [drive, _] = two_of_a_row(&fixture);
        let on = |cell: &StripCell| usize::from(cell.drive.0) == drive;
        let data = rows(&fixture, RowKind::Data);
        let mut members = data.iter().flat_map(|row| row.members.iter().zip(0..).map(|(of, at)| (row.id, at, of.cell)));
        let (row, member, cell) = members.find(|(_, _, cell)| on(cell)).expect("a row on the drive");
        let home = StripCell { unit: cell.unit + u32::from(is_gone), ..cell };
        fixture.pull(&[drive]);
        fixture.idle();
        fixture.give_back(drive);
        engine(&fixture).rebuilding.note_undone(row, member, home);
        fixture.idle();
        assert_eq!(fixture.status().drives[drive].health, health, "gone: {is_gone}");
    }
}

#[test]
fn a_drive_that_stays_away_is_rebuilt_when_its_time_is_over() {
    let (mut fixture, _) = written(6, "2+1", 4 * MIB, patient());
    let [drive, _] = two_of_a_row(&fixture);
    fixture.pull(&[drive]);
    fixture.pass(Duration::from_secs(3500));
    assert_eq!(fixture.status().spare_used, Bytes(0), "it may still come back");
    fixture.pass(Duration::from_secs(200));
    assert!(fixture.status().spare_used > Bytes(0));
    assert_eq!(finished(&fixture), 1);
}

#[test]
fn drives_that_are_filled_together_become_whole_together() {
    let (mut fixture, _) = written(8, "2+2", 8 * MIB, patient());
    let pair = two_of_a_row(&fixture);
    fixture.pull(&pair);
    fixture.idle();
    pair.iter().for_each(|drive| fixture.begin_to_give_back(*drive));
    let own = engine(&fixture);
    let whole = || pair.iter().filter(|drive| own.drives.is_sound(DriveNumber(**drive as u16))).count();
    let mut operations = [0; 2];
    for _ in 0..100_000 {
        if let Some(count) = operations.get_mut(whole()) {
            *count += 1;
            fixture.run_operations(1);
        }
    }
    assert_eq!(whole(), 2);
    assert!(operations[1] * 4 < operations[0], "the second was filled once more: {operations:?}");
}

#[test]
fn strips_that_have_yet_to_move_again_count_as_lacking() {
    let (mut fixture, _) = written(8, "2+1", 8 * MIB, strip_by_strip());
    let [drive, other] = two_of_a_row(&fixture);
    fixture.pull(&[drive]);
    fixture.idle();
    assert_eq!(fixture.status().critical_stripes, 0, "all is safe in spare cells");
    let index = fixture.give_back(drive);
    fixture.idle();
    assert_eq!(fixture.status().spare_used, Bytes(0), "all is back");
    fixture.pull(&[index]);
    first_spare(&mut fixture);
    let own = engine(&fixture);
    let lacking = rows(&fixture, RowKind::Data).into_iter().filter(|row| row.uses(DriveNumber(drive as u16)));
    let lacking: u32 = lacking.map(|row| own.look(|core| core.space.used(row.id))).sum();
    assert_eq!(fixture.status().critical_stripes, u64::from(lacking), "the cells are as good as empty");
    let answer = fixture.command(Command::FailDrive { drive: other as u32 });
    assert!(answer.is_err(), "another drive may not go: {answer:?}");
}

#[test]
fn a_scrub_moves_no_more_than_it_may_beside_hosts() {
    let options = OpenOptions { background_rate: Some(Bytes(MIB)), ..OpenOptions::default() };
    let (mut fixture, _) = written(6, "2+1", 8 * MIB, options);
    assert!(engine(&fixture).admission.begin(), "a host is active");
    fixture.begin_command(Command::StartScrub);
    fixture.pass(Duration::from_secs(8));
    assert_eq!(fixture.status().scrubs_finished, 0, "12 MiB at 1 MiB a second");
    fixture.pass(Duration::from_secs(8));
    assert_eq!(fixture.status().scrubs_finished, 1);
}

#[test]
fn what_can_wait_waits_for_what_was_critical_before() {
    let fixture = Fixture::new(4, 4, 1);
    let own = engine(&fixture);
    assert!(own.admission.begin(), "a host is active");
    for _ in 0..10 {
        own.turn(64 * MIB, true);
    }
    let wait = own.turn(MIB, false).since(own.io.now());
    assert!(wait >= Duration::from_secs(4), "640 MiB at 128 MiB a second: {wait:?}");
}

#[test]
fn a_rebuild_that_cannot_read_the_tables_tries_again_after_a_while() {
    let (mut fixture, _) = written(6, "2+1", 4 * MIB, OpenOptions::default());
    fixture.command(Command::Close).expect("closed");
    fixture.open().expect("opened, with nothing cached");
    for drive in 0..6 {
        let blocks = tables_on(&fixture, drive).into_iter().flat_map(|cell| cell.start / 4096..cell.end / 4096);
        fixture.test_drives.drives[drive].unreadable = blocks.collect();
    }
    let [drive, _] = two_of_a_row(&fixture);
    fixture.pull(&[drive]);
    let (operations, since) = (fixture.test_drives.operations, fixture.test_drives.now());
    fixture.run_operations(150);
    let (operations, span) = (fixture.test_drives.operations - operations, fixture.test_drives.now().since(since));
    assert!(operations < 100 || span > Duration::from_secs(20), "{operations} operations in {span:?}, all in vain");
    assert_eq!(finished(&fixture), 0);
    fixture.test_drives.drives.iter_mut().for_each(|drive| drive.unreadable.clear());
    fixture.pass(Duration::from_secs(15));
    assert_eq!((finished(&fixture), fixture.status().critical_stripes), (1, 0));
}

#[test]
fn a_drive_is_whole_once_it_takes_the_pages_that_it_lacked() {
    let (mut fixture, _) = written(4, "2+1", 4 * MIB, patient());
    fixture.pull(&[1]);
    fixture.idle();
    let cell = tables_on(&fixture, 1).remove(0);
    fixture.test_drives.damage(1, cell.start, cell.end - cell.start);
    fixture.begin_to_give_back(1);
    fixture.test_drives.drives[4].fails_at = cell;
    fixture.pass(Duration::from_secs(30));
    assert_eq!(fixture.status().drives[1].health, DriveHealth::Stale);
    fixture.test_drives.drives[4].fails_at = 0..0;
    fixture.pass(Duration::from_secs(60));
    assert_eq!(fixture.status().drives[1].health, DriveHealth::Healthy);
}

#[test]
fn the_tables_lie_on_a_drive_again_that_was_away() {
    let (mut fixture, volume) = written(4, "2+1", 4 * MIB, patient());
    let lacks = |fixture: &Fixture| engine(fixture).table.lacks_copies();
    assert_eq!(lacks(&fixture), None);
    fixture.pull(&[1]);
    fixture.write(volume, 4 * MIB, &pattern(2, 4 << 20)).expect("written without it");
    fixture.command(Command::Checkpoint).expect("a checkpoint");
    fixture.idle();
    assert_eq!(lacks(&fixture), Some((3, 4)));
    fixture.give_back(1);
    fixture.idle();
    assert_eq!(lacks(&fixture), None);
}

#[test]
fn the_tables_leave_a_lost_drive_while_strips_still_move() {
    let options = OpenOptions { background_rate: Some(Bytes(4096)), ..strip_by_strip() };
    let (mut fixture, _) = written(8, "2+2", 8 * MIB, options);
    let drive = with_tables(&fixture)[0];
    assert!(engine(&fixture).admission.begin(), "a host is active");
    fixture.pull(&[drive]);
    fixture.pass(Duration::from_secs(60));
    assert!(fixture.status().rebuild.is_some_and(|work| work.done < work.total), "the rebuild is slow");
    assert_eq!(tables_on(&fixture, drive), []);
}

#[test]
fn the_tables_leave_a_drive_each_time_that_it_is_lost() {
    let (mut fixture, _) = written(5, "2+1", 4 * MIB, OpenOptions::default());
    let [one, other] = [with_tables(&fixture)[0], with_tables(&fixture)[1]];
    let mut indexes: Vec<usize> = (0..5).collect();
    for drive in [one, other, one, other] {
        assert_ne!(tables_on(&fixture, drive), [], "the other's were put there");
        fixture.pull(&[indexes[drive]]);
        fixture.idle();
        assert_eq!(tables_on(&fixture, drive), [], "{drive} is lost");
        indexes[drive] = fixture.give_back(indexes[drive]);
        fixture.idle();
    }
}

#[test]
fn the_tables_leave_a_lost_drive_once_another_can_take_them() {
    let (mut fixture, _) = written(4, "2+1", 4 * MIB, OpenOptions::default());
    fixture.pull(&[1]);
    fixture.idle();
    assert_ne!(tables_on(&fixture, 1), [], "they have nowhere to go");
    let index = fixture.add_blank() as u32;
    fixture.command(Command::AddDrives { drives: vec![(index, DriveId([50; 16]))] }).expect("added");
    fixture.idle();
    assert_eq!(tables_on(&fixture, 1), []);
}

#[test]
fn the_tables_leave_a_drive_given_up_while_they_leave_another() {
    let (rate, rebuild_after) = (Some(Bytes(256 << 10)), Duration::from_secs(5));
    let options = OpenOptions { background_rate: rate, rebuild_after, ..strip_by_strip() };
    let (mut fixture, _) = written(8, "2+2", 4 * MIB, options);
    // The second is looked at before the first, and is not given up yet when that is.
    let [second, first] = [with_tables(&fixture)[0], with_tables(&fixture)[1]];
    assert!(engine(&fixture).admission.begin(), "a host is active");
    fixture.pull(&[first]);
    fixture.pass(Duration::from_secs(2));
    fixture.pull(&[second]);
    fixture.pass(Duration::from_secs(2));
    // While a checkpoint is under way the tables stay where they are.
    fixture.test_drives.held = Some(ANCHOR_AT..ANCHOR_AT + 2 * SLOT);
    fixture.begin_command(Command::Checkpoint);
    fixture.pass(Duration::from_secs(12));
    let work = engine(&fixture).rebuilding.work.progress(engine(&fixture).io.now());
    assert!(work.is_some_and(|work| work.done == work.total), "all strips have moved: {work:?}");
    assert!([first, second].iter().all(|drive| !tables_on(&fixture, *drive).is_empty()));
    fixture.test_drives.held = None;
    fixture.pass(Duration::from_secs(5));
    assert_eq!([first, second].map(|drive| tables_on(&fixture, drive)), [[], []]);
}

#[test]
fn rows_that_fail_are_tried_again_together() {
    let options = OpenOptions { table_cache: Bytes(2 * crate::durable::table::PAGE as u64), ..OpenOptions::default() };
    let (mut fixture, _) = written(8, "2+1", 40 * MIB, options);
    fixture.command(Command::Close).expect("closed");
    fixture.open().expect("opened, with nothing cached");
    for drive in 0..8 {
        let blocks = tables_on(&fixture, drive).into_iter().flat_map(|cell| cell.start / 4096..cell.end / 4096);
        fixture.test_drives.drives[drive].unreadable = blocks.collect();
    }
    let [drive, _] = two_of_a_row(&fixture);
    fixture.pull(&[drive]);
    let mut changes = || {
        let before = engine(&fixture).membership.changes();
        fixture.pass(Duration::from_secs(30));
        engine(&fixture).membership.changes() - before
    };
    let counts: Vec<u64> = (0..5).map(|_| changes()).collect();
    assert!(counts.iter().all(|count| *count < 30), "more and more rounds begin: {counts:?}");
}
