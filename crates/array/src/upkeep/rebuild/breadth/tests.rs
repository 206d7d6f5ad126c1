//! Which rows are worked on side by side, and how the lanes of a row end.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use futures_util::FutureExt;
use stele_ground::{Bytes, Duration};

use super::{Breadth, Class, Done, Engine, Need, Pass, Placed, ROWS_TO_DRIVE, Row, Task, cells_of};
use crate::model::place::RowId;
use crate::model::{AlarmKind, ArrayError, Command, DriveHealth, OpenOptions};
use crate::space::layout::RowKind;
use crate::testing::{Fixture, pattern, spec};
use crate::upkeep::rebuild::tests::full_of_mirrors;

fn pass_over(engine: &Engine, task: Task, slots: u32) -> Pass {
    Pass {
        task,
        to_spare: false,
        slots,
        next: Cell::new(0),
        run: 1,
        losses: Cell::new(engine.membership.lost()),
        placed: Cell::new(Placed::There),
        ended: Cell::new(false),
    }
}

#[test]
fn all_lanes_end_when_the_row_is_freed_while_hosts_are_active() {
    let fixture = Fixture::new(4, 4, 1);
    let engine = fixture.engine();
    assert!(engine.admission.begin(), "a host is active");
    assert!(engine.hosts_wait());
    let task = Task { left: 0, need: Need::Spare, row: RowId(999), member: 0 };
    let pass = pass_over(&engine, task, 64);
    let done = Default::default();
    assert_eq!(engine.lane(&pass, &done).now_or_never(), Some(Ok(())));
    assert_eq!(engine.lane(&pass, &done).now_or_never(), Some(Ok(())), "the other lane still waits");
}

/// A pool with one row of data that holds so many stripes of two strips and a parity.
fn with_one_row(stripes: usize, options: OpenOptions) -> (Fixture, Rc<Engine>, Row) {
    let mut fixture = Fixture::blank(4, 4, 1, options);
    assert_eq!(fixture.settle(), Ok(()));
    let volume = fixture.create_volume(spec("a", "2+1", 1 << 20)).id;
    fixture.write(volume, 0, &pattern(1, stripes * (32 << 10))).expect("written");
    fixture.command(Command::Checkpoint).expect("a checkpoint");
    let engine = fixture.engine();
    let rows: Vec<Row> = engine.layout.read().rows().filter(|row| row.class.kind == RowKind::Data).cloned().collect();
    let [row] = &rows[..] else { panic!("{} rows", rows.len()) };
    let row = row.clone();
    (fixture, engine, row)
}

#[test]
fn rows_and_runs_fit_into_the_memory_for_them() {
    let of = |background_memory| {
        let (_, engine, row) = with_one_row(32, OpenOptions { background_memory, ..OpenOptions::default() });
        assert_eq!((row.class.strip, row.class.code.width()), (Bytes(16 << 10), 3));
        engine.breadth(row.id)
    };
    let slots = 64;
    let breadth = |rows, beside_hosts, run| Breadth { rows, beside_hosts, run };
    // Ten rows of two runs on four drives: as much of each drive in a run as fits.
    assert_eq!(of(Bytes(30 << 20)), breadth(10, 10, slots / 2));
    // Up to 4 MiB, more than the row: then it is a single run, and there are twice as many.
    assert_eq!(of(Bytes(60 << 20)), breadth(20, 10, slots));
    assert_eq!(of(Bytes(2 << 30)), breadth(20, 10, 256));
    // Less than a stripe in each run: fewer rows, and never none.
    assert_eq!(of(Bytes(300 << 10)), breadth(3, 3, 1));
    assert_eq!(of(Bytes(0)), breadth(1, 1, 1));
}

#[test]
fn beside_hosts_runs_are_shorter() {
    let (mut fixture, engine, row) = with_one_row(32, OpenOptions::default());
    for (hosts, run) in [(false, 1000), (true, (super::RUN_BESIDE_HOSTS / row.class.strip.0) as u32)] {
        fixture.pass(Duration::from_secs(1));
        assert!(!hosts || engine.admission.begin());
        assert_eq!(engine.run_now(row.id, 1000), run);
        assert_eq!(engine.run_now(row.id, 3), 3, "no longer than it was");
    }
}

#[test]
fn all_lanes_end_when_the_row_is_freed_while_its_strips_are_read() {
    let (mut fixture, engine, row) = with_one_row(4, OpenOptions::default());
    assert!(engine.admission.begin(), "a host is active");
    let task = Task { left: 0, need: Need::Fill, row: row.id, member: 0 };
    let pass = Rc::new(pass_over(&engine, task, 64));
    let (own, of) = (Rc::clone(&engine), Rc::clone(&pass));
    engine.io.spawn(async move { own.lane(&of, &Done::default()).await.expect("it ends") });
    fixture.run_operations(0);
    engine.step(|core| core.space.remove_row(row.id));
    engine.layout.write().remove_row(row.id);
    fixture.run_operations(1);
    assert_eq!(engine.lane(&pass, &Done::default()).now_or_never(), Some(Ok(())), "the other lane still waits");
}

/// Work that waits for its turn at a low rate, perhaps for hours, beside hosts that never pause.
#[test]
fn a_pass_ends_when_the_pool_may_not_write_any_more() {
    let options = OpenOptions { background_rate: Some(Bytes(1)), ..OpenOptions::default() };
    let (mut fixture, engine, row) = with_one_row(32, options);
    assert!(engine.admission.begin(), "a host is active");
    let task = Task { left: 1, need: Need::Fill, row: row.id, member: 0 };
    let ended = Rc::new(RefCell::new(None));
    let (own, result) = (Rc::clone(&engine), Rc::clone(&ended));
    engine.io.spawn(async move {
        let ended = own.for_each_stripe(task, false, 4, &Done::default()).await;
        result.replace(Some(ended));
    });
    fixture.pass(Duration::from_secs(60));
    assert_eq!(*ended.borrow(), None);
    engine.only_read(AlarmKind::ReadOnly, "no majority".into());
    fixture.pass(Duration::from_secs(1));
    // Not that all strips are where they belong.
    assert!(matches!(*ended.borrow(), Some(Err(ArrayError::Refused(_)))), "{:?}", ended.borrow());
}

/// A pool of mirrors, a drive of which returns that many rows lie on.
fn with_a_full_drive() -> (Fixture, Rc<Engine>, usize) {
    let mut fixture = full_of_mirrors();
    fixture.command(Command::Checkpoint).expect("a checkpoint");
    let engine = fixture.engine();
    let drive = (0..12).max_by_key(|drive| rows_on(&engine, *drive).len()).expect("a drive");
    assert!(rows_on(&engine, drive).len() > ROWS_TO_DRIVE + 1);
    (fixture, engine, drive)
}

/// Rows with stripes that have a member whose home is the drive.
fn rows_on(engine: &Engine, drive: usize) -> Vec<Row> {
    let layout = engine.layout.read();
    let data = layout.rows().filter(|row| engine.look(|core| core.space.used(row.id)) > 0);
    data.filter(|row| row.members.iter().any(|member| usize::from(member.cell.drive.0) == drive)).cloned().collect()
}

fn class_of(engine: &Engine, first: Task, busy: &[Task]) -> Class {
    Class {
        left: first.left,
        need: first.need,
        shape: engine.look(|core| core.space.row_class(first.row)),
        busy: RefCell::new(busy.iter().map(|task| (task.row, *task)).collect()),
        run: 1,
        steady: Cell::new(1),
        changes: engine.membership.changes(),
    }
}

/// Runs the pool until it has much to do of this kind, and answers what.
fn tasks_of(fixture: &mut Fixture, engine: &Engine, need: Need) -> Vec<Task> {
    for _ in 0..1000 {
        let (tasks, _) = engine.tasks(&Done::default());
        if tasks.first().is_some_and(|first| first.need == need) {
            return tasks;
        }
        fixture.run_operations(1);
    }
    panic!("there is nothing to do");
}

#[test]
fn the_next_row_is_one_whose_drives_have_the_least_to_do() {
    let mut fixture = Fixture::new(10, 10, 4);
    let volume = fixture.create_volume(spec("a", "2+2", 40 << 20)).id;
    fixture.write(volume, 0, &pattern(1, 24 << 20)).expect("written");
    let engine = fixture.engine();
    fixture.pull(&[2]);
    let tasks = tasks_of(&mut fixture, &engine, Need::Spare);
    let drives = |task: &Task| -> BTreeSet<u16> {
        cells_of(engine.layout.read().row(task.row).expect("a row")).map(|cell| cell.drive.0).collect()
    };
    let shared = |a: &Task, b: &Task| drives(a).intersection(&drives(b)).count();
    let mut differ = 0;
    for busy in &tasks {
        let next = engine.next_task(&class_of(&engine, *busy, &[*busy]), &Done::default()).expect("a row");
        let others = || tasks.iter().filter(|task| task.row != busy.row).map(|task| shared(task, busy));
        assert_eq!(Some(shared(&next, busy)), others().min(), "beside {busy:?}");
        differ += usize::from(others().next() != others().min());
    }
    assert!(differ > 0, "the first row would always do");
}

#[test]
fn a_drive_that_is_filled_is_the_target_of_a_few_rows() {
    let (mut fixture, engine, drive) = with_a_full_drive();
    fixture.pull(&[drive]);
    fixture.idle();
    fixture.begin_to_give_back(drive);
    let tasks = tasks_of(&mut fixture, &engine, Need::Fill);
    for busy in 0..=ROWS_TO_DRIVE {
        let next = engine.next_task(&class_of(&engine, tasks[0], &tasks[..busy]), &Done::default());
        assert_eq!(next.is_some(), busy < ROWS_TO_DRIVE, "beside {busy} rows");
    }
}

#[test]
fn a_row_that_is_held_up_keeps_no_other_row_waiting() {
    let (mut fixture, engine, drive) = with_a_full_drive();
    fixture.pull(&[drive]);
    fixture.idle();
    let rows = rows_on(&engine, drive);
    let homes = |row: &Row| row.members.iter().find(|member| usize::from(member.cell.drive.0) == drive).copied();
    let cell = homes(&rows[0]).expect("a member").cell;
    let (at, unit) = {
        let configuration = engine.drives.labels.configuration();
        (configuration.cell_at(cell), configuration.unit_size.0)
    };
    fixture.test_drives.held = Some(at..at + unit);
    fixture.begin_to_give_back(drive);
    fixture.pass(Duration::from_secs(2));
    let left = || {
        let rows = rows_on(&engine, drive);
        rows.iter().filter(|row| homes(row).is_some_and(|member| member.replacement.is_some())).count()
    };
    assert_eq!(left(), 1, "of {} rows", rows.len());
    fixture.test_drives.held = None;
    fixture.idle();
    assert_eq!((left(), fixture.status().drives[drive].health), (0, DriveHealth::Healthy));
}
