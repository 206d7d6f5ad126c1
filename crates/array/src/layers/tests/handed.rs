//! Stripes that a deleted snapshot hands over while their drives lack something of them.

use std::ops::Range;

use stele_ground::Duration;

use super::MIB;
use crate::model::place::{DriveNumber, RowId, SlotId};
use crate::model::{Command, DriveHealth};
use crate::space::layout::RowKind;
use crate::testing::{Fixture, pattern, spec};

const SIZE: u64 = 8 * MIB;
const HOUR: Duration = Duration::from_secs(3600);

/// Where the first strips of the volume lie on the drive.
fn places_on(fixture: &Fixture, drive: DriveNumber) -> Range<u64> {
    let engine = &fixture.pool.serving().expect("it is open").engine;
    let rows: Vec<RowId> = {
        let layout = engine.layout.read();
        layout.rows().filter(|row| row.class.kind == RowKind::Data && row.uses(drive)).map(|row| row.id).collect()
    };
    let used = rows.into_iter().find(|row| engine.look(|core| core.space.used(*row)) > 0).expect("a row with data");
    let mut places = (0..8).flat_map(|index| {
        let slot = SlotId { row: used, index };
        engine.row_shape(slot).map(|shape| engine.places(&shape, slot, 0)).unwrap_or_default()
    });
    let first = places.find(|place| place.cell.drive == drive).expect("a strip on it").at;
    first..first + (256 << 10)
}

#[test]
fn what_a_drive_missed_is_written_again_after_the_snapshot_is_deleted() {
    for seed in 0..4 {
        let mut fixture = Fixture::new(4, 4, seed);
        let volume = fixture.create_volume(spec("a", "mirror-2", SIZE)).id;
        fixture.write(volume, 0, &pattern(1, SIZE as usize)).expect("written");
        fixture.command(Command::Checkpoint).expect("a checkpoint");
        // Dirty when the snapshot is made: it goes to the snapshot's layer.
        for at in (0..SIZE).step_by(64 << 10) {
            fixture.write(volume, at, &pattern(at + 2, 4096)).expect("written");
        }
        fixture.snapshot("a", "s").expect("a snapshot");
        fixture.test_drives.drives[1].fails_at = places_on(&fixture, DriveNumber(1));
        fixture.command(Command::Checkpoint).expect("a checkpoint");
        assert!(fixture.status().drives[1].health != DriveHealth::Healthy, "seed {seed}: it missed writes");
        fixture.test_drives.drives[1].fails_at = 0..0;
        fixture.delete("s").expect("deleted");
        fixture.pass(HOUR);
        // Its errors are not forgotten, and that it lacks something is.
        assert_eq!(fixture.status().drives[1].health, DriveHealth::Suspect, "seed {seed}");
        assert_eq!(fixture.scrub(), (0, 0), "seed {seed}: a drive that counts as whole is whole");
    }
}

#[test]
fn a_fill_goes_over_what_a_deleted_snapshot_hands_over_meanwhile() {
    for operations in (0..400).step_by(25) {
        let mut fixture = Fixture::new(4, 4, operations);
        let volume = fixture.create_volume(spec("a", "mirror-2", SIZE)).id;
        fixture.write(volume, 0, &pattern(1, SIZE as usize)).expect("written");
        fixture.command(Command::Checkpoint).expect("a checkpoint");
        fixture.pull(&[1]);
        fixture.pass(Duration::from_secs(1));
        for at in (0..SIZE).step_by(64 << 10) {
            fixture.write(volume, at, &pattern(at + 2, 4096)).expect("written");
        }
        fixture.command(Command::Checkpoint).expect("a checkpoint");
        fixture.snapshot("a", "s").expect("a snapshot");
        fixture.begin_to_give_back(1);
        fixture.run_operations(operations);
        fixture.delete("s").expect("deleted");
        fixture.pass(HOUR);
        assert_eq!(fixture.status().drives[1].health, DriveHealth::Healthy, "after {operations}");
        assert_eq!(fixture.scrub(), (0, 0), "after {operations}: a drive that counts as whole is whole");
    }
}
