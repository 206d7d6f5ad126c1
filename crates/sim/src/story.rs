//! The story of a seed: what befalls the pool while its hosts work, and the proof at the end that it healed.

use stele_array::{Command, DriveHealth, DriveStatus, PoolStatus, Reply};
use stele_ground::{Duration, KIB};
use stele_media::faulty::FaultKind;

use crate::oracle::Violation;
use crate::setup::{Campaign, volume};
use crate::system::System;
use crate::world::{Outcome, World};

/// Healing takes at most this much virtual time once faults have stopped.
const HEALING_MAX: Duration = Duration::from_secs(3_600);

/// The index, in a status, of an attached drive that is none of the pool's.
const STRANGER: u32 = u32::MAX;

/// How often a patient operator asks for the status.
const LOOK_EVERY: Duration = Duration::from_millis(250);

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

/// What may come, and how often out of the sum.
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
            (Move::EnclosureLoss, 2),
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

/// Runs the whole story of the world's seed.
pub fn run<S: System>(world: &mut World<S>) -> Result<(), Violation> {
    world.begin()?;
    world.arm(true);
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
        make(world, chosen)?;
        let span = Duration::from_micros(1 + world.dice.below(200_000));
        world.work(span)?;
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
        Move::Leave => leave(world),
        Move::Return => bring_back(world),
        Move::Replace => replace(world)?,
        Move::FailDrive => fail_drive(world)?,
        Move::EnclosureLoss => lose_enclosure(world),
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
                && let Some(size) = world.hosts.get(&name).map(|host| host.spec.size.0)
            {
                let more = (1 + world.dice.below(64)) * 4096;
                world.grow_volume(&name, size + more)?;
            }
        }
        // Beyond tolerance nothing promises to become whole.
        Move::Heal if world.atlas.is_beyond() => {}
        Move::Heal => {
            heal(world)?;
            world.arm(true);
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
        Outcome::Reached(Ok(_)) => world.machine.coverage.count(format!("command {what}")),
        Outcome::Reached(Err(error)) if world.atlas.is_hurt() || world.atlas.is_beyond() => {
            world.machine.coverage.count(format!("command {what} refused while hurt"));
            world.machine.trace.say(world.machine.now, format!("{what} refused: {error}"));
        }
        Outcome::Reached(Err(error)) => return Err(Violation(format!("{what} refused: {error:?}"))),
        Outcome::Crashed => {}
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

/// Closes the pool in peace and opens it again.
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
        Outcome::Reached(Ok(_)) => {
            world.machine.coverage.count("clean closes");
            world.machine.put_away();
            befall_while_down(world);
            if !world.start()? {
                world.crash_and_recover()?;
            }
        }
        Outcome::Reached(Err(error)) => {
            if !world.atlas.is_hurt() && !world.atlas.is_beyond() {
                return Err(Violation(format!("the pool does not close: {error:?}")));
            }
        }
        Outcome::Crashed => {}
    }
    world.resume_hosts();
    Ok(())
}

/// A member drive that is here, preferring one that is hurt already.
fn pick_present<S>(world: &mut World<S>) -> Option<usize> {
    let hurt = world.atlas.damaged();
    let present: Vec<usize> = world.members.iter().copied().filter(|bay| world.machine.bays[*bay].present).collect();
    let preferred: Vec<usize> = present.iter().copied().filter(|bay| hurt.contains(bay)).collect();
    if !preferred.is_empty() && world.dice.one_in(2) {
        return world.dice.pick(&preferred).copied();
    }
    world.dice.pick(&present).copied()
}

fn leave<S: System>(world: &mut World<S>) {
    let Some(bay) = pick_present(world) else { return };
    take(world, bay, FaultKind::Leave);
}

fn take<S: System>(world: &mut World<S>, bay: usize, kind: FaultKind) {
    if !world.atlas.allows(&[bay]) {
        return;
    }
    world.atlas.note_absent(bay);
    world.machine.detach(bay);
    world.machine.coverage.count(format!("fault {kind:?}"));
    if world.dice.one_in(2) {
        // Pulled out, so without power.
        let dice = &mut world.crash_dice;
        world.machine.bays[bay].drive.power_cut(dice);
    }
}

/// A drive that was away is here again, with what it held then.
fn bring_back<S: System>(world: &mut World<S>) {
    let away: Vec<usize> = world.members.iter().copied().filter(|bay| !world.machine.bays[*bay].present).collect();
    if let Some(&bay) = world.dice.pick(&away) {
        world.machine.attach(bay);
        world.machine.coverage.count("fault Return");
    }
}

fn lose_enclosure<S: System>(world: &mut World<S>) {
    if !(world.setup.enclosure_may_go || world.atlas.is_beyond()) || world.atlas.is_hurt() {
        return;
    }
    let count = 1 + world.setup.enclosures.iter().copied().max().unwrap_or(0);
    let enclosure = world.dice.below(u64::from(count)) as u32;
    let bays: Vec<usize> = world
        .members
        .iter()
        .copied()
        .filter(|bay| world.machine.bays[*bay].enclosure == enclosure && world.machine.bays[*bay].present)
        .collect();
    if bays.is_empty() || bays.len() == world.members.len() {
        return;
    }
    world.machine.coverage.count("fault EnclosureLoss");
    for bay in bays {
        world.atlas.note_absent(bay);
        world.machine.detach(bay);
    }
}

/// Puts a new drive in the place of one that is away or has failed.
fn replace<S: System>(world: &mut World<S>) -> Result<(), Violation> {
    let away: Vec<usize> = world
        .members
        .iter()
        .copied()
        .filter(|bay| !world.machine.bays[*bay].present && world.machine.bays[*bay].drive.inner().in_flight() == 0)
        .collect();
    let Some(&old) = world.dice.pick(&away) else { return Ok(()) };
    replace_drive(world, old).map(drop)
}

fn replace_drive<S: System>(world: &mut World<S>, old: usize) -> Result<bool, Violation> {
    let Outcome::Reached(status) = world.status()? else { return Ok(false) };
    let identity = world.machine.bays[old].identity;
    let Some(number) = status.drives.iter().find(|drive| drive.identity == identity).map(|drive| drive.index) else {
        return Err(Violation(format!("drive {identity} is not in the pool's status")));
    };
    let enclosure = world.machine.bays[old].enclosure;
    let fresh = world.new_bay(enclosure);
    world.machine.bays[fresh].drive.decider().arm(false);
    world.members.push(fresh);
    world.atlas.note_absent(old);
    let Some(index) = world.machine.attach(fresh) else { return Ok(false) };
    // A person takes a moment between pushing a drive in and naming it.
    if world.work(Duration::from_millis(100))? {
        settle_replacement(world, old, fresh)?;
        return Ok(false);
    }
    let identity = world.machine.bays[fresh].identity;
    let command = Command::ReplaceDrive { old: number, new: index as u32, identity };
    match world.ask(command)? {
        Outcome::Reached(Ok(_)) => {
            world.machine.coverage.count("fault Replace");
            world.members.retain(|bay| *bay != old);
            Ok(true)
        }
        Outcome::Reached(Err(error)) => {
            if !world.atlas.is_beyond() {
                return Err(Violation(format!("drive {number} could not be replaced: {error:?}")));
            }
            abandon(world, fresh);
            Ok(false)
        }
        // Settled by asking again which of the two is in the pool.
        Outcome::Crashed => {
            settle_replacement(world, old, fresh)?;
            Ok(false)
        }
    }
}

fn settle_replacement<S: System>(world: &mut World<S>, old: usize, fresh: usize) -> Result<(), Violation> {
    loop {
        if world.refused.is_some() {
            return Ok(());
        }
        let Outcome::Reached(status) = world.status()? else { continue };
        let identity = world.machine.bays[fresh].identity;
        let joined =
            status.drives.iter().any(|drive| drive.identity == identity && drive.health != DriveHealth::Rejected);
        if joined {
            world.members.retain(|bay| *bay != old);
        } else {
            abandon(world, fresh);
        }
        return Ok(());
    }
}

/// A drive that did not become part of the pool is carried away.
fn abandon<S: System>(world: &mut World<S>, bay: usize) {
    world.members.retain(|member| *member != bay);
    world.machine.detach(bay);
}

/// The operator gives up a drive that is still answering.
fn fail_drive<S: System>(world: &mut World<S>) -> Result<(), Violation> {
    let Some(bay) = pick_present(world) else { return Ok(()) };
    if !world.atlas.allows(&[bay]) {
        return Ok(());
    }
    let Outcome::Reached(status) = world.status()? else { return Ok(()) };
    let identity = world.machine.bays[bay].identity;
    let Some(number) = status.drives.iter().find(|drive| drive.identity == identity).map(|drive| drive.index) else {
        return Ok(());
    };
    world.atlas.note_absent(bay);
    command(world, Command::FailDrive { drive: number })
}

/// Damages what a drive holds, in places that were written.
fn injure<S: System>(world: &mut World<S>) {
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

/// Takes an image now; at the next crash the drive may be back at it.
fn roll_back<S: System>(world: &mut World<S>) {
    let Some(bay) = pick_present(world) else { return };
    let image = world.machine.bays[bay].drive.inner().image();
    world.machine.bays[bay].earlier = Some(image);
    world.at_next_crash.push(FaultKind::Rollback);
}

/// At the next start a copy of a drive is there beside it.
fn clone_drive<S: System>(world: &mut World<S>) {
    world.at_next_crash.push(FaultKind::Clone);
}

fn limp<S: System>(world: &mut World<S>) {
    let Some(bay) = pick_present(world) else { return };
    let extra = if world.machine.bays[bay].drive.is_limping() { 0 } else { 1 + world.dice.below(80) };
    world.machine.bays[bay].drive.limp(Duration::from_millis(extra));
    world.machine.coverage.count("fault Limp");
}

/// What happens to drives while nothing runs: between a crash or a close and the next start.
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
    if world.setup.campaign == Campaign::Crashes {
        return;
    }
    // Drives come and go while the power is off, too.
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
            world.machine.bays[bay].drive.inner_mut().plug();
            world.machine.coverage.count("fault Return");
        }
    }
}

/// A byte-for-byte copy of a drive appears beside it. The pool may believe either, so the drive counts as damaged.
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

/// Beyond tolerance the pool refused to open: give it back what is away and try again.
fn come_back<S: System>(world: &mut World<S>) -> Result<(), Violation> {
    for bay in world.members.clone() {
        world.machine.bays[bay].present = true;
        world.machine.bays[bay].drive.inner_mut().plug();
    }
    world.machine.coverage.count("tried again after an honest refusal");
    world.crash_and_recover()
}

/// Faults stop; the pool must become whole again, prove it by a scrub, and read right everywhere.
pub fn heal<S: System>(world: &mut World<S>) -> Result<(), Violation> {
    world.arm(false);
    world.machine.fuse = None;
    carry_clones_away(world)?;
    for bay in world.machine.bays.iter_mut().filter(|bay| bay.present) {
        bay.drive.limp(Duration(0));
        bay.drive.release();
        bay.drive.inner_mut().settle();
        bay.earlier = None;
    }
    // A drive that is still away comes back as it was, or is replaced, or its strips go to spare space.
    let away: Vec<usize> = world.members.iter().copied().filter(|bay| !world.machine.bays[*bay].present).collect();
    for bay in away {
        if world.dice.one_in(2) {
            world.machine.attach(bay);
            world.machine.coverage.count("fault Return");
        } else {
            replace_drive(world, bay)?;
        }
    }
    let deadline = world.machine.now + HEALING_MAX;
    let status = loop {
        world.allow(4);
        world.work(LOOK_EVERY)?;
        let Outcome::Reached(status) = world.status()? else { continue };
        if whole(&status) {
            break status;
        }
        // A drive that the pool gave up on is replaced by the operator.
        if let Some(failed) = given_up(world, &status) {
            if world.machine.bays[failed].present {
                world.machine.detach(failed);
            }
            replace_drive(world, failed)?;
        }
        if world.machine.now >= deadline {
            return Err(Violation(format!("not whole again long after faults stopped: {}", complaint(&status))));
        }
    };
    if status.lost_stripes > 0 {
        return Err(Violation(format!("{} stripes lost within tolerance", status.lost_stripes)));
    }
    // The first scrub repairs what lay hidden; the second has nothing left to find.
    scrub(world)?;
    if let Some(second) = scrub(world)?
        && second.scrub_damage_found > 0
    {
        return Err(Violation(format!("the second scrub still found {} damaged", second.scrub_damage_found)));
    }
    if let Outcome::Reached(()) = world.look_at_everything()? {
        world.machine.coverage.count("healings");
    }
    world.resume_hosts();
    world.atlas.healed();
    Ok(())
}

fn carry_clones_away<S: System>(world: &mut World<S>) -> Result<(), Violation> {
    let strangers: Vec<usize> = (0..world.machine.bays.len())
        .filter(|bay| world.machine.bays[*bay].present && !world.members.contains(bay))
        .collect();
    if strangers.is_empty() {
        return Ok(());
    }
    // Which of two equal drives the pool took is not said: the copies go while the pool is down.
    world.machine.crash(crate::machine::CrashKind::Process, &mut world.crash_dice);
    world.hosts.values_mut().for_each(crate::host::Host::crash);
    for bay in strangers {
        world.machine.bays[bay].present = false;
        world.machine.bays[bay].drive.inner_mut().unplug();
    }
    if !world.start()? {
        world.crash_and_recover()?;
    }
    world.machine.fuse = None;
    Ok(())
}

fn given_up<S>(world: &World<S>, status: &PoolStatus) -> Option<usize> {
    let lost = |drive: &&DriveStatus| matches!(drive.health, DriveHealth::Failed | DriveHealth::Missing);
    let failed = status.drives.iter().filter(|drive| drive.index != STRANGER).find(lost)?;
    world.members.iter().copied().find(|bay| world.machine.bays[*bay].identity == failed.identity)
}

/// Every drive in use (a suspect one is: it only has a history), and nothing being moved.
fn whole(status: &PoolStatus) -> bool {
    let well = |drive: &DriveStatus| matches!(drive.health, DriveHealth::Healthy | DriveHealth::Suspect);
    status.drives.iter().filter(|drive| drive.index != STRANGER).all(well)
        && status.rebuild.is_none()
        && status.copy_back.is_none()
}

fn complaint(status: &PoolStatus) -> String {
    let drives: Vec<String> = status
        .drives
        .iter()
        .filter(|drive| drive.health != DriveHealth::Healthy)
        .map(|drive| format!("drive {} is {:?} ({})", drive.index, drive.health, drive.note))
        .collect();
    format!(
        "{}; rebuild {:?}, copy-back {:?}, {} lost",
        drives.join(", "),
        status.rebuild.map(|progress| (progress.done, progress.total)),
        status.copy_back.map(|progress| (progress.done, progress.total)),
        status.lost_stripes
    )
}

/// One whole pass. None if the machine crashed meanwhile.
fn scrub<S: System>(world: &mut World<S>) -> Result<Option<PoolStatus>, Violation> {
    let deadline = world.machine.now + HEALING_MAX;
    // A pass under way may have been here before the last damage was done: it does not count.
    let before = loop {
        let Outcome::Reached(status) = world.status()? else { return Ok(None) };
        if status.scrub.is_none() {
            break status;
        }
        if world.machine.now >= deadline {
            return Err(Violation("a scrub does not end".into()));
        }
        world.work(LOOK_EVERY)?;
    };
    match world.ask(Command::StartScrub)? {
        Outcome::Reached(Ok(Reply::Done)) => {}
        Outcome::Reached(other) => return Err(Violation(format!("StartScrub was answered with {other:?}"))),
        Outcome::Crashed => return Ok(None),
    }
    let deadline = world.machine.now + HEALING_MAX;
    loop {
        world.allow(4);
        world.work(LOOK_EVERY)?;
        let Outcome::Reached(status) = world.status()? else { return Ok(None) };
        if status.scrubs_finished > before.scrubs_finished {
            return Ok(Some(status));
        }
        if world.machine.now >= deadline {
            return Err(Violation("a scrub does not end".into()));
        }
    }
}

/// The end of every story.
fn finish<S: System>(world: &mut World<S>) -> Result<(), Violation> {
    world.machine.trace.say(world.machine.now, "== the end: faults stop");
    world.arm(false);
    world.machine.fuse = None;
    if world.setup.campaign == Campaign::Beyond {
        // No promise but honesty: whatever is still answered must be right.
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
    if let Outcome::Crashed = world.look_at_everything()? {
        return Ok(());
    }
    world.resume_hosts();
    Ok(())
}
