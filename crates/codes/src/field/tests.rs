use super::*;

/// The product by carry-less multiplication of polynomials and long division.
fn long_way(left: u8, right: u8) -> u8 {
    let mut product = (0..8).filter(|bit| right >> bit & 1 == 1).fold(0u32, |sum, bit| sum ^ (u32::from(left) << bit));
    for bit in (8..16).rev() {
        if product >> bit & 1 == 1 {
            product ^= 0x11D << (bit - 8);
        }
    }
    product as u8
}

#[test]
fn products_are_those_of_polynomials_modulo_0x11d() {
    for left in 0..=255 {
        for right in 0..=255 {
            assert_eq!(multiply(left, right), long_way(left, right), "{left} times {right}");
        }
    }
}

#[test]
fn two_generates_every_nonzero_element() {
    let mut seen = [false; 256];
    for exponent in 0..255 {
        let value = power(2, exponent) as usize;
        assert!(!seen[value], "2^{exponent} repeats {value}");
        seen[value] = true;
    }
    assert!(!seen[0]);
}

#[test]
fn every_nonzero_element_has_an_inverse() {
    assert_eq!(inverse(0), None);
    for value in 1..=255 {
        assert_eq!(inverse(value).map(|inverse| multiply(value, inverse)), Some(1), "{value}");
    }
}

#[test]
fn tables_hold_the_products() {
    for coefficient in 0..=255u8 {
        let [low, high] = NIBBLES[coefficient as usize];
        let matrix = AFFINE[coefficient as usize].to_be_bytes();
        for value in 0..=255u8 {
            let product = multiply(coefficient, value);
            assert_eq!(low[(value & 15) as usize] ^ high[(value >> 4) as usize], product);
            let affine = (0..8).fold(0u8, |sum, bit| sum | (((matrix[bit] & value).count_ones() & 1) as u8) << bit);
            assert_eq!(affine, product, "{coefficient} times {value}");
        }
    }
}
