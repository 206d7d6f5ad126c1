//! Changes to the rows of matters.

use std::sync::Arc;

use bytes::Bytes;
use stele_catalog::{CatalogError, Transaction};

use crate::audit::Event;
use crate::model::error::Result;
use crate::record::matter::{MatterNote, MatterRow};
use crate::record::{MATTERS, encode};
use crate::space::compensations::NoteSubject;
use crate::space::header::Kind;
use crate::state::key_locks::KeyLock;
use crate::store::Store;
use crate::store::committing::{Committing, Proof};

impl Store {
    /// Serialises changes of one matter. No access key's id has a colon.
    pub(crate) async fn lock_matter(self: &Arc<Store>, name: &str) -> Result<KeyLock> {
        self.lock(0, &format!("matter:{name}")).await
    }

    /// Notes a row and commits it. The outer result is that of the note, the inner one that of the
    /// commit.
    pub(crate) async fn write_matter(
        self: &Arc<Store>,
        name: &str,
        mut row: MatterRow,
        mut transaction: Transaction,
        event: Option<Event>,
        lock: KeyLock,
    ) -> Result<std::result::Result<(), CatalogError>> {
        row.change += 1;
        let writing = self.segments().begin();
        let before = row.note;
        let mut note = MatterNote { name: name.into(), row };
        let subject = NoteSubject::Matter(name.into());
        let (place, noting) = self.note_change(subject, &writing, true, Kind::Matter, None, 0, &note).await?;
        note.row.note = place;
        let (raw, after) = (encode(&note.row), note.row.note);
        transaction = transaction.with_reserve().put(MATTERS, name.to_string(), raw.clone());
        if let Some(event) = event {
            transaction = self.with_record(transaction, event);
        }
        let proof = Proof { table: MATTERS, key: Bytes::copy_from_slice(name.as_bytes()), value: Some(raw) };
        let committing = Committing::new(self, proof).writing(writing).lock(lock).after(move |store| {
            store.segments().add_live(after);
            store.segments().drop_live(before);
            None
        });
        Ok(noting.answered(committing.commit(transaction).await).map(drop))
    }
}
