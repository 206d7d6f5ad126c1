use super::*;

fn keys(byte: u8) -> Keys {
    Keys::new(Zeroizing::new([byte; 32]))
}

#[test]
fn ids_depend_on_key_kind_and_content() {
    let (first, second) = (keys(1), keys(2));
    let id = first.id(Kind::Content, b"content");
    assert_eq!(id, keys(1).id(Kind::Content, b"content"));
    assert_ne!(id, first.id(Kind::Content, b"contenu"));
    assert_ne!(id, first.id(Kind::Tree, b"content"));
    assert_ne!(id, second.id(Kind::Content, b"content"));
}

#[test]
fn only_the_same_key_number_and_data_open() {
    let keys = keys(1);
    let key = keys.sealing("purpose", &[7; 32]);
    let mut sealed = b"content".to_vec();
    let tag = key.seal(3, b"bound", &mut sealed).unwrap();
    sealed.extend_from_slice(&tag);
    let check = |key: SealingKey, number, bound: &[u8], opens: bool| {
        assert_eq!(key.open(number, bound, &mut sealed.clone()).is_some(), opens, "{number} {bound:?}");
    };
    check(keys.sealing("purpose", &[7; 32]), 3, b"bound", true);
    check(keys.sealing("purpose", &[7; 32]), 4, b"bound", false);
    check(keys.sealing("purpose", &[7; 32]), 3, b"round", false);
    check(keys.sealing("purpose", &[8; 32]), 3, b"bound", false);
    check(keys.sealing("another", &[7; 32]), 3, b"bound", false);
    check(super::tests::keys(2).sealing("purpose", &[7; 32]), 3, b"bound", false);
}

#[test]
fn hexadecimal_digits_read_back() {
    assert_eq!(from_hex(&hex(&[0, 0x9f, 0xff])), Some([0, 0x9f, 0xff]));
    for wrong in ["", "00", "0g9fff", "009FFF", "009fff0", "009fff00"] {
        assert_eq!(from_hex::<3>(wrong), None, "{wrong}");
    }
}
