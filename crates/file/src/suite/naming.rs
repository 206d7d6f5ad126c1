//! Names: finding, removing, linking and renaming.

use std::sync::Arc;

use super::{World, callers, mode, owner, run, stranger};
use crate::{Caller, Changes, Creation, FileError, Files, Inode, Node, Removal};

pub(super) async fn all<F: Files>(make: &mut impl AsyncFnMut() -> Arc<F>) -> usize {
    run!(
        make,
        finding_needs_search,
        dots_are_found,
        removing_tells_files_from_directories,
        removing_needs_write_and_search,
        a_sticky_directory_protects_its_files,
        a_removed_directory_takes_nothing,
        links_share_one_file,
        linking_has_rules,
        renaming_moves_the_entry,
        renaming_replaces_by_kind,
        renaming_to_the_same_file_does_nothing,
        a_directory_never_moves_into_itself,
        a_moved_directory_changes_its_parent,
        renaming_needs_both_directories,
        a_replaced_file_stays_while_open,
    )
}

async fn finding_needs_search<F: Files>(t: &World<F>) {
    for bits in [0o777, 0o000, 0o666, 0o100, 0o010, 0o001] {
        let directory = t.directory(t.root(), &format!("{bits:o}"), bits).await;
        t.file(directory, "f", 0o000).await;
        for (who, caller) in callers() {
            let class = match who {
                "root" => 7,
                "owner" => bits >> 6,
                "member" => bits >> 3,
                _ => bits,
            };
            for (name, error) in [("f", None), ("none", Some(FileError::NotFound)), (".", None), ("..", None)] {
                let rule = format!("{who} finds {name} in {bits:o}");
                let found = t.files.lookup(&caller, directory, name.as_bytes()).await;
                match (class & 1, error) {
                    (0, _) => t.fails(&rule, found, FileError::Denied),
                    (_, Some(error)) => t.fails(&rule, found, error),
                    (_, None) => drop(t.ok(&rule, found)),
                }
            }
        }
    }
    let file = t.file(t.root(), "file", 0o777).await;
    t.fails("a file has no names", t.find(file, "x").await, FileError::NotDirectory);
    t.fails("a file has no dot", t.find(file, ".").await, FileError::NotDirectory);
}

async fn dots_are_found<F: Files>(t: &World<F>) {
    let a = t.directory(t.root(), "a", 0o755).await;
    let b = t.directory(a, "b", 0o755).await;
    for (directory, name, expected) in
        [(t.root(), ".", t.root()), (t.root(), "..", t.root()), (a, "..", t.root()), (b, ".", b), (b, "..", a)]
    {
        t.same(name, t.ok(name, t.find(directory, name).await), expected);
    }
}

async fn removing_tells_files_from_directories<F: Files>(t: &World<F>) {
    for (name, inode) in t.every_kind(t.root()).await {
        let (wrong, right, error) = match name {
            "directory" => (Removal::File, Removal::Directory, FileError::IsDirectory),
            _ => (Removal::Directory, Removal::File, FileError::NotDirectory),
        };
        let before = t.attributes(t.root()).await;
        t.fails(name, t.remove(&Caller::ROOT, t.root(), name, wrong).await, error);
        t.same("a refusal changes nothing", t.attributes(t.root()).await, before.clone());
        let after = t.ok(name, t.remove(&Caller::ROOT, t.root(), name, right).await);
        t.same("a directory below is a link", after.links, before.links - u32::from(name == "directory"));
        t.holds("the removal is counted", after.change > before.change);
        t.fails(name, t.find(t.root(), name).await, FileError::NotFound);
        t.fails(name, t.files.attributes(inode).await, FileError::Stale);
        t.fails(name, t.remove(&Caller::ROOT, t.root(), name, right).await, FileError::NotFound);
    }
    let full = t.directory(t.root(), "full", 0o755).await;
    t.file(full, "f", 0o644).await;
    t.fails("full", t.remove(&Caller::ROOT, t.root(), "full", Removal::Directory).await, FileError::NotEmpty);
    t.ok("it is emptied", t.remove(&Caller::ROOT, full, "f", Removal::File).await);
    t.ok("it is removed", t.remove(&Caller::ROOT, t.root(), "full", Removal::Directory).await);
    for name in [".", ".."] {
        let removed = t.remove(&Caller::ROOT, t.root(), name, Removal::Directory).await;
        t.fails("dots stay", removed, FileError::Invalid(String::new()));
    }
}

async fn removing_needs_write_and_search<F: Files>(t: &World<F>) {
    for bits in [0o777, 0o000, 0o500, 0o300, 0o050, 0o030, 0o005, 0o003] {
        let directory = t.directory(t.root(), &format!("{bits:o}"), bits).await;
        for (who, caller) in callers() {
            t.file(directory, who, 0o000).await;
            let class = match who {
                "root" => 7,
                "owner" => bits >> 6 & 7,
                "member" => bits >> 3 & 7,
                _ => bits & 7,
            };
            let rule = format!("{who} in {bits:o}");
            let removed = t.remove(&caller, directory, who, Removal::File).await;
            match class & 3 {
                3 => drop(t.ok(&rule, removed)),
                _ => t.fails(&rule, removed, FileError::Denied),
            }
        }
    }
}

async fn a_sticky_directory_protects_its_files<F: Files>(t: &World<F>) {
    // The owner of the directory is the owner of the checks; the files belong to others.
    for (file_uid, who, caller, allowed) in [
        (1003, "root", Caller::ROOT, true),
        (1003, "the directory's owner", owner(), true),
        (1003, "the file's owner", stranger(), true),
        (1001, "a stranger", stranger(), false),
        (1001, "a member", super::member(), false),
    ] {
        for bits in [0o1777, 0o777] {
            let directory = t.directory(t.root(), &format!("{who} {bits:o}"), bits).await;
            let own = Changes { uid: Some(file_uid), ..Changes::default() };
            for name in ["removed", "renamed", "replaced"] {
                let inode = t.file(directory, name, 0o666).await;
                t.ok("it gets an owner", t.set(&Caller::ROOT, inode, own.clone()).await);
            }
            let new = t.file(directory, "new", 0o666).await;
            let caller_owns = Changes { uid: Some(caller.uid), ..Changes::default() };
            t.ok("the caller owns it", t.set(&Caller::ROOT, new, caller_owns).await);
            let rule = format!("{who} at {bits:o}");
            let results = [
                t.remove(&caller, directory, "removed", Removal::File).await.map(|_| ()),
                t.rename(&caller, (directory, "renamed"), (directory, "other")).await,
                t.rename(&caller, (directory, "new"), (directory, "replaced")).await,
            ];
            for result in results {
                match allowed || bits == 0o777 {
                    true => t.ok(&rule, result),
                    false => t.fails(&rule, result, FileError::NotOwner),
                }
            }
        }
    }
}

async fn a_removed_directory_takes_nothing<F: Files>(t: &World<F>) {
    let directory = t.directory(t.root(), "d", 0o777).await;
    t.file(t.root(), "f", 0o644).await;
    t.ok("it is opened", t.files.opened(directory, false).await);
    t.ok("it is removed", t.remove(&Caller::ROOT, t.root(), "d", Removal::Directory).await);
    t.same("it has no links", t.attributes(directory).await.links, 0);
    let made = t.files.create(&Caller::ROOT, directory, b"x", Creation::Guarded(mode(0o644))).await;
    t.fails("no file", made, FileError::NotFound);
    let made = t.files.make(&Caller::ROOT, directory, b"x", Node::Directory, mode(0o755)).await;
    t.fails("no directory", made, FileError::NotFound);
    let moved = t.rename(&Caller::ROOT, (t.root(), "f"), (directory, "f")).await;
    t.fails("no moved file", moved, FileError::NotFound);
    t.same("it is empty", t.names(directory, 10).await.len(), 0);
    t.files.closed(directory, false).await;
    t.fails("its last user closed it", t.files.attributes(directory).await, FileError::Stale);
}

async fn links_share_one_file<F: Files>(t: &World<F>) {
    let below = t.directory(t.root(), "d", 0o755).await;
    for (name, inode) in t.every_kind(t.root()).await {
        if name == "directory" {
            let linked = t.link(&Caller::ROOT, inode, below, name).await;
            t.fails("a directory has one name", linked, FileError::NotOwner);
            continue;
        }
        let before = t.attributes(inode).await;
        let after = t.ok(name, t.link(&Caller::ROOT, inode, below, name).await);
        t.same(name, (after.inode, after.links), (inode, 2));
        t.holds("the link is counted", after.change > before.change);
        t.same(name, t.ok(name, t.find(below, name).await), inode);
        t.ok(name, t.remove(&Caller::ROOT, t.root(), name, Removal::File).await);
        t.same("one name is left", t.attributes(inode).await.links, 1);
    }
    let inode = t.ok("the other name", t.find(below, "file").await);
    t.ok("it is written", t.write(&owner(), inode, 0, b"shared").await);
    t.ok("a name", t.link(&Caller::ROOT, inode, t.root(), "again").await);
    let again = t.ok("it is found", t.find(t.root(), "again").await);
    t.same("both names show the content", t.read(again, 0, 10).await, b"shared".to_vec());
}

async fn linking_has_rules<F: Files>(t: &World<F>) {
    let file = t.file(t.root(), "f", 0o644).await;
    let closed = t.directory(t.root(), "closed", 0o555).await;
    t.file(closed, "taken", 0o644).await;
    t.fails("a taken name", t.link(&owner(), file, closed, "taken").await, FileError::Exists);
    t.fails("no write permission", t.link(&owner(), file, closed, "new").await, FileError::Denied);
    t.fails("not into a file", t.link(&owner(), file, file, "new").await, FileError::NotDirectory);
    t.fails("not into nowhere", t.link(&owner(), file, Inode(u64::MAX), "new").await, FileError::Stale);
    t.same("the file is as it was", t.attributes(file).await.links, 1);
}

async fn renaming_moves_the_entry<F: Files>(t: &World<F>) {
    let a = t.directory(t.root(), "a", 0o755).await;
    let b = t.directory(t.root(), "b", 0o755).await;
    for (name, inode) in t.every_kind(a).await {
        let before = (t.attributes(a).await, t.attributes(b).await, t.attributes(inode).await);
        let moved = t.files.rename(&Caller::ROOT, (a, name.as_bytes()), (b, b"new")).await;
        let (from, to) = t.ok(name, moved);
        t.same("the directories before", (from.before.clone(), to.before.clone()), (before.0, before.1));
        t.same("the directories after", (&from.after, &to.after), (&t.attributes(a).await, &t.attributes(b).await));
        t.holds("both count it", from.after.change > from.before.change && to.after.change > to.before.change);
        t.fails("the old name is gone", t.find(a, name).await, FileError::NotFound);
        t.same("the new name is there", t.ok(name, t.find(b, "new").await), inode);
        let after = t.attributes(inode).await;
        t.same("the file is the same", (after.links, after.size, after.modified), {
            (before.2.links, before.2.size, before.2.modified)
        });
        let is_directory = u32::from(name == "directory");
        t.same("links of the directories", (from.after.links, to.after.links), {
            (from.before.links - is_directory, to.before.links + is_directory)
        });
        let back = t.rename(&Caller::ROOT, (b, "new"), (b, name)).await;
        t.ok("within one directory", back);
        t.same("it is there", t.ok(name, t.find(b, name).await), inode);
    }
    let none = t.rename(&Caller::ROOT, (a, "none"), (b, "new")).await;
    t.fails("nothing is not renamed", none, FileError::NotFound);
}

async fn renaming_replaces_by_kind<F: Files>(t: &World<F>) {
    let names = ["file", "directory", "link", "block device", "character device", "pipe", "socket"];
    for source in names {
        for target in names {
            let place = t.directory(t.root(), &format!("{source} over {target}"), 0o755).await;
            let (a, b) = (t.directory(place, "a", 0o755).await, t.directory(place, "b", 0o755).await);
            let kinds = t.every_kind(a).await;
            let replaced = t.every_kind(b).await;
            let inode = kinds.iter().find(|(name, _)| *name == source).map(|(_, inode)| *inode);
            let old = replaced.iter().find(|(name, _)| *name == target).map(|(_, inode)| *inode);
            let (Some(inode), Some(old)) = (inode, old) else { continue };
            let rule = format!("{source} over {target}");
            let links = t.attributes(b).await.links;
            let result = t.rename(&Caller::ROOT, (a, source), (b, target)).await;
            match (source == "directory", target == "directory") {
                (true, false) => t.fails(&rule, result, FileError::NotDirectory),
                (false, true) => t.fails(&rule, result, FileError::IsDirectory),
                _ => {
                    t.ok(&rule, result);
                    t.same(&rule, t.ok(&rule, t.find(b, target).await), inode);
                    t.fails(&rule, t.find(a, source).await, FileError::NotFound);
                    t.fails("the replaced file is gone", t.files.attributes(old).await, FileError::Stale);
                    t.same("links stay", t.attributes(b).await.links, links);
                }
            }
        }
    }
    let (empty, full) = (t.directory(t.root(), "empty", 0o755).await, t.directory(t.root(), "full", 0o755).await);
    t.file(full, "f", 0o644).await;
    let refused = t.rename(&Caller::ROOT, (t.root(), "empty"), (t.root(), "full")).await;
    t.fails("a full directory stays", refused, FileError::NotEmpty);
    t.ok("an empty one goes", t.rename(&Caller::ROOT, (t.root(), "full"), (t.root(), "empty")).await);
    t.fails("it is gone", t.files.attributes(empty).await, FileError::Stale);
    t.same("its place is taken", t.ok("found", t.find(t.root(), "empty").await), full);
}

async fn renaming_to_the_same_file_does_nothing<F: Files>(t: &World<F>) {
    let inode = t.file(t.root(), "f", 0o644).await;
    t.ok("it is linked", t.link(&Caller::ROOT, inode, t.root(), "g").await);
    let before = (t.attributes(t.root()).await, t.attributes(inode).await);
    t.ok("another name of it", t.rename(&Caller::ROOT, (t.root(), "f"), (t.root(), "g")).await);
    t.ok("the name itself", t.rename(&Caller::ROOT, (t.root(), "f"), (t.root(), "f")).await);
    t.same("nothing changed", (t.attributes(t.root()).await, t.attributes(inode).await), before);
    t.same("both names stay", t.names(t.root(), 10).await.len(), 2);
}

async fn a_directory_never_moves_into_itself<F: Files>(t: &World<F>) {
    let a = t.directory(t.root(), "a", 0o755).await;
    let b = t.directory(a, "b", 0o755).await;
    let c = t.directory(b, "c", 0o755).await;
    let invalid = || FileError::Invalid(String::new());
    for below in [a, b, c] {
        let moved = t.rename(&Caller::ROOT, (t.root(), "a"), (below, "x")).await;
        t.fails("it would leave the tree", moved, invalid());
    }
    t.fails("an ancestor is full", t.rename(&Caller::ROOT, (b, "c"), (t.root(), "a")).await, FileError::NotEmpty);
    t.same("the tree is as it was", t.ok("found", t.find(b, "c").await), c);
}

async fn a_moved_directory_changes_its_parent<F: Files>(t: &World<F>) {
    let a = t.directory(t.root(), "a", 0o777).await;
    let b = t.directory(t.root(), "b", 0o777).await;
    let inner = t.directory(a, "inner", 0o755).await;
    t.file(inner, "f", 0o644).await;
    t.ok("it moves", t.rename(&owner(), (a, "inner"), (b, "inner")).await);
    t.same("its parent", t.ok("found", t.find(inner, "..").await), b);
    t.ok("its content", t.find(inner, "f").await);
    t.ok("write permission is taken", t.set(&owner(), inner, mode(0o555)).await);
    let moved = t.rename(&owner(), (b, "inner"), (a, "inner")).await;
    t.fails("its parent cannot change", moved, FileError::Denied);
    t.ok("its name can", t.rename(&owner(), (b, "inner"), (b, "other")).await);
    t.ok("root moves it", t.rename(&Caller::ROOT, (b, "other"), (a, "inner")).await);
}

async fn renaming_needs_both_directories<F: Files>(t: &World<F>) {
    for (from_bits, to_bits, allowed) in [
        (0o777, 0o777, true),
        (0o555, 0o777, false),
        (0o777, 0o555, false),
        (0o666, 0o777, false),
        (0o777, 0o666, false),
        (0o333, 0o333, true),
    ] {
        let rule = format!("from {from_bits:o} to {to_bits:o}");
        let place = t.directory(t.root(), &rule, 0o777).await;
        let from = t.directory(place, "from", from_bits).await;
        let to = t.directory(place, "to", to_bits).await;
        t.file(from, "f", 0o644).await;
        let moved = t.rename(&owner(), (from, "f"), (to, "f")).await;
        match allowed {
            true => t.ok(&rule, moved),
            false => t.fails(&rule, moved, FileError::Denied),
        }
    }
}

async fn a_replaced_file_stays_while_open<F: Files>(t: &World<F>) {
    let old = t.file(t.root(), "old", 0o644).await;
    let new = t.file(t.root(), "new", 0o644).await;
    t.ok("it is written", t.write(&owner(), old, 0, b"old").await);
    t.ok("it is opened", t.files.opened(old, false).await);
    t.ok("it is replaced", t.rename(&Caller::ROOT, (t.root(), "new"), (t.root(), "old")).await);
    t.same("the name is the new file", t.ok("found", t.find(t.root(), "old").await), new);
    t.same("the old one is read", t.read(old, 0, 10).await, b"old".to_vec());
    t.same("it has no name", t.attributes(old).await.links, 0);
    t.files.closed(old, false).await;
    t.fails("it is gone", t.files.attributes(old).await, FileError::Stale);
}
