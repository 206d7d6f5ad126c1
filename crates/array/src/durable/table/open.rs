//! Opening the table: the newest anchor whose directory is whole.

use futures_util::stream::{self, StreamExt};
use stele_ground::{Bytes, Duration};

use super::directory::{CHUNK, CHUNK_TABLE, Entry, INDEX, INDEX_TABLE, decode_chunk, decode_index};
use super::{Store, Table};
use crate::drives::label::{ASK_AGAIN, ATTACHED_PATIENCE, Labels};
use crate::durable::anchor::{self, Anchor, Shown};
use crate::durable::log::LogPosition;
use crate::model::ArrayError;
use crate::model::mutation::Mutation;
use crate::model::place::{Lsn, PageId};
use crate::runtime::io::Io;
use crate::runtime::sync::join_all;
use crate::space::layout::SharedLayout;

/// Directory pages read at once, for each drive: a hard drive serves those first that are near.
const AT_ONCE: usize = 32;
/// The newest checkpoint is read so many times before an older one is taken for it.
const ATTEMPTS: u32 = 3;

/// What the anchor that was opened says.
#[derive(Clone, Debug)]
pub struct Opened {
    pub sequence: u64,
    /// Pages hold every change below this record, and none of it or later.
    pub cut: Lsn,
    /// Replay from here.
    pub replay: LogPosition,
    /// What the engine handed to `begin_checkpoint`.
    pub root: Vec<u8>,
}

fn newer(format: u32) -> ArrayError {
    ArrayError::Refused(format!(
        "a checkpoint of this pool has format {format}, and this version of Stele reads up to {}; open the pool with the \
         version that wrote it",
        anchor::FORMAT
    ))
}

fn absent_voters(labels: &Labels) -> usize {
    let voters = labels.configuration().drives.iter().filter(|entry| entry.state.votes()).count();
    voters.saturating_sub(labels.usable().len())
}

/// Voters are absent, and no operator accepted to write without them.
fn lacks_voters(labels: &Labels) -> bool {
    absent_voters(labels) > 0 && !labels.overridden()
}

/// What the usable drives show of their anchors. The newest is on m + 1 drives. Where as many are
/// away or do not give a slot, those that are here are asked again: an error may pass. Where as
/// many do not give it for long, the pool is not opened: going on from an older anchor would write
/// over the newest.
async fn shown(io: &Io, labels: &Labels, read_only: bool) -> Result<Vec<Shown>, ArrayError> {
    let (pool, begun) = (labels.configuration().pool, io.now());
    loop {
        let usable = labels.usable();
        let reads = usable.iter().filter_map(|drive| labels.index(*drive)).map(|index| anchor::read(io, index, pool));
        let shown = join_all(reads).await;
        let unread = shown.iter().filter(|shown| shown.unread.is_some()).count();
        let Some(error) = shown.iter().find_map(|shown| shown.unread.as_deref()) else { return Ok(shown) };
        let least = labels.holders();
        if unread + absent_voters(labels) < least {
            return Ok(shown);
        }
        let patience = if unread < least { Duration(ASK_AGAIN.0 * u64::from(ATTEMPTS - 1)) } else { ATTACHED_PATIENCE };
        if io.now() < begun + patience {
            io.sleep(ASK_AGAIN).await;
            continue;
        }
        if unread < least || read_only || labels.overridden() {
            return Ok(shown);
        }
        return Err(ArrayError::Degraded(format!(
            "{unread} of {} drives do not give an anchor ({error}), and the newest checkpoint may be on those alone; \
             check their connections and open the pool again",
            usable.len()
        )));
    }
}

impl Table {
    /// Finds the newest valid anchor on the usable drives, reads the directory, and inserts the
    /// table's own rows into the layout. Unless `read_only`, the anchor is taken up: written again
    /// as the newest of all. One that is not the newest found waits for [`Table::settle_anchor`].
    /// `Damaged` when no drive holds a valid anchor, or a directory page is nowhere whole;
    /// `Degraded` when drives do not say what they hold; `Refused` when a later version wrote one.
    ///
    /// The newest is that of the highest (epoch, sequence), on whichever drive it is found.
    pub async fn open(
        io: &Io,
        labels: &Labels,
        layout: &SharedLayout,
        cache: Bytes,
        read_only: bool,
    ) -> Result<(Table, Opened), ArrayError> {
        let shown = shown(io, labels, read_only).await?;
        // An older one beside a newer version's is what that version went on from. A single one is
        // damage, or was cut off before anything rested on it: what counts is on a quorum.
        let later: Vec<u32> = shown.iter().flat_map(|shown| shown.later.iter().copied()).collect();
        if later.len() >= anchor::LATER_MIN {
            return Err(newer(later[0]));
        }
        let mut problem = ArrayError::Damaged(format!(
            "none of the {} drives holds a whole anchor; return missing drives and open the pool again",
            shown.len()
        ));
        let mut found: Vec<Anchor> = shown.into_iter().flat_map(|shown| shown.anchors).collect();
        found.sort_by_key(|anchor| std::cmp::Reverse((anchor.epoch, anchor.sequence)));
        found.dedup();
        for (at, anchor) in found.into_iter().enumerate() {
            let is_newest = at == 0;
            let mut attempts = if is_newest { ATTEMPTS } else { 1 };
            let loaded = loop {
                attempts -= 1;
                match Table::load(io, labels, layout, cache, read_only, &anchor).await {
                    Err(_) if attempts > 0 => io.sleep(ASK_AGAIN).await,
                    loaded => break loaded,
                }
            };
            match loaded {
                Ok(table) => {
                    let mut sequence = anchor.sequence;
                    if !read_only && !io.is_disabled(Mutation::AnchorSpread) {
                        match is_newest {
                            true => sequence = table.take_up(&anchor).await?,
                            false => table.0.store.borrow_mut().older = Some(anchor.clone()),
                        }
                    }
                    let opened = Opened { sequence, cut: anchor.cut, replay: anchor.replay, root: anchor.root };
                    return Ok((table, opened));
                }
                Err(error) if !read_only && lacks_voters(labels) => {
                    // Their replicas may be what is missing. Going on from an older anchor would
                    // write over this one.
                    return Err(ArrayError::Damaged(format!(
                        "{error}; drives are missing that may hold it: return them and open the pool again"
                    )));
                }
                // An older anchor is as good, if the log still reaches back to it, which its
                // recovery decides.
                Err(error) => problem = error,
            }
        }
        Err(problem)
    }

    /// Takes up an older anchor that was opened from, now that the log was found to reach back to
    /// it. Before, it would write over the newest, which another opening may be able to read.
    pub async fn settle_anchor(&self) -> Result<(), ArrayError> {
        let older = self.0.store.borrow_mut().older.take();
        match older {
            Some(anchor) => self.take_up(&anchor).await.map(drop),
            None => Ok(()),
        }
    }

    /// Writes the anchor with the epoch of this opening and the next sequence, to the other slot of
    /// every drive. What is written from here on rests on it, so it is on its quorum. A newer one
    /// that lies on drives that are not here, from a checkpoint that was cut off, is older from now
    /// on: its places are used for other things.
    async fn take_up(&self, anchor: &Anchor) -> Result<u64, ArrayError> {
        let epoch = self.0.labels.configuration().epoch;
        // A switch of tests leaves it as old as it was.
        let taken = match self.0.io.is_disabled(Mutation::AnchorEpoch) {
            true => anchor.clone(),
            false => Anchor { epoch, sequence: anchor.sequence + 1, ..anchor.clone() },
        };
        // What was read from a slot fits it.
        let bytes = taken.encode().ok_or_else(|| damaged(PageId { table: INDEX_TABLE, index: 0 }))?;
        self.spread_anchor(taken.sequence, bytes).await?;
        self.0.store.borrow_mut().sequence = taken.sequence;
        Ok(taken.sequence)
    }

    async fn load(
        io: &Io,
        labels: &Labels,
        layout: &SharedLayout,
        cache: Bytes,
        read_only: bool,
        anchor: &Anchor,
    ) -> Result<Table, ArrayError> {
        let mut store = Store { sequence: anchor.sequence, ..Store::default() };
        for (at, row) in anchor.rows.iter().enumerate() {
            let mut layout = layout.write();
            if !layout.admits(row) {
                anchor.rows[..at].iter().for_each(|row| layout.remove_row(row.id));
                return Err(ArrayError::Damaged(format!(
                    "the anchor of checkpoint {} gives one cell to two rows or names a drive there is not",
                    anchor.sequence
                )));
            }
            let places = layout.slots_per_row(row.class);
            layout.insert_row(row.clone());
            store.space.add_row(row.id, places);
        }
        store.directory.index = anchor.index.clone();
        let table = Table::assemble(io, labels, layout, cache, read_only, store);
        table.settle_rows(&anchor.rows.iter().map(|row| row.id).collect::<Vec<_>>());
        let result = table.load_directory(anchor).await;
        if let Err(error) = result {
            anchor.rows.iter().for_each(|row| layout.write().remove_row(row.id));
            return Err(error);
        }
        Ok(table)
    }

    async fn load_directory(&self, anchor: &Anchor) -> Result<(), ArrayError> {
        let mut chunks: Vec<(u32, (u32, u32), Entry)> = Vec::new();
        for (page, entry) in anchor.index.iter().enumerate() {
            let Some(_) = entry.place() else { continue };
            let id = PageId { table: INDEX_TABLE, index: page as u32 };
            self.claim(id, *entry)?;
            let bytes = self.read_verified(id, *entry).await?.freeze();
            let listed = decode_index(bytes).ok_or_else(|| damaged(id))?;
            chunks.extend(listed.into_iter().map(|(at, key, entry)| (page as u32 * INDEX as u32 + at, key, entry)));
        }
        let at_once = AT_ONCE * self.0.labels.usable().len().max(1);
        let reads = chunks.into_iter().map(async |(slot, key, entry)| {
            let id = PageId { table: CHUNK_TABLE, index: slot };
            let bytes = self.read_verified(id, entry).await?.freeze();
            let entries = decode_chunk(bytes).ok_or_else(|| damaged(id))?;
            self.claim(id, entry)?;
            for (at, page) in entries.iter().enumerate().filter(|(_, page)| page.place().is_some()) {
                let index = key.1 as usize * CHUNK + at;
                self.claim(PageId { table: key.0, index: index as u32 }, *page)?;
            }
            self.0.store.borrow_mut().directory.restore(slot, key, entry, entries);
            Ok(())
        });
        let mut reads = stream::iter(reads).buffer_unordered(at_once);
        while let Some(done) = reads.next().await {
            done?;
        }
        Ok(())
    }

    fn claim(&self, id: PageId, entry: Entry) -> Result<(), ArrayError> {
        let Some(place) = entry.place() else { return Ok(()) };
        let mut store = self.0.store.borrow_mut();
        if store.space.claim(place) { Ok(()) } else { Err(damaged(id)) }
    }
}

fn damaged(id: PageId) -> ArrayError {
    ArrayError::Damaged(format!("{id} of the pool's directory contradicts itself; return missing drives"))
}
