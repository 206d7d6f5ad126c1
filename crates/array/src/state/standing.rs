//! Whether the pool still writes, and whether it is being closed.

use std::cell::Cell;

use stele_ground::Duration;

/// What stands still while the pool is being closed looks so often whether the close has failed.
pub const CLOSE_STEP: Duration = Duration::from_millis(50);

pub struct Standing {
    read_only: Cell<bool>,
    closing: Cell<bool>,
    closed: Cell<bool>,
}

impl Standing {
    pub fn new(read_only: bool) -> Standing {
        Standing { read_only: Cell::new(read_only), closing: Cell::new(false), closed: Cell::new(false) }
    }

    pub fn is_read_only(&self) -> bool {
        self.read_only.get()
    }

    /// From here on nothing is written any more. False where that was so already.
    pub fn stop_writing(&self) -> bool {
        !self.read_only.replace(true)
    }

    pub fn is_closing(&self) -> bool {
        self.closing.get()
    }

    pub fn begin_close(&self) {
        self.closing.set(true);
    }

    /// Where the close failed the pool stays open.
    pub fn end_close(&self, closed: bool) {
        self.closing.set(closed);
        self.closed.set(closed);
    }

    /// The pool is closed, and works no more.
    pub fn is_closed(&self) -> bool {
        self.closed.get()
    }
}
