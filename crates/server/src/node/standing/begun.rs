//! Standing alarms whose begin nothing else tells: the archive, a drive or a file system only says
//! that they stand. The server tells each once when it sees it for the first time, as the others.
//!
//! The list lives in memory. An alarm that stands at a start is therefore told again, as alarms of
//! drives are.

use std::collections::BTreeSet;

use super::Node;
use crate::api::pool::{AlarmView, StandingView};
use crate::node::wall_clock;

/// The kinds that only stand.
const KINDS: [&str; 16] = [
    "audit",
    "catalog-stopped",
    "certificate",
    "data-directory",
    "drive-path",
    "drive-smart",
    "expiration-paused",
    "file-system-low",
    "inventory",
    "notifications",
    "officers",
    "pool-silent",
    "rebuild",
    "refusals",
    "self-test",
    "volume-incomplete",
];

/// The alarms of these kinds that stood at the last look.
#[derive(Default)]
pub struct BegunAlarms(BTreeSet<(String, String)>);

impl BegunAlarms {
    /// Those that did not stand at the last look.
    pub fn look<'a>(&mut self, standing: &'a [StandingView]) -> Vec<&'a StandingView> {
        let only_stand: Vec<&StandingView> = standing.iter().filter(|alarm| only_stands(alarm)).collect();
        let before = std::mem::replace(&mut self.0, only_stand.iter().map(|alarm| identity(alarm)).collect());
        only_stand.into_iter().filter(|alarm| !before.contains(&identity(alarm))).collect()
    }
}

/// The array tells low space of the pool, and nothing tells that of the archive and the catalog.
fn only_stands(alarm: &StandingView) -> bool {
    KINDS.contains(&alarm.kind.as_str()) || (alarm.kind == "space-low" && alarm.subject != "pool")
}

/// Most messages contain counts that change while the alarm stands. Each request for an officer is
/// an alarm of its own, and only its message names it.
fn identity(alarm: &StandingView) -> (String, String) {
    let subject = if alarm.kind == "officers" { &alarm.message } else { &alarm.subject };
    (alarm.kind.clone(), subject.clone())
}

impl Node {
    /// Tells that an alarm has begun to stand.
    pub fn note_begun(&self, alarm: &StandingView) {
        self.alarms.keep(AlarmView {
            at: wall_clock(),
            severity: "warning".to_owned(),
            kind: alarm.kind.clone(),
            drive: alarm.subject.strip_prefix("drive ").and_then(|number| number.parse().ok()),
            since: Some(alarm.since),
            message: alarm.message.clone(),
            next: alarm.next.clone(),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::standing::alarm;

    #[test]
    fn an_alarm_that_only_stands_is_told_when_it_begins() {
        let stands = |alarms: &[(&str, &str, &str)]| -> Vec<StandingView> {
            alarms.iter().map(|(kind, of, says)| alarm(kind, of, (*says).to_owned(), "", "")).collect()
        };
        let mut begun = BegunAlarms::default();
        let mut told = |alarms: &[(&str, &str, &str)]| -> Vec<String> {
            begun.look(&stands(alarms)).into_iter().map(|alarm| format!("{}: {}", alarm.kind, alarm.message)).collect()
        };
        let (one, other) = (("officers", "archive", "request 1"), ("officers", "archive", "request 2"));
        assert_eq!(told(&[one, ("clock", "archive", "frozen")]), ["officers: request 1"], "the clock tells by itself");
        assert_eq!(told(&[one, other]), ["officers: request 2"]);
        assert_eq!(told(&[other, ("self-test", "archive", "1 act")]), ["self-test: 1 act"]);
        assert_eq!(told(&[other, ("self-test", "archive", "2 acts")]), [""; 0], "it stands already");
        assert_eq!(told(&[("space-low", "catalog", "1 MiB"), ("space-low", "pool", "2 MiB")]), ["space-low: 1 MiB"]);
        assert_eq!(told(&[("self-test", "archive", "1 act")]), ["self-test: 1 act"], "it came back");
    }

    #[test]
    fn every_kind_that_only_stands_has_a_counter() {
        for kind in KINDS {
            assert!(crate::node::alarms::KINDS.contains(&kind), "{kind}");
        }
    }
}
