//! The history of a seed: the events on the pool while its hosts work, and the proof at the end
//! that it healed.

mod growth;
mod healing;
mod layers;
mod losses;
mod outages;

use stele_array::Command;
use stele_ground::{Duration, KIB};

use crate::oracle::Violation;
use crate::setup::{Campaign, volume};
use crate::system::System;
use crate::world::resizing::Tail;
use crate::world::{WaitOutcome, World};

pub use growth::Growth;
use healing::heal;
pub use losses::befall_while_down;
use losses::{
    bring_back, clone_drive, fail_drive, injure, leave, limp, lose_enclosure, lose_log_drive, replace, roll_back,
};
pub use outages::{Outages, crash, threaten_opening};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Move {
    Work,
    Crash,
    Reopen,
    Leave,
    Return,
    Replace,
    FailDrive,
    EnclosureLoss,
    EnclosureReturn,
    LogDriveLoss,
    Injure,
    Rollback,
    Clone,
    Limp,
    Scrub,
    Checkpoint,
    CreateVolume,
    DeleteVolume,
    GrowVolume,
    Heal,
}

/// The possible events with their weights.
fn moves(campaign: Campaign) -> &'static [(Move, u64)] {
    match campaign {
        Campaign::Crashes => &[
            (Move::Work, 4),
            (Move::Crash, 8),
            (Move::Reopen, 2),
            (Move::Checkpoint, 2),
            (Move::Scrub, 1),
            (Move::CreateVolume, 1),
            (Move::DeleteVolume, 1),
            (Move::GrowVolume, 1),
        ],
        Campaign::Tolerated | Campaign::Beyond => &[
            (Move::Work, 4),
            (Move::Crash, 6),
            (Move::Reopen, 2),
            (Move::Leave, 5),
            (Move::Return, 4),
            (Move::Replace, 3),
            (Move::FailDrive, 1),
            (Move::EnclosureLoss, 3),
            (Move::EnclosureReturn, 2),
            (Move::LogDriveLoss, 2),
            (Move::Injure, 5),
            (Move::Rollback, 2),
            (Move::Clone, 1),
            (Move::Limp, 1),
            (Move::Scrub, 2),
            (Move::Checkpoint, 2),
            (Move::CreateVolume, 1),
            (Move::DeleteVolume, 1),
            (Move::GrowVolume, 1),
            (Move::Heal, 3),
        ],
    }
}

/// Runs the whole history of the world's seed.
pub fn run<S: System>(world: &mut World<S>) -> Result<(), Violation> {
    world.begin()?;
    world.begin_faults();
    let moves = moves(world.setup.campaign);
    let sum: u64 = moves.iter().map(|(_, weight)| weight).sum();
    for step in 0..world.setup.steps {
        if world.setup.campaign == Campaign::Beyond && step == world.setup.steps / 2 {
            go_beyond(world);
        }
        let mut roll = world.dice.below(sum);
        let chosen = moves.iter().find(|(_, weight)| {
            let here = roll < *weight;
            roll = roll.saturating_sub(*weight);
            here
        });
        let chosen = chosen.map_or(Move::Work, |(chosen, _)| *chosen);
        world.machine.trace.say(world.machine.now, format!("== step {step}: {chosen:?}"));
        if world.refused.is_some() {
            come_back(world)?;
            continue;
        }
        let sides = 8 << world.dice.below(6);
        world.allow(sides);
        if outages::befall(world) && world.refused.is_none() {
            command(world, Command::Checkpoint)?;
        }
        if world.refused.is_none() {
            outages::perhaps_return_enclosure(world);
        }
        make(world, chosen)?;
        if world.setup.snapshots && world.refused.is_none() {
            layers::befall(world)?;
        }
        if world.setup.growth && world.refused.is_none() {
            growth::befall(world)?;
        }
        let span = Duration::from_micros(1 + world.dice.below(200_000));
        world.work(span)?;
        if world.memory_dice.one_in(4) {
            let spoilt = world.machine.spoil_memory(&mut world.memory_dice);
            world.machine.coverage.add("fault MemoryFlip", spoilt);
        }
    }
    finish(world)
}

fn go_beyond<S: System>(world: &mut World<S>) {
    world.atlas.go_beyond();
    world.hosts.values_mut().for_each(|host| host.oracle.forgive());
    world.machine.trace.say(world.machine.now, "== beyond tolerance from here on");
}

fn make<S: System>(world: &mut World<S>, chosen: Move) -> Result<(), Violation> {
    match chosen {
        Move::Work => {}
        Move::Crash => {
            let sides = 1 << world.dice.below(12);
            world.machine.fuse = Some(1 + world.dice.below(sides));
        }
        Move::Reopen => reopen(world)?,
        Move::Leave => leave(world)?,
        Move::Return => bring_back(world),
        Move::Replace => replace(world)?,
        Move::FailDrive => fail_drive(world)?,
        Move::EnclosureLoss => lose_enclosure(world)?,
        Move::EnclosureReturn => outages::return_enclosure(world),
        Move::LogDriveLoss => lose_log_drive(world)?,
        Move::Injure => injure(world),
        Move::Rollback => roll_back(world),
        Move::Clone => clone_drive(world),
        Move::Limp => limp(world),
        Move::Scrub => command(world, Command::StartScrub)?,
        Move::Checkpoint => command(world, Command::Checkpoint)?,
        Move::CreateVolume => create_volume(world)?,
        Move::DeleteVolume => {
            if let Some(name) = any_volume(world)
                && world.hosts.len() > 1
            {
                world.delete_volume(&name)?;
            }
        }
        Move::GrowVolume => {
            if let Some(name) = any_volume(world)
                && let Some(size) = world.hosts.get(&name).filter(|host| !host.reads_only).map(|host| host.spec.size.0)
            {
                let change = (1 + world.dice.below(64)) * 4096;
                // Drawn apart, so that the histories without it stay what they are.
                let mut apart = world.dice.clone().fork();
                match apart.one_in(2) {
                    true => {
                        let tail = if apart.one_in(2) { Tail::Discarded } else { Tail::AsItIs };
                        let least = world.hosts[&name].spec.block.0.max(4096);
                        world.shrink_volume(&name, size.saturating_sub(change).max(least), tail)?;
                    }
                    false => world.grow_volume(&name, size + change)?,
                }
            }
        }
        // Beyond tolerance the pool does not promise to become whole.
        Move::Heal if world.atlas.is_beyond() => {}
        Move::Heal => {
            heal(world)?;
            world.begin_faults();
        }
    }
    Ok(())
}

fn any_volume<S>(world: &mut World<S>) -> Option<String> {
    let names: Vec<String> = world.hosts.keys().cloned().collect();
    world.dice.pick(&names).cloned()
}

fn command<S: System>(world: &mut World<S>, command: Command) -> Result<(), Violation> {
    let what = format!("{command:?}");
    match world.ask(command)? {
        WaitOutcome::Reached(Ok(_)) => world.machine.coverage.count(format!("command {what}")),
        WaitOutcome::Reached(Err(error)) if world.atlas.is_hurt() || world.atlas.is_beyond() => {
            world.machine.coverage.count(format!("command {what} refused while hurt"));
            world.machine.trace.say(world.machine.now, format!("{what} refused: {error}"));
        }
        WaitOutcome::Reached(Err(error)) => return Err(Violation(format!("{what} refused: {error:?}"))),
        WaitOutcome::Crashed => {}
    }
    Ok(())
}

fn create_volume<S: System>(world: &mut World<S>) -> Result<(), Violation> {
    let codes: Vec<_> = world.setup.volumes.iter().map(|spec| spec.code).collect();
    let number = world.volumes_made;
    world.volumes_made += 1;
    let mut spec = volume(&mut world.dice, number, &codes, 2);
    spec.size.0 = spec.size.0.min(KIB << 10);
    world.create_volume(spec)
}

/// Closes the pool in order and opens it again.
fn reopen<S: System>(world: &mut World<S>) -> Result<(), Violation> {
    world.pause_hosts();
    let names: Vec<String> = world.hosts.keys().cloned().collect();
    for name in names {
        if world.drain(&name)? {
            world.resume_hosts();
            return Ok(());
        }
    }
    match world.ask(Command::Close)? {
        WaitOutcome::Reached(Ok(_)) => {
            world.machine.coverage.count("clean closes");
            world.machine.put_away();
            befall_while_down(world);
            if !world.start()? {
                world.crash_and_recover()?;
            }
        }
        WaitOutcome::Reached(Err(error)) => {
            if !world.atlas.is_hurt() && !world.atlas.is_beyond() {
                return Err(Violation(format!("the pool does not close: {error:?}")));
            }
        }
        WaitOutcome::Crashed => {}
    }
    world.resume_hosts();
    Ok(())
}

/// Beyond tolerance the pool refused to open: returns the missing drives and tries again.
fn come_back<S: System>(world: &mut World<S>) -> Result<(), Violation> {
    for bay in world.members.clone() {
        world.machine.bays[bay].present = true;
        world.machine.bays[bay].drive.plug();
    }
    world.machine.coverage.count("tried again after an honest refusal");
    world.crash_and_recover()
}

/// The end of every history.
fn finish<S: System>(world: &mut World<S>) -> Result<(), Violation> {
    world.machine.trace.say(world.machine.now, "== the end: faults stop");
    world.stop_faults();
    if world.setup.campaign == Campaign::Beyond {
        // The only promise is honesty: every answer must be right.
        if world.refused.is_none() {
            world.look_at_everything()?;
        }
        come_back(world)?;
        if world.refused.is_none() {
            world.look_at_everything()?;
        }
        return Ok(());
    }
    heal(world)?;
    reopen(world)?;
    if let WaitOutcome::Crashed = world.look_at_everything()? {
        return Ok(());
    }
    world.resume_hosts();
    Ok(())
}
