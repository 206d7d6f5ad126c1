//! Scrubs of the archive: the bytes read, and the damage found until it verifies or is gone.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use stele_archive::{ScrubCursor, ScrubPlace, ScrubReport};

use super::Node;
use crate::failure::Outcome;

/// The totals and findings of archive scrubs since the opening.
#[derive(Default)]
pub(super) struct Verification {
    bytes: AtomicU64,
    /// Damage that was found, until it verifies or is gone.
    damage: Mutex<BTreeMap<ScrubPlace, String>>,
    /// The damaged place that was verified again last.
    looked_at: Mutex<Option<ScrubPlace>>,
}

impl Node {
    /// One step of an archive scrub, for every caller.
    pub async fn verify_some(&self, cursor: &mut ScrubCursor, budget: u64) -> Outcome<ScrubReport> {
        let report = self.archive()?.scrub_step(cursor, budget).await?;
        let state = &self.verification;
        state.bytes.fetch_add(report.bytes + report.record_bytes, Relaxed);
        let fresh = {
            let mut damage = state.damage.lock().unwrap_or_else(PoisonError::into_inner);
            let found = report.places.iter().zip(&report.findings);
            found.filter(|(place, text)| damage.insert((*place).clone(), (*text).clone()).is_none()).count()
        };
        // Known damage raises no second alarm.
        if let (Some(first), 1..) = (report.findings.first(), fresh) {
            let more = if fresh > 1 { format!(" (and {} more)", fresh - 1) } else { String::new() };
            self.note_alarm("damage", &format!("{first}{more}"));
        }
        if report.finished {
            self.verify_damage(usize::MAX).await?;
        }
        Ok(report)
    }

    /// Verifies some damaged places again, and forgets those that verify now or are gone.
    pub async fn verify_damage(&self, most: usize) -> Outcome<()> {
        let (archive, state) = (self.archive()?, &self.verification);
        let known: Vec<ScrubPlace> =
            state.damage.lock().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect();
        let last = state.looked_at.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let after = last.map_or(0, |last| known.partition_point(|place| *place <= last));
        for place in known.iter().cycle().skip(after).take(most.min(known.len())) {
            let found = archive.scrub_again(place).await?;
            let mut damage = state.damage.lock().unwrap_or_else(PoisonError::into_inner);
            match found {
                Some(text) => drop(damage.insert(place.clone(), text)),
                None => drop(damage.remove(place)),
            }
            drop(damage);
            *state.looked_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(place.clone());
        }
        Ok(())
    }

    /// Bytes of content and of records verified since the archive was opened.
    pub fn verified_bytes(&self) -> u64 {
        self.verification.bytes.load(Relaxed)
    }

    /// The damage found so far that neither verifies nor is gone.
    pub fn damage(&self) -> Option<String> {
        let damage = self.verification.damage.lock().unwrap_or_else(PoisonError::into_inner);
        let first = damage.values().next()?;
        Some(match damage.len() {
            1 => first.clone(),
            more => format!("{first} (and {} more)", more - 1),
        })
    }
}
