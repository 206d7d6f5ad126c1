//! Switches that remove one protection each. The model of the administrator uses them to prove that
//! it notices the loss. Without the feature `mutations`, as in the product, no store can lack a
//! protection.

/// One protection that can be removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Mutation {
    /// Commands do not ask which owner the configured volume has (defects 1 and 7).
    Owners,
    /// A catalog is opened for writing although it does not belong to the data volume (defect 2).
    Pairing,
    /// A rebuild succeeds although places cannot be read, and holds no version (defect 4).
    Losses,
    /// A segment whose header cannot be read counts as free (defect 8).
    UnreadableSegments,
    /// A rebuild deletes the old catalogs before it has made the new one (defect 6).
    KeepUntilDone,
    /// A rebuild treats its unproven results as proven (defects 4 and 8).
    Doubt,
    /// The head is not compared with the heads that were sent elsewhere.
    Heads,
    /// A log that a rebuild cut is signed as if it were whole (defect 13).
    Gaps,
}

impl Mutation {
    /// All of them, in the order of their bits.
    pub const ALL: [Mutation; 8] = [
        Mutation::Owners,
        Mutation::Pairing,
        Mutation::Losses,
        Mutation::UnreadableSegments,
        Mutation::KeepUntilDone,
        Mutation::Doubt,
        Mutation::Heads,
        Mutation::Gaps,
    ];

    /// The protection of that name.
    pub fn named(name: &str) -> Option<Mutation> {
        Mutation::ALL.into_iter().find(|mutation| format!("{mutation:?}") == name)
    }
}

/// A set of removed protections.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Mutations(u64);

impl Mutations {
    /// Absent from the product: see the feature `mutations`.
    #[cfg(any(test, feature = "mutations"))]
    pub fn with(self, mutation: Mutation) -> Mutations {
        Mutations(self.0 | 1 << mutation as u8)
    }

    #[inline]
    pub fn has(self, mutation: Mutation) -> bool {
        cfg!(any(test, feature = "mutations")) && self.0 & 1 << mutation as u8 != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_protection_has_a_bit_of_its_own_and_a_name() {
        for (bit, mutation) in Mutation::ALL.into_iter().enumerate() {
            assert_eq!(mutation as usize, bit);
            assert_eq!(Mutation::named(&format!("{mutation:?}")), Some(mutation));
        }
        assert_eq!(Mutation::ALL.len(), Mutation::Gaps as usize + 1);
    }
}
