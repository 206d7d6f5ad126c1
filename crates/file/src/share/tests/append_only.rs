//! Committed files that can only grow: extensions beside other acts, and what comes near the end of
//! their retention.

use stele_archive::Timestamp;

use super::bucket_rules::{DAY, chmod, retained, touch};
use super::stage::{NAME, Stage, content, file, read, settle};
use crate::files::Files;
use crate::share::reading::key_of;
use crate::{Caller, Changes, FileError, Inode, Moment, SetTime, Share, Stability};

/// A file that can only grow, until this time.
async fn log(share: &Share, until: Timestamp) -> Inode {
    let inode = file(share, "log", &content(1, 0)).await;
    let at = Moment::from_nanoseconds(i128::from(until.0) * 1_000_000);
    let changes = Changes { mode: Some(0o444), accessed: Some(SetTime::At(at)), ..Changes::default() };
    share.set_attributes(&Caller::ROOT, inode, changes, None).await.expect("an empty file is committed on request");
    chmod(share, inode, 0o644).await.expect("it may grow");
    inode
}

async fn append(share: &Share, inode: Inode, offset: u64, data: &bytes::Bytes) -> crate::Result<()> {
    share.write(&Caller::ROOT, inode, offset, vec![data.clone()], Stability::Unstable).await.map(drop)
}

/// Polls a future so many times. Answers its result, if it came to its end.
async fn polled<F: Future + Unpin>(future: &mut F, polls: usize) -> Option<F::Output> {
    for _ in 0..polls {
        if let std::task::Poll::Ready(result) = futures_util::poll!(&mut *future) {
            return Some(result);
        }
        tokio::task::yield_now().await;
    }
    None
}

#[tokio::test(start_paused = true)]
async fn an_extension_beside_the_closing_of_a_file_is_kept() {
    for polls in 0..40 {
        let stage = Stage::new(1).committing().late();
        let share = stage.share().await;
        let base = stage.archive().await.retention_base();
        let (first, second) = (Timestamp(base.0 + DAY), Timestamp(base.0 + 90 * DAY));
        let inode = log(&share, first).await;
        append(&share, inode, 0, &content(2, 300_000)).await.expect("appended");
        let mut closing = Box::pin(chmod(&share, inode, 0o444));
        let ended = polled(&mut closing, polls).await;
        let closing = async {
            match ended {
                Some(result) => result,
                None => closing.await,
            }
        };
        let (_, extended) = tokio::join!(closing, touch(&share, inode, second));
        extended.unwrap_or_else(|error| panic!("after {polls} polls: {error}"));
        settle(&stage, &share).await;
        assert_eq!(share.state(inode).expect("a state").committed, Some(second), "after {polls} polls");
        let kept = retained(&stage, inode).await.map(|kept| kept.until);
        assert_eq!(kept, Some(second), "the newest version after {polls} polls");
    }
}

#[tokio::test(start_paused = true)]
async fn an_extension_beside_archiving_reaches_the_new_version() {
    let stage = Stage::new(2).committing();
    let share = stage.share().await;
    let base = stage.archive().await.retention_base();
    let (first, second) = (Timestamp(base.0 + DAY), Timestamp(base.0 + 90 * DAY));
    let inode = log(&share, first).await;
    append(&share, inode, 0, &content(2, 5 << 20)).await.expect("appended");
    stage.pass(20);
    // Archiving has begun its version, and waits for its first read.
    let held = share.gate_of(inode.0).await.expect("the gate");
    let mut working = Box::pin(share.work());
    assert!(polled(&mut working, 5).await.is_none(), "the content is archived without a read of it");
    let mut extending = Box::pin(touch(&share, inode, second));
    let ended = polled(&mut extending, 5).await;
    drop(held);
    let extending = async {
        match ended {
            Some(result) => result,
            None => extending.await,
        }
    };
    let (worked, extended) = tokio::join!(working, extending);
    worked.expect("background work");
    extended.expect("an extension");
    settle(&stage, &share).await;
    assert!(share.state(inode).expect("a state").version.is_some(), "the content is not archived");
    assert_eq!(share.state(inode).expect("a state").committed, Some(second));
    assert_eq!(retained(&stage, inode).await.map(|kept| kept.until), Some(second), "the newest version");
}

#[tokio::test(start_paused = true)]
async fn content_that_comes_near_the_end_is_archived_and_none_comes_after() {
    let stage = Stage::new(3).committing();
    let share = stage.share().await;
    let until = Timestamp(stage.archive().await.retention_base().0 + DAY);
    let inode = log(&share, until).await;
    stage.pass(86_400 - 5);
    append(&share, inode, 0, &content(2, 30_000)).await.expect("the retention has not ended");
    settle(&stage, &share).await;
    assert!(share.state(inode).expect("a state").version.is_some(), "the content is not archived");
    assert!(stage.archive().await.compliance_time() > until);
    let refused = |result: crate::Result<()>, act: &str| {
        assert!(matches!(result, Err(FileError::ReadOnly(_))), "{act}: {result:?}");
    };
    refused(append(&share, inode, 30_000, &content(3, 10)).await, "append");
    let longer = Changes { size: Some(40_000), ..Changes::default() };
    refused(share.set_attributes(&Caller::ROOT, inode, longer, None).await.map(drop), "a new size");
    // An extension lets it grow again, and it is closed by its mode after the end too.
    touch(&share, inode, Timestamp(until.0 + 2 * DAY)).await.expect("committed again");
    append(&share, inode, 30_000, &content(3, 10)).await.expect("it may grow again");
    stage.pass(3 * 86_400);
    chmod(&share, inode, 0o444).await.expect("closed after the end");
    settle(&stage, &share).await;
    assert!(share.state(inode).expect("a state").version.is_some());
    assert_eq!(read(&share, inode).await.len(), 30_010);
}

#[tokio::test(start_paused = true)]
async fn growth_ends_by_the_compliance_clock() {
    let stage = Stage::new(4).committing();
    let share = stage.share().await;
    let until = Timestamp(stage.archive().await.retention_base().0 + DAY);
    let inode = log(&share, until).await;
    // The system clock is set ahead, beyond the end. The compliance clock does not follow.
    stage.set_ahead(2 * 86_400);
    assert!(stage.archive().await.compliance_time() < until);
    append(&share, inode, 0, &content(2, 30_000)).await.expect("the retention has not ended");
    settle(&stage, &share).await;
    assert!(share.state(inode).expect("a state").version.is_some(), "the content is not archived");
    assert_eq!(retained(&stage, inode).await.map(|kept| kept.until), Some(until));
}

/// Versions of a file in the archive.
async fn versions(stage: &Stage, inode: Inode) -> usize {
    let request = stele_archive::ListVersionsRequest {
        bucket: NAME.into(),
        prefix: key_of(inode.0),
        limit: 100,
        ..stele_archive::ListVersionsRequest::default()
    };
    let caller = stele_archive::Caller::gateway("testing");
    stage.archive().await.list_versions(&caller, request).await.expect("a list").versions.len()
}

#[tokio::test(start_paused = true)]
async fn a_new_size_that_is_refused_or_the_present_one_makes_no_version() {
    let stage = Stage::new(5).committing();
    let share = stage.share().await;
    let until = Timestamp(stage.archive().await.retention_base().0 + DAY);
    let inode = log(&share, until).await;
    append(&share, inode, 0, &content(2, 30_000)).await.expect("appended");
    settle(&stage, &share).await;
    let before = (versions(&stage, inode).await, share.attributes(inode).await.expect("attributes"));
    let other = Caller { uid: 4711, gid: 4711, groups: Vec::new() };
    for (caller, size, refused) in
        [(&other, 30_000, false), (&other, 40_000, true), (&Caller::ROOT, 30_000, false), (&Caller::ROOT, 29_999, true)]
    {
        let changes = Changes { size: Some(size), ..Changes::default() };
        let set = share.set_attributes(caller, inode, changes.clone(), None).await;
        assert_eq!(set.is_err(), refused, "{caller:?} sets {size}: {set:?}");
        // The same where the file grew or shrank after the first look at it.
        let resized = share.resize(caller, inode, size, &changes, None).await;
        assert!(resized.is_err() || size == 30_000 && caller.is_root(), "{caller:?} sets {size}: {resized:?}");
        assert!(!share.row(inode).expect("the row").open, "{caller:?} opened the file with the size {size}");
        settle(&stage, &share).await;
        let after = (versions(&stage, inode).await, share.attributes(inode).await.expect("attributes"));
        assert_eq!(after, before, "{caller:?} sets {size}");
    }
    let longer = Changes { size: Some(40_000), ..Changes::default() };
    share.set_attributes(&Caller::ROOT, inode, longer, None).await.expect("its owner makes it longer");
    settle(&stage, &share).await;
    assert_eq!(versions(&stage, inode).await, before.0 + 1);
}

#[tokio::test(start_paused = true)]
async fn a_write_may_repeat_archived_bytes_as_they_are() {
    let stage = Stage::new(6).committing();
    let share = stage.share().await;
    let until = Timestamp(stage.archive().await.retention_base().0 + DAY);
    let inode = log(&share, until).await;
    let data = content(2, 30_100);
    append(&share, inode, 0, &data.slice(..30_000)).await.expect("appended");
    settle(&stage, &share).await;
    let before = versions(&stage, inode).await;
    let refused = |result: crate::Result<()>, act: &str| {
        assert!(matches!(result, Err(FileError::ReadOnly(_))), "{act}: {result:?}");
        assert!(!share.row(inode).expect("the row").open, "{act} opened the file");
    };
    // As Linux sends an append: from the begin of its page on.
    let mut other = data[28_672..].to_vec();
    other[0] ^= 1;
    refused(append(&share, inode, 28_672, &other.clone().into()).await, "another first byte");
    other[0] ^= 1;
    other[30_000 - 28_672 - 1] ^= 1;
    refused(append(&share, inode, 28_672, &other.into()).await, "another last archived byte");
    append(&share, inode, 100, &data.slice(100..20_000)).await.expect("nothing new");
    refused(append(&share, inode, 100, &content(1, 0)).await, "no byte at all");
    settle(&stage, &share).await;
    assert_eq!(versions(&stage, inode).await, before, "what is archived already makes no version");
    append(&share, inode, 28_672, &data.slice(28_672..)).await.expect("appended");
    settle(&stage, &share).await;
    assert_eq!(versions(&stage, inode).await, before + 1);
    assert!(read(&share, inode).await == data);
    // A user who may write and not read learns nothing of the content.
    let changes = Changes { mode: Some(0o622), ..Changes::default() };
    let sole = file(&share, "sole", &content(1, 0)).await;
    let at = SetTime::At(Moment::from_nanoseconds(i128::from(until.0) * 1_000_000));
    let closes = Changes { mode: Some(0o400), accessed: Some(at), ..Changes::default() };
    share.set_attributes(&Caller::ROOT, sole, closes, None).await.expect("committed");
    share.set_attributes(&Caller::ROOT, sole, changes, None).await.expect("it may grow");
    append(&share, sole, 0, &data).await.expect("appended");
    settle(&stage, &share).await;
    let writer = Caller { uid: 4711, gid: 4711, groups: Vec::new() };
    let write = async |offset: u64, data: bytes::Bytes| {
        share.write(&writer, sole, offset, vec![data], Stability::Unstable).await.map(drop)
    };
    assert!(matches!(write(0, data.slice(..100)).await, Err(FileError::ReadOnly(_))));
    write(30_100, data.slice(..100)).await.expect("appended");
}

#[tokio::test(start_paused = true)]
async fn an_append_that_is_archived_meanwhile_may_repeat_it() {
    for polls in 0..60 {
        let stage = Stage::new(7).committing().late();
        let share = stage.share().await;
        let until = Timestamp(stage.archive().await.retention_base().0 + DAY);
        let inode = log(&share, until).await;
        let data = content(2, 30_100);
        append(&share, inode, 0, &data.slice(..30_000)).await.expect("appended");
        stage.pass(11);
        let mut archiving = Box::pin(share.archive_round());
        let ended = polled(&mut archiving, polls).await.is_some();
        let archiving = async {
            if !ended {
                archiving.await.expect("a round");
            }
        };
        let page = data.slice(28_672..);
        let (_, appended) = tokio::join!(archiving, append(&share, inode, 28_672, &page));
        appended.unwrap_or_else(|error| panic!("after {polls} polls: {error}"));
        settle(&stage, &share).await;
        assert!(read(&share, inode).await == data, "after {polls} polls");
    }
}
