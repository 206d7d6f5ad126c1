//! The pool that a seed builds: drives, enclosures, volumes, and everything else that is drawn
//! once.
//!
//! Sizes are small, so that edges (a full log, an exhausted row, an evicting cache) are common.

use stele_array::{DigestUnit, OpenOptions, VolumeSpec, WriteMode};
use stele_codes::Code;
use stele_ground::{Bytes, Dice, Duration, KIB, MIB};
use stele_media::simulated::Plain;

/// The kind of events on the pool of a seed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Campaign {
    /// Crashes only.
    Crashes,
    /// All events, within what the codes tolerate: the array must answer.
    Tolerated,
    /// All events, and more than is tolerated: the array may refuse, but must never invent data.
    Beyond,
}

impl Campaign {
    /// Most seeds stay within tolerance.
    pub fn of(seed: u64) -> Campaign {
        match seed % 8 {
            0 | 1 => Campaign::Crashes,
            2 => Campaign::Beyond,
            _ => Campaign::Tolerated,
        }
    }
}

#[derive(Clone, Debug)]
pub struct Setup {
    pub campaign: Campaign,
    /// The enclosure of each drive.
    pub enclosures: Vec<u32>,
    pub drive_size: Bytes,
    pub drive_block: Bytes,
    pub tear: Bytes,
    pub log: Bytes,
    pub spare_drives: Option<u32>,
    pub volumes: Vec<VolumeSpec>,
    pub open: OpenOptions,
    /// Number of strips that the weakest code may lose.
    pub tolerance: usize,
    /// Whether a whole enclosure may be lost.
    pub enclosure_may_go: bool,
    /// Number of steps of the history.
    pub steps: u64,
    /// Whether snapshots are taken, cloned, rolled back to and deleted.
    pub snapshots: bool,
    /// Whether drives are added and removed.
    pub growth: bool,
    /// Whether a drive takes milliseconds for a command and one at a time, as one with an arm.
    pub slow_drives: bool,
}

/// From this seed on drives may be slow. Those below keep the histories that tests name them for.
pub const SLOW_FROM: u64 = 660_000_000;

const CODES: [&str; 10] = ["mirror-2", "mirror-3", "2+1", "3+1", "4+1", "2+2", "4+2", "6+2", "8+2", "4+3"];

impl Setup {
    pub fn drawn(seed: u64, campaign: Campaign) -> Setup {
        let mut dice = Dice::new(seed ^ 0x5E70_0000_0000_0000);
        let drives = match dice.below(6) {
            0 => 3 + dice.below(2),
            1..=3 => 4 + dice.below(6),
            4 => 8 + dice.below(8),
            _ => 12 + dice.below(13),
        } as usize;
        let per_enclosure = match dice.below(4) {
            0 => drives,
            1 => 1,
            2 => 2,
            _ => 1 + dice.below(4) as usize,
        };
        let enclosures: Vec<u32> = (0..drives).map(|drive| (drive / per_enclosure) as u32).collect();
        let codes: Vec<Code> = CODES
            .iter()
            .filter_map(|name| name.parse().ok())
            .filter(|code: &Code| code.width() <= drives && 2 * code.tolerates() < drives)
            .collect();
        let strip_max = if drives > 12 { 2 } else { 3 };
        let volumes: Vec<VolumeSpec> =
            (0..1 + dice.below(4)).map(|number| volume(&mut dice, number, &codes, strip_max)).collect();
        let tolerance = volumes.iter().map(|volume| volume.code.tolerates()).min().unwrap_or(1);
        let count = 1 + enclosures.iter().copied().max().unwrap_or(0);
        let enclosure_may_go = per_enclosure * 2 < drives
            && volumes.iter().all(|volume| {
                let most = volume.code.tolerates();
                let room: usize = (0..count)
                    .map(|enclosure| enclosures.iter().filter(|of| **of == enclosure).count().min(most))
                    .sum();
                room >= volume.code.width()
            });
        let need: u64 = volumes.iter().map(raw_size).sum();
        let cells = need / drives as u64 + 14 * MIB;
        let log = Bytes((4 + dice.below(4)) * MIB);
        let open = OpenOptions {
            table_cache: Bytes((16 * KIB) << dice.below(9)),
            block_cache: Bytes((16 * KIB) << dice.below(10)),
            dirty_limit: Bytes((64 * KIB) << dice.below(6)),
            seed: dice.roll(),
            background_rate: if dice.one_in(2) { None } else { Some(Bytes((1 + dice.below(50)) * MIB)) },
            rebuild_after: Duration::from_millis(if dice.one_in(2) { 0 } else { dice.below(3_000) }),
            // From single strips to whole rows. Of dice of its own, so that the other choices of a
            // seed stay.
            background_run: Bytes((16 * KIB) << Dice::new(seed ^ 0x5E70_0000_0000_0001).below(8)),
            ..OpenOptions::default()
        };
        Setup {
            campaign,
            enclosures,
            drive_size: Bytes((cells * 2).div_ceil(MIB) * MIB + log.0 + 6 * MIB),
            drive_block: Bytes(if dice.one_in(2) { 512 } else { 4096 }),
            tear: Bytes(if dice.one_in(2) { 512 } else { 4096 }),
            log,
            spare_drives: if dice.one_in(2) { None } else { Some(dice.below(3) as u32) },
            volumes,
            open,
            tolerance,
            enclosure_may_go,
            steps: 4 + dice.below(16),
            // Half of the seeds, but none of those that tests name for defects found before there
            // were snapshots.
            snapshots: matches!(seed % 16, 1 | 4..=10),
            // Under crashes alone, under all faults, and beyond tolerance.
            growth: matches!(seed % 16, 1 | 4..=6 | 9 | 10),
            slow_drives: seed >= SLOW_FROM && Dice::new(seed ^ 0x5E70_0000_0000_0002).one_in(4),
        }
    }
}

impl Setup {
    /// A drive's time for its commands.
    pub fn model(&self, dice: Dice) -> Plain {
        match self.slow_drives {
            true => Plain {
                channels: 1,
                command: Duration::from_millis(2),
                flush: Duration::from_millis(4),
                rate: 150_000_000,
                jitter: Duration::from_millis(4),
                dice,
            },
            false => Plain::flash(dice),
        }
    }
}

/// A volume like those of the setup; its name contains its number.
pub fn volume(dice: &mut Dice, number: u64, codes: &[Code], strip_max: u64) -> VolumeSpec {
    let code = dice.pick(codes).copied().unwrap_or_else(smallest);
    let strip = Bytes((16 * KIB) << dice.below(strip_max));
    let block = Bytes(if dice.one_in(4) { 512 } else { 4096 });
    let stripe = strip.0 * code.data() as u64;
    let mut size = stripe * (1 + dice.below(24));
    if dice.one_in(3) {
        size += dice.below(stripe / 4096) * 4096;
    }
    VolumeSpec {
        name: format!("volume-{number}"),
        code,
        size: Bytes(size.min(6 * MIB)),
        strip,
        block,
        digest: if dice.one_in(3) { DigestUnit::Strip } else { DigestUnit::Block },
        mode: if dice.one_in(4) { WriteMode::WriteThrough } else { WriteMode::WriteBack },
        fully_allocated: dice.one_in(4),
        spread: false,
        owner: None,
    }
}

fn smallest() -> Code {
    const MIRROR: Code = match Code::mirror(2) {
        Some(code) => code,
        None => panic!("two copies are a mirror"),
    };
    MIRROR
}

/// Bytes on drives that a full volume takes, in whole allocation units.
pub fn raw_size(volume: &VolumeSpec) -> u64 {
    let strips = volume.size.0.div_ceil(volume.strip.0 * volume.code.data() as u64);
    ((strips * volume.strip.0).div_ceil(MIB) + 1) * MIB * volume.code.width() as u64
}
