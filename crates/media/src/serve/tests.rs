use stele_ground::{Instant, MIB};

use super::*;
use crate::conformance::{self, Subject};
use crate::{Buffer, Remote, Shared};

struct Far(Remote);

impl Subject for Far {
    fn drive(&mut self) -> &mut dyn Drive {
        &mut self.0
    }
}

#[test]
fn a_served_drive_conforms() {
    conformance::check("served memory", 1, &mut |_| {
        Box::new(Far(Remote::new(serve_memory(Bytes(4 * MIB)).expect("a thread"))))
    });
}

fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut context = std::task::Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            std::task::Poll::Ready(output) => return output,
            std::task::Poll::Pending => std::thread::park(),
        }
    }
}

#[test]
fn many_threads_and_tasks_share_one_drive() {
    let handle = serve_memory(Bytes(16 * MIB)).expect("a thread");
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let handle = handle.clone();
            scope.spawn(move || {
                for n in 0..300u64 {
                    let at = thread * MIB + n % 64 * 4096;
                    let data: Shared = Buffer::copy_of(&[(n % 251) as u8; 4096]).freeze();
                    if n % 2 == 0 {
                        handle.write_blocking(at, vec![data.clone()], n % 10 == 0).expect("written");
                        assert_eq!(handle.read_blocking(at, 4096).expect("read")[..], data[..]);
                    } else {
                        block_on(handle.write(at, vec![data.clone()], false)).expect("written");
                        assert_eq!(block_on(handle.read(at, 4096)).expect("read")[..], data[..]);
                    }
                }
                handle.flush_blocking().expect("flushed");
            });
        }
    });
}

/// Keeps every request until the test asks for answers, or panics when it is reaped.
struct Stuck {
    held: Vec<Request>,
    dies: bool,
}

impl Drive for Stuck {
    fn geometry(&self) -> Geometry {
        Geometry { size: Bytes(MIB), block: Bytes(4096) }
    }
    fn submit(&mut self, request: Request) {
        self.held.push(request);
    }
    fn reap(&mut self, _now: Instant, finished: &mut Vec<Completion>) {
        assert!(!self.dies || self.held.is_empty(), "a drive that breaks");
        if self.held.len() >= IN_FLIGHT_MAX {
            finished.extend(self.held.drain(..).map(|request| Completion {
                tag: request.tag,
                op: request.op,
                result: Ok(()),
            }));
        }
    }
}

#[test]
fn at_the_limit_submit_answers_retry_and_nothing_accepted_is_lost() {
    let handle = serve(Stuck { held: Vec::new(), dies: false }).expect("a thread");
    let (sender, receiver) = std::sync::mpsc::channel();
    let submit = || {
        let sender = sender.clone();
        let done = Box::new(move |_, result: Result<(), MediaError>| {
            sender.send(result.map_err(|error| error.fault)).unwrap()
        });
        handle.submit(Op::Flush, Priority::Host, done);
    };
    // The drive answers in rounds of IN_FLIGHT_MAX, so the total must be a multiple of that.
    let total = 64 * IN_FLIGHT_MAX;
    (0..total).for_each(|_| submit());
    let mut finished = 0;
    let mut refused = 0;
    while finished + refused < total {
        match receiver.recv().expect("an answer") {
            Ok(()) => finished += 1,
            Err(MediaFault::Retry) => {
                refused += 1;
                // Submit again, so that the drive's last round fills.
                submit();
                refused -= 1;
            }
            Err(other) => panic!("{other:?}"),
        }
    }
    assert_eq!(finished, total);
}

#[test]
fn when_the_thread_dies_every_caller_is_told() {
    let handle = serve(Stuck { held: Vec::new(), dies: true }).expect("a thread");
    assert_eq!(handle.flush_blocking().expect_err("nobody is there").fault, MediaFault::Gone);
    assert_eq!(handle.read_blocking(0, 4096).expect_err("nobody is there").fault, MediaFault::Gone);
    assert_eq!(block_on(handle.flush()).expect_err("nobody is there").fault, MediaFault::Gone);
}

#[test]
fn the_last_handle_may_be_dropped_by_a_completion() {
    let handle = serve_memory(Bytes(MIB)).expect("a thread");
    let (sender, receiver) = std::sync::mpsc::channel();
    let (gate, opened) = std::sync::mpsc::channel::<()>();
    let held = handle.clone();
    handle.submit(
        Op::Flush,
        Priority::Host,
        Box::new(move |_, _| {
            opened.recv().expect("the other handle is dropped first");
            drop(held);
            sender.send(()).expect("the test waits");
        }),
    );
    drop(handle);
    gate.send(()).expect("the completion waits");
    receiver.recv().expect("the thread did not hang");
}
