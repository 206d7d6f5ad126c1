//! What ends a measurement early, and leaves what was measured: Ctrl-C, or the system's request to end (SIGTERM).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::{Failure, Outcome};

/// Hears both from when it is made.
pub struct Requests {
    interrupt: Signal,
    terminate: Signal,
}

impl Requests {
    pub fn new() -> Outcome<Requests> {
        let hear = |kind| signal(kind).map_err(|error| Failure::failed(format!("signals cannot be heard: {error}")));
        Ok(Requests { interrupt: hear(SignalKind::interrupt())?, terminate: hear(SignalKind::terminate())? })
    }

    /// Returns when one comes.
    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// What comes within it of the first request is the same one: `timeout` tells a process, and then its group.
const SAME_REQUEST: Duration = Duration::from_secs(1);

/// Works on a thread of its own, which the first request asks to stop; another one later ends the process.
pub async fn until_stopped<T: Send + 'static>(
    work: impl FnOnce(&AtomicBool) -> Outcome<T> + Send + 'static,
) -> Outcome<T> {
    let stop = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&stop);
    let mut requests = Requests::new()?;
    let listener = tokio::spawn(async move {
        requests.next().await;
        eprintln!("\nstele: stopping; what was measured is kept. Once more ends it at once.");
        asked.store(true, Ordering::Relaxed);
        let same = async {
            loop {
                requests.next().await;
            }
        };
        let _: Result<(), _> = tokio::time::timeout(SAME_REQUEST, same).await;
        requests.next().await;
        std::process::exit(130);
    });
    let done = tokio::task::spawn_blocking(move || work(&stop)).await;
    listener.abort();
    done.map_err(|error| Failure::failed(format!("the laboratory ended unexpectedly: {error}")))?
}
