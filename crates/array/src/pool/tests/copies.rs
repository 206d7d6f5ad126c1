//! Reads of mirrors: shared among the copies, and whichever copy is bad is found and put right.

use std::rc::Rc;

use stele_media::{Buffer, Op};

use super::KIB;
use crate::Command;
use crate::cache::StripeKey;
use crate::engine::Engine;
use crate::place::Lsn;
use crate::testing::{Bed, pattern, spec};
use crate::volumes::map;

#[test]
fn reads_of_a_mirror_go_to_the_idlest_copy_and_any_bad_copy_is_put_right() {
    let mut bed = Bed::new(6, 3, 1);
    let volume = bed.create_volume(spec("a", "mirror-2", 16 << 10)).id;
    let data = pattern(1, 16 * KIB);
    bed.write(volume, 0, &data).expect("written");
    bed.command(Command::Checkpoint).expect("a checkpoint");
    let engine = Rc::clone(&bed.pool.serving().expect("it is open").engine);
    let key = StripeKey { volume, stripe: 0 };
    let (page, at) = Engine::map_page_id(volume, 0);
    let map::Home::Slot(slot) = engine.table.cached(page).expect("in memory").read(|bytes| map::get(bytes, at)) else {
        panic!("the stripe has a slot");
    };
    let shape = engine.volumes.get(volume).expect("a volume").shape.clone();
    let places = engine.places(&shape, slot, 0);
    let reads = |drive: usize| engine.io.counters(drive).reads;
    let read_all = |bed: &mut Bed| {
        engine.cache.borrow_mut().drop_stripe(key, Lsn(u64::MAX));
        let ask = |block: usize| Op::Read { at: (block * 4 * KIB) as u64, buffer: Buffer::zeroed(4 * KIB) };
        let (_, answers) = bed.submit_all(volume, (0..4).map(ask).collect());
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
    read_all(&mut bed);
    let after: Vec<u64> = drives.iter().map(|drive| reads(*drive)).collect();
    assert_eq!([after[0] - before[0], after[1] - before[1]], [2, 2], "two reads at once on each copy");
    for place in &places {
        let repaired = bed.status().repaired;
        bed.yard.damage(usize::from(place.cell.drive.0), place.at, 16 << 10);
        read_all(&mut bed);
        bed.idle();
        assert!(bed.status().repaired > repaired, "the copy at {place:?} was not put right");
    }
    assert_eq!(bed.scrub().0, 0, "nothing is left for the scrub to find");
}
