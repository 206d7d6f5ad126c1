//! SEQUENCE: calls take place exactly once, and in their order.

use std::time::Duration;

use crate::MemoryFiles;
use crate::nfs::Options;
use crate::nfs::testing::gate::Gate;
use crate::nfs::testing::{Client, Program, SHARE, args, clock, rule, server_with};
use crate::nfs::v4::number::*;
use crate::nfs::v4::testing::*;
use crate::nfs::v4::{LEASE, attributes, status};

fn remove(root: &[u8], name: &str) -> OperationCall {
    call().at(root).op(REMOVE, args().opaque(name.as_bytes()))
}

#[tokio::test(start_paused = true)]
async fn a_repeated_call_gets_the_kept_answer() {
    let (server, mut session, root) = begin().await;
    session.open(&root, "a", "owner", READ_ACCESS, 0).await;
    let next = session.sequences[0] + 1;
    let first = session.repeat(0, next, true, remove(&root, "a")).await;
    assert_eq!(first.status, status::OK);
    // On another connection, as after a lost one.
    session.wire = Client::new(&server);
    let again = session.repeat(0, next, true, remove(&root, "a")).await;
    assert_eq!(again.status, status::OK, "the name is gone, and the call succeeds");
    assert_eq!(first.reader.rest(), again.reader.rest());
    let later = session.repeat(0, next + 1, true, remove(&root, "a")).await;
    assert_eq!(later.status, status::NOENT);
    // A failure is kept too.
    assert_eq!(session.repeat(0, next + 1, true, remove(&root, "a")).await.status, status::NOENT);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_was_not_kept_is_not_made_up() {
    let (_server, mut session, root) = begin().await;
    session.open(&root, "a", "owner", READ_ACCESS, 0).await;
    assert_eq!(session.repeat(3, 1, false, remove(&root, "a")).await.status, status::OK);
    let mut again = session.repeat(3, 1, false, remove(&root, "a")).await;
    assert_eq!((again.status, again.count), (status::RETRY_UNCACHED_REP, 2));
    assert_eq!(again.next(PUTFH), status::RETRY_UNCACHED_REP);
    again.ends();
    // A lone SEQUENCE has nothing that could be lost.
    assert_eq!(session.repeat(3, 2, false, call()).await.status, status::OK);
    assert_eq!(session.repeat(3, 2, false, call()).await.status, status::OK);
}

#[tokio::test(start_paused = true)]
async fn calls_out_of_order_are_refused() {
    let (_server, mut session, root) = begin().await;
    let next = session.sequences[0] + 1;
    let table = [
        ("a later number", 0, next + 1, status::SEQ_MISORDERED),
        ("an earlier number", 0, next - 2, status::SEQ_MISORDERED),
        ("a first number of 0", 5, 0, status::SEQ_MISORDERED),
        ("a first number of 2", 5, 2, status::SEQ_MISORDERED),
        ("a slot beyond the last", 8, 1, status::BADSLOT),
        ("no slot at all", u32::MAX, 1, status::BADSLOT),
    ];
    for (name, slot, number, expected) in table {
        let answer = session.repeat(slot, number, true, call().at(&root)).await;
        assert_eq!((answer.status, answer.count), (expected, 1), "{name}");
    }
    // None of them moved the slot.
    assert_eq!(session.repeat(0, next, true, call().at(&root)).await.status, status::OK);
    let right = session.id;
    session.id = [1; 16];
    assert_eq!(session.repeat(0, next + 1, true, call()).await.status, status::BADSESSION);
    session.id = right;
}

#[tokio::test(start_paused = true)]
async fn slots_count_by_themselves() {
    let (_server, mut session, root) = begin().await;
    for slot in 1..8 {
        for number in 1..4 {
            assert_eq!(session.repeat(slot, number, false, call().at(&root)).await.status, status::OK);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn another_call_under_a_used_number_is_refused() {
    let (_server, mut session, root) = begin().await;
    session.open(&root, "a", "owner", READ_ACCESS, 0).await;
    let next = session.sequences[0] + 1;
    session.repeat(0, next, true, call().at(&root)).await;
    assert_eq!(session.repeat(0, next, true, remove(&root, "a")).await.status, status::SEQ_FALSE_RETRY);
    session.wire.uid = 9;
    assert_eq!(session.repeat(0, next, true, call().at(&root)).await.status, status::SEQ_FALSE_RETRY);
}

#[tokio::test(start_paused = true)]
async fn sequence_stands_first_and_once() {
    let (_server, mut session, root) = begin().await;
    let second = sequence(&session.id, 9, 1, false);
    assert_eq!(session.status(second).await, status::SEQUENCE_POS);
    for alone in [call().at(&root), call().then(PUTROOTFH), call().op(RECLAIM_COMPLETE, args().u32(0))] {
        assert_eq!(session.wire.compound(&alone).await.status, status::OP_NOT_IN_SESSION);
    }
    let mut two = exchange("x", 1, 0);
    two = two.then(PUTROOTFH);
    assert_eq!(session.wire.compound(&two).await.status, status::NOT_ONLY_OP);
    let (session_id, number) = (session.id, session.sequences[0] + 1);
    let cut = call().op(SEQUENCE, args().fixed(&session_id).u32(number));
    assert_eq!(session.wire.compound(&cut).await.status, status::BADXDR);
}

#[tokio::test(start_paused = true)]
async fn channels_bound_calls_and_answers() {
    let server = crate::nfs::testing::server();
    let mut wire = Client::new(&server);
    let (client, next, _) = wire.exchange("small", 1, 0).await.unwrap();
    let id = wire.session(client, next, [600, 600, 300, 5, 4]).await.unwrap();
    let mut session = ClientSession { wire, id, client, sequences: [0; 64] };
    session.run(call().op(RECLAIM_COMPLETE, args().u32(0))).await;
    let root = session.root().await;
    let many = (0..5).fold(call(), |to, _| to.at(&root));
    assert_eq!(session.repeat(1, 1, false, many).await.status, status::TOO_MANY_OPS);
    let long = call().at(&root).op(LOOKUP, args().opaque(&[b'x'; 600]));
    assert_eq!(session.repeat(1, 1, false, long).await.status, status::REQ_TOO_BIG);
    let everything: Vec<u32> = attributes::READABLE.iter().collect();
    let show = |count| (0..count).fold(call().at(&root), |to, _| to.get(&everything));
    assert_eq!(session.repeat(1, 1, false, show(1)).await.status, status::OK);
    assert_eq!(session.repeat(1, 2, false, show(2)).await.status, status::REP_TOO_BIG);
    assert_eq!(session.repeat(1, 3, true, show(1)).await.status, status::REP_TOO_BIG_TO_CACHE);
    // A change does not take place if its answer has no room.
    let make = args().u32(2).opaque(b"dir").set(&[], args());
    let big = call().at(&root).get(&everything).at(&root).op(CREATE, make);
    assert_eq!(session.repeat(1, 4, false, big).await.status, status::REP_TOO_BIG);
    assert_eq!(session.repeat(1, 5, false, call().at(&root).lookup("dir")).await.status, status::NOENT);
}

#[tokio::test(start_paused = true)]
async fn a_call_under_way_holds_its_slot() {
    let options = Options { grace: Duration::ZERO, ..Options::default() };
    let server = server_with(Gate::new(MemoryFiles::new(clock)), rule(), options);
    let mut session = ClientSession::new(&server, "client").await;
    let root = session.root().await;
    let (file, open) = session.open(&root, "a", "owner", BOTH_ACCESS, 0).await;
    session.write(&file, open, 0, b"content").await;
    let read = || call().at(&file).op(READ, args().stateid(open).u64(0).u32(7));
    let mut whole = sequence(&session.id, 1, 2, false);
    whole.count += 2;
    whole.bytes = whole.bytes.fixed(&read().bytes.0);
    session.wire.send(Program::Nfs4, 1, &whole.compound(1)).await;
    let other = Client::new(&server);
    let first = std::mem::replace(&mut session.wire, other);
    assert_eq!(session.repeat(2, 1, false, read()).await.status, status::DELAY);
    assert_eq!(session.repeat(2, 2, false, read()).await.status, status::DELAY);
    // Its lease does not end meanwhile.
    tokio::time::advance(LEASE * 2).await;
    server.expire().await;
    let exports = server.exports();
    exports.get(SHARE).unwrap().files.passes.add_permits(2);
    session.wire = first;
    session.wire.receive().await;
    assert_eq!(session.repeat(2, 2, false, read()).await.status, status::OK);
}

#[tokio::test(start_paused = true)]
async fn a_kept_answer_fits_what_its_session_reserved() {
    let (server, mut holder, root) = begin().await;
    let mut wire = Client::new(&server);
    let (client, next, _) = wire.exchange("nothing kept", 1, 0).await.unwrap();
    let id = wire.session(client, next, [1 << 20, 1 << 20, 0, 8, 4]).await.unwrap();
    let lone = |tag: usize, keep: bool| {
        let call = sequence(&id, 1, 0, keep);
        args().opaque(&vec![b't'; tag]).u32(1).u32(call.count).fixed(&call.bytes.0).0
    };
    for (tag, keep, expected) in [
        (1000, true, status::REP_TOO_BIG_TO_CACHE),
        // The call above did not take the slot.
        (4, true, status::OK),
        (4, true, status::OK),
    ] {
        let mut results = wire.call(Program::Nfs4, 1, &lone(tag, keep)).await;
        assert_eq!(results.u32(), Ok(expected), "a tag of {tag} bytes");
    }
    // The owner of a lock in the way is cut to what there is room for.
    let (file, open) = holder.open(&root, "a", "owner", BOTH_ACCESS, 0).await;
    holder.lock(&file, open, &"l".repeat(1000), true, (0, 10)).await.unwrap();
    let (client, next, _) = wire.exchange("little kept", 1, 0).await.unwrap();
    let id = wire.session(client, next, [1 << 20, 1 << 20, 300, 8, 4]).await.unwrap();
    let mut session = ClientSession { wire, id, client, sequences: [0; 64] };
    session.run(call().op(RECLAIM_COMPLETE, args().u32(0))).await;
    let (status, held) = session.lock_test(&file, "x", true, (0, 1)).await.unwrap_err();
    let owner = held.unwrap().3;
    assert_eq!(status, status::DENIED);
    assert!((10..300).contains(&owner.len()), "{} bytes", owner.len());
}

#[tokio::test(start_paused = true)]
async fn an_answer_with_content_is_kept_too() {
    let (server, mut session, root) = begin().await;
    let (file, open) = session.open(&root, "a", "owner", BOTH_ACCESS, 0).await;
    session.write(&file, open, 0, &[7; 101]).await;
    let read = args().stateid(open).u64(0).u32(101);
    let whole = call().at(&file).op(READ, read).op(CLOSE, args().u32(0).stateid(open));
    let next = session.sequences[0] + 1;
    let first = session.repeat(0, next, true, whole.clone()).await;
    assert_eq!((first.status, first.count), (status::OK, 4));
    session.wire = Client::new(&server);
    let again = session.repeat(0, next, true, whole).await;
    assert_eq!((again.status, again.count), (status::OK, 4));
    assert_eq!(first.reader.rest(), again.reader.rest());
}
