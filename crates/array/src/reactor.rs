//! The thread that drives a pool: it owns the [`Pool`] and its drives on one ring, takes host
//! operations and commands from other threads, and calls completions back.
//!
//! One turn of the loop takes a batch of mail and all completions, runs the pool once over all of
//! them, hands out the pool's actions, and starts every drive operation with one call. When a turn
//! finds nothing it spins for a moment ([`ServerOptions::spin`]), then sleeps until mail, a
//! completion or the pool's next wake. Other threads ring the bell (an eventfd) only when it
//! sleeps.
//!
//! Limits: [`ServerOptions::mailbox`] operations wait in the mailbox, [`HOST_MAX`] are in the pool;
//! beyond them `submit` answers `Retry` on the caller's thread. Commands have a mailbox of their
//! own and pass a full one.
//!
//! Failure model: every operation and command accepted is answered exactly once, whatever happens:
//! `Gone` and `Stopped` when the server is dropped, or when the pool finds one of its beliefs
//! broken and its thread dies. Dropping a [`Server`] without `Command::Close` is like a crash:
//! nothing more is written, and the log has what was promised.

use std::sync::Arc;
use std::thread::JoinHandle;

use stele_ground::{Bytes, Duration};
use stele_media::mailbox::Mailbox;
use stele_media::system::{EventFd, now};
use stele_media::{Engine, Handle, ReactorSession, Space};

use crate::model::{Alarm, ArrayError, Attached, Command, CreateOptions, OpenOptions, Reply, VolumeStatus};
use crate::pool::Pool;

mod drives;
mod hand_over;
pub mod place;
mod turn;
mod volume;

pub use drives::Source;
pub use turn::HOST_MAX;

use turn::{Answering, Machine, Order, Reactor, Shared};

/// How the thread works. Nothing here is stored.
pub struct ServerOptions {
    pub name: String,
    /// Host operations that may wait for the reactor.
    pub mailbox: usize,
    /// How long it looks for work before it sleeps. A wake-up costs both sides tens of
    /// microseconds. Spinning costs a core while the pool is busy but not saturated, so that it
    /// pays only where cores are left over: by default 20 us on machines with four or more.
    pub spin: Duration,
    pub engine: Engine,
    /// Called on the reactor's thread with what an operator should know. None: logged as text.
    pub alarms: Option<Box<dyn FnMut(Alarm) + Send>>,
}

impl Default for ServerOptions {
    fn default() -> ServerOptions {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        ServerOptions {
            name: "stele-pool".to_owned(),
            mailbox: 4096,
            spin: Duration::from_micros(if cores >= 4 { 20 } else { 0 }),
            engine: Engine::Best,
            alarms: None,
        }
    }
}

/// A pool on its thread. Dropping it stops the thread as a crash would.
pub struct Server {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    engine: Engine,
}

/// Where new drives of a new pool get their space.
#[derive(Clone, Copy, Debug)]
pub struct NewDrives {
    pub size: Bytes,
    pub space: Space,
}

impl Server {
    /// Creates a pool on any drives.
    pub fn create_on(
        sources: Vec<Source>,
        options: CreateOptions,
        open: OpenOptions,
        server: ServerOptions,
    ) -> Result<Server, ArrayError> {
        Server::start(sources, server, |attached| Pool::create(options, open, attached, now()))
    }

    /// Opens the pool on any drives.
    pub fn open_on(sources: Vec<Source>, options: OpenOptions, server: ServerOptions) -> Result<Server, ArrayError> {
        Server::start(sources, server, |attached| Pool::open(options, attached, now()))
    }

    /// Starts the thread and waits until the pool is ready or has failed.
    fn start<M: Machine>(
        sources: Vec<Source>,
        server: ServerOptions,
        begin: impl FnOnce(Vec<Attached>) -> M + Send + 'static,
    ) -> Result<Server, ArrayError> {
        let bell = Arc::new(EventFd::new().map_err(|error| no_thread(&error))?);
        let engine = server.engine;
        let shared = Arc::new(Shared::new(
            Mailbox::with_bell(server.mailbox, Arc::clone(&bell)),
            Mailbox::with_bell(usize::MAX, Arc::clone(&bell)),
            Mailbox::with_bell(usize::MAX, bell),
        ));
        let theirs = Arc::clone(&shared);
        let (sender, receiver) = std::sync::mpsc::channel();
        let thread = std::thread::Builder::new()
            .name(server.name.clone())
            .spawn(move || Reactor::new(theirs, sources, server, sender, begin).run())
            .map_err(|error| no_thread(&error))?;
        let server = Server { shared, thread: Some(thread), engine };
        match receiver.recv() {
            Ok(Ok(())) => Ok(server),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(ArrayError::Stopped(
                "the pool's thread died while the pool was being opened; its log says why".to_owned(),
            )),
        }
    }

    /// A volume as a drive for other threads. It stays valid until the server stops; then it
    /// answers `Gone`.
    pub fn volume_of(&self, status: &VolumeStatus) -> Handle {
        volume::handle(&self.shared, status)
    }

    /// Asks the pool; `answer` is called once, on its thread. It is dropped uncalled where the
    /// server has stopped.
    pub fn ask(&self, command: Command, answer: Answering<Result<Reply, ArrayError>>) {
        self.order(Order::Command { command, answer });
    }

    /// As `ask`, for a caller that waits.
    pub fn command_blocking(&self, command: Command) -> Result<Reply, ArrayError> {
        let (sender, receiver) = std::sync::mpsc::channel();
        self.ask(command, Box::new(move |reply| drop(sender.send(reply))));
        receiver.recv().unwrap_or_else(|_| Err(self.stopped()))
    }

    /// The answer of a server that has stopped.
    pub fn stopped(&self) -> ArrayError {
        self.shared.stopped()
    }

    /// Puts one more drive at the pool's disposal and returns its index.
    pub fn attach_on(&self, source: Source) -> Result<u32, ArrayError> {
        let (sender, receiver) = std::sync::mpsc::channel();
        self.order(Order::Attach {
            source,
            answer: Box::new(move |index| {
                let _ = sender.send(index);
            }),
        });
        receiver.recv().map_err(|_| self.shared.stopped())
    }

    /// Takes a drive away, as if its cable had been pulled. Its operations under way are still
    /// finished.
    pub fn detach(&self, index: u32) {
        self.order(Order::Detach { drive: index as usize });
    }

    /// Runs a frontend's session on the pool's thread, where its operations wake no other thread.
    /// It is dropped when the server stops.
    pub fn serve(&self, session: Box<dyn ReactorSession>) {
        self.order(Order::Serve { session });
    }

    /// Whether the thread has ended: closed, or stopped by a failed assertion.
    pub fn is_stopped(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// What the files of this pool are driven by, where the kernel allows it.
    pub fn engine(&self) -> Engine {
        self.engine
    }

    /// Ends the thread after this turn, without waiting for it.
    pub fn stop(&self) {
        self.order(Order::Stop);
    }

    fn order(&self, order: Order) {
        // A closed mailbox drops the order, and with it the sender of its answer: the asker is
        // told.
        let _ = self.shared.orders.post(order);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
        let Some(thread) = self.thread.take() else { return };
        // A completion may hold the server: the thread cannot wait for itself, and ends right
        // after.
        if thread.thread().id() != std::thread::current().id() {
            let _ = thread.join();
        }
    }
}

fn no_thread(error: &std::io::Error) -> ArrayError {
    ArrayError::Stopped(format!("no thread could be started for the pool: {error}"))
}

#[cfg(test)]
mod tests;
