use super::*;

fn bytes(logs: &AccessLogs) -> usize {
    logs.lock().bytes
}

fn all(logs: &AccessLogs) -> Vec<(String, String)> {
    let round = logs.begin_round();
    let mut found = Vec::new();
    while let Some(mut lent) = logs.next_due(round, Duration::MAX, true) {
        let lines = lent.content(String::new).0.to_owned();
        found.push((lent.bucket.clone(), lines));
        lent.failed(false);
    }
    found
}

#[test]
fn a_bucket_that_cannot_be_stored_takes_no_other_log() {
    let logs = AccessLogs::default();
    let line = format!("{}\n", "x".repeat(1 << 20));
    for _ in 0..100 {
        logs.add("broken", &line);
    }
    assert!(bytes(&logs) <= OF_BUCKET_MAX);
    assert_eq!(logs.lock().dropped, 99);
    logs.add("good", "line\n");
    assert_eq!(all(&logs), [("broken".to_owned(), line), ("good".to_owned(), "line\n".to_owned())]);
}

#[test]
fn all_buckets_together_are_bounded() {
    let logs = AccessLogs::default();
    let line = format!("{}\n", "x".repeat(OF_BUCKET_MAX / 2 - 1));
    for number in 0..40 {
        logs.add(&format!("bucket {}", number / 2), &line);
    }
    assert!(bytes(&logs) <= WAITING_MAX);
    assert_eq!(logs.lock().dropped, 24);
}

#[test]
fn newer_lines_have_attempts_of_their_own() {
    let logs = AccessLogs::default();
    logs.add("b", "old\n");
    for attempt in 1..ATTEMPTS_MAX {
        let round = logs.begin_round();
        let lent = logs.next_due(round, Duration::MAX, true).unwrap();
        assert!(lent.failed(false), "{attempt}");
        assert!(logs.next_due(round, Duration::MAX, true).is_none(), "once in a round");
    }
    logs.add("b", "new\n");
    let round = logs.begin_round();
    let mut lent = logs.next_due(round, Duration::MAX, true).unwrap();
    assert_eq!(lent.content(String::new).0, "old\n");
    assert!(!lent.failed(false), "the last attempt");
    assert_eq!(logs.take_dropped(), 1);
    assert_eq!(all(&logs), [("b".to_owned(), "new\n".to_owned())]);
    assert_eq!(bytes(&logs), 4);
}

#[test]
fn a_batch_whose_target_is_gone_is_dropped_at_once() {
    let logs = AccessLogs::default();
    logs.add("b", "one\n");
    let round = logs.begin_round();
    assert!(!logs.next_due(round, Duration::MAX, true).unwrap().failed(true));
    assert_eq!((bytes(&logs), logs.take_dropped()), (0, 1));
    assert!(logs.lock().buckets.is_empty());
}

#[test]
fn an_attempt_that_is_broken_off_loses_nothing() {
    let logs = AccessLogs::default();
    logs.add("a", "one\n");
    logs.add("b", "two\n");
    let round = logs.begin_round();
    let mut lent = logs.next_due(round, Duration::MAX, true).unwrap();
    assert_eq!(lent.content(|| "name".into()), ("one\n", "name".to_owned()));
    assert!(!lent.is_repeated());
    drop(lent);
    let round = logs.begin_round();
    let mut lent = logs.next_due(round, Duration::MAX, true).unwrap();
    // The same object, which may be there.
    assert_eq!(lent.content(|| "other".into()), ("one\n", "name".to_owned()));
    assert!(lent.is_repeated());
    lent.stored();
    logs.next_due(round, Duration::MAX, true).unwrap().stored();
    assert_eq!(bytes(&logs), 0);
    assert!(logs.lock().buckets.is_empty());
}

#[test]
fn strangers_fill_no_log() {
    let logs = AccessLogs::default();
    let admitted = |second| (0..1_000).filter(|_| logs.admit_stranger("b", second)).count() as u32;
    assert_eq!(admitted(1), STRANGERS_PER_SECOND);
    assert!(logs.admit_stranger("other", 1));
    assert_eq!(logs.take_dropped(), 1_000 - u64::from(STRANGERS_PER_SECOND));
    assert_eq!(admitted(2), STRANGERS_PER_SECOND);
}

#[test]
fn a_large_batch_is_stored_before_its_time() {
    let logs = AccessLogs::default();
    logs.add("b", "small\n");
    let round = logs.begin_round();
    assert!(logs.next_due(round, Duration::MAX, false).is_none());
    logs.add("b", &"x".repeat(BATCH_MAX));
    let lent = logs.next_due(round, Duration::MAX, false).unwrap();
    assert!(lent.failed(false));
    let round = logs.begin_round();
    assert!(logs.next_due(round, Duration::MAX, false).is_none(), "after a failure it waits for its time");
}
