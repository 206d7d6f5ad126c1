mod mounted;

use std::time::Duration;

use super::*;
use crate::MemoryFiles;
use crate::nfs::export::AwaitedExport;
use crate::nfs::server::Options;
use crate::nfs::testing::gate::Gate;
use crate::nfs::testing::{self, *};

/// `nlm4_lock` behind the cookie and the flags that the procedure has.
fn lock(flags: &[bool], file: &[u8], process: u32, offset: u64, length: u64) -> Arguments {
    let call = flags.iter().fold(args().opaque(b"ck"), |call, flag| call.u32(u32::from(*flag)));
    call.opaque(b"host").opaque(file).opaque(b"owner").u32(process).u64(offset).u64(length)
}

async fn ask(client: &mut Client, procedure: u32, call: Arguments) -> (u32, Reader) {
    let mut results = client.call(Program::Lock, procedure, &call.0).await;
    assert_eq!(results.opaque(9).unwrap(), "ck");
    (results.u32().unwrap(), results)
}

/// LOCK of an exclusive lock: block, reclaim.
async fn take(client: &mut Client, file: &[u8], process: u32, offset: u64, block: bool, reclaim: bool) -> u32 {
    let call = lock(&[block, true], file, process, offset, 10).u32(u32::from(reclaim)).u32(1);
    let (status, results) = ask(client, LOCK, call).await;
    ends(&results);
    status
}

async fn begin() -> (Arc<Server<MemoryFiles>>, Client, Bytes) {
    let server = server();
    let mut client = Client::new(&server);
    let root = client.mount().await;
    let file = client.create(&root, "a").await;
    (server, client, file)
}

#[tokio::test(start_paused = true)]
async fn locks_are_taken_tested_and_released() {
    let (server, mut client, file) = begin().await;
    assert_eq!(take(&mut client, &file, 1, 0, false, false).await, GRANTED);
    assert_eq!(take(&mut client, &file, 1, 5, false, false).await, GRANTED);
    assert_eq!(take(&mut client, &file, 2, 9, false, false).await, DENIED);
    assert_eq!(take(&mut client, &file, 2, 9, true, false).await, BLOCKED);
    let (status, mut results) = ask(&mut client, TEST, lock(&[false], &file, 2, 14, 0)).await;
    assert_eq!(status, DENIED);
    assert_eq!((results.bool(), results.u32()), (Ok(true), Ok(1)));
    assert_eq!(results.opaque(99).unwrap(), "owner");
    assert_eq!((results.u64(), results.u64()), (Ok(0), Ok(15)));
    ends(&results);
    let (status, results) = ask(&mut client, TEST, lock(&[false], &file, 2, 15, 0)).await;
    assert_eq!(status, GRANTED);
    ends(&results);
    assert_eq!(ask(&mut client, UNLOCK, lock(&[], &file, 1, 0, 0)).await.0, GRANTED);
    assert_eq!(take(&mut client, &file, 2, 9, false, false).await, GRANTED);
    assert_eq!(ask(&mut client, CANCEL, lock(&[true, true], &file, 1, 0, 0)).await.0, GRANTED);
    assert_eq!(server.locks.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn locks_that_cannot_be_say_why() {
    let (server, mut client, file) = begin().await;
    let call = lock(&[false, true], &file, 1, 9, u64::MAX).u32(0).u32(1);
    assert_eq!(ask(&mut client, LOCK, call).await.0, TOO_BIG);
    let root = client.mount().await;
    crate::Files::remove(
        &*server.exports().get(testing::SHARE).unwrap().files,
        &Caller::ROOT,
        crate::Inode(server.handles.decode(&root).unwrap().inode.0),
        b"a",
        crate::Removal::File,
    )
    .await
    .unwrap();
    assert_eq!(take(&mut client, &file, 1, 0, false, false).await, STALE_HANDLE);
    assert_eq!(take(&mut client, b"no handle", 1, 0, false, false).await, STALE_HANDLE);
    let mut other = Client::from(&server, "192.168.1.1:9".parse().unwrap(), false);
    assert_eq!(take(&mut other, &root, 1, 0, false, false).await, FAILED);
}

#[tokio::test(start_paused = true)]
async fn only_earlier_locks_are_taken_in_the_grace_period() {
    let options = Options { grace: Duration::from_secs(10), ..Options::default() };
    let server = server_with(MemoryFiles::new(clock), rule(), options);
    let mut client = Client::new(&server);
    let root = client.mount().await;
    let file = client.create(&root, "a").await;
    assert_eq!(take(&mut client, &file, 1, 0, false, false).await, DENIED_GRACE);
    assert_eq!(take(&mut client, &file, 1, 0, false, true).await, GRANTED);
    tokio::time::advance(Duration::from_secs(10)).await;
    assert_eq!(take(&mut client, &file, 1, 50, false, true).await, DENIED_GRACE);
    assert_eq!(take(&mut client, &file, 1, 50, false, false).await, GRANTED);
    server.begin_grace_of(testing::SHARE);
    assert_eq!(take(&mut client, &file, 1, 80, false, false).await, DENIED_GRACE);
    assert_eq!(take(&mut client, &file, 1, 80, false, true).await, GRANTED);
}

/// Kernels ask again after this status. A stale handle ends a lock.
#[tokio::test(start_paused = true)]
async fn locks_of_a_share_that_is_to_open_are_asked_for_again() {
    let (server, mut client, file) = begin().await;
    server.remove(testing::SHARE);
    assert_eq!(take(&mut client, &file, 1, 0, false, false).await, STALE_HANDLE);
    let awaited = AwaitedExport { path: PATH.to_owned(), rules: vec![rule()] };
    server.expect([(testing::SHARE, awaited)].into());
    assert_eq!(take(&mut client, &file, 1, 0, false, false).await, DENIED_GRACE);
    assert_eq!(ask(&mut client, TEST, lock(&[true], &file, 1, 0, 0)).await.0, DENIED_GRACE);
    assert_eq!(ask(&mut client, UNLOCK, lock(&[], &file, 1, 0, 0)).await.0, DENIED_GRACE);
}

#[tokio::test(start_paused = true)]
async fn a_client_frees_its_own_locks_alone() {
    let (server, mut client, file) = begin().await;
    let mut other = Client::from(&server, "10.4.4.4:9".parse().unwrap(), false);
    assert_eq!(take(&mut client, &file, 1, 0, false, false).await, GRANTED);
    let free = args().opaque(b"host").u32(3);
    other.call(Program::Lock, FREE_ALL, &free.0).await;
    assert_eq!(server.locks.count(), 1);
    client.call(Program::Lock, FREE_ALL, &free.0).await;
    assert_eq!(server.locks.count(), 0);
}

#[tokio::test(start_paused = true)]
async fn files_are_reserved_as_a_whole() {
    let (server, mut client, file) = begin().await;
    let share = |owner: &[u8], deny: u32, access: u32| {
        args().opaque(b"ck").opaque(b"host").opaque(&file).opaque(owner).u32(deny).u32(access)
    };
    for (owner, deny, access, expected) in [(b"1", 2, 1, GRANTED), (b"2", 0, 2, DENIED), (b"2", 0, 1, GRANTED)] {
        let (status, mut results) = ask(&mut client, super::SHARE, share(owner, deny, access).u32(0)).await;
        assert_eq!((status, results.u32()), (expected, Ok(0)));
        ends(&results);
    }
    assert_eq!(ask(&mut client, UNSHARE, share(b"1", 0, 0)).await.0, GRANTED);
    assert_eq!(server.locks.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_stranger_may_not_lock_a_private_file() {
    let (server, mut client, file) = begin().await;
    let files = server.exports().get(testing::SHARE).unwrap().files.clone();
    let changes = crate::Changes { mode: Some(0o600), uid: Some(7), ..Default::default() };
    let inode = server.handles.decode(&file).unwrap().inode;
    files.set_attributes(&Caller::ROOT, inode, changes, None).await.unwrap();
    for (uid, expected) in [(8, FAILED), (7, GRANTED)] {
        client.uid = uid;
        assert_eq!(take(&mut client, &file, uid, 0, false, false).await, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_read_only_export_takes_shared_locks() {
    let rule = crate::nfs::Rule { read_only: true, ..rule() };
    let options = Options { grace: Duration::ZERO, ..Options::default() };
    let server = server_with(MemoryFiles::new(clock), rule, options);
    let mut client = Client::new(&server);
    let root = client.mount().await;
    for (exclusive, expected) in [(true, READ_ONLY), (false, GRANTED)] {
        let call = lock(&[false, exclusive], &root, 1, 0, 10).u32(0).u32(1);
        assert_eq!(ask(&mut client, LOCK, call).await.0, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_host_that_starts_again_loses_its_locks() {
    let (server, mut client, file) = begin().await;
    assert_eq!(take(&mut client, &file, 1, 0, false, false).await, GRANTED);
    let hosts = server.reboots().hosts();
    assert_eq!(hosts.len(), 1);
    assert_eq!((hosts[0].address.to_string(), &hosts[0].name[..]), ("10.1.2.3".to_owned(), &b"host"[..]));
    let mut other = Client::from(&server, "10.4.4.4:9".parse().unwrap(), false);
    for (stranger, name, left) in [(true, "host", 1), (false, "hosting", 1), (false, "host.example.org", 0)] {
        let client = if stranger { &mut other } else { &mut client };
        client.call(Program::Status, 6, &args().opaque(name.as_bytes()).u32(5).0).await;
        assert_eq!(server.locks.count(), left, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_under_way_does_not_outlive_its_cancellation() {
    let options = Options { grace: Duration::ZERO, ..Options::default() };
    let server = server_with(Gate::new(MemoryFiles::new(clock)), rule(), options);
    let mut client = Client::new(&server);
    let root = client.mount().await;
    let file = client.create(&root, "a").await;
    let gate = server.exports().get(testing::SHARE).unwrap().files.clone();
    gate.access_waits.store(true, std::sync::atomic::Ordering::Relaxed);
    let free = args().opaque(b"host").u32(3);
    for (name, procedure, call, expected) in [
        ("an unlock", UNLOCK, lock(&[], &file, 1, 5, 1), DENIED),
        ("a cancellation", CANCEL, lock(&[true, true], &file, 1, 0, 10), DENIED),
        ("the end of all locks", FREE_ALL, free, DENIED),
        ("an unlock of other bytes", UNLOCK, lock(&[], &file, 1, 50, 0), GRANTED),
        ("an unlock of another process", UNLOCK, lock(&[], &file, 2, 0, 0), GRANTED),
    ] {
        let take = lock(&[true, true], &file, 1, 0, 10).u32(0).u32(1);
        let waiting = client.send(Program::Lock, LOCK, &take.0).await;
        client.call(Program::Lock, procedure, &call.0).await;
        gate.passes.add_permits(1);
        let mut results = crate::nfs::rpc::results(client.receive().await, waiting).unwrap();
        results.opaque(9).unwrap();
        assert_eq!(results.u32(), Ok(expected), "{name}");
        assert_eq!(server.locks.count(), usize::from(expected == GRANTED), "{name}");
    }
    assert_eq!(server.pending.count(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_lock_under_way_does_not_outlive_its_share() {
    let options = Options { grace: Duration::ZERO, ..Options::default() };
    let server = server_with(Gate::new(MemoryFiles::new(clock)), rule(), options);
    let mut client = Client::new(&server);
    let root = client.mount().await;
    let file = client.create(&root, "a").await;
    let gate = server.exports().get(testing::SHARE).unwrap().files.clone();
    gate.access_waits.store(true, std::sync::atomic::Ordering::Relaxed);
    let take = lock(&[true, true], &file, 1, 0, 10).u32(0).u32(1);
    let waiting = client.send(Program::Lock, LOCK, &take.0).await;
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(server.remove(testing::SHARE));
    gate.passes.add_permits(1);
    let mut results = crate::nfs::rpc::results(client.receive().await, waiting).unwrap();
    results.opaque(9).unwrap();
    assert_eq!(results.u32(), Ok(STALE_HANDLE));
    assert_eq!(server.locks.count(), 0);
}
