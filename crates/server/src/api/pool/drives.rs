//! What operators are shown of the array's list of drives.

use stele_array::{DriveHealth, DriveStatus, NOT_A_MEMBER};

/// What the pool does about a drive while it may write nothing.
const UNDONE: &str = "nothing is rebuilt while the pool is open for reading only";

/// The next step where a drive is blank: a `pool add` that was cut off has named it.
const BLANK_NEXT: &str = "repeat `stele pool add` with it if it is to join, or take it out of [pool] drives";

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
