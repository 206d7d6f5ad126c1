//! What a pool shows of itself.

use stele_ground::{Bytes, Instant};

use crate::drives::label::{Configuration, DriveState};
use crate::engine::Engine;
use crate::engine::serving::Serving;
use crate::model::place::DriveNumber;
use crate::model::{AlarmKind, CodeSpace, DriveStatus, NOT_A_MEMBER, PoolStatus};
use crate::space::layout::RowClass;
use crate::upkeep::hospital::condition::standing;
use crate::volumes::LayerKind;

impl Serving {
    pub fn status(&self) -> PoolStatus {
        let engine = &self.engine;
        // What a deletion freed would otherwise count as taken until the next change of the layout.
        engine.take_back_cells();
        let now = engine.io.now();
        let configuration = engine.drives.labels.configuration().clone();
        let mut drives: Vec<DriveStatus> =
            in_pool(engine, &configuration).map(|drive| drive_status(engine, drive)).collect();
        for rejected in self.rejected() {
            drives.push(DriveStatus {
                index: NOT_A_MEMBER,
                attached: Some(rejected.index as u32),
                identity: stele_ground::DriveId::default(),
                name: rejected.attached.name.clone(),
                enclosure: rejected.attached.enclosure,
                health: rejected.health,
                leaving: false,
                size: rejected.attached.geometry.size,
                used: Bytes(0),
                read_errors: 0,
                write_errors: 0,
                digest_errors: 0,
                repaired: 0,
                note: rejected.note.clone(),
                since: None,
                done: "not used".into(),
                next: AlarmKind::DriveRejected.next_step(None),
                alarm: Some(AlarmKind::DriveRejected),
            });
        }
        let (stripes, critical_stripes) = engine.exposure();
        let (exposed_stripes, crowded_stripes) = engine.crowded_stripes();
        let (scrubs_stopped, scrub_trouble) = engine.scrubbing.stopped();
        let stripes_without_spare = engine.stripes_without_spare();
        let codes = codes(engine);
        let layout = engine.layout.read();
        let (mut raw, mut used, mut spare) = (0, 0, 0);
        for drive in in_pool(engine, &configuration) {
            let units = layout.units(drive);
            raw += u64::from(units.total);
            used += u64::from(units.used);
            spare += u64::from(units.reserved);
        }
        let replaced = engine.layout.survey().replaced;
        let unit = configuration.unit_size.0;
        let count = &engine.count;
        PoolStatus {
            pool: configuration.whole_pool(),
            name: configuration.name.clone(),
            shards: configuration.shard.count,
            epoch: configuration.epoch,
            read_only: engine.standing.is_read_only(),
            loss_accepted: configuration.loss_accepted,
            incomplete: Vec::new(),
            rolling_back: configuration.rolling_back,
            standing: standing(&drives),
            drives,
            raw: Bytes(raw * unit),
            used: Bytes(used * unit),
            spare: Bytes(spare * unit),
            spare_used: Bytes(replaced * unit),
            log_used: engine.log.used(),
            log_size: engine.log.size(),
            dirty: Bytes(engine.look(|core| core.cache.dirty_bytes())),
            rebuild: engine.rebuilding.work.progress(now),
            copy_back: engine.rebuilding.copy_back.progress(now),
            scrub: engine.scrubbing.work.progress(now),
            moving: engine.moving.work.progress(now),
            moving_put_off: engine.moving.put_off(),
            removed: engine.membership.departed(),
            scrubs_finished: count.scrubs.get(),
            scrub_damage_found: count.scrub_found.get(),
            scrub_damage_repaired: count.scrub_repaired.get(),
            stripes,
            critical_stripes,
            exposed_stripes,
            crowded_stripes,
            scrubs_stopped,
            scrub_trouble,
            unreadable_stripes: engine.unreadable_stripes(),
            unreadable_known: engine.knows_unreadable(),
            stripes_without_spare,
            log_trouble: log_trouble(engine),
            codes,
            lost_stripes: engine.look(|core| core.lost.stripes().count()) as u64,
            rebuilt: count.rebuilt.get(),
            repaired: count.repaired.get(),
            counters: counters(engine),
        }
    }
}

/// Drives that have not left the pool. An opening may not have dropped yet those whose addition was
/// cut off: they never came.
fn in_pool(engine: &Engine, configuration: &Configuration) -> impl Iterator<Item = DriveNumber> {
    let drives = configuration.drives.iter().zip(0..).map(|(entry, at)| (entry.state, DriveNumber(at)));
    let counts = |(state, number): &(DriveState, DriveNumber)| match state {
        DriveState::Retired => false,
        DriveState::Joining => engine.is_joining_meant(*number),
        DriveState::Active | DriveState::Filling | DriveState::Failed => true,
    };
    drives.filter(counts).map(|(_, number)| number)
}

fn drive_status(engine: &Engine, drive: DriveNumber) -> DriveStatus {
    let configuration = engine.drives.labels.configuration();
    let entry = &configuration.drives[usize::from(drive.0)];
    let seen = engine.drives.seen(drive);
    let condition = engine.condition(drive);
    let units = engine.layout.read().units(drive);
    DriveStatus {
        index: u32::from(drive.0),
        attached: engine.drives.index(drive).map(|index| index as u32),
        identity: entry.identity,
        name: seen.name,
        enclosure: entry.enclosure,
        health: engine.health(drive),
        leaving: entry.leaving,
        size: entry.size,
        used: Bytes(u64::from(units.used) * configuration.unit_size.0),
        read_errors: seen.read_errors,
        write_errors: seen.write_errors,
        digest_errors: seen.digest_errors,
        repaired: seen.repaired,
        note: condition.wrong,
        since: condition.since,
        done: condition.done,
        next: condition.next,
        alarm: condition.alarm,
    }
}

/// What keeps the log from being as safe as it should be.
fn log_trouble(engine: &Engine) -> Option<(String, Option<Instant>)> {
    if let Some(error) = engine.log.stopped() {
        return Some((format!("the log has stopped: {error}"), None));
    }
    if let Some((since, error)) = engine.checkpointing.trouble() {
        return Some((format!("no checkpoint can be written, and the log fills up: {error}"), Some(since)));
    }
    let (members, _) = engine.log.members();
    let configuration = engine.drives.labels.configuration();
    let there = configuration.drives.iter().filter(|entry| !matches!(entry.state, DriveState::Retired)).count();
    let wanted = configuration.replicas().min(there);
    (members.len() < wanted && !engine.standing.is_read_only())
        .then(|| (format!("the log lies on {} drives instead of {wanted}", members.len()), None))
}

/// Room by code, in the order of the volumes' numbers.
fn codes(engine: &Engine) -> Vec<CodeSpace> {
    let mut codes: Vec<(RowClass, CodeSpace)> = Vec::new();
    let layout = engine.layout.read();
    let stripes: Vec<(RowClass, u64)> = engine.look(|core| core.space.stripes().collect());
    for volume in engine.look(|core| core.volumes.all()) {
        let class = volume.class;
        let at = codes.iter().position(|(known, _)| *known == class).unwrap_or_else(|| {
            let data = volume.shape.data();
            let used: u64 = stripes.iter().filter(|(known, _)| *known == class).map(|(_, stripes)| stripes).sum();
            let free = engine.look(|core| core.space.free(class)) + layout.slots_left(class);
            let (promised, allocated, free) = (Bytes(0), Bytes(used * data), Bytes(free * data));
            let (code, strip) = (class.code, class.strip);
            codes.push((class, CodeSpace { code, strip, volumes: 0, promised, allocated, free }));
            codes.len() - 1
        });
        if volume.kind() == LayerKind::Volume
            && let Some((_, space)) = codes.get_mut(at)
        {
            space.volumes += 1;
            space.promised.0 += volume.size();
        }
    }
    codes.into_iter().map(|(_, space)| space).collect()
}

fn counters(engine: &Engine) -> Vec<(&'static str, u64)> {
    let count = &engine.count;
    let log = engine.log.counters();
    let table = engine.table.counters();
    let (mut flushes, mut drive_reads, mut drive_writes, mut read_bytes, mut written_bytes) = (0, 0, 0, 0, 0);
    for index in 0..engine.io.drives() {
        let drive = engine.io.counters(index);
        flushes += drive.flushes;
        drive_reads += drive.reads;
        drive_writes += drive.writes;
        read_bytes += drive.read_bytes;
        written_bytes += drive.written_bytes;
    }
    let (cached, dirty_stripes) = engine.look(|core| (core.cache.clean_bytes(), core.cache.dirty_stripes()));
    vec![
        ("reads", count.reads.get()),
        ("writes", count.writes.get()),
        ("read bytes", count.read_bytes.get()),
        ("written bytes", count.written_bytes.get()),
        ("cache hits", count.cache_hits.get()),
        ("cache misses", count.cache_misses.get()),
        ("cached bytes", cached),
        ("dirty stripes", dirty_stripes as u64),
        ("bytes copied", count.copied.get()),
        ("full stripes", count.full_stripes.get()),
        ("destages", count.destages.get()),
        ("destages in batches", count.batched.get()),
        ("destaged blocks", count.destaged_blocks.get()),
        ("read retries", count.retries.get()),
        ("reconstructed units", count.reconstructed.get()),
        ("hedged reads", engine.hospital.hedged()),
        ("log groups", log.groups),
        ("log records", log.records),
        ("log bytes", log.bytes),
        ("log bytes reserved", engine.log.reserved().0),
        ("log epoch changes", log.epoch_changes),
        ("table page reads", table.page_reads),
        ("table page writes", table.page_writes),
        ("table pages left out", table.left_out),
        ("table pages", table.pages),
        ("table pages repaired", table.repaired),
        ("checkpoints", table.checkpoints),
        ("drive reads", drive_reads),
        ("drive writes", drive_writes),
        ("drive read bytes", read_bytes),
        ("drive written bytes", written_bytes),
        ("flushes", flushes),
    ]
}
