use stele_array::NOT_A_MEMBER;

use super::super::render::tests::{drive, full};
use super::super::{is_leaving, is_settled};
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

/// The first shard has nothing on drive 3 any more, and another one still has.
fn elsewhere() -> StatusView {
    after(|drive| (drive.drive, drive.health) = (NOT_A_MEMBER, "leaving".to_owned()))
}

#[test]
fn a_removal_lasts_until_no_shard_has_the_drive() {
    let before = pool();
    let removal = Removal::of(&before, 3);
    let leaving = after(|drive| drive.health = "leaving".to_owned());
    for (status, over) in [(&leaving, false), (&elsewhere(), false), (&without(), true)] {
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
    let leaving = after(|drive| drive.health = "leaving".to_owned());
    for (status, settled) in [(leaving, false), (elsewhere(), false), (without(), true)] {
        let status = beside(status);
        assert_eq!(is_leaving(&status, &removal, &new), !settled, "{:?}", status.drives.get(3));
        assert_eq!(is_settled(&status, &removal, &new), settled, "{:?}", status.drives.get(3));
    }
    // A drive that is gone is replaced under its number.
    let replaced = after(|drive| (drive.path, drive.identity) = ("/dev/new".to_owned(), "new".to_owned()));
    assert!(is_settled(&replaced, &removal, &new) && !is_leaving(&replaced, &removal, &new));
}
