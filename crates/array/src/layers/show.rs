//! What a volume or snapshot shows of itself: what it refers to, and what would be free without it.

use std::collections::BTreeMap;
use std::rc::Rc;

use stele_ground::{Bytes, VolumeId};

use crate::durable::table::Peek;
use crate::engine::Engine;
use crate::formats::map::{self, Home};
use crate::formats::tables;
use crate::model::place::{PageId, StripeKey};
use crate::model::{ArrayError, VolumeDetail, VolumeStatus};
use crate::stripe::losses::ranges;
use crate::volumes::{LayerKind, Volume};

impl Engine {
    pub fn volume_status(&self, volume: &Volume) -> VolumeStatus {
        let name_of = |handle: VolumeId| self.look(|core| core.volumes.by_handle(handle)).map(|volume| volume.name());
        let handle = volume.handle();
        VolumeStatus {
            id: handle.as_ref().map_or(volume.id, |handle| handle.id),
            spec: volume.spec().clone(),
            retained: volume.is_retained(),
            snapshot: volume.kind() == LayerKind::Snapshot,
            origin: volume.origin().and_then(name_of),
            made: volume.made(),
            read_ahead: handle.as_ref().map_or(0, |handle| handle.ahead.stripes()),
            allocated: volume.allocated(),
            lost: Vec::new(),
            unreadable: Vec::new(),
        }
    }

    /// As `volume_status`, with the lost stripes that show through from layers below.
    pub async fn whole_status(&self, volume: &Rc<Volume>) -> Result<VolumeStatus, ArrayError> {
        let mut lost: Vec<u64> = volume.lost();
        let mut away = self.losses_seen.unreadable_of(volume.id);
        let mut below = volume.base().and_then(|base| self.look(|core| core.volumes.get(base)));
        while let Some(layer) = below {
            let listed: Vec<u64> = layer.lost();
            for stripe in listed {
                if self.found(volume, stripe).await?.owner().id == layer.id {
                    lost.push(stripe);
                }
            }
            for stripe in self.losses_seen.unreadable_of(layer.id) {
                if self.found(volume, stripe).await?.owner().id == layer.id {
                    away.push(stripe);
                }
            }
            below = layer.base().and_then(|base| self.look(|core| core.volumes.get(base)));
        }
        let length = volume.shape.data();
        away.extend(&lost);
        let (lost, unreadable) = (ranges(lost, length), ranges(away, length));
        Ok(VolumeStatus { lost, unreadable, ..self.volume_status(volume) })
    }

    pub async fn detail(&self, name: &str) -> Result<VolumeDetail, ArrayError> {
        let volume = self.named(name)?;
        let (refers, alone) = self.count_stripes(&volume).await?;
        let stripe = volume.shape.data();
        let handle = volume.handle();
        let ahead = handle.as_ref().map(|handle| self.ahead_counts(handle)).unwrap_or_default();
        let (hits, misses) = handle.as_ref().map_or((0, 0), |handle| handle.reads());
        let of_it = |layer: VolumeId| {
            let blocks = self.look(|core| {
                let count = |stripe| core.cache.dirty_count(StripeKey { volume: layer, stripe });
                core.cache.dirty_stripes_of(layer).into_iter().map(count).sum::<usize>()
            });
            blocks as u64 * stele_ground::BLOCK as u64
        };
        Ok(VolumeDetail {
            status: self.whole_status(&volume).await?,
            refers: Bytes(refers * stripe),
            alone: Bytes(alone * stripe),
            dirty: Bytes(of_it(volume.id)),
            hits,
            misses,
            ahead,
            cache: self.cache_status(),
        })
    }

    /// Stripes that the layer shows, in slots of its own or of layers below; and those that only it
    /// shows.
    async fn count_stripes(&self, volume: &Rc<Volume>) -> Result<(u64, u64), ArrayError> {
        let mut chain = vec![Rc::clone(volume)];
        while let Some(base) = chain.last().and_then(|layer| self.look(|core| core.volumes.get(layer.base()?))) {
            chain.push(base);
        }
        let above = self.look(|core| core.volumes.standing_on(volume.id));
        let pages = chain.iter().map(|layer| self.table.pages(tables::map(layer.id))).max().unwrap_or(0);
        let (mut refers, mut alone) = (0, 0);
        for index in 0..pages {
            let mut words: BTreeMap<u64, Home> = BTreeMap::new();
            let mut own = Vec::new();
            for (depth, layer) in chain.iter().enumerate() {
                for (word, home) in self.words(layer, index).await? {
                    words.entry(word).or_insert(home);
                    if depth == 0 && matches!(home, Home::Slot(_)) {
                        own.push(word);
                    }
                }
            }
            refers += words.values().filter(|home| matches!(home, Home::Slot(_))).count() as u64;
            let mut hidden: BTreeMap<u64, usize> = BTreeMap::new();
            for other in &above {
                for (word, _) in self.words(other, index).await? {
                    *hidden.entry(word).or_insert(0) += 1;
                }
            }
            alone += own.iter().filter(|word| hidden.get(word).copied().unwrap_or(0) == above.len()).count() as u64;
        }
        Ok((refers, alone))
    }

    /// What one page of the layer's map says, without what it says nothing of.
    async fn words(&self, layer: &Volume, index: u32) -> Result<Vec<(u64, Home)>, ArrayError> {
        let id = PageId { table: tables::map(layer.id), index };
        if matches!(self.table.peek(id), Peek::Never) {
            return Ok(Vec::new());
        }
        let page = self.table.page(id).await?;
        let home = |bytes: &[u8], word: u64| map::get(bytes, map::locate(word).1);
        Ok(page.read(|bytes| {
            let all = (0..map::PER_PAGE).map(|word| (word, home(bytes, word)));
            all.filter(|(_, home)| *home != Home::Unmapped).collect()
        }))
    }
}
