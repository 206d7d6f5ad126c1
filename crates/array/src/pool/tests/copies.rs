//! Reads of mirrors: shared among the copies, and whichever copy is bad is found and put right.

use std::rc::Rc;

use stele_media::{Buffer, Op};

use super::KIB;
use crate::engine::Engine;
use crate::formats::map;
use crate::model::place::{Lsn, StripeKey};
use crate::model::{Command, DigestUnit, VolumeSpec};
use crate::testing::{Fixture, NoAnswer, pattern, spec};

#[test]
fn reads_of_a_mirror_go_to_the_idlest_copy_and_any_bad_copy_is_put_right() {
    let mut fixture = Fixture::new(6, 3, 1);
    let volume = fixture.create_volume(spec("a", "mirror-2", 16 << 10)).id;
    let data = pattern(1, 16 * KIB);
    fixture.write(volume, 0, &data).expect("written");
    fixture.command(Command::Checkpoint).expect("a checkpoint");
    let engine = Rc::clone(&fixture.pool.serving().expect("it is open").engine);
    let key = StripeKey { volume, stripe: 0 };
    let (page, at) = Engine::map_page_id(volume, 0);
    let map::Home::Slot(slot) = engine.table.cached(page).expect("in memory").read(|bytes| map::get(bytes, at)) else {
        panic!("the stripe has a slot");
    };
    let shape = engine.look(|core| core.volumes.get(volume)).expect("a volume").shape.clone();
    let places = engine.places(&shape, slot, 0);
    let reads = |drive: usize| engine.io.counters(drive).reads;
    let read_all = |fixture: &mut Fixture| {
        engine.step(|core| core.cache.drop_stripe(key, Lsn(u64::MAX)));
        let ask = |block: usize| Op::Read { at: (block * 4 * KIB) as u64, buffer: Buffer::zeroed(4 * KIB) };
        let (_, answers) = fixture.submit_all(volume, (0..4).map(ask).collect());
        for (block, answer) in answers.into_iter().enumerate() {
            match answer {
                Some((Op::Read { buffer, .. }, Ok(()))) => {
                    assert!(buffer[..] == data[block * 4 * KIB..][..4 * KIB], "block {block}");
                }
                other => panic!("block {block}: {other:?}"),
            }
        }
    };
    let drives: Vec<usize> = places.iter().map(|place| usize::from(place.cell.drive.0)).collect();
    let before: Vec<u64> = drives.iter().map(|drive| reads(*drive)).collect();
    read_all(&mut fixture);
    let after: Vec<u64> = drives.iter().map(|drive| reads(*drive)).collect();
    assert_eq!([after[0] - before[0], after[1] - before[1]], [2, 2], "two reads at once on each copy");
    for place in &places {
        let repaired = fixture.status().repaired;
        fixture.test_drives.damage(usize::from(place.cell.drive.0), place.at, 16 << 10);
        read_all(&mut fixture);
        fixture.idle();
        assert!(fixture.status().repaired > repaired, "the copy at {place:?} was not put right");
    }
    assert_eq!(fixture.scrub().0, 0, "nothing is left for the scrub to find");
}

#[test]
fn what_a_mirror_lost_on_all_copies_is_lost_on_each_of_them() {
    let mut fixture = Fixture::new(6, 3, 2);
    let spec = VolumeSpec { digest: DigestUnit::Strip, ..spec("a", "mirror-2", 64 << 10) };
    let volume = fixture.create_volume(spec).id;
    let data = pattern(1, 64 * KIB);
    fixture.write(volume, 0, &data).expect("written");
    fixture.command(Command::Close).expect("closed");
    fixture.open().expect("opened, with nothing cached");
    let engine = Rc::clone(&fixture.pool.serving().expect("it is open").engine);
    assert!(fixture.read(volume, 0, 4096).expect("read") == data[..4096]);
    let (page, at) = Engine::map_page_id(volume, 1);
    let map::Home::Slot(slot) = engine.table.cached(page).expect("in memory").read(|bytes| map::get(bytes, at)) else {
        panic!("the stripe has a slot");
    };
    let shape = engine.look(|core| core.volumes.get(volume)).expect("a volume").shape.clone();
    for place in engine.places(&shape, slot, 0) {
        fixture.test_drives.damage(usize::from(place.cell.drive.0), place.at, 16 << 10);
    }
    // A part of what is lost is written again, and moves with the rest.
    fixture.write(volume, 16 << 10, &data[..4096]).expect("written");
    fixture.command(Command::Checkpoint).expect("a checkpoint");
    fixture.idle();
    drop(engine);
    fixture.command(Command::Close).expect("closed");
    fixture.open().expect("opened, with nothing cached");
    for block in 5..8 {
        match fixture.read(volume, block * 4096, 4096) {
            Err(NoAnswer::Media(error)) => assert_eq!(error.fault, stele_media::MediaFault::Damaged),
            Err(other) => panic!("block {block}: {other:?}"),
            Ok(_) => panic!("block {block} is invented"),
        }
    }
    fixture.write(volume, 16 << 10, &data[..16 * KIB]).expect("written whole");
    assert!(fixture.read(volume, 16 << 10, 16 << 10).expect("read") == data[..16 * KIB]);
}
