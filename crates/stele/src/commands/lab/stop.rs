//! Requests that end a measurement early and keep its results: Ctrl-C, or SIGTERM.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use stele_server::failure::{Failure, Outcome};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Listens for both signals from its creation.
pub struct StopRequests {
    interrupt: Signal,
    terminate: Signal,
}

impl StopRequests {
    pub fn new() -> Outcome<StopRequests> {
        let hear = |kind| signal(kind).map_err(|error| Failure::failed(format!("signals cannot be heard: {error}")));
        Ok(StopRequests { interrupt: hear(SignalKind::interrupt())?, terminate: hear(SignalKind::terminate())? })
    }

    /// Returns at the next signal.
    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }

    /// Returns at a signal that is another request than the last one.
    pub async fn again(&mut self) {
        let same = async {
            loop {
                self.next().await;
            }
        };
        let _: Result<(), _> = tokio::time::timeout(SAME_REQUEST, same).await;
        self.next().await;
    }
}

/// A signal within this time of the first counts as the same request: `timeout` signals a process,
/// and then its group.
const SAME_REQUEST: Duration = Duration::from_secs(1);

/// Runs the work on its own thread. The first request asks the thread to stop; a later one ends the
/// process.
pub async fn until_stopped<T: Send + 'static>(
    work: impl FnOnce(&AtomicBool) -> Outcome<T> + Send + 'static,
) -> Outcome<T> {
    let stop = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&stop);
    let mut requests = StopRequests::new()?;
    let listener = tokio::spawn(async move {
        requests.next().await;
        eprintln!("\nstele: stopping; the results so far are kept. A second signal ends it at once.");
        asked.store(true, Ordering::Relaxed);
        requests.again().await;
        std::process::exit(130);
    });
    let done = tokio::task::spawn_blocking(move || work(&stop)).await;
    listener.abort();
    done.map_err(|error| Failure::failed(format!("the laboratory ended unexpectedly: {error}")))?
}
