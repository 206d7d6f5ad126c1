//! Histories that once lost data, in steps, each within what the code tolerates. If the place of a
//! power cut among several writes matters, every place is tried.

use stele_array::mutation::Mutation;
use stele_array::{Command, Pool};
use stele_ground::{Duration, KIB};
use stele_sim::machine::{Landmark, Tear};
use stele_sim::oracle::Violation;
use stele_sim::run::guarded;
use stele_sim::script::{End, Script};

type History = Script<Pool>;

/// Removes the protection that `./x mutants` names, so that each of these tests is a detector.
fn go_without_what_is_named() {
    if let Ok(name) = std::env::var("STELE_WITHOUT") {
        stele_sim::system::go_without(Mutation::named(&name).expect("a protection"));
    }
}

/// Runs a history for every place and every drive, and names the ones that failed.
fn check(places: u64, drives: usize, history: impl Fn(u64, usize) -> Result<(), Violation>) {
    go_without_what_is_named();
    let mut wrong = Vec::new();
    for place in 1..=places {
        for drive in 0..drives {
            if let Err(violation) = guarded(|| history(place, drive)) {
                wrong.push(format!("cut at operation {place} there, drive {drive}: {violation}"));
            }
        }
    }
    let tried = places as usize * drives;
    assert!(wrong.is_empty(), "{} of {tried} histories, the first:\n{}", wrong.len(), wrong[0]);
}

#[test]
fn an_anchor_on_one_drive_that_leaves() {
    check(24, 6, |place, drive| {
        let mut pool = History::new(&[0, 1, 2, 3, 4, 5], "2+1", 1)?;
        pool.cut(Tear::Anyhow);
        pool.open()?;
        pool.write(8 * KIB, 4 * KIB)?;
        pool.pass(Duration::from_secs(5))?;
        // A checkpoint is interrupted; one drive's anchor survives.
        pool.trap(Landmark::Anchor, place);
        pool.checkpoint()?;
        pool.cut(Tear::Only(drive));
        // All drives are there: the pool opens, and acknowledges.
        pool.open()?;
        pool.write(16 * KIB, 4 * KIB)?;
        // The power goes again, and takes that drive along.
        pool.cut(Tear::Subset);
        pool.take(drive);
        pool.open()?;
        pool.look().map(drop)
    });
}

#[test]
fn a_returned_drive_alone_with_the_newest_label() {
    check(28, 1, |place, drive| {
        let mut pool = History::new(&[0, 1, 2, 3, 4, 5, 6], "4+2", 1)?;
        pool.take(drive);
        for round in 0..3 {
            for stripe in 0..16 {
                pool.write(stripe * 64 * KIB, 8 * KIB)?;
            }
            pool.checkpoint()?;
            if round < 2 {
                pool.cut(Tear::Anyhow);
                pool.open()?;
            }
        }
        pool.checkpoint()?;
        pool.cut(Tear::Anyhow);
        // It returns, and the opening is interrupted while the labels are written.
        pool.give(drive);
        pool.trap(Landmark::Label, place);
        pool.open()?;
        pool.cut(Tear::Only(drive));
        pool.open()?;
        pool.look().map(drop)
    });
}

#[test]
fn openings_torn_onto_one_drive_do_not_outbid_a_majority() {
    check(20, 1, |place, drive| {
        for sealed in [false, true] {
            let mut pool = History::new(&[0, 1, 2, 3, 4], "2+1", 1)?;
            pool.cut(Tear::Anyhow);
            for _ in 0..3 {
                pool.trap(Landmark::Label, place);
                if pool.open()? == End::Done {
                    pool.machine.trap = None;
                }
                pool.cut(Tear::Only(drive));
            }
            pool.take(drive);
            pool.open()?;
            pool.write(0, 4 * KIB)?;
            if sealed {
                pool.pass(Duration::from_secs(5))?;
            }
            pool.cut(Tear::Anyhow);
            pool.give(drive);
            pool.open()?;
            pool.look()?;
        }
        Ok(())
    });
}

/// Writes parts of all stripes while these drives are away.
fn write_without(pool: &mut History, away: &[usize]) -> Result<(), Violation> {
    away.iter().for_each(|drive| pool.take(*drive));
    pool.pass(Duration::from_millis(10))?;
    for stripe in 0..16 {
        pool.write(stripe * 64 * KIB, 28 * KIB)?;
    }
    pool.checkpoint().map(drop)
}

#[test]
fn drives_that_return_are_filled_whatever_is_cut_off() {
    let groups: [&[usize]; 2] = [&[0, 3, 6], &[0]];
    check(100, 2 * groups.len(), |place, kind| {
        let mut pool = History::new(&[0, 1, 2, 0, 1, 2, 0, 1, 2], "4+2", 1)?;
        let away = groups[kind % 2];
        write_without(&mut pool, away)?;
        pool.machine.fuse = Some(3 * place);
        away.iter().for_each(|drive| pool.give(*drive));
        pool.pass(Duration::from_millis(20))?;
        pool.cut(if kind < 2 { Tear::Anyhow } else { Tear::Nothing });
        pool.open()?;
        pool.prove_whole()
    });
}

#[test]
fn a_drive_that_returned_over_a_power_cut_is_filled_after_the_next() {
    check(1, 7, |_, drive| {
        let mut pool = History::new(&[0, 1, 2, 3, 4, 5, 6], "4+2", 1)?;
        write_without(&mut pool, &[drive])?;
        pool.cut(Tear::Anyhow);
        pool.give(drive);
        // It is found stale, and the power goes before any repair.
        pool.open()?;
        pool.cut(Tear::Anyhow);
        pool.open()?;
        pool.prove_whole()
    });
}

/// The drive is pulled at every moment of the write, and returns after a power cut that leaves only
/// durable data.
#[test]
fn a_write_that_missed_a_drive_is_not_forgotten() {
    check(30, 7, |steps, drive| {
        let mut pool = History::new(&[0, 1, 2, 3, 4, 5, 6], "4+2", 1)?;
        pool.begin_write(0, 64 * KIB);
        pool.steps(2 * steps)?;
        pool.pull(drive);
        pool.until_answered()?;
        pool.cut(Tear::Nothing);
        pool.give(drive);
        pool.open()?;
        pool.prove_whole()?;
        pool.look().map(drop)
    });
}

#[test]
fn a_destage_that_missed_a_drive_is_not_forgotten() {
    check(30, 6, |place, drive| {
        let mut pool = History::new(&[0, 1, 2, 3, 4, 5, 6], "4+2", 1)?;
        for stripe in 0..16 {
            pool.write(stripe * 64 * KIB, 28 * KIB)?;
        }
        pool.pull(drive);
        pool.machine.fuse = Some(8 * place);
        pool.checkpoint()?;
        pool.cut(Tear::Anyhow);
        pool.give(drive);
        pool.open()?;
        pool.prove_whole()?;
        pool.look().map(drop)
    });
}

#[test]
fn a_copy_back_is_complete_wherever_it_is_cut_off() {
    check(40, 2, |place, late| {
        let mut pool = History::new(&[0, 1, 2, 3, 4, 5, 6, 7], "4+2", 1)?;
        pool.rebuild_after(Duration(0));
        pool.cut(Tear::Anyhow);
        pool.open()?;
        write_without(&mut pool, &[2])?;
        pool.pass(Duration::from_secs(5))?;
        match late {
            0 => pool.machine.fuse = Some(12 * place),
            // While the labels record the drive as complete: after those that took it in.
            _ => pool.trap(Landmark::Label, 32 + place),
        }
        pool.give(2);
        pool.pass(Duration::from_secs(5))?;
        pool.cut(Tear::Anyhow);
        pool.open()?;
        pool.prove_whole()?;
        pool.take(4);
        pool.take(5);
        pool.look().map(drop)
    });
}

#[test]
fn an_anchor_that_hardly_any_drive_took_does_not_count() {
    check(4, 6, |ended, drive| {
        let mut pool = History::new(&[0, 1, 2, 3, 4, 5], "2+1", 1)?;
        for at in 0..200 {
            pool.write(at * 4 * KIB, 4 * KIB)?;
        }
        // All but one of the anchors fail, once.
        pool.until_there(Command::Checkpoint, Landmark::Anchor, ended)?;
        (0..6).filter(|other| *other != drive).for_each(|other| pool.hiccup(other));
        pool.pass(Duration::from_millis(5))?;
        for at in 0..400 {
            // The pool may report that it cannot continue.
            if pool.write(at % 256 * 4 * KIB, 4 * KIB).is_err() {
                break;
            }
        }
        pool.cut(Tear::Anyhow);
        pool.take(drive);
        pool.open()?;
        pool.look().map(drop)
    });
}

#[test]
fn a_log_on_too_few_drives_acknowledges_nothing() {
    check(1, 4, |_, drive| {
        // Three drives that answer are a majority, and all three hold what is acknowledged; two are
        // none.
        let mut pool = History::new(&[0, 1, 2, 3], "mirror-4", 1)?;
        pool.take(drive);
        pool.write(0, 4 * KIB)?;
        pool.take((drive + 1) % 4);
        match pool.write(0, 4 * KIB) {
            Err(_) => Ok(()),
            Ok(end) => Err(Violation(format!("a write with two copies of its record is acknowledged: {end:?}"))),
        }
    });
}

#[test]
fn drives_that_take_no_writes_do_not_join() {
    check(1, 4, |_, more| {
        let mut pool = History::new(&[0, 1, 2], "2+1", 1)?;
        if let Some(Ok(reply)) = pool.add(more + 1, true)? {
            return Err(Violation(format!("{} drives without a label joined: {reply:?}", more + 1)));
        }
        // The pool continues, also after a power cut.
        pool.write(0, 4 * KIB)?;
        pool.cut(Tear::Anyhow);
        (3..pool.machine.bays.len()).for_each(|bay| pool.machine.bays[bay].present = false);
        pool.open()?;
        pool.look()?;
        pool.write(0, 4 * KIB).map(drop)
    });
}
