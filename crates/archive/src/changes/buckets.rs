//! Changes to the rows of buckets.

use std::sync::Arc;

use stele_catalog::{CatalogError, Transaction};

use crate::audit::Event;
use crate::model::bucket::BucketInfo;
use crate::model::error::Result;
use crate::record::bucket::BucketRow;
use crate::record::{BUCKETS, encode, keys};
use crate::space::compensations::NoteSubject;
use crate::space::header::Kind;
use crate::state::buckets::Bucket;
use crate::state::key_locks::KeyLock;
use crate::store::Store;
use crate::store::committing::{Committing, Proof};

impl Store {
    /// Notes a row and commits it. The outer result is that of the note, the inner one that of the
    /// commit.
    pub(crate) async fn write_bucket(
        self: &Arc<Store>,
        number: u32,
        mut row: BucketRow,
        mut transaction: Transaction,
        event: Option<Event>,
        buckets_lock: KeyLock,
    ) -> Result<std::result::Result<BucketInfo, CatalogError>> {
        row.change += 1;
        let writing = self.segments().begin();
        let before = row.note;
        let subject = NoteSubject::Bucket(number);
        let (place, noting) =
            self.note_change(subject, &writing, true, Kind::Bucket, None, number.into(), &row).await?;
        row.note = place;
        let raw = encode(&row);
        let bucket = Bucket::open(self.master(), number, row, raw.clone())?;
        let info = bucket.row.info();
        let record_key = keys::short(number);
        transaction = transaction.put(BUCKETS, record_key.clone(), raw.clone());
        if let Some(event) = event {
            transaction = self.with_record(transaction, event);
        }
        let proof = Proof { table: BUCKETS, key: record_key, value: Some(raw) };
        let committing = Committing::new(self, proof).writing(writing).lock(buckets_lock).after(move |store| {
            store.segments().add_live(bucket.row.note);
            store.segments().drop_live(before);
            store.buckets().insert(bucket);
            None
        });
        Ok(noting.answered(committing.commit(transaction).await).map(|_| info))
    }
}
