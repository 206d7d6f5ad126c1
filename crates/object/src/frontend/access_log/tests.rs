use super::*;

#[test]
fn no_text_of_a_client_breaks_a_line() {
    for (text, expected) in
        [("", "\"-\""), ("curl/8", "\"curl/8\""), ("a\" 200 -\n1", "\"a%22 200 -%0A1\""), ("\u{fc}", "\"%C3%BC\"")]
    {
        assert_eq!(quoted(text, TEXT_MAX), expected);
    }
    assert_eq!(plain("a b\n", TEXT_MAX), "a%20b%0A");
    assert!(visible(&"x".repeat(100_000), TEXT_MAX).len() <= TEXT_MAX);
}

#[test]
fn a_signature_is_not_logged() {
    for (url, shown) in [
        (
            "/b/k?X-Amz-Signature=secret&x=1&X-Amz-Security-Token=secret",
            "/b/k?X-Amz-Signature=...&x=1&X-Amz-Security-Token=...",
        ),
        ("/b/k?X-Amz-Signatur%65=secret", "/b/k?X-Amz-Signatur%65=..."),
        ("https://h/b/k?Signature=secret", "https://h/b/k?Signature=..."),
        ("/b/k", "/b/k"),
    ] {
        assert_eq!(without_secrets(url), shown);
    }
}

#[test]
fn days_have_the_form_of_aws() {
    assert_eq!(day_and_time(1_549_411_238), "06/Feb/2019:00:00:38 +0000");
}
