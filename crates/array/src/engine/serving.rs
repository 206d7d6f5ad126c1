//! An open pool at work, with what belongs to no volume: drives that were refused, and drives that
//! came later.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::engine::Engine;
use crate::model::Attached;

/// A drive the pool will not use, for status.
#[derive(Clone, Debug)]
pub struct Rejected {
    pub index: usize,
    pub attached: Attached,
    pub note: String,
    pub health: crate::model::DriveHealth,
}

/// An open pool at work.
pub struct Serving {
    pub engine: Rc<Engine>,
    rejected: RefCell<Vec<Rejected>>,
    /// Drives attached later, with their index.
    arrivals: RefCell<Vec<(usize, Attached)>>,
    closed: Cell<bool>,
}

impl Serving {
    pub fn new(engine: Rc<Engine>, rejected: Vec<Rejected>) -> Serving {
        Serving { engine, rejected: RefCell::new(rejected), arrivals: RefCell::default(), closed: Cell::new(false) }
    }

    pub fn is_closed(&self) -> bool {
        self.closed.get()
    }

    pub fn note_closed(&self) {
        self.closed.set(true);
    }

    /// A drive that the pool will not use.
    pub fn reject(&self, rejected: Rejected) {
        self.rejected.borrow_mut().push(rejected);
    }

    /// The pool uses the drive at the index after all.
    pub fn accept(&self, index: usize) {
        self.rejected.borrow_mut().retain(|rejected| rejected.index != index);
    }

    pub fn rejected(&self) -> Vec<Rejected> {
        self.rejected.borrow().clone()
    }

    pub fn rejected_at(&self, index: usize) -> Option<Rejected> {
        self.rejected.borrow().iter().find(|rejected| rejected.index == index).cloned()
    }

    /// A drive was attached to the open pool.
    pub fn arrive(&self, index: usize, attached: Attached) {
        self.arrivals.borrow_mut().push((index, attached));
    }

    pub fn arrived_at(&self, index: usize) -> Option<Attached> {
        self.arrivals.borrow().iter().find(|(have, _)| *have == index).map(|(_, attached)| attached.clone())
    }

    /// What is attached at the index without being used: it came to the open pool, or was refused
    /// at the opening.
    pub fn unused_at(&self, index: usize) -> Option<Attached> {
        self.arrived_at(index).or_else(|| self.rejected_at(index).map(|rejected| rejected.attached))
    }

    /// Indexes of drives that were attached to the open pool, in order of their arrival.
    pub fn arrivals(&self) -> Vec<usize> {
        self.arrivals.borrow().iter().map(|(index, _)| *index).collect()
    }

    /// An operator says in which enclosure the drive at the index is.
    pub fn place(&self, index: usize, enclosure: u32) {
        if let Some((_, arrived)) = self.arrivals.borrow_mut().iter_mut().find(|(have, _)| *have == index) {
            arrived.enclosure = enclosure;
        }
        if let Some(rejected) = self.rejected.borrow_mut().iter_mut().find(|rejected| rejected.index == index) {
            rejected.attached.enclosure = enclosure;
        }
    }
}
