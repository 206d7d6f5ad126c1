use super::*;

/// A misspelt field would otherwise resume expiration, or take its limit away.
#[test]
fn a_pause_without_a_reason_resumes_nothing() {
    let paused = |text: &str| serde_json::from_str::<DisposalPause>(text).map(|pause| pause.reason);
    assert_eq!(paused(r#"{"reason":"audit"}"#).unwrap().as_deref(), Some("audit"));
    assert_eq!(paused(r#"{"reason":null}"#).unwrap(), None);
    let limited = |text: &str| serde_json::from_str::<DisposalRate>(text).map(|limit| limit.rate);
    assert_eq!(limited(r#"{"rate":null}"#).unwrap(), None);
    for text in ["{}", r#"{"reasons":"audit"}"#, r#"{"rates":5}"#] {
        assert!(paused(text).is_err() && limited(text).is_err(), "{text}");
    }
}
