use super::*;

#[test]
fn no_text_of_a_client_breaks_a_line() {
    for (text, expected) in
        [("", "\"-\""), ("curl/8", "\"curl/8\""), ("a\" 200 -\n1", "\"a%22 200 -%0A1\""), ("\u{fc}", "\"%C3%BC\"")]
    {
        assert_eq!(quoted(text), expected);
    }
    assert_eq!(plain("a b\n"), "a%20b%0A");
    assert!(visible(&"x".repeat(100_000)).len() <= TEXT_MAX);
}

#[test]
fn a_signature_is_not_logged() {
    let uri: hyper::Uri = "/b/k?X-Amz-Signature=secret&x=1&X-Amz-Security-Token=secret".parse().unwrap();
    assert_eq!(without_secrets(&uri), "/b/k?X-Amz-Signature=...&x=1&X-Amz-Security-Token=...");
}

#[test]
fn lines_are_bounded_and_a_batch_is_tried_again() {
    assert_eq!(day_and_time(1_549_411_238), "06/Feb/2019:00:00:38 +0000");
    let logs = AccessLogs::default();
    let line = format!("{}\n", "x".repeat(1 << 20));
    for _ in 0..20 {
        logs.add("b", &line);
    }
    let full = logs.lock().bytes;
    assert!(full <= WAITING_MAX);
    assert_eq!(logs.lock().dropped, 5);
    let (bucket, batch) = logs.due(Duration::MAX, false).pop().unwrap();
    assert!(logs.failed(&bucket, batch));
    assert_eq!(logs.lock().bytes, full, "what waits again still counts");
    for _ in 2..ATTEMPTS_MAX {
        let (bucket, batch) = logs.due(Duration::MAX, true).pop().unwrap();
        assert!(logs.failed(&bucket, batch));
    }
    let (bucket, batch) = logs.due(Duration::MAX, true).pop().unwrap();
    assert!(!logs.failed(&bucket, batch));
    let waiting = logs.lock();
    assert_eq!((waiting.bytes, waiting.dropped), (0, 5 + 15));
}
