//! The layout as the table and the engine share it: the table makes, moves and frees the rows of
//! its own pages.

use std::cell::{Ref, RefCell, RefMut};
use std::rc::Rc;

use super::Layout;
use super::crowding::Survey;

/// Cheap to clone. Guards are short: none is held over a wait, which the lint
/// `await_holding_refcell_ref` checks. Decision record 034 says why it is not in the engine's core.
#[derive(Clone)]
pub struct SharedLayout(Rc<Inner>);

struct Inner {
    layout: RefCell<Layout>,
    /// Of the layout as it is, if it was asked for since the last change.
    survey: RefCell<Option<Survey>>,
}

impl SharedLayout {
    pub fn new(layout: Layout) -> SharedLayout {
        SharedLayout(Rc::new(Inner { layout: RefCell::new(layout), survey: RefCell::default() }))
    }

    pub fn read(&self) -> Ref<'_, Layout> {
        self.0.layout.borrow()
    }

    pub fn write(&self) -> RefMut<'_, Layout> {
        *self.0.survey.borrow_mut() = None;
        self.0.layout.borrow_mut()
    }

    /// What the rows say in sum.
    pub fn survey(&self) -> Survey {
        self.0.survey.borrow_mut().get_or_insert_with(|| self.read().survey()).clone()
    }
}
