//! Names, directories, and the tree above the exports.

use bytes::Bytes;

use crate::nfs::Options;
use crate::nfs::export::Export;
use crate::nfs::testing::{SHARE, args, clock, rule, server_with};
use crate::nfs::v4::number::*;
use crate::nfs::v4::testing::*;
use crate::nfs::v4::{attributes, status};
use crate::nfs::xdr::Reader;
use crate::{MemoryFiles, nfs};

/// READDIR from a cookie: names with cookies, and whether the end was reached.
async fn list(
    session: &mut ClientSession,
    directory: &[u8],
    cookie: u64,
    most: u32,
) -> Result<(Vec<(Bytes, u64)>, bool), u32> {
    let arguments = args().u64(cookie).u64(0).u32(most).u32(most).bitmap(&[attributes::FILEID, attributes::TYPE]);
    let mut answer = session.run(call().at(directory).op(READDIR, arguments)).await;
    answer.done(PUTFH);
    match answer.next(READDIR) {
        status::OK => {}
        status => return Err(status),
    }
    let before = answer.reader.remaining();
    let reader = &mut answer.reader;
    reader.skip(8).unwrap();
    let mut entries = Vec::new();
    while reader.bool().unwrap() {
        let cookie = reader.u64().unwrap();
        entries.push((reader.opaque(255).unwrap(), cookie));
        assert_eq!((reader.u32(), reader.u32()), (Ok(1), Ok(1 << 1 | 1 << 20)));
        assert_eq!(reader.opaque(99).unwrap().len(), 12);
    }
    let end = reader.bool().unwrap();
    assert!(before - reader.remaining() <= most as usize, "more than asked for");
    answer.ends();
    Ok((entries, end))
}

fn make(kind: u32, name: &str) -> (u32, nfs::testing::Arguments) {
    let head = args().u32(kind);
    let head = match kind {
        5 => head.opaque(b"target"),
        3 | 4 => head.u32(8).u32(1),
        _ => head,
    };
    (CREATE, head.opaque(name.as_bytes()).set(&[attributes::MODE], args().u32(0o750)))
}

#[tokio::test(start_paused = true)]
async fn every_kind_is_made_looked_up_and_removed() {
    let (_server, mut session, root) = begin().await;
    for (kind, name) in [(2, "dir"), (5, "link"), (3, "block"), (4, "char"), (6, "socket"), (7, "pipe")] {
        let (number, arguments) = make(kind, name);
        let mut answer = session
            .run(call().at(&root).op(number, arguments).get(&[attributes::TYPE, attributes::MODE, attributes::RAWDEV]))
            .await;
        answer.done(PUTFH);
        let reader = answer.done(CREATE);
        assert_eq!(reader.bool(), Ok(true));
        let (before, after) = (reader.u64().unwrap(), reader.u64().unwrap());
        assert!(before < after, "{name}: the directory changed from {before} to {after}");
        assert_eq!((reader.u32(), reader.u32(), reader.u32()), (Ok(2), Ok(0), Ok(2)), "{name}: the mode was set");
        let mut shown = answer.attributes(&[attributes::TYPE, attributes::MODE, attributes::RAWDEV]);
        let mode = if kind == 5 { 0o777 } else { 0o750 };
        assert_eq!((shown.u32(), shown.u32()), (Ok(kind), Ok(mode)), "{name}");
        assert_eq!(shown.u64(), Ok(if matches!(kind, 3 | 4) { 8 << 32 | 1 } else { 0 }), "{name}");
        assert_eq!(session.status(call().at(&root).lookup(name)).await, status::OK);
        let again = make(kind, name);
        assert_eq!(session.status(call().at(&root).op(again.0, again.1)).await, status::EXIST);
    }
    let mut answer = session.run(call().at(&root).lookup("link").then(READLINK)).await;
    answer.done(PUTFH);
    answer.done(LOOKUP);
    assert_eq!(answer.done(READLINK).opaque(99).unwrap(), "target");
    let at = |name: &str| call().at(&root).lookup(name);
    for (name, wanted, expected) in [
        ("LOOKUP in a link", at("link").lookup("x"), status::SYMLINK),
        ("LOOKUP in a pipe", at("pipe").lookup("x"), status::NOTDIR),
        ("LOOKUPP of a pipe", at("pipe").then(LOOKUPP), status::NOTDIR),
        ("READLINK of a directory", at("dir").then(READLINK), status::WRONG_TYPE),
        (
            "a regular file by CREATE",
            call().at(&root).op(CREATE, args().u32(1).opaque(b"x").set(&[], args())),
            status::BADTYPE,
        ),
        (
            "a link without a target",
            call().at(&root).op(CREATE, args().u32(5).opaque(b"").opaque(b"x").set(&[], args())),
            status::INVAL,
        ),
        ("no such parent", at("dir").then(LOOKUPP).then(LOOKUPP).then(LOOKUPP), status::NOENT),
    ] {
        assert_eq!(session.status(wanted).await, expected, "{name}");
    }
    for name in ["dir", "link", "block", "char", "socket", "pipe"] {
        let remove = || call().at(&root).op(REMOVE, args().opaque(name.as_bytes()));
        assert_eq!(session.status(remove()).await, status::OK, "{name}");
        assert_eq!(session.status(remove()).await, status::NOENT, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn names_that_cannot_be() {
    let (_server, mut session, root) = begin().await;
    let long = [b'n'; 256];
    let table: [(&[u8], u32, u32); 7] = [
        (b"", status::INVAL, status::INVAL),
        (b".", status::BADNAME, status::BADNAME),
        (b"..", status::BADNAME, status::BADNAME),
        (b"a/b", status::BADCHAR, status::BADCHAR),
        (b"a\0b", status::BADCHAR, status::BADCHAR),
        (&long, status::NAMETOOLONG, status::NAMETOOLONG),
        (b"\xff\xfe", status::NOENT, status::INVAL),
    ];
    for (name, looked_up, made) in table {
        let text = String::from_utf8_lossy(name);
        let lookup = call().at(&root).op(LOOKUP, args().opaque(name));
        assert_eq!(session.status(lookup).await, looked_up, "LOOKUP of '{text}'");
        let make = args().u32(2).opaque(name).set(&[], args());
        assert_eq!(session.status(call().at(&root).op(CREATE, make)).await, made, "CREATE of '{text}'");
        let open = args().open(1, 0, "o").u32(1).u32(0).set(&[], args()).u32(0).opaque(name);
        assert_eq!(session.status(call().at(&root).op(OPEN, open)).await, made, "OPEN of '{text}'");
        let rename = call().at(&root).then(SAVEFH).op(RENAME, args().opaque(b"a").opaque(name));
        assert_eq!(session.status(rename).await, made, "RENAME to '{text}'");
    }
}

#[tokio::test(start_paused = true)]
async fn names_are_moved_and_added() {
    let (_server, mut session, root) = begin().await;
    let (number, arguments) = make(2, "dir");
    session.run(call().at(&root).op(number, arguments)).await;
    let (file, _) = session.open(&root, "a", "o", READ_ACCESS, 0).await;
    let from_root = || call().at(&root).then(SAVEFH);
    let rename = |from: &str, to: &str| args().opaque(from.as_bytes()).opaque(to.as_bytes());
    let mut answer = session.run(from_root().lookup("dir").op(RENAME, rename("a", "b"))).await;
    answer.skip(&[PUTFH, SAVEFH, LOOKUP]);
    let reader = answer.done(RENAME);
    for _ in 0..2 {
        assert_eq!(reader.bool(), Ok(true));
        assert!(reader.u64().unwrap() < reader.u64().unwrap());
    }
    answer.ends();
    let link = call().at(&file).then(SAVEFH).at(&root).op(LINK, args().opaque(b"c")).get(&[attributes::NUMLINKS]);
    let mut answer = session.run(link).await;
    answer.skip(&[PUTFH, SAVEFH, PUTFH]);
    answer.done(LINK).skip(20).unwrap();
    answer.attributes(&[attributes::NUMLINKS]);
    assert_eq!(
        session.status(call().at(&root).lookup("dir").lookup("b").get(&[attributes::NUMLINKS])).await,
        status::OK
    );
    for (name, wanted, expected) in [
        ("LINK to a directory", from_root().op(LINK, args().opaque(b"d")), status::ISDIR),
        ("LINK over a name", call().at(&file).then(SAVEFH).at(&root).op(LINK, args().opaque(b"c")), status::EXIST),
        ("RENAME of nothing", from_root().op(RENAME, rename("x", "y")), status::NOENT),
        ("RENAME over a full directory", from_root().op(RENAME, rename("c", "dir")), status::EXIST),
        ("RENAME in a file", call().at(&file).then(SAVEFH).at(&root).op(RENAME, rename("x", "y")), status::NOTDIR),
        ("RENAME to a file", from_root().at(&file).op(RENAME, rename("c", "y")), status::NOTDIR),
        ("REMOVE of a full directory", call().at(&root).op(REMOVE, args().opaque(b"dir")), status::NOTEMPTY),
        ("RENAME without a saved handle", call().at(&root).op(RENAME, rename("c", "y")), status::NOFILEHANDLE),
    ] {
        let found = session.status(wanted).await;
        assert!(found == expected || expected == status::EXIST && found == status::ISDIR, "{name}: {found}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_listing_goes_on_at_its_cookies() {
    let (_server, mut session, root) = begin().await;
    let mut expected: Vec<String> = (0..300).map(|number| format!("file {number}")).collect();
    for name in &expected {
        let (file, stateid) = session.open(&root, name, "o", READ_ACCESS, 0).await;
        session.close(&file, stateid).await;
    }
    for most in [1 << 20, 4096, 200] {
        let (mut names, mut cookie) = (Vec::new(), 0);
        loop {
            let (entries, end) = list(&mut session, &root, cookie, most).await.unwrap();
            cookie = entries.last().map_or(cookie, |entry| entry.1);
            names.extend(entries.into_iter().map(|(name, _)| String::from_utf8(name.to_vec()).unwrap()));
            if end {
                break;
            }
        }
        names.sort();
        expected.sort();
        assert_eq!(names, expected, "at most {most} bytes");
    }
    assert_eq!(list(&mut session, &root, 0, 30).await, Err(status::TOOSMALL));
    assert_eq!(list(&mut session, &root, 0, 0).await, Err(status::TOOSMALL));
    assert_eq!(list(&mut session, &root, 1, 4096).await, Err(status::BAD_COOKIE));
    let (file, _) = session.open(&root, "file 1", "o", READ_ACCESS, 0).await;
    assert_eq!(list(&mut session, &file, 0, 4096).await, Err(status::NOTDIR));
}

fn export(path: &str, share: u32, open_to_all: bool) -> Export<MemoryFiles> {
    let mut rule = rule();
    if !open_to_all {
        rule.network = "172.16.0.0/12".parse().unwrap();
    }
    let files = std::sync::Arc::new(MemoryFiles::new(clock));
    Export { path: path.to_owned(), share, files, rules: vec![rule] }
}

#[tokio::test(start_paused = true)]
async fn the_tree_above_leads_to_the_exports() {
    let (server, mut session, records) = begin().await;
    server.add(export("/deep/er/share", 11, true)).unwrap();
    server.add(export("/secret", 12, false)).unwrap();
    let mut answer = session
        .run(call().then(PUTROOTFH).then(GETFH).get(&[attributes::TYPE, attributes::FSID, attributes::MODE]))
        .await;
    answer.done(PUTROOTFH);
    let top = answer.done(GETFH).opaque(128).unwrap();
    let mut shown = answer.attributes(&[attributes::TYPE, attributes::FSID, attributes::MODE]);
    assert_eq!((shown.u32(), shown.u64(), shown.u64(), shown.u32()), (Ok(2), Ok(0), Ok(0), Ok(0o555)));
    let names = |entries: Vec<(Bytes, u64)>| -> Vec<String> {
        entries.into_iter().map(|(name, _)| String::from_utf8(name.to_vec()).unwrap()).collect()
    };
    let (entries, end) = list(&mut session, &top, 0, 4096).await.unwrap();
    let first = entries[0].1;
    assert_eq!((names(entries), end), (vec!["deep".to_owned(), "records".to_owned()], true));
    let (entries, end) = list(&mut session, &top, first, 4096).await.unwrap();
    assert_eq!((names(entries), end), (vec!["records".to_owned()], true));
    // Down to a share and up again.
    let way = call()
        .at(&top)
        .lookup("deep")
        .lookup("er")
        .lookup("share")
        .then(LOOKUPP)
        .then(LOOKUPP)
        .then(LOOKUPP)
        .then(GETFH);
    let mut answer = session.run(way).await;
    answer.done(PUTFH);
    answer.skip(&[LOOKUP, LOOKUP, LOOKUP, LOOKUPP, LOOKUPP, LOOKUPP]);
    assert_eq!(answer.done(GETFH).opaque(128).unwrap(), top);
    let mut answer = session
        .run(call().at(&records).get(&[attributes::FSID, attributes::FILEID, attributes::MOUNTED_ON_FILEID]))
        .await;
    answer.done(PUTFH);
    let mut shown = answer.attributes(&[attributes::FSID, attributes::FILEID, attributes::MOUNTED_ON_FILEID]);
    assert_eq!((shown.u64(), shown.u64()), (Ok(1), Ok(u64::from(SHARE))));
    assert_ne!(shown.u64(), shown.u64(), "the share's root is mounted on another directory");
    let open = |how: u32| {
        let head = args().open(1, 0, "o").u32(how);
        let head = if how == 1 { head.u32(0).set(&[], args()) } else { head };
        head.u32(0).opaque(b"records")
    };
    for (name, wanted, expected) in [
        ("a secret export", call().at(&top).lookup("secret"), status::NOENT),
        ("no such export", call().at(&top).lookup("record"), status::NOENT),
        ("above the top", call().at(&top).then(LOOKUPP), status::NOENT),
        ("CREATE", call().at(&top).op(CREATE, make(2, "x").1), status::ROFS),
        ("REMOVE", call().at(&top).op(REMOVE, args().opaque(b"records")), status::ROFS),
        ("SETATTR", call().at(&top).op(SETATTR, args().u64(0).u64(0).set(&[], args())), status::ROFS),
        ("OPEN", call().at(&top).op(OPEN, open(0)), status::ISDIR),
        ("OPEN to create", call().at(&top).op(OPEN, open(1)), status::ROFS),
        ("READ", call().at(&top).op(READ, args().u64(0).u64(0).u64(0).u32(1)), status::ISDIR),
        (
            "RENAME out of it",
            call().at(&top).then(SAVEFH).at(&records).op(RENAME, args().opaque(b"a").opaque(b"b")),
            status::XDEV,
        ),
        ("ACCESS", call().at(&top).op(ACCESS, args().u32(0x3f)), status::OK),
        ("PUTPUBFH", call().then(PUTPUBFH).lookup("records"), status::OK),
    ] {
        assert_eq!(session.status(wanted).await, expected, "{name}");
    }
    // A share that is its own top.
    server.add(export("/", 13, true)).unwrap();
    assert_eq!(session.status(call().then(PUTROOTFH).lookup("records")).await, status::NOENT);
}

#[tokio::test(start_paused = true)]
async fn secinfo_names_the_flavors_and_takes_the_handle() {
    let (_server, mut session, root) = begin().await;
    session.open(&root, "a", "o", READ_ACCESS, 0).await;
    let flavors = |reader: &mut Reader| {
        let count = reader.u32().unwrap();
        (0..count).map(|_| reader.u32().unwrap()).collect::<Vec<_>>()
    };
    for (number, arguments) in
        [(SECINFO, args().opaque(b"a")), (SECINFO_NO_NAME, args().u32(0)), (SECINFO_NO_NAME, args().u32(1))]
    {
        let mut answer = session.run(call().at(&root).op(number, arguments).then(GETFH)).await;
        answer.done(PUTFH);
        assert_eq!(flavors(answer.done(number)), [1, 0]);
        assert_eq!(answer.next(GETFH), status::NOFILEHANDLE);
    }
    assert_eq!(session.status(call().at(&root).op(SECINFO, args().opaque(b"b"))).await, status::NOENT);
    assert_eq!(session.status(call().at(&root).op(SECINFO_NO_NAME, args().u32(2))).await, status::BADXDR);
    assert_eq!(session.status(call().then(PUTROOTFH).op(SECINFO_NO_NAME, args().u32(1))).await, status::NOENT);
}

#[tokio::test(start_paused = true)]
async fn directories_above_the_shares_differ_after_a_restart() {
    let mut seen = Vec::new();
    for instance in [7, 8] {
        let options = Options { grace: std::time::Duration::ZERO, instance, ..Options::default() };
        let server = server_with(MemoryFiles::new(clock), rule(), options);
        let mut session = ClientSession::new(&server, "client").await;
        for _ in 0..2 {
            let mut answer = session.run(call().then(PUTROOTFH).get(&[attributes::CHANGE])).await;
            answer.done(PUTROOTFH);
            seen.push(answer.attributes(&[attributes::CHANGE]).u64().unwrap());
        }
    }
    assert!(seen[0] == seen[1] && seen[1] < seen[2] && seen[2] == seen[3], "{seen:?}");
}
