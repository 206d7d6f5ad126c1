use super::samples::*;
use super::*;

fn signed(head: &SignedHead) -> Submission {
    Submission { store: head.store.clone(), head: Some(head.clone()), proof: None }
}

/// A directory of a test, removed at its end.
struct Home(std::path::PathBuf);

impl Home {
    fn new(name: &str) -> Home {
        let home = std::env::temp_dir().join(format!("stele-witness-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&home);
        std::fs::create_dir_all(&home).unwrap();
        Home(home)
    }

    fn witness(&self, stores: &[&Ed25519KeyPair]) -> service::WitnessService {
        let mut witness =
            service::WitnessService::new(&self.0, key(1), stores.iter().map(|store| public(store)).collect());
        witness.open_all(vec!["0a".repeat(16)]).unwrap();
        witness
    }

    fn file(&self, ending: &str) -> std::path::PathBuf {
        self.0.join(format!("{}.{ending}", "0a".repeat(16)))
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_countersignature_holds_for_one_witness_and_one_head() {
    let (store, witness) = (key(7), key(1));
    let made = Countersigned::sign(head(&store, 5, "aa"), "2027-01-15T09:00:00Z".into(), &witness);
    assert_eq!(made.verify(&public(&witness)), Ok(()));
    assert!(made.verify(&public(&key(2))).is_err());
    let other = |change: fn(&mut Countersigned)| {
        let mut other = made.clone();
        change(&mut other);
        assert!(other.verify(&public(&witness)).is_err(), "{other:?}");
    };
    other(|made| made.time = "2027-01-15T09:00:01Z".into());
    other(|made| made.head.records = 6);
    other(|made| made.head.root = "ab".into());
    other(|made| made.format = "stele witness 2".into());
    other(|made| made.signature = made.signature.to_uppercase());
}

#[test]
fn a_witness_signs_one_line_and_keeps_what_contradicts_it() {
    let (home, store) = (Home::new("line"), key(7));
    let mut witness = home.witness(&[&store]);
    let mut ask = |head: &SignedHead| witness.answer(signed(head), 1_800_000_000).unwrap().unwrap();
    let first = ask(&head(&store, 5, "aa"));
    assert_eq!(first.countersigned.as_ref().unwrap().verify(&public(&key(1))), Ok(()));
    assert_eq!(ask(&head(&store, 5, "aa")).refused, None, "the same log again");
    let refused = |answer: Answer, word: &str| {
        assert!(answer.refused.as_ref().is_some_and(|why| why.contains(word)), "{answer:?}");
        assert_eq!(answer.countersigned.unwrap().head.root, "aa");
    };
    refused(ask(&head(&store, 5, "bb")), "another log at record 5");
    refused(ask(&head(&store, 4, "aa")), "set back");
    refused(ask(&head(&store, 6, "cc")), "nothing proves");
    refused(ask(&head(&store, 6, "cc")), "nothing proves");
    let forks = std::fs::read_to_string(home.file("forks")).unwrap();
    assert_eq!(forks.lines().count(), 2, "both heads of each contradiction, once: {forks}");
    assert!(forks.contains("\"bb\"") && forks.contains("\"aa\"") && forks.contains("\"cc\""), "{forks}");
    // Another start knows the same.
    drop(witness);
    let mut witness = home.witness(&[&store]);
    refused(witness.answer(signed(&head(&store, 5, "bb")), 0).unwrap().unwrap(), "another log");
}

/// Anyone who holds the newest head may send it, as often as they like.
#[test]
fn a_head_that_is_sent_again_leaves_no_second_line() {
    let (home, store) = (Home::new("again"), key(7));
    let mut witness = home.witness(&[&store]);
    let mut ask = |head: &SignedHead, now| witness.answer(signed(head), now).unwrap().unwrap();
    let lines = || std::fs::read_to_string(home.file("heads")).unwrap().lines().count();
    let first = ask(&head(&store, 5, "aa"), 1_800_000_000);
    for later in 1..100 {
        let again = ask(&head(&store, 5, "aa"), 1_800_000_000 + later);
        assert_eq!((again.refused, &again.countersigned), (None, &first.countersigned));
    }
    assert_eq!(lines(), 1);
    // The store itself signs later that its log still ends there.
    let later = dated(&store, 5, "aa", "2027-01-15T09:00:00.000Z");
    let signed_later = ask(&later, 1_800_003_600).countersigned.unwrap();
    assert_eq!(signed_later.head, later);
    let earlier = ask(&head(&store, 5, "aa"), 1_800_003_601);
    assert_eq!((earlier.refused, earlier.countersigned), (None, Some(signed_later)));
    assert_eq!(lines(), 2);
}

#[test]
fn a_witness_hears_known_stores_alone() {
    let (home, store, stranger) = (Home::new("known"), key(7), key(8));
    let mut witness = home.witness(&[&store]);
    assert_eq!(witness.answer(signed(&head(&stranger, 5, "aa")), 0).unwrap(), None);
    let forged = SignedHead { root: "bb".into(), ..head(&store, 5, "aa") };
    assert_eq!(witness.answer(signed(&forged), 0).unwrap(), None);
    let elsewhere = Submission { store: "../../etc/passwd".into(), ..signed(&head(&store, 5, "aa")) };
    assert_eq!(witness.answer(elsewhere, 0).unwrap(), None);
    // Two known stores: neither may speak for the other.
    let mut witness = home.witness(&[&store, &stranger]);
    assert!(witness.answer(signed(&head(&store, 5, "aa")), 0).unwrap().is_some());
    assert_eq!(witness.answer(signed(&head(&stranger, 9, "aa")), 0).unwrap(), None);
}

#[test]
fn a_line_that_was_cut_is_dropped_and_one_that_was_changed_stops_the_start() {
    let (home, store) = (Home::new("torn"), key(7));
    home.witness(&[&store]).answer(signed(&head(&store, 5, "aa")), 0).unwrap();
    let path = home.file("heads");
    let whole = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, format!("{whole}{}", &whole[..whole.len() / 2])).unwrap();
    let mut witness = home.witness(&[&store]);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), whole);
    let asked = Submission { store: "0a".repeat(16), head: None, proof: None };
    assert_eq!(witness.answer(asked, 0).unwrap().unwrap().countersigned.unwrap().head.records, 5);
    std::fs::write(&path, whole.replace("\"records\":5", "\"records\":4")).unwrap();
    let mut witness = service::WitnessService::new(&home.0, key(1), vec![public(&store)]);
    let failure = witness.open_all(vec!["0a".repeat(16)]).unwrap_err();
    assert!(failure.error.contains("line 1"), "{}", failure.error);
}

/// One host has a whole /64 of IPv6 addresses, and could keep the others out with them.
#[test]
fn the_addresses_of_one_host_share_its_connections() {
    let places = std::sync::Arc::default();
    let enter = |address: &str| service::enter(&places, address.parse().unwrap());
    let held: Vec<_> = (0..16).map(|number| enter(&format!("2001:db8::{number:x}"))).collect();
    assert!(held.iter().all(Option::is_some));
    assert!(enter("2001:db8::ffff").is_none() && enter("2001:db8:0:1::1").is_some());
}

/// Anyone who holds an old head could fill the disk of the witness with its log.
#[test]
fn refused_heads_are_few_lines_a_minute_for_each_store() {
    let home = Home::new("told");
    let mut witness = home.witness(&[]);
    let begun = std::time::Instant::now();
    let minute = crate::serving::seldom::TOLD_WITHIN;
    let mut told = |store: &str, after| witness.refusal(store, "the head is old", begun + after);
    let lines: Vec<String> = (0..1000).filter_map(|turn| told("one", minute * turn / 1001)).collect();
    assert_eq!(lines.len(), 5, "{lines:?}");
    assert!(told("two", minute / 2).is_some(), "another store has lines of its own");
    let next = told("one", minute).expect("a line of the next minute");
    assert!(next.contains("995 more heads were refused"), "{next}");
}

/// A connection that asked on and on kept its place for ever.
#[tokio::test]
async fn a_connection_to_a_witness_ends_though_it_asks_on() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let home = Home::new("life");
    let witness = std::sync::Arc::new(std::sync::Mutex::new(home.witness(&[])));
    let (mut near, far) = tokio::io::duplex(64 << 10);
    let stopping = tokio::sync::watch::Sender::new(false);
    let life = std::time::Duration::from_millis(200);
    let served = tokio::spawn(service::attend(far, witness, stopping.subscribe(), life));
    let mut answers = 0;
    // Each request comes well within the time for one.
    while near.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.is_ok() {
        let mut answer = [0; 4096];
        if !matches!(near.read(&mut answer).await, Ok(1..)) {
            break;
        }
        answers += 1;
    }
    served.await.unwrap();
    assert!(answers > 0, "it was served before");
}
