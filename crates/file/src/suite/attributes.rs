//! Attributes: who may change which, and what else changes with them.

use std::sync::Arc;

use super::{World, callers, member, mode, owner, run, size, stranger};
use crate::model::SIZE_MAX;
use crate::{Access, Caller, Changes, FileError, Files, Kind, Moment, SetTime};

pub(super) async fn all<F: Files>(make: &mut impl AsyncFnMut() -> Arc<F>) -> usize {
    run!(
        make,
        the_mode_belongs_to_the_owner,
        owners_and_groups_change_by_rule,
        the_set_group_id_bit_needs_membership,
        a_change_of_owner_clears_set_ids,
        a_change_of_content_clears_set_ids,
        times_are_set_by_rule,
        times_are_kept_exactly,
        impossible_attributes_are_refused,
        a_guard_stops_a_change,
        every_change_is_counted,
        access_follows_the_mode,
        an_unknown_file_is_stale,
    )
}

async fn the_mode_belongs_to_the_owner<F: Files>(t: &World<F>) {
    let inode = t.file(t.root(), "f", 0o666).await;
    for (who, caller) in callers() {
        for bits in [0o000, 0o644, 0o777, 0o1755, 0o4711, 0o7777] {
            let before = t.attributes(inode).await;
            let result = t.set(&caller, inode, mode(bits)).await;
            match who {
                "root" => t.same("root sets any mode", t.ok("root sets it", result).mode, bits),
                "owner" => t.same("the owner sets any mode", t.ok("the owner sets it", result).mode, bits),
                _ => {
                    t.fails(&format!("{who} sets no mode"), result, FileError::NotOwner);
                    t.same("a refusal changes nothing", t.attributes(inode).await, before);
                }
            }
        }
    }
    for (name, inode) in t.every_kind(t.root()).await {
        let result = t.set(&owner(), inode, mode(0o604)).await;
        match name {
            "link" => t.fails("a symbolic link has no mode", result, FileError::NotSupported),
            _ => t.same(name, t.ok(name, result).mode, 0o604),
        }
    }
}

async fn owners_and_groups_change_by_rule<F: Files>(t: &World<F>) {
    let to = |uid, gid| Changes { uid, gid, ..Changes::default() };
    for (rule, caller, changes, allowed) in [
        ("root gives a file to anyone", Caller::ROOT, to(Some(7), Some(8)), true),
        ("the owner keeps the owner", owner(), to(Some(1001), None), true),
        ("the owner gives a file to its own group", owner(), to(None, Some(2002)), true),
        ("the owner keeps the group", owner(), to(None, Some(2001)), true),
        ("the owner gives nothing to a strange group", owner(), to(None, Some(2003)), false),
        ("the owner gives nothing away", owner(), to(Some(1002), None), false),
        ("a member gives nothing to its group", member(), to(None, Some(5)), false),
        ("a stranger takes nothing", stranger(), to(Some(1003), None), false),
        ("a stranger confirms nothing", stranger(), to(Some(1001), None), false),
        ("an owner in the group changes both", owner(), to(Some(1001), Some(2002)), true),
        ("one refused half refuses both", owner(), to(Some(1002), Some(2002)), false),
    ] {
        let inode = t.file(t.root(), rule, 0o777).await;
        let before = t.attributes(inode).await;
        let result = t.set(&caller, inode, changes.clone()).await;
        match allowed {
            true => {
                let after = t.ok(rule, result);
                t.same(rule, after.uid, changes.uid.unwrap_or(1001));
                t.same(rule, after.gid, changes.gid.unwrap_or(2001));
            }
            false => {
                t.fails(rule, result, FileError::NotOwner);
                t.same(rule, t.attributes(inode).await, before);
            }
        }
    }
}

async fn the_set_group_id_bit_needs_membership<F: Files>(t: &World<F>) {
    let inode = t.file(t.root(), "f", 0o755).await;
    t.same("a member keeps it", t.ok("chmod", t.set(&owner(), inode, mode(0o2755)).await).mode, 0o2755);
    let strange = Changes { gid: Some(3000), mode: Some(0o755), ..Changes::default() };
    t.ok("root changes the group", t.set(&Caller::ROOT, inode, strange).await);
    t.same("others lose it", t.ok("chmod", t.set(&owner(), inode, mode(0o6755)).await).mode, 0o4755);
    t.same("root keeps it", t.ok("chmod", t.set(&Caller::ROOT, inode, mode(0o6755)).await).mode, 0o6755);
}

async fn a_change_of_owner_clears_set_ids<F: Files>(t: &World<F>) {
    for (before, after) in [(0o6755, 0o755), (0o4644, 0o644), (0o2644, 0o2644), (0o7777, 0o1777)] {
        for (who, caller) in [("root", Caller::ROOT), ("the owner", owner())] {
            let rule = format!("{who} changes the group of {before:o}");
            let inode = t.file(t.root(), &rule, before).await;
            let changes = Changes { gid: Some(2002), ..Changes::default() };
            t.same(&rule, t.ok(&rule, t.set(&caller, inode, changes).await).mode, after);
        }
    }
    let directory = t.directory(t.root(), "directory", 0o6755).await;
    let changes = Changes { gid: Some(2002), ..Changes::default() };
    t.same("a directory keeps them", t.ok("chown", t.set(&owner(), directory, changes).await).mode, 0o6755);
}

async fn a_change_of_content_clears_set_ids<F: Files>(t: &World<F>) {
    for (before, after) in [(0o6777, 0o777), (0o2666, 0o2666), (0o4666, 0o666)] {
        for (who, caller) in callers() {
            let expected = if who == "root" { before } else { after };
            let rule = format!("{who} writes to {before:o}");
            let inode = t.file(t.root(), &rule, before).await;
            t.same(&rule, t.ok(&rule, t.write(&caller, inode, 0, b"text").await).mode, expected);
            let rule = format!("{who} cuts {before:o}");
            let inode = t.file(t.root(), &rule, before).await;
            t.same(&rule, t.ok(&rule, t.set(&caller, inode, size(0)).await).mode, expected);
        }
    }
}

async fn times_are_set_by_rule<F: Files>(t: &World<F>) {
    let at = Some(SetTime::At(Moment { seconds: 5, nanoseconds: 6 }));
    let now = Some(SetTime::Now);
    for (bits, who, caller, both, explicit) in [
        (0o000, "root", Caller::ROOT, None, None),
        (0o000, "owner", owner(), None, None),
        (0o664, "member", member(), None, Some(FileError::NotOwner)),
        (0o646, "stranger", stranger(), None, Some(FileError::NotOwner)),
        (0o644, "member", member(), Some(FileError::Denied), Some(FileError::NotOwner)),
        (0o644, "stranger", stranger(), Some(FileError::Denied), Some(FileError::NotOwner)),
    ] {
        for (what, accessed, modified, error) in
            [("now", now, now, &both), ("exactly", at, at, &explicit), ("one exactly", now, at, &explicit)]
        {
            let rule = format!("{who} sets times {what} at {bits:o}");
            let inode = t.file(t.root(), &rule, bits).await;
            let result = t.set(&caller, inode, Changes { accessed, modified, ..Changes::default() }).await;
            match error {
                None => drop(t.ok(&rule, result)),
                Some(error) => t.fails(&rule, result, error.clone()),
            }
        }
    }
}

async fn times_are_kept_exactly<F: Files>(t: &World<F>) {
    let inode = t.file(t.root(), "f", 0o644).await;
    for (accessed, modified) in [
        (Moment { seconds: 0, nanoseconds: 0 }, Moment { seconds: 0, nanoseconds: 999_999_999 }),
        (Moment { seconds: -1, nanoseconds: 1 }, Moment { seconds: -86_400 * 365, nanoseconds: 0 }),
        (Moment { seconds: 1 << 33, nanoseconds: 123_456_789 }, Moment { seconds: 1, nanoseconds: 5 }),
    ] {
        let (a, m) = (Some(SetTime::At(accessed)), Some(SetTime::At(modified)));
        t.ok("times are set", t.set(&owner(), inode, Changes { accessed: a, modified: m, ..Changes::default() }).await);
        let found = t.attributes(inode).await;
        t.same("both times are as set", (found.accessed, found.modified), (accessed, modified));
    }
    let before = t.attributes(inode).await;
    let one = Changes { modified: Some(SetTime::At(Moment { seconds: 9, nanoseconds: 9 })), ..Changes::default() };
    t.same("one time leaves the other", t.ok("it is set", t.set(&owner(), inode, one).await).accessed, before.accessed);
}

async fn impossible_attributes_are_refused<F: Files>(t: &World<F>) {
    let invalid = || FileError::Invalid(String::new());
    let late = Some(SetTime::At(Moment { seconds: 0, nanoseconds: 1_000_000_000 }));
    let kinds = t.every_kind(t.root()).await;
    let [file, directory, link] = [0, 1, 2].map(|place| kinds[place].1);
    for (rule, inode, changes, error) in [
        ("a mode has 12 bits", file, mode(0o10000), invalid()),
        ("a second has 10^9 nanoseconds", file, Changes { accessed: late, ..Changes::default() }, invalid()),
        ("a directory has no size to set", directory, size(0), FileError::IsDirectory),
        ("a link has no size to set", link, size(0), invalid()),
        ("a file has a largest size", file, size(SIZE_MAX + 1), FileError::TooLarge),
        ("the greatest number is no user", file, Changes { uid: Some(u32::MAX), ..Changes::default() }, invalid()),
    ] {
        let before = t.attributes(inode).await;
        t.fails(rule, t.set(&Caller::ROOT, inode, changes).await, error);
        t.same(rule, t.attributes(inode).await, before);
    }
    // Every change stays out if one of them is refused.
    let before = t.attributes(file).await;
    let mixed = Changes { mode: Some(0o600), size: Some(SIZE_MAX + 1), ..Changes::default() };
    t.fails("all or nothing", t.set(&Caller::ROOT, file, mixed).await, FileError::TooLarge);
    t.same("all or nothing", t.attributes(file).await, before);
}

async fn a_guard_stops_a_change<F: Files>(t: &World<F>) {
    let inode = t.file(t.root(), "f", 0o644).await;
    let before = t.attributes(inode).await;
    let wrong = Some(Moment { seconds: before.changed.seconds - 1, nanoseconds: before.changed.nanoseconds });
    let result = t.files.set_attributes(&owner(), inode, mode(0o600), wrong).await;
    t.fails("another change time stops it", result, FileError::NotSynchronized);
    t.same("nothing changed", t.attributes(inode).await, before.clone());
    let changed = t.ok(
        "the right one lets it pass",
        t.files.set_attributes(&owner(), inode, mode(0o600), Some(before.changed)).await,
    );
    t.same("the state before is answered", changed.before, before);
    t.same("the state after is answered", changed.after.clone(), t.attributes(inode).await);
}

async fn every_change_is_counted<F: Files>(t: &World<F>) {
    let inode = t.file(t.root(), "f", 0o644).await;
    let now = Some(SetTime::Now);
    let mut before = t.attributes(inode).await;
    for (rule, changes) in [
        ("mode", mode(0o600)),
        ("owner", Changes { uid: Some(1001), ..Changes::default() }),
        ("size", size(100)),
        ("access time", Changes { accessed: now, ..Changes::default() }),
        ("modification time", Changes { modified: now, ..Changes::default() }),
    ] {
        let after = t.ok(rule, t.set(&owner(), inode, changes).await);
        t.holds(rule, after.change > before.change && after.changed >= before.changed);
        before = after;
    }
    let after = t.ok("write", t.write(&owner(), inode, 0, b"x").await);
    t.holds("a write is counted", after.change > before.change && after.modified >= before.modified);
    let nothing = t.ok("nothing", t.set(&stranger(), inode, Changes::default()).await);
    t.same("no change is no change", nothing, after);
}

async fn access_follows_the_mode<F: Files>(t: &World<F>) {
    let wanted = Access { read: true, lookup: true, modify: true, extend: true, delete: true, execute: true };
    for shift in [6, 3, 0] {
        for bits in 0..8u32 {
            let name = format!("{shift} {bits}");
            let file = t.file(t.root(), &name, bits << shift).await;
            let directory = t.directory(t.root(), &format!("{name} directory"), bits << shift).await;
            for (who, caller) in callers() {
                let class = [("owner", 6), ("member", 3), ("stranger", 0)].iter().find(|(name, _)| *name == who);
                let own = match class {
                    Some((_, own)) if *own == shift => bits,
                    Some(_) => 0,
                    None => 7,
                };
                let (r, w, x) = (own & 4 != 0, own & 2 != 0, own & 1 != 0);
                let runs = if who == "root" { bits & 1 != 0 } else { x };
                let rule = format!("{who} at {bits} << {shift}");
                let found = t.ok(&rule, t.files.access(&caller, file, wanted).await);
                let all = Access { read: r, lookup: false, modify: w, extend: w, delete: false, execute: runs };
                t.same(&rule, found, all);
                let found = t.ok(&rule, t.files.access(&caller, directory, wanted).await);
                let wx = w && x;
                let all = Access { read: r, lookup: x, modify: wx, extend: wx, delete: wx, execute: false };
                t.same(&rule, found, all);
            }
        }
    }
}

async fn an_unknown_file_is_stale<F: Files>(t: &World<F>) {
    let inode = t.file(t.root(), "f", 0o644).await;
    t.ok("it is removed", t.remove(&Caller::ROOT, t.root(), "f", crate::Removal::File).await);
    t.fails("attributes", t.files.attributes(inode).await, FileError::Stale);
    t.fails("change", t.set(&Caller::ROOT, inode, mode(0o600)).await, FileError::Stale);
    t.fails("read", t.files.read(&Caller::ROOT, inode, 0, 1).await, FileError::Stale);
    t.fails("write", t.write(&Caller::ROOT, inode, 0, b"x").await, FileError::Stale);
    t.fails("commit", t.files.commit(inode).await, FileError::Stale);
    t.fails("link", t.link(&Caller::ROOT, inode, t.root(), "g").await, FileError::Stale);
    t.fails("lookup", t.find(inode, "x").await, FileError::Stale);
    let next = t.file(t.root(), "f", 0o644).await;
    t.holds("a number is never used again", next != inode);
    t.same("its kind", t.attributes(next).await.kind, Kind::File);
}
