//! Slots that more than one stripe refers to: never changed in place, never freed by one of them.

use std::rc::Rc;

use super::KIB;
use crate::Command;
use crate::engine::Engine;
use crate::testing::{Bed, pattern, spec};
use crate::volumes::{entry, map};

#[test]
fn a_slot_that_others_share_is_not_changed_in_place_and_not_freed() {
    let mut bed = Bed::new(6, 3, 1);
    let volume = bed.create_volume(spec("a", "4+2", 4 << 20)).id;
    let mut data = pattern(1, 256 * KIB);
    bed.write(volume, 0, &data).expect("written");
    bed.command(Command::Checkpoint).expect("a checkpoint");
    let engine = Rc::clone(&bed.pool.serving().expect("it is open").engine);
    let home = |stripe: u64| {
        let (page, at) = Engine::map_page_id(volume, stripe);
        let page = engine.table.cached(page).expect("in memory");
        match page.read(|bytes| map::get(bytes, at)) {
            map::Home::Slot(slot) => slot,
            other => panic!("{other:?}"),
        }
    };
    let shape = engine.volumes.get(volume).expect("a volume").shape.clone();
    let entry = |slot| {
        let (page, at) = Engine::slot_page_id(&shape, slot);
        (engine.table.cached(page).expect("in memory"), at)
    };
    let shared = home(1);
    let (page, at) = entry(shared);
    let before = page.change(|bytes| {
        let head = entry::head(bytes, at);
        entry::set_head(bytes, at, &entry::Head { references: 2, ..head });
        head
    });
    let used = engine.space.used(shared.row);
    let piece = pattern(2, 4 * KIB);
    data[64 * KIB..68 * KIB].copy_from_slice(&piece);
    bed.write(volume, 64 * KIB as u64, &piece).expect("written");
    bed.command(Command::Checkpoint).expect("a checkpoint");
    assert_ne!(home(1), shared, "the stripe has moved away");
    let head = page.read(|bytes| entry::head(bytes, at));
    assert_eq!((head.references, head.generation), (1, before.generation), "one reference is left");
    assert!(engine.space.used(shared.row) >= used, "the slot still counts as used");
    assert!(bed.read(volume, 0, 256 * KIB).expect("read") == data);
}
