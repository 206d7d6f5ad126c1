use super::*;

#[test]
fn only_the_version_that_was_answered_last_is_right() {
    let versions = Versions::new(Bytes(1 << 20), 4096).unwrap();
    let (at, length) = (8192, 8192);
    assert_eq!(versions.check(at, 77), Ok(()), "nothing is known of it yet");
    let mut past = Vec::new();
    for _ in 0..70_000 {
        let word = versions.next(at);
        versions.answered(at, length);
        assert_eq!(versions.check(at, word), Ok(()));
        assert_eq!(versions.check(at + 4096 + 512, word), Ok(()));
        past.push(word);
        // Of the last three, the two older ones are wrong.
        for older in past.iter().rev().skip(1).take(2) {
            assert!(versions.check(at, *older).unwrap_err().contains("is lost"));
        }
    }
    let foreign = Versions { run: versions.run ^ 1, unit: 4096, entries: Vec::new() }.word(1);
    assert!(versions.check(at, foreign).unwrap_err().contains("before this run"));
    assert_eq!(versions.check(0, foreign), Ok(()));
}

#[test]
fn units_divide_every_access_and_the_table_has_a_limit() {
    for (step, unit) in [(512, 512), (4096, 4096), (65536, 4096), (1536, 512), (0, 512), (12288, 4096)] {
        assert_eq!(Versions::new(Bytes(1 << 20), step).unwrap().unit, unit, "{step}");
    }
    let error = Versions::new(Bytes(1 << 40), 512).unwrap_err().to_string();
    assert!(error.contains("--size") && error.contains("4 GiB"), "{error}");
    assert!(Versions::new(Bytes(1 << 40), 4096).is_ok());
}
