//! A hard drive in virtual time: arm, rotation, zones, and a few commands among which the drive
//! chooses.
//!
//! The arm takes `track + b * sqrt(distance)` up to a third of the stroke, where it takes
//! `average`, and from there linearly up to `full`. The platter turns exactly: the wait for a
//! sector follows from the time and the sector's angle. Tracks are longer outside than inside, in
//! zones. Numbering starts outside, goes through the heads of a cylinder, and then inwards. Each
//! track is offset by the rotation during a step to it, so that streams lose one such step a track.
//! The drive sees the first [`HardDriveSpec::window`] waiting commands and serves the one that it
//! can reach soonest. The others wait in the host, first in, first out. A write is complete when it
//! is on the medium, so a flush costs nothing.
//!
//! Rejected: the shortest positioning time over the whole queue. It exceeds the published reads by
//! 80 %.

use stele_ground::{Dice, Duration, Instant};

use super::{CommandWork, Model};

/// Bytes of a sector.
const SECTOR: u64 = 512;
/// Zones of equal width, outer to inner.
const ZONES: u64 = 16;

/// The properties of a drive from its data sheet.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct HardDriveSpec {
    pub sectors: u64,
    pub heads: u64,
    pub revolution: Duration,
    /// Bytes a second under the head on the outermost track.
    pub outer_rate: u64,
    /// The innermost track's rate as a share of the outermost's.
    pub inner_share: f64,
    /// Time to the next cylinder, or to another head.
    pub seek_track: Duration,
    /// Time over a third of the stroke.
    pub seek_average: Duration,
    pub seek_full: Duration,
    /// Additional time of a write for the head to settle.
    pub write_settle: Duration,
    /// Fixed time of every command, before the arm moves.
    pub overhead: Duration,
    /// Number of commands among which the drive chooses.
    pub window: usize,
}

impl HardDriveSpec {
    /// The 18.2 GB drive at 15,000 revolutions a minute behind the DS4500. Blocks, revolution and
    /// rates come from the data sheet. Seeks, settling, overhead and window were fitted to the
    /// published uncached cells of 20 drives.
    pub const fn published_15k() -> HardDriveSpec {
        HardDriveSpec {
            sectors: 35_890_512,
            heads: 4,
            revolution: Duration::from_millis(4),
            outer_rate: 75_000_000,
            inner_share: 0.68,
            seek_track: Duration::from_micros(850),
            seek_average: Duration::from_micros(3_700),
            seek_full: Duration::from_micros(5_500),
            write_settle: Duration::from_micros(650),
            overhead: Duration::from_micros(120),
            window: 10,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Zone {
    first_sector: u64,
    first_cylinder: u64,
    sectors_per_track: u64,
}

/// The position of a sector.
#[derive(Clone, Copy, Debug)]
struct Spot {
    cylinder: u64,
    track: u64,
    /// As a share of a revolution.
    angle: f64,
    sectors_per_track: u64,
    /// Sectors left on the track, including this one.
    left: u64,
}

/// The mechanics, with the arm at the end of the last command.
#[derive(Clone, Debug)]
pub struct HardDrive {
    spec: HardDriveSpec,
    zones: Vec<Zone>,
    cylinders: u64,
    cylinder: u64,
    track: u64,
    /// End of the last read: the drive's own read-ahead holds the sectors after it.
    read_end: u64,
    /// Rotation at time 0.
    phase: f64,
    skew: f64,
}

impl HardDrive {
    /// The dice choose the platter's angle at time 0, so that drives of an array are not in step.
    pub fn new(spec: HardDriveSpec, dice: &mut Dice) -> HardDrive {
        let outer = spec.outer_rate as f64 * spec.revolution.as_secs_f64() / SECTOR as f64;
        let mean = outer * (1.0 + spec.inner_share) / 2.0;
        let cylinders = (spec.sectors as f64 / (mean * spec.heads as f64)) as u64 + 2 * ZONES;
        let per_zone = cylinders.div_ceil(ZONES);
        let mut zones = Vec::new();
        let (mut sector, mut cylinder) = (0, 0);
        for zone in 0..ZONES {
            let inward = (zone as f64 + 0.5) / ZONES as f64;
            let sectors_per_track = (outer * (1.0 - (1.0 - spec.inner_share) * inward)) as u64;
            zones.push(Zone { first_sector: sector, first_cylinder: cylinder, sectors_per_track });
            sector += per_zone * spec.heads * sectors_per_track;
            cylinder += per_zone;
        }
        assert!(sector >= spec.sectors, "{sector} sectors in zones cannot hold {}", spec.sectors);
        HardDrive {
            spec,
            zones,
            cylinders: cylinder,
            cylinder: 0,
            track: 0,
            read_end: u64::MAX,
            phase: dice.fraction(),
            skew: spec.seek_track.as_secs_f64() / spec.revolution.as_secs_f64(),
        }
    }

    pub fn spec(&self) -> &HardDriveSpec {
        &self.spec
    }

    fn spot(&self, sector: u64) -> Spot {
        let zone = self.zones[self.zones.partition_point(|zone| zone.first_sector <= sector).saturating_sub(1)];
        let inside = sector - zone.first_sector;
        let (tracks, place) = (inside / zone.sectors_per_track, inside % zone.sectors_per_track);
        let track = zone.first_cylinder * self.spec.heads + tracks;
        let turned = place as f64 / zone.sectors_per_track as f64 + track as f64 * self.skew;
        Spot {
            cylinder: zone.first_cylinder + tracks / self.spec.heads,
            track,
            angle: turned - turned.floor(),
            sectors_per_track: zone.sectors_per_track,
            left: zone.sectors_per_track - place,
        }
    }

    /// Nanoseconds for the arm to cross this many cylinders.
    pub fn seek(&self, cylinders: u64) -> f64 {
        let (track, average, full) =
            (self.spec.seek_track.0 as f64, self.spec.seek_average.0 as f64, self.spec.seek_full.0 as f64);
        let third = self.cylinders as f64 / 3.0;
        let distance = cylinders as f64;
        if cylinders == 0 {
            0.0
        } else if distance <= third {
            track + (average - track) * ((distance - 1.0).max(0.0) / (third - 1.0)).sqrt()
        } else {
            average + (full - average) * (distance - third) / (2.0 * third)
        }
    }

    /// Nanoseconds from now until the first sector of the command is under the head.
    fn reach(&self, now: Instant, spot: Spot, writes: bool) -> f64 {
        let mut arm = self.seek(spot.cylinder.abs_diff(self.cylinder));
        if arm == 0.0 && spot.track != self.track {
            arm = self.spec.seek_track.0 as f64;
        }
        if writes {
            arm += self.spec.write_settle.0 as f64;
        }
        let begins = self.spec.overhead.0 as f64 + arm;
        let revolution = self.spec.revolution.0;
        let turned = ((now.0 % revolution) as f64 + begins) / revolution as f64 + self.phase;
        let ahead = spot.angle - (turned - turned.floor());
        begins + (ahead - ahead.floor()) * revolution as f64
    }

    /// Nanoseconds to pass over the sectors, with a step at the end of each track; and the last
    /// track.
    fn pass(&self, first: u64, mut spot: Spot, sectors: u64) -> (f64, Spot) {
        let revolution = self.spec.revolution.0 as f64;
        let (mut time, mut here, mut rest) = (0.0, first, sectors);
        loop {
            let count = rest.min(spot.left);
            time += count as f64 / spot.sectors_per_track as f64 * revolution;
            rest -= count;
            here += count;
            if rest == 0 {
                return (time, spot);
            }
            time += self.spec.seek_track.0 as f64;
            spot = self.spot(here);
        }
    }

    fn range(work: CommandWork) -> Option<(u64, u64, bool)> {
        match work {
            CommandWork::Read { at, length } => Some((at / SECTOR, length.div_ceil(SECTOR), false)),
            CommandWork::Write { at, length, .. } => Some((at / SECTOR, length.div_ceil(SECTOR), true)),
            CommandWork::Flush | CommandWork::Other => None,
        }
    }
}

impl Model for HardDrive {
    fn channels(&self) -> usize {
        1
    }

    fn window(&self) -> usize {
        self.spec.window
    }

    fn choose(&mut self, now: Instant, waiting: &[CommandWork]) -> usize {
        let mut best = (f64::INFINITY, 0);
        for (place, work) in waiting.iter().enumerate() {
            let time = match HardDrive::range(*work) {
                Some((first, _, writes)) => self.reach(now, self.spot(first), writes),
                None => 0.0,
            };
            if time < best.0 {
                best = (time, place);
            }
        }
        best.1
    }

    fn service(&mut self, now: Instant, work: CommandWork) -> Duration {
        let Some((first, sectors, writes)) = HardDrive::range(work) else { return Duration(0) };
        assert!(first + sectors <= self.spec.sectors, "sector {} is beyond the drive's end", first + sectors);
        let spot = self.spot(first);
        let streams = !writes && first == self.read_end;
        let reach = if streams { self.spec.overhead.0 as f64 } else { self.reach(now, spot, writes) };
        let (pass, last) = self.pass(first, spot, sectors);
        (self.cylinder, self.track) = (last.cylinder, last.track);
        self.read_end = if writes { u64::MAX } else { first + sectors };
        Duration((reach + pass) as u64)
    }
}

#[cfg(test)]
mod tests;
