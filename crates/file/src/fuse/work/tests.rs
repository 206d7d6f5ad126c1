use std::sync::mpsc;

use futures_util::future::ready;
use tokio::sync::oneshot;

use super::*;

#[test]
fn an_answer_from_memory_changes_no_thread() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().expect("a runtime starts");
    let work = Work::new(runtime.handle().clone());
    let (send, receive) = mpsc::channel();
    work.start(async move {
        ready(()).await;
        send.send(std::thread::current().id()).expect("the test listens");
    });
    assert_eq!(receive.try_recv(), Ok(std::thread::current().id()));
}

#[test]
fn waiting_calls_have_a_bound() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().expect("a runtime starts");
    let work = Arc::new(Work::new(runtime.handle().clone()));
    let (done, finished) = mpsc::channel();
    let call = |done: mpsc::Sender<usize>, number| {
        let (answer, answered) = oneshot::channel::<()>();
        let call = async move {
            answered.await.expect("the test answers");
            done.send(number).expect("the test listens");
        };
        (answer, call)
    };
    let mut answers = Vec::new();
    for number in 0..UNDER_WAY_MAX {
        let (answer, call) = call(done.clone(), number);
        work.start(call);
        answers.push(answer);
    }
    let waiting = || *work.waiting.count.lock().expect("nothing panicked");
    assert_eq!(waiting(), UNDER_WAY_MAX);
    let (last_answer, last) = call(done.clone(), UNDER_WAY_MAX);
    let (started, starts) = mpsc::channel();
    let reader = std::thread::spawn({
        let work = work.clone();
        move || {
            work.start(last);
            started.send(()).expect("the test listens");
        }
    });
    // The first answer makes room, and the reader of requests goes on.
    assert!(starts.try_recv().is_err());
    answers.remove(0).send(()).expect("the call waits");
    assert_eq!(finished.recv(), Ok(0));
    starts.recv().expect("the reader goes on");
    last_answer.send(()).expect("the call waits");
    assert_eq!(finished.recv(), Ok(UNDER_WAY_MAX));
    for answer in answers {
        answer.send(()).expect("the call waits");
    }
    reader.join().expect("the reader ends");
    work.finish();
    assert_eq!(waiting(), 0);
    assert_eq!(finished.iter().take(UNDER_WAY_MAX - 1).count(), UNDER_WAY_MAX - 1);
}
