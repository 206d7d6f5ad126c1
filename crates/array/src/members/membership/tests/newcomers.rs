//! Drives that are added: all of them or none, whatever fails in between.

use stele_ground::{Bytes, DriveId, Duration, VolumeId};

use super::*;
use crate::drives::label::DriveState;
use crate::model::{CreateOptions, OpenOptions, Reply, VolumeSpec};
use crate::testing::drives::TestDrive;

/// Places of the first two copies of a label.
const LABELS: std::ops::Range<u64> = 0..128 << 10;
const SIZE: usize = 24 << 20;

fn pool(drives: usize, code: &str) -> (Fixture, VolumeId) {
    let mut fixture = Fixture::new(drives, drives as u32, 3);
    let volume = fixture.create_volume(spec("a", code, SIZE as u64)).id;
    fixture.write(volume, 0, &pattern(3, SIZE)).expect("written");
    fixture.command(Command::Checkpoint).expect("a checkpoint");
    (fixture, volume)
}

fn add(drives: &[usize]) -> Command {
    Command::AddDrives { drives: drives.iter().map(|at| (*at as u32, DriveId([100 + *at as u8; 16]))).collect() }
}

fn states(fixture: &Fixture) -> Vec<DriveState> {
    fixture.engine().drives.labels.configuration().drives.iter().map(|entry| entry.state).collect()
}

/// Drives of the pool, and whether each is healthy.
fn members(fixture: &mut Fixture) -> Vec<(u32, bool)> {
    let drives = fixture.status().drives.into_iter().filter(|drive| drive.index != u32::MAX);
    drives.map(|drive| (drive.index, drive.health == DriveHealth::Healthy)).collect()
}

fn healthy(numbers: impl IntoIterator<Item = u32>) -> Vec<(u32, bool)> {
    numbers.into_iter().map(|number| (number, true)).collect()
}

fn refused(answer: Result<Reply, NoAnswer>, words: &[&str]) {
    let Err(NoAnswer::Array(error)) = answer else { panic!("{answer:?}") };
    let text = error.to_string();
    assert!(words.iter().all(|word| text.contains(word)), "{words:?}: {text}");
}

/// The power went while two drives were added to five, when the labels said this of the two.
fn cut_off(when: [DriveState; 2]) -> (Fixture, VolumeId) {
    let (mut fixture, volume) = pool(5, "2+1");
    let drives = [fixture.add_blank(), fixture.add_blank()];
    fixture.begin_command(add(&drives));
    let mut operations = 0;
    while states(&fixture)[5..] != when {
        assert!(operations < 1000, "{:?}", states(&fixture));
        fixture.run_operations(1);
        operations += 1;
    }
    fixture.test_drives.cut_bare();
    (fixture, volume)
}

/// As `cut_off` when one of the two takes part already, and the other one is away.
fn one_of_two() -> (Fixture, VolumeId) {
    let (mut fixture, volume) = cut_off([DriveState::Active, DriveState::Joining]);
    fixture.test_drives.drives[6].gone = true;
    (fixture, volume)
}

#[test]
fn drives_of_which_one_refuses_its_label_are_all_left_out() {
    let (mut fixture, _) = pool(5, "2+1");
    let (good, bad) = (fixture.add_blank(), fixture.add_blank());
    fixture.test_drives.drives[bad].fails_at = LABELS;
    refused(fixture.command(add(&[good, bad])), &["did not take its label", "none was added"]);
    assert_eq!((states(&fixture).len(), members(&mut fixture)), (5, healthy(0..5)));
    // Each may be added as if nothing had been, under its own name, in any order.
    fixture.test_drives.drives[bad].fails_at = 0..0;
    let third = fixture.add_blank();
    for drive in [third, bad, good] {
        fixture.command(add(&[drive])).expect("added");
    }
    fixture.idle();
    assert_eq!(members(&mut fixture), healthy(0..8));
    let identities: Vec<DriveId> = fixture.status().drives[5..].iter().map(|drive| drive.identity).collect();
    assert_eq!(identities, [third, bad, good].map(|at| DriveId([100 + at as u8; 16])));
}

#[test]
fn a_drive_that_takes_no_writes_is_named_and_nothing_changes() {
    let (mut fixture, _) = pool(5, "2+1");
    let (good, bad) = (fixture.add_blank(), fixture.add_blank());
    fixture.test_drives.drives[bad].fails_at = 0..u64::MAX;
    let before = fixture.status().epoch;
    refused(fixture.command(add(&[good, bad])), &["drives/6 takes no writes", "nothing has changed"]);
    assert_eq!((fixture.status().epoch, members(&mut fixture)), (before, healthy(0..5)));
}

#[test]
fn an_addition_cut_off_goes_on_where_all_its_drives_are_there() {
    for when in [[DriveState::Joining; 2], [DriveState::Active, DriveState::Joining]] {
        let (mut fixture, volume) = cut_off(when);
        fixture.alarms.clear();
        fixture.open().expect("opened");
        fixture.idle();
        assert_eq!(members(&mut fixture), healthy(0..7), "{when:?}");
        assert!(fixture.status().drives.iter().all(|drive| drive.used > Bytes(0)), "{when:?}: nothing moves to them");
        assert_eq!(fixture.told(AlarmKind::GrowthFinished).len(), 1, "{when:?}");
        assert!(fixture.read(volume, 0, SIZE).expect("read") == pattern(3, SIZE), "{when:?}");
    }
}

/// No operator was told that they had joined: they may be in use elsewhere by now.
#[test]
fn an_addition_cut_off_is_dropped_for_good_where_a_drive_lacks() {
    let (mut fixture, volume) = cut_off([DriveState::Joining; 2]);
    fixture.test_drives.drives[6].gone = true;
    fixture.open().expect("opened");
    fixture.idle();
    assert_eq!(members(&mut fixture), healthy(0..5));
    assert_eq!(states(&fixture)[5..], [DriveState::Retired; 2]);
    assert_eq!(fixture.status().removed.len(), 1, "the driver of the one that is here lets it go");
    let second = fixture.give_back(6);
    fixture.idle();
    assert_eq!(members(&mut fixture), healthy(0..5), "it is back, and was not added");
    fixture.crash().expect("opened");
    fixture.idle();
    assert_eq!(members(&mut fixture), healthy(0..5), "both are there, and were not added");
    // They may be added like any other drive, as new ones.
    fixture.pull(&[5, second]);
    let again = [fixture.give_back(5), fixture.give_back(second)];
    fixture.command(add(&again)).expect("added");
    fixture.idle();
    assert_eq!(members(&mut fixture), healthy([0, 1, 2, 3, 4, 7, 8]));
    fixture.crash().expect("opened");
    fixture.idle();
    assert_eq!(members(&mut fixture), healthy([0, 1, 2, 3, 4, 7, 8]));
    assert!(fixture.read(volume, 0, SIZE).expect("read") == pattern(3, SIZE));
}

#[test]
fn a_drive_whose_addition_was_cut_off_joins_when_it_is_back() {
    let (mut fixture, volume) = one_of_two();
    fixture.open().expect("opened");
    fixture.idle();
    assert_eq!(members(&mut fixture)[5..], [(5, true), (6, false)]);
    fixture.give_back(6);
    fixture.idle();
    assert_eq!(members(&mut fixture), healthy(0..7));
    assert!(fixture.status().drives[6].used > Bytes(0), "nothing moves to it");
    // It lacks nothing: the next opening does not take it for one that was away.
    fixture.alarms.clear();
    fixture.crash().expect("opened");
    assert_eq!(fixture.told(AlarmKind::DriveStale), [] as [&str; 0]);
    fixture.idle();
    assert_eq!(members(&mut fixture), healthy(0..7));
    assert!(fixture.read(volume, 0, SIZE).expect("read") == pattern(3, SIZE));
}

/// It would count as attached where it is not, and as a clone of itself when it comes.
#[test]
fn a_joining_drive_that_leaves_again_in_its_turn_may_come_back() {
    let (mut fixture, _) = one_of_two();
    fixture.open().expect("opened");
    fixture.idle();
    let turn = fixture.engine().administering.try_lock().expect("no command is under way");
    let index = fixture.give_back(6);
    fixture.pass(Duration::from_secs(1));
    fixture.pull(&[index]);
    drop(turn);
    fixture.idle();
    assert_eq!(members(&mut fixture)[6], (6, false));
    fixture.give_back(index);
    fixture.idle();
    assert_eq!(members(&mut fixture), healthy(0..7));
}

#[test]
fn a_pool_that_only_reads_takes_no_drive_in_and_lets_none_go() {
    let (mut fixture, volume) = one_of_two();
    fixture.options.read_only = true;
    fixture.open().expect("opened");
    let before = (fixture.status().epoch, states(&fixture));
    let label = fixture.test_drives.peek(6, 0, 256 << 10);
    let back = fixture.give_back(6);
    fixture.idle();
    assert!(fixture.test_drives.peek(back, 0, 256 << 10) == label, "it is written to");
    let told = fixture.told(AlarmKind::DriveRejected);
    assert!(told.iter().any(|text| text.contains(&format!("drives/{back} is not used")) && text.contains("read-only")));
    let blank = fixture.add_blank();
    let commands = [add(&[blank]), Command::RemoveDrive { drive: 1 }, Command::KeepDrive { drive: 1 }];
    for command in commands {
        let text = format!("{command:?}");
        let answer = fixture.command(command);
        assert!(matches!(&answer, Err(NoAnswer::Array(ArrayError::Refused(_)))), "{text}: {answer:?}");
        refused(answer, &["read-only"]);
    }
    assert!(fixture.test_drives.peek(blank, 0, 64 << 20).iter().all(|byte| *byte == 0), "it is written to");
    assert_eq!((fixture.status().epoch, states(&fixture)), before);
    assert!(fixture.read(volume, 0, SIZE).expect("read") == pattern(3, SIZE));
}

#[test]
fn a_drive_that_was_to_join_is_removed_at_once() {
    // It is away, and does not join when it is back.
    let (mut fixture, _) = one_of_two();
    fixture.open().expect("opened");
    fixture.idle();
    fixture.command(Command::RemoveDrive { drive: 6 }).expect("removed");
    assert_eq!(members(&mut fixture), healthy(0..6));
    fixture.give_back(6);
    fixture.idle();
    assert_eq!(members(&mut fixture), healthy(0..6));
    refused(fixture.command(Command::RemoveDrive { drive: 6 }), &["has left the pool already"]);
    // It is here and does not take its label. When that is mended it may be added anew.
    let (mut fixture, _) = one_of_two();
    fixture.open().expect("opened");
    fixture.idle();
    fixture.test_drives.drives[6].fails_at = 0..256 << 10;
    let index = fixture.give_back(6);
    fixture.idle();
    assert_eq!(states(&fixture)[6], DriveState::Joining);
    fixture.command(Command::RemoveDrive { drive: 6 }).expect("removed");
    assert_eq!(fixture.status().removed.len(), 1, "its driver lets it go");
    refused(fixture.command(add(&[index])), &["is detached"]);
    fixture.test_drives.drives[index].fails_at = 0..0;
    let back = fixture.give_back(index);
    fixture.command(add(&[back])).expect("added anew");
    fixture.idle();
    assert_eq!(members(&mut fixture), healthy([0, 1, 2, 3, 4, 5, 7]));
}

#[test]
fn a_drive_of_another_pool_is_wiped_before_it_is_added() {
    let stranger = |protected: bool| {
        let mut other = Fixture::of_pool(4, 4, 2, 9);
        let owned = VolumeSpec { owner: Some("archive".into()), ..spec("kept", "2+1", 1 << 20) };
        let volume = other.create_volume(owned).id;
        if protected {
            let protect = Command::Protect { volume, owner: "archive".into(), retained: true };
            other.command(protect).expect("protected");
        }
        other.command(Command::Close).expect("closed");
        other.test_drives.drives[0].clone()
    };
    for protected in [false, true] {
        let mut fixture = Fixture::new(5, 5, 1);
        let index = fixture.add_blank();
        fixture.pull(&[index]);
        fixture.test_drives.drives[index] = stranger(protected);
        let index = fixture.give_back(index);
        fixture.idle();
        let is_stranger = |fixture: &mut Fixture| fixture.status().drives.iter().any(|drive| drive.index == u32::MAX);
        assert!(is_stranger(&mut fixture), "it is named");
        let answer = fixture.command(add(&[index]));
        assert_eq!(format!("{answer:?}").contains("which holds retained records"), protected, "{answer:?}");
        refused(answer, &["belongs to pool", "wipe the drive first"]);
        fixture.test_drives.erase(index, 0, 64 << 20);
        fixture.command(add(&[index])).expect("added");
        fixture.idle();
        assert_eq!(members(&mut fixture), healthy(0..6));
        assert!(!is_stranger(&mut fixture), "it is of the pool, and no stranger as well");
    }
}

/// What is on one that was given up may still be needed.
#[test]
fn a_drive_that_has_left_may_be_added_and_one_given_up_may_not() {
    let (mut fixture, volume) = pool(7, "2+1");
    fixture.command(Command::RemoveDrive { drive: 2 }).expect("begun");
    fixture.command(Command::FailDrive { drive: 3 }).expect("given up");
    fixture.idle();
    fixture.pull(&[2, 3]);
    let (left, given_up) = (fixture.give_back(2), fixture.give_back(3));
    refused(fixture.command(add(&[given_up])), &["carries the label of drive 3", "in the place of a failed drive"]);
    fixture.command(add(&[left])).expect("added");
    fixture.idle();
    assert_eq!(members(&mut fixture), [(0, true), (1, true), (3, false), (4, true), (5, true), (6, true), (7, true)]);
    assert!(fixture.read(volume, 0, SIZE).expect("read") == pattern(3, SIZE));
}

#[test]
fn a_drive_with_too_little_room_is_not_added() {
    let mut fixture = Fixture::new(5, 5, 1);
    let attach = |fixture: &mut Fixture, size: u64| {
        fixture.test_drives.drives.push(TestDrive::default());
        let mut attached = fixture.test_drives.attached(|at| at as u32).pop().expect("a drive");
        attached.geometry.size = Bytes(size);
        fixture.pool.event(Event::Attach(attached));
        fixture.pass(Duration::from_millis(5));
        fixture.test_drives.drives.len() - 1
    };
    // Labels and log take 12 MiB at the front, and labels 128 KiB at the end.
    let least = (28 << 20) + (128 << 10);
    let small = attach(&mut fixture, least - (64 << 10));
    refused(fixture.command(add(&[small])), &["drives/5", "too small", "use a larger drive"]);
    let large = attach(&mut fixture, least);
    fixture.command(add(&[large])).expect("added");
    fixture.idle();
    assert_eq!(members(&mut fixture), healthy(0..6));
}

#[test]
fn room_that_still_lacks_after_an_addition_is_told_anew() {
    let no_spare = |create: &mut CreateOptions| create.spare_drives = Some(0);
    let mut fixture = Fixture::begin(6, 6, 2, OpenOptions::default(), no_spare);
    assert_eq!(fixture.settle(), Ok(()));
    let volume = fixture.create_volume(spec("full", "4+2", 1 << 30)).id;
    let mut stored = 0;
    while fixture.write(volume, stored << 20, &pattern(stored, 1 << 20)).is_ok() {
        stored += 1;
    }
    fixture.idle();
    assert_eq!(fixture.told(AlarmKind::SpaceLow).len(), 1);
    let drive = fixture.add_blank();
    fixture.command(add(&[drive])).expect("added");
    assert!(fixture.write(volume, stored << 20, &pattern(stored, 1 << 20)).is_err(), "one drive is no row");
    assert_eq!(fixture.told(AlarmKind::SpaceLow).len(), 2, "{:?}", fixture.alarms);
}

#[test]
fn spare_space_that_lacks_again_after_an_addition_is_told_anew() {
    let mut fixture = Fixture::new(4, 4, 3);
    let fill = |fixture: &mut Fixture, name: &str| {
        let volume = fixture.create_volume(spec(name, "3+1", 1 << 20)).id;
        fixture.write(volume, 0, &pattern(3, 1 << 20)).expect("written");
    };
    let lacking = |fixture: &mut Fixture| {
        fixture.idle();
        fixture.pass(Duration::from_secs(3600));
        let told = fixture.told(AlarmKind::SpareExhausted);
        told.iter().filter(|text| text.contains("no spare cell is left")).count()
    };
    fill(&mut fixture, "a");
    fixture.pull(&[0]);
    assert_eq!(lacking(&mut fixture), 1, "{:?}", fixture.alarms);
    fixture.give_back(0);
    fixture.command(Command::DeleteVolume { name: "a".into() }).expect("deleted");
    fixture.idle();
    // A drive comes and goes before anything is on it, and then another one is lost.
    let drive = fixture.add_blank();
    fixture.command(add(&[drive])).expect("added");
    fixture.pull(&[drive]);
    fill(&mut fixture, "b");
    assert_eq!(lacking(&mut fixture), 1, "{:?}", fixture.alarms);
    fixture.pull(&[1]);
    assert_eq!(lacking(&mut fixture), 2, "{:?}", fixture.alarms);
}

/// Its new labels would count for less than those that its former place left on it.
#[test]
fn a_power_cut_while_a_drive_is_added_anew_costs_no_drive() {
    let mut joined = 0;
    for seed in 0..40 {
        let mut fixture = Fixture::new(5, 5, seed);
        fixture.command(Command::RemoveDrive { drive: 2 }).expect("begun");
        fixture.idle();
        fixture.pull(&[2]);
        let back = fixture.give_back(2);
        fixture.begin_command(add(&[back]));
        let mut operations = 0;
        while states(&fixture).get(5) != Some(&DriveState::Joining) {
            assert!(operations < 2000, "{:?}", states(&fixture));
            fixture.run_operations(1);
            operations += 1;
        }
        // The commit that makes a voter of it is under way.
        fixture.run_operations(4 + seed % 20);
        fixture.crash().expect("opened");
        if states(&fixture)[5] == DriveState::Active {
            joined += 1;
            let status = fixture.status();
            assert!(
                status.drives.iter().any(|drive| drive.index == 5 && drive.health == DriveHealth::Healthy),
                "{seed}"
            );
            assert_eq!(status.removed, [], "seed {seed}");
        }
    }
    assert!(joined > 10, "only {joined} were in the pool by then");
}

#[test]
fn a_drive_that_misses_a_label_when_it_is_added_joins_later() {
    for missed in [1, 2, 5] {
        let mut fixture = Fixture::new(5, 5, 1);
        let (first, second) = (fixture.add_blank(), fixture.add_blank());
        fixture.test_drives.drives[second].retries = missed;
        fixture.test_drives.drives[second].retries_at = 64 << 10..128 << 10;
        fixture.command(add(&[first, second])).expect("added");
        fixture.idle();
        fixture.pass(Duration::from_secs(3600));
        assert_eq!(states(&fixture)[6], DriveState::Active, "{missed} missed");
        assert_eq!(members(&mut fixture), healthy(0..7), "{missed} missed");
    }
}

#[test]
fn a_second_lack_of_spare_space_is_told_of_as_well() {
    let (mut fixture, _) = pool(4, "3+1");
    for drive in [0, 1] {
        fixture.alarms.clear();
        fixture.pull(&[drive]);
        fixture.idle();
        fixture.pass(Duration::from_secs(3600));
        assert_eq!(fixture.told(AlarmKind::SpareExhausted).len(), 1, "{drive}: {:?}", fixture.alarms);
        assert!(fixture.status().stripes_without_spare > 0);
        fixture.give_back(drive);
        fixture.idle();
    }
}
