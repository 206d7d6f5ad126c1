//! A label as bytes; see FORMAT/drive.md.
//!
//! Reading answers a label, or why there is none: nothing there, damage, or a format this code does
//! not know.

use stele_ground::digest::crc32c;
use stele_ground::{Bytes, DriveId, PoolId, VolumeId};
use stele_media::{Buffer, Shared};

use super::{Configuration, DriveEntry, DriveState, Features, LABEL_SIZE, LogEpoch};
use crate::formats::codec::{Reader, Writer};
use crate::model::Shard;
use crate::model::place::DriveNumber;

pub const MAGIC: &[u8; 8] = b"STELELBL";
/// The layout of the label itself; features inside say more.
pub const FORMAT: u32 = 1;
/// Incompatible feature: the label ends with what agreement in two steps needs (`promised`,
/// `complete`, `settled`, overrides). A program that does not know it would drop these fields, and
/// with them what protects the majority's choice.
pub const TWO_STEPS: u64 = 1;
/// Incompatible feature: slots and log groups may have XXH3 for what hosts wrote.
pub const FINGERPRINTS: u64 = 2;
/// Incompatible feature: the pool is one of several shards, which divide each drive among them. The
/// label ends with the shard's place.
pub const SHARDED: u64 = 4;
/// What every label that this code writes has.
pub const WRITTEN: u64 = TWO_STEPS | FINGERPRINTS;
/// The incompatible features of a shard's labels.
pub fn features_of(shard: Shard) -> u64 {
    if shard.is_alone() { WRITTEN } else { WRITTEN | SHARDED }
}

/// Features this code can write with.
pub const KNOWN: Features = Features { compatible: 0, read_only_compatible: 0, incompatible: WRITTEN | SHARDED };

const HEADER: usize = 24;
const FIXED: usize = 160;
const ENTRY: usize = 40;
/// Behind the log epochs, before the overrides.
const TRAILER: usize = 32;
/// Behind the overrides, of a shard.
const SHARD: usize = 16;

/// One drive's label. Everything but `configuration` is the drive's own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Label {
    pub sequence: u64,
    pub number: DriveNumber,
    /// The highest epoch that an opening has announced to this drive. See [`super::agreement`].
    pub promised: u64,
    /// The drive holds everything it should hold as of this epoch.
    pub complete: u64,
    pub configuration: Configuration,
}

/// Why bytes are no label.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoLabel {
    Blank,
    Damaged,
    /// An incompatible feature from later on.
    TooNew(u64),
    /// Another format. The check does not cover this field: of one copy alone it may be damage.
    OtherFormat(u32),
}

/// What a label says of its own layout, whichever version wrote it. These fields, and the check
/// over them, keep their places in every format.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Stamp {
    pub format: u32,
    pub incompatible: u64,
    pub read_only_compatible: u64,
}

impl Stamp {
    /// None: no whole label.
    pub fn read(bytes: &[u8]) -> Option<Stamp> {
        let word = |at: usize| bytes.get(at..at + 4).and_then(|word| word.try_into().ok()).map(u32::from_le_bytes);
        let wide = |at: usize| bytes.get(at..at + 8).and_then(|word| word.try_into().ok()).map(u64::from_le_bytes);
        let (format, length, crc) = (word(8)?, word(12)? as usize, word(16)?);
        let whole = bytes.get(..8)? == MAGIC && crc32c(bytes.get(HEADER..length)?) == crc;
        whole.then_some(Stamp { format, incompatible: wide(40)?, read_only_compatible: wide(32)? })
    }
}

/// Bytes the label takes, a multiple of 4096.
pub fn encoded(configuration: &Configuration) -> usize {
    let epochs: usize = configuration.log.iter().map(|epoch| 24 + 2 * epoch.members.len()).sum();
    let shard = if configuration.shard.is_alone() { 0 } else { SHARD };
    let trailer = TRAILER + 8 * configuration.overrides.len() + shard;
    (HEADER + FIXED + configuration.name.len() + 16 + ENTRY * configuration.drives.len() + epochs + trailer)
        .next_multiple_of(stele_ground::BLOCK)
}

impl Label {
    /// Panics when the table of drives and epochs outgrew the label; `Labels::commit` refuses
    /// earlier.
    pub fn encode(&self) -> Shared {
        let configuration = &self.configuration;
        let length = encoded(configuration);
        assert!(length as u64 <= LABEL_SIZE, "a label of {length} bytes does not fit its place");
        let mut buffer = Buffer::zeroed(length);
        let mut w = Writer::new(&mut buffer);
        w.put(MAGIC);
        w.u32(FORMAT);
        w.u32(length as u32);
        w.u64(0);
        w.u64(configuration.features.compatible);
        w.u64(configuration.features.read_only_compatible);
        w.u64(configuration.features.incompatible | features_of(configuration.shard));
        w.put(&configuration.pool.0);
        w.u64(self.sequence);
        w.u16(self.number.0);
        w.u16(
            u16::from(configuration.protected)
                | u16::from(configuration.clean) << 1
                | u16::from(configuration.growing) << 2,
        );
        w.u32(configuration.tolerates);
        w.u32(configuration.spare_drives);
        w.u16(configuration.drives.len() as u16);
        w.u16(configuration.log.len() as u16);
        w.u64(configuration.created);
        w.u64(configuration.epoch);
        w.u64(configuration.seed);
        w.u64(configuration.unit_size.0);
        w.u64(configuration.log_size.0);
        w.text(&configuration.name);
        w.pad(8);
        for entry in &configuration.drives {
            w.put(&entry.identity.0);
            w.u64(entry.size.0);
            w.u64(entry.joined);
            w.u32(entry.enclosure);
            w.u32(u32::from(entry.state.number()) | u32::from(entry.leaving) << 8);
        }
        for epoch in &configuration.log {
            w.u64(epoch.epoch);
            w.u64(epoch.first_group);
            w.u16(epoch.members.len() as u16);
            epoch.members.iter().for_each(|member| w.u16(member.0));
        }
        w.u64(self.promised);
        w.u64(self.complete);
        w.u64(configuration.settled);
        w.u32(configuration.overrides.len() as u32);
        configuration.overrides.iter().for_each(|id| w.u64(*id));
        if !configuration.shard.is_alone() {
            w.u16(configuration.shard.index);
            w.u16(configuration.shard.count);
            w.u32(u32::from(configuration.loss_accepted));
            w.u64(configuration.rolling_back.map_or(0, |snapshot| u64::from(snapshot.0) + 1));
        }
        let crc = crc32c(&buffer[HEADER..]);
        buffer[16..20].copy_from_slice(&crc.to_le_bytes());
        buffer.freeze()
    }

    /// Reads one copy; `bytes` may be longer than the label.
    pub fn decode(bytes: &Shared) -> Result<Label, NoLabel> {
        if bytes.get(..8) != Some(MAGIC) {
            return Err(NoLabel::Blank);
        }
        let mut r = Reader::new(bytes.slice(8..));
        let (Some(format), Some(length), Some(crc)) = (r.u32(), r.u32(), r.u32()) else { return Err(NoLabel::Damaged) };
        let Some(body) = bytes.get(HEADER..length as usize) else { return Err(NoLabel::Damaged) };
        if crc32c(body) != crc {
            return Err(NoLabel::Damaged);
        }
        if format != FORMAT {
            return Err(NoLabel::OtherFormat(format));
        }
        let mut r = Reader::new(bytes.slice(HEADER..length as usize));
        let incompatible = bytes.get(40..48).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes);
        if incompatible & !KNOWN.incompatible != 0 {
            return Err(NoLabel::TooNew(incompatible));
        }
        decode_body(&mut r).ok_or(NoLabel::Damaged)
    }
}

fn decode_body(r: &mut Reader) -> Option<Label> {
    let features = Features { compatible: r.u64()?, read_only_compatible: r.u64()?, incompatible: r.u64()? };
    let (pool, sequence, number, flags) = (PoolId(r.id()?), r.u64()?, DriveNumber(r.u16()?), r.u16()?);
    let (tolerates, spare_drives) = (r.u32()?, r.u32()?);
    let (drive_count, epoch_count) = (usize::from(r.u16()?), usize::from(r.u16()?));
    let (created, epoch, seed) = (r.u64()?, r.u64()?, r.u64()?);
    let (unit_size, log_size) = (Bytes(r.u64()?), Bytes(r.u64()?));
    let name = r.text()?;
    r.pad(8)?;
    // What later arithmetic relies on.
    if !unit_size.0.is_power_of_two() || unit_size.0 < 1 << 16 || tolerates > 16 || log_size.0 % 4096 != 0 {
        return None;
    }
    if !r.can_hold(drive_count, ENTRY) || usize::from(number.0) >= drive_count {
        return None;
    }
    let drives = (0..drive_count).map(|_| decode_entry(r)).collect::<Option<_>>()?;
    if !r.can_hold(epoch_count, 18) {
        return None;
    }
    let log = (0..epoch_count).map(|_| decode_epoch(r, drive_count)).collect::<Option<_>>()?;
    let own = if features.incompatible & TWO_STEPS != 0 { decode_trailer(r)? } else { Trailer::of_former(epoch) };
    let together = if features.incompatible & SHARDED != 0 { decode_shard(r)? } else { Together::default() };
    // A label of a former kind is renewed with the fields and features it lacks.
    let features = Features { incompatible: features.incompatible | WRITTEN, ..features };
    let configuration = Configuration {
        pool,
        name,
        created,
        features,
        epoch,
        seed,
        unit_size,
        log_size,
        spare_drives,
        tolerates,
        drives,
        log,
        protected: flags & 1 != 0,
        clean: flags & 2 != 0,
        growing: flags & 4 != 0,
        settled: own.settled,
        overrides: own.overrides,
        shard: together.shard,
        loss_accepted: together.loss_accepted,
        rolling_back: together.rolling_back,
    };
    Some(Label { sequence, number, promised: own.promised, complete: own.complete, configuration })
}

struct Trailer {
    promised: u64,
    complete: u64,
    settled: u64,
    overrides: Vec<u64>,
}

impl Trailer {
    /// What a label without these fields stood for: its drive held everything as of its epoch, and
    /// whatever was written counted as agreed.
    fn of_former(epoch: u64) -> Trailer {
        Trailer { promised: epoch, complete: epoch, settled: epoch, overrides: Vec::new() }
    }
}

fn decode_trailer(r: &mut Reader) -> Option<Trailer> {
    let (promised, complete, settled, count) = (r.u64()?, r.u64()?, r.u64()?, r.u32()? as usize);
    if !r.can_hold(count, 8) {
        return None;
    }
    let overrides = (0..count).map(|_| r.u64()).collect::<Option<_>>()?;
    Some(Trailer { promised, complete, settled, overrides })
}

/// What shards know of each other.
#[derive(Default)]
struct Together {
    shard: Shard,
    loss_accepted: bool,
    rolling_back: Option<VolumeId>,
}

fn decode_shard(r: &mut Reader) -> Option<Together> {
    let shard = Shard { index: r.u16()?, count: r.u16()? };
    let loss_accepted = r.u32()? & 1 != 0;
    // A list of the former kind ends before it, in most labels with zeros behind.
    let rolling_back = match r.u64().unwrap_or(0).checked_sub(1) {
        Some(snapshot) => Some(VolumeId(u32::try_from(snapshot).ok()?)),
        None => None,
    };
    (shard.index < shard.count && !shard.is_alone()).then_some(Together { shard, loss_accepted, rolling_back })
}

fn decode_entry(r: &mut Reader) -> Option<DriveEntry> {
    let (identity, size, joined, enclosure) = (DriveId(r.id()?), Bytes(r.u64()?), r.u64()?, r.u32()?);
    let standing = r.u32()?;
    let state = DriveState::from_number(u8::try_from(standing & !0x100).ok()?)?;
    Some(DriveEntry { identity, enclosure, size, state, leaving: standing & 0x100 != 0, joined })
}

fn decode_epoch(r: &mut Reader, drives: usize) -> Option<LogEpoch> {
    let (epoch, first_group, count) = (r.u64()?, r.u64()?, usize::from(r.u16()?));
    if !r.can_hold(count, 2) {
        return None;
    }
    let members: Vec<DriveNumber> = (0..count).map(|_| r.u16().map(DriveNumber)).collect::<Option<_>>()?;
    members.iter().all(|member| usize::from(member.0) < drives).then_some(LogEpoch { epoch, first_group, members })
}
