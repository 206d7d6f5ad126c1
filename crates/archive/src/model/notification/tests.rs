use super::*;

fn rule(id: &str, events: &[&str], prefix: &str, suffix: &str) -> NotificationRule {
    NotificationRule {
        id: id.into(),
        form: TargetForm::Queue,
        target: "audit".into(),
        arn: "arn:stele:sqs::audit:webhook".into(),
        events: events.iter().map(|event| (*event).to_owned()).collect(),
        prefix: Some(prefix.to_owned()).filter(|text| !text.is_empty()),
        suffix: Some(suffix.to_owned()).filter(|text| !text.is_empty()),
    }
}

#[test]
fn a_rule_selects_by_event_prefix_and_suffix() {
    for (events, prefix, suffix, name, key, expected) in [
        ("s3:ObjectCreated:*", "", "", "ObjectCreated:Put", "a", true),
        ("s3:ObjectCreated:*", "", "", "ObjectRemoved:Delete", "a", false),
        ("s3:ObjectCreated:Put", "", "", "ObjectCreated:Copy", "a", false),
        ("s3:ObjectCreated:Put", "in/", ".jpg", "ObjectCreated:Put", "in/a.jpg", true),
        ("s3:ObjectCreated:Put", "in/", ".jpg", "ObjectCreated:Put", "in/a.png", false),
        ("s3:ObjectCreated:Put", "in/", ".jpg", "ObjectCreated:Put", "a.jpg", false),
        ("s3:*", "", "", "ObjectCreated:Put", "a", false),
    ] {
        assert_eq!(rule("r", &[events], prefix, suffix).selects(name, key), expected, "{events} {name} {key}");
    }
}

#[test]
fn rules_that_share_an_event_of_a_key_are_refused() {
    let created = "s3:ObjectCreated:*";
    for (left, right, fits) in [
        (rule("1", &[created], "a/", ""), rule("2", &[created], "b/", ""), true),
        (rule("1", &[created], "a/", ""), rule("2", &[created], "a/b/", ""), false),
        (rule("1", &[created], "a/", ".x"), rule("2", &[created], "a/b/", ".y"), true),
        (rule("1", &[created], "", ".x"), rule("2", &["s3:ObjectCreated:Put"], "", ".y.x"), false),
        (rule("1", &[created], "", ""), rule("2", &["s3:ObjectRemoved:*"], "", ""), true),
        (rule("1", &[created], "a", ""), rule("1", &[created], "b", ""), false),
    ] {
        assert_eq!(check_rules(&[left.clone(), right.clone()]).is_ok(), fits, "{left:?} {right:?}");
    }
}

#[test]
fn events_and_targets_that_do_not_exist_are_refused() {
    for events in ["s3:ObjectRestore:*", "ObjectCreated:Put", "s3:ObjectCreated", "s3:*"] {
        assert!(check_rules(&[rule("1", &[events], "", "")]).is_err(), "{events}");
    }
    assert!(check_rules(&[rule("1", &[], "", "")]).is_err());
    for target in ["", "../x", "a b", "http://x", "a\0b"] {
        let rule = NotificationRule { target: target.into(), ..rule("1", &["s3:ObjectRemoved:*"], "", "") };
        assert!(check_rules(&[rule]).is_err(), "{target:?}");
    }
}
