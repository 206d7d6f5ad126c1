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

#[test]
fn known_answers_of_xxh3() {
    assert_eq!(fingerprint(b""), 0x2D06_8005_38D3_94C2);
    let zeros = fingerprint(&[0; 4096]);
    assert_ne!(zeros as u32, 0);
    assert_ne!(zeros, fingerprint(&[0; 4095]));
}

#[test]
fn a_checksum_within_the_data_does_not_hide_a_change() {
    let version = |number: u64| {
        let mut block = vec![7; 4096];
        block[..8].copy_from_slice(&number.to_le_bytes());
        let own = crc32c(&block[..8]);
        block[8..12].copy_from_slice(&own.to_le_bytes());
        block
    };
    let (one, two) = (version(1), version(2));
    assert_eq!(crc32c(&one), crc32c(&two), "which is why no CRC tells them apart");
    assert_ne!(bind_fingerprint(fingerprint(&one), 5), bind_fingerprint(fingerprint(&two), 5));
    assert_ne!(bind_fingerprint(fingerprint(&one), 5), bind_fingerprint(fingerprint(&one), 6));
}
