//! Layers that were given up are worked on by one at a time.

use std::future::Future;

use crate::runtime::sync::{Mutex, Notify, Permit};

#[derive(Default)]
pub struct Reclaiming {
    turn: Mutex,
    wanted: Notify,
}

impl Reclaiming {
    pub fn want(&self) {
        self.wanted.wake_all();
    }

    pub fn wanted(&self) -> impl Future<Output = ()> + '_ {
        self.wanted.changed()
    }

    pub fn turn(&self) -> impl Future<Output = Permit> + use<> {
        self.turn.lock()
    }
}
