//! A member that slows the log down makes way for another drive.

use std::collections::BTreeSet;

use super::{Log, membership};
use crate::model::place::DriveNumber;

impl Log {
    /// Puts another drive in the member's place, as if it were lost, where one is left that is none of `avoid`: every
    /// acknowledgement waits for the slowest member. Does nothing otherwise.
    pub fn relieve(&self, drive: DriveNumber, avoid: &BTreeSet<DriveNumber>) {
        let mut state = self.change();
        let busy = state.read_only || state.changing || state.stopped.is_some();
        if busy || !state.members.contains(&drive) || !state.lost.is_empty() {
            return;
        }
        let kept: Vec<DriveNumber> = state.members.iter().copied().filter(|member| *member != drive).collect();
        let mut unwanted = avoid.clone();
        unwanted.insert(drive);
        if membership::choose(&self.0.labels, &kept, &unwanted).len() < state.members.len() {
            return;
        }
        state.lost.insert(drive);
        drop(state);
        self.mend();
    }
}
