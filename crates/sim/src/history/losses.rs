//! Events on the drives of a history: they leave and return, and are replaced, damaged, rolled
//! back, cloned and slowed.

use stele_array::{ArrayError, Command, DriveHealth};
use stele_ground::{DriveId, Duration};
use stele_media::faulty::FaultKind;

use super::healing::STRANGER;
use super::{command, outages};
use crate::oracle::Violation;
use crate::setup::Campaign;
use crate::system::System;
use crate::world::{WaitOutcome, World};

/// A present member drive, preferably one that is damaged already.
fn pick_present<S>(world: &mut World<S>) -> Option<usize> {
    let hurt = world.atlas.damaged();
    let present: Vec<usize> = world.members.iter().copied().filter(|bay| world.machine.bays[*bay].present).collect();
    let preferred: Vec<usize> = present.iter().copied().filter(|bay| hurt.contains(bay)).collect();
    if !preferred.is_empty() && world.dice.one_in(2) {
        return world.dice.pick(&preferred).copied();
    }
    world.dice.pick(&present).copied()
}

pub(super) fn leave<S: System>(world: &mut World<S>) -> Result<(), Violation> {
    match pick_present(world) {
        Some(bay) => take(world, bay, FaultKind::Leave),
        None => Ok(()),
    }
}

fn take<S: System>(world: &mut World<S>, bay: usize, kind: FaultKind) -> Result<(), Violation> {
    // In the middle of the hosts' work, if the case allows that.
    if outages::begin_to_work(world)? || !world.atlas.allows(&[bay]) || !world.machine.bays[bay].present {
        return Ok(());
    }
    world.atlas.note_absent(bay);
    world.machine.coverage.count(format!("fault {kind:?}"));
    if outages::is_rough(world) {
        outages::pull(world, bay);
        return Ok(());
    }
    world.machine.detach(bay);
    if world.dice.one_in(2) {
        // Pulled out, and therefore without power.
        let dice = &mut world.crash_dice;
        world.machine.bays[bay].drive.power_cut(dice);
    }
    Ok(())
}

/// Returns a drive that was away, with its former content.
pub(super) fn bring_back<S: System>(world: &mut World<S>) {
    let away: Vec<usize> = world.members.iter().copied().filter(|bay| !world.machine.bays[*bay].present).collect();
    if let Some(&bay) = world.dice.pick(&away) {
        world.machine.attach(bay);
        world.machine.coverage.count("fault Return");
    }
}

/// Removes the drive that took the log's last group.
pub(super) fn lose_log_drive<S: System>(world: &mut World<S>) -> Result<(), Violation> {
    let present: Vec<usize> = world.members.iter().copied().filter(|bay| world.machine.bays[*bay].present).collect();
    match world.machine.last_logged(&present) {
        Some(bay) => take(world, bay, FaultKind::LogDriveLoss),
        None => Ok(()),
    }
}

pub(super) fn lose_enclosure<S: System>(world: &mut World<S>) -> Result<(), Violation> {
    if outages::begin_to_work(world)? {
        return Ok(());
    }
    let may_go = world.setup.enclosure_may_go && !world.growth.crowded;
    if !(may_go || world.atlas.is_beyond()) || world.atlas.is_hurt() {
        return Ok(());
    }
    let count = 1 + world.setup.enclosures.iter().copied().max().unwrap_or(0);
    let enclosure = world.dice.below(u64::from(count)) as u32;
    let bays: Vec<usize> = world
        .members
        .iter()
        .copied()
        .filter(|bay| world.machine.bays[*bay].enclosure == enclosure && world.machine.bays[*bay].present)
        .collect();
    // After drives were removed, an enclosure may hold half of the others: then the rest is no
    // majority.
    let leaves_majority = 2 * bays.len() < world.members.len();
    if bays.is_empty() || bays.len() == world.members.len() || !leaves_majority && !world.atlas.is_beyond() {
        return Ok(());
    }
    world.machine.coverage.count("fault EnclosureLoss");
    let rough = outages::is_rough(world);
    for bay in bays {
        world.atlas.note_absent(bay);
        match rough {
            true => outages::pull(world, bay),
            false => world.machine.detach(bay),
        }
    }
    Ok(())
}

/// Replaces a drive that is away or has failed by a new one.
pub(super) fn replace<S: System>(world: &mut World<S>) -> Result<(), Violation> {
    let away: Vec<usize> = world
        .members
        .iter()
        .copied()
        .filter(|bay| !world.machine.bays[*bay].present && world.machine.bays[*bay].drive.inner().in_flight() == 0)
        .collect();
    let Some(&old) = world.dice.pick(&away) else { return Ok(()) };
    replace_drive(world, old).map(drop)
}

pub(super) fn replace_drive<S: System>(world: &mut World<S>, old: usize) -> Result<bool, Violation> {
    let WaitOutcome::Reached(status) = world.status()? else { return Ok(false) };
    let identity = world.machine.bays[old].identity;
    let Some(number) = status.drives.iter().find(|drive| drive.identity == identity).map(|drive| drive.index) else {
        if world.growth.is_leaving(old) {
            return Ok(false);
        }
        if world.growth.left_open.contains(&old) {
            world.machine.coverage.count("changes settled after an opening that told nothing");
            abandon(world, old);
            return Ok(false);
        }
        return Err(Violation(format!("drive {identity} is not in the pool's status")));
    };
    let enclosure = world.machine.bays[old].enclosure;
    let fresh = world.new_bay(enclosure);
    world.machine.bays[fresh].drive.decider().arm(false);
    world.members.push(fresh);
    world.growth.arriving.push(fresh);
    world.atlas.note_absent(old);
    let Some(index) = world.machine.attach(fresh) else { return Ok(false) };
    // An operator takes a moment between pushing a drive in and naming it.
    if world.work(Duration::from_millis(100))? {
        settle_replacement(world, old, fresh)?;
        return Ok(false);
    }
    outages::endanger_change(world);
    let command = Command::ReplaceDrive {
        old: number,
        new: index as u32,
        identity: world.machine.bays[fresh].identity,
        enclosure: None,
        give_up: false,
    };
    match world.ask(command)? {
        WaitOutcome::Reached(Ok(_)) => {
            world.machine.coverage.count("fault Replace");
            settle_replacement(world, old, fresh)?;
            Ok(true)
        }
        WaitOutcome::Reached(Err(error)) => {
            // The old drive may have the only copy of data that others lack: the operator waits,
            // and tries again.
            let waits = matches!(error, ArrayError::Refused(_)) && others_are_behind(world, identity)?;
            if waits {
                world.machine.coverage.count("replacements put off while other drives are behind");
            }
            // It may have left the pool in the meantime.
            if !waits && !world.atlas.is_beyond() && !world.growth.is_leaving(old) {
                return Err(Violation(format!("drive {number} could not be replaced: {error:?}")));
            }
            // A new drive that was taken in before the old one was refused to go stays.
            settle_replacement(world, old, fresh)?;
            Ok(false)
        }
        // Another query shows which of the two is in the pool.
        WaitOutcome::Crashed => {
            settle_replacement(world, old, fresh)?;
            Ok(false)
        }
    }
}

/// Whether any other drive of the pool lacks data.
fn others_are_behind<S: System>(world: &mut World<S>, old: DriveId) -> Result<bool, Violation> {
    let WaitOutcome::Reached(status) = world.status()? else { return Ok(true) };
    let members = status.drives.iter().filter(|drive| drive.index != STRANGER && drive.identity != old);
    Ok(members.into_iter().any(|drive| drive.health != DriveHealth::Healthy))
}

fn settle_replacement<S: System>(world: &mut World<S>, old: usize, fresh: usize) -> Result<(), Violation> {
    loop {
        if world.refused.is_some() {
            world.growth.left_open.extend([old, fresh]);
            return Ok(());
        }
        let WaitOutcome::Reached(status) = world.status()? else { continue };
        let takes_part = |bay: usize| {
            let identity = world.machine.bays[bay].identity;
            status.drives.iter().any(|drive| drive.identity == identity && drive.health != DriveHealth::Rejected)
        };
        match (takes_part(fresh), takes_part(old)) {
            (false, _) => abandon(world, fresh),
            (true, false) => world.members.retain(|bay| *bay != old),
            // The new one is in. The old one is emptied before it leaves, or stays if it may not
            // leave now.
            (true, true) => world.growth.leaving.push(old),
        }
        return Ok(());
    }
}

/// Removes a drive that did not become part of the pool.
pub(super) fn abandon<S: System>(world: &mut World<S>, bay: usize) {
    world.members.retain(|member| *member != bay);
    world.growth.arriving.retain(|arriving| *arriving != bay);
    world.machine.detach(bay);
}

/// The operator gives up a drive that still answers.
pub(super) fn fail_drive<S: System>(world: &mut World<S>) -> Result<(), Violation> {
    let Some(bay) = pick_present(world) else { return Ok(()) };
    if !world.atlas.allows(&[bay]) {
        return Ok(());
    }
    let WaitOutcome::Reached(status) = world.status()? else { return Ok(()) };
    let identity = world.machine.bays[bay].identity;
    let Some(number) = status.drives.iter().find(|drive| drive.identity == identity).map(|drive| drive.index) else {
        return Ok(());
    };
    // Another drive may have been damaged while the status was requested.
    if !world.atlas.allows(&[bay]) {
        return Ok(());
    }
    world.atlas.note_absent(bay);
    command(world, Command::FailDrive { drive: number })
}

/// Damages the content of a drive, in places that were written.
pub(super) fn injure<S: System>(world: &mut World<S>) {
    let Some(bay) = pick_present(world) else { return };
    for _ in 0..=world.dice.below(24) {
        let kinds = [FaultKind::BitFlip, FaultKind::ByteFlip, FaultKind::LatentError];
        let Some(&kind) = world.dice.pick(&kinds) else { return };
        let written: Vec<u64> = world.machine.bays[bay].drive.inner().platter().written().collect();
        let Some(&page) = world.dice.pick(&written) else { return };
        let sides = 1 + world.dice.below(8);
        let length = (4096 * (1 + world.dice.below(sides))).min(world.setup.drive_size.0 - page * 4096);
        world.machine.bays[bay].drive.injure(kind, page * 4096, length);
    }
    world.machine.note_faults();
}

/// Takes an image now; the drive may fall back to it at the next crash.
pub(super) fn roll_back<S: System>(world: &mut World<S>) {
    let Some(bay) = pick_present(world) else { return };
    let image = world.machine.bays[bay].drive.inner().image();
    world.machine.bays[bay].earlier = Some(image);
    world.at_next_crash.push(FaultKind::Rollback);
}

/// A copy of a drive appears beside it at the next start.
pub(super) fn clone_drive<S: System>(world: &mut World<S>) {
    world.at_next_crash.push(FaultKind::Clone);
}

pub(super) fn limp<S: System>(world: &mut World<S>) {
    let Some(bay) = pick_present(world) else { return };
    let extra = if world.machine.bays[bay].drive.is_limping() { 0 } else { 1 + world.dice.below(80) };
    world.machine.bays[bay].drive.limp(Duration::from_millis(extra));
    world.machine.coverage.count("fault Limp");
}

/// Events on drives while nothing runs: between a crash or a close and the next start.
pub fn befall_while_down<S: System>(world: &mut World<S>) {
    for kind in std::mem::take(&mut world.at_next_crash) {
        match kind {
            FaultKind::Rollback if !world.atlas.is_beyond() => {
                for bay in world.members.clone() {
                    let Some(image) = world.machine.bays[bay].earlier.take() else { continue };
                    if world.atlas.allows(&[bay]) && world.machine.bays[bay].present {
                        world.atlas.note_damaged(bay);
                        world.machine.bays[bay].drive.inner_mut().restore(image);
                        world.machine.coverage.count("fault Rollback");
                        world.machine.trace.note(world.machine.now, "drive {} is rolled back", &[bay as u64]);
                    }
                }
            }
            FaultKind::Clone => clone_while_down(world),
            _ => {}
        }
    }
    outages::befall_while_down(world);
    if world.setup.campaign == Campaign::Crashes {
        return;
    }
    // Drives also come and go while the power is off.
    if world.crash_dice.one_in(6)
        && let Some(bay) = pick_present(world)
        && world.atlas.allows(&[bay])
    {
        world.atlas.note_absent(bay);
        world.machine.bays[bay].present = false;
        world.machine.bays[bay].drive.inner_mut().unplug();
        world.machine.coverage.count("fault Leave");
    }
    if world.crash_dice.one_in(4) {
        let away: Vec<usize> = world.members.iter().copied().filter(|bay| !world.machine.bays[*bay].present).collect();
        if let Some(&bay) = world.dice.pick(&away) {
            world.machine.bays[bay].present = true;
            world.machine.bays[bay].drive.plug();
            world.machine.coverage.count("fault Return");
        }
    }
}

/// Makes a byte-for-byte copy of a drive appear beside it. The pool may believe either, so the
/// drive counts as damaged.
fn clone_while_down<S: System>(world: &mut World<S>) {
    let Some(bay) = pick_present(world) else { return };
    if world.atlas.is_beyond() || !world.atlas.allows(&[bay]) {
        return;
    }
    world.atlas.note_damaged(bay);
    let enclosure = world.machine.bays[bay].enclosure;
    let copy = world.new_bay(enclosure);
    let image = world.machine.bays[bay].drive.inner().image();
    world.machine.bays[copy].drive.inner_mut().restore(image);
    world.machine.bays[copy].drive.decider().arm(false);
    world.machine.coverage.count("fault Clone");
}
