use super::*;
use crate::model::place::RowId;
use stele_ground::Dice;

fn entry(dice: &mut Dice) -> Entry {
    let place = PagePlace { row: RowId(dice.below(500) as u32), index: dice.below(65_536) as u32 };
    Entry::new(place, dice.roll() as u32, dice.below(9) as u32)
}

/// A million pages in a map of pages is the dull twin.
#[test]
fn a_million_pages_agree_with_a_plain_map_and_come_back() {
    let mut dice = Dice::new(1);
    let mut directory = Directory::default();
    let mut twin: BTreeMap<PageId, Entry> = BTreeMap::new();
    for _ in 0..1_000_000 {
        let id = PageId { table: dice.below(3) as u32, index: dice.below(600_000) as u32 };
        directory.ensure((id.table, id.index / CHUNK as u32));
        let entry = entry(&mut dice);
        assert_eq!(directory.set(id, entry), twin.insert(id, entry).unwrap_or_default());
    }
    let gone = directory.forget(1);
    let expected = twin.keys().filter(|id| id.table == 1).count();
    assert_eq!(gone.len(), expected, "no chunk was stored itself");
    twin.retain(|id, _| id.table != 1);
    assert_eq!(directory.count(), twin.len() as u64);
    assert_eq!(directory.pages(0), twin.keys().filter(|id| id.table == 0).map(|id| id.index + 1).max().unwrap_or(0));
    assert_eq!(directory.pages(1), 0);

    // Through the stored form and back, as a checkpoint and an opening do it.
    let keys: Vec<(u32, u32)> = directory.chunks.keys().copied().collect();
    let stored: BTreeMap<(u32, u32), Entry> = keys.iter().map(|key| (*key, entry(&mut dice))).collect();
    let mut back = Directory::default();
    for page in 0..directory.index.len() as u32 {
        let listed = decode_index(directory.encode_index(page, &stored)).expect("an index page");
        for (at, key, entry) in listed {
            assert_eq!(stored.get(&key), Some(&entry));
            let chunk = directory.chunk(key).expect("listed");
            let entries = decode_chunk(chunk.encode_with(std::iter::empty())).expect("a chunk");
            back.restore(page * INDEX as u32 + at, key, entry, entries);
        }
    }
    assert_eq!(back.count(), directory.count());
    for (id, entry) in &twin {
        assert_eq!(back.entry(*id), *entry);
    }
    // A table made later takes over the slots that the forgotten one left.
    let slots = back.slots.len();
    back.ensure((7, 0));
    assert_eq!(back.slots.len(), slots.max(back.free_slots.len()));
}

#[test]
fn a_digest_knows_pool_name_and_checkpoint() {
    let page = [9; PAGE];
    let (pool, id) = (PoolId([1; 16]), PageId { table: 2, index: 3 });
    let digest = digest_of(pool, id, 4, &page);
    assert_ne!(digest, digest_of(PoolId([2; 16]), id, 4, &page));
    assert_ne!(digest, digest_of(pool, PageId { table: 3, index: 2 }, 4, &page));
    assert_ne!(digest, digest_of(pool, id, 5, &page));
    assert_eq!(digest, digest_of(pool, id, 4, &page));
}

/// Blocks that end with their own CRC-32C all have the same one, and so have pages of them.
#[test]
fn a_page_is_not_what_a_host_wrote_in_its_place_before() {
    let page = |seed: u8| -> Vec<u8> {
        let block = |number: u8| {
            let body = [seed ^ number; 4092];
            body.into_iter().chain(digest::crc32c(&body).to_le_bytes())
        };
        (0..(PAGE / 4096) as u8).flat_map(block).collect()
    };
    let (ours, before) = (page(1), page(64));
    let (pool, id) = (PoolId([1; 16]), PageId { table: 2, index: 4 });
    let place = PagePlace { row: RowId(1), index: 5 };
    let entry = Entry::new(place, digest_of(pool, id, 15, &ours), 15);
    assert!(verifies(pool, id, entry, &ours) && !verifies(pool, id, entry, &before));
    // An entry of a former version verifies still, and takes the one for the other.
    let former = Entry::new(place, digest::bound(&ours, context_of(pool, id, 15)), 15);
    assert!(verifies(pool, id, former, &ours) && verifies(pool, id, former, &before));
}

#[test]
fn a_chunk_takes_memory_for_the_pages_that_it_has() {
    let mut directory = Directory::default();
    let place = |index| PagePlace { row: RowId(1), index };
    for row in 0..100 {
        directory.ensure((row, 0));
        directory.set(PageId { table: row, index: 3 }, Entry::new(place(row), 5, 6));
    }
    let room = |directory: &Directory| directory.chunks.values().map(|chunk| chunk.entries.capacity()).sum::<usize>();
    assert!(room(&directory) <= 100 * STEP, "room for {} entries", room(&directory));
    let mut back = Directory::default();
    for (key, chunk) in &directory.chunks {
        let entries = decode_chunk(chunk.encode_with(std::iter::empty())).expect("a chunk");
        back.restore(chunk.slot, *key, chunk.stored, entries);
    }
    assert_eq!(room(&back), 100 * 4);
    // A page within what is there, and one behind it.
    for index in [0, CHUNK as u32 - 1] {
        back.set(PageId { table: 7, index }, Entry::new(place(index), 1, 2));
    }
    assert_eq!(back.pages(7), CHUNK as u32);
    assert_eq!(back.entry(PageId { table: 7, index: 3 }), directory.entry(PageId { table: 7, index: 3 }));
    assert_eq!(back.entry(PageId { table: 7, index: 4 }), Entry::default());
}
