//! Content: reading, writing, cutting, holes, and files that are open.

use std::sync::Arc;

use bytes::Bytes;

use super::{World, callers, mode, owner, run, size, stranger};
use crate::model::SIZE_MAX;
use crate::{Caller, FileError, Files, Removal, Stability};

pub(super) async fn all<F: Files>(make: &mut impl AsyncFnMut() -> Arc<F>) -> usize {
    run!(
        make,
        what_was_written_is_read,
        a_write_may_come_in_pieces,
        an_append_goes_to_the_end,
        holes_read_as_zeros,
        a_cut_forgets_what_was_behind_it,
        the_end_is_announced,
        the_largest_file_ends_at_the_limit,
        content_follows_the_mode_and_the_owner,
        only_regular_files_have_content,
        writing_nothing_changes_nothing,
        a_write_is_as_stable_as_asked,
        reading_is_no_change,
        an_open_file_outlives_its_last_name,
        space_is_accounted,
    )
}

/// Bytes that tell their place.
fn pattern(offset: u64, length: usize) -> Vec<u8> {
    (offset..).take(length).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8 | 1).collect()
}

async fn what_was_written_is_read<F: Files>(t: &World<F>) {
    let inode = t.file(t.root(), "f", 0o644).await;
    let mut expected = Vec::new();
    for (offset, length) in [(0, 10), (10, 4086), (4096, 4096), (5000, 100), (4095, 2), (1, 20_000), (70_000, 1)] {
        let data = pattern(offset as u64 + length as u64, length);
        expected.resize(expected.len().max(offset + length), 0);
        expected[offset..offset + length].copy_from_slice(&data);
        let after = t.ok("it is written", t.write(&owner(), inode, offset as u64, &data).await);
        t.same("the size is the end", after.size, expected.len() as u64);
        t.same("all of it is read", t.read(inode, 0, u32::MAX).await, expected.clone());
    }
    for (offset, length) in [(0, 1), (4095, 2), (4096, 4096), (1, 50_000), (69_999, 2), (70_000, 1)] {
        let part = t.read(inode, offset as u64, length as u32).await;
        t.same("a part is read", part, expected[offset..expected.len().min(offset + length)].to_vec());
    }
}

async fn a_write_may_come_in_pieces<F: Files>(t: &World<F>) {
    let inode = t.file(t.root(), "f", 0o644).await;
    let data = Bytes::from(pattern(0, 30_000));
    let cuts = [0, 0, 1, 4096, 4097, 8192, 20_000, 20_000, 29_999, 30_000];
    let pieces = cuts.windows(2).map(|cut| data.slice(cut[0]..cut[1])).collect();
    t.ok("it is written", t.files.write(&owner(), inode, 77, pieces, Stability::Data).await);
    t.same("the pieces follow each other", t.read(inode, 77, u32::MAX).await, data.to_vec());
    t.same("nothing came before them", t.read(inode, 0, 77).await, vec![0; 77]);
}

async fn an_append_goes_to_the_end<F: Files>(t: &World<F>) {
    let inode = t.file(t.root(), "f", 0o644).await;
    let mut expected = Vec::new();
    for length in [10, 4086, 4096, 8192, 1, 70_000] {
        if length == 8192 {
            t.ok("it is cut", t.set(&owner(), inode, size(4096)).await);
            expected.truncate(4096);
        }
        let data = pattern(length as u64, length);
        expected.extend_from_slice(&data);
        let appended = t.files.append(&owner(), inode, vec![Bytes::from(data)], Stability::Data).await;
        t.same("the size is the end", t.ok("it is appended", appended).0.after.size, expected.len() as u64);
        t.same("all of it is read", t.read(inode, 0, u32::MAX).await, expected.clone());
    }
    let theirs = t.files.append(&stranger(), inode, vec![Bytes::from_static(b"x")], Stability::Data).await;
    t.fails("the mode counts", theirs, FileError::Denied);
}

async fn holes_read_as_zeros<F: Files>(t: &World<F>) {
    let inode = t.file(t.root(), "f", 0o644).await;
    let far = 1u64 << 42;
    t.ok("it is written", t.write(&owner(), inode, far, b"end").await);
    let file = t.attributes(inode).await;
    t.same("the hole counts in the size", file.size, far + 3);
    t.holds("the hole takes no space", file.used < 1 << 30);
    for offset in [0, 4095, far / 2, far - 5000] {
        t.same("the hole is zeros", t.read(inode, offset, 5000).await.iter().all(|byte| *byte == 0), true);
    }
    t.same("the end is there", t.read(inode, far - 1, 10).await, b"\0end".to_vec());
    t.ok("it is extended", t.set(&owner(), inode, size(far * 2)).await);
    t.same("a longer file ends in a hole", t.read(inode, far + 2, 3).await, b"d\0\0".to_vec());
}

async fn a_cut_forgets_what_was_behind_it<F: Files>(t: &World<F>) {
    let inode = t.file(t.root(), "f", 0o644).await;
    let data = pattern(0, 20_000);
    for cut in [0, 1, 4095, 4096, 4097, 12_288, 19_999, 20_000] {
        t.ok("it is written", t.write(&owner(), inode, 0, &data).await);
        t.same("it is cut", t.ok("cut", t.set(&owner(), inode, size(cut)).await).size, cut);
        t.same("it is extended", t.ok("extend", t.set(&owner(), inode, size(20_000)).await).size, 20_000);
        let mut expected = data[..cut as usize].to_vec();
        expected.resize(20_000, 0);
        t.same("zeros follow the cut", t.read(inode, 0, u32::MAX).await, expected);
    }
}

async fn the_end_is_announced<F: Files>(t: &World<F>) {
    let inode = t.file(t.root(), "f", 0o644).await;
    t.ok("it is written", t.write(&owner(), inode, 0, &pattern(0, 5000)).await);
    for (offset, length, read, end) in [
        (0, 4999, 4999, false),
        (0, 5000, 5000, true),
        (0, 5001, 5000, true),
        (4999, 1, 1, true),
        (5000, 1, 0, true),
        (u64::MAX, u32::MAX, 0, true),
        (10, 0, 0, false),
    ] {
        let data = t.ok("it is read", t.files.read(&owner(), inode, offset, length).await);
        let found = (data.pieces.iter().map(Bytes::len).sum::<usize>(), data.end);
        t.same(&format!("{length} bytes from {offset} of 5000"), found, (read, end));
    }
}

async fn the_largest_file_ends_at_the_limit<F: Files>(t: &World<F>) {
    let inode = t.file(t.root(), "f", 0o644).await;
    let after = t.ok("the last byte is written", t.write(&owner(), inode, SIZE_MAX - 1, b"z").await);
    t.same("the size is the limit", after.size, SIZE_MAX);
    t.same("it is read", t.read(inode, SIZE_MAX - 2, 10).await, b"\0z".to_vec());
    let after = t.attributes(inode).await;
    for (offset, data) in [(SIZE_MAX, &b"x"[..]), (SIZE_MAX - 1, b"xy"), (u64::MAX, b"x")] {
        t.fails("beyond the limit", t.write(&owner(), inode, offset, data).await, FileError::TooLarge);
    }
    t.same("a refusal changes nothing", t.attributes(inode).await, after);
    t.ok("it is cut", t.set(&owner(), inode, size(0)).await);
}

async fn content_follows_the_mode_and_the_owner<F: Files>(t: &World<F>) {
    for bits in [0o000, 0o400, 0o200, 0o100, 0o040, 0o020, 0o010, 0o004, 0o002, 0o001, 0o666] {
        let inode = t.file(t.root(), &format!("{bits:o}"), bits).await;
        for (who, caller) in callers() {
            let own = match who {
                "root" | "owner" => 7,
                "member" => bits >> 3 & 7,
                _ => bits & 7,
            };
            let rule = format!("{who} at {bits:o}");
            let read = t.files.read(&caller, inode, 0, 10).await;
            let written = t.write(&caller, inode, 0, b"text").await;
            let cut = t.set(&caller, inode, size(3)).await;
            match own & 5 {
                0 => t.fails(&rule, read, FileError::Denied),
                _ => drop(t.ok(&rule, read)),
            }
            match own & 2 {
                0 => {
                    t.fails(&rule, written, FileError::Denied);
                    t.fails(&rule, cut, FileError::Denied);
                }
                _ => {
                    t.ok(&rule, written);
                    t.ok(&rule, cut);
                }
            }
        }
    }
}

async fn only_regular_files_have_content<F: Files>(t: &World<F>) {
    for (name, inode) in t.every_kind(t.root()).await.into_iter().skip(1) {
        let error = match name {
            "directory" => FileError::IsDirectory,
            _ => FileError::Invalid(String::new()),
        };
        t.fails(name, t.files.read(&Caller::ROOT, inode, 0, 1).await, error.clone());
        t.fails(name, t.write(&Caller::ROOT, inode, 0, b"x").await, error);
        let target = t.files.read_link(&stranger(), inode).await;
        match name {
            "link" => t.same("the target is as made", t.ok("read", target), Bytes::from_static(b"target")),
            _ => t.fails("only a link has a target", target, FileError::Invalid(String::new())),
        }
    }
}

async fn writing_nothing_changes_nothing<F: Files>(t: &World<F>) {
    let inode = t.file(t.root(), "f", 0o6755).await;
    let before = t.attributes(inode).await;
    for offset in [0, 100, SIZE_MAX] {
        t.same("nothing changed", t.ok("written", t.write(&owner(), inode, offset, b"").await), before.clone());
    }
    t.fails("it needs permission all the same", t.write(&stranger(), inode, 0, b"").await, FileError::Denied);
}

async fn a_write_is_as_stable_as_asked<F: Files>(t: &World<F>) {
    let inode = t.file(t.root(), "f", 0o644).await;
    let verifier = t.files.verifier();
    for (offset, asked) in [(0, Stability::Unstable), (1, Stability::Data), (2, Stability::File)] {
        let before = t.attributes(inode).await;
        let written = t.files.write(&owner(), inode, offset, vec![Bytes::from_static(b"x")], asked).await;
        let (changed, reached) = t.ok("it is written", written);
        t.holds("at least as stable as asked", reached >= asked);
        t.same("the state before is answered", changed.before, before);
        t.same("the state after is answered", changed.after, t.attributes(inode).await);
    }
    t.same("a commit answers the file", t.ok("commit", t.files.commit(inode).await), t.attributes(inode).await);
    t.ok("a commit may be repeated", t.files.commit(inode).await);
    t.same("nothing was lost", t.files.verifier(), verifier);
}

/// Whether reading marks the access time is left to each tree: a share does not, since the time
/// names a retention.
async fn reading_is_no_change<F: Files>(t: &World<F>) {
    let inode = t.file(t.root(), "f", 0o644).await;
    let written = t.ok("it is written", t.write(&owner(), inode, 0, b"text").await);
    t.read(inode, 0, 4).await;
    let after = t.attributes(inode).await;
    t.holds("the access time does not go back", after.accessed >= written.accessed);
    t.same("reading is no change", (after.change, after.changed), (written.change, written.changed));
}

async fn an_open_file_outlives_its_last_name<F: Files>(t: &World<F>) {
    let inode = t.file(t.root(), "f", 0o644).await;
    t.ok("it is written", t.write(&owner(), inode, 0, b"text").await);
    t.ok("it is opened", t.files.opened(inode, true).await);
    t.ok("it is opened again", t.files.opened(inode, false).await);
    t.ok("it is removed", t.remove(&Caller::ROOT, t.root(), "f", Removal::File).await);
    t.same("it has no name", t.attributes(inode).await.links, 0);
    t.same("it is read", t.read(inode, 0, 10).await, b"text".to_vec());
    t.ok("it is written", t.write(&owner(), inode, 4, b"more").await);
    t.ok("its mode changes", t.set(&owner(), inode, mode(0o600)).await);
    t.fails("it gets no name", t.link(&Caller::ROOT, inode, t.root(), "g").await, FileError::NotFound);
    t.files.closed(inode, true).await;
    t.same("it is read", t.read(inode, 0, 10).await, b"textmore".to_vec());
    t.files.closed(inode, false).await;
    t.fails("the last close removes it", t.files.attributes(inode).await, FileError::Stale);
    t.fails("it cannot be opened", t.files.opened(inode, false).await, FileError::Stale);

    let kept = t.file(t.root(), "kept", 0o644).await;
    t.ok("it is opened", t.files.opened(kept, true).await);
    t.files.closed(kept, true).await;
    t.same("a file with a name stays", t.attributes(kept).await.links, 1);
}

async fn space_is_accounted<F: Files>(t: &World<F>) {
    let space = t.ok("space is answered", t.files.space().await);
    t.holds("there is no more free than there is", space.free <= space.total && space.files_free <= space.files_total);
    let inode = t.file(t.root(), "f", 0o644).await;
    t.ok("it is written", t.write(&owner(), inode, 0, &pattern(0, 100_000)).await);
    t.holds("the file is accounted", t.attributes(inode).await.used > 0);
}
