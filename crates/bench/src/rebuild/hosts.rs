//! Rebuild beside hosts that read at random.

use std::collections::VecDeque;

use stele_ground::{BLOCK, Dice, Duration, Instant, VolumeId};
use stele_media::{Buffer, Op};
use stele_sim::virtual_pool::VirtualPool;

use super::sustained::Sustained;

/// Reads under way for each drive where the highest rate is sought.
const DEPTH: usize = 16;

/// Hosts that read blocks at random times and places, whatever the answers take.
pub struct Hosts {
    volume: VolumeId,
    blocks: u64,
    /// Reads a second.
    rate: f64,
    dice: Dice,
    next: Instant,
    under_way: VecDeque<(u64, Instant)>,
    took: Vec<Duration>,
}

impl Hosts {
    pub fn new(pool: &VirtualPool, volume: VolumeId, bytes: u64, rate: f64) -> Hosts {
        let (under_way, took) = (VecDeque::new(), Vec::new());
        let blocks = bytes / BLOCK as u64;
        Hosts { volume, blocks, rate, dice: Dice::new(11), next: pool.machine.now, under_way, took }
    }

    fn read(&mut self, pool: &mut VirtualPool) {
        let at = self.dice.below(self.blocks) * BLOCK as u64;
        let tag = pool.submit(self.volume, Op::Read { at, buffer: Buffer::zeroed(BLOCK) });
        self.under_way.push_back((tag, pool.machine.now));
    }

    fn collect(&mut self, pool: &mut VirtualPool) -> Result<(), String> {
        for (tag, since) in std::mem::take(&mut self.under_way) {
            match pool.take(tag) {
                Some((_, result, at)) => {
                    result.map_err(|error| error.to_string())?;
                    self.took.push(at.since(since));
                }
                None => self.under_way.push_back((tag, since)),
            }
        }
        Ok(())
    }

    /// Reads for so long.
    pub fn pass(&mut self, pool: &mut VirtualPool, span: Duration) -> Result<(), String> {
        let end = pool.machine.now + span;
        self.next = self.next.max(pool.machine.now);
        while self.next < end {
            pool.pass(self.next.since(pool.machine.now));
            self.read(pool);
            let gap = -(1.0 - self.dice.fraction()).ln() / self.rate;
            self.next = self.next + Duration((gap * 1e9) as u64);
            self.collect(pool)?;
        }
        pool.pass(end.since(pool.machine.now));
        self.collect(pool)
    }

    /// The time within which 99 of 100 reads were answered since the last call.
    pub fn p99(&mut self) -> Result<Duration, String> {
        let mut took = std::mem::take(&mut self.took);
        took.sort_unstable();
        took.get(took.len() * 99 / 100).copied().ok_or_else(|| "no read was answered".into())
    }
}

/// Reads a second of all drives with lines before them.
pub fn highest_rate(pool: &mut VirtualPool, volume: VolumeId, bytes: u64, drives: usize) -> Result<f64, String> {
    let mut hosts = Hosts::new(pool, volume, bytes, 1.0);
    let begun = pool.machine.now;
    while hosts.took.len() < 400 * drives {
        while hosts.under_way.len() < DEPTH * drives {
            hosts.read(pool);
        }
        pool.pass(Duration::from_millis(1));
        hosts.collect(pool)?;
    }
    let rate = hosts.took.len() as f64 / pool.machine.now.since(begun).as_secs_f64();
    while !hosts.under_way.is_empty() {
        pool.pass(Duration::from_millis(10));
        hosts.collect(pool)?;
    }
    Ok(rate)
}

/// Reads on while a rebuild goes on.
pub fn beside(pool: &mut VirtualPool, hosts: &mut Hosts) -> Result<(f64, Duration), String> {
    let mut sustained = Sustained::default();
    let limit = pool.machine.now + super::HOUR;
    while pool.machine.now < limit {
        hosts.pass(pool, Duration::from_millis(100))?;
        let was_within = sustained.is_within();
        let rate = sustained.look(pool.status()?.rebuild.as_ref(), pool.machine.now);
        if !was_within && sustained.is_within() {
            // What was answered before the window does not count.
            hosts.took.clear();
        }
        if let Some(rate) = rate {
            return Ok((rate, hosts.p99()?));
        }
    }
    Err("the rebuild did not end within an hour".into())
}
