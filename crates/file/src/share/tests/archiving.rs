//! Content on its way between cache and archive.

use super::stage::{CACHE, NAME, Stage, content, file, read, settle, write};
use crate::files::Files;
use crate::{Caller, Changes, FileError, Removal};

#[tokio::test(start_paused = true)]
async fn an_idle_file_is_archived_and_read_back_without_its_cache() {
    let stage = Stage::new(2);
    let share = stage.share().await;
    let data = content(1, 3 << 20);
    let inode = file(&share, "report", &data).await;
    assert_eq!(share.status().unwrap().open, 1);
    settle(&stage, &share).await;
    let state = share.state(inode).unwrap();
    assert!(state.version.is_some() && share.status().unwrap().open == 0);
    // A cache of another volume: nothing of the content is there.
    let fresh = stage.clone().with_cache(CACHE);
    drop(share);
    forget_cache(&fresh).await;
    let share = fresh.share().await;
    assert!(read(&share, inode).await == data, "the archived content differs");
    assert!(read(&share, inode).await == data, "the cached content differs");
}

/// Drops the records of the cache, as a new cache volume requires.
async fn forget_cache(stage: &Stage) {
    use stele_catalog::{Direction, KeyRange, Table, Transaction};
    let records = stage.archive().await.records();
    let blocks = records.snapshot().unwrap().range(Table(68), &KeyRange::all(), 100_000, Direction::Forward).unwrap();
    let mut transaction = Transaction::new();
    for (key, _) in blocks {
        transaction = transaction.delete(Table(68), key);
    }
    records.commit(transaction).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_changed_file_is_open_again_and_archived_as_a_new_version() {
    let stage = Stage::new(4);
    let share = stage.share().await;
    let inode = file(&share, "a", &content(1, 200_000)).await;
    settle(&stage, &share).await;
    let first = share.state(inode).unwrap().version;
    write(&share, inode, 100_001, &content(2, 50)).await;
    assert_eq!(share.state(inode).unwrap().version, None);
    let changed = read(&share, inode).await;
    settle(&stage, &share).await;
    let second = share.state(inode).unwrap().version;
    assert!(first.is_some() && second.is_some());
    assert!(read(&share, inode).await == changed && changed[100_001..100_051] == content(2, 50)[..]);
}

#[tokio::test(start_paused = true)]
async fn more_files_than_the_cache_holds_are_written_and_read() {
    let stage = Stage::new(5).with_cache(16 << 20);
    let share = stage.share().await;
    let mut files = Vec::new();
    for number in 0..24_u64 {
        let data = content(number, 2 << 20);
        files.push((file(&share, &format!("f{number}"), &data).await, data));
        stage.pass(11);
        share.work().await.unwrap();
    }
    for (inode, data) in &files {
        assert!(read(&share, *inode).await == *data, "inode {} differs", inode.0);
        share.work().await.unwrap();
    }
    assert!(share.status().unwrap().cache_used <= 16 << 20);
}

#[tokio::test(start_paused = true)]
async fn a_removed_file_gives_back_its_slots_and_its_version() {
    let stage = Stage::new(6);
    let share = stage.share().await;
    let inode = file(&share, "a", &content(1, 1 << 20)).await;
    settle(&stage, &share).await;
    share.remove(&Caller::ROOT, share.root(), b"a", Removal::File).await.unwrap();
    assert_eq!(share.attributes(inode).await, Err(FileError::Stale));
    settle(&stage, &share).await;
    let status = share.status().unwrap();
    assert_eq!((status.cache_used, status.cache_size, status.removing), (0, CACHE, 0));
    let usage = stage.archive().await.usage(&stele_archive::Caller::local(0), NAME).await.unwrap();
    assert_eq!(usage.versions, 0);
}

#[tokio::test(start_paused = true)]
async fn a_full_cache_of_unarchived_content_refuses_writers_and_loses_nothing() {
    let stage = Stage::new(7).with_cache(16 << 20);
    let share = stage.share().await;
    let data = content(1, 15 << 20);
    let quota = async |bytes| {
        let quota = stele_archive::BucketChange::Quota(stele_archive::Quota { bytes, versions: None });
        stage.archive().await.change_bucket(&stele_archive::Caller::local(0), NAME, quota).await.unwrap();
    };
    quota(Some(1 << 20)).await;
    let inode = file(&share, "a", &data).await;
    let create = crate::Creation::Unchecked(Changes::default());
    let other = share.create(&Caller::ROOT, share.root(), b"b", create).await.unwrap().file.inode;
    let root = Caller::ROOT;
    let writing = share.write(&root, other, 0, vec![content(2, 2 << 20)], crate::Stability::Unstable);
    let working = async {
        loop {
            stage.pass(1);
            share.work().await.unwrap();
            tokio::task::yield_now().await;
        }
    };
    let result = tokio::select! { result = writing => result, () = working => unreachable!() };
    assert!(matches!(result, Err(FileError::OverQuota)), "{result:?}");
    assert!(read(&share, inode).await == data);
    quota(None).await;
    settle(&stage, &share).await;
    write(&share, other, 0, &content(2, 2 << 20)).await;
    assert!(read(&share, inode).await == data && read(&share, other).await == content(2, 2 << 20));
}

#[tokio::test(start_paused = true)]
async fn a_writer_waits_for_room_by_the_clock_and_not_by_rounds() {
    let stage = Stage::new(8).with_cache(16 << 20);
    let share = stage.share().await;
    file(&share, "a", &content(1, 15 << 20)).await;
    let create = crate::Creation::Unchecked(Changes::default());
    let other = share.create(&Caller::ROOT, share.root(), b"b", create).await.unwrap().file.inode;
    let (root, data) = (Caller::ROOT, content(2, 2 << 20));
    let write = || share.write(&root, other, 0, vec![data.clone()], crate::Stability::Unstable);
    {
        let mut writing = std::pin::pin!(write());
        for _ in 0..200 {
            tokio::select! {
                biased;
                result = &mut writing => panic!("it waits no longer: {result:?}"),
                () = tokio::task::yield_now() => share.room.notify_waiters(),
            }
        }
        stage.pass(21);
        share.room.notify_waiters();
        let result = writing.await;
        assert!(matches!(result, Err(FileError::Retry(_))), "{result:?}");
    }
    let working = async {
        loop {
            stage.pass(1);
            share.work().await.unwrap();
            tokio::task::yield_now().await;
        }
    };
    let result = tokio::select! { result = write() => result, () = working => unreachable!() };
    assert!(result.is_ok(), "{result:?}");
    assert!(read(&share, other).await == data);
}

#[tokio::test(start_paused = true)]
async fn an_archived_file_is_not_opened_before_there_is_room() {
    let stage = Stage::new(10).with_cache(16 << 20);
    let share = stage.share().await;
    let archived = file(&share, "a", &content(1, 4096)).await;
    settle(&stage, &share).await;
    file(&share, "b", &content(2, 15 << 20)).await;
    assert_eq!(share.status().unwrap().open, 1);
    let root = Caller::ROOT;
    let mut writing =
        std::pin::pin!(share.write(&root, archived, 0, vec![content(3, 2 << 20)], crate::Stability::Unstable));
    for _ in 0..20 {
        tokio::select! {
            biased;
            result = &mut writing => panic!("there is no room for it: {result:?}"),
            () = tokio::time::sleep(std::time::Duration::from_millis(1)) => share.room.notify_waiters(),
        }
    }
    assert_eq!(share.status().unwrap().open, 1, "it would be archived again and again");
}

#[tokio::test(start_paused = true)]
async fn a_file_that_is_refused_again_and_again_is_named() {
    let stage = Stage::new(9);
    let share = stage.share().await;
    let quota = async |bytes| {
        let quota = stele_archive::BucketChange::Quota(stele_archive::Quota { bytes, versions: None });
        stage.archive().await.change_bucket(&stele_archive::Caller::local(0), NAME, quota).await.unwrap();
    };
    let root = share.root();
    let directory = share.make(&Caller::ROOT, root, b"d", crate::Node::Directory, Changes::default()).await.unwrap();
    quota(Some(100_000)).await;
    let large = file(&share, "large", &content(1, 200_000)).await;
    share.rename(&Caller::ROOT, (root, b"large"), (directory.file.inode, b"large")).await.unwrap();
    let round = async || {
        stage.pass(11);
        share.work().await.unwrap();
    };
    round().await;
    assert_eq!(share.stuck().unwrap(), None, "one refusal is no news");
    round().await;
    let stuck = share.stuck().unwrap().expect("the file is refused again and again");
    assert_eq!((stuck.path.as_str(), stuck.files), ("d/large", 1));
    assert_eq!(stuck.refusal, Some(FileError::OverQuota.to_string()));
    // Others that are archived meanwhile do not hide it.
    file(&share, "small", &content(2, 100)).await;
    round().await;
    round().await;
    assert_eq!(share.stuck().unwrap().expect("still").path, "d/large");
    assert_eq!(share.status().unwrap().open, 1);
    assert!(share.status().unwrap().refused_path.is_none_or(|path| path == "d/large"));
    quota(None).await;
    round().await;
    assert_eq!(share.stuck().unwrap(), None);
    assert!(share.state(large).unwrap().version.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_file_that_waits_for_hours_is_named_unless_it_is_open() {
    let stage = Stage::new(10);
    let share = stage.share().await;
    let [open, idle] = [b"open", b"idle"];
    for name in [open, idle] {
        file(&share, std::str::from_utf8(name).unwrap(), &content(1, 100)).await;
    }
    share.opened(share.resolve("open").unwrap(), true).await.unwrap();
    stage.pass(3_599);
    assert_eq!(share.stuck().unwrap(), None);
    stage.pass(2);
    let stuck = share.stuck().unwrap().expect("no round has taken place");
    assert_eq!((stuck.path.as_str(), stuck.refusal), ("idle", None));
    share.work().await.unwrap();
    stage.pass(20_000);
    assert_eq!(share.stuck().unwrap(), None, "a file that is open for writing waits for its writer");
}

#[tokio::test(start_paused = true)]
async fn truncation_and_growth_show_zeros_and_never_old_bytes() {
    let stage = Stage::new(8);
    let share = stage.share().await;
    let inode = file(&share, "a", &content(1, 300_000)).await;
    settle(&stage, &share).await;
    let resize = async |size| {
        let changes = Changes { size: Some(size), ..Changes::default() };
        share.set_attributes(&Caller::ROOT, inode, changes, None).await.unwrap();
    };
    let mut expected = content(1, 300_000).to_vec();
    for size in [150_001, 400_000, 70_000, 70_010, 65_536, 65_537, 131_072, 5, 0, 9_000] {
        resize(size).await;
        expected.resize(size as usize, 0);
        assert!(read(&share, inode).await == expected, "size {size} shows other bytes");
    }
}

#[tokio::test(start_paused = true)]
async fn a_tree_is_made_anew_from_archived_versions() {
    use crate::{Creation, Node};
    let stage = Stage::new(9).committing();
    let share = stage.share().await;
    let root = share.root();
    let mode = |mode| Changes { mode: Some(mode), ..Changes::default() };
    let year = share.make(&Caller::ROOT, root, b"a year", Node::Directory, mode(0o755)).await.unwrap().file.inode;
    let how = Creation::Guarded(Changes { uid: Some(7), gid: Some(8), ..mode(0o640) });
    let ledger = share.create(&Caller::ROOT, year, b"ledger \xff", how).await.unwrap().file.inode;
    write(&share, ledger, 0, &content(1, 70_000)).await;
    let plain = file(&share, "plain", &content(2, 10)).await;
    share.set_attributes(&Caller::ROOT, ledger, mode(0o440), None).await.unwrap();
    settle(&stage, &share).await;
    let (before, until) = (share.attributes(ledger).await.unwrap(), share.state(ledger).unwrap().committed);
    drop(share);
    stage.forget_files().await;

    let share = stage.clone().with_cache(CACHE).share().await;
    let year = share.lookup(&Caller::ROOT, root, b"a year").await.unwrap().inode;
    let found = share.lookup(&Caller::ROOT, year, b"ledger \xff").await.unwrap();
    assert_eq!((found.inode, found.mode, found.uid, found.gid), (ledger, 0o440, 7, 8));
    assert_eq!((found.modified, found.accessed, found.size), (before.modified, before.accessed, 70_000));
    assert_eq!(share.state(ledger).unwrap().committed, until);
    assert!(read(&share, ledger).await == content(1, 70_000) && read(&share, plain).await == content(2, 10));
    let refused = share.remove(&Caller::ROOT, year, b"ledger \xff", Removal::File).await;
    assert!(matches!(refused, Err(FileError::ReadOnly(_))), "{refused:?}");
    // No new file gets the number of an old one.
    let new = file(&share, "new", &content(3, 10)).await;
    assert!(new > ledger && new > plain, "{new:?}");
    let moved = share.rename(&Caller::ROOT, (root, b"a year"), (root, b"other")).await;
    assert!(matches!(moved, Err(FileError::ReadOnly(_))), "{moved:?}");
}

#[tokio::test(start_paused = true)]
async fn what_was_fetched_of_a_former_version_is_never_shown() {
    let stage = Stage::new(10).with_cache(16 << 20);
    let share = stage.share().await;
    let inode = file(&share, "a", &content(1, 3 << 20)).await;
    for round in 2..40 {
        settle(&stage, &share).await;
        // Reads from the archive beside writes, archiving and eviction, which begin at another
        // place of it each round.
        file(&share, &format!("fill{round}"), &content(round, 12 << 20)).await;
        settle(&stage, &share).await;
        let reader = Caller::ROOT;
        let mut reading = Box::pin(share.read(&reader, inode, 1 << 20, 1 << 20));
        let mut ended = false;
        for _ in 0..round % 7 {
            ended = ended || futures_util::poll!(reading.as_mut()).is_ready();
        }
        let new = content(round, 3 << 20);
        let changing = async {
            write(&share, inode, 0, &new).await;
            settle(&stage, &share).await;
            let name = format!("fill{round}");
            share.remove(&Caller::ROOT, share.root(), name.as_bytes(), Removal::File).await.unwrap();
        };
        let reading = async {
            if !ended {
                reading.await.unwrap();
            }
        };
        tokio::join!(reading, changing);
        assert!(read(&share, inode).await == new, "round {round} shows bytes of a former version");
    }
}

#[tokio::test(start_paused = true)]
async fn a_file_larger_than_the_cache_is_written_while_it_is_open() {
    let stage = Stage::new(11).with_cache(16 << 20);
    let share = stage.share().await;
    let inode = file(&share, "a", &content(0, 0)).await;
    share.opened(inode, true).await.unwrap();
    let (root, data) = (Caller::ROOT, content(1, 40 << 20));
    let writing = async {
        for (number, piece) in data.chunks(1 << 20).enumerate() {
            let piece = vec![data.slice_ref(piece)];
            let offset = (number << 20) as u64;
            share.write(&root, inode, offset, piece, crate::Stability::Unstable).await.expect("a write");
        }
    };
    let working = async {
        loop {
            stage.pass(1);
            share.work().await.unwrap();
            tokio::task::yield_now().await;
        }
    };
    tokio::select! { () = writing => {}, () = working => unreachable!() };
    share.closed(inode, true).await;
    settle(&stage, &share).await;
    assert!(read(&share, inode).await == data);
}

#[tokio::test(start_paused = true)]
async fn two_uploads_in_parts_of_one_file_leave_each_other_alone() {
    use crate::share::archiving::{Stored, Storing};
    let stage = Stage::new(12);
    let share = stage.share_with_bodies(6 << 20).await;
    let data = content(1, 20 << 20);
    let inode = file(&share, "long", &data).await;
    // Both come to their ends before either may end.
    let gate = share.step(|core| Ok(std::sync::Arc::clone(&core.content(inode.0)?.1.gate))).unwrap();
    let held = gate.read_owned().await;
    let mut first = Box::pin(share.store_file(inode.0, Storing::Beside));
    let mut second = Box::pin(share.store_file(inode.0, Storing::Beside));
    for _ in 0..2000 {
        assert!(futures_util::poll!(first.as_mut()).is_pending());
        assert!(futures_util::poll!(second.as_mut()).is_pending());
        tokio::task::yield_now().await;
    }
    drop(held);
    let answers = tokio::join!(first, second);
    assert!(matches!(answers, (Ok(_), Ok(_))), "an upload was aborted by another");
    assert!(matches!(answers, (Ok(Stored::Done(_)), _) | (_, Ok(Stored::Done(_)))));
    settle(&stage, &share).await;
    assert!(read(&share, inode).await == data);
}

#[tokio::test(start_paused = true)]
async fn a_write_that_fails_counts_as_a_change_for_archiving() {
    let stage = Stage::new(13);
    let share = stage.share().await;
    let inode = file(&share, "a", &content(1, 200_000)).await;
    let generation = || share.step(|core| Ok(core.content(inode.0)?.1.generation)).unwrap();
    let before = generation();
    stage.cache.cut_after(0);
    let data = vec![content(2, 4096)];
    share.write(&Caller::ROOT, inode, 0, data, crate::Stability::Unstable).await.expect_err("no power");
    assert!(generation() > before, "what archiving has read before would count as the content");
}

#[tokio::test(start_paused = true)]
async fn removed_files_that_cannot_be_cleared_away_keep_no_others_back() {
    let stage = Stage::new(14);
    let share = stage.share().await;
    let mut gates = Vec::new();
    for number in 0..80 {
        let name = format!("f{number}");
        let inode = file(&share, &name, &content(number, 10)).await;
        share.remove(&Caller::ROOT, share.root(), name.as_bytes(), Removal::File).await.unwrap();
        gates.push(inode);
    }
    let order = |core: &mut crate::share::Core| Ok(core.next_orphan);
    share.room_round().await.unwrap();
    assert_eq!(share.step(order).unwrap(), gates[63].0 + 1, "the next round goes on behind those of this one");
    share.room_round().await.unwrap();
    assert_eq!(share.status().unwrap().removing, 0);
}

#[tokio::test(start_paused = true)]
async fn archived_content_is_read_also_where_the_cache_takes_none() {
    use stele_media::MediaFault;
    for fault in [MediaFault::Full, MediaFault::Damaged, MediaFault::Retry] {
        let stage = Stage::new(20);
        let share = stage.share().await;
        let data = content(1, 3 << 20);
        let inode = file(&share, "a", &data).await;
        settle(&stage, &share).await;
        while share.evict_file(inode.0).await.unwrap() {}
        stage.cache.refuse_writes(Some(fault));
        assert!(read(&share, inode).await == data, "{fault:?}: the content differs");
        // A writer learns of it.
        let other = crate::Creation::Unchecked(Changes::default());
        let other = share.create(&Caller::ROOT, share.root(), b"b", other).await.unwrap().file.inode;
        let write = share.write(&Caller::ROOT, other, 0, vec![content(2, 4096)], crate::Stability::Unstable).await;
        assert!(write.is_err(), "{fault:?}: a write that took no place is acknowledged");
        stage.cache.refuse_writes(None);
        assert!(read(&share, inode).await == data, "{fault:?}: the content differs in the cache");
        let missed = share.status().unwrap().missed_bytes;
        assert!(read(&share, inode).await == data);
        assert_eq!(share.status().unwrap().missed_bytes, missed, "{fault:?}: it is not kept once the cache takes it");
    }
}

#[tokio::test(start_paused = true)]
async fn a_writer_is_answered_in_time_while_a_round_goes_on() {
    let stage = Stage::new(21).with_cache(16 << 20);
    let share = stage.share().await;
    file(&share, "a", &content(1, 13 << 20)).await;
    settle(&stage, &share).await;
    let root = Caller::ROOT;
    let how = crate::Creation::Unchecked(Changes::default());
    let other = share.create(&root, share.root(), b"b", how).await.unwrap().file.inode;
    let data = vec![content(2, 4 << 20)];
    let mut writing = Box::pin(share.write(&root, other, 0, data, crate::Stability::Unstable));
    // No round ends, and none tells the writer of room.
    for _ in 0..3 {
        assert!(futures_util::poll!(writing.as_mut()).is_pending());
        stage.pass(6);
        tokio::time::advance(std::time::Duration::from_secs(6)).await;
    }
    assert!(futures_util::poll!(writing.as_mut()).is_pending());
    stage.pass(3);
    tokio::time::advance(std::time::Duration::from_secs(3)).await;
    let answer = futures_util::poll!(writing.as_mut());
    assert!(matches!(answer, std::task::Poll::Ready(Err(FileError::Retry(_)))), "it waits without an end");
}

#[tokio::test(start_paused = true)]
async fn a_cache_full_of_archived_content_leaves_open_files_their_time() {
    let stage = Stage::new(31).with_cache(16 << 20);
    let share = stage.share().await;
    // 15 of 16 MiB, archived.
    for number in 0..15 {
        file(&share, &number.to_string(), &content(number, 1 << 20)).await;
    }
    settle_archived(&stage, &share).await;
    assert!(share.is_nearly_full());
    let young = file(&share, "young", &content(1, 4096)).await;
    assert_eq!(share.archive_round().await.unwrap().archived, 0);
    assert_eq!(share.state(young).unwrap().version, None, "a file is archived while it is being written");
    // Pinned files make no room: as much as half of the cache may be pinned.
    for number in 0..8 {
        let inode = share.resolve(&number.to_string()).unwrap();
        share.pin(inode).await.unwrap();
    }
    assert_eq!(share.archive_round().await.unwrap().archived, 0);
    for number in 8..12 {
        let inode = share.resolve(&number.to_string()).unwrap();
        write(&share, inode, 0, &content(2, 4096)).await;
    }
    assert_eq!(share.archive_round().await.unwrap().archived, 5, "writers will wait for room");
    for number in 0..8 {
        let inode = share.resolve(&number.to_string()).unwrap();
        share.unpin(inode).await.unwrap();
    }
    share.remove(&Caller::ROOT, share.root(), b"young", Removal::File).await.unwrap();
    settle(&stage, &share).await;
    file(&share, "later", &content(1, 4096)).await;
    assert_eq!(share.archive_round().await.unwrap().archived, 0);
}

#[tokio::test(start_paused = true)]
async fn the_slots_of_many_files_are_taken_in_one_transaction() {
    use futures_util::poll;
    let stage = Stage::new(32).with_cache(16 << 20);
    let share = stage.share().await;
    let mut files = Vec::new();
    for number in 0..250 {
        files.push(file(&share, &number.to_string(), &content(number, 4096)).await);
    }
    settle_archived(&stage, &share).await;
    let used = share.status().unwrap().cache_used;
    stage.held.hold();
    let mut evicting = Box::pin(share.room_round());
    for _ in 0..10 {
        assert!(poll!(evicting.as_mut()).is_pending());
    }
    assert_eq!(stage.held.waiting(), 1);
    assert_eq!(share.status().unwrap().cache_used, used, "a slot is given back before that is durable");
    // One that fails is tried again file by file, and the files are looked at again.
    stage.held.refuse();
    let worked = evicting.await.unwrap();
    assert!(worked.evicted > 40, "{worked:?}");
    let status = share.status().unwrap();
    assert_eq!((used - status.cache_used) >> 16, worked.evicted);
    assert!(status.cache_used * 100 <= status.cache_size * 80);
    for (number, inode) in files.iter().enumerate() {
        assert!(read(&share, *inode).await == content(number as u64, 4096));
    }
}

/// Archives all files, and takes nothing out of the cache.
async fn settle_archived(stage: &Stage, share: &crate::share::Share) {
    stage.pass(11);
    while share.status().unwrap().open > 0 {
        share.archive_round().await.unwrap();
    }
}
