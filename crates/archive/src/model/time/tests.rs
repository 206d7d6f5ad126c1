use super::*;

#[test]
fn a_timestamp_reads_as_the_calendar_does() {
    let check = |seconds: u64, text: &str| assert_eq!(Timestamp::from_secs(seconds).to_string(), text);
    check(0, "1970-01-01T00:00:00.000Z");
    check(951_782_400, "2000-02-29T00:00:00.000Z");
    check(951_868_799, "2000-02-29T23:59:59.000Z");
    check(951_868_800, "2000-03-01T00:00:00.000Z");
    check(4_107_542_399, "2100-02-28T23:59:59.000Z");
    check(4_107_542_400, "2100-03-01T00:00:00.000Z");
    check(1_795_135_980, "2026-11-20T00:53:00.000Z");
}
