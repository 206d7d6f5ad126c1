//! A commit under way, with all that must outlive the request that waits for it.
//!
//! A commit goes on when its request goes away: the client hung up, the future was dropped. Then nobody is left to do what
//! follows it: to keep or give back a key slot, to destroy a key, to make a bucket known. So every commit that something
//! follows goes through here. What follows is a plain function without waits; dropped before the answer, it is handed
//! to whoever next wants one of its locks, or to background work, which asks the catalog what became of it.
//!
//! The lock is kept until then, so that the record that proves the commit is as the commit left it.

use std::sync::Arc;

use bytes::Bytes;
use stele_catalog::{CatalogError, Failure, Precondition, Receipt, Snapshot, Table, Transaction};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::model::error::Result;
use crate::record::bucket::BucketRow;
use crate::record::{BUCKETS, decode};
use crate::space::keytable::Changed;
use crate::space::segments::Writing;
use crate::state::key_locks::KeyLock;
use crate::state::shared::Shared;
use crate::store::Store;
use crate::store::lease::Lease;

/// What follows a commit that took place. What it answers is waited for by the request, if that is still there.
type After = Box<dyn FnOnce(&Arc<Store>) -> Option<Changed> + Send>;

/// The transaction took place if this record has this value; none: if it is gone.
pub(crate) struct Proof {
    pub table: Table,
    pub key: Bytes,
    pub value: Option<Bytes>,
}

/// A commit and what follows it.
pub(crate) struct Committing {
    store: Arc<Store>,
    held: Option<Held>,
}

struct Held {
    proof: Proof,
    /// Kept if the commit took place; else its slot is given back.
    lease: Option<Lease>,
    after: Option<After>,
    /// Keeps reclamation away from what was written for the commit.
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

    /// Commits, and does what follows before it answers. The answer is the flush behind whatever is acknowledged.
    pub async fn commit(
        self,
        transaction: Transaction,
    ) -> std::result::Result<(Receipt, Option<Changed>), CatalogError> {
        let answer = self.store.catalog.commit(transaction).await;
        self.answered(answer).await
    }

    /// As `commit`, for what requires its bucket to be as it was judged, and does not change it. Reclamation moves the
    /// bucket's note, which its record names; where only that is another, the commit is tried again with the record as it is.
    pub async fn commit_within_bucket(
        self,
        mut transaction: Transaction,
    ) -> std::result::Result<(Receipt, Option<Changed>), CatalogError> {
        loop {
            let answer = self.store.catalog.commit(transaction.clone()).await;
            match &answer {
                Err(CatalogError::Failed(failure)) if follow_bucket(&mut transaction, failure) => {}
                _ => return self.answered(answer).await,
            }
        }
    }

    async fn answered(
        mut self,
        answer: std::result::Result<Receipt, CatalogError>,
    ) -> std::result::Result<(Receipt, Option<Changed>), CatalogError> {
        let Some(held) = self.held.take() else { return answer.map(|receipt| (receipt, None)) };
        match answer {
            Ok(receipt) => Ok((receipt, held.took_place(&self.store))),
            Err(error @ CatalogError::Stopped(_)) => {
                // It may have taken place: the slot must stay until the next opening tells.
                if let Some(lease) = held.lease {
                    lease.keep();
                }
                Err(error)
            }
            Err(error) => {
                drop(held);
                if matches!(error, CatalogError::Failed(_)) {
                    // What is known of a bucket may be behind such a commit; whoever tries again finds it settled.
                    drop(self.store.settle_abandoned().await);
                }
                Err(error)
            }
        }
    }
}

/// Makes the transaction require the bucket's record as it was found. False: the failure is of something else, or the
/// bucket's settings are others.
fn follow_bucket(transaction: &mut Transaction, failure: &Failure) -> bool {
    let required = transaction.preconditions.get_mut(failure.precondition);
    let (Some(Precondition::Equals { table: BUCKETS, key, value }), Some((_, found))) = (required, &failure.found)
    else {
        return false;
    };
    let row = |value: &[u8]| decode::<BucketRow>(BUCKETS, key, value);
    let (Ok(before), Ok(now)) = (row(value), row(found)) else { return false };
    let unchanged = now == BucketRow { note: now.note, change: now.change, ..before };
    if unchanged {
        *value = found.clone();
    }
    unchanged
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
    /// Finds out what became of commits whose requests went away, and does what follows. Dropping this midway loses nothing.
    pub(crate) async fn settle_abandoned(self: &Arc<Store>) -> Result<()> {
        let Some(newest) = self.abandoned.newest() else { return Ok(()) };
        // A waiter that was woken for these and goes away before they are settled wakes the next one.
        let mut wake = WakeNext { abandoned: &self.abandoned, settled: false };
        self.barrier().await?;
        let snapshot = self.snapshot()?;
        let due = self.abandoned.take_up_to(newest);
        let mut failure = None;
        for (number, held) in due {
            match proven(&*snapshot, &held.proof) {
                // Nobody waits for the key's destruction; the disposal that was left with it is settled only after it.
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
