//! The modelled drives of the measurements, and what they can do at best.

use stele_ground::{BLOCK, Bytes, Dice, Duration, Instant, MIB};
use stele_media::Geometry;
use stele_media::simulated::{CommandWork, HardDrive, HardDriveSpec, Model, SECTOR, SimulatedDrive};

/// Bytes of a drive: units are then 4 MiB, and neighbouring strips of a row as many.
pub const SIZE: Bytes = Bytes(32 << 30);
/// Bytes at the beginning of a drive that lie over its whole stroke. What lies behind them takes
/// the time of what lies at the beginning.
pub const USED: u64 = 1 << 30;
/// Bytes that lie together.
const PIECE: u64 = 4 * MIB;

/// The drive of the DS4500, of which the first 4 MiB of each part of the stroke are used: its arm
/// goes as far as that of a full drive, and little is simulated.
struct Spread(HardDrive);

impl Spread {
    const SPEC: HardDriveSpec = HardDriveSpec::published_15k();
    const STEP: u64 = Spread::SPEC.sectors * SECTOR as u64 / (USED / PIECE);

    fn place(work: CommandWork) -> CommandWork {
        let place = |at: u64| {
            let at = at % USED;
            at / PIECE * Spread::STEP / SECTOR as u64 * SECTOR as u64 + at % PIECE
        };
        match work {
            CommandWork::Read { at, length } => CommandWork::Read { at: place(at), length },
            CommandWork::Write { at, length, fua } => CommandWork::Write { at: place(at), length, fua },
            other => other,
        }
    }
}

impl Model for Spread {
    fn channels(&self) -> usize {
        self.0.channels()
    }

    fn window(&self) -> usize {
        self.0.window()
    }

    fn choose(&mut self, now: Instant, waiting: &[CommandWork]) -> usize {
        let works: Vec<CommandWork> = waiting.iter().copied().map(Spread::place).collect();
        self.0.choose(now, &works)
    }

    fn service(&mut self, now: Instant, work: CommandWork) -> Duration {
        self.0.service(now, Spread::place(work))
    }
}

pub fn model(mut dice: Dice) -> Box<dyn Model> {
    Box::new(Spread(HardDrive::new(Spread::SPEC, &mut dice)))
}

/// A new drive, like those of the pool.
pub fn blank() -> SimulatedDrive {
    let geometry = Geometry { size: SIZE, block: Bytes(BLOCK as u64) };
    SimulatedDrive::new(geometry, Bytes(BLOCK as u64), model(Dice::new(1)))
}

/// Bytes a second that a drive reads in one go, on average over the stroke.
pub fn sequential_rate() -> f64 {
    let mut drive = Spread(HardDrive::new(Spread::SPEC, &mut Dice::new(1)));
    let (mut now, mut passed) = (Instant(0), 0);
    // The arm is there once the first half of a piece has passed.
    let half = PIECE / 2;
    for at in (0..USED).step_by(PIECE as usize) {
        now = now + drive.service(now, CommandWork::Read { at, length: half });
        let took = drive.service(now, CommandWork::Read { at: at + half, length: half });
        now = now + took;
        passed += took.0;
    }
    (USED / 2) as f64 / Duration(passed).as_secs_f64()
}
