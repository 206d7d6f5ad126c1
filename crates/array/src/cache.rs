//! The block cache: what hosts wrote and is not destaged yet, and what was read or destaged lately.
//!
//! Dirty blocks are shared slices of the host's data and carry the LSN of the record that holds
//! them; they leave only when a destage (or a whole-stripe write) up to that LSN is recorded. Clean
//! blocks lie in pages of this cache's own, so its memory is bounded by its limit and what hosts
//! are being sent, and are verified before they enter. They are copied to there, except a dirty
//! block that had a page to itself from the start: that page is kept. Clean blocks are replaced by
//! small-queue, main-queue and ghost (S3-FIFO): one long scan passes through the small queue and
//! leaves the rest alone. Lost with the process; the log refills the dirty part.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use stele_ground::digest::fingerprint;
use stele_ground::{BLOCK, Bytes, VolumeId};
use stele_media::{Buffer, Shared};

use crate::model::place::{BlockKey, Lsn, StripeKey};

mod clean;
mod hash;

use clean::Clean;
pub use hash::FixedState;

/// A shared block of zeros.
pub fn zero_block() -> Shared {
    thread_local! {
        static ZEROS: RefCell<Shared> = RefCell::new(Buffer::zeroed(BLOCK).freeze());
    }
    ZEROS.with_borrow(Shared::clone)
}

#[derive(Clone, Debug)]
pub struct DirtyBlock {
    pub lsn: Lsn,
    pub data: Shared,
    /// Of the bytes as they came.
    pub fingerprint: u64,
    /// Its memory is its own alone, a page: it may stay as a clean block without being copied.
    pub is_lean: bool,
}

/// What the cache has of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Held<'a> {
    /// Its bytes, with the LSN that must be durable before a reader may see them (0: none).
    Good(&'a Shared, Lsn),
    /// Dirty, and no longer as it came: only the log has it.
    Spoilt,
}

/// Whether a clean block is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Worth {
    Keeping,
    /// While there is room, or once the block comes back. Of a long read, which costs a drive
    /// little more than a short one, the copies would cost more than the reading.
    IfReadBefore,
}

/// The dirty blocks of one stripe, in the order of their numbers within its data.
#[derive(Debug)]
struct DirtyStripe {
    blocks: Vec<(u32, DirtyBlock)>,
    /// No dirty block of the stripe is older; lower than need be after overwrites, which only
    /// delays a trim.
    oldest: Lsn,
}

impl DirtyStripe {
    /// Where the block is, or would be.
    fn find(&self, number: u32) -> Result<usize, usize> {
        self.blocks.binary_search_by_key(&number, |(number, _)| *number)
    }

    fn get(&self, number: u32) -> Option<&DirtyBlock> {
        let at = self.find(number).ok()?;
        self.blocks.get(at).map(|(_, block)| block)
    }

    fn get_mut(&mut self, number: u32) -> Option<&mut DirtyBlock> {
        let at = self.find(number).ok()?;
        self.blocks.get_mut(at).map(|(_, block)| block)
    }

    fn min_lsn(&self) -> Option<Lsn> {
        self.blocks.iter().map(|(_, block)| block.lsn).min()
    }
}

#[derive(Clone, Copy)]
enum BlockPlace {
    Dirty,
    Clean(u32),
}

#[derive(Default)]
pub struct Cache {
    places: HashMap<BlockKey, BlockPlace, FixedState>,
    clean: Clean,
    stripes: BTreeMap<StripeKey, DirtyStripe>,
    /// Every dirty stripe by its oldest LSN: the front is what holds back the log's trim.
    ages: BTreeSet<(Lsn, StripeKey)>,
    dirty_blocks: u64,
    blocks_per_stripe: BTreeMap<VolumeId, u32>,
    /// Dirty blocks are not compared with their digests: only to show that they must be.
    credulous: bool,
}

impl Cache {
    /// `limit` bounds the clean part.
    pub fn new(limit: Bytes) -> Cache {
        let clean = Clean::new(limit.blocks());
        // Moving the entries of a large cache into a larger table would stop everything else.
        Cache { places: HashMap::with_capacity_and_hasher(clean.room(), FixedState), clean, ..Cache::default() }
    }

    /// Without the comparison of dirty blocks with their digests.
    pub fn credulous(self, credulous: bool) -> Cache {
        Cache { credulous, ..self }
    }

    /// States how many data blocks a stripe of the volume has; needed before any of its blocks
    /// enters.
    pub fn add_volume(&mut self, volume: VolumeId, blocks_per_stripe: u32) {
        assert!(blocks_per_stripe > 0, "a stripe holds at least one block");
        self.blocks_per_stripe.insert(volume, blocks_per_stripe);
    }

    /// Forgets everything of a deleted volume.
    pub fn remove_volume(&mut self, volume: VolumeId) {
        let stripes: Vec<StripeKey> = self
            .stripes
            .range(StripeKey { volume, stripe: 0 }..=StripeKey { volume, stripe: u64::MAX })
            .map(|(key, _)| *key)
            .collect();
        for stripe in stripes {
            self.drop_dirty(stripe, Lsn(u64::MAX));
        }
        self.clean.forget(|key| key.volume == volume, &mut self.places);
        self.blocks_per_stripe.remove(&volume);
    }

    fn stripe_of(&self, key: BlockKey) -> (StripeKey, u32) {
        let per_stripe = self.blocks_per_stripe.get(&key.volume).copied().unwrap_or(1);
        let stripe = key.block / u64::from(per_stripe);
        (StripeKey { volume: key.volume, stripe }, (key.block % u64::from(per_stripe)) as u32)
    }

    /// Takes in a block just appended to the log. Older content of the block is superseded; content
    /// the log holds under a higher LSN stays (replay may meet records in any interleaving of
    /// volumes, never of one block).
    pub fn put_dirty(&mut self, key: BlockKey, written: DirtyBlock) {
        let lsn = written.lsn;
        assert_eq!(written.data.len(), BLOCK, "the cache holds whole blocks");
        let (stripe_key, block) = self.stripe_of(key);
        if let Some(BlockPlace::Clean(index)) = self.places.insert(key, BlockPlace::Dirty) {
            self.clean.remove(index);
        }
        let ages = &mut self.ages;
        let stripe = self.stripes.entry(stripe_key).or_insert_with(|| {
            ages.insert((lsn, stripe_key));
            DirtyStripe { blocks: Vec::new(), oldest: lsn }
        });
        match stripe.find(block) {
            Ok(at) => {
                let (_, older) = std::mem::replace(&mut stripe.blocks[at], (block, written));
                assert!(older.lsn <= lsn, "a block's writes enter the cache in the order of the log");
            }
            Err(at) => {
                stripe.blocks.insert(at, (block, written));
                self.dirty_blocks += 1;
            }
        }
    }

    /// Offers a verified clean block that is worth keeping.
    pub fn put_clean(&mut self, key: BlockKey, data: &[u8]) {
        self.offer(key, data, Worth::Keeping);
    }

    /// Offers a verified clean block. A dirty block is newer than anything read, so it stays.
    pub fn offer(&mut self, key: BlockKey, data: &[u8], worth: Worth) {
        match self.places.get(&key) {
            Some(BlockPlace::Dirty) => {}
            Some(BlockPlace::Clean(index)) => self.clean.overwrite(*index, data),
            None if worth == Worth::IfReadBefore && !self.clean.admits(key) => {}
            None => drop(self.clean.insert(key, data, &mut self.places)),
        }
    }

    /// Drops a clean copy that is no longer what the volume holds.
    pub fn drop_clean(&mut self, key: BlockKey) {
        if let Some(BlockPlace::Clean(index)) = self.places.get(&key).copied() {
            self.places.remove(&key);
            self.clean.remove(index);
        }
    }

    /// The block, if held.
    pub fn get(&mut self, key: BlockKey) -> Option<Held<'_>> {
        self.get_as(key, true)
    }

    /// As `get`; a read that does not count says nothing of whether the block is worth keeping.
    pub fn get_as(&mut self, key: BlockKey, counts: bool) -> Option<Held<'_>> {
        match *self.places.get(&key)? {
            BlockPlace::Clean(index) => Some(Held::Good(self.clean.touch(index, counts), Lsn(0))),
            BlockPlace::Dirty => self.dirty(key).map(|block| match self.is_sound(block) {
                true => Held::Good(&block.data, block.lsn),
                false => Held::Spoilt,
            }),
        }
    }

    fn is_sound(&self, block: &DirtyBlock) -> bool {
        self.credulous || fingerprint(&block.data) == block.fingerprint
    }

    /// Whether the block is still the one of that record, and not as it came.
    pub fn is_spoilt(&self, key: BlockKey, lsn: Lsn) -> bool {
        self.dirty(key).is_some_and(|block| block.lsn == lsn && !self.is_sound(block))
    }

    /// The first dirty block of the stripe that is not as it came.
    pub fn spoilt_of(&self, key: StripeKey) -> Option<BlockKey> {
        let mut blocks = self.stripes.get(&key)?.blocks.iter();
        blocks.find(|(_, block)| !self.is_sound(block)).map(|(number, _)| self.block_key(key, *number))
    }

    /// The bytes of the block's record again.
    pub fn restore(&mut self, key: BlockKey, lsn: Lsn, data: Shared) {
        let (stripe, block) = self.stripe_of(key);
        let held = self.stripes.get_mut(&stripe).and_then(|stripe| stripe.get_mut(block));
        if let Some(held) = held.filter(|held| held.lsn == lsn) {
            *held = DirtyBlock { lsn, fingerprint: fingerprint(&data), data, is_lean: false };
        }
    }

    /// The block's memory is a page that nothing else lies in.
    pub fn note_lean(&mut self, key: BlockKey, lsn: Lsn) {
        let (stripe, block) = self.stripe_of(key);
        let held = self.stripes.get_mut(&stripe).and_then(|stripe| stripe.get_mut(block));
        if let Some(held) = held.filter(|held| held.lsn == lsn) {
            held.is_lean = true;
        }
    }

    /// Inverts a bit of a dirty block, as failing memory does. False where nothing is dirty.
    pub fn spoil(&mut self, which: u64, bit: usize) -> bool {
        let which = which.checked_rem(self.dirty_blocks).unwrap_or(0) as usize;
        let mut dirty = self.stripes.values_mut().flat_map(|stripe| &mut stripe.blocks);
        let Some((_, block)) = dirty.nth(which) else { return false };
        let mut bytes = block.data.to_vec();
        bytes[bit / 8 % BLOCK] ^= 1 << (bit % 8);
        block.data = Shared::from(bytes);
        true
    }

    /// The block was read ahead for this volume. False where hosts have read it more than once,
    /// where the block is marked already, or where it is gone.
    pub fn mark_ahead(&mut self, key: BlockKey, handle: VolumeId) -> bool {
        match self.places.get(&key) {
            Some(BlockPlace::Clean(index)) => self.clean.mark_ahead(*index, handle),
            _ => false,
        }
    }

    /// Bytes that were read ahead for all volumes, and not asked for yet.
    pub fn ahead_waiting(&self) -> u64 {
        self.clean.waiting() * BLOCK as u64
    }

    /// Of the bytes read ahead for the volume: those read since, and those that left unread.
    pub fn ahead_of(&self, handle: VolumeId) -> (u64, u64) {
        self.clean.ahead_of(handle)
    }

    /// Whether the block is held, dirty or clean.
    pub fn holds(&self, key: BlockKey) -> bool {
        self.places.contains_key(&key)
    }

    pub fn dirty(&self, key: BlockKey) -> Option<&DirtyBlock> {
        let (stripe, block) = self.stripe_of(key);
        self.stripes.get(&stripe)?.get(block)
    }

    /// The dirty blocks of a stripe now, in order.
    pub fn dirty_of(&self, stripe: StripeKey) -> Vec<(u32, DirtyBlock)> {
        self.stripes.get(&stripe).map_or_else(Vec::new, |stripe| stripe.blocks.clone())
    }

    pub fn is_dirty(&self, stripe: StripeKey) -> bool {
        self.stripes.contains_key(&stripe)
    }

    pub fn dirty_count(&self, stripe: StripeKey) -> usize {
        self.stripes.get(&stripe).map_or(0, |stripe| stripe.blocks.len())
    }

    /// A destage of `blocks` up to `lsn` is recorded: those not written again become clean, unless
    /// their memory changed meanwhile.
    pub fn settle(&mut self, stripe: StripeKey, lsn: Lsn) {
        for (block, written) in self.take_dirty(stripe, lsn) {
            let key = self.block_key(stripe, block);
            // The clean block is compared, while it is at hand, instead of what it was made of.
            let clean = match written.is_lean {
                true => self.clean.adopt(key, written.data, &mut self.places),
                false => self.clean.insert(key, &written.data, &mut self.places),
            };
            match clean {
                // It stood for the dirty block until now.
                None => drop(self.places.remove(&key)),
                Some(index) if self.credulous || fingerprint(self.clean.page(index)) == written.fingerprint => {}
                Some(_) => self.drop_clean(key),
            }
        }
    }

    /// The dirty blocks up to `lsn` no longer stand for the volume's content: overwritten whole,
    /// zeroed or deleted.
    pub fn drop_dirty(&mut self, stripe: StripeKey, lsn: Lsn) {
        for (block, _) in self.take_dirty(stripe, lsn) {
            let key = self.block_key(stripe, block);
            self.places.remove(&key);
        }
    }

    /// Drops clean and dirty copies (up to `lsn`) of the stripe.
    pub fn drop_stripe(&mut self, stripe: StripeKey, lsn: Lsn) {
        self.drop_dirty(stripe, lsn);
        let per_stripe = self.blocks_per_stripe.get(&stripe.volume).copied().unwrap_or(1);
        for block in 0..per_stripe {
            self.drop_clean(self.block_key(stripe, block));
        }
    }

    fn block_key(&self, stripe: StripeKey, block: u32) -> BlockKey {
        let per_stripe = self.blocks_per_stripe.get(&stripe.volume).copied().unwrap_or(1);
        BlockKey { volume: stripe.volume, block: stripe.stripe * u64::from(per_stripe) + u64::from(block) }
    }

    fn take_dirty(&mut self, key: StripeKey, lsn: Lsn) -> Vec<(u32, DirtyBlock)> {
        let Some(stripe) = self.stripes.get_mut(&key) else { return Vec::new() };
        let mut taken = std::mem::take(&mut stripe.blocks);
        if taken.iter().any(|(_, block)| block.lsn > lsn) {
            (stripe.blocks, taken) = taken.into_iter().partition(|(_, block)| block.lsn > lsn);
        }
        self.dirty_blocks -= taken.len() as u64;
        self.ages.remove(&(stripe.oldest, key));
        match stripe.min_lsn() {
            Some(oldest) => {
                stripe.oldest = oldest;
                self.ages.insert((oldest, key));
            }
            None => drop(self.stripes.remove(&key)),
        }
        taken
    }

    /// The dirty stripes of a volume, in order.
    pub fn dirty_stripes_of(&self, volume: VolumeId) -> Vec<u64> {
        let all = StripeKey { volume, stripe: 0 }..=StripeKey { volume, stripe: u64::MAX };
        self.stripes.range(all).map(|(key, _)| key.stripe).collect()
    }

    /// The stripe's dirty blocks were appended to the log anew: its age is theirs.
    pub fn renew_age(&mut self, key: StripeKey) {
        let Some(stripe) = self.stripes.get_mut(&key) else { return };
        let oldest = stripe.min_lsn().unwrap_or(stripe.oldest);
        self.ages.remove(&(stripe.oldest, key));
        stripe.oldest = oldest;
        self.ages.insert((oldest, key));
    }

    pub fn dirty_bytes(&self) -> u64 {
        self.dirty_blocks * BLOCK as u64
    }

    pub fn dirty_stripes(&self) -> usize {
        self.stripes.len()
    }

    /// The LSN below which no dirty block needs the log.
    pub fn oldest_dirty(&self) -> Option<Lsn> {
        self.ages.first().map(|(lsn, _)| *lsn)
    }

    /// Dirty stripes from `from` on, then from the beginning: the elevator.
    pub fn elevator(&self, from: StripeKey) -> impl Iterator<Item = StripeKey> + '_ {
        let after = self.stripes.range(from..).map(|(key, _)| *key);
        let before = self.stripes.range(..from).map(|(key, _)| *key);
        after.chain(before)
    }

    /// Dirty stripes by age, oldest first.
    pub fn by_age(&self) -> impl Iterator<Item = (Lsn, StripeKey)> + '_ {
        self.ages.iter().copied()
    }

    pub fn clean_bytes(&self) -> u64 {
        self.clean.held() * BLOCK as u64
    }
}

#[cfg(test)]
mod tests;
