//! The store as frontends see it.

use crate::testing::{World, admin, content, get, get_with, put};
use crate::*;

mod acts;
mod basics;
mod beside;
mod budget;
mod cancel;
mod classes;
mod clock;
mod closing;
mod counting;
mod disposals;
mod events;
mod evidence;
mod exact;
mod expiring;
mod faults;
mod finding;
mod given_up;
mod growth;
mod key_life;
mod leftovers;
mod lifecycle;
mod listing;
mod matters;
mod model;
mod moving;
mod named;
mod notifications;
mod officers;
mod owned;
mod parts;
mod policies;
mod proofs;
mod readers;
mod rebuilding;
mod receipts;
mod refused;
mod reports;
mod rules;
mod self_test;
mod sessions;
mod turns;
mod two_people;
mod unfinished;
mod unreadable;
mod waiting;

/// Scrubs the whole archive once.
async fn scrub(archive: &Archive) -> ScrubReport {
    let (mut cursor, mut whole) = (ScrubCursor::default(), ScrubReport::default());
    loop {
        let step = archive.scrub_step(&mut cursor, u64::MAX).await.unwrap();
        whole.bytes += step.bytes;
        whole.records += step.records;
        whole.record_bytes += step.record_bytes;
        whole.findings.extend(step.findings);
        whole.places.extend(step.places);
        if step.finished {
            return whole;
        }
    }
}
