//! Scrubs of the archive: what they have read, and what they found, until it verifies or is gone.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use stele_archive::{ScrubCursor, ScrubPlace, ScrubReport};

use super::Node;
use crate::failure::Outcome;

/// What scrubs of the archive have read and found since it was opened.
#[derive(Default)]
pub(super) struct Verification {
    bytes: AtomicU64,
    /// What did not verify, until it does or is gone.
    damage: Mutex<BTreeMap<ScrubPlace, String>>,
    /// The last of it that was verified again.
    looked_at: Mutex<Option<ScrubPlace>>,
}

impl Node {
    /// One step of a scrub of the archive, whoever asked for it.
    pub async fn verify_some(&self, cursor: &mut ScrubCursor, budget: u64) -> Outcome<ScrubReport> {
        let report = self.archive()?.scrub_step(cursor, budget).await?;
        let state = &self.verification;
        state.bytes.fetch_add(report.bytes + report.record_bytes, Relaxed);
        let fresh = {
            let mut damage = state.damage.lock().unwrap_or_else(PoisonError::into_inner);
            let found = report.places.iter().zip(&report.findings);
            found.filter(|(place, text)| damage.insert((*place).clone(), (*text).clone()).is_none()).count()
        };
        // What is known already is not told again.
        if let (Some(first), 1..) = (report.findings.first(), fresh) {
            let more = if fresh > 1 { format!(" (and {} more)", fresh - 1) } else { String::new() };
            self.note_alarm("damage", &format!("{first}{more}"));
        }
        if report.finished {
            self.verify_damage(usize::MAX).await?;
        }
        Ok(report)
    }

    /// Verifies again some of what did not verify: what does now, or is gone, stands no longer.
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

    /// What was found damaged, until it verifies or is gone.
    pub fn damage(&self) -> Option<String> {
        let damage = self.verification.damage.lock().unwrap_or_else(PoisonError::into_inner);
        let first = damage.values().next()?;
        Some(match damage.len() {
            1 => first.clone(),
            more => format!("{first} (and {} more)", more - 1),
        })
    }
}
