use std::sync::atomic::AtomicUsize;

use super::*;

/// Counts how often it was woken.
#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Count>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A task, and the waker that its connection is polled with.
fn connection() -> (Arc<Count>, Waker) {
    let count: Arc<Count> = Arc::default();
    let task = Waker::from(Arc::clone(&count));
    let waker = TurnWaker::default().poll(&Context::from_waker(&task), |context| context.waker().clone());
    (count, waker)
}

fn woken(count: &Count) -> usize {
    count.0.load(Ordering::Relaxed)
}

/// As a pool's thread begins it.
fn turn_end() -> TurnEnd {
    let mut session = TurnEnd::new().unwrap();
    session.start(stele_media::Waker::idle());
    session
}

#[test]
fn answers_of_one_turn_wake_a_connection_once() {
    let mut session = turn_end();
    let ((one, waker), (other, other_waker)) = (connection(), connection());
    for _ in 0..3 {
        waker.wake_by_ref();
        other_waker.wake_by_ref();
    }
    assert_eq!((woken(&one), woken(&other)), (0, 0), "the turn goes on");
    assert_eq!(session.turn(Instant(0)), Interest::default());
    assert_eq!((woken(&one), woken(&other)), (1, 1));
    session.turn(Instant(0));
    assert_eq!((woken(&one), woken(&other)), (1, 1), "no answer came since");
    waker.wake();
    session.turn(Instant(0));
    assert_eq!((woken(&one), woken(&other)), (2, 1));
}

#[test]
fn other_threads_wake_a_connection_at_once() {
    let session = turn_end();
    let (count, waker) = connection();
    // It waits already: a wake-up of another thread is not left to the pool.
    waker.wake_by_ref();
    std::thread::spawn(move || waker.wake()).join().unwrap();
    assert_eq!(woken(&count), 1);
    drop(session);
    assert_eq!(woken(&count), 2);
}

#[test]
fn a_pool_that_stops_wakes_the_connections_that_wait() {
    let session = turn_end();
    let (count, waker) = connection();
    waker.wake_by_ref();
    drop(session);
    assert_eq!(woken(&count), 1);
    waker.wake_by_ref();
    assert_eq!(woken(&count), 2, "nothing waits on a thread without a session");
}

#[test]
fn a_second_session_of_a_thread_ends_at_once() {
    let mut first = turn_end();
    let mut second = turn_end();
    assert!(second.turn(Instant(0)).end);
    drop(second);
    let (count, waker) = connection();
    waker.wake_by_ref();
    assert_eq!(woken(&count), 0, "the first one is still there");
    first.turn(Instant(0));
    assert_eq!(woken(&count), 1);
}

#[test]
fn a_connection_keeps_its_waker_while_its_task_is_the_same() {
    let tasks = [(); 2].map(|()| Waker::from(Arc::<Count>::default()));
    let mut waker = TurnWaker::default();
    let mut poll = |task: &Waker| waker.poll(&Context::from_waker(task), |context| context.waker().clone());
    let (first, again, other) = (poll(&tasks[0]), poll(&tasks[0]), poll(&tasks[1]));
    assert!(first.will_wake(&again) && !first.will_wake(&other));
}
