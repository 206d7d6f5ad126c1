use super::*;

fn of(algorithm: Algorithm, data: &[u8]) -> Checksum {
    let mut hashes = Hashes::new(&Lanes::fastest(), Wanted { md5: true, others: vec![algorithm] });
    hashes.update(data);
    hashes.finish().checksums.remove(0)
}

#[test]
fn published_check_values_come_out() {
    let check = |algorithm, hex: &str| assert_eq!(to_hex(&of(algorithm, b"123456789").value), hex, "{algorithm:?}");
    check(Algorithm::Crc32, "cbf43926");
    check(Algorithm::Crc32c, "e3069283");
    check(Algorithm::Crc64Nvme, "ae8b14860a799888");
    check(Algorithm::Sha1, "f7c3bc1d808e04732adf679965ccc34ca7ae3441");
    check(Algorithm::Sha256, "15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225");
}

#[test]
fn base64_matches_the_rfc_and_refuses_the_rest() {
    let check = |plain: &str, text: &str| {
        assert_eq!(to_base64(plain.as_bytes()), text);
        assert_eq!(from_base64(text).as_deref(), Some(plain.as_bytes()));
    };
    for (plain, text) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")] {
        check(plain, text);
    }
    for text in ["Zg=", "Zg", "Z===", "Zm9*", "Zh==", "===="] {
        assert_eq!(from_base64(text), None, "{text}");
    }
}

#[test]
fn joined_crcs_equal_the_crc_of_the_whole() {
    let whole: Vec<u8> = (0..100_000u32).map(|i| ((i * 7) >> 3) as u8).collect();
    for algorithm in [Algorithm::Crc32, Algorithm::Crc32c, Algorithm::Crc64Nvme] {
        let parts: Vec<(Checksum, u64)> = [&whole[..1], &whole[1..70_000], &whole[70_000..]]
            .iter()
            .map(|part| (of(algorithm, part), part.len() as u64))
            .collect();
        let borrowed: Vec<(&Checksum, u64)> = parts.iter().map(|(sum, length)| (sum, *length)).collect();
        assert_eq!(joined(algorithm, &borrowed), Some(of(algorithm, &whole)), "{algorithm:?}");
    }
    assert_eq!(joined(Algorithm::Sha256, &[]), None);
}

#[test]
fn a_wrong_digest_is_named() {
    let mut hashes = Hashes::new(&Lanes::fastest(), Wanted { md5: true, others: vec![Algorithm::Crc32c] });
    hashes.gather(Bytes::from_static(b"content"));
    hashes.update(b"content");
    let digests = hashes.finish();
    assert_eq!(digests.verify(&Expected::default()), Ok(()));
    let wrong = Expected { md5: Some([0; 16]), ..Expected::default() };
    assert!(matches!(digests.verify(&wrong), Err(ArchiveError::BadDigest { algorithm: "MD5", .. })));
    let wrong = Expected { blake3: Some([0; 32]), ..Expected::default() };
    assert!(matches!(digests.verify(&wrong), Err(ArchiveError::BadDigest { algorithm: "BLAKE3", .. })));
    let wrong = Expected { checksums: vec![of(Algorithm::Crc32c, b"other")], ..Expected::default() };
    assert!(matches!(digests.verify(&wrong), Err(ArchiveError::BadDigest { algorithm: "CRC32C", .. })));
    let late = Expected { checksums: vec![of(Algorithm::Sha1, b"content")], ..Expected::default() };
    assert!(matches!(digests.verify(&late), Err(ArchiveError::InvalidRequest(_))));
}

#[test]
fn a_content_without_an_md5_has_a_tag_that_no_client_takes_for_one() {
    let mut hashes = Hashes::new(&Lanes::fastest(), Wanted { md5: false, others: Vec::new() });
    hashes.gather(Bytes::from_static(b"content"));
    hashes.update(b"content");
    let digests = hashes.finish();
    let named = Expected { blake3: Some(*blake3::hash(b"content").as_bytes()), ..Expected::default() };
    assert_eq!((digests.verify(&named), digests.md5), (Ok(()), None));
    let text = digests.etag().to_string();
    assert_eq!(text, format!("{}-0", to_hex(&blake3::hash(b"content").as_bytes()[..16])));
    assert_eq!(ETag::parse(&text), Some(digests.etag()));
    assert!(digests.etag().is_of_blake3());
    // An MD5 that was expected, and that was not computed, is no agreement.
    let late = Expected { md5: Some([0; 16]), ..named };
    assert!(matches!(digests.verify(&late), Err(ArchiveError::InvalidRequest(_))));
}

#[test]
fn hexadecimal_digits_are_read_exactly() {
    let all: Vec<u8> = (0..=255).collect();
    assert_eq!(from_hex(&to_hex(&all)), Some(all.clone()));
    assert_eq!(from_hex(&to_hex(&all).to_uppercase()), Some(all));
    for wrong in ["0", "0g", "g0", "0 ", " 0", "é", "é0", "+1", "00 00", "0x"] {
        assert_eq!(from_hex(wrong), None, "{wrong}");
    }
    let mut two = [0; 2];
    for (text, holds) in
        [("0a1f", true), ("0A1f", false), ("0a1F", false), ("0a1", false), ("0a", false), ("0a1f00", false)]
    {
        assert_eq!(hex_into(text, &mut two, false), holds, "{text}");
    }
    assert_eq!(from_hex(""), Some(Vec::new()));
}
