//! Drives that do not belong to the pool, or no longer fit into it: named with the reason, and not used.

use crate::testing::{Bed, pattern, spec};
use crate::yard::YardDrive;
use crate::{AlarmKind, Command, DriveHealth};

#[test]
fn drives_that_do_not_belong_are_named_and_the_pool_opens_without_them() {
    let open = |bed: &mut Bed| {
        bed.alarms.clear();
        bed.open().expect("opened");
        let rejected = |health: DriveHealth| health == DriveHealth::Rejected;
        let status = bed.status();
        let notes = status.drives.iter().filter(|drive| rejected(drive.health)).map(|drive| drive.note.clone());
        notes.collect::<Vec<String>>()
    };
    let mut bed = Bed::new(4, 4, 1);
    let volume = bed.create_volume(spec("a", "2+1", 4 << 20)).id;
    bed.write(volume, 0, &pattern(1, 1 << 20)).expect("written");
    bed.command(Command::Close).expect("closed");
    // A drive of another pool.
    let mut stranger = Bed::of_pool(4, 4, 2, 9);
    stranger.command(Command::Close).expect("closed");
    bed.yard.drives.push(stranger.yard.drives[0].clone());
    let notes = open(&mut bed);
    assert!(matches!(&notes[..], [note] if note.contains("belongs to another pool")), "{notes:?}");
    assert!(bed.alarms.iter().any(|alarm| alarm.kind == AlarmKind::DriveRejected), "{:?}", bed.alarms);
    bed.command(Command::Close).expect("closed");
    // A copy of one of its own.
    bed.yard.drives[4] = bed.yard.drives[2].clone();
    let notes = open(&mut bed);
    assert!(matches!(&notes[..], [note] if note.contains("carries the identity of")), "{notes:?}");
    bed.command(Command::Close).expect("closed");
    // One without a label, and one that has shrunk.
    bed.yard.drives[4] = YardDrive::default();
    bed.shrunk = Some(3);
    let notes = open(&mut bed);
    assert!(notes.iter().any(|note| note.contains("carries no label")), "{notes:?}");
    assert!(notes.iter().any(|note| note.contains("restore its size")), "{notes:?}");
    assert!(bed.read(volume, 0, 1 << 20).expect("read") == pattern(1, 1 << 20));
}
