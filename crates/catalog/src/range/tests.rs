use super::*;

#[test]
fn a_prefix_holds_exactly_the_keys_that_start_with_it() {
    let keys: [&[u8]; 8] = [b"", b"a", b"a\xff", b"a\xff\xff\x01", b"b", b"\xff", b"\xff\xff", b"\xff\xff\x00"];
    for prefix in keys {
        let range = KeyRange::prefix(prefix.to_vec());
        for key in keys {
            assert_eq!(range.contains(key), key.starts_with(prefix), "{key:?} in {prefix:?}");
        }
    }
}

#[test]
fn a_void_range_is_known_as_one() {
    let check = |range: KeyRange, void: bool| assert_eq!(range.is_void(), void, "{range:?}");
    check(KeyRange::all(), false);
    check(KeyRange::between(&b"a"[..], &b"b"[..]), false);
    check(KeyRange::between(&b"a"[..], &b"a"[..]), true);
    check(KeyRange::between(&b"b"[..], &b"a"[..]), true);
    check(KeyRange::prefix(&b"a"[..]).after(&b"b"[..]), true);
    check(KeyRange::prefix(&b"a"[..]).after(&b"ab"[..]), false);
    check(KeyRange::all().below(&b""[..]), true);
}
