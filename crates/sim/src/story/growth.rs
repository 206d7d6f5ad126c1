//! Drives that join the pool and drives that are emptied and leave it, in the middle of everything else.

use stele_array::{Command, DriveHealth};
use stele_ground::Duration;

use super::losses::abandon;
use crate::oracle::Violation;
use crate::system::System;
use crate::world::{Outcome, World};

/// A person takes a moment between pushing a drive in and naming it.
const NAMING: Duration = Duration::from_millis(100);

/// One drive more, in an enclosure of its own.
pub(super) fn add<S: System>(world: &mut World<S>) -> Result<(), Violation> {
    let enclosure = 1 + world.machine.bays.iter().map(|bay| bay.enclosure).max().unwrap_or(0);
    let fresh = world.new_bay(enclosure);
    world.machine.bays[fresh].drive.decider().arm(false);
    world.members.push(fresh);
    let Some(index) = world.machine.attach(fresh) else { return Ok(()) };
    if world.work(NAMING)? {
        return settle(world, fresh);
    }
    let identity = world.machine.bays[fresh].identity;
    match world.ask(Command::AddDrives { drives: vec![(index as u32, identity)] })? {
        Outcome::Reached(Ok(_)) => world.machine.coverage.count("drives added"),
        Outcome::Reached(Err(error)) if world.atlas.is_hurt() || world.atlas.is_beyond() => {
            world.machine.trace.say(world.machine.now, format!("a drive was not added: {error}"));
            return settle(world, fresh);
        }
        Outcome::Reached(Err(error)) => return Err(Violation(format!("a drive could not be added: {error:?}"))),
        Outcome::Crashed => return settle(world, fresh),
    }
    Ok(())
}

/// Finds out whether the pool took the drive before it was cut off.
fn settle<S: System>(world: &mut World<S>, fresh: usize) -> Result<(), Violation> {
    loop {
        if world.refused.is_some() {
            return Ok(());
        }
        let Outcome::Reached(status) = world.status()? else { continue };
        let identity = world.machine.bays[fresh].identity;
        let mut drives = status.drives.iter();
        if !drives.any(|drive| drive.identity == identity && drive.health != DriveHealth::Rejected) {
            abandon(world, fresh);
        }
        return Ok(());
    }
}

/// A drive is to be emptied. What follows goes on meanwhile.
pub(super) fn remove<S: System>(world: &mut World<S>) -> Result<(), Violation> {
    if world.atlas.is_hurt() {
        return Ok(());
    }
    let staying: Vec<usize> = world.members.iter().copied().filter(|bay| !world.leaving.contains(bay)).collect();
    let Some(&bay) = world.dice.pick(&staying) else { return Ok(()) };
    let Outcome::Reached(status) = world.status()? else { return Ok(()) };
    let identity = world.machine.bays[bay].identity;
    let Some(drive) = status.drives.iter().find(|drive| drive.identity == identity) else { return Ok(()) };
    match world.ask(Command::RemoveDrive { drive: drive.index })? {
        Outcome::Reached(Ok(_)) => {
            world.machine.coverage.count("drives to be removed");
            world.leaving.push(bay);
        }
        // What remains would be too few, or too full.
        Outcome::Reached(Err(error)) => {
            world.machine.coverage.count("removals refused");
            world.machine.trace.say(world.machine.now, format!("not removed: {error}"));
        }
        // Begun or not: it shows in whether the drive goes.
        Outcome::Crashed => world.leaving.push(bay),
    }
    Ok(())
}

/// Drives that have left the pool since are carried away.
pub(super) fn carry_away_departed<S: System>(world: &mut World<S>) -> Result<(), Violation> {
    if world.leaving.is_empty() || world.refused.is_some() {
        return Ok(());
    }
    let Outcome::Reached(status) = world.status()? else { return Ok(()) };
    for bay in std::mem::take(&mut world.leaving) {
        let identity = world.machine.bays[bay].identity;
        let found = status.drives.iter().find(|drive| drive.identity == identity);
        match found.map(|drive| drive.health) {
            None | Some(DriveHealth::Rejected) => {
                world.machine.coverage.count("drives removed");
                abandon(world, bay);
            }
            // The pool may have been closed before it took note; else it is on its way.
            Some(_) => world.leaving.push(bay),
        }
    }
    Ok(())
}
