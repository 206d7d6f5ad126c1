use super::*;

#[test]
fn known_answers_of_rfc_3720() {
    assert_eq!(crc32c(&[0; 32]), 0x8A91_36AA);
    assert_eq!(crc32c(&[0xFF; 32]), 0x62A8_AB43);
    let rising: Vec<u8> = (0..32).collect();
    assert_eq!(crc32c(&rising), 0x46DD_794E);
}

#[test]
fn equal_bytes_in_another_place_do_not_verify() {
    let data = [7u8; 4096];
    assert_ne!(bound(&data, 1), bound(&data, 2));
    assert_ne!(context(1, 2), context(2, 1));
}
