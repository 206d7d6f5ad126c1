//! A byte stream whose peer must keep reading. A write that stays stuck fails instead of waiting
//! for ever, and so do writes that a peer takes a few bytes at a time.
//!
//! Reads need no such bound here: the code that parses heads and bodies limits their time.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

/// Smallest average rate in bytes a second while writes wait for the peer: the same as for the
/// sender of a body.
const RATE_MIN: u64 = 1024;

/// Wraps a stream; `patience` is the longest a write may make no progress.
pub struct Paced<S> {
    stream: S,
    patience: Duration,
    /// Time for which writes were stuck, and below the bytes that the peer took, since the last
    /// check.
    waited: Duration,
    taken: u64,
    // Armed while a write is stuck; kept afterwards so that the next write need not allocate.
    alarm: Option<Pin<Box<Sleep>>>,
    stuck: Option<Instant>,
}

impl<S> Paced<S> {
    /// Wraps a stream with a bound on stuck writes.
    pub fn new(stream: S, patience: Duration) -> Paced<S> {
        Paced { stream, patience, waited: Duration::ZERO, taken: 0, alarm: None, stuck: None }
    }

    fn judge<T>(
        &mut self,
        outcome: Poll<io::Result<T>>,
        taken: impl Fn(&T) -> usize,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        match outcome {
            Poll::Ready(Ok(done)) => {
                self.taken += taken(&done) as u64;
                if let Some(since) = self.stuck.take() {
                    self.waited += since.elapsed();
                    self.drips()?;
                }
                Poll::Ready(Ok(done))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => {
                let alarm = self.alarm.get_or_insert_with(|| Box::pin(sleep(self.patience)));
                if self.stuck.is_none() {
                    let now = Instant::now();
                    self.stuck = Some(now);
                    alarm.as_mut().reset(now + self.patience);
                }
                match alarm.as_mut().poll(context) {
                    Poll::Pending => Poll::Pending,
                    Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
                }
            }
        }
    }

    /// Fails if the peer takes too little while writes wait for it.
    fn drips(&mut self) -> io::Result<()> {
        if self.waited < self.patience {
            return Ok(());
        }
        let enough = RATE_MIN * self.waited.as_secs();
        let taken = std::mem::take(&mut self.taken);
        self.waited = Duration::ZERO;
        if taken < enough { Err(io::ErrorKind::TimedOut.into()) } else { Ok(()) }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Paced<S> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Paced<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let outcome = Pin::new(&mut this.stream).poll_write(context, bytes);
        this.judge(outcome, |taken| *taken, context)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let outcome = Pin::new(&mut this.stream).poll_write_vectored(context, pieces);
        this.judge(outcome, |taken| *taken, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let outcome = Pin::new(&mut this.stream).poll_flush(context);
        this.judge(outcome, |()| 0, context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let outcome = Pin::new(&mut this.stream).poll_shutdown(context);
        this.judge(outcome, |()| 0, context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// Takes `amount` bytes every nine seconds, `times` times.
    async fn read_slowly(mut stream: tokio::io::DuplexStream, amount: usize, times: usize) -> tokio::io::DuplexStream {
        let mut buffer = vec![0; amount];
        for _ in 0..times {
            tokio::time::sleep(Duration::from_secs(9)).await;
            stream.read_exact(&mut buffer).await.unwrap();
        }
        stream
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_stops_reading_is_given_up_and_a_slow_one_is_not() {
        let (slow, near) = tokio::io::duplex(1024);
        let mut paced = Paced::new(near, Duration::from_secs(10));
        let reader = tokio::spawn(read_slowly(slow, 50_000, 2));
        paced.write_all(&[7; 100_000]).await.unwrap();
        let kept = reader.await.unwrap();
        let error = paced.write_all(&[7; 64_000]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        drop(kept);
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_takes_a_little_now_and_then_is_given_up() {
        let (slow, near) = tokio::io::duplex(1024);
        let mut paced = Paced::new(near, Duration::from_secs(10));
        let reader = tokio::spawn(read_slowly(slow, 1000, 1000));
        let begun = Instant::now();
        let error = paced.write_all(&[7; 100_000]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
        reader.abort();
    }
}
