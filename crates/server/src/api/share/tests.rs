use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use stele_archive::{
    AnonymousAccess, Bindings, ExpiryAction, ObjectLock, Protection, Quota, Tags, Timestamp, Versioning,
};
use stele_file::share::CACHE_MIN;

use super::*;
use crate::serving::services;

/// A node with the open share `files`, and its row.
async fn served() -> (Arc<Node>, ShareRow) {
    let node = services::tests::node(&Arc::new(AtomicBool::new(false))).await;
    let create = CreateShare {
        name: "files".to_owned(),
        cache: CACHE_MIN,
        cache_code: "mirror-2".to_owned(),
        lock: false,
        retention: None,
        options: ShareOptions::default(),
        owner: (0, 0),
        mode: 0o755,
    };
    create.perform(&node, &ACTOR).await.unwrap();
    let row = row_of(&node, "files").unwrap();
    (node, row)
}

const ACTOR: Actor = Actor { uid: 0 };

fn row() -> ShareRow {
    ShareRow {
        number: 1,
        volume: "share-s".into(),
        owner: (0, 0),
        mode: 0o755,
        archive_after: 10,
        retention_min: None,
        retention_max: None,
        networks: Vec::new(),
        read_only: false,
        squash: SquashRow::Root,
        commit_after: None,
        removed: None,
        caching: None,
    }
}

#[test]
fn bounds_of_a_retention_are_days_that_a_commit_can_have() {
    let with = |retention_min, retention_max| {
        let options = ShareOptions { retention_min, retention_max, ..ShareOptions::default() };
        options.apply(&mut row()).map_err(|failure| failure.to_string())
    };
    for (least, most) in [(None, Some(1)), (Some(0), None), (Some(36_500), Some(36_500))] {
        assert_eq!(with(least, most), Ok(()), "{least:?} {most:?}");
    }
    for (least, most) in [(Some(36_501), None), (None, Some(u64::MAX)), (Some(2), Some(1))] {
        assert!(with(least, most).is_err(), "{least:?} {most:?}");
    }
}

#[test]
fn a_bound_of_zero_days_takes_the_bound_away() {
    let bounded = || ShareRow { retention_min: Some(2), retention_max: Some(30), ..row() };
    for ((least, most), after) in [
        ((None, None), (Some(2), Some(30))),
        ((None, Some(0)), (Some(2), None)),
        ((Some(0), None), (None, Some(30))),
        ((Some(0), Some(0)), (None, None)),
        ((Some(40), Some(0)), (Some(40), None)),
    ] {
        let mut row = bounded();
        let options = ShareOptions { retention_min: least, retention_max: most, ..ShareOptions::default() };
        assert!(options.apply(&mut row).is_ok(), "{least:?} {most:?}");
        assert_eq!((row.retention_min, row.retention_max), after, "{least:?} {most:?}");
    }
    let cleared = ShareOptions { retention_min: Some(5), ..ShareOptions::default() };
    assert!(cleared.apply(&mut ShareRow { retention_max: Some(3), ..row() }).is_err(), "above the longest");
}

#[test]
fn what_clients_mount_has_brackets_around_an_address_of_ipv6() {
    assert_eq!(mounted_from("10.1.0.5".parse().unwrap(), "home"), "10.1.0.5:/home");
    assert_eq!(mounted_from("fd00::5".parse().unwrap(), "home"), "[fd00::5]:/home");
}

#[test]
fn a_network_is_kept_once() {
    let networks = ["10.1.0.0/16", "10.1.2.3/16", "10.1.0.0/16", "10.2.0.0/16"].map(String::from).to_vec();
    let (mut row, options) = (row(), ShareOptions { networks: Some(networks), ..ShareOptions::default() });
    options.apply(&mut row).unwrap();
    assert_eq!(row.networks, ["10.1.0.0/16", "10.2.0.0/16"]);
}

/// While shares are opened, no alarm says why one is not open.
#[tokio::test(flavor = "multi_thread")]
async fn a_share_that_is_about_to_open_asks_for_another_try() {
    let (node, row) = served().await;
    let listed = async || Ls { name: "files".to_owned(), path: String::new() }.perform(&node, &ACTOR).await;
    assert!(listed().await.unwrap().is_empty());
    node.withdraw("files", &row).for_good();
    let opening = listed().await.unwrap_err();
    assert!(opening.kind == Kind::Busy && opening.error.contains("is being opened"), "{opening}");
    node.shares.unopened.note_reason("files", "the share 'files' is not served: its cache is away", "");
    let closed = listed().await.unwrap_err();
    assert!(closed.kind == Kind::Damaged && closed.error.contains("its cache is away"), "{closed}");
    assert!(closed.next.contains("alarm"), "{closed}");
}

/// The removal looks for mounts before it closes the share.
#[tokio::test(flavor = "multi_thread")]
async fn a_share_is_not_mounted_beside_its_removal() {
    let (node, row) = served().await;
    let turn = node.shares.turn.lock().await;
    let mount = Mount { name: "files".to_owned(), directory: "/nonexistent".into(), read_only: false };
    let mut mounting = std::pin::pin!(mount.perform(&node, &ACTOR));
    assert!(futures_util::poll!(mounting.as_mut()).is_pending());
    node.withdraw("files", &row).for_good();
    node.registry().unwrap().remove("files", &row).await.unwrap();
    drop(turn);
    let refused = mounting.await.unwrap_err();
    assert!(refused.error.contains("no share is called 'files'"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn smb_is_told_when_a_share_comes_or_changes() {
    use futures_util::FutureExt;
    let (node, _) = served().await;
    let is_told = || node.shares.changed_for_smb().now_or_never().is_some();
    assert!(is_told() && !is_told());
    let options = ShareOptions { read_only: Some(true), ..ShareOptions::default() };
    SetShare { name: "files".to_owned(), options }.perform(&node, &ACTOR).await.unwrap();
    assert!(is_told() && !is_told());
    RemoveShare { name: "files".to_owned() }.perform(&node, &ACTOR).await.unwrap();
    assert!(is_told() && !is_told());
}

/// As after a server that was killed between the two steps of a removal.
#[tokio::test(flavor = "multi_thread")]
async fn a_share_whose_bucket_is_gone_is_not_served_and_can_go() {
    let (node, row) = served().await;
    let gateway = stele_archive::Caller::gateway("a test");
    node.archive().unwrap().delete_bucket(&gateway, "files").await.unwrap();
    node.withdraw("files", &row).for_good();
    node.open_shares().await.unwrap();
    let unopened = node.shares.unopened.standing("share", "");
    assert!(unopened.iter().any(|alarm| alarm.next.contains("`stele share remove files`")), "{unopened:?}");
    let listed = ListShares {}.perform(&node, &ACTOR).await.unwrap();
    assert!(matches!(listed.as_slice(), [view] if view.status.is_none() && !view.commits), "{listed:?}");
    RemoveShare { name: "files".to_owned() }.perform(&node, &ACTOR).await.unwrap();
    assert!(ListShares {}.perform(&node, &ACTOR).await.unwrap().is_empty());
    assert!(node.shares.unopened.list().is_empty());
    assert!(node.cache_volume(&row.volume).await.unwrap().is_none());
}

#[test]
fn names_that_samba_uses_for_itself_are_refused() {
    for name in ["global", "homes", "printers"] {
        let refused = check_share_name(name).expect_err(name);
        assert_eq!(refused.kind, Kind::Usage, "{name}");
        assert!(refused.error.contains("Samba") && refused.next == "choose another name", "{refused}");
    }
    for name in ["globals", "home", "records", "a.b-c"] {
        assert!(check_share_name(name).is_ok(), "{name}");
    }
}

#[test]
fn settings_of_commits_take_object_lock() {
    let bucket = |lock: bool| BucketInfo {
        name: "s".into(),
        created: Timestamp(0),
        owner: String::new(),
        region: String::new(),
        versioning: Versioning::Enabled,
        object_lock: lock.then(ObjectLock::default),
        protection: Protection::Governance,
        expiry: ExpiryAction::Keep,
        quota: Quota::default(),
        anonymous: AnonymousAccess::None,
        tags: Tags::new(),
        classes: Bindings::default(),
        share: true,
    };
    let plain = row();
    let commits = ShareRow { commit_after: Some(60), ..row() };
    let bounds = ShareRow { retention_max: Some(30), ..row() };
    for (before, after, said) in [
        (None, &plain, None),
        (None, &commits, Some("--commit-after")),
        (None, &bounds, Some("--retention-max")),
        (Some(&plain), &bounds, Some("--retention-max")),
        (Some(&bounds), &bounds, None),
        (Some(&bounds), &plain, None),
        (Some(&bounds), &commits, Some("--commit-after")),
    ] {
        assert!(can_commit(before, after, &bucket(true)).is_ok());
        let refused = can_commit(before, after, &bucket(false)).err();
        match (said, refused) {
            (None, None) => {}
            (Some(said), Some(failure)) => {
                assert!(failure.kind == Kind::Usage && failure.next.contains(said), "{failure}");
            }
            (_, refused) => panic!("{said:?}: {refused:?}"),
        }
    }
}
