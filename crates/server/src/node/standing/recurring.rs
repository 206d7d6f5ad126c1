//! Alarms that the archive repeats at every step of its work as long as their cause lasts: no room
//! for a checkpoint of the audit log, for a matter, or for reclamation. Each is told once and
//! stands.
//!
//! The archive does not say when the cause has ended. An alarm stands until it did not come for
//! [`LASTS`]. The list lives in memory: what lasts over a restart is told again.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use stele_archive::{Alarm, AlarmKind};

/// Longer than any pause between two steps.
const LASTS: Duration = Duration::from_secs(300);

/// The last alarm about each work, and when it came.
#[derive(Default)]
pub struct Recurring(Mutex<BTreeMap<String, (Alarm, Instant)>>);

impl Recurring {
    /// Whether the alarm is news: none about the same work stands, or its kind is told once anyway.
    pub fn note(&self, alarm: &Alarm, now: Instant) -> bool {
        if alarm.kind != AlarmKind::Space {
            return true;
        }
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.retain(|_, (_, came)| lasts(*came, now));
        last.insert(work(alarm).to_owned(), (alarm.clone(), now)).is_none()
    }

    /// Those that stand.
    pub fn list(&self, now: Instant) -> Vec<Alarm> {
        let last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.values().filter(|(_, came)| lasts(*came, now)).map(|(alarm, _)| alarm.clone()).collect()
    }
}

fn lasts(came: Instant, now: Instant) -> bool {
    now.saturating_duration_since(came) < LASTS
}

/// What has no room, as in `audit checkpoint: the data volume has no free segment`.
fn work(alarm: &Alarm) -> &str {
    alarm.message.split_once(": ").map_or(&*alarm.message, |(work, _)| work)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alarm(kind: AlarmKind, message: &str) -> Alarm {
        Alarm { kind, message: message.to_owned() }
    }

    #[test]
    fn an_alarm_that_each_step_repeats_is_told_once_and_stands() {
        let (recurring, begun) = (Recurring::default(), Instant::now());
        let space = |free: u32| alarm(AlarmKind::Space, &format!("audit checkpoint: {free} segments are free"));
        let at = |second: u32| begun + second * Duration::from_secs(1);
        let told = (0..600).filter(|second| recurring.note(&space(second % 2), at(*second))).count();
        assert_eq!(told, 1, "another number of segments is no news");
        assert!(recurring.note(&alarm(AlarmKind::Space, "reclamation: no room"), at(600)));
        let standing = recurring.list(at(600));
        assert_eq!(standing, [space(1), alarm(AlarmKind::Space, "reclamation: no room")]);
        // It has ended, and comes back.
        let later = begun + Duration::from_secs(600) + LASTS;
        assert!(recurring.list(later).is_empty());
        assert!(recurring.note(&space(0), later));
    }

    #[test]
    fn alarms_that_come_once_are_all_told() {
        let (recurring, now) = (Recurring::default(), Instant::now());
        let damage = alarm(AlarmKind::Damage, "segment 1 has places that cannot be read");
        assert!(recurring.note(&damage, now) && recurring.note(&damage, now));
        assert!(recurring.list(now).is_empty(), "what stands of them, the archive says");
    }
}
