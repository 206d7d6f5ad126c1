//! A value that tasks share.
//!
//! The value is reached only through closures that are not asynchronous. A lock is therefore never
//! held over an await, and never leaves this file.

use std::sync::{Mutex, MutexGuard, PoisonError};

#[derive(Default)]
pub(crate) struct Shared<T>(Mutex<T>);

impl<T> Shared<T> {
    pub fn new(value: T) -> Shared<T> {
        Shared(Mutex::new(value))
    }

    /// Changes the value. The closure takes no other lock and does not wait.
    pub fn step<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        change(&mut self.lock())
    }

    /// Reads the value.
    pub fn look<R>(&self, read: impl FnOnce(&T) -> R) -> R {
        read(&self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, T> {
        // A panic in another task leaves a complete value, because each critical section is a
        // single step.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
