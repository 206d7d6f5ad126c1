use super::*;

fn yield_once() -> impl Future<Output = ()> {
    let mut yielded = false;
    std::future::poll_fn(move |cx| {
        if yielded {
            Poll::Ready(())
        } else {
            yielded = true;
            cx.waker().wake_by_ref();
            Poll::Pending
        }
    })
}

#[test]
fn tasks_run_in_the_order_they_became_ready() {
    let tasks = Tasks::new();
    let seen = Rc::new(RefCell::new(Vec::new()));
    for name in 0..3 {
        let (seen, spawner) = (Rc::clone(&seen), tasks.spawner());
        tasks.spawn(async move {
            seen.borrow_mut().push(name);
            let inner = Rc::clone(&seen);
            spawner.spawn(async move { inner.borrow_mut().push(100 + name) });
            yield_once().await;
            seen.borrow_mut().push(10 + name);
        });
    }
    tasks.run_ready();
    assert_eq!(*seen.borrow(), [0, 1, 2, 100, 10, 101, 11, 102, 12]);
    assert!(tasks.is_idle());
}

#[test]
fn a_late_waker_does_not_touch_the_next_tenant_of_a_slot() {
    let tasks = Tasks::new();
    let kept: Rc<RefCell<Option<Waker>>> = Rc::default();
    let keep = Rc::clone(&kept);
    tasks.spawn(std::future::poll_fn(move |cx| {
        *keep.borrow_mut() = Some(cx.waker().clone());
        Poll::Ready(())
    }));
    tasks.run_ready();
    let polls = Rc::new(Cell::new(0));
    let counted = Rc::clone(&polls);
    tasks.spawn(std::future::poll_fn(move |_| {
        counted.set(counted.get() + 1);
        Poll::Pending
    }));
    tasks.run_ready();
    if let Some(waker) = kept.borrow_mut().take() {
        waker.wake();
    }
    tasks.run_ready();
    assert_eq!(polls.get(), 1);
    assert_eq!(tasks.count(), 1);
}

#[test]
fn dropping_the_tasks_drops_every_future() {
    let alive = Rc::new(());
    let tasks = Tasks::new();
    let spawner = tasks.spawner();
    let (held, own) = (Rc::clone(&alive), spawner.clone());
    tasks.spawn(async move {
        let _held = (held, own);
        std::future::pending::<()>().await;
    });
    tasks.run_ready();
    assert_eq!(Rc::strong_count(&alive), 2);
    drop(tasks);
    assert_eq!(Rc::strong_count(&alive), 1);
    let late = Rc::clone(&alive);
    spawner.spawn(async move { drop(late) });
    assert_eq!(Rc::strong_count(&alive), 1);
}
