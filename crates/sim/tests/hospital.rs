//! Slow drives, and drives that do not answer, in virtual time.

use stele_array::mutation::Mutation;
use stele_array::{AlarmKind, DriveHealth, OpenOptions};
use stele_ground::{Bytes, Dice, Duration, MIB};
use stele_media::faulty::FaultKind;
use stele_media::simulated::Plain;
use stele_sim::virtual_pool::{PoolPlan, VirtualPool};

/// Removes the protection that `./x mutants` names, so that each of these tests is a detector.
fn go_without_what_is_named() {
    if let Ok(name) = std::env::var("STELE_WITHOUT") {
        stele_sim::system::go_without(Mutation::named(&name).expect("a protection"));
    }
}

const PATIENT: Duration = Duration::from_secs(120);

fn pool(drives: u32, seed: u64) -> VirtualPool {
    go_without_what_is_named();
    // A missing drive is not rebuilt within these tests, and nothing is read from memory.
    let open = OpenOptions {
        rebuild_after: Duration::from_secs(24 * 3600),
        block_cache: Bytes(64 << 10),
        ..OpenOptions::default()
    };
    let plan = PoolPlan {
        enclosures: (0..drives).collect(),
        drive_size: Bytes(96 * MIB),
        log: Bytes(8 * MIB),
        spare_drives: None,
        open,
        seed,
        model: &|dice| Box::new(Plain::flash(dice)),
    };
    VirtualPool::new(plan).expect("a pool")
}

fn content(at: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    Dice::new(at ^ 0x5EED).fill(&mut bytes);
    bytes
}

/// A volume of 24 MiB, on the drives and not in memory; each 64 KiB of it contains its own place.
fn filled(pool: &mut VirtualPool, code: &str) -> stele_ground::VolumeId {
    let volume = pool.volume("a", code, 24 * MIB, 16 << 10).expect("a volume");
    for at in (0..24 * MIB).step_by(64 << 10) {
        let (result, _) = pool.write(volume, at, &content(at, 64 << 10), PATIENT).expect("an answer");
        result.expect("written");
    }
    pool.command(stele_array::Command::Checkpoint).expect("a checkpoint");
    volume
}

/// The sorted times of 4 KiB reads at random places; each is compared with the written data.
fn read_times(pool: &mut VirtualPool, volume: stele_ground::VolumeId, seed: u64, count: usize) -> Vec<Duration> {
    let mut dice = Dice::new(seed);
    let mut times: Vec<Duration> = (0..count)
        .map(|_| {
            let at = dice.below(24 * MIB / 4096) * 4096;
            let (read, took) = pool.read(volume, at, 4096, PATIENT).expect("an answer");
            let begin = at / (64 << 10) * (64 << 10);
            let whole = content(begin, 64 << 10);
            assert!(read.expect("read") == whole[(at - begin) as usize..][..4096], "at {at}");
            took
        })
        .collect();
    times.sort_unstable();
    times
}

fn mean(times: &[Duration]) -> Duration {
    Duration(times.iter().map(|time| time.0).sum::<u64>() / times.len() as u64)
}

fn health(pool: &mut VirtualPool, drive: usize) -> DriveHealth {
    pool.status().expect("a status").drives[drive].health
}

fn alarmed(pool: &VirtualPool, kind: AlarmKind) -> bool {
    pool.alarms.iter().any(|alarm| alarm.kind == kind)
}

/// Makes every operation of the drive stuck from now on, or answers it again, together with the
/// stuck ones.
fn stick(pool: &mut VirtualPool, drive: usize, stuck: bool) {
    let place = &mut pool.machine.bays[drive].drive;
    place.decider().set_rate(FaultKind::Stuck, u64::from(stuck));
    if !stuck {
        place.release();
    }
}

#[test]
fn reads_take_as_long_beside_a_limping_drive_as_without_it() {
    for (code, seed) in [("4+2", 1), ("2+1", 2), ("mirror-2", 3)] {
        let mut pool = pool(8, seed);
        let volume = filled(&mut pool, code);
        let well = read_times(&mut pool, volume, 7, 1000);
        pool.machine.bays[3].drive.limp(Duration::from_millis(80));
        let first = read_times(&mut pool, volume, 8, 1000);
        // While this drive of a mirror is busy, the other copy is read, so the slowness shows
        // later.
        for round in 0..20 {
            if health(&mut pool, 3) == DriveHealth::Suspect {
                break;
            }
            read_times(&mut pool, volume, 30 + round, 1000);
        }
        let later = read_times(&mut pool, volume, 9, 1000);
        let [quiet, begun, settled] = [&well, &first, &later].map(|times| (mean(times), times[989], times[999]));
        println!("{code}: mean, 99 in 100, worst: well {quiet:?}, limp begins {begun:?}, goes on {settled:?}");
        // Some of the first reads wait until they are overdue, a hundred-fold; after that no read
        // waits any more.
        assert!(begun.0.0 < quiet.0.0 * 4, "{code}: {begun:?} against {quiet:?}");
        assert!(settled.0.0 < quiet.0.0 * 3 / 2, "{code}: {settled:?} against {quiet:?}");
        assert!(settled.2 < Duration::from_millis(3), "{code}: {settled:?}");
        let status = pool.status().expect("a status");
        let drive = &status.drives[3];
        assert_eq!(drive.health, DriveHealth::Suspect, "{drive:?}");
        assert!(drive.note.contains("slower than its peers") && drive.since.is_some(), "{drive:?}");
        assert!(drive.next.contains("stele pool replace 3"), "{drive:?}");
        assert_eq!(status.standing.len(), 1, "{:?}", status.standing);
        assert_eq!(status.standing[0].kind, AlarmKind::DriveSlow);
        // The log does not wait for it either, once another drive has taken its place.
        pool.pass(Duration::from_secs(1));
        let writes = (0..50).map(|at| pool.write(volume, at * 4096, &content(at, 4096), PATIENT).expect("an answer").1);
        let slowest = writes.max().expect("a write");
        assert!(slowest < Duration::from_millis(5), "{code}: a write took {slowest}");
        // Once it is healthy, it is read again.
        pool.machine.bays[3].drive.limp(Duration(0));
        for at in (0..50).map(|at| at * 4096) {
            let begin = at / (64 << 10) * (64 << 10);
            let back = &content(begin, 64 << 10)[(at - begin) as usize..][..4096];
            pool.write(volume, at, back, PATIENT).expect("an answer").0.expect("written");
        }
        pool.until(Duration::from_millis(10), PATIENT, |status| status.dirty.0 == 0).expect("destaged");
        let mut rounds = 0u64;
        while health(&mut pool, 3) != DriveHealth::Healthy {
            rounds += 1;
            let drive = pool.status().expect("a status").drives[3].clone();
            assert!(rounds < 20, "{code}: it is not asked any more: {drive:?}");
            read_times(&mut pool, volume, 10 + rounds, 500);
            pool.pass(Duration::from_secs(2));
        }
        assert!(alarmed(&pool, AlarmKind::DriveRecovered));
    }
}

#[test]
fn a_slow_drive_is_found_well_again_while_no_host_reads() {
    let mut pool = pool(8, 6);
    let volume = filled(&mut pool, "4+2");
    read_times(&mut pool, volume, 7, 1000);
    pool.machine.bays[3].drive.limp(Duration::from_millis(80));
    read_times(&mut pool, volume, 8, 1000);
    assert_eq!(health(&mut pool, 3), DriveHealth::Suspect);
    pool.pass(PATIENT);
    assert_eq!(health(&mut pool, 3), DriveHealth::Suspect, "it still limps: {:?}", pool.alarms);
    pool.machine.bays[3].drive.limp(Duration(0));
    pool.pass(Duration::from_secs(40));
    let drive = pool.status().expect("a status").drives[3].clone();
    assert_eq!(drive.health, DriveHealth::Healthy, "{drive:?}");
    assert!(alarmed(&pool, AlarmKind::DriveRecovered));
}

#[test]
fn a_drive_that_is_slower_by_less_than_a_late_read_is_left_as_it_is() {
    let mut pool = pool(8, 7);
    let volume = filled(&mut pool, "4+2");
    read_times(&mut pool, volume, 7, 1000);
    // A third of its reads is late, as if the others answered from memory and this drive not
    // always.
    for round in 0..60 {
        pool.machine.bays[3].drive.limp(Duration::from_millis(3));
        read_times(&mut pool, volume, 100 + round, 20);
        pool.machine.bays[3].drive.limp(Duration(0));
        read_times(&mut pool, volume, 200 + round, 40);
    }
    let slow: Vec<_> = pool.alarms.iter().filter(|alarm| alarm.kind == AlarmKind::DriveSlow).collect();
    assert!(slow.is_empty(), "{slow:?}");
}

#[test]
fn a_drive_that_stalls_now_and_then_is_called_slow_once() {
    let mut pool = pool(8, 5);
    let volume = filled(&mut pool, "4+2");
    read_times(&mut pool, volume, 7, 1000);
    let begun = pool.machine.now;
    for round in 0..12 {
        pool.machine.bays[3].drive.limp(Duration::from_millis(80));
        read_times(&mut pool, volume, 100 + round, 1000);
        pool.machine.bays[3].drive.limp(Duration(0));
        read_times(&mut pool, volume, 200 + round, 1000);
    }
    let took = pool.machine.now.since(begun);
    assert!(took < Duration::from_secs(30), "{took}: the drive was well for long in between");
    let of = |kind| pool.alarms.iter().filter(|alarm| alarm.kind == kind).count();
    assert_eq!((of(AlarmKind::DriveSlow), of(AlarmKind::DriveRecovered)), (1, 0), "{:?}", pool.alarms);
    assert_eq!(health(&mut pool, 3), DriveHealth::Suspect);
}

#[test]
fn a_drive_that_does_not_answer_is_let_go_and_holds_nobody_up_for_good() {
    let mut pool = pool(8, 4);
    let volume = filled(&mut pool, "4+2");
    stick(&mut pool, 2, true);
    let times = read_times(&mut pool, volume, 5, 300);
    assert!(times[299] < Duration::from_millis(1_100), "a read waited {}", times[299]);
    // A whole stripe needs the drive, until the pool gives it up.
    let begun = pool.machine.now;
    for at in (0..4 * MIB).step_by(64 << 10) {
        let (result, _) = pool.write(volume, at, &content(at, 64 << 10), PATIENT).expect("an answer");
        result.expect("written without it");
    }
    let took = pool.machine.now.since(begun);
    assert!(took < Duration::from_secs(21), "writes were held up for {took}");
    assert_eq!(health(&mut pool, 2), DriveHealth::Missing);
    assert!(alarmed(&pool, AlarmKind::DriveMissing));
    // It answers again, with all overdue answers: the pool takes it back and brings it up to date.
    stick(&mut pool, 2, false);
    let whole = |status: &stele_array::PoolStatus| status.drives[2].health == DriveHealth::Healthy;
    if let Err(reason) = pool.until(Duration::from_secs(1), PATIENT, whole) {
        panic!("{reason}: {:?} {:?}", pool.status().expect("a status").drives[2], pool.alarms);
    }
    read_times(&mut pool, volume, 6, 300);
    assert_eq!(pool.status().expect("a status").lost_stripes, 0);
}

#[test]
fn a_drive_that_was_let_go_three_times_is_taken_back_an_hour_later() {
    let mut pool = pool(8, 6);
    let volume = filled(&mut pool, "4+2");
    let every = Duration::from_secs(5);
    let is = |health| move |status: &stele_array::PoolStatus| status.drives[3].health == health;
    for time in 0..3 {
        stick(&mut pool, 3, true);
        for at in (0..24 * MIB).step_by(1 << 20) {
            pool.write(volume, at, &content(at, 64 << 10), PATIENT).expect("an answer").0.expect("written");
        }
        pool.until(every, PATIENT, is(DriveHealth::Missing)).expect("it does not answer");
        stick(&mut pool, 3, false);
        assert_eq!(pool.until(every, PATIENT, is(DriveHealth::Healthy)).is_ok(), time < 2, "{time}");
    }
    pool.until(every, Duration::from_secs(3600), is(DriveHealth::Healthy)).expect("an hour later");
    read_times(&mut pool, volume, 9, 100);
}

#[test]
fn a_silent_drive_that_is_needed_is_kept_and_reads_of_it_end_with_an_error() {
    let mut pool = pool(5, 5);
    let volume = filled(&mut pool, "2+1");
    pool.machine.detach(0);
    pool.pass(Duration::from_secs(1));
    stick(&mut pool, 2, true);
    let mut refused = 0;
    for at in (0..24 * MIB).step_by(3 * MIB as usize) {
        let (read, took) = pool.read(volume, at, 64 << 10, PATIENT).expect("an answer in the end");
        refused += u32::from(read.is_err());
        assert!(took < Duration::from_secs(60), "it took {took}");
        // Release before the driver loses patience.
        pool.machine.bays[2].drive.release();
    }
    assert!(refused > 0, "some stripe lies on both");
    assert!(alarmed(&pool, AlarmKind::DriveNeeded), "{:?}", pool.alarms);
    let status = pool.status().expect("a status");
    assert!(!status.read_only && status.lost_stripes == 0, "{status:?}");
    assert_eq!(status.drives[2].health, DriveHealth::Suspect, "{:?}", status.drives[2]);
    stick(&mut pool, 2, false);
    pool.pass(Duration::from_secs(10));
    read_times(&mut pool, volume, 6, 300);
    assert_eq!(pool.status().expect("a status").lost_stripes, 0);
}

#[test]
fn a_silent_drive_that_is_needed_holds_up_no_command_that_changes_the_labels() {
    let mut pool = pool(5, 7);
    let volume = filled(&mut pool, "2+1");
    pool.machine.detach(0);
    pool.pass(Duration::from_secs(1));
    stick(&mut pool, 2, true);
    for enclosure in [7, 8, 4] {
        let begun = pool.machine.now;
        pool.command(stele_array::Command::SetDrive { drive: 4, enclosure }).expect("answered and done");
        let took = pool.machine.now.since(begun);
        assert!(took < Duration::from_secs(21), "it took {took}");
    }
    assert!(alarmed(&pool, AlarmKind::DriveNeeded), "{:?}", pool.alarms);
    assert_eq!(pool.status().expect("a status").drives[4].enclosure, 4);
    // What it was given meanwhile comes late, and nothing older lands on what is newer.
    stick(&mut pool, 2, false);
    pool.machine.attach(0);
    let whole = |status: &stele_array::PoolStatus| status.drives.iter().all(|of| of.health == DriveHealth::Healthy);
    pool.until(Duration::from_secs(1), PATIENT, whole).expect("all are well");
    pool.reopen().expect("opened");
    pool.until(Duration::from_secs(1), PATIENT, whole).expect("all are well again");
    read_times(&mut pool, volume, 7, 300);
    assert_eq!(pool.status().expect("a status").lost_stripes, 0);
}

#[test]
fn no_drive_is_blamed_when_none_answers() {
    let mut pool = pool(6, 6);
    let volume = filled(&mut pool, "2+1");
    (0..6).for_each(|drive| stick(&mut pool, drive, true));
    let tags: Vec<u64> = (0..40)
        .map(|at| at * (512 << 10))
        .map(|at| pool.submit(volume, stele_media::Op::Read { at, buffer: stele_media::Buffer::zeroed(64 << 10) }))
        .collect();
    pool.pass(Duration::from_secs(25));
    assert!(pool.alarms.iter().any(|alarm| alarm.message.contains("no drive has answered")), "{:?}", pool.alarms);
    (0..6).for_each(|drive| stick(&mut pool, drive, false));
    for tag in tags {
        pool.wait(tag, PATIENT).expect("an answer").1.expect("read");
    }
    pool.pass(Duration::from_secs(30));
    let status = pool.status().expect("a status");
    assert!(status.drives.iter().all(|drive| drive.health == DriveHealth::Healthy), "{:?}", status.drives);
}

#[test]
fn drives_that_are_late_because_all_have_much_to_do_are_not_called_slow() {
    for seed in 20..26 {
        let mut pool = pool(12, seed);
        let volume = filled(&mut pool, "4+2");
        read_times(&mut pool, volume, 7, 600);
        for bay in &mut pool.machine.bays {
            bay.drive.limp(Duration::from_millis(5));
        }
        read_times(&mut pool, volume, 8, 600);
        let slow: Vec<_> = pool.alarms.iter().filter(|alarm| alarm.kind == AlarmKind::DriveSlow).collect();
        assert!(slow.is_empty(), "{seed}: {slow:?}");
    }
}
