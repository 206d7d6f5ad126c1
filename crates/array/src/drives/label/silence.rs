//! Drives that do not answer and are kept, since the pool cannot do without them: labels do not wait for them.
//!
//! A label that such a drive has been given stays with it, and no other goes there before it has answered: a label never
//! lands on a newer one. The drive counts as one that failed to take the label.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::future::Future;

use futures_util::future::{Either, select};
use futures_util::pin_mut;
use stele_media::{MediaError, MediaFault};

use crate::model::place::DriveNumber;
use crate::runtime::sync::Notify;

#[derive(Default)]
pub struct Silence {
    drives: RefCell<BTreeSet<DriveNumber>>,
    changed: Notify,
}

impl Silence {
    /// These drives do not answer now, and are kept.
    pub fn note(&self, drives: BTreeSet<DriveNumber>) {
        if *self.drives.borrow() != drives {
            self.drives.replace(drives);
            self.changed.wake_all();
        }
    }

    /// Another drive is attached in its place, or the drive itself anew.
    pub fn forget(&self, drive: DriveNumber) {
        if self.drives.borrow_mut().remove(&drive) {
            self.changed.wake_all();
        }
    }

    /// What becomes of a label for the drive. It is not begun while the drive does not answer, and not waited for.
    pub async fn or(
        &self,
        drive: DriveNumber,
        write: impl Future<Output = Result<(), MediaError>>,
    ) -> Result<(), MediaError> {
        pin_mut!(write);
        loop {
            let changed = self.changed.changed();
            if self.drives.borrow().contains(&drive) {
                return Err(MediaError::new(MediaFault::Retry, format!("{drive} does not answer")));
            }
            pin_mut!(changed);
            match select(write.as_mut(), changed).await {
                Either::Left((result, _)) => return result,
                Either::Right(_) => {}
            }
        }
    }
}
