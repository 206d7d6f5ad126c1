use super::*;

const BUCKET: &str = "records";

fn policy(statement: &str) -> Policy {
    let document = format!(r#"{{"Version":"2012-10-17","Statement":[{statement}]}}"#);
    Policy::parse(BUCKET, &document).unwrap_or_else(|error| panic!("{statement}: {error}"))
}

fn refusal(document: &str) -> String {
    match Policy::parse(BUCKET, document) {
        Err(reason) => reason,
        Ok(policy) => panic!("{document} was not refused: {policy:?}"),
    }
}

fn refused(statement: &str) -> String {
    refusal(&format!(r#"{{"Version":"2012-10-17","Statement":[{statement}]}}"#))
}

fn key(id: &str) -> Actor {
    Actor::Key(id.into())
}

fn facts(list: &[(&str, &str)]) -> RequestFacts {
    let mut facts = RequestFacts::default();
    for (name, value) in list {
        facts.add(name, *value);
    }
    facts
}

#[test]
fn a_denial_outbids_every_permission() {
    let policy = policy(
        r#"{"Effect":"Allow","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::records/*"},
           {"Sid":"NoSecrets","Effect":"Deny","Principal":"*","Action":"s3:*","Resource":"arn:aws:s3:::records/secret/*"}"#,
    );
    let judge = |action, key| policy.judge(BUCKET, &Actor::Anonymous, action, key, &RequestFacts::default());
    assert_eq!(judge("GetObject", Some("a")), Verdict::Allowed);
    assert_eq!(judge("GetObject", Some("secret/a")), Verdict::Denied(Some("NoSecrets".into())));
    assert_eq!(judge("PutObject", Some("a")), Verdict::Silent);
    assert_eq!(judge("ListBucket", None), Verdict::Silent);
}

#[test]
fn a_statement_is_for_the_keys_that_it_names() {
    let policy = policy(
        r#"{"Effect":"Allow","Principal":{"AWS":["AKONE","arn:aws:iam::12:user/AKTWO"]},"Action":"s3:PutObject","Resource":"arn:aws:s3:::records/*"},
           {"Effect":"Deny","NotPrincipal":{"AWS":"AKONE"},"Action":"s3:DeleteObject","Resource":"arn:aws:s3:::records/*"}"#,
    );
    let judge = |actor: &Actor, action| policy.judge(BUCKET, actor, action, Some("a"), &RequestFacts::default());
    assert_eq!(judge(&key("AKONE"), "PutObject"), Verdict::Allowed);
    assert_eq!(judge(&key("AKTWO"), "PutObject"), Verdict::Allowed);
    assert_eq!(judge(&key("AKTHREE"), "PutObject"), Verdict::Silent);
    assert_eq!(judge(&Actor::Anonymous, "PutObject"), Verdict::Silent);
    assert_eq!(judge(&key("AKONE"), "DeleteObject"), Verdict::Silent);
    assert_eq!(judge(&key("AKTWO"), "DeleteObject"), Verdict::Denied(None));
    assert_eq!(judge(&Actor::Anonymous, "DeleteObject"), Verdict::Denied(None));
    assert_eq!(policy.keys(), BTreeSet::from(["AKONE", "AKTWO"]));
}

#[test]
fn patterns_match_as_documented() {
    let matches = |pattern: &str, text: &str| {
        pattern::Pattern::parse(pattern, false).expect("a pattern").matches(text, &facts(&[("aws:username", "a*b")]))
    };
    for (pattern, text, expected) in [
        ("", "", true),
        ("*", "", true),
        ("*", "a/b", true),
        ("a*c", "abbc", true),
        ("a*c", "abcd", false),
        ("a?c", "abc", true),
        ("a?c", "ac", false),
        ("*a*b*", "xxayybzz", true),
        ("*a*b*", "xxbyyazz", false),
        ("a${*}", "a*", true),
        ("a${*}", "ab", false),
        // The value of a variable has no wildcards.
        ("home/${aws:username}/*", "home/a*b/x", true),
        ("home/${aws:username}/*", "home/aXb/x", false),
        ("${aws:sourceip}", "", false),
    ] {
        assert_eq!(matches(pattern, text), expected, "{pattern} on {text}");
    }
    // Many wildcards take no more than the product of the lengths.
    let many = "*a".repeat(500);
    assert!(!matches(&format!("{many}b"), &"a".repeat(1024)));
}

fn condition(operator: &str, key: &str, values: &str, facts: &RequestFacts) -> bool {
    let statement = format!(
        r#"{{"Effect":"Allow","Principal":"*","Action":"s3:*","Resource":"arn:aws:s3:::records/*","Condition":{{"{operator}":{{"{key}":{values}}}}}}}"#
    );
    policy(&statement).judge(BUCKET, &Actor::Anonymous, "GetObject", Some("a"), facts) == Verdict::Allowed
}

#[test]
fn every_operator_compares_as_documented() {
    let none = RequestFacts::default();
    for (operator, key, values, fact, with, without) in [
        ("StringEquals", "s3:prefix", r#"["a","b"]"#, "b", true, false),
        ("StringEquals", "s3:prefix", r#""a*""#, "ab", false, false),
        ("StringNotEquals", "s3:prefix", r#"["a","b"]"#, "b", false, true),
        ("StringNotEquals", "s3:prefix", r#"["a","b"]"#, "c", true, true),
        ("StringEqualsIgnoreCase", "s3:prefix", r#""A""#, "a", true, false),
        ("StringNotEqualsIgnoreCase", "s3:prefix", r#""A""#, "a", false, true),
        ("StringLike", "s3:prefix", r#""a*""#, "ab", true, false),
        ("StringNotLike", "s3:prefix", r#""a*""#, "ab", false, true),
        ("StringLikeIfExists", "s3:prefix", r#""a*""#, "b", false, true),
        ("NumericLessThanEquals", "s3:max-keys", r#"10"#, "10", true, false),
        ("NumericLessThan", "s3:max-keys", r#""10""#, "10", false, false),
        ("NumericGreaterThan", "s3:max-keys", r#""10""#, "11", true, false),
        ("NumericNotEquals", "s3:max-keys", r#""10""#, "10", false, true),
        ("DateLessThan", "aws:CurrentTime", r#""2030-01-01T00:00:00Z""#, "2029-12-31T23:59:59Z", true, false),
        ("DateGreaterThanEquals", "aws:CurrentTime", r#""2030-01-01""#, "2029-12-31T23:59:59Z", false, false),
        ("Bool", "aws:SecureTransport", r#"false"#, "false", true, false),
        ("Bool", "aws:SecureTransport", r#""true""#, "false", false, false),
        ("BoolIfExists", "aws:SecureTransport", r#""true""#, "false", false, true),
        ("IpAddress", "aws:SourceIp", r#"["10.0.0.0/8","::1"]"#, "10.200.3.4", true, false),
        ("IpAddress", "aws:SourceIp", r#""10.0.0.0/8""#, "::ffff:10.1.1.1", true, false),
        ("IpAddress", "aws:SourceIp", r#""2001:db8::/33""#, "2001:db8:8000::1", false, false),
        ("IpAddress", "aws:SourceIp", r#""0.0.0.0/0""#, "9.9.9.9", true, false),
        ("NotIpAddress", "aws:SourceIp", r#""10.0.0.0/8""#, "10.0.0.1", false, true),
        ("Null", "s3:x-amz-server-side-encryption", r#""true""#, "AES256", false, true),
        ("Null", "s3:x-amz-server-side-encryption", r#""false""#, "AES256", true, false),
        ("ForAnyValue:StringEquals", "s3:RequestObjectTagKeys", r#"["a","b"]"#, "a", true, false),
        ("ForAllValues:StringEquals", "s3:RequestObjectTagKeys", r#"["a","b"]"#, "c", false, true),
        ("ForAnyValue:StringNotEquals", "s3:RequestObjectTagKeys", r#"["a"]"#, "c", true, false),
        ("ForAllValues:StringNotEquals", "s3:RequestObjectTagKeys", r#"["a"]"#, "c", true, true),
        ("StringEquals", "s3:ExistingObjectTag/Kind", r#""final""#, "final", true, false),
        ("StringLike", "s3:x-amz-copy-source", r#""/bucket/secret/*""#, "bucket/secret/k", true, false),
        ("StringLike", "s3:x-amz-copy-source", r#""bucket/secret/*""#, "bucket/secret/k", true, false),
    ] {
        assert_eq!(
            condition(operator, key, values, &facts(&[(key, fact)])),
            with,
            "{operator} {key} {values} of {fact}"
        );
        assert_eq!(condition(operator, key, values, &none), without, "{operator} {key} {values} of nothing");
    }
    let two = facts(&[("s3:RequestObjectTagKeys", "a"), ("s3:RequestObjectTagKeys", "c")]);
    assert!(condition("ForAnyValue:StringEquals", "s3:RequestObjectTagKeys", r#""a""#, &two));
    assert!(!condition("ForAllValues:StringEquals", "s3:RequestObjectTagKeys", r#""a""#, &two));
}

#[test]
fn all_conditions_of_a_statement_count_together() {
    let policy = policy(
        r#"{"Effect":"Allow","Principal":"*","Action":"s3:ListBucket","Resource":"arn:aws:s3:::records",
            "Condition":{"StringEquals":{"s3:prefix":"a/","s3:delimiter":"/"},"IpAddress":{"aws:SourceIp":"127.0.0.0/8"}}}"#,
    );
    let judge = |facts: &RequestFacts| policy.judge(BUCKET, &Actor::Anonymous, "ListBucket", None, facts);
    let all = [("s3:prefix", "a/"), ("s3:delimiter", "/"), ("aws:SourceIp", "127.0.0.1")];
    assert_eq!(judge(&facts(&all)), Verdict::Allowed);
    for left_out in 0..all.len() {
        let mut some = all.to_vec();
        some.remove(left_out);
        assert_eq!(judge(&facts(&some)), Verdict::Silent, "without {:?}", all[left_out]);
    }
}

#[test]
fn what_cannot_be_carried_out_is_refused() {
    let fine = r#""Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::records/*""#;
    for (statement, reason) in [
        (format!(r#"{{"Effect":"allow",{fine}}}"#), "Invalid effect"),
        (format!(r#"{{"Effect":"Allow",{fine},"Extra":1}}"#), "unknown element"),
        (format!(r#"{{"Effect":"Allow","Effect":"Deny",{fine}}}"#), "twice"),
        (format!(r#"{{"Effect":"Allow",{fine},"Condition":{{"StringIs":{{"s3:prefix":"a"}}}}}}"#), "operator"),
        (format!(r#"{{"Effect":"Allow",{fine},"Condition":{{"StringEquals":{{"aws:Moon":"a"}}}}}}"#), "condition key"),
        (format!(r#"{{"Effect":"Allow",{fine},"Condition":{{"IpAddress":{{"aws:SourceIp":"10.0.0.0/33"}}}}}}"#), "network"),
        (format!(r#"{{"Effect":"Allow",{fine},"Condition":{{"DateLessThan":{{"aws:CurrentTime":"soon"}}}}}}"#), "date"),
        (r#"{"Effect":"Allow","NotPrincipal":{"AWS":"AK"},"Action":"s3:*","Resource":"arn:aws:s3:::records/*"}"#.into(), "everyone else"),
        (r#"{"Effect":"Allow","Principal":{"AWS":"arn:aws:iam::1:root"},"Action":"s3:*","Resource":"arn:aws:s3:::records/*"}"#.into(), "principal"),
        (r#"{"Effect":"Allow","Principal":{"Service":"x"},"Action":"s3:*","Resource":"arn:aws:s3:::records/*"}"#.into(), "principal"),
        (r#"{"Effect":"Allow","Principal":"*","Action":"s3:Fly","Resource":"arn:aws:s3:::records/*"}"#.into(), "invalid action"),
        (r#"{"Effect":"Allow","Principal":"*","Action":"iam:*","Resource":"arn:aws:s3:::records/*"}"#.into(), "no action of S3"),
        (r#"{"Effect":"Allow","Principal":"*","Action":"s3:BypassGovernanceRetention","Resource":"arn:aws:s3:::records/*"}"#.into(), "only deny"),
        (r#"{"Effect":"Allow","Principal":"*","Action":"s3:PutBucketPolicy","Resource":"arn:aws:s3:::records"}"#.into(), "only deny"),
        (r#"{"Effect":"Allow","Principal":"*","Action":"s3:*","Resource":"arn:aws:s3:::other/*"}"#.into(), "invalid resource"),
        (r#"{"Effect":"Allow","Principal":"*","Action":"s3:*","Resource":"arn:aws:s3:::records2/*"}"#.into(), "invalid resource"),
        (r#"{"Effect":"Allow","Principal":"*","Action":"s3:*","Resource":"arn:aws:s3:::records/${aws:moon}"}"#.into(), "variable"),
        (r#"{"Effect":"Allow","Principal":"*","Action":[],"Resource":"arn:aws:s3:::records/*"}"#.into(), "empty"),
        (r#"{"Effect":"Allow","Action":"s3:*","Resource":"arn:aws:s3:::records/*"}"#.into(), "Missing required field Principal"),
    ] {
        let said = refused(&statement);
        assert!(said.contains(reason), "{statement}: {said}");
    }
    assert!(refusal("[]").contains("not an object"));
    assert!(refusal(r#"{"Version":"2020-01-01","Statement":[]}"#).contains("Version"));
    assert!(refusal(r#"{"Statement":[]}"#).contains("1 to 100"));
    assert!(refusal(&" ".repeat(POLICY_BYTES_MAX + 1)).contains("bytes"));
}

#[test]
fn a_policy_for_everyone_without_a_narrow_condition_is_public() {
    let everyone = r#""Effect":"Allow","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::records/*""#;
    assert!(policy(&format!("{{{everyone}}}")).is_public());
    let narrow = format!(r#"{{{everyone},"Condition":{{"IpAddress":{{"aws:SourceIp":"10.0.0.0/8"}}}}}}"#);
    assert!(!policy(&narrow).is_public());
    let wide = format!(r#"{{{everyone},"Condition":{{"NotIpAddress":{{"aws:SourceIp":"10.0.0.0/8"}}}}}}"#);
    assert!(policy(&wide).is_public());
    // Half of all addresses, a pattern that every user matches, and what every request has of
    // itself.
    for (operator, key, value) in [
        ("IpAddress", "aws:SourceIp", "128.0.0.0/1"),
        ("IpAddress", "aws:SourceIp", "2000::/3"),
        ("StringLike", "aws:username", "*"),
        ("StringEquals", "aws:SourceIp", "${aws:SourceIp}"),
        ("StringEquals", "aws:username", "${aws:username}"),
    ] {
        let wide = format!(r#"{{{everyone},"Condition":{{"{operator}":{{"{key}":"{value}"}}}}}}"#);
        assert!(policy(&wide).is_public(), "{wide}");
    }
    let denied = everyone.replace("Allow", "Deny");
    assert!(!policy(&format!("{{{denied}}}")).is_public());
}
