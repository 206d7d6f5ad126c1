use super::*;
use crate::Inode;
use bytes::Bytes;

fn file(kind: Kind, seconds: i64) -> Attributes {
    let moment = Moment { seconds, nanoseconds: 9 };
    Attributes {
        inode: Inode(0x55),
        kind,
        mode: 0o4755,
        links: 2,
        uid: 3,
        gid: 4,
        size: 5,
        used: 4096,
        accessed: moment,
        modified: moment,
        changed: moment,
        change: 1,
    }
}

fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks(4).map(|word| u32::from_be_bytes(word.try_into().unwrap())).collect()
}

#[test]
fn attributes_have_21_words() {
    let mut out = Vec::new();
    put(&mut out, 7, &file(Kind::BlockDevice { major: 8, minor: 1 }, 100));
    assert_eq!(out.len(), ATTRIBUTES);
    let times = [100, 9, 100, 9, 100, 9];
    let expected = [3, 0o4755, 2, 3, 4, 0, 5, 0, 4096, 8, 1, 0, 7, 0, 0x55];
    assert_eq!(words(&out), [&expected[..], &times].concat());
}

#[test]
fn kinds_have_their_numbers() {
    let device = |major, minor| (major, minor);
    let (major, minor) = device(1, 2);
    for (kind, expected) in [
        (Kind::File, 1),
        (Kind::Directory, 2),
        (Kind::BlockDevice { major, minor }, 3),
        (Kind::CharacterDevice { major, minor }, 4),
        (Kind::Link, 5),
        (Kind::Socket, 6),
        (Kind::Pipe, 7),
    ] {
        let mut out = Vec::new();
        put(&mut out, 7, &file(kind, 0));
        assert_eq!(words(&out)[0], expected);
    }
}

#[test]
fn a_time_that_the_wire_cannot_hold_is_the_nearest() {
    let (first, last) = ([0, 0], [u32::MAX, 999_999_999]);
    for (seconds, expected) in [(-1, first), (i64::MIN, first), (1 << 31, [1 << 31, 9]), (1 << 40, last)] {
        let mut out = Vec::new();
        put(&mut out, 7, &file(Kind::File, seconds));
        assert_eq!(words(&out)[15..17], expected, "{seconds}");
    }
}

fn parse(words: &[u32]) -> Result<Changes, Malformed> {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
    changes(&mut Reader::new(Bytes::from(bytes)))
}

#[test]
fn changes_are_those_that_are_marked() {
    assert_eq!(parse(&[0; 6]), Ok(Changes::default()));
    let all = parse(&[1, 0o170644, 1, 2, 1, 3, 1, 0, 4, 1, 2, 5, 6]).unwrap();
    let expected = Changes {
        mode: Some(0o644),
        uid: Some(2),
        gid: Some(3),
        size: Some(4),
        accessed: Some(SetTime::Now),
        modified: Some(SetTime::At(Moment { seconds: 5, nanoseconds: 6 })),
    };
    assert_eq!(all, expected);
}

#[test]
fn changes_that_cannot_be_are_malformed() {
    for words in [&[2, 0, 0, 0, 0, 0][..], &[0, 0, 0, 0, 3, 0], &[0, 0, 0, 0, 2, 1, 1_000_000_000, 0], &[0; 5]] {
        assert_eq!(parse(words), Err(Malformed), "{words:?}");
    }
}
