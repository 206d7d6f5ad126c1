//! RESERVE and RELEASE of SPC-2: they reserve the whole unit for the life of the session.

use super::exec::ExecStep;
use super::{NexusId, Reply, Status, Unit};

impl Unit {
    pub(super) fn reserve(&mut self, nexus: NexusId) -> ExecStep {
        // An initiator that uses persistent reservations does not get the other kind (SPC-4, CRH
        // 0).
        if self.reservations.has_registrants() || self.keeping {
            return ExecStep::Done(Reply::status(Status::ReservationConflict));
        }
        self.reserved_by = Some(nexus);
        ExecStep::good()
    }

    /// On another nexus's reservation it does nothing and returns no error.
    pub(super) fn release(&mut self, nexus: NexusId) -> ExecStep {
        if self.reservations.has_registrants() {
            return ExecStep::Done(Reply::status(Status::ReservationConflict));
        }
        if self.reserved_by == Some(nexus) {
            self.reserved_by = None;
        }
        ExecStep::good()
    }
}
