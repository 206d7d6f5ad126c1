//! The things whose newest note on the data volume may state a change that the catalog refused.

use std::collections::BTreeSet;

use crate::record::version::VersionRef;
use crate::state::shared::Shared;

/// A thing that notes on the data volume describe and that can change.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum NoteSubject {
    Version(VersionRef),
    Bucket(u32),
    AccessKey(String),
    Matter(String),
    Class(String),
    /// An upload whose completion may have been noted and refused.
    Upload(VersionRef),
}

/// Subjects that need a compensating note: one that states them as they are in the catalog.
#[derive(Default)]
pub(crate) struct Compensations(Shared<BTreeSet<NoteSubject>>);

impl Compensations {
    pub fn add(&self, subject: NoteSubject) {
        self.0.step(|subjects| subjects.insert(subject));
    }

    pub fn all(&self) -> BTreeSet<NoteSubject> {
        self.0.look(BTreeSet::clone)
    }

    pub fn remove(&self, subject: &NoteSubject) {
        self.0.step(|subjects| subjects.remove(subject));
    }
}
