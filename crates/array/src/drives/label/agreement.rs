//! The rules by which the drives of a pool agree on its configuration: pure functions, used by the
//! code that opens a pool and by the model in `agreement/model.rs`, which checks them exhaustively.
//! SEMANTICS/agreement.md is the protocol.
//!
//! One process at a time writes; the drives are registers that it reads and writes. An opening
//! first announces an epoch to a majority (the promise), and only then writes a configuration with
//! that epoch. So two configurations never carry one epoch, and what a cut left on a minority never
//! outbids what a majority agreed later. An opening without that minority meets the promise on the
//! majority and goes above it.

use stele_ground::digest::crc32c;

use super::codec::Label;
use super::{Configuration, DriveState};
use crate::model::place::DriveNumber;

/// True when more than half of the table's voters are among these drives.
pub fn majority(configuration: &Configuration, held: &[DriveNumber]) -> bool {
    let votes =
        |drive: &DriveNumber| configuration.drives.get(usize::from(drive.0)).is_some_and(|entry| entry.state.votes());
    held.iter().filter(|drive| votes(drive)).count() >= majority_of(voters(configuration))
}

pub fn voters(configuration: &Configuration) -> usize {
    configuration.drives.iter().filter(|entry| entry.state.votes()).count()
}

fn majority_of(voters: usize) -> usize {
    voters / 2 + 1
}

/// Drives that must hold an anchor, a page of the tables or a log group before it counts, where so
/// many answer: one more than may be lost. Where fewer answer, those are lost already: all that
/// answer, and a majority at least, so that every later opening for writing meets one of them.
pub fn holders(configuration: &Configuration, answering: usize) -> usize {
    (configuration.tolerates as usize + 1).min(answering.max(majority_of(voters(configuration))))
}

/// The epoch that an opening announces. Two above all it sees: of what an earlier opening wrote, at
/// most one commit, with the next epoch, may lie on drives that are not here.
pub fn next_ballot<'a>(labels: impl IntoIterator<Item = &'a Label>) -> u64 {
    labels.into_iter().map(|label| label.promised.max(label.configuration.epoch)).max().unwrap_or(0) + 2
}

/// The newest epoch that may have been in force, given the newest configuration found and the
/// drives that are here: drives that hold everything as of it missed nothing. Older by one commit
/// than the newest configuration, where so many voters are here without it that it never had a
/// majority.
pub fn floor(newest: &Configuration, here: &[(DriveNumber, u64)]) -> u64 {
    let without = newest.drives.iter().enumerate().filter(|(at, entry)| {
        let epoch = here.iter().find(|(number, _)| usize::from(number.0) == *at).map(|(_, epoch)| *epoch);
        entry.state.votes() && epoch.is_some_and(|epoch| epoch < newest.epoch)
    });
    let voters = voters(newest);
    if voters - without.count() >= majority_of(voters) { newest.epoch } else { newest.settled }
}

/// True when a change of voters keeps every majority of the former table and every majority of the
/// new one meeting in some drive. That is one voter more or one less, and no voter in another's
/// place.
pub fn is_single_change(old: &Configuration, new: &Configuration) -> bool {
    let count = old.drives.len().max(new.drives.len());
    let voter = |configuration: &Configuration, at: usize| {
        configuration.drives.get(at).filter(|entry| entry.state.votes()).map(|entry| entry.identity)
    };
    let changes: usize = (0..count)
        .map(|at| match (voter(old, at), voter(new, at)) {
            (None, None) => 0,
            (Some(one), Some(other)) if one == other => 0,
            (Some(_), Some(_)) => 2,
            _ => 1,
        })
        .sum();
    changes <= 1
}

/// True when every configuration that was put in force by an override before `label` is an ancestor
/// of `newest`. Otherwise both were written to apart from each other, and neither may overwrite the
/// other.
pub fn is_ancestor(label: &Configuration, newest: &Configuration) -> bool {
    newest.overrides.starts_with(&label.overrides)
}

/// What the label of a drive says when it is renewed.
pub fn renewed(complete: u64, caught_up: bool, state: DriveState, epoch: u64) -> u64 {
    if caught_up && state != DriveState::Filling { epoch } else { complete }
}

/// Tells an opening without a majority from any other with the same epoch: no drive takes part in
/// two of those.
pub fn override_id(configuration: &Configuration, present: &[DriveNumber]) -> u64 {
    let numbers: Vec<u8> = present.iter().flat_map(|drive| drive.0.to_le_bytes()).collect();
    configuration.epoch << 32 | u64::from(crc32c(&numbers))
}

#[cfg(test)]
mod model;
