//! Background work in a running server: one step of the archive a second (expiration, disposal,
//! reclamation, the clock), signed audit heads and checkpoints on schedule, and a slow scrub of all
//! stored data.
//!
//! Failure model: a failed step is logged and repeated at the next turn. No acknowledgement depends
//! on this work.

use std::sync::Arc;
use std::time::{Duration, Instant};

use stele_archive::{Archive, Caller, ScrubCursor};
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use crate::config::Site;
use crate::failure::Outcome;
use crate::node::Node;
use crate::node::growth::When;
use crate::serving::head_places::HeadPlaces;
use crate::serving::{checkpoints, inventories};

const STEP_EVERY: Duration = Duration::from_secs(1);
/// Largest time from a disposal until the log holds no trace of its key.
const WASH_EVERY: Duration = Duration::from_secs(900);
/// Interval at which damaged places are verified again; below, the number of places each time.
const LOOK_AGAIN_EVERY: Duration = Duration::from_secs(30);
const LOOK_AGAIN_MAX: usize = 8;
const GROW_EVERY: Duration = Duration::from_secs(10);
const GROW_AGAIN: Duration = Duration::from_secs(3600);
/// Time until the log is compared with its heads again, while something is wrong with them. It
/// doubles: a place may hold the heads of many years.
const COMPARE_AGAIN: Duration = Duration::from_secs(300);
const COMPARE_AGAIN_MAX: Duration = Duration::from_secs(3600);
/// Interval at which a read-only archive checks whether its drives are back.
const OPEN_AGAIN_EVERY: Duration = Duration::from_secs(2);
const SCRUB_EVERY: Duration = Duration::from_secs(10);
/// Time in which all stored data is verified once, in seconds.
const SCRUB_PASS: u64 = 14 * 86_400;
const SCRUB_LEAST: u64 = 1 << 20;
/// Time from the start to the first self-test.
const SELF_TEST_FIRST: Duration = Duration::from_secs(600);

pub fn start(tasks: &mut JoinSet<()>, site: &Site, node: &Arc<Node>, places: Arc<Mutex<HeadPlaces>>) {
    tasks.spawn(forget_removed(Arc::clone(node)));
    tasks.spawn(checkpoints::keep(Arc::clone(node)));
    let Ok(archive) = node.archive().cloned() else { return };
    tasks.spawn(step(archive.clone(), Arc::clone(node)));
    tasks.spawn(scrub(archive.clone(), Arc::clone(node)));
    tasks.spawn(verify_damage(Arc::clone(node)));
    tasks.spawn(open_again(Arc::clone(node)));
    tasks.spawn(wash(Arc::clone(node)));
    tasks.spawn(grow(Arc::clone(node)));
    tasks.spawn(inventories::make(archive.clone()));
    if node.config.archive.self_test_hours > 0 {
        tasks.spawn(self_test(Arc::clone(node), node.config.archive.self_test_hours));
    }
    tasks.spawn(compare_heads(site.clone(), Arc::clone(node)));
    tasks.spawn(export_heads(archive, places, Arc::clone(node)));
}

/// Removes drives that have left the pool from the configuration.
async fn forget_removed(node: Arc<Node>) {
    let mut trouble = Trouble::default();
    loop {
        tokio::time::sleep(STEP_EVERY).await;
        if let Some(why) = trouble.news(node.departures.forget(&node.pool).await) {
            tracing::warn!("a removed drive stays in the configuration, and that is tried again: {why}");
        }
    }
}

/// Does so once. A stopping server calls it, since the next server does not know which drives left
/// under this one.
pub async fn forget_removed_now(node: &Node) {
    if let Err(failure) = node.departures.forget(&node.pool).await {
        tracing::warn!("a removed drive stays in the configuration: {}", failure.on_one_line());
    }
}

/// Why work that is tried again and again fails. A full disk fails each try, and its log may lie
/// there.
#[derive(Default)]
struct Trouble(String);

impl Trouble {
    /// The reason, unless the try before failed for the same.
    fn news<T>(&mut self, tried: Outcome<T>) -> Option<String> {
        let why = tried.err().map(|failure| failure.on_one_line()).unwrap_or_default();
        let is_news = !why.is_empty() && why != self.0;
        self.0 = why;
        is_news.then(|| self.0.clone())
    }
}

async fn step(archive: Archive, node: Arc<Node>) {
    loop {
        let pause = match archive.step().await {
            Ok(report) => {
                node.note_archive_alarms(&report.alarms, Instant::now());
                if report.more { Duration::from_millis(20) } else { STEP_EVERY }
            }
            Err(error) => {
                tracing::warn!("background work of the archive: {error}");
                10 * STEP_EVERY
            }
        };
        tokio::time::sleep(pause).await;
    }
}

/// Repeats the self-test. The first one is a while after the start, so that a restart in a loop
/// does not repeat it.
async fn self_test(node: Arc<Node>, hours: u64) {
    let every = Duration::from_secs(hours.saturating_mul(3600));
    loop {
        tokio::time::sleep(every.min(SELF_TEST_FIRST)).await;
        match node.self_test(&Caller::local(0), None).await {
            Ok(results) => {
                let passed = results.iter().filter(|result| result.passed()).count();
                tracing::info!("self-test: {passed} of {} buckets with Object Lock refused everything", results.len());
            }
            Err(error) => tracing::warn!("the self-test could not be made: {error}"),
        }
        tokio::time::sleep(every.saturating_sub(SELF_TEST_FIRST)).await;
    }
}

/// Verifies damaged places again, so that an alarm ends with its cause.
async fn verify_damage(node: Arc<Node>) {
    loop {
        tokio::time::sleep(LOOK_AGAIN_EVERY).await;
        if let Err(error) = node.verify_damage(LOOK_AGAIN_MAX).await {
            tracing::warn!("damaged data could not be verified again: {error}");
        }
        if let Ok(archive) = node.archive()
            && let Err(error) = archive.look_again().await
        {
            tracing::warn!("unreadable data could not be checked again: {error}");
        }
    }
}

/// Grows the archive with its pool. Each attempt is recorded, so a failed one is not repeated
/// immediately.
async fn grow(node: Arc<Node>) {
    loop {
        let pause = match node.grow_archive(When::Quiet).await {
            Ok(()) => GROW_EVERY,
            Err(failure) => {
                tracing::warn!("the archive has not grown with its pool: {}", failure.on_one_line());
                GROW_AGAIN
            }
        };
        tokio::time::sleep(pause).await;
    }
}

/// Reopens a read-only archive for writing when its drives are back.
async fn open_again(node: Arc<Node>) {
    let mut trouble = String::new();
    loop {
        match node.open_archive_again().await {
            Ok(true) => return tracing::info!("the archive's drives are back: it takes changes again"),
            Ok(false) if node.trouble().is_none() => return,
            Ok(false) => {}
            Err(failure) => {
                let why = failure.on_one_line();
                if why != trouble {
                    tracing::warn!("the archive could not be opened for writing, and that is tried again: {why}");
                    trouble = why;
                }
            }
        }
        tokio::time::sleep(OPEN_AGAIN_EVERY).await;
    }
}

/// Washes destroyed keys out of the array's log.
async fn wash(node: Arc<Node>) {
    loop {
        tokio::time::sleep(WASH_EVERY).await;
        if let Err(error) = node.wash_if_due().await {
            tracing::warn!("the log was not washed of destroyed keys: {error}");
        }
    }
}

/// Washes before a server ends: drives may leave the machine afterwards.
pub async fn wash_now(node: &Node) {
    if let Err(error) = node.wash_if_due().await {
        tracing::warn!("the log was not washed of destroyed keys: {error}");
    }
}

async fn scrub(archive: Archive, node: Arc<Node>) {
    let mut cursor = ScrubCursor::default();
    loop {
        tokio::time::sleep(SCRUB_EVERY).await;
        let budget = (archive.space().live / SCRUB_PASS * SCRUB_EVERY.as_secs()).max(SCRUB_LEAST);
        if let Err(error) = node.verify_some(&mut cursor, budget).await {
            tracing::warn!("scrub of the archive: {error}");
        }
    }
}

/// Writes the counters at intervals until the server stops.
pub async fn keep_history(node: &Node) {
    if let Ok(status) = crate::api::pool::status(node).await {
        node.history.keep(&status);
    }
}

/// Sends the last head before the server stops, so that heads cover all acts since the previous
/// one.
pub async fn send_heads(node: &Node, places: &Mutex<HeadPlaces>) {
    let Ok(archive) = node.archive() else { return };
    places.lock().await.send(archive, heads_every(node)).await;
}

fn heads_every(node: &Node) -> Duration {
    Duration::from_secs(node.config.archive.heads_every.max(1))
}

/// Lets alarms about the places of heads end with their cause.
async fn compare_heads(site: Site, node: Arc<Node>) {
    let mut pause = COMPARE_AGAIN;
    loop {
        tokio::time::sleep(pause).await;
        pause = match node.compare_heads_again(&site).await {
            true => (2 * pause).min(COMPARE_AGAIN_MAX),
            false => COMPARE_AGAIN,
        };
    }
}

async fn export_heads(archive: Archive, places: Arc<Mutex<HeadPlaces>>, node: Arc<Node>) {
    let every = heads_every(&node);
    loop {
        let mut sending = places.lock().await;
        let told = sending.send(&archive, every).await;
        node.head_findings.note_unsent(sending.lacking());
        drop(sending);
        told.iter().for_each(|what| node.note_alarm("heads", what));
        tokio::time::sleep(every).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Failure;

    /// The log of a server whose data directory was full had a line about a removed drive a second.
    #[test]
    fn a_try_that_fails_for_the_same_reason_is_no_news() {
        let mut trouble = Trouble::default();
        let full = || Err::<(), _>(Failure::failed("no space").next("make room"));
        let mut told = |tried| trouble.news(tried).is_some();
        assert_eq!([told(Ok(())), told(full()), told(full()), told(full())], [false, true, false, false]);
        assert!(told(Err(Failure::failed("read-only"))) && told(full()), "another reason");
        assert!(!told(Ok(())) && told(full()), "it had succeeded meanwhile");
    }
}
