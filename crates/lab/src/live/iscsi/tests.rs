use super::*;

#[test]
fn addresses_are_read_as_other_initiators_read_them_and_shown_without_the_secret() {
    let address = |text: &str| text.parse::<IscsiAddress>().unwrap();
    let plain = address("iscsi://host/iqn.2026-01.x:vm1/0");
    assert_eq!((plain.place.as_str(), plain.lun, plain.unit()), ("host:3260", 0, 0));
    let full = address("iscsi://me%a%20secret@127.0.0.1:5/iqn.2026-01.x:a/7?header_digest=crc32c&data_digest=crc32c");
    assert_eq!(full.chap, Some(("me".into(), "a secret".into())));
    assert_eq!((full.place.as_str(), full.unit()), ("127.0.0.1:5", 7 << 48));
    assert!(full.header_digest && full.data_digest);
    assert_eq!(full.to_string(), "iscsi://me@127.0.0.1:5/iqn.2026-01.x:a/7");
    assert_eq!(address("iscsi://host/iqn.2026-01.x:a/300").unit(), 0x412c << 48);
    for text in [
        "iscsi://",
        "iscsi://host",
        "iscsi://host/iqn.a",
        "iscsi://host/iqn.a/b",
        "iscsi://host/iqn.a/16384",
        "iscsi://me@host/iqn.a/0",
        "iscsi://host/iqn.a/0?x=1",
        "iscsi:///iqn.a/0",
    ] {
        let error = text.parse::<IscsiAddress>().unwrap_err().to_string();
        assert!(error.contains("iscsi://"), "{text}: {error}");
    }
}

#[test]
fn what_a_target_lacks_or_refuses_has_a_kind_of_its_own() {
    for (text, kind) in [
        (login::refusal(2, 3), LabError::Missing as fn(String) -> LabError),
        (login::refusal(2, 4), LabError::Missing),
        (login::refusal(2, 1), LabError::Refused),
        (login::refusal(2, 2), LabError::Refused),
        (login::refusal(3, 1), LabError::Failed),
        (sense::words(2, &[0, 18, 0x70, 0, 5, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x25, 0, 0, 0, 0, 0]), LabError::Missing),
    ] {
        assert_eq!(refused(text.clone()), kind(text));
    }
}

#[test]
fn sense_data_is_told_in_words() {
    let fixed = |key: u8, code: u8, qualifier: u8| {
        let mut sense = vec![0, 18, 0x70, 0, key];
        sense.resize(20, 0);
        (sense[14], sense[15]) = (code, qualifier);
        sense
    };
    for (data, words) in [
        (fixed(7, 0x27, 0), "data protect: it is write-protected (sense 7/27/00)"),
        (fixed(5, 0x21, 0), "illegal request: the place is beyond the end of the unit (sense 5/21/00)"),
        (
            vec![0, 8, 0x72, 3, 0x11, 0, 0, 0, 0, 0],
            "medium error: a read failed that cannot be repaired (sense 3/11/00)",
        ),
        (fixed(0xe, 0x55, 1), "miscompare (sense e/55/01)"),
        (vec![0, 18, 0x70], "the target reports an error, and not which one"),
        (vec![], "the target reports an error, and not which one"),
    ] {
        assert_eq!(sense::words(2, &data), words);
    }
    assert!(sense::is_passing(2, &fixed(6, 0x29, 0)) && sense::is_passing(0x28, &[]));
    assert!(!sense::is_passing(2, &fixed(5, 0x21, 0)) && !sense::is_passing(0x18, &[]));
}
