use std::sync::atomic::{AtomicBool, Ordering};

use stele_array::server::{PoolServer, ServerOptions, Source};
use stele_array::{CreateOptions, OpenOptions};
use stele_ground::{Bytes, Instant, MIB, PoolId};
use stele_media::{Completion, Drive, Geometry, MemoryDrive, Request};

use super::*;
use crate::config::Config;
use crate::node::Node;

/// A drive that gives no answer while it hangs.
struct Hanging {
    drive: MemoryDrive,
    hangs: Arc<AtomicBool>,
}

impl Drive for Hanging {
    fn geometry(&self) -> Geometry {
        self.drive.geometry()
    }
    fn submit(&mut self, request: Request) {
        self.drive.submit(request);
    }
    fn reap(&mut self, now: Instant, finished: &mut Vec<Completion>) {
        if !self.hangs.load(Ordering::SeqCst) {
            self.drive.reap(now, finished);
        }
    }
}

pub fn node(hangs: &Arc<AtomicBool>) -> Arc<Node> {
    let drive = || Hanging { drive: MemoryDrive::new(Bytes(64 * MIB)), hangs: Arc::clone(hangs) };
    let sources = (0..4).map(|at| Source::other(drive(), format!("drive {at}"), at)).collect();
    let create = CreateOptions {
        pool: PoolId([1; 16]),
        name: "pool".to_owned(),
        drives: (0..4).map(|at| stele_ground::DriveId([at; 16])).collect(),
        seed: 1,
        log: None,
        spare_drives: None,
        created: 0,
        shard: Default::default(),
    };
    let pool = PoolServer::create_on(sources, create, OpenOptions::default(), ServerOptions::default()).unwrap();
    Arc::new(Node::of_pool(pool, Config::new(Vec::new())))
}

/// Short, since a hanging drive takes real time.
const SHORT: Duration = Duration::from_secs(1);

#[tokio::test]
async fn a_server_ends_within_its_grace_though_no_drive_answers() {
    let hangs = Arc::new(AtomicBool::new(false));
    let node = node(&hangs);
    hangs.store(true, Ordering::SeqCst);
    let failure = tokio::time::timeout(60 * SHORT, close(node, SHORT)).await.expect("an end").unwrap_err();
    assert_eq!((failure.kind, failure.kind.exit_code()), (Kind::Stuck, 8));
    assert!(failure.error.contains("within 1 s") && failure.error.contains("durable"), "{failure}");
    // Otherwise the test itself would wait for them.
    hangs.store(false, Ordering::SeqCst);
}

#[tokio::test]
async fn a_server_ends_within_its_grace_though_a_request_never_does() {
    let node = node(&Arc::default());
    let user = Arc::clone(&node);
    let failure = tokio::time::timeout(60 * SHORT, close(node, SHORT)).await.expect("an end").unwrap_err();
    assert_eq!(failure.kind, Kind::Stuck);
    drop(user);
}

#[tokio::test]
async fn a_pool_that_answers_is_closed_once_nobody_uses_it() {
    let node = node(&Arc::default());
    let user = Arc::clone(&node);
    let closing = tokio::spawn(close(node, GRACE));
    drop(user);
    closing.await.unwrap().unwrap();
}

/// Such a process stayed, answered every request with an error, and its service manager left it.
#[tokio::test]
async fn a_server_is_told_to_end_when_a_thread_of_its_pool_died() {
    let node = node(&Arc::default());
    let waiting = tokio::time::timeout(Duration::ZERO, pool_died(&node)).await;
    assert!(waiting.is_err(), "it serves");
    // As after a failed assertion, the thread is gone.
    node.pool.command(stele_array::Command::Close).await.unwrap();
    while !node.pool.is_stopped() {
        std::thread::yield_now();
    }
    let failure = tokio::time::timeout(60 * SHORT, pool_died(&node)).await.expect("an end");
    assert_eq!(failure.kind.exit_code(), Kind::Failed.exit_code());
    assert!(failure.error.contains("thread of the pool") && failure.next.contains("start again"), "{failure}");
    // What is left of the server closes as after a power cut.
    let closed = close(node, GRACE).await;
    assert!(closed.is_err_and(|failure| failure.kind == Kind::Failed));
}
