use super::*;

fn bytes(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("'{text}' is no size"))
}

#[test]
fn a_rule_with_a_condition_twice_is_refused() {
    for text in ["c:prefix=a,prefix=b", "c:suffix=x,prefix=a,suffix=x", "c:min=1,min=2", "c:tag=k=1,tag=k=2"] {
        let refused = parse_rule(text, bytes).unwrap_err();
        assert!(refused.error.contains("is there twice"), "{text}: {refused}");
    }
    let rule = parse_rule("c:prefix=a,tag=k=1,tag=l=1,min=1,max=2", bytes).unwrap();
    assert_eq!((rule.prefix.as_str(), rule.tags.len(), rule.size_min, rule.size_max), ("a", 2, Some(1), Some(2)));
}

#[test]
fn classes_without_a_default_say_so() {
    let bound = |text: &str| serde_json::from_str::<Bound>(text).map(|bound| bound.default);
    assert_eq!(bound(r#"{"default":null,"rules":[]}"#).unwrap(), None);
    assert!(bound(r#"{"defalt":"staff","rules":[]}"#).is_err());
}
