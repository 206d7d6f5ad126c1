//! Legal holds: a file keeps its names while any version of it is held.

use stele_archive::{
    Access, Caller as Client, Grant, Protection, Retention, RetentionMode, Rights, Role, ShareObjects, VersionId,
    VersionName,
};

use super::objects::View;
use super::stage::{NAME, Stage, content, file, settle, write};
use crate::files::{Files, Removal};
use crate::share::{ObjectView, Share};
use crate::{Caller, FileError};

/// A share whose bucket has Object Lock and no default retention.
fn locked(seed: u64) -> Stage {
    let mut stage = Stage::new(seed);
    stage.bucket.object_lock = true;
    stage
}

/// Puts the legal hold of a path's file on or off, as the S3 frontend does.
async fn hold(view: &View, key: &str, version: Option<VersionId>, on: bool) -> stele_archive::Result<()> {
    let located = view.objects.locate(&view.client, Access::Retain, key, version).await?;
    let archive = view.stage.archive().await;
    archive.set_legal_hold(&located.caller, NAME, &located.key, version, on).await.map(drop)
}

#[track_caller]
fn refused<T: std::fmt::Debug>(result: crate::Result<T>, act: &str) {
    assert!(matches!(result, Err(FileError::ReadOnly(_))), "{act}: {result:?}");
}

/// Every way over files to take the name `k` away is refused.
async fn keeps_its_name(share: &Share, other: &str) {
    let root = share.root();
    refused(share.remove(&Caller::ROOT, root, b"k", Removal::File).await, "unlink");
    refused(share.rename(&Caller::ROOT, (root, b"k"), (root, b"elsewhere")).await, "rename");
    file(share, other, &content(9, 10)).await;
    refused(share.rename(&Caller::ROOT, (root, other.as_bytes()), (root, b"k")).await, "replace");
}

#[tokio::test(start_paused = true)]
async fn a_hold_on_a_former_version_keeps_the_name() {
    let view = View::new(locked(1)).await;
    let first = view.put("k", &content(1, 10)).await.expect("a put");
    hold(&view, "k", None, true).await.expect("a hold");
    view.put("k", &content(2, 10)).await.expect("a put over a held version makes another version");
    let denied = view.delete("k").await;
    assert!(matches!(denied, Err(stele_archive::ArchiveError::Denied(_))), "{denied:?}");
    let kept = async || view.share.kept(view.find("k").expect("the file")).await.expect("an answer");
    let reason = kept().await.expect("a reason");
    assert!(reason.contains(&first.version.to_string()) && reason.contains("hold"), "{reason}");
    keeps_its_name(&view.share, "other").await;
    settle(&view.stage, &view.share).await;
    hold(&view, "k", Some(first.version), false).await.expect("the hold is released by the path");
    assert_eq!(kept().await, None);
    view.delete("k").await.expect("nothing is held any more");
}

#[tokio::test(start_paused = true)]
async fn a_matter_on_a_former_version_keeps_the_name() {
    let view = View::new(locked(6)).await;
    let first = view.put("k", &content(1, 10)).await.expect("a put");
    let archive = view.stage.archive().await;
    archive.open_matter(&view.client, "case", "a lawsuit").await.expect("a matter");
    let version = VersionName {
        bucket: NAME.into(),
        key: crate::share::reading::key_of(view.find("k").expect("the file").0),
        version: Some(first.version),
    };
    let put = async |on| {
        let listed = archive.hold_listed(&view.client, "case", vec![version.clone()], on).await;
        assert!(listed.expect("a list").iter().all(|listed| listed.failure.is_none()));
    };
    put(true).await;
    view.put("k", &content(2, 10)).await.expect("a put over a held version makes another version");
    keeps_its_name(&view.share, "other").await;
    put(false).await;
    view.delete("k").await.expect("nothing is held any more");
}

#[tokio::test(start_paused = true)]
async fn a_held_file_that_was_changed_over_files_keeps_the_name() {
    let view = View::new(locked(2)).await;
    let inode = file(&view.share, "k", &content(1, 10)).await;
    settle(&view.stage, &view.share).await;
    hold(&view, "k", None, true).await.expect("a hold");
    write(&view.share, inode, 0, &content(2, 20)).await;
    keeps_its_name(&view.share, "before").await;
    settle(&view.stage, &view.share).await;
    keeps_its_name(&view.share, "after").await;
    let View { stage, share, objects, .. } = view;
    drop((share, objects));
    keeps_its_name(&*stage.share().await, "restarted").await;
}

#[tokio::test(start_paused = true)]
async fn a_held_file_keeps_each_of_its_names() {
    let view = View::new(locked(3).late()).await;
    let inode = file(&view.share, "a", &content(1, 10)).await;
    let root = view.share.root();
    view.share.link(&Caller::ROOT, inode, root, b"b").await.expect("a link");
    settle(&view.stage, &view.share).await;
    hold(&view, "a", None, true).await.expect("a hold");
    let remove = async |name: &[u8]| view.share.remove(&Caller::ROOT, root, name, Removal::File).await;
    let (a, b) = tokio::join!(remove(b"a"), remove(b"b"));
    refused(a, "one name");
    refused(b, "the other one");
    hold(&view, "b", None, false).await.expect("the hold is released");
    remove(b"a").await.expect("nothing is held any more");
}

#[tokio::test(start_paused = true)]
async fn a_hold_beside_a_removal_finds_the_file_or_keeps_it() {
    let (mut held, mut gone) = (0, 0);
    for polls in 0..20 {
        let view = View::new(locked(4).late()).await;
        view.put("k", &content(1, 10)).await.expect("a put");
        let (root, user) = (view.share.root(), Caller::ROOT);
        let mut removing = Box::pin(view.share.remove(&user, root, b"k", Removal::File));
        let mut removed = None;
        for _ in 0..polls {
            if removed.is_none()
                && let std::task::Poll::Ready(result) = futures_util::poll!(removing.as_mut())
            {
                removed = Some(result);
            }
            tokio::task::yield_now().await;
        }
        let removing = async {
            match removed {
                Some(result) => result,
                None => removing.await,
            }
        };
        // The one that is asked first gets the file first, where both wait for it.
        let holding = hold(&view, "k", None, true);
        let (removed, set) = match polls {
            0 => {
                let (set, removed) = tokio::join!(holding, removing);
                (removed, set)
            }
            _ => tokio::join!(removing, holding),
        };
        match (set.is_ok(), view.find("k").is_ok()) {
            (true, true) => held += 1,
            (false, false) => gone += 1,
            (set, found) => panic!("after {polls} polls: hold {set}, name {found}, removal {removed:?}"),
        }
    }
    assert!(held > 0 && gone > 0, "the hold came first {held} times, the removal {gone} times");
}

#[tokio::test(start_paused = true)]
async fn a_matter_that_is_acknowledged_keeps_a_name_that_was_to_go() {
    let view = View::new(locked(7)).await;
    let stored = view.put("k", &content(1, 10)).await.expect("a put");
    let other = file(&view.share, "other", &content(2, 10)).await;
    let archive = view.stage.archive().await;
    archive.open_matter(&view.client, "case", "a lawsuit").await.expect("a matter");
    let key = crate::share::reading::key_of(view.find("k").expect("the file").0);
    let version = VersionName { bucket: NAME.into(), key, version: Some(stored.version) };
    let held = &view.stage.held;
    held.hold();
    // A caller that went away: the removal asks the archive, and then waits until it knows what
    // became of that change.
    let user = Caller::ROOT;
    let changes = crate::Changes { mode: Some(0o600), ..crate::Changes::default() };
    let mut gone = Box::pin(view.share.set_attributes(&user, other, changes, None));
    assert!(futures_util::poll!(gone.as_mut()).is_pending());
    drop(gone);
    let mut removing = Box::pin(view.share.remove(&user, view.share.root(), b"k", Removal::File));
    assert!(futures_util::poll!(removing.as_mut()).is_pending());
    let mut putting = Box::pin(archive.hold_listed(&view.client, "case", vec![version], true));
    for _ in 0..20 {
        assert!(futures_util::poll!(putting.as_mut()).is_pending());
        tokio::task::yield_now().await;
    }
    held.release().await;
    let (mut put, mut removed) = (None, None);
    for _ in 0..1000 {
        if put.is_none()
            && let std::task::Poll::Ready(listed) = futures_util::poll!(putting.as_mut())
        {
            put = Some(listed.expect("a list"));
            assert!(removed.is_some() || view.find("k").is_ok(), "the name went before it was held");
        }
        if removed.is_none()
            && let std::task::Poll::Ready(result) = futures_util::poll!(removing.as_mut())
        {
            assert!(put.is_none() || result.is_err(), "the name went although its version is held");
            removed = Some(result);
        }
        tokio::task::yield_now().await;
    }
    assert!(put.is_some() && removed.is_some(), "they wait for each other");
}

#[tokio::test(start_paused = true)]
async fn a_hold_that_locates_a_file_waits_for_no_other_name() {
    // The file is held in memory while it is located for a change of its retention, and not longer.
    let view = View::new(locked(5)).await;
    view.put("k", &content(1, 10)).await.expect("a put");
    let objects: &ObjectView = &view.objects;
    let located = objects.locate(&Client::local(0), Access::Retain, "k", None).await.expect("the file");
    file(&view.share, "other", &content(2, 10)).await;
    view.share.remove(&Caller::ROOT, view.share.root(), b"other", Removal::File).await.expect("another file goes");
    drop(located);
    view.share.remove(&Caller::ROOT, view.share.root(), b"k", Removal::File).await.expect("nothing is held");
}

/// Rights below a prefix.
fn below(prefix: &str, access: &[Access]) -> Rights {
    let grant = Grant { bucket: Some(NAME.into()), prefix: prefix.into(), access: access.iter().copied().collect() };
    Rights { roles: [Role::User].into(), grants: vec![grant], bypass_governance: false }
}

/// A new key that may read and retain below `mine/`, and its caller. And the administrator's.
async fn limited(view: &mut View) -> (String, Client) {
    let (archive, admin) = (view.stage.archive().await, view.client.clone());
    let rights = below("mine/", &[Access::Read, Access::Retain]);
    let key = archive.create_access_key(&admin, "limited", rights).await.expect("a key").id;
    view.client = archive.credentials(&key).await.expect("the key is valid").caller;
    (key, admin)
}

/// A share of level `basic`, where a caller who may retain shortens GOVERNANCE.
async fn basic(seed: u64) -> View {
    let mut stage = locked(seed);
    stage.bucket.protection = Some(Protection::Basic);
    let view = View::new(stage).await;
    for key in ["mine/k", "other/k"] {
        view.put(key, &content(1, 10)).await.expect("a put");
    }
    view
}

async fn retain(view: &View, key: &str, days: u64) -> stele_archive::Result<()> {
    let until = view.stage.archive().await.retention_base().plus_days(days);
    let retention = Retention { mode: RetentionMode::Governance, until };
    view.objects.set_retention(&view.client, key, None, Some(retention), false).await
}

#[tokio::test(start_paused = true)]
async fn a_key_for_a_prefix_releases_what_it_held() {
    let mut view = basic(8).await;
    hold(&view, "other/k", None, true).await.expect("the administrator's hold");
    let (_, admin) = limited(&mut view).await;
    hold(&view, "mine/k", None, true).await.expect("a hold");
    hold(&view, "mine/k", None, false).await.expect("its release");
    retain(&view, "mine/k", 9).await.expect("a retention");
    retain(&view, "mine/k", 3).await.expect("level `basic` lets it be shortened");
    let denied = hold(&view, "other/k", None, false).await;
    assert!(matches!(denied, Err(stele_archive::ArchiveError::Denied(_))), "{denied:?}");
    view.client = admin;
    hold(&view, "other/k", None, false).await.expect("the administrator releases it");
}

#[tokio::test(start_paused = true)]
async fn a_key_that_lost_its_right_meanwhile_releases_nothing() {
    let ends: [(&str, Option<Rights>); 4] = [
        ("no right to retain", Some(below("mine/", &[Access::Read]))),
        ("another prefix", Some(below("mine/other/", &[Access::Read, Access::Retain]))),
        ("no role", Some(Rights::default())),
        ("revoked", None),
    ];
    for (how, narrow) in ends {
        let mut view = basic(9).await;
        let (key, admin) = limited(&mut view).await;
        hold(&view, "mine/k", None, true).await.expect("a hold");
        retain(&view, "mine/k", 9).await.expect("a retention");
        let located = view.objects.locate(&view.client, Access::Retain, "mine/k", None).await.expect("the file");
        let archive = view.stage.archive().await;
        match narrow {
            Some(narrow) => drop(archive.narrow_access_key(&admin, &key, narrow).await.expect("narrower")),
            None => archive.revoke_access_key(&admin, &key).await.expect("revoked"),
        }
        // Both requests were judged before.
        let released = archive.set_legal_hold(&located.caller, NAME, &located.key, None, false).await;
        assert!(matches!(released, Err(stele_archive::ArchiveError::Denied(_))), "{how}: {released:?}");
        let file = located.key.clone();
        drop(located);
        let shortened = retain(&view, "mine/k", 3).await;
        assert!(matches!(shortened, Err(stele_archive::ArchiveError::Denied(_))), "{how}: {shortened:?}");
        let gateway = Client::gateway("test");
        assert!(archive.legal_hold(&gateway, NAME, &file, None).await.expect("an answer"), "{how}");
        let kept = archive.retention(&gateway, NAME, &file, None).await.expect("a retention").until;
        assert_eq!(kept, archive.retention_base().plus_days(9), "{how}");
    }
}
