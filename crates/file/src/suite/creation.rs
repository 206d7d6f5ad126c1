//! Making files of every kind: what they are, who may, and what a repeated request gets.

use std::sync::Arc;

use bytes::Bytes;

use super::{World, callers, member, mode, owner, run, stranger};
use crate::model::{LINK_MAX, NAME_MAX};
use crate::{Caller, Changes, Creation, FileError, Files, Kind, Moment, Node, SetTime};

pub(super) async fn all<F: Files>(make: &mut impl AsyncFnMut() -> Arc<F>) -> usize {
    run!(
        make,
        a_new_file_is_as_asked,
        every_kind_is_made_and_kept,
        making_needs_write_and_search,
        a_taken_name_is_refused,
        an_unchecked_creation_keeps_the_file,
        an_exclusive_creation_may_be_repeated,
        a_new_file_belongs_to_its_maker,
        a_set_group_id_directory_hands_on_its_group,
        only_root_makes_devices,
        names_have_rules,
        targets_have_rules,
        creation_changes_the_directory,
    )
}

async fn a_new_file_is_as_asked<F: Files>(t: &World<F>) {
    let at = Moment { seconds: 77, nanoseconds: 88 };
    let changes = Changes {
        mode: Some(0o640),
        uid: Some(7),
        gid: Some(8),
        size: Some(10_000),
        accessed: None,
        modified: Some(SetTime::At(at)),
    };
    let made = t.files.create(&Caller::ROOT, t.root(), b"f", Creation::Guarded(changes)).await;
    let file = t.ok("it is created", made).file;
    t.same("kind and mode", (file.kind, file.mode), (Kind::File, 0o640));
    t.same("owner and group", (file.uid, file.gid), (7, 8));
    t.same("size and links", (file.size, file.links), (10_000, 1));
    t.same("the modification time", file.modified, at);
    t.same("the answer is the file", t.attributes(file.inode).await, file.clone());
    t.same("it is found", t.ok("lookup", t.find(t.root(), "f").await), file.inode);
    t.same("it is a hole", t.read(file.inode, 0, u32::MAX).await, vec![0; 10_000]);
}

async fn every_kind_is_made_and_kept<F: Files>(t: &World<F>) {
    for (name, inode) in t.every_kind(t.root()).await {
        let file = t.attributes(inode).await;
        let expected = match name {
            "file" => (Kind::File, 0o644, 1, 0),
            "directory" => (Kind::Directory, 0o644, 2, 0),
            "link" => (Kind::Link, 0o777, 1, 6),
            "block device" => (Kind::BlockDevice { major: 7, minor: 300_000 }, 0o644, 1, 0),
            "character device" => (Kind::CharacterDevice { major: 4095, minor: 1 }, 0o644, 1, 0),
            "pipe" => (Kind::Pipe, 0o644, 1, 0),
            _ => (Kind::Socket, 0o644, 1, 0),
        };
        t.same(name, (file.kind, file.mode, file.links, file.size), expected);
        t.same(name, t.ok(name, t.find(t.root(), name).await), inode);
    }
}

async fn making_needs_write_and_search<F: Files>(t: &World<F>) {
    for bits in [0o777, 0o000, 0o500, 0o300, 0o050, 0o030, 0o005, 0o003, 0o200, 0o100] {
        let directory = t.directory(t.root(), &format!("{bits:o}"), bits).await;
        for (who, caller) in callers() {
            let class = match who {
                "root" => 7,
                "owner" => bits >> 6 & 7,
                "member" => bits >> 3 & 7,
                _ => bits & 7,
            };
            let rule = format!("{who} in {bits:o}");
            let name = |kind: &str| format!("{who} {kind}").into_bytes();
            let file = t.files.create(&caller, directory, &name("f"), Creation::Guarded(Changes::default())).await;
            let target = Bytes::from_static(b"x");
            let mut made = vec![file];
            for (kind, node) in [("d", Node::Directory), ("l", Node::Link { target }), ("p", Node::Special(Kind::Pipe))]
            {
                made.push(t.files.make(&caller, directory, &name(kind), node, Changes::default()).await);
            }
            for result in made {
                match class & 3 {
                    3 => drop(t.ok(&rule, result)),
                    _ => t.fails(&rule, result, FileError::Denied),
                }
            }
        }
    }
    let file = t.file(t.root(), "file", 0o777).await;
    let inside = t.files.create(&Caller::ROOT, file, b"x", Creation::Guarded(Changes::default())).await;
    t.fails("a file holds no files", inside, FileError::NotDirectory);
}

async fn a_taken_name_is_refused<F: Files>(t: &World<F>) {
    for (name, _) in t.every_kind(t.root()).await {
        let bytes = name.as_bytes();
        let guarded = Creation::Guarded(Changes::default());
        t.fails(name, t.files.create(&owner(), t.root(), bytes, guarded).await, FileError::Exists);
        let exclusive = Creation::Exclusive([1; 8]);
        t.fails(name, t.files.create(&owner(), t.root(), bytes, exclusive).await, FileError::Exists);
        let made = t.files.make(&owner(), t.root(), bytes, Node::Directory, Changes::default()).await;
        t.fails(name, made, FileError::Exists);
        if name != "file" {
            let unchecked = Creation::Unchecked(Changes::default());
            t.fails(name, t.files.create(&Caller::ROOT, t.root(), bytes, unchecked).await, FileError::Exists);
        }
    }
}

async fn an_unchecked_creation_keeps_the_file<F: Files>(t: &World<F>) {
    let first = t.files.create(&owner(), t.root(), b"f", Creation::Unchecked(mode(0o640))).await;
    t.fails("a stranger adds nothing", first, FileError::Denied);
    let inode = t.file(t.root(), "f", 0o640).await;
    t.ok("it is written", t.write(&owner(), inode, 0, b"content").await);
    let before = t.attributes(inode).await;
    let again = t.files.create(&stranger(), t.root(), b"f", Creation::Unchecked(mode(0o777))).await;
    t.same("only the size counts", t.ok("it is kept", again).file, before);
    let cut = Changes { size: Some(3), mode: Some(0o777), ..Changes::default() };
    let refused = t.files.create(&stranger(), t.root(), b"f", Creation::Unchecked(cut.clone())).await;
    t.fails("a stranger cuts nothing", refused, FileError::Denied);
    let after = t.ok("it is cut", t.files.create(&owner(), t.root(), b"f", Creation::Unchecked(cut)).await).file;
    t.same("it is the same file", (after.inode, after.mode, after.size), (inode, 0o640, 3));
    t.same("its start is kept", t.read(inode, 0, 10).await, b"con".to_vec());
}

async fn an_exclusive_creation_may_be_repeated<F: Files>(t: &World<F>) {
    let exclusive = |byte| Creation::Exclusive([byte; 8]);
    let made = t.ok("first", t.files.create(&Caller::ROOT, t.root(), b"f", exclusive(1)).await).file;
    t.same("nobody else may use it", made.mode & 0o077, 0);
    let again = t.ok("the same", t.files.create(&Caller::ROOT, t.root(), b"f", exclusive(1)).await).file;
    t.same("it is the same file", again.inode, made.inode);
    t.fails("another", t.files.create(&Caller::ROOT, t.root(), b"f", exclusive(2)).await, FileError::Exists);
    t.ok("it is renamed", t.rename(&Caller::ROOT, (t.root(), "f"), (t.root(), "g")).await);
    t.ok("the name is free", t.files.create(&Caller::ROOT, t.root(), b"f", exclusive(3)).await);
    t.file(t.root(), "plain", 0o644).await;
    let plain = t.files.create(&Caller::ROOT, t.root(), b"plain", exclusive(0)).await;
    t.fails("no verifier matches none", plain, FileError::Exists);
}

async fn a_new_file_belongs_to_its_maker<F: Files>(t: &World<F>) {
    let open = t.directory(t.root(), "open", 0o777).await;
    let to = |uid, gid| Changes { mode: Some(0o2755), uid, gid, ..Changes::default() };
    for (rule, caller, changes, expected) in [
        ("the maker", owner(), to(None, None), Some((1001, 2001, 0o2755))),
        ("the maker by name", owner(), to(Some(1001), Some(2001)), Some((1001, 2001, 0o2755))),
        ("another group of the maker", owner(), to(None, Some(2002)), Some((1001, 2002, 0o2755))),
        ("a strange group", owner(), to(None, Some(2003)), None),
        ("another user", owner(), to(Some(1002), None), None),
        ("root gives it away", Caller::ROOT, to(Some(1), Some(2)), Some((1, 2, 0o2755))),
    ] {
        let made = t.files.create(&caller, open, rule.as_bytes(), Creation::Guarded(changes)).await;
        match expected {
            Some(expected) => {
                let file = t.ok(rule, made).file;
                t.same(rule, (file.uid, file.gid, file.mode), expected);
            }
            None => {
                t.fails(rule, made, FileError::NotOwner);
                t.fails("nothing was made", t.find(open, rule).await, FileError::NotFound);
            }
        }
    }
}

async fn a_set_group_id_directory_hands_on_its_group<F: Files>(t: &World<F>) {
    let shared = t.directory(t.root(), "shared", 0o2777).await;
    let made = t.files.create(&stranger(), shared, b"f", Creation::Guarded(mode(0o2755))).await;
    let file = t.ok("a file is made", made).file;
    t.same("the file has the group, without its rights", (file.gid, file.mode), (2001, 0o755));
    let made = t.files.create(&member(), shared, b"g", Creation::Guarded(mode(0o2755))).await;
    t.same("a member's file keeps the bit", t.ok("a file is made", made).file.mode, 0o2755);
    let made = t.files.make(&stranger(), shared, b"d", Node::Directory, mode(0o755)).await;
    let below = t.ok("a directory is made", made).file;
    t.same("the directory has the group and hands it on", (below.gid, below.mode), (2001, 0o2755));
    let made = t.files.create(&member(), below.inode, b"f", Creation::Guarded(mode(0o644))).await;
    t.fails("the new directory has its own mode", made, FileError::Denied);
}

async fn only_root_makes_devices<F: Files>(t: &World<F>) {
    let open = t.directory(t.root(), "open", 0o777).await;
    for (name, kind) in [
        ("block", Kind::BlockDevice { major: 1, minor: 2 }),
        ("character", Kind::CharacterDevice { major: 1, minor: 2 }),
    ] {
        let made = t.files.make(&owner(), open, name.as_bytes(), Node::Special(kind), Changes::default()).await;
        t.fails(name, made, FileError::NotOwner);
        let made = t.files.make(&Caller::ROOT, open, name.as_bytes(), Node::Special(kind), Changes::default()).await;
        t.ok(name, made);
    }
    for kind in [Kind::File, Kind::Directory, Kind::Link] {
        let made = t.files.make(&Caller::ROOT, open, b"odd", Node::Special(kind), Changes::default()).await;
        t.fails("these are not special", made, FileError::Invalid(String::new()));
    }
}

async fn names_have_rules<F: Files>(t: &World<F>) {
    let invalid = || FileError::Invalid(String::new());
    let long = "x".repeat(NAME_MAX + 1);
    for (name, error) in [
        ("", invalid()),
        (".", invalid()),
        ("..", invalid()),
        ("a/b", invalid()),
        ("a\0b", invalid()),
        (&long, FileError::NameTooLong),
    ] {
        let bytes = name.as_bytes();
        let made = t.files.create(&Caller::ROOT, t.root(), bytes, Creation::Guarded(Changes::default())).await;
        t.fails(name, made, error.clone());
        let made = t.files.make(&Caller::ROOT, t.root(), bytes, Node::Directory, Changes::default()).await;
        t.fails(name, made, error.clone());
        if !matches!(name, "." | "..") {
            t.fails(name, t.find(t.root(), name).await, error.clone());
        }
        let existing = t.file(t.root(), "existing", 0o644).await;
        t.fails(name, t.rename(&Caller::ROOT, (t.root(), "existing"), (t.root(), name)).await, error.clone());
        t.fails(name, t.link(&Caller::ROOT, existing, t.root(), name).await, error);
        t.ok("it is removed", t.remove(&Caller::ROOT, t.root(), "existing", crate::Removal::File).await);
    }
    for name in [&b"\xff\xfe\x01"[..], b" ", b"...", b"\\:*?\"<>|", &[b'n'; NAME_MAX]] {
        let made = t.files.create(&Caller::ROOT, t.root(), name, Creation::Guarded(Changes::default())).await;
        let inode = t.ok("every other byte is allowed", made).file.inode;
        let found = t.files.lookup(&Caller::ROOT, t.root(), name).await;
        t.same("it is found", t.ok("lookup", found).inode, inode);
    }
}

async fn targets_have_rules<F: Files>(t: &World<F>) {
    let invalid = || FileError::Invalid(String::new());
    for (rule, target, error) in [
        ("empty", Bytes::new(), Some(invalid())),
        ("zero byte", Bytes::from_static(b"a\0b"), Some(invalid())),
        ("too long", Bytes::from(vec![b'x'; LINK_MAX + 1]), Some(FileError::NameTooLong)),
        ("longest", Bytes::from(vec![b'x'; LINK_MAX]), None),
        ("dangling", Bytes::from_static(b"../..//nowhere/"), None),
        ("any bytes", Bytes::from_static(b"\xff\x01"), None),
    ] {
        let node = Node::Link { target: target.clone() };
        let made = t.files.make(&Caller::ROOT, t.root(), rule.as_bytes(), node, mode(0o600)).await;
        match error {
            Some(error) => t.fails(rule, made, error),
            None => {
                let link = t.ok(rule, made).file;
                t.same(rule, (link.mode, link.size), (0o777, target.len() as u64));
                t.same(rule, t.ok(rule, t.files.read_link(&stranger(), link.inode).await), target);
            }
        }
    }
}

async fn creation_changes_the_directory<F: Files>(t: &World<F>) {
    let before = t.attributes(t.root()).await;
    let made = t.files.create(&Caller::ROOT, t.root(), b"f", Creation::Guarded(Changes::default())).await;
    let entry = t.ok("it is created", made);
    t.same("the directory before", entry.directory.before.clone(), before.clone());
    t.same("the directory after", entry.directory.after.clone(), t.attributes(t.root()).await);
    let after = entry.directory.after;
    t.holds("the change is counted", after.change > before.change && after.modified >= before.modified);
    t.same("a file adds no link", after.links, before.links);
    let made = t.files.make(&Caller::ROOT, t.root(), b"d", Node::Directory, Changes::default()).await;
    t.same("a directory adds a link", t.ok("made", made).directory.after.links, before.links + 1);
}
