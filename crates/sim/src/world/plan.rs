//! The faults of single operations under a seed, with their rates.

use stele_ground::Dice;
use stele_media::faulty::{FaultKind, FaultPlan};

use crate::atlas::Atlas;
use crate::setup::{Campaign, Setup};

/// The likely faults under this seed: a few kinds each, so that no seed has too many.
pub(super) fn plan_of(dice: &mut Dice, setup: &Setup, atlas: &Atlas) -> FaultPlan {
    let mut plan = FaultPlan::new(dice.roll()).permitted_by(atlas.permit());
    if setup.campaign == Campaign::Crashes {
        return plan;
    }
    // Drawn apart, so that the histories without it stay what they are.
    let mut apart = dice.clone().fork();
    if apart.one_in(4) {
        plan = plan.rate(FaultKind::FailedFlush, 4 << apart.below(5));
    }
    for kind in FaultKind::BY_OPERATION.into_iter().filter(|kind| *kind != FaultKind::FailedFlush) {
        if dice.one_in(3) {
            let one_in = match kind {
                FaultKind::LyingFlush => 2 + dice.below(20),
                FaultKind::Stuck => 400 + dice.below(2_000),
                _ => 20 << dice.below(5),
            };
            plan = plan.rate(kind, one_in);
        }
    }
    plan
}
