//! Extended attributes of users.

use std::sync::Arc;

use bytes::Bytes;

use super::{World, member, mode, owner, run, stranger};
use crate::memory::EXTENDED_MAX;
use crate::{Caller, FileError, Files, Inode, Result};

pub(super) async fn all<F: Files>(make: &mut impl AsyncFnMut() -> Arc<F>) -> usize {
    run!(
        make,
        an_attribute_is_kept_and_removed,
        creation_and_replacement_are_told_apart,
        attributes_follow_the_mode,
        only_files_and_directories_have_them,
        attributes_have_limits,
        a_change_of_them_is_counted,
    )
}

impl<F: Files> World<F> {
    async fn extend(&self, caller: &Caller, inode: Inode, name: &str, value: Option<&[u8]>) -> Result<()> {
        let value = value.map(Bytes::copy_from_slice);
        self.files.set_attribute(caller, inode, name.as_bytes(), value, None).await.map(|_| ())
    }

    async fn value(&self, inode: Inode, name: &str) -> Result<Bytes> {
        self.files.attribute(&Caller::ROOT, inode, name.as_bytes()).await
    }

    async fn attribute_names(&self, inode: Inode) -> Vec<Bytes> {
        let mut names = self.ok("names are listed", self.files.attribute_names(&stranger(), inode).await);
        names.sort();
        names
    }
}

async fn an_attribute_is_kept_and_removed<F: Files>(t: &World<F>) {
    for inode in [t.file(t.root(), "f", 0o644).await, t.directory(t.root(), "d", 0o755).await] {
        t.same("there are none", t.attribute_names(inode).await.len(), 0);
        t.fails("one that is not there", t.value(inode, "user.a").await, FileError::NoAttribute);
        for value in [&b""[..], b"text", b"\0\xff binary"] {
            t.ok("it is set", t.extend(&owner(), inode, "user.a", Some(value)).await);
            t.same("it is kept", t.ok("it is there", t.value(inode, "user.a").await), Bytes::copy_from_slice(value));
        }
        t.ok("another", t.extend(&owner(), inode, "user.b", Some(b"2")).await);
        t.same(
            "both are listed",
            t.attribute_names(inode).await,
            vec![Bytes::from_static(b"user.a"), Bytes::from_static(b"user.b")],
        );
        t.ok("it is removed", t.extend(&owner(), inode, "user.a", None).await);
        t.fails("it is gone", t.value(inode, "user.a").await, FileError::NoAttribute);
        t.fails("once only", t.extend(&owner(), inode, "user.a", None).await, FileError::NoAttribute);
        t.ok("the other stays", t.value(inode, "user.b").await);
    }
}

async fn creation_and_replacement_are_told_apart<F: Files>(t: &World<F>) {
    let inode = t.file(t.root(), "f", 0o644).await;
    for (rule, must_exist, error) in [
        ("nothing is replaced", Some(true), Some(FileError::NoAttribute)),
        ("it is created", Some(false), None),
        ("it is not created twice", Some(false), Some(FileError::Exists)),
        ("it is replaced", Some(true), None),
        ("it is set", None, None),
    ] {
        let value = Some(Bytes::from_static(b"value"));
        let result = t.files.set_attribute(&owner(), inode, b"user.a", value, must_exist).await;
        match error {
            Some(error) => t.fails(rule, result, error),
            None => drop(t.ok(rule, result)),
        }
    }
}

async fn attributes_follow_the_mode<F: Files>(t: &World<F>) {
    let inode = t.file(t.root(), "f", 0o640).await;
    t.ok("the owner sets it", t.extend(&owner(), inode, "user.a", Some(b"1")).await);
    t.ok("a member reads it", t.files.attribute(&member(), inode, b"user.a").await);
    t.fails("a member sets nothing", t.extend(&member(), inode, "user.a", Some(b"2")).await, FileError::Denied);
    t.fails("a stranger reads nothing", t.files.attribute(&stranger(), inode, b"user.a").await, FileError::Denied);
    t.fails("a stranger removes nothing", t.extend(&stranger(), inode, "user.a", None).await, FileError::Denied);
    t.ok("root sets it", t.extend(&Caller::ROOT, inode, "user.a", Some(b"3")).await);
    let sticky = t.directory(t.root(), "sticky", 0o1777).await;
    let set = t.extend(&stranger(), sticky, "user.a", Some(b"1")).await;
    t.fails("a sticky directory's belong to its owner", set, FileError::NotOwner);
    t.ok("the owner sets it", t.extend(&owner(), sticky, "user.a", Some(b"1")).await);
}

async fn only_files_and_directories_have_them<F: Files>(t: &World<F>) {
    for (name, inode) in t.every_kind(t.root()).await {
        let set = t.extend(&Caller::ROOT, inode, "user.a", Some(b"1")).await;
        match name {
            "file" | "directory" => t.ok(name, set),
            _ => {
                t.fails(name, set, FileError::NotOwner);
                t.fails(name, t.value(inode, "user.a").await, FileError::NoAttribute);
            }
        }
    }
}

async fn attributes_have_limits<F: Files>(t: &World<F>) {
    let inode = t.file(t.root(), "f", 0o644).await;
    for name in ["security.capability", "trusted.x", "system.posix_acl_access", "user", "", "USER.a"] {
        t.fails(name, t.extend(&Caller::ROOT, inode, name, Some(b"1")).await, FileError::NotSupported);
        t.fails(name, t.value(inode, name).await, FileError::NotSupported);
    }
    let no_name = t.extend(&owner(), inode, "user.", Some(b"1")).await;
    t.fails("a name is behind the prefix", no_name, FileError::Invalid(String::new()));
    let long = format!("user.{}", "n".repeat(251));
    t.fails("a long name", t.extend(&owner(), inode, &long, Some(b"1")).await, FileError::TooManyAttributes);
    t.ok("the longest name", t.extend(&owner(), inode, &long[..255], Some(b"")).await);
    let room = EXTENDED_MAX - 255 - "user.a".len();
    let too_much = t.extend(&owner(), inode, "user.a", Some(&vec![1; room + 1])).await;
    t.fails("one byte too much", too_much, FileError::TooManyAttributes);
    t.ok("all there is room for", t.extend(&owner(), inode, "user.a", Some(&vec![1; room])).await);
    t.ok("a replacement counts once", t.extend(&owner(), inode, "user.a", Some(&vec![2; room])).await);
    t.fails("no room", t.extend(&owner(), inode, "user.b", Some(b"")).await, FileError::TooManyAttributes);
    t.same("the value is whole", t.ok("read", t.value(inode, "user.a").await).len(), room);
}

async fn a_change_of_them_is_counted<F: Files>(t: &World<F>) {
    let inode = t.file(t.root(), "f", 0o644).await;
    let before = t.attributes(inode).await;
    let value = Some(Bytes::from_static(b"1"));
    let changed = t.ok("it is set", t.files.set_attribute(&owner(), inode, b"user.a", value, None).await);
    t.same("the state before is answered", changed.before, before.clone());
    t.holds("the change is counted", changed.after.change > before.change);
    t.same("the content was not modified", changed.after.modified, before.modified);
    t.ok("the mode is taken", t.set(&owner(), inode, mode(0o400)).await);
    t.fails("the mode counts", t.extend(&owner(), inode, "user.a", None).await, FileError::Denied);
}
