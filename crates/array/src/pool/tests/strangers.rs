//! Drives that do not belong to the pool, or no longer fit into it: named with the reason, and not
//! used.

use crate::model::{AlarmKind, Command, DriveHealth};
use crate::testing::drives::TestDrive;
use crate::testing::{Fixture, pattern, spec};

#[test]
fn drives_that_do_not_belong_are_named_and_the_pool_opens_without_them() {
    let open = |fixture: &mut Fixture| {
        fixture.alarms.clear();
        fixture.open().expect("opened");
        let rejected = |health: DriveHealth| health == DriveHealth::Rejected;
        let status = fixture.status();
        let notes = status.drives.iter().filter(|drive| rejected(drive.health)).map(|drive| drive.note.clone());
        notes.collect::<Vec<String>>()
    };
    let mut fixture = Fixture::new(4, 4, 1);
    let volume = fixture.create_volume(spec("a", "2+1", 4 << 20)).id;
    fixture.write(volume, 0, &pattern(1, 1 << 20)).expect("written");
    fixture.command(Command::Close).expect("closed");
    // A drive of another pool.
    let mut stranger = Fixture::of_pool(4, 4, 2, 9);
    stranger.command(Command::Close).expect("closed");
    fixture.test_drives.drives.push(stranger.test_drives.drives[0].clone());
    let notes = open(&mut fixture);
    assert!(matches!(&notes[..], [note] if note.contains("belongs to another pool")), "{notes:?}");
    assert!(fixture.alarms.iter().any(|alarm| alarm.kind == AlarmKind::DriveRejected), "{:?}", fixture.alarms);
    let named = |text: &str| text.matches("drives/4").count();
    assert!(fixture.told(AlarmKind::DriveRejected).iter().all(|told| named(told) == 1), "{:?}", fixture.alarms);
    assert_eq!(named(&notes[0]), 0, "status names the drive before the note: {notes:?}");
    fixture.command(Command::Close).expect("closed");
    // A copy of one of its own.
    fixture.test_drives.drives[4] = fixture.test_drives.drives[2].clone();
    let notes = open(&mut fixture);
    assert!(matches!(&notes[..], [note] if note.contains("carries the identity of")), "{notes:?}");
    fixture.command(Command::Close).expect("closed");
    // One without a label, and one that has shrunk.
    fixture.test_drives.drives[4] = TestDrive::default();
    fixture.shrunk = Some(3);
    let notes = open(&mut fixture);
    assert!(notes.iter().any(|note| note.contains("carries no label")), "{notes:?}");
    assert!(notes.iter().any(|note| note.contains("restore its size")), "{notes:?}");
    assert!(fixture.read(volume, 0, 1 << 20).expect("read") == pattern(1, 1 << 20));
}

/// The ring's place on a drive that is not the pool's holds what belongs to others: another pool's
/// log, a file system, what was written under an override apart from this pool.
#[test]
fn a_wash_leaves_alone_what_is_on_drives_that_do_not_belong() {
    let mut fixture = Fixture::new(4, 4, 1);
    let volume = fixture.create_volume(spec("a", "2+1", 4 << 20)).id;
    fixture.write(volume, 0, &pattern(1, 1 << 20)).expect("written");
    fixture.command(Command::Close).expect("closed");
    let mut stranger = Fixture::of_pool(4, 4, 2, 9);
    let theirs = stranger.create_volume(spec("theirs", "2+1", 4 << 20)).id;
    stranger.write(theirs, 0, &pattern(2, 12 << 10)).expect("written");
    stranger.crash().expect("opened");
    fixture.test_drives.drives.push(stranger.test_drives.drives[0].clone());
    fixture.test_drives.drives.push(TestDrive::default());
    fixture.test_drives.damage(5, 0, 8 << 20);
    fixture.test_drives.drives.push(fixture.test_drives.drives[2].clone());
    fixture.open().expect("opened");
    let others = |fixture: &Fixture| (4..7).map(|drive| fixture.test_drives.peek(drive, 0, 64 << 20)).collect();
    let (before, own): (Vec<Vec<u8>>, _) = (others(&fixture), fixture.test_drives.peek(0, 4 << 20, 1 << 20));
    fixture.command(Command::WashLog).expect("washed");
    assert!(others(&fixture) == before, "a drive that is not the pool's was written to");
    assert!(fixture.test_drives.peek(0, 4 << 20, 1 << 20) != own, "nothing was washed");
}
