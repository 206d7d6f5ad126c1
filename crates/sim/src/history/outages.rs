//! Power that goes several times in a row, at critical moments: between the label writes of
//! different drives, between the anchors of a checkpoint, while the pool opens, and again as soon
//! as it serves. From one cut to the next a drive, or an enclosure, leaves or returns, and two
//! drives exchange places.
//!
//! Each run of cuts has a favourite: a drive that often keeps data that the others lose, and that
//! leaves and returns. Agreement among drives must handle the data that one drive alone remembers.
//! Dice of its own decide everything here, so that it combines with all other events of a seed.

use std::collections::BTreeMap;

use stele_ground::{Dice, Duration};
use stele_media::MediaFault;
use stele_media::faulty::FaultKind;

use crate::machine::{CrashKind, Landmark, Tear, Trap};
use crate::oracle::Violation;
use crate::setup::Campaign;
use crate::system::System;
use crate::world::World;

/// Largest number of cuts in one run.
const RUN_MAX: u64 = 6;
/// In one step of this many, an enclosure returns whose drives are away.
const RETURNS: u64 = 4;

/// The decisions about power cuts.
pub struct Outages {
    dice: Dice,
    /// Decides when enclosures return, besides the history's own events, which rarely meet one that
    /// is away.
    returns: Dice,
    /// Whether the power goes in runs under this seed.
    restless: bool,
    /// Faults have stopped.
    calm: bool,
    /// Number of cuts left in the run.
    left: u64,
    favourite: Option<usize>,
}

impl Outages {
    pub fn new(seed: u64) -> Outages {
        let mut dice = Dice::new(seed ^ 0x0C07_0000_0000_0000);
        let restless = dice.one_in(2);
        let returns = Dice::new(seed ^ 0x0E4C_0000_0000_0000);
        Outages { dice, returns, restless, calm: true, left: 0, favourite: None }
    }

    /// Stops or starts the outages.
    pub fn calm(&mut self, calm: bool) {
        (self.left, self.calm) = (0, calm);
    }

    /// Whether faults are stopped: a drive that joins now has none either.
    pub fn is_calm(&self) -> bool {
        self.calm
    }

    /// The state that a power cut leaves.
    fn tear(&mut self) -> Tear {
        match (self.favourite.filter(|_| self.left > 0), self.dice.below(8)) {
            (Some(bay), 0..=3) => Tear::Only(bay),
            (Some(bay), 4) => Tear::AllBut(bay),
            (_, 5) => Tear::Subset,
            (_, 6) => Tear::Nothing,
            _ => Tear::Anyhow,
        }
    }

    fn trap(&mut self, at: Landmark, drives: usize) -> Trap {
        // Each drive's label is two writes, submitted and ended, and then a flush.
        let left = 1 + self.dice.below(5 * drives as u64);
        Trap { at, left, fuse: 1 + self.dice.below(1 + drives as u64) }
    }
}

/// May begin a run of cuts, with one in the middle of the writes that the pool agrees on.
pub(super) fn befall<S: System>(world: &mut World<S>) -> bool {
    let outages = &mut world.outages;
    if !outages.restless || !outages.dice.one_in(3) {
        return false;
    }
    outages.left = 1 + outages.dice.below(RUN_MAX);
    let away: Vec<usize> = world.members.iter().copied().filter(|bay| !world.machine.bays[*bay].present).collect();
    let among = if !away.is_empty() && outages.dice.one_in(2) { &away } else { &world.members };
    outages.favourite = outages.dice.pick(among).copied();
    world.machine.coverage.count("runs of cuts");
    let at = if outages.dice.one_in(2) { Landmark::Anchor } else { Landmark::Label };
    let drives = world.members.len();
    world.machine.trap = Some(world.outages.trap(at, drives));
    at == Landmark::Anchor
}

/// May cut the power while the labels take the next change of the configuration.
pub(super) fn endanger_change<S: System>(world: &mut World<S>) {
    if !world.outages.calm && world.outages.dice.one_in(4) {
        let drives = world.members.len();
        world.machine.trap = Some(world.outages.trap(Landmark::Label, drives));
        world.machine.coverage.count("changes of the configuration endangered");
    }
}

/// Stops the machine as the outage decides.
pub fn crash<S: System>(world: &mut World<S>) {
    let kind = if world.crash_dice.one_in(4) { CrashKind::Process } else { CrashKind::Power };
    let tear = world.outages.tear();
    world.machine.crash_torn(kind, tear, &mut world.crash_dice);
    world.outages.left = world.outages.left.saturating_sub(1);
}

/// May cut the power again while the pool opens, or soon after.
pub fn threaten_opening<S: System>(world: &mut World<S>) {
    if world.outages.left == 0 {
        return;
    }
    let drives = world.members.len();
    match world.outages.dice.below(4) {
        0 => world.machine.fuse = Some(1 + world.outages.dice.below(1 << 10)),
        1 => world.machine.trap = Some(world.outages.trap(Landmark::Anchor, drives)),
        _ => world.machine.trap = Some(world.outages.trap(Landmark::Label, drives)),
    }
    world.machine.coverage.count("openings within a run of cuts");
}

/// Events on drives between two cuts of a run.
pub(super) fn befall_while_down<S: System>(world: &mut World<S>) {
    if world.setup.campaign == Campaign::Crashes || world.outages.left == 0 {
        return;
    }
    if let Some(bay) = world.outages.favourite.filter(|bay| world.members.contains(bay)) {
        match world.machine.bays[bay].present {
            true if world.outages.dice.one_in(3) => leave(world, bay),
            false if world.outages.dice.one_in(2) => give_back(world, bay),
            _ => {}
        }
    }
    if world.outages.dice.one_in(8) {
        swap(world);
    }
    if world.outages.dice.one_in(4) {
        return_enclosure(world);
    }
}

fn leave<S: System>(world: &mut World<S>, bay: usize) {
    if !world.atlas.allows(&[bay]) {
        return;
    }
    world.atlas.note_absent(bay);
    world.machine.bays[bay].present = false;
    world.machine.bays[bay].drive.unplug();
    world.machine.coverage.count("fault Leave");
    world.machine.trace.note(world.machine.now, "drive in bay {} is taken away meanwhile", &[bay as u64]);
}

/// Returns a drive while nothing runs.
fn give_back<S: System>(world: &mut World<S>, bay: usize) {
    world.machine.bays[bay].present = true;
    world.machine.bays[bay].drive.plug();
    world.machine.coverage.count("fault Return");
    world.machine.trace.note(world.machine.now, "drive in bay {} is there again", &[bay as u64]);
}

/// Exchanges two drives: each has the other's name and index from now on.
fn swap<S: System>(world: &mut World<S>) {
    let (Some(&one), Some(&other)) = (world.outages.dice.pick(&world.members), world.outages.dice.pick(&world.members))
    else {
        return;
    };
    // Between enclosures, the layout's promise for enclosures would not move with the drives.
    if one == other || world.machine.bays[one].enclosure != world.machine.bays[other].enclosure {
        return;
    }
    let name = std::mem::take(&mut world.machine.bays[one].name);
    world.machine.bays[one].name = std::mem::replace(&mut world.machine.bays[other].name, name);
    world.machine.coverage.count("fault Swap");
}

/// Returns all missing drives of an enclosure, and informs a running pool.
pub(super) fn return_enclosure<S: System>(world: &mut World<S>) {
    let away: Vec<usize> = world.members.iter().copied().filter(|bay| !world.machine.bays[*bay].present).collect();
    let Some(&first) = world.outages.dice.pick(&away) else { return };
    let enclosure = world.machine.bays[first].enclosure;
    let together: Vec<usize> = away.into_iter().filter(|bay| world.machine.bays[*bay].enclosure == enclosure).collect();
    return_together(world, together);
    if world.machine.system.is_some() && world.outages.restless && world.outages.dice.one_in(2) {
        // Cut the power while they are taken in.
        world.machine.fuse = Some(1 + world.outages.dice.below(256));
    }
}

/// May return an enclosure that has several drives away.
pub(super) fn perhaps_return_enclosure<S: System>(world: &mut World<S>) {
    let mut away: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for bay in world.members.iter().filter(|bay| !world.machine.bays[**bay].present) {
        away.entry(world.machine.bays[*bay].enclosure).or_default().push(*bay);
    }
    let several = away.into_values().find(|bays| bays.len() > 1);
    let Some(together) = several.filter(|_| world.outages.returns.one_in(RETURNS)) else { return };
    return_together(world, together);
    if world.machine.system.is_some() && world.outages.restless && world.outages.returns.one_in(2) {
        world.machine.fuse = Some(1 + world.outages.returns.below(256));
    }
}

fn return_together<S: System>(world: &mut World<S>, together: Vec<usize>) {
    if together.len() > 1 {
        world.machine.coverage.count("fault EnclosureReturn");
    }
    for bay in together {
        match world.machine.system {
            Some(_) => drop(world.machine.attach(bay)),
            None => give_back(world, bay),
        }
        world.machine.coverage.count("fault Return");
    }
}

/// Pulls a drive out, without an orderly leave.
pub(super) fn pull<S: System>(world: &mut World<S>, bay: usize) {
    let faults = [MediaFault::Gone, MediaFault::Damaged, MediaFault::Retry];
    let fault = world.outages.dice.pick(&faults).copied().unwrap_or(MediaFault::Gone);
    let sides = 1 << world.outages.dice.below(25);
    let noticed = Duration::from_micros(1 + world.outages.dice.below(sides));
    world.machine.pull(bay, fault, noticed);
    world.machine.coverage.count(format!("fault {:?}", FaultKind::Pull));
}

/// Lets hosts work for a moment, so that the next event comes in the middle of it. Returns true if
/// the machine crashed.
pub(super) fn begin_to_work<S: System>(world: &mut World<S>) -> Result<bool, Violation> {
    let span = Duration::from_micros(world.outages.dice.below(2_000));
    Ok(world.work(span)? || world.refused.is_some())
}

/// Whether a drive that leaves is pulled.
pub(super) fn is_rough<S>(world: &mut World<S>) -> bool {
    world.outages.dice.one_in(2)
}

/// May make drives that are to be added refuse writes.
pub(super) fn refuse_writes<S: System>(world: &mut World<S>, bays: &[usize]) -> bool {
    if world.outages.calm || !world.outages.dice.one_in(4) {
        return false;
    }
    bays.iter().for_each(|bay| world.machine.bays[*bay].drive.refuse_writes(true));
    world.machine.coverage.count(format!("fault {:?}", FaultKind::RefuseWrites));
    true
}
