use super::*;

#[test]
fn bucket_names_follow_the_rules_of_aws() {
    let check = |name: &str, good: bool| assert_eq!(check_bucket_name(name).is_ok(), good, "{name}");
    for name in ["abc", "a.b.c", "1-2", "a23456789012345678901234567890123456789012345678901234567890123", "10.0.0.256"]
    {
        check(name, true);
    }
    for name in ["", "ab", "Abc", "a_b", "-ab", "ab-", "a..b", "a.-b", "10.0.0.1", "xn--a", "a--x-s3", "ä-b", "a/b"] {
        check(name, false);
    }
    check(&"a".repeat(64), false);
}
