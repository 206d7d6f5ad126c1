//! Requests that end a measurement early and keep its results: Ctrl-C, or SIGTERM.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

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
    pub async fn next(&mut self) -> Request {
        tokio::select! {
            _ = self.interrupt.recv() => Request::Interrupt,
            _ = self.terminate.recv() => Request::Terminate,
        }
    }

    /// Returns at a signal that is another request than the one that came just now.
    pub async fn again(&mut self) {
        let first = Instant::now();
        loop {
            let request = self.next().await;
            if request.is_another(first.elapsed()) {
                return;
            }
        }
    }
}

/// Ctrl-C, or SIGTERM.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request {
    Interrupt,
    Terminate,
}

impl Request {
    /// Whether it counts by itself so long after the first one. `timeout` signals a process, and
    /// then its group. A person presses Ctrl-C twice in a fifth of a second.
    fn is_another(self, after: Duration) -> bool {
        after
            >= match self {
                Request::Interrupt => Duration::from_millis(100),
                Request::Terminate => Duration::from_secs(1),
            }
    }
}

/// What a run that ends at once may leave.
const LEFT: &str = "the cell that ran is not recorded, accesses that the target has not answered may still be carried \
                    out, and files or objects of this run may be left";

/// Ends the process at a second request, whatever call its threads hang in.
pub fn end_at_once(left: &str) -> ! {
    eprintln!("\nstele: ended at once: {left}");
    std::process::exit(130);
}

/// Runs the work on its own thread. The first request asks the thread to stop; a later one ends the
/// process.
pub async fn until_stopped<T: Send + 'static>(
    work: impl FnOnce(&AtomicBool) -> Outcome<T> + Send + 'static,
) -> Outcome<T> {
    until_stopped_leaving(LEFT, work).await
}

/// The same for work that may leave something else if the process ends at once.
pub async fn until_stopped_leaving<T: Send + 'static>(
    left: &'static str,
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
        end_at_once(left);
    });
    let done = tokio::task::spawn_blocking(move || work(&stop)).await;
    listener.abort();
    done.map_err(|error| Failure::failed(format!("the laboratory ended unexpectedly: {error}")))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_interrupt_counts_at_once_and_a_second_termination_after_a_second() {
        for (request, milliseconds, counts) in [
            (Request::Interrupt, 1, false),
            (Request::Interrupt, 150, true),
            (Request::Terminate, 150, false),
            (Request::Terminate, 1000, true),
        ] {
            assert_eq!(request.is_another(Duration::from_millis(milliseconds)), counts, "{request:?} {milliseconds}");
        }
    }
}
