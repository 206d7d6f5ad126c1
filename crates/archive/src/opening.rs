//! Making a store, opening it, closing it.
//!
//! Opening reads what is small: settings, buckets, segments, and the disposals left undone; never all versions. Where the
//! store was not closed in order, the open segment is walked to find its end.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use stele_catalog::{Catalog, Direction, Head, KeyRange, Transaction};
use tokio::sync::RwLock;

use crate::audit::{Action, Event, Signing};
use crate::background::{Alarm, Work};
use crate::buckets::Buckets;
use crate::cache::Cache;
use crate::clock::ComplianceClock;
use crate::error::{ArchiveError, Result};
use crate::gate::Gate;
use crate::key_locks::KeyLocks;
use crate::numbers::Numbers;
use crate::pairing::{self, Paired};
use crate::principal::Caller;
use crate::record::audit::SealedRow;
use crate::record::segment::{SegmentRow, SegmentUse};
use crate::record::settings::{
    AUDIT_HEAD, AUDIT_SEALED, CLOCK, ClockRow, IDENTITY, IdentityRow, NUMBERS, Pairing, ReservedRow, SLOTS,
};
use crate::record::{BUCKETS, FREE_SLOTS, HOLDS, RETAINED, SEGMENTS, SETTINGS, decode, encode, fetch, keys};
use crate::room::Room;
use crate::space::appender::Appender;
use crate::space::frames::FRAME;
use crate::space::keytable::KeyTable;
use crate::space::segments::Segments;
use crate::space::superblock::{FORMAT, Superblock, newer, segments_on};
use crate::space::walk::Walk;
use crate::store::{Archive, Foundation, Options, Store, locked};

/// Numbers and key slots that a crash may skip.
const NUMBERS_STEP: u64 = 1 << 20;
const SLOTS_STEP: u64 = 4096;
/// Free key slots taken up at an opening; more wait for the next one.
pub(crate) const FREE_SLOTS_PAGE: usize = 65_536;
const PAGE: usize = 1000;

impl Archive {
    /// Makes a new store on an empty catalog and volume. Refuses where one is already. The wall clock becomes the
    /// compliance clock: the caller has had the operator confirm it.
    pub async fn create(foundation: Foundation, options: Options) -> Result<Archive> {
        let size = options.segment.0;
        if !size.is_power_of_two() || !(256 << 10..=1 << 30).contains(&size) {
            return Err(ArchiveError::InvalidRequest("a segment is a power of two from 256 KiB to 1 GiB".into()));
        }
        let count = segments_on(foundation.data.geometry().size.0, size as u32);
        if count < 4 {
            return Err(ArchiveError::InvalidRequest(format!(
                "the data volume has room for {count} segments of {}, at least 4 are needed; make it larger",
                options.segment
            )));
        }
        if Superblock::read(&foundation.data).await?.is_some() {
            return Err(ArchiveError::InvalidState("the data volume holds a store already; open it".into()));
        }
        let snapshot = foundation.catalog.snapshot()?;
        if snapshot.get(SETTINGS, IDENTITY)?.is_some() {
            return Err(ArchiveError::InvalidState("the catalog belongs to a store already; open it".into()));
        }
        drop(snapshot);
        let now = foundation.surroundings.now();
        let mut id = [0; 16];
        foundation.surroundings.entropy(&mut id);
        // The key table's first part may hold anything a former use left there.
        let table = u64::from(size as u32);
        foundation.data.zero(0, table).await?;
        foundation.data.flush().await?;
        let superblock = Superblock {
            store: id,
            segment: size as u32,
            created: now.wall,
            fingerprint: Superblock::fingerprint(&foundation.master, &id),
            witness: None,
        };
        let identity = IdentityRow {
            store: id,
            created: now.wall,
            format: FORMAT,
            signing: Signing::generate(&foundation, &id),
            clean: true,
            rebuilt: None,
            pairing: None,
            next: None,
            replaces: None,
            doubt: None,
            gaps: None,
        };
        let clock = ComplianceClock::start(now).row();
        // The catalog first: a superblock without its catalog could not be told from a lost one.
        let signing = Signing::open(&foundation, &id, &identity.signing)?;
        let transaction = Transaction::new()
            .absent(SETTINGS, IDENTITY)
            .put(SETTINGS, IDENTITY, encode(&identity))
            .put(SETTINGS, CLOCK, encode(&clock))
            .put(SETTINGS, AUDIT_SEALED, encode(&SealedRow::first(&signing, &id)));
        foundation.catalog.commit(transaction).await?;
        superblock.write(&foundation.data).await?;
        let archive = Archive::open(foundation, options).await?;
        let store = &archive.store();
        let event = Event::new(&Caller::system("store"), Action::CreateStore)
            .detail(format!("compliance time starts at {}", now.wall));
        store.record(Transaction::new().with_reserve(), event).await?;
        Ok(archive)
    }

    pub async fn open(foundation: Foundation, options: Options) -> Result<Archive> {
        Archive::open_from(foundation, options, From::Start).await
    }

    /// Opens a store for writing that answers reads only, since what it stands on could not be written when it was opened.
    /// Every clone may write from here on. Where this fails, all stays as it was, and it can be tried again.
    pub async fn open_again(&self, foundation: Foundation, options: Options) -> Result<()> {
        if !self.store().read_only || options.read_only {
            return Err(ArchiveError::InvalidState("only a store that is open for reading is opened again".into()));
        }
        let opened = Archive::open_from(foundation, options, From::Reading).await?;
        self.become_one(opened);
        Ok(())
    }

    async fn open_from(foundation: Foundation, options: Options, from: From) -> Result<Archive> {
        let superblock = checked_superblock(&foundation).await?;
        let gate = Gate::new(Arc::clone(&foundation.catalog));
        let catalog: Arc<dyn Catalog> = Arc::clone(&gate) as Arc<dyn Catalog>;
        let mut found = Found::read(&foundation, &superblock, &*catalog, &options)?;
        let beginning = Beginning {
            clean: std::mem::replace(&mut found.identity.clean, false),
            next: pairing::following(&foundation, &found.identity, &superblock),
            head: Head::decode(catalog.snapshot()?.get(SETTINGS, AUDIT_HEAD)?.as_deref())?,
            retained: found.retained,
            identity: found.identity.clone(),
        };
        let store = found.into_store(foundation, superblock, gate, &options)?;
        let archive = Archive::of(store);
        if !options.read_only {
            archive.begin(beginning, from).await?;
        }
        Ok(archive)
    }

    /// What a store that may be written does before it serves: it is paired with its data volume, its copies are mended, and
    /// what the last life left undone is finished; then the opening is recorded.
    async fn begin(&self, beginning: Beginning, from: From) -> Result<()> {
        let store = &self.store();
        let Beginning { clean, next, head, retained, mut identity } = beginning;
        store.pair(&mut identity, next, head).await?;
        let superblock = *locked(&store.superblock);
        match superblock.mend(&store.volume).await {
            Err(error @ (ArchiveError::NoSpace(_) | ArchiveError::Damaged { .. })) => {
                tracing::warn!("a copy of the superblock could not be written: {error}");
            }
            mended => mended?,
        }
        match from {
            From::Start => self.resume_segments(clean).await?,
            From::Reading => self.leave_segments(),
        }
        store.load_free_slots()?;
        store.finish_left_disposals().await?;
        if retained {
            drop(store.ensure_protected().await?);
        }
        (identity.pairing, identity.next, identity.replaces) = (Some(next), None, None);
        *locked(&store.identity) = identity.clone();
        let event = Event::new(&Caller::system("store"), Action::OpenStore)
            .detail(if clean { "closed in order before" } else { "not closed in order before" }.into());
        // The clock too: how long the store was closed counts from what is stored.
        let clock = locked(&store.clock).row();
        let transaction = Transaction::new()
            .put(SETTINGS, IDENTITY, encode(&identity))
            .put(SETTINGS, CLOCK, encode(&clock))
            .with_reserve();
        store.record(transaction, event).await?;
        let mut alarms: Vec<Alarm> = store.alarm_clock().await?.into_iter().collect();
        alarms.extend(store.seal_step().await?.1);
        locked(&store.work.unreported).append(&mut alarms);
        store.note_identity().await
    }

    /// Leaves every open segment as it is: an attempt to open the store that failed may have writes under way there still.
    fn leave_segments(&self) {
        let store = self.store();
        let open = store.segments.rows().into_iter().filter(|(_, row)| row.usage == SegmentUse::Open);
        for (number, _) in open {
            store.segments.change(number, |row| {
                row.usage = SegmentUse::Sealed;
                row.used = store.segments.size - crate::space::BLOCK;
            });
        }
    }

    /// Goes on in the open segment with the most in it; seals any other.
    async fn resume_segments(&self, clean: bool) -> Result<()> {
        let store = &self.store();
        let mut open = Vec::new();
        for (number, row) in store.segments.rows() {
            if row.usage != SegmentUse::Open {
                continue;
            }
            let used = if clean {
                row.used
            } else {
                let start = store.segments.start(number);
                let mut walk = Walk::new(store.volume.clone(), start, store.segments.size, row.incarnation);
                let mut used = crate::space::BLOCK;
                while let Some((at, header)) = walk.next().await? {
                    used = at + header.length();
                }
                if !walk.unreadable.is_empty() {
                    // What cannot be read may hold records, which may reach beyond it: nothing more goes into this segment.
                    store.segments.change(number, |row| {
                        row.usage = SegmentUse::Sealed;
                        row.used = store.segments.size - crate::space::BLOCK;
                    });
                    continue;
                }
                used
            };
            open.push((used, number, row.incarnation));
        }
        open.sort_unstable();
        let resumed = open.pop();
        for (used, number, ..) in open {
            store.segments.change(number, |row| {
                row.usage = SegmentUse::Sealed;
                row.used = used;
            });
        }
        if let Some((used, number, incarnation)) = resumed {
            store.appender.resume(number, incarnation, used);
        }
        Ok(())
    }

    /// Writes what is kept in memory for the next opening. Without it the next opening takes a little longer. Whatever is
    /// still under way, or follows, is refused: nothing is acknowledged that the next opening would not find.
    pub async fn close(&self) -> Result<()> {
        let store = &self.store();
        if store.read_only {
            return Ok(());
        }
        store.compliance_now();
        store.summarise_refusals(true).await;
        store.seal_step().await?;
        store.note_audit_end().await?;
        store.renew_witness(true).await?;
        // First the place where records go, then the catalog: what got a place before may still be committed before the end
        // is recorded, and lies before the tail.
        let tail = store.appender.close();
        let last = || {
            if let Some((number, tail)) = tail {
                store.segments.change(number, |row| row.used = tail);
            }
            let mut identity = locked(&store.identity).clone();
            identity.clean = true;
            let clock = locked(&store.clock).row();
            let mut transaction = Transaction::new().with_reserve().put(SETTINGS, IDENTITY, encode(&identity)).put(
                SETTINGS,
                CLOCK,
                encode(&clock),
            );
            transaction = store.keys.settle(store.numbers.settle(transaction));
            for (number, row) in store.segments.take_dirty() {
                transaction = transaction.put(SEGMENTS, keys::short(number), encode(&row));
            }
            transaction
        };
        store.gate.close(last).await?;
        Ok(())
    }
}

/// What a store is opened from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum From {
    /// A start: nothing of an earlier life is under way.
    Start,
    /// One that answers reads only, in the same process.
    Reading,
}

/// What an opening that may write goes on from.
struct Beginning {
    clean: bool,
    next: Pairing,
    head: Head,
    /// Some version is retained or held.
    retained: bool,
    identity: IdentityRow,
}

/// What the catalog says of the store, all of it small.
struct Found {
    identity: IdentityRow,
    paired: Paired,
    numbered: u64,
    slotted: u64,
    clock: ComplianceClock,
    segments: BTreeMap<u32, SegmentRow>,
    /// Parts of the key table, in order.
    parts: Vec<u32>,
    buckets: Buckets,
    retained: bool,
}

impl Found {
    fn read(
        foundation: &Foundation,
        superblock: &Superblock,
        catalog: &dyn Catalog,
        options: &Options,
    ) -> Result<Found> {
        let snapshot = catalog.snapshot()?;
        let Some(identity) = fetch::<IdentityRow>(&*snapshot, SETTINGS, IDENTITY)? else {
            return Err(ArchiveError::damaged(
                "the catalog",
                "it holds no store, but the data volume does; `stele catalog rebuild` recovers it",
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
        Ok(Found {
            numbered: reserved(NUMBERS)?,
            slotted: reserved(SLOTS)?,
            clock: ComplianceClock::resume(&clock, foundation.surroundings.now()),
            segments,
            parts,
            buckets,
            retained: any(RETAINED)? || any(HOLDS)?,
            identity,
            paired,
        })
    }

    fn into_store(
        self,
        foundation: Foundation,
        superblock: Superblock,
        gate: Arc<Gate>,
        options: &Options,
    ) -> Result<Store> {
        let catalog: Arc<dyn Catalog> = Arc::clone(&gate) as Arc<dyn Catalog>;
        let (id, volume) = (superblock.store, foundation.data.clone());
        let count = segments_on(volume.geometry().size.0, superblock.segment);
        let segments = Arc::new(Segments::new(superblock.segment, count, self.segments));
        let numbers = Arc::new(Numbers::new(Arc::clone(&catalog), NUMBERS, NUMBERS_STEP, self.numbered, 1));
        let fresh = Numbers::new(Arc::clone(&catalog), SLOTS, SLOTS_STEP, self.slotted, 0);
        let appender =
            Appender::new(volume.clone(), Arc::clone(&catalog), Arc::clone(&segments), Arc::clone(&numbers), id);
        let keys = KeyTable::new(
            volume.clone(),
            Arc::clone(&catalog),
            Arc::clone(&segments),
            Arc::clone(&numbers),
            fresh,
            id,
            self.parts,
        );
        let signing = Signing::open(&foundation, &id, &self.identity.signing)?;
        Ok(Store {
            catalog,
            gate,
            volume,
            surroundings: foundation.surroundings,
            guard: foundation.guard,
            master: foundation.master,
            id,
            segments,
            numbers,
            appender,
            keys,
            buckets: self.buckets,
            access: Mutex::new(Cache::new(1024)),
            clock: Mutex::new(self.clock),
            signing,
            room: Room::new(options.in_flight.0),
            object_keys: Mutex::new(Cache::new(options.key_cache)),
            frames: Mutex::new(Cache::new(usize::try_from(options.frame_cache.0).unwrap_or(0))),
            pieces: Mutex::new(Cache::new(usize::try_from(options.piece_cache.0).unwrap_or(0))),
            protected: RwLock::new(false),
            locks: KeyLocks::new(),
            lanes: stele_digests::Lanes::fastest(),
            piece_frames: (superblock.segment as usize / (8 * FRAME)).clamp(1, 16),
            identity: Mutex::new(self.identity),
            superblock: Mutex::new(superblock),
            paired: self.paired,
            work: Work::default(),
            read_only: options.read_only,
            without: options.without,
        })
    }
}

/// The data volume's superblock, and only where the master key is the store's.
async fn checked_superblock(foundation: &Foundation) -> Result<Superblock> {
    let Some(superblock) = Superblock::read(&foundation.data).await? else {
        return Err(ArchiveError::InvalidState("the data volume holds no store; create one".into()));
    };
    match Superblock::fingerprint(&foundation.master, &superblock.store) == superblock.fingerprint {
        true => Ok(superblock),
        false => Err(crate::seal::wrong_key("the store")),
    }
}

/// All segments, and which of them are the parts of the key table, in order.
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
    /// Slots that were used and destroyed, for use again.
    pub(crate) fn load_free_slots(&self) -> Result<()> {
        let rows = self.snapshot()?.range(FREE_SLOTS, &KeyRange::all(), FREE_SLOTS_PAGE, Direction::Forward)?;
        let slots = rows.iter().filter_map(|(key, _)| Some(u64::from_be_bytes(key.as_ref().try_into().ok()?)));
        self.keys.offer(slots);
        Ok(())
    }
}

/// Every record of a table, in order.
pub(crate) fn scan(
    catalog: &dyn Catalog,
    table: stele_catalog::Table,
    mut each: impl FnMut(&[u8], &[u8]) -> Result<()>,
) -> Result<()> {
    let snapshot = catalog.snapshot()?;
    let mut range = KeyRange::all();
    loop {
        let records = snapshot.range(table, &range, PAGE, Direction::Forward)?;
        for (key, value) in &records {
            each(key, value)?;
        }
        match records.last() {
            Some((key, _)) if records.len() == PAGE => range = KeyRange::all().after(key.clone()),
            _ => return Ok(()),
        }
    }
}
