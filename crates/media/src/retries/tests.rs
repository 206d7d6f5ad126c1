use super::*;

#[test]
fn a_full_queue_is_given_half_a_minute() {
    let mut retries = Retries::default();
    let pauses: Vec<Duration> = std::iter::from_fn(|| retries.pause()).collect();
    assert!(pauses.iter().take(QUICK as usize).all(Duration::is_zero), "the first attempts follow at once");
    assert_eq!(pauses.iter().sum::<Duration>(), Duration::from_secs(30));
    assert_eq!(retries.pause(), None, "it stays given up");
}
