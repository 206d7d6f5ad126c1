use std::collections::BTreeMap;

use stele_ground::Dice;

use super::*;

/// An id of this part and fingerprint.
fn id(part: u8, print: u32) -> [u8; 32] {
    let mut id = [0; 32];
    id[0] = part;
    id[8..12].copy_from_slice(&print.to_le_bytes());
    id
}

/// Checks what the comment of the module says of the parts.
fn check(table: &Table) {
    for part in &table.parts {
        assert_eq!(part.prints.len(), part.numbers.len());
        assert_eq!(part.prints.iter().filter(|print| **print != 0).count(), part.used);
        let taken: Vec<(usize, u32)> =
            part.prints.iter().copied().enumerate().filter(|(_, print)| *print != 0).collect();
        assert!(taken.is_sorted_by_key(|(_, print)| *print));
        for (at, print) in taken {
            // Between its place and where it is there is no gap.
            let place = part.place(print);
            assert!(place <= at && part.prints[place..at].iter().all(|there| *there != 0), "{print} at {at}");
        }
    }
}

/// Adds what `draw` draws, and compares with a map.
fn compare(entries: u32, mut draw: impl FnMut(&mut Dice) -> [u8; 32]) -> Table {
    let (mut table, mut twin, mut dice) = (Table::new(), BTreeMap::<[u8; 32], Vec<u32>>::new(), Dice::new(7));
    for number in 1..=entries {
        let id = draw(&mut dice);
        table.insert(&id, number);
        twin.entry(id).or_default().push(number);
        // What was added just now is found, whatever moved for it.
        assert!(table.find(&id).any(|found| found == number), "{number}");
    }
    check(&table);
    assert_eq!(table.len(), entries as usize);
    for (id, numbers) in &twin {
        assert_eq!(table.find(id).collect::<Vec<u32>>(), *numbers, "{id:?}");
    }
    for _ in 0..entries {
        let id = draw(&mut dice);
        assert_eq!(table.find(&id).next().is_some(), twin.contains_key(&id), "{id:?}");
    }
    table
}

#[test]
fn a_table_finds_what_a_map_finds() {
    let random = |dice: &mut Dice| id(dice.below(4) as u8, 1 + dice.below(u64::from(u32::MAX)) as u32);
    compare(200_000, random);
    // Few fingerprints, each of them often, and side by side.
    compare(20_000, |dice| id(0, 1 + dice.below(300) as u32));
    compare(20_000, |dice| id(0, 1 + (dice.below(1 << 7) << 20) as u32));
    // The greatest ones, which have no room behind them.
    compare(20_000, |dice| id(0, u32::MAX - dice.below(3000) as u32));
    compare(20_000, |dice| id(dice.below(2) as u8, u32::MAX - (dice.below(8) << 27) as u32));
}

#[test]
fn an_id_without_a_fingerprint_is_found() {
    let mut table = Table::new();
    table.insert(&id(3, 0), 5);
    assert_eq!(table.find(&id(3, 0)).collect::<Vec<u32>>(), [5]);
    // It looks like its neighbour, as any two may.
    assert_eq!(table.find(&id(3, 1)).count(), 1);
    assert_eq!(table.find(&id(3, 2)).count() + table.find(&id(2, 0)).count(), 0);
}

#[test]
fn numbers_of_all_their_bits_are_kept() {
    let (mut table, most) = (Table::new(), (1 << NUMBER_BITS) - 1);
    table.insert(&id(0, 1), most);
    table.insert(&id(255, u32::MAX), most - 1);
    assert_eq!(table.find(&id(0, 1)).chain(table.find(&id(255, u32::MAX))).collect::<Vec<u32>>(), [most, most - 1]);
}

#[test]
fn an_entry_takes_at_most_seven_and_a_half_bytes() {
    let (mut table, mut dice) = (Table::new(), Dice::new(1));
    for number in 1..=1_000_000 {
        let mut random = [0; 32];
        dice.fill(&mut random);
        table.insert(&random, number);
        if number % 1000 == 0 && number >= 500_000 {
            assert!(table.bytes() * 2 <= table.len() * 15, "{} bytes for {number}", table.bytes());
        }
    }
    check(&table);
}

#[test]
fn equal_ids_take_at_most_twice_the_memory_of_others() {
    let mut table = Table::new();
    for number in 1..=10_000 {
        table.insert(&id(0, u32::MAX), number);
    }
    check(&table);
    assert!(table.bytes() <= 10_000 * 15, "{} bytes", table.bytes());
}
