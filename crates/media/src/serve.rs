//! Serves one drive on a thread of its own, so that many threads and tasks can use it through a
//! [`Handle`].
//!
//! Limits: [`MAILBOX_MAX`] operations wait, and the drive has [`IN_FLIGHT_MAX`]. Beyond them
//! `submit` answers `Retry` at once, on the caller's thread. Dropping the last handle still carries
//! out all accepted operations. The thread then ends and drops the drive before the drop of the
//! handle returns.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use stele_ground::{Bytes, Duration};

use crate::mailbox::{Mailbox, Refused};
use crate::system::{EventFd, now};
use crate::{
    Completion, Done, Drive, DriveFile, Engine, Geometry, Handle, MediaError, MediaFault, MemoryDrive, Op, Port,
    Priority, Request, Ring,
};

/// Largest number of operations in the mailbox.
pub const MAILBOX_MAX: usize = 4096;
/// Largest number of operations handed to the drive and not yet finished.
pub const IN_FLIGHT_MAX: usize = 1024;

struct Job {
    op: Op,
    priority: Priority,
    done: Done,
}

struct Served {
    mailbox: Arc<Mailbox<Job>>,
    geometry: Geometry,
    thread: Option<JoinHandle<()>>,
}

/// The thread's wait while the drive works. It must return when the bell rings, and clear it.
pub(crate) trait Idle {
    fn idle(&mut self, bell: &EventFd, timeout: Option<Duration>);
}

/// For drives that are only polled: yields the processor and returns.
struct Polled;

impl Idle for Polled {
    fn idle(&mut self, _bell: &EventFd, _timeout: Option<Duration>) {
        std::thread::yield_now();
    }
}

/// Serves a drive that only needs polling: one in memory, or a wrapper.
pub fn serve<D: Drive + Send + 'static>(drive: D) -> io::Result<Handle> {
    start("stele-drive", move |_| Ok((drive, Polled))).map_err(|error| match error {
        Start::System(error) => error,
        Start::Media(error) => io::Error::other(error),
    })
}

/// Serves a fresh memory drive.
pub fn serve_memory(size: Bytes) -> io::Result<Handle> {
    serve(MemoryDrive::new(size))
}

struct OnRing(Ring);

impl Idle for OnRing {
    fn idle(&mut self, _bell: &EventFd, timeout: Option<Duration>) {
        self.0.wait(timeout);
    }
}

/// Serves a file or device on a ring of its own.
pub fn serve_file(file: DriveFile, engine: Engine) -> Result<Handle, MediaError> {
    let made = start("stele-drive", move |bell| {
        let ring = Ring::new(Arc::clone(bell), engine);
        Ok((ring.attach(file), OnRing(ring)))
    });
    made.map_err(|error| match error {
        Start::System(error) => MediaError::new(MediaFault::Retry, format!("no thread for a drive: {error}")),
        Start::Media(error) => error,
    })
}

pub(crate) enum Start {
    System(io::Error),
    Media(MediaError),
}

/// Starts the thread, makes the drive on it, and waits until that has succeeded or failed.
pub(crate) fn start<D, I>(
    name: &str,
    make: impl FnOnce(&Arc<EventFd>) -> Result<(D, I), MediaError> + Send + 'static,
) -> Result<Handle, Start>
where
    D: Drive + 'static,
    I: Idle + 'static,
{
    let mailbox = Arc::new(Mailbox::new(MAILBOX_MAX).map_err(Start::System)?);
    let theirs = Arc::clone(&mailbox);
    let (sender, receiver) = std::sync::mpsc::channel();
    let thread = std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || match make(theirs.bell()) {
            Ok((drive, idle)) => {
                let _ = sender.send(Ok(drive.geometry()));
                run(&theirs, drive, idle);
            }
            Err(error) => drop(sender.send(Err(error))),
        })
        .map_err(Start::System)?;
    match receiver.recv() {
        Ok(Ok(geometry)) => Ok(Handle::new(Served { mailbox, geometry, thread: Some(thread) })),
        Ok(Err(error)) => {
            let _ = thread.join();
            Err(Start::Media(error))
        }
        Err(_) => Err(Start::Media(MediaError::new(MediaFault::Gone, "the drive's thread died as it started"))),
    }
}

/// Closes the mailbox however the thread ends, so that no caller waits for an answer that cannot
/// come.
struct Closing<'a>(&'a Mailbox<Job>);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.close();
        let mut left = Vec::new();
        self.0.take(usize::MAX, &mut left);
        for job in left {
            (job.done)(job.op, Err(MediaError::new(MediaFault::Gone, "the drive's thread has ended")));
        }
    }
}

fn run<D: Drive, I: Idle>(mailbox: &Mailbox<Job>, mut drive: D, mut idle: I) {
    let closing = Closing(mailbox);
    // A tag is an index into this table.
    let mut waiting: Vec<Option<Done>> = Vec::new();
    let mut free: Vec<usize> = Vec::new();
    let mut jobs: Vec<Job> = Vec::new();
    let mut finished: Vec<Completion> = Vec::new();
    loop {
        let in_flight = waiting.len() - free.len();
        mailbox.take(IN_FLIGHT_MAX - in_flight, &mut jobs);
        let taken = jobs.len();
        for Job { op, priority, done } in jobs.drain(..) {
            let place = free.pop().unwrap_or_else(|| {
                waiting.push(None);
                waiting.len() - 1
            });
            waiting[place] = Some(done);
            drive.submit(Request { tag: place as u64, op, priority, deadline: None });
        }
        if taken > 0 {
            drive.kick();
        }
        drive.reap(now(), &mut finished);
        let reaped = finished.len();
        for Completion { tag, op, result } in finished.drain(..) {
            let done = waiting.get_mut(tag as usize).and_then(Option::take);
            let done = done.unwrap_or_else(|| panic!("the drive completed a request twice or unasked: tag {tag}"));
            free.push(tag as usize);
            done(op, result);
        }
        if taken > 0 || reaped > 0 {
            continue;
        }
        if waiting.len() == free.len() {
            if mailbox.is_closed() && mailbox.is_empty() {
                break;
            }
            mailbox.wait(None);
        } else if mailbox.fall_asleep() || mailbox.is_closed() {
            idle.idle(mailbox.bell(), drive.next_event().map(|at| at.since(now())));
            mailbox.woken();
        } else if waiting.len() - free.len() >= IN_FLIGHT_MAX {
            idle.idle(mailbox.bell(), None);
        }
    }
    drop(closing);
}

impl Port for Served {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn submit(&self, op: Op, priority: Priority, done: Done) {
        match self.mailbox.post(Job { op, priority, done }) {
            Ok(()) => {}
            Err(Refused::Full(job)) => {
                let message = format!("{MAILBOX_MAX} operations already wait for this drive: ask again");
                (job.done)(job.op, Err(MediaError::new(MediaFault::Retry, message)));
            }
            Err(Refused::Closed(job)) => {
                (job.done)(job.op, Err(MediaError::new(MediaFault::Gone, "the drive's thread has ended")));
            }
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.mailbox.close();
        let Some(thread) = self.thread.take() else { return };
        // A completion may hold the last handle. The thread cannot wait for itself; it ends right
        // after.
        if thread.thread().id() != std::thread::current().id() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests;
