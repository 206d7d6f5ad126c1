//! A byte stream whose peer must keep reading: a write that stays stuck fails instead of waiting for ever.
//!
//! Reads need no such bound here; heads and bodies are timed where they are understood.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

/// Wraps a stream; `patience` is the longest a write may make no progress.
pub struct Paced<S> {
    stream: S,
    patience: Duration,
    // Armed while a write is stuck; kept afterwards so that the next one need not allocate.
    alarm: Option<Pin<Box<Sleep>>>,
    stuck: bool,
}

impl<S> Paced<S> {
    /// A stream as it is, with a bound on stuck writes.
    pub fn new(stream: S, patience: Duration) -> Paced<S> {
        Paced { stream, patience, alarm: None, stuck: false }
    }

    fn judge<T>(&mut self, outcome: Poll<io::Result<T>>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        if outcome.is_ready() {
            self.stuck = false;
            return outcome;
        }
        let deadline = Instant::now() + self.patience;
        let stuck = std::mem::replace(&mut self.stuck, true);
        let alarm = self.alarm.get_or_insert_with(|| Box::pin(sleep(self.patience)));
        if !stuck {
            alarm.as_mut().reset(deadline);
        }
        match alarm.as_mut().poll(context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
        }
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
        this.judge(outcome, context)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let outcome = Pin::new(&mut this.stream).poll_write_vectored(context, pieces);
        this.judge(outcome, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let outcome = Pin::new(&mut this.stream).poll_flush(context);
        this.judge(outcome, context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let outcome = Pin::new(&mut this.stream).poll_shutdown(context);
        this.judge(outcome, context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt;

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_stops_reading_is_given_up_and_a_slow_one_is_not() {
        let (mut slow, near) = tokio::io::duplex(16);
        let mut paced = Paced::new(near, Duration::from_secs(10));
        let reader = tokio::spawn(async move {
            let mut taken = 0;
            let mut buffer = [0; 8];
            while taken < 64 {
                tokio::time::sleep(Duration::from_secs(9)).await;
                taken += tokio::io::AsyncReadExt::read(&mut slow, &mut buffer).await.unwrap();
            }
            slow
        });
        paced.write_all(&[7; 64]).await.unwrap();
        let kept = reader.await.unwrap();
        let error = paced.write_all(&[7; 64]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        drop(kept);
    }
}
