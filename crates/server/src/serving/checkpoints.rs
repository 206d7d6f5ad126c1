//! Checkpoints at intervals, also where little is written.
//!
//! A checkpoint writes an anchor to every drive. Copies of drives from before it do not pass for
//! the pool any more, not even copies of all drives that hold the log. Under load the log asks for
//! checkpoints by itself.

use std::sync::Arc;
use std::time::Duration;

use stele_array::{ArrayError, Command, PoolStatus, Reply};

use crate::node::Node;

/// What was written is behind a checkpoint after twice this time.
const EVERY: Duration = Duration::from_secs(300);

/// Runs for the server's life.
pub async fn keep(node: Arc<Node>) {
    let mut covered = Covered::default();
    loop {
        tokio::time::sleep(EVERY).await;
        if let Err(error) = once(&node, &mut covered).await {
            tracing::warn!("no checkpoint at an interval: {error}");
        }
    }
}

async fn once(node: &Node, covered: &mut Covered) -> Result<(), ArrayError> {
    let Reply::Status(status) = node.pool.command(Command::Status).await? else { return Ok(()) };
    if status.read_only {
        return Ok(());
    }
    let seen = Seen::of(&status);
    if covered.lacks(seen) {
        node.pool.command(Command::Checkpoint).await?;
        covered.has(seen.writes);
    }
    Ok(())
}

/// What a status counted.
#[derive(Clone, Copy, Default)]
struct Seen {
    writes: u64,
    /// Of all shards together.
    checkpoints: u64,
    shards: u64,
}

impl Seen {
    fn of(status: &PoolStatus) -> Seen {
        let count = |name| status.counters.iter().find(|(known, _)| *known == name).map_or(0, |(_, count)| *count);
        Seen { writes: count("writes"), checkpoints: count("checkpoints"), shards: status.shards.into() }
    }
}

/// How much of what was written is behind a checkpoint.
#[derive(Default)]
struct Covered {
    writes: u64,
    last: Seen,
}

impl Covered {
    /// Whether writes that the last look saw are behind no checkpoint.
    fn lacks(&mut self, now: Seen) -> bool {
        // One checkpoint of each shard at least: what the last look saw is behind them.
        if now.checkpoints >= self.last.checkpoints + now.shards {
            self.has(self.last.writes);
        }
        let lacks = self.last.writes > self.writes;
        self.last = now;
        lacks
    }

    fn has(&mut self, writes: u64) {
        self.writes = writes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(writes: u64, checkpoints: u64) -> Seen {
        Seen { writes, checkpoints, shards: 2 }
    }

    #[test]
    fn writes_without_a_checkpoint_on_each_shard_want_one_at_the_second_look() {
        let mut covered = Covered::default();
        assert!(!covered.lacks(seen(10, 0)), "they may be a moment old");
        assert!(covered.lacks(seen(10, 1)), "one of two shards wrote one");
        covered.has(10);
        assert!(!covered.lacks(seen(10, 3)), "nothing was written since");
    }

    #[test]
    fn checkpoints_of_the_log_cover_what_was_written_before_them_alone() {
        let mut covered = Covered::default();
        assert!(!covered.lacks(seen(10, 0)));
        assert!(!covered.lacks(seen(20, 2)), "both shards wrote one");
        assert!(covered.lacks(seen(20, 2)), "what came behind that look is on no other drive");
    }
}
