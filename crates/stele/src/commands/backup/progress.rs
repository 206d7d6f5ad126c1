//! Progress on a terminal: files, bytes, rate and the time left. Signals end the work early.

use std::io::{IsTerminal, Write};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use stele_backup::{BackupError, backup, restore, verify};
use stele_ground::Bytes;

use crate::failure::Failure;

const EVERY: Duration = Duration::from_millis(500);

/// Files and bytes that are done, and those that are expected. Zero: unknown.
pub struct Done {
    pub files: u64,
    pub bytes: u64,
    pub bytes_expected: u64,
}

pub trait Shows {
    fn so_far(&self) -> Done;
}

impl Shows for backup::Progress {
    fn so_far(&self) -> Done {
        Done {
            files: self.files.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            bytes_expected: self.bytes_expected.load(Relaxed),
        }
    }
}

impl Shows for restore::Progress {
    fn so_far(&self) -> Done {
        Done { files: self.files.load(Relaxed), bytes: self.bytes.load(Relaxed), bytes_expected: 0 }
    }
}

impl Shows for verify::Progress {
    fn so_far(&self) -> Done {
        Done { files: self.segments.load(Relaxed), bytes: self.bytes.load(Relaxed), bytes_expected: 0 }
    }
}

/// The words of one moment.
pub fn line(done: &Done, elapsed: Duration) -> String {
    let rate = (done.bytes as f64 / elapsed.as_secs_f64().max(0.001)) as u64;
    let mut text = format!("{} files, {}, {}/s", done.files, Bytes(done.bytes), Bytes(rate));
    if done.bytes_expected > done.bytes && rate > 0 {
        let seconds = (done.bytes_expected - done.bytes) / rate;
        let percent = u128::from(done.bytes) * 100 / u128::from(done.bytes_expected);
        text += &format!(", about {percent} %, {}:{:02} left", seconds / 60, seconds % 60);
    }
    text
}

/// Watches one piece of work.
pub struct Watch {
    draws: bool,
}

impl Watch {
    pub fn begin(json: bool) -> Watch {
        Watch { draws: !json && std::io::stderr().is_terminal() }
    }

    /// Does the work, while another thread draws and hears signals.
    pub fn during<T>(
        &self,
        done: impl Fn() -> Done + Send,
        stop: impl Fn() + Send + 'static,
        work: impl FnOnce() -> Result<T, BackupError>,
    ) -> Result<T, Failure> {
        // The runtime hears the signal; the work looks at the flag between two files.
        let heard = tokio::runtime::Handle::current().spawn(async move {
            if stopped().await {
                stop();
                eprintln!("\nstele: stopping; what is stored stays. A second signal ends the command at once.");
                if stopped().await {
                    std::process::exit(130);
                }
            }
        });
        let (finished, ends) = channel::<()>();
        let outcome = std::thread::scope(|scope| {
            let draws = self.draws;
            scope.spawn(move || {
                let begun = Instant::now();
                while draws && ends.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
                    eprint!("\r\x1b[K{}", line(&done(), begun.elapsed()));
                    let _ = std::io::stderr().flush();
                }
                if draws {
                    eprint!("\r\x1b[K");
                }
            });
            let outcome = work();
            drop(finished);
            outcome
        });
        heard.abort();
        Ok(outcome?)
    }
}

/// Returns at Ctrl-C or SIGTERM. False: signals cannot be heard.
async fn stopped() -> bool {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut interrupt), Ok(mut terminate)) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return false;
    };
    tokio::select! {
        _ = interrupt.recv() => true,
        _ = terminate.recv() => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_told_with_rate_and_time_left() {
        let check = |bytes, bytes_expected, expected: &str| {
            assert_eq!(line(&Done { files: 3, bytes, bytes_expected }, Duration::from_secs(2)), expected);
        };
        check(0, 0, "3 files, 0 B, 0 B/s");
        check(2 << 20, 0, "3 files, 2 MiB, 1 MiB/s");
        check(2 << 20, 128 << 20, "3 files, 2 MiB, 1 MiB/s, about 1 %, 2:06 left");
        check(2 << 20, 1 << 20, "3 files, 2 MiB, 1 MiB/s");
    }
}
