//! The first destage of a stripe whose layer has no word for it: dirty blocks and what the base
//! shows go to a slot of the layer's own. The base is read, verified, and never changed.

use std::rc::Rc;

use stele_ground::BLOCK;
use stele_media::Buffer;

use crate::destage::Dirty;
use crate::engine::Engine;
use crate::model::ArrayError;
use crate::model::place::{Lsn, StripeKey};
use crate::volumes::Volume;

impl Engine {
    /// The stripe's lock is held.
    pub async fn destage_over_base(
        self: &Rc<Self>,
        volume: &Rc<Volume>,
        stripe: u64,
        dirty: &Dirty,
        covers: Lsn,
    ) -> Result<(), ArrayError> {
        if !self.shows_through(volume, stripe).await? {
            return self.destage_fresh(volume, stripe, dirty, covers).await;
        }
        let mut data = Buffer::zeroed(volume.shape.data() as usize);
        if dirty.len() < volume.shape.blocks() as usize {
            match self.read_locked(volume, stripe, 0, &mut data).await {
                Ok(()) => {}
                Err(ArrayError::Damaged(why)) => {
                    return match self.salvage_base(volume, stripe, dirty, covers).await? {
                        true => Ok(()),
                        false => Err(ArrayError::Damaged(why)),
                    };
                }
                Err(error) => return Err(error),
            }
        }
        for (block, dirty) in dirty {
            data[*block as usize * BLOCK..][..BLOCK].copy_from_slice(&dirty.data);
        }
        let Some(allocation) = self.allocate(volume, stripe, true).await? else { return Err(self.full(volume)) };
        let filled = self.fill_slot(volume, stripe, allocation, None, covers, &[data.freeze()]).await;
        if filled.is_err() {
            self.abandon(allocation);
        }
        self.settle_map(StripeKey { volume: volume.id, stripe }, filled?, None).await?;
        self.keep_clean(volume, stripe, dirty, covers);
        Ok(())
    }

    /// Something of the base's stripe is lost: what is left of it goes along, and what is lost
    /// stays lost.
    async fn salvage_base(
        self: &Rc<Self>,
        volume: &Rc<Volume>,
        stripe: u64,
        dirty: &Dirty,
        covers: Lsn,
    ) -> Result<bool, ArrayError> {
        loop {
            let found = self.found(volume, stripe).await?;
            let is_dirty =
                |layer: &&Rc<Volume>| self.look(|core| core.cache.is_dirty(StripeKey { volume: layer.id, stripe }));
            // What is dirty below comes to its slot first, so that the slot is all there is.
            if let Some(below) = found.layers().skip(1).find(is_dirty).cloned() {
                Box::pin(self.destage(&below, stripe)).await?;
                self.check_destaged(&below, stripe)?;
                continue;
            }
            let owner = Rc::clone(found.owner());
            drop(found);
            if owner.id == volume.id {
                return Ok(false);
            }
            let _guard = self.locks.shared(owner.id, stripe).await;
            if self.found(volume, stripe).await?.owner().id != owner.id {
                continue;
            }
            let Some(of) = self.locate(&owner, stripe).await? else { return Ok(false) };
            return self.salvage(volume, stripe, &of, None, dirty, covers).await;
        }
    }
}
