use super::*;

fn texts(list: &[&str]) -> Vec<String> {
    list.iter().map(|text| (*text).to_owned()).collect()
}

#[test]
fn a_rule_allows_what_its_patterns_match() {
    let rule = CorsRule {
        origins: texts(&["https://*.example.com", "http://localhost"]),
        methods: texts(&["GET", "PUT"]),
        headers: texts(&["x-amz-*", "content-type"]),
        ..CorsRule::default()
    };
    assert!(rule.allows("https://a.example.com", "GET", &[]));
    assert!(rule.allows("http://localhost", "PUT", &["X-Amz-Meta-A", "Content-Type"]));
    assert!(!rule.allows("https://example.com", "GET", &[]));
    assert!(!rule.allows("https://a.example.com.evil", "GET", &[]));
    assert!(!rule.allows("http://localhost", "DELETE", &[]));
    assert!(!rule.allows("http://localhost", "GET", &["authorization"]));
    // The front and the back of a pattern do not overlap.
    let overlapping = CorsRule { origins: texts(&["ab*ba"]), ..rule };
    assert!(!overlapping.allows("aba", "GET", &[]) && overlapping.allows("abba", "GET", &[]));
}

#[test]
fn entries_that_could_break_an_answer_are_refused() {
    let rule = CorsRule { origins: texts(&["*"]), methods: texts(&["GET"]), ..CorsRule::default() };
    assert!(check_rules(std::slice::from_ref(&rule)).is_ok());
    for origins in [&["a\r\nset-cookie: b"][..], &["*a*"], &[""], &["é"]] {
        assert!(check_rules(&[CorsRule { origins: texts(origins), ..rule.clone() }]).is_err(), "{origins:?}");
    }
    assert!(check_rules(&[CorsRule { methods: texts(&["PATCH"]), ..rule.clone() }]).is_err());
    assert!(check_rules(&[CorsRule { exposed: texts(&["x-*"]), ..rule.clone() }]).is_err());
    assert!(check_rules(&[]).is_err());
    assert!(check_rules(&vec![rule; RULES_MAX + 1]).is_err());
}
