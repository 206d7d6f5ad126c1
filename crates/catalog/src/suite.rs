//! The suite that every catalog passes, in this crate or another: whatever it stores, its answers
//! must equal the map's. Call [`suite`] from a test with a function that makes an empty catalog.

use bytes::Bytes;
use stele_ground::Dice;

use crate::catalog::Record;
use crate::{
    Catalog, CatalogError, Direction, Failure, Head, KEY_MAX, KeyRange, Link, MemoryCatalog, Mutation, Outcome,
    Receipt, Reserve, Snapshot, TRANSACTION_MAX, Table, Template, Transaction, VALUE_MAX, link,
};

const A: Table = Table(1);
const B: Table = Table(2);

/// Runs all checks; panics with the first difference.
pub fn suite<C: Catalog>(make: impl Fn() -> C) {
    preconditions_say_what_was_there(&make());
    a_refused_transaction_leaves_no_trace(&make());
    counters_and_sequences(&make());
    ranges_in_both_directions(&make());
    a_snapshot_stays_as_it_was(&make());
    the_limits_hold(&make());
    many_committers(&make());
    for seed in 0..4 {
        random(&make(), seed, 1500);
    }
}

fn done(catalog: &impl Catalog, transaction: Transaction) -> Receipt {
    catalog.commit(transaction).wait().expect("the transaction is in order")
}

fn view(catalog: &impl Catalog) -> Box<dyn Snapshot> {
    catalog.snapshot().expect("a snapshot opens")
}

fn all(view: &dyn Snapshot, table: Table) -> Vec<Record> {
    view.range(table, &KeyRange::all(), usize::MAX, Direction::Forward).expect("a range is read")
}

fn preconditions_say_what_was_there(catalog: &impl Catalog) {
    done(catalog, Transaction::new().put(A, "here", "value").add(A, "count", 5));
    let here = Some((Bytes::from("here"), Bytes::from("value")));
    let count = Some((Bytes::from("count"), Bytes::copy_from_slice(&5i64.to_be_bytes())));
    let digest = |text: &str| *blake3::hash(text.as_bytes()).as_bytes();
    let t = Transaction::new;
    for (name, transaction, found) in [
        ("absent", t().absent(A, "here"), Some(here.clone())),
        ("absent holds", t().absent(B, "here"), None),
        ("present", t().present(A, "gone"), Some(None)),
        ("present holds", t().present(A, "here"), None),
        ("equals", t().equals(A, "here", "other"), Some(here.clone())),
        ("equals nothing", t().equals(A, "gone", ""), Some(None)),
        ("equals holds", t().equals(A, "here", "value"), None),
        ("digest", t().digest(A, "here", digest("other")), Some(here.clone())),
        ("digest holds", t().digest(A, "here", digest("value")), None),
        ("within", t().within(A, "count", 6, 9), Some(count.clone())),
        ("within nothing", t().within(A, "gone", 1, 9), Some(None)),
        ("within holds", t().within(A, "count", 5, 5).within(A, "gone", 0, 0), None),
        ("empty", t().empty(A, KeyRange::prefix("h")), Some(here.clone())),
        ("empty, all", t().empty(A, KeyRange::all()), Some(count.clone())),
        ("empty holds", t().empty(A, KeyRange::between("d", "h")).empty(B, KeyRange::all()), None),
        ("empty void", t().empty(A, KeyRange::between("z", "a")), None),
    ] {
        let answer = catalog.commit(transaction.put(B, "mark", name)).wait();
        match found {
            Some(found) => {
                assert_eq!(answer, Err(CatalogError::Failed(Failure { precondition: 0, found })), "{name}");
            }
            None => {
                assert!(answer.is_ok(), "{name}: {answer:?}");
                assert_eq!(view(catalog).get(B, b"mark"), Ok(Some(Bytes::from(name))), "{name}");
                done(catalog, t().delete(B, "mark"));
            }
        }
    }
    let second = catalog.commit(t().present(A, "here").absent(A, "here")).wait();
    assert_eq!(second, Err(CatalogError::Failed(Failure { precondition: 1, found: here })));
}

fn a_refused_transaction_leaves_no_trace(catalog: &impl Catalog) {
    done(catalog, Transaction::new().put(A, "k", "old").add(B, "n", i64::MAX));
    let before = (all(&*view(catalog), A), all(&*view(catalog), B), view(catalog).commit_number());
    for transaction in [
        Transaction::new().put(A, "k", "new").put(A, "l", "x").add(B, "n", 1),
        Transaction::new().delete(A, "k").put(A, "k", "three").add(A, "k", 1),
        Transaction::new().put(A, "m", "x").append((A, "k"), B, Template::new().number(), Template::new()),
    ] {
        let answer = catalog.commit(transaction).wait();
        assert!(matches!(answer, Err(CatalogError::Invalid(_))), "{answer:?}");
        assert_eq!((all(&*view(catalog), A), all(&*view(catalog), B), view(catalog).commit_number()), before);
    }
}

fn counters_and_sequences(catalog: &impl Catalog) {
    let receipt = done(catalog, Transaction::new().add(A, "n", 5).add(A, "n", -8).put(A, "p", "").add(A, "m", 1));
    assert_eq!(receipt.outcomes, [Outcome::Counter(5), Outcome::Counter(-3), Outcome::Done, Outcome::Counter(1)]);
    let append = |text: &'static str| Mutation::Append {
        head_table: A,
        head_key: Bytes::from("head"),
        table: B,
        key: Template::new().bytes("log/").number(),
        value: Template::new().bytes(text).number().previous(),
    };
    let receipts = [
        done(catalog, Transaction::new().change(append("one")).change(append("two"))),
        done(catalog, Transaction::new().change(append("three"))),
    ];
    assert!(receipts[0].commit < receipts[1].commit);
    assert_eq!(receipts.iter().flat_map(Receipt::numbers).collect::<Vec<_>>(), [1, 2, 3]);
    let mut previous = Link::default();
    let outcomes: Vec<Outcome> = receipts.into_iter().flat_map(|receipt| receipt.outcomes).collect();
    for ((number, text), outcome) in (1u64..).zip(["one", "two", "three"]).zip(outcomes) {
        let key = Bytes::from([&b"log/"[..], &number.to_be_bytes()].concat());
        let value = [text.as_bytes(), &number.to_be_bytes(), &previous].concat();
        assert_eq!(view(catalog).get(B, &key), Ok(Some(Bytes::from(value.clone()))));
        previous = link(&previous, number, &value);
        assert_eq!(outcome, Outcome::Appended { number, key, link: previous });
    }
    let head = view(catalog).get(A, b"head").expect("the head is read");
    assert_eq!(Head::decode(head.as_deref()), Ok(Head { count: 3, link: previous }));
}

fn ranges_in_both_directions(catalog: &impl Catalog) {
    let keys: Vec<Vec<u8>> = (0..200u16).map(|n| (n * 3).to_be_bytes().to_vec()).collect();
    for keys in keys.chunks(17) {
        done(
            catalog,
            keys.iter().fold(Transaction::new(), |t, key| t.put(A, key.clone(), key.clone()).put(B, key.clone(), "")),
        );
    }
    for key in keys.iter().step_by(5) {
        done(catalog, Transaction::new().delete(A, key.clone()));
    }
    let left: Vec<Bytes> =
        keys.iter().enumerate().filter(|(at, _)| at % 5 != 0).map(|(_, key)| Bytes::from(key.clone())).collect();
    let view = view(catalog);
    for page in [1, 7, 1000] {
        let mut forward = Vec::new();
        let mut range = KeyRange::all();
        loop {
            let records = view.range(A, &range, page, Direction::Forward).expect("a range is read");
            let Some((last, _)) = records.last().cloned() else { break };
            forward.extend(records.into_iter().map(|(key, _)| key));
            range = range.after(last);
        }
        assert_eq!(forward, left, "forward by {page}");
        let mut backward = Vec::new();
        let mut range = KeyRange::all();
        loop {
            let records = view.range(A, &range, page, Direction::Backward).expect("a range is read");
            let Some((last, _)) = records.last().cloned() else { break };
            backward.extend(records.into_iter().map(|(key, _)| key));
            range = range.below(last);
        }
        backward.reverse();
        assert_eq!(backward, left, "backward by {page}");
    }
    assert_eq!(view.range(A, &KeyRange::between("b", "a"), 9, Direction::Forward), Ok(Vec::new()));
    assert_eq!(view.range(A, &KeyRange::all(), 0, Direction::Forward), Ok(Vec::new()));
}

fn a_snapshot_stays_as_it_was(catalog: &impl Catalog) {
    let put =
        |round: u32| (0..20u8).fold(Transaction::new(), |t, key| t.put(A, vec![key], round.to_be_bytes().to_vec()));
    let views: Vec<_> = (0..50)
        .map(|round| {
            done(catalog, put(round).delete(A, vec![(round % 20) as u8]));
            view(catalog)
        })
        .collect();
    for (round, view) in (0u32..).zip(views) {
        let records = all(&*view, A);
        assert_eq!(records.len(), 19);
        assert!(records.iter().all(|(_, value)| value[..] == round.to_be_bytes()), "round {round}");
        assert_eq!(view.get(A, &[(round % 20) as u8]), Ok(None));
    }
}

fn the_limits_hold(catalog: &impl Catalog) {
    let key = |length: usize| vec![b'k'; length];
    let check = |transaction: Transaction, fits: bool| {
        let answer = catalog.commit(transaction).wait();
        match answer {
            Ok(_) => assert!(fits),
            Err(error) => assert!(!fits && matches!(error, CatalogError::Invalid(_)), "{error}"),
        }
    };
    check(Transaction::new().put(A, key(KEY_MAX), "x"), true);
    check(Transaction::new().put(A, key(KEY_MAX + 1), "x"), false);
    check(Transaction::new().put(A, "", ""), true);
    check(Transaction::new().put(A, "v", vec![1; VALUE_MAX]), true);
    check(Transaction::new().put(A, "v", vec![1; VALUE_MAX + 1]), false);
    check(Transaction::new().put(Table(u16::MAX), "v", "x"), false);
    check(Transaction::new().put(Table(u16::MAX - 1), "v", "x"), true);
    let halves = |second: usize| Transaction::new().put(A, "a", vec![2; VALUE_MAX]).put(A, "b", vec![3; second]);
    check(halves(TRANSACTION_MAX - VALUE_MAX - 2), true);
    check(halves(TRANSACTION_MAX - VALUE_MAX - 2).put(A, "c", "x"), false);
    check((0..20_000u32).fold(Transaction::new(), |t, n| t.delete(A, n.to_be_bytes().to_vec())), false);
    let view = view(catalog);
    assert_eq!(view.get(A, b"a"), Ok(Some(Bytes::from(vec![2; VALUE_MAX]))));
    assert_eq!(view.get(A, &key(KEY_MAX)), Ok(Some(Bytes::from("x"))));
    assert_eq!(view.get(A, b""), Ok(Some(Bytes::new())));
    assert_eq!(
        view.range(Table(u16::MAX - 1), &KeyRange::all(), 9, Direction::Forward).map(|found| found.len()),
        Ok(1)
    );
}

/// Threads append to one log and take turns on one record: they lose nothing and see each other's
/// changes.
fn many_committers(catalog: &impl Catalog) {
    const THREADS: u64 = 8;
    const EACH: u64 = 50;
    done(catalog, Transaction::new().put(A, "turn", 0u64.to_be_bytes().to_vec()));
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                for at in 0..EACH {
                    done(
                        catalog,
                        Transaction::new()
                            .append((A, "head"), B, Template::new().number(), Template::new().previous())
                            .put(A, [thread.to_be_bytes(), at.to_be_bytes()].concat(), ""),
                    );
                    // Optimistic: read, decide, commit on condition, and repeat if another thread
                    // was faster.
                    loop {
                        let seen = view(catalog).get(A, b"turn").expect("the turn is read").expect("the turn is there");
                        let next = u64::from_be_bytes(seen[..].try_into().expect("eight bytes")) + 1;
                        let step =
                            Transaction::new().equals(A, "turn", seen).put(A, "turn", next.to_be_bytes().to_vec());
                        match catalog.commit(step).wait() {
                            Ok(_) => break,
                            Err(CatalogError::Failed(_)) => {}
                            Err(other) => panic!("{other}"),
                        }
                    }
                }
            });
        }
    });
    let view = view(catalog);
    let total = THREADS * EACH;
    assert_eq!(view.get(A, b"turn"), Ok(Some(Bytes::copy_from_slice(&total.to_be_bytes()))));
    let mut previous = Link::default();
    for (number, (key, value)) in (1u64..).zip(all(&*view, B)) {
        assert_eq!((&key[..], &value[..]), (&number.to_be_bytes()[..], &previous[..]));
        previous = link(&previous, number, &value);
    }
    let head = view.get(A, b"head").expect("the head is read");
    assert_eq!(Head::decode(head.as_deref()), Ok(Head { count: total, link: previous }));
}

/// A random transaction over few keys, so that transactions conflict.
pub fn draw(dice: &mut Dice) -> Transaction {
    fn key(dice: &mut Dice) -> Bytes {
        let mut key = vec![b'a' + dice.below(4) as u8; dice.below(3) as usize];
        key.push(dice.below(24) as u8 * 11);
        key.into()
    }
    fn range(dice: &mut Dice) -> KeyRange {
        match dice.below(4) {
            0 => KeyRange::all(),
            1 => KeyRange::prefix(key(dice)),
            2 => KeyRange::between(key(dice), key(dice)),
            _ => KeyRange::prefix(key(dice)).after(key(dice)),
        }
    }
    let mut transaction = Transaction::new();
    transaction.reserve = [Reserve::None, Reserve::Half, Reserve::All, Reserve::Spare][dice.below(4) as usize];
    for _ in 0..dice.below(3) {
        let (table, key, range) = (Table(dice.below(3) as u16), key(dice), range(dice));
        transaction = match dice.below(8) {
            0 | 1 => transaction.absent(table, key),
            2 => transaction.present(table, key),
            3 => transaction.equals(table, key, vec![7; dice.below(9) as usize]),
            4 => transaction.digest(table, key, *blake3::hash(&vec![7; dice.below(9) as usize]).as_bytes()),
            5 => transaction.within(Table(3), key, -3, dice.below(9) as i64),
            6 => transaction.empty(Table(9), range),
            _ => transaction.empty(table, range),
        };
    }
    for _ in 0..dice.below(5) {
        let (table, key) = (Table(dice.below(3) as u16), key(dice));
        transaction = match dice.below(8) {
            0..=2 => transaction.put(table, key, vec![7; dice.below(9) as usize]),
            3 if dice.one_in(20) => transaction.put(table, key, vec![8; dice.below(30_000) as usize]),
            3 | 4 => transaction.delete(table, key),
            5 => transaction.add(Table(3), key, dice.below(5) as i64 - 2),
            6 if dice.one_in(30) => transaction.add(table, key, i64::MAX),
            _ => {
                let template = Template::new().bytes(key).number();
                let value = Template::new().previous().bytes(vec![9; dice.below(40) as usize]);
                transaction.append((Table(4), vec![dice.below(2) as u8]), Table(5), template, value)
            }
        };
    }
    transaction
}

/// Panics if the two show different records.
pub fn same(view: &dyn Snapshot, twin: &dyn Snapshot) {
    assert_eq!(view.commit_number(), twin.commit_number());
    for table in (0..6).map(Table) {
        let (left, right) = (all(view, table), all(twin, table));
        if left != right {
            let differ = left.iter().zip(&right).find(|(left, right)| left != right);
            panic!("table {} has {} records, should have {}; {differ:?}", table.0, left.len(), right.len());
        }
    }
}

/// Whether the answers are equal, apart from the wording of a message.
pub fn alike(answer: &Result<Receipt, CatalogError>, expected: &Result<Receipt, CatalogError>) -> bool {
    match (answer, expected) {
        (Err(CatalogError::Invalid(_)), Err(CatalogError::Invalid(_))) => true,
        _ => answer == expected,
    }
}

fn random(catalog: &impl Catalog, seed: u64, steps: usize) {
    let mut dice = Dice::new(seed);
    let twin = MemoryCatalog::new();
    let mut kept: Vec<(Box<dyn Snapshot>, Box<dyn Snapshot>)> = Vec::new();
    for step in 0..steps {
        let transaction = draw(&mut dice);
        let answer = catalog.commit(transaction.clone()).wait();
        let expected = twin.commit(transaction.clone()).wait();
        assert!(
            alike(&answer, &expected),
            "seed {seed}, step {step}: {transaction:?}\nanswered {answer:?}\nnot {expected:?}"
        );
        if dice.one_in(40) {
            kept.push((view(catalog), view(&twin)));
            if kept.len() > 5 {
                kept.remove(dice.below(5) as usize);
            }
        }
        if dice.one_in(10) {
            let (view, twin) = (view(catalog), view(&twin));
            let key = |dice: &mut Dice| vec![b'a' + dice.below(4) as u8; dice.below(3) as usize];
            let range = KeyRange::between(key(&mut dice), key(&mut dice));
            let limit = dice.below(12) as usize;
            for direction in [Direction::Forward, Direction::Backward] {
                for table in (0..6).map(Table) {
                    let range = if dice.one_in(2) { range.clone() } else { KeyRange::all() };
                    assert_eq!(
                        view.range(table, &range, limit, direction),
                        twin.range(table, &range, limit, direction)
                    );
                }
            }
        }
        if step % 100 == 99 {
            for (view, twin) in &kept {
                same(&**view, &**twin);
            }
            same(&*view(catalog), &*view(&twin));
        }
    }
}
