//! What initiators have set on a unit and what binds others, for operators.

use serde::{Deserialize, Serialize};

use super::{Port, Reservations, Unit};

/// States of a unit that initiators set. Initiators are shown as ports: name and session.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Imposed {
    /// Who protects it from writes (SWP), until it is taken back, or the unit is reset.
    pub write_protected_by: Option<String>,
    /// Who ejected its medium.
    pub ejected_by: Option<String>,
    /// Number of registrations for persistent reservations.
    pub registrations: usize,
    pub reservation: Option<Held>,
}

/// A reservation, with its holder. None of a reservation that all registrants hold.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Held {
    pub kind: String,
    pub holder: Option<String>,
}

impl Imposed {
    /// Whether nothing is set.
    pub fn is_nothing(&self) -> bool {
        *self == Imposed::default()
    }
}

/// The word for a type of persistent reservation.
fn word(kind: u8) -> &'static str {
    match kind {
        1 => "write-exclusive",
        3 => "exclusive-access",
        5 => "write-exclusive-registrants-only",
        6 => "exclusive-access-registrants-only",
        7 => "write-exclusive-all-registrants",
        _ => "exclusive-access-all-registrants",
    }
}

impl Reservations {
    /// What these reservations impose, alone.
    pub fn imposed(&self) -> Imposed {
        let reservation = self.held().map(|(kind, holder)| Held {
            kind: word(kind).to_owned(),
            holder: holder.map(|port| port.initiator.clone()),
        });
        Imposed { registrations: self.registrations(), reservation, ..Imposed::default() }
    }
}

impl Unit {
    pub fn imposed(&self) -> Imposed {
        let name = |port: &Port| port.initiator.clone();
        let unnamed = || "an initiator that has left".to_owned();
        let by = |is_set: bool, port: &Option<Port>| is_set.then(|| port.as_ref().map_or_else(unnamed, name));
        let mut imposed = self.reservations.imposed();
        imposed.write_protected_by = by(self.modes.software_protected, &self.protected_by);
        imposed.ejected_by = by(self.ejected, &self.ejected_by);
        if let Some(holder) = self.reserved_by {
            let holder = self.nexuses.get(&holder).map(name);
            imposed.reservation = Some(Held { kind: "unit".to_owned(), holder });
        }
        imposed
    }
}
