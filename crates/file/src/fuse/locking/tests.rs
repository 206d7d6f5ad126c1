//! Waiting for a lock that another client holds.

use super::*;

const FILE: Inode = Inode(20);

fn this_thread() -> Option<u32> {
    Some(rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs())
}

fn wanted(kind: i32) -> Wanted {
    Wanted { inode: FILE, owner: 5, first: 0, last: OFFSET_MAX, kind }
}

/// The locks of a mount, and an owner of another protocol who holds the file.
fn scene() -> (Locking, LockOwner) {
    let table = LockTable { locks: Arc::new(Locks::default()), share: 3 };
    let client = LockClient { protocol: LockProtocol::Nlm, name: Bytes::from_static(b"10.0.0.1/a") };
    let holder = LockOwner { client, handle: Bytes::from_static(b"7") };
    let locking = Locking::new(table);
    let taken = locking.table.locks.lock(locking.file(FILE), &holder, LockRange::ALL, true);
    taken.expect("the file is free");
    (locking, holder)
}

/// EINTR after 30 seconds became an error that no program knows: the kernel hands on its own number
/// for it (512) where no signal is there.
#[tokio::test(start_paused = true)]
async fn a_lock_is_waited_for_however_long_it_takes() {
    let (locking, holder) = scene();
    assert_eq!(locking.set(1, wanted(libc::F_WRLCK), None).await, Err(Errno::EAGAIN));
    let (began, long) = (Instant::now(), 20 * PATIENCE);
    let release = async {
        tokio::time::sleep(long).await;
        locking.table.locks.release(&holder.client);
    };
    let (locked, ()) = tokio::join!(locking.set(1, wanted(libc::F_WRLCK), this_thread()), release);
    assert_eq!(locked, Ok(()));
    assert!(began.elapsed() >= long, "the lock was held until then");
    assert_eq!(locking.table.locks.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_thread_whose_signals_are_not_seen_waits_for_a_while() {
    let (locking, _) = scene();
    let began = Instant::now();
    assert_eq!(locking.set(1, wanted(libc::F_RDLCK), Some(0)).await, Err(Errno::EAGAIN));
    assert!(began.elapsed() >= PATIENCE && began.elapsed() < 2 * PATIENCE, "after {:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_with_the_mount_and_leaves_no_lock() {
    let (locking, holder) = scene();
    let leave = async {
        tokio::time::sleep(PATIENCE).await;
        locking.release_all();
        locking.table.locks.release(&holder.client);
    };
    let (locked, ()) = tokio::join!(locking.set(1, wanted(libc::F_WRLCK), this_thread()), leave);
    assert_eq!(locked, Err(Errno::EIO));
    assert_eq!(locking.table.locks.count(), 0);
}

#[tokio::test(start_paused = true)]
async fn only_so_many_calls_wait_and_others_lock_what_is_free() {
    let (locking, holder) = scene();
    let waiting = locking.waiting.acquire_many(WAITING_MAX as u32).await.expect("nothing waits yet");
    assert_eq!(locking.set(1, wanted(libc::F_WRLCK), this_thread()).await, Err(Errno::ENOLCK));
    locking.table.locks.release(&holder.client);
    assert_eq!(locking.set(1, wanted(libc::F_WRLCK), this_thread()).await, Ok(()));
    drop(waiting);
}
