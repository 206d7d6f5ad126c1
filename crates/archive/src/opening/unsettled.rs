//! Notes of changes that the process before left without an answer.
//!
//! Where the store was not closed in order, the last notes on the volume may state changes that
//! never took place: the crash came between note and commit, or a request had gone away. The
//! catalog names the note of everything that it has. A thing whose newest note is another one needs
//! a compensating note. Each new segment's transaction lists what was unsettled then, so only
//! segments that the catalog calls open are read here.

use std::collections::BTreeMap;

use stele_catalog::Snapshot;

use crate::model::error::Result;
use crate::record::access_key::{AccessKeyNote, AccessKeyRow};
use crate::record::bucket::BucketRow;
use crate::record::class::{ClassNote, ClassRow};
use crate::record::content::Place;
use crate::record::matter::{MatterNote, MatterRow};
use crate::record::segment::SegmentUse;
use crate::record::version::{Owner, TAKEN_BACK, VersionNote, VersionRef, VersionRow};
use crate::record::{ACCESS_KEYS, BUCKETS, CLASSES, MATTERS, OBJECTS, VERSIONS, decode, fetch, keys};
use crate::space::compensations::NoteSubject;
use crate::space::header::{Kind, RecordHeader};
use crate::space::walk::Walk;
use crate::store::Store;

/// The newest note of a thing among those found. A copy that reclamation made has the number of its
/// original.
struct Newest {
    sequence: u64,
    places: Vec<Place>,
    /// Of a version.
    object: u64,
    /// It takes a creation back.
    withdrawn: bool,
}

impl Store {
    /// The segments that the catalog calls open, with their incarnations.
    pub(super) fn open_segments(&self) -> Vec<(u32, u64)> {
        let rows = self.segments().rows().into_iter();
        rows.filter(|(_, row)| row.usage == SegmentUse::Open).map(|(number, row)| (number, row.incarnation)).collect()
    }

    /// Remembers the things for which a compensating note is due.
    pub(super) async fn find_unsettled(&self, segments: Vec<(u32, u64)>) -> Result<()> {
        let mut found: BTreeMap<NoteSubject, Newest> = BTreeMap::new();
        for (segment, incarnation) in segments {
            let start = self.segments().start(segment);
            let mut walk = Walk::new(self.volume().clone(), start, self.segments().size, incarnation);
            while let Some((at, header)) = walk.next().await? {
                let Some((subject, withdrawn)) = self.noted_subject(&mut walk, at, &header).await? else { continue };
                let place = Place { segment, at, length: header.length() };
                let newest =
                    Newest { sequence: header.sequence, places: vec![place], object: header.object, withdrawn };
                match found.get_mut(&subject) {
                    Some(before) if before.sequence > newest.sequence => {}
                    Some(before) if before.sequence == newest.sequence => before.places.push(place),
                    _ => drop(found.insert(subject, newest)),
                }
            }
        }
        let snapshot = self.snapshot()?;
        for (subject, newest) in found {
            if let Some(due) = self.unsettled(&*snapshot, subject, &newest)? {
                self.compensations().add(due);
            }
        }
        Ok(())
    }

    /// The thing of which a record may state a change. A record that is torn, or cannot be read,
    /// states nothing.
    async fn noted_subject(
        &self,
        walk: &mut Walk,
        at: u32,
        header: &RecordHeader,
    ) -> Result<Option<(NoteSubject, bool)>> {
        if !matches!(header.kind, Kind::Version | Kind::Bucket | Kind::AccessKey | Kind::Matter | Kind::Class) {
            return Ok(None);
        }
        let Some(payload) = walk.payload(at, header).await? else { return Ok(None) };
        if stele_ground::digest::crc32c(&payload) != header.check {
            return Ok(None);
        }
        let Some(note) = self.note_of(header, &payload) else { return Ok(None) };
        Ok(Some(match header.kind {
            Kind::Version => match decode::<VersionNote>(VERSIONS, &[], &note)?.at {
                VersionRef { bucket: TAKEN_BACK, .. } => return Ok(None),
                at => (NoteSubject::Version(at), false),
            },
            Kind::AccessKey => {
                let note: AccessKeyNote = decode(ACCESS_KEYS, &[], &note)?;
                (NoteSubject::AccessKey(note.id), note.row.is_withdrawn())
            }
            Kind::Matter => {
                let note: MatterNote = decode(MATTERS, &[], &note)?;
                (NoteSubject::Matter(note.name), note.row.is_withdrawn())
            }
            Kind::Class => {
                let note: ClassNote = decode(CLASSES, &[], &note)?;
                (NoteSubject::Class(note.name), note.row.is_withdrawn())
            }
            _ => {
                let row: BucketRow = decode(BUCKETS, &[], &note)?;
                (NoteSubject::Bucket(u32::try_from(header.object).unwrap_or(0)), row.is_withdrawn())
            }
        }))
    }

    /// What needs a compensating note, if the catalog does not have the newest note of the thing.
    fn unsettled(&self, snapshot: &dyn Snapshot, subject: NoteSubject, newest: &Newest) -> Result<Option<NoteSubject>> {
        let known = match &subject {
            NoteSubject::Version(at) => match fetch::<VersionRow>(snapshot, VERSIONS, &at.record_key())? {
                Some(row) => Some(row.note),
                // It was removed or never stored, or it is an upload that was about to be
                // completed.
                None => {
                    let owner = fetch::<Owner>(snapshot, OBJECTS, &keys::number(newest.object))?;
                    let Some(Owner::Upload(at)) = owner else { return Ok(None) };
                    return Ok(Some(NoteSubject::Upload(at)));
                }
            },
            NoteSubject::AccessKey(id) => {
                fetch::<AccessKeyRow>(snapshot, ACCESS_KEYS, id.as_bytes())?.map(|row| row.note)
            }
            NoteSubject::Matter(name) => fetch::<MatterRow>(snapshot, MATTERS, name.as_bytes())?.map(|row| row.note),
            NoteSubject::Class(name) => fetch::<ClassRow>(snapshot, CLASSES, name.as_bytes())?.map(|row| row.note),
            NoteSubject::Bucket(number) => self.buckets().by_number(*number).map(|bucket| bucket.row.note),
            NoteSubject::Upload(_) => return Ok(None),
        };
        let is_known =
            |known: &Place| newest.places.iter().any(|place| (place.segment, place.at) == (known.segment, known.at));
        let settled = known.as_ref().map_or(newest.withdrawn, is_known);
        Ok((!settled).then_some(subject))
    }
}
