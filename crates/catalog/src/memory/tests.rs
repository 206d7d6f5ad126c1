use super::*;
use crate::{Link, Template};

const A: Table = Table(1);
const B: Table = Table(2);

#[test]
fn a_refused_transaction_leaves_no_trace() {
    let catalog = MemoryCatalog::new();
    assert!(catalog.commit(Transaction::new().put(A, "k", "old").add(B, "n", i64::MAX)).wait().is_ok());
    let refused = catalog.commit(Transaction::new().put(A, "k", "new").put(A, "l", "x").add(B, "n", 1)).wait();
    assert!(matches!(refused, Err(CatalogError::Invalid(_))), "{refused:?}");
    let failed = catalog.commit(Transaction::new().put(A, "k", "new").absent(A, "k")).wait();
    let found = Some((Bytes::from("k"), Bytes::from("old")));
    assert_eq!(failed, Err(CatalogError::Failed(Failure { precondition: 0, found: found.clone() })));
    let view = catalog.snapshot().unwrap();
    assert_eq!(view.range(A, &KeyRange::all(), 9, Direction::Forward).unwrap(), Vec::from_iter(found));
    assert_eq!(view.commit_number(), 1);
}

#[test]
fn appended_records_form_a_chain_that_ends_at_the_head() {
    let catalog = MemoryCatalog::new();
    let value = |text: &'static str| Template::new().previous().bytes(text);
    let mut ends = Vec::new();
    for text in ["one", "two", "three"] {
        let transaction = Transaction::new().append((A, "head"), B, Template::new().number(), value(text));
        ends.push(catalog.commit(transaction).wait().unwrap().outcomes);
    }
    let view = catalog.snapshot().unwrap();
    let mut previous = Link::default();
    for (at, (key, value)) in view.range(B, &KeyRange::all(), 9, Direction::Forward).unwrap().into_iter().enumerate() {
        let number = at as u64 + 1;
        assert_eq!(key, number.to_be_bytes().to_vec());
        assert_eq!(value[..32], previous);
        previous = link(&previous, number, &value);
        assert_eq!(ends[at], [Outcome::Appended { number, key, link: previous }]);
    }
    let head = Head::decode(view.get(A, b"head").unwrap().as_deref()).unwrap();
    assert_eq!(head, Head { count: 3, link: previous });
}

#[test]
fn the_twin_passes_the_suite() {
    crate::suite::suite(MemoryCatalog::new);
}
