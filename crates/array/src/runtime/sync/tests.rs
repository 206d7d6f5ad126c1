use super::*;
use crate::runtime::io::Io;
use crate::runtime::task::Tasks;
use stele_ground::{Dice, Instant};

#[test]
fn a_large_request_is_not_overtaken() {
    let tasks = Tasks::new();
    let semaphore = Rc::new(Semaphore::new(4));
    let order = Rc::new(RefCell::new(Vec::new()));
    let first = semaphore.try_acquire(3).expect("free");
    for amount in [4, 1, 2] {
        let (semaphore, order) = (Rc::clone(&semaphore), Rc::clone(&order));
        tasks.spawn(async move {
            let permit = semaphore.acquire(amount).await;
            order.borrow_mut().push(permit.amount());
        });
    }
    tasks.run_ready();
    assert!(order.borrow().is_empty(), "one is free, but the first in line wants four");
    drop(first);
    tasks.run_ready();
    assert_eq!(*order.borrow(), [4, 1, 2]);
    assert_eq!(semaphore.free(), 4);
}

#[test]
fn a_dropped_waiter_lets_the_next_in() {
    let tasks = Tasks::new();
    let semaphore = Semaphore::new(2);
    let held = semaphore.try_acquire(1).expect("free");
    let mut large = Box::pin(semaphore.acquire(2));
    assert!(large.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    let got = Rc::new(Cell::new(false));
    let (note, small) = (Rc::clone(&got), semaphore.acquire(1));
    tasks.spawn(async move {
        small.await;
        note.set(true);
    });
    tasks.run_ready();
    assert!(!got.get());
    drop(large);
    tasks.run_ready();
    assert!(got.get());
    drop(held);
    assert_eq!(semaphore.free(), 2);
}

#[test]
fn stripes_have_many_readers_or_one_writer_and_leave_nothing_behind() {
    for seed in 0..50 {
        let tasks = Tasks::new();
        let io = Io::new(&tasks, Instant(0));
        let locks = StripeLocks::default();
        let mut dice = Dice::new(seed);
        let inside: Rc<RefCell<BTreeMap<u64, (u32, u32)>>> = Rc::default();
        for _ in 0..60 {
            let (stripe, alone, steps) = (dice.below(4), dice.one_in(3), dice.below(5));
            let (locks, inside, own) = (locks.clone(), Rc::clone(&inside), io.clone());
            tasks.spawn(async move {
                let _guard = match alone {
                    true => locks.exclusive(VolumeId(1), stripe).await,
                    false => locks.shared(VolumeId(1), stripe).await,
                };
                let enter = |by: i32| {
                    let mut inside = inside.borrow_mut();
                    let (readers, writers) = inside.entry(stripe).or_default();
                    let count = if alone { &mut *writers } else { &mut *readers };
                    *count = count.wrapping_add_signed(by);
                    assert!(*writers == 0 || *writers == 1 && *readers == 0, "seed {seed}: {readers} and {writers}");
                };
                enter(1);
                for _ in 0..steps {
                    own.yield_now().await;
                }
                enter(-1);
            });
        }
        tasks.run_ready();
        assert!(tasks.is_idle());
        assert_eq!(locks.held(), 0);
    }
}

#[test]
fn a_change_before_the_first_poll_is_not_missed() {
    let tasks = Tasks::new();
    let notify = Rc::new(Notify::default());
    let own = Rc::clone(&notify);
    tasks.spawn(async move {
        let changed = own.changed();
        own.wake_all();
        changed.await;
    });
    tasks.run_ready();
    assert!(tasks.is_idle());
}

#[test]
fn results_keep_the_order_of_the_futures() {
    let tasks = Tasks::new();
    let io = Io::new(&tasks, Instant(0));
    let seen = Rc::new(RefCell::new(Vec::new()));
    let note = Rc::clone(&seen);
    tasks.spawn(async move {
        let futures = (0..5).map(|number| {
            let io = io.clone();
            async move {
                for _ in number..5 {
                    io.yield_now().await;
                }
                number
            }
        });
        *note.borrow_mut() = join_all(futures).await;
    });
    tasks.run_ready();
    assert_eq!(*seen.borrow(), [0, 1, 2, 3, 4]);
}
