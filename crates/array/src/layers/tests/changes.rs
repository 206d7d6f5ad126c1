//! What was written since a snapshot, as backups ask for it.

use stele_media::ExtentState;

use super::*;

/// The stripes of 64 KiB of the first MiB that changed since `since`, by number.
fn changed(fixture: &mut Fixture, volume: VolumeId, since: VolumeId) -> Vec<u64> {
    let mut at = 0;
    let mut changed = Vec::new();
    for extent in fixture.extents(volume, MIB, Some(since)) {
        if extent.state != ExtentState::Hole {
            changed.extend((at..at + extent.length).step_by(64 * KIB).map(|at| at / (64 * KIB as u64)));
        }
        at += extent.length;
    }
    assert_eq!(at, MIB);
    changed
}

#[test]
fn what_changed_since_a_snapshot_is_what_was_written_since_dirty_or_destaged() {
    let (mut fixture, volume, data) = fixture("mirror-2", 3);
    let first = fixture.snapshot("a", "first").expect("a snapshot").id;
    assert_eq!(changed(&mut fixture, volume, first), [0; 0]);
    fixture.write(volume, 3 * 64 * KIB as u64, &data[..4 * KIB]).expect("written");
    assert_eq!(changed(&mut fixture, volume, first), [3], "while it is dirty");
    fixture.command(Command::Checkpoint).expect("a checkpoint");
    assert_eq!(changed(&mut fixture, volume, first), [3], "when it has a slot");
    fixture.discard(volume, 5 * 64 * KIB as u64, 64 * KIB as u64).expect("discarded");
    assert_eq!(changed(&mut fixture, volume, first), [3, 5], "what became zeros has changed");

    let second = fixture.snapshot("a", "second").expect("a snapshot").id;
    fixture.write(volume, 7 * 64 * KIB as u64, &data[..4 * KIB]).expect("written");
    assert_eq!(changed(&mut fixture, volume, second), [7]);
    assert_eq!(changed(&mut fixture, volume, first), [3, 5, 7], "since the older one, all of it");
    assert_eq!(changed(&mut fixture, second, first), [3, 5], "between two snapshots");

    fixture.roll_back("a", "first").expect("rolled back");
    assert_eq!(changed(&mut fixture, volume, second).len(), 16, "it no longer stands on that snapshot: all may differ");
    assert_eq!(changed(&mut fixture, volume, first), [0; 0]);
}
