//! Giving spare cells up beside writers.

use std::cell::RefCell;
use std::rc::Rc;

use futures_util::FutureExt;
use stele_ground::{Duration, VolumeId};

use super::{Leave, Task, given_up};
use crate::durable::log::Purpose;
use crate::engine::Engine;
use crate::formats::entry;
use crate::model::place::{RowId, SlotId};
use crate::model::{AlarmKind, ArrayError};
use crate::testing::{Fixture, pattern, spec};
use crate::upkeep::rebuild::Need;

/// A pool with a strip in a spare cell: its row, its member, and what the slot holds.
fn with_a_spare() -> (Fixture, Rc<Engine>, RowId, u8, entry::Head) {
    let mut fixture = Fixture::new(7, 7, 1);
    let volume = fixture.create_volume(spec("a", "2+1", 4 << 20)).id;
    fixture.write(volume, 0, &pattern(1, 3 << 20)).expect("written");
    fixture.pull(&[0]);
    fixture.idle();
    let engine = Rc::clone(&fixture.pool.serving().expect("it is open").engine);
    let rows: Vec<_> = engine.layout.read().rows().cloned().collect();
    let moved = rows.iter().find_map(|row| {
        let member = row.members.iter().position(|member| member.replacement.is_some())?;
        let head = (0..engine.look(|core| core.space.slots(row.id))).find_map(|index| {
            let slot = SlotId { row: row.id, index };
            let (page, at) = Engine::slot_page_id(&engine.row_shape(slot)?, slot);
            let head = engine.table.cached(page)?.read(|bytes| entry::head(bytes, at));
            (!head.is_free() && head.exceptions >> member & 1 == 1).then_some(head)
        })?;
        Some((row.id, member as u8, head))
    });
    let (row, member, head) = moved.expect("a strip in a spare cell");
    (fixture, engine, row, member, head)
}

/// What comes of giving the frozen row's spare cell up within some seconds; none while it waits.
fn leave_frozen(
    fixture: &mut Fixture,
    engine: &Rc<Engine>,
    row: RowId,
    member: u8,
) -> Option<Result<Leave, ArrayError>> {
    let task = Task { left: 0, need: Need::Spare, row, member };
    let room = engine.log.try_reserve(engine.log.cost(&given_up(task)), Purpose::Checkpoint).expect("room");
    let left = Rc::new(RefCell::new(None));
    let (own, result) = (Rc::clone(engine), Rc::clone(&left));
    engine.step(|core| core.space.freeze(row, true));
    engine.io.spawn(async move {
        let left = own.leave_frozen(task, &own.row(task.row).expect("the row"), room).await;
        result.replace(Some(left));
    });
    fixture.pass(Duration::from_secs(5));
    left.take()
}

#[test]
fn the_log_is_not_waited_for_while_a_row_is_frozen() {
    let (mut fixture, engine, row, member, _) = with_a_spare();
    // What would make room in the log may wait for a slot of the row.
    let step = engine.log.cost_of(64);
    let hog: Vec<_> = std::iter::from_fn(|| engine.log.try_reserve(step, Purpose::Inside)).collect();
    assert_eq!(leave_frozen(&mut fixture, &engine, row, member), Some(Ok(Leave::Again)));
    drop(hog);
    assert_eq!(leave_frozen(&mut fixture, &engine, row, member), Some(Ok(Leave::Done)));
}

#[test]
fn a_writer_that_holds_a_slot_is_not_waited_for_without_end_while_its_row_is_frozen() {
    let (mut fixture, engine, row, member, _) = with_a_spare();
    let slots = engine.look(|core| core.space.slots(row));
    let slot = (0..slots).map(|index| SlotId { row, index }).find(|slot| engine.step(|core| core.space.hold(*slot)));
    assert_eq!(leave_frozen(&mut fixture, &engine, row, member), Some(Ok(Leave::Again)));
    engine.step(|core| core.space.let_go(slot.expect("a slot")));
    assert_eq!(leave_frozen(&mut fixture, &engine, row, member), Some(Ok(Leave::Done)));
}

#[test]
fn nobody_waits_for_a_stripe_while_its_row_is_frozen() {
    let (_fixture, engine, row, member, head) = with_a_spare();
    let _writer = engine.locks.try_exclusive(VolumeId(head.volume), head.stripe).expect("nobody else holds it");
    let task = Task { left: 0, need: Need::Spare, row, member };
    assert_eq!(engine.leave_strips(task, true).now_or_never(), Some(Ok(Leave::Again)), "it waits for the writer");
    assert_eq!(engine.leave_strips(task, false).now_or_never(), None, "the pass before the freeze waits");
}

#[test]
fn a_row_takes_no_stripes_while_its_spare_cell_is_given_up() {
    let (mut fixture, engine, row, member, _) = with_a_spare();
    let slots = engine.look(|core| core.space.slots(row));
    let slot = (0..slots).map(|index| SlotId { row, index }).find(|slot| engine.step(|core| core.space.hold(*slot)));
    let task = Task { left: 0, need: Need::Spare, row, member };
    let left = Rc::new(RefCell::new(None));
    let (own, result) = (Rc::clone(&engine), Rc::clone(&left));
    engine.io.spawn(async move {
        let left = own.leave_spare(task, &own.row(row).expect("the row")).await;
        result.replace(Some(left));
    });
    fixture.pass(Duration::from_millis(100));
    // What came now would lie in the cell, and no pass would see it any more.
    assert!(engine.look(|core| core.space.is_frozen(row)));
    assert_eq!(*left.borrow(), None, "the slot is waited for");
    engine.step(|core| core.space.let_go(slot.expect("a slot")));
    fixture.pass(Duration::from_millis(100));
    assert_eq!(*left.borrow(), Some(Ok(Leave::Done)));
    assert!(!engine.look(|core| core.space.is_frozen(row)));
    assert_eq!(engine.row(row).expect("the row").members[usize::from(member)].replacement, None);
}

#[test]
fn no_spare_cell_is_given_up_any_more_when_the_pool_only_reads() {
    let (mut fixture, engine, row, member, _) = with_a_spare();
    let slots = engine.look(|core| core.space.slots(row));
    let slot = (0..slots).map(|index| SlotId { row, index }).find(|slot| engine.step(|core| core.space.hold(*slot)));
    let let_go = Rc::new(RefCell::new(None));
    let (own, result) = (Rc::clone(&engine), Rc::clone(&let_go));
    engine.io.spawn(async move {
        let let_go = own.are_slots_let_go(row).await;
        result.replace(Some(let_go));
    });
    fixture.pass(Duration::from_millis(10));
    engine.only_read(AlarmKind::ReadOnly, "no majority".into());
    engine.step(|core| core.space.let_go(slot.expect("a slot")));
    fixture.pass(Duration::from_millis(10));
    assert!(matches!(*let_go.borrow(), Some(Err(ArrayError::Refused(_)))), "{:?}", let_go.borrow());
    let before = engine.log.next_lsn();
    let task = Task { left: 0, need: Need::Spare, row, member };
    for is_frozen in [false, true] {
        let left = engine.leave_strips(task, is_frozen).now_or_never();
        assert!(matches!(left, Some(Err(ArrayError::Refused(_)))), "{left:?}");
    }
    assert_eq!(engine.log.next_lsn(), before);
}

/// The cell's drive may have come back meanwhile: then the strip is read from it, and is not lost.
#[test]
fn a_strip_that_only_its_spare_cell_has_is_not_let_go() {
    let (mut fixture, engine, row, member, _) = with_a_spare();
    let members = engine.row(row).expect("the row").members;
    let other = usize::from(members[usize::from(member == 0)].cell.drive.0);
    // What the other drive held is on its way to spare cells.
    fixture.test_drives.held = Some(12 << 20..64 << 20);
    fixture.pull(&[other]);
    fixture.run_operations(0);
    let left = Rc::new(RefCell::new(None));
    let (own, result) = (Rc::clone(&engine), Rc::clone(&left));
    let task = Task { left: 0, need: Need::Spare, row, member };
    engine.io.spawn(async move {
        let left = own.leave_strips(task, false).await;
        result.replace(Some(left));
    });
    fixture.pass(Duration::from_secs(1));
    assert_eq!(*left.borrow(), Some(Ok(Leave::Needed)));
}
