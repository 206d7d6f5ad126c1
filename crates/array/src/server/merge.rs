//! What the shards of a pool say, as the pool's word.

use stele_ground::{Bytes, DriveId, VolumeId};

use super::registry::Registry;
use super::striping::Striping;
use crate::model::{
    AheadCounts, Alarm, ArrayError, CodeSpace, Departed, DriveHealth, DriveStatus, Incomplete, NOT_A_MEMBER,
    PoolStatus, Progress, VolumeDetail, VolumeStatus,
};

/// Where a shard's number stands in that of a volume which the first shard lacks.
const LACKING: u32 = 26;

/// What is wrong with a drive that only some shards have.
const IN_PART: &str = "not all shards of the pool have it: give the command that added or replaced it again";

/// A shard that lacks room says so of its part of a volume. `shards`: how many parts there are.
pub fn of_each(error: ArrayError, shards: usize) -> ArrayError {
    match error {
        ArrayError::Full(text) if shards > 1 => {
            ArrayError::Full(format!("on each of {shards} shards, which take equal parts of it: {text}"))
        }
        error => error,
    }
}

/// A volume from its parts, each with its shard, in the order of these. `shards`: how many parts
/// there should be.
pub fn volume(parts: &[(usize, VolumeStatus)], shards: usize) -> VolumeStatus {
    let (on, first) = &parts[0];
    let mut whole = first.clone();
    if shards == 1 {
        return whole;
    }
    let striping = Striping::of(&whole.spec, shards);
    let mut sizes = vec![Bytes(0); shards];
    parts.iter().for_each(|(shard, part)| sizes[*shard] = part.spec.size);
    whole.retained = parts.iter().any(|(_, part)| part.retained);
    whole.allocated = sum(parts, |(_, part)| part.allocated);
    if parts.len() < shards {
        // Numbers are the first shard's; one that lacks its part there has a number of its own.
        whole.id = VolumeId(whole.id.0 | (*on as u32) << LACKING);
        whole.spec.size = striping.covering(&sizes);
        whole.unreadable = vec![(0, whole.spec.size.0)];
        return whole;
    }
    whole.spec.size = striping.size(&sizes);
    let shown = |ranges: fn(&VolumeStatus) -> &Vec<(u64, u64)>| {
        let of = |(shard, part): &(usize, VolumeStatus)| {
            let shard = *shard;
            let shown =
                ranges(part).clone().into_iter().flat_map(move |(at, length)| striping.shown(shard, at, length));
            shown.collect::<Vec<_>>()
        };
        let mut all: Vec<(u64, u64)> = parts.iter().flat_map(of).collect();
        all.sort_unstable();
        joined(all)
    };
    whole.lost = shown(|part| &part.lost);
    whole.unreadable = shown(|part| &part.unreadable);
    whole
}

/// Ranges in order, neighbours joined.
fn joined(ranges: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    let mut all: Vec<(u64, u64)> = Vec::with_capacity(ranges.len());
    for (at, length) in ranges {
        match all.last_mut() {
            Some((from, so_far)) if *from + *so_far == at => *so_far += length,
            _ => all.push((at, length)),
        }
    }
    all
}

/// A volume in full. Of the cache it says what all shards have together.
pub fn details(status: VolumeStatus, parts: Vec<VolumeDetail>) -> VolumeDetail {
    let mut parts = parts.into_iter();
    let mut whole = parts.next().expect("a volume has a part on the first shard");
    for part in parts {
        whole.refers.0 += part.refers.0;
        whole.alone.0 += part.alone.0;
        whole.dirty.0 += part.dirty.0;
        whole.hits += part.hits;
        whole.misses += part.misses;
        let AheadCounts { fetched, useful, wasted } = part.ahead;
        whole.ahead.fetched.0 += fetched.0;
        whole.ahead.useful.0 += useful.0;
        whole.ahead.wasted.0 += wasted.0;
        whole.cache.limits.dirty.0 += part.cache.limits.dirty.0;
        whole.cache.size.0 += part.cache.size.0;
        whole.cache.clean.0 += part.cache.clean.0;
        whole.cache.dirty.0 += part.cache.dirty.0;
        whole.cache.flushing |= part.cache.flushing;
    }
    VolumeDetail { status, ..whole }
}

/// The pool from its shards, the first one first.
pub fn statuses(shards: Vec<PoolStatus>, registry: &Registry) -> PoolStatus {
    let count = shards.len() as u64;
    let drives = drives(&shards);
    let removed = removed(&shards);
    let codes = codes(&shards);
    let standing = standing(&shards);
    let mut all = shards.into_iter();
    let mut whole = all.next().expect("a pool has a shard");
    for shard in all {
        whole.read_only |= shard.read_only;
        whole.loss_accepted |= shard.loss_accepted;
        for (sum, part) in [
            (&mut whole.raw, shard.raw),
            (&mut whole.used, shard.used),
            (&mut whole.spare, shard.spare),
            (&mut whole.spare_used, shard.spare_used),
            (&mut whole.log_used, shard.log_used),
            (&mut whole.log_size, shard.log_size),
            (&mut whole.dirty, shard.dirty),
        ] {
            sum.0 += part.0;
        }
        for (sum, part) in [
            (&mut whole.rebuild, shard.rebuild),
            (&mut whole.copy_back, shard.copy_back),
            (&mut whole.scrub, shard.scrub),
            (&mut whole.moving, shard.moving),
        ] {
            *sum = progress(*sum, part);
        }
        whole.moving_put_off = whole.moving_put_off.or(shard.moving_put_off);
        whole.scrubs_finished = whole.scrubs_finished.min(shard.scrubs_finished);
        whole.scrubs_stopped = whole.scrubs_stopped.max(shard.scrubs_stopped);
        if whole.scrub_trouble.is_empty() {
            whole.scrub_trouble = shard.scrub_trouble;
        }
        whole.unreadable_known &= shard.unreadable_known;
        whole.log_trouble = whole.log_trouble.or(shard.log_trouble);
        for (sum, part) in [
            (&mut whole.scrub_damage_found, shard.scrub_damage_found),
            (&mut whole.scrub_damage_repaired, shard.scrub_damage_repaired),
            (&mut whole.lost_stripes, shard.lost_stripes),
            (&mut whole.unreadable_stripes, shard.unreadable_stripes),
            (&mut whole.stripes_without_spare, shard.stripes_without_spare),
            (&mut whole.stripes, shard.stripes),
            (&mut whole.critical_stripes, shard.critical_stripes),
            (&mut whole.exposed_stripes, shard.exposed_stripes),
            (&mut whole.crowded_stripes, shard.crowded_stripes),
            (&mut whole.rebuilt, shard.rebuilt),
            (&mut whole.repaired, shard.repaired),
        ] {
            *sum += part;
        }
        for ((_, sum), (_, part)) in whole.counters.iter_mut().zip(shard.counters) {
            *sum += part;
        }
    }
    let incomplete = registry.incomplete().into_iter();
    let incomplete = incomplete.map(|(volume, rolling_back_to)| Incomplete { volume, rolling_back_to }).collect();
    assert!(u64::from(whole.shards) == count, "{count} shards answered, and the pool has {}", whole.shards);
    PoolStatus { drives, codes, standing, incomplete, removed, ..whole }
}

/// Drives by their identity, as the shard sees them that is worst off. Numbers are the first
/// shard's. A drive that it does not have, and another shard has, has none.
fn drives(shards: &[PoolStatus]) -> Vec<DriveStatus> {
    let of = |shard: &PoolStatus, known: &DriveStatus| -> Option<DriveStatus> {
        let is_same = |drive: &&DriveStatus| match known.is_member() {
            true => drive.is_member() && drive.identity == known.identity,
            false => !drive.is_member() && drive.name == known.name,
        };
        shard.drives.iter().find(is_same).cloned()
    };
    let Some((first, others)) = shards.split_first() else { return Vec::new() };
    let merge = |known: &DriveStatus, others: &[PoolStatus]| {
        let parts: Vec<DriveStatus> = others.iter().filter_map(|shard| of(shard, known)).collect();
        let worst = parts.iter().filter(|part| gravity(part.health) > gravity(known.health));
        let seen = worst.max_by_key(|part| gravity(part.health)).unwrap_or(known).clone();
        let mut whole = DriveStatus { index: known.index, identity: known.identity, ..seen };
        whole.attached = known.attached.or_else(|| parts.iter().find_map(|part| part.attached));
        whole.leaving = known.leaving || parts.iter().any(|part| part.leaving);
        whole.size = Bytes(known.size.0 + sum(&parts, |part| part.size).0);
        whole.used = Bytes(known.used.0 + sum(&parts, |part| part.used).0);
        let total = |first: u64, count: fn(&DriveStatus) -> u64| first + parts.iter().map(count).sum::<u64>();
        whole.read_errors = total(known.read_errors, |part| part.read_errors);
        whole.write_errors = total(known.write_errors, |part| part.write_errors);
        whole.digest_errors = total(known.digest_errors, |part| part.digest_errors);
        whole.repaired = total(known.repaired, |part| part.repaired);
        if known.is_member() && parts.len() < others.len() && whole.note.is_empty() && !whole.leaving {
            whole.note = IN_PART.into();
        }
        whole
    };
    let mut all: Vec<DriveStatus> = first.drives.iter().map(|known| merge(known, others)).collect();
    // A command that put it in did not reach the first shard, or one that empties it is done there.
    for (at, shard) in others.iter().enumerate() {
        for drive in shard.drives.iter().filter(|drive| drive.is_member()) {
            if all.iter().any(|known| known.identity == drive.identity) {
                continue;
            }
            let part = merge(drive, &others[at + 1..]);
            // The first shard may refuse its part of the drive, and says so under the same path.
            all.retain(|known| known.is_member() || known.is_in_part() || known.name != part.name);
            let note = if part.leaving { part.note.clone() } else { IN_PART.into() };
            all.push(DriveStatus { index: NOT_A_MEMBER, note, ..part });
        }
    }
    all
}

/// Drives that left, by their paths. One that a shard still has at a path has not left, although
/// others are done with it: such a path counts as often as on the shard that has it.
fn removed(shards: &[PoolStatus]) -> Vec<Departed> {
    let count = |shard: &PoolStatus, name: &str| shard.removed.iter().filter(|left| left.name == name).count();
    let has =
        |shard: &&PoolStatus, name: &str| shard.drives.iter().any(|drive| drive.is_member() && drive.name == name);
    let mut all: Vec<Departed> = Vec::new();
    for left in shards.iter().flat_map(|shard| &shard.removed) {
        let name = left.name.as_str();
        let most = match shards.iter().filter(|shard| has(shard, name)).map(|shard| count(shard, name)).min() {
            Some(before) => before,
            None => shards.iter().map(|shard| count(shard, name)).max().unwrap_or(0),
        };
        if all.iter().filter(|known| known.name == name).count() < most {
            all.push(left.clone());
        }
    }
    all
}

fn gravity(health: DriveHealth) -> u8 {
    match health {
        DriveHealth::Healthy => 0,
        DriveHealth::Leaving => 1,
        DriveHealth::Suspect => 2,
        DriveHealth::Stale => 3,
        DriveHealth::Rejected => 4,
        DriveHealth::Missing => 5,
        DriveHealth::Failed => 6,
    }
}

fn standing(shards: &[PoolStatus]) -> Vec<Alarm> {
    let identity = |shard: &PoolStatus, alarm: &Alarm| -> Option<DriveId> {
        let number = alarm.drive?;
        shard.drives.iter().find(|drive| drive.index == number).map(|drive| drive.identity)
    };
    let mut all: Vec<(Option<DriveId>, Alarm)> = Vec::new();
    for shard in shards {
        for alarm in &shard.standing {
            let drive = identity(shard, alarm);
            if !all.iter().any(|(known, other)| (*known, other.kind) == (drive, alarm.kind)) {
                all.push((drive, alarm.clone()));
            }
        }
    }
    all.into_iter().map(|(_, alarm)| alarm).collect()
}

/// Room by code. Spread volumes fill all shards alike, so the fullest one says how much still fits.
fn codes(shards: &[PoolStatus]) -> Vec<CodeSpace> {
    let mut all: Vec<CodeSpace> = Vec::new();
    for code in shards.iter().flat_map(|shard| &shard.codes) {
        match all.iter_mut().find(|known| (known.code, known.strip) == (code.code, code.strip)) {
            Some(known) => {
                known.volumes = known.volumes.max(code.volumes);
                known.promised.0 += code.promised.0;
                known.allocated.0 += code.allocated.0;
                known.free = known.free.min(code.free);
            }
            None => all.push(*code),
        }
    }
    let here = |known: &CodeSpace| {
        let has =
            |shard: &&PoolStatus| shard.codes.iter().any(|code| (code.code, code.strip) == (known.code, known.strip));
        shards.iter().filter(has).count() as u64
    };
    all.iter().map(|code| CodeSpace { free: Bytes(code.free.0 * here(code)), ..*code }).collect()
}

fn progress(one: Option<Progress>, other: Option<Progress>) -> Option<Progress> {
    match (one, other) {
        (Some(one), Some(other)) => Some(Progress {
            done: Bytes(one.done.0 + other.done.0),
            total: Bytes(one.total.0 + other.total.0),
            since: one.since.min(other.since),
            rate: one.rate + other.rate,
        }),
        (one, other) => one.or(other),
    }
}

fn sum<T>(parts: &[T], bytes: impl Fn(&T) -> Bytes) -> Bytes {
    Bytes(parts.iter().map(|part| bytes(part).0).sum())
}
