//! A commit under way, with everything that must outlive its request.
//!
//! A commit continues when its request goes away, because the client hung up or the future was
//! dropped. The steps that follow the commit must still happen: keeping or returning a key slot,
//! destroying a key, updating a bucket in memory. Therefore every commit with following steps goes
//! through this module. The steps are a plain function that does not wait. If the request is
//! dropped before the answer, the steps pass to the next waiter for one of its locks, or to
//! background work, which asks the catalog for the outcome.
//!
//! The lock is held until then, so that the record that proves the commit is unchanged.

use std::sync::Arc;

use bytes::Bytes;
use stele_catalog::{CatalogError, Failure, Precondition, Receipt, Snapshot, Table, Transaction};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::model::error::Result;
use crate::model::version::ObjectInfo;
use crate::record::bucket::BucketRow;
use crate::record::class::ClassRow;
use crate::record::{BUCKETS, CLASSES, decode};
use crate::space::keytable::Changed;
use crate::space::segments::Writing;
use crate::state::key_locks::KeyLock;
use crate::state::shared::Shared;
use crate::store::Store;
use crate::store::alongside::{Alongside, contended};
use crate::store::lease::Lease;

/// Times that a version's transaction is tried with the gateway's change computed anew.
const ALONGSIDE_ATTEMPTS: usize = 8;

/// The steps that follow a commit which took place. The request waits for the returned change, if
/// it is still there.
type After = Box<dyn FnOnce(&Arc<Store>) -> Option<Changed> + Send>;

/// The transaction took place if this record has this value. None: if the record is absent.
pub(crate) struct Proof {
    pub table: Table,
    pub key: Bytes,
    pub value: Option<Bytes>,
}

/// A commit and its following steps.
pub(crate) struct Committing {
    store: Arc<Store>,
    held: Option<Held>,
}

struct Held {
    proof: Proof,
    /// Kept if the commit took place. Otherwise its slot is given back.
    lease: Option<Lease>,
    after: Option<After>,
    /// Keeps reclamation away from the records of this commit.
    _writing: Option<Arc<Writing>>,
    _lock: Option<KeyLock>,
}

/// Commits whose requests went away before they were answered.
#[derive(Default)]
pub(crate) struct Abandoned {
    commits: Shared<AbandonedCommits>,
    /// A commit was added, or is still to be settled.
    added: Notify,
}

#[derive(Default)]
struct AbandonedCommits {
    /// The number that was given last.
    last: u64,
    left: Vec<(u64, Held)>,
}

impl Abandoned {
    /// Resolves when a commit is to be settled. One waiter is woken for each.
    pub fn notified(&self) -> Notified<'_> {
        self.added.notified()
    }

    fn add(&self, held: Held) {
        self.commits.step(|commits| {
            commits.last += 1;
            commits.left.push((commits.last, held));
        });
        self.added.notify_one();
    }

    /// The number of the newest commit. None: no commit is left.
    fn newest(&self) -> Option<u64> {
        self.commits.look(|commits| (!commits.left.is_empty()).then_some(commits.last))
    }

    /// Takes out the commits up to this number.
    fn take_up_to(&self, newest: u64) -> Vec<(u64, Held)> {
        self.commits.step(|commits| {
            let all = std::mem::take(&mut commits.left).into_iter();
            let (due, left) = all.partition(|(number, _)| *number <= newest);
            commits.left = left;
            due
        })
    }

    fn give_back(&self, number: u64, held: Held) {
        self.commits.step(|commits| commits.left.push((number, held)));
    }
}

impl Committing {
    pub fn new(store: &Arc<Store>, proof: Proof) -> Committing {
        let held = Held { proof, lease: None, after: None, _writing: None, _lock: None };
        Committing { store: Arc::clone(store), held: Some(held) }
    }

    fn with(mut self, change: impl FnOnce(&mut Held)) -> Committing {
        if let Some(held) = &mut self.held {
            change(held);
        }
        self
    }

    pub fn lease(self, lease: Lease) -> Committing {
        self.with(|held| held.lease = Some(lease))
    }

    pub fn writing(self, writing: Arc<Writing>) -> Committing {
        self.with(|held| held._writing = Some(writing))
    }

    pub fn lock(self, lock: KeyLock) -> Committing {
        self.with(|held| held._lock = Some(lock))
    }

    pub fn after(self, after: impl FnOnce(&Arc<Store>) -> Option<Changed> + Send + 'static) -> Committing {
        self.with(|held| held.after = Some(Box::new(after)))
    }

    /// Commits, and runs the following steps before it returns. The commit is the flush behind
    /// every acknowledgement.
    pub async fn commit(
        self,
        transaction: Transaction,
    ) -> std::result::Result<(Receipt, Option<Changed>), CatalogError> {
        let answer = self.store.catalog.commit(transaction).await;
        self.answered(answer).await
    }

    /// As `commit`, for a transaction that requires its bucket and class to be unchanged and does
    /// not change them. Reclamation moves their notes and rewrites their rows. Where only that
    /// differs, the commit is tried again with the new row.
    pub async fn commit_within_bucket(
        self,
        mut transaction: Transaction,
    ) -> std::result::Result<(Receipt, Option<Changed>), CatalogError> {
        loop {
            let answer = self.store.catalog.commit(transaction.clone()).await;
            match &answer {
                Err(CatalogError::Failed(failure)) if follow_rows(&mut transaction, failure) => {}
                _ => return self.answered(answer).await,
            }
        }
    }

    /// As `commit_within_bucket`, together with the gateway's change. The outer error is the
    /// gateway's: nothing changed.
    pub async fn commit_alongside(
        mut self,
        mut transaction: Transaction,
        alongside: &dyn Alongside,
        version: &ObjectInfo,
    ) -> Result<std::result::Result<(Receipt, Option<Changed>), CatalogError>> {
        let own = transaction.preconditions.len();
        for _ in 0..ALONGSIDE_ATTEMPTS {
            let prepared = alongside.prepare().await;
            let store = Arc::clone(&self.store);
            let mut both = |change: Transaction| store.commit_both(transaction.clone(), change);
            let pending = match prepared.and_then(|()| alongside.submit(version, &mut both)) {
                Ok(pending) => pending,
                Err(error) => {
                    // Nothing was committed: the slot goes back, and the lock is free.
                    drop(self.held.take());
                    return Err(error);
                }
            };
            let answer = pending.await;
            alongside.settle(answer.is_ok());
            match &answer {
                Err(CatalogError::Failed(failure)) if failure.precondition >= own => {}
                Err(CatalogError::Failed(failure)) if follow_rows(&mut transaction, failure) => {}
                _ => return Ok(self.answered(answer).await),
            }
        }
        drop(self.held.take());
        Err(contended())
    }

    async fn answered(
        mut self,
        answer: std::result::Result<Receipt, CatalogError>,
    ) -> std::result::Result<(Receipt, Option<Changed>), CatalogError> {
        let Some(held) = self.held.take() else { return answer.map(|receipt| (receipt, None)) };
        match answer {
            Ok(receipt) => Ok((receipt, held.took_place(&self.store))),
            Err(error @ CatalogError::Stopped(_)) => {
                // The commit may have taken place. The slot must stay until the next opening finds
                // out.
                if let Some(lease) = held.lease {
                    lease.keep();
                }
                Err(error)
            }
            Err(error) => {
                drop(held);
                if matches!(error, CatalogError::Failed(_)) {
                    // An abandoned commit may have changed the bucket. It is settled before the
                    // client tries again.
                    drop(self.store.settle_abandoned().await);
                }
                Err(error)
            }
        }
    }
}

/// Makes the transaction require the row of the bucket, or of the class, as it is now. False:
/// another precondition failed, or the bucket's settings or the class in force changed.
fn follow_rows(transaction: &mut Transaction, failure: &Failure) -> bool {
    let required = transaction.preconditions.get_mut(failure.precondition);
    let (Some(Precondition::Equals { table, key, value }), Some((_, found))) = (required, &failure.found) else {
        return false;
    };
    let unchanged = match *table {
        BUCKETS => is_same_bucket(key, value, found),
        CLASSES => is_same_class(key, value, found),
        _ => false,
    };
    if unchanged {
        *value = found.clone();
    }
    unchanged
}

fn is_same_bucket(key: &[u8], before: &[u8], now: &[u8]) -> bool {
    let row = |value: &[u8]| decode::<BucketRow>(BUCKETS, key, value);
    let (Ok(before), Ok(now)) = (row(before), row(now)) else { return false };
    now == BucketRow { note: now.note, change: now.change, ..before }
}

/// The same version of the class is in force. No version of a class ever changes.
fn is_same_class(key: &[u8], before: &[u8], now: &[u8]) -> bool {
    let row = |value: &[u8]| decode::<ClassRow>(CLASSES, key, value);
    let (Ok(before), Ok(now)) = (row(before), row(now)) else { return false };
    now.active.is_some() && now.active == before.active
}

impl Drop for Committing {
    fn drop(&mut self) {
        if let Some(held) = self.held.take() {
            self.store.abandoned.add(held);
        }
    }
}

impl Held {
    fn took_place(self, store: &Arc<Store>) -> Option<Changed> {
        if let Some(lease) = self.lease {
            lease.keep();
        }
        self.after.and_then(|after| after(store))
    }
}

impl Store {
    /// Finds the outcome of commits whose requests went away, and runs their following steps.
    /// Dropping this midway loses nothing.
    pub(crate) async fn settle_abandoned(self: &Arc<Store>) -> Result<()> {
        let Some(newest) = self.abandoned.newest() else { return Ok(()) };
        // A waiter that was woken for these and goes away before they are settled wakes the next
        // one.
        let mut wake = WakeNext { abandoned: &self.abandoned, settled: false };
        self.barrier().await?;
        let snapshot = self.snapshot()?;
        let due = self.abandoned.take_up_to(newest);
        let mut failure = None;
        for (number, held) in due {
            match proven(&*snapshot, &held.proof) {
                // No request waits for the destruction of the key. Its disposal is settled only
                // after it.
                Ok(true) => drop(held.took_place(self)),
                Ok(false) => drop(held),
                Err(error) => {
                    self.abandoned.give_back(number, held);
                    failure = Some(error);
                }
            }
        }
        wake.settled = failure.is_none();
        failure.map_or(Ok(()), Err)
    }
}

fn proven(snapshot: &dyn Snapshot, proof: &Proof) -> Result<bool> {
    Ok(snapshot.get(proof.table, &proof.key)? == proof.value)
}

/// Wakes the next waiter for a lock, unless the abandoned commits were settled.
struct WakeNext<'a> {
    abandoned: &'a Abandoned,
    settled: bool,
}

impl Drop for WakeNext<'_> {
    fn drop(&mut self) {
        if !self.settled {
            self.abandoned.added.notify_one();
        }
    }
}
