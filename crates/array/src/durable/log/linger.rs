//! Groups that wait for what follows.
//!
//! A writer that writes something and then its name (an object, then its record in the catalog)
//! needs both durable, the first not without the second. Were the first group to depart at once,
//! the second would wait for the whole of it. So a record may linger: it has its place in the order
//! at once. Its group departs with the next record that is urgent, when it is large, or after
//! [`LINGER_MAX`], in case nothing follows.

use stele_ground::Duration;

use super::Log;
use crate::model::place::Lsn;

/// How long a group waits at most. Several times what a catalog needs to answer with its journal,
/// and nothing beside what a writer waits who is left alone with it.
pub const LINGER_MAX: Duration = Duration::from_millis(1);

/// When a record's group departs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlushUrgency {
    /// As soon as it can.
    Now,
    /// With a record that follows, or after [`LINGER_MAX`].
    Linger,
    /// With whatever departs next: no task waits for it, and a crash that loses it loses nothing.
    Whenever,
}

impl Log {
    /// A task waits for the record: its group lingers no longer.
    pub(super) fn urge(&self, lsn: Lsn) {
        let mut state = self.change();
        if let Some(filling) = state.filling.as_mut().filter(|filling| filling.first <= lsn && !filling.urgent) {
            filling.urgent = true;
            drop(state);
            self.kick();
        }
    }

    /// Sees to it that the group being filled departs in time. One looks after all.
    pub(super) fn look_after_lingering(&self) {
        if std::mem::replace(&mut self.change().lingering, true) {
            return;
        }
        let log = self.clone();
        self.0.io.spawn(async move {
            while let Some(until) = log.lingers_until() {
                if log.0.io.now() >= until {
                    log.urge(Lsn(u64::MAX));
                } else {
                    log.0.io.sleep_until(until).await;
                }
            }
        });
    }

    /// When the lingering group must depart. None: no group lingers, and no task looks after one.
    fn lingers_until(&self) -> Option<stele_ground::Instant> {
        let mut state = self.change();
        let until = state
            .filling
            .as_ref()
            .filter(|filling| filling.lingers && !filling.urgent)
            .map(|filling| filling.since + LINGER_MAX);
        state.lingering = until.is_some();
        until
    }
}
