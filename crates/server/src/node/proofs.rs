//! Exports of retention proofs that are under way.
//!
//! An export is taken out while it makes a piece. If the caller goes away meanwhile, the export is
//! gone, and the next call says so. Only a few are kept; a new one displaces the one that was used
//! least recently.

use std::sync::{Mutex, PoisonError};

use stele_archive::{ProofExport, ProofPiece};

use crate::failure::{Failure, Kind, Outcome};

/// Exports at a time.
const EXPORTS_MAX: usize = 4;

#[derive(Default)]
pub struct Proofs(Mutex<State>);

#[derive(Default)]
struct State {
    last: u64,
    /// The one used least recently first.
    waiting: Vec<Waiting>,
}

struct Waiting {
    number: u64,
    uid: u32,
    export: ProofExport,
}

impl Proofs {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a new export of this user, and returns its number.
    pub fn add(&self, uid: u32, export: ProofExport) -> u64 {
        let mut state = self.state();
        state.last += 1;
        let number = state.last;
        state.keep(Waiting { number, uid, export });
        number
    }

    /// The next piece of this user's export.
    pub async fn next(&self, uid: u32, number: u64) -> Outcome<Option<ProofPiece>> {
        let taken = self.state().take(uid, number);
        let Some(mut waiting) = taken else {
            return Err(Failure::new(Kind::Missing, format!("there is no export {number}: it ended or was displaced"))
                .next("begin it again with `stele proof export`"));
        };
        let piece = waiting.export.next().await?;
        if piece.as_ref().is_some_and(|piece| piece.signature.is_none()) {
            self.state().keep(waiting);
        }
        Ok(piece)
    }
}

impl State {
    fn keep(&mut self, waiting: Waiting) {
        if self.waiting.len() >= EXPORTS_MAX {
            self.waiting.remove(0);
        }
        self.waiting.push(waiting);
    }

    fn take(&mut self, uid: u32, number: u64) -> Option<Waiting> {
        let at = self.waiting.iter().position(|waiting| waiting.number == number && waiting.uid == uid)?;
        Some(self.waiting.remove(at))
    }
}
