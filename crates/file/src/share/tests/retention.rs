//! Committed files.

use stele_archive::Timestamp;

use super::stage::{NAME, Stage, content, file, read, settle};
use crate::files::Files;
use crate::{Caller, Changes, FileError, Inode, Moment, Removal, SetTime, Share, Stability};

const DAY: u64 = 86_400;

async fn set(share: &Share, inode: Inode, changes: Changes) -> crate::Result<()> {
    share.set_attributes(&Caller::ROOT, inode, changes, None).await.map(drop)
}

fn accessed(seconds: i64) -> Changes {
    let at = SetTime::At(Moment { seconds, nanoseconds: 0 });
    Changes { accessed: Some(at), ..Changes::default() }
}

fn mode(mode: u32) -> Changes {
    Changes { mode: Some(mode), ..Changes::default() }
}

#[tokio::test(start_paused = true)]
async fn a_committed_file_cannot_change_and_goes_after_its_time() {
    let stage = Stage::new(11).committing();
    let share = stage.share().await;
    let root = share.root();
    let data = content(1, 100_000);
    let inode = file(&share, "ledger", &data).await;
    let until = 1_800_000_000 + 30 * DAY as i64;
    set(&share, inode, accessed(until)).await.unwrap();
    set(&share, inode, mode(0o444)).await.unwrap();
    assert_eq!(share.attributes(inode).await.unwrap().accessed.seconds, until);
    assert_eq!(share.state(inode).unwrap().committed, Some(Timestamp::from_secs(until as u64)));

    let why = stage.archive().await.why(&gateway(), NAME, &share.state(inode).unwrap().key, None).await.unwrap();
    assert!(why.protected && why.mode.as_deref() == Some("COMPLIANCE"), "{why:?}");

    let refused = |result: crate::Result<()>, act: &str| {
        assert!(matches!(result, Err(FileError::ReadOnly(_))), "{act}: {result:?}");
    };
    let writing = share.write(&Caller::ROOT, inode, 0, vec![content(2, 10)], Stability::Unstable).await;
    refused(writing.map(drop), "write");
    refused(set(&share, inode, Changes { size: Some(0), ..Changes::default() }).await, "truncate");
    refused(set(&share, inode, mode(0o644)).await, "chmod");
    refused(set(&share, inode, Changes { uid: Some(5), ..Changes::default() }).await, "chown");
    refused(set(&share, inode, accessed(until - 1)).await, "shorten");
    refused(set(&share, inode, Changes { accessed: Some(SetTime::Now), ..Changes::default() }).await, "touch");
    refused(share.remove(&Caller::ROOT, root, b"ledger", Removal::File).await.map(drop), "unlink");
    refused(share.rename(&Caller::ROOT, (root, b"ledger"), (root, b"other")).await.map(drop), "rename");
    refused(share.link(&Caller::ROOT, inode, root, b"second").await.map(drop), "link");
    file(&share, "other", &content(3, 10)).await;
    refused(share.rename(&Caller::ROOT, (root, b"other"), (root, b"ledger")).await.map(drop), "replace");
    let attribute = share.set_attribute(&Caller::ROOT, inode, b"user.a", Some("b".into()), None).await;
    refused(attribute.map(drop), "setxattr");
    assert!(read(&share, inode).await == data);

    // Later is the one thing that may be said of it.
    set(&share, inode, accessed(until + 100)).await.unwrap();
    assert_eq!(share.attributes(inode).await.unwrap().accessed.seconds, until + 100);
    for _ in 0..31 {
        stage.pass(DAY);
        stage.archive().await.step().await.unwrap();
    }
    refused(set(&share, inode, mode(0o644)).await, "chmod after the end");
    share.remove(&Caller::ROOT, root, b"ledger", Removal::File).await.unwrap();
    settle(&stage, &share).await;
}

/// Samba sets both times, also where its client names the access time alone.
#[tokio::test(start_paused = true)]
async fn an_extension_may_repeat_the_modification_time() {
    let stage = Stage::new(19).committing();
    let share = stage.share().await;
    let inode = file(&share, "ledger", &content(1, 10)).await;
    set(&share, inode, mode(0o444)).await.unwrap();
    let before = share.attributes(inode).await.unwrap();
    let later = before.accessed.seconds + DAY as i64;
    let both = |modified: Moment| Changes { modified: Some(SetTime::At(modified)), ..accessed(later) };
    let other = Moment { nanoseconds: before.modified.nanoseconds ^ 1, ..before.modified };
    for changes in [both(other), Changes { modified: Some(SetTime::Now), ..accessed(later) }] {
        let refused = set(&share, inode, changes).await;
        assert!(matches!(refused, Err(FileError::ReadOnly(_))), "{refused:?}");
    }
    assert_eq!(share.attributes(inode).await.unwrap().accessed, before.accessed);
    set(&share, inode, both(before.modified)).await.unwrap();
    let after = share.attributes(inode).await.unwrap();
    assert_eq!((after.accessed.seconds, after.modified), (later, before.modified));
    assert_eq!(share.state(inode).unwrap().committed, Some(Timestamp::from_secs(later as u64)));
}

/// A date that no calendar shows is the latest one, not none.
#[tokio::test(start_paused = true)]
async fn a_date_beyond_all_dates_commits_to_the_latest() {
    let stage = Stage::new(12).committing();
    let share = stage.share().await;
    for (name, seconds) in [("late", 20_000_000_000_000_000), ("last", i64::MAX)] {
        let inode = file(&share, name, &content(1, 10)).await;
        set(&share, inode, accessed(seconds)).await.unwrap();
        set(&share, inode, mode(0o444)).await.unwrap();
        assert_eq!(share.state(inode).unwrap().committed, Some(Timestamp::LATEST), "{name}");
    }
}

fn gateway() -> stele_archive::Caller {
    stele_archive::Caller::gateway("test")
}

#[tokio::test(start_paused = true)]
async fn the_default_counts_where_no_date_is_named_and_rules_clamp_it() {
    let mut stage = Stage::new(12).committing();
    stage.settings.retention.days_min = Some(2);
    stage.settings.retention.days_max = Some(20);
    let share = stage.share().await;
    let now = 1_800_000_000_i64;
    for (name, asked, days) in [("none", None, 10), ("short", Some(1), 2), ("long", Some(50), 20), ("fit", Some(5), 5)]
    {
        let inode = file(&share, name, &content(1, 10)).await;
        if let Some(days) = asked {
            set(&share, inode, accessed(now + days * DAY as i64)).await.unwrap();
        }
        set(&share, inode, mode(0o400)).await.unwrap();
        let until = share.state(inode).unwrap().committed.map(|until| until.seconds() as i64);
        assert_eq!(until, Some(now + days * DAY as i64), "{name}");
    }
    let fit = share.resolve("fit").unwrap();
    set(&share, fit, accessed(now + 90 * DAY as i64)).await.unwrap();
    let records = stage.archive().await.audit_records(&stele_archive::Caller::local(0), 1, 1000).await.unwrap();
    let detail = |record: &stele_archive::AuditRecord| record.detail.clone().unwrap_or_default();
    let clamped = records.iter().filter(|record| detail(record).contains("was moved"));
    let told: Vec<(&str, String)> =
        clamped.map(|record| (record.key.as_deref().unwrap_or_default(), detail(record))).collect();
    let [short, long, extended] = told.as_slice() else { panic!("{told:?}") };
    assert!(short.0 == "short" && short.1.contains("up to the shortest"), "{short:?}");
    assert!(long.0 == "long" && long.1.contains("down to the longest"), "{long:?}");
    let asked = Timestamp::from_secs((now + 90 * DAY as i64) as u64).to_string();
    assert!(extended.0 == "fit" && extended.1.contains(&asked), "{extended:?}");
}

#[tokio::test(start_paused = true)]
async fn only_a_closed_file_with_content_is_committed() {
    let stage = Stage::new(13).committing();
    let share = stage.share().await;
    let empty = file(&share, "empty", &content(1, 0)).await;
    set(&share, empty, mode(0o444)).await.unwrap();
    assert_eq!(share.state(empty).unwrap().committed, None);
    let open = file(&share, "open", &content(1, 10)).await;
    share.opened(open, true).await.unwrap();
    assert!(matches!(set(&share, open, mode(0o444)).await, Err(FileError::Retry(_))));
    share.closed(open, true).await;
    set(&share, open, mode(0o444)).await.unwrap();
    assert!(share.state(open).unwrap().committed.is_some());
}

/// Samba takes the write permission before it sets the date of the same request.
#[tokio::test(start_paused = true)]
async fn a_mode_with_a_date_commits_a_file_without_write_permission() {
    let mut stage = Stage::new(21).committing();
    stage.bucket.default_retention = None;
    let share = stage.share().await;
    let inode = file(&share, "ledger", &content(1, 10)).await;
    let until = 1_800_000_000 + 30 * DAY as i64;
    let committed = || share.state(inode).unwrap().committed;
    set(&share, inode, mode(0o444)).await.unwrap();
    let past = Changes { mode: Some(0o444), ..accessed(5) };
    set(&share, inode, past).await.unwrap();
    set(&share, inode, accessed(until)).await.unwrap();
    assert_eq!(committed(), None, "no mode and date in one request");
    set(&share, inode, Changes { mode: Some(0o444), ..accessed(until) }).await.unwrap();
    assert_eq!(committed(), Some(Timestamp::from_secs(until as u64)));
}

#[tokio::test(start_paused = true)]
async fn a_directory_above_a_committed_file_keeps_its_name() {
    let stage = Stage::new(14).committing();
    let share = stage.share().await;
    let root = share.root();
    let made = share.make(&Caller::ROOT, root, b"year", crate::Node::Directory, mode(0o755)).await.unwrap();
    let year = made.file.inode;
    let how = crate::Creation::Guarded(mode(0o644));
    let inode = share.create(&Caller::ROOT, year, b"a", how).await.unwrap().file.inode;
    super::stage::write(&share, inode, 0, &content(1, 10)).await;
    share.rename(&Caller::ROOT, (root, b"year"), (root, b"2027")).await.unwrap();
    set(&share, inode, mode(0o444)).await.unwrap();
    let refused = share.rename(&Caller::ROOT, (root, b"2027"), (root, b"gone")).await;
    assert!(matches!(refused, Err(FileError::ReadOnly(_))), "{refused:?}");
    // Others may come and go beside it.
    file(&share, "beside", &content(1, 10)).await;
    share.rename(&Caller::ROOT, (root, b"beside"), (year, b"beside")).await.unwrap();
    share.remove(&Caller::ROOT, year, b"beside", Removal::File).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn no_other_frontend_reaches_the_objects_of_a_share() {
    let stage = Stage::new(15);
    let share = stage.share().await;
    let inode = file(&share, "a", &content(1, 10)).await;
    settle(&stage, &share).await;
    let (archive, admin) = (stage.archive().await, stele_archive::Caller::local(0));
    let key = share.state(inode).unwrap().key;
    let get = stele_archive::GetRequest { bucket: NAME.into(), key: key.clone(), ..Default::default() };
    assert!(archive.get(&admin, get).await.is_err());
    let put = stele_archive::PutRequest { bucket: NAME.into(), key: key.clone(), ..Default::default() };
    assert!(archive.put(&admin, put).await.is_err());
    let delete = stele_archive::DeleteRequest { bucket: NAME.into(), key, ..Default::default() };
    assert!(archive.delete(&admin, delete).await.is_err());
    assert!(archive.delete_bucket(&admin, NAME).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn archiving_beside_a_commit_adds_no_version_without_retention() {
    for polls in 0..30 {
        let stage = Stage::new(16).committing();
        let share = stage.share().await;
        let inode = file(&share, "ledger", &content(1, 5 << 20)).await;
        stage.pass(20);
        let mut working = Box::pin(share.work());
        let mut ended = false;
        for _ in 0..polls {
            ended = ended || futures_util::poll!(working.as_mut()).is_ready();
        }
        // Both go on, and either may end first.
        let working = async {
            if !ended {
                working.await.unwrap();
            }
        };
        tokio::join!(working, async { set(&share, inode, mode(0o444)).await.unwrap() });
        let key = share.state(inode).unwrap().key;
        let why = stage.archive().await.why(&gateway(), NAME, &key, None).await.unwrap();
        assert!(why.protected, "{polls}: the current version has no retention: {why:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn times_that_are_set_outlast_writes_before_them() {
    let stage = Stage::new(17);
    let share = stage.share().await;
    let inode = file(&share, "a", &content(1, 10)).await;
    super::stage::write(&share, inode, 0, &content(2, 10)).await;
    let at = Moment { seconds: 1_000_000, nanoseconds: 5 };
    set(&share, inode, Changes { modified: Some(SetTime::At(at)), ..Changes::default() }).await.unwrap();
    assert_eq!(share.attributes(inode).await.unwrap().modified, at);
    assert_eq!(share.commit(inode).await.unwrap().modified, at);
}

#[tokio::test(start_paused = true)]
async fn expiration_never_deletes_versions_of_a_share() {
    use stele_archive::{BucketChange, ExpiryAction};
    let stage = Stage::new(18).committing();
    let _share = stage.share().await;
    let (archive, admin) = (stage.archive().await, stele_archive::Caller::local(0));
    let refused = archive.change_bucket(&admin, NAME, BucketChange::Expiry(ExpiryAction::Delete)).await;
    assert!(matches!(refused, Err(stele_archive::ArchiveError::InvalidState(_))), "{refused:?}");
}

/// The times of a share rise also while the system clock is a second behind them.
#[tokio::test(start_paused = true)]
async fn a_small_step_of_the_clock_makes_no_date_of_the_time_of_creation() {
    let stage = Stage::new(21).committing();
    let share = stage.share().await;
    // The compliance clock does not follow the system clock.
    stage.set_ahead(DAY);
    file(&share, "a", &content(1, 10)).await;
    stage.set_back(1);
    let inode = file(&share, "b", &content(2, 10)).await;
    set(&share, inode, mode(0o444)).await.unwrap();
    let until = share.state(inode).unwrap().committed.expect("it is committed");
    let least = stage.moment().seconds as u64 + 10 * DAY;
    assert!(until >= Timestamp::from_secs(least), "{until} in place of the default retention");
}

/// The access time that the share gave is behind the clock once that was set back.
#[tokio::test(start_paused = true)]
async fn a_clock_set_back_takes_no_default_retention_away() {
    let stage = Stage::new(22).committing();
    let share = stage.share().await;
    // The compliance clock does not follow the system clock.
    stage.set_ahead(DAY);
    let inode = file(&share, "a", &content(1, 10)).await;
    let dated = file(&share, "b", &content(2, 10)).await;
    stage.set_back(3600);
    let now = stage.moment().seconds;
    set(&share, inode, mode(0o444)).await.unwrap();
    let until = share.state(inode).unwrap().committed.expect("it is committed");
    assert!(until >= Timestamp::from_secs(now as u64 + 10 * DAY), "{until} in place of the default retention");
    // A date that the client names is one, also where it is before the file was made.
    set(&share, dated, Changes { mode: Some(0o444), ..accessed(now + 60) }).await.unwrap();
    assert_eq!(share.state(dated).unwrap().committed, Some(Timestamp::from_secs(now as u64 + 60)));
}

/// A commit that ended between the version and the file's row is made again with an earlier date.
#[tokio::test(start_paused = true)]
async fn a_repeated_commit_shortens_no_retention() {
    use stele_archive::{DefaultRetention, Period, Protection, Retention, RetentionMode};
    let mut stage = Stage::new(23).committing();
    stage.bucket.protection = Some(Protection::Basic);
    let mode_of = RetentionMode::Governance;
    stage.bucket.default_retention = Some(DefaultRetention { mode: mode_of, period: Period::Days(10) });
    let share = stage.share().await;
    let now = 1_800_000_000;
    let late = Timestamp::from_secs(now + 90 * DAY);
    let inode = file(&share, "a", &content(1, 10)).await;
    settle(&stage, &share).await;
    let key = share.state(inode).unwrap().key;
    let first = Some(Retention { mode: mode_of, until: late });
    stage.archive().await.set_retention(&gateway(), NAME, &key, None, first, false).await.unwrap();
    set(&share, inode, Changes { mode: Some(0o444), ..accessed((now + 20 * DAY) as i64) }).await.unwrap();
    let kept = stage.archive().await.retention(&gateway(), NAME, &key, None).await.unwrap();
    assert_eq!((kept.until, share.state(inode).unwrap().committed), (late, Some(late)));
}
