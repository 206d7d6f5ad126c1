//! Threads that serve connections, each with a runtime of its own.
//!
//! A connection is one task, which runs on one thread at a time anyway. On the server's runtime,
//! each answer of a drive woke two of its threads: the one that took the task, and another one that
//! looked whether there was more to do. A thread of its own wakes alone, and what other protocols
//! compute does not stand before it.

use std::future::Future;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio::task::{AbortHandle, JoinSet};

use crate::apart::Apart;
use crate::failure::Outcome;

/// Threads on the largest machine.
const LANES_MAX: usize = 16;

pub struct Lanes(Vec<Lane>);

struct Lane {
    thread: Apart,
    /// Each connection has a clone.
    connections: Arc<()>,
}

impl Lanes {
    /// One thread for every second processor: the pool's thread and the drives need others.
    pub fn start(name: &str) -> Outcome<Lanes> {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let lane = || Ok(Lane { thread: Apart::start(name)?, connections: Arc::default() });
        Ok(Lanes((0..(processors / 2).clamp(1, LANES_MAX)).map(|_| lane()).collect::<Outcome<_>>()?))
    }

    /// Serves the connection on the thread with the fewest.
    pub fn serve<F, S>(&self, stream: TcpStream, serving: &mut JoinSet<()>, serve: S) -> std::io::Result<()>
    where
        S: FnOnce(TcpStream) -> F,
        F: Future<Output = ()> + Send + 'static,
    {
        let lane = self.0.iter().min_by_key(|lane| Arc::strong_count(&lane.connections));
        let Some((lane, handle)) = lane.and_then(|lane| Some((lane, lane.thread.handle()?))) else { return Ok(()) };
        // Its readiness is told to the runtime that it is registered with.
        let stream = stream.into_std()?;
        let stream = lane.thread.within(|| TcpStream::from_std(stream))?;
        let (connection, counted) = (serve(stream), Arc::clone(&lane.connections));
        let _: AbortHandle = serving.spawn_on(
            async move {
                connection.await;
                drop(counted);
            },
            handle,
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::Mutex;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_connection_is_served_on_a_thread_of_its_own_and_ends_with_its_set() {
        let lanes = Lanes::start("stele-test").unwrap();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let mut serving = JoinSet::new();
        let name: Arc<Mutex<Option<String>>> = Arc::default();
        let theirs = Arc::clone(&name);
        let serve = |mut stream: TcpStream| async move {
            let mut byte = [0];
            while stream.read_exact(&mut byte).await.is_ok() {
                *theirs.lock().unwrap() = std::thread::current().name().map(str::to_owned);
                stream.write_all(&byte).await.unwrap();
            }
        };
        lanes.serve(stream, &mut serving, serve).unwrap();
        let mut answer = [0];
        client.write_all(&[7]).await.unwrap();
        client.read_exact(&mut answer).await.unwrap();
        assert_eq!(answer, [7]);
        assert_eq!(name.lock().unwrap().as_deref(), Some("stele-test"));
        let busy: usize = lanes.0.iter().map(|lane| Arc::strong_count(&lane.connections) - 1).sum();
        assert_eq!(busy, 1);
        serving.shutdown().await;
        let busy: usize = lanes.0.iter().map(|lane| Arc::strong_count(&lane.connections) - 1).sum();
        assert_eq!(busy, 0, "it has left its thread");
        assert!(client.read_exact(&mut answer).await.is_err(), "the connection has ended");
    }
}
