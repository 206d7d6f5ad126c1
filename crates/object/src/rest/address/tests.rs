//! Paths, and the keys behind them.

use super::*;

const NAME: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

#[track_caller]
fn check(path: &str, expected: Option<(&str, &str, Option<String>)>) {
    let found = Address::parse(path);
    let shown = found.as_ref().map(|found| (found.bucket.as_str(), found.prefix.as_str(), found.own_key()));
    assert_eq!(shown, expected, "{path}: {found:?}");
}

#[test]
fn a_path_names_a_repository_a_folder_or_a_file() {
    check("/b/config", Some(("b", "", Some("config".into()))));
    check("/b/one/two/config", Some(("b", "one/two/", Some("one/two/config".into()))));
    check(&format!("/b/keys/{NAME}"), Some(("b", "", Some(format!("keys/{NAME}")))));
    check(&format!("/b/x/data/{NAME}"), Some(("b", "x/", Some(format!("x/data/00/{NAME}")))));
    check("/b/", Some(("b", "", None)));
    check("/b/a%20folder", Some(("b", "a folder/", None)));
    assert_eq!(Address::parse("/b/locks/").map(|found| found.place), Some(Place::List(Kind::Locks)));
    assert_eq!(Address::parse("/b/data").map(|found| found.place), Some(Place::List(Kind::Data)));
    assert_eq!(Address::parse("/b/").map(|found| found.place), Some(Place::Repository));
    let bad = [
        "",
        "/",
        "b",
        "//config",
        "/b//config",
        "/b/../config",
        "/config",
        "/keys",
        "/b/keys/short",
        "/b/data/00",
        "/b/keys/%ff",
    ];
    for path in bad {
        let none = Address::parse(path);
        assert!(
            none.is_none() || none.as_ref().is_some_and(|found| found.place == Place::Repository),
            "{path}: {none:?}"
        );
        assert!(none.is_none_or(|found| found.own_key().is_none()), "{path}");
    }
    check(&format!("/b/keys/{NAME}/"), None);
    check(&format!("/b/keys/{}", NAME.to_uppercase()), None);
}

#[test]
fn only_files_of_the_layout_are_listed() {
    let data = format!("00/{NAME}");
    assert_eq!(Address::name_in(Kind::Data, &data), Some(NAME));
    assert_eq!(Address::name_in(Kind::Data, NAME), None);
    assert_eq!(Address::name_in(Kind::Data, &format!("01/{NAME}")), None);
    assert_eq!(Address::name_in(Kind::Keys, NAME), Some(NAME));
    assert_eq!(Address::name_in(Kind::Keys, &data), None);
}
