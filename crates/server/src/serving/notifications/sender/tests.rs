use std::sync::Mutex;

use stele_archive::Timestamp;

use super::*;

/// Events numbered from 1, of which the first `deleted` are gone.
#[derive(Default)]
struct Fake {
    names: Vec<&'static str>,
    deleted: u64,
    read_only: bool,
    stuck: bool,
}

impl Waiting for &Mutex<Fake> {
    fn target(&self) -> &str {
        "fake"
    }

    fn is_read_only(&self) -> bool {
        self.lock().unwrap().read_only
    }

    fn oldest(&self, most: usize) -> Result<Vec<Numbered>, String> {
        let fake = self.lock().unwrap();
        let events = fake.names.iter().enumerate().map(|(at, name)| (at as u64 + 1, event(name)));
        Ok(events.skip(fake.deleted as usize).take(most).collect())
    }

    async fn delivered(&self, through: u64) -> Result<(), String> {
        let mut fake = self.lock().unwrap();
        if fake.stuck {
            return Err("the catalog has stopped".into());
        }
        fake.deleted = through;
        Ok(())
    }
}

/// A place that notes the numbers of each message that it takes.
#[derive(Default)]
struct Noted {
    taken: Vec<Vec<u64>>,
    /// Numbers of events with which it refuses a message, and the largest number of events.
    refuses: Vec<u64>,
    most: Option<usize>,
}

impl EventPlace for Noted {
    async fn take(&mut self, events: Vec<Numbered>) -> Result<u64, NotTaken> {
        let numbers: Vec<u64> = events.iter().map(|(number, _)| *number).collect();
        let refused = numbers.iter().any(|number| self.refuses.contains(number));
        if refused || self.most.is_some_and(|most| numbers.len() > most) {
            return Err(NotTaken::Refused("413".into()));
        }
        self.taken.push(numbers);
        events.last().map(|(number, _)| *number).ok_or_else(|| NotTaken::Failed("an empty message".into()))
    }
}

fn event(name: &str) -> ObjectEvent {
    ObjectEvent {
        time: Timestamp(0),
        name: name.into(),
        rule: String::new(),
        bucket: "b".into(),
        bucket_owner: String::new(),
        region: String::new(),
        key: "k".into(),
        version: None,
        size: None,
        etag: None,
        actor: String::new(),
        origin: None,
    }
}

#[tokio::test]
async fn nothing_is_sent_twice_while_nothing_can_be_deleted() {
    let fake = Mutex::new(Fake { names: vec!["a", "b"], read_only: true, ..Fake::default() });
    let mut sender = EventSender::new(&fake, Noted::default());
    for _ in 0..3 {
        assert!(sender.step().await.is_err());
    }
    assert!(sender.place.taken.is_empty(), "a read-only archive sends nothing");
    *fake.lock().unwrap() = Fake { names: vec!["a", "b"], stuck: true, ..Fake::default() };
    for _ in 0..3 {
        assert!(sender.step().await.is_err());
    }
    assert_eq!(sender.place.taken, [[1, 2]], "only the deletion is tried again");
    fake.lock().unwrap().stuck = false;
    fake.lock().unwrap().names.push("c");
    assert_eq!(sender.step().await, Ok(true));
    assert_eq!(sender.step().await, Ok(true));
    assert_eq!(sender.step().await, Ok(false));
    assert_eq!(sender.place.taken, [vec![1, 2], vec![3]]);
}

#[tokio::test]
async fn a_test_event_is_a_message_of_its_own() {
    let fake = Mutex::new(Fake { names: vec!["a", "b", TEST_EVENT, "c"], ..Fake::default() });
    let mut sender = EventSender::new(&fake, Noted::default());
    while sender.step().await == Ok(true) {}
    assert_eq!(sender.place.taken, [vec![1, 2], vec![3], vec![4]]);
}

#[tokio::test]
async fn a_message_that_is_refused_is_halved() {
    let fake = Mutex::new(Fake { names: vec!["a"; 250], ..Fake::default() });
    let mut sender = EventSender::new(&fake, Noted { most: Some(30), ..Noted::default() });
    let mut refusals = 0;
    while fake.lock().unwrap().deleted < 250 {
        refusals += u32::from(sender.step().await.is_err());
        assert!(refusals < 100, "{:?}", sender.place.taken);
    }
    let numbers: Vec<u64> = sender.place.taken.iter().flatten().copied().collect();
    assert_eq!(numbers, (1..=250).collect::<Vec<u64>>(), "all of them, in order");
}

#[tokio::test]
async fn one_refused_event_lets_the_earlier_ones_pass() {
    let fake = Mutex::new(Fake { names: vec!["a"; 100], ..Fake::default() });
    let mut sender = EventSender::new(&fake, Noted { refuses: vec![40], ..Noted::default() });
    for _ in 0..50 {
        let _ = sender.step().await;
    }
    assert_eq!(fake.lock().unwrap().deleted, 39);
    sender.place.refuses.clear();
    while sender.step().await == Ok(true) {}
    assert_eq!(fake.lock().unwrap().deleted, 100);
}

#[tokio::test]
async fn a_test_event_that_is_refused_holds_up_nothing() {
    let fake = Mutex::new(Fake { names: vec![TEST_EVENT, "a"], ..Fake::default() });
    let mut sender = EventSender::new(&fake, Noted { refuses: vec![1], ..Noted::default() });
    while sender.step().await == Ok(true) {}
    assert_eq!(sender.place.taken, [[2]]);
}

#[test]
fn the_log_names_the_target_and_counts_its_events() {
    assert!(refused_test("search", "404").contains("the target search of notifications refuses the test event"));
    assert!(refused(1, "404").ends_with("a message of 1 event: 404"));
    assert!(refused(3, "404").ends_with("a message of 3 events: 404"));
}

#[test]
fn a_message_is_bounded_in_bytes() {
    let long = |number| (number, ObjectEvent { key: "\u{fc}".repeat(512), ..event("a") });
    let events: Vec<Numbered> = (1..=100).map(long).collect();
    let message = one_message(events).unwrap();
    assert!((20..100).contains(&message.len()), "{}", message.len());
    assert!(record::message(&message).unwrap().len() <= MESSAGE_MAX);
    let huge = vec![(1, ObjectEvent { key: "\u{fc}".repeat(MESSAGE_MAX), ..event("a") })];
    assert_eq!(one_message(huge).unwrap().len(), 1, "one event always goes");
}
