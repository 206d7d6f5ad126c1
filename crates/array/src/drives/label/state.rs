//! What the pool agreed on about a drive, and its number in the label.

/// A drive's standing in the pool, as agreed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum DriveState {
    /// Holds strips and votes.
    Active,
    /// Given up: its strips are being or have been rebuilt elsewhere. Does not vote.
    Failed,
    /// Left the pool for good; its number stays taken.
    Retired,
    /// New in the place of another one, or back after an absence: being filled. Votes.
    Filling,
    /// In the table, but no voter yet, and empty: drives that are added together join in turn.
    Joining,
}

impl DriveState {
    pub fn number(self) -> u8 {
        match self {
            DriveState::Active => 1,
            DriveState::Failed => 2,
            DriveState::Retired => 3,
            DriveState::Filling => 4,
            DriveState::Joining => 5,
        }
    }

    pub fn from_number(number: u8) -> Option<DriveState> {
        [DriveState::Active, DriveState::Failed, DriveState::Retired, DriveState::Filling, DriveState::Joining]
            .into_iter()
            .find(|state| state.number() == number)
    }

    pub fn votes(self) -> bool {
        matches!(self, DriveState::Active | DriveState::Filling)
    }
}
