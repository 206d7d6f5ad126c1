//! An open pool at work, with what belongs to no volume: drives that were refused, and drives that came later.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use stele_ground::Bytes;

use crate::engine::Engine;
use crate::model::Attached;

/// A drive the pool will not use, for status.
#[derive(Clone, Debug)]
pub struct Rejected {
    pub index: usize,
    pub name: String,
    pub note: String,
    pub health: crate::model::DriveHealth,
    pub size: Bytes,
    pub enclosure: u32,
}

/// An open pool at work.
pub struct Serving {
    pub engine: Rc<Engine>,
    pub rejected: RefCell<Vec<Rejected>>,
    /// Drives attached later, with their index.
    pub arrivals: RefCell<Vec<(usize, Attached)>>,
    pub closed: Cell<bool>,
}
