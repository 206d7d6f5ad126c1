use super::*;

#[test]
fn record_keys_sort_as_keys_do_and_split_again() {
    let keys =
        ["\0", "\0\0", "\0\u{1}", "\u{1}", "a", "a\0", "a\0b", "a\u{1}", "a/", "a/b", "ab", "b", "ä", "\u{10FFFF}"];
    for left in keys {
        for right in keys {
            let order = left.as_bytes().cmp(right.as_bytes());
            assert_eq!(version(1, left, 5).cmp(&version(1, right, 5)), order, "{left:?} {right:?}");
            if order.is_lt() {
                assert!(behind(1, left) < version(1, right, u64::MAX), "{left:?} {right:?}");
            }
        }
        assert!(version(1, left, 6) < version(1, left, 5));
        assert!(version(1, left, 0) < behind(1, left));
        assert!(version(1, left, 9).starts_with(&prefix(1, left)));
        assert_eq!(split(&version(7, left, 9)), Ok((7, left.to_string(), !9)));
    }
    for wrong in
        [&b""[..], b"\0\0\0\x01a", b"\0\0\0\x01a\0\0\0\x01\0\0\0\0\0\0\0\0", b"\0\0\0\x01\xFF\0\x01\0\0\0\0\0\0\0\0"]
    {
        assert!(split(wrong).is_err(), "{wrong:?}");
    }
}
