//! The store that the bench measures: an archive in this process, on file drives behind io_uring,
//! filled through its own puts.

use std::fmt::Display;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use stele_archive::{
    Archive, Caller, ClassTerms, Expected, ExpiryAction, Foundation, Initiation, MasterKey, NewBucket, NoGuard,
    ObjectInfo, Options, PutRequest, Reading, Retention, RetentionMode, Surroundings, Tags, Timestamp,
};
use stele_catalog::{EmbeddedCatalog, Format, format};
use stele_ground::{Bytes as Size, Dice, GIB, Instant, MIB};
use stele_media::{DriveFile, Engine, Handle, Space, serve_file};

/// The bucket of the versions; what has passed is kept there.
pub const KEPT: &str = "kept";
/// The same with deletion.
pub const GONE: &str = "gone";
/// A bucket without retention.
pub const PLAIN: &str = "plain";
/// Groups of keys: `host-000/` to `host-999/`.
pub const GROUPS: u64 = 1000;
/// One version in as many has the tag `case=smith`, and another the class `staff`.
pub const RARE: u64 = 1000;
/// Requests under way at once.
pub const TOGETHER: usize = 32;
pub const HOUR: u64 = 3_600_000;

/// The system's clocks, which can be moved ahead together. The random numbers repeat: the bench
/// keeps no secrets.
pub struct Clock {
    origin: std::time::Instant,
    wall: u64,
    ahead: AtomicU64,
    dice: Mutex<Dice>,
}

impl Clock {
    fn new() -> Clock {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Clock {
            origin: std::time::Instant::now(),
            wall: u64::try_from(wall.as_millis()).unwrap_or(0),
            ahead: AtomicU64::new(0),
            dice: Mutex::new(Dice::new(1)),
        }
    }

    pub fn pass(&self, milliseconds: u64) {
        self.ahead.fetch_add(milliseconds, Ordering::SeqCst);
    }
}

impl Surroundings for Clock {
    fn now(&self) -> Reading {
        let elapsed = self.origin.elapsed() + std::time::Duration::from_millis(self.ahead.load(Ordering::SeqCst));
        Reading {
            monotonic: Instant(u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX)),
            wall: Timestamp(self.wall + u64::try_from(elapsed.as_millis()).unwrap_or(0)),
        }
    }

    fn entropy(&self, into: &mut [u8]) {
        self.dice.lock().unwrap_or_else(PoisonError::into_inner).fill(into);
    }
}

pub struct Store {
    pub archive: Archive,
    pub clock: Arc<Clock>,
    pub directory: PathBuf,
}

impl Drop for Store {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.directory));
    }
}

pub fn words(error: impl Display) -> String {
    error.to_string()
}

pub fn admin() -> Caller {
    Caller::local(0)
}

/// The key of a version. Versions of one group are far apart in time.
pub fn key(number: u64) -> String {
    format!("host-{:03}/object-{number:010}", number % GROUPS)
}

fn file(path: PathBuf, size: u64) -> Result<Handle, String> {
    let file = DriveFile::create(&path, Size(size), Space::Sparse).map_err(words)?;
    serve_file(file, Engine::default()).map_err(words)
}

impl Store {
    /// A store with room for as many small versions.
    pub async fn new(versions: u64) -> Result<Store, String> {
        let directory = std::env::temp_dir().join(format!("stele-bench-archive-{}", std::process::id()));
        std::fs::create_dir_all(&directory).map_err(words)?;
        let catalog = file(directory.join("catalog"), GIB.max(versions * 8192).next_multiple_of(64 * MIB))?;
        let data = file(directory.join("data"), (4 * GIB).max(versions * 16_384).next_multiple_of(64 * MIB))?;
        format(&catalog, &Format { id: [1; 16], journal: None }).map_err(words)?;
        let catalog = EmbeddedCatalog::open(&catalog, stele_catalog::Options::default()).map_err(words)?;
        let clock = Arc::new(Clock::new());
        let foundation = Foundation {
            catalog: Arc::new(catalog),
            data,
            surroundings: Arc::clone(&clock) as Arc<dyn Surroundings>,
            guard: Arc::new(NoGuard),
            master: MasterKey::generate(&*clock),
        };
        let archive = Archive::create(foundation, Options::default()).await.map_err(words)?;
        let store = Store { archive, clock, directory };
        for (name, expiry) in [(KEPT, ExpiryAction::Keep), (GONE, ExpiryAction::Delete), (PLAIN, ExpiryAction::Keep)] {
            let new = NewBucket { object_lock: name != PLAIN, expiry, ..NewBucket::default() };
            store.archive.create_bucket(&admin(), name, new).await.map_err(words)?;
        }
        let terms = ClassTerms {
            initiation: Initiation::Creation,
            retver: Some(1),
            retmin: 0,
            action: ExpiryAction::Keep,
            mode: RetentionMode::Compliance,
        };
        store.archive.create_class(&admin(), "staff", terms, "").await.map_err(words)?;
        store.archive.activate_class(&admin(), "staff", None).await.map_err(words)?;
        Ok(store)
    }

    pub async fn put(&self, bucket: &str, key: String, number: u64, body: &Bytes) -> Result<ObjectInfo, String> {
        let class = (number % RARE == 11 && bucket == KEPT).then(|| "staff".to_owned());
        let kept_for = if bucket == GONE { 2 * HOUR } else { 24 * HOUR };
        let until = Timestamp(self.clock.now().wall.0 + kept_for);
        let is_retained = class.is_none() && bucket != PLAIN;
        let retention = is_retained.then_some(Retention { mode: RetentionMode::Compliance, until });
        let mut tags = Tags::new();
        if number % RARE == 7 && bucket == KEPT {
            tags.insert("case".into(), "smith".into());
        }
        let request = PutRequest { bucket: bucket.into(), key, class, retention, tags, ..PutRequest::default() };
        let mut writer = self.archive.put(&admin(), request).await.map_err(words)?;
        writer.write(body.clone()).await.map_err(words)?;
        writer.finish(Expected::default()).await.map_err(words)
    }

    /// Puts versions of a few bytes, many at once.
    pub async fn fill(&self, bucket: &str, numbers: std::ops::Range<u64>) -> Result<(), String> {
        let body = Bytes::from_static(b"a short record");
        let puts = stream::iter(numbers).map(|number| self.put(bucket, key(number), number, &body));
        puts.buffer_unordered(2 * TOGETHER).try_for_each(|_| std::future::ready(Ok(()))).await
    }

    /// Steps until nothing is due. Returns how many versions expired.
    pub async fn settle(&self) -> Result<u64, String> {
        let mut expired = 0;
        loop {
            let report = self.archive.step().await.map_err(words)?;
            if let Some(alarm) = report.alarms.first() {
                return Err(alarm.message.clone());
            }
            expired += report.expired;
            if !report.more {
                return Ok(expired);
            }
        }
    }
}
