//! The end of a server: bounded, also where drives no longer answer.
//!
//! Whatever was acknowledged is durable before that, so that a server may end at any moment; closing spares the next start
//! the replay of the log, and no more. So it gets a limited time.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::failure::{Failure, Kind, Outcome};
use crate::node::Node;

/// How long closing may take once no request is under way.
pub const GRACE: Duration = Duration::from_secs(10);
/// Between looks whether somebody still uses the node.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Closes the node as soon as nobody uses it. `Stuck` where that is not over within the grace: then the process should
/// end without waiting for anything more.
pub async fn close(node: Arc<Node>, grace: Duration) -> Outcome<()> {
    // On a task of its own, which goes on when it is no longer waited for: dropping it midway would wait for the drives.
    let closing = tokio::spawn(async move {
        let mut shared = node;
        loop {
            match Arc::try_unwrap(shared) {
                Ok(node) => return node.close().await,
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
mod tests;
