use stele_array::NOT_A_MEMBER;

use super::super::render::tests::{drive, full};
use super::super::{STANDSTILL, is_leaving, is_settled};
use super::*;

/// Six drives that are well, each with an identity.
fn pool() -> StatusView {
    let mut status = full();
    (status.unreadable_stripes, status.lost_stripes) = (0, 0);
    status.drives = (0..6).map(drive).collect();
    status.drives.iter_mut().for_each(|drive| drive.identity = format!("identity {}", drive.drive));
    status
}

/// The pool, after a change of drive 3.
fn after(change: impl Fn(&mut DriveView)) -> StatusView {
    let mut status = pool();
    change(&mut status.drives[3]);
    status
}

fn without() -> StatusView {
    let mut status = pool();
    status.drives.remove(3);
    status
}

fn leaving() -> StatusView {
    after(|drive| (drive.leaving, drive.health) = (Some(true), "leaving".to_owned()))
}

/// The first shard has nothing on drive 3 any more, and another one still has.
fn elsewhere() -> StatusView {
    let mut status = leaving();
    status.drives[3].drive = NOT_A_MEMBER;
    status
}

#[test]
fn a_removal_lasts_until_no_shard_has_the_drive() {
    let before = pool();
    let removal = Removal::of(&before, 3);
    for (status, over) in [(&leaving(), false), (&elsewhere(), false), (&without(), true)] {
        let now = Instant::now();
        assert_eq!(removal.is_over(status, &mut Standstill::default(), now), over, "{:?}", status.drives.get(3));
        assert_eq!(removal.check_done(status).is_ok(), over, "{:?}", status.drives.get(3));
    }
}

#[test]
fn a_replacement_lasts_until_no_shard_has_the_old_drive() {
    let before = pool();
    let removal = Removal::of(&before, 3);
    let new: DriveArgument = "/dev/new@1".parse().expect("a drive");
    let beside = |mut status: StatusView| {
        status.drives.push(DriveView { path: "/dev/new".to_owned(), identity: "new".to_owned(), ..drive(6) });
        status
    };
    for (status, settled) in [(leaving(), false), (elsewhere(), false), (without(), true)] {
        let status = beside(status);
        assert_eq!(is_leaving(&status, &removal, &new), !settled, "{:?}", status.drives.get(3));
        assert_eq!(is_settled(&status, &removal, &new), settled, "{:?}", status.drives.get(3));
    }
    // A drive that is gone is replaced under its number.
    let replaced = after(|drive| (drive.path, drive.identity) = ("/dev/new".to_owned(), "new".to_owned()));
    assert!(is_settled(&replaced, &removal, &new) && !is_leaving(&replaced, &removal, &new));
}

/// Health says what is worst: of a drive that leaves, or is kept, it may say something else.
#[test]
fn a_removal_that_was_taken_back_is_over_whatever_the_health() {
    let before = pool();
    let removal = Removal::of(&before, 3);
    for health in ["healthy", "suspect", "stale", "missing", "failed", "leaving"] {
        for leaving in [true, false] {
            let status = after(|drive| (drive.leaving, drive.health) = (Some(leaving), health.to_owned()));
            let over = removal.is_over(&status, &mut Standstill::default(), Instant::now());
            assert_eq!(over, !leaving, "{health}, leaving: {leaving}");
            // A replacement that copies first asks the same.
            assert_eq!(removal.is_taken_back(&status), !leaving, "{health}, leaving: {leaving}");
        }
    }
    // A server that does not say whether the drive leaves.
    for (health, over) in [("leaving", false), ("suspect", false), ("healthy", true)] {
        let status = after(|drive| (drive.leaving, drive.health) = (None, health.to_owned()));
        assert_eq!(removal.is_over(&status, &mut Standstill::default(), Instant::now()), over, "{health}");
    }
    let kept = after(|drive| (drive.leaving, drive.health) = (Some(false), "suspect".to_owned()));
    let failure = removal.check_done(&kept).expect_err("it is here");
    assert!(failure.kind.exit_code() == 1 && failure.error.contains("was taken back"), "{failure:?}");
}

/// Another drive is away, and nothing moves for as long as a removal waits.
#[test]
fn a_removal_that_other_drives_keep_from_its_end_fails() {
    let before = pool();
    let removal = Removal::of(&before, 3);
    let mut stuck = leaving();
    stuck.drives[5].health = "missing".to_owned();
    let (mut standstill, begin) = (Standstill::default(), Instant::now());
    assert!(!removal.is_over(&stuck, &mut standstill, begin));
    assert!(!removal.is_over(&stuck, &mut standstill, begin + STANDSTILL / 2));
    assert!(removal.is_over(&stuck, &mut standstill, begin + STANDSTILL));
    let failure = removal.check_done(&stuck).expect_err("it is here");
    let words = ["drive 3 has not left the pool", "drive 5 is missing"];
    assert!(failure.kind.exit_code() == 5 && words.iter().all(|words| failure.error.contains(words)), "{failure:?}");
    // While all are here, it is waited for.
    assert!(!removal.is_over(&leaving(), &mut standstill, begin + 2 * STANDSTILL));
}

/// The drives are the pool's, and moving onto them does not go on.
#[test]
fn an_addition_that_stands_still_fails_and_says_why() {
    let mut stuck = pool();
    stuck.moving = Some(ProgressView { done: 1, total: 2, rate: 0, seconds_left: None, seconds_running: 0 });
    let (mut filling, begin) = (Filling::default(), Instant::now());
    for after in [Duration::ZERO, STANDSTILL, 2 * STANDSTILL] {
        assert!(!filling.is_over(&stuck, begin + after), "nothing keeps it from its end");
    }
    stuck.drives[2].health = "missing".to_owned();
    let (mut filling, begin) = (Filling::default(), Instant::now());
    assert!(!filling.is_over(&stuck, begin));
    assert!(filling.is_over(&stuck, begin + STANDSTILL));
    let failure = check_filled(&stuck).expect_err("stripes have to move");
    let words = ["the drives are added", "drive 2 is missing"];
    assert!(failure.kind.exit_code() == 5 && words.iter().all(|words| failure.error.contains(words)), "{failure:?}");
    stuck.moving = None;
    assert!(Filling::default().is_over(&stuck, begin) && check_filled(&stuck).is_ok());
}

/// Moves come after a rebuild, and not at once.
#[test]
fn an_addition_beside_a_rebuild_is_waited_for_until_its_moves_are_done() {
    let work = |done: u64| Some(ProgressView { done, total: 100, rate: 1, seconds_left: None, seconds_running: 0 });
    for is_rebuild in [true, false] {
        let (mut filling, begin) = (Filling::default(), Instant::now());
        let mut status = pool();
        status.drives[2].health = "missing".to_owned();
        (status.rebuild, status.copy_back) = if is_rebuild { (work(1), None) } else { (None, work(1)) };
        assert!(!filling.is_over(&status, begin) && check_filled(&status).is_err());
        (status.rebuild, status.copy_back) = (None, None);
        assert!(!filling.is_over(&status, begin + MOVES_AFTER / 2), "the moves have not begun");
        status.moving = work(2);
        assert!(!filling.is_over(&status, begin + MOVES_AFTER));
        status.moving = None;
        assert!(filling.is_over(&status, begin + MOVES_AFTER) && check_filled(&status).is_ok());
    }
}
