//! Changes to the rows that are known by a name: access keys, matters and management classes.

use std::sync::Arc;

use bytes::Bytes;
use stele_catalog::{CatalogError, Table, Transaction};

use crate::audit::Event;
use crate::model::error::Result;
use crate::model::time::Timestamp;
use crate::record::access_key::{AccessKeyNote, AccessKeyRow};
use crate::record::class::{ClassNote, ClassRow};
use crate::record::content::Place;
use crate::record::matter::{MatterNote, MatterRow};
use crate::record::{ACCESS_KEYS, CLASSES, MATTERS, encode, fetch};
use crate::space::compensations::NoteSubject;
use crate::space::header::Kind;
use crate::state::key_locks::KeyLock;
use crate::store::Store;
use crate::store::committing::{Committing, Proof};

/// A row that is known by a name.
pub(crate) trait NamedRow:
    Clone + Send + Sync + minicbor::Encode<()> + for<'b> minicbor::Decode<'b, ()>
{
    const TABLE: Table;
    const KIND: Kind;
    /// What the names of its locks begin with. No access key's id has a colon.
    const LOCK: &'static str;
    /// The row with its name, as a segment has it.
    type Note: Send + Sync + minicbor::Encode<()> + for<'b> minicbor::Decode<'b, ()>;

    fn subject(name: String) -> NoteSubject;
    fn note_of(self, name: String) -> Self::Note;
    fn of_note(note: Self::Note) -> (String, Self);
    /// The row in a note that takes the creation back.
    fn withdrawn(wall: Timestamp) -> Self;
    fn is_withdrawn(&self) -> bool;
    fn change(&mut self) -> &mut u64;
    /// Where the newest note is.
    fn note(&mut self) -> &mut Place;
}

impl Store {
    /// Serialises changes of one row.
    pub(crate) async fn lock_named<R: NamedRow>(self: &Arc<Store>, name: &str) -> Result<KeyLock> {
        self.lock(0, &format!("{}{name}", R::LOCK)).await
    }

    /// Notes a row and commits it. The outer result is that of the note, the inner one that of the
    /// commit.
    pub(crate) async fn write_named<R: NamedRow>(
        self: &Arc<Store>,
        name: &str,
        mut row: R,
        mut transaction: Transaction,
        event: Option<Event>,
        lock: KeyLock,
    ) -> Result<std::result::Result<(), CatalogError>> {
        *row.change() += 1;
        let writing = self.segments().begin();
        let before = *row.note();
        let (subject, note) = (R::subject(name.into()), row.clone().note_of(name.into()));
        let (after, noting) = self.note_change(subject, &writing, true, R::KIND, None, 0, &note).await?;
        *row.note() = after;
        let raw = encode(&row);
        transaction = transaction.put(R::TABLE, name.to_string(), raw.clone());
        if let Some(event) = event {
            transaction = self.with_record(transaction, event);
        }
        let proof = Proof { table: R::TABLE, key: Bytes::copy_from_slice(name.as_bytes()), value: Some(raw) };
        let committing = Committing::new(self, proof).writing(writing).lock(lock).after(move |store| {
            store.segments().add_live(after);
            store.segments().drop_live(before);
            None
        });
        Ok(noting.answered(committing.commit(transaction).await).map(drop))
    }

    /// Notes the row as the catalog has it, over a note whose change the catalog may have refused.
    pub(super) async fn compensate_named<R: NamedRow>(self: &Arc<Store>, name: &str) -> Result<()> {
        let lock = self.lock_named::<R>(name).await?;
        let snapshot = self.snapshot()?;
        let Some(raw) = snapshot.get(R::TABLE, name.as_bytes())? else {
            let note = R::withdrawn(self.wall()).note_of(name.into());
            return self.note(R::KIND, None, 0, &note).await.map(drop);
        };
        let Some(row) = fetch::<R>(&*snapshot, R::TABLE, name.as_bytes())? else { return Ok(()) };
        let unchanged = Transaction::new().with_reserve().equals(R::TABLE, name.to_string(), raw);
        self.write_named(name, row, unchanged, None, lock).await??;
        Ok(())
    }
}

impl NamedRow for AccessKeyRow {
    const TABLE: Table = ACCESS_KEYS;
    const KIND: Kind = Kind::AccessKey;
    const LOCK: &'static str = "";
    type Note = AccessKeyNote;

    fn subject(name: String) -> NoteSubject {
        NoteSubject::AccessKey(name)
    }
    fn note_of(self, name: String) -> AccessKeyNote {
        AccessKeyNote { id: name, row: self }
    }
    fn of_note(note: AccessKeyNote) -> (String, AccessKeyRow) {
        (note.id, note.row)
    }
    fn withdrawn(wall: Timestamp) -> AccessKeyRow {
        AccessKeyRow::withdrawn(wall)
    }
    fn is_withdrawn(&self) -> bool {
        AccessKeyRow::is_withdrawn(self)
    }
    fn change(&mut self) -> &mut u64 {
        &mut self.change
    }
    fn note(&mut self) -> &mut Place {
        &mut self.note
    }
}

impl NamedRow for MatterRow {
    const TABLE: Table = MATTERS;
    const KIND: Kind = Kind::Matter;
    const LOCK: &'static str = "matter:";
    type Note = MatterNote;

    fn subject(name: String) -> NoteSubject {
        NoteSubject::Matter(name)
    }
    fn note_of(self, name: String) -> MatterNote {
        MatterNote { name, row: self }
    }
    fn of_note(note: MatterNote) -> (String, MatterRow) {
        (note.name, note.row)
    }
    fn withdrawn(wall: Timestamp) -> MatterRow {
        MatterRow::withdrawn(wall)
    }
    fn is_withdrawn(&self) -> bool {
        MatterRow::is_withdrawn(self)
    }
    fn change(&mut self) -> &mut u64 {
        &mut self.change
    }
    fn note(&mut self) -> &mut Place {
        &mut self.note
    }
}

impl NamedRow for ClassRow {
    const TABLE: Table = CLASSES;
    const KIND: Kind = Kind::Class;
    const LOCK: &'static str = "class:";
    type Note = ClassNote;

    fn subject(name: String) -> NoteSubject {
        NoteSubject::Class(name)
    }
    fn note_of(self, name: String) -> ClassNote {
        ClassNote { name, row: self }
    }
    fn of_note(note: ClassNote) -> (String, ClassRow) {
        (note.name, note.row)
    }
    fn withdrawn(_: Timestamp) -> ClassRow {
        ClassRow::withdrawn()
    }
    fn is_withdrawn(&self) -> bool {
        ClassRow::is_withdrawn(self)
    }
    fn change(&mut self) -> &mut u64 {
        &mut self.change
    }
    fn note(&mut self) -> &mut Place {
        &mut self.note
    }
}
