//! Snapshots and clones: maps that stand on one another.
//!
//! A layer is a map of its own on a base. A stripe that the layer has no word for is the base's; a
//! word (a slot, or "reads as zeros") hides it. Only the newest layer of a volume takes writes:
//! - a snapshot puts an empty layer on the volume's, which is the snapshot from then on, with its
//!   slots and its dirty blocks;
//! - a clone puts an empty layer on the snapshot's, under another name;
//! - a rollback does the same in the place of the volume's layer, which is given up.
//!
//! Each is one record, whatever the size. A write to a stripe that the base has goes to a slot of
//! its own, merged with the rest of the stripe: what a base holds never changes again. So every
//! slot is named by one word of one layer, and what is counted are the layers on a base, not the
//! stripes on a slot. A count on each slot would make a snapshot change the entry of every slot of
//! the volume.
//!
//! Deleting gives a layer up ([`reclaim`]). With no layer on it, its slots are freed. With one
//! layer on it, that layer adopts what it sees through it, stripe by stripe, and the rest is freed.
//! With several it waits, nameless, until one is left. Each step leaves every view as it was, so
//! that a crash between any two is one more pause.

mod apply;
pub(crate) mod commands;
mod over_base;
mod reclaim;
mod show;
mod view;

pub use view::FoundStripe;

/// Layers that may stand on one another: a read of an old stripe looks through as many maps.
pub const LAYERS_MAX: usize = 64;

#[cfg(test)]
mod tests;
