//! Locks of byte ranges, and the one table that all protocols share.

use std::net::IpAddr;

use crate::nfs::testing::{Client, Program, args};
use crate::nfs::v4::number::*;
use crate::nfs::v4::stateid::Stateid;
use crate::nfs::v4::status;
use crate::nfs::v4::testing::*;

const END: u64 = u64::MAX;

fn denied<T: std::fmt::Debug>(result: Result<T, LockFailure>) -> (u64, u64, bytes::Bytes) {
    let (status, held) = result.unwrap_err();
    assert_eq!(status, status::DENIED);
    let (offset, length, _, owner) = held.unwrap();
    (offset, length, owner)
}

#[tokio::test(start_paused = true)]
async fn ranges_conflict_where_they_overlap() {
    let (server, mut session, root) = begin().await;
    let (file, open) = session.open(&root, "a", "owner", BOTH_ACCESS, 0).await;
    let mut other = ClientSession::new(&server, "other").await;
    let (_, others) = other.open(&root, "a", "owner", BOTH_ACCESS, 0).await;
    session.lock(&file, open, "l", true, (100, 50)).await.unwrap();
    let owner = bytes::Bytes::from("l");
    for (exclusive, range, conflict) in [
        (true, (0, 100), false),
        (true, (0, 101), true),
        (false, (149, 1), true),
        (false, (150, 1), false),
        (true, (0, END), true),
        (true, (150, END), false),
    ] {
        let test = other.lock_test(&file, "x", exclusive, range).await;
        let lock = other.lock(&file, others, "x", exclusive, range).await;
        assert_eq!(test.is_err(), conflict, "{range:?}");
        match conflict {
            true => {
                // A stranger does not learn the number of the client.
                assert_eq!(lock, Err((status::DENIED, Some((100, 50, 0, owner.clone())))), "{range:?}");
                assert_eq!(denied(test), (100, 50, owner.clone()));
            }
            false => {
                let stateid = lock.unwrap();
                other.unlock(&file, stateid, range).await.unwrap();
            }
        }
    }
    // The same client with another owner is another owner; the same owner is not in its own way.
    let own = session.lock_test(&file, "m", false, (100, 1)).await;
    assert_eq!(own, Err((status::DENIED, Some((100, 50, session.client, owner)))));
    assert!(session.lock_test(&file, "l", true, (100, 1)).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn locks_are_strengthened_weakened_and_split() {
    let (server, mut session, root) = begin().await;
    let (file, open) = session.open(&root, "a", "owner", BOTH_ACCESS, 0).await;
    let mut other = ClientSession::new(&server, "other").await;
    let first = session.lock(&file, open, "l", false, (0, 100)).await.unwrap();
    assert!(other.lock_test(&file, "x", false, (0, 1)).await.is_ok());
    let second = session.lock_again(&file, first, true, (0, 100)).await.unwrap();
    assert_eq!((second.other, second.sequence), (first.other, first.sequence + 1));
    assert!(other.lock_test(&file, "x", false, (0, 1)).await.is_err());
    let third = session.lock_again(&file, second, false, (0, 50)).await.unwrap();
    assert!(other.lock_test(&file, "x", false, (0, 50)).await.is_ok());
    assert_eq!(denied(other.lock_test(&file, "x", false, (0, 51)).await).0, 50);
    let fourth = session.unlock(&file, third, (60, 10)).await.unwrap();
    assert!(other.lock_test(&file, "x", true, (60, 10)).await.is_ok());
    assert_eq!(denied(other.lock_test(&file, "x", true, (69, 2)).await).0, 70);
    assert_eq!(session.lock_again(&file, third, true, (0, 1)).await, Err((status::OLD_STATEID, None)));
    assert_eq!(session.unlock(&file, third, (0, 1)).await, Err(status::OLD_STATEID));
    // Unlocking what is not locked is no error.
    session.unlock(&file, fourth, (5000, END)).await.unwrap();
    // A second LOCK that calls the owner a new one goes on with its state.
    let again = session.lock(&file, open, "l", true, (700, 1)).await.unwrap();
    assert_eq!(again.other, first.other);
}

#[tokio::test(start_paused = true)]
async fn arguments_of_locks_are_checked() {
    let (_server, mut session, root) = begin().await;
    let (file, open) = session.open(&root, "a", "owner", BOTH_ACCESS, 0).await;
    let (beside, _) = session.open(&root, "b", "owner", BOTH_ACCESS, 0).await;
    let stateid = session.lock(&file, open, "l", true, (0, 1)).await.unwrap();
    for range in [(0, 0), (END, 2), (6, END - 4)] {
        let found = session.lock_again(&file, stateid, true, range).await;
        assert_eq!(found, Err((status::INVAL, None)), "{range:?}");
    }
    session.lock_again(&file, stateid, true, (5, END - 4)).await.unwrap();
    let latest = Stateid { sequence: 0, ..stateid };
    assert_eq!(session.unlock(&file, latest, (0, 0)).await, Err(status::INVAL));
    assert_eq!(session.lock(&beside, open, "l", true, (0, 1)).await, Err((status::BAD_STATEID, None)));
    assert_eq!(session.lock(&file, latest, "l", true, (0, 1)).await, Err((status::BAD_STATEID, None)));
    assert_eq!(session.lock_again(&file, open, true, (0, 1)).await, Err((status::BAD_STATEID, None)));
    let bad_kind = args().u32(5).u64(0).u64(1).u64(0).opaque(b"o");
    assert_eq!(session.status(call().at(&file).op(LOCKT, bad_kind)).await, status::BADXDR);
    let (reading, reads) = session.open(&root, "c", "owner", READ_ACCESS, 0).await;
    assert_eq!(session.lock(&reading, reads, "l", true, (0, 1)).await, Err((status::OPENMODE, None)));
    session.lock(&reading, reads, "l", false, (0, 1)).await.unwrap();
    let (writing, writes) = session.open(&root, "d", "owner", WRITE_ACCESS, 0).await;
    assert_eq!(session.lock(&writing, writes, "l", false, (0, 1)).await, Err((status::OPENMODE, None)));
}

#[tokio::test(start_paused = true)]
async fn stateids_are_tested_and_freed() {
    let (_server, mut session, root) = begin().await;
    let (file, open) = session.open(&root, "a", "owner", BOTH_ACCESS, 0).await;
    let first = session.lock(&file, open, "l", true, (0, 10)).await.unwrap();
    let second = session.lock_again(&file, first, true, (20, 10)).await.unwrap();
    let future = Stateid { sequence: 77, ..second };
    let all = [open, first, second, future, Stateid::ANONYMOUS, Stateid::BYPASS, Stateid { other: [4; 12], ..open }];
    let test = all.iter().fold(args().u32(all.len() as u32), |to, stateid| to.stateid(*stateid));
    let mut answer = session.run(call().op(TEST_STATEID, test)).await;
    let reader = answer.done(TEST_STATEID);
    assert_eq!(reader.u32(), Ok(7));
    let found: Vec<u32> = (0..7).map(|_| reader.u32().unwrap()).collect();
    let bad = status::BAD_STATEID;
    assert_eq!(found, [status::OK, status::OLD_STATEID, status::OK, bad, bad, bad, bad]);
    let free = |stateid| call().op(FREE_STATEID, args().stateid(stateid));
    assert_eq!(session.status(free(second)).await, status::LOCKS_HELD);
    assert_eq!(session.status(free(open)).await, status::LOCKS_HELD);
    assert_eq!(session.status(free(Stateid::BYPASS)).await, status::BAD_STATEID);
    let last = session.unlock(&file, second, (0, END)).await.unwrap();
    assert_eq!(session.status(free(second)).await, status::OLD_STATEID);
    assert_eq!(session.status(free(last)).await, status::OK);
    assert_eq!(session.status(free(last)).await, status::BAD_STATEID);
    assert_eq!(session.status(call().op(TEST_STATEID, args().u32(u32::MAX))).await, status::BADXDR);
}

#[tokio::test(start_paused = true)]
async fn closing_ends_the_locks_of_the_open() {
    let (server, mut session, root) = begin().await;
    let (file, open) = session.open(&root, "a", "owner", BOTH_ACCESS, 0).await;
    let (_, beside) = session.open(&root, "a", "another", BOTH_ACCESS, 0).await;
    let stateid = session.lock(&file, open, "l", true, (0, 10)).await.unwrap();
    session.lock(&file, beside, "m", true, (20, 10)).await.unwrap();
    assert_eq!(session.write(&file, stateid, 0, b"under the lock").await, status::OK);
    assert_eq!(session.close(&file, open).await, status::OK);
    assert_eq!(session.unlock(&file, stateid, (0, 1)).await, Err(status::BAD_STATEID));
    let mut other = ClientSession::new(&server, "other").await;
    assert!(other.lock_test(&file, "x", true, (0, 10)).await.is_ok());
    assert!(other.lock_test(&file, "x", true, (20, 10)).await.is_err());
}

/// LOCK and UNLOCK of NLM, by process 7 of `host`.
async fn nlm(older: &mut Client, file: &[u8], procedure: u32, offset: u64, length: u64) -> u32 {
    let head = args().opaque(b"cookie");
    let head = match procedure {
        2 => head.u32(0).u32(1),
        _ => head,
    };
    let lock = head.opaque(b"host").opaque(file).opaque(b"process").u32(7).u64(offset).u64(length);
    let lock = if procedure == 2 { lock.u32(0).u32(0) } else { lock };
    let mut results = older.call(Program::Lock, procedure, &lock.0).await;
    results.opaque(99).unwrap();
    results.u32().unwrap()
}

#[tokio::test(start_paused = true)]
async fn both_versions_see_each_others_locks() {
    let (server, mut session, root) = begin().await;
    let (file, open) = session.open(&root, "a", "owner", BOTH_ACCESS, 0).await;
    let mut older = Client::new(&server);
    assert_eq!(nlm(&mut older, &file, 2, 0, 100).await, 0);
    let (offset, length, owner) = denied(session.lock(&file, open, "l", true, (50, 100)).await);
    assert_eq!((offset, length), (0, 100));
    assert_eq!(owner, "\0\0\0\u{7}process");
    assert_eq!(nlm(&mut older, &file, 4, 0, 0).await, 0);
    session.lock(&file, open, "l", true, (50, 100)).await.unwrap();
    assert_eq!(nlm(&mut older, &file, 2, 0, 51).await, 1);
    assert_eq!(nlm(&mut older, &file, 2, 0, 50).await, 0);
    // A silent client's locks end for the other protocol too.
    tokio::time::advance(crate::nfs::v4::LEASE).await;
    assert_eq!(nlm(&mut older, &file, 2, 0, 200).await, 0);
    let host: IpAddr = "10.1.2.3".parse().unwrap();
    assert_eq!(server.locks.clients(), [crate::nfs::nlm::client(host, b"host")]);
}

#[tokio::test(start_paused = true)]
async fn reservations_of_nlm_deny_opens() {
    let (server, mut session, root) = begin().await;
    let (file, open) = session.open(&root, "a", "owner", READ_ACCESS, 0).await;
    session.close(&file, open).await;
    let mut older = Client::new(&server);
    // SHARE for reading and writing, denying writes.
    let share = args().opaque(b"c").opaque(b"host").opaque(&file).opaque(b"process").u32(2).u32(3).u32(0);
    let mut results = older.call(Program::Lock, 20, &share.0).await;
    results.opaque(99).unwrap();
    assert_eq!(results.u32(), Ok(0));
    assert_eq!(session.try_open(&root, "a", "owner", WRITE_ACCESS, 0).await.unwrap_err(), status::SHARE_DENIED);
    assert_eq!(
        session.try_open(&root, "a", "owner", READ_ACCESS, READ_ACCESS).await.unwrap_err(),
        status::SHARE_DENIED
    );
    session.open(&root, "a", "owner", READ_ACCESS, 0).await;
}

#[tokio::test(start_paused = true)]
async fn lock_owners_of_all_clients_are_bounded() {
    let (server, mut session, root) = begin().await;
    let (file, open) = session.open(&root, "a", "owner", BOTH_ACCESS, 0).await;
    let mut other = ClientSession::new(&server, "other").await;
    let (_, others) = other.open(&root, "a", "owner", BOTH_ACCESS, 0).await;
    server.clients.table().states_max = 20;
    // A lock owner stays known when it has unlocked everything.
    for number in 0..9 {
        let lock = session.lock(&file, open, &format!("l{number}"), true, (0, 1)).await.unwrap();
        session.unlock(&file, lock, (0, 1)).await.unwrap();
        let lock = other.lock(&file, others, &format!("l{number}"), true, (0, 1)).await.unwrap();
        other.unlock(&file, lock, (0, 1)).await.unwrap();
    }
    assert_eq!(other.lock(&file, others, "one more", true, (0, 1)).await, Err((status::NOSPC, None)));
    assert_eq!(other.try_open(&root, "a", "another", READ_ACCESS, 0).await.unwrap_err(), status::NOSPC);
    assert_eq!(session.close(&file, open).await, status::OK);
    let lock = other.lock(&file, others, "one more", true, (0, 1)).await.unwrap();
    other.unlock(&file, lock, (0, 1)).await.unwrap();
    assert_eq!(
        other.status(call().op(FREE_STATEID, args().stateid(Stateid { sequence: 0, ..lock }))).await,
        status::OK
    );
    assert_eq!(server.clients.table().states, 10);
    tokio::time::advance(crate::nfs::v4::LEASE * 2).await;
    server.expire().await;
    assert_eq!(server.clients.table().states, 0);
}

#[tokio::test(start_paused = true)]
async fn a_share_that_goes_takes_its_locks_along() {
    let (server, mut session, root) = begin().await;
    let (file, open) = session.open(&root, "a", "owner", BOTH_ACCESS, BOTH_ACCESS).await;
    session.lock(&file, open, "l", true, (0, 10)).await.unwrap();
    let mut older = Client::new(&server);
    assert_eq!(nlm(&mut older, &file, 2, 50, 10).await, 0);
    assert_eq!(server.locks.count(), 3);
    server.remove(crate::nfs::testing::SHARE);
    assert_eq!((server.locks.count(), server.clients().opens(), server.clients.table().states), (0, 0, 0));
}
