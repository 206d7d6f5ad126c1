//! What the records of layers do to the pool's state.

use std::rc::Rc;

use stele_ground::VolumeId;

use crate::durable::records::{NewLayer, Reason};
use crate::engine::apply::Pages;
use crate::engine::{Core, Engine, Surroundings};
use crate::formats::map::{self, Home};
use crate::formats::{entry, tables};
use crate::model::place::{SlotId, StripeKey};
use crate::volumes::ahead::STRIPES;
use crate::volumes::handle::VolumeHandle;
use crate::volumes::{LayerKind, Volume};

impl Surroundings {
    pub(crate) fn apply_layer(&self, core: &mut Core, new: &NewLayer, pages: &Pages) {
        let (Some(base), Some(former)) = (core.volumes.get(new.base), core.volumes.get(new.former)) else { return };
        let mut spec = former.spec().clone();
        if new.reason == Reason::Clone {
            spec.name.clone_from(&new.name);
            // Thin like the snapshot's own growth: what it shares needs no room.
            spec.fully_allocated = false;
        }
        let volume = Rc::new(Volume::new(new.layer, spec));
        assert_eq!(volume.class, base.class, "layers that stand on one another have one shape");
        volume.set_base(Some(base.id));
        match new.reason {
            Reason::Clone => volume.set_origin(base.handle_id()),
            Reason::Snapshot | Reason::Rollback => {
                assert!(!former.is_retained(), "a volume with retained records is never rolled back");
                volume.set_handle(former.take_handle());
                volume.set_origin(former.origin());
            }
        }
        match new.reason {
            Reason::Clone => {}
            Reason::Snapshot => {
                former.set_kind(LayerKind::Snapshot);
                former.set_handle(Some(VolumeHandle::new(new.layer, STRIPES)));
                former.set_origin(volume.handle_id());
                former.set_made(new.made);
                former.change_spec(|spec| spec.name.clone_from(&new.name));
                core.volumes.show(&former);
            }
            Reason::Rollback => former.set_kind(LayerKind::GivenUp),
        }
        if volume.spec().fully_allocated {
            core.space.promise(volume.class, volume.stripes());
        }
        core.cache.add_volume(volume.id, volume.shape.blocks());
        for changed in [&former, &volume] {
            pages.get(tables::volume(changed.id)).change(|bytes| changed.encode(bytes));
        }
        core.volumes.insert(volume);
    }

    pub(crate) fn apply_given_up(&self, core: &mut Core, volume: &Volume) {
        assert!(!volume.is_retained(), "a volume with retained records is never deleted");
        volume.set_kind(LayerKind::GivenUp);
        if let Some(handle) = volume.take_handle() {
            core.volumes.hide(handle.id);
        }
    }

    pub(crate) fn apply_adopted(
        &self,
        core: &mut Core,
        from: &Volume,
        to: &Volume,
        stripe: u64,
        slot: Option<SlotId>,
        pages: &Pages,
    ) {
        let home = slot.map_or(Home::Zero, Home::Slot);
        for (volume, before, after) in [(from, home, Home::Unmapped), (to, Home::Unmapped, home)] {
            let (id, at) = Engine::map_page_id(volume.id, stripe);
            pages.get(id).change(|bytes| {
                assert_eq!(
                    map::get(bytes, at),
                    before,
                    "invariant 4: stripe {stripe} changes its layer from {}",
                    from.id
                );
                map::set(bytes, at, after);
            });
        }
        let Some(slot) = slot else { return };
        let (id, at) = Engine::slot_page_id(&to.shape, slot);
        pages.get(id).change(|bytes| {
            let head = entry::head(bytes, at);
            let owned = head.references == 1 && head.volume == from.id.0 && head.stripe == stripe;
            assert!(owned, "invariant 4: {slot} is taken from layer {}, which does not own it", from.id);
            entry::set_head(bytes, at, &entry::Head { volume: to.id.0, ..head });
        });
        from.note_unmapped();
        to.note_mapped();
        if from.spec().fully_allocated {
            core.space.promise(from.class, 1);
        }
        if to.spec().fully_allocated {
            core.space.release(to.class, 1);
        }
        self.break_promise(core, to, stripe);
        let key = |volume: VolumeId| StripeKey { volume, stripe };
        if from.has_lost(stripe) {
            self.list_lost(core, key(from.id), false);
            self.list_lost(core, key(to.id), true);
        }
        self.repairing.rename(key(from.id), key(to.id));
        self.rebuilding.rename(key(from.id), key(to.id));
        self.drives.rename_missed(key(from.id), key(to.id));
    }

    /// Layers that stood on one that is gone stand on its base.
    pub(crate) fn rebase(&self, core: &Core, gone: &Volume, pages: &Pages) {
        for volume in core.volumes.standing_on(gone.id) {
            volume.set_base(gone.base());
            pages.get(tables::volume(volume.id)).change(|bytes| volume.encode(bytes));
        }
    }
}
