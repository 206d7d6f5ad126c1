//! The tree of a bucket whose catalog was rebuilt: a restoration that is broken off, and names that
//! two files had.

use stele_archive::Timestamp;

use super::bucket_rules::{chmod, touch};
use super::stage::{Stage, content, file, read, settle, write};
use crate::files::{Files, Node, Removal};
use crate::{Caller, Changes, Creation, FileError, Inode, Share};

async fn directory(share: &Share, name: &str) -> Inode {
    let changes = Changes { mode: Some(0o755), ..Changes::default() };
    let made = share.make(&Caller::ROOT, share.root(), name.as_bytes(), Node::Directory, changes).await;
    made.expect("a directory").file.inode
}

async fn below(share: &Share, directory: Inode, name: &str, data: &bytes::Bytes) -> Inode {
    let how = Creation::Guarded(Changes { mode: Some(0o644), ..Changes::default() });
    let made = share.create(&Caller::ROOT, directory, name.as_bytes(), how).await.expect("a new file");
    write(share, made.file.inode, 0, data).await;
    made.file.inode
}

#[tokio::test(start_paused = true)]
async fn a_restoration_that_is_broken_off_goes_on_at_the_next_start() {
    // Each round but the last breaks the restoration off, one poll later than the round before.
    for polls in 0..120 {
        let stage = Stage::new(polls as u64).late();
        let share = stage.share().await;
        let mut files = Vec::new();
        for year in ["2024", "2025"] {
            let directory = directory(&share, year).await;
            for (seed, name) in ["a", "b", "c"].into_iter().enumerate() {
                let data = content(seed as u64, 5_000);
                files.push((format!("{year}/{name}"), below(&share, directory, name, &data).await, data));
            }
        }
        settle(&stage, &share).await;
        drop(share);
        stage.forget_files().await;

        let mut opening = Box::pin(stage.share());
        let mut opened = false;
        for _ in 0..polls {
            opened = futures_util::poll!(opening.as_mut()).is_ready();
            if opened {
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(opening);
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        let share = stage.share().await;
        for (path, inode, data) in &files {
            assert_eq!(share.resolve(path), Ok(*inode), "{path} after {polls} polls");
            assert!(read(&share, *inode).await == *data, "{path} after {polls} polls");
        }
        let names = share.read_directory(&Caller::ROOT, share.root(), 0, 100).await.expect("a listing").entries;
        assert_eq!(names.len(), 2, "after {polls} polls: {names:?}");
        let last = files.iter().map(|(_, inode, _)| *inode).max().expect("files");
        let new = file(&share, "new", &content(9, 10)).await;
        assert!(new > last, "after {polls} polls a new file has the number {new:?}");
        settle(&stage, &share).await;
        if opened {
            assert!(polls > 10, "only {polls} restorations were broken off");
            return;
        }
    }
    panic!("no restoration came to its end");
}

#[tokio::test(start_paused = true)]
async fn numbers_of_removed_files_are_not_given_out_after_a_rebuild() {
    for kept in [false, true] {
        let mut stage = Stage::new(7);
        stage.bucket.versioning = true;
        let share = stage.share().await;
        if kept {
            file(&share, "kept", &content(1, 10)).await;
        }
        let removed = file(&share, "removed", &content(2, 10)).await;
        settle(&stage, &share).await;
        share.remove(&Caller::ROOT, share.root(), b"removed", Removal::File).await.expect("a removal");
        settle(&stage, &share).await;
        drop(share);
        stage.forget_files().await;
        let share = stage.share().await;
        assert_eq!(share.resolve("removed"), Err(FileError::NotFound));
        assert_eq!(share.resolve("kept").is_ok(), kept);
        let new = file(&share, "new", &content(3, 10)).await;
        assert!(new > removed, "{new:?} is the number of a removed file, whose versions the bucket holds");
    }
}

#[tokio::test(start_paused = true)]
async fn a_restored_directory_never_takes_the_name_of_a_file() {
    let stage = Stage::new(8).committing();
    let share = stage.share().await;
    let root = share.root();
    let ledger = file(&share, "x", &content(1, 10)).await;
    settle(&stage, &share).await;
    share.rename(&Caller::ROOT, (root, b"x"), (root, b"z")).await.expect("a rename");
    touch(&share, ledger, Timestamp(stage.archive().await.retention_base().0 + 86_400_000)).await.expect("a date");
    chmod(&share, ledger, 0o444).await.expect("a commit");
    let x = directory(&share, "x").await;
    let below = below(&share, x, "f", &content(2, 20)).await;
    settle(&stage, &share).await;
    drop(share);
    stage.forget_files().await;

    let share = stage.share().await;
    assert_eq!(share.resolve("x"), Ok(ledger), "the committed file has lost its name");
    assert!(read(&share, ledger).await == content(1, 10));
    let refused = share.remove(&Caller::ROOT, share.root(), b"x", Removal::File).await;
    assert!(matches!(refused, Err(FileError::ReadOnly(_))), "{refused:?}");
    assert_eq!(share.resolve("x.directory/f"), Ok(below));
    assert!(read(&share, below).await == content(2, 20));
}

/// Polls a start that waits for the catalog.
async fn waits(mut opening: std::pin::Pin<&mut impl Future<Output = std::sync::Arc<Share>>>) {
    for _ in 0..20 {
        assert!(futures_util::poll!(opening.as_mut()).is_pending());
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_restoration_has_one_page_of_versions_in_memory() {
    let stage = Stage::new(9);
    let share = stage.share().await;
    let mut files = Vec::new();
    for number in 0..10 {
        files.push(file(&share, &format!("f{number}"), &content(number, 10)).await);
    }
    settle(&stage, &share).await;
    drop(share);
    stage.forget_files().await;
    stage.held.hold();
    let mut opening = Box::pin(stage.share());
    waits(opening.as_mut()).await;
    // The root, and then the first file.
    stage.held.release_one().await;
    waits(opening.as_mut()).await;
    assert_eq!(stage.held.waiting(), 1);
    // The last version goes before its page is read.
    let archive = stage.archive().await;
    let last = files.last().expect("files").0;
    let request = stele_archive::DeleteRequest {
        bucket: super::stage::NAME.into(),
        key: crate::share::reading::key_of(last),
        ..stele_archive::DeleteRequest::default()
    };
    let gateway = stele_archive::Caller::gateway("a test");
    let mut deleting = Box::pin(archive.delete(&gateway, request));
    let deleted = loop {
        match futures_util::poll!(deleting.as_mut()) {
            std::task::Poll::Ready(deleted) => break deleted,
            std::task::Poll::Pending => stage.held.release_one().await,
        }
    };
    deleted.expect("a deletion");
    stage.held.release().await;
    let share = opening.await;
    assert_eq!(share.resolve("f9"), Err(FileError::NotFound), "all versions were listed before the first was restored");
    for (number, inode) in files.iter().enumerate().take(9) {
        assert_eq!(share.resolve(&format!("f{number}")), Ok(*inode));
        assert!(read(&share, *inode).await == content(number as u64, 10));
    }
}

#[tokio::test(start_paused = true)]
async fn more_directories_than_are_remembered_are_restored_once() {
    let stage = Stage::new(10);
    let share = stage.share().await;
    let mut files = Vec::new();
    for round in 0..3_u64 {
        for year in 0..5 {
            let name = format!("y{year}");
            let directory = match share.resolve(&name) {
                Ok(found) => found,
                Err(_) => directory(&share, &name).await,
            };
            let data = content(round, 10);
            let made = below(&share, directory, &format!("f{round}"), &data).await;
            files.push((format!("{name}/f{round}"), made, data));
        }
    }
    settle(&stage, &share).await;
    drop(share);
    stage.forget_files().await;
    let share = stage.share().await;
    for (path, inode, data) in &files {
        assert_eq!(share.resolve(path), Ok(*inode), "{path}");
        assert!(read(&share, *inode).await == *data, "{path}");
    }
    let names = share.read_directory(&Caller::ROOT, share.root(), 0, 100).await.expect("a listing").entries;
    assert_eq!(names.len(), 5);
}
