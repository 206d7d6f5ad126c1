//! The end of storing a file: its version, and the row that names the version, in one transaction.
//! Comes under the file's gate, so that its content does not change meanwhile.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::BoxFuture;
use stele_archive::{Alongside, CommitBoth, ObjectInfo, Result};
use stele_catalog::{Pending, Receipt};

use super::Share;
use super::objects::refusal;
use super::records::{ACTIVE, ArchivedRow, inode_key};
use super::view::TransactionTicket;

/// The file's row names the version.
pub struct NamedByRow {
    share: Arc<Share>,
    inode: u64,
    under_way: Mutex<Option<TransactionTicket>>,
}

impl NamedByRow {
    pub fn new(share: Arc<Share>, inode: u64) -> NamedByRow {
        NamedByRow { share, inode, under_way: Mutex::default() }
    }

    fn locked(&self) -> MutexGuard<'_, Option<TransactionTicket>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Alongside for NamedByRow {
    fn prepare(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async { self.share.refresh().await.map_err(refusal) })
    }

    fn submit(&self, version: &ObjectInfo, both: CommitBoth<'_>) -> Result<Pending<Receipt>> {
        let submitted = self.share.step(|core| {
            let now = core.now(self.share.stamp());
            let mut change = core.view.change(now);
            let mut row = change.row(self.inode)?;
            row.archived =
                Some(ArchivedRow { version: version.version.to_string(), size: version.size, used: version.size });
            row.open = false;
            row.lags = None;
            change.delete(ACTIVE, inode_key(change.share(), self.inode));
            change.put_row(self.inode, row);
            let submitted = change.submit(both);
            // What is being fetched of the former version is of no use from here on, also where no
            // one waits for the answer.
            core.new_epoch(self.inode);
            let before = self.locked().replace(submitted.ticket);
            assert!(before.is_none(), "a file's row was submitted before its last transaction was settled");
            Ok(submitted.answer)
        });
        submitted.map_err(refusal)
    }

    fn settle(&self, took_place: bool) {
        if let Some(ticket) = self.locked().take() {
            self.share.locked().view.settle(ticket, took_place);
        }
    }
}

impl Drop for NamedByRow {
    fn drop(&mut self) {
        let under_way = self.under_way.get_mut().unwrap_or_else(PoisonError::into_inner);
        if under_way.take().is_some() {
            self.share.locked().view.abandon();
        }
    }
}
