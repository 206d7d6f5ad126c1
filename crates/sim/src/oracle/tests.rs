use super::*;

const UNIT: usize = 4096;
const ONE: u64 = UNIT as u64;

fn content(value: Value) -> Vec<u8> {
    let mut bytes = vec![0; UNIT];
    paint(&mut bytes, 0, UNIT, value);
    bytes
}

/// Runs a history on one block, and returns whether its last read was allowed. Letters: `w1` begins
/// write 1, `a1` is its acknowledgement, `f1` its failure, `x` a crash, `r` begins the read, `=1`
/// ends it with content 1 (0: zeros).
fn allowed(history: &str) -> bool {
    let mut oracle = Oracle::new("v", ONE, UNIT);
    let mut writes = std::collections::BTreeMap::new();
    let mut reads = Vec::new();
    let mut verdict = true;
    for step in history.split_whitespace() {
        let (verb, number) = step.split_at(1);
        let number: u64 = number.parse().unwrap_or(0);
        match verb {
            "w" => drop(writes.insert(number, oracle.begin_write(0, ONE, number))),
            "z" => drop(writes.insert(number, oracle.begin_write(0, ONE, 0))),
            "a" => oracle.end_write(0, ONE, writes[&number], WriteOutcome::Acknowledged),
            "f" => oracle.end_write(0, ONE, writes[&number], WriteOutcome::Failed),
            "x" => {
                oracle.crash();
                reads.clear();
            }
            "r" => reads.push(oracle.begin_read()),
            "=" => {
                assert!(verdict, "only the last read may be wrong: {history}");
                verdict = oracle.end_read(0, &content(number), reads.remove(0)).is_ok();
            }
            _ => panic!("{step}"),
        }
    }
    verdict
}

fn check(history: &str, expected: bool) {
    assert_eq!(allowed(history), expected, "{history}");
}

#[test]
fn what_a_read_may_return() {
    // Acknowledged writes must be seen.
    check("r =0", true);
    check("w1 a1 r =1", true);
    check("w1 a1 r =0", false);
    check("w1 a1 w2 a2 r =2", true);
    check("w1 a1 w2 a2 r =1", false);
    // A write in flight may be seen or not.
    check("w1 r =1", true);
    check("w1 r =0", true);
    check("w1 a1 w2 r =1", true);
    check("w1 a1 w2 r =2", true);
    check("w1 a1 w2 r =0", false);
    // Concurrent writes end in either order; the result then stays.
    check("w1 w2 a1 a2 r =1", true);
    check("w1 w2 a2 a1 r =2", true);
    check("w1 w2 a1 a2 r =0", false);
    check("w1 w2 a1 a2 r =1 r =2", false);
    check("w1 w2 a1 a2 r =2 r =1", false);
    check("w1 w2 a1 r =1 r =2", true);
    // Once seen, a content never reverts.
    check("w1 r =1 r =0", false);
    check("w1 r =1 r =1", true);
    check("w1 a1 w2 r =2 r =1", false);
    // A read that began earlier may still see the old content.
    check("w1 a1 r w2 a2 =1", true);
    check("w1 a1 w2 r r =2 =1", true);
    check("w1 a1 w2 r r =2 =1 r =1", false);
    // Zeroing and discarding are writes of zeros.
    check("w1 a1 z2 a2 r =0", true);
    check("w1 a1 z2 a2 r =1", false);
    check("w1 a1 z2 r =1", true);
}

#[test]
fn what_a_crash_may_leave() {
    check("w1 a1 x r =1", true);
    check("w1 a1 x r =0", false);
    check("w1 x r =1", true);
    check("w1 x r =0", true);
    // Content seen once after the crash is settled for good, also over a second crash.
    check("w1 x r =0 r =1", false);
    check("w1 x r =1 r =0", false);
    check("w1 x r =0 x r =1", false);
    check("w1 x x r =1", true);
    // Content seen before the crash and never acknowledged must not revert either.
    check("w1 r =1 x r =0", false);
    check("w1 a1 w2 x w3 a3 r =3", true);
    check("w1 a1 w2 x w3 a3 r =2", false);
    check("w1 a1 w2 w3 a3 x r =2", true);
    check("w1 a1 w2 w3 a3 x r =1", false);
}

#[test]
fn what_an_error_may_leave() {
    check("w1 f1 r =1", true);
    check("w1 f1 r =0", true);
    check("w1 f1 r =0 r =1", false);
    check("w1 a1 w2 f2 w3 a3 r =2", false);
    check("w1 a1 w2 f2 x r =0", false);
}

#[test]
fn bytes_that_no_write_put_there_are_refused() {
    let mut oracle = Oracle::new("v", 4 * ONE, UNIT);
    let write = oracle.begin_write(0, 4 * ONE, 7);
    oracle.end_write(0, 4 * ONE, write, WriteOutcome::Acknowledged);
    let mut bytes = vec![0; 4 * UNIT];
    paint(&mut bytes, 0, UNIT, 7);
    let read = oracle.begin_read();
    assert_eq!(oracle.end_read(0, &bytes, read), Ok(()));
    for (spoil, what) in [(5000, "a flipped byte"), (4096, "a wrong number"), (4104, "a wrong place")] {
        let mut spoiled = bytes.clone();
        spoiled[spoil] ^= 1;
        let read = oracle.begin_read();
        assert!(oracle.end_read(0, &spoiled, read).is_err(), "{what}");
    }
    // The right write at the wrong place.
    let read = oracle.begin_read();
    assert!(oracle.end_read(0, &bytes[UNIT..], read).is_err());
}

#[test]
fn old_candidates_are_forgotten_when_no_read_can_return_them() {
    let mut oracle = Oracle::new("v", ONE, UNIT);
    for value in 1..1000 {
        let write = oracle.begin_write(0, ONE, value);
        oracle.end_write(0, ONE, write, WriteOutcome::Acknowledged);
    }
    assert!(oracle.blocks[0].len() < 3);
}

#[test]
fn no_crc_tells_two_contents_apart() {
    let crcs = [content(1), content(2), content(77)].map(|content| crc32c(&content));
    assert_eq!(crcs, [crcs[0]; 3], "a store that compares no more than CRC-32C is caught");
    assert_ne!(content(1), content(2));
}
