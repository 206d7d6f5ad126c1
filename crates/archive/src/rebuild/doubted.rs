//! What was changed while the matter `rebuild` stood.
//!
//! While it stands, the newest note of a thing may be in a place that cannot be read. A change,
//! such as that of a version's tags, rests on an older note then, and its own note becomes the
//! newest one. Where the drives come back, that note alone would lose what the note before the
//! matter says: a longer retention, a hold, a bucket's level, a stricter rule of an act, or a
//! revocation. The matter lets nothing be weakened. So a rebuild takes the stronger part of both
//! notes, and a compensating note says so on the data volume.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::survey::Survey;
use super::write::Filling;
use crate::model::act::{Act, People};
use crate::model::bucket::Protection;
use crate::model::error::Result;
use crate::model::version::Retention;
use crate::record::access_key::{AccessKeyNote, AccessKeyRow};
use crate::record::bucket::BucketRow;
use crate::record::settings::IdentityNote;
use crate::record::version::{VersionNote, VersionRow};
use crate::record::{NOTES_DUE, encode};
use crate::space::compensations::NoteSubject;

/// Notes from before the matter.
#[derive(Default)]
pub(super) struct Doubted {
    /// The sequence from which notes were written under it. None: it does not stand.
    pub from: Option<u64>,
    /// By object: the newest one of a version, with its sequence.
    versions: BTreeMap<u64, (u64, VersionNote)>,
    /// By sequence. These are read before it is known whether the matter stands.
    buckets: BTreeMap<u32, BTreeMap<u64, Protection>>,
    access_keys: BTreeMap<String, BTreeMap<u64, AccessKeyRow>>,
    acts: BTreeMap<u64, BTreeMap<Act, People>>,
    /// To be noted anew.
    strengthened: Vec<NoteSubject>,
}

impl Doubted {
    pub fn keep_version(&mut self, sequence: u64, note: &VersionNote) {
        let known = self.versions.get(&note.row.object).map_or(0, |(known, _)| *known);
        if self.from.is_some_and(|from| sequence < from) && known <= sequence {
            self.versions.insert(note.row.object, (sequence, note.clone()));
        }
    }

    pub fn keep_bucket(&mut self, sequence: u64, number: u32, row: &BucketRow) {
        self.buckets.entry(number).or_default().insert(sequence, row.protection);
    }

    pub fn keep_identity(&mut self, sequence: u64, note: &IdentityNote) {
        self.acts.insert(sequence, note.identity.acts.clone().unwrap_or_default());
    }

    pub fn keep_access_key(&mut self, sequence: u64, note: &AccessKeyNote) {
        self.access_keys.entry(note.id.clone()).or_default().insert(sequence, note.row.clone());
    }
}

impl Survey {
    /// Finds out from which note on the matter stands, and strengthens rules of acts, buckets and
    /// access keys. Before the notes of versions are read.
    pub fn begin_doubted(&mut self) {
        let identity = self.identity.as_ref().map(|(_, note)| &note.identity);
        let standing = identity.and_then(|identity| Some((identity.doubt.as_ref()?, &identity.cuts)));
        // Earlier versions of Stele cut the log off and did not say where the matter began.
        self.doubted.from = standing.and_then(|(doubt, cuts)| {
            doubt.sequence.or_else(|| cuts.iter().flatten().next_back().map(|cut| cut.sequence))
        });
        let (buckets, keys) =
            (std::mem::take(&mut self.doubted.buckets), std::mem::take(&mut self.doubted.access_keys));
        let acts = std::mem::take(&mut self.doubted.acts);
        let Some(from) = self.doubted.from else { return };
        let before = acts.range(..from).next_back().map(|(_, acts)| acts);
        if let (Some((_, note)), Some(before)) = (&mut self.identity, before.filter(|before| !before.is_empty())) {
            let now = note.identity.acts.get_or_insert_default();
            for (act, people) in before {
                let known = now.entry(*act).or_insert(*people);
                *known = (*known).max(*people);
            }
        }
        for (number, (sequence, row, _)) in &mut self.buckets {
            let before = buckets.get(number).and_then(|notes| notes.range(..from).next_back());
            if let Some((_, protection)) = before.filter(|(_, before)| *sequence >= from && **before > row.protection) {
                row.protection = *protection;
                self.doubted.strengthened.push(NoteSubject::Bucket(*number));
            }
        }
        for (id, (sequence, row, _)) in &mut self.access_keys {
            let before = keys.get(id).and_then(|notes| notes.range(..from).next_back());
            if let Some((_, before)) = before.filter(|_| *sequence >= from)
                && narrow(row, before)
            {
                self.doubted.strengthened.push(NoteSubject::AccessKey(id.clone()));
            }
        }
    }

    /// Strengthens the versions that were changed under the matter.
    pub fn strengthen(&mut self) {
        let from = self.doubted.from.unwrap_or(u64::MAX);
        for (object, (_, before)) in std::mem::take(&mut self.doubted.versions) {
            let Some((sequence, note, _)) = self.versions.get_mut(&object) else { continue };
            if *sequence >= from && note.at == before.at && strengthen(&mut note.row, &before.row) {
                self.doubted.strengthened.push(NoteSubject::Version(note.at.clone()));
            }
        }
    }
}

impl Filling<'_> {
    /// The next opening notes what no note says yet.
    pub(super) async fn put_strengthened(&mut self) -> Result<()> {
        for subject in std::mem::take(&mut self.survey.doubted.strengthened) {
            self.out.put(NOTES_DUE, encode(&subject), Bytes::new()).await?;
        }
        Ok(())
    }
}

/// Whether the key lost something.
fn narrow(row: &mut AccessKeyRow, before: &AccessKeyRow) -> bool {
    let now = row.clone();
    row.revoked = now.revoked.or(before.revoked);
    if before.rights.is_within(&now.rights) {
        row.rights.clone_from(&before.rights);
    }
    row.expires = [now.expires, before.expires].into_iter().flatten().min();
    row.officer = now.officer.or(before.officer);
    *row != now
}

/// Whether the version became a stronger one.
fn strengthen(row: &mut VersionRow, before: &VersionRow) -> bool {
    let now = row.clone();
    let end = |row: &VersionRow| row.retention.map(|retention| retention.until);
    // An event belongs to the retention that it set.
    if end(before) > end(&now) {
        row.class.clone_from(&before.class);
    }
    let least = [&now, before].into_iter().filter_map(|row| row.class.as_ref()?.least).max();
    if let Some(mark) = &mut row.class {
        mark.least = least;
    }
    row.retention = match (now.retention, before.retention) {
        (Some(now), Some(before)) => {
            Some(Retention { mode: now.mode.max(before.mode), until: now.until.max(before.until) })
        }
        (now, before) => now.or(before),
    };
    row.hold |= before.hold;
    row.held = now.held.max(before.held);
    before.matters.iter().flatten().for_each(|matter| row.put_under(matter, true));
    if *row == now {
        return false;
    }
    row.notified = None;
    true
}
