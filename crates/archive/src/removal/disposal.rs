//! The second half of a removal: the key is destroyed, its slot is freed, and the rows of long
//! content are cleared.
//!
//! The removal's transaction left a disposal row. The row goes, and the slot becomes free, only
//! when the entry is zeros, durably. Work that is dropped midway is queued again. Work of an
//! earlier session is found by its rows. Entries that cannot be overwritten are set aside, tried
//! again later, and delay no others.

use stele_catalog::{Direction, KeyRange, Transaction};

use crate::audit::Event;
use crate::evidence::disposal::DESTROYED;
use crate::model::action::Action;
use crate::model::alarm::{Alarm, AlarmKind};
use crate::model::error::{ArchiveError, Result};
use crate::model::principal::Caller;
use crate::record::content::{Content, ExtentList, Place, Stream};
use crate::record::disposal::{Certified, DisposalRow};
use crate::record::part::PartRow;
use crate::record::tombstone::TombstoneRow;
use crate::record::version::VersionRef;
use crate::record::{DISPOSALS, EXTENTS, FREE_SLOTS, LAYOUTS, PARTS, decode, keys};
use crate::removal::Removed;
use crate::space::header::Kind;
use crate::space::keytable::Changed;
use crate::space::places::{piece_length, places};
use crate::state::buckets::Bucket;
use crate::state::disposals::{SlotOf, Stuck};
use crate::store::Store;

/// Disposals that are worth a transaction of their own.
const SETTLE: usize = 64;
/// Disposals in one transaction at most: each may have an audit record with a long name.
const SETTLE_MAX: usize = 1024;
const CLEAR_PAGE: usize = 500;

/// Content of parts that one transaction takes out of the catalog.
#[derive(Default)]
pub(crate) struct Cleared {
    streams: Vec<u64>,
    places: Vec<Place>,
    /// Rows of extents that go with the transaction, about `CLEAR_PAGE` at most.
    rows: usize,
    /// Streams with further rows, which background work clears.
    later: Vec<Stream>,
}

impl Store {
    pub(crate) fn disposal_alarm(&self) -> Option<Alarm> {
        let Stuck { slot, object, reason, count } = self.disposals().first_stuck()?;
        let message = format!(
            "keys of {count} deleted versions are not destroyed yet, the first that of object {object} in slot {slot}: {reason}; \
             tried again every few minutes, repair the pool"
        );
        Some(Alarm::new(AlarmKind::Disposal, message))
    }

    /// Notes a certificate on the data volume, for a rebuild. Without room for the note the removal
    /// proceeds all the same, because removals make room. The catalog has the certificate, and the
    /// note follows later.
    pub async fn note_tombstone(&self, bucket: &Bucket, at: VersionRef, row: TombstoneRow) -> Result<()> {
        let note = (at, row);
        // The version is there, so an earlier removal was refused. Its certificate would be noted
        // behind this one, and a rebuild would take it.
        self.disposals().drop_refused(note.1.object);
        match self.note(Kind::Tombstone, Some(bucket), note.1.object, &note).await {
            Ok(place) => self.segments().add_kept(place),
            Err(ArchiveError::NoSpace(_)) => self.disposals().add_certificate(note.0, note.1),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Notes the certificates for which there was no room.
    pub async fn note_left_tombstones(&self) -> Result<()> {
        loop {
            let Some(note) = self.disposals().next_certificate() else { return Ok(()) };
            if let Some(bucket) = self.buckets().by_number(note.0.bucket) {
                match self.note(Kind::Tombstone, Some(&bucket), note.1.object, &note).await {
                    Ok(place) => self.segments().add_kept(place),
                    Err(ArchiveError::NoSpace(_)) => return Ok(()),
                    Err(error) => return Err(error),
                }
            }
            self.disposals().drop_certificate(&note.1);
        }
    }

    /// The second half: starts to destroy the key. That completes the disposal of short content;
    /// `finish_disposals` clears long content. Returns the change that the removal waits for before
    /// it is acknowledged.
    pub fn dispose(&self, removed: Removed) -> Option<Changed> {
        let Removed { slot, disposal, wait } = removed;
        self.caches().forget_object_key(disposal.object);
        if let Content::Stream(stream) = &disposal.content {
            self.caches().forget_frame(stream.number);
            self.caches().forget_pieces(stream.number);
        }
        let destroyed = self.keys().destroy(slot, disposal.object);
        if is_short(&disposal.content) {
            self.drop_short(&disposal);
            self.disposals().add_slot(SlotOf { slot, object: disposal.object, certified: disposal.certified });
        } else {
            self.disposals().add_long(slot, disposal);
        }
        wait.then_some(destroyed)
    }

    /// Takes the extents of a part out of the catalog, in the transaction that takes the part's row
    /// out. Under the lock of the upload's key, so that reclamation moves none of them meanwhile.
    pub fn clear_within(
        &self,
        mut transaction: Transaction,
        stream: Stream,
        note: Place,
        cleared: &mut Cleared,
    ) -> Result<Transaction> {
        cleared.streams.push(stream.number);
        if let Some(extents) = &stream.extents {
            cleared.places.extend(places(&note, extents));
            return Ok(transaction);
        }
        cleared.places.extend(places(&note, &[]));
        if cleared.rows >= CLEAR_PAGE {
            cleared.later.push(stream);
            return Ok(transaction);
        }
        let range = KeyRange::prefix(keys::number(stream.number));
        let page = self.snapshot()?.range(EXTENTS, &range, CLEAR_PAGE, Direction::Forward)?;
        for (key, value) in &page {
            let list: ExtentList = decode(EXTENTS, key, value)?;
            cleared.places.extend(places(&Place::default(), &list.extents));
            transaction = transaction.delete(EXTENTS, key.clone());
        }
        cleared.rows += page.len();
        if page.len() == CLEAR_PAGE {
            cleared.later.push(stream);
        }
        Ok(transaction)
    }

    /// The transaction took place: what it took out is not needed any more.
    pub fn cleared(&self, cleared: Cleared) {
        cleared.streams.into_iter().for_each(|stream| self.caches().forget_pieces(stream));
        cleared.places.into_iter().for_each(|place| self.segments().drop_live(place));
        cleared.later.into_iter().for_each(|stream| self.disposals().add_stream(stream));
    }

    fn drop_short(&self, disposal: &DisposalRow) {
        let extents = match &disposal.content {
            Content::Stream(Stream { extents: Some(extents), .. }) => extents.as_slice(),
            _ => &[],
        };
        places(&disposal.note, extents).into_iter().for_each(|place| self.segments().drop_live(place));
    }

    /// Settles short disposals once there are enough of them, behind the commit of a request. That
    /// is complete, whatever becomes of the slots of others. Background work tries them again.
    pub async fn settle_due(&self) -> Result<()> {
        if self.disposals().slots() < SETTLE {
            return Ok(());
        }
        match self.settle(Due::short(self)).await {
            Err(error @ ArchiveError::Stopped(_)) => return Err(error),
            Err(error) => tracing::warn!("slots of destroyed keys are not free yet: {error}"),
            Ok(_) => {}
        }
        Ok(())
    }

    /// Frees the slots of removed versions: first zeros over their entries, then the catalog's
    /// rows, then their use. Slots whose entries cannot be overwritten are set aside for later.
    /// Returns how many became free.
    async fn settle(&self, mut due: Due<'_>) -> Result<usize> {
        // Some removals did not wait for their zeros. Writing them again shows that all are
        // durable.
        let changes: Vec<Changed> =
            due.slots.iter().map(|entry| self.keys().destroy(entry.slot, entry.object)).collect();
        let mut stuck = Vec::new();
        for (change, entry) in changes.into_iter().zip(due.slots.clone()) {
            match change.await {
                Ok(()) => {}
                Err(error @ (ArchiveError::Damaged { .. } | ArchiveError::NoSpace(_))) => {
                    stuck.push((entry, error.to_string()));
                }
                Err(error) => return Err(error),
            }
        }
        if !stuck.is_empty() {
            due.slots.retain(|entry| stuck.iter().all(|(other, _)| other.slot != entry.slot));
            for (SlotOf { object, .. }, reason) in &stuck {
                tracing::warn!("the key of object {object} is not destroyed yet: {reason}");
            }
            self.disposals().set_aside(stuck);
        }
        if due.slots.is_empty() {
            return Ok(0);
        }
        let transaction = due.slots.iter().fold(Transaction::new().with_reserve(), |transaction, entry| {
            let slot = keys::number(entry.slot);
            let transaction = transaction.delete(DISPOSALS, slot.clone()).put(FREE_SLOTS, slot, bytes::Bytes::new());
            match &entry.certified {
                Some(certified) => self.with_record(transaction, destroyed(certified)),
                None => transaction,
            }
        });
        // A reader that had the entry before its zeros may have put the key into memory again.
        due.slots.iter().for_each(|entry| self.caches().forget_object_key(entry.object));
        // The record says that the key is destroyed: its zeros are durable by now.
        self.catalog().commit(transaction).await?;
        let slots = std::mem::take(&mut due.slots);
        let count = slots.len();
        self.keys().offer(slots.into_iter().map(|entry| entry.slot));
        Ok(count)
    }

    /// Finishes up to `limit` disposals of this session. Returns how many.
    pub async fn finish_disposals(&self, limit: usize) -> Result<usize> {
        let mut done = 0;
        while done < limit && self.disposals().slots() > 0 {
            done += self.settle(Due::short(self)).await?.max(1);
        }
        while done < limit {
            let Some(long) = Long::next(self) else { break };
            self.clear(&long.disposal).await?;
            long.cleared();
            self.settle(Due::short(self)).await?;
            done += 1;
        }
        while done < limit {
            let Some(stream) = self.disposals().next_stream() else { break };
            self.clear_stream(&stream).await?;
            self.disposals().drop_stream(stream.number);
            done += 1;
        }
        Ok(done)
    }

    /// Finishes the disposals of earlier sessions. Only during an opening.
    pub async fn finish_left_disposals(&self) -> Result<()> {
        let mut range = KeyRange::all();
        loop {
            let page = self.snapshot()?.range(DISPOSALS, &range, SETTLE, Direction::Forward)?;
            let Some((last, _)) = page.last() else { return Ok(()) };
            range = KeyRange::all().after(last.clone());
            for (key, value) in &page {
                let disposal: DisposalRow = decode(DISPOSALS, key, value)?;
                if is_short(&disposal.content) {
                    self.drop_short(&disposal);
                } else {
                    self.clear(&disposal).await?;
                }
                let slot = key.as_ref().try_into().map_or(u64::MAX, u64::from_be_bytes);
                let (object, certified) = (disposal.object, disposal.certified);
                self.disposals().add_slot(SlotOf { slot, object, certified });
            }
            self.settle(Due::short(self)).await?;
        }
    }

    /// Clears the rows of long content, a bounded number in each transaction.
    async fn clear(&self, disposal: &DisposalRow) -> Result<()> {
        match &disposal.content {
            Content::None => {}
            Content::Stream(stream) => self.clear_stream(stream).await?,
            Content::Parts => loop {
                let snapshot = self.snapshot()?;
                let range = KeyRange::prefix(keys::number(disposal.object));
                let page = snapshot.range(PARTS, &range, CLEAR_PAGE, Direction::Forward)?;
                if page.is_empty() {
                    break;
                }
                let mut transaction = Transaction::new().with_reserve();
                let mut freed = Vec::new();
                for (key, value) in &page {
                    let part: PartRow = decode(PARTS, key, value)?;
                    match &part.stream.extents {
                        Some(extents) => freed.extend(places(&part.note, extents)),
                        None => {
                            self.clear_stream(&part.stream).await?;
                            freed.push(part.note);
                        }
                    }
                    transaction = transaction.delete(PARTS, key.clone());
                }
                transaction = transaction.delete(LAYOUTS, keys::number(disposal.object));
                self.catalog().commit(transaction).await?;
                freed.into_iter().for_each(|place| self.segments().drop_live(place));
            },
        }
        self.segments().drop_live(disposal.note);
        Ok(())
    }

    pub async fn clear_stream(&self, stream: &Stream) -> Result<()> {
        if let Some(extents) = &stream.extents {
            places(&Place::default(), extents).into_iter().for_each(|place| self.segments().drop_live(place));
            return Ok(());
        }
        loop {
            let snapshot = self.snapshot()?;
            let range = KeyRange::prefix(keys::number(stream.number));
            let page = snapshot.range(EXTENTS, &range, CLEAR_PAGE, Direction::Forward)?;
            if page.is_empty() {
                return Ok(());
            }
            let mut transaction = Transaction::new().with_reserve();
            let mut freed = Vec::new();
            for (key, value) in &page {
                let list: ExtentList = decode(EXTENTS, key, value)?;
                freed.extend(list.extents);
                transaction = transaction.delete(EXTENTS, key.clone());
            }
            self.catalog().commit(transaction).await?;
            for extent in freed {
                let length = piece_length(&extent);
                self.segments().drop_live(Place { segment: extent.segment, at: extent.at, length });
            }
        }
    }
}

/// The record of a destroyed key.
fn destroyed(certified: &Certified) -> Event {
    Event::new(&Caller::system("disposal"), Action::Dispose)
        .object(&certified.bucket, &certified.key)
        .named_version(&certified.version)
        .detail(format!("{DESTROYED}{}", certified.says))
}

/// Slots being freed. Those that are not freed when this is dropped are queued again.
struct Due<'a> {
    store: &'a Store,
    slots: Vec<SlotOf>,
}

impl<'a> Due<'a> {
    fn short(store: &'a Store) -> Due<'a> {
        let slots = store.disposals().take_slots(SETTLE_MAX);
        Due { store, slots }
    }
}

impl Drop for Due<'_> {
    fn drop(&mut self) {
        self.store.disposals().give_back_slots(std::mem::take(&mut self.slots));
    }
}

/// A disposal of long content being cleared. If it is not cleared when this is dropped, it is
/// queued again.
struct Long<'a> {
    store: &'a Store,
    slot: u64,
    disposal: DisposalRow,
    cleared: bool,
}

impl<'a> Long<'a> {
    fn next(store: &'a Store) -> Option<Long<'a>> {
        let (slot, disposal) = store.disposals().take_long()?;
        Some(Long { store, slot, disposal, cleared: false })
    }

    fn cleared(mut self) {
        self.cleared = true;
        let (object, certified) = (self.disposal.object, self.disposal.certified.take());
        self.store.disposals().add_slot(SlotOf { slot: self.slot, object, certified });
    }
}

impl Drop for Long<'_> {
    fn drop(&mut self) {
        if !self.cleared {
            self.store.disposals().add_long(self.slot, self.disposal.clone());
        }
    }
}

/// Whether the version's row has all its places.
fn is_short(content: &Content) -> bool {
    match content {
        Content::None => true,
        Content::Stream(stream) => stream.extents.is_some(),
        Content::Parts => false,
    }
}
