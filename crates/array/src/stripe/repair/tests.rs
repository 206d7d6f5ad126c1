//! What the repair does about damage of its own making.

use crate::formats::{entry, map};
use crate::model::{AlarmKind, Command};
use crate::testing::{Fixture, pattern, spec};

/// Puts other parity onto a strip of the volume's first stripe, with the digests that belong to it.
fn make_parity_wrong(fixture: &mut Fixture, volume: stele_ground::VolumeId) {
    let engine = std::rc::Rc::clone(&fixture.pool.serving().expect("it is open").engine);
    let handle = engine.look(|core| core.volumes.get(volume)).expect("a volume");
    let (page, at) = crate::engine::Engine::map_page_id(volume, 0);
    let home = engine.table.cached(page).expect("in memory").read(|bytes| map::get(bytes, at));
    let map::Home::Slot(slot) = home else { panic!("{home:?}") };
    let (page, at) = crate::engine::Engine::slot_page_id(&handle.shape, slot);
    let page = engine.table.cached(page).expect("in memory");
    let of = engine.picture(&handle, 0, slot, &page, at).expect("it is mapped");
    let strip = of.shape.k;
    let wrong = pattern(77, of.shape.strip);
    let place = of.places[strip];
    fixture.test_drives.poke(usize::from(place.cell.drive.0), place.at, &wrong);
    page.change(|bytes| {
        for (unit, data) in wrong.chunks(of.shape.unit_bytes).enumerate() {
            let index = of.shape.digest_index(strip, unit);
            entry::set_digest(bytes, at, index, of.binding.digest(strip, unit, data));
        }
    });
}

#[test]
fn parity_that_is_not_of_its_data_is_encoded_again() {
    let mut fixture = Fixture::new(7, 7, 1);
    let volume = fixture.create_volume(spec("a", "4+2", 4 << 20)).id;
    let data = pattern(1, 1 << 20);
    fixture.write(volume, 0, &data).expect("written");
    fixture.command(Command::Checkpoint).expect("a checkpoint");
    make_parity_wrong(&mut fixture, volume);
    assert_eq!(fixture.scrub(), (1, 1));
    let said: Vec<_> = fixture.alarms.iter().filter(|alarm| alarm.kind == AlarmKind::MemoryDamaged).collect();
    assert!(said.len() == 1 && said[0].message.contains("stripe 0"), "{said:?}");
    assert_eq!(fixture.scrub(), (0, 0), "and is right from then on");
    fixture.crash().expect("opened");
    assert_eq!(fixture.scrub(), (0, 0));
    fixture.pull(&[0, 1]);
    assert!(fixture.read(volume, 0, 1 << 20).expect("read") == data);
}

/// Two written blocks of a strip with a block between them that was never written, and cannot be
/// read: the fixture, the volume, and the drive.
fn with_a_bad_place_between(seed: u64) -> (Fixture, stele_ground::VolumeId, usize) {
    let mut fixture = Fixture::new(7, 7, seed);
    let volume = fixture.create_volume(spec("a", "4+2", 4 << 20)).id;
    for block in [0, 2] {
        fixture.write(volume, block << 12, &pattern(block, 4096)).expect("written");
    }
    fixture.command(Command::Checkpoint).expect("a checkpoint");
    fixture.crash().expect("opened");
    let engine = std::rc::Rc::clone(&fixture.pool.serving().expect("it is open").engine);
    let row = engine.layout.read().rows().find(|row| engine.look(|core| core.space.used(row.id)) > 0).cloned();
    let cells = row.expect("a row").members;
    let starts =
        cells.iter().map(|member| (member.cell.drive.0, engine.drives.labels.configuration().cell_at(member.cell)));
    let places = starts.flat_map(|(drive, at)| (0..256).map(move |block| (usize::from(drive), (at >> 12) + block)));
    let (drive, block) = { places }
        .find(|(drive, block)| fixture.test_drives.peek(*drive, block << 12, 4096) == pattern(0, 4096))
        .expect("the first block lies on a drive");
    fixture.test_drives.drives[drive].unreadable.insert(block + 1);
    (fixture, volume, drive)
}

#[test]
fn a_bad_place_without_content_is_written_once_and_blames_its_drive_no_more() {
    let (mut fixture, volume, drive) = with_a_bad_place_between(1);
    let wanted = [pattern(0, 4096), vec![0; 4096], pattern(2, 4096)].concat();
    assert!(fixture.read(volume, 0, 12288).expect("read") == wanted);
    fixture.idle();
    assert!(fixture.test_drives.drives[drive].unreadable.is_empty(), "a read has it mended");
    let errors = fixture.status().drives[drive].read_errors;
    assert!((1..3).contains(&errors), "{errors}");
    assert!(fixture.read(volume, 0, 12288).expect("read") == wanted);
    assert_eq!(fixture.scrub(), (0, 0));
}

#[test]
fn a_scrub_mends_bad_places_without_content() {
    let (mut fixture, _, drive) = with_a_bad_place_between(2);
    assert_eq!(fixture.scrub(), (0, 0), "no record was damaged");
    assert!(fixture.test_drives.drives[drive].unreadable.is_empty());
}
