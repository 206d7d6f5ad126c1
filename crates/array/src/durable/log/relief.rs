//! A member that slows the log down makes way for another drive.

use std::collections::BTreeSet;

use super::{Log, membership};
use crate::model::place::DriveNumber;

impl Log {
    /// Puts another drive in the member's place, where one is left that is none of `avoid`: every
    /// acknowledgement waits for the slowest member. Does nothing otherwise.
    pub fn relieve(&self, drive: DriveNumber, avoid: &BTreeSet<DriveNumber>) {
        let mut state = self.change();
        let busy = state.read_only || state.changing || state.stopped.is_some();
        if busy || !state.members.contains(&drive) || !state.lost.is_empty() || !state.unwanted.is_empty() {
            return;
        }
        let kept: Vec<DriveNumber> = state.members.iter().copied().filter(|member| *member != drive).collect();
        let mut unwanted = avoid.clone();
        unwanted.insert(drive);
        // One that did not take the newest label may have been pulled, although no request says so
        // yet.
        unwanted.extend(self.0.labels.usable().into_iter().filter(|drive| !self.0.labels.is_up_to_date(*drive)));
        if membership::choose(&self.0.labels, &kept, &unwanted).len() < state.members.len() {
            return;
        }
        state.unwanted.insert(drive);
        drop(state);
        self.mend();
    }
}
