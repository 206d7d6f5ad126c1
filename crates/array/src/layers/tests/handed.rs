//! Stripes that a deleted snapshot hands over while their drives lack something of them.

use std::ops::Range;

use stele_ground::Duration;

use super::MIB;
use crate::model::place::{DriveNumber, RowId, SlotId};
use crate::model::{Command, DriveHealth};
use crate::space::layout::RowKind;
use crate::testing::{Fixture, pattern, spec};
use crate::volumes::LayerKind;

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
        // Dirty when the snapshot is made: it goes to the snapshot's layer. In stripes of every
        // row.
        for at in (0..SIZE).step_by(48 << 10) {
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

#[test]
fn a_snapshot_that_waits_for_its_drives_keeps_no_other_one() {
    let mut fixture = Fixture::new(12, 12, 3);
    let one = fixture.create_volume(spec("a", "8+2", SIZE)).id;
    let other = fixture.create_volume(spec("b", "mirror-2", SIZE)).id;
    let mut data = pattern(1, SIZE as usize);
    fixture.write(one, 0, &data).expect("written");
    fixture.write(other, 0, &pattern(2, SIZE as usize)).expect("written");
    fixture.command(Command::Close).expect("closed");
    fixture.open().expect("opened, with nothing in the cache");
    let given_up = |fixture: &Fixture| {
        let engine = &fixture.pool.serving().expect("it is open").engine;
        engine.look(|core| core.volumes.all()).iter().filter(|layer| layer.kind() == LayerKind::GivenUp).count()
    };
    let drives = fixture.drives_of_a_row();
    let set = |fixture: &mut Fixture, loose: bool| {
        drives.iter().for_each(|drive| fixture.test_drives.drives[*drive].is_loose = loose);
    };
    set(&mut fixture, true);
    // A part of a stripe: the rest of it has to be read.
    data[..4096].copy_from_slice(&pattern(3, 4096));
    fixture.write(one, 0, &data[..4096]).expect("acknowledged");
    fixture.snapshot("a", "of-a").expect("a snapshot");
    fixture.snapshot("b", "of-b").expect("a snapshot");
    fixture.delete("of-a").expect("deleted");
    fixture.delete("of-b").expect("deleted");
    fixture.pass(Duration::from_secs(30));
    assert_eq!(given_up(&fixture), 1, "what needs no drive that fails is done");
    set(&mut fixture, false);
    fixture.pass(HOUR);
    assert_eq!(given_up(&fixture), 0);
    assert!(fixture.read(one, 0, SIZE as usize).as_deref() == Ok(&data[..]));
    assert_eq!((fixture.status().lost_stripes, fixture.scrub()), (0, (0, 0)));
}
