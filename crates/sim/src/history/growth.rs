//! Drives that join the pool, and drives that are emptied and leave it, in the middle of all other
//! events. Its own dice decide the events and their times.

use std::collections::{BTreeMap, BTreeSet};

use stele_array::{Alarm, AlarmKind, ArrayError, Command, DriveHealth};
use stele_ground::{Dice, Duration, Instant};

use super::losses::abandon;
use super::outages;
use crate::oracle::Violation;
use crate::setup::Campaign;
use crate::system::System;
use crate::world::{WaitOutcome, World};

/// An operator takes a moment between pushing a drive in and naming it.
const NAMING: Duration = Duration::from_millis(100);
/// Largest number of drives in a history, for its speed.
const MEMBERS_MAX: usize = 30;
/// Time after which an operator adds a drive, because another does not become empty.
const ROOM_AFTER: Duration = Duration::from_secs(300);

/// The state of the pool's size.
pub struct Growth {
    dice: Dice,
    /// Bays of members that are being emptied.
    pub(super) leaving: Vec<usize>,
    /// Whether the drives are temporarily too few, or too close together, for every row to survive
    /// the loss of an enclosure.
    pub crowded: bool,
    /// Bays of drives that are still to be added, and of replacements, which take no rows before
    /// they are filled.
    pub arriving: Vec<usize>,
    /// Bays of changes that were cut off, while the pool, when it opened, did not tell what became
    /// of them.
    pub(super) left_open: Vec<usize>,
    /// Until then the drives may be too few for the requested space.
    pub roomless_until: Option<Instant>,
    /// Bays of drives that the pool has given up for their errors, as far as it could report them.
    pub given_up: BTreeSet<usize>,
    /// The reason why stripes could not move, as last reported.
    pub put_off: String,
}

impl Growth {
    pub fn new(seed: u64) -> Growth {
        Growth {
            dice: Dice::new(seed ^ 0x6704_0000_0000_0000),
            leaving: Vec::new(),
            crowded: false,
            arriving: Vec::new(),
            left_open: Vec::new(),
            roomless_until: None,
            put_off: String::new(),
            given_up: BTreeSet::new(),
        }
    }

    pub fn is_leaving(&self, bay: usize) -> bool {
        self.leaving.contains(&bay)
    }

    pub fn hear(&mut self, alarm: Alarm) {
        if alarm.kind == AlarmKind::MovingPutOff {
            self.put_off = alarm.message;
        }
    }

    /// The pool has reported that it cannot spread rows that crowd an enclosure.
    pub fn lacks_room_to_spread(&self) -> bool {
        self.put_off.contains("in one enclosure") || self.put_off.contains("within the enclosure rule")
    }

    /// Bays whose drives stay in the pool once the leaving ones have left.
    pub fn staying(&self, members: &[usize]) -> Vec<usize> {
        members.iter().copied().filter(|bay| !self.is_leaving(*bay)).collect()
    }
}

/// Lets the pool grow or shrink at random, after a step of the history.
pub(super) fn befall<S: System>(world: &mut World<S>) -> Result<(), Violation> {
    carry_away_departed(world)?;
    if world.refused.is_some() {
        return Ok(());
    }
    match world.growth.dice.below(10) {
        0 | 1 if world.members.len() < MEMBERS_MAX => add(world),
        2..=4 => remove(world),
        5..=7 => keep(world),
        _ => Ok(()),
    }
}

/// Number of drives that may be damaged at once: every code tolerates it, and more than half of the
/// labels remain.
fn limit<S>(world: &World<S>, drives: usize) -> usize {
    world.setup.tolerance.min(drives.saturating_sub(1) / 2)
}

/// Records the present number and places of drives.
fn note_drives<S>(world: &mut World<S>) {
    let staying = world.growth.staying(&world.members);
    if world.setup.campaign != Campaign::Crashes {
        world.atlas.set_tolerance(limit(world, staying.len()));
    }
    let mut crowds: BTreeMap<u32, usize> = BTreeMap::new();
    for bay in &staying {
        *crowds.entry(world.machine.bays[*bay].enclosure).or_default() += 1;
    }
    let fits = world.setup.volumes.iter().all(|volume| {
        let most = volume.code.tolerates();
        crowds.values().map(|crowd| (*crowd).min(most)).sum::<usize>() >= volume.code.width()
    });
    let majority = crowds.values().all(|crowd| crowd * 2 < staying.len());
    world.growth.crowded |= !fits || !majority;
}

/// Adds one drive or two, in enclosures of their own or beside others.
fn add<S: System>(world: &mut World<S>) -> Result<(), Violation> {
    let mut fresh: Vec<(usize, usize)> = Vec::new();
    for _ in 0..1 + world.growth.dice.below(2) {
        let mut enclosures: Vec<u32> = world.machine.bays.iter().map(|bay| bay.enclosure).collect();
        let own = 1 + enclosures.iter().copied().max().unwrap_or(0);
        enclosures.push(own);
        let enclosure = match world.growth.dice.one_in(2) {
            true => own,
            false => world.growth.dice.pick(&enclosures).copied().unwrap_or(own),
        };
        let bay = world.new_bay(enclosure);
        world.machine.bays[bay].drive.decider().arm(false);
        let Some(index) = world.machine.attach(bay) else { continue };
        world.members.push(bay);
        world.growth.arriving.push(bay);
        fresh.push((bay, index));
    }
    let bays: Vec<usize> = fresh.iter().map(|(bay, _)| *bay).collect();
    let refusing = outages::refuse_writes(world, &bays);
    if world.work(NAMING)? {
        return settle(world, &bays);
    }
    let drives = fresh.iter().map(|(bay, index)| (*index as u32, world.machine.bays[*bay].identity)).collect();
    outages::endanger_change(world);
    match world.ask(Command::AddDrives { drives })? {
        WaitOutcome::Reached(Ok(_)) if refusing && !world.atlas.allows(&bays) => {
            Err(Violation(format!("{} drives that take no writes were added", bays.len())))
        }
        WaitOutcome::Reached(Ok(_)) => {
            if refusing {
                bays.iter().for_each(|bay| world.atlas.note_absent(*bay));
            }
            world.machine.coverage.add("drives added", bays.len() as u64);
            if world.may_be_full() {
                world.growth.roomless_until = Some(world.machine.now);
            }
            world.growth.arriving.retain(|arriving| !bays.contains(arriving));
            for bay in bays {
                world.machine.bays[bay].drive.decider().arm(!world.outages.is_calm());
            }
            note_drives(world);
            Ok(())
        }
        WaitOutcome::Reached(Err(error)) if refusing || world.atlas.is_hurt() || world.atlas.is_beyond() => {
            world.machine.trace.say(world.machine.now, format!("drives were not added: {error}"));
            world.machine.coverage.count("additions that failed");
            settle(world, &bays)
        }
        WaitOutcome::Reached(Err(error)) => Err(Violation(format!("drives could not be added: {error:?}"))),
        WaitOutcome::Crashed => settle(world, &bays),
    }
}

/// Finds out whether the pool took the drives before the interruption: all, or none.
fn settle<S: System>(world: &mut World<S>, bays: &[usize]) -> Result<(), Violation> {
    loop {
        if world.refused.is_some() {
            world.growth.left_open.extend(bays);
            return Ok(());
        }
        let WaitOutcome::Reached(status) = world.status()? else { continue };
        let joined = |bay: &usize| {
            let identity = world.machine.bays[*bay].identity;
            status.drives.iter().any(|drive| drive.identity == identity && drive.health != DriveHealth::Rejected)
        };
        let (inside, outside): (Vec<usize>, Vec<usize>) = bays.iter().copied().partition(joined);
        if !inside.is_empty() && !outside.is_empty() {
            return Err(Violation(format!(
                "of drives added at once, {} joined, and {} not",
                inside.len(),
                outside.len()
            )));
        }
        world.machine.coverage.add("drives added by a command cut off", inside.len() as u64);
        let refusing = |bay: &usize| world.machine.bays[*bay].drive.refuses_writes();
        if inside.iter().any(refusing) {
            if !world.atlas.allows(&inside) {
                return Err(Violation(format!("{} drives that take no writes were added", inside.len())));
            }
            inside.iter().for_each(|bay| world.atlas.note_absent(*bay));
        }
        outside.into_iter().for_each(|bay| abandon(world, bay));
        if !inside.is_empty() && !bays.iter().any(|bay| world.machine.bays[*bay].drive.refuses_writes()) {
            inside.iter().for_each(|bay| world.machine.bays[*bay].drive.decider().arm(!world.outages.is_calm()));
        }
        note_drives(world);
        return Ok(());
    }
}

/// Starts to empty a drive. The history continues meanwhile.
fn remove<S: System>(world: &mut World<S>) -> Result<(), Violation> {
    let staying = world.growth.staying(&world.members);
    let Some(&bay) = world.growth.dice.pick(&staying) else { return Ok(()) };
    let WaitOutcome::Reached(status) = world.status()? else { return Ok(()) };
    let identity = world.machine.bays[bay].identity;
    let Some(drive) = status.drives.iter().find(|drive| drive.identity == identity) else { return Ok(()) };
    // From now on damage must leave what the pool then tolerates.
    world.growth.leaving.push(bay);
    note_drives(world);
    if !world.atlas.allows(&[]) {
        world.growth.leaving.pop();
        note_drives(world);
        return Ok(());
    }
    outages::endanger_change(world);
    match world.ask(Command::RemoveDrive { drive: drive.index })? {
        WaitOutcome::Reached(Ok(_)) => {
            let how = if world.atlas.is_hurt() { ", while others are hurt" } else { "" };
            world.machine.coverage.count(format!("drives to be removed{how}"));
        }
        // The remaining drives would be too few, or too full.
        WaitOutcome::Reached(Err(error)) => {
            world.machine.coverage.count("removals refused");
            world.machine.trace.say(world.machine.now, format!("not removed: {error}"));
            world.growth.leaving.retain(|leaving| *leaving != bay);
            note_drives(world);
        }
        // Whether it began shows in whether the drive goes.
        WaitOutcome::Crashed => {}
    }
    Ok(())
}

/// The operator changes their mind: a drive that is being emptied stays.
fn keep<S: System>(world: &mut World<S>) -> Result<(), Violation> {
    let leaving = world.growth.leaving.clone();
    let Some(&bay) = world.growth.dice.pick(&leaving) else { return Ok(()) };
    loop {
        let WaitOutcome::Reached(status) = world.status()? else {
            if world.refused.is_some() {
                return Ok(());
            }
            continue;
        };
        let identity = world.machine.bays[bay].identity;
        let Some(drive) = status.drives.iter().find(|drive| drive.identity == identity) else { return Ok(()) };
        outages::endanger_change(world);
        match world.ask(Command::KeepDrive { drive: drive.index })? {
            WaitOutcome::Reached(Ok(_)) => world.machine.coverage.count("removals taken back"),
            // Its removal, or the first attempt to take it back, was cut off.
            WaitOutcome::Reached(Err(ArrayError::Invalid(_))) => {
                world.machine.coverage.count("removals that had not begun, or were taken back already");
            }
            WaitOutcome::Reached(Err(error)) => {
                world.machine.coverage.count("removals not taken back");
                world.machine.trace.say(world.machine.now, format!("not kept: {error}"));
                return Ok(());
            }
            // The command again tells whether it was carried out.
            WaitOutcome::Crashed if world.refused.is_none() => continue,
            WaitOutcome::Crashed => return Ok(()),
        }
        world.growth.leaving.retain(|leaving| *leaving != bay);
        note_drives(world);
        return Ok(());
    }
}

/// Removes drives that have left the pool since.
pub(super) fn carry_away_departed<S: System>(world: &mut World<S>) -> Result<(), Violation> {
    let members = &world.members;
    world.growth.leaving.retain(|bay| members.contains(bay));
    if world.growth.leaving.is_empty() || world.refused.is_some() {
        return Ok(());
    }
    let WaitOutcome::Reached(status) = world.status()? else { return Ok(()) };
    for bay in std::mem::take(&mut world.growth.leaving) {
        let identity = world.machine.bays[bay].identity;
        match status.drives.iter().find(|drive| drive.identity == identity).map(|drive| drive.health) {
            None | Some(DriveHealth::Rejected) => {
                world.machine.coverage.count("drives removed");
                abandon(world, bay);
                world.atlas.forget(bay);
            }
            // On its way, or the removal was interrupted before it began.
            Some(_) => world.growth.leaving.push(bay),
        }
    }
    note_drives(world);
    Ok(())
}

/// Adds space: volumes may have grown since a removal was granted, so that the stripes to move have
/// no room.
pub(super) fn make_room<S: System>(world: &mut World<S>, since: &mut Instant) -> Result<(), Violation> {
    if world.growth.leaving.is_empty() || world.machine.now < *since + ROOM_AFTER {
        return Ok(());
    }
    *since = world.machine.now;
    world.machine.coverage.count("drives added so that others can leave");
    add(world)
}
