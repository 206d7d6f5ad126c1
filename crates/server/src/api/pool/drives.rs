//! What operators are shown of the array's list of drives.

use std::path::Path;

use stele_array::{DriveHealth, DriveStatus, NOT_A_MEMBER};

use crate::node::beneath::FileSystem;

/// What the pool does about a drive while it may write nothing.
const UNDONE: &str = "nothing is rebuilt while the pool is open for reading only";

/// The next step where a drive is blank: a `pool add` that was cut off has named it.
const BLANK_NEXT: &str = "repeat `stele pool add` with it if it is to join, or take it out of [pool] drives";

/// How the kernel tells of a file system that is full.
const NO_ROOM: &str = "No space left on device";

/// Changes the next step of unwell drives that are files on a full file system: neither waiting nor
/// returning drives helps them. Their notes tell it, or `beneath`, what the server saw last.
pub fn ask_for_room(drives: &mut [DriveStatus], beneath: &[FileSystem]) {
    let is_full = |name: &str| {
        beneath.iter().any(|found| found.is_nearly_full() && found.drives.iter().any(|path| path == Path::new(name)))
    };
    let unwell = |drive: &&mut DriveStatus| {
        let is_unwell = !matches!(drive.health, DriveHealth::Healthy | DriveHealth::Leaving | DriveHealth::Missing);
        drive.index != NOT_A_MEMBER && is_unwell
    };
    for drive in drives.iter_mut().filter(unwell) {
        if drive.note.contains(NO_ROOM) || is_full(&drive.name) {
            let number = drive.index;
            drive.next = format!(
                "free room on the file system beneath it (`df`), then `stele drive clear {number}`; or move it \
                 elsewhere: `stele pool replace {number} PATH`"
            );
        }
    }
}

/// The next step of a drive that the pool does not use, since it is smaller than its label says.
pub const SIZE_NEXT: &str = "bring it back in its full size: a file that was cut off from its copy, a device from its \
                             partition or its former controller; or put another drive in its place: `stele pool replace`";

/// Whether the array says that a drive is too small.
pub fn is_too_small(note: &str) -> bool {
    // While the pool is open, and at its opening.
    note.contains(", the pool needs ") || note.contains(" but needs ")
}

/// The drives, each once.
///
/// The array lists a drive that was given up before the pool was opened twice: as drive N without a
/// path, and as an attached drive that is not used.
pub fn shown(drives: Vec<DriveStatus>, read_only: bool) -> Vec<DriveStatus> {
    let (mut drives, unused): (Vec<_>, Vec<_>) = drives.into_iter().partition(|drive| drive.index != NOT_A_MEMBER);
    for drive in unused {
        let number = given_up(&drive.note).map(|(number, _)| number);
        let is_it = |member: &&mut DriveStatus| {
            Some(member.index) == number && member.health == DriveHealth::Failed && member.name.is_empty()
        };
        match drives.iter_mut().filter(|member| member.index != NOT_A_MEMBER).find(is_it) {
            Some(member) => member.name = drive.name,
            None if drive.note.starts_with("it carries no label;") => {
                drives.push(DriveStatus { next: BLANK_NEXT.to_owned(), ..drive });
            }
            None if is_too_small(&drive.note) => drives.push(DriveStatus { next: SIZE_NEXT.to_owned(), ..drive }),
            None => drives.push(drive),
        }
    }
    for drive in &mut drives {
        // Damage alone has no failed read or write that the array could name behind the semicolon.
        drive.note.truncate(drive.note.trim_end_matches("; ").len());
    }
    let is_behind = |drive: &&mut DriveStatus| {
        matches!(drive.health, DriveHealth::Missing | DriveHealth::Failed | DriveHealth::Stale)
    };
    for drive in drives.iter_mut().filter(|drive| read_only && drive.index != NOT_A_MEMBER).filter(is_behind) {
        let is_whole = ["rebuilt into spare space", "it holds nothing"].iter().any(|done| drive.done.starts_with(done));
        if !is_whole {
            drive.done = UNDONE.to_owned();
        }
    }
    drives
}

/// The number of a drive that was given up before the pool was opened, and the next step, if the
/// array says that of an attached drive.
pub fn given_up(text: &str) -> Option<(u32, String)> {
    let (before, _) = text.split_once(") was given up earlier; ")?;
    let number = before.rsplit_once("(drive ")?.1.parse().ok()?;
    Some((number, stele_array::AlarmKind::DriveFailed.next_step(Some(number))))
}

#[cfg(test)]
mod tests {
    use stele_array::AlarmKind;
    use stele_ground::{Bytes, DriveId};

    use super::*;

    fn drive(index: u32, name: &str, health: DriveHealth, note: &str) -> DriveStatus {
        DriveStatus {
            index,
            attached: None,
            identity: DriveId([index as u8; 16]),
            name: name.to_owned(),
            enclosure: index,
            health,
            leaving: false,
            size: Bytes(0),
            used: Bytes(0),
            read_errors: 0,
            write_errors: 0,
            digest_errors: 0,
            repaired: 0,
            note: note.to_owned(),
            since: None,
            done: "being rebuilt into spare space: 1 MiB of 2 MiB".to_owned(),
            next: String::new(),
            alarm: Some(AlarmKind::DriveFailed),
        }
    }

    const EARLIER: &str = "it (drive 1) was given up earlier; replace it, or `stele drive clear 1`";

    #[test]
    fn a_drive_that_was_given_up_earlier_is_shown_once() {
        let unused = |note: &str| drive(NOT_A_MEMBER, "/d/1", DriveHealth::Failed, note);
        let listed = |note: &str, health| {
            let member = drive(1, "", health, "was given up before the pool was opened");
            let drives = shown(vec![drive(0, "/d/0", DriveHealth::Healthy, ""), member, unused(note)], false);
            drives.into_iter().map(|drive| (drive.index, drive.name)).collect::<Vec<_>>()
        };
        let named = |index: u32, name: &str| (index, name.to_owned());
        assert_eq!(listed(EARLIER, DriveHealth::Failed), [named(0, "/d/0"), named(1, "/d/1")]);
        let apart = [named(0, "/d/0"), named(1, ""), named(NOT_A_MEMBER, "/d/1")];
        assert_eq!(listed(EARLIER, DriveHealth::Missing), apart, "the pool has not given it up");
        assert_eq!(listed("it belongs to another pool", DriveHealth::Failed), apart);
    }

    #[test]
    fn the_advice_for_a_drive_that_was_given_up_is_one() {
        let (number, next) = given_up(&format!("/d/(drive 7)/1 is not used: {EARLIER}")).expect("a drive");
        assert!(
            number == 1 && next.contains("stele pool replace 1 ") && next.contains("stele drive clear 1"),
            "{next}"
        );
        assert_eq!(given_up("/d/1 is not used: it has the label of another pool"), None);
    }

    /// It said "wait", or "return the drives that are missing", and none were.
    #[test]
    fn a_drive_on_a_full_file_system_is_told_to_free_room() {
        let full = "the last write that failed: /d/0: write of 4096 bytes at 0: No space left on device (os error 28)";
        let beneath = |free: u64| FileSystem {
            drives: vec!["/d/0".into()],
            size: Bytes(1000),
            needed: Bytes(900),
            free: Bytes(free),
        };
        let (away, given_up) = ("was away; being brought up to date", "given up: 10 writes failed");
        for (health, note, free, is_told) in [
            (DriveHealth::Stale, full, 999, true),
            (DriveHealth::Suspect, full, 999, true),
            (DriveHealth::Stale, away, 999, false),
            (DriveHealth::Stale, away, 0, true),
            (DriveHealth::Failed, given_up, 0, true),
            (DriveHealth::Healthy, "", 0, false),
            (DriveHealth::Missing, "", 0, false),
        ] {
            let mut told = [DriveStatus { next: "wait".to_owned(), ..drive(3, "/d/0", health, note) }];
            ask_for_room(&mut told, &[beneath(free)]);
            let next = &told[0].next;
            let says = next.starts_with("free room") && next.contains("stele pool replace 3 PATH");
            assert_eq!((says, next == "wait"), (is_told, !is_told), "{health:?}, {note}: {next}");
        }
    }

    #[test]
    fn a_drive_that_is_too_small_has_advice_of_its_own() {
        let of =
            |note: &str| shown(vec![drive(NOT_A_MEMBER, "/d/1", DriveHealth::Rejected, note)], false).remove(0).next;
        assert_eq!(of("it has 150 MiB, the pool needs 160 MiB"), SIZE_NEXT);
        assert_eq!(of("it (drive 1) has 150 MiB but needs 160 MiB; restore its size, or replace it"), SIZE_NEXT);
        assert_eq!(of("it belongs to pool 09"), "");
    }

    #[test]
    fn a_drive_with_damage_alone_has_a_whole_sentence() {
        for (note, says) in [
            ("3 errors within a day; ", "3 errors within a day"),
            ("3 errors within a day; a read failed", "3 errors within a day; a read failed"),
            ("", ""),
        ] {
            let told = shown(vec![drive(0, "/d/0", DriveHealth::Suspect, note)], false).remove(0).note;
            assert_eq!(told, says);
        }
    }

    #[test]
    fn a_pool_that_is_read_only_rebuilds_nothing() {
        for (health, done, says) in [
            (DriveHealth::Missing, "what it holds is rebuilt into spare space in 600.0 s", UNDONE),
            (DriveHealth::Failed, "rebuilt into spare space", "rebuilt into spare space"),
            (DriveHealth::Failed, "it holds nothing that is needed", "it holds nothing that is needed"),
            (DriveHealth::Stale, "waits to be brought up to date", UNDONE),
            (DriveHealth::Suspect, "reads go round it", "reads go round it"),
        ] {
            for read_only in [true, false] {
                let drive = DriveStatus { done: done.to_owned(), ..drive(0, "/d/0", health, "") };
                let told = shown(vec![drive], read_only).remove(0).done;
                assert_eq!(told, if read_only { says } else { done }, "{health:?}, read-only: {read_only}");
            }
        }
    }
}
