//! One connection from its first byte to its last, in one task.
//!
//! A turn reads what has arrived, starts every whole call, polls each new request once, and sends
//! all answers that are ready. A request that must wait joins the others under way. Beyond the
//! limits of [`super::Options`] the connection stops reading until answers have gone; so it does,
//! with a call at a time, while all connections hold too much. When the client is gone, requests
//! under way still finish, because the client may repeat them on its next connection and wants
//! their answers then.

use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, Stream};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::time::{Instant, Sleep, sleep};

use crate::Files;

use super::budget::Account;
use super::export::Exports;
use super::outbox::Outbox;
use super::procedures::dispatch::{self, Started};
use super::record::{RecordError, Records};
use super::rpc::Reply;
use super::server::{Peer, Server};

/// What a client must take of its answers within its patience, unless it takes all that wait: a
/// byte now and then would keep all of them in memory.
const TAKEN_MIN: usize = 256 << 10;
/// How often in the shortest patience a connection looks whether it is stuck.
const LOOKS: u32 = 4;

/// Why a connection ended.
pub enum ConnectionEnd<S> {
    /// The client closed it.
    Closed,
    /// The client sent no call for long, or only a part of one, or took no answers.
    Stuck(StuckReason),
    /// The stream was no sequence of records.
    Record(RecordError),
    Failed(io::Error),
    /// The client was told to begin TLS: encrypt the stream, and serve it again as secure.
    StartTls(S),
}

impl<S> fmt::Debug for ConnectionEnd<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConnectionEnd::Closed => f.write_str("Closed"),
            ConnectionEnd::Stuck(stuck) => write!(f, "Stuck({stuck:?})"),
            ConnectionEnd::Record(error) => write!(f, "Record({error:?})"),
            ConnectionEnd::Failed(error) => write!(f, "Failed({error})"),
            ConnectionEnd::StartTls(_) => f.write_str("StartTls"),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StuckReason {
    Idle,
    Record,
    Write,
}

/// A byte stream of either transport.
pub trait Transport: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Transport for S {}

/// Serves shares of this crate as [`serve_connection`] does. The trait objects have the whole
/// protocol compiled here, with this crate's optimisation, and not where the future is polled.
pub fn serve_shares(
    stream: Box<dyn Transport>,
    peer: Peer,
    server: Arc<Server<crate::share::Share>>,
) -> BoxFuture<'static, ConnectionEnd<Box<dyn Transport>>> {
    Box::pin(serve_connection(stream, peer, server))
}

/// Serves one stream until it ends.
pub async fn serve_connection<S, F>(stream: S, peer: Peer, server: Arc<Server<F>>) -> ConnectionEnd<S>
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
    F: Files,
{
    server.counters().connections_opened.fetch_add(1, Ordering::Relaxed);
    let mut connection = Connection::new(stream, peer, server);
    let ended = poll_fn(|context| connection.poll(context)).await;
    connection.server.counters().connections_closed.fetch_add(1, Ordering::Relaxed);
    match ended {
        End::Closed => ConnectionEnd::Closed,
        End::Stuck(stuck) => ConnectionEnd::Stuck(stuck),
        End::Record(error) => ConnectionEnd::Record(error),
        End::Failed(error) => ConnectionEnd::Failed(error),
        End::StartTls => ConnectionEnd::StartTls(connection.stream),
    }
}

#[derive(Debug)]
enum End {
    Closed,
    Stuck(StuckReason),
    Record(RecordError),
    Failed(io::Error),
    StartTls,
}

/// A request under way, and the bytes that it counts for.
struct Running {
    future: Pin<Box<dyn Future<Output = Reply> + Send>>,
    bytes: usize,
}

impl Future for Running {
    type Output = (Reply, usize);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let bytes = self.bytes;
        self.future.as_mut().poll(context).map(|reply| (reply, bytes))
    }
}

struct Connection<S, F> {
    stream: S,
    peer: Peer,
    server: Arc<Server<F>>,
    exports: Arc<Exports<F>>,
    generation: u64,
    records: Records,
    running: FuturesUnordered<Running>,
    /// Bytes of the requests under way.
    running_bytes: usize,
    out: Outbox,
    account: Account,
    /// Why nothing more is read; the connection ends once everything under way is done.
    end: Option<End>,
    watch: Watch,
}

/// Notices that nothing moves.
struct Watch {
    tick: Pin<Box<Sleep>>,
    period: Duration,
    /// Calls that came.
    calls: u64,
    /// Times that answers went: all that waited, or enough of them. And bytes since the last time.
    taken: u64,
    sent: usize,
    seen: (Option<StuckReason>, u64),
    since: Instant,
}

impl Watch {
    /// Bytes of answers went. `all`: none wait any more.
    fn sent(&mut self, count: usize, all: bool) {
        self.sent += count;
        if all || self.sent >= TAKEN_MIN {
            self.taken += 1;
            self.sent = 0;
        }
    }
}

impl<S, F> Connection<S, F>
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
    F: Files,
{
    fn new(stream: S, peer: Peer, server: Arc<Server<F>>) -> Connection<S, F> {
        let options = &server.options;
        let shortest = options.record_patience.min(options.write_patience).min(options.idle_patience);
        let period = (shortest / LOOKS).max(Duration::from_millis(1));
        Connection {
            stream,
            peer,
            generation: server.generation(),
            exports: server.exports(),
            account: server.budget.account(peer.address.ip()),
            server,
            records: Records::default(),
            running: FuturesUnordered::new(),
            running_bytes: 0,
            out: Outbox::default(),
            end: None,
            watch: Watch {
                tick: Box::pin(sleep(period)),
                period,
                calls: 0,
                taken: 0,
                sent: 0,
                seen: (None, 0),
                since: Instant::now(),
            },
        }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<End> {
        loop {
            while let Poll::Ready(Some((reply, bytes))) = Pin::new(&mut self.running).poll_next(context) {
                self.running_bytes = self.running_bytes.saturating_sub(bytes);
                self.out.push(reply);
            }
            self.take_records(context);
            let mut moved = self.poll_write(context);
            if self.running.is_empty()
                && self.out.is_done()
                && let Some(end) = self.end.take()
            {
                return Poll::Ready(end);
            }
            if self.may_read() {
                moved |= self.poll_read(context);
            }
            if !moved && !self.poll_tick(context) {
                return Poll::Pending;
            }
        }
    }

    fn has_room(&mut self) -> bool {
        let held = self.running_bytes + self.out.waiting();
        self.account.hold(held);
        let options = &self.server.options;
        self.running.len() < options.requests_max && held < options.bytes_max && self.account.has_room()
    }

    fn may_read(&mut self) -> bool {
        self.has_room() && self.end.is_none()
    }

    /// Starts every whole call that has arrived, up to the limits.
    fn take_records(&mut self, context: &mut Context<'_>) {
        while self.may_read() {
            match self.records.take() {
                Ok(Some(record)) => self.start(record, context),
                Ok(None) => return,
                Err(error) => {
                    self.server.counters().refused.fetch_add(1, Ordering::Relaxed);
                    self.end = Some(End::Record(error));
                }
            }
        }
    }

    fn start(&mut self, record: Bytes, context: &mut Context<'_>) {
        self.watch.calls += 1;
        self.look_at_exports();
        match dispatch::start(&self.server, &self.exports, self.peer, record) {
            Started::Silent => {}
            Started::Ready(reply) => self.out.push(reply),
            Started::StartTls(reply) => {
                self.out.push(reply);
                // Whatever came in the clear behind the question is not trusted.
                let clean = !self.records.is_partial();
                self.end = Some(if clean { End::StartTls } else { End::Closed });
            }
            Started::Running { mut future, bytes } => match future.as_mut().poll(context) {
                Poll::Ready(reply) => self.out.push(reply),
                Poll::Pending => {
                    self.running_bytes += bytes;
                    self.running.push(Running { future, bytes });
                }
            },
        }
    }

    fn look_at_exports(&mut self) {
        let generation = self.server.generation();
        if generation != self.generation {
            self.generation = generation;
            self.exports = self.server.exports();
        }
    }

    /// Says whether something happened.
    fn poll_write(&mut self, context: &mut Context<'_>) -> bool {
        if self.out.needs_flush() {
            return self.poll_flush(context);
        }
        if self.out.waiting() == 0 {
            return false;
        }
        match self.out.poll_write(&mut self.stream, context) {
            Poll::Pending => false,
            Poll::Ready(Ok(count)) => {
                self.watch.sent(count, self.out.is_done());
                self.server.counters().bytes_sent.fetch_add(count as u64, Ordering::Relaxed);
                true
            }
            Poll::Ready(Err(error)) => {
                self.out.clear();
                self.end = Some(End::Failed(error));
                true
            }
        }
    }

    /// Says whether something happened.
    fn poll_flush(&mut self, context: &mut Context<'_>) -> bool {
        match self.out.poll_flush(&mut self.stream, context) {
            Poll::Pending => false,
            Poll::Ready(Ok(())) => {
                self.watch.sent(0, self.out.is_done());
                true
            }
            Poll::Ready(Err(error)) => {
                self.out.clear();
                self.end = Some(End::Failed(error));
                true
            }
        }
    }

    fn poll_read(&mut self, context: &mut Context<'_>) -> bool {
        match pin!(self.stream.read_buf(&mut self.records.room())).poll(context) {
            Poll::Pending => false,
            Poll::Ready(Ok(0)) => {
                self.end = Some(End::Closed);
                true
            }
            Poll::Ready(Ok(count)) => {
                self.records.filled();
                self.server.counters().bytes_received.fetch_add(count as u64, Ordering::Relaxed);
                true
            }
            // Clients that are done reset their connection rather than to close it.
            Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::ConnectionReset => {
                self.end = Some(End::Closed);
                true
            }
            Poll::Ready(Err(error)) => {
                self.end = Some(End::Failed(error));
                true
            }
        }
    }

    /// Looks now and then whether the client leaves the connection stuck. Says whether there is
    /// anything to do.
    fn poll_tick(&mut self, context: &mut Context<'_>) -> bool {
        let mut ended = false;
        while self.watch.tick.as_mut().poll(context).is_ready() {
            let now = Instant::now();
            let period = self.watch.period;
            self.watch.tick.as_mut().reset(now + period);
            ended |= self.look(now);
        }
        ended
    }

    fn look(&mut self, now: Instant) -> bool {
        self.look_at_exports();
        let options = &self.server.options;
        let idle_patience = match self.exports.admits(self.peer.address.ip()) {
            true => options.idle_patience,
            false => options.stranger_patience.min(options.idle_patience),
        };
        let (waits, progress, patience) = match () {
            () if !self.out.is_done() => (Some(StuckReason::Write), self.watch.taken, options.write_patience),
            () if self.end.is_some() || !self.running.is_empty() => (None, 0, Duration::MAX),
            () if self.records.is_partial() => (Some(StuckReason::Record), self.watch.calls, options.record_patience),
            () => (Some(StuckReason::Idle), self.watch.calls, idle_patience),
        };
        if self.watch.seen != (waits, progress) {
            self.watch.seen = (waits, progress);
            self.watch.since = now;
            return false;
        }
        self.records.shrink();
        match waits {
            Some(stuck) if now.duration_since(self.watch.since) >= patience => {
                self.out.clear();
                self.end = Some(End::Stuck(stuck));
                true
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests;
