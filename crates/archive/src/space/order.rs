//! Writes to the data volume that a commit follows.
//!
//! Content, note and key must be durable if the catalog's record is. Where volume and catalog lie
//! on one pool, a write is ordered long before it is durable (see
//! [`Port::submit_ordered`](stele_media::Port::submit_ordered)). The commit is then submitted as
//! soon as the write is ordered, and the pool makes both durable with the same flushes. Elsewhere
//! the commit waits until the write is durable.
//!
//! Failure model: a write that fails before it is ordered fails the request that waits to commit. A
//! write that fails later fails the commit behind it too, because the pool stops. A request still
//! waits for the write itself before it acknowledges.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use stele_catalog::Catalog;
use stele_media::{Done, Handle, MediaError, Op, Ordered, Priority};
use tokio::sync::oneshot;

use crate::model::error::{ArchiveError, Result};

/// A write under way. As a future it resolves when the write is durable.
pub(crate) struct Written<T> {
    ordered: oneshot::Receiver<T>,
    durable: Durable<T>,
}

/// Resolves when the write is durable.
pub(crate) struct Durable<T>(oneshot::Receiver<Result<T>>);

/// Reports the progress of a write to the request that waits for it. Dropped without a report, it
/// fails the write.
pub(crate) struct Completion<T> {
    pub ordered: oneshot::Sender<T>,
    pub durable: oneshot::Sender<Result<T>>,
}

impl<T> Written<T> {
    pub fn new() -> (Completion<T>, Written<T>) {
        let (ordered, orders) = oneshot::channel();
        let (durable, lands) = oneshot::channel();
        (Completion { ordered, durable }, Written { ordered: orders, durable: Durable(lands) })
    }

    /// Resolves when a commit may follow. The caller awaits the second value before it acknowledges
    /// anything.
    pub async fn ordered(self) -> Result<(T, Durable<T>)> {
        match self.ordered.await {
            Ok(what) => Ok((what, self.durable)),
            // The write was not ordered and will not be. Its result has the reason.
            Err(_) => match self.durable.await {
                Err(error) => Err(error),
                Ok(_) => Err(stopped()),
            },
        }
    }
}

impl<T> Future for Durable<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        Pin::new(&mut self.0).poll(context).map(|answer| answer.unwrap_or_else(|_| Err(stopped())))
    }
}

impl<T> Future for Written<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        Pin::new(&mut self.durable).poll(context)
    }
}

/// Submits a write. `ordered` is called when a commit may follow it, at the latest together with
/// `done` if the write succeeded. `followed`: a commit waits for that; otherwise the write need not
/// be ordered early.
pub(crate) fn submit(volume: &Handle, catalog: &dyn Catalog, followed: bool, op: Op, ordered: Ordered, done: Done) {
    if followed && catalog.order().is_some_and(|order| volume.order() == Some(order)) {
        return volume.submit_ordered(op, Priority::Host, ordered, done);
    }
    let both = move |op, result: std::result::Result<(), MediaError>| {
        if result.is_ok() {
            ordered();
        }
        done(op, result);
    };
    volume.submit(op, Priority::Host, Box::new(both));
}

fn stopped() -> ArchiveError {
    ArchiveError::Stopped("the data volume's server has stopped".into())
}
