//! What changes together, and only in steps.
//!
//! A flow may wait between two steps, and finds another state after the wait. It cannot wait within
//! one: a step is a closure that is not asynchronous, and nothing of the core can be taken out of
//! it. Steps do not nest, nor is there a step within a look, or the pool stops. Applying a record
//! cannot go wrong that way, since it knows [`super::Surroundings`] only; other closures take what
//! they need of the engine beforehand, or from the core they were given.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use stele_ground::{BLOCK, VolumeId};

use crate::cache::Cache;
use crate::durable::log::Reservation;
use crate::engine::Engine;
use crate::formats::shape::Shape;
use crate::model::DigestUnit;
use crate::model::place::{Lsn, SlotId, StripCell, StripeKey};
use crate::space::Space;
use crate::state::lost_list::LostList;
use crate::state::pins::LogPins;
use crate::state::redo::{Redo, Redos};
use crate::volumes::Volumes;

pub struct Core {
    pub volumes: Volumes,
    pub space: Space,
    pub cache: Cache,
    /// Stripes whose newest mapping is not durable yet: readers wait for the LSN.
    pub unsettled: BTreeMap<StripeKey, Lsn>,
    /// Layers that show other content than those before them, whose record is not durable yet:
    /// readers wait for the LSN.
    pub unsettled_layers: BTreeMap<VolumeId, Lsn>,
    /// Dirty stripes without a slot: each has one promised.
    pub promised: BTreeSet<StripeKey>,
    /// Log space for the destage of each dirty stripe.
    pub destage_reservations: BTreeMap<StripeKey, Reservation>,
    pub pins: LogPins,
    /// In-place writes that are not recorded as done.
    pub redo: Redos,
    pub lost: LostList,
    /// Cells whose release is not durable yet, with the record that gave them up.
    pub withheld: VecDeque<(Lsn, Vec<StripCell>)>,
}

impl Core {
    pub fn new(cache: Cache, space: Space) -> Core {
        Core {
            volumes: Volumes::default(),
            space,
            cache,
            unsettled: BTreeMap::new(),
            unsettled_layers: BTreeMap::new(),
            promised: BTreeSet::new(),
            destage_reservations: BTreeMap::new(),
            pins: LogPins::default(),
            redo: Redos::default(),
            lost: LostList::default(),
            withheld: VecDeque::new(),
        }
    }

    /// The shape of the stripes that the slot's row takes.
    pub fn row_shape(&self, slot: SlotId) -> Option<Shape> {
        let class = self.space.row_class(slot.row)?;
        let whole = class.unit == class.strip && class.strip.0 != BLOCK as u64;
        let unit = if whole { DigestUnit::Strip } else { DigestUnit::Block };
        Some(Shape::new(class.code, class.strip.0, unit))
    }

    /// Keeps the images, and in the log what their replay needs.
    pub fn keep_redo(&mut self, key: StripeKey, redo: Redo) {
        self.pins.pin(redo.oldest);
        self.redo.keep(key, redo);
    }

    /// The destage is done, or the stripe has left the slot: nothing is owed any more.
    pub fn forget_redo(&mut self, key: StripeKey) {
        for redo in self.redo.forget(key) {
            self.pins.unpin(redo.oldest);
        }
    }

    /// Forgets what was kept for the destage of stripes that are gone.
    pub fn forget_stripes(&mut self, is_gone: impl Fn(&StripeKey) -> bool) {
        self.promised.retain(|key| !is_gone(key));
        self.destage_reservations.retain(|key, _| !is_gone(key));
    }
}

impl Engine {
    /// Changes the core. Nothing can be awaited meanwhile.
    #[inline]
    pub fn step<R>(&self, change: impl FnOnce(&mut Core) -> R) -> R {
        change(&mut self.core.borrow_mut())
    }

    /// Reads the core.
    #[inline]
    pub fn look<R>(&self, read: impl FnOnce(&Core) -> R) -> R {
        read(&self.core.borrow())
    }
}
