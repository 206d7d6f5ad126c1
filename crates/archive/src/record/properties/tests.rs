use std::collections::BTreeSet;

use super::*;

#[test]
fn the_records_of_one_value_lie_in_the_order_of_keys() {
    let property = Property::tag("case", "smith");
    let names = ["\0", "\0\u{1}", "a", "a\0", "a/", "a/b", "ab", "\u{10FFFF}"];
    let versions: BTreeSet<Bytes> =
        names.iter().flat_map(|name| [1, 9].map(|number| keys::version(7, name, number))).collect();
    let records: BTreeSet<Bytes> = versions.iter().map(|version| property.record_key(version)).collect();
    let again: Vec<Bytes> = records.iter().map(|record| version_of(record).unwrap()).collect();
    assert_eq!(again, versions.iter().cloned().collect::<Vec<_>>());
    for prefix in ["", "\0", "a", "a/", "b"] {
        let beginning = keys::prefix(7, prefix);
        let inside = |version: &&Bytes| version.starts_with(&beginning);
        for after in [None].into_iter().chain(versions.iter().map(Some)) {
            let range = property.below(7, prefix, after);
            let expected = versions.iter().filter(inside).filter(|version| after.is_none_or(|after| *version > after));
            let selected = records.iter().filter(|record| range.contains(record));
            let selected: Vec<Bytes> = selected.map(|record| version_of(record).unwrap()).collect();
            assert_eq!(selected, expected.cloned().collect::<Vec<_>>(), "{prefix:?} {after:?}");
        }
    }
}

#[test]
fn a_range_of_values_has_the_records_from_one_value_to_the_other() {
    let values = [0, 1, 255, 256, 1 << 40, u64::MAX];
    for low in values {
        for high in values {
            let range = Property::size(low).to(Property::size(high), 7);
            for value in values {
                let record = Property::size(value).record_key(&keys::version(7, "a", 1));
                assert_eq!(!range.is_void() && range.contains(&record), (low..=high).contains(&value));
            }
            assert!(!range.contains(&Property::size(low).record_key(&keys::version(8, "a", 1))), "another bucket");
            assert!(!range.contains(&Property::stored(Timestamp(low)).record_key(&keys::version(7, "a", 1))));
        }
    }
}

#[test]
fn names_and_values_are_told_apart() {
    let all = [
        Property::tag("ab", "c"),
        Property::tag("a", "bc"),
        Property::tag("abc", ""),
        Property::tag("", "abc"),
        Property::metadata("ab", "c"),
        Property::class("abc"),
        Property::matter("abc"),
    ];
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
}

#[test]
fn a_malformed_record_is_damage() {
    for length in 0..HEAD {
        assert!(version_of(&vec![0; length]).is_err() && in_words(&vec![0; length]).is_err(), "{length}");
    }
    let record = Property::size(5).record_key(&keys::version(7, "a", 9));
    assert_eq!(in_words(&record).unwrap(), "kind 7, value 0000000000000005, bucket 7, key \"a\", number 9");
}

/// The transaction with the most records has room for its row as well.
#[test]
fn the_most_properties_at_the_longest_key_fit_a_transaction() {
    let longest = keys::version(7, &"\0".repeat(1024), 1);
    let record = Property::size(5).record_key(&longest).len();
    assert!(record <= stele_catalog::KEY_MAX, "{record}");
    // Ten tags, the most metadata, class, hold, date and size; a version that replaces another
    // deletes as many.
    let most = 2 * (10 + 64 + 4) * record;
    assert!(most < stele_catalog::TRANSACTION_MAX / 8, "{most}");
}
