//! The procedure itself: minor versions, tags, unknown operations, file handles, and hostile bytes.

use crate::nfs::export::AwaitedExport;
use crate::nfs::testing::{Client, Program, args, server};
use crate::nfs::v4::number::*;
use crate::nfs::v4::status;
use crate::nfs::v4::testing::*;

#[tokio::test(start_paused = true)]
async fn other_minor_versions_are_named() {
    let server = server();
    let mut wire = Client::new(&server);
    assert_eq!(wire.call(Program::Nfs4, 0, &[]).await.remaining(), 0);
    for minor in [0, 2, 3, u32::MAX] {
        let answer = Answer::of(wire.call(Program::Nfs4, 1, &exchange("x", 1, 0).compound(minor)).await);
        assert_eq!((answer.status, answer.count), (status::MINOR_VERS_MISMATCH, 0), "minor version {minor}");
        answer.ends();
    }
    let answer = wire.compound(&call()).await;
    assert_eq!((answer.status, answer.count), (status::OK, 0), "no operation");
    let tag = args().opaque(&[0xff, 0xfe]).u32(1).u32(0);
    let mut reader = wire.call(Program::Nfs4, 1, &tag.0).await;
    assert_eq!(reader.u32(), Ok(status::INVAL));
}

#[tokio::test(start_paused = true)]
async fn operations_that_are_none_or_not_offered() {
    let (_server, mut session, _) = begin().await;
    for number in [0, 1, 2, 59, 69, 10_044, u32::MAX] {
        let mut answer = session.run(call().then(number)).await;
        assert_eq!(answer.next(ILLEGAL), status::OP_ILLEGAL, "operation {number}");
        answer.ends();
    }
    for number in [DELEGPURGE, DELEGRETURN, 19, 20, 30, 35, 36, 39, 46, 47, 48, 49, 50, 51, 54, 56] {
        assert_eq!(session.run(call().then(number)).await.next(number), status::NOTSUPP, "operation {number}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_failure_ends_the_call() {
    let (_server, mut session, root) = begin().await;
    let mut answer = session.run(call().at(&root).lookup("nothing").then(GETFH)).await;
    assert_eq!((answer.status, answer.count), (status::NOENT, 3));
    answer.done(PUTFH);
    assert_eq!(answer.next(LOOKUP), status::NOENT);
    answer.ends();
    // Arguments that end too early.
    let mut answer = session.run(call().at(&root).op(LOOKUP, args().u32(9))).await;
    answer.done(PUTFH);
    assert_eq!(answer.next(LOOKUP), status::BADXDR);
    // More operations are announced than there are.
    let mut short = call().at(&root);
    short.count += 3;
    assert_eq!(session.status(short).await, status::BADXDR);
}

#[tokio::test(start_paused = true)]
async fn every_operation_on_a_file_needs_a_handle() {
    let (_server, mut session, _) = begin().await;
    let name = || args().opaque(b"name");
    let stateid = || args().u64(0).u64(0);
    let table = [
        (GETFH, args()),
        (GETATTR, args().bitmap(&[1])),
        (SETATTR, stateid().set(&[], args())),
        (LOOKUP, name()),
        (LOOKUPP, args()),
        (ACCESS, args().u32(1)),
        (READLINK, args()),
        (READ, stateid().u64(0).u32(1)),
        (WRITE, stateid().u64(0).u32(0).opaque(b"x")),
        (COMMIT, args().u64(0).u32(0)),
        (CREATE, args().u32(2).opaque(b"x").set(&[], args())),
        (REMOVE, name()),
        (RENAME, name().opaque(b"b")),
        (LINK, name()),
        (READDIR, args().u64(0).u64(0).u32(900).u32(900).bitmap(&[])),
        (OPEN, args().open(1, 0, "o").u32(0).u32(0).opaque(b"x")),
        (OPEN_DOWNGRADE, stateid().u32(0).u32(1).u32(0)),
        (CLOSE, args().u32(0).u64(0).u64(0)),
        (LOCKT, args().u32(1).u64(0).u64(1).u64(0).opaque(b"o")),
        (SAVEFH, args()),
        (RESTOREFH, args()),
        (SECINFO, name()),
        (SECINFO_NO_NAME, args().u32(0)),
        (VERIFY, args().set(&[], args())),
        (NVERIFY, args().set(&[], args())),
        (RECLAIM_COMPLETE, args().u32(1)),
    ];
    for (number, arguments) in table {
        let status = session.status(call().op(number, arguments)).await;
        assert_eq!(status, status::NOFILEHANDLE, "operation {number}");
    }
}

#[tokio::test(start_paused = true)]
async fn handles_are_saved_restored_and_checked() {
    let (server, mut session, root) = begin().await;
    let (file, _) = session.open(&root, "a", "o", READ_ACCESS, 0).await;
    let juggle = call().at(&file).then(SAVEFH).at(&root).then(RESTOREFH).then(GETFH);
    let mut answer = session.run(juggle).await;
    answer.skip(&[PUTFH, SAVEFH, PUTFH, RESTOREFH]);
    assert_eq!(answer.done(GETFH).opaque(128).unwrap(), file);
    let mut forged = file.to_vec();
    forged[9] ^= 1;
    assert_eq!(session.status(call().at(&forged)).await, status::BADHANDLE);
    assert_eq!(session.status(call().at(b"")).await, status::BADHANDLE);
    assert_eq!(session.status(call().at(&[0; 129])).await, status::BADXDR);
    session.status(call().at(&root).op(REMOVE, args().opaque(b"a"))).await;
    // It is open, so it stays until its last user closes it.
    assert_eq!(session.status(call().at(&file).get(&[1])).await, status::OK);
    server.remove(crate::nfs::testing::SHARE);
    assert_eq!(session.status(call().at(&root)).await, status::STALE);
    let awaited = AwaitedExport { path: "/records".to_owned(), rules: vec![crate::nfs::testing::rule()] };
    server.expect([(crate::nfs::testing::SHARE, awaited)].into());
    assert_eq!(session.status(call().at(&root)).await, status::DELAY, "it is to open");
    for (name, expected) in [("records", status::DELAY), ("other", status::NOENT)] {
        assert_eq!(session.status(call().then(PUTROOTFH).lookup(name)).await, expected, "{name}");
    }
    server.remove(crate::nfs::testing::SHARE);
    assert_eq!(session.status(call().at(&root)).await, status::STALE);
    let mut wire = Client::new(&server);
    wire.exchange("client", 1, 0).await.unwrap();
    assert_eq!(server.clients().opens(), 0);
}

#[tokio::test(start_paused = true)]
async fn networks_and_tls_hold_for_this_version_too() {
    let (server, mut session, root) = begin().await;
    session.wire = Client::from(&server, "192.168.0.1:700".parse().unwrap(), false);
    assert_eq!(session.status(call().at(&root)).await, status::ACCESS);
    assert_eq!(session.status(call().then(PUTROOTFH).lookup("records")).await, status::NOENT);
}

#[tokio::test(start_paused = true)]
async fn random_operations_do_no_harm() {
    let (_server, mut session, root) = begin().await;
    let mut dice = stele_ground::Dice::new(5);
    for _ in 0..4000 {
        let mut whole = call().at(&root);
        for _ in 0..dice.below(4) {
            let bytes: Vec<u8> = (0..dice.below(80) / 4 * 4).map(|_| dice.below(4) as u8 * 85).collect();
            whole = whole.op(dice.below(60) as u32, args().fixed(&bytes));
        }
        session.sequences[0] += 1;
        let answer = session.repeat(0, session.sequences[0], true, whole).await;
        if answer.status == status::BADSESSION {
            break;
        }
    }
}
