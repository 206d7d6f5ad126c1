//! What only the twin promises: crashes, capacity, exact times. The suite checks the rest.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use bytes::Bytes;
use futures_util::FutureExt;

use super::*;
use crate::files::Entry;

const ROOT_USER: Caller = Caller::ROOT;

/// A tree whose clock rises by one second with every look.
fn tree() -> MemoryFiles {
    let seconds = Arc::new(AtomicI64::new(1000));
    MemoryFiles::new(move || Moment { seconds: seconds.fetch_add(1, Ordering::Relaxed), nanoseconds: 5 })
}

/// Every call of the twin answers at once.
fn now<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().expect("the twin never waits")
}

fn file(files: &MemoryFiles, name: &str) -> Inode {
    let how = Creation::Guarded(Changes { mode: Some(0o644), ..Changes::default() });
    let Entry { file, .. } = now(files.create(&ROOT_USER, ROOT, name.as_bytes(), how)).expect("it is created");
    file.inode
}

fn write(files: &MemoryFiles, inode: Inode, offset: u64, text: &[u8], stability: Stability) -> Result<()> {
    let data = vec![Bytes::copy_from_slice(text)];
    now(files.write(&ROOT_USER, inode, offset, data, stability)).map(|_| ())
}

fn content(files: &MemoryFiles, inode: Inode) -> Vec<u8> {
    now(files.read(&ROOT_USER, inode, 0, u32::MAX)).expect("it is read").pieces.concat()
}

#[test]
fn a_crash_loses_what_was_not_committed() {
    let files = tree();
    let inode = file(&files, "a");
    write(&files, inode, 0, &[1; 5000], Stability::Data).expect("it is written");
    let verifier = files.verifier();
    write(&files, inode, 4000, &[2; 9000], Stability::Unstable).expect("it is written");
    now(files.commit(inode)).expect("it is committed");
    let committed = content(&files, inode);
    write(&files, inode, 100, &[3; 100], Stability::Unstable).expect("it is written");
    write(&files, inode, 20_000, &[3; 100], Stability::Unstable).expect("it is written");
    let before = now(files.attributes(inode)).expect("it exists");
    files.crash();
    assert_eq!(content(&files, inode), committed);
    let after = now(files.attributes(inode)).expect("it exists");
    assert!(after.change > before.change && after.changed > before.changed, "the loss is a change");
    assert_ne!(files.verifier(), verifier);
}

#[test]
fn a_crash_that_loses_nothing_keeps_the_verifier() {
    let files = tree();
    let inode = file(&files, "a");
    write(&files, inode, 0, b"unstable", Stability::Unstable).expect("it is written");
    write(&files, inode, 3, b"stable", Stability::File).expect("it is written");
    let verifier = files.verifier();
    files.crash();
    assert_eq!(content(&files, inode), b"unsstable");
    assert_eq!(files.verifier(), verifier);
}

#[test]
fn a_crash_removes_files_that_only_an_opener_kept() {
    let files = tree();
    let inode = file(&files, "a");
    now(files.opened(inode, true)).expect("it exists");
    now(files.remove(&ROOT_USER, ROOT, b"a", Removal::File)).expect("it is removed");
    assert_eq!(now(files.attributes(inode)).map(|file| file.links), Ok(0));
    files.crash();
    assert_eq!(now(files.attributes(inode)), Err(FileError::Stale));
}

#[test]
fn content_beyond_the_capacity_is_refused() {
    let files = tree().with_capacity(3 * 4096);
    let inode = file(&files, "a");
    write(&files, inode, 1 << 40, &[1; 4096 + 1], Stability::Data).expect("two pages fit");
    assert_eq!(write(&files, inode, 4095, &[1; 2], Stability::Data), Err(FileError::NoSpace));
    write(&files, inode, 4095, &[1; 1], Stability::Data).expect("the third page fits");
    write(&files, inode, 1, &[1; 7], Stability::Data).expect("it is there already");
    assert_eq!(now(files.space()).expect("it answers").free, 0);
    now(files.set_attributes(&ROOT_USER, inode, Changes { size: Some(0), ..Changes::default() }, None)).expect("cut");
    assert_eq!(now(files.space()).expect("it answers").free, 3 * 4096);
}

#[test]
fn a_stored_page_keeps_no_buffer_of_its_writer() {
    let files = tree();
    let inode = file(&files, "a");
    let page = Bytes::from(vec![7; 4096]);
    now(files.write(&ROOT_USER, inode, 4096, vec![page.clone()], Stability::Data)).expect("it is written");
    let data = now(files.read(&ROOT_USER, inode, 4096, 4096)).expect("it is read");
    assert_eq!(data.pieces.concat(), page);
    assert_ne!(data.pieces.first().map(|piece| piece.as_ptr()), Some(page.as_ptr()));
}

#[test]
fn the_twin_passes_the_suite() {
    let count = now(crate::suite::conforms(async || Arc::new(tree())));
    assert!(count >= 60, "only {count} checks ran");
}

#[test]
fn two_twins_agree() {
    for seed in 0..8 {
        let (a, b) = (tree(), tree());
        let outcome = now(crate::suite::compare::compare(&a, &b, seed, 3000));
        let enough = outcome.succeeded > 600 && outcome.failed > 300;
        assert!(enough, "seed {seed} compared too little: {outcome:?}");
    }
}

#[test]
fn a_comparison_notices_a_lost_write() {
    let (a, b) = (tree(), tree());
    let changes = Changes { mode: Some(0o644), ..Changes::default() };
    for files in [&a, &b] {
        let inode = file(files, "a");
        write(files, inode, 5000, b"content", Stability::Unstable).expect("it is written");
        now(files.set_attributes(&ROOT_USER, ROOT, changes.clone(), None)).expect("it is changed");
    }
    b.crash();
    let compared = std::panic::AssertUnwindSafe(crate::suite::compare::compare(&a, &b, 1, 0));
    let why = now(futures_util::FutureExt::catch_unwind(compared)).expect_err("they differ");
    let text = why.downcast_ref::<String>().cloned().unwrap_or_default();
    assert!(text.contains("at the end"), "{text}");
}
