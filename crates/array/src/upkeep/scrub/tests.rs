//! When the scrub runs, what it reads, and what it puts right.

use std::cell::Cell;

use futures_util::FutureExt;
use stele_ground::Duration;

use crate::durable::anchor::slot_at;
use crate::model::place::{RowId, StripCell};
use crate::model::{Command, OpenOptions};
use crate::testing::{Fixture, pattern, spec};

const DAY: u64 = 24 * 3600;

#[test]
fn a_pool_that_is_opened_again_every_week_is_scrubbed_all_the_same() {
    let mut fixture = Fixture::new(4, 4, 1);
    fixture.create_volume(spec("a", "2+1", 1 << 20));
    let mut finished = 0;
    for _ in 0..5 {
        fixture.pass(Duration::from_secs(6 * DAY));
        finished += fixture.status().scrubs_finished;
        fixture.command(Command::Close).expect("closed");
        fixture.open().expect("opened");
    }
    assert_eq!(finished, 2, "in thirty days of work");
}

#[test]
fn a_kill_forgets_at_most_a_day_of_the_age_of_the_last_scrub() {
    let mut fixture = Fixture::new(4, 4, 1);
    fixture.create_volume(spec("a", "2+1", 1 << 20));
    fixture.pass(Duration::from_secs(10 * DAY));
    fixture.crash().expect("opened");
    fixture.pass(Duration::from_secs(6 * DAY));
    assert_eq!(fixture.status().scrubs_finished, 1);
}

/// Nor does the close wait for what it cuts off.
#[test]
fn a_pass_that_a_close_cuts_off_is_no_whole_pass() {
    let mut fixture = Fixture::new(6, 6, 2);
    let volume = fixture.create_volume(spec("a", "4+2", 4 << 20)).id;
    fixture.write(volume, 0, &pattern(3, 4 << 20)).expect("written");
    fixture.command(Command::Checkpoint).expect("a checkpoint");
    fixture.idle();
    fixture.fail_to_close(|fixture| fixture.begin_command(Command::StartScrub));
    fixture.pass(Duration::from_secs(60));
    assert_eq!(fixture.status().scrubs_finished, 0);
    fixture.pass(Duration::from_secs(3600));
    assert_eq!(fixture.status().scrubs_finished, 1, "it is made again");
}

#[test]
fn a_pass_that_finds_damage_is_followed_by_one_more() {
    let mut fixture = Fixture::new(6, 6, 2);
    let volume = fixture.create_volume(spec("a", "4+2", 4 << 20)).id;
    fixture.write(volume, 0, &pattern(3, 4 << 20)).expect("written");
    fixture.command(Command::Checkpoint).expect("a checkpoint");
    let engine = std::rc::Rc::clone(&fixture.pool.serving().expect("it is open").engine);
    let row = engine
        .layout
        .read()
        .rows()
        .find(|row| engine.look(|core| core.space.used(row.id)) > 8)
        .cloned()
        .expect("a row");
    let cell = row.members[0].cell;
    let at = engine.drives.labels.configuration().cell_at(cell);
    fixture.test_drives.damage(usize::from(cell.drive.0), at, 64 << 10);
    let (found, repaired) = fixture.scrub();
    assert!(found > 0 && found == repaired, "{found} found, {repaired} repaired");
    let before = fixture.status().scrubs_finished;
    fixture.pass(Duration::from_secs(2 * 3600));
    let after = fixture.status();
    assert_eq!((after.scrubs_finished, after.scrub_damage_found), (before + 1, 0));
    fixture.pass(Duration::from_secs(DAY));
    assert_eq!(fixture.status().scrubs_finished, before + 1, "once");
}

#[test]
fn the_scrub_of_the_log_reads_what_is_in_it_and_not_a_window_for_each_group() {
    let mut fixture = Fixture::new(4, 4, 4);
    let volume = fixture.create_volume(spec("a", "2+1", 4 << 20)).id;
    for at in 0..64u64 {
        fixture.write(volume, at * 8192, &pattern(at, 4096)).expect("written");
    }
    let read = |fixture: &mut Fixture| {
        let counters = fixture.status().counters;
        counters.iter().find(|(name, _)| *name == "drive read bytes").map_or(0, |(_, bytes)| *bytes)
    };
    let before = read(&mut fixture);
    fixture.scrub();
    let bytes = read(&mut fixture) - before;
    assert!(bytes < 16 << 20, "{bytes} bytes for a log of 64 small writes");
}

#[test]
fn a_damaged_anchor_is_written_again() {
    let mut fixture = Fixture::new(6, 6, 3);
    fixture.create_volume(spec("a", "2+1", 1 << 20));
    fixture.command(Command::Checkpoint).expect("a checkpoint");
    let sequence = fixture.pool.serving().expect("it is open").engine.table.sequence();
    let whole = fixture.test_drives.peek(1, slot_at(sequence), 4096);
    fixture.test_drives.damage(2, slot_at(sequence), 4096);
    fixture.test_drives.damage(4, slot_at(sequence) + 40, 8);
    let found = fixture.scrub();
    assert_eq!(fixture.pool.serving().expect("it is open").engine.table.sequence(), sequence);
    assert_eq!(found, (2, 2));
    for drive in 0..6 {
        assert!(fixture.test_drives.peek(drive, slot_at(sequence), 4096) == whole, "drive {drive}");
    }
    assert_eq!(fixture.scrub(), (0, 0));
}

/// An opening waits for a slot that it cannot read: the newest anchor may be there.
#[test]
fn a_former_anchor_that_cannot_be_read_is_written_over() {
    let mut fixture = Fixture::new(6, 6, 3);
    fixture.create_volume(spec("a", "2+1", 1 << 20));
    fixture.command(Command::Checkpoint).expect("a checkpoint");
    let engine = fixture.engine();
    let (sequence, holders) = (engine.table.sequence(), engine.drives.labels.holders());
    let former = slot_at(sequence + 1);
    for drive in 0..holders {
        fixture.test_drives.drives[drive].unreadable.insert(former / 4096);
    }
    assert_eq!(fixture.scrub(), (holders as u64, holders as u64));
    assert_eq!(fixture.engine().table.sequence(), sequence);
    assert_eq!(fixture.scrub(), (0, 0));
    assert_eq!(fixture.crash(), Ok(()));
}

#[test]
fn what_a_drive_missed_while_it_was_away_is_no_damage() {
    for seed in 0..8 {
        let options = OpenOptions { rebuild_after: Duration::from_secs(DAY), ..OpenOptions::default() };
        let mut fixture = Fixture::blank(6, 6, seed, options);
        assert_eq!(fixture.settle(), Ok(()));
        let volume = fixture.create_volume(spec("a", "4+2", 8 << 20)).id;
        fixture.write(volume, 0, &pattern(1, 8 << 20)).expect("written");
        fixture.command(Command::Checkpoint).expect("a checkpoint");
        fixture.pull(&[2]);
        fixture.pass(Duration::from_secs(1));
        fixture.create_volume(spec("b", "2+1", 1 << 20));
        fixture.write(volume, 0, &pattern(2, 8 << 20)).expect("written");
        fixture.command(Command::Checkpoint).expect("a checkpoint");
        fixture.begin_to_give_back(2);
        assert_eq!(fixture.scrub(), (0, 0), "seed {seed}");
        let status = fixture.status();
        assert_eq!(status.drives[2].digest_errors, 0, "seed {seed}");
    }
}

#[test]
fn after_a_scrub_the_last_checkpoint_names_only_what_the_scrub_read() {
    for away in [[2, 3], [2, 4], [2, 5], [3, 4], [3, 5], [4, 5]] {
        let mut fixture = Fixture::new(6, 6, 3);
        let kept = fixture.create_volume(spec("kept", "4+2", 1 << 20)).id;
        fixture.write(kept, 0, &pattern(1, 64 << 10)).expect("written");
        let deleted = fixture.create_volume(spec("deleted", "4+2", 1 << 20)).id;
        fixture.write(deleted, 0, &pattern(2, 64 << 10)).expect("written");
        fixture.command(Command::Checkpoint).expect("a checkpoint");
        fixture.command(Command::DeleteVolume { name: "deleted".into() }).expect("deleted");
        // Two drives lose all but their labels. The pages of the deleted volume are in the last
        // checkpoint alone.
        let engine = std::rc::Rc::clone(&fixture.pool.serving().expect("it is open").engine);
        let units = engine.drives.labels.configuration().cell_at(StripCell::default());
        (0..2).for_each(|drive| fixture.test_drives.erase_from(drive, units));
        let (found, repaired) = fixture.scrub();
        assert!(found > 0 && found == repaired, "{found} found, {repaired} repaired");
        let sequence = engine.table.sequence();
        fixture.scrub();
        assert_eq!(engine.table.sequence(), sequence, "a pass that has nothing to store writes no checkpoint");
        fixture.pull(&away);
        fixture.crash().unwrap_or_else(|error| panic!("without drives {away:?}: {error:?}"));
        assert!(fixture.read(kept, 0, 64 << 10).expect("read") == pattern(1, 64 << 10));
    }
}

#[test]
fn without_a_drive_the_scrub_reads_the_others_once() {
    let options = OpenOptions { rebuild_after: Duration::from_secs(DAY), ..OpenOptions::default() };
    let mut fixture = Fixture::blank(6, 6, 5, options);
    assert_eq!(fixture.settle(), Ok(()));
    let volume = fixture.create_volume(spec("a", "4+2", 32 << 20)).id;
    fixture.write(volume, 0, &pattern(3, 32 << 20)).expect("written");
    fixture.command(Command::Checkpoint).expect("a checkpoint");
    fixture.pull(&[2]);
    fixture.pass(Duration::from_secs(60));
    let engine = std::rc::Rc::clone(&fixture.pool.serving().expect("it is open").engine);
    let read = || (0..6).filter(|drive| *drive != 2).map(|drive| engine.io.counters(drive).read_bytes).sum::<u64>();
    let before = read();
    fixture.scrub();
    let (bytes, stored) = (read() - before, 5 * (8 << 20));
    assert!(bytes >= stored && bytes <= stored * 11 / 10, "{bytes} bytes were read of {stored}");
}

#[test]
fn all_lanes_end_when_the_row_is_freed_while_hosts_are_active() {
    let fixture = Fixture::new(4, 4, 1);
    let engine = std::rc::Rc::clone(&fixture.pool.serving().expect("it is open").engine);
    assert!(engine.admission.begin(), "a host is active");
    assert!(engine.hosts_wait());
    let of = super::RowPass { row: RowId(999), slots: 64, run: 1, next: Cell::new(0) };
    let pass = super::Pass { beside_hosts: 1, ..super::Pass::default() };
    pass.runs.set(1);
    assert!(engine.scrub_lane(&of, &pass).now_or_never().is_none(), "hosts may meet one run");
    pass.runs.set(0);
    assert!(matches!(engine.scrub_lane(&of, &pass).now_or_never(), Some(Ok(_))));
    pass.runs.set(1);
    assert!(matches!(engine.scrub_lane(&of, &pass).now_or_never(), Some(Ok(_))), "the other lane still waits");
}
