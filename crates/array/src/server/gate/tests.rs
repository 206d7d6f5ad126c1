use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use super::*;

/// No write is inside while the gate is closed, and each one gets in at last.
#[test]
fn nothing_is_inside_a_closed_gate() {
    const WRITERS: usize = 4;
    const WRITES: usize = 2_000;
    let gate = Arc::new(Gate::default());
    let inside = Arc::new(AtomicUsize::new(0));
    let done = Arc::new(AtomicUsize::new(0));

    fn write(gate: &Arc<Gate>, inside: &Arc<AtomicUsize>, done: &Arc<AtomicUsize>) {
        let (again, within, end) = (Arc::clone(gate), Arc::clone(inside), Arc::clone(done));
        if gate.enter(|| Box::new(move || write(&again, &within, &end))) {
            inside.fetch_add(1, Ordering::SeqCst);
            std::hint::spin_loop();
            inside.fetch_sub(1, Ordering::SeqCst);
            done.fetch_add(1, Ordering::SeqCst);
            gate.leave();
        }
    }

    std::thread::scope(|scope| {
        for _ in 0..WRITERS {
            scope.spawn(|| (0..WRITES).for_each(|_| write(&gate, &inside, &done)));
        }
        for _ in 0..500 {
            let closed = gate.close();
            assert_eq!(inside.load(Ordering::SeqCst), 0);
            std::thread::yield_now();
            assert_eq!(inside.load(Ordering::SeqCst), 0);
            drop(closed);
        }
    });
    assert_eq!(done.load(Ordering::SeqCst), WRITERS * WRITES);
}

/// What waits goes on when the gate opens, once.
#[test]
fn a_held_write_goes_on_when_the_gate_opens() {
    let gate = Gate::default();
    let (sender, receiver) = std::sync::mpsc::channel();
    let closed = gate.close();
    let tell = sender.clone();
    assert!(!gate.enter(|| Box::new(move || tell.send(()).expect("awaited"))));
    assert!(receiver.try_recv().is_err());
    drop(closed);
    receiver.try_recv().expect("it was let go on");
    assert!(gate.enter(|| unreachable!("the gate is open")));
    gate.leave();
    drop(gate.close());
}
