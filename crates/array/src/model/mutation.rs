//! Switches that remove one protection each, so that a test suite can prove that it would notice.
//! The product is built without the feature `mutations`: there each is a constant, and no pool can
//! lack a protection.

/// One protection that can be taken away.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Mutation {
    /// Log groups are acknowledged without a flush of the members.
    LogFlush,
    /// Log groups are acknowledged out of order.
    LogOrder,
    /// Recovery does not refuse a hole below a watermark.
    LogHole,
    /// Recovery accepts groups without comparing the previous group's CRC.
    LogChain,
    /// Recovery accepts groups of any epoch.
    LogEpoch,
    /// Live groups are not copied to members that lack them before serving.
    LogReplicate,
    /// Labels are not flushed.
    LabelFlush,
    /// A configuration counts as agreed without a majority.
    LabelMajority,
    /// An opening writes a configuration whose epoch it has not announced to a majority.
    Promise,
    /// A renewed label says that its drive is complete, although it is not.
    LabelComplete,
    /// Log groups are acknowledged by fewer members than may be lost.
    LogMembers,
    /// Pages are not flushed before the anchor.
    PageFlush,
    /// Page digests are not checked.
    PageDigest,
    /// Places of the previous checkpoint are reused before the new anchor is durable.
    PageReuse,
    /// Anchors are not flushed before the log is trimmed.
    AnchorFlush,
    /// A checkpoint counts as durable on fewer drives than may be lost.
    AnchorQuorum,
    /// An opening goes on from an anchor that it has not brought to all drives.
    AnchorSpread,
    /// An opening goes on from an anchor without making it newer than those that it passed over.
    AnchorEpoch,
    /// The anchor does not wait for the log to be durable up to the cut.
    AnchorOrder,
    /// Pages changed after the cut are not copied first.
    CutCopy,
    /// Units read from drives are not compared with their digests.
    ReadDigest,
    /// Digests of new slots are CRC-32C, as those of version 0.1.0.
    StrongDigest,
    /// A whole stripe is mapped without a flush of its strips.
    SlotFlush,
    /// A freed slot is reused, and its mapping believed, before the record is durable.
    SlotReuse,
    /// Strips are written in place before their redo images are durable.
    RedoOrder,
    /// Redo records carry no images.
    RedoImages,
    /// Redo images are put onto whatever lives in the slot now.
    RedoGeneration,
    /// Replay redoes also what is recorded as done, so that slot and generation alone protect what
    /// came after.
    RedoDone,
    /// A destage is recorded as done without a flush of its strips.
    StripFlush,
    /// A write is said to be ordered before it is in the log.
    WriteOrder,
    /// A write that is to be whole after a crash is appended to as many groups as come.
    WholeGroup,
    /// A layer is frozen or given up while writes to it are under way.
    LayerGate,
    /// A rollback is shown to readers before it is durable.
    RollbackWait,
    /// Dirty blocks are not compared with the digests they came with.
    MemoryDigest,
    /// Pages are left out of a checkpoint without what changed in them in the log.
    PageWords,
    /// Reads wait for a slow or late drive.
    Hedge,
    /// Drives are not compared with their peers.
    Peers,
    /// Drives are given up and let go although something needs them.
    Needed,
    /// What lost most is not rebuilt before the rest.
    UrgentFirst,
    /// What hosts had to have reconstructed is not rebuilt before its turn.
    Promotion,
    /// Background work takes what it can while hosts are active.
    Throttle,
    /// A drive that is put in is in the enclosure that its driver says, and strips that crowd an
    /// enclosure stay.
    Enclosures,
    /// A drive that answers is given up before what it holds is elsewhere.
    CopyFirst,
    /// Redo images are put onto strips in the order of the log, where older ones may stand behind
    /// newer ones.
    RedoAge,
    /// What is discarded ends where the volume ends now, not where it ended when that was asked
    /// for.
    GrownEnd,
    /// Whatever looks like a header of a log group counts as one.
    LogTag,
    /// A drive that is put in keeps the log groups that are on it.
    OldGroups,
    /// A write-through write is answered after any destage of its stripe, whether that took its
    /// blocks along or not.
    TakenAlong,
    /// Who holds a stripe that a full log waits for may use the last room, also where that is a
    /// stripe of a layer below.
    RoomBelow,
    /// Writes that need no task are answered before they are durable.
    AtOnce,
    /// A flush does not wait for writes that are ordered and not durable.
    OrderedFlush,
    /// A member gets a spare cell while stripes say of its strips that they lie in a former one.
    StaleBits,
    /// A strip is recorded as moved without a flush of it.
    MoveFlush,
    /// Whole stripes move off a drive that leaves, not their strips on it alone.
    OwnStrip,
}

impl Mutation {
    /// All of them, in the order of their bits.
    pub const ALL: [Mutation; 54] = [
        Mutation::LogFlush,
        Mutation::LogOrder,
        Mutation::LogHole,
        Mutation::LogChain,
        Mutation::LogEpoch,
        Mutation::LogReplicate,
        Mutation::LabelFlush,
        Mutation::LabelMajority,
        Mutation::Promise,
        Mutation::LabelComplete,
        Mutation::LogMembers,
        Mutation::PageFlush,
        Mutation::PageDigest,
        Mutation::PageReuse,
        Mutation::AnchorFlush,
        Mutation::AnchorQuorum,
        Mutation::AnchorSpread,
        Mutation::AnchorEpoch,
        Mutation::AnchorOrder,
        Mutation::CutCopy,
        Mutation::ReadDigest,
        Mutation::StrongDigest,
        Mutation::SlotFlush,
        Mutation::SlotReuse,
        Mutation::RedoOrder,
        Mutation::RedoImages,
        Mutation::RedoGeneration,
        Mutation::RedoDone,
        Mutation::StripFlush,
        Mutation::WriteOrder,
        Mutation::WholeGroup,
        Mutation::LayerGate,
        Mutation::RollbackWait,
        Mutation::MemoryDigest,
        Mutation::PageWords,
        Mutation::Hedge,
        Mutation::Peers,
        Mutation::Needed,
        Mutation::UrgentFirst,
        Mutation::Promotion,
        Mutation::Throttle,
        Mutation::Enclosures,
        Mutation::CopyFirst,
        Mutation::RedoAge,
        Mutation::GrownEnd,
        Mutation::LogTag,
        Mutation::OldGroups,
        Mutation::TakenAlong,
        Mutation::RoomBelow,
        Mutation::AtOnce,
        Mutation::OrderedFlush,
        Mutation::StaleBits,
        Mutation::MoveFlush,
        Mutation::OwnStrip,
    ];

    /// The one of that name.
    pub fn named(name: &str) -> Option<Mutation> {
        Mutation::ALL.into_iter().find(|mutation| format!("{mutation:?}") == name)
    }
}

/// The protections taken away.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mutations(u64);

impl Default for Mutations {
    /// None. In this crate's own tests, what `STELE_WITHOUT` names: so that each of them is a
    /// detector.
    #[cfg(not(test))]
    fn default() -> Mutations {
        Mutations(0)
    }

    #[cfg(test)]
    fn default() -> Mutations {
        static WITHOUT: std::sync::OnceLock<Mutations> = std::sync::OnceLock::new();
        *WITHOUT.get_or_init(|| match std::env::var("STELE_WITHOUT") {
            Ok(name) => Mutations(0).with(Mutation::named(&name).unwrap_or_else(|| panic!("no protection '{name}'"))),
            Err(_) => Mutations(0),
        })
    }
}

impl Mutations {
    /// Not in the product: see the feature `mutations`.
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
        assert_eq!(Mutation::ALL.len(), Mutation::OwnStrip as usize + 1);
    }
}
