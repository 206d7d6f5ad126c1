use std::path::Path;

use super::*;
use crate::config;
use crate::failure::Kind;

fn alarm(kind: &str, subject: &str) -> StandingView {
    let text = |text: &str| text.to_owned();
    StandingView {
        kind: text(kind),
        subject: text(subject),
        since: 5,
        message: text("it is away"),
        done: String::new(),
        next: String::new(),
    }
}

fn of(count: u64, kinds: &[&str]) -> (u64, Vec<AlarmView>) {
    let one = |kind: &&str| AlarmView {
        at: 7,
        severity: "notice".to_owned(),
        kind: (*kind).to_owned(),
        drive: Some(3),
        since: None,
        message: "mended".to_owned(),
        next: String::new(),
    };
    (count, kinds.iter().map(one).collect())
}

fn told(messages: &MessageQueues) -> Vec<(u64, &'static str, String)> {
    let queue = &messages.queues[0];
    let waiting = std::mem::take(&mut queue.lock().messages);
    waiting
        .into_iter()
        .map(|message| (message.number, message.state, format!("{} {}", message.kind, message.subject)))
        .collect()
}

fn one_queue() -> MessageQueues {
    MessageQueues { queues: vec![Arc::default()], ..MessageQueues::default() }
}

#[test]
fn an_alarm_is_told_once_when_it_begins_and_once_when_it_ends() {
    let messages = one_queue();
    let (one, other) = (alarm("drive-missing", "drive 1"), alarm("drive-missing", "drive 2"));
    for _ in 0..3 {
        messages.note("p", std::slice::from_ref(&one), of(0, &[]), 9);
    }
    assert_eq!(told(&messages), [(1, "begun", "drive-missing drive 1".to_owned())]);
    messages.note("p", &[one, other], of(0, &[]), 9);
    messages.note("p", &[], of(0, &[]), 9);
    let words: Vec<&str> = told(&messages).iter().map(|(_, state, _)| *state).collect();
    assert_eq!(words, ["begun", "ended", "ended"]);
}

#[test]
fn what_happens_at_a_moment_is_told_once() {
    let messages = one_queue();
    messages.note("p", &[], of(2, &["drive-recovered", "damage-repaired"]), 9);
    assert_eq!(told(&messages), [(1, "happened", "damage-repaired drive 3".to_owned())]);
    messages.note("p", &[], of(2, &["drive-recovered", "damage-repaired"]), 9);
    assert_eq!(told(&messages), []);
    messages.note("p", &[], of(3, &["drive-recovered", "damage-repaired", "damage-repaired"]), 9);
    assert_eq!(told(&messages).len(), 1);
}

#[test]
fn a_full_queue_drops_the_oldest_and_says_so() {
    let messages = one_queue();
    let all: Vec<StandingView> = (0..WAITING_MAX + 3).map(|n| alarm("space-low", &n.to_string())).collect();
    messages.note("p", &all, of(0, &[]), 9);
    let queue = &messages.queues[0];
    let first = queue.first().unwrap();
    assert_eq!((first.number, first.dropped, queue.lock().messages.len()), (4, 3, WAITING_MAX));
    queue.taken(&first);
    assert_eq!((queue.first().unwrap().number, queue.first().unwrap().dropped), (5, 0));
    // Taking a message that was dropped meanwhile removes no other message.
    queue.taken(&first);
    assert_eq!(queue.first().unwrap().number, 5);
}

#[test]
fn a_password_has_no_place_in_the_configuration() {
    let site = Site::find(Some(Path::new("/nowhere")), None);
    let config = config::Messages {
        mail_to: vec!["one@example.org".to_owned()],
        mail_from: Some("stele@example.org".to_owned()),
        mail_server: Some("smtp://user:secret@mail.example.org:587".to_owned()),
        ..config::Messages::default()
    };
    let refused = mail::Mail::each(&site, &config, "mail_to", &config.mail_to).err().unwrap();
    assert_eq!(refused.kind, Kind::Usage);
    assert!(refused.next.contains("mail_password") && !refused.to_string().contains("secret"), "{refused}");
}
