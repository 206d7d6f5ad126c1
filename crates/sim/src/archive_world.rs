//! The archive in the simulated world: several objects are put at a time, on a pool whose catalog
//! and data volumes share its log. Crashes interrupt it at any drive operation.
//!
//! After each crash every acknowledged object is there, intact. An object under way is there
//! completely or not at all. The catalog therefore contains no object whose content, note or key
//! did not become durable before it or with it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::join_all;
use stele_archive::{
    Archive, ArchiveError, Caller, Expected, Foundation, GetRequest, MasterKey, NewBucket, NoGuard, Options,
    PutRequest, Reading, Surroundings, Timestamp,
};
use stele_catalog::{CatalogError, Format, InlineCatalog, format};
use stele_ground::{Bytes, Dice, Instant, KIB, MIB};

use crate::catalog_world::Carrier;
use crate::coverage::Coverage;
use crate::oracle::Violation;
use crate::pool_world::PoolWorld;
use crate::stage;
use crate::system::System;

const BUCKET: &str = "records";

/// A clock that stands still, and dice for entropy.
struct Still(Mutex<Dice>);

impl Surroundings for Still {
    fn now(&self) -> Reading {
        Reading { monotonic: Instant(0), wall: Timestamp::from_secs(1_800_000_000) }
    }

    fn entropy(&self, into: &mut [u8]) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).fill(into);
    }
}

struct ArchiveWorld<'a, S> {
    pool: &'a PoolWorld<S>,
    surroundings: Arc<Still>,
    master: MasterKey,
    dice: Dice,
    /// For each object, whether it was acknowledged. The content of an object follows from its
    /// number.
    objects: BTreeMap<u64, bool>,
    coverage: Coverage,
}

/// Runs puts under crashes, for `rounds` lives of the machine. The pool's first volume is the
/// catalog's, its second the data's.
pub fn run<S: System + 'static>(pool: &PoolWorld<S>, seed: u64, rounds: u64) -> Result<Coverage, Violation> {
    let surroundings = Arc::new(Still(Mutex::new(Dice::new(seed ^ 0xC057_0D1E))));
    let master = MasterKey::generate(&*surroundings);
    let (dice, coverage) = (Dice::new(seed), Coverage::default());
    let mut world = ArchiveWorld { pool, surroundings, master, dice, objects: BTreeMap::new(), coverage };
    let wrong = |what: &str, error: &dyn std::fmt::Display| Violation(format!("{what}: {error}"));
    format(&pool.handle(), &Format { id: [9; 16], journal: None }).map_err(|e| wrong("no catalog", &e))?;
    let foundation = world.foundation().map_err(|e| wrong("the catalog does not open", &e))?;
    let create = Archive::create(foundation, world.options());
    let archive = stage::block_on(create).and_then(Result::ok).ok_or_else(|| Violation("no archive".into()))?;
    let caller = Caller::local(0);
    let bucket = archive.create_bucket(&caller, BUCKET, NewBucket::default());
    stage::block_on(bucket).and_then(Result::ok).ok_or_else(|| Violation("no bucket".into()))?;
    drop(archive);
    for _ in 0..rounds {
        world.life()?;
        pool.clear_fuse();
        pool.restart()?;
    }
    let archive = world.open()?.ok_or_else(|| Violation("the machine crashed without a fuse".into()))?;
    world.judge(&archive)?;
    Ok(world.coverage)
}

impl<S: System + 'static> ArchiveWorld<'_, S> {
    fn options(&self) -> Options {
        Options { segment: Bytes(MIB), frame_cache: Bytes(0), piece_cache: Bytes(0), ..Options::default() }
    }

    fn foundation(&self) -> Result<Foundation, CatalogError> {
        let options = stele_catalog::Options {
            cache: Bytes(MIB),
            overlay: Bytes(256 * KIB),
            ..stele_catalog::Options::default()
        };
        let catalog = InlineCatalog::open(&self.pool.handle(), options)?;
        Ok(Foundation {
            catalog: Arc::new(catalog),
            data: self.pool.volume(1).ok_or(CatalogError::Busy)?,
            surroundings: self.surroundings.clone(),
            guard: Arc::new(NoGuard),
            master: self.master.clone(),
        })
    }

    /// Returns `None` if the machine crashed meanwhile.
    fn open(&mut self) -> Result<Option<Archive>, Violation> {
        let opened = match self.foundation() {
            Ok(foundation) => stage::block_on(Archive::open(foundation, self.options())),
            Err(error) => Some(Err(error.into())),
        };
        match opened {
            Some(Ok(archive)) if stage::is_up() => Ok(Some(archive)),
            Some(Err(error)) if stage::is_up() => Err(Violation(format!("the archive does not open: {error}"))),
            _ => {
                self.coverage.count("archive crashes while opening");
                Ok(None)
            }
        }
    }

    /// One life of the machine: open, check every object, then put until it crashes or has done
    /// enough.
    fn life(&mut self) -> Result<(), Violation> {
        let Some(archive) = self.open()? else { return Ok(()) };
        self.judge(&archive)?;
        let sides = 1 << self.dice.below(12);
        let fuse = 1 + self.dice.below(sides);
        self.pool.set_fuse(fuse);
        for _ in 0..20 {
            let beside = 1 + self.dice.below(4);
            let numbers: Vec<u64> = (0..beside).map(|number| self.objects.len() as u64 + number).collect();
            self.objects.extend(numbers.iter().map(|number| (*number, false)));
            let puts = join_all(numbers.iter().map(|number| put(&archive, *number)));
            let Some(answers) = stage::block_on(puts) else {
                self.coverage.count("puts without an answer");
                return Ok(());
            };
            for (number, answer) in numbers.into_iter().zip(answers) {
                match answer {
                    Ok(()) => {
                        self.objects.insert(number, true);
                        self.coverage.count("puts acknowledged");
                    }
                    Err(error) if stage::is_up() => return Err(Violation(format!("object {number}: {error}"))),
                    Err(_) => self.coverage.count("puts cut off"),
                }
            }
            if !stage::is_up() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Every object must have the content that was put. An unacknowledged object may be absent; its
    /// state must not change afterwards.
    fn judge(&mut self, archive: &Archive) -> Result<(), Violation> {
        for (number, acknowledged) in std::mem::take(&mut self.objects) {
            match stage::block_on(get(archive, number)) {
                Some(Ok(found)) if found == content(number) => {
                    self.coverage.count(if acknowledged { "objects kept" } else { "objects found after a crash" });
                    self.objects.insert(number, true);
                }
                Some(Ok(_)) => return Err(Violation(format!("object {number} is not what was put"))),
                Some(Err(ArchiveError::NoSuchKey { .. })) if !acknowledged => {
                    self.coverage.count("objects not found after a crash");
                    // Its number is not given out again.
                    self.objects.insert(number, false);
                }
                Some(Err(error)) => {
                    return Err(Violation(format!("object {number}, acknowledged: {acknowledged}: {error}")));
                }
                None => return Err(Violation(format!("object {number} is never read"))),
            }
        }
        Ok(())
    }
}

/// Mostly small; now and then as long as several stripes, which bypass the log.
fn content(number: u64) -> Vec<u8> {
    let mut dice = Dice::new(number);
    let length = if dice.one_in(6) { 1 + dice.below(300 * KIB) } else { 1 + dice.below(12 * KIB) };
    let mut bytes = vec![0; length as usize];
    dice.fill(&mut bytes);
    bytes
}

async fn put(archive: &Archive, number: u64) -> Result<(), ArchiveError> {
    let request = PutRequest { bucket: BUCKET.into(), key: number.to_string(), ..PutRequest::default() };
    let mut writer = archive.put(&Caller::local(0), request).await?;
    writer.write(content(number).into()).await?;
    writer.finish(Expected::default()).await.map(drop)
}

async fn get(archive: &Archive, number: u64) -> Result<Vec<u8>, ArchiveError> {
    let request = GetRequest { bucket: BUCKET.into(), key: number.to_string(), ..GetRequest::default() };
    let mut reader = archive.get(&Caller::local(0), request).await?;
    let mut all = Vec::new();
    while let Some(bytes) = reader.next().await {
        all.extend_from_slice(&bytes?);
    }
    Ok(all)
}

#[cfg(test)]
mod tests;
