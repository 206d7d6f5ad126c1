//! What is wrong with the places of signed heads now. It stands in `stele pool status`, in the
//! metrics and in messages.
//!
//! A comparison finds places that cannot be read, and files that are no heads of this store. While
//! such findings stand, the server compares again, so that they end with their cause. A turn of
//! sending finds places that take no head.
//!
//! Failure model: a place that hangs holds the thread that looks at it. No further comparison
//! begins before that thread has ended, and its findings stand until then. A place that could not
//! be read at a start may show later that the pool was set back. The archive takes changes by then:
//! the alarm says so, and the next start opens it read-only.

use std::sync::{Arc, Mutex, PoisonError};

use super::compare;
use crate::api::pool::StandingView;
use crate::config::Site;
use crate::node::Node;
use crate::node::standing::{alarm, next_of};
use crate::node::volumes::Trouble;

/// One finding: its place, and the alarm's message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HeadFinding {
    pub subject: String,
    pub message: String,
}

impl HeadFinding {
    pub fn new(subject: impl ToString, message: impl Into<String>) -> HeadFinding {
        HeadFinding { subject: subject.to_string(), message: message.into() }
    }
}

/// Held by each thread that looks at a place.
pub type Looking = Arc<()>;

#[derive(Default)]
pub struct HeadFindings {
    found: Mutex<KeptFindings>,
    looking: Looking,
}

#[derive(Default)]
struct KeptFindings {
    /// Of the last comparison.
    compared: Vec<HeadFinding>,
    /// A comparison after the start found a newer head, or one of another history.
    set_back: Option<Trouble>,
    /// Of the last turn of sending.
    unsent: Vec<HeadFinding>,
}

impl HeadFindings {
    fn lock(&self) -> std::sync::MutexGuard<'_, KeptFindings> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn looking(&self) -> Looking {
        Arc::clone(&self.looking)
    }

    /// Keeps what a comparison found, and returns what is news.
    pub fn note_compared(&self, found: Vec<HeadFinding>) -> Vec<HeadFinding> {
        let before = std::mem::replace(&mut self.lock().compared, found.clone());
        found.into_iter().filter(|found| before.iter().all(|known| known.subject != found.subject)).collect()
    }

    /// Keeps what the last turn of sending found.
    pub fn note_unsent(&self, found: Vec<HeadFinding>) {
        self.lock().unsent = found;
    }

    /// Keeps whether a later comparison found that the pool was set back, and returns whether that
    /// is news.
    fn note_set_back(&self, trouble: Option<&Trouble>) -> bool {
        let before = std::mem::replace(&mut self.lock().set_back, trouble.cloned());
        trouble.is_some() && before.is_none()
    }

    /// Whether findings of a comparison stand.
    fn is_wrong(&self) -> bool {
        let found = self.lock();
        !found.compared.is_empty() || found.set_back.is_some()
    }

    /// Whether to compare again: findings stand, and no thread looks at a place still.
    fn is_due(&self) -> bool {
        self.is_wrong() && Arc::strong_count(&self.looking) == 1
    }

    pub fn standing(&self) -> Vec<StandingView> {
        let found = self.lock();
        let stands = |found: &HeadFinding, done: &str| {
            alarm("heads", &found.subject, found.message.clone(), done, next_of("heads"))
        };
        let compared = "the log is compared with the places again, within the hour; heads go to all of them";
        let unsent = "it is tried again at each turn; the other places get every head";
        let set_back = found.set_back.iter().map(|trouble| {
            alarm(trouble.kind, "heads", trouble.message.clone(), "the archive takes changes", trouble.next.clone())
        });
        let compared = found.compared.iter().map(|found| stands(found, compared));
        compared.chain(found.unsent.iter().map(|found| stands(found, unsent))).chain(set_back).collect()
    }
}

impl Node {
    /// Compares the log with the heads again while findings of a comparison stand. Returns whether
    /// they stand still.
    pub async fn compare_heads_again(&self, site: &Site) -> bool {
        let (Ok(archive), true) = (self.archive(), self.head_findings.is_due()) else {
            return self.head_findings.is_wrong();
        };
        let compared = match compare(site, &self.config, archive, &self.head_findings.looking()).await {
            Ok(compared) => compared,
            Err(failure) => {
                tracing::warn!("the log could not be compared with its heads: {}", failure.on_one_line());
                return true;
            }
        };
        let news = self.head_findings.note_compared(compared.unasked);
        news.iter().for_each(|found| self.note_alarm("heads", &found.message));
        // One that was found at the start stands by itself.
        let trouble = compared.trouble.filter(|_| self.trouble().is_none()).map(|trouble| Trouble {
            message: format!("{}; that could not be seen at the start, and changes are taken", trouble.message),
            next: format!("stop the server, and start it again: it opens the archive read-only; then {}", trouble.next),
            ..trouble
        });
        if self.head_findings.note_set_back(trouble.as_ref())
            && let Some(Trouble { kind, message, next }) = &trouble
        {
            self.alarms_kept().warn(kind, message, next);
        }
        self.head_findings.is_wrong()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(places: &[&str]) -> Vec<HeadFinding> {
        places.iter().map(|place| HeadFinding::new(place, format!("{place} cannot be read"))).collect()
    }

    #[test]
    fn a_finding_stands_until_a_comparison_does_not_find_it() {
        let findings = HeadFindings::default();
        let subjects = || findings.standing().into_iter().map(|alarm| alarm.subject).collect::<Vec<_>>();
        assert!(subjects().is_empty() && !findings.is_due(), "where nothing is wrong, no place is read");
        assert_eq!(findings.note_compared(of(&["/mnt/a", "/mnt/b"])).len(), 2);
        assert!(findings.is_due());
        assert_eq!(findings.note_compared(of(&["/mnt/b", "/mnt/c"])), of(&["/mnt/c"]), "what stood is no news");
        findings.note_unsent(of(&["/mnt/d"]));
        assert_eq!(subjects(), ["/mnt/b", "/mnt/c", "/mnt/d"]);
        let standing = findings.standing();
        assert!(standing.iter().all(|alarm| alarm.kind == "heads" && !alarm.done.is_empty() && !alarm.next.is_empty()));
        // A thread hangs at a place.
        let held = findings.looking();
        assert!(!findings.is_due());
        drop(held);
        assert!(findings.is_due());
        findings.note_compared(Vec::new());
        assert!(!findings.is_due(), "a place that takes no head is no finding of a comparison");
        findings.note_unsent(Vec::new());
        assert!(subjects().is_empty());
    }

    #[test]
    fn a_pool_that_turns_out_to_be_set_back_stands_as_rolled_back() {
        let findings = HeadFindings::default();
        let trouble =
            Trouble { kind: super::super::ROLLED_BACK, message: "it was set back".to_owned(), next: "stop".to_owned() };
        assert!(findings.note_set_back(Some(&trouble)) && !findings.note_set_back(Some(&trouble)));
        let standing = findings.standing();
        assert_eq!((standing.len(), standing[0].kind.as_str()), (1, "rolled-back"));
        assert!(findings.is_due(), "it ends if the place shows otherwise");
        assert!(!findings.note_set_back(None) && findings.standing().is_empty());
    }
}
