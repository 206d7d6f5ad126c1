//! A transaction that finds nothing before it is committed by its caller, and by the thread that
//! completes its write.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;

use stele_ground::{Bytes, MIB};
use stele_media::{Done, Geometry, Handle, MediaFault, Op, Port, Priority};

use super::fresh;
use super::port::{Fate, Scripted, is_forced};
use crate::embedded::{EmbeddedCatalog, Options};
use crate::{Catalog, CatalogError, Direction, KeyRange, Table, Transaction};

const RECORDS: Table = Table(1);

fn options() -> Options {
    Options { cache: Bytes(MIB), overlay: Bytes(MIB), ..Options::default() }
}

fn put(key: &'static str) -> Transaction {
    Transaction::new().put(RECORDS, key, "value")
}

fn keys(catalog: &EmbeddedCatalog) -> Vec<String> {
    let records = catalog.snapshot().unwrap().range(RECORDS, &KeyRange::all(), 100, Direction::Forward).unwrap();
    records.into_iter().map(|(key, _)| String::from_utf8(key.to_vec()).unwrap()).collect()
}

/// The threads that submit forced writes.
fn watch(port: &Scripted) -> Arc<Mutex<Vec<ThreadId>>> {
    let threads: Arc<Mutex<Vec<ThreadId>>> = Arc::default();
    let theirs = Arc::clone(&threads);
    port.set(move |op| {
        if is_forced(op) {
            theirs.lock().unwrap().push(std::thread::current().id());
        }
        Fate::Pass
    });
    threads
}

#[test]
fn the_caller_writes_what_finds_nothing_before_it() {
    let port = Scripted::new(fresh(64 * MIB));
    let catalog = EmbeddedCatalog::open(&port.handle(), options()).unwrap();
    let threads = watch(&port);
    catalog.commit(put("small")).wait().unwrap();
    catalog.commit(Transaction::new().put(RECORDS, "large", vec![1; 64 << 10])).wait().unwrap();
    let own = std::thread::current().id();
    let by_caller: Vec<bool> = threads.lock().unwrap().iter().map(|thread| *thread == own).collect();
    assert_eq!(by_caller, [true, false], "a large one is left to the catalog's thread");
    assert_eq!(keys(&catalog), ["large", "small"]);
}

#[test]
fn a_refused_precondition_writes_nothing() {
    let port = Scripted::new(fresh(64 * MIB));
    let catalog = EmbeddedCatalog::open(&port.handle(), options()).unwrap();
    catalog.commit(put("k")).wait().unwrap();
    let threads = watch(&port);
    let refused = catalog.commit(put("k").absent(RECORDS, "k")).wait();
    assert!(matches!(refused, Err(CatalogError::Failed(_))), "{refused:?}");
    assert!(threads.lock().unwrap().is_empty());
    catalog.commit(put("l")).wait().expect("the writer is back");
}

#[test]
fn what_comes_while_it_is_written_is_committed_behind_it() {
    let port = Scripted::new(fresh(64 * MIB));
    let catalog = EmbeddedCatalog::open(&port.handle(), options()).unwrap();
    let mut forced = 0;
    port.set(move |op| {
        forced += u32::from(is_forced(op));
        if is_forced(op) && forced == 1 { Fate::Hold } else { Fate::Pass }
    });
    let first = catalog.commit(put("a"));
    port.wait_held();
    let behind = catalog.commit(Transaction::new().present(RECORDS, "a").put(RECORDS, "b", "value"));
    assert!(keys(&catalog).is_empty(), "nothing is shown before it is durable");
    port.release();
    assert_eq!(first.wait().unwrap().commit + 1, behind.wait().unwrap().commit);
    assert_eq!(keys(&catalog), ["a", "b"]);
}

#[test]
fn the_end_waits_for_a_write_under_way() {
    let port = Scripted::new(fresh(64 * MIB));
    let catalog = EmbeddedCatalog::open(&port.handle(), options()).unwrap();
    port.set(|op| if is_forced(op) { Fate::Hold } else { Fate::Pass });
    let first = catalog.commit(put("a"));
    port.wait_held();
    port.set(|_| Fate::Pass);
    let behind = catalog.commit(put("b"));
    let ending = std::thread::spawn(move || drop(catalog));
    port.release();
    first.wait().unwrap();
    behind.wait().unwrap();
    ending.join().unwrap();
    let again = EmbeddedCatalog::open(&port.handle(), options()).unwrap();
    assert_eq!(keys(&again), ["a", "b"]);
}

#[test]
fn a_write_that_a_full_queue_refused_is_left_to_the_thread() {
    let port = Scripted::new(fresh(64 * MIB));
    let catalog = EmbeddedCatalog::open(&port.handle(), options()).unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let theirs = Arc::clone(&seen);
    port.set(move |op| {
        let mut seen = theirs.lock().unwrap();
        if is_forced(op) {
            seen.push(std::thread::current().id());
        }
        if is_forced(op) && seen.len() == 1 { Fate::Fail(MediaFault::Retry) } else { Fate::Pass }
    });
    catalog.commit(put("a")).wait().unwrap();
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), 2, "once refused, once written");
    assert_ne!(seen[0], seen[1]);
}

#[test]
fn a_failed_write_stops_the_catalog() {
    let port = Scripted::new(fresh(64 * MIB));
    let catalog = EmbeddedCatalog::open(&port.handle(), options()).unwrap();
    port.set(|op| if is_forced(op) { Fate::Fail(MediaFault::Refused) } else { Fate::Pass });
    let failed = catalog.commit(put("a")).wait();
    assert!(matches!(&failed, Err(CatalogError::Stopped(why)) if why.contains("batch 1 of the journal")), "{failed:?}");
    port.set(|_| Fate::Pass);
    assert!(matches!(catalog.commit(put("b")).wait(), Err(CatalogError::Stopped(_))));
    assert!(keys(&catalog).is_empty());
}

/// Drops each forced write without an answer.
struct Forgetful {
    below: Handle,
    forgot: Arc<AtomicUsize>,
}

impl Port for Forgetful {
    fn geometry(&self) -> Geometry {
        self.below.geometry()
    }

    fn submit(&self, op: Op, priority: Priority, done: Done) {
        match is_forced(&op) {
            true => drop(self.forgot.fetch_add(1, Ordering::Relaxed)),
            false => self.below.submit(op, priority, done),
        }
    }
}

#[test]
fn a_write_that_is_never_answered_stops_the_catalog_and_not_its_end() {
    let forgot = Arc::new(AtomicUsize::new(0));
    let port = Handle::new(Forgetful { below: fresh(64 * MIB), forgot: Arc::clone(&forgot) });
    let catalog = EmbeddedCatalog::open(&port, options()).unwrap();
    let failed = catalog.commit(put("a")).wait();
    assert!(matches!(failed, Err(CatalogError::Stopped(_))), "{failed:?}");
    assert_eq!(forgot.load(Ordering::Relaxed), 1);
    assert!(catalog.status().stopped);
    drop(catalog);
}

/// Callers commit side by side: each value of a counter is given once.
#[test]
fn many_callers_lose_nothing() {
    let catalog = Arc::new(EmbeddedCatalog::open(&fresh(64 * MIB), options()).unwrap());
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let catalog = Arc::clone(&catalog);
            std::thread::spawn(move || {
                (0..500).for_each(|_| drop(catalog.commit(Transaction::new().add(RECORDS, "n", 1)).wait().unwrap()));
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let value = catalog.snapshot().unwrap().get(RECORDS, b"n").unwrap().unwrap();
    assert_eq!(u64::from_be_bytes(value.as_ref().try_into().unwrap()), 2000);
    assert_eq!(catalog.status().commits, 2000);
}

/// A checkpoint fails while the overlay above it is large enough for the next one.
#[test]
fn the_thread_rests_where_no_checkpoint_can_be_made() {
    let port = Scripted::new(fresh(256 * MIB));
    let catalog = EmbeddedCatalog::open(&port.handle(), options()).unwrap();
    let put = |number: u32| Transaction::new().put(RECORDS, number.to_be_bytes().to_vec(), vec![1; 8 << 10]);
    port.set(|op| if matches!(op, Op::Write { fua: false, .. }) { Fate::Hold } else { Fate::Pass });
    (0..135).for_each(|number| drop(catalog.commit(put(number)).wait().unwrap()));
    port.wait_held();
    let behind: Vec<_> = (135..270).map(|number| catalog.commit(put(number))).collect();
    port.set(|op| if is_forced(op) { Fate::Pass } else { Fate::Fail(MediaFault::Refused) });
    port.release();
    behind.into_iter().for_each(|pending| drop(pending.wait()));
    let began = std::time::Instant::now();
    while !catalog.status().stopped && began.elapsed().as_secs() < 10 {
        std::thread::yield_now();
    }
    assert!(catalog.status().stopped);
    let before = catalog.takes();
    // Each is refused, and what comes back with the writer does not keep the thread busy.
    (0..50).for_each(|number| assert!(catalog.commit(put(number)).wait().is_err()));
    (0..10_000).for_each(|_| std::thread::yield_now());
    assert!(catalog.takes() - before <= 60, "{} times", catalog.takes() - before);
}

/// A waker that counts, and holds the one who wakes until it may go on.
struct Slow(Mutex<bool>, std::sync::Condvar);

impl std::task::Wake for Slow {
    fn wake(self: Arc<Self>) {
        let going = self.0.lock().unwrap();
        drop(self.1.wait_while(going, |going| !*going).unwrap());
    }
}

#[test]
fn a_dropped_catalog_holds_its_volume_no_longer() {
    struct Counted {
        below: Handle,
        _held: Arc<()>,
    }
    impl Port for Counted {
        fn geometry(&self) -> Geometry {
            self.below.geometry()
        }
        fn submit(&self, op: Op, priority: Priority, done: Done) {
            self.below.submit(op, priority, done);
        }
    }
    let held = Arc::new(());
    // The drive's thread, which tells the answer, is not to end with the last handle.
    let below = fresh(64 * MIB);
    let port = Handle::new(Counted { below: below.clone(), _held: Arc::clone(&held) });
    let catalog = EmbeddedCatalog::open(&port, options()).unwrap();
    drop(port);
    let slow = Arc::new(Slow(Mutex::new(false), std::sync::Condvar::new()));
    let waker = std::task::Waker::from(Arc::clone(&slow));
    let mut pending = catalog.commit(put("a"));
    let is_ready = std::pin::Pin::new(&mut pending).poll(&mut std::task::Context::from_waker(&waker)).is_ready();
    drop(catalog);
    let left = Arc::strong_count(&held);
    *slow.0.lock().unwrap() = true;
    slow.1.notify_all();
    assert_eq!(left, 1, "the answer is still being told: {}", !is_ready);
}
