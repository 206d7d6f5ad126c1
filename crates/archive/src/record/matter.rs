//! A named matter, and the job that puts it on versions or releases them.

use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};

use crate::model::matter::{HoldJob, MatterInfo, MatterState, Selection};
use crate::model::principal::Actor;
use crate::model::time::Timestamp;
use crate::record::content::Place;

#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub(crate) struct MatterRow {
    #[n(0)]
    pub reason: String,
    #[n(1)]
    pub opened: Timestamp,
    #[n(2)]
    pub by: Actor,
    /// The user of this machine that opened it.
    #[n(3)]
    pub peer: Option<u32>,
    /// Two officers have closed it.
    #[n(4)]
    pub closing: Option<Closing>,
    /// No version is under it any more.
    #[n(5)]
    pub closed: Option<Timestamp>,
    /// The last job, which may be under way.
    #[n(6)]
    pub job: Option<Job>,
    #[n(7)]
    pub change: u64,
    #[n(8)]
    pub note: Place,
}

#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub(crate) struct Closing {
    #[n(0)]
    pub asked_by: Actor,
    #[n(1)]
    pub approved_by: Actor,
    #[n(2)]
    pub since: Timestamp,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Encode, Decode)]
#[cbor(index_only)]
pub(crate) enum JobKind {
    #[n(0)]
    Put,
    #[n(1)]
    Release,
    /// Releases everything under the matter.
    #[n(2)]
    Close,
}

#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub(crate) struct Job {
    #[n(0)]
    pub number: u64,
    #[n(1)]
    pub kind: JobKind,
    #[n(2)]
    pub selection: Selection,
    /// The number of the selection's bucket.
    #[n(3)]
    pub bucket: u32,
    /// Versions with a lower number existed when the job began. Later ones are not selected.
    #[n(4)]
    pub below: u64,
    #[n(5)]
    pub by: Actor,
    #[n(6)]
    pub peer: Option<u32>,
    #[n(7)]
    pub started: Timestamp,
    #[n(8)]
    pub ended: Option<Timestamp>,
    /// As it was at the job's end.
    #[n(9)]
    pub counts: Counts,
}

#[derive(Clone, Default, PartialEq, Eq, Debug, Encode, Decode)]
pub(crate) struct Counts {
    #[n(0)]
    pub seen: u64,
    #[n(1)]
    pub changed: u64,
    #[n(2)]
    pub failed: u64,
    /// The first failure.
    #[n(3)]
    pub failure: Option<String>,
    /// Versions whose hold a client set after the release began. It stays.
    #[n(4)]
    pub held_since: Option<u64>,
}

/// How far a job has come. A rebuild of the catalog loses this; the job then begins anew, which
/// changes nothing twice.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub(crate) struct ProgressRow {
    #[n(0)]
    pub job: u64,
    /// The last key that was looked at.
    #[n(1)]
    pub cursor: Option<ByteVec>,
    #[n(2)]
    pub counts: Counts,
}

/// The note of a matter in a segment.
#[derive(Encode, Decode)]
pub(crate) struct MatterNote {
    #[n(0)]
    pub name: String,
    #[n(1)]
    pub row: MatterRow,
}

impl JobKind {
    pub fn word(self) -> &'static str {
        match self {
            JobKind::Put => "put",
            JobKind::Release => "release",
            JobKind::Close => "close",
        }
    }
}

impl MatterRow {
    pub fn new(reason: String, by: Actor, peer: Option<u32>, opened: Timestamp) -> MatterRow {
        MatterRow {
            reason,
            opened,
            by,
            peer,
            closing: None,
            closed: None,
            job: None,
            change: 0,
            note: Place::default(),
        }
    }

    /// The row in a note that takes the creation of a matter back. No other one has an empty
    /// reason.
    pub fn withdrawn(wall: Timestamp) -> MatterRow {
        let row = MatterRow::new(String::new(), Actor::System("store".into()), None, wall);
        MatterRow { closed: Some(wall), ..row }
    }

    pub fn is_withdrawn(&self) -> bool {
        self.reason.is_empty()
    }

    /// Versions name it, and no note of it was found.
    pub fn found_by_rebuild(wall: Timestamp) -> MatterRow {
        let reason = "a rebuild of the catalog found versions under this matter, and no record of it".into();
        MatterRow::new(reason, Actor::System("rebuild".into()), None, wall)
    }

    /// The job that is under way.
    pub fn running(&self) -> Option<&Job> {
        self.job.as_ref().filter(|job| job.ended.is_none())
    }

    pub fn state(&self) -> MatterState {
        match (&self.closing, self.closed) {
            (_, Some(_)) => MatterState::Closed,
            (Some(_), None) => MatterState::Closing,
            (None, None) => MatterState::Open,
        }
    }

    pub fn info(&self, name: &str, progress: Option<&ProgressRow>) -> MatterInfo {
        let job = self.job.as_ref().map(|job| {
            let counts = match progress.filter(|progress| progress.job == job.number) {
                Some(progress) if job.ended.is_none() => &progress.counts,
                _ => &job.counts,
            };
            HoldJob {
                kind: job.kind.word().into(),
                selection: match job.kind {
                    JobKind::Close => "every version under the matter".into(),
                    _ => job.selection.to_string(),
                },
                asked_by: job.by.to_string(),
                started: job.started.to_string(),
                ended: job.ended.map(|time| time.to_string()),
                seen: counts.seen,
                changed: counts.changed,
                failed: counts.failed,
                failure: counts.failure.clone(),
                held_since: counts.held_since.unwrap_or(0),
            }
        });
        MatterInfo {
            name: name.into(),
            state: self.state(),
            reason: self.reason.clone(),
            opened_by: self.by.to_string(),
            opened: self.opened.to_string(),
            closed_by: self.closing.as_ref().map(|closing| closing.asked_by.to_string()),
            approved_by: self.closing.as_ref().map(|closing| closing.approved_by.to_string()),
            closed: self.closed.map(|time| time.to_string()),
            job,
            versions: None,
            more: false,
        }
    }
}
