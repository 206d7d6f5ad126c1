//! The things whose newest note on the data volume may state a change that did not take place.
//!
//! A change is under way from before its note until its answer. If it ends in any other way than
//! with its commit, and its note may be on the volume, a compensating note is due. The catalog's
//! table of due notes lists, as of the latest new segment or the close, everything that was due or
//! under way. An opening therefore knows of the changes that the process before left: those of the
//! table, and those with notes in segments that the catalog calls open.
//!
//! Limit: `NOTES_MAX` changes that are under way or due. Further changes are refused as busy.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use minicbor::{Decode, Encode};
use stele_catalog::{CatalogError, Transaction};
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

use crate::model::error::{ArchiveError, Result};
use crate::record::version::VersionRef;
use crate::record::{NOTES_DUE, encode};

/// Changes under way and compensating notes due at most. Their rows fit into one transaction.
const NOTES_MAX: usize = 1024;

/// A thing that notes on the data volume describe and that can change.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Encode, Decode)]
pub(crate) enum NoteSubject {
    #[n(0)]
    Version(#[n(0)] VersionRef),
    #[n(1)]
    Bucket(#[n(0)] u32),
    #[n(2)]
    AccessKey(#[n(0)] String),
    #[n(3)]
    Matter(#[n(0)] String),
    #[n(4)]
    Class(#[n(0)] String),
    /// An upload whose completion may have been noted and refused.
    #[n(5)]
    Upload(#[n(0)] VersionRef),
}

/// Subjects that need a compensating note: one that states them as they are in the catalog.
#[derive(Default)]
pub(crate) struct Compensations {
    subjects: Mutex<Subjects>,
    /// Held from the look at the rows to the end of the commit that changes them.
    turn: Arc<AsyncMutex<()>>,
}

#[derive(Default)]
struct Subjects {
    due: BTreeSet<NoteSubject>,
    /// How many changes of each are under way.
    under_way: BTreeMap<NoteSubject, usize>,
    /// Those with a row in the catalog.
    kept: BTreeSet<NoteSubject>,
}

impl Subjects {
    fn begin(&mut self, subject: &NoteSubject) {
        *self.under_way.entry(subject.clone()).or_insert(0) += 1;
    }

    fn wanted(&self) -> BTreeSet<NoteSubject> {
        self.due.iter().chain(self.under_way.keys()).cloned().collect()
    }
}

/// The difference between the catalog's rows and what is due or under way.
pub(crate) struct DueRows {
    added: BTreeSet<NoteSubject>,
    removed: BTreeSet<NoteSubject>,
    _turn: Option<OwnedMutexGuard<()>>,
}

impl DueRows {
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty()
    }

    pub fn apply(&self, mut transaction: Transaction) -> Transaction {
        for subject in &self.added {
            transaction = transaction.put(NOTES_DUE, encode(subject), Bytes::new());
        }
        for subject in &self.removed {
            transaction = transaction.delete(NOTES_DUE, encode(subject));
        }
        transaction
    }
}

impl Compensations {
    /// The subjects that the catalog listed at the opening.
    pub fn of(kept: BTreeSet<NoteSubject>) -> Compensations {
        let subjects = Subjects { due: kept.clone(), under_way: BTreeMap::new(), kept };
        Compensations { subjects: Mutex::new(subjects), turn: Arc::default() }
    }

    /// Each change of the subjects is one step, so a panic in another task leaves them complete.
    fn step<R>(&self, change: impl FnOnce(&mut Subjects) -> R) -> R {
        let mut subjects: MutexGuard<'_, Subjects> = self.subjects.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut subjects)
    }

    /// Begins a change, unless too many wait.
    pub fn begin(self: &Arc<Compensations>, subject: NoteSubject) -> Result<Noting> {
        self.step(|subjects| {
            let is_known = subjects.due.contains(&subject) || subjects.under_way.contains_key(&subject);
            // Clients that change many versions keep no officer from a bucket, a key, a matter or a
            // class.
            let most = match subject {
                NoteSubject::Version(_) | NoteSubject::Upload(_) => NOTES_MAX - NOTES_MAX / 4,
                _ => NOTES_MAX,
            };
            if !is_known && subjects.due.len() + subjects.under_way.len() >= most {
                return Err(ArchiveError::Busy(format!("{NOTES_MAX} changes are under way or to be taken back")));
            }
            subjects.begin(&subject);
            Ok(())
        })?;
        Ok(Noting { compensations: Arc::clone(self), subject: Some(subject), placed: false })
    }

    /// Begins the compensating note of a subject that is due. None: it is due no more.
    pub fn resume(self: &Arc<Compensations>, subject: &NoteSubject) -> Option<Noting> {
        self.step(|subjects| {
            let due = subjects.due.remove(subject);
            due.then(|| subjects.begin(subject))
        })?;
        Some(Noting { compensations: Arc::clone(self), subject: Some(subject.clone()), placed: true })
    }

    pub fn add(&self, subject: NoteSubject) {
        self.step(|subjects| subjects.due.insert(subject));
    }

    pub fn due(&self) -> BTreeSet<NoteSubject> {
        self.step(|subjects| subjects.due.clone())
    }

    pub fn is_any_kept(&self) -> bool {
        self.step(|subjects| !subjects.kept.is_empty())
    }

    /// The change of the catalog's rows that makes them list all that is due or under way now. The
    /// caller commits it, and then calls `wrote`.
    pub async fn rows(&self) -> DueRows {
        let turn = Arc::clone(&self.turn).lock_owned().await;
        self.step(|subjects| {
            let wanted = subjects.wanted();
            let added = wanted.difference(&subjects.kept).cloned().collect();
            // A removed row does not count from here on, and an added one counts once it is
            // written: either commit may be given up.
            let removed = subjects.kept.difference(&wanted).cloned().collect();
            subjects.kept.retain(|subject| wanted.contains(subject));
            DueRows { added, removed, _turn: Some(turn) }
        })
    }

    /// As `rows`, for the last transaction of all, whatever others are about to write.
    pub fn last_rows(&self) -> DueRows {
        self.step(|subjects| {
            let wanted = subjects.wanted();
            let removed = subjects.kept.difference(&wanted).cloned().collect();
            DueRows { added: wanted, removed, _turn: None }
        })
    }

    /// The change was committed.
    pub fn wrote(&self, rows: DueRows) {
        self.step(|subjects| subjects.kept.extend(rows.added));
    }
}

/// A change that is noted, or about to be. Unless it took place, a compensating note is due: also
/// where its request goes away while it waits.
pub(crate) struct Noting {
    compensations: Arc<Compensations>,
    subject: Option<NoteSubject>,
    /// Its note may be on the data volume.
    placed: bool,
}

impl Noting {
    /// From now on the note may be on the data volume.
    pub fn placed(&mut self) {
        self.placed = true;
    }

    /// Nothing is due.
    pub fn settled(mut self) {
        self.placed = false;
    }

    /// Passes on the answer to the change's commit. Nothing is due if the change took place, or if
    /// the catalog has stopped: then the next opening finds out.
    pub fn answered<T>(self, answer: std::result::Result<T, CatalogError>) -> std::result::Result<T, CatalogError> {
        if matches!(answer, Ok(_) | Err(CatalogError::Stopped(_))) {
            self.settled();
        }
        answer
    }
}

impl Drop for Noting {
    fn drop(&mut self) {
        let Some(subject) = self.subject.take() else { return };
        self.compensations.step(|subjects| {
            if let Some(changes) = subjects.under_way.get_mut(&subject) {
                *changes -= 1;
                if *changes == 0 {
                    subjects.under_way.remove(&subject);
                }
            }
            if self.placed {
                subjects.due.insert(subject);
            }
        });
    }
}
