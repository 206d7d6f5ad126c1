//! The published machine's profile as an array for a plan: its cache is as full as a load keeps it.

use stele_ground::Dice;
use stele_lab::closed::{GoesOn, Length, Loop};
use stele_lab::modelled::{Array, MEMORY, MeasuredProbe, Running};
use stele_lab::workload::{AccessSpec, Alignment, Generator};
use stele_media::simulated::HardDriveSpec;

use super::streams::Streams;
use super::{Charge, Ds4500, Profile};

/// The profile samples its cache more, so that it reaches its steady filling before a probe ends.
/// With a larger cache, the probes would see it drain.
pub const PROFILE_SAMPLE: u64 = 16;

/// The parameters that may differ from the published machine, for fitting.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Machine {
    pub drive: HardDriveSpec,
    pub charge: Charge,
}

impl Machine {
    pub const PUBLISHED: Machine = Machine { drive: HardDriveSpec::published_15k(), charge: Charge::PUBLISHED };
}

/// The profile with its cache as full as the load keeps it when a probe begins. The cache is filled
/// first, since a load takes long to fill it, and then drained by a load that the drives keep up
/// with.
struct Full {
    running: Loop<Ds4500>,
    filling: Generator,
}

/// A load that drains less than this share of the cache in a round keeps it as full as it is.
const KEPT: f64 = 0.02;
/// Largest number of rounds to drain it.
const DRAINING: usize = 60;

impl Running for Full {
    fn measure(&mut self, outstanding: u64, length: Length, goes_on: GoesOn<'_>) -> Result<MeasuredProbe, String> {
        let now = self.running.now();
        let filling = &mut self.filling;
        self.running.target_mut().prefill(now, |array, bytes| filling.draw(array, bytes));
        let mut before = self.running.target().fullness();
        for _ in 0..DRAINING {
            self.running.warm_up(outstanding, length.round, goes_on)?;
            let now = self.running.target().fullness();
            if now + KEPT >= before {
                break;
            }
            before = now;
        }
        self.running.measure(outstanding, length, goes_on)
    }
}

/// The models for a plan of this crate.
pub fn published(array: &Array, spec: &AccessSpec, alignment: Alignment) -> Box<dyn Running> {
    profile(array, Machine::PUBLISHED, spec, alignment)
}

/// The published machine's profile, its cache full.
pub fn profile(array: &Array, machine: Machine, spec: &AccessSpec, alignment: Alignment) -> Box<dyn Running> {
    let mut dice = Dice::new(array.seed(spec));
    let profile = Profile {
        level: array.level,
        drives: array.drives as usize,
        cached: array.cached,
        stroke: f64::from(array.stroke) / 100.0,
        drive: machine.drive,
        charge: machine.charge,
        cache: MEMORY / PROFILE_SAMPLE,
        seed: dice.roll(),
    };
    if spec.random == Some(0) {
        // The layer of streams has the cache.
        let bare = Ds4500::new(Profile { cached: false, charge: Charge::STREAMS, ..profile });
        let generator = Generator::new(spec.clone(), alignment, dice.fork());
        let target = Streams::before(bare, array.level, MEMORY / PROFILE_SAMPLE);
        return Box::new(Loop::new(target, generator, Default::default()));
    }
    let target = Ds4500::new(profile);
    let generator = Generator::new(spec.clone(), alignment, dice.fork());
    let filling = Generator::new(spec.clone(), alignment, dice.fork());
    Box::new(Full { running: Loop::new(target, generator, Default::default()), filling })
}

#[cfg(test)]
mod tests;
