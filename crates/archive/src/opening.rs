//! Opening a store.
//!
//! An opening reads small tables only: settings, buckets, segments, and the disposals that were
//! left. It never reads all versions. Where the store was not closed in order, it walks the open
//! segments to find their ends.

mod closing;
mod counting;
mod creation;
mod pairing;
mod unsettled;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use stele_catalog::{Catalog, Direction, Head, KeyRange, Transaction};

use crate::audit::Event;
use crate::model::action::Action;
use crate::model::error::{ArchiveError, Result};
use crate::model::pairing::Paired;
use crate::model::principal::Caller;
use crate::record::properties::{INDEX, IndexRow};
use crate::record::segment::{SegmentRow, SegmentUse};
use crate::record::settings::{
    AUDIT_HEAD, CLOCK, ClockRow, IDENTITY, IdentityRow, NUMBERS, Pairing, ReservedRow, SLOTS, SUPERBLOCK,
};
use crate::record::{
    BUCKETS, FREE_SLOTS, HOLDS, MATTER_HOLDS, NOTES_DUE, RETAINED, SEGMENTS, SETTINGS, decode, encode, fetch,
};
use crate::space::compensations::NoteSubject;
use crate::space::superblock::{FORMAT, Superblock, newer};
use crate::space::walk::Walk;
use crate::state::buckets::Buckets;
use crate::state::clock::ComplianceClock;
use crate::store::foundation::{Foundation, Options};
use crate::store::gate::Gate;
use crate::store::scan::scan;
use crate::store::{Archive, CatalogState, Store};

/// Free key slots loaded at an opening. The rest is loaded at later openings.
pub(crate) const FREE_SLOTS_PAGE: usize = 65_536;

impl Archive {
    pub async fn open(foundation: Foundation, options: Options) -> Result<Archive> {
        Archive::open_from(foundation, options, From::Start).await
    }

    /// Opens a store for writing that answers reads only, because its catalog or its data volume
    /// could not be written at the opening. Every clone can write from then on. A failure changes
    /// nothing, and the call can be repeated.
    pub async fn open_again(&self, foundation: Foundation, options: Options) -> Result<()> {
        if !self.store().is_read_only() || options.read_only {
            return Err(ArchiveError::InvalidState(
                "only a store that is open for reading only can be opened again".into(),
            ));
        }
        let opened = Archive::open_from(foundation, options, From::Reading).await?;
        self.switch_to(opened);
        Ok(())
    }

    async fn open_from(foundation: Foundation, options: Options, from: From) -> Result<Archive> {
        let superblock = match checked_superblock(&foundation).await {
            // Too many drives are away. The catalog survives more losses, and reads need no more
            // than it knows.
            Err(error @ ArchiveError::Damaged { .. }) if options.read_only => {
                known_superblock(&foundation)?.ok_or(error)?
            }
            checked => checked?,
        };
        let gate = Gate::new(Arc::clone(&foundation.catalog));
        let catalog: Arc<dyn Catalog> = Arc::clone(&gate) as Arc<dyn Catalog>;
        let mut found = CatalogState::read(&foundation, &superblock, &*catalog, &options)?;
        let clean = found.identity.clean;
        // The catalog says so still while the store is only read, and changes compare it with what
        // is known here.
        found.identity.clean &= options.read_only;
        let beginning = Beginning {
            clean,
            next: pairing::following(&foundation, &found.identity, &superblock),
            head: Head::decode(catalog.snapshot()?.get(SETTINGS, AUDIT_HEAD)?.as_deref())?,
            retained: found.retained,
            identity: found.identity.clone(),
        };
        let store = Store::new(foundation, superblock, gate, found, &options)?;
        let archive = Archive::of(store);
        if !options.read_only {
            archive.begin(beginning, from).await?;
        }
        Ok(archive)
    }

    /// The start-up of a store for writing, phase by phase. The store serves nothing before the
    /// last phase is over.
    async fn begin(&self, beginning: Beginning, from: From) -> Result<()> {
        let store = &self.store();
        let Beginning { clean, next, head, retained, mut identity } = beginning;
        store.pair(&mut identity, next, head).await?;
        store.mend_superblock().await?;
        let unsettled = if clean { Vec::new() } else { store.open_segments() };
        match from {
            From::Start => store.resume_segments(clean).await?,
            From::Reading => store.leave_segments(),
        }
        store.load_free_slots()?;
        store.finish_left_disposals().await?;
        if retained {
            drop(store.ensure_protected().await?);
        }
        let former = identity.pairing.replace(next);
        (identity.next, identity.replaces) = (None, None);
        store.count_parts(&mut identity).await?;
        store.count_owned(&mut identity).await?;
        store.record_opening(identity, former, next, clean).await?;
        match store.find_unsettled(unsettled).await {
            // Damage that reads and scrubs report too. It does not keep the store closed.
            Err(error @ ArchiveError::Damaged { .. }) => {
                tracing::warn!("notes of changes that the last session left could not be compared: {error}");
            }
            found => found?,
        }
        store.compensate_or_warn().await;
        if !clean {
            // What deletions took off the counts was written at intervals only.
            store.count_again()?;
        }
        store.raise_alarms().await?;
        store.note_identity().await
    }
}

impl Store {
    /// Writes a copy of the superblock that is missing or damaged. A volume that takes no writes
    /// keeps the other copy.
    async fn mend_superblock(&self) -> Result<()> {
        match self.witnessing().superblock().mend(self.volume()).await {
            Err(error @ (ArchiveError::NoSpace(_) | ArchiveError::Damaged { .. })) => {
                tracing::warn!("a copy of the superblock could not be written: {error}");
                Ok(())
            }
            mended => mended,
        }
    }

    /// Commits the identity together with the record of the opening. The index of properties
    /// follows the pairing: it counts no more once an opening leaves it out, as one of an older
    /// version of Stele does.
    async fn record_opening(
        &self,
        identity: IdentityRow,
        former: Option<Pairing>,
        next: Pairing,
        clean: bool,
    ) -> Result<()> {
        let event = Event::new(&Caller::system("store"), Action::OpenStore)
            .detail(if clean { "closed in order before" } else { "not closed in order before" }.into());
        let index = IndexRow::at_opening(self.snapshot()?.get(SETTINGS, INDEX)?.as_deref(), former, next);
        // With the clock: the time for which the store was closed counts from the stored row.
        let transaction = Transaction::new()
            .put(SETTINGS, IDENTITY, encode(&identity))
            .put(SETTINGS, CLOCK, encode(&self.clock_row()))
            .put(SETTINGS, SUPERBLOCK, self.witnessing().superblock().identify())
            .put(SETTINGS, INDEX, encode(&index))
            .with_reserve();
        self.identity().step(|known| *known = identity);
        self.record(transaction, event).await.map(drop)
    }

    /// Keeps the alarms of the opening for the first step to report: of the clock, and of the audit
    /// log's end.
    async fn raise_alarms(self: &Arc<Store>) -> Result<()> {
        let clock = self.alarm_clock().await?;
        let audit = self.seal_if_there_is_room().await?;
        self.upkeep().report_later(clock.into_iter().chain(audit).collect());
        Ok(())
    }

    /// Seals every open segment unused: an earlier attempt to open the store may still have writes
    /// under way there.
    fn leave_segments(&self) {
        let open = self.segments().rows().into_iter().filter(|(_, row)| row.usage == SegmentUse::Open);
        for (number, _) in open {
            self.segments().seal(number, self.segments().size - crate::space::BLOCK);
        }
    }

    /// Continues in the fullest open segment, and seals the others.
    async fn resume_segments(&self, clean: bool) -> Result<()> {
        let mut open = Vec::new();
        for (number, row) in self.segments().rows() {
            if row.usage != SegmentUse::Open {
                continue;
            }
            // Also behind an orderly close: what is appended must not lie on a record, whatever the
            // row says.
            let Some(found) = self.find_end(number, row.incarnation).await? else {
                // Records may lie in the unreadable place and reach beyond it: nothing more is
                // appended to this segment.
                self.segments().seal(number, self.segments().size - crate::space::BLOCK);
                continue;
            };
            let used = found.max(row.used);
            if clean && found > row.used {
                tracing::warn!("segment {number} has records up to {found}, and its row says {}", row.used);
            }
            open.push((used, number, row.incarnation, found));
        }
        open.sort_unstable();
        let resumed = open.pop();
        for (used, number, ..) in open {
            self.segments().seal(number, used);
        }
        if let Some((used, number, incarnation, found)) = resumed {
            self.appender().resume(number, incarnation, found, used);
        }
        Ok(())
    }

    /// The end of the records in an open segment. None: a place in it cannot be read. Counts the
    /// records that no row refers to.
    async fn find_end(&self, number: u32, incarnation: u64) -> Result<Option<u32>> {
        let start = self.segments().start(number);
        let mut walk = Walk::new(self.volume().clone(), start, self.segments().size, incarnation);
        let (mut used, mut kept) = (crate::space::BLOCK, 0);
        while let Some((at, header)) = walk.next().await? {
            used = at + header.length();
            kept += if header.kind.is_kept() { header.length() } else { 0 };
        }
        self.segments().change(number, |row| row.kept = kept);
        Ok(walk.unreadable.is_empty().then_some(used))
    }
}

/// The state of the process at an opening.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum From {
    /// Nothing of an earlier opening is under way.
    Start,
    /// The same process has the store open for reading only.
    Reading,
}

/// The starting point of an opening for writing.
struct Beginning {
    clean: bool,
    next: Pairing,
    head: Head,
    /// Some version is retained or held.
    retained: bool,
    identity: IdentityRow,
}

impl CatalogState {
    /// Reads the small tables. Refuses a catalog that does not belong to the data volume, except
    /// for reading only.
    fn read(
        foundation: &Foundation,
        superblock: &Superblock,
        catalog: &dyn Catalog,
        options: &Options,
    ) -> Result<CatalogState> {
        let snapshot = catalog.snapshot()?;
        let Some(identity) = fetch::<IdentityRow>(&*snapshot, SETTINGS, IDENTITY)? else {
            return Err(ArchiveError::damaged(
                "the catalog",
                "it holds no store, although the data volume does; `stele catalog rebuild` recovers it",
            ));
        };
        if identity.format > FORMAT {
            return Err(newer("the catalog", identity.format));
        }
        if identity.store != superblock.store {
            return Err(ArchiveError::InvalidState("the catalog belongs to another store than the data volume".into()));
        }
        let paired = pairing::paired(&identity, superblock, &*snapshot, options.without)?;
        if let (Paired::CatalogOlder(why) | Paired::No(why), false) = (&paired, options.read_only) {
            return Err(ArchiveError::Unpaired(why.clone()));
        }
        let reserved = |name: &[u8]| -> Result<u64> {
            Ok(fetch::<ReservedRow>(&*snapshot, SETTINGS, name)?.map_or(0, |row| row.below))
        };
        let Some(clock) = fetch::<ClockRow>(&*snapshot, SETTINGS, CLOCK)? else {
            return Err(ArchiveError::damaged("the catalog", "the compliance clock's record is missing"));
        };
        let (segments, parts) = read_segments(catalog)?;
        let buckets = Buckets::default();
        scan(catalog, BUCKETS, |key, value| buckets.load(&foundation.master, key, value))?;
        let any =
            |table| -> Result<bool> { Ok(!snapshot.range(table, &KeyRange::all(), 1, Direction::Forward)?.is_empty()) };
        Ok(CatalogState {
            notes_due: read_notes_due(catalog)?,
            numbers_below: reserved(NUMBERS)?,
            slots_below: reserved(SLOTS)?,
            clock: ComplianceClock::resume(&clock, foundation.surroundings.now()),
            segments,
            key_parts: parts,
            buckets,
            retained: any(RETAINED)? || any(HOLDS)? || any(MATTER_HOLDS)?,
            identity,
            paired,
        })
    }
}

/// The superblock of the data volume, if the master key is the store's.
async fn checked_superblock(foundation: &Foundation) -> Result<Superblock> {
    let Some(superblock) = Superblock::read(&foundation.data).await? else {
        return Err(ArchiveError::InvalidState("the data volume holds no store; create one".into()));
    };
    with_its_key(foundation, superblock)
}

/// The superblock as the catalog knows it. None: no opening has put it there yet.
fn known_superblock(foundation: &Foundation) -> Result<Option<Superblock>> {
    let snapshot = foundation.catalog.snapshot()?;
    let Some(identity) = fetch::<IdentityRow>(&*snapshot, SETTINGS, IDENTITY)? else { return Ok(None) };
    let Some(known) = snapshot.get(SETTINGS, SUPERBLOCK)? else { return Ok(None) };
    let Some(superblock) = Superblock::identified(&known, identity.pairing) else { return Ok(None) };
    with_its_key(foundation, superblock).map(Some)
}

fn with_its_key(foundation: &Foundation, superblock: Superblock) -> Result<Superblock> {
    match Superblock::fingerprint(&foundation.master, &superblock.store) == superblock.fingerprint {
        true => Ok(superblock),
        false => Err(crate::seal::wrong_key("the store")),
    }
}

/// The things for which the process before owed a compensating note, or may have.
fn read_notes_due(catalog: &dyn Catalog) -> Result<BTreeSet<NoteSubject>> {
    let mut due = BTreeSet::new();
    scan(catalog, NOTES_DUE, |key, _| {
        due.insert(decode(NOTES_DUE, key, key)?);
        Ok(())
    })?;
    Ok(due)
}

/// All segments, and the segments of the key table in order.
fn read_segments(catalog: &dyn Catalog) -> Result<(BTreeMap<u32, SegmentRow>, Vec<u32>)> {
    let mut rows = BTreeMap::new();
    let mut parts = BTreeMap::from([(0, 0)]);
    scan(catalog, SEGMENTS, |key, value| {
        let row: SegmentRow = decode(SEGMENTS, key, value)?;
        let number = key.try_into().map(u32::from_be_bytes).unwrap_or(u32::MAX);
        if let SegmentUse::Keys(ordinal) = row.usage
            && let Some(other) = parts.insert(ordinal, number)
        {
            return Err(ArchiveError::damaged(
                "the catalog",
                format!("segments {other} and {number} are both part {ordinal} of the key table"),
            ));
        }
        rows.insert(number, row);
        Ok(())
    })?;
    if parts.keys().copied().ne(0..parts.len() as u32) {
        return Err(ArchiveError::damaged("the catalog", "parts of the key table are missing from it"));
    }
    Ok((rows, parts.into_values().collect()))
}

impl Store {
    /// Loads key slots that were destroyed and can be used again.
    pub(crate) fn load_free_slots(&self) -> Result<()> {
        let rows = self.snapshot()?.range(FREE_SLOTS, &KeyRange::all(), FREE_SLOTS_PAGE, Direction::Forward)?;
        let slots = rows.iter().filter_map(|(key, _)| Some(u64::from_be_bytes(key.as_ref().try_into().ok()?)));
        self.keys().offer(slots);
        Ok(())
    }
}
