//! Ends a server in bounded time, even if drives no longer answer.
//!
//! A server ends by itself where a thread of the pool died: one that stays would answer every
//! request with an error, and look well to its service manager.
//!
//! All acknowledged data is durable before, so a server may end at any moment. Closing only spares
//! the next start the replay of the log, and therefore gets a limited time.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::failure::{Failure, Kind, Outcome};
use crate::node::Node;

/// Largest time for closing once no request is under way.
pub const GRACE: Duration = Duration::from_secs(10);
/// Interval between checks whether the node is still in use.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Interval between looks whether the pool's threads work.
const POOL_EVERY: Duration = Duration::from_secs(1);

/// Returns when a thread of the pool has died. The process should then end: it can serve nothing,
/// and the next start replays the log. A service manager starts a process again that has ended.
pub async fn pool_died(node: &Node) -> Failure {
    while !node.pool.is_stopped() {
        sleep(POOL_EVERY).await;
    }
    Failure::failed(
        "a thread of the pool has died, and nothing can be served: the lines above say of what; everything that was \
         acknowledged is durable",
    )
    .next(
        "start again: the log is replayed. If memory could not be had, raise `ulimit -v` or [memory] first; if it \
         happens again, report the lines above",
    )
}

/// Closes the node as soon as it is no longer in use. Returns `Stuck` if that takes longer than the
/// grace time; the process should then end without a further wait.
pub async fn close(node: Arc<Node>, grace: Duration) -> Outcome<()> {
    // A task of its own continues after the timeout. Dropping it midway would wait for the drives.
    let closing = tokio::spawn(async move {
        let mut shared = node;
        loop {
            match Arc::try_unwrap(shared) {
                Ok(node) => return settled(node.close().await),
                Err(still) => shared = still,
            }
            sleep(LOOK_EVERY).await;
        }
    });
    match timeout(grace, closing).await {
        Ok(Ok(closed)) => closed,
        Ok(Err(error)) => Err(Failure::failed(format!("closing broke off: {error}; this is a defect of Stele"))),
        Err(_) => Err(stuck(grace)),
    }
}

/// Drives that are away may refuse the notes of a stop. Everything acknowledged is durable, and the
/// next start reads the rest from the log.
fn settled(closed: Outcome<()>) -> Outcome<()> {
    match closed {
        Err(failure) if failure.kind == Kind::Refused => {
            tracing::warn!("the pool is left as after a power cut: {}", failure.error);
            Ok(())
        }
        closed => closed,
    }
}

fn stuck(grace: Duration) -> Failure {
    Failure::new(
        Kind::Stuck,
        format!(
            "the pool did not close within {} s: some drive does not answer; everything that was acknowledged is durable, and the pool is left as after a power cut",
            grace.as_secs()
        ),
    )
    .next("the kernel's log (dmesg) names a drive that hangs; start again when it is gone or answers, and the log is replayed")
}

#[cfg(test)]
pub mod tests;
