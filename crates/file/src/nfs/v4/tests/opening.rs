//! OPEN, OPEN_DOWNGRADE, CLOSE, and stateids.

use bytes::Bytes;

use crate::MemoryFiles;
use crate::nfs::Options;
use crate::nfs::testing::gate::Gate;
use crate::nfs::testing::{Arguments, Client, Program, SHARE, args, clock, rule, server_with};
use crate::nfs::v4::attributes::{MODE, SIZE, TIME_MODIFY_SET};
use crate::nfs::v4::number::*;
use crate::nfs::v4::stateid::Stateid;
use crate::nfs::v4::testing::*;
use crate::nfs::v4::{Clients, status};

const UNCHECKED: u32 = 0;
const GUARDED: u32 = 1;
const EXCLUSIVE: u32 = 2;
const EXCLUSIVE_1: u32 = 3;

fn named(how: Arguments, name: &str) -> Arguments {
    how.u32(0).opaque(name.as_bytes())
}

fn creating(access: u32, how: u32) -> Arguments {
    args().open(access, 0, "owner").u32(1).u32(how)
}

async fn size(session: &mut ClientSession, file: &[u8]) -> u64 {
    let mut answer = session.run(call().at(file).get(&[SIZE])).await;
    answer.done(PUTFH);
    answer.attributes(&[SIZE]).u64().unwrap()
}

#[tokio::test(start_paused = true)]
async fn the_ways_to_create() {
    let (_server, mut session, root) = begin().await;
    let mode = || args().set(&[MODE], args().u32(0o640));
    let cut = || args().set(&[SIZE], args().u64(0));
    let verifier = |number: u64| args().u64(number);
    let table = [
        ("no such file", named(args().open(1, 0, "owner").u32(0), "a"), status::NOENT),
        ("guarded", named(creating(2, GUARDED).fixed(&mode().0), "a"), status::OK),
        ("guarded again", named(creating(2, GUARDED).fixed(&mode().0), "a"), status::EXIST),
        ("unchecked, exists", named(creating(2, UNCHECKED).fixed(&mode().0), "a"), status::OK),
        ("unchecked, new", named(creating(2, UNCHECKED).fixed(&mode().0), "b"), status::OK),
        ("exclusive", named(creating(2, EXCLUSIVE).fixed(&verifier(1).0), "c"), status::OK),
        ("exclusive, repeated", named(creating(2, EXCLUSIVE).fixed(&verifier(1).0), "c"), status::OK),
        ("exclusive, another", named(creating(2, EXCLUSIVE).fixed(&verifier(2).0), "c"), status::EXIST),
        (
            "exclusive over a file",
            named(creating(2, EXCLUSIVE_1).fixed(&verifier(2).0).fixed(&mode().0), "a"),
            status::EXIST,
        ),
        (
            "exclusive with attributes",
            named(creating(2, EXCLUSIVE_1).fixed(&verifier(3).0).fixed(&mode().0), "d"),
            status::OK,
        ),
        ("no such way", named(creating(2, 4), "e"), status::BADXDR),
        ("truncated", named(creating(2, UNCHECKED).fixed(&cut().0), "a"), status::OK),
    ];
    for (name, open, expected) in table {
        assert_eq!(session.status(call().at(&root).op(OPEN, open)).await, expected, "{name}");
    }
    for name in ["a", "b", "d"] {
        let mut answer = session.run(call().at(&root).lookup(name).get(&[MODE])).await;
        answer.done(PUTFH);
        answer.done(LOOKUP);
        assert_eq!(answer.attributes(&[MODE]).u32(), Ok(0o640), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_unchecked_creation_cuts_a_file_to_nothing_or_not_at_all() {
    let (_server, mut session, root) = begin().await;
    let (file, stateid) = session.open(&root, "a", "owner", WRITE_ACCESS, 0).await;
    session.write(&file, stateid, 0, b"content").await;
    for (name, wanted, expected) in [("a", 3, 7), ("a", 100, 7), ("a", 0, 0), ("b", 3, 3)] {
        let open = named(creating(2, UNCHECKED).set(&[SIZE], args().u64(wanted)), name);
        let mut answer = session.run(call().at(&root).op(OPEN, open).get(&[SIZE])).await;
        answer.done(PUTFH);
        let reader = answer.done(OPEN);
        reader.skip(16 + 20 + 4).unwrap();
        let set = reader.u32().unwrap();
        assert_eq!(set, u32::from(wanted == expected), "words of the attributes that were set: {name}, {wanted}");
        reader.skip(4 * set as usize + 4).unwrap();
        assert_eq!(answer.attributes(&[SIZE]).u64(), Ok(expected), "{name}, {wanted}");
    }
}

#[tokio::test(start_paused = true)]
async fn truncation_waits_for_the_reservation() {
    let (server, mut session, root) = begin().await;
    let (file, stateid) = session.open(&root, "a", "owner", WRITE_ACCESS, WRITE_ACCESS).await;
    session.write(&file, stateid, 0, b"content").await;
    let mut other = ClientSession::new(&server, "other").await;
    let cut = || named(creating(2, UNCHECKED).set(&[SIZE], args().u64(0)), "a");
    assert_eq!(other.status(call().at(&root).op(OPEN, cut())).await, status::SHARE_DENIED);
    assert_eq!(size(&mut session, &file).await, 7);
    session.close(&file, stateid).await;
    assert_eq!(other.status(call().at(&root).op(OPEN, cut())).await, status::OK);
    assert_eq!(size(&mut session, &file).await, 0);
}

#[tokio::test(start_paused = true)]
async fn claims_by_handle() {
    let (_server, mut session, root) = begin().await;
    let (file, _) = session.open(&root, "a", "owner", WRITE_ACCESS, 0).await;
    let claim = |how: Arguments, claim: u32| call().at(&file).op(OPEN, how.u32(claim));
    let open = || args().open(1, 0, "another").u32(0);
    assert_eq!(session.status(claim(open(), 4)).await, status::OK);
    assert_eq!(session.status(claim(creating(1, GUARDED).set(&[], args()), 4)).await, status::INVAL);
    assert_eq!(session.status(claim(open(), 3)).await, status::NOTSUPP);
    assert_eq!(session.status(claim(open(), 6)).await, status::NOTSUPP);
    assert_eq!(session.status(claim(open(), 7)).await, status::BADXDR);
    assert_eq!(session.status(call().at(&root).op(OPEN, open().u32(4))).await, status::ISDIR);
    // By name, in a file.
    assert_eq!(session.status(call().at(&file).op(OPEN, named(open(), "x"))).await, status::NOTDIR);
    for (access, deny) in [(0, 0), (4, 0), (1, 4), (0x80000, 0)] {
        let open = named(args().open(access, deny, "o").u32(0), "a");
        assert_eq!(
            session.status(call().at(&root).op(OPEN, open)).await,
            status::INVAL,
            "access {access}, deny {deny}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn wishes_for_delegations_are_answered() {
    let (_server, mut session, root) = begin().await;
    session.open(&root, "a", "owner", READ_ACCESS, 0).await;
    for (wants, expected) in [
        (0, vec![0]),
        (0x100, vec![3, 2, 0]),
        (0x200, vec![3, 2, 0]),
        (0x300, vec![3, 2, 0]),
        (0x400, vec![3, 0]),
        (0x500, vec![3, 7]),
        (0x1_0400, vec![3, 0]),
    ] {
        let open = named(args().open(1 | wants, 0, "owner").u32(0), "a");
        let mut answer = session.run(call().at(&root).op(OPEN, open)).await;
        answer.done(PUTFH);
        let reader = answer.done(OPEN);
        // Stateid, changes, flags, and no attribute that was set.
        reader.skip(16 + 20 + 4 + 4).unwrap();
        let words: Vec<u32> = (0..reader.remaining() / 4).map(|_| reader.u32().unwrap()).collect();
        assert_eq!(words, expected, "wants {wants:#x}");
    }
}

#[tokio::test(start_paused = true)]
async fn permission_counts_at_the_opening() {
    let (_server, mut session, root) = begin().await;
    session.run(call().at(&root).op(SETATTR, args().u64(0).u64(0).set(&[MODE], args().u32(0o777)))).await;
    session.open(&root, "a", "owner", WRITE_ACCESS, 0).await;
    session.wire.uid = 5;
    assert_eq!(session.try_open(&root, "a", "five", WRITE_ACCESS, 0).await.unwrap_err(), status::ACCESS);
    session.open(&root, "a", "five", READ_ACCESS, 0).await;
    // A new file may be written by its maker, whatever its mode.
    let how = named(creating(WRITE_ACCESS, GUARDED).set(&[MODE], args().u32(0)), "b");
    let mut answer = session.run(call().at(&root).op(OPEN, how).then(GETFH)).await;
    answer.done(PUTFH);
    let stateid = answer.stateid(OPEN);
    let mut answer = session.run(call().at(&root).lookup("b").then(GETFH)).await;
    answer.done(PUTFH);
    answer.done(LOOKUP);
    let file = answer.done(GETFH).opaque(128).unwrap();
    assert_eq!(session.write(&file, stateid, 0, b"x").await, status::OK);
    assert_eq!(session.try_open(&root, "b", "again", WRITE_ACCESS, 0).await.unwrap_err(), status::ACCESS);
}

#[tokio::test(start_paused = true)]
async fn reservations_deny_and_end() {
    let (server, mut session, root) = begin().await;
    let mut other = ClientSession::new(&server, "other").await;
    // First: access and deny; second: access and deny; whether both can be.
    for (first, second, fits) in [
        ((1, 0), (1, 0), true),
        ((1, 1), (1, 0), false),
        ((1, 2), (1, 0), true),
        ((1, 2), (2, 0), false),
        ((2, 1), (2, 0), true),
        ((3, 0), (1, 2), false),
        ((1, 0), (2, 2), true),
        ((3, 3), (1, 0), false),
        ((2, 0), (1, 1), true),
    ] {
        let (file, held) = session.open(&root, "a", "owner", first.0, first.1).await;
        let found = other.try_open(&root, "a", "owner", second.0, second.1).await;
        match found {
            Ok((_, stateid)) => {
                assert!(fits, "{first:?} and {second:?}");
                other.close(&file, stateid).await;
            }
            Err(status) => assert_eq!((status, fits), (status::SHARE_DENIED, false), "{first:?} and {second:?}"),
        }
        assert_eq!(session.close(&file, held).await, status::OK);
        let (_, stateid) = other.open(&root, "a", "owner", second.0, second.1).await;
        assert_eq!(other.close(&file, stateid).await, status::OK);
    }
    assert_eq!(server.clients().opens(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_denied_use_holds_for_calls_without_an_open() {
    let (_server, mut session, root) = begin().await;
    let (file, stateid) = session.open(&root, "a", "owner", BOTH_ACCESS, BOTH_ACCESS).await;
    assert_eq!(session.write(&file, stateid, 0, b"content").await, status::OK);
    assert_eq!(session.write(&file, Stateid::ANONYMOUS, 0, b"x").await, status::LOCKED);
    assert_eq!(session.read(&file, Stateid::ANONYMOUS, 0, 9).await, Err(status::LOCKED));
    assert_eq!(session.read(&file, Stateid::BYPASS, 0, 9).await, Ok((true, Bytes::from("content"))));
    assert_eq!(session.write(&file, Stateid::BYPASS, 0, b"x").await, status::BAD_STATEID);
    session.close(&file, stateid).await;
    assert_eq!(session.write(&file, Stateid::ANONYMOUS, 0, b"x").await, status::OK);
    assert_eq!(session.read(&file, Stateid::ANONYMOUS, 0, 1).await, Ok((false, Bytes::from("x"))));
}

#[tokio::test(start_paused = true)]
async fn an_owner_adds_to_its_open_and_gives_back() {
    let (server, mut session, root) = begin().await;
    let (file, first) = session.open(&root, "a", "owner", READ_ACCESS, 0).await;
    assert_eq!(session.write(&file, first, 0, b"x").await, status::OPENMODE);
    let (_, second) = session.open(&root, "a", "owner", WRITE_ACCESS, WRITE_ACCESS).await;
    assert_eq!((second.other, second.sequence), (first.other, first.sequence + 1));
    assert_eq!(server.clients().opens(), 1);
    assert_eq!(session.write(&file, second, 0, b"x").await, status::OK);
    assert_eq!(session.write(&file, first, 0, b"x").await, status::OLD_STATEID);
    let downgrade = |stateid, access: u32, deny: u32| {
        call().at(&file).op(OPEN_DOWNGRADE, args().stateid(stateid).u32(0).u32(access).u32(deny))
    };
    for (access, deny) in [(0, 0), (4, 0), (1, 1), (1, 3), (1, 4)] {
        assert_eq!(session.status(downgrade(second, access, deny)).await, status::INVAL, "{access} {deny}");
    }
    let mut answer = session.run(downgrade(second, 1, 0)).await;
    answer.done(PUTFH);
    let third = answer.stateid(OPEN_DOWNGRADE);
    assert_eq!((third.other, third.sequence), (first.other, second.sequence + 1));
    assert_eq!(session.write(&file, third, 0, b"x").await, status::OPENMODE);
    assert_eq!(session.status(downgrade(third, 2, 0)).await, status::INVAL, "what was given back");
    let mut other = ClientSession::new(&server, "other").await;
    other.open(&root, "a", "owner", WRITE_ACCESS, 0).await;
    assert_eq!(session.close(&file, second).await, status::OLD_STATEID);
    assert_eq!(session.close(&file, third).await, status::OK);
    assert_eq!(session.close(&file, third).await, status::BAD_STATEID);
}

#[tokio::test(start_paused = true)]
async fn stateids_that_are_none() {
    let (server, mut session, root) = begin().await;
    let (file, good) = session.open(&root, "a", "owner", BOTH_ACCESS, 0).await;
    let (beside, other_file) = session.open(&root, "b", "owner", BOTH_ACCESS, 0).await;
    let mut other = ClientSession::new(&server, "other").await;
    let (_, others) = other.open(&root, "a", "owner", BOTH_ACCESS, 0).await;
    let table = [
        ("of another client", others, status::BAD_STATEID),
        ("of another file", other_file, status::BAD_STATEID),
        ("of an earlier start", Stateid { other: [9; 12], ..good }, status::BAD_STATEID),
        ("ended", Stateid::INVALID, status::BAD_STATEID),
        ("a current one without any", Stateid::CURRENT, status::BAD_STATEID),
        ("from the future", Stateid { sequence: good.sequence + 1, ..good }, status::BAD_STATEID),
        ("the latest", Stateid { sequence: 0, ..good }, status::OK),
        ("as answered", good, status::OK),
    ];
    for (name, stateid, expected) in table {
        assert_eq!(session.write(&file, stateid, 0, b"x").await, expected, "{name}");
        let read = session.read(&file, stateid, 0, 1).await.map(drop);
        assert_eq!(read, if expected == status::OK { Ok(()) } else { Err(expected) }, "{name}");
    }
    let _ = beside;
}

#[tokio::test(start_paused = true)]
async fn the_current_stateid_follows_the_operations() {
    let (_server, mut session, root) = begin().await;
    let open = named(creating(BOTH_ACCESS, UNCHECKED).set(&[], args()), "a");
    let write = args().stateid(Stateid::CURRENT).u64(0).u32(2).opaque(b"x");
    let close = args().u32(0).stateid(Stateid::CURRENT);
    let lock = args().u32(2).u32(0).u64(0).u64(9).u32(1).u32(0).stateid(Stateid::CURRENT).u32(0).u64(0).opaque(b"l");
    let whole = call().at(&root).op(OPEN, open.clone()).op(LOCK, lock).op(WRITE, write.clone());
    assert_eq!(session.status(whole).await, status::OK);
    let whole = call().at(&root).op(OPEN, open.clone()).op(WRITE, write.clone()).op(CLOSE, close.clone());
    assert_eq!(session.status(whole.clone()).await, status::OK);
    // The closed one is no state any more.
    assert_eq!(session.status(whole.op(WRITE, write.clone())).await, status::BAD_STATEID);
    // A new file handle brings no stateid; a saved one comes back with its handle.
    let moved = call().at(&root).op(OPEN, open.clone()).then(SAVEFH).at(&root);
    assert_eq!(session.status(moved.clone().lookup("a").op(WRITE, write.clone())).await, status::BAD_STATEID);
    assert_eq!(session.status(moved.then(RESTOREFH).op(WRITE, write)).await, status::OK);
}

#[tokio::test(start_paused = true)]
async fn exclusive_attributes_are_set_with_the_file() {
    let (_server, mut session, root) = begin().await;
    let attributes = args().set(&[MODE, TIME_MODIFY_SET], args().u32(0o604).u32(1).u64(77).u32(0));
    let how = named(creating(2, EXCLUSIVE_1).u64(4).fixed(&attributes.0), "a");
    for attempt in 0..2 {
        let mut answer = session.run(call().at(&root).op(OPEN, how.clone())).await;
        answer.done(PUTFH);
        let reader = answer.done(OPEN);
        reader.skip(16 + 20 + 4).unwrap();
        let set: Vec<u32> = (0..3).map(|_| reader.u32().unwrap()).collect();
        assert_eq!(set, [2, 0, 1 << 1 | 1 << 22], "attempt {attempt}");
    }
}

#[tokio::test(start_paused = true)]
async fn states_are_counted() {
    let (server, mut session, root) = begin().await;
    for owner in 0..50 {
        session.open(&root, "a", &format!("owner {owner}"), READ_ACCESS, 0).await;
    }
    let clients: &Clients = server.clients();
    assert_eq!((clients.opens(), clients.count(), clients.sessions()), (50, 1, 1));
    assert_eq!(server.locks.count(), 50);
    tokio::time::advance(crate::nfs::v4::LEASE).await;
    server.expire().await;
    assert_eq!((clients.opens(), clients.count(), clients.sessions(), server.locks.count()), (0, 0, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn an_open_whose_truncation_fails_is_undone() {
    let options = Options { grace: std::time::Duration::ZERO, ..Options::default() };
    let server = server_with(Gate::new(MemoryFiles::new(clock)), rule(), options);
    let gate = server.exports().get(SHARE).unwrap().files.clone();
    let users = || gate.users.load(std::sync::atomic::Ordering::Relaxed);
    let mut session = ClientSession::new(&server, "client").await;
    let root = session.root().await;
    let (file, open) = session.open(&root, "a", "reader", READ_ACCESS, 0).await;
    gate.no_size.store(true, std::sync::atomic::Ordering::Relaxed);
    let cut = |owner: &str, deny: u32| {
        let how = args().open(WRITE_ACCESS, deny, owner).u32(1).u32(0);
        named(how.set(&[SIZE], args().u64(0)), "a")
    };
    assert_eq!(session.status(call().at(&root).op(OPEN, cut("writer", 0))).await, status::NOSPC);
    assert_eq!((server.clients().opens(), users()), (1, 1));
    // An open that there was before is as it was: it reads, and denies nothing.
    assert_eq!(session.status(call().at(&root).op(OPEN, cut("reader", BOTH_ACCESS))).await, status::NOSPC);
    assert_eq!((server.clients().opens(), users()), (1, 1));
    assert_eq!(session.write(&file, Stateid { sequence: 0, ..open }, 0, b"x").await, status::OPENMODE);
    let mut other = ClientSession::new(&server, "other").await;
    other.open(&root, "a", "o", BOTH_ACCESS, 0).await;
    assert_eq!(session.close(&file, Stateid { sequence: 0, ..open }).await, status::OK);
    assert_eq!((server.clients().opens(), users()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn an_open_that_another_call_went_on_with_stays_counted() {
    let options = Options { grace: std::time::Duration::ZERO, ..Options::default() };
    let server = server_with(Gate::new(MemoryFiles::new(clock)), rule(), options);
    let gate = server.exports().get(SHARE).unwrap().files.clone();
    let users = || gate.users.load(std::sync::atomic::Ordering::Relaxed);
    let mut session = ClientSession::new(&server, "client").await;
    let root = session.root().await;
    let (file, first) = session.open(&root, "a", "another", READ_ACCESS, 0).await;
    session.close(&file, first).await;
    for refusal in [&gate.no_size, &gate.sizes_wait] {
        refusal.store(true, std::sync::atomic::Ordering::Relaxed);
    }
    let how = named(creating(WRITE_ACCESS, UNCHECKED).set(&[SIZE], args().u64(0)), "a");
    let cut = call().at(&root).op(OPEN, how);
    let mut whole = sequence(&session.id, 1, 2, false);
    whole.count += cut.count;
    whole.bytes = whole.bytes.fixed(&cut.bytes.0);
    session.wire.send(Program::Nfs4, 1, &whole.compound(1)).await;
    let mut waiting = std::mem::replace(&mut session.wire, Client::new(&server));
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(users(), 1, "the truncation is under way");
    let (_, open) = session.open(&root, "a", "owner", WRITE_ACCESS, 0).await;
    gate.passes.add_permits(1);
    waiting.receive().await;
    assert_eq!((server.clients().opens(), users()), (1, 1), "the file is open, and the share does not know");
    assert_eq!(session.close(&file, open).await, status::OK);
    assert_eq!((server.clients().opens(), users()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn an_open_under_way_does_not_outlive_its_share() {
    let options = Options { grace: std::time::Duration::ZERO, ..Options::default() };
    let server = server_with(Gate::new(MemoryFiles::new(clock)), rule(), options);
    let gate = server.exports().get(SHARE).unwrap().files.clone();
    let users = || gate.users.load(std::sync::atomic::Ordering::Relaxed);
    let mut session = ClientSession::new(&server, "client").await;
    let root = session.root().await;
    let (file, made) = session.open(&root, "a", "maker", READ_ACCESS, 0).await;
    session.close(&file, made).await;
    gate.access_waits.store(true, std::sync::atomic::Ordering::Relaxed);
    let open = call().at(&root).op(OPEN, named(args().open(BOTH_ACCESS, 0, "owner").u32(0), "a"));
    let mut whole = sequence(&session.id, 1, 2, false);
    whole.count += open.count;
    whole.bytes = whole.bytes.fixed(&open.bytes.0);
    session.wire.send(Program::Nfs4, 1, &whole.compound(1)).await;
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(server.remove(SHARE));
    gate.passes.add_permits(8);
    session.wire.receive().await;
    assert_eq!((server.clients().opens(), server.locks.count(), users()), (0, 0, 0));
}
