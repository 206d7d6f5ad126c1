//! The tree of a bucket whose catalog was rebuilt: a restoration that is broken off, and names that two files had.

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
