//! Changes to the rows of management classes.

use std::sync::Arc;

use bytes::Bytes;
use stele_catalog::{CatalogError, Transaction};

use crate::audit::Event;
use crate::model::error::Result;
use crate::record::class::{ClassNote, ClassRow};
use crate::record::{CLASSES, encode};
use crate::space::compensations::NoteSubject;
use crate::space::header::Kind;
use crate::state::key_locks::KeyLock;
use crate::store::Store;
use crate::store::committing::{Committing, Proof};

impl Store {
    /// Serialises changes of one class. No access key's id has a colon.
    pub(crate) async fn lock_class(self: &Arc<Store>, name: &str) -> Result<KeyLock> {
        self.lock(0, &format!("class:{name}")).await
    }

    /// Notes a row and commits it. The outer result is that of the note, the inner one that of the
    /// commit.
    pub(crate) async fn write_class(
        self: &Arc<Store>,
        name: &str,
        mut row: ClassRow,
        mut transaction: Transaction,
        event: Option<Event>,
        lock: KeyLock,
    ) -> Result<std::result::Result<(), CatalogError>> {
        row.change += 1;
        let writing = self.segments().begin();
        let before = row.note;
        let mut note = ClassNote { name: name.into(), row };
        let subject = NoteSubject::Class(name.into());
        let (place, noting) = self.note_change(subject, &writing, true, Kind::Class, None, 0, &note).await?;
        note.row.note = place;
        let (raw, after) = (encode(&note.row), note.row.note);
        transaction = transaction.put(CLASSES, name.to_string(), raw.clone());
        if let Some(event) = event {
            transaction = self.with_record(transaction, event);
        }
        let proof = Proof { table: CLASSES, key: Bytes::copy_from_slice(name.as_bytes()), value: Some(raw) };
        let committing = Committing::new(self, proof).writing(writing).lock(lock).after(move |store| {
            store.segments().add_live(after);
            store.segments().drop_live(before);
            None
        });
        Ok(noting.answered(committing.commit(transaction).await).map(drop))
    }
}
