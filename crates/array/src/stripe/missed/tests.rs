//! Drives that do not take a write and stay: what they hold of it is old, and counts for nothing
//! until it was written again.

use stele_ground::Duration;
use stele_ground::digest::crc32c;

use crate::model::{AlarmKind, Command, DriveHealth, OpenOptions};
use crate::testing::{Fixture, pattern, spec};

const DAY: Duration = Duration::from_secs(24 * 3600);

/// A pool that waits long before it gives a missing drive up, with a volume full of what is not
/// dirty.
fn patient(code: &str, seed: u64) -> (Fixture, stele_ground::VolumeId) {
    let options = OpenOptions { rebuild_after: DAY, ..OpenOptions::default() };
    let mut fixture = Fixture::blank(6, 6, seed, options);
    assert_eq!(fixture.settle(), Ok(()));
    let volume = fixture.create_volume(spec("a", code, 4 << 20)).id;
    fixture.write(volume, 0, &pattern(1, 4 << 20)).expect("written");
    fixture.command(Command::Checkpoint).expect("a checkpoint");
    (fixture, volume)
}

/// (drive, health) of those that are not healthy.
fn unwell(fixture: &mut Fixture) -> Vec<(u32, DriveHealth)> {
    let drives = fixture.status().drives;
    let unwell = drives.iter().filter(|drive| drive.health != DriveHealth::Healthy && drive.index != u32::MAX);
    unwell.map(|drive| (drive.index, drive.health)).collect()
}

fn critical(fixture: &Fixture) -> u64 {
    fixture.pool.serving().expect("open").engine.exposure().1
}

/// How a write comes about, and what follows it.
#[derive(Clone, Copy, Debug)]
struct Case {
    /// Bytes written: a whole stripe goes to a new slot, less of it is destaged in place.
    length: usize,
    /// The power goes right after the acknowledgement, or after the destage.
    crash: bool,
}

const CASES: [Case; 4] = [
    Case { length: 64 << 10, crash: false },
    Case { length: 64 << 10, crash: true },
    Case { length: 20 << 10, crash: false },
    Case { length: 20 << 10, crash: true },
];

#[test]
fn a_drive_that_missed_a_write_is_not_called_whole_before_it_has_it() {
    for case in CASES {
        for seed in 0..6 {
            let (mut fixture, volume) = patient("4+2", seed);
            let mut expected = pattern(1, 4 << 20);
            // For a moment a drive does not write.
            fixture.test_drives.drives[3].fails_writes = true;
            let data = pattern(2, case.length);
            expected[..case.length].copy_from_slice(&data);
            fixture.write(volume, 0, &data).expect("acknowledged");
            if case.length < 64 << 10 {
                fixture.command(Command::Checkpoint).expect("destaged");
            }
            if !case.crash {
                fixture.pass(Duration::from_secs(20));
                assert_eq!(unwell(&mut fixture), [(3, DriveHealth::Stale)], "{case:?} {seed}");
            }
            fixture.test_drives.drives[3].fails_writes = false;
            if case.crash {
                fixture.crash().expect("opened");
            }
            fixture.pass(DAY);
            fixture.pass(DAY);
            assert_eq!(unwell(&mut fixture), [], "{case:?} {seed}: all of it was written again");
            let read = |fixture: &mut Fixture| fixture.read(volume, 0, 4 << 20).is_ok_and(|read| read == expected);
            fixture.pull(&[0, 1]);
            assert!(read(&mut fixture), "{case:?} {seed}: unreadable without two other drives");
        }
    }
}

#[test]
fn a_drive_that_misses_writes_is_told_once() {
    let (mut fixture, volume) = patient("4+2", 9);
    fixture.test_drives.drives[3].fails_writes = true;
    for stripe in 0..4 {
        fixture.write(volume, stripe << 16, &pattern(stripe, 64 << 10)).expect("acknowledged");
    }
    let told: Vec<String> = fixture
        .alarms
        .iter()
        .filter(|alarm| alarm.kind == AlarmKind::DriveStale && alarm.drive == Some(3))
        .map(|alarm| alarm.message.clone())
        .collect();
    assert_eq!(told, ["drive 3 missed a write; what it missed is written again"]);
}

#[test]
fn stripes_that_lack_a_strip_count_as_exposed_until_it_is_written() {
    let (mut fixture, volume) = patient("5+1", 1);
    assert_eq!(critical(&fixture), 0);
    fixture.test_drives.drives[3].fails_writes = true;
    fixture.write(volume, 0, &pattern(2, 80 << 10)).expect("acknowledged");
    assert!(critical(&fixture) > 0, "another drive lost, and the stripe is gone");
    assert!(fixture.command(Command::FailDrive { drive: 0 }).is_err(), "another drive is needed");
    fixture.crash().expect("opened, and the drive still does not write");
    assert!(critical(&fixture) > 0, "not forgotten over a crash");
    fixture.test_drives.drives[3].fails_writes = false;
    fixture.pass(DAY);
    // Copies of its label failed too.
    fixture.scrub();
    assert_eq!((critical(&fixture), fixture.scrub()), (0, (0, 0)));
    let errors: Vec<u64> = fixture.status().drives.iter().map(|drive| drive.digest_errors).collect();
    assert_eq!(errors, [0; 6], "what a drive missed is no error of it");
}

#[test]
fn only_what_was_missed_is_written_again_while_the_pool_is_open() {
    let (mut fixture, volume) = patient("4+2", 2);
    fixture.test_drives.drives[3].fails_writes = true;
    fixture.write(volume, 0, &pattern(2, 64 << 10)).expect("acknowledged");
    fixture.test_drives.drives[3].fails_writes = false;
    let read = |fixture: &Fixture| fixture.pool.serving().expect("open").engine.io.counters(3).read_bytes;
    let before = read(&fixture);
    fixture.pass(Duration::from_secs(60));
    let read = read(&fixture) - before;
    assert_eq!(unwell(&mut fixture), []);
    assert!(read > 0 && read < 256 << 10, "{read} bytes read of a drive that missed one strip of 16 KiB");
}

#[test]
fn a_drive_that_goes_on_failing_is_given_up_and_rebuilt() {
    let (mut fixture, volume) = patient("2+1", 3);
    let data = pattern(2, 32 << 10);
    fixture.test_drives.drives[3].fails_writes = true;
    for at in (0..4 << 20).step_by(32 << 10) {
        fixture.write(volume, at, &data).expect("acknowledged");
    }
    fixture.pass(Duration::from_secs(3600));
    assert_eq!(unwell(&mut fixture), [(3, DriveHealth::Failed)]);
    fixture.pull(&[3]);
    fixture.pass(DAY);
    assert_eq!((critical(&fixture), fixture.scrub()), (0, (0, 0)));
}

/// Blocks as file systems, databases and test programs write them: a head that counts the versions,
/// the CRC-32C of that head, and the rest. The CRC-32C of the whole block is the same for all
/// versions.
fn self_checked(version: u64, length: usize) -> Vec<u8> {
    let mut bytes = pattern(7, length);
    for block in bytes.chunks_mut(stele_ground::BLOCK) {
        block[..8].copy_from_slice(&version.to_le_bytes());
        let crc = crc32c(&block[..8]);
        block[8..12].copy_from_slice(&crc.to_le_bytes());
    }
    bytes
}

#[test]
fn an_older_version_of_a_block_with_a_checksum_of_its_own_does_not_verify() {
    let length = 20 << 10;
    assert_eq!(crc32c(&self_checked(1, length)), crc32c(&self_checked(2, length)));
    for code in ["4+2", "mirror-3"] {
        for stays_away in 0..6 {
            let (mut fixture, volume) = patient(code, 4);
            fixture.write(volume, 0, &self_checked(1, length)).expect("written");
            fixture.command(Command::Checkpoint).expect("destaged");
            fixture.test_drives.drives[stays_away].fails_writes = true;
            fixture.write(volume, 0, &self_checked(2, length)).expect("acknowledged");
            fixture.command(Command::Checkpoint).expect("destaged");
            fixture.test_drives.drives[stays_away].fails_writes = false;
            fixture.crash().expect("opened");
            let read = fixture.read(volume, 0, length).expect("read");
            assert!(read == self_checked(2, length), "{code}, drive {stays_away}: an older content was returned");
            fixture.pass(DAY);
            fixture.pass(DAY);
            // Copies of its label failed too.
            fixture.scrub();
            let wrong: Vec<_> = fixture.alarms.iter().filter(|alarm| alarm.kind == AlarmKind::MemoryDamaged).collect();
            assert!(wrong.is_empty(), "{code}, drive {stays_away}: {wrong:?}");
            assert_eq!((unwell(&mut fixture), fixture.scrub()), (Vec::new(), (0, 0)), "{code}, drive {stays_away}");
            fixture.crash().expect("opened");
            let other = (stays_away + 1) % 6;
            fixture.pull(&[other, (stays_away + 2) % 6]);
            let read = fixture.read(volume, 0, length).expect("read");
            assert!(read == self_checked(2, length), "{code}, drive {stays_away} against others: an older content");
        }
    }
}

#[test]
fn status_says_that_a_drive_missed_a_write() {
    let (mut fixture, volume) = patient("4+2", 5);
    fixture.test_drives.drives[3].fails_writes = true;
    fixture.write(volume, 0, &pattern(2, 64 << 10)).expect("acknowledged");
    let shown = fixture.status().drives[3].clone();
    assert_eq!(shown.health, DriveHealth::Stale);
    assert_eq!(shown.note, "drive 3 missed a write; what it missed is written again");
}

/// Where the stripe's strip begins that lies on the drive.
fn strip_on(fixture: &mut Fixture, volume: stele_ground::VolumeId, stripe: u64, drive: u16) -> u64 {
    let engine = fixture.engine();
    let found = std::rc::Rc::new(std::cell::Cell::new(None));
    let (own, note) = (std::rc::Rc::clone(&engine), std::rc::Rc::clone(&found));
    engine.io.spawn(async move {
        let volume = own.volume(volume).expect("it is there");
        let of = own.locate(&volume, stripe).await.expect("known").expect("it has a slot");
        note.set(of.places.iter().find(|place| place.cell.drive.0 == drive).map(|place| place.at));
    });
    fixture.pass(Duration::from_millis(10));
    found.get().expect("a strip on the drive")
}

/// Without the pause the stripes would be read and written without end meanwhile.
#[test]
fn what_cannot_be_marked_as_missed_is_tried_again_in_peace() {
    let (mut fixture, volume) = patient("4+2", 6);
    fixture.command(Command::Close).expect("closed");
    fixture.open().expect("opened, with nothing in the cache");
    // Two drives miss a write, a third the repair of damage: too few are left to say so.
    (1..=2).for_each(|drive| fixture.test_drives.drives[drive].fails_writes = true);
    fixture.write(volume, 0, &pattern(2, 64 << 10)).expect("acknowledged");
    let at = strip_on(&mut fixture, volume, 1, 3);
    fixture.test_drives.damage(3, at, 16 << 10);
    fixture.test_drives.drives[3].fails_writes = true;
    assert!(fixture.read(volume, 64 << 10, 64 << 10).expect("read") == pattern(1, 4 << 20)[64 << 10..128 << 10]);
    let before = fixture.test_drives.operations;
    fixture.test_drives.cut_at = Some(before + 500);
    fixture.pass(Duration::from_millis(1500));
    fixture.test_drives.cut_at = None;
    assert!(fixture.test_drives.operations < before + 500, "again and again");
    (1..=3).for_each(|drive| fixture.test_drives.drives[drive].fails_writes = false);
    fixture.pass(Duration::from_secs(300));
    // Their errors of today are not forgotten, and that is all.
    assert_eq!(unwell(&mut fixture), [1, 2, 3].map(|drive| (drive, DriveHealth::Suspect)));
    fixture.pull(&[0, 4]);
    let read = fixture.read(volume, 64 << 10, 64 << 10).expect("read without two other drives");
    assert!(read == pattern(1, 4 << 20)[64 << 10..128 << 10]);
}
