//! Leases, the grace period after a start, and a real share.

use std::sync::Arc;
use std::time::Duration;

use crate::MemoryFiles;
use crate::nfs::testing::{SHARE, args, clock, rule, server_with};
use crate::nfs::v4::number::*;
use crate::nfs::v4::testing::*;
use crate::nfs::v4::{LEASE, status};
use crate::nfs::{Options, Server};

const GRACE: Duration = Duration::from_secs(45);

fn after_a_start() -> Arc<Server<MemoryFiles>> {
    server_with(MemoryFiles::new(clock), rule(), Options { grace: GRACE, instance: 8, ..Options::default() })
}

/// A claim of an open that the client had before.
fn claim(file: &[u8], access: u32, deny: u32) -> OperationCall {
    call().at(file).op(OPEN, args().open(access, deny, "owner").u32(0).u32(1).u32(0))
}

fn complete() -> OperationCall {
    call().op(RECLAIM_COMPLETE, args().u32(0))
}

/// A file that is there already: clients make none during grace.
async fn file_of(server: &Arc<Server<MemoryFiles>>, session: &mut ClientSession, name: &str) -> bytes::Bytes {
    let mut older = crate::nfs::testing::Client::new(server);
    let root = session.root().await;
    older.create(&root, name).await
}

#[tokio::test(start_paused = true)]
async fn grace_is_for_claims_alone() {
    let server = after_a_start();
    let mut session = ClientSession::before_reclaim(&server, "client").await;
    let file = file_of(&server, &mut session, "a").await;
    let root = session.root().await;
    assert_eq!(session.try_open(&root, "a", "owner", READ_ACCESS, 0).await.unwrap_err(), status::GRACE);
    let mut answer = session.run(claim(&file, BOTH_ACCESS, WRITE_ACCESS)).await;
    answer.done(PUTFH);
    let open = answer.stateid(OPEN);
    let lock = |reclaim: u32| {
        let head = args().u32(2).u32(reclaim).u64(0).u64(10).u32(1).u32(0).stateid(open).u32(0).u64(0);
        call().at(&file).op(LOCK, head.opaque(b"l"))
    };
    assert_eq!(session.status(lock(0)).await, status::GRACE);
    assert_eq!(session.status(lock(1)).await, status::OK);
    assert_eq!(session.lock_test(&file, "l", true, (0, 1)).await, Err((status::GRACE, None)));
    assert_eq!(session.write(&file, open, 0, b"x").await, status::OK);
    // Another client claims what cannot be.
    let mut other = ClientSession::before_reclaim(&server, "other").await;
    assert_eq!(other.status(claim(&file, WRITE_ACCESS, 0)).await, status::RECLAIM_CONFLICT);
    let mut answer = other.run(claim(&file, READ_ACCESS, 0)).await;
    answer.done(PUTFH);
    let others = answer.stateid(OPEN);
    let lock = args().u32(1).u32(1).u64(5).u64(1).u32(1).u32(0).stateid(others).u32(0).u64(0).opaque(b"l");
    assert_eq!(other.status(call().at(&file).op(LOCK, lock)).await, status::RECLAIM_CONFLICT);
    // Nothing is claimed behind RECLAIM_COMPLETE, and nothing new is opened before the end of
    // grace.
    assert_eq!(session.status(complete()).await, status::OK);
    assert_eq!(session.status(complete()).await, status::COMPLETE_ALREADY);
    assert_eq!(session.status(claim(&file, READ_ACCESS, 0)).await, status::NO_GRACE);
    assert_eq!(session.try_open(&root, "a", "owner", READ_ACCESS, 0).await.unwrap_err(), status::GRACE);
    tokio::time::advance(GRACE - Duration::from_secs(20)).await;
    session.status(call().then(PUTROOTFH)).await;
    tokio::time::advance(Duration::from_secs(20)).await;
    session.open(&root, "a", "owner", READ_ACCESS, 0).await;
}

#[tokio::test(start_paused = true)]
async fn grace_is_as_long_where_the_listener_opens_late() {
    let server = after_a_start();
    // Shares that open slowly keep the listener away.
    tokio::time::advance(GRACE * 2).await;
    server.begin_grace();
    let mut session = ClientSession::before_reclaim(&server, "client").await;
    let file = file_of(&server, &mut session, "a").await;
    assert_eq!(session.status(claim(&file, READ_ACCESS, 0)).await, status::OK);
    assert_eq!(session.status(complete()).await, status::OK);
    let root = session.root().await;
    assert_eq!(session.try_open(&root, "a", "owner", READ_ACCESS, 0).await.unwrap_err(), status::GRACE);
}

/// Its drives came back after the grace period of the start.
#[tokio::test(start_paused = true)]
async fn a_share_that_opens_late_has_a_grace_period_of_its_own() {
    let server = after_a_start();
    let mut session = ClientSession::before_reclaim(&server, "client").await;
    let file = file_of(&server, &mut session, "a").await;
    let root = session.root().await;
    assert_eq!(session.status(complete()).await, status::OK);
    let pass = async |session: &mut ClientSession, time: Duration| {
        // Each call renews the lease.
        for _ in 0..4 {
            tokio::time::advance(time / 4).await;
            assert_eq!(session.status(call().then(PUTROOTFH)).await, status::OK);
        }
    };
    pass(&mut session, GRACE).await;
    assert_eq!(session.status(claim(&file, READ_ACCESS, 0)).await, status::NO_GRACE);
    // Another share is none of its.
    server.begin_grace_of(SHARE + 1);
    assert_eq!(session.status(claim(&file, READ_ACCESS, 0)).await, status::NO_GRACE);
    server.begin_grace_of(SHARE);
    assert_eq!(session.lock_test(&file, "l", true, (0, 1)).await, Err((status::GRACE, None)));
    assert_eq!(session.try_open(&root, "a", "owner", READ_ACCESS, 0).await.unwrap_err(), status::GRACE);
    // The client could not claim it before it said that it had nothing more to claim.
    let mut answer = session.run(claim(&file, BOTH_ACCESS, 0)).await;
    answer.done(PUTFH);
    let open = answer.stateid(OPEN);
    let head = args().u32(2).u32(1).u64(0).u64(10).u32(1).u32(0).stateid(open).u32(0).u64(0);
    assert_eq!(session.status(call().at(&file).op(LOCK, head.opaque(b"l"))).await, status::OK);
    pass(&mut session, GRACE).await;
    assert_eq!(session.status(claim(&file, READ_ACCESS, 0)).await, status::NO_GRACE);
    session.open(&root, "a", "other", READ_ACCESS, 0).await;
    // A listener that opens again gives its own to all.
    server.begin_grace_of(SHARE);
    server.begin_grace();
    assert_eq!(session.status(claim(&file, READ_ACCESS, 0)).await, status::NO_GRACE);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_claimed_or_opened_out_of_turn() {
    let server = crate::nfs::testing::server();
    let mut session = ClientSession::before_reclaim(&server, "client").await;
    let file = file_of(&server, &mut session, "a").await;
    let root = session.root().await;
    // Without a grace period there is nothing to claim; yet a client says first that it has nothing
    // to claim.
    assert_eq!(session.status(claim(&file, READ_ACCESS, 0)).await, status::NO_GRACE);
    assert_eq!(session.try_open(&root, "a", "owner", READ_ACCESS, 0).await.unwrap_err(), status::GRACE);
    let one = call().at(&root).op(RECLAIM_COMPLETE, args().u32(1));
    assert_eq!(session.status(one).await, status::OK);
    assert_eq!(session.status(complete()).await, status::OK);
    session.open(&root, "a", "owner", READ_ACCESS, 0).await;
}

#[tokio::test(start_paused = true)]
async fn a_silent_client_loses_its_lease() {
    let (server, mut session, root) = begin().await;
    let (file, open) = session.open(&root, "a", "owner", BOTH_ACCESS, BOTH_ACCESS).await;
    session.lock(&file, open, "l", true, (0, 10)).await.unwrap();
    let mut other = ClientSession::new(&server, "other").await;
    for _ in 0..3 {
        // SEQUENCE alone renews it.
        tokio::time::advance(LEASE - Duration::from_secs(2)).await;
        assert_eq!(session.status(call()).await, status::OK);
        assert_eq!(other.status(call()).await, status::OK);
    }
    assert_eq!(other.try_open(&root, "a", "o", READ_ACCESS, 0).await.unwrap_err(), status::SHARE_DENIED);
    tokio::time::advance(LEASE - Duration::from_secs(2)).await;
    assert_eq!(other.status(call()).await, status::OK);
    tokio::time::advance(Duration::from_secs(3)).await;
    other.open(&root, "a", "o", BOTH_ACCESS, 0).await;
    assert!(other.lock_test(&file, "x", true, (0, 10)).await.is_ok());
    assert_eq!(session.write(&file, open, 0, b"x").await, status::BADSESSION);
    assert_eq!(session.wire.session(session.client, 2, CHANNEL).await, Err(status::STALE_CLIENTID));
}

#[tokio::test(start_paused = true)]
async fn names_of_an_earlier_start_are_unknown() {
    let before = after_a_start();
    let former = ClientSession::before_reclaim(&before, "client").await;
    let options = Options { grace: GRACE, instance: 9, ..Options::default() };
    let server = server_with(MemoryFiles::new(clock), rule(), options);
    let mut session = ClientSession::before_reclaim(&server, "client").await;
    assert_ne!(session.client, former.client);
    assert_eq!(session.wire.session(former.client, 2, CHANNEL).await, Err(status::STALE_CLIENTID));
    let own = std::mem::replace(&mut session.id, former.id);
    assert_eq!(session.repeat(0, 1, false, call()).await.status, status::BADSESSION);
    assert_ne!(own, former.id);
}

#[tokio::test(start_paused = true)]
async fn a_claim_needs_the_right_to_use_the_content() {
    let server = after_a_start();
    let mut session = ClientSession::before_reclaim(&server, "client").await;
    let file = file_of(&server, &mut session, "a").await;
    let files = server.exports().get(crate::nfs::testing::SHARE).unwrap().files.clone();
    let inode = server.handles.decode(&file).unwrap().inode;
    let own = crate::Changes { mode: Some(0o400), uid: Some(7), ..Default::default() };
    crate::Files::set_attributes(&*files, &crate::Caller::ROOT, inode, own, None).await.unwrap();
    session.wire.uid = 8;
    for access in [READ_ACCESS, WRITE_ACCESS, BOTH_ACCESS] {
        assert_eq!(session.status(claim(&file, access, BOTH_ACCESS)).await, status::ACCESS, "access {access}");
    }
    assert_eq!(server.clients().opens(), 0);
    // The owner may have opened it before its mode was changed.
    session.wire.uid = 7;
    assert_eq!(session.status(claim(&file, BOTH_ACCESS, 0)).await, status::OK);
}
