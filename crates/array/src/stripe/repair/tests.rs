//! What the repair does about damage of its own making.

use crate::formats::{entry, map};
use crate::model::{AlarmKind, Command};
use crate::testing::{Fixture, pattern, spec};

/// Puts other parity onto a strip of the volume's first stripe, with the digests that belong to it.
fn make_parity_wrong(fixture: &mut Fixture, volume: stele_ground::VolumeId) {
    let engine = std::rc::Rc::clone(&fixture.pool.serving().expect("it is open").engine);
    let face = engine.look(|core| core.volumes.get(volume)).expect("a volume");
    let (page, at) = crate::engine::Engine::map_page_id(volume, 0);
    let home = engine.table.cached(page).expect("in memory").read(|bytes| map::get(bytes, at));
    let map::Home::Slot(slot) = home else { panic!("{home:?}") };
    let (page, at) = crate::engine::Engine::slot_page_id(&face.shape, slot);
    let page = engine.table.cached(page).expect("in memory");
    let of = engine.picture(&face, 0, slot, &page, at).expect("it is mapped");
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
