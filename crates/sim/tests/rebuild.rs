//! The speed of a rebuild beside hosts, without them, and with more drives, in virtual time.

use stele_array::mutation::Mutation;
use stele_array::{OpenOptions, PoolStatus};
use stele_ground::{Bytes, Duration, Instant, MIB, VolumeId};
use stele_media::simulated::Plain;
use stele_media::{Buffer, Op};
use stele_sim::virtual_pool::{PoolPlan, VirtualPool};

const PATIENT: Duration = Duration::from_secs(600);
const STRIP: u64 = 16 << 10;

/// Removes the protection that `./x mutants` names, so that each of these tests is a detector.
fn go_without_what_is_named() {
    if let Ok(name) = std::env::var("STELE_WITHOUT") {
        stele_sim::system::go_without(Mutation::named(&name).expect("a protection"));
    }
}

fn pool(drives: u32, rate: Option<Bytes>) -> VirtualPool {
    go_without_what_is_named();
    pool_of_runs(drives, rate, Bytes(4 * STRIP))
}

fn pool_of_runs(drives: u32, rate: Option<Bytes>, background_run: Bytes) -> VirtualPool {
    let open =
        OpenOptions { rebuild_after: Duration(0), background_rate: rate, background_run, ..OpenOptions::default() };
    let plan = PoolPlan {
        enclosures: (0..drives).collect(),
        drive_size: Bytes(96 * MIB),
        log: Bytes(8 * MIB),
        spare_drives: Some(2),
        open,
        seed: u64::from(drives),
        model: &|dice| Box::new(Plain::flash(dice)),
    };
    VirtualPool::new(plan).expect("a pool")
}

/// A volume of 4+2 that fills this many bytes of each drive.
fn filled(pool: &mut VirtualPool, held: u64) -> VolumeId {
    let size = pool.machine.bays.len() as u64 * held / 6 * 4 / MIB * MIB;
    let volume = pool.volume("a", "4+2", size, STRIP).expect("a volume");
    let data = Buffer::zeroed(MIB as usize).freeze();
    for at in (0..size).step_by(MIB as usize) {
        let tag = pool.submit(volume, Op::Write { at, data: vec![data.clone()], fua: false });
        pool.wait(tag, PATIENT).expect("an answer").1.expect("written");
    }
    pool.command(stele_array::Command::Checkpoint).expect("a checkpoint");
    volume
}

/// A host that issues an operation every five milliseconds, until the condition holds; returns the
/// duration.
fn beside_a_host(pool: &mut VirtualPool, volume: VolumeId, mut enough: impl FnMut(&PoolStatus) -> bool) -> Duration {
    let begun: Instant = pool.machine.now;
    while !enough(&pool.status().expect("a status")) {
        pool.read(volume, 0, 4096, PATIENT).expect("an answer").0.expect("read");
        pool.pass(Duration::from_millis(5));
        assert!(pool.machine.now.since(begun) < PATIENT, "it does not end");
    }
    pool.machine.now.since(begun)
}

#[test]
fn beside_hosts_a_rebuild_keeps_to_its_rate_and_without_them_to_none() {
    let mut pool = pool(12, Some(Bytes(MIB)));
    let volume = filled(&mut pool, 12 * MIB);
    // The host is active when the drive goes.
    pool.read(volume, 0, 4096, PATIENT).expect("an answer").0.expect("read");
    pool.machine.detach(0);
    pool.pass(Duration::from_millis(1));
    let begun = pool.machine.now;
    let took = beside_a_host(&mut pool, volume, |status| status.rebuilt * STRIP >= 3 * MIB);
    assert!(took > Duration::from_millis(2_500), "3 MiB in {took}, at 1 MiB a second");
    assert!(took < Duration::from_millis(3_500), "3 MiB in {took}, at 1 MiB a second");
    let over = |status: &PoolStatus| status.rebuild.is_none();
    let left = pool.until(Duration::from_millis(10), PATIENT, over).expect("rebuilt");
    assert!(left < Duration::from_secs(2), "the other 9 MiB took {left} without hosts");
    assert!(pool.machine.now > begun);
}

#[test]
fn stripes_that_may_lose_nothing_more_are_rebuilt_at_their_floor_beside_hosts() {
    let mut pool = pool(12, Some(Bytes(256 << 10)));
    let volume = filled(&mut pool, 12 * MIB);
    pool.machine.detach(0);
    pool.machine.detach(5);
    pool.pass(Duration::from_micros(10));
    let status = pool.status().expect("a status");
    let critical = status.critical_stripes * STRIP;
    assert!(critical > 2 * MIB, "{critical} bytes may lose nothing more");
    // At the configured rate it would take more than eight seconds.
    let took = beside_a_host(&mut pool, volume, |status| status.critical_stripes == 0);
    assert!(took < Duration::from_secs(1), "{critical} bytes took {took}");
    let rebuilt = pool.status().expect("a status").rebuilt * STRIP;
    assert!(rebuilt < critical + MIB, "{rebuilt} bytes were rebuilt for {critical} that were urgent");
}

#[test]
fn a_rebuild_is_the_faster_the_more_drives_take_part() {
    let times = [12, 24, 48].map(|drives| {
        let mut pool = pool(drives, None);
        // More rows of each drive than are worked on at once.
        filled(&mut pool, 48 * MIB);
        // Until the host that wrote it counts as active no more.
        pool.pass(Duration::from_secs(1));
        pool.machine.detach(0);
        let begun = pool.machine.now;
        let moment = Duration::from_millis(1);
        pool.until(moment, PATIENT, |status| status.rebuild.is_some()).expect("begun");
        pool.until(moment, PATIENT, |status| status.rebuild.is_none()).expect("rebuilt");
        assert_eq!(pool.status().expect("a status").lost_stripes, 0);
        pool.machine.now.since(begun)
    });
    println!("12, 24 and 48 drives: {times:?}");
    let [few, more, many] = times.map(|time| time.0);
    // Detection and completion take the same time with any number of drives.
    assert!(few * 2 > more * 3 && few > many * 2, "{times:?}");
}

#[test]
fn a_scrub_under_way_does_not_hold_up_what_may_lose_nothing_more() {
    let mut pool = pool_of_runs(12, Some(Bytes(MIB)), Bytes(4 * MIB));
    let volume = filled(&mut pool, 12 * MIB);
    pool.pass(Duration::from_secs(60));
    pool.command(stele_array::Command::StartScrub).expect("a scrub begins");
    // Without hosts, runs are out on all drives.
    pool.pass(Duration::from_micros(100));
    pool.read(volume, 0, 4096, PATIENT).expect("an answer").0.expect("read");
    pool.machine.detach(0);
    pool.machine.detach(5);
    pool.pass(Duration::from_micros(10));
    let critical = pool.status().expect("a status").critical_stripes * STRIP;
    assert!(critical > 2 * MIB, "{critical} bytes may lose nothing more");
    let took = beside_a_host(&mut pool, volume, |status| status.critical_stripes == 0);
    assert!(took < Duration::from_secs(2), "{critical} bytes took {took}");
}

#[test]
fn a_loss_ends_the_wait_of_what_may_lose_more() {
    let mut pool = pool_of_runs(12, Some(Bytes(256 << 10)), Bytes(4 * MIB));
    // More than what is under way before the host counts as active.
    let volume = filled(&mut pool, 24 * MIB);
    pool.pass(Duration::from_secs(60));
    pool.read(volume, 0, 4096, PATIENT).expect("an answer").0.expect("read");
    pool.machine.detach(0);
    // All rows have asked for their turn, which comes in seconds.
    beside_a_host(&mut pool, volume, |status| status.rebuilt > 0);
    pool.machine.detach(5);
    pool.pass(Duration::from_micros(10));
    let critical = pool.status().expect("a status").critical_stripes * STRIP;
    assert!(critical > 2 * MIB, "{critical} bytes may lose nothing more");
    let took = beside_a_host(&mut pool, volume, |status| status.critical_stripes == 0);
    assert!(took < Duration::from_secs(1), "{critical} bytes took {took}");
}

#[test]
fn a_rebuild_takes_hardly_longer_beside_a_scrub() {
    let times = [false, true].map(|scrub| {
        let mut pool = pool_of_runs(12, None, Bytes(4 * MIB));
        filled(&mut pool, 24 * MIB);
        pool.pass(Duration::from_secs(60));
        pool.machine.detach(0);
        let begun = pool.machine.now;
        let moment = Duration::from_micros(100);
        pool.until(moment, PATIENT, |status| status.rebuild.is_some()).expect("begun");
        if scrub {
            pool.command(stele_array::Command::StartScrub).expect("a scrub begins");
        }
        pool.until(moment, PATIENT, |status| status.rebuild.is_none()).expect("rebuilt");
        assert_eq!(pool.status().expect("a status").scrubs_finished, 0, "the scrub went on");
        pool.machine.now.since(begun)
    });
    println!("without a scrub and beside one: {times:?}");
    let [alone, beside] = times.map(|time| time.0);
    assert!(beside * 10 <= alone * 12, "{times:?}");
}
