use super::*;

#[test]
fn a_version_id_survives_its_text_and_nothing_else_parses() {
    for id in [VersionId::Null, VersionId::Number(0, 0), VersionId::Number(u64::MAX, 7)] {
        assert_eq!(VersionId::parse(&id.to_string()), Ok(id));
    }
    for text in ["", "NULL", "0", "000000000000000000000000000000zz", "+0000000000000000000000000000001", "ü"] {
        assert!(VersionId::parse(text).is_err(), "{text}");
    }
}

#[test]
fn an_entity_tag_survives_its_text() {
    let check = |tag: ETag| {
        assert_eq!(ETag::parse(&tag.to_string()), Some(tag));
        assert_eq!(ETag::parse(&format!("\"{tag}\"")), Some(tag));
    };
    check(ETag { md5: [0xAB; 16], parts: None });
    check(ETag { md5: [1; 16], parts: Some(10_000) });
    for text in ["", "*", "abc", "\"0123\"-1", "000102030405060708090a0b0c0d0e0f-x"] {
        assert_eq!(ETag::parse(text), None, "{text}");
    }
}
