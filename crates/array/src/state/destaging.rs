//! What destage knows.

use stele_ground::Instant;

/// A stripe whose last destage failed.
#[derive(Clone, Copy, Debug)]
pub struct Stuck {
    /// It is tried again then.
    pub again: Instant,
    /// Something about the stripe itself has to change first. Else the log only had no room for its destage.
    pub lasting: bool,
}
