//! Attributes, access and content.

use crate::nfs::testing::{Arguments, Client, args, rule, server_with};
use crate::nfs::v4::attributes::*;
use crate::nfs::v4::number::*;
use crate::nfs::v4::stateid::Stateid;
use crate::nfs::v4::testing::*;
use crate::nfs::v4::{LEASE, status};
use crate::nfs::{Options, Rule};
use crate::{MemoryFiles, nfs};

fn set(file: &[u8], attributes: &[u32], list: Arguments) -> OperationCall {
    call().at(file).op(SETATTR, args().u64(0).u64(0).set(attributes, list))
}

#[tokio::test(start_paused = true)]
async fn required_attributes_are_answered() {
    let (_server, mut session, root) = begin().await;
    let (file, stateid) = session.open(&root, "a", "o", WRITE_ACCESS, 0).await;
    session.write(&file, stateid, 0, &[7; 5000]).await;
    let wanted = [SUPPORTED_ATTRS, TYPE, FH_EXPIRE_TYPE, CHANGE, SIZE, LINK_SUPPORT, SYMLINK_SUPPORT, NAMED_ATTR, FSID];
    let mut answer = session.run(call().at(&file).get(&wanted)).await;
    answer.done(PUTFH);
    let mut shown = answer.attributes(&wanted);
    assert_eq!(shown.u32(), Ok(3));
    let words = [shown.u32().unwrap(), shown.u32().unwrap(), shown.u32().unwrap()];
    for number in READABLE.iter().chain(SETTABLE.iter()) {
        assert!(words[number as usize / 32] & 1 << (number % 32) != 0, "attribute {number} is supported");
    }
    assert_eq!((shown.u32(), shown.u32()), (Ok(1), Ok(0)));
    let change = shown.u64().unwrap();
    assert_eq!((shown.u64(), shown.u32(), shown.u32(), shown.u32()), (Ok(5000), Ok(1), Ok(1), Ok(0)));
    assert_eq!((shown.u64(), shown.u64()), (Ok(1), Ok(9)));
    let wanted =
        [UNIQUE_HANDLES, LEASE_TIME, RDATTR_ERROR, FILEHANDLE, FILEID, MAXREAD, OWNER, SPACE_USED, SUPPATTR_EXCLCREAT];
    let mut answer = session.run(call().at(&file).get(&wanted)).await;
    answer.done(PUTFH);
    let mut shown = answer.attributes(&wanted);
    assert_eq!((shown.u32(), shown.u32(), shown.u32()), (Ok(1), Ok(LEASE.as_secs() as u32), Ok(0)));
    assert_eq!(shown.opaque(128).unwrap(), file);
    shown.u64().unwrap();
    assert_eq!((shown.u64(), shown.opaque(9).unwrap().as_ref()), (Ok(1 << 20), &b"0"[..]));
    assert_eq!(shown.u64(), Ok(8192));
    assert_eq!(shown.u32(), Ok(2));
    shown.skip(8).unwrap();
    nfs::testing::ends(&shown);
    session.write(&file, stateid, 0, b"x").await;
    let mut answer = session.run(call().at(&file).get(&[CHANGE])).await;
    answer.done(PUTFH);
    assert!(answer.attributes(&[CHANGE]).u64().unwrap() > change);
    // Unknown attributes are left out, and those that can only be set are refused.
    let mut answer =
        session.run(call().at(&file).op(GETATTR, args().u32(5).u32(0).u32(1 << 30).u32(1 << 31).u32(9).u32(9))).await;
    answer.done(PUTFH);
    answer.attributes(&[]);
    assert_eq!(session.status(call().at(&file).get(&[TIME_MODIFY_SET])).await, status::INVAL);
}

#[tokio::test(start_paused = true)]
async fn attributes_are_set() {
    let (_server, mut session, root) = begin().await;
    let (file, _) = session.open(&root, "a", "o", WRITE_ACCESS, 0).await;
    let everything = [SIZE, MODE, OWNER, OWNER_GROUP, TIME_ACCESS_SET, TIME_MODIFY_SET];
    let list = args().u64(70).u32(0o600).opaque(b"12").opaque(b"13").u32(1).u64(5).u32(6).u32(0);
    let mut answer = session.run(set(&file, &everything, list)).await;
    answer.done(PUTFH);
    answer.done(SETATTR);
    let shown = [SIZE, MODE, OWNER, OWNER_GROUP, TIME_ACCESS];
    let mut answer = session.run(call().at(&file).get(&shown)).await;
    answer.done(PUTFH);
    let mut shown = answer.attributes(&shown);
    assert_eq!((shown.u64(), shown.u32()), (Ok(70), Ok(0o600)));
    assert_eq!((shown.opaque(9).unwrap(), shown.opaque(9).unwrap()), ("12".into(), "13".into()));
    assert_eq!((shown.u64(), shown.u32()), (Ok(5), Ok(6)));
    let table = [
        ("a name", set(&file, &[OWNER], args().opaque(b"root@localdomain")), status::BADOWNER),
        ("an empty owner", set(&file, &[OWNER], args().opaque(b"")), status::BADOWNER),
        ("a sign", set(&file, &[OWNER_GROUP], args().opaque(b"+1")), status::BADOWNER),
        ("too large a number", set(&file, &[OWNER], args().opaque(b"4294967296")), status::BADOWNER),
        ("an attribute to read", set(&file, &[FILEID], args().u64(1)), status::INVAL),
        ("an unknown attribute", set(&file, &[12], args().u32(0)), status::ATTRNOTSUPP),
        ("a list that is too short", set(&file, &[SIZE], args().u32(0)), status::BADXDR),
        ("a list that is too long", set(&file, &[MODE], args().u64(0)), status::BADXDR),
        ("bits that are no mode", set(&file, &[MODE], args().u32(0o10000)), status::INVAL),
        (
            "too many nanoseconds",
            set(&file, &[TIME_ACCESS_SET], args().u32(1).u64(0).u32(1_000_000_000)),
            status::INVAL,
        ),
        ("no such way to set a time", set(&file, &[TIME_ACCESS_SET], args().u32(2)), status::BADXDR),
        ("the size of a directory", set(&root, &[SIZE], args().u64(0)), status::ISDIR),
    ];
    for (name, wanted, expected) in table {
        let mut answer = session.run(wanted).await;
        answer.done(PUTFH);
        let found = answer.next(SETATTR);
        assert!(found == expected || expected == status::ISDIR && found == status::INVAL, "{name}: {found}");
        assert_eq!(answer.reader.u32(), Ok(0), "{name}: nothing was set");
        answer.ends();
    }
}

#[tokio::test(start_paused = true)]
async fn verify_and_nverify_compare() {
    let (_server, mut session, root) = begin().await;
    let (file, stateid) = session.open(&root, "a", "o", WRITE_ACCESS, 0).await;
    session.write(&file, stateid, 0, b"12345").await;
    let compare = |number, size: u64| call().at(&file).op(number, args().set(&[SIZE], args().u64(size)));
    for (number, size, expected) in
        [(VERIFY, 5, status::OK), (VERIFY, 6, status::NOT_SAME), (NVERIFY, 5, status::SAME), (NVERIFY, 6, status::OK)]
    {
        assert_eq!(session.status(compare(number, size)).await, expected, "operation {number}, size {size}");
    }
    for (attribute, expected) in
        [(12, status::ATTRNOTSUPP), (RDATTR_ERROR, status::INVAL), (TIME_ACCESS_SET, status::INVAL)]
    {
        let wanted = call().at(&file).op(VERIFY, args().set(&[attribute], args().u32(0)));
        assert_eq!(session.status(wanted).await, expected, "attribute {attribute}");
    }
}

#[tokio::test(start_paused = true)]
async fn access_says_what_the_caller_may_do() {
    let (_server, mut session, root) = begin().await;
    let (file, _) = session.open(&root, "a", "o", WRITE_ACCESS, 0).await;
    for (uid, asked, expected) in [(0, 0x3f, 0x0d), (0, 0xff01, 0x01), (5, 0x3f, 0x01)] {
        session.wire.uid = uid;
        let mut answer = session.run(call().at(&file).op(ACCESS, args().u32(asked))).await;
        answer.done(PUTFH);
        let reader = answer.done(ACCESS);
        assert_eq!((reader.u32(), reader.u32()), (Ok(asked & 0x3f), Ok(expected)), "user {uid} asked for {asked:#x}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_written_is_read() {
    let (_server, mut session, root) = begin().await;
    let (file, stateid) = session.open(&root, "a", "o", BOTH_ACCESS, 0).await;
    let content: Vec<u8> = (0..200_001_u32).map(|number| (number % 251) as u8).collect();
    assert_eq!(session.write(&file, stateid, 0, &content).await, status::OK);
    for (offset, count) in [(0, 200_001), (0, 1), (1, 4098), (199_999, 2), (3, 5)] {
        let (end, read) = session.read(&file, stateid, offset, count).await.unwrap();
        let (from, to) = (offset as usize, offset as usize + count as usize);
        assert!(read == content[from..to], "{count} bytes from {offset}");
        assert_eq!(end, to == content.len(), "{count} bytes from {offset}");
    }
    assert_eq!(session.read(&file, stateid, 200_001, 9).await.unwrap(), (true, "".into()));
    // A read of another form has the room of other results, and answers what fits.
    let read = call().at(&file).get(&[TYPE]).op(READ, args().stateid(stateid).u64(0).u32(200_001)).then(GETFH);
    session.sequences[1] += 1;
    let mut answer = session.repeat(1, session.sequences[1], false, read).await;
    answer.done(PUTFH);
    answer.attributes(&[TYPE]);
    let reader = answer.done(READ);
    assert_eq!(reader.bool(), Ok(false));
    let read = reader.opaque(1 << 20).unwrap();
    assert!((60_000..65_536).contains(&read.len()) && read == content[..read.len()], "{} bytes", read.len());
    // No room was left for the handle.
    assert_eq!(answer.next(GETFH), status::REP_TOO_BIG);
}

#[tokio::test(start_paused = true)]
async fn writes_and_commits_name_the_same_verifier() {
    let (server, mut session, root) = begin().await;
    let (file, stateid) = session.open(&root, "a", "o", BOTH_ACCESS, 0).await;
    let write = |stable: u32| call().at(&file).op(WRITE, args().stateid(stateid).u64(0).u32(stable).opaque(b"abc"));
    let mut verifiers = Vec::new();
    for stable in [0, 1, 2] {
        let mut answer = session.run(write(stable)).await;
        answer.done(PUTFH);
        let reader = answer.done(WRITE);
        assert_eq!((reader.u32(), reader.u32()), (Ok(3), Ok(stable)));
        verifiers.push(reader.u64().unwrap());
        answer.ends();
    }
    let commit = || call().at(&file).op(COMMIT, args().u64(0).u32(0));
    session.run(write(0)).await;
    let exports = server.exports();
    let files = &exports.get(nfs::testing::SHARE).unwrap().files;
    for lost in [false, true] {
        if lost {
            session.run(write(0)).await;
            files.crash();
        }
        let mut answer = session.run(commit()).await;
        answer.done(PUTFH);
        let same = answer.done(COMMIT).u64().unwrap() == verifiers[0];
        assert_eq!(same, !lost);
    }
    assert_eq!(session.status(write(3)).await, status::BADXDR);
}

#[tokio::test(start_paused = true)]
async fn only_regular_files_have_content() {
    let (_server, mut session, root) = begin().await;
    for (kind, name) in [(2, "dir"), (5, "link"), (7, "pipe")] {
        let head = if kind == 5 { args().u32(kind).opaque(b"t") } else { args().u32(kind) };
        session.run(call().at(&root).op(CREATE, head.opaque(name.as_bytes()).set(&[MODE], args().u32(0o666)))).await;
    }
    let anonymous = || args().stateid(Stateid::ANONYMOUS).u64(0);
    for (name, expected) in [("dir", status::ISDIR), ("link", status::SYMLINK), ("pipe", status::WRONG_TYPE)] {
        let open = args().open(1, 0, "o").u32(0).u32(0).opaque(name.as_bytes());
        let at = || call().at(&root).lookup(name);
        for (operation, wanted) in [
            ("READ", at().op(READ, anonymous().u32(1))),
            ("WRITE", at().op(WRITE, anonymous().u32(2).opaque(b"x"))),
            ("COMMIT", at().op(COMMIT, args().u64(0).u32(0))),
            ("OPEN", call().at(&root).op(OPEN, open)),
            ("LOCKT", at().op(LOCKT, args().u32(1).u64(0).u64(1).u64(0).opaque(b"o"))),
        ] {
            assert_eq!(session.status(wanted).await, expected, "{operation} of {name}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_read_only_export_refuses_changes() {
    let read_only = Rule { read_only: true, ..rule() };
    let options = Options { grace: std::time::Duration::ZERO, ..Options::default() };
    let server = server_with(MemoryFiles::new(nfs::testing::clock), read_only, options);
    let mut session = ClientSession::new(&server, "client").await;
    let root = session.root().await;
    for (name, wanted) in [
        ("CREATE", call().at(&root).op(CREATE, args().u32(2).opaque(b"x").set(&[], args()))),
        ("REMOVE", call().at(&root).op(REMOVE, args().opaque(b"x"))),
        ("SETATTR", set(&root, &[MODE], args().u32(0))),
        ("RENAME", call().at(&root).then(SAVEFH).op(RENAME, args().opaque(b"x").opaque(b"y"))),
        ("LINK", call().at(&root).then(SAVEFH).op(LINK, args().opaque(b"x"))),
        ("OPEN to write", call().at(&root).op(OPEN, args().open(2, 0, "o").u32(0).u32(0).opaque(b"x"))),
        ("WRITE", call().at(&root).op(WRITE, args().u64(0).u64(0).u64(0).u32(0).opaque(b"x"))),
        ("COMMIT", call().at(&root).op(COMMIT, args().u64(0).u32(0))),
    ] {
        assert_eq!(session.status(wanted).await, status::ROFS, "{name}");
    }
    let mut answer = session.run(call().at(&root).op(ACCESS, args().u32(0x3f))).await;
    answer.done(PUTFH);
    let reader = answer.done(ACCESS);
    assert_eq!((reader.u32(), reader.u32()), (Ok(0x3f), Ok(0x03)));
}

#[tokio::test(start_paused = true)]
async fn both_versions_serve_the_same_files() {
    let (server, mut session, root) = begin().await;
    let (file, stateid) = session.open(&root, "a", "o", WRITE_ACCESS, 0).await;
    session.write(&file, stateid, 0, b"by version 4.1").await;
    let mut older = Client::new(&server);
    assert_eq!(older.mount().await, root);
    let mut results = older.done(nfs::procedures::READ, args().opaque(&file).u64(0).u32(99)).await;
    nfs::testing::after(&mut results);
    results.skip(8).unwrap();
    assert_eq!(results.opaque(99).unwrap(), "by version 4.1");
}
