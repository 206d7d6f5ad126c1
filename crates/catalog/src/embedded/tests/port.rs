//! A volume whose port fails or holds chosen operations, before they reach the volume below.

use std::sync::{Arc, Condvar, Mutex};

use stele_media::{Done, Geometry, Handle, MediaError, MediaFault, Op, Port, Priority};

/// The fate of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    Pass,
    Fail(MediaFault),
    /// It waits for [`Scripted::release`].
    Hold,
}

type Script = Box<dyn FnMut(&Op) -> Fate + Send>;

#[derive(Default)]
struct Held {
    operations: Mutex<Vec<(Op, Priority, Done)>>,
    changed: Condvar,
}

#[derive(Clone)]
pub struct Scripted {
    below: Handle,
    script: Arc<Mutex<Script>>,
    held: Arc<Held>,
}

impl Scripted {
    pub fn new(below: Handle) -> Scripted {
        Scripted { below, script: Arc::new(Mutex::new(Box::new(|_| Fate::Pass))), held: Arc::default() }
    }

    pub fn handle(&self) -> Handle {
        Handle::new(self.clone())
    }

    pub fn set(&self, script: impl FnMut(&Op) -> Fate + Send + 'static) {
        *self.script.lock().unwrap() = Box::new(script);
    }

    /// Waits until an operation is held.
    pub fn wait_held(&self) {
        let mut operations = self.held.operations.lock().unwrap();
        while operations.is_empty() {
            operations = self.held.changed.wait(operations).unwrap();
        }
    }

    /// Passes on everything held.
    pub fn release(&self) {
        let held = std::mem::take(&mut *self.held.operations.lock().unwrap());
        held.into_iter().for_each(|(op, priority, done)| self.below.submit(op, priority, done));
    }
}

impl Port for Scripted {
    fn geometry(&self) -> Geometry {
        self.below.geometry()
    }

    fn submit(&self, op: Op, priority: Priority, done: Done) {
        let fate = (self.script.lock().unwrap())(&op);
        match fate {
            Fate::Pass => self.below.submit(op, priority, done),
            Fate::Fail(fault) => done(op, Err(MediaError::new(fault, format!("{fault:?} by the script")))),
            Fate::Hold => {
                self.held.operations.lock().unwrap().push((op, priority, done));
                self.held.changed.notify_all();
            }
        }
    }

    fn pump(&self) -> bool {
        self.below.pump()
    }
}

/// Whether the operation is a write that must be durable.
pub fn is_forced(op: &Op) -> bool {
    matches!(op, Op::Write { fua: true, .. })
}
