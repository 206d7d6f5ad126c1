//! More drives lost than a code survives: the work ends, what cannot be read is counted, and it is
//! told of once.

use stele_ground::{Bytes, Duration, VolumeId};

use crate::model::{AlarmKind, Command, DriveHealth, OpenOptions, Reply, VolumeStatus};
use crate::testing::{Fixture, pattern, spec};

const SIZE: u64 = 16 << 20;
const HOUR: Duration = Duration::from_secs(3600);

fn made(drives: usize, seed: u64) -> (Fixture, VolumeId) {
    made_with(drives, OpenOptions { seed, ..OpenOptions::default() })
}

fn made_with(drives: usize, options: OpenOptions) -> (Fixture, VolumeId) {
    let mut fixture = Fixture::blank(drives, drives as u32, options.seed, options);
    assert_eq!(fixture.settle(), Ok(()));
    fixture.create_volume(spec("m", "mirror-4", 2 << 20));
    let volume = fixture.create_volume(spec("a", "8+2", SIZE)).id;
    fixture.write(volume, 0, &pattern(1, SIZE as usize)).expect("written");
    fixture.command(Command::Checkpoint).expect("a checkpoint");
    fixture.idle();
    (fixture, volume)
}

fn replace(fixture: &mut Fixture, old: u32) {
    let new = fixture.add_blank() as u32;
    let identity = stele_ground::DriveId([100 + old as u8; 16]);
    let replace = Command::ReplaceDrive { old, new, identity, enclosure: None, give_up: true };
    fixture.command(replace).expect("replaced");
}

fn volume_of(fixture: &mut Fixture, name: &str) -> VolumeStatus {
    let Ok(Reply::Volumes(volumes)) = fixture.command(Command::ListVolumes) else { panic!("no listing") };
    volumes.into_iter().find(|volume| volume.spec.name == name).expect("the volume")
}

/// Stripes of which a read fails.
fn unreadable(fixture: &mut Fixture, volume: VolumeId, stripe: usize) -> u64 {
    let data = pattern(1, SIZE as usize);
    let mut failed = 0;
    for at in (0..SIZE as usize).step_by(stripe) {
        match fixture.read(volume, at as u64, stripe) {
            Ok(read) => assert!(read == data[at..at + stripe], "bytes at {at} are invented"),
            Err(_) => failed += 1,
        }
    }
    failed
}

#[test]
fn three_losses_of_two_are_counted_told_once_and_end_all_work() {
    for how in ["pulled", "one by one", "failed", "reopened", "replaced"] {
        // Single strips, so that those of the first drive have not all moved before the third is
        // pulled.
        let run = Bytes(if how == "failed" { 16 << 10 } else { 4 << 20 });
        let (mut fixture, volume) =
            made_with(12, OpenOptions { seed: 1, background_run: run, ..OpenOptions::default() });
        let lost = [1, 4, 7];
        let mut first = None;
        match how {
            "pulled" => fixture.pull(&lost),
            "one by one" => lost.iter().for_each(|drive| {
                fixture.pull(&[*drive]);
                fixture.pass(HOUR);
            }),
            "failed" => {
                fixture.command(Command::FailDrive { drive: 1 }).expect("failed");
                fixture.command(Command::FailDrive { drive: 4 }).expect("failed");
                fixture.pull(&[7]);
            }
            "reopened" => {
                fixture.command(Command::Close).expect("closed");
                lost.iter().for_each(|drive| fixture.test_drives.drives[*drive].gone = true);
                fixture.open().expect("opened");
                first = Some(fixture.status());
            }
            _ => {
                fixture.pull(&lost);
                lost.iter().for_each(|drive| replace(&mut fixture, *drive as u32));
            }
        }
        fixture.pass(HOUR);
        let before = fixture.test_drives.operations;
        fixture.pass(HOUR);
        assert!(fixture.test_drives.operations < before + 100, "{how}: the rebuild goes on without end");
        let status = fixture.status();
        let shown = volume_of(&mut fixture, "a");
        let stripe = 128 << 10;
        let failed = unreadable(&mut fixture, volume, stripe);
        if how != "one by one" {
            assert!(failed > 0, "{how}: three drives of twelve meet some stripe of ten");
        }
        assert_eq!((status.unreadable_stripes, status.unreadable_known), (failed, true), "{how}");
        // Nothing is said to be readable before that was looked up.
        assert!(first.is_none_or(|first| !first.unreadable_known || first.unreadable_stripes == failed), "{how}");
        let listed: u64 = shown.unreadable.iter().map(|(_, length)| length / stripe as u64).sum();
        assert_eq!(listed, failed, "{how}: {:?}", shown.unreadable);
        let apart = |ranges: &[(u64, u64)]| ranges.windows(2).all(|pair| pair[0].0 + pair[0].1 < pair[1].0);
        assert!(apart(&shown.unreadable) && apart(&shown.lost), "{how}: neighbours are merged");
        let told: Vec<&str> = fixture
            .alarms
            .iter()
            .filter(|alarm| alarm.kind == AlarmKind::StripeLost)
            .map(|a| a.message.as_str())
            .collect();
        match status.lost_stripes {
            0 => assert_eq!(told.len(), 0, "{how}: {told:?}"),
            lost => assert!(told.len() == 1 && told[0].contains(&format!("{lost} stripes")), "{how}: {told:?}"),
        }
        fixture.command(Command::StartScrub).expect("begun");
        fixture.pass(HOUR);
        let after = fixture.status();
        assert_eq!((after.scrubs_finished, after.scrubs_stopped), (1, 0), "{how}: {}", after.scrub_trouble);
        let text =
            fixture.alarms.iter().rfind(|alarm| alarm.kind == AlarmKind::ScrubFinished).expect("said").message.clone();
        assert_eq!(text.contains(&format!("{failed} stripes cannot be read")), failed > 0, "{how}: {text}");
        if matches!(how, "pulled" | "reopened") {
            for drive in lost {
                fixture.give_back(drive);
            }
            fixture.pass(HOUR);
            let status = fixture.status();
            assert_eq!((status.unreadable_stripes, status.lost_stripes), (0, 0), "{how}: all is back");
            assert_eq!(unreadable(&mut fixture, volume, stripe), 0, "{how}");
        }
    }
}

#[test]
fn what_waits_for_a_missing_drive_while_others_are_replaced_is_counted_as_unreadable() {
    for wait in [HOUR, Duration::from_secs(24 * 3600)] {
        let options = OpenOptions { seed: 1, rebuild_after: wait, ..OpenOptions::default() };
        let (mut fixture, volume) = made_with(12, options);
        fixture.pull(&[1, 4, 7]);
        [1, 4].into_iter().for_each(|drive| replace(&mut fixture, drive));
        fixture.pass(Duration(2 * HOUR.0));
        let stripe = 128 << 10;
        let failed = unreadable(&mut fixture, volume, stripe);
        assert!(failed > 0, "three drives of twelve meet some stripe of ten");
        let status = fixture.status();
        assert_eq!((status.unreadable_stripes, status.lost_stripes), (failed, 0));
        let shown = volume_of(&mut fixture, "a").unreadable;
        assert_eq!(shown.iter().map(|(_, length)| length / stripe as u64).sum::<u64>(), failed, "{shown:?}");
        fixture.give_back(7);
        fixture.pass(HOUR);
        let status = fixture.status();
        assert_eq!((status.unreadable_stripes, status.lost_stripes), (0, 0), "all is back");
        assert_eq!(unreadable(&mut fixture, volume, stripe), 0);
    }
}

/// Every row of a pool of ten drives has a strip of 8+2 on each of them.
#[test]
fn a_pool_as_wide_as_its_code_takes_new_stripes_after_it_gave_drives_up() {
    let options = OpenOptions { seed: 1, ..OpenOptions::default() };
    let mut fixture = Fixture::blank(10, 10, options.seed, options);
    assert_eq!(fixture.settle(), Ok(()));
    let volume = fixture.create_volume(spec("a", "8+2", SIZE)).id;
    let content = pattern(1, SIZE as usize);
    let (first, second, third) = (1 << 20, 10 << 20, SIZE as usize);
    fixture.write(volume, 0, &content[..first]).expect("written");
    fixture.idle();
    for (drive, from, to) in [(3, first, second), (6, second, third)] {
        fixture.command(Command::FailDrive { drive }).expect("given up");
        fixture.write(volume, from as u64, &content[from..to]).expect("no drive takes its strips, and the others do");
        fixture.idle();
        assert_eq!(fixture.read(volume, 0, to).expect("read"), content[..to], "after the loss of drive {drive}");
    }
    for drive in [3, 6] {
        replace(&mut fixture, drive);
        fixture.pass(HOUR);
    }
    let status = fixture.status();
    assert_eq!((status.unreadable_stripes, status.lost_stripes), (0, 0));
    assert!(status.drives.iter().all(|drive| drive.health == DriveHealth::Healthy), "{:?}", status.drives);
    fixture.pull(&[0, 9]);
    assert_eq!(fixture.read(volume, 0, content.len()).expect("read"), content, "the replacements hold their strips");
}

#[test]
fn a_log_that_lacks_a_member_says_so_until_a_drive_takes_its_place() {
    let mut fixture = Fixture::new(4, 4, 1);
    let volume = fixture.create_volume(spec("a", "2+1", 1 << 20)).id;
    assert_eq!(fixture.status().log_trouble, None);
    fixture.pull(&[2]);
    fixture.write(volume, 0, &pattern(1, 4096)).expect("written");
    fixture.pass(HOUR);
    let (text, _) = fixture.status().log_trouble.expect("three of four");
    assert_eq!(text, "the log lies on 3 drives instead of 4");
    replace(&mut fixture, 2);
    fixture.write(volume, 0, &pattern(2, 4096)).expect("written");
    fixture.idle();
    assert_eq!(fixture.status().log_trouble, None);
    // Everything that the log still needs lies on four drives.
    assert!(!fixture.pool.serving().expect("open").engine.log.is_thin());
    fixture.pull(&[0]);
    assert_eq!(fixture.read(volume, 0, 4096), Ok(pattern(2, 4096)));
}

#[test]
fn a_drive_that_returns_brings_back_what_it_holds_while_its_spare_cells_are_away() {
    for seed in 0..6 {
        let (mut fixture, _) = made(13, seed);
        fixture.pull(&[1]);
        fixture.pass(HOUR);
        fixture.pull(&[4, 7, 9]);
        fixture.pass(HOUR);
        let before = fixture.status().unreadable_stripes;
        fixture.give_back(1);
        fixture.pass(HOUR);
        let status = fixture.status();
        assert_eq!(status.drives[1].health, DriveHealth::Healthy, "seed {seed}");
        assert!(status.unreadable_stripes <= before, "seed {seed}: {before}, {}", status.unreadable_stripes);
    }
}

#[test]
fn a_drive_that_returns_while_others_keep_what_it_needs_does_not_spin() {
    let mut waited = 0;
    for seed in 0..6 {
        let (mut fixture, volume) = made(13, seed);
        fixture.pull(&[1]);
        fixture.pass(HOUR);
        // A part of each strip: what drive 1 holds is old now.
        for at in (0..SIZE).step_by(16 << 10) {
            fixture.write(volume, at, &pattern(at, 4096)).expect("written");
        }
        fixture.command(Command::Checkpoint).expect("a checkpoint");
        fixture.idle();
        fixture.pull(&[4, 7, 9]);
        fixture.pass(HOUR);
        fixture.give_back(1);
        fixture.pass(HOUR);
        let before = fixture.test_drives.operations;
        fixture.pass(HOUR);
        assert!(fixture.test_drives.operations < before + 100, "seed {seed}: the rebuild goes on without end");
        waited += u32::from(fixture.status().drives[1].health == DriveHealth::Stale);
        for drive in [4, 7, 9] {
            fixture.give_back(drive);
        }
        fixture.pass(HOUR);
        let status = fixture.status();
        assert!(status.drives.iter().all(|drive| drive.health == DriveHealth::Healthy), "{:?}", status.drives);
        assert_eq!((status.unreadable_stripes, fixture.scrub()), (0, (0, 0)), "seed {seed}");
    }
    assert!(waited > 0, "in no pool did the drive wait for others");
}

#[test]
fn what_seemed_lost_while_drives_were_pulled_is_so_no_more_soon_after() {
    let (mut fixture, volume) = made(12, 1);
    let stripe = 128 << 10;
    fixture.command(Command::Close).expect("closed");
    fixture.open().expect("opened, with nothing in the cache");
    let drives = fixture.drives_of_a_row();
    let errors = |fixture: &mut Fixture, fail: bool| {
        drives.iter().for_each(|drive| fixture.test_drives.drives[*drive].is_loose = fail);
    };
    // Connectors that come loose, and sit again before the pool lets the drives go.
    errors(&mut fixture, true);
    let mut stripes = (0..SIZE).step_by(stripe);
    assert!(stripes.any(|at| fixture.read(volume, at, stripe).is_err()), "one stripe at least is in that row");
    fixture.pass(Duration::from_secs(2));
    errors(&mut fixture, false);
    assert_eq!((fixture.status().lost_stripes, fixture.status().unreadable_stripes), (1, 1));
    fixture.pass(Duration::from_secs(120));
    let status = fixture.status();
    assert_eq!((status.lost_stripes, status.unreadable_stripes), (0, 0));
    assert_eq!(unreadable(&mut fixture, volume, stripe), 0);
}

#[test]
fn what_drives_that_were_given_up_still_hold_is_there_when_they_are_taken_back() {
    let (mut fixture, volume) = made(12, 2);
    let stripe = 128 << 10;
    fixture.command(Command::Close).expect("closed");
    fixture.open().expect("opened, with nothing in the cache");
    let drives = fixture.drives_of_a_row();
    // A controller of three drives hangs, until all that can be moved has moved.
    drives.iter().for_each(|drive| fixture.test_drives.drives[*drive].is_loose = true);
    for _ in 0..20 {
        unreadable(&mut fixture, volume, stripe);
        fixture.pass(Duration::from_secs(60));
    }
    fixture.pass(HOUR);
    let is_failed = |health: DriveHealth| health == DriveHealth::Failed;
    let failed: Vec<u32> =
        fixture.status().drives.iter().filter(|drive| is_failed(drive.health)).map(|drive| drive.index).collect();
    assert!(failed.len() >= 2 && unreadable(&mut fixture, volume, stripe) > 0, "{failed:?}");
    drives.iter().for_each(|drive| fixture.test_drives.drives[*drive].is_loose = false);
    for drive in failed {
        fixture.command(Command::ClearDrive { drive }).expect("taken back");
    }
    fixture.pass(HOUR);
    assert_eq!(unreadable(&mut fixture, volume, stripe), 0);
    let status = fixture.status();
    assert_eq!((status.lost_stripes, status.unreadable_stripes), (0, 0));
    assert!(status.drives.iter().all(|drive| !is_failed(drive.health)), "{:?}", status.drives);
    assert_eq!(fixture.scrub(), (0, 0));
}

#[test]
fn three_drives_with_errors_leave_the_pool_in_peace_under_writes() {
    let (mut fixture, volume) = made(12, 3);
    for drive in [1, 4, 7] {
        (fixture.test_drives.drives[drive].fails_reads, fixture.test_drives.drives[drive].fails_writes) = (true, true);
    }
    let mut rounds = 0;
    for round in 0..600u64 {
        let at = round % 128 * (128 << 10);
        let _ = fixture.write(volume, at, &pattern(round, 4096));
        fixture.pass(Duration::from_secs(1));
        rounds += u64::from(fixture.status().rebuild.is_some());
    }
    let before = fixture.test_drives.operations;
    for round in 0..60u64 {
        let _ = fixture.write(volume, round * (128 << 10), &pattern(round, 4096));
        fixture.pass(Duration::from_secs(1));
    }
    let each = (fixture.test_drives.operations - before) / 60;
    assert!(each < 400, "{each} operations a second, {rounds} of 600 seconds rebuilding");
    let status = fixture.status();
    let blamed = status.drives.iter().filter(|drive| drive.digest_errors > 0 && ![1, 4, 7].contains(&drive.index));
    assert_eq!(blamed.map(|drive| drive.index).collect::<Vec<_>>(), [], "no other drive is at fault");
}

#[test]
fn what_no_spare_cell_is_left_for_stands_as_long_as_that() {
    let (mut fixture, _) = made(12, 4);
    assert_eq!(fixture.status().stripes_without_spare, 0);
    fixture.pull(&[1, 4, 7]);
    fixture.pass(HOUR);
    assert!(fixture.status().stripes_without_spare > 0, "two drives' worth of spare space, and three are gone");
    fixture.give_back(7);
    fixture.pass(HOUR);
    fixture.give_back(4);
    fixture.pass(HOUR);
    assert_eq!(fixture.status().stripes_without_spare, 0, "what is gone has moved");
}

#[test]
fn what_troubles_the_log_stands_as_long_as_that() {
    let mut fixture = Fixture::new(5, 5, 5);
    fixture.create_volume(spec("a", "2+1", SIZE));
    assert_eq!(fixture.status().log_trouble, None);
    fixture.pull(&[0, 1]);
    fixture.pass(Duration::from_secs(10));
    let trouble = fixture.status().log_trouble.expect("three drives carry the log instead of four").0;
    assert!(trouble.contains("3 drives instead of"), "{trouble}");
    fixture.give_back(0);
    fixture.pass(HOUR);
    fixture.give_back(1);
    fixture.pass(HOUR);
    assert_eq!(fixture.status().log_trouble, None);
}

#[test]
fn room_is_told_code_by_code() {
    let (mut fixture, volume) = made(12, 6);
    let status = fixture.status();
    let codes: Vec<String> = status.codes.iter().map(|space| space.code.to_string()).collect();
    assert_eq!(codes, ["mirror-4", "8+2"]);
    let space = status.codes[1];
    assert_eq!((space.volumes, space.promised.0, space.allocated.0), (1, SIZE, SIZE));
    assert!(space.free.0 > SIZE && space.free.0 < status.raw.0 * 8 / 10, "{space:?} of {}", status.raw);
    fixture.discard(volume, 0, SIZE / 2).expect("discarded");
    fixture.command(Command::Checkpoint).expect("a checkpoint");
    fixture.idle();
    assert_eq!(fixture.status().codes[1].allocated.0, SIZE / 2);
}
