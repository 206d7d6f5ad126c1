//! Changes to the rows of access keys.

use std::sync::Arc;

use bytes::Bytes;
use stele_catalog::{CatalogError, Transaction};

use crate::audit::Event;
use crate::model::error::Result;
use crate::record::access_key::{AccessKeyNote, AccessKeyRow};
use crate::record::{ACCESS_KEYS, encode};
use crate::space::compensations::NoteSubject;
use crate::space::header::Kind;
use crate::state::key_locks::KeyLock;
use crate::store::Store;
use crate::store::committing::{Committing, Proof};

impl Store {
    /// Notes a row and commits it. The outer result is that of the note, the inner one that of the
    /// commit.
    pub(crate) async fn write_access_key(
        self: &Arc<Store>,
        id: &str,
        mut row: AccessKeyRow,
        mut transaction: Transaction,
        event: Option<Event>,
        lock: KeyLock,
    ) -> Result<std::result::Result<(), CatalogError>> {
        row.change += 1;
        let writing = self.segments().begin();
        let before = row.note;
        let mut note = AccessKeyNote { id: id.into(), row };
        let subject = NoteSubject::AccessKey(id.into());
        let (place, noting) = self.note_change(subject, &writing, true, Kind::AccessKey, None, 0, &note).await?;
        note.row.note = place;
        let (raw, after) = (encode(&note.row), note.row.note);
        transaction = transaction.put(ACCESS_KEYS, id.to_string(), raw.clone());
        if let Some(event) = event {
            transaction = self.with_record(transaction, event);
        }
        let key = Bytes::copy_from_slice(id.as_bytes());
        let proof = Proof { table: ACCESS_KEYS, key, value: Some(raw) };
        let committing = Committing::new(self, proof).writing(writing).lock(lock).after(move |store| {
            store.segments().add_live(after);
            store.segments().drop_live(before);
            None
        });
        Ok(noting.answered(committing.commit(transaction).await).map(drop))
    }
}
