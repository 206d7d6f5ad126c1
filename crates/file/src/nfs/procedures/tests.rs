use super::*;
use crate::nfs::export::AwaitedExport;
use crate::nfs::testing::*;
use crate::nfs::xdr::Reader;
use crate::{MemoryFiles, Moment};

const GARBAGE: u32 = 4;

async fn begin() -> (Arc<Server<MemoryFiles>>, Client, Bytes) {
    let server = server();
    let mut client = Client::new(&server);
    let root = client.mount().await;
    (server, client, root)
}

fn put(handle: &[u8], offset: u64, stable: u32, content: &[u8]) -> Arguments {
    args().opaque(handle).u64(offset).u32(content.len() as u32).u32(stable).opaque(content)
}

async fn content(client: &mut Client, handle: &[u8], offset: u64, count: u32) -> (Vec<u8>, bool) {
    let mut results = client.done(READ, args().opaque(handle).u64(offset).u32(count)).await;
    assert!(after(&mut results).is_some());
    let (count, end) = (results.u32().unwrap(), results.bool().unwrap());
    let data = results.opaque(1 << 20).unwrap();
    assert_eq!(count as usize, data.len());
    ends(&results);
    (data.to_vec(), end)
}

fn entry(results: &mut Reader) -> (Bytes, Seen) {
    assert_eq!(results.bool(), Ok(true));
    let handle = results.opaque(64).unwrap();
    let file = after(results).unwrap();
    let (before, directory) = changed(results);
    assert!(before.is_some() && directory.is_some());
    ends(results);
    (handle, file)
}

#[tokio::test(start_paused = true)]
async fn attributes_are_read_and_set() {
    let (_server, mut client, root) = begin().await;
    let file = client.create(&root, "a").await;
    let seen = attributes(&mut client.done(GETATTR, &file).await);
    assert_eq!((seen.kind, seen.mode, seen.links, seen.uid, seen.size), (1, 0o644, 1, 0, 0));
    let call = args().opaque(&file).size(9000).u32(0);
    let (before, seen) = changed(&mut client.done(SETATTR, call).await);
    assert_eq!((before, seen.unwrap().size), (Some(0), 9000));
    let times = args().opaque(&file).u32(0).u32(0).u32(0).u32(0).u32(1).u32(2).u32(7).u32(8).u32(0);
    let (_, seen) = changed(&mut client.done(SETATTR, times).await);
    assert_eq!(seen.unwrap().modified, (7, 8));
}

#[tokio::test(start_paused = true)]
async fn a_guard_refuses_a_file_that_changed() {
    let (_server, mut client, root) = begin().await;
    let file = client.create(&root, "a").await;
    let guarded = |(seconds, nanoseconds)| args().opaque(&file).mode(0o600).u32(1).u32(seconds).u32(nanoseconds);
    let (status, mut results) = client.nfs(SETATTR, guarded((1, 1))).await;
    assert_eq!(status, status::NOT_SYNC);
    let (before, seen) = changed(&mut results);
    let seen = seen.unwrap();
    assert_eq!((before, seen.mode), (None, 0o644));
    client.done(SETATTR, guarded(seen.changed)).await;
}

#[tokio::test(start_paused = true)]
async fn lookup_finds_names_and_the_way_up() {
    let (_server, mut client, root) = begin().await;
    let file = client.create(&root, "a").await;
    for (name, expected) in [("a", &file), (".", &root), ("..", &root)] {
        let mut results = client.done(LOOKUP, args().opaque(&root).opaque(name.as_bytes())).await;
        assert_eq!(results.opaque(64).unwrap(), expected, "{name}");
        assert!(after(&mut results).is_some() && after(&mut results).is_some_and(|seen| seen.kind == 2));
        ends(&results);
    }
    let (status, mut results) = client.nfs(LOOKUP, args().opaque(&root).opaque(b"b")).await;
    assert_eq!(status, status::NOENT);
    assert_eq!(after(&mut results).unwrap().kind, 2);
    ends(&results);
}

#[tokio::test(start_paused = true)]
async fn access_says_what_the_caller_may_do() {
    let (_server, mut client, root) = begin().await;
    let file = client.create(&root, "a").await;
    for (uid, asked, expected) in [(0, 0x3f, 0x0d), (0, 0x01, 0x01), (5, 0x3f, 0x01)] {
        client.uid = uid;
        let mut results = client.done(ACCESS, args().opaque(&file).u32(asked)).await;
        assert!(after(&mut results).is_some());
        assert_eq!(results.u32(), Ok(expected), "user {uid} asked for {asked:#x}");
        ends(&results);
    }
    client.uid = 5;
    let mut results = client.done(ACCESS, args().opaque(&root).u32(0x3f)).await;
    after(&mut results);
    assert_eq!(results.u32(), Ok(0x03));
}

#[tokio::test(start_paused = true)]
async fn a_symbolic_link_keeps_its_target() {
    let (_server, mut client, root) = begin().await;
    let call = args().opaque(&root).opaque(b"link").nothing().opaque(b"../somewhere");
    let (link, seen) = entry(&mut client.done(SYMLINK, call).await);
    assert_eq!(seen.kind, 5);
    let mut results = client.done(READLINK, &link).await;
    assert!(after(&mut results).is_some());
    assert_eq!(results.opaque(99).unwrap(), "../somewhere");
    ends(&results);
    let file = client.create(&root, "a").await;
    assert_eq!(client.nfs(READLINK, &file).await.0, status::INVAL);
}

#[tokio::test(start_paused = true)]
async fn what_was_written_is_read() {
    let (_server, mut client, root) = begin().await;
    let file = client.create(&root, "a").await;
    let mut expected = Vec::new();
    for (number, length) in [1_u64, 4096, 5000, 3, 100_001].into_iter().enumerate() {
        let piece = vec![b'a' + number as u8; length as usize];
        let mut results = client.done(WRITE, put(&file, expected.len() as u64, 2, &piece)).await;
        let (before, seen) = changed(&mut results);
        assert_eq!(before, Some(expected.len() as u64));
        expected.extend(piece);
        assert_eq!(seen.unwrap().size, expected.len() as u64);
        assert_eq!((results.u32(), results.u32()), (Ok(length as u32), Ok(2)));
        results.skip(8).unwrap();
        ends(&results);
    }
    let length = expected.len();
    for (from, to) in [(0, length), (0, 1), (1, 4098), (5, 7), (length - 1, length)] {
        let (data, end) = content(&mut client, &file, from as u64, (to - from) as u32).await;
        assert!(data == expected[from..to], "from {from} to {to}");
        assert_eq!(end, to == length, "from {from} to {to}");
    }
    assert_eq!(content(&mut client, &file, length as u64 - 2, 100).await, (expected[length - 2..].to_vec(), true));
    assert_eq!(content(&mut client, &file, length as u64 + 5, 100).await, (Vec::new(), true));
}

#[tokio::test(start_paused = true)]
async fn a_lost_unstable_write_changes_the_verifier() {
    let (server, mut client, root) = begin().await;
    let file = client.create(&root, "a").await;
    let verifier = |mut results: Reader, skip: usize| {
        changed(&mut results);
        results.skip(skip).unwrap();
        let verifier: [u8; 8] = results.fixed().unwrap();
        ends(&results);
        verifier
    };
    let commit = || args().opaque(&file).u64(0).u32(0);
    let written = verifier(client.done(WRITE, put(&file, 0, 0, b"kept")).await, 8);
    assert_eq!(verifier(client.done(COMMIT, commit()).await, 0), written);
    let written = verifier(client.done(WRITE, put(&file, 0, 0, b"lost")).await, 8);
    server.exports().get(SHARE).unwrap().files.crash();
    assert_ne!(verifier(client.done(COMMIT, commit()).await, 0), written);
    assert_eq!(content(&mut client, &file, 0, 9).await.0, b"kept");
}

#[tokio::test(start_paused = true)]
async fn a_write_whose_length_is_wrong_is_garbage() {
    let (_server, mut client, root) = begin().await;
    let file = client.create(&root, "a").await;
    let call = args().opaque(&file).u64(0).u32(9).u32(2).opaque(b"eight by");
    let xid = client.send(Program::Nfs, WRITE, &call.0).await;
    let mut reply = Reader::new(client.receive().await);
    let words: Vec<u32> = (0..6).map(|_| reply.u32().unwrap()).collect();
    assert_eq!(words, [xid, 1, 0, 0, 0, GARBAGE]);
    let (status, mut results) = client.nfs(WRITE, put(&file, u64::MAX - 3, 2, b"beyond")).await;
    assert_eq!(status, status::FBIG);
    assert_eq!(changed(&mut results).1.unwrap().size, 0);
}

#[tokio::test(start_paused = true)]
async fn files_are_created_in_three_ways() {
    let (_server, mut client, root) = begin().await;
    let create = |how: u32| args().opaque(&root).opaque(b"a").u32(how);
    let (first, seen) = entry(&mut client.done(CREATE, create(1).mode(0o640)).await);
    assert_eq!(seen.mode, 0o640);
    assert_eq!(client.nfs(CREATE, create(1).mode(0o600)).await.0, status::EXIST);
    let (again, _) = entry(&mut client.done(CREATE, create(0).nothing()).await);
    assert_eq!(again, first);
    let exclusive = |verifier: &[u8]| args().opaque(&root).opaque(b"x").u32(2).fixed(verifier);
    let (made, _) = entry(&mut client.done(CREATE, exclusive(b"verifier")).await);
    let (same, _) = entry(&mut client.done(CREATE, exclusive(b"verifier")).await);
    assert_eq!(made, same);
    let (status, mut results) = client.nfs(CREATE, exclusive(b"another!")).await;
    assert_eq!(status, status::EXIST);
    assert!(matches!(changed(&mut results), (None, Some(seen)) if seen.kind == 2));
    ends(&results);
}

#[tokio::test(start_paused = true)]
async fn directories_and_special_files_are_made() {
    let (_server, mut client, root) = begin().await;
    let made = client.done(MKDIR, args().opaque(&root).opaque(b"d").mode(0o750)).await;
    let (directory, seen) = entry(&mut made.clone());
    assert_eq!((seen.kind, seen.mode, seen.links), (2, 0o750, 2));
    for (kind, numbers) in [(3, true), (4, true), (6, false), (7, false)] {
        let name = format!("special {kind}");
        let call = args().opaque(&directory).opaque(name.as_bytes()).u32(kind).mode(0o600);
        let call = if numbers { call.u32(8).u32(17) } else { call };
        let (_, seen) = entry(&mut client.done(MKNOD, call).await);
        assert_eq!(seen.kind, kind);
    }
    let call = args().opaque(&directory).opaque(b"regular").u32(1).mode(0o600);
    assert_eq!(client.nfs(MKNOD, call).await.0, status::BADTYPE);
}

#[tokio::test(start_paused = true)]
async fn names_are_removed_renamed_and_linked() {
    let (_server, mut client, root) = begin().await;
    let file = client.create(&root, "a").await;
    let (directory, _) = entry(&mut client.done(MKDIR, args().opaque(&root).opaque(b"d").mode(0o755)).await);

    let mut results = client.done(LINK, args().opaque(&file).opaque(&directory).opaque(b"b")).await;
    assert_eq!(after(&mut results).unwrap().links, 2);
    assert!(changed(&mut results).1.is_some());
    ends(&results);

    let mut results = client.done(RENAME, args().opaque(&directory).opaque(b"b").opaque(&root).opaque(b"c")).await;
    assert_eq!(changed(&mut results).1.unwrap().kind, 2);
    assert_eq!(changed(&mut results).1.unwrap().kind, 2);
    ends(&results);

    let (status, mut results) = client.nfs(REMOVE, args().opaque(&root).opaque(b"d")).await;
    assert_eq!(status, status::ISDIR);
    assert!(matches!(changed(&mut results), (None, Some(_))));
    assert_eq!(client.nfs(RMDIR, args().opaque(&root).opaque(b"a")).await.0, status::NOTDIR);
    for (procedure, name) in [(RMDIR, "d"), (REMOVE, "a"), (REMOVE, "c")] {
        let mut results = client.done(procedure, args().opaque(&root).opaque(name.as_bytes())).await;
        assert!(matches!(changed(&mut results), (Some(_), Some(_))), "{name}");
        ends(&results);
    }
    assert_eq!(client.nfs(GETATTR, &file).await.0, status::STALE);
    let (status, mut results) = client.nfs(RENAME, args().opaque(&root).opaque(b"no").opaque(&root).opaque(b"x")).await;
    assert_eq!(status, status::NOENT);
    assert!(matches!((changed(&mut results), changed(&mut results)), ((None, Some(_)), (None, Some(_)))));
    ends(&results);
}

#[tokio::test(start_paused = true)]
async fn two_handles_belong_to_one_share() {
    let (server, mut client, root) = begin().await;
    let other = server.handles.encode(Handle { share: SHARE + 1, inode: Inode(1) });
    let (status, mut results) = client.nfs(RENAME, args().opaque(&root).opaque(b"a").opaque(&other).opaque(b"b")).await;
    assert_eq!(status, status::XDEV);
    assert!(matches!((changed(&mut results), changed(&mut results)), ((None, Some(_)), (None, None))));
    let (status, _) = client.nfs(LINK, args().opaque(&root).opaque(b"no handle").opaque(b"b")).await;
    assert_eq!(status, status::BADHANDLE);
}

struct Listed {
    names: Vec<String>,
    last: u64,
    end: bool,
}

/// Reads one answer of READDIR or READDIRPLUS.
fn listed(mut results: Reader, plus: bool) -> Listed {
    assert_eq!(after(&mut results).unwrap().kind, 2);
    assert_eq!(results.fixed(), Ok([0; 8]));
    let (mut names, mut last) = (Vec::new(), 0);
    while results.bool().unwrap() {
        let inode = results.u64().unwrap();
        names.push(String::from_utf8(results.opaque(255).unwrap().to_vec()).unwrap());
        last = results.u64().unwrap();
        if plus {
            assert_eq!(after(&mut results).unwrap().inode, inode);
            assert_eq!(results.bool(), Ok(true));
            assert_eq!(results.opaque(64).unwrap().len(), handle::LENGTH);
        }
    }
    let end = results.bool().unwrap();
    ends(&results);
    Listed { names, last, end }
}

use crate::nfs::handle;

#[tokio::test(start_paused = true)]
async fn a_directory_is_listed_in_parts_of_any_size() {
    let (_server, mut client, root) = begin().await;
    let mut expected = vec![".".to_owned(), "..".to_owned()];
    for number in 0..40 {
        let name = format!("{number:0width$}", width = 2 + number * 3);
        client.create(&root, &name).await;
        expected.push(name);
    }
    expected.sort();
    for (plus, size) in [(false, 400), (false, 600), (false, 1 << 20), (true, 500), (true, 900), (true, 1 << 20)] {
        let (mut cookie, mut names, mut parts) = (0, Vec::new(), 0);
        loop {
            let call = args().opaque(&root).u64(cookie).u64(0).u32(size);
            let (procedure, call) = if plus { (READDIRPLUS, call.u32(size)) } else { (READDIR, call) };
            let results = client.done(procedure, call).await;
            // The status was read from them.
            assert!(results.remaining() + 4 <= size as usize, "{} bytes of {size}", results.remaining() + 4);
            let part = listed(results, plus);
            parts += 1;
            assert!(part.end || !part.names.is_empty());
            names.extend(part.names);
            cookie = part.last;
            if part.end {
                break;
            }
        }
        assert_eq!(names[..2], [".", ".."]);
        names.sort();
        assert_eq!(names, expected, "parts of {size}");
        assert_eq!(parts == 1, size == 1 << 20);
    }
}

#[tokio::test(start_paused = true)]
async fn dircount_bounds_names_alone() {
    let (_server, mut client, root) = begin().await;
    for number in 0..10 {
        client.create(&root, &format!("name {number}")).await;
    }
    let call = args().opaque(&root).u64(0).u64(0).u32(100).u32(1 << 16);
    let part = listed(client.done(READDIRPLUS, call).await, true);
    // An entry without its attributes and handle has 28 bytes and more.
    assert_eq!((part.names.len(), part.end), (3, false));
}

#[tokio::test(start_paused = true)]
async fn an_answer_too_small_for_one_entry_is_refused() {
    let (_server, mut client, root) = begin().await;
    let call = args().opaque(&root).u64(0).u64(0).u32(120);
    let (status, mut results) = client.nfs(READDIR, call).await;
    assert_eq!(status, status::TOOSMALL);
    assert!(after(&mut results).is_some());
    ends(&results);
    let file = client.create(&root, "a").await;
    assert_eq!(client.nfs(READDIR, args().opaque(&file).u64(0).u64(0).u32(4096)).await.0, status::NOTDIR);
}

#[tokio::test(start_paused = true)]
async fn a_share_tells_its_space_and_limits() {
    let (_server, mut client, root) = begin().await;
    let mut results = client.done(FSSTAT, &root).await;
    assert!(after(&mut results).is_some());
    let total = results.u64().unwrap();
    assert!(total > 0 && results.u64().unwrap() <= total);
    results.skip(8 * 4 + 4).unwrap();
    ends(&results);
    let mut results = client.done(FSINFO, &root).await;
    assert!(after(&mut results).is_some());
    let words: Vec<u32> = (0..7).map(|_| results.u32().unwrap()).collect();
    assert_eq!(words, [1 << 20, 1 << 20, 4096, 1 << 20, 1 << 20, 4096, 64 << 10]);
    assert_eq!(results.u64(), Ok(crate::model::SIZE_MAX));
    assert_eq!((results.u32(), results.u32(), results.u32()), (Ok(0), Ok(1), Ok(0x1b)));
    ends(&results);
    let mut results = client.done(PATHCONF, &root).await;
    assert!(after(&mut results).is_some());
    let words: Vec<u32> = (0..6).map(|_| results.u32().unwrap()).collect();
    assert_eq!(words, [65_000, 255, 1, 1, 0, 1]);
    ends(&results);
}

/// A client drops the files of a stale handle, and waits where the server says so.
#[tokio::test(start_paused = true)]
async fn clients_wait_for_a_share_that_is_to_open() {
    let (server, mut client, root) = begin().await;
    let late = server.handles.encode(Handle { share: SHARE + 1, inode: Inode(1) });
    assert_eq!(client.nfs(GETATTR, &late[..]).await.0, status::STALE);
    let expected = || AwaitedExport { path: "/late".to_owned(), rules: Vec::new() };
    let awaited = || [SHARE, SHARE + 1].map(|share| (share, expected())).into();
    server.expect(awaited());
    let change = server.exports_change();
    server.expect(awaited());
    assert_eq!(server.exports_change(), change, "nothing is new");
    assert_eq!(client.nfs(GETATTR, &late[..]).await.0, status::JUKEBOX);
    client.done(GETATTR, &root).await;
    server.remove(SHARE + 1);
    assert_eq!(client.nfs(GETATTR, &late[..]).await.0, status::STALE);
}

#[tokio::test(start_paused = true)]
async fn wrong_handles_are_bad_and_gone_ones_stale() {
    let (server, mut client, root) = begin().await;
    let mut forged = root.to_vec();
    forged[7] ^= 1;
    let absent = server.handles.encode(Handle { share: SHARE, inode: Inode(4711) });
    let unserved = server.handles.encode(Handle { share: SHARE + 1, inode: Inode(1) });
    for (handle, expected) in [
        (&forged[..], status::BADHANDLE),
        (b"", status::BADHANDLE),
        (&[0; 64], status::BADHANDLE),
        (&absent, status::STALE),
        (&unserved, status::STALE),
    ] {
        for (procedure, beside) in FAILURES.iter().enumerate().skip(1) {
            // Enough of everything, so that no argument is missing.
            let rest = args().opaque(handle).fixed(&[0; 160]);
            let (status, mut results) = client.nfs(procedure as u32, rest).await;
            // LINK and RENAME may meet their second handle first, which is empty here.
            let second = matches!(procedure as u32, RENAME | LINK | MKNOD) && status != expected;
            let empty = matches!(status, status::BADHANDLE | status::BADTYPE);
            assert!(status == expected || second && empty, "{procedure}: {status}");
            for beside in *beside {
                match beside {
                    Beside::After(_) => assert_eq!(after(&mut results), None),
                    Beside::Changed(_) => assert_eq!(changed(&mut results), (None, None)),
                }
            }
            ends(&results);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_read_only_export_refuses_every_change() {
    let files = MemoryFiles::new(clock);
    let rule = Rule { read_only: true, ..rule() };
    let server = server_with(files, rule, Default::default());
    let mut client = Client::new(&server);
    let root = client.mount().await;
    for procedure in 1..22 {
        let changes = matches!(procedure, SETATTR | WRITE..=LINK | COMMIT);
        let (status, _) = client.nfs(procedure, args().opaque(&root).fixed(&[0; 160])).await;
        assert_eq!(status == status::ROFS, changes, "{procedure}");
    }
    let mut results = client.done(ACCESS, args().opaque(&root).u32(0x3f)).await;
    after(&mut results);
    assert_eq!(results.u32(), Ok(0x03));
}

use crate::nfs::export::{Rule, Squash};

#[tokio::test(start_paused = true)]
async fn squashed_users_are_the_anonymous_one() {
    for (squash, uid, expected) in
        [(Squash::None, 0, 0), (Squash::Root, 0, 1234), (Squash::Root, 7, 7), (Squash::All, 7, 1234)]
    {
        let rule = Rule { squash, anonymous_uid: 1234, ..rule() };
        let server = server_with(MemoryFiles::new(clock), rule, Default::default());
        let files = server.exports().get(SHARE).unwrap().files.clone();
        let open = crate::Changes { mode: Some(0o777), ..Default::default() };
        files.set_attributes(&Caller::ROOT, files.root(), open, None).await.unwrap();
        let mut client = Client::new(&server);
        let root = client.mount().await;
        client.uid = uid;
        let file = client.create(&root, "a").await;
        let seen = attributes(&mut client.done(GETATTR, &file).await);
        assert_eq!(seen.uid, expected, "{squash:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_of_another_network_is_refused_after_the_mount() {
    let (server, mut client, root) = begin().await;
    client.done(GETATTR, &root).await;
    let mut other = Client::from(&server, "192.168.0.1:700".parse().unwrap(), false);
    assert_eq!(other.nfs(GETATTR, &root).await.0, status::ACCES);
}

#[tokio::test(start_paused = true)]
async fn a_repeated_call_gets_the_first_answer() {
    let (server, mut client, root) = begin().await;
    client.create(&root, "a").await;
    let call = args().opaque(&root).opaque(b"a");
    let record = client.record(Program::Nfs, REMOVE, &call.0);
    let mut answers = Vec::new();
    for _ in 0..3 {
        tokio::io::AsyncWriteExt::write_all(&mut client.stream, &record).await.unwrap();
        answers.push(client.receive().await);
    }
    assert_eq!(answers[0], answers[1]);
    assert_eq!(answers[0], answers[2]);
    assert_eq!(answers[0][24..28], [0; 4]);
    assert_eq!(server.counters().repeated.load(std::sync::atomic::Ordering::Relaxed), 2);
    // The same with another xid is another call.
    assert_eq!(client.nfs(REMOVE, call).await.0, status::NOENT);
}

#[test]
fn each_failure_has_a_status_of_its_own() {
    let statuses: std::collections::BTreeSet<u32> = failures().iter().map(status::of).collect();
    // Damaged and Stopped are both IO.
    assert_eq!(statuses.len(), failures().len() - 1);
    assert!(!statuses.contains(&status::OK) && !statuses.contains(&status::SERVERFAULT));
}

/// The bytes of one call and its answer, as a capture of the wire would show them.
#[tokio::test(start_paused = true)]
async fn the_wire_of_a_read() {
    let (server, mut client, root) = begin().await;
    let file = client.create(&root, "a").await;
    client.done(WRITE, put(&file, 0, 2, b"hello")).await;
    let inode = server.handles.decode(&file).unwrap().inode.0 as u8;
    client.xid = 0x0102_0304 - 1;
    client.send(Program::Nfs, READ, &args().opaque(&file).u64(0).u32(5).0).await;
    let mut answer = [0; 140];
    tokio::io::AsyncReadExt::read_exact(&mut client.stream, &mut answer).await.unwrap();
    let moment: Moment = clock();
    let mut expected: Vec<u8> = vec![0x80, 0, 0, 136, 1, 2, 3, 4, 0, 0, 0, 1];
    expected.extend([0; 16]); // accepted, no verifier, success
    expected.extend([0, 0, 0, 0]); // NFS3_OK
    expected.extend([0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0x01, 0xa4, 0, 0, 0, 1]); // a file, 0644, one name
    expected.extend([0; 8]); // root's
    expected.extend([0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0x10, 0]); // 5 bytes in a page
    expected.extend([0; 8]); // no device
    expected.extend([0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, inode]);
    for _ in 0..3 {
        expected.extend((moment.seconds as u32).to_be_bytes());
        expected.extend(moment.nanoseconds.to_be_bytes());
    }
    expected.extend([0, 0, 0, 5, 0, 0, 0, 1, 0, 0, 0, 5]);
    expected.extend(b"hello\0\0\0");
    assert_eq!(answer[..], expected);
}
