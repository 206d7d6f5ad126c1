//! Removals that are committed and not disposed of yet, and what belongs to them.
//!
//! The queues hold what this session has removed. A crash loses them; the disposal rows in the
//! catalog bring them back at the next opening. Streams have none. They are those that a completion
//! left out beyond the rows of one transaction, and after a crash their extents stay in the
//! catalog.

use std::collections::{BTreeMap, VecDeque};

use crate::record::content::Stream;
use crate::record::disposal::{Certified, DisposalRow};
use crate::record::tombstone::TombstoneRow;
use crate::record::version::VersionRef;
use crate::state::shared::Shared;

/// A key slot whose entry is to be destroyed, and the object whose key it holds.
#[derive(Clone, Debug)]
pub(crate) struct SlotOf {
    pub slot: u64,
    pub object: u64,
    /// The removed version, if the audit log is to say when its key was destroyed.
    pub certified: Option<Certified>,
}

/// A disposal whose key entry could not be overwritten.
pub(crate) struct Stuck {
    pub slot: u64,
    pub object: u64,
    pub reason: String,
    /// How many there are with it.
    pub count: usize,
}

#[derive(Default)]
struct Queues {
    /// Disposals of which only the slot is left to be freed.
    slots: Vec<SlotOf>,
    /// Disposals of long content, whose rows are still to be cleared.
    long: VecDeque<(u64, DisposalRow)>,
    /// Streams that no row names any more, whose extents are still to be cleared.
    streams: VecDeque<Stream>,
    /// Disposals whose key entries could not be overwritten, by slot, with the reason.
    stuck: BTreeMap<u64, (SlotOf, String)>,
    /// Certificates for whose notes the data volume had no room.
    certificates: VecDeque<(VersionRef, TombstoneRow)>,
}

#[derive(Default)]
pub(crate) struct Disposals(Shared<Queues>);

impl Disposals {
    pub fn add_slot(&self, slot: SlotOf) {
        self.0.step(|queues| queues.slots.push(slot));
    }

    /// How many slots wait to be freed.
    pub fn slots(&self) -> usize {
        self.0.look(|queues| queues.slots.len())
    }

    /// Takes out up to `most` slots, the oldest first.
    pub fn take_slots(&self, most: usize) -> Vec<SlotOf> {
        self.0.step(|queues| {
            let left = queues.slots.split_off(most.min(queues.slots.len()));
            std::mem::replace(&mut queues.slots, left)
        })
    }

    /// Puts slots back that are not freed after all.
    pub fn give_back_slots(&self, mut slots: Vec<SlotOf>) {
        self.0.step(|queues| queues.slots.append(&mut slots));
    }

    pub fn add_long(&self, slot: u64, disposal: DisposalRow) {
        self.0.step(|queues| queues.long.push_back((slot, disposal)));
    }

    pub fn take_long(&self) -> Option<(u64, DisposalRow)> {
        self.0.step(|queues| queues.long.pop_front())
    }

    pub fn add_stream(&self, stream: Stream) {
        self.0.step(|queues| queues.streams.push_back(stream));
    }

    /// The next stream to clear. It stays queued until [`Disposals::drop_stream`].
    pub fn next_stream(&self) -> Option<Stream> {
        self.0.look(|queues| queues.streams.front().cloned())
    }

    pub fn drop_stream(&self, number: u64) {
        self.0.step(|queues| queues.streams.retain(|stream| stream.number != number));
    }

    /// Sets disposals aside whose key entries could not be overwritten.
    pub fn set_aside(&self, failed: Vec<(SlotOf, String)>) {
        self.0.step(|queues| {
            queues.stuck.extend(failed.into_iter().map(|(entry, reason)| (entry.slot, (entry, reason))));
        });
    }

    /// Queues everything again that was set aside.
    pub fn retry_stuck(&self) {
        self.0.step(|queues| {
            let stuck = std::mem::take(&mut queues.stuck);
            queues.slots.extend(stuck.into_values().map(|(entry, _)| entry));
        });
    }

    /// How many disposals are set aside.
    pub fn stuck(&self) -> usize {
        self.0.look(|queues| queues.stuck.len())
    }

    /// The first disposal that was set aside.
    pub fn first_stuck(&self) -> Option<Stuck> {
        self.0.look(|queues| {
            let (slot, (entry, reason)) = queues.stuck.first_key_value()?;
            Some(Stuck { slot: *slot, object: entry.object, reason: reason.clone(), count: queues.stuck.len() })
        })
    }

    pub fn add_certificate(&self, at: VersionRef, row: TombstoneRow) {
        self.0.step(|queues| queues.certificates.push_back((at, row)));
    }

    /// The next certificate to note. It stays queued until [`Disposals::drop_certificate`].
    pub fn next_certificate(&self) -> Option<(VersionRef, TombstoneRow)> {
        self.0.look(|queues| queues.certificates.front().cloned())
    }

    pub fn drop_certificate(&self, noted: &TombstoneRow) {
        self.0.step(|queues| queues.certificates.retain(|(_, row)| row != noted));
    }

    /// Drops the certificates of removals of an object that were refused.
    pub fn drop_refused(&self, object: u64) {
        self.0.step(|queues| queues.certificates.retain(|(_, row)| row.object != object));
    }
}
