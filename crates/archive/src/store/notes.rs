//! Notes: copies of the catalog's facts on the data volume, from which a rebuild restores them.

use std::sync::Arc;

use crate::model::error::{ArchiveError, Result};
use crate::record;
use crate::record::content::Place;
use crate::record::settings::{IdentityNote, IdentityRow};
use crate::seal::{Secret, derive, seal_note};
use crate::space::appender::Record;
use crate::space::compensations::{NoteSubject, Noting};
use crate::space::header::{Kind, RecordHeader};
use crate::space::segments::Writing;
use crate::state::buckets::Bucket;
use crate::state::key_locks::KeyLock;
use crate::store::Store;

/// Segments tried for a note.
const NOTE_ATTEMPTS: usize = 4;

impl Store {
    /// The key that seals notes which belong to no bucket.
    pub fn note_key(&self) -> Secret {
        derive(&self.master().0, "notes", self.id())
    }

    /// Appends a note and waits until it is durable. For notes that reclamation always keeps.
    pub async fn note<T: minicbor::Encode<()>>(
        &self,
        kind: Kind,
        scope: Option<&Bucket>,
        object: u64,
        note: &T,
    ) -> Result<Place> {
        self.append_note(None, true, kind, scope, object, note, || ()).await
    }

    /// Appends the note of a change that is to be committed, and waits until it is durable. Unless
    /// the caller settles the change, a compensating note is due from here on. `reserve`: the note
    /// may use the last segments.
    #[allow(clippy::too_many_arguments)]
    pub async fn note_change<T: minicbor::Encode<()>>(
        &self,
        subject: NoteSubject,
        writing: &Arc<Writing>,
        reserve: bool,
        kind: Kind,
        scope: Option<&Bucket>,
        object: u64,
        note: &T,
    ) -> Result<(Place, Noting)> {
        let mut noting = self.compensations().begin(subject)?;
        let placed = || noting.placed();
        let place = self.append_note(Some(writing), reserve, kind, scope, object, note, placed).await?;
        Ok((place, noting))
    }

    /// `placed`: called once the note may be on the data volume, whatever its append ends with.
    #[allow(clippy::too_many_arguments)]
    async fn append_note<T: minicbor::Encode<()>>(
        &self,
        writing: Option<&Arc<Writing>>,
        reserve: bool,
        kind: Kind,
        scope: Option<&Bucket>,
        object: u64,
        note: &T,
        mut placed: impl FnMut() + Send,
    ) -> Result<Place> {
        let mut attempts = 0;
        loop {
            let mut record = self.note_record(kind, scope, object, note).await?;
            record.writing = writing.cloned();
            let noted = match self.appender().append(record, reserve).await {
                Ok(appended) => {
                    placed();
                    appended.await
                }
                Err(error) => Err(error),
            };
            attempts += 1;
            match noted {
                // A place that cannot be written is skipped: the next attempt goes to another
                // segment.
                Err(ArchiveError::Damaged { .. }) if attempts < NOTE_ATTEMPTS => {}
                noted => return noted,
            }
        }
    }

    pub async fn note_record<T: minicbor::Encode<()>>(
        &self,
        kind: Kind,
        scope: Option<&Bucket>,
        object: u64,
        note: &T,
    ) -> Result<Record> {
        let sequence = self.numbers().next().await?;
        let plain = record::encode(note);
        let sealed = match scope {
            Some(bucket) => seal_note(self.surroundings(), &bucket.note_key, &sequence.to_be_bytes(), &plain),
            None => seal_note(self.surroundings(), &self.note_key(), &sequence.to_be_bytes(), &plain),
        };
        let header = RecordHeader {
            kind,
            payload: 0,
            note: sealed.len() as u32,
            scope: scope.map_or(0, |bucket| bucket.number),
            first_frame: 0,
            object,
            stream: 0,
            salt: [0; 16],
            incarnation: 0,
            sequence,
            check: 0,
        };
        Ok(Record::note(header, &sealed))
    }

    /// Notes identity and clock on the data volume, for a rebuild. One at a time: of two notes, the
    /// later one counts.
    pub(crate) async fn note_identity(self: &Arc<Store>) -> Result<()> {
        let lock = self.lock_identity().await?;
        self.note_identity_as(false, &lock).await
    }

    /// Notes the same as the last of a session: the clock has no alarm behind this note.
    pub(crate) async fn note_close(&self, lock: &KeyLock) -> Result<()> {
        self.note_identity_as(true, lock).await
    }

    async fn note_identity_as(&self, clean: bool, _lock: &KeyLock) -> Result<()> {
        let identity = IdentityRow { clean, ..self.identity().look(Clone::clone) };
        let clock = self.clock_row();
        match self.note(Kind::Identity, None, 0, &IdentityNote { identity, clock }).await {
            // The catalog has it. Only a rebuild needs the note, which is written again in some
            // hours.
            Err(error @ (ArchiveError::NoSpace(_) | ArchiveError::Damaged { .. })) => {
                tracing::warn!("the store's identity could not be noted on the data volume: {error}");
                Ok(())
            }
            noted => noted.map(|place| self.segments().add_kept(place)),
        }
    }
}
