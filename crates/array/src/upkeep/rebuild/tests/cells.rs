//! How spare cells are found, given to members of rows, and released.

use std::cell::RefCell;
use std::rc::Rc;

use stele_ground::Duration;

use super::{engine, moved_strips, two_of_a_row};
use crate::durable::log::Purpose;
use crate::durable::records::Record;
use crate::engine::Engine;
use crate::model::place::{DriveNumber, RowId, SlotId};
use crate::model::{AlarmKind, ArrayError, Command, OpenOptions};
use crate::space::layout::Row;
use crate::testing::{Fixture, pattern, spec};
use crate::upkeep::rebuild::{Need, Task};

/// What comes of a task that runs in the pool for some seconds; none while it waits.
fn carried_out<T: 'static>(fixture: &mut Fixture, task: impl Future<Output = T> + 'static) -> Option<T> {
    let result = Rc::new(RefCell::new(None));
    let answer = Rc::clone(&result);
    engine(fixture).io.spawn(async move {
        let value = task.await;
        answer.replace(Some(value));
    });
    fixture.pass(Duration::from_secs(5));
    result.take()
}

/// Chooses a spare cell for the row's first member.
fn spare(fixture: &mut Fixture, row: RowId) -> Option<Result<bool, ArrayError>> {
    let own = engine(fixture);
    carried_out(fixture, async move { own.choose_replacement(own.row(row).expect("the row"), 0, Need::Spare).await })
}

fn rows_with_data(engine: &Engine) -> Vec<Row> {
    let layout = engine.layout.read();
    layout.rows().filter(|row| engine.look(|core| core.space.used(row.id)) > 0).cloned().collect()
}

#[test]
fn a_cell_that_was_just_given_up_is_taken_when_no_other_is_left() {
    let mut fixture = Fixture::begin(4, 4, 1, OpenOptions::default(), |create| create.spare_drives = Some(0));
    assert_eq!(fixture.settle(), Ok(()));
    let volume = fixture.create_volume(spec("a", "2+1", 1 << 30)).id;
    let mut at = 0;
    let left = |fixture: &Fixture| {
        let units = engine(fixture).layout.read().units(DriveNumber(3));
        units.total - units.used
    };
    while left(&fixture) > 3 {
        fixture.write(volume, at, &pattern(at, 256 << 10)).expect("there is room");
        at += 256 << 10;
    }
    fixture.command(Command::Checkpoint).expect("a checkpoint");
    let engine = engine(&fixture);
    // Rows whose only drive for a spare cell is the same.
    let beside = |row: &Row| (0..4u16).find(|drive| row.members.iter().all(|member| member.cell.drive.0 != *drive));
    let rows: Vec<RowId> =
        rows_with_data(&engine).iter().filter(|row| beside(row) == Some(3)).map(|row| row.id).collect();
    let taken: Vec<RowId> =
        rows.iter().copied().take_while(|row| spare(&mut fixture, *row) == Some(Ok(true))).collect();
    assert!(!taken.is_empty() && taken.len() + 1 < rows.len(), "{} of {} rows got a cell", taken.len(), rows.len());
    let (left, last) = (rows[taken.len()], rows[taken.len() + 1]);
    assert_eq!(fixture.told(AlarmKind::SpareExhausted).len(), 1, "one row found none");
    let release = Record::Replacement { row: taken[0], member: 0, cell: None };
    let own = Rc::clone(&engine);
    let chosen = carried_out(&mut fixture, async move {
        let mut room = own.log.reserve(own.log.cost(&release), Purpose::Inside).await?;
        let pages = own.pages_for(&release).await?;
        own.append(&release, &pages, &mut room);
        own.choose_replacement(own.row(left).expect("the row"), 0, Need::Spare).await
    });
    assert_eq!(chosen, Some(Ok(true)), "the cell is free as soon as its release is durable");
    assert!(engine.row(left).expect("the row").members[0].replacement.is_some());
    let lacking = engine.losses_seen.rows_without_spare(|_, _| true);
    assert!(!lacking.contains(&left), "it has a cell now");
    // News again, since there was one in between.
    assert_eq!(spare(&mut fixture, last), Some(Ok(false)));
    assert_eq!(fixture.told(AlarmKind::SpareExhausted).len(), 2);
}

#[test]
fn a_spare_cell_of_a_drive_that_is_whole_is_released() {
    let mut fixture = Fixture::new(6, 6, 1);
    let volume = fixture.create_volume(spec("a", "2+1", 4 << 20)).id;
    let data = pattern(1, 3 << 20);
    fixture.write(volume, 0, &data).expect("written");
    fixture.command(Command::Checkpoint).expect("a checkpoint");
    let row = rows_with_data(&engine(&fixture))[0].id;
    assert_eq!(spare(&mut fixture, row), Some(Ok(true)));
    assert!(fixture.status().spare_used.0 > 0);
    fixture.crash().expect("opened again");
    fixture.idle();
    assert_eq!((fixture.status().spare_used.0, fixture.scrub()), (0, (0, 0)));
    assert!(fixture.read(volume, 0, 3 << 20).expect("read") == data);
}

#[test]
fn a_spare_cell_that_still_holds_strips_is_not_released() {
    let mut fixture = Fixture::new(7, 7, 1);
    let volume = fixture.create_volume(spec("a", "2+1", 4 << 20)).id;
    let data = pattern(1, 3 << 20);
    fixture.write(volume, 0, &data).expect("written");
    let [one, other] = two_of_a_row(&fixture);
    fixture.pull(&[one]);
    fixture.idle();
    let engine = engine(&fixture);
    let rows = rows_with_data(&engine).into_iter();
    let holds = |row: &Row| {
        let member = row.members.iter().position(|member| member.replacement.is_some())?;
        (moved_strips(&engine, row, member).0 > 0).then_some(member)
    };
    let (row, member) = rows.filter_map(|row| Some((row.clone(), holds(&row)?))).next().expect("strips have moved");
    let task = Task { left: 1, need: Need::Fill, row: row.id, member: member as u8 };
    let (own, known) = (Rc::clone(&engine), row.clone());
    let released = carried_out(&mut fixture, async move { own.release_spare(task, &known).await });
    assert_eq!(released, Some(Ok(false)));
    assert_eq!(engine.row(row.id), Some(row), "its strips would be nowhere");
    fixture.pull(&[other]);
    assert!(fixture.read(volume, 0, 3 << 20).expect("read") == data);
}

#[test]
fn no_stripe_goes_into_a_row_while_its_spare_cell_is_released() {
    let mut fixture = Fixture::new(6, 6, 1);
    let volume = fixture.create_volume(spec("a", "2+1", 16 << 20)).id;
    fixture.write(volume, 0, &pattern(1, 256 << 10)).expect("written");
    fixture.command(Command::Checkpoint).expect("a checkpoint");
    let engine = engine(&fixture);
    let row = rows_with_data(&engine).first().expect("a row").id;
    assert_eq!(spare(&mut fixture, row), Some(Ok(true)));
    let used = || engine.look(|core| core.space.used(row));
    let before = used();
    // The release waits a moment for what is on its way already.
    let slots = engine.look(|core| core.space.slots(row));
    let slot =
        (0..slots).rev().map(|index| SlotId { row, index }).find(|slot| engine.step(|core| core.space.hold(*slot)));
    let task = Task { left: 1, need: Need::Fill, row, member: 0 };
    let (own, known) = (Rc::clone(&engine), engine.row(row).expect("the row"));
    let released = Rc::new(RefCell::new(None));
    let answer = Rc::clone(&released);
    engine.io.spawn(async move {
        let result = own.release_spare(task, &known).await;
        answer.replace(Some(result));
    });
    fixture.write(volume, 1 << 20, &pattern(2, 2 << 20)).expect("written");
    fixture.begin_command(Command::Checkpoint);
    fixture.pass(Duration::from_millis(500));
    assert_eq!((used(), released.take()), (before, None), "its strip would go to the cell that is released");
    engine.step(|core| core.space.let_go(slot.expect("a slot")));
    fixture.pass(Duration::from_secs(5));
    assert_eq!(released.take(), Some(Ok(true)));
    assert_eq!(engine.row(row).expect("the row").members[0].replacement, None);
    fixture.write(volume, 4 << 20, &pattern(3, 8 << 20)).expect("written");
    fixture.command(Command::Checkpoint).expect("a checkpoint");
    assert!(used() > before, "it is open again");
    assert_eq!(fixture.scrub(), (0, 0));
}

#[test]
fn no_row_is_given_a_spare_cell_or_rid_of_one_any_more_when_the_pool_only_reads() {
    let mut fixture = Fixture::new(6, 6, 1);
    let volume = fixture.create_volume(spec("a", "2+1", 4 << 20)).id;
    fixture.write(volume, 0, &pattern(1, 3 << 20)).expect("written");
    fixture.command(Command::Checkpoint).expect("a checkpoint");
    let engine = engine(&fixture);
    let rows = rows_with_data(&engine);
    let [with, without] = [rows[0].id, rows[1].id];
    assert_eq!(spare(&mut fixture, with), Some(Ok(true)));
    let known = [with, without].map(|row| engine.row(row).expect("the row"));
    let before = engine.log.next_lsn();
    engine.only_read(AlarmKind::ReadOnly, "no majority".into());
    let task = Task { left: 1, need: Need::Fill, row: with, member: 0 };
    let (own, row) = (Rc::clone(&engine), known[0].clone());
    let released = carried_out(&mut fixture, async move { own.release_spare(task, &row).await });
    for result in [released, spare(&mut fixture, without)] {
        assert!(matches!(result, Some(Err(ArrayError::Refused(_)))), "{result:?}");
    }
    assert_eq!(engine.log.next_lsn(), before, "nothing is recorded");
    assert_eq!([with, without].map(|row| engine.row(row).expect("the row")), known);
    assert!(!engine.look(|core| core.space.is_frozen(with)));
}
