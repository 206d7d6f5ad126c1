//! Taking apart layers that were given up.
//!
//! A layer that no layer stands on frees its slots. One that a single layer stands on hands over
//! the stripes that this one sees through it, and frees those that it hides; then the other stands
//! on its base. Stripe by stripe, each one record: the views of all others are the same before and
//! after every one of them, so this may stop anywhere and begin again. One that several layers
//! stand on waits until one of them is left.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use stele_ground::{Duration, VolumeId};

use crate::durable::log::Purpose;
use crate::durable::records::Record;
use crate::durable::table::Peek;
use crate::engine::Engine;
use crate::formats::map::{self, Home};
use crate::formats::tables;
use crate::model::ArrayError;
use crate::model::place::{PageId, StripeKey};
use crate::runtime::sync::join_all;
use crate::state::standing::CLOSE_STEP;
use crate::volumes::{LayerKind, Volume};

/// Stripes worked on at once.
pub(super) const STRIPES_AT_ONCE: usize = 128;
/// What could not be done is tried again after so long, and after twice as long each further time.
const AGAIN: Duration = Duration::from_secs(1);
/// Drives that answer with errors are not asked for the same stripes more often than this.
const AGAIN_MAX: Duration = Duration::from_secs(60);

/// The stripes of a layer that are left, found a page of its map after another: a list of all would
/// take more memory than a large volume leaves.
pub(super) struct Left {
    stripes: VecDeque<u64>,
    /// The next page of the map.
    page: u32,
}

impl Engine {
    /// Runs for the pool's life.
    pub async fn reclaim_flow(self: Rc<Self>) {
        let (mut again, mut asked) = (AGAIN, false);
        loop {
            let wanted = self.reclaiming.wanted();
            if self.standing.is_closed() || self.check_writable().is_err() {
                return;
            }
            if self.standing.is_closing() {
                self.io.sleep(CLOSE_STEP).await;
                continue;
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

    /// Every stripe that the layer has dirty blocks of, or that is being changed, and then those
    /// that it has a word for. One may come twice.
    pub(super) fn stripes_of(&self, layer: &Volume) -> Left {
        let mut stripes: VecDeque<u64> = self.look(|core| core.cache.dirty_stripes_of(layer.id)).into();
        stripes.extend(self.locks.held_of(layer.id));
        Left { stripes, page: 0 }
    }

    /// The next stripes to work on at once; none at the end.
    pub(super) async fn next_of(&self, layer: &Volume, left: &mut Left) -> Result<Vec<u64>, ArrayError> {
        let table = tables::map(layer.id);
        while left.stripes.len() < STRIPES_AT_ONCE && left.page < self.table.pages(table) {
            let id = PageId { table, index: left.page };
            let first = u64::from(left.page) * map::PER_PAGE;
            left.page += 1;
            if matches!(self.table.peek(id), Peek::Never) {
                continue;
            }
            let page = self.table.page(id).await?;
            let words = (0..map::PER_PAGE).map(|word| first + word);
            page.read(|bytes| {
                let mapped = words.filter(|stripe| map::get(bytes, map::locate(*stripe).1) != Home::Unmapped);
                left.stripes.extend(mapped);
            });
        }
        let count = left.stripes.len().min(STRIPES_AT_ONCE);
        Ok(left.stripes.drain(..count).collect())
    }

    /// No layer sees anything through this one.
    async fn free_all(self: &Rc<Self>, layer: &Rc<Volume>) -> Result<(), ArrayError> {
        let mut left = self.stripes_of(layer);
        loop {
            let batch = self.next_of(layer, &mut left).await?;
            if batch.is_empty() {
                return Ok(());
            }
            for result in join_all(batch.iter().map(|stripe| self.free_one(layer, *stripe))).await {
                result?;
            }
        }
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
        let mut left = self.stripes_of(layer);
        let mut done = Ok(());
        loop {
            let batch = self.next_of(layer, &mut left).await?;
            if batch.is_empty() {
                return done;
            }
            // One that has to wait for drives keeps no other one waiting.
            for result in join_all(batch.iter().map(|stripe| self.hand_over_one(layer, heir, *stripe))).await {
                done = done.and(result);
            }
            self.check_writable()?;
        }
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
