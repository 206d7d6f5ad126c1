//! A dull version of the fuzz target: bytes of chance, and right records with bytes changed.

use stele_ground::Dice;

use super::*;
use crate::testing::spec as volume_spec;

#[test]
fn no_bytes_make_the_parsers_of_the_tables_panic() {
    let mut dice = Dice::new(11);
    let mut right = vec![0; 512];
    let described = volume_spec("a volume", "8+2", 1 << 30);
    spec::encode(&described, &mut Writer::new(&mut right));
    assert!(volume(&right));
    let mut decoded = 0;
    for _ in 0..20_000 {
        let mut bytes = vec![0; dice.below(600) as usize];
        dice.fill(&mut bytes);
        root(&bytes);
        row(&bytes);
        let mut changed = right.clone();
        for _ in 0..1 + dice.below(3) {
            changed[dice.below(60) as usize] = dice.below(256) as u8;
        }
        decoded += u64::from(volume(&changed));
        // Present, of kind 1, with a code of chance.
        let mut record = vec![1, 0, 0, 0, 3, 0, 0, 0, 7, 0, 0, 0, 1];
        record.extend([dice.below(18) as u8, dice.below(5) as u8, dice.below(20) as u8]);
        record.extend((1u64 << dice.below(32)).to_le_bytes());
        record.extend((1u64 << dice.below(32)).to_le_bytes());
        record.extend(&bytes);
        row(&record);
        pages(&bytes, &shape_of(&changed), dice.below(1000) as u32);
    }
    assert!(decoded > 1_000, "{decoded}");
}
