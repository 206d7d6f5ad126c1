use std::sync::mpsc;

use futures_util::future::{pending, ready};
use tokio::sync::oneshot;

use super::*;

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().expect("a runtime starts")
}

/// A call that waits until it is told to end, and then sends its number.
fn call(done: &mpsc::Sender<usize>, number: usize) -> (oneshot::Sender<()>, impl Future<Output = ()> + Send + 'static) {
    let (answer, answered) = oneshot::channel::<()>();
    let done = done.clone();
    let call = async move {
        answered.await.expect("the test answers");
        done.send(number).expect("the test listens");
    };
    (answer, call)
}

fn waiting(work: &Work) -> usize {
    work.waiting.sum.lock().expect("nothing panicked").calls
}

#[test]
fn an_answer_from_memory_changes_no_thread() {
    let runtime = runtime();
    let work = Work::new(runtime.handle().clone());
    let (send, receive) = mpsc::channel();
    for content in [false, true] {
        let send = send.clone();
        let call = async move {
            ready(()).await;
            send.send(std::thread::current().id()).expect("the test listens");
        };
        match content {
            true => work.start_on(1, 10, call),
            false => work.start(call),
        }
        assert_eq!(receive.try_recv(), Ok(std::thread::current().id()));
    }
}

#[test]
fn calls_that_wait_for_one_file_keep_no_other_call_back() {
    let runtime = runtime();
    let work = Work::new(runtime.handle().clone());
    // The file is being archived under its gate, and many read it: each start comes back.
    for _ in 0..10 * UNDER_WAY_MAX {
        work.start_on(1, 0, pending());
    }
    let (done, finished) = mpsc::channel();
    let (answer, other) = call(&done, 1);
    work.start(other);
    answer.send(()).expect("the call waits");
    assert_eq!(finished.recv(), Ok(1));
    // So do reads and writes of another file.
    let (answer, other) = call(&done, 2);
    work.start_on(2, 1 << 20, other);
    answer.send(()).expect("the call waits");
    assert_eq!(finished.recv(), Ok(2));
}

#[test]
fn only_so_many_reads_and_writes_of_a_file_go_on_at_once() {
    let runtime = runtime();
    let work = Work::new(runtime.handle().clone());
    let (done, finished) = mpsc::channel();
    let mut answers = Vec::new();
    for number in 0..2 * UNDER_WAY_OF_ONE {
        let (answer, call) = call(&done, number);
        work.start_on(1, 0, call);
        answers.push(answer);
    }
    assert_eq!(work.places.all.available_permits(), UNDER_WAY_MAX - UNDER_WAY_OF_ONE);
    // The later ones are told to end first, and have not begun.
    for answer in answers.drain(UNDER_WAY_OF_ONE..) {
        answer.send(()).expect("the call waits");
    }
    assert!(finished.try_recv().is_err());
    for answer in answers {
        answer.send(()).expect("the call waits");
    }
    let mut ended: Vec<usize> = finished.iter().take(2 * UNDER_WAY_OF_ONE).collect();
    ended.sort_unstable();
    assert_eq!(ended, (0..2 * UNDER_WAY_OF_ONE).collect::<Vec<usize>>());
    work.finish();
    assert_eq!((waiting(&work), work.places.all.available_permits()), (0, UNDER_WAY_MAX));
}

#[test]
fn the_bytes_of_writes_that_wait_have_a_bound() {
    let runtime = runtime();
    let work = Work::new(runtime.handle().clone());
    let (done, finished) = mpsc::channel();
    let mut answers = Vec::new();
    let writes = HELD_MAX >> 20;
    for number in 0..writes {
        let (answer, call) = call(&done, number);
        work.start_on(number as u64, 1 << 20, call);
        answers.push(answer);
    }
    let (last_answer, last) = call(&done, writes);
    let (started, starts) = mpsc::channel();
    let reader = std::thread::spawn({
        let work = work.clone();
        move || {
            work.start_on(0, 1 << 20, last);
            started.send(()).expect("the test listens");
        }
    });
    // The first answer makes room, and the reader of requests goes on.
    assert!(starts.try_recv().is_err());
    answers.remove(0).send(()).expect("the call waits");
    assert_eq!(finished.recv(), Ok(0));
    starts.recv().expect("the reader goes on");
    last_answer.send(()).expect("the call waits");
    for answer in answers {
        answer.send(()).expect("the call waits");
    }
    assert_eq!(finished.iter().take(writes).count(), writes);
    reader.join().expect("the reader ends");
    work.finish();
    assert_eq!(waiting(&work), 0);
}
