//! The store as a whole: what it stands on, how it is made and opened.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures_util::future::{Either, select};
use stele_catalog::{Catalog, Direction, KeyRange, Snapshot, Transaction};
use stele_digests::Lanes;
use stele_ground::Bytes as Size;
use stele_media::Handle;
use tokio::sync::{RwLock, RwLockReadGuard};
use zeroize::Zeroizing;

use crate::access_keys::KnownKey;
use crate::audit::{Action, Event, Signing};
use crate::background::Work;
use crate::buckets::{Bucket, Buckets};
use crate::cache::Cache;
use crate::clock::ComplianceClock;
use crate::error::{ArchiveError, Result};
use crate::gate::Gate;
use crate::key_locks::{KeyLock, KeyLocks};
use crate::mutation::Mutations;
use crate::numbers::Numbers;
use crate::pairing::Paired;
use crate::principal::{Caller, Role};
use crate::record;
use crate::record::content::Place;
use crate::record::settings::IdentityRow;
use crate::record::{HOLDS, RETAINED};
use crate::room::Room;
use crate::seal::{Secret, derive, seal_note};
use crate::space::appender::{Appender, Record};
use crate::space::header::{Kind, RecordHeader};
use crate::space::keytable::KeyTable;
use crate::space::segments::{Segments, Writing};
use crate::space::superblock::Superblock;
use crate::time::{Surroundings, Timestamp};

/// Keeps what lies beneath from being removed while anything on it is retained: for a pool, the volumes' protection.
pub trait Guard: Send + Sync + 'static {
    /// `true` must be durable before it answers: the first retained version is committed after. Repeating is harmless.
    fn protect(&self, retained: bool) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;
}

/// For stores whose ground has nothing to protect: tests, benchmarks.
#[derive(Clone, Copy, Debug)]
pub struct NoGuard;

impl Guard for NoGuard {
    fn protect(&self, _retained: bool) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

/// The key that wraps every bucket key. Losing it loses every record: export it to escrow.
#[derive(Clone)]
pub struct MasterKey(pub(crate) Zeroizing<[u8; 32]>);

impl MasterKey {
    pub fn generate(surroundings: &dyn Surroundings) -> MasterKey {
        let mut key = Zeroizing::new([0; 32]);
        surroundings.entropy(key.as_mut());
        MasterKey(key)
    }

    /// Parses the text of a key file, environment variable or command: 64 hexadecimal digits, blanks around them ignored.
    pub fn parse(text: &str) -> Result<MasterKey> {
        crate::checksum::from_hex(text.trim())
            .and_then(|bytes| bytes.try_into().ok())
            .map(|key| MasterKey(Zeroizing::new(key)))
            .ok_or_else(|| ArchiveError::WrongKey("a master key is 64 hexadecimal digits".into()))
    }

    /// The text that `parse` takes. Secret.
    pub fn to_text(&self) -> Zeroizing<String> {
        Zeroizing::new(crate::checksum::to_hex(self.0.as_ref()))
    }
}

impl fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MasterKey(..)")
    }
}

/// A key that the customer keeps and sends with each request (SSE-C).
#[derive(Clone)]
pub struct CustomerKey(pub(crate) Zeroizing<[u8; 32]>);

impl CustomerKey {
    /// From the three headers: `AES256`, the key in base64, and the base64 of its MD5.
    pub fn parse(algorithm: &str, key: &str, md5: &str) -> Result<CustomerKey> {
        let refuse = |message: &str| Err(ArchiveError::InvalidArgument(message.into()));
        if algorithm != "AES256" {
            return refuse("the only algorithm for customer keys is AES256");
        }
        let Some(bytes) = crate::checksum::from_base64(key).and_then(|bytes| <[u8; 32]>::try_from(bytes).ok()) else {
            return refuse("a customer key is 32 bytes in base64");
        };
        let key = CustomerKey(Zeroizing::new(bytes));
        if key.md5() != md5 {
            return refuse("the MD5 of the customer key does not match the key");
        }
        Ok(key)
    }

    /// Base64, as requests and answers carry it.
    pub fn md5(&self) -> String {
        use md5::Digest;
        crate::checksum::to_base64(&md5::Md5::digest(self.0.as_ref()))
    }
}

impl fmt::Debug for CustomerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CustomerKey(..)")
    }
}

/// What a store stands on.
#[derive(Clone)]
pub struct Foundation {
    pub catalog: Arc<dyn Catalog>,
    /// The data volume.
    pub data: Handle,
    pub surroundings: Arc<dyn Surroundings>,
    pub guard: Arc<dyn Guard>,
    pub master: MasterKey,
}

#[derive(Clone, Debug)]
pub struct Options {
    /// Of a new store; a power of two from 256 KiB to 1 GiB.
    pub segment: Size,
    /// Plain and sealed bytes of all bodies on their way to the volume.
    pub in_flight: Size,
    /// Opened frames kept for readers; 0 keeps none.
    pub frame_cache: Size,
    /// The same for objects of more than one frame.
    pub piece_cache: Size,
    /// Unwrapped object keys kept; about 200 bytes each.
    pub key_cache: usize,
    /// Answers reads and refuses every change with `ReadOnly`: how a command without a server opens the store.
    pub read_only: bool,
    /// Protections taken away, in tests.
    pub without: Mutations,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            segment: Size(64 << 20),
            in_flight: Size(96 << 20),
            frame_cache: Size(64 << 20),
            piece_cache: Size(128 << 20),
            key_cache: 65_536,
            read_only: false,
            without: Mutations::default(),
        }
    }
}

/// The opened frames of a piece.
pub(crate) type Frames = Arc<[Bytes]>;

/// An open store. Clones share it, also when it is opened anew.
#[derive(Clone)]
pub struct Archive {
    current: Arc<std::sync::RwLock<Arc<Store>>>,
}

impl Archive {
    pub(crate) fn of(store: Store) -> Archive {
        Archive { current: Arc::new(std::sync::RwLock::new(Arc::new(store))) }
    }

    /// The store as it is open now. A request goes on with the one that it began with.
    pub(crate) fn store(&self) -> Arc<Store> {
        Arc::clone(&self.current.read().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    /// From here on every clone stands on the store of another archive.
    pub(crate) fn become_one(&self, other: Archive) {
        *self.current.write().unwrap_or_else(std::sync::PoisonError::into_inner) = other.store();
    }
}

/// Segments tried for a note.
const NOTE_ATTEMPTS: usize = 4;

pub(crate) struct Store {
    pub catalog: Arc<dyn Catalog>,
    /// The same catalog: what closes it to the store.
    pub gate: Arc<Gate>,
    pub volume: Handle,
    pub surroundings: Arc<dyn Surroundings>,
    pub guard: Arc<dyn Guard>,
    pub master: MasterKey,
    pub id: [u8; 16],
    pub segments: Arc<Segments>,
    pub numbers: Arc<Numbers>,
    pub appender: Arc<Appender>,
    pub keys: Arc<KeyTable>,
    pub buckets: Buckets,
    pub access: Mutex<Cache<String, Arc<KnownKey>>>,
    pub clock: Mutex<ComplianceClock>,
    pub signing: Signing,
    /// For bodies on their way.
    pub room: Room,
    pub object_keys: Mutex<Cache<u64, Arc<Secret>>>,
    /// By stream and frame.
    pub frames: Mutex<Cache<(u64, u32), Bytes>>,
    /// Opened pieces of larger objects: all their frames, by stream and number of the first.
    pub pieces: Mutex<Cache<(u64, u32), Frames>>,
    /// The guard knows that something is retained.
    pub protected: RwLock<bool>,
    pub locks: KeyLocks,
    /// Where the MD5s of all bodies are computed side by side.
    pub lanes: Arc<Lanes>,
    /// Frames in a full piece.
    pub piece_frames: usize,
    pub identity: Mutex<IdentityRow>,
    /// As it stands on the volume.
    pub superblock: Mutex<Superblock>,
    /// Whether the catalog belongs to the data volume. Where it does not, the store is open for reading only.
    pub paired: Paired,
    pub work: Work,
    pub read_only: bool,
    pub without: Mutations,
}

impl Store {
    /// Refuses where the store was opened for reading only.
    pub fn writable(&self) -> Result<()> {
        match self.read_only {
            true => {
                Err(ArchiveError::ReadOnly("the store is open for reading only; start the server, and ask it".into()))
            }
            false => Ok(()),
        }
    }

    pub fn snapshot(&self) -> Result<Box<dyn Snapshot>> {
        Ok(self.catalog.snapshot()?)
    }

    /// The wall clock: for what is shown, never for what retention ends by.
    pub fn wall(&self) -> Timestamp {
        self.surroundings.now().wall
    }

    /// The compliance clock, moved up to this moment.
    pub fn compliance_now(&self) -> Timestamp {
        let now = self.surroundings.now();
        let mut clock = locked(&self.clock);
        clock.advance(now);
        clock.shown()
    }

    /// The later of both clocks: what every new retention counts from. The compliance clock lags after time spent closed, the
    /// wall clock where somebody has set it back.
    pub fn later_now(&self) -> Timestamp {
        self.compliance_now().max(self.wall())
    }

    pub fn random(&self) -> u64 {
        let mut bytes = [0; 8];
        self.surroundings.entropy(&mut bytes);
        u64::from_be_bytes(bytes)
    }

    /// Serialises changes to the versions of a key, in the order of the requests. Held from judging until the commit is
    /// acknowledged. Where it is held by a commit whose request went away, that is settled by whoever comes here next.
    pub async fn lock(self: &Arc<Store>, bucket: u32, key: &str) -> Result<KeyLock> {
        let lock = self.locks.of(bucket, key);
        if let Ok(free) = Arc::clone(&lock).try_lock_owned() {
            return Ok(free);
        }
        let mut waiting = std::pin::pin!(lock.lock_owned());
        loop {
            let abandonment = std::pin::pin!(self.work.abandonment.notified());
            if let Either::Left((held, _)) = select(waiting.as_mut(), abandonment).await {
                return Ok(held);
            }
            self.settle_abandoned().await?;
        }
    }

    /// Has the guard told, once, before anything retained is committed. What comes back is held until the commit has
    /// answered, so that the protection is not lifted in between.
    pub async fn ensure_protected(&self) -> Result<RwLockReadGuard<'_, bool>> {
        loop {
            let protected = self.protected.read().await;
            if *protected {
                return Ok(protected);
            }
            drop(protected);
            let mut protected = self.protected.write().await;
            if !*protected {
                self.guard.protect(true).await.map_err(|error| {
                    ArchiveError::Stopped(format!(
                        "the volumes could not be marked as retained: {error}; nothing was stored"
                    ))
                })?;
                *protected = true;
            }
        }
    }

    /// Lifts the protection if nothing is retained or held any more, and the clock that says so is not in doubt.
    pub async fn unprotect_if_free(&self) -> Result<bool> {
        let mut protected = self.protected.write().await;
        if !*protected || locked(&self.clock).frozen().is_some() || self.doubt().is_some() {
            return Ok(false);
        }
        let retained = || -> Result<bool> {
            let now = self.compliance_now();
            let snapshot = self.snapshot()?;
            let later = KeyRange::all().from(record::keys::numbers(now.0.saturating_add(1), 0));
            let retained = !snapshot.range(RETAINED, &later, 1, Direction::Forward)?.is_empty();
            Ok(retained || !snapshot.range(HOLDS, &KeyRange::all(), 1, Direction::Forward)?.is_empty())
        };
        if retained()? {
            return Ok(false);
        }
        // A commit may be under way whose request went away: once this one has taken effect, so has that.
        self.barrier().await?;
        if retained()? {
            return Ok(false);
        }
        // Before it is done: whoever comes after an attempt that failed or was dropped midway has them marked again.
        *protected = false;
        self.guard.protect(false).await.map_err(|error| {
            ArchiveError::Stopped(format!("the volumes could not be marked as free of retention: {error}"))
        })?;
        Ok(true)
    }

    /// The key that seals notes which belong to no bucket.
    pub fn note_key(&self) -> Secret {
        derive(&self.master.0, "notes", &self.id)
    }

    /// Appends a note about something and waits until it is durable. For those that reclamation always keeps.
    pub async fn note<T: minicbor::Encode<()>>(
        &self,
        kind: Kind,
        scope: Option<&Bucket>,
        object: u64,
        note: &T,
    ) -> Result<Place> {
        self.note_within(None, true, kind, scope, object, note).await
    }

    /// As `note`, for what is to be committed. `reserve`: it may use the last segments.
    pub async fn note_within<T: minicbor::Encode<()>>(
        &self,
        writing: Option<&Arc<Writing>>,
        reserve: bool,
        kind: Kind,
        scope: Option<&Bucket>,
        object: u64,
        note: &T,
    ) -> Result<Place> {
        let mut attempts = 0;
        loop {
            let mut record = self.note_record(kind, scope, object, note).await?;
            record.writing = writing.cloned();
            let noted = match self.appender.append(record, reserve).await {
                Ok(appended) => appended.await,
                Err(error) => Err(error),
            };
            attempts += 1;
            match noted {
                // A place that cannot be written is left behind: the next attempt goes to another segment.
                Err(ArchiveError::Damaged { .. }) if attempts < NOTE_ATTEMPTS => {}
                noted => return noted,
            }
        }
    }

    pub async fn note_record<T: minicbor::Encode<()>>(
        &self,
        kind: Kind,
        scope: Option<&Bucket>,
        object: u64,
        note: &T,
    ) -> Result<Record> {
        let sequence = self.numbers.next().await?;
        let plain = record::encode(note);
        let sealed = match scope {
            Some(bucket) => seal_note(&*self.surroundings, &bucket.note_key, &sequence.to_be_bytes(), &plain),
            None => seal_note(&*self.surroundings, &self.note_key(), &sequence.to_be_bytes(), &plain),
        };
        let header = RecordHeader {
            kind,
            payload: 0,
            note: sealed.len() as u32,
            scope: scope.map_or(0, |bucket| bucket.number),
            first_frame: 0,
            object,
            stream: 0,
            salt: [0; 16],
            incarnation: 0,
            sequence,
            check: 0,
        };
        Ok(Record::note(header, &sealed))
    }
}

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // A panic elsewhere left whole values behind: every critical section here is a single step.
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl Archive {
    /// The master key's text for escrow, audited before it is handed out.
    pub async fn export_master_key(&self, caller: &Caller) -> Result<Zeroizing<String>> {
        let store = &self.store();
        let allowed = caller.require_role(&[Role::StorageAdministrator], Action::ExportMasterKey);
        store.audited(allowed, || Event::new(caller, Action::ExportMasterKey)).await?;
        let event = Event::new(caller, Action::ExportMasterKey).detail("handed out for escrow".into());
        store.record(Transaction::new().with_reserve(), event).await?;
        Ok(store.master.to_text())
    }

    /// Whether a key (an escrowed copy) opens this store: it unwraps every bucket key there is.
    pub async fn check_master_key(&self, key: &MasterKey) -> Result<bool> {
        let store = &self.store();
        let fits = |bucket: &Arc<Bucket>| {
            Bucket::open(key, bucket.number, bucket.row.clone(), bucket.raw.clone())
                .is_ok_and(|opened| *opened.key == *bucket.key)
        };
        let known = Superblock::read(&store.volume).await?.map(|superblock| superblock.fingerprint);
        Ok(known == Some(Superblock::fingerprint(key, &store.id)) && store.buckets.even_deleted().iter().all(fits))
    }
}
