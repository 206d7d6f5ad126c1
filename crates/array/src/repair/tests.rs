//! What the repair does about damage of its own making.

use crate::testing::{Bed, pattern, spec};
use crate::volumes::{entry, map};
use crate::{AlarmKind, Command};

/// Puts other parity onto a strip of the volume's first stripe, with the digests that belong to it.
fn make_parity_wrong(bed: &mut Bed, volume: stele_ground::VolumeId) {
    let engine = std::rc::Rc::clone(&bed.pool.serving().expect("it is open").engine);
    let face = engine.volumes.get(volume).expect("a volume");
    let (page, at) = crate::engine::Engine::map_page_id(volume, 0);
    let home = engine.table.cached(page).expect("in memory").read(|bytes| map::get(bytes, at));
    let map::Home::Slot(slot) = home else { panic!("{home:?}") };
    let (page, at) = crate::engine::Engine::slot_page_id(&face.shape, slot);
    let page = engine.table.cached(page).expect("in memory");
    let of = engine.picture(&face, 0, slot, &page, at).expect("it is mapped");
    let strip = of.shape.k;
    let wrong = pattern(77, of.shape.strip);
    let place = of.places[strip];
    bed.yard.poke(usize::from(place.cell.drive.0), place.at, &wrong);
    page.change(|bytes| {
        for (unit, data) in wrong.chunks(of.shape.unit_bytes).enumerate() {
            let index = of.shape.digest_index(strip, unit);
            entry::set_digest(bytes, at, index, of.binding.digest(strip, unit, data));
        }
    });
}

#[test]
fn parity_that_is_not_of_its_data_is_encoded_again() {
    let mut bed = Bed::new(7, 7, 1);
    let volume = bed.create_volume(spec("a", "4+2", 4 << 20)).id;
    let data = pattern(1, 1 << 20);
    bed.write(volume, 0, &data).expect("written");
    bed.command(Command::Checkpoint).expect("a checkpoint");
    make_parity_wrong(&mut bed, volume);
    assert_eq!(bed.scrub(), (1, 1));
    let said: Vec<_> = bed.alarms.iter().filter(|alarm| alarm.kind == AlarmKind::MemoryDamaged).collect();
    assert!(said.len() == 1 && said[0].message.contains("stripe 0"), "{said:?}");
    assert_eq!(bed.scrub(), (0, 0), "and is right from then on");
    bed.crash().expect("opened");
    assert_eq!(bed.scrub(), (0, 0));
    bed.pull(&[0, 1]);
    assert!(bed.read(volume, 0, 1 << 20).expect("read") == data);
}
