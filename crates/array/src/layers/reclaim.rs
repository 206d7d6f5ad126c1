//! Taking apart layers that were given up.
//!
//! A layer that no layer stands on frees its slots. One that a single layer stands on hands over
//! the stripes that this one sees through it, and frees those that it hides; then the other stands
//! on its base. Stripe by stripe, each one record: the views of all others are the same before and
//! after every one of them, so this may stop anywhere and begin again. One that several layers
//! stand on waits until one of them is left.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use stele_ground::{Duration, VolumeId};

use crate::durable::log::Purpose;
use crate::durable::records::Record;
use crate::engine::Engine;
use crate::formats::map::{self, Home};
use crate::formats::tables;
use crate::model::ArrayError;
use crate::model::place::StripeKey;
use crate::runtime::sync::join_all;
use crate::volumes::{LayerKind, Volume};

/// Stripes worked on at once.
const STRIPES_AT_ONCE: usize = 128;
/// What could not be done is tried again after so long, and after twice as long each further time.
const AGAIN: Duration = Duration::from_secs(1);
/// Drives that answer with errors are not asked for the same stripes more often than this.
const AGAIN_MAX: Duration = Duration::from_secs(60);

impl Engine {
    /// Runs for the pool's life.
    pub async fn reclaim_flow(self: Rc<Self>) {
        let (mut again, mut asked) = (AGAIN, false);
        loop {
            let wanted = self.reclaiming.wanted();
            if self.standing.is_closing() || self.check_writable().is_err() {
                return;
            }
            let done = match self.reclaim().await {
                // The rows that moves make for themselves are empty at first.
                Ok(any) if any || (asked && !self.moving.work.is_under_way()) => match self.free_empty_rows().await {
                    Ok(()) => self.settle_cells().await,
                    failed => failed,
                },
                Ok(_) => Ok(()),
                Err(error) => Err(error),
            };
            match done {
                Ok(()) => {
                    again = AGAIN;
                    wanted.await;
                    asked = true;
                }
                Err(error) => {
                    tracing::warn!("a deleted volume or snapshot could not be taken apart: {error}");
                    self.io.sleep(again).await;
                    again = Duration((again.0 * 2).min(AGAIN_MAX.0));
                }
            }
        }
    }

    /// Takes apart what can be now. Answers whether anything was. A layer that has to wait for
    /// drives keeps no other one waiting: its error is answered at the end.
    pub async fn reclaim(self: &Rc<Self>) -> Result<bool, ArrayError> {
        let _turn = self.reclaiming.turn().await;
        let mut waiting = BTreeMap::new();
        let mut any = false;
        while let Some((layer, heir)) = self.next_given_up(&waiting) {
            self.check_writable()?;
            match self.take_apart(&layer, heir).await {
                Ok(()) => any = true,
                Err(error) => drop(waiting.insert(layer.id, error)),
            }
        }
        match waiting.into_values().next() {
            Some(error) => self.free_empty_rows().await.and(Err(error)),
            None => Ok(any),
        }
    }

    async fn take_apart(self: &Rc<Self>, layer: &Rc<Volume>, heir: Option<Rc<Volume>>) -> Result<(), ArrayError> {
        match &heir {
            None => self.free_all(layer).await?,
            Some(heir) => self.hand_over(layer, heir).await?,
        }
        let lsn = self.record(Record::VolumeDelete { volume: layer.id }, Purpose::Inside).await?;
        self.log.durable(lsn).await
    }

    /// A layer that may go now, those that no layer stands on first; and the one that stands on it.
    fn next_given_up(&self, waiting: &BTreeMap<VolumeId, ArrayError>) -> Option<(Rc<Volume>, Option<Rc<Volume>>)> {
        let given_up: Vec<Rc<Volume>> = self
            .look(|core| core.volumes.all())
            .into_iter()
            .filter(|layer| layer.kind() == LayerKind::GivenUp && !waiting.contains_key(&layer.id))
            .collect();
        let standing = |layer: &Rc<Volume>| self.look(|core| core.volumes.standing_on(layer.id));
        let free = given_up.iter().find(|layer| standing(layer).is_empty());
        let single = || given_up.iter().find(|layer| standing(layer).len() == 1);
        let layer = free.or_else(single)?;
        Some((Rc::clone(layer), standing(layer).pop()))
    }

    /// Every stripe that the layer has a word for, or dirty blocks.
    async fn stripes_of(&self, layer: &Volume) -> Result<BTreeSet<u64>, ArrayError> {
        let mut stripes: BTreeSet<u64> = self.look(|core| core.cache.dirty_stripes_of(layer.id)).into_iter().collect();
        stripes.extend(self.locks.held_of(layer.id));
        let table = tables::map(layer.id);
        for index in 0..self.table.pages(table) {
            let id = crate::model::place::PageId { table, index };
            if matches!(self.table.peek(id), crate::durable::table::Peek::Never) {
                continue;
            }
            let page = self.table.page(id).await?;
            let first = u64::from(index) * map::PER_PAGE;
            let words = (0..map::PER_PAGE).map(|word| first + word);
            page.read(|bytes| {
                stripes.extend(words.filter(|stripe| map::get(bytes, map::locate(*stripe).1) != Home::Unmapped))
            });
        }
        Ok(stripes)
    }

    /// No layer sees anything through this one.
    async fn free_all(self: &Rc<Self>, layer: &Rc<Volume>) -> Result<(), ArrayError> {
        let stripes: Vec<u64> = self.stripes_of(layer).await?.into_iter().collect();
        for batch in stripes.chunks(STRIPES_AT_ONCE) {
            for result in join_all(batch.iter().map(|stripe| self.free_one(layer, *stripe))).await {
                result?;
            }
        }
        Ok(())
    }

    async fn free_one(self: &Rc<Self>, layer: &Rc<Volume>, stripe: u64) -> Result<(), ArrayError> {
        let key = StripeKey { volume: layer.id, stripe };
        let _guard = self.locks.exclusive(layer.id, stripe).await;
        let home = self.home(key).await?;
        if home != Home::Unmapped || self.look(|core| core.cache.is_dirty(key)) {
            self.unmap_locked(layer, stripe, u64::MAX, home, false).await?;
        }
        Ok(())
    }

    async fn hand_over(self: &Rc<Self>, layer: &Rc<Volume>, heir: &Rc<Volume>) -> Result<(), ArrayError> {
        let stripes: Vec<u64> = self.stripes_of(layer).await?.into_iter().collect();
        let mut done = Ok(());
        for batch in stripes.chunks(STRIPES_AT_ONCE) {
            // One that has to wait for drives keeps no other one waiting.
            for result in join_all(batch.iter().map(|stripe| self.hand_over_one(layer, heir, *stripe))).await {
                done = done.and(result);
            }
            self.check_writable()?;
        }
        done
    }

    async fn hand_over_one(
        self: &Rc<Self>,
        layer: &Rc<Volume>,
        heir: &Rc<Volume>,
        stripe: u64,
    ) -> Result<(), ArrayError> {
        let key = StripeKey { volume: layer.id, stripe };
        self.destage(layer, stripe).await?;
        let _above = self.locks.exclusive(heir.id, stripe).await;
        let _guard = self.locks.exclusive(layer.id, stripe).await;
        self.place_redo(layer, stripe).await?;
        self.check_destaged(layer, stripe)?;
        let home = self.home(key).await?;
        if home == Home::Unmapped {
            return Ok(());
        }
        if self.home(StripeKey { volume: heir.id, stripe }).await? != Home::Unmapped {
            self.unmap_locked(layer, stripe, u64::MAX, home, false).await?;
            return Ok(());
        }
        let slot = match home {
            Home::Slot(slot) => Some(slot),
            Home::Unmapped | Home::Zero => None,
        };
        let record = Record::Adopted { from: layer.id, to: heir.id, stripe, slot };
        let mut room = self.room_while_held(key, self.log.cost(&record)).await?;
        let pages = self.pages_for(&record).await?;
        self.append(&record, &pages, &mut room);
        Ok(())
    }

    /// Of a layer that takes no writes, what was destaged was the last that was dirty of it. Where
    /// blocks are dirty still, the destage was not carried out: the pool only reads by now.
    pub(super) fn check_destaged(&self, layer: &Volume, stripe: u64) -> Result<(), ArrayError> {
        if !self.look(|core| core.cache.is_dirty(StripeKey { volume: layer.id, stripe })) {
            return Ok(());
        }
        self.check_writable()?;
        Err(ArrayError::Degraded(format!("stripe {stripe} of '{}' is not destaged yet", layer.name())))
    }
}
