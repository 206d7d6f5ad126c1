//! RESERVE and RELEASE of SPC-2: the whole unit, for as long as the session lasts.

use super::exec::Step;
use super::{NexusId, Reply, Status, Unit};

impl Unit {
    pub(super) fn reserve(&mut self, nexus: NexusId) -> Step {
        // Who uses persistent reservations does not get the other kind (SPC-4, CRH 0).
        if self.reservations.has_registrants() {
            return Step::Done(Reply::status(Status::ReservationConflict));
        }
        self.reserved_by = Some(nexus);
        Step::good()
    }

    /// Of somebody else's reservation: nothing, and no error.
    pub(super) fn release(&mut self, nexus: NexusId) -> Step {
        if self.reservations.has_registrants() {
            return Step::Done(Reply::status(Status::ReservationConflict));
        }
        if self.reserved_by == Some(nexus) {
            self.reserved_by = None;
        }
        Step::good()
    }
}
