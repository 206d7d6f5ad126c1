use super::*;
use crate::testing::Stage;

#[test]
fn sealed_bytes_open_only_unchanged_in_their_place() {
    let key = SealingKey::new(&[7; 32]);
    let mut data = b"a frame".to_vec();
    let tag = key.seal(3, b"place", &mut data);
    assert_ne!(data, b"a frame");
    let check = |number, bound: &[u8], flip: Option<usize>, good: bool| {
        let mut data = data.clone();
        if let Some(at) = flip {
            data[at] ^= 1;
        }
        assert_eq!(key.open(number, bound, &mut data, &tag).is_ok(), good);
        assert_eq!(data == b"a frame", good);
    };
    check(3, b"place", None, true);
    check(4, b"place", None, false);
    check(3, b"other", None, false);
    check(3, b"place", Some(6), false);
}

#[test]
fn a_wrapped_key_unwraps_only_for_its_purpose() {
    let stage = Stage::new(1);
    let key = SealingKey::new(&[7; 32]);
    let wrapped = key.wrap(stage.as_ref(), b"object 1", &[9; 32]);
    assert_eq!(key.unwrap(b"object 1", &wrapped).map(|secret| *secret), Ok([9; 32]));
    assert!(key.unwrap(b"object 2", &wrapped).is_err());
    assert!(SealingKey::new(&[8; 32]).unwrap(b"object 1", &wrapped).is_err());
    assert!(key.unwrap(b"object 1", &wrapped[1..]).is_err());
}

#[test]
fn a_note_opens_only_under_its_key_and_place() {
    let stage = Stage::new(1);
    let sealed = seal_note(stage.as_ref(), &[1; 32], b"bound", b"note");
    assert_eq!(sealed.len(), 16 + 4 + TAG);
    assert_eq!(open_note(&[1; 32], b"bound", &sealed).as_deref(), Ok(b"note".as_slice()));
    assert!(open_note(&[2; 32], b"bound", &sealed).is_err());
    assert!(open_note(&[1; 32], b"", &sealed).is_err());
    assert!(open_note(&[1; 32], b"bound", &sealed[..20]).is_err());
}
