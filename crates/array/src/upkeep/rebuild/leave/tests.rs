//! Giving spare cells up beside writers.

use std::rc::Rc;

use futures_util::FutureExt;
use stele_ground::VolumeId;

use super::{Leave, Task};
use crate::engine::Engine;
use crate::formats::entry;
use crate::model::place::SlotId;
use crate::testing::{Fixture, pattern, spec};
use crate::upkeep::rebuild::Need;

#[test]
fn nobody_waits_for_a_stripe_while_its_row_is_frozen() {
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
    let _writer = engine.locks.try_exclusive(VolumeId(head.volume), head.stripe).expect("nobody else holds it");
    let task = Task { left: 0, need: Need::Spare, row, member };
    assert_eq!(engine.leave_strips(task, true).now_or_never(), Some(Ok(Leave::Again)), "it waits for the writer");
    assert_eq!(engine.leave_strips(task, false).now_or_never(), None, "the pass before the freeze waits");
}
