//! Slots that more than one stripe refers to: never changed in place, never freed by one of them.

use std::rc::Rc;

use super::KIB;
use crate::engine::Engine;
use crate::formats::{entry, map};
use crate::model::{Command, VolumeSpec};
use crate::testing::{Fixture, NoAnswer, pattern, spec};

#[test]
fn a_slot_that_others_share_is_not_changed_in_place_and_not_freed() {
    let mut fixture = Fixture::new(6, 3, 1);
    let volume = fixture.create_volume(spec("a", "4+2", 4 << 20)).id;
    let mut data = pattern(1, 256 * KIB);
    fixture.write(volume, 0, &data).expect("written");
    fixture.command(Command::Checkpoint).expect("a checkpoint");
    let engine = Rc::clone(&fixture.pool.serving().expect("it is open").engine);
    let home = |stripe: u64| {
        let (page, at) = Engine::map_page_id(volume, stripe);
        let page = engine.table.cached(page).expect("in memory");
        match page.read(|bytes| map::get(bytes, at)) {
            map::Home::Slot(slot) => slot,
            other => panic!("{other:?}"),
        }
    };
    let shape = engine.look(|core| core.volumes.get(volume)).expect("a volume").shape.clone();
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
    let used = engine.look(|core| core.space.used(shared.row));
    let piece = pattern(2, 4 * KIB);
    data[64 * KIB..68 * KIB].copy_from_slice(&piece);
    fixture.write(volume, 64 * KIB as u64, &piece).expect("written");
    fixture.command(Command::Checkpoint).expect("a checkpoint");
    assert_ne!(home(1), shared, "the stripe has moved away");
    let head = page.read(|bytes| entry::head(bytes, at));
    assert_eq!((head.references, head.generation), (1, before.generation), "one reference is left");
    assert!(engine.look(|core| core.space.used(shared.row)) >= used, "the slot still counts as used");
    assert!(fixture.read(volume, 0, 256 * KIB).expect("read") == data);
}

#[test]
fn a_shared_stripe_that_cannot_move_says_why_and_moves_when_it_can() {
    let mut fixture = Fixture::new(6, 6, 1);
    fixture.options.rebuild_after = stele_ground::Duration::from_secs(24 * 3600);
    let volume = fixture
        .create_volume(VolumeSpec { mode: crate::model::WriteMode::WriteThrough, ..spec("a", "4+2", 4 << 20) })
        .id;
    let mut data = pattern(1, 256 * KIB);
    fixture.write(volume, 0, &data).expect("written");
    fixture.command(Command::Checkpoint).expect("a checkpoint");
    {
        let engine = Rc::clone(&fixture.pool.serving().expect("it is open").engine);
        let (page, at) = Engine::map_page_id(volume, 1);
        let home = engine.table.cached(page).expect("in memory").read(|bytes| map::get(bytes, at));
        let map::Home::Slot(slot) = home else { panic!("{home:?}") };
        let (page, at) =
            Engine::slot_page_id(&engine.look(|core| core.volumes.get(volume)).expect("a volume").shape, slot);
        engine.table.cached(page).expect("in memory").change(|bytes| {
            let head = entry::head(bytes, at);
            entry::set_head(bytes, at, &entry::Head { references: 2, ..head });
        });
    }
    fixture.command(Command::Close).expect("closed");
    fixture.open().expect("opened, with nothing cached");
    for drive in [0, 1] {
        fixture.test_drives.damage(drive, 12 << 20, 8 << 20);
    }
    fixture.pull(&[2]);
    let piece = pattern(2, 4 * KIB);
    data[64 * KIB..68 * KIB].copy_from_slice(&piece);
    let Err(NoAnswer::Media(error)) = fixture.write(volume, 64 * KIB as u64, &piece) else { panic!("it was destaged") };
    assert_eq!(error.fault, stele_media::MediaFault::Damaged, "{error}");
    assert!(error.message.contains("stripe 1") && error.message.contains("bring missing drives back"), "{error}");
    fixture.give_back(2);
    fixture.idle();
    assert_eq!(fixture.status().dirty.0, 0, "it has moved");
    assert!(fixture.read(volume, 0, 256 * KIB).expect("read") == data);
}
