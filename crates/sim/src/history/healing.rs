//! Healing: once faults stop, the pool must become whole again and prove it by a scrub.

use stele_array::{Command, DriveHealth, DriveStatus, PoolStatus, Reply};
use stele_ground::Duration;

use super::losses::replace_drive;
use crate::oracle::Violation;
use crate::proof::prove;
use crate::system::System;
use crate::world::{WaitOutcome, World};

/// Virtual time limit of healing once faults have stopped.
const HEALING_MAX: Duration = Duration::from_secs(3_600);

/// The index, in a status, of an attached drive that does not belong to the pool.
pub(super) const STRANGER: u32 = u32::MAX;

/// Interval at which a patient operator asks for the status.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Stops the faults. The pool must become whole again, prove it by a scrub, and read right
/// everywhere.
pub fn heal<S: System>(world: &mut World<S>) -> Result<(), Violation> {
    world.stop_faults();
    carry_clones_away(world)?;
    for bay in world.machine.bays.iter_mut().filter(|bay| bay.present) {
        bay.drive.limp(Duration(0));
        bay.drive.refuse_writes(false);
        bay.drive.release();
        bay.drive.inner_mut().settle();
        bay.earlier = None;
    }
    // A drive that is still away comes back unchanged, or is replaced, or its strips go to spare
    // space.
    super::growth::carry_away_departed(world)?;
    let away: Vec<usize> = world.members.iter().copied().filter(|bay| !world.machine.bays[*bay].present).collect();
    for bay in away {
        if world.dice.one_in(2) {
            world.machine.attach(bay);
            world.machine.coverage.count("fault Return");
        } else {
            replace_drive(world, bay)?;
        }
    }
    let status = become_whole(world)?;
    // A pool may report rows beyond the enclosure rule only if it has no space within it: then no
    // enclosure is removed.
    if status.crowded_stripes > 0 {
        world.machine.coverage.count("rows that stay crowded for want of room");
        world.growth.crowded = true;
    }
    if status.lost_stripes > 0 {
        return Err(Violation(format!("{} stripes lost within tolerance", status.lost_stripes)));
    }
    // All reported faults are repaired by now: only hidden damage may be left.
    if !world.atlas.any_hidden() {
        prove(world, "before any scrub", 2)?;
    }
    // The first scrub repairs hidden damage; the second must find nothing.
    if let Some(first) = scrub(world)? {
        judge_first(world, &status, &first)?;
    }
    let second = scrub(world)?;
    if let Some(second) = &second
        && second.scrub_damage_found > 0
    {
        return Err(Violation(format!("the second scrub still found {} damaged", second.scrub_damage_found)));
    }
    // A drive with much hidden damage was given up by the scrub that found it.
    if !second.is_some_and(|status| whole(&status)) {
        become_whole(world)?;
    }
    if let WaitOutcome::Reached(()) = world.look_at_everything()? {
        world.machine.coverage.count("healings");
    }
    world.resume_hosts();
    world.atlas.healed();
    world.growth.arriving.clear();
    prove(world, "after a scrub", 1)
}

/// Waits until the pool is whole, as an operator does who replaces the drives that it gives up.
fn become_whole<S: System>(world: &mut World<S>) -> Result<PoolStatus, Violation> {
    let deadline = world.machine.now + HEALING_MAX;
    let mut since = world.machine.now;
    loop {
        world.allow(4);
        world.work(LOOK_EVERY)?;
        super::growth::carry_away_departed(world)?;
        let WaitOutcome::Reached(status) = world.status()? else { continue };
        if whole(&status) && (status.crowded_stripes == 0 || world.growth.lacks_room_to_spread()) {
            return Ok(status);
        }
        super::growth::make_room(world, &mut since)?;
        // The operator replaces a drive that the pool gave up on.
        if let Some(failed) = given_up(world, &status) {
            if world.machine.bays[failed].present {
                world.machine.detach(failed);
            }
            replace_drive(world, failed)?;
        }
        replace_what_was_put_off(world)?;
        if world.machine.now >= deadline {
            return Err(Violation(format!(
                "not whole again long after faults stopped: {}; {}",
                complaint(&status),
                world.growth.put_off
            )));
        }
    }
}

/// Replaces a drive whose replacement had to wait until now.
fn replace_what_was_put_off<S: System>(world: &mut World<S>) -> Result<(), Violation> {
    for bay in world.growth.staying(&world.members) {
        if !world.machine.bays[bay].present {
            replace_drive(world, bay)?;
        }
    }
    Ok(())
}

/// The allowed findings of the first scrub: anything on drives that may have hidden damage, nothing
/// on others.
fn judge_first<S: System>(world: &mut World<S>, before: &PoolStatus, after: &PoolStatus) -> Result<(), Violation> {
    for drive in after.drives.iter().filter(|drive| drive.index != STRANGER) {
        let Some(bay) = world.machine.bays.iter().position(|bay| bay.identity == drive.identity) else { continue };
        let earlier = before.drives.iter().find(|earlier| earlier.identity == drive.identity);
        let found = drive.digest_errors.saturating_sub(earlier.map_or(0, |earlier| earlier.digest_errors));
        if found > 0 && !world.atlas.is_hidden(bay) {
            return Err(Violation(format!(
                "the pool called itself whole, and a scrub found {found} stale or damaged units on the drive of bay {bay}, \
                 which nobody hurt"
            )));
        }
    }
    world.machine.coverage.count(match world.atlas.any_hidden() {
        true => "first scrubs after hidden damage",
        false => "first scrubs without hidden damage",
    });
    Ok(())
}

fn carry_clones_away<S: System>(world: &mut World<S>) -> Result<(), Violation> {
    let strangers: Vec<usize> = (0..world.machine.bays.len())
        .filter(|bay| world.machine.bays[*bay].present && !world.members.contains(bay))
        .collect();
    if strangers.is_empty() {
        return Ok(());
    }
    // The pool does not report which of two equal drives it took: the copies go while the pool is
    // down.
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

/// Every drive is in use (a suspect one is: it only has a history), and nothing is being moved.
fn whole(status: &PoolStatus) -> bool {
    let well = |drive: &DriveStatus| matches!(drive.health, DriveHealth::Healthy | DriveHealth::Suspect);
    status.drives.iter().filter(|drive| drive.index != STRANGER).all(well)
        && status.rebuild.is_none()
        && status.copy_back.is_none()
        && status.moving.is_none()
}

fn complaint(status: &PoolStatus) -> String {
    let drives: Vec<String> = status
        .drives
        .iter()
        .filter(|drive| drive.health != DriveHealth::Healthy)
        .map(|drive| format!("drive {} is {:?} ({})", drive.index, drive.health, drive.note))
        .collect();
    format!(
        "{}; rebuild {:?}, copy-back {:?}, moving {:?}, {} crowded, {} lost",
        drives.join(", "),
        status.rebuild.map(|progress| (progress.done, progress.total)),
        status.copy_back.map(|progress| (progress.done, progress.total)),
        status.moving.map(|progress| (progress.done, progress.total)),
        status.crowded_stripes,
        status.lost_stripes
    )
}

/// One whole pass. Returns `None` if the machine crashed meanwhile.
fn scrub<S: System>(world: &mut World<S>) -> Result<Option<PoolStatus>, Violation> {
    let deadline = world.machine.now + HEALING_MAX;
    // A pass under way may have been here before the last damage: it does not count.
    let before = loop {
        let WaitOutcome::Reached(status) = world.status()? else { return Ok(None) };
        if status.scrub.is_none() {
            break status;
        }
        if world.machine.now >= deadline {
            return Err(Violation("a scrub does not end".into()));
        }
        world.work(LOOK_EVERY)?;
    };
    match world.ask(Command::StartScrub)? {
        WaitOutcome::Reached(Ok(Reply::Done)) => {}
        WaitOutcome::Reached(other) => return Err(Violation(format!("StartScrub was answered with {other:?}"))),
        WaitOutcome::Crashed => return Ok(None),
    }
    let deadline = world.machine.now + HEALING_MAX;
    loop {
        world.allow(4);
        world.work(LOOK_EVERY)?;
        let WaitOutcome::Reached(status) = world.status()? else { return Ok(None) };
        if status.scrubs_finished > before.scrubs_finished {
            return Ok(Some(status));
        }
        if world.machine.now >= deadline {
            return Err(Violation("a scrub does not end".into()));
        }
    }
}
