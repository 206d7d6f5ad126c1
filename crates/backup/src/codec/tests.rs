use stele_ground::Dice;

use super::*;

#[test]
fn numbers_and_strings_read_back() {
    let mut dice = Dice::new(1);
    for _ in 0..1000 {
        let number = dice.roll() >> dice.below(64);
        let (signed, text) = (dice.roll() as i64 >> dice.below(64), crate::testing::random(dice.roll(), 5));
        let mut bytes = Vec::new();
        put_varint(&mut bytes, number);
        put_signed(&mut bytes, signed);
        put_bytes(&mut bytes, &text);
        let mut decoder = Decoder::new(&bytes, "test");
        assert_eq!(decoder.varint(), Ok(number));
        assert_eq!(decoder.signed(), Ok(signed));
        assert_eq!(decoder.bytes(5), Ok(text.as_slice()));
        assert_eq!(decoder.end(), Ok(()));
        for length in 0..bytes.len() {
            let mut short = Decoder::new(&bytes[..length], "test");
            let read = short.varint().and_then(|_| short.signed()).and_then(|_| short.bytes(5).map(drop));
            assert!(read.is_err(), "{length} of {bytes:?}");
        }
    }
}

#[test]
fn limits_hold() {
    let check = |bytes: &[u8], read: fn(&mut Decoder<'_>) -> bool| {
        assert!(!read(&mut Decoder::new(bytes, "test")), "{bytes:?}")
    };
    // 65 bits, eleven bytes, a string and a count beyond their limits.
    check(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2], |d| d.varint().is_ok());
    check(&[0x80; 11], |d| d.varint().is_ok());
    check(&[3, 1, 2, 3], |d| d.bytes(2).is_ok());
    check(&[9, 1, 2, 3], |d| d.bytes(20).is_ok());
    check(&[2, 1, 2, 3], |d| d.count(2).is_ok());
    check(&[5], |d| d.up_to(4).is_ok());
    check(&[0], |d| d.end().is_ok());
}
