use super::*;

fn wrapped() -> (Secret, WrappedKey) {
    let secret = Zeroizing::new([5; 32]);
    let key = WrappedKey::new(&secret, b"password", "label", Cost::LEAST, [6; 32]).unwrap();
    (secret, key)
}

#[test]
fn only_the_password_opens_a_key() {
    let (secret, key) = wrapped();
    let key = WrappedKey::decode(&key.encode()).unwrap();
    assert_eq!(key.label, "label");
    assert_eq!(key.open(b"password"), Ok(Some(secret)));
    assert_eq!(key.open(b"passwort"), Ok(None));
    assert!(WrappedKey::new(&Zeroizing::new([5; 32]), b"", "label", Cost::LEAST, [6; 32]).is_err());
}

#[test]
fn every_changed_byte_of_a_key_is_noticed() {
    let (_, key) = wrapped();
    let bytes = key.encode();
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 1;
        let opened = WrappedKey::decode(&changed).map(|key| key.open(b"password"));
        assert!(!matches!(opened, Ok(Ok(Some(_)))), "byte {at}");
        assert!(WrappedKey::decode(&bytes[..at]).is_err(), "{at} bytes");
    }
}

#[test]
fn a_key_cannot_ask_for_all_memory() {
    let (_, key) = wrapped();
    let mut bytes = key.encode();
    bytes[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(WrappedKey::decode(&bytes).unwrap().open(b"password").is_err());
}

#[test]
fn an_escrow_reads_back_and_a_wrong_digit_is_noticed() {
    let secret = Zeroizing::new([0xa5; 32]);
    let text = escrow(&[1; 16], &secret);
    assert_eq!(parse_escrow(&text), Ok(([1; 16], secret)));
    let wrong = text.replacen('a', "b", 3);
    assert!(parse_escrow(&wrong).is_err());
    assert!(parse_escrow("").is_err());
    assert!(parse_escrow(&text[..text.len() - 12]).is_err());
}
