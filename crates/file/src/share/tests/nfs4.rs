//! A share as clients of NFS version 4.1 see it.

use std::sync::Arc;
use std::time::Duration;

use super::stage::{Stage, content, file, settle};
use crate::Share;
use crate::files::Files;
use crate::nfs::testing::{Arguments, SHARE, args, rule, server_of};
use crate::nfs::v4::attributes::{MODE, TIME_ACCESS_SET};
use crate::nfs::v4::number::*;
use crate::nfs::v4::stateid::Stateid;
use crate::nfs::v4::testing::*;
use crate::nfs::v4::{LEASE, status};
use crate::nfs::{Options, Server};

const DAY: u64 = 86_400;

fn serve(share: Arc<Share>) -> Arc<Server<Share>> {
    server_of(share, rule(), Options { grace: Duration::ZERO, ..Options::default() })
}

fn set(file: &[u8], attributes: &[u32], list: Arguments) -> OperationCall {
    call().at(file).op(SETATTR, args().u64(0).u64(0).set(attributes, list))
}

#[tokio::test(start_paused = true)]
async fn a_file_is_committed_once_no_writer_has_it_open() {
    let stage = Stage::new(41).committing();
    let server = serve(stage.share().await);
    let mut session = ClientSession::new(&server, "client").await;
    let root = session.root().await;
    let (file, open) = session.open(&root, "ledger", "owner", BOTH_ACCESS, 0).await;
    assert_eq!(session.write(&file, open, 0, b"must survive").await, status::OK);
    let until = 1_800_000_000 + 30 * DAY;
    let commit = || set(&file, &[MODE, TIME_ACCESS_SET], args().u32(0o444).u32(1).u64(until).u32(0));
    assert_eq!(session.status(commit()).await, status::DELAY, "it is open for writing");
    // An open that writes no more is in no commit's way.
    let less = args().stateid(open).u32(0).u32(READ_ACCESS).u32(0);
    let mut answer = session.run(call().at(&file).op(OPEN_DOWNGRADE, less)).await;
    answer.done(PUTFH);
    let open = answer.stateid(OPEN_DOWNGRADE);
    assert_eq!(session.status(commit()).await, status::OK);
    assert_eq!(session.close(&file, open).await, status::OK);
    for (name, wanted) in [
        ("SETATTR", set(&file, &[MODE], args().u32(0o644))),
        ("WRITE", call().at(&file).op(WRITE, args().stateid(Stateid::ANONYMOUS).u64(0).u32(2).opaque(b"x"))),
        ("REMOVE", call().at(&root).op(REMOVE, args().opaque(b"ledger"))),
        ("RENAME", call().at(&root).then(SAVEFH).op(RENAME, args().opaque(b"ledger").opaque(b"x"))),
        ("LINK", call().at(&file).then(SAVEFH).at(&root).op(LINK, args().opaque(b"x"))),
        ("an earlier end", set(&file, &[TIME_ACCESS_SET], args().u32(1).u64(until - 1).u32(0))),
    ] {
        assert_eq!(session.status(wanted).await, status::ROFS, "{name}");
    }
    assert_eq!(session.try_open(&root, "ledger", "owner", WRITE_ACCESS, 0).await.unwrap_err(), status::ROFS);
    let (_, open) = session.open(&root, "ledger", "owner", READ_ACCESS, 0).await;
    assert_eq!(session.read(&file, open, 0, 99).await.unwrap().1, "must survive");
}

#[tokio::test(start_paused = true)]
async fn a_file_that_can_only_grow_is_opened_and_appended_to() {
    let stage = Stage::new(45).committing();
    let server = serve(stage.share().await);
    let share = Arc::clone(&server.exports().get(SHARE).expect("the share").files);
    let mut session = ClientSession::new(&server, "client").await;
    let root = session.root().await;
    let (file, open) = session.open(&root, "log", "owner", WRITE_ACCESS, 0).await;
    assert_eq!(session.close(&file, open).await, status::OK);
    let until = 1_800_000_000 + 30 * DAY;
    let commit = set(&file, &[MODE, TIME_ACCESS_SET], args().u32(0o444).u32(1).u64(until).u32(0));
    assert_eq!(session.status(commit).await, status::OK);
    let refused = session.try_open(&root, "log", "owner", WRITE_ACCESS, 0).await.unwrap_err();
    assert_eq!(refused, status::ROFS, "it is committed and cannot grow");
    assert_eq!(session.status(set(&file, &[MODE], args().u32(0o644))).await, status::OK);
    let (_, open) = session.try_open(&root, "log", "owner", WRITE_ACCESS, 0).await.expect("it may grow");
    assert_eq!(session.write(&file, open, 0, b"first").await, status::OK);
    assert_eq!(session.close(&file, open).await, status::OK);
    settle(&stage, &share).await;
    let (_, open) = session.open(&root, "log", "owner", WRITE_ACCESS, 0).await;
    assert_eq!(session.write(&file, open, 0, b"other").await, status::ROFS, "what is archived stays");
    assert_eq!(session.write(&file, open, 5, b" second").await, status::OK);
    assert_eq!(session.close(&file, open).await, status::OK);
    let (_, open) = session.open(&root, "log", "owner", READ_ACCESS, 0).await;
    assert_eq!(session.read(&file, open, 0, 99).await.unwrap().1, "first second");
}

#[tokio::test(start_paused = true)]
async fn the_writer_of_a_silent_client_is_gone() {
    let stage = Stage::new(42).committing();
    let server = serve(stage.share().await);
    let mut session = ClientSession::new(&server, "client").await;
    let root = session.root().await;
    let (file, open) = session.open(&root, "ledger", "owner", WRITE_ACCESS, 0).await;
    session.write(&file, open, 0, b"x").await;
    let mut other = ClientSession::new(&server, "other").await;
    let commit = || set(&file, &[MODE], args().u32(0o444));
    assert_eq!(other.status(commit()).await, status::DELAY);
    tokio::time::advance(LEASE / 2).await;
    assert_eq!(other.status(commit()).await, status::DELAY);
    tokio::time::advance(LEASE / 2).await;
    assert_eq!(other.status(commit()).await, status::OK);
    assert_eq!(session.write(&file, open, 0, b"y").await, status::BADSESSION);
}

#[tokio::test(start_paused = true)]
async fn a_removed_file_stays_until_it_is_closed() {
    let stage = Stage::new(43);
    let server = serve(stage.share().await);
    let mut session = ClientSession::new(&server, "client").await;
    let root = session.root().await;
    let (file, first) = session.open(&root, "a", "one", BOTH_ACCESS, 0).await;
    let (_, second) = session.open(&root, "a", "two", READ_ACCESS, 0).await;
    // An owner that opens twice is one use.
    let (_, first_again) = session.open(&root, "a", "one", READ_ACCESS, 0).await;
    assert_eq!(first_again.other, first.other);
    session.write(&file, first_again, 0, b"still here").await;
    assert_eq!(session.status(call().at(&root).op(REMOVE, args().opaque(b"a"))).await, status::OK);
    assert_eq!(session.read(&file, second, 0, 99).await.unwrap().1, "still here");
    assert_eq!(session.close(&file, first_again).await, status::OK);
    assert_eq!(session.read(&file, second, 0, 99).await.unwrap().1, "still here");
    assert_eq!(session.close(&file, second).await, status::OK);
    assert_eq!(session.status(call().at(&file).get(&[MODE])).await, status::STALE);
}

#[tokio::test(start_paused = true)]
async fn committed_content_survives_a_restart() {
    let stage = Stage::new(44);
    let data = content(7, 300_000);
    let handle = {
        let server = serve(stage.share().await);
        let mut session = ClientSession::new(&server, "client").await;
        let root = session.root().await;
        let (file, open) = session.open(&root, "a", "owner", BOTH_ACCESS, 0).await;
        let write = args().stateid(open).u64(0).u32(0).opaque(&data);
        let whole = call().at(&file).op(WRITE, write).op(COMMIT, args().u64(0).u32(0));
        assert_eq!(session.status(whole).await, status::OK);
        file
    };
    // The share is opened anew, as after a crash: nothing was closed.
    let share = stage.share().await;
    let verifier = share.verifier();
    let server = serve(share);
    let mut session = ClientSession::new(&server, "client").await;
    let root = session.root().await;
    let (file, open) = session.open(&root, "a", "owner", READ_ACCESS, 0).await;
    assert_eq!(file, handle);
    assert!(session.read(&file, open, 0, 300_000).await.unwrap().1 == data);
    let mut answer = session.run(call().at(&file).op(COMMIT, args().u64(0).u32(0))).await;
    answer.done(PUTFH);
    assert_eq!(answer.done(COMMIT).fixed::<8>(), Ok(verifier));
}

#[tokio::test(start_paused = true)]
async fn a_name_that_is_replaced_keeps_its_place_in_a_listing() {
    let stage = Stage::new(9);
    let share = stage.share().await;
    let root = share.root();
    for name in ["b", "a", "c"] {
        file(&share, name, &content(1, 10)).await;
    }
    let names = async |cookie, limit| {
        let listing = share.read_directory(&crate::Caller::ROOT, root, cookie, limit).await.unwrap();
        let last = listing.entries.last().map_or(cookie, |entry| entry.cookie);
        (listing.entries.into_iter().map(|entry| entry.name).collect::<Vec<_>>(), last)
    };
    let (first, cookie) = names(0, 1).await;
    assert_eq!(first, ["b"]);
    share.rename(&crate::Caller::ROOT, (root, b"a"), (root, b"b")).await.unwrap();
    assert_eq!(names(cookie, 10).await.0, ["c"]);
    assert_eq!(names(0, 10).await.0, ["b", "c"]);
}
