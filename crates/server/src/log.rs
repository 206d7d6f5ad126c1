//! The log on standard error. A server writes it on a thread of its own.
//!
//! Failure model: no task waits for the log. While its reader stands still, or its disk is full, a
//! server keeps at most [`WAITING_MAX`] lines; it counts and drops those that come then, and says
//! how many once a line is written again. A command writes its few lines directly. No failure to
//! write the log ends a process.

use std::io::{Result, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

/// Lines that wait to be written. A line has at most 8 KiB.
const WAITING_MAX: usize = 1024;
/// Time for the last lines to be written before the process ends.
const PATIENCE: Duration = Duration::from_secs(1);
/// Pause between two attempts to find room in a queue that is full.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The log of this process, if it is a server.
static SERVER: OnceLock<Queue> = OnceLock::new();
static DROPPED: AtomicU64 = AtomicU64::new(0);

enum Entry {
    Line(Vec<u8>),
    /// Answered once all lines before it are written.
    Flush(SyncSender<()>),
}

struct Queue(SyncSender<Entry>);

impl Queue {
    /// Whether there was room.
    fn push(&self, line: Vec<u8>) -> bool {
        self.0.try_send(Entry::Line(line)).is_ok()
    }

    /// Waits until the lines so far are written, but no longer than `patience`. A queue that is
    /// full has no place for the question at first.
    fn flush(&self, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        let (done, written) = sync_channel(1);
        let mut entry = Entry::Flush(done);
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.0.try_send(entry) {
                Ok(()) => return written.recv_timeout(left).is_ok(),
                Err(TrySendError::Full(same)) if !left.is_zero() => entry = same,
                Err(_) => return false,
            }
            std::thread::sleep(LOOK_EVERY.min(left));
        }
    }
}

/// Begins to write on a thread of its own. Without one, lines are written directly.
pub fn serve() {
    let (sender, receiver) = sync_channel(WAITING_MAX);
    let writing = move || write_all(&receiver, &mut std::io::stderr(), &DROPPED);
    if std::thread::Builder::new().name("stele-log".into()).spawn(writing).is_ok() {
        let _ = SERVER.set(Queue(sender));
    }
}

/// Whether this process is a server.
pub fn is_served() -> bool {
    SERVER.get().is_some()
}

/// Writes whole lines, with their line breaks.
pub fn write(lines: Vec<u8>) {
    match SERVER.get() {
        Some(queue) => {
            if !queue.push(lines) {
                DROPPED.fetch_add(1, Relaxed);
            }
        }
        None => drop(std::io::stderr().write_all(&lines)),
    }
}

/// Waits, not for long, until all lines are written: the process ends.
pub fn settle() {
    if let Some(queue) = SERVER.get() {
        queue.flush(PATIENCE);
    }
}

fn write_all(entries: &Receiver<Entry>, into: &mut impl Write, dropped: &AtomicU64) {
    while let Ok(entry) = entries.recv() {
        match entry {
            Entry::Line(line) => {
                let lost = dropped.swap(0, Relaxed);
                let notice = format!("{lost} lines of the log are missing here: it could not be written\n");
                if lost > 0 && into.write_all(notice.as_bytes()).is_err() {
                    dropped.fetch_add(lost, Relaxed);
                }
                if into.write_all(&line).is_err() {
                    dropped.fetch_add(1, Relaxed);
                }
            }
            Entry::Flush(done) => {
                let _ = done.try_send(());
            }
        }
    }
}

/// The log as a writer that takes each event whole.
pub struct Log;

impl Write for Log {
    fn write(&mut self, line: &[u8]) -> Result<usize> {
        write(line.to_vec());
        Ok(line.len())
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Error, ErrorKind};
    use std::sync::mpsc::Sender;

    use super::*;

    /// A reader that stands still until it is told to go on, and a disk that is full meanwhile.
    struct Slow {
        go_on: Receiver<()>,
        is_full: bool,
        written: Sender<String>,
    }

    impl Write for Slow {
        fn write(&mut self, line: &[u8]) -> Result<usize> {
            self.is_full = self.go_on.recv().is_ok() && self.is_full;
            if self.is_full {
                return Err(Error::from(ErrorKind::StorageFull));
            }
            let _ = self.written.send(String::from_utf8_lossy(line).into_owned());
            Ok(line.len())
        }

        fn flush(&mut self) -> Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_log_that_nobody_reads_holds_nobody_and_tells_what_it_lacks() {
        static LOST: AtomicU64 = AtomicU64::new(0);
        let (tell, go_on) = std::sync::mpsc::channel();
        let (written, lines) = std::sync::mpsc::channel();
        let (sender, receiver) = sync_channel(4);
        let queue = Queue(sender);
        let writing = std::thread::spawn(move || {
            write_all(&receiver, &mut Slow { go_on, is_full: false, written }, &LOST);
        });
        // The reader stands still: pushing and ending wait for nothing. The thread may have one
        // line.
        let taken = (0..20).filter(|number| queue.push(format!("{number}\n").into_bytes())).count();
        assert!((4..=5).contains(&taken), "{taken}");
        assert!(!queue.flush(Duration::from_millis(1)));
        LOST.store(20 - taken as u64, Relaxed);
        drop(tell);
        drop(queue);
        writing.join().unwrap();
        let lines: Vec<String> = lines.iter().collect();
        let lost = lines.iter().find(|line| line.contains("are missing here"));
        assert_eq!(lines.iter().filter(|line| line.len() < 4).count(), taken, "{lines:?}");
        assert!(lost.is_some(), "{lines:?}");
    }

    /// The last line of a server is the reason of its end.
    #[test]
    fn a_full_queue_is_waited_for_at_the_end() {
        let (sender, receiver) = sync_channel(1);
        let queue = Queue(sender);
        assert!(queue.push(b"first\n".to_vec()) && !queue.push(b"second\n".to_vec()), "it is full");
        let reading = std::thread::spawn(move || {
            let mut lines = Vec::new();
            write_all(&receiver, &mut lines, &AtomicU64::new(0));
            lines
        });
        assert!(queue.flush(Duration::from_secs(60)) && queue.push(b"the end\n".to_vec()));
        drop(queue);
        assert_eq!(reading.join().unwrap(), b"first\nthe end\n");
    }

    #[test]
    fn lines_that_a_full_disk_refused_are_counted() {
        static LOST: AtomicU64 = AtomicU64::new(0);
        let (tell, go_on) = std::sync::mpsc::channel();
        let (written, lines) = std::sync::mpsc::channel();
        let (sender, receiver) = sync_channel(4);
        (0..2).for_each(|_| sender.send(Entry::Line(b"refused\n".to_vec())).unwrap());
        // One attempt for the first line; two for the second, whose notice is refused as well.
        (0..3).for_each(|_| tell.send(()).unwrap());
        drop(sender);
        let mut slow = Slow { go_on, is_full: true, written };
        write_all(&receiver, &mut slow, &LOST);
        assert_eq!((LOST.load(Relaxed), lines.try_iter().count()), (2, 0));
    }
}
