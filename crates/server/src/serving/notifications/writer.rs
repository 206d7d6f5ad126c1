//! The writer of a file of events: a thread of its own, which appends one batch at a time.
//!
//! Failure model: nothing can cancel an append to a disk that hangs. A sender stops waiting for it
//! after its patience, and its next attempt waits for the same append again. The thread takes no
//! place of the runtime's pool, and neither a stop nor the end of the process waits for it.

use std::io;
use std::sync::mpsc;
use std::time::Duration;

use tokio::sync::oneshot;

type Appended = Result<(), String>;

pub struct Writer {
    jobs: mpsc::Sender<Job>,
    /// The append that runs, with the number of its last event. At most one.
    running: Option<(u64, oneshot::Receiver<Appended>)>,
    patience: Duration,
}

struct Job {
    lines: Vec<String>,
    done: oneshot::Sender<Appended>,
}

impl Writer {
    /// Starts the thread. `append` returns when the lines are durable.
    pub fn start(
        mut append: impl FnMut(&[String]) -> io::Result<()> + Send + 'static,
        patience: Duration,
    ) -> io::Result<Writer> {
        let (jobs, queue) = mpsc::channel::<Job>();
        std::thread::Builder::new().name("event-file".into()).spawn(move || {
            // Ends with the writer.
            for job in queue {
                let _ = job.done.send(append(&job.lines).map_err(|error| error.to_string()));
            }
        })?;
        Ok(Writer { jobs, running: None, patience })
    }

    /// Appends the lines of the events up to `through`, unless an earlier append still runs: then
    /// it waits for that one alone. Returns the number up to which the file has the events.
    pub async fn append(&mut self, through: u64, lines: Vec<String>) -> Result<u64, String> {
        let ended = || "the thread that writes the file has ended".to_owned();
        let (through, mut done) = match self.running.take() {
            Some(running) => running,
            None => {
                let (done, answer) = oneshot::channel();
                self.jobs.send(Job { lines, done }).map_err(|_| ended())?;
                (through, answer)
            }
        };
        match tokio::time::timeout(self.patience, &mut done).await {
            Ok(Ok(appended)) => appended.map(|()| through),
            Ok(Err(_)) => Err(ended()),
            Err(_) => {
                self.running = Some((through, done));
                Err(format!("its file still takes the last lines after {} s", self.patience.as_secs()))
            }
        }
    }
}

#[cfg(test)]
mod tests;
