//! Errors of many drives at once that pass, as when a controller resets or a cable comes loose:
//! nothing is given up for them, and writes go on when they are over.

use std::collections::BTreeSet;

use stele_ground::{Duration, VolumeId};
use stele_media::Priority;

use crate::model::place::{DriveNumber, StripeKey};
use crate::model::{Command, DriveHealth, OpenOptions, Severity};
use crate::testing::{Fixture, pattern, spec};

const SIZE: u64 = 16 << 20;
const STRIPE: usize = 128 << 10;
const HOUR: Duration = Duration::from_secs(3600);
/// The region of the log, behind labels and anchors.
const LOG: std::ops::Range<u64> = 4 << 20..12 << 20;

fn made(drives: usize, seed: u64) -> (Fixture, VolumeId) {
    let mut fixture = Fixture::blank(drives, drives as u32, seed, OpenOptions { seed, ..OpenOptions::default() });
    assert_eq!(fixture.settle(), Ok(()));
    let volume = fixture.create_volume(spec("a", "8+2", SIZE)).id;
    fixture.write(volume, 0, &pattern(1, SIZE as usize)).expect("written");
    fixture.command(Command::Close).expect("closed");
    fixture.open().expect("opened, with nothing in the cache");
    (fixture, volume)
}

fn take_back_all(fixture: &mut Fixture) {
    let drives = fixture.status().drives;
    for drive in drives.iter().filter(|drive| drive.health == DriveHealth::Failed) {
        fixture.command(Command::ClearDrive { drive: drive.index }).expect("taken back");
    }
    fixture.pass(HOUR);
}

#[test]
fn what_drives_with_passing_errors_hold_is_never_given_up_for_a_write() {
    for (how, drives, seconds) in
        [("loose", 12, 10), ("hung", 12, 1200), ("hung", 12, 7200), ("hung", 14, 7200), ("hung", 16, 7200)]
    {
        let (mut fixture, volume) = made(drives, 2);
        let drives = fixture.drives_of_a_row();
        let what = format!("{how} for {seconds} s of {} drives", fixture.test_drives.drives.len());
        let mut data = pattern(1, SIZE as usize);
        let set = |fixture: &mut Fixture, fails: bool| {
            for drive in &drives {
                let drive = &mut fixture.test_drives.drives[*drive];
                *if how == "loose" { &mut drive.is_loose } else { &mut drive.is_cut } = fails;
            }
        };
        set(&mut fixture, true);
        // Parts of stripes: the rest has to be read for their parity, and cannot be.
        for at in (0..SIZE as usize).step_by(STRIPE) {
            data[at..at + 4096].copy_from_slice(&pattern(at as u64, 4096));
            fixture.write(volume, at as u64, &data[at..at + 4096]).expect("acknowledged");
        }
        fixture.pass(Duration::from_secs(seconds));
        set(&mut fixture, false);
        fixture.pass(HOUR);
        take_back_all(&mut fixture);
        for at in (0..SIZE as usize).step_by(STRIPE) {
            let read = fixture.read(volume, at as u64, STRIPE);
            assert!(read.as_deref() == Ok(&data[at..at + STRIPE]), "{what}: bytes at {at}: {:?}", read.err());
        }
        assert_eq!((fixture.status().lost_stripes, fixture.scrub()), (0, (0, 0)), "{what}");
    }
}

/// While none of them answers, their strips are not taken for moved into spare space, so that the
/// last can not be spared.
#[test]
fn drives_that_hang_are_given_up_only_as_far_as_the_code_tolerates() {
    for (code, drives, hung) in [("8+2", 16, 3), ("4+2", 13, 3), ("2+1", 8, 2), ("mirror-2", 6, 2)] {
        let mut fixture = Fixture::new(drives, drives as u32, 3);
        let volume = fixture.create_volume(spec("a", code, SIZE)).id;
        let mut data = pattern(1, SIZE as usize);
        fixture.write(volume, 0, &data).expect("written");
        fixture.command(Command::Close).expect("closed");
        fixture.open().expect("opened, with nothing in the cache");
        let members = fixture.drives_of_rows(code, hung);
        members.iter().for_each(|drive| fixture.test_drives.drives[*drive].is_cut = true);
        for at in (0..SIZE as usize).step_by(STRIPE) {
            data[at..at + 4096].copy_from_slice(&pattern(at as u64, 4096));
            fixture.write(volume, at as u64, &data[at..at + 4096]).expect("acknowledged");
        }
        for minute in 0..90 {
            fixture.pass(Duration::from_secs(60));
            let failed = fixture.status().drives.iter().filter(|drive| drive.health == DriveHealth::Failed).count();
            assert!(failed < hung, "{code}: {failed} after {minute} minutes");
        }
        // A controller may come back just when it is asked for a label. Of a mirror's drives none
        // is: a write needs no read.
        for drive in &members {
            let drive = &mut fixture.test_drives.drives[*drive];
            (drive.wakes_at_label, drive.is_cut) = (true, code != "mirror-2");
        }
        fixture.pass(HOUR);
        assert_eq!(fixture.status().lost_stripes, 0, "{code}: nothing is listed although all drives answer");
        take_back_all(&mut fixture);
        let read = fixture.read(volume, 0, SIZE as usize);
        assert!(read.as_deref() == Ok(&data[..]), "{code}: {:?}", read.err());
        assert_eq!((fixture.status().lost_stripes, fixture.scrub()), (0, (0, 0)), "{code}");
    }
}

/// Drives are given up for errors that hosts meet, not for those that the pool repeats.
#[test]
fn a_write_that_waits_for_its_drives_makes_none_of_them_fail() {
    let (mut fixture, volume) = made(12, 2);
    let drives = fixture.drives_of_a_row();
    drives.iter().for_each(|drive| fixture.test_drives.drives[*drive].is_loose = true);
    fixture.write(volume, 0, &pattern(9, 4096)).expect("acknowledged");
    for minute in 0..14 {
        fixture.pass(Duration::from_secs(60));
        let failed = fixture.status().drives.iter().filter(|drive| drive.health == DriveHealth::Failed).count();
        assert_eq!(failed, 0, "after {minute} minutes");
    }
    drives.iter().for_each(|drive| fixture.test_drives.drives[*drive].is_loose = false);
    fixture.pass(HOUR);
    assert!(fixture.read(volume, 0, 4096).expect("read") == pattern(9, 4096));
    assert_eq!((fixture.status().lost_stripes, fixture.scrub()), (0, (0, 0)));
}

/// A stripe of which something is lost for good stays listed. What else of it was missed for a
/// moment and was there again is waited for as long as the first time.
#[test]
fn a_look_at_a_stripe_that_is_whole_begins_the_time_of_its_units_anew() {
    let (mut fixture, volume) = made(12, 2);
    let engine = std::rc::Rc::clone(&fixture.pool.serving().expect("it is open").engine);
    let (key, units) = (StripeKey { volume, stripe: 3 }, BTreeSet::from([(1, 3)]));
    let now = fixture.test_drives.now();
    assert_eq!(engine.losses_seen.hoped_for(key, &units, now), Duration(0));
    assert_eq!(engine.losses_seen.hoped_for(key, &units, now + HOUR), HOUR);
    let task = std::rc::Rc::clone(&engine);
    engine.io.spawn(async move {
        let volume = task.look(|core| core.volumes.get(volume)).expect("it is there");
        let healed = task.heal(&volume, 3, Priority::Host).await.expect("read");
        assert_eq!(healed.lost, 0);
    });
    fixture.pass(Duration::from_secs(1));
    assert_eq!(engine.losses_seen.hoped_for(key, &units, now + HOUR), Duration(0), "it was whole");
}

#[test]
fn what_cannot_be_read_for_a_quarter_of_an_hour_keeps_nobody_waiting() {
    let (mut fixture, volume) = made(16, 2);
    let drives = fixture.drives_of_a_row();
    drives.iter().for_each(|drive| fixture.test_drives.drives[*drive].is_loose = true);
    for at in (0..SIZE as usize).step_by(STRIPE) {
        fixture.write(volume, at as u64, &pattern(at as u64, 4096)).expect("acknowledged");
    }
    fixture.pass(HOUR);
    fixture.command(Command::Checkpoint).expect("a checkpoint");
    assert!(fixture.status().lost_stripes > 0);
    let engine = &fixture.pool.serving().expect("it is open").engine;
    let waits = engine.look(|core| core.lost.stripes().filter(|key| core.cache.is_dirty(*key)).count());
    assert_eq!(waits, 0, "what is left of the stripes has moved");
}

#[test]
fn a_burst_of_errors_on_all_drives_ends_no_writes() {
    for drives in [3, 4, 6] {
        for requests in [1, 4, 12] {
            let mut fixture = Fixture::new(drives, drives as u32, 7);
            let volume = fixture.create_volume(spec("a", "mirror-2", SIZE)).id;
            fixture.write(volume, 0, &pattern(1, 4096)).expect("written");
            fixture.test_drives.drives.iter_mut().for_each(|drive| drive.refuses = requests);
            let what = format!("{drives} drives, {requests} requests each");
            fixture.write(volume, 8192, &pattern(2, 4096)).unwrap_or_else(|error| panic!("{what}: {error:?}"));
            // Also a change of the labels.
            fixture.test_drives.drives.iter_mut().for_each(|drive| drive.refuses = requests);
            fixture.pull(&[drives - 1]);
            fixture.pass(Duration::from_secs(60));
            fixture.write(volume, 16384, &pattern(3, 4096)).unwrap_or_else(|error| panic!("{what}: {error:?}"));
            let told = fixture.alarms.iter().find(|alarm| alarm.message.contains("only reads now"));
            assert!(told.is_none(), "{what}: {told:?}");
            for (at, seed) in [(0, 1), (8192, 2), (16384, 3)] {
                assert!(fixture.read(volume, at, 4096).expect("read") == pattern(seed, 4096), "{what}");
            }
        }
    }
}

#[test]
fn drives_that_never_take_the_log_again_end_writes_after_a_while() {
    let mut fixture = Fixture::new(3, 3, 7);
    let volume = fixture.create_volume(spec("a", "mirror-2", SIZE)).id;
    for drive in [0, 1] {
        fixture.test_drives.drives[drive].fails_at = LOG;
    }
    fixture.write(volume, 0, &pattern(1, 4096)).expect_err("one drive is too few for the log");
    fixture.pass(Duration::from_secs(10));
    let told = fixture.alarms.iter().find(|alarm| alarm.message.contains("only reads now"));
    assert!(told.is_some_and(|alarm| alarm.severity == Severity::Critical), "{:?}", fixture.alarms);
}

#[test]
fn a_slow_member_of_the_log_makes_no_way_for_one_that_fails() {
    let mut relieved = 0;
    for operations in 0..24 {
        // Of the three drives, one takes no log, and nothing says so but its errors.
        let mut fixture = Fixture::new(3, 3, operations);
        let volume = fixture.create_volume(spec("a", "mirror-2", SIZE)).id;
        fixture.test_drives.drives[2].fails_at = LOG;
        fixture.write(volume, 0, &pattern(1, 4096)).expect("written");
        fixture.begin_command(Command::Checkpoint);
        fixture.run_operations(operations);
        {
            let engine = &fixture.pool.serving().expect("it is open").engine;
            let slow = DriveNumber(0);
            engine.log.relieve(slow, &BTreeSet::from([slow]));
            relieved += 1;
        }
        fixture.pass(Duration::from_secs(60));
        fixture.write(volume, 8192, &pattern(2, 4096)).unwrap_or_else(|error| panic!("after {operations}: {error:?}"));
        let told = fixture.alarms.iter().find(|alarm| alarm.message.contains("only reads now"));
        assert!(told.is_none(), "after {operations}: {told:?}");
    }
    assert_eq!(relieved, 24);
}

#[test]
fn errors_during_the_way_home_cost_no_copy_in_spare_space() {
    for loose in [[2, 3], [3, 4], [4, 5], [2, 5]] {
        let mut fixture = Fixture::blank(6, 6, 3, OpenOptions { seed: 3, ..OpenOptions::default() });
        assert_eq!(fixture.settle(), Ok(()));
        let volume = fixture.create_volume(spec("a", "2+1", SIZE)).id;
        let mut data = pattern(1, SIZE as usize);
        fixture.write(volume, 0, &data).expect("written");
        fixture.pull(&[0]);
        fixture.pass(Duration::from_secs(5 * 3600));
        // What lies on the drive that is away is old now.
        for at in (0..SIZE as usize).step_by(32 << 10) {
            data[at..at + 4096].copy_from_slice(&pattern(at as u64, 4096));
            fixture.write(volume, at as u64, &data[at..at + 4096]).expect("written without it");
        }
        fixture.command(Command::Close).expect("closed");
        fixture.open().expect("opened, with nothing in the cache");
        // One strip of many stripes is damaged for good: those need all others.
        fixture.test_drives.damage(1, LOG.end, (64 << 20) - LOG.end);
        loose.iter().for_each(|drive| fixture.test_drives.drives[*drive].is_loose = true);
        fixture.begin_to_give_back(0);
        fixture.pass(Duration::from_secs(20));
        loose.iter().for_each(|drive| fixture.test_drives.drives[*drive].is_loose = false);
        fixture.pass(HOUR);
        take_back_all(&mut fixture);
        let read = fixture.read(volume, 0, SIZE as usize);
        assert!(read.as_deref() == Ok(&data[..]), "{loose:?}: {:?}", read.err());
        assert_eq!(fixture.status().lost_stripes, 0, "{loose:?}");
    }
}

/// Nor does a later flush that goes well say anything of it.
#[test]
fn what_a_flush_that_failed_took_from_a_cache_is_written_again() {
    let mut failed = 0;
    for seed in 0..16 {
        let (mut fixture, volume) = made(12, seed);
        let drive = fixture.drives_of_a_row()[0];
        let data = pattern(seed + 2, SIZE as usize);
        let faulty = &mut fixture.test_drives.drives[drive];
        (faulty.fails_flushes, faulty.forgets) = (1, true);
        fixture.write(volume, 0, &data).expect("written");
        fixture.command(Command::Checkpoint).expect("a checkpoint");
        fixture.pass(HOUR);
        failed += 1 - fixture.test_drives.drives[drive].fails_flushes;
        assert_eq!(fixture.scrub(), (0, 0), "seed {seed}: what counts as written is there");
        assert!(fixture.read(volume, 0, SIZE as usize).expect("read") == data, "seed {seed}");
    }
    assert!(failed > 8, "{failed} flushes failed");
}
