//! How the lanes of a row end.

use std::cell::Cell;
use std::rc::Rc;

use futures_util::FutureExt;

use super::{Need, Pass, Placed, Task};
use crate::model::place::RowId;
use crate::testing::Fixture;

#[test]
fn all_lanes_end_when_the_row_is_freed_while_hosts_are_active() {
    let fixture = Fixture::new(4, 4, 1);
    let engine = Rc::clone(&fixture.pool.serving().expect("it is open").engine);
    assert!(engine.admission.begin(), "a host is active");
    assert!(engine.hosts_wait());
    let task = Task { left: 0, need: Need::Spare, row: RowId(999), member: 0 };
    let pass = Pass {
        task,
        to_spare: true,
        slots: 64,
        next: Cell::new(0),
        run: 1,
        losses: Cell::new(engine.membership.lost()),
        placed: Cell::new(Placed::There),
        ended: Cell::new(false),
    };
    let done = Default::default();
    assert_eq!(engine.lane(&pass, 0, &done).now_or_never(), Some(Ok(())));
    assert_eq!(engine.lane(&pass, 1, &done).now_or_never(), Some(Ok(())), "the other lane still waits");
}
