//! An answer on its way: a future for async callers, a blocking wait for others.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use futures_channel::oneshot;

use crate::CatalogError;

type Answer<T> = Result<T, CatalogError>;

/// The answer to work that is already under way; dropping it does not cancel the work.
#[must_use = "an answer nobody looks at may be an error"]
pub struct Pending<T>(State<T>);

enum State<T> {
    Ready(Option<Answer<T>>),
    Waiting(oneshot::Receiver<Answer<T>>),
    /// The future of a catalog on another machine.
    Future(Pin<Box<dyn Future<Output = Answer<T>> + Send>>),
}

/// The sender of the answer.
pub struct Answerer<T>(oneshot::Sender<Answer<T>>);

impl<T> Answerer<T> {
    /// A dropped receiver is no error.
    pub fn answer(self, answer: Answer<T>) {
        drop(self.0.send(answer));
    }
}

impl<T> Pending<T> {
    pub fn ready(answer: Answer<T>) -> Pending<T> {
        Pending(State::Ready(Some(answer)))
    }

    pub fn future(future: impl Future<Output = Answer<T>> + Send + 'static) -> Pending<T> {
        Pending(State::Future(Box::pin(future)))
    }

    pub fn channel() -> (Answerer<T>, Pending<T>) {
        let (sender, receiver) = oneshot::channel();
        (Answerer(sender), Pending(State::Waiting(receiver)))
    }

    /// Blocks this thread until the answer arrives. Async callers must await instead.
    pub fn wait(mut self) -> Answer<T> {
        struct Unpark(Thread);
        impl Wake for Unpark {
            fn wake(self: Arc<Self>) {
                self.0.unpark();
            }
        }
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let mut context = Context::from_waker(&waker);
        loop {
            match Pin::new(&mut self).poll(&mut context) {
                Poll::Ready(answer) => return answer,
                Poll::Pending => std::thread::park(),
            }
        }
    }
}

// Nothing inside is pinned in place: a future inside is boxed.
impl<T> Unpin for Pending<T> {}

impl<T> Future for Pending<T> {
    type Output = Answer<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answer<T>> {
        match &mut self.0 {
            State::Ready(answer) => Poll::Ready(answer.take().unwrap_or_else(|| Err(lost()))),
            State::Waiting(receiver) => Pin::new(receiver).poll(context).map(|answer| match answer {
                Ok(answer) => answer,
                Err(oneshot::Canceled) => Err(lost()),
            }),
            State::Future(future) => future.as_mut().poll(context),
        }
    }
}

fn lost() -> CatalogError {
    CatalogError::Stopped("its thread ended before it answered".into())
}

#[cfg(test)]
mod tests;
