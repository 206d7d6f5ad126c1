use super::*;

fn filled(content: Content, at: u64, length: usize) -> Vec<u8> {
    let mut source = content.source(Dice::new(3), None);
    let mut buffer = vec![0; length];
    source.prepare(&mut buffer);
    source.stamp(&mut buffer, at);
    buffer
}

#[test]
fn checked_data_is_recognised_and_every_change_of_a_byte_is_found() {
    let content = Content { verify: true, ..Content::default() };
    let good = filled(content, 8192, 1024);
    assert_eq!(check(content, None, &good, 8192), Ok(()));
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 0x10;
        assert!(check(content, None, &bad, 8192).is_err(), "a changed byte {at} was not found");
    }
}

#[test]
fn data_of_another_place_or_another_seed_is_found() {
    let content = Content { verify: true, ..Content::default() };
    let good = filled(content, 8192, 512);
    assert!(check(content, None, &good, 8704).is_err());
    assert!(check(Content { seed: 2, ..content }, None, &good, 8192).is_err());
}

#[test]
fn the_share_of_zeros_and_of_duplicates_is_what_was_asked_for() {
    let half = Content { compress_percent: 200, ..Content::default() };
    let zeros = filled(half, 0, 65536).iter().filter(|byte| **byte == 0).count();
    assert!((30_000..34_000).contains(&zeros), "{zeros} of 65536 bytes are zero");

    let mut source = Content { dedupe_percent: 400, ..Content::default() }.source(Dice::new(5), None);
    let mut buffer = vec![7; 4096];
    let mut seen = std::collections::HashSet::new();
    for number in 0..4000 {
        source.stamp(&mut buffer, number * 4096);
        seen.insert(buffer.clone());
    }
    // A quarter unique, the rest from a few.
    assert!((950..1200).contains(&seen.len()), "{} distinct of 4000", seen.len());
}
