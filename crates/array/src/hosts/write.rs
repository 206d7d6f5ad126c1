//! Writes of hosts. Small ones are appended to the log and acknowledged when durable there; whole
//! (or mostly whole) stripes go to a free slot, are flushed, and acknowledged when their mapping is
//! durable in the log.
//!
//! Before anything is promised there is room for it: log space for the record and for the destage
//! it will need, and a slot for a stripe that has none.

use std::rc::Rc;

use stele_codes::Strips;
use stele_ground::{BLOCK, Duration, Instant};
use stele_media::{Buffer, Priority, Shared};

use crate::durable::log::{self, FlushUrgency, Purpose, Reservation};
use crate::durable::records::Record;
use crate::engine::Engine;
use crate::engine::apply::Pages;
use crate::formats::map::{self, Home};
use crate::formats::shape::Shape;
use crate::hosts::gather::Stretch;
use crate::hosts::ordered::parts;
use crate::model::mutation::Mutation;
use crate::model::place::{BlockKey, Lsn, SlotId, StripeKey};
use crate::model::{ArrayError, WriteMode};
use crate::runtime::io::Io;
use crate::runtime::sync::join_all;
use crate::state::redo::StripWrite;
use crate::stripe::allocation::Allocation;
use crate::stripe::digests_of;
use crate::volumes::Volume;
use crate::volumes::gathering::{Part, is_long};
use crate::volumes::handle::VolumeHandle;

/// Bytes of one Write record at most.
pub const WRITE_MAX: usize = 256 << 10;

/// `length` bytes from `from` on, sharing the pieces' memory.
pub fn slice_of(pieces: &[Shared], from: usize, length: usize) -> Vec<Shared> {
    let mut out = Vec::new();
    let (mut skip, mut left) = (from, length);
    for piece in pieces {
        if skip >= piece.len() {
            skip -= piece.len();
            continue;
        }
        let take = (piece.len() - skip).min(left);
        if take > 0 {
            out.push(piece.slice(skip..skip + take));
        }
        skip = 0;
        left -= take;
        if left == 0 {
            break;
        }
    }
    out
}

/// One stretch of shared memory with the pieces' bytes: the piece itself where it is one, else a
/// copy.
pub fn contiguous(io: &Io, mut pieces: Vec<Shared>) -> Shared {
    if pieces.len() == 1
        && let Some(piece) = pieces.pop()
    {
        return piece;
    }
    let mut buffer = io.buffer(pieces.iter().map(Shared::len).sum());
    let mut at = 0;
    for piece in &pieces {
        buffer[at..at + piece.len()].copy_from_slice(piece);
        at += piece.len();
    }
    buffer.freeze()
}

/// All strips of a stripe from those of its data. The copies of a mirror are the same memory.
fn all_strips(io: &Io, shape: &Shape, data: Vec<Shared>) -> Vec<Shared> {
    if shape.code().is_mirror() {
        return data.into_iter().cycle().take(shape.width()).collect();
    }
    let mut parity: Vec<Buffer> = (0..shape.m).map(|_| io.buffer(shape.strip)).collect();
    let sources: Vec<&[u8]> = data.iter().map(|strip| &strip[..]).collect();
    let mut outputs: Vec<&mut [u8]> = parity.iter_mut().map(|buffer| &mut buffer[..]).collect();
    shape.coder.encode(&sources, &mut outputs);
    data.into_iter().chain(parity.into_iter().map(Buffer::freeze)).collect()
}

impl Engine {
    /// Log space that the destage of so many dirty blocks of one stripe may need at worst.
    pub fn destage_cost(&self, shape: &Shape, blocks: usize) -> u64 {
        let columns = blocks.min(shape.strip_blocks());
        let images = if shape.code().is_mirror() { 0 } else { columns * shape.m * (BLOCK + 12) };
        let listed = blocks * 12 * shape.width().min(1 + shape.m) + (blocks + columns * shape.m) * 12;
        let redo = 64 + images + listed;
        let map = 64 + 4 * shape.digests();
        self.log.cost_of(redo.max(map))
    }

    /// Writes; the range was checked against the volume's size. Answers when durable as the
    /// volume's mode says.
    pub async fn write_host(
        self: &Rc<Self>,
        volume: &Rc<Volume>,
        at: u64,
        data: Vec<Shared>,
    ) -> Result<(), ArrayError> {
        self.check_writable()?;
        let length: usize = data.iter().map(Shared::len).sum();
        let handle = volume.handle().filter(|_| is_long(length, volume.shape.data() as usize));
        let next = at + length as u64;
        let gathers = handle
            .as_deref()
            .map(|handle| (handle, Stretch { in_order: handle.gathering.note(at, length as u64), next }));
        let mut parts = parts(volume, at, data);
        if parts.len() == 1
            && let Some(part) = parts.pop()
        {
            return self.write_part(volume, part, gathers).await;
        }
        let writes = parts.into_iter().map(|part| self.write_part(volume, part, gathers));
        join_all(writes).await.into_iter().collect()
    }

    async fn write_part(
        self: &Rc<Self>,
        volume: &Rc<Volume>,
        part: Part,
        gathers: Option<(&VolumeHandle, Stretch)>,
    ) -> Result<(), ArrayError> {
        let (at, length) = (part.at, part.length as u64);
        let _under_way = gathers.map(|(handle, _)| handle.gathering.begin());
        if let Some((handle, stretch)) = gathers
            && Box::pin(self.gather(volume, handle, &part, stretch)).await?
        {
            return Ok(());
        }
        let Some(newest) = self.place_part(volume, part, FlushUrgency::Now).await? else { return Ok(()) };
        match volume.mode() {
            WriteMode::Volatile => Ok(()),
            // Durable in the log on all its members: the group's flushes are behind this.
            WriteMode::WriteBack => self.log.durable(newest).await,
            WriteMode::WriteThrough => {
                self.log.durable(newest).await?;
                // Destage answers after the strips' own flushes.
                Box::pin(self.destage_range(volume, at, length)).await
            }
        }
    }

    /// Gives a part its place: in a slot, where it is durable when this answers none, or in the
    /// log, as far as the LSN.
    pub async fn place_part(
        self: &Rc<Self>,
        volume: &Rc<Volume>,
        part: Part,
        urgency: FlushUrgency,
    ) -> Result<Option<Lsn>, ArrayError> {
        let Part { at, data, length } = part;
        let stripe_bytes = volume.shape.data();
        let (stripe, inside) = (at / stripe_bytes, (at % stripe_bytes) as usize);
        // Where the volume ends within its last stripe, that end counts as the stripe's.
        let whole = stripe_bytes.min(volume.size() - stripe * stripe_bytes) as usize;
        let aligned = inside.is_multiple_of(BLOCK) && length.is_multiple_of(BLOCK);
        let mostly = length == whole || (length * 2 >= whole && length >= 32 * BLOCK);
        if aligned && mostly && !(volume.stays_in_place() && self.is_mapped(volume, stripe).await?) {
            // The data is durable in its slot, and the mapping in the log, when this answers true.
            if Box::pin(self.write_stripe(volume, stripe, inside, &data, length)).await? {
                return Ok(None);
            }
        }
        self.write_small(volume, at, data, length, urgency).await.map(Some)
    }

    async fn is_mapped(&self, volume: &Volume, stripe: u64) -> Result<bool, ArrayError> {
        Ok(matches!(self.home(StripeKey { volume: volume.id, stripe }).await?, Home::Slot(_)))
    }

    /// Through the log: copies the data once, appends it, and leaves it dirty. Answers the newest
    /// LSN.
    pub async fn write_small(
        self: &Rc<Self>,
        volume: &Rc<Volume>,
        at: u64,
        data: Vec<Shared>,
        length: usize,
        urgency: FlushUrgency,
    ) -> Result<Lsn, ArrayError> {
        let block = BLOCK as u64;
        if !at.is_multiple_of(block) || !length.is_multiple_of(BLOCK) {
            return Box::pin(self.write_unaligned(volume, at, data, length)).await;
        }
        let mut newest = Lsn(0);
        let copy = self.copied(&data, length);
        for from in (0..length).step_by(WRITE_MAX) {
            let piece = copy.slice(from..length.min(from + WRITE_MAX));
            newest = self.append_write(volume, at + from as u64, piece, urgency).await?;
        }
        if length == BLOCK {
            let key = BlockKey { volume: volume.id, block: at / block };
            self.step(|core| core.cache.note_lean(key, newest));
        }
        Ok(newest)
    }

    /// The host's data in memory of our own, where it stays while it is dirty. The log copies it
    /// once more.
    pub fn copied(&self, data: &[Shared], length: usize) -> Shared {
        let mut copy = self.io.buffer(length);
        let mut filled = 0;
        for piece in data {
            copy[filled..filled + piece.len()].copy_from_slice(piece);
            filled += piece.len();
        }
        self.count.copied.add(2 * length as u64);
        copy.freeze()
    }

    /// Appends whole blocks of one stripe to the log and the dirty cache.
    async fn append_write(
        &self,
        volume: &Rc<Volume>,
        at: u64,
        data: Shared,
        urgency: FlushUrgency,
    ) -> Result<Lsn, ArrayError> {
        let blocks = data.len() / BLOCK;
        let record = Record::Write { volume: volume.id, at, data: vec![data] };
        self.append_small(volume, at / volume.shape.data(), record, blocks, urgency).await
    }

    /// Appends a record that makes so many blocks of the stripe dirty, when there is room for it
    /// and all it entails.
    pub async fn append_small(
        &self,
        volume: &Rc<Volume>,
        stripe: u64,
        record: Record,
        blocks: usize,
        urgency: FlushUrgency,
    ) -> Result<Lsn, ArrayError> {
        let key = StripeKey { volume: volume.id, stripe };
        self.check_can_wait(volume, stripe)?;
        self.wait_for_room(blocks * BLOCK).await?;
        let cost = self.log.cost(&record) + self.destage_cost(&volume.shape, blocks);
        let mut reservation = match self.log.try_reserve(cost, Purpose::Host) {
            Some(reservation) => reservation,
            None => Box::pin(self.reserve_for_host(cost)).await?,
        };
        self.admit(volume, stripe).await?;
        // One synchronous step: append, and dirty in the cache.
        let lsn = self.append_with(&record, &Pages::default(), &mut reservation, urgency);
        self.keep_destage_reservation(volume, key, reservation);
        Ok(lsn)
    }

    /// Waits for log space, but not where nothing can make any.
    pub async fn reserve_for_host(&self, cost: u64) -> Result<Reservation, ArrayError> {
        let since = self.io.now();
        let _first = self.admission.reservation_line().await;
        loop {
            self.check_writable()?;
            let changed = self.admission.room_made();
            if let Some(reservation) = self.log.try_reserve(cost, Purpose::Host) {
                return Ok(reservation);
            }
            if let Some(error) = self.hopeless() {
                return Err(error);
            }
            self.destaging.want();
            let reserve = self.log.reserve_since(cost, Purpose::Host, since, log::PATIENCE);
            let sleep = self.io.sleep(Duration::from_millis(100));
            futures_util::pin_mut!(reserve, sleep, changed);
            let other = futures_util::future::select(sleep, changed);
            if let futures_util::future::Either::Left((reservation, _)) =
                futures_util::future::select(reserve, other).await
            {
                return reservation;
            }
        }
    }

    /// Keeps log space for the stripe's destage, no more than it can need.
    pub fn keep_destage_reservation(&self, volume: &Volume, key: StripeKey, mut reservation: Reservation) {
        self.step(|core| {
            let need = self.destage_cost(&volume.shape, core.cache.dirty_count(key));
            if let Some(held) = core.destage_reservations.remove(&key) {
                reservation.merge(held);
            }
            if reservation.bytes() > need {
                drop(reservation.split(reservation.bytes() - need));
            }
            core.destage_reservations.insert(key, reservation);
        });
        // The flow sleeps without a timer while nothing is dirty.
        if self.presses() || self.look(|core| core.cache.dirty_stripes()) == 1 {
            self.destaging.want();
        }
    }

    /// Log space kept for blocks that are dirty no more flows back.
    pub fn trim_destage_reservation(&self, volume: &Volume, stripe: u64) {
        let key = StripeKey { volume: volume.id, stripe };
        self.step(|core| match core.cache.dirty_count(key) {
            0 => drop(core.destage_reservations.remove(&key)),
            dirty => {
                if let Some(reservation) = core.destage_reservations.get_mut(&key) {
                    reservation.shrink_to(self.destage_cost(&volume.shape, dirty));
                }
            }
        });
    }

    /// Waits while the dirty blocks are at their limit.
    pub async fn wait_for_room(&self, bytes: usize) -> Result<(), ArrayError> {
        let since = self.io.now();
        let _first = self.admission.room_line().await;
        loop {
            self.check_writable()?;
            let changed = self.admission.room_made();
            if self.has_room(bytes) {
                return Ok(());
            }
            if self.out_of_patience(since) {
                return Err(ArrayError::Degraded(
                    "nothing was destaged for a while, and the dirty blocks are at their limit; see the alarms, and bring \
                     missing drives back"
                        .into(),
                ));
            }
            self.destaging.want();
            let sleep = self.io.sleep(Duration::from_millis(1000));
            futures_util::pin_mut!(sleep, changed);
            futures_util::future::select(sleep, changed).await;
        }
    }

    /// What cannot be destaged for now does not count: it has a limit of its own.
    pub fn has_room(&self, bytes: usize) -> bool {
        let (dirty, limit) = (self.look(|core| core.cache.dirty_bytes()), self.limits.dirty.0);
        if dirty == 0 || dirty + bytes as u64 <= limit {
            return true;
        }
        let open = dirty - self.stuck_bytes();
        open == 0 || open + bytes as u64 <= limit
    }

    /// Nothing was destaged since then, for longer than anybody waits.
    pub fn out_of_patience(&self, since: Instant) -> bool {
        self.io.now().since(since.max(self.destaging.settled_at())) >= log::PATIENCE
    }

    /// The stripe can take a write: it has a slot, or is promised one, and enough of its drives
    /// answer. After the answer nothing may be awaited before the append.
    pub async fn admit(&self, volume: &Rc<Volume>, stripe: u64) -> Result<(), ArrayError> {
        // Promising may wait for a new row; then look again.
        while !self.admits(volume, stripe).await? {
            Box::pin(self.promise_slot(volume, stripe)).await?;
        }
        Ok(())
    }

    /// As `admit`, but false where a slot has to be promised first.
    pub async fn admits(&self, volume: &Rc<Volume>, stripe: u64) -> Result<bool, ArrayError> {
        let key = StripeKey { volume: volume.id, stripe };
        self.check_writable()?;
        if volume.base().is_some()
            && let Some(slot) = Box::pin(self.found(volume, stripe)).await?.slot()
        {
            self.check_answering(volume, stripe, slot)?;
        }
        let (page, at) = self.map_page(key).await?;
        volume.check_stays()?;
        match page.read(|bytes| map::get(bytes, at)) {
            Home::Slot(slot) => self.check_answering(volume, stripe, slot).map(|()| true),
            Home::Unmapped | Home::Zero => {
                Ok(volume.spec().fully_allocated || self.look(|core| core.promised.contains(&key)))
            }
        }
    }

    /// Refuses a partial write to a stripe of which fewer than k strips answer: it could not be
    /// destaged.
    pub fn check_answering(&self, volume: &Volume, stripe: u64, slot: SlotId) -> Result<(), ArrayError> {
        let layout = self.layout.read();
        let Some(row) = layout.row(slot.row) else {
            return Err(ArrayError::Damaged(format!("{slot} of volume '{}' is in no row", volume.name())));
        };
        let answers = |member: &&crate::space::layout::Member| {
            self.drives.index(member.cell.drive).is_some()
                || member.replacement.is_some_and(|cell| self.drives.index(cell.drive).is_some())
        };
        if row.members.iter().filter(answers).count() < volume.shape.k {
            return Err(ArrayError::Degraded(format!(
                "volume '{}': fewer than {} strips of stripe {stripe} at offset {} answer; bring missing drives back",
                volume.name(),
                volume.shape.k,
                stripe * volume.shape.data()
            )));
        }
        Ok(())
    }

    /// Writes a stripe to a free slot, merging in what the host did not write. False when there is
    /// no slot to spare for it, or the rest cannot be read: the log takes it then.
    pub async fn write_stripe(
        self: &Rc<Self>,
        volume: &Rc<Volume>,
        stripe: u64,
        inside: usize,
        data: &[Shared],
        length: usize,
    ) -> Result<bool, ArrayError> {
        let key = StripeKey { volume: volume.id, stripe };
        let _guard = self.locks.exclusive(volume.id, stripe).await;
        self.check_writable()?;
        volume.check_stays()?;
        // Writes that come while this one is under way are newer or beside it: they stay dirty over
        // it.
        let covers = Lsn(self.log.next_lsn().0 - 1);
        let stripe_bytes = volume.shape.data() as usize;
        let mut pieces = data.to_vec();
        if length < stripe_bytes {
            let Some((before, after)) = self.read_rest(volume, stripe, inside, length).await else { return Ok(false) };
            pieces = before.into_iter().chain(pieces).chain(after).collect();
        }
        let home = self.home(key).await?;
        let entitled = !matches!(home, Home::Slot(_))
            && (volume.spec().fully_allocated || self.look(|core| core.promised.contains(&key)));
        let Some(allocation) = self.allocate(volume, stripe, entitled).await? else {
            return match home {
                Home::Slot(_) => Ok(false),
                Home::Unmapped | Home::Zero => Err(self.full(volume)),
            };
        };
        self.count.full_stripes.add(1);
        let old = match home {
            Home::Slot(slot) => Some(slot),
            Home::Unmapped | Home::Zero => None,
        };
        let written = self.fill_slot(volume, stripe, allocation, old, covers, &pieces).await;
        if written.is_err() {
            self.abandon(allocation);
        }
        let lsn = match written {
            // What some drive missed cannot be recorded: nothing may rest on the slot.
            Err(ArrayError::Degraded(_)) if !self.drives.behind_unsettled().is_empty() => return Ok(false),
            written => written?,
        };
        // Durable: the strips by their own flushes, the mapping by the group's.
        self.settle_map(key, lsn, old).await?;
        Ok(true)
    }

    /// What a mostly whole write leaves out of its stripe, before and after it.
    async fn read_rest(
        self: &Rc<Self>,
        volume: &Rc<Volume>,
        stripe: u64,
        inside: usize,
        length: usize,
    ) -> Option<(Option<Shared>, Option<Shared>)> {
        let stripe_bytes = volume.shape.data() as usize;
        let mut rest = [None, None];
        for (side, range) in [0..inside, inside + length..stripe_bytes].into_iter().enumerate() {
            if range.is_empty() {
                continue;
            }
            let mut buffer = Buffer::zeroed(range.len());
            self.read_locked(volume, stripe, (range.start / BLOCK) as u32, &mut buffer).await.ok()?;
            rest[side] = Some(buffer.freeze());
        }
        let [before, after] = rest;
        Some((before, after))
    }

    /// Encodes a whole stripe, writes it into the allocated slot, flushes, and maps it. Answers the
    /// LSN of the mapping; the allocation is used up then. The stripe's lock is held.
    pub async fn fill_slot(
        self: &Rc<Self>,
        volume: &Rc<Volume>,
        stripe: u64,
        allocation: Allocation,
        old: Option<SlotId>,
        covers: Lsn,
        pieces: &[Shared],
    ) -> Result<Lsn, ArrayError> {
        let shape = Rc::clone(&volume.shape);
        let binding = self.binding(allocation.slot, allocation.generation);
        let strips: Vec<Shared> = (0..shape.k)
            .map(|strip| contiguous(&self.io, slice_of(pieces, strip * shape.strip, shape.strip)))
            .collect();
        let strips = all_strips(&self.io, &shape, strips);
        let digests = digests_of(binding, &shape, &strips);
        let writes =
            strips.into_iter().enumerate().map(|(strip, data)| StripWrite { strip, at: 0, data: vec![data] }).collect();
        self.store_slot(volume, stripe, allocation, old, covers, digests, writes, Priority::Host).await
    }

    /// Writes strips of an allocated slot, flushes them and appends the mapping.
    #[allow(clippy::too_many_arguments)]
    pub async fn store_slot(
        self: &Rc<Self>,
        volume: &Rc<Volume>,
        stripe: u64,
        allocation: Allocation,
        old: Option<SlotId>,
        covers: Lsn,
        digests: Vec<u32>,
        writes: Vec<StripWrite>,
        priority: Priority,
    ) -> Result<Lsn, ArrayError> {
        let shape = &volume.shape;
        let mut target = crate::stripe::Stripe {
            volume: volume.id,
            stripe,
            slot: allocation.slot,
            generation: allocation.generation,
            shape: Rc::clone(shape),
            places: self.places(shape, allocation.slot, self.layout.read().fresh_exceptions(allocation.slot.row)),
            digests: Vec::new(),
            binding: self.binding(allocation.slot, allocation.generation),
        };
        let touched = Strips::of(writes.iter().map(|write| write.strip));
        let key = StripeKey { volume: volume.id, stripe };
        let mut reservation = self.room_while_held(key, self.log.cost_of(64 + 4 * shape.digests())).await?;
        let record = Record::Map {
            volume: volume.id,
            stripe,
            slot: allocation.slot,
            generation: allocation.generation,
            old,
            covers,
            kind: target.binding.kind(),
            digests,
        };
        let pages = loop {
            let since = self.drives.labels.attachments();
            let unwritten = self.write_strips(&target, writes.clone(), priority).await;
            let unflushed = match self.io.is_disabled(Mutation::SlotFlush) {
                true => Strips::NONE,
                false => self.flush_strips(&target, touched.without(unwritten), since).await,
            };
            let failed = Strips::of(unwritten.iter().chain(unflushed.iter()));
            if failed.len() > shape.m {
                return Err(ArrayError::Degraded(format!(
                    "volume '{}': only {} of {} strips of stripe {stripe} could be written; bring missing drives back",
                    volume.name(),
                    shape.width() - failed.len(),
                    shape.width()
                )));
            }
            if !failed.is_empty() {
                self.note_missed(&target, failed).await?;
            }
            let pages = self.pages_for(&record).await?;
            // A rebuild may have given the row other cells meanwhile: then the strips lie in the
            // wrong ones. Nothing is awaited from here to the append.
            let places = self.places(shape, allocation.slot, self.layout.read().fresh_exceptions(allocation.slot.row));
            if places == target.places {
                break pages;
            }
            target.places = places;
        };
        if volume.was_deleted() {
            return Err(ArrayError::Missing(format!("volume '{}' was deleted", volume.name())));
        }
        if let Some(old) = old {
            // Held back from reuse until the mapping is durable (invariant 5).
            self.step(|core| core.space.hold(old));
        }
        let lsn = self.append(&record, &pages, &mut reservation);
        self.trim_destage_reservation(volume, stripe);
        self.step(|core| core.space.let_go(allocation.slot));
        self.step(|core| core.unsettled.insert(key, lsn));
        self.admission.make_room();
        Ok(lsn)
    }

    /// Waits until a mapping is durable; then readers need not wait any more and the old slot is
    /// free.
    pub async fn settle_map(&self, key: StripeKey, lsn: Lsn, old: Option<SlotId>) -> Result<(), ArrayError> {
        if !self.io.is_disabled(Mutation::SlotReuse) {
            self.log.durable(lsn).await?;
            assert!(self.log.durable_lsn() >= lsn, "invariant 2: a mapping is shown to readers before it is durable");
        }
        self.step(|core| {
            if core.unsettled.get(&key) == Some(&lsn) {
                core.unsettled.remove(&key);
            }
        });
        if let Some(old) = old {
            self.step(|core| core.space.let_go(old));
        }
        Ok(())
    }
}
