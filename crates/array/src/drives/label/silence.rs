//! Drives that do not answer and are kept, since the pool cannot do without them: labels do not
//! wait for them.
//!
//! A label that such a drive has been given stays with it, and no other goes there before it has
//! answered: a label never lands on a newer one. The drive counts as one that failed to take the
//! label.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;

use futures_util::future::{Either, select};
use futures_util::pin_mut;
use stele_ground::Instant;
use stele_media::{MediaError, MediaFault};

use super::Labels;
use crate::model::place::DriveNumber;
use crate::runtime::sync::Notify;

#[derive(Default)]
pub struct Silence {
    /// With the moment at which each was found not to answer.
    drives: RefCell<BTreeMap<DriveNumber, Instant>>,
    changed: Notify,
}

impl Silence {
    /// These drives do not answer now, and are kept.
    pub fn note(&self, silent: &BTreeSet<DriveNumber>, now: Instant) {
        let before = self.drives.borrow().clone();
        let drives = silent.iter().map(|drive| (*drive, before.get(drive).copied().unwrap_or(now)));
        let drives: BTreeMap<DriveNumber, Instant> = drives.collect();
        if before != drives {
            self.drives.replace(drives);
            self.changed.wake_all();
        }
    }

    /// When the drive was found not to answer, if it is silent.
    pub fn since(&self, drive: DriveNumber) -> Option<Instant> {
        self.drives.borrow().get(&drive).copied()
    }

    /// Another drive is attached in its place, or the drive itself anew; or it answers again.
    pub fn forget(&self, drive: DriveNumber) {
        if self.drives.borrow_mut().remove(&drive).is_some() {
            self.changed.wake_all();
        }
    }

    /// What becomes of a label for the drive. It is not begun while the drive does not answer, and
    /// not waited for.
    pub async fn or(
        &self,
        drive: DriveNumber,
        write: impl Future<Output = Result<(), MediaError>>,
    ) -> Result<(), MediaError> {
        pin_mut!(write);
        loop {
            let changed = self.changed.changed();
            if self.drives.borrow().contains_key(&drive) {
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

impl Labels {
    /// These drives do not answer now, and are kept all the same: labels do not wait for them.
    pub fn note_silent(&self, drives: &BTreeSet<DriveNumber>) {
        self.0.silence.note(drives, self.0.io.now());
    }

    /// Drives are looked at every few seconds. One that has answered since what was out on it is
    /// not silent any more.
    pub(super) fn look_whether_it_answers(&self, drive: DriveNumber) {
        let (io, Some(index)) = (&self.0.io, self.register(drive).index) else { return };
        let Some(since) = self.0.silence.since(drive) else { return };
        if io.owed(index) == 0 && io.oldest_out(index).is_none_or(|(begun, ..)| begun > since) {
            self.0.silence.forget(drive);
        }
    }
}
