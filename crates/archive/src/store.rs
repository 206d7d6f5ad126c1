//! The store as a whole: its parts, and the handle that frontends hold.
//!
//! Every piece of state has one owner, and its fields are private to that owner. Shared state is
//! changed in closures that are not asynchronous (see [`Shared`]), so no lock is held over an
//! await. The few locks that are held over an await order requests: those of keys, the protection,
//! the witness, the clock's row, puts under matters and the background step.

pub mod alongside;
pub(crate) mod committing;
pub(crate) mod events;
pub(crate) mod foundation;
pub(crate) mod gate;
pub mod gateway;
pub(crate) mod lease;
pub(crate) mod lookup;
pub(crate) mod notes;
pub(crate) mod owning;
pub(crate) mod protection;
pub(crate) mod scan;
pub(crate) mod signing;
pub(crate) mod uploads;
pub(crate) mod witness;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use futures_util::future::{Either, select};
use futures_util::lock::{Mutex, MutexGuard};
use stele_catalog::{Catalog, Snapshot, Transaction};
use stele_media::Handle;
use tokio::sync::OwnedRwLockReadGuard;
use zeroize::Zeroizing;

use crate::model::error::{ArchiveError, Result};
use crate::model::mutation::Mutations;
use crate::model::pairing::Paired;
use crate::model::principal::{Access, Caller};
use crate::model::secrets::MasterKey;
use crate::model::time::{Surroundings, Timestamp};
use crate::record::SETTINGS;
use crate::record::segment::SegmentRow;
use crate::record::settings::{ClockRow, Doubt, IdentityRow, NUMBERS, SLOTS, SUPERBLOCK};
use crate::space::appender::Appender;
use crate::space::compensations::{Compensations, NoteSubject};
use crate::space::keytable::KeyTable;
use crate::space::numbers::Numbers;
use crate::space::segments::Segments;
use crate::space::superblock::{Superblock, segments_on};
use crate::state::audit_end::AuditEnd;
use crate::state::bodies::Bodies;
use crate::state::buckets::{Bucket, Buckets};
use crate::state::caches::Caches;
use crate::state::clock::ComplianceClock;
use crate::state::disposals::Disposals;
use crate::state::event_lag::EventLag;
use crate::state::holding::Holding;
use crate::state::inventories::Inventories;
use crate::state::key_locks::{KeyLock, KeyLocks, SettingsLocks};
use crate::state::log_tree::ReceiptLog;
use crate::state::refusals::Refusals;
use crate::state::sessions::Sessions;
use crate::state::shared::Shared;
use crate::state::upkeep::Upkeep;
use crate::store::committing::Abandoned;
use crate::store::foundation::{Foundation, Options};
use crate::store::gate::Gate;
use crate::store::protection::Protection;
use crate::store::signing::Signing;
use crate::store::witness::Witnessing;

pub use crate::store::foundation::{Guard, NoGuard};

/// Numbers and key slots that a crash may skip.
const NUMBERS_STEP: u64 = 1 << 20;
const SLOTS_STEP: u64 = 4096;

/// An open store. Clones share it, also when it is opened again.
#[derive(Clone)]
pub struct Archive {
    current: Arc<RwLock<Arc<Store>>>,
}

impl Archive {
    pub(crate) fn of(store: Store) -> Archive {
        Archive { current: Arc::new(RwLock::new(Arc::new(store))) }
    }

    /// The store as it is open now. A request continues with the one that it began with.
    pub(crate) fn store(&self) -> Arc<Store> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Makes every clone use the store of the other archive.
    pub(crate) fn switch_to(&self, other: Archive) {
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = other.store();
    }
}

pub(crate) struct Store {
    // Fixed while the store is open.
    /// The catalog behind the gate.
    catalog: Arc<dyn Catalog>,
    gate: Arc<Gate>,
    volume: Handle,
    surroundings: Arc<dyn Surroundings>,
    master: MasterKey,
    signing: Signing,
    id: [u8; 16],
    paired: Paired,
    read_only: bool,
    without: Mutations,

    // The data volume.
    segments: Arc<Segments>,
    numbers: Arc<Numbers>,
    appender: Arc<Appender>,
    keys: Arc<KeyTable>,
    witnessing: Witnessing,

    // Shared by requests.
    buckets: Buckets,
    caches: Caches,
    bodies: Bodies,
    locks: KeyLocks,
    /// The settings of buckets, while something is stored by them.
    pub(crate) settings_locks: SettingsLocks,
    clock: Shared<ComplianceClock>,
    /// One recorded change of the clock at a time: its row must not overwrite a later alarm.
    clock_turn: Mutex<()>,
    identity: Shared<IdentityRow>,
    protection: Protection,
    /// Shared by puts under matters; a close takes it alone.
    holding: Holding,

    // Left by requests to background work.
    abandoned: Abandoned,
    disposals: Disposals,
    compensations: Arc<Compensations>,
    refusals: Refusals,
    /// A head that was sent elsewhere is newer than the audit log.
    log_behind: AtomicBool,
    sessions: Sessions,
    audit_end: AuditEnd,
    event_lag: EventLag,
    inventories: Inventories,
    receipts: ReceiptLog,
    upkeep: Upkeep,
}

/// The small tables of the catalog, as an opening reads them.
pub(crate) struct CatalogState {
    pub identity: IdentityRow,
    pub paired: Paired,
    /// Numbers below may have been given out.
    pub numbers_below: u64,
    /// Key slots below may have been given out.
    pub slots_below: u64,
    pub clock: ComplianceClock,
    pub segments: BTreeMap<u32, SegmentRow>,
    /// Segments that are parts of the key table, in order.
    pub key_parts: Vec<u32>,
    pub buckets: Buckets,
    /// Some version is retained or held.
    pub retained: bool,
    pub notes_due: BTreeSet<NoteSubject>,
}

impl Store {
    /// Puts the parts together. Reads and writes nothing.
    pub fn new(
        foundation: Foundation,
        superblock: Superblock,
        gate: Arc<Gate>,
        found: CatalogState,
        options: &Options,
    ) -> Result<Store> {
        let catalog: Arc<dyn Catalog> = Arc::clone(&gate) as Arc<dyn Catalog>;
        let (id, volume) = (superblock.store, foundation.data.clone());
        let count = segments_on(volume.geometry().size.0, superblock.segment);
        let segments = Arc::new(Segments::new(superblock.segment, count, found.segments));
        let numbers = Arc::new(Numbers::new(Arc::clone(&catalog), NUMBERS, NUMBERS_STEP, found.numbers_below, 1));
        let slots = Numbers::new(Arc::clone(&catalog), SLOTS, SLOTS_STEP, found.slots_below, 0);
        let compensations = Arc::new(Compensations::of(found.notes_due));
        let appender = Appender::new(
            volume.clone(),
            Arc::clone(&catalog),
            Arc::clone(&segments),
            Arc::clone(&numbers),
            Arc::clone(&compensations),
            id,
        );
        let keys = KeyTable::new(
            volume.clone(),
            Arc::clone(&catalog),
            Arc::clone(&segments),
            Arc::clone(&numbers),
            slots,
            id,
            found.key_parts,
        );
        let signing = Signing::open(&foundation, &id, &found.identity.signing)?;
        Ok(Store {
            catalog,
            gate,
            surroundings: foundation.surroundings,
            master: foundation.master,
            signing,
            id,
            paired: found.paired,
            read_only: options.read_only,
            without: options.without,
            segments,
            numbers,
            appender,
            keys,
            witnessing: Witnessing::new(volume.clone(), superblock),
            volume,
            buckets: found.buckets,
            caches: Caches::new(options.key_cache, options.frame_cache.0, options.piece_cache.0),
            bodies: Bodies::new(options.in_flight.0, superblock.segment),
            locks: KeyLocks::new(),
            settings_locks: SettingsLocks::new(),
            clock: Shared::new(found.clock),
            clock_turn: Mutex::new(()),
            identity: Shared::new(found.identity),
            protection: Protection::new(foundation.guard),
            holding: Holding::default(),
            abandoned: Abandoned::default(),
            disposals: Disposals::default(),
            compensations,
            refusals: Refusals::default(),
            log_behind: AtomicBool::new(false),
            sessions: Sessions::default(),
            audit_end: AuditEnd::default(),
            event_lag: EventLag::new(options.notification_targets.clone(), options.events_pending_max),
            inventories: Inventories::default(),
            receipts: ReceiptLog::default(),
            upkeep: Upkeep::new(),
        })
    }

    pub fn catalog(&self) -> &dyn Catalog {
        &*self.catalog
    }

    pub fn volume(&self) -> &Handle {
        &self.volume
    }

    pub fn surroundings(&self) -> &dyn Surroundings {
        &*self.surroundings
    }

    pub fn master(&self) -> &MasterKey {
        &self.master
    }

    /// The key that signs the audit log.
    pub fn signing(&self) -> &Signing {
        &self.signing
    }

    pub fn id(&self) -> &[u8; 16] {
        &self.id
    }

    /// Whether the catalog belongs to the data volume. Where it does not, the store is open for
    /// reading only.
    pub fn paired(&self) -> &Paired {
        &self.paired
    }

    pub fn segments(&self) -> &Arc<Segments> {
        &self.segments
    }

    pub fn numbers(&self) -> &Numbers {
        &self.numbers
    }

    pub fn appender(&self) -> &Arc<Appender> {
        &self.appender
    }

    /// The key table.
    pub fn keys(&self) -> &Arc<KeyTable> {
        &self.keys
    }

    pub fn witnessing(&self) -> &Witnessing {
        &self.witnessing
    }

    pub fn buckets(&self) -> &Buckets {
        &self.buckets
    }

    pub fn caches(&self) -> &Caches {
        &self.caches
    }

    pub fn bodies(&self) -> &Bodies {
        &self.bodies
    }

    pub fn clock(&self) -> &Shared<ComplianceClock> {
        &self.clock
    }

    pub fn identity(&self) -> &Shared<IdentityRow> {
        &self.identity
    }

    pub fn holding(&self) -> &Holding {
        &self.holding
    }

    pub fn disposals(&self) -> &Disposals {
        &self.disposals
    }

    pub fn compensations(&self) -> &Arc<Compensations> {
        &self.compensations
    }

    pub fn refusals(&self) -> &Refusals {
        &self.refusals
    }

    pub fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    pub fn audit_end(&self) -> &AuditEnd {
        &self.audit_end
    }

    pub fn event_lag(&self) -> &EventLag {
        &self.event_lag
    }

    pub fn inventories(&self) -> &Inventories {
        &self.inventories
    }

    pub fn receipts(&self) -> &ReceiptLog {
        &self.receipts
    }

    pub fn upkeep(&self) -> &Upkeep {
        &self.upkeep
    }

    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    pub fn set_log_behind(&self) {
        self.log_behind.store(true, Ordering::Relaxed);
    }

    /// Whether a newer audit log of this store may come back: further records of this one would
    /// take the places of its records, and be lost.
    pub fn is_log_behind(&self) -> bool {
        self.paired != Paired::Yes || self.log_behind.load(Ordering::Relaxed)
    }

    /// Removed protections, in tests.
    pub fn without(&self) -> Mutations {
        self.without
    }

    /// Refuses where the store was opened for reading only.
    pub fn writable(&self) -> Result<()> {
        match self.read_only {
            true => Err(ArchiveError::ReadOnly(
                "the store is open for reading only; start the server, or if it runs, `stele pool status` says why"
                    .into(),
            )),
            false => Ok(()),
        }
    }

    /// The bucket, if the caller may do this to keys with this prefix.
    pub fn authorized(&self, caller: &Caller, access: Access, bucket: &str, prefix: &str) -> Result<Arc<Bucket>> {
        let bucket = self.buckets.by_name(bucket)?;
        bucket.authorize(caller, access, prefix)?;
        bucket.reached_through(caller)?;
        Ok(bucket)
    }

    pub fn snapshot(&self) -> Result<Box<dyn Snapshot>> {
        Ok(self.catalog.snapshot()?)
    }

    /// Waits until all earlier transactions have taken effect, since they do so in order. It writes
    /// what the catalog has already, and nothing that another transaction may be changing.
    pub async fn barrier(&self) -> Result<()> {
        let known = self.witnessing.superblock().identify();
        self.catalog.commit(Transaction::new().with_reserve().put(SETTINGS, SUPERBLOCK, known)).await?;
        Ok(())
    }

    /// Commits the last transaction of all. Later ones are refused.
    pub async fn commit_last(&self, last: impl FnOnce() -> Transaction) -> Result<()> {
        self.gate.close(last).await?;
        Ok(())
    }

    /// The wall clock: for display, never for the end of a retention.
    pub fn wall(&self) -> Timestamp {
        self.surroundings.now().wall
    }

    /// Elapsed time, in milliseconds.
    pub fn elapsed(&self) -> u64 {
        self.surroundings.now().monotonic.0 / 1_000_000
    }

    /// The compliance clock, moved up to this moment.
    pub fn compliance_now(&self) -> Timestamp {
        let now = self.surroundings.now();
        self.clock.step(|clock| {
            clock.advance(now);
            clock.shown()
        })
    }

    /// The later of both clocks, from which every new retention counts. The compliance clock lags
    /// after the store was closed, the wall clock after it was set back.
    pub fn later_now(&self) -> Timestamp {
        self.compliance_now().max(self.wall())
    }

    /// The time by which access keys and sessions end: the latest of both clocks and of the moments
    /// at which the store was open. A system clock that is set back behind those moments revives no
    /// key, not even while the compliance clock lags.
    pub fn key_now(&self) -> Timestamp {
        let later = self.later_now();
        later.max(self.clock.look(ComplianceClock::seen))
    }

    /// Milliseconds for which the store was ever open, by real elapsed time.
    pub fn open_time(&self) -> u64 {
        self.compliance_now();
        self.clock.look(ComplianceClock::open)
    }

    pub async fn clock_turn(&self) -> MutexGuard<'_, ()> {
        self.clock_turn.lock().await
    }

    /// The compliance clock as the catalog keeps it.
    pub fn clock_row(&self) -> ClockRow {
        self.clock.look(ComplianceClock::row)
    }

    /// Why expiration is frozen.
    pub fn frozen(&self) -> Option<String> {
        self.clock.look(ComplianceClock::frozen)
    }

    /// The matter `rebuild`: what a rebuild with losses could not prove.
    pub fn doubt(&self) -> Option<Doubt> {
        self.identity.look(|identity| identity.doubt.clone())
    }

    pub fn random(&self) -> u64 {
        let mut bytes = [0; 8];
        self.surroundings.entropy(&mut bytes);
        u64::from_be_bytes(bytes)
    }

    pub(crate) fn random_text(&self, alphabet: &[u8], length: usize) -> Zeroizing<String> {
        let mut text = Zeroizing::new(String::with_capacity(length));
        while text.len() < length {
            let mut bytes = Zeroizing::new([0u8; 64]);
            self.surroundings.entropy(bytes.as_mut());
            // Bytes beyond the last whole multiple would favour the first letters.
            let fair = 256 - 256 % alphabet.len();
            for byte in bytes.iter().filter(|byte| usize::from(**byte) < fair) {
                if text.len() < length {
                    text.push(alphabet[usize::from(*byte) % alphabet.len()] as char);
                }
            }
        }
        text
    }

    /// The id and the secret of a new access key.
    pub(crate) fn random_credentials(&self) -> (String, Zeroizing<String>) {
        let id = format!("STELE{}", *self.random_text(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", 15));
        (id, self.random_text(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789", 40))
    }

    /// Locks a key, and returns the bucket as it is under the lock, if the caller may do this. A
    /// change is judged by these settings: earlier ones may have changed while the request waited.
    /// Another bucket of the same name is not the requested one.
    pub async fn lock_authorized(
        self: &Arc<Store>,
        caller: &Caller,
        access: Access,
        bucket: &str,
        key: &str,
    ) -> Result<(Arc<Bucket>, KeyLock)> {
        let asked = self.authorized(caller, access, bucket, key)?;
        self.writable()?;
        let lock = self.lock(asked.number, key).await?;
        let now = self.authorized(caller, access, bucket, key)?;
        match now.number == asked.number {
            true => Ok((now, lock)),
            false => Err(ArchiveError::NoSuchBucket(bucket.into())),
        }
    }

    /// As `lock_authorized`, for what the bucket's settings decide: none of them changes until the
    /// guard is dropped. Otherwise a change beside the request would fail it.
    pub async fn lock_settled(
        self: &Arc<Store>,
        caller: &Caller,
        access: Access,
        bucket: &str,
        key: &str,
    ) -> Result<(Arc<Bucket>, KeyLock, OwnedRwLockReadGuard<()>)> {
        let (asked, lock) = self.lock_authorized(caller, access, bucket, key).await?;
        let settled = self.settings_locks.share(asked.number).await;
        let now = self.authorized(caller, access, bucket, key)?;
        match now.number == asked.number {
            true => Ok((now, lock, settled)),
            false => Err(ArchiveError::NoSuchBucket(bucket.into())),
        }
    }

    /// Serialises changes to the versions of a key, in the order of the requests. A change holds
    /// the lock from its checks until its commit is acknowledged. Where a commit whose request went
    /// away holds it, the next waiter settles that commit.
    pub async fn lock(self: &Arc<Store>, bucket: u32, key: &str) -> Result<KeyLock> {
        self.lock_place(self.locks.place(bucket, key)).await
    }

    /// As `lock`, for several keys. Two of them may have one lock, and requests never wait for each
    /// other in a circle.
    pub async fn lock_all(self: &Arc<Store>, bucket: u32, keys: &[String]) -> Result<Vec<KeyLock>> {
        let places: BTreeSet<usize> = keys.iter().map(|key| self.locks.place(bucket, key)).collect();
        let mut held = Vec::with_capacity(places.len());
        for place in places {
            held.push(self.lock_place(place).await?);
        }
        Ok(held)
    }

    async fn lock_place(self: &Arc<Store>, place: usize) -> Result<KeyLock> {
        let lock = self.locks.at(place);
        if let Ok(free) = Arc::clone(&lock).try_lock_owned() {
            return Ok(free);
        }
        let mut waiting = std::pin::pin!(lock.lock_owned());
        loop {
            let abandonment = std::pin::pin!(self.abandoned.notified());
            if let Either::Left((held, _)) = select(waiting.as_mut(), abandonment).await {
                return Ok(held);
            }
            self.settle_abandoned().await?;
        }
    }
}
