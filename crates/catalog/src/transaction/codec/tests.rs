use stele_ground::Dice;

use super::*;
use crate::suite::draw;

/// The rules that hold for any bytes; the fuzz target calls the same function.
fn judge(bytes: &[u8]) -> bool {
    match Transaction::decode(bytes) {
        Ok(read) => {
            let again = read.encode();
            assert!(again.len() <= bytes.len() && Transaction::decode(&again) == Ok(read));
            true
        }
        Err(error) => {
            assert!(matches!(error, CatalogError::Invalid(_)), "{error}");
            false
        }
    }
}

#[test]
fn what_is_encoded_is_decoded() {
    let mut dice = Dice::new(1);
    for _ in 0..2000 {
        let drawn = draw(&mut dice);
        assert_eq!(Transaction::decode(&drawn.encode()), Ok(drawn));
    }
}

#[test]
fn mangled_bytes_are_refused_or_mean_something() {
    let (mut dice, mut taken) = (Dice::new(2), 0);
    for _ in 0..20_000 {
        let mut bytes = draw(&mut dice).encode();
        for _ in 0..=dice.below(3) {
            let at = dice.below(bytes.len() as u64) as usize;
            match dice.below(4) {
                0 => bytes.truncate(at.max(1)),
                1 => bytes.insert(at, dice.roll() as u8),
                2 => bytes[at] ^= 1 << dice.below(8),
                _ => bytes[at] = dice.roll() as u8,
            }
        }
        taken += u32::from(judge(&bytes));
    }
    assert!((1000..19_000).contains(&taken), "{taken} of 20000 were taken");
}

#[test]
fn claims_beyond_the_limits_cost_nothing() {
    // An array of 2^62 elements, and bytes of that length.
    for claim in [&b"\x83\x00\x9b\x40\0\0\0\0\0\0\0"[..], b"\x83\x00\x80\x81\x84\x00\x01\x5b\x40\0\0\0\0\0\0\0"] {
        assert!(!judge(claim));
    }
    let mut long = Transaction::new().put(Table(1), "k", vec![0; crate::VALUE_MAX + 1]);
    assert!(!judge(&long.encode()));
    long = (0..STEPS_MAX as u32 + 1).fold(Transaction::new(), |t, _| t.delete(Table(1), ""));
    assert!(!judge(&long.encode()));
}

#[test]
fn the_bounds_of_a_range_are_limited_like_keys() {
    let longest = vec![1; crate::KEY_MAX];
    let empty = |low: Vec<u8>, high: Vec<u8>| Transaction::new().empty(Table(1), KeyRange::between(low, high));
    assert!(judge(&empty(longest.clone(), longest.clone()).encode()));
    for (low, high) in [(vec![0; 8 << 20], vec![1]), (vec![0], vec![1; crate::KEY_MAX + 1])] {
        assert!(!judge(&empty(low, high).encode()));
    }
    assert_eq!(empty(longest.clone(), vec![1]).size(), longest.len() + 1);
    // Together they are limited like all keys.
    let many = (0..600)
        .fold(Transaction::new(), |many, _| many.empty(Table(1), KeyRange::between(longest.clone(), longest.clone())));
    assert!(!judge(&many.encode()));
}
