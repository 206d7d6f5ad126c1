//! What an operator asks of a pool, and what it shows.

use stele_codes::Code;
use stele_ground::{Bytes, DriveId, Duration, Instant, PoolId, VolumeId};

use super::drive::{Departed, DriveStatus};

/// The place of a pool among the shards that divide the same drives. Each shard is a pool of its
/// own, with its own log, table and reactor; shard 0 has the identity of the whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shard {
    pub index: u16,
    pub count: u16,
}

impl Default for Shard {
    fn default() -> Shard {
        Shard { index: 0, count: 1 }
    }
}

impl Shard {
    /// Largest number of shards of a pool.
    pub const MAX: u16 = 64;

    pub fn is_alone(self) -> bool {
        self.count == 1
    }

    /// Whether it lies at the start of each drive.
    pub fn is_first(self) -> bool {
        self.index == 0
    }

    /// The identity of this shard of a pool; the same call turns it back into the pool's. Each
    /// shard has one of its own, so that no shard takes another's labels, or groups of its log, for
    /// its own.
    pub fn identity(self, pool: PoolId) -> PoolId {
        let mut bytes = pool.0;
        for (byte, index) in bytes[14..].iter_mut().zip(self.index.to_be_bytes()) {
            *byte ^= index;
        }
        PoolId(bytes)
    }
}

/// How a new pool is laid out. Chance comes in as values, so that a simulated pool repeats.
#[derive(Clone, Debug)]
pub struct CreateOptions {
    pub pool: PoolId,
    pub name: String,
    /// One identity per attached drive, in order.
    pub drives: Vec<DriveId>,
    /// Seeds the choice of placement rows.
    pub seed: u64,
    /// Bytes of log per log drive; none: a 64th of the drive, 8 MiB to 1 GiB.
    pub log: Option<Bytes>,
    /// Drives' worth of distributed spare space; none: the largest enclosure's drives, or two.
    pub spare_drives: Option<u32>,
    /// Seconds since 1970 that the operator confirmed; stored for the record.
    pub created: u64,
    /// Which of several shards it is; `pool` is then the identity of the whole.
    pub shard: Shard,
}

#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// Answer reads only and write nothing, labels included.
    pub read_only: bool,
    /// Open writable below a majority of drives. Audited by the caller.
    pub override_quorum: bool,
    /// Memory for slot-table pages and cached blocks, each.
    pub table_cache: Bytes,
    pub block_cache: Bytes,
    /// Dirty blocks held before writers wait for destage.
    pub dirty_limit: Bytes,
    /// Per cent of the dirty limit above which dirty blocks are destaged without waiting for their
    /// age, and at which that stops.
    pub flush_high: u8,
    pub flush_low: u8,
    /// Dirty blocks are destaged when they are so old, whatever their number.
    pub flush_age: Duration,
    pub seed: u64,
    /// Bytes a second that rebuild and scrub may each move while hosts are active.
    pub background_rate: Option<Bytes>,
    /// How long a drive may be missing before its strips are rebuilt into spare space; zero: at
    /// once.
    pub rebuild_after: Duration,
    /// Bytes that rebuild and scrub read from a drive, or write to it, with one request; at least a
    /// strip.
    pub background_run: Bytes,
    /// Strips that a rebuild holds at once at most, and a scrub as many.
    pub background_memory: Bytes,
    /// Why drives of the list that exist cannot be used. The missing drives are told with it.
    pub unusable: Vec<String>,
}

impl Default for OpenOptions {
    fn default() -> OpenOptions {
        OpenOptions {
            read_only: false,
            override_quorum: false,
            table_cache: Bytes(64 << 20),
            block_cache: Bytes(128 << 20),
            dirty_limit: Bytes(64 << 20),
            flush_high: 50,
            flush_low: 40,
            flush_age: Duration::from_secs(2),
            seed: 0,
            background_rate: None,
            rebuild_after: Duration(0),
            background_run: Bytes(4 << 20),
            background_memory: Bytes(2 << 30),
            unusable: Vec::new(),
        }
    }
}

impl OpenOptions {
    pub fn cache_limits(&self) -> CacheLimits {
        CacheLimits { dirty: self.dirty_limit, high: self.flush_high, low: self.flush_low, age: self.flush_age }
    }
}

/// How much may be dirty, and when it is flushed. Of the whole pool; see the fields of the same
/// meaning in [`OpenOptions`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CacheLimits {
    pub dirty: Bytes,
    /// Per cent of `dirty`.
    pub high: u8,
    pub low: u8,
    pub age: Duration,
}

/// The block cache now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CacheStatus {
    pub limits: CacheLimits,
    /// Room for clean blocks, and what of it is filled.
    pub size: Bytes,
    pub clean: Bytes,
    pub dirty: Bytes,
    /// Between the high mark and the low one.
    pub flushing: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteMode {
    /// Acknowledged when durable in the log on its replicas (small writes) or in its slot and
    /// mapped (full stripes).
    WriteBack,
    /// Acknowledged when the strips are durable on their drives.
    WriteThrough,
    /// Acknowledged from memory. For the laboratory, asked for by name, shown in every status.
    Volatile,
}

/// The unit a digest covers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DigestUnit {
    /// 4096 bytes: a cold small read costs one small drive read.
    Block,
    /// A whole strip: the smallest table, for streams.
    Strip,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VolumeSpec {
    pub name: String,
    pub code: Code,
    pub size: Bytes,
    /// 16 KiB to 1 MiB, a power of two.
    pub strip: Bytes,
    /// 512 or 4096: the block shown to users of the volume.
    pub block: Bytes,
    pub digest: DigestUnit,
    pub mode: WriteMode,
    /// Every stripe owns its slot from the start.
    pub fully_allocated: bool,
    /// Striped over all shards of the pool; else it lies in the first, and its writes have an order
    /// with those of other such volumes. Says nothing of a pool without shards.
    pub spread: bool,
    /// The part of Stele that keeps state on it ("catalog", "archive"); none for a host's volume.
    pub owner: Option<String>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Command {
    CreateVolume(VolumeSpec),
    /// Deletes a volume or snapshot. Refused while it is protected, or has snapshots or clones.
    DeleteVolume {
        name: String,
    },
    /// Freezes what the volume shows now under a name of its own. Refused for a volume with an
    /// owner.
    SnapshotVolume {
        volume: String,
        name: String,
        /// Seconds since 1970, for the record.
        made: u64,
    },
    /// A volume that begins as the snapshot and takes writes.
    CloneSnapshot {
        snapshot: String,
        name: String,
    },
    /// The volume shows what its snapshot shows; what was written since is gone. Refused for a
    /// volume with an owner.
    RollBackVolume {
        volume: String,
        snapshot: String,
    },
    /// Of the first of several shards: notes down to which snapshot a volume is being rolled back
    /// on all of them, or forgets it. Where that snapshot is gone, it names the volume.
    NoteRollback {
        snapshot: Option<VolumeId>,
    },
    /// Changes what is given.
    SetVolume {
        name: String,
        /// Stripes read ahead of a sequential reader; 0: none.
        read_ahead: Option<u8>,
        /// When writes are acknowledged from here on. Never `Volatile` while the volume holds
        /// retained records.
        mode: Option<WriteMode>,
    },
    /// Everything about one volume or snapshot. Reads its map and those it stands on.
    ShowVolume {
        name: String,
    },
    /// Makes it larger; or smaller, as far as it holds nothing behind the new end and shares
    /// nothing with a snapshot or clone.
    ResizeVolume {
        name: String,
        size: Bytes,
    },
    /// Said by the volume's owner only: `retained` true forbids delete, shrink, rollback, writable
    /// export and `Volatile`, and removing or re-creating the pool.
    Protect {
        volume: VolumeId,
        owner: String,
        retained: bool,
    },
    ListVolumes,
    Status,
    /// Puts the attached drive `new` (an index handed to `Event::Attach`) in the place of `old`.
    /// Where `old` does not answer, or with `give_up`, `new` takes its number and is filled from
    /// the others. Else `new` joins under a number of its own, and `old` leaves when everything
    /// that lay on it lies elsewhere. Refused where stripes can be read only with `old`; with
    /// `give_up` not where it does not answer.
    ReplaceDrive {
        old: u32,
        new: u32,
        identity: DriveId,
        /// Where the new drive is; none: in the enclosure of the old one.
        enclosure: Option<u32>,
        give_up: bool,
    },
    /// To a shard: whether it would take this `ReplaceDrive` or `AddDrives` now. Nothing changes.
    CheckDrives(Box<Command>),
    /// Says in which enclosure a drive is. Strips that then crowd an enclosure move in the
    /// background.
    SetDrive {
        drive: u32,
        enclosure: u32,
    },
    /// Takes attached drives (indices handed to `Event::Attach`) into the pool, each with its
    /// identity. Stripes move onto them in the background.
    AddDrives {
        drives: Vec<(u32, DriveId)>,
    },
    /// Empties a drive in the background; then it leaves the pool. Refused where what remains could
    /// not hold everything.
    RemoveDrive {
        drive: u32,
    },
    /// A drive that is being emptied stays in the pool.
    KeepDrive {
        drive: u32,
    },
    /// Forgets the errors of a drive. One that was given up for them, and answers, is taken back
    /// with what it holds, and is brought up to date like one that was away.
    ClearDrive {
        drive: u32,
    },
    /// Takes a drive of the pool back that is attached anew at this index.
    OnlineDrive {
        drive: u32,
        index: u32,
    },
    /// Declares a drive lost; its strips are rebuilt into spare space.
    FailDrive {
        drive: u32,
    },
    /// Reads and verifies everything once, now. Answers when it has begun.
    StartScrub,
    /// Writes a checkpoint, so that the log is empty behind it.
    Checkpoint,
    /// Overwrites what the log's ring holds of the past, on every drive that is there. Answers when
    /// it is durable.
    WashLog,
    /// Destages, checkpoints and marks the labels clean; then the pool is `Closed`.
    Close,
}

#[derive(Clone, Debug)]
pub enum Reply {
    Done,
    Volume(VolumeStatus),
    Volumes(Vec<VolumeStatus>),
    Detail(Box<VolumeDetail>),
    Status(Box<PoolStatus>),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VolumeStatus {
    pub id: VolumeId,
    pub spec: VolumeSpec,
    pub retained: bool,
    /// It is a snapshot, and takes no writes.
    pub snapshot: bool,
    /// The volume it is a snapshot of, or the snapshot it is a clone of, while that has a name.
    pub origin: Option<String>,
    /// When the snapshot was taken, in seconds since 1970; 0 of volumes.
    pub made: u64,
    /// Stripes read ahead of a sequential reader.
    pub read_ahead: u8,
    /// Bytes of data in slots that were written for it since its last snapshot, or, of a snapshot,
    /// that no older one has.
    pub allocated: Bytes,
    /// Ranges of stripes known to be lost: offset and length in the volume.
    pub lost: Vec<(u64, u64)>,
    /// Ranges of stripes that cannot be read now: those, and the ones whose drives are away.
    pub unreadable: Vec<(u64, u64)>,
}

impl VolumeStatus {
    /// A volume on nothing, with nothing in it.
    pub fn empty(id: VolumeId, spec: VolumeSpec) -> VolumeStatus {
        VolumeStatus {
            id,
            spec,
            retained: false,
            snapshot: false,
            origin: None,
            made: 0,
            read_ahead: 0,
            allocated: Bytes(0),
            lost: Vec::new(),
            unreadable: Vec::new(),
        }
    }
}

/// A volume or snapshot in full.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VolumeDetail {
    pub status: VolumeStatus,
    /// Bytes of data in all slots it shows, also of those that others show.
    pub refers: Bytes,
    /// Bytes of data that only it shows: free when it is deleted.
    pub alone: Bytes,
    /// Bytes that wait to be destaged, of those written since its last snapshot.
    pub dirty: Bytes,
    /// Reads answered from memory, and the others, since the pool was opened.
    pub hits: u64,
    pub misses: u64,
    pub ahead: AheadCounts,
    pub cache: CacheStatus,
}

/// What came of reading ahead, in bytes, since the pool was opened.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct AheadCounts {
    pub fetched: Bytes,
    /// Read by a host later.
    pub useful: Bytes,
    /// Left the cache, or was overwritten, before anybody read it.
    pub wasted: Bytes,
}

/// How far a long work is. Units are bytes of strips.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    pub done: Bytes,
    pub total: Bytes,
    pub since: Instant,
    /// Bytes a second, recent.
    pub rate: u64,
}

/// Room for data of volumes of one code and strip. Bytes are of data, without redundancy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CodeSpace {
    pub code: Code,
    pub strip: Bytes,
    pub volumes: u32,
    /// What the volumes may grow to by their sizes.
    pub promised: Bytes,
    /// In slots, snapshots included.
    pub allocated: Bytes,
    /// What would fit more, were nothing else written.
    pub free: Bytes,
}

/// A volume of a pool of several shards that cannot be read, whatever drives are there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Incomplete {
    pub volume: String,
    /// The snapshot that some parts show already and others do not. None where a part is missing,
    /// or where that snapshot is gone: then the parts stay until they are deleted.
    pub rolling_back_to: Option<String>,
}

#[derive(Clone, Debug)]
pub struct PoolStatus {
    pub pool: PoolId,
    pub name: String,
    /// Shards that divide the drives, each with a reactor thread; 1 where nothing is divided. Bytes
    /// and counts below are of all together.
    pub shards: u16,
    pub epoch: u64,
    pub read_only: bool,
    /// Of a pool of several shards: an opening accepted that acknowledged writes may be gone.
    pub loss_accepted: bool,
    pub incomplete: Vec<Incomplete>,
    /// Of the first of several shards: the snapshot that a volume is being rolled back to on all.
    /// Or a volume that shows different states, and the snapshot is gone.
    pub rolling_back: Option<VolumeId>,
    pub drives: Vec<DriveStatus>,
    /// What stands now about drives, not what once happened.
    pub standing: Vec<Alarm>,
    /// Raw bytes of cells; in use; kept free for rebuilds.
    pub raw: Bytes,
    pub used: Bytes,
    pub spare: Bytes,
    pub spare_used: Bytes,
    pub log_used: Bytes,
    pub log_size: Bytes,
    pub dirty: Bytes,
    pub rebuild: Option<Progress>,
    pub copy_back: Option<Progress>,
    pub scrub: Option<Progress>,
    /// Stripes on their way to added drives, or away from leaving ones.
    pub moving: Option<Progress>,
    /// Why stripes that should move cannot, and since when; nothing once one has moved, or none is
    /// to.
    pub moving_put_off: Option<(String, Instant)>,
    /// Drives that have left the pool since it was opened.
    pub removed: Vec<Departed>,
    /// Whole passes finished since the pool was opened, and what the last found.
    pub scrubs_finished: u64,
    pub scrub_damage_found: u64,
    pub scrub_damage_repaired: u64,
    /// Passes that ended before they were whole since the pool was opened, and why the last one
    /// did.
    pub scrubs_stopped: u64,
    pub scrub_trouble: String,
    pub lost_stripes: u64,
    /// Stripes that cannot be read now: the lost ones, those whose drives are away, and those that
    /// a drive which is being filled lacks until they return.
    pub unreadable_stripes: u64,
    /// False for a moment after drives came or went: which stripes cannot be read is being looked
    /// up.
    pub unreadable_known: bool,
    /// Stripes with a strip on a lost drive that no spare cell is left for.
    pub stripes_without_spare: u64,
    /// What keeps the log from being as safe as it should be, and since when, where that is known;
    /// nothing where it is.
    pub log_trouble: Option<(String, Option<Instant>)>,
    /// Room for data, code by code.
    pub codes: Vec<CodeSpace>,
    /// Stripes that have a slot, and of them those that may lose no further drive without loss of
    /// data.
    pub stripes: u64,
    pub critical_stripes: u64,
    /// Stripes that the loss of one enclosure makes unreadable; and of them those that could lie
    /// better on the drives that are here, which move.
    pub exposed_stripes: u64,
    pub crowded_stripes: u64,
    /// Strips rebuilt or repaired since open.
    pub rebuilt: u64,
    pub repaired: u64,
    /// Monotonic counts for benchmarks and metrics, by name: reads, writes, log groups, flushes,
    /// bytes copied ...
    pub counters: Vec<(&'static str, u64)>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Severity {
    Notice,
    Warning,
    Critical,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AlarmKind {
    DriveMissing,
    DriveFailed,
    DriveRejected,
    DriveStale,
    /// Errors beyond the ordinary: it may fail.
    DriveSuspect,
    /// Much slower than its peers.
    DriveSlow,
    /// Not well, and kept since it is needed.
    DriveNeeded,
    /// A slow or silent drive answers as it should again.
    DriveRecovered,
    DamageRepaired,
    /// What waited in memory to be destaged changed by itself.
    MemoryDamaged,
    StripeLost,
    LogDegraded,
    LogRepaired,
    /// The pool's own tables lie on fewer drives than they should.
    TableDegraded,
    SpareExhausted,
    SpaceLow,
    RebuildFinished,
    ScrubFinished,
    /// Stripes have moved onto added drives.
    GrowthFinished,
    /// A drive is empty and has left the pool.
    DriveRemoved,
    /// A drive cannot be emptied, or added drives not be filled.
    MovingPutOff,
    ReadOnly,
}

/// Something an operator should know, once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Alarm {
    pub kind: AlarmKind,
    pub severity: Severity,
    pub drive: Option<u32>,
    /// When it began, on the pool's clock.
    pub since: Instant,
    /// Cause and place.
    pub message: String,
    /// The next step; empty where there is none to take.
    pub next: String,
}
