//! The layout as the table and the engine share it: the table makes, moves and frees the rows of
//! its own pages.

use std::cell::{Ref, RefCell, RefMut};
use std::rc::Rc;

use super::Layout;

/// Cheap to clone. Guards are short: none is held over a wait, which the lint
/// `await_holding_refcell_ref` checks. Decision record 034 says why it is not in the engine's core.
#[derive(Clone)]
pub struct SharedLayout(Rc<RefCell<Layout>>);

impl SharedLayout {
    pub fn new(layout: Layout) -> SharedLayout {
        SharedLayout(Rc::new(RefCell::new(layout)))
    }

    pub fn read(&self) -> Ref<'_, Layout> {
        self.0.borrow()
    }

    pub fn write(&self) -> RefMut<'_, Layout> {
        self.0.borrow_mut()
    }
}
