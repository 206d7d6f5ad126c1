//! What the drives agree on: histories of cuts, absences and returns within what a pool is to
//! survive. The rules are those of SEMANTICS/agreement.md.

use stele_ground::Duration;

use super::*;
use crate::drives::label::ANCHOR_AT;
use crate::model::{ArrayError, OpenOptions, Reply};
use crate::testing::drives::{TestDrive, TestDrives};

/// Where the log of a pool of these tests is, on every drive.
const LOG: std::ops::Range<u64> = 4 << 20..12 << 20;

/// The 8 bytes at this place.
fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight"))
}

/// The highest of a field in structures of this kind at these places of a drive.
fn newest(fixture: &Fixture, drive: usize, places: &[u64], magic: &[u8; 8], field: usize) -> u64 {
    let found = places.iter().map(|at| fixture.test_drives.peek(drive, *at, 4096)).filter(|bytes| &bytes[..8] == magic);
    found.map(|bytes| word(&bytes, field)).max().unwrap_or(0)
}

/// The epoch of the newest label on a drive.
fn epoch(fixture: &Fixture, drive: usize) -> u64 {
    let end = fixture.test_drives.size.0;
    newest(fixture, drive, &[0, 64 << 10, end - (128 << 10), end - (64 << 10)], b"STELELBL", 96)
}

/// The sequence of the newest anchor on a drive.
fn anchor(fixture: &Fixture, drive: usize) -> u64 {
    newest(fixture, drive, &[ANCHOR_AT, ANCHOR_AT + (1 << 20)], b"STELEANC", 48)
}

/// A pool that rebuilds nothing by itself.
fn patient(drives: usize, enclosures: u32, seed: u64) -> Fixture {
    let options = OpenOptions { rebuild_after: Duration::from_secs(24 * 3600), ..OpenOptions::default() };
    let mut fixture = Fixture::blank(drives, enclosures, seed, options);
    assert_eq!(fixture.settle(), Ok(()));
    fixture
}

/// Opens the pool and cuts the power when only this drive holds the newest label. False where that
/// does not come about.
fn torn_opening(fixture: &mut Fixture, only: usize) -> bool {
    let saved: Vec<TestDrive> = fixture.test_drives.drives.clone();
    let live: Vec<usize> = (0..saved.len()).filter(|drive| !saved[*drive].gone).collect();
    let before = live.iter().map(|drive| epoch(fixture, *drive)).max().unwrap_or(0);
    for _ in 0..60 {
        for operations in 10..120 {
            fixture.test_drives.drives.clone_from(&saved);
            fixture.begin_to_open();
            fixture.run_operations(operations);
            fixture.test_drives.cut_bare();
            let newer: Vec<usize> = live.iter().copied().filter(|drive| epoch(fixture, *drive) > before).collect();
            if newer == [only] {
                return true;
            }
            if newer.len() > 2 {
                break;
            }
        }
    }
    fixture.test_drives.drives = saved;
    false
}

#[test]
fn a_minority_never_outbids_what_a_majority_agreed() {
    let mut histories = 0;
    for seed in 0..12 {
        for sealed in [false, true] {
            let mut fixture = patient(5, 5, seed);
            let volume = fixture.create_volume(spec("a", "2+1", 4 << 20)).id;
            fixture.write(volume, 0, &pattern(1, 64 << 10)).expect("written");
            fixture.command(Command::Checkpoint).expect("a checkpoint");
            fixture.idle();
            fixture.test_drives.cut();
            // Three openings in a row are cut when drive 0 alone has the newer label.
            if !(0..3).all(|_| torn_opening(&mut fixture, 0)) {
                continue;
            }
            histories += 1;
            fixture.test_drives.drives[0].gone = true;
            fixture.open().expect("four of five open");
            let new = pattern(2, 4096);
            fixture.write(volume, 0, &new).expect("acknowledged");
            if sealed {
                fixture.idle();
            }
            fixture.test_drives.cut_bare();
            fixture.test_drives.drives[0].gone = false;
            assert_eq!(fixture.open(), Ok(()), "seed {seed}, sealed {sealed}");
            assert_eq!(fixture.read(volume, 0, 4096), Ok(new), "seed {seed}, sealed {sealed}: the write is gone");
        }
    }
    assert!(histories >= 12, "{histories} histories came about");
}

/// The older label knows nothing of the log's newest epoch.
#[test]
fn labels_that_no_drive_gives_at_first_are_asked_for_again() {
    let mut fixture = patient(6, 6, 3);
    let volume = fixture.create_volume(spec("a", "2+1", 4 << 20)).id;
    fixture.crash().expect("opened");
    let new = pattern(2, 4096);
    fixture.write(volume, 0, &new).expect("acknowledged");
    fixture.test_drives.cut_bare();
    let end = fixture.test_drives.size.0;
    let places = [0, 64 << 10, end - (128 << 10), end - (64 << 10)];
    for drive in 0..6 {
        let sequence = |at: u64| newest(&fixture, drive, &[at], b"STELELBL", 64);
        let most = places.into_iter().map(sequence).max().unwrap_or(0);
        let hidden: Vec<u64> = places.into_iter().filter(|at| sequence(*at) == most).collect();
        assert_eq!(hidden.len(), 2, "a label has two copies");
        fixture.test_drives.drives[drive].unreadable = hidden.into_iter().map(|at| at / 4096).collect();
    }
    fixture.begin_to_open();
    fixture.run_operations(6 * places.len() as u64);
    fixture.test_drives.drives.iter_mut().for_each(|drive| drive.unreadable.clear());
    assert_eq!(fixture.settle(), Ok(()));
    assert_eq!(fixture.read(volume, 0, 4096), Ok(new));
}

#[test]
fn an_anchor_is_on_its_quorum_before_anything_rests_on_it() {
    let mut histories = 0;
    for seed in 0..400 {
        let mut fixture = patient(6, 6, seed);
        let volume = fixture.create_volume(spec("a", "2+1", 4 << 20)).id;
        let mut expected = pattern(1, 1 << 20);
        fixture.write(volume, 0, &expected).expect("written");
        fixture.command(Command::Checkpoint).expect("a checkpoint");
        fixture.crash().expect("opened");
        fixture.write(volume, 8192, &pattern(3, 4096)).expect("written");
        fixture.idle();
        let before = (0..6).map(|drive| anchor(&fixture, drive)).max().unwrap_or(0);
        fixture.test_drives.cut_at = Some(fixture.test_drives.operations + 8 + seed % 40);
        let ended = fixture.command(Command::Checkpoint);
        fixture.test_drives.cut_at = None;
        fixture.test_drives.cut_bare();
        let with: Vec<usize> = (0..6).filter(|drive| anchor(&fixture, *drive) > before).collect();
        let (Err(_), [only]) = (ended, &with[..]) else { continue };
        histories += 1;
        // All drives are there: the pool opens from the anchor that one of them has, and
        // acknowledges.
        fixture.open().expect("opened with all");
        fixture.write(volume, 12288, &pattern(4, 4096)).expect("written");
        // The power goes again, and takes that drive along.
        fixture.test_drives.cut_bare();
        fixture.test_drives.drives[*only].gone = true;
        assert_eq!(fixture.open(), Ok(()), "seed {seed}: does not open without one drive");
        expected[8192..12288].copy_from_slice(&pattern(3, 4096));
        expected[12288..16384].copy_from_slice(&pattern(4, 4096));
        assert!(fixture.read(volume, 0, 1 << 20) == Ok(expected), "seed {seed}");
    }
    assert!(histories >= 8, "{histories} histories came about");
}

#[test]
fn a_returned_drive_with_the_newest_label_does_not_bring_its_old_anchor_along() {
    let mut histories = 0;
    for seed in 0..20 {
        let mut fixture = patient(7, 4, seed);
        let volume = fixture.create_volume(spec("a", "4+2", 4 << 20)).id;
        fixture.write(volume, 0, &pattern(1, 64 << 10)).expect("written");
        fixture.pull(&[5]);
        for _ in 0..2 {
            for round in 0..3u64 {
                for at in 0..16u64 {
                    fixture.write(volume, at * (64 << 10), &pattern(round * 100 + at, 8 << 10)).expect("written");
                }
                fixture.command(Command::Checkpoint).expect("a checkpoint");
            }
            fixture.crash().expect("opened without it");
        }
        let data = pattern(9, 1 << 20);
        fixture.write(volume, 0, &data).expect("written");
        fixture.command(Command::Checkpoint).expect("a checkpoint");
        fixture.command(Command::Checkpoint).expect("a checkpoint");
        fixture.test_drives.cut();
        fixture.test_drives.drives[5].gone = false;
        if !torn_opening(&mut fixture, 5) {
            continue;
        }
        histories += 1;
        assert_eq!(fixture.open(), Ok(()), "seed {seed}");
        assert!(fixture.read(volume, 0, 1 << 20) == Ok(data), "seed {seed}");
    }
    assert!(histories >= 10, "{histories} histories came about");
}

#[test]
fn drives_that_return_together_are_filled_before_they_count_as_whole() {
    for operations in (10..200).step_by(3) {
        let mut fixture = patient(9, 3, operations);
        let volume = fixture.create_volume(spec("a", "4+2", 4 << 20)).id;
        let mut expected = pattern(1, 4 << 20);
        fixture.write(volume, 0, &expected).expect("written");
        fixture.command(Command::Checkpoint).expect("a checkpoint");
        // An enclosure is away for a while, and stripes change in place.
        fixture.pull(&[0, 3, 6]);
        let data = pattern(2, 4 << 20);
        for at in (0..4 << 20).step_by(64 << 10) {
            fixture.write(volume, at as u64, &data[at..at + (28 << 10)]).expect("written without it");
            expected[at..at + (28 << 10)].copy_from_slice(&data[at..at + (28 << 10)]);
        }
        fixture.command(Command::Checkpoint).expect("a checkpoint");
        for drive in [0, 3, 6] {
            fixture.begin_to_give_back(drive);
        }
        fixture.run_operations(operations);
        fixture.test_drives.cut();
        fixture.open().expect("opened");
        fixture.idle();
        let whole = |health: DriveHealth| matches!(health, DriveHealth::Healthy | DriveHealth::Suspect);
        let status = fixture.status();
        let all = status.drives.iter().filter(|drive| drive.index != u32::MAX).all(|drive| whole(drive.health));
        if all {
            // Two others go, which the code tolerates.
            fixture.pull(&[1, 2]);
            assert!(fixture.read(volume, 0, 4 << 20) == Ok(expected), "cut after {operations} operations");
        }
    }
}

#[test]
fn a_commit_that_reached_one_drive_makes_no_other_drive_stale() {
    let mut fixture = patient(6, 6, 4);
    let volume = fixture.create_volume(spec("a", "4+2", 4 << 20)).id;
    fixture.write(volume, 0, &pattern(1, 4 << 20)).expect("written");
    fixture.command(Command::Checkpoint).expect("a checkpoint");
    fixture.idle();
    fixture.test_drives.cut();
    assert!(torn_opening(&mut fixture, 2));
    fixture.open().expect("opened");
    let stale: Vec<u32> = fixture
        .status()
        .drives
        .iter()
        .filter(|drive| drive.health != DriveHealth::Healthy)
        .map(|drive| drive.index)
        .collect();
    assert_eq!(stale, [] as [u32; 0], "five of six never took what the sixth has: nothing was missed");
}

/// Four blank drives that take no writes are added to three.
fn add_dead_drives(fixture: &mut Fixture) -> Result<crate::model::Reply, NoAnswer> {
    let drives: Vec<u32> = (0..4).map(|_| fixture.add_blank() as u32).collect();
    for drive in &drives {
        fixture.test_drives.drives[*drive as usize].write_protected = true;
    }
    let drives = drives.iter().map(|index| (*index, DriveId([100 + *index as u8; 16]))).collect();
    fixture.command(Command::AddDrives { drives })
}

#[test]
fn drives_that_could_not_be_added_do_not_count() {
    let mut fixture = patient(3, 3, 1);
    let volume = fixture.create_volume(spec("a", "2+1", 4 << 20)).id;
    fixture.write(volume, 0, &pattern(1, 64 << 10)).expect("written");
    let reply = add_dead_drives(&mut fixture);
    assert!(
        matches!(&reply, Err(NoAnswer::Array(ArrayError::Degraded(message))) if message.contains("drives/3")),
        "{reply:?}"
    );
    fixture.write(volume, 0, &pattern(2, 4096)).expect("the pool goes on");
    fixture.idle();
    assert_eq!(fixture.crash(), Ok(()));
    assert_eq!(*fixture.pool.state(), State::Ready { read_only: false });
    assert_eq!(fixture.read(volume, 0, 4096), Ok(pattern(2, 4096)));
}

#[test]
fn an_addition_cut_off_anywhere_leaves_a_writable_pool() {
    let mut joined = 0;
    for operations in 0..140 {
        let mut fixture = patient(3, 3, operations);
        let volume = fixture.create_volume(spec("a", "2+1", 4 << 20)).id;
        fixture.write(volume, 0, &pattern(1, 64 << 10)).expect("written");
        let drives: Vec<u32> = (0..4).map(|_| fixture.add_blank() as u32).collect();
        let drives = drives.iter().map(|index| (*index, DriveId([100 + *index as u8; 16]))).collect();
        fixture.begin_command(Command::AddDrives { drives });
        fixture.run_operations(operations);
        fixture.test_drives.cut();
        // The new drives are gone again: without them there are three, and three are enough.
        (3..7).for_each(|drive| fixture.test_drives.drives[drive].gone = true);
        assert_eq!(fixture.open(), Ok(()), "cut after {operations} operations");
        let voters = fixture.status().drives.iter().filter(|drive| drive.health == DriveHealth::Missing).count();
        if *fixture.pool.state() == (State::Ready { read_only: true }) {
            // Only where the newcomers had taken part by then.
            assert!(voters >= 3, "cut after {operations} operations, {voters} joined");
        }
        fixture.idle();
        fixture.test_drives.cut();
        (3..7).for_each(|drive| fixture.test_drives.drives[drive].gone = false);
        assert_eq!(fixture.open(), Ok(()), "cut after {operations} operations");
        assert_eq!(*fixture.pool.state(), State::Ready { read_only: false }, "cut after {operations} operations");
        fixture.write(volume, 0, &pattern(2, 4096)).expect("written");
        assert_eq!(fixture.read(volume, 0, 4096), Ok(pattern(2, 4096)));
        joined += u64::from(voters > 0);
    }
    assert!(joined > 5, "{joined} additions came through");
}

#[test]
fn a_checkpoint_does_not_count_before_its_anchor_is_on_its_quorum() {
    for keep in 0..5 {
        let mut fixture = patient(5, 5, 3);
        let volume = fixture.create_volume(spec("a", "2+1", 4 << 20)).id;
        let mut expected = pattern(1, 1 << 20);
        fixture.write(volume, 0, &expected).expect("written");
        fixture.command(Command::Checkpoint).expect("a checkpoint");
        // From now on one drive alone takes anchors.
        for drive in (0..5).filter(|drive| *drive != keep) {
            fixture.test_drives.drives[drive].fails_at = ANCHOR_AT..ANCHOR_AT + (2 << 20);
        }
        for round in 0..4u64 {
            let data = pattern(10 + round, 64 << 10);
            fixture.write(volume, round * (64 << 10), &data).expect("written");
            expected[round as usize * (64 << 10)..][..64 << 10].copy_from_slice(&data);
            let refused = fixture.command(Command::Checkpoint);
            assert!(
                matches!(refused, Err(NoAnswer::Array(ArrayError::Degraded(_)))),
                "on drive {keep} alone: {refused:?}"
            );
        }
        fixture.test_drives.cut_bare();
        fixture.test_drives.drives.iter_mut().for_each(|drive| drive.fails_at = 0..0);
        fixture.test_drives.drives[keep].gone = true;
        assert_eq!(fixture.open(), Ok(()), "without drive {keep}");
        assert!(fixture.read(volume, 0, 1 << 20) == Ok(expected), "without drive {keep}");
    }
}

#[test]
fn nothing_is_acknowledged_by_fewer_log_members_than_may_be_lost() {
    // Three of four drives are a majority, but two members are not m + 1, and all four drives
    // answer.
    let mut fixture = patient(4, 4, 5);
    let volume = fixture.create_volume(spec("a", "mirror-3", 4 << 20)).id;
    fixture.write(volume, 0, &pattern(1, 64 << 10)).expect("written");
    for drive in [1, 2] {
        fixture.test_drives.drives[drive].fails_at = LOG;
    }
    let refused = fixture.write(volume, 0, &pattern(2, 4096));
    assert!(refused.is_err(), "acknowledged by two drives where two may be lost");
    assert_eq!(fixture.read(volume, 8192, 4096).map(|read| read == pattern(1, 64 << 10)[8192..12288]), Ok(true));
}

#[test]
fn where_fewer_drives_answer_than_may_be_lost_all_of_them_hold_what_is_acknowledged() {
    // Drives, code, how many go first, and how many of the others go when those have returned.
    for (drives, code, tolerated, later) in [(3, "mirror-3", 1, 1), (5, "mirror-4", 2, 1), (5, "mirror-5", 2, 2)] {
        let mut fixture = patient(drives, drives as u32, 5);
        let volume = fixture.create_volume(spec("a", code, 4 << 20)).id;
        fixture.write(volume, 0, &pattern(1, 64 << 10)).expect("written");
        let first: Vec<usize> = (0..tolerated).collect();
        fixture.pull(&first);
        fixture
            .write(volume, 0, &pattern(2, 4096))
            .unwrap_or_else(|error| panic!("{code} without {first:?}: {error:?}"));
        fixture.command(Command::Checkpoint).expect("a checkpoint");
        fixture.write(volume, 4096, &pattern(3, 4096)).expect("written");
        fixture.crash().unwrap_or_else(|error| panic!("{code} without {first:?}: {error:?}"));
        assert_eq!(*fixture.pool.state(), State::Ready { read_only: false }, "{code} without {first:?}");
        fixture.write(volume, 8192, &pattern(4, 4096)).expect("written");
        // The stale drives return, and as many of the others go: any one that was there tells what
        // was acknowledged.
        let saved: Vec<TestDrive> = fixture.test_drives.drives.clone();
        for keep in tolerated..drives {
            fixture.test_drives.drives = saved.clone();
            let gone: Vec<usize> = (tolerated..drives).filter(|drive| *drive != keep).take(later).collect();
            fixture.test_drives.drives.iter_mut().enumerate().for_each(|(at, drive)| drive.gone = gone.contains(&at));
            fixture.crash().unwrap_or_else(|error| panic!("{code} without {gone:?}: {error:?}"));
            assert_eq!(*fixture.pool.state(), State::Ready { read_only: false }, "{code} without {gone:?}");
            for (at, seed) in [(0, 2), (4096, 3), (8192, 4)] {
                assert!(fixture.read(volume, at, 4096).expect("read") == pattern(seed, 4096), "{code} at {at}");
            }
        }
        fixture.test_drives.drives = saved;
        fixture.crash().expect("opened");
        // No majority is left: what was acknowledged is not promised, and nothing is written.
        fixture.pull(&[tolerated]);
        fixture.write(volume, 0, &pattern(5, 4096)).expect_err("less than a majority");
    }
}

#[test]
fn two_halves_written_to_apart_are_told_from_each_other() {
    let mut fixture = patient(4, 4, 6);
    let volume = fixture.create_volume(spec("a", "mirror-4", 4 << 20)).id;
    fixture.write(volume, 0, &pattern(1, 64 << 10)).expect("written");
    fixture.command(Command::Close).expect("closed");
    fixture.options.override_quorum = true;
    for (half, other, seed) in [([0, 1], [2, 3], 2), ([2, 3], [0, 1], 3)] {
        half.iter().for_each(|drive| fixture.test_drives.drives[*drive].gone = false);
        other.iter().for_each(|drive| fixture.test_drives.drives[*drive].gone = true);
        fixture.open().expect("opened by an override");
        fixture.write(volume, 0, &pattern(seed, 4096)).expect("accepted by the operator");
        fixture.command(Command::Checkpoint).expect("a checkpoint");
        fixture.command(Command::SetDrive { drive: half[0] as u32, enclosure: 7 }).expect("a second commit");
        let labels = &fixture.pool.serving().expect("open").engine.drives.labels;
        assert_eq!(labels.configuration().overrides.len(), 1, "one identity for each opening that wrote apart");
        fixture.test_drives.cut();
    }
    fixture.options.override_quorum = false;
    fixture.test_drives.drives.iter_mut().for_each(|drive| drive.gone = false);
    fixture.open().expect("opened");
    assert_eq!(*fixture.pool.state(), State::Ready { read_only: true }, "half of the drives are of another history");
    let apart: Vec<_> =
        fixture.alarms.iter().filter(|alarm| alarm.message.contains("written to under an override")).collect();
    assert_eq!(apart.len(), 2, "{:?}", fixture.alarms);
    let read = fixture.read(volume, 0, 4096).expect("read");
    assert!(read == pattern(2, 4096) || read == pattern(3, 4096));
}

#[test]
fn a_checkpoint_that_was_cut_off_and_passed_over_is_never_opened() {
    let mut histories = 0;
    for seed in 0..300 {
        let mut fixture = patient(6, 6, seed);
        let volume = fixture.create_volume(spec("a", "2+1", 8 << 20)).id;
        // The first checkpoint that has pages takes cells for them.
        fixture.write(volume, 0, &pattern(1, 1 << 20)).expect("written");
        fixture.write(volume, 1 << 20, &pattern(2, 1 << 20)).expect("written");
        fixture.idle();
        let before = (0..6).map(|drive| anchor(&fixture, drive)).max().unwrap_or(0);
        fixture.test_drives.cut_at = Some(fixture.test_drives.operations + 8 + seed % 60);
        let ended = fixture.command(Command::Checkpoint);
        fixture.test_drives.cut_at = None;
        fixture.test_drives.cut_bare();
        let with: Vec<usize> = (0..6).filter(|drive| anchor(&fixture, *drive) > before).collect();
        let (Err(_), [only]) = (ended, &with[..]) else { continue };
        histories += 1;
        // Without that drive the pool goes on from the checkpoint before, and uses what the cut one
        // referred to.
        fixture.test_drives.drives[*only].gone = true;
        assert_eq!(fixture.open(), Ok(()), "seed {seed}");
        for at in 2..8u64 {
            fixture.write(volume, at << 20, &pattern(at + 1, 1 << 20)).expect("written");
        }
        fixture.test_drives.cut_bare();
        fixture.test_drives.drives[*only].gone = false;
        assert_eq!(fixture.open(), Ok(()), "seed {seed}");
        for at in 0..8u64 {
            assert!(fixture.read(volume, at << 20, 1 << 20) == Ok(pattern(at + 1, 1 << 20)), "seed {seed}, {at} MiB");
        }
    }
    assert!(histories >= 5, "{histories} histories came about");
}

#[test]
fn a_drive_in_the_table_is_known_by_its_name_whatever_fails_afterwards() {
    let (mut added, mut refused, mut halfway) = (0, 0, 0);
    for operations in 0..120 {
        let mut fixture = patient(5, 5, operations);
        let volume = fixture.create_volume(spec("a", "2+1", 4 << 20)).id;
        fixture.write(volume, 0, &pattern(1, 64 << 10)).expect("written");
        let indices: Vec<usize> = (0..2).map(|_| fixture.add_blank()).collect();
        let identity = |index: usize| DriveId([100 + index as u8; 16]);
        let drives = indices.iter().map(|index| (*index as u32, identity(*index))).collect();
        // No majority is left to agree on anything.
        let lose = |drives: &mut TestDrives| (0..3).for_each(|drive| drives.drives[drive].fails_writes = true);
        let reply = fixture.command_and(Command::AddDrives { drives }, operations, lose);
        let Ok(Reply::Status(status)) = fixture.command(Command::Status) else { panic!("no status") };
        let here: Vec<(usize, &str)> = indices
            .iter()
            .filter_map(|index| {
                let drive = status.drives.iter().find(|drive| drive.identity == identity(*index))?;
                Some((*index, drive.name.as_str()))
            })
            .collect();
        for (index, name) in &here {
            assert_eq!(*name, format!("drives/{index}"), "after {operations} operations: {reply:?}");
        }
        match (&reply, here.len()) {
            (Ok(_), 2) => added += 1,
            (Err(_), 0) => refused += 1,
            (Err(_), 2) => halfway += 1,
            other => panic!("after {operations} operations: {other:?}"),
        }
    }
    assert!(added > 5 && refused > 5 && halfway > 0, "{added} added, {refused} refused, {halfway} halfway");
}
