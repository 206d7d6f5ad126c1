//! Clean blocks in pages of their own, which readers may hold on to, replaced by S3-FIFO (Yang et
//! al., SOSP 2023). New blocks queue in a small FIFO of a tenth of the space. Those read again
//! before they reach its end move to the main FIFO. The others leave, remembered as ghosts, and
//! enter the main FIFO if they come back soon. Blocks of long reads become ghosts at once.
//!
//! Blocks that were read ahead queue in the small FIFO too. It is longer while they wait there for
//! their readers: by twice what waits, up to a quarter of the space. So what comes for other
//! readers pushes none of them out before its own has come.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::hash::BuildHasher;

use stele_ground::{BLOCK, VolumeId};
use stele_media::Shared;

use super::{BlockPlace, FixedState};
use crate::model::place::BlockKey;

/// Blocks (64 GiB) for which tables are set aside at the start; a larger cache's grow.
const ROOM_MAX: u64 = 16 << 20;
/// Dead slots that are left in the queues in any case.
const DEAD_MIN: u64 = 1024;
/// Reads remembered per block.
const READS_MAX: u8 = 3;

#[derive(Default)]
struct Slot {
    /// Of one block. It is written again when no reader holds it, and else left to its readers.
    page: Shared,
    /// None: free, or dead.
    key: Option<BlockKey>,
    reads: u8,
    /// Read ahead for this volume, and not asked for yet.
    ahead: Option<VolumeId>,
}

impl Slot {
    fn fill(&mut self, data: &[u8]) {
        assert_eq!(data.len(), BLOCK, "a page holds one block");
        self.page = match std::mem::take(&mut self.page).try_into_mut() {
            Ok(mut page) if page.len() == BLOCK => {
                page.copy_from_slice(data);
                page.freeze()
            }
            // The slot's first, or one that is on its way to a host.
            _ => Shared::copy_from_slice(data),
        };
    }
}

#[derive(Default)]
pub struct Clean {
    limit: u64,
    slots: Vec<Slot>,
    /// Slots in no queue. They have no page.
    free: Vec<u32>,
    /// Slots whose block has gone, without a page, and still in a queue.
    dead: usize,
    small: VecDeque<u32>,
    main: VecDeque<u32>,
    ghosts: HashSet<u64, FixedState>,
    ghost_order: VecDeque<u64>,
    /// Of what was read ahead for each volume, bytes read since, and bytes that left unread.
    ahead: BTreeMap<VolumeId, (u64, u64)>,
    /// Blocks that were read ahead and not asked for yet.
    waiting: u64,
}

type Places = HashMap<BlockKey, BlockPlace, FixedState>;

impl Clean {
    pub fn new(limit: u64) -> Clean {
        let limit = limit.max(8);
        let room = limit.min(ROOM_MAX) as usize;
        // Set aside, and in use only as the cache fills.
        let (slots, ghosts) = (Vec::with_capacity(room), HashSet::with_capacity_and_hasher(room, FixedState));
        Clean { limit, slots, ghosts, ..Clean::default() }
    }

    /// Blocks that its tables can hold before they grow.
    pub fn room(&self) -> usize {
        self.slots.capacity()
    }

    /// Blocks' worth of pages in use.
    pub fn held(&self) -> u64 {
        (self.slots.len() - self.free.len() - self.dead) as u64
    }

    #[cfg(test)]
    pub fn slots_and_queued(&self) -> (usize, usize) {
        (self.slots.len(), self.small.len() + self.main.len())
    }

    pub fn page(&self, index: u32) -> &Shared {
        &self.slots[index as usize].page
    }

    /// The block's bytes, marked as read if that counts. The first read of a block that was read
    /// ahead is what it was fetched for, not a second one.
    pub fn touch(&mut self, index: u32, counts: bool) -> &Shared {
        let slot = &mut self.slots[index as usize];
        match slot.ahead.take() {
            Some(handle) => {
                self.waiting -= 1;
                self.ahead.entry(handle).or_default().0 += BLOCK as u64;
            }
            None if counts => slot.reads = (slot.reads + 1).min(READS_MAX),
            None => {}
        }
        &slot.page
    }

    pub fn overwrite(&mut self, index: u32, data: &[u8]) {
        self.slots[index as usize].fill(data);
    }

    /// The caller has already forgotten its place. Its page is free for what is written next.
    pub fn remove(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        (slot.key, slot.page) = (None, Shared::new());
        self.waste(index);
        self.dead += 1;
        if self.dead as u64 > self.held() + DEAD_MIN.min(self.limit) {
            self.clear_queues();
        }
    }

    /// Takes the dead out of the queues: blocks that are written again and again leave one each
    /// time.
    fn clear_queues(&mut self) {
        for queue in [&mut self.small, &mut self.main] {
            queue.retain(|index| {
                let lives = self.slots[*index as usize].key.is_some();
                if !lives {
                    self.free.push(*index);
                }
                lives
            });
        }
        self.dead = 0;
    }

    pub fn mark_ahead(&mut self, index: u32, handle: VolumeId) -> bool {
        let slot = &mut self.slots[index as usize];
        let unread = slot.reads == 0 && slot.ahead.is_none();
        if unread {
            slot.ahead = Some(handle);
            self.waiting += 1;
        }
        unread
    }

    /// Blocks that were read ahead and not asked for yet.
    pub fn waiting(&self) -> u64 {
        self.waiting
    }

    pub fn ahead_of(&self, handle: VolumeId) -> (u64, u64) {
        self.ahead.get(&handle).copied().unwrap_or_default()
    }

    /// The block leaves: what was read ahead and never asked for was in vain.
    fn waste(&mut self, index: u32) {
        if let Some(handle) = self.slots[index as usize].ahead.take() {
            self.waiting -= 1;
            self.ahead.entry(handle).or_default().1 += BLOCK as u64;
        }
    }

    /// Whether there is room, or the block left lately. Else it is remembered as if it had left.
    pub fn admits(&mut self, key: BlockKey) -> bool {
        let hash = FixedState.hash_one(key);
        if self.held() < self.limit || self.ghosts.contains(&hash) {
            return true;
        }
        self.remember(hash);
        false
    }

    /// Where the block went, if there was a page for it.
    pub fn insert(&mut self, key: BlockKey, data: &[u8], places: &mut Places) -> Option<u32> {
        let index = self.enter(key, places)?;
        self.slots[index as usize].fill(data);
        Some(index)
    }

    /// As `insert`, with the block's own page instead of a copy. Nothing else may lie in its
    /// memory, or the cache would keep more of it than its limit says.
    pub fn adopt(&mut self, key: BlockKey, page: Shared, places: &mut Places) -> Option<u32> {
        assert_eq!(page.len(), BLOCK, "a page holds one block");
        let index = self.enter(key, places)?;
        self.slots[index as usize].page = page;
        Some(index)
    }

    /// Finds a place for the block, whose bytes follow.
    fn enter(&mut self, key: BlockKey, places: &mut Places) -> Option<u32> {
        let index = self.take_page(places)?;
        let hash = FixedState.hash_one(key);
        let slot = &mut self.slots[index as usize];
        (slot.key, slot.reads, slot.ahead) = (Some(key), 0, None);
        if self.ghosts.remove(&hash) {
            self.main.push_back(index)
        } else {
            self.small.push_back(index)
        }
        places.insert(key, BlockPlace::Clean(index));
        Some(index)
    }

    pub fn forget(&mut self, gone: impl Fn(&BlockKey) -> bool, places: &mut Places) {
        for index in 0..self.slots.len() {
            if let Some(key) = self.slots[index].key.filter(&gone) {
                places.remove(&key);
                self.remove(index as u32);
            }
        }
    }

    fn take_page(&mut self, places: &mut Places) -> Option<u32> {
        if self.held() >= self.limit {
            return self.evict(places);
        }
        if self.free.is_empty() {
            self.free.push(self.slots.len() as u32);
            self.slots.push(Slot::default());
        }
        self.free.pop()
    }

    fn evict(&mut self, places: &mut Places) -> Option<u32> {
        // Each turn frees a page, takes a dead slot out, moves one from small to main, or lowers a
        // read count: it ends.
        loop {
            let most = self.limit / 10 + (2 * self.waiting).min(self.limit / 4);
            let from_small = self.small.len() as u64 > most || self.main.is_empty();
            let queue = if from_small { &mut self.small } else { &mut self.main };
            let index = queue.pop_front()?;
            let slot = &mut self.slots[index as usize];
            let Some(key) = slot.key else {
                self.dead -= 1;
                self.free.push(index);
                continue;
            };
            if slot.reads > 0 {
                slot.reads = if from_small { 0 } else { slot.reads - 1 };
                self.main.push_back(index);
                continue;
            }
            slot.key = None;
            self.waste(index);
            places.remove(&key);
            if from_small {
                self.remember(FixedState.hash_one(key));
            }
            return Some(index);
        }
    }

    fn remember(&mut self, hash: u64) {
        if self.ghosts.insert(hash) {
            self.ghost_order.push_back(hash);
        }
        while self.ghost_order.len() as u64 > self.limit {
            if let Some(oldest) = self.ghost_order.pop_front() {
                self.ghosts.remove(&oldest);
            }
        }
    }
}
