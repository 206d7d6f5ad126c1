//! Says what the agent waits for while the server of a repository is silent.
//!
//! Each request to the server is entered here while it is under way, with its repetitions. A thread
//! looks twice a second. On a terminal it draws one line, which goes when an answer comes.
//! Elsewhere it writes one plain line for each silence: from the first late request to the next
//! answer. While the progress of some work is told, the progress tells the wait too, and the thread
//! is quiet.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::time::{Duration, Instant};

use stele_ground::Shown;

use super::tell::{redraw, tell};

/// A request is late after this time, and a second more for each of so many bytes that it sends.
const LATE: Duration = Duration::from_secs(3);
const BYTES_EACH_SECOND: u64 = 1 << 20;
/// Between two looks.
const LOOK: Duration = Duration::from_millis(500);

/// A request under way.
struct Waited {
    begun: Instant,
    late_after: Duration,
    /// The place and the request.
    what: String,
}

/// All requests under way, by their numbers: the lowest is the oldest.
struct Waits {
    requests: BTreeMap<u64, Waited>,
    next: u64,
    /// The silence was told, as a line or as a drawing.
    told: bool,
}

impl Waits {
    const fn new() -> Waits {
        Waits { requests: BTreeMap::new(), next: 0, told: false }
    }

    fn begin(&mut self, what: String, bytes: u64, now: Instant) -> u64 {
        self.next += 1;
        let late_after = LATE + Duration::from_secs(bytes / BYTES_EACH_SECOND);
        self.requests.insert(self.next, Waited { begun: now, late_after, what });
        self.next
    }

    /// Returns whether the silence that ends now was told.
    fn end(&mut self, number: u64) -> bool {
        self.requests.remove(&number);
        std::mem::take(&mut self.told)
    }

    /// The oldest request that is late.
    fn line(&self, now: Instant) -> Option<String> {
        let since = |waited: &Waited| now.saturating_duration_since(waited.begun);
        let late = self.requests.values().find(|waited| since(waited) >= waited.late_after)?;
        Some(format!("waiting for an answer of {}, for {} s", Shown(&late.what), since(late).as_secs()))
    }
}

static WAITS: Mutex<Waits> = Mutex::new(Waits::new());
/// The progress tells what is waited for.
static PROGRESS_TELLS: AtomicBool = AtomicBool::new(false);

fn waits() -> MutexGuard<'static, Waits> {
    WAITS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is waited for, if a request is late.
pub fn late() -> Option<String> {
    waits().line(Instant::now())
}

/// Lets the progress of some work tell what is waited for, as long as the value lives.
pub struct ToldByProgress;

impl ToldByProgress {
    pub fn begin() -> ToldByProgress {
        PROGRESS_TELLS.store(true, Relaxed);
        ToldByProgress
    }
}

impl Drop for ToldByProgress {
    fn drop(&mut self) {
        PROGRESS_TELLS.store(false, Relaxed);
    }
}

/// A request, from when it is made until it is answered or given up.
pub struct Waiting(u64);

impl Waiting {
    pub fn begin(place: &str, method: &str, bytes: u64) -> Waiting {
        static LOOKS: Once = Once::new();
        LOOKS.call_once(|| {
            // Without a thread nothing is told, and the work goes on.
            drop(std::thread::Builder::new().name("backup-waiting".into()).spawn(look));
        });
        Waiting(waits().begin(format!("{place} to a {method}"), bytes, Instant::now()))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if waits().end(self.0) && std::io::stderr().is_terminal() {
            redraw("");
        }
    }
}

/// Tells of late requests until the process ends.
fn look() {
    let terminal = std::io::stderr().is_terminal();
    loop {
        std::thread::sleep(LOOK);
        let mut waits = waits();
        let Some(line) = waits.line(Instant::now()).filter(|_| !PROGRESS_TELLS.load(Relaxed)) else { continue };
        let first = !std::mem::replace(&mut waits.told, true);
        match (terminal, first) {
            (true, _) => redraw(&line),
            (false, true) => tell(format_args!("stele: {line}")),
            (false, false) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_request_is_named_until_it_is_answered() {
        let (mut waits, begun) = (Waits::new(), Instant::now());
        let after = |seconds| begun + Duration::from_secs(seconds);
        let long = waits.begin("s3://b/long to a PUT".into(), 64 << 20, begun);
        let short = waits.begin("s3://b/\x1b[2J to a GET".into(), 0, after(1));
        assert_eq!(waits.line(after(3)), None);
        assert_eq!(
            waits.line(after(4)).as_deref(),
            Some("waiting for an answer of s3://b/\\u{1b}[2J to a GET, for 3 s"),
            "a long body takes its time, and no name controls the terminal"
        );
        assert!(!waits.end(short), "nothing was told");
        assert_eq!(waits.line(after(66)), None);
        assert_eq!(waits.line(after(67)).as_deref(), Some("waiting for an answer of s3://b/long to a PUT, for 67 s"));
        waits.told = true;
        assert!(waits.end(long) && waits.line(after(99)).is_none());
        assert!(!waits.told, "the next silence is told again");
    }
}
