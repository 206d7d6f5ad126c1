use super::*;
use crate::model::place::{RowId, SlotId};
use crate::testing::{Fixture, pattern, spec};
use stele_media::Buffer;

const KIB: usize = 1024;

fn piece(seed: u64, length: usize) -> Shared {
    Buffer::copy_of(&pattern(seed, length)).freeze()
}

/// Images that cover all up to a record, of a slot and generation.
fn redo(slot: SlotId, generation: u64, covers: u64, writes: Vec<StripWrite>) -> Redo {
    Redo { slot, generation, covers: Lsn(covers), writes, oldest: Lsn(1), placed: false }
}

fn slot(index: u32) -> SlotId {
    SlotId { row: RowId(2), index }
}

#[test]
fn images_that_are_repeated_are_the_same_in_records_of_bounded_size() {
    let key = StripeKey { volume: stele_ground::VolumeId(1), stripe: 5 };
    let write = |strip: usize, at: usize, data: Vec<Shared>| StripWrite { strip, at, data };
    // Pieces of 100 KiB, two in a record; one of 600 KiB, in three; and a last one that fits behind
    // the rest of it.
    let writes = vec![
        write(0, 8 * KIB, vec![piece(1, 100 * KIB), piece(2, 100 * KIB)]),
        write(3, 0, vec![piece(3, 100 * KIB), piece(4, 600 * KIB), piece(5, 100 * KIB)]),
    ];
    let mut expected: BTreeMap<(u8, u32), Vec<u8>> = BTreeMap::new();
    for write in &writes {
        let bytes: Vec<u8> = write.data.iter().flat_map(|piece| piece.iter().copied()).collect();
        for (number, block) in bytes.chunks(BLOCK).enumerate() {
            expected.insert((write.strip as u8, (write.at / BLOCK + number) as u32), block.to_vec());
        }
    }
    let mut found = BTreeMap::new();
    let mut sizes = Vec::new();
    for record in repeated(key, &redo(slot(1), 9, 4, writes)) {
        let Record::Redo { volume, stripe, slot: at, generation, covers, digests, images } = record else { panic!() };
        assert_eq!((volume, stripe, at, generation, covers), (key.volume, 5, slot(1), 9, Lsn(4)));
        assert!(digests.is_empty());
        let mut size = 0;
        for image in images {
            let Image::Inline(data) = image.source else { panic!("the image refers to the log") };
            size += data.len();
            for (number, block) in data.chunks(BLOCK).enumerate() {
                assert_eq!(found.insert((image.strip, image.block + number as u32), block.to_vec()), None);
            }
        }
        sizes.push(size / KIB);
    }
    assert!(found == expected);
    assert_eq!(sizes, [200, 100, 256, 256, 188]);
}

/// Whose images lie over what: those of the slot and generation alone, of the strip, on units that
/// do not verify.
#[test]
fn images_lie_over_units_of_their_slot_that_do_not_verify() {
    let mut fixture = Fixture::new(6, 3, 1);
    let volume = fixture.create_volume(spec("a", "4+2", 1 << 20)).id;
    fixture.write(volume, 0, &pattern(1, 64 * KIB)).expect("written");
    let engine = Rc::clone(&fixture.pool.serving().expect("it is open").engine);
    let found = Rc::new(std::cell::RefCell::new(None));
    let (own, note) = (Rc::clone(&engine), Rc::clone(&found));
    engine.io.spawn(async move {
        let volume = own.volume(volume).expect("it is there");
        *note.borrow_mut() = own.locate(&volume, 0).await.expect("known");
    });
    fixture.idle();
    let of = found.borrow_mut().take().expect("the stripe has a slot");
    let zeros = |good: [bool; 3]| Units::of(Buffer::zeroed(3 * BLOCK), good.to_vec());
    let images = |slot: SlotId, generation: u64, strip: usize| {
        let data = vec![piece(7, BLOCK), piece(8, 2 * BLOCK)];
        redo(slot, generation, 1, vec![StripWrite { strip, at: 0, data }])
    };
    // The strip has four blocks; the last three are read.
    let lay = |list: &[Redo], good: [bool; 3]| {
        let mut read = zeros(good);
        let owes = lay_over(list, &of, 1, 1..4, &mut read);
        (owes, read.buffer.to_vec())
    };
    let both = pattern(8, 2 * BLOCK);
    let blocks = |parts: [&[u8]; 3]| parts.concat();
    let none = [0; BLOCK];
    let own = images(of.slot, of.generation, 1);
    assert_eq!(lay(&[], [false; 3]), (false, blocks([&none; 3])));
    let expected = blocks([&both[..BLOCK], &both[BLOCK..], &none]);
    assert!(lay(std::slice::from_ref(&own), [false; 3]) == (true, expected));
    let expected = blocks([&none, &both[BLOCK..], &none]);
    assert!(lay(std::slice::from_ref(&own), [true, false, false]) == (true, expected));
    let others = [
        images(SlotId { index: of.slot.index + 1, ..of.slot }, of.generation, 1),
        images(of.slot, of.generation + 1, 1),
        images(of.slot, of.generation, 0),
    ];
    assert!(lay(&others, [false; 3]) == (true, blocks([&none; 3])));
}

#[test]
fn a_block_is_on_its_strip_where_images_of_its_age_were_placed() {
    let mut redos = crate::state::redo::Redos::default();
    let key = StripeKey { volume: stele_ground::VolumeId(1), stripe: 5 };
    let write = StripWrite { strip: 2, at: BLOCK, data: vec![piece(1, BLOCK), piece(2, BLOCK)] };
    redos.keep(key, redo(slot(1), 9, 40, vec![write]));
    assert!(!redos.holds(key, 2, 1, Lsn(40)), "the strips have not taken it");
    redos.note_placed(key, 0);
    let held = |strip: usize, block: usize, lsn: u64| redos.holds(key, strip, block, Lsn(lsn));
    assert!(held(2, 1, 40) && held(2, 2, 39));
    assert!(!held(2, 0, 40) && !held(2, 3, 40) && !held(1, 1, 40) && !held(2, 1, 41));
}
