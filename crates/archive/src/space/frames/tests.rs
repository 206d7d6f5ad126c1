use super::*;

#[test]
fn a_frame_opens_only_as_itself() {
    let key = StreamKey::new(&[1; 32], 5, 6, &[2; 16]);
    let mut sealed = vec![0xAA; 1000];
    let tag = key.seal(3, &mut sealed);
    sealed.extend_from_slice(&tag);
    let check = |key: &StreamKey, number, bytes: &[u8], good: bool| {
        let mut bytes = bytes.to_vec();
        assert_eq!(key.open(number, &mut bytes).is_ok(), good);
        assert!(!good || bytes[..1000] == [0xAA; 1000]);
    };
    check(&key, 3, &sealed, true);
    check(&key, 2, &sealed, false);
    check(&key, 3, &sealed[1..], false);
    check(&key, 3, &sealed[..10], false);
    check(&StreamKey::new(&[1; 32], 4, 6, &[2; 16]), 3, &sealed, false);
    check(&StreamKey::new(&[1; 32], 5, 7, &[2; 16]), 3, &sealed, false);
    check(&StreamKey::new(&[1; 32], 5, 6, &[3; 16]), 3, &sealed, false);
    check(&StreamKey::new(&[9; 32], 5, 6, &[2; 16]), 3, &sealed, false);
}

#[test]
fn sealed_lengths_are_undone() {
    for content in [0, 1, FRAME - 1, FRAME, FRAME + 1, 16 * FRAME, 16 * FRAME + 5] {
        assert_eq!(content_length(sealed_length(content)), content);
    }
}
