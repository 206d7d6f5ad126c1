//! A model of the administrator: random histories of root's commands on a pool that holds records.
//! They run online and offline, with wrong names in the configuration, missing and returning
//! drives, old copies of a volume or of the whole pool restored, clocks that jump, crashes and
//! rebuilds.
//!
//! After each step, no version under retention or hold may be deletable. If nothing is missing or
//! restored, each version must be readable, intact, and retained as long as promised. At the end of
//! a history the model undoes every disturbance: it returns the drives, the names and the newest
//! volumes. Then every promise must hold.
//!
//! One seed gives one history. The drives are sparse files in a directory of their own, and the
//! wall clock is the model's.

mod disk;
mod officers;
mod oracle;
mod scripts;
mod steps;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use stele_archive::mutation::Mutations;
use stele_archive::{
    Archive, Caller, Expected, NewBucket, PutRequest, Reading, Retention, RetentionMode, Rights, Surroundings,
    Timestamp,
};
use stele_array::server::{DrivePlace, NewDrives};
use stele_ground::{Bytes, Dice, Instant, MIB};
use stele_media::Space;

use super::create::{Made, make};
use super::{Node, Opening, heads};
use crate::config::{Config, Site};
use crate::drives::DriveArgument;
use crate::failure::Outcome;

const DRIVES: u32 = 6;
pub const DRIVE: u64 = 256 * MIB;
const DAY: u64 = 86_400_000;
pub const BUCKET: &str = "records";

/// The broken promise, and the history that led to it.
#[derive(Debug)]
pub struct Violation(pub String);

pub type Checked = Result<(), Violation>;

/// The model's clocks: elapsed time advances on request, and a step may set the wall clock to any
/// time.
pub struct ModelClock {
    elapsed: AtomicU64,
    ahead: AtomicU64,
    dice: Mutex<Dice>,
    begun: u64,
}

impl Surroundings for ModelClock {
    fn now(&self) -> Reading {
        let elapsed = self.elapsed.load(Ordering::Relaxed);
        let wall = self.begun + elapsed + self.ahead.load(Ordering::Relaxed);
        Reading { monotonic: Instant(elapsed * 1_000_000), wall: Timestamp(wall) }
    }

    fn entropy(&self, into: &mut [u8]) {
        self.dice.lock().unwrap_or_else(PoisonError::into_inner).fill(into);
    }
}

/// An acknowledged version, and the promise made for it.
#[derive(Clone, Debug)]
pub struct Record {
    key: String,
    version: String,
    seed: u64,
    length: usize,
    until: Timestamp,
    hold: bool,
}

/// The administrator's changes to the pool that are not undone yet.
#[derive(Default, Debug)]
pub struct Disturbed {
    /// The configuration names other volumes than the archive's.
    names: bool,
    /// Drives that are detached.
    away: Vec<u32>,
    /// An old catalog was restored; a rebuild repairs that.
    old_catalog: bool,
    /// Old copies of all drives were restored; heads sent elsewhere are newer.
    set_back: bool,
    /// A rebuild finished with losses: every version is held, and some may be unknown.
    in_doubt: bool,
}

impl Disturbed {
    /// The archive must not accept writes.
    fn forbids_writing(&self) -> bool {
        self.names || self.old_catalog || self.set_back
    }

    /// More drives are missing than the code tolerates.
    fn hides(&self) -> bool {
        self.away.len() > 1
    }
}

pub struct World {
    dir: PathBuf,
    site: Site,
    clock: Arc<ModelClock>,
    dice: Dice,
    without: Mutations,
    node: Option<Node>,
    records: Vec<Record>,
    disturbed: Disturbed,
    /// Number of openings for writing so far.
    openings: u64,
    /// The catalog's content at an earlier opening.
    old_catalog: Option<(u64, disk::Content)>,
    /// The whole pool at an earlier opening.
    old_pool: Option<(u64, PathBuf)>,
    /// The pool before an old copy was restored.
    newest: Option<PathBuf>,
    names: (String, String),
    told: Vec<String>,
    count: u64,
    theme: &'static [u64],
    /// Number of records under the last head that was sent.
    sent: u64,
    /// The heads that were sent are removed.
    headless: bool,
    /// The keys of two officers.
    officers: Vec<String>,
}

impl Drop for World {
    fn drop(&mut self) {
        self.node = None;
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

impl World {
    pub fn theme(seed: u64) -> &'static [u64] {
        steps::THEMES[(seed % steps::THEMES.len() as u64) as usize]
    }

    pub async fn new(seed: u64, without: Mutations, drive: u64) -> Outcome<World> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        // Histories and scripts run side by side and have the same numbers.
        static MADE: AtomicU64 = AtomicU64::new(0);
        let made = MADE.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("stele-model-{}-{number}-{made}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(dir.join("drives")).expect("a folder for the drives");
        let site = Site::find(Some(&dir), None);
        let place = |drive| DriveArgument(DrivePlace::new(dir.join(format!("drives/{drive}.img")), drive));
        let config = Config::new((0..DRIVES).map(place).collect());
        let clock = Arc::new(ModelClock {
            elapsed: AtomicU64::new(0),
            ahead: AtomicU64::new(0),
            dice: Mutex::new(Dice::new(seed ^ 0xE17)),
            begun: super::wall_clock() * 1000,
        });
        let made = Made {
            name: "pool".into(),
            log: Some(Bytes(16 * MIB)),
            spare: None,
            shards: 1,
            data: Some("2+1".parse().expect("a code")),
            new: Some(NewDrives { size: Bytes(drive), space: Space::Sparse }),
        };
        make(&site, config, made).await?.close().await?;
        let names = ("catalog".to_owned(), "data".to_owned());
        let mut world = World {
            dir,
            site,
            clock,
            dice: Dice::new(seed),
            without,
            node: None,
            records: Vec::new(),
            disturbed: Disturbed::default(),
            openings: 0,
            old_catalog: None,
            old_pool: None,
            newest: None,
            names,
            told: Vec::new(),
            count: 0,
            theme: World::theme(seed),
            sent: 0,
            headless: false,
            officers: Vec::new(),
        };
        world.open().await?;
        let new = NewBucket { object_lock: true, versioning: true, ..NewBucket::default() };
        let archive = world.archive().expect("a new archive").clone();
        archive.create_bucket(&root(), BUCKET, new).await?;
        for name in ["anna", "ben"] {
            world.officers.push(archive.create_access_key(&root(), name, Rights::officer()).await?.id);
        }
        Ok(world)
    }

    fn tell(&mut self, what: impl Into<String>) {
        self.told.push(what.into());
    }

    fn violated(&self, what: impl Into<String>) -> Violation {
        Violation(format!("{}\n  after: {}\n  {:?}", what.into(), self.told.join("\n  then: "), self.disturbed))
    }

    fn pass(&self, milliseconds: u64) {
        self.clock.elapsed.fetch_add(milliseconds, Ordering::Relaxed);
    }

    fn archive(&self) -> Option<&Archive> {
        self.node.as_ref().and_then(|node| node.archive().ok())
    }

    fn writable(&self) -> Option<&Archive> {
        self.archive().filter(|_| self.node.as_ref().is_some_and(|node| node.trouble().is_none()))
    }

    fn config(&self) -> Outcome<Config> {
        Config::read(&self.site.config_path)
    }

    /// Opens the pool with the model's clock and without the removed protections.
    async fn pool(&self, opening: Opening) -> Outcome<Node> {
        let mut node = Node::open_pool(&self.site, self.config()?, opening).await?;
        node.surroundings = Arc::clone(&self.clock) as Arc<dyn Surroundings>;
        node.without = self.without;
        Ok(node)
    }

    /// Starts the server. The oracle decides whether it should serve the archive.
    async fn open(&mut self) -> Outcome<()> {
        let mut node = self.pool(Opening::for_server()).await?;
        if let Err(failure) = node.open_archive(&self.site, Opening::for_server()).await {
            let _ = node.close().await;
            return Err(failure);
        }
        self.node = Some(node);
        if self.writable().is_some() {
            self.openings += 1;
            self.send_head().await;
        }
        Ok(())
    }

    async fn send_head(&mut self) {
        let Some(archive) = self.writable().cloned().filter(|_| !self.headless) else { return };
        let Ok(config) = self.config() else { return };
        if let Ok(head) = archive.audit_head_to_send().await {
            for place in heads::places(&self.site, &config) {
                heads::write(&place, &head).expect("a place for heads");
            }
            self.sent = head.records;
        }
    }

    /// Stops the server in order.
    async fn close(&mut self) {
        self.send_head().await;
        if let Some(node) = self.node.take() {
            let _ = node.close().await;
        }
    }

    async fn put(&mut self) -> Outcome<()> {
        // Some versions are retained for minutes only, so that only a later extension keeps them.
        let days = [0, 0, 1, 30, 3650][self.dice.below(5) as usize];
        let hold = self.dice.below(4) == 0;
        let length = 1 + self.dice.below(300_000) as usize;
        self.put_for(days, hold, length).await
    }

    async fn put_for(&mut self, days: u64, hold: bool, length: usize) -> Outcome<()> {
        let seed = self.dice.below(1 << 40);
        let until = Timestamp(self.clock.now().wall.0 + 300_000).plus_days(days);
        self.count += 1;
        let key = format!("record {}", self.count);
        let Some(archive) = self.writable() else { return Ok(()) };
        let request = PutRequest {
            bucket: BUCKET.into(),
            key: key.clone(),
            retention: Some(Retention { mode: RetentionMode::Compliance, until }),
            legal_hold: hold,
            ..PutRequest::default()
        };
        let mut writer = archive.put(&root(), request).await?;
        writer.write(content(seed, length).into()).await?;
        let info = writer.finish(Expected::default()).await?;
        self.records.push(Record { key, version: info.version.to_string(), seed, length, until, hold });
        Ok(())
    }
}

pub fn root() -> Caller {
    Caller::local(0)
}

pub fn content(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    Dice::new(seed).fill(&mut bytes);
    bytes
}

mod tests;
