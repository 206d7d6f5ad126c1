use std::sync::atomic::AtomicBool;

use stele_archive::{BucketChange, Caller, NewBucket};
use stele_ground::MIB;

use super::*;
use crate::serving::services;

#[tokio::test(flavor = "multi_thread")]
async fn a_share_that_did_not_open_is_tried_again() {
    let hangs = Arc::new(AtomicBool::new(false));
    let node = services::tests::node(&hangs).await;
    let archive = node.archive().unwrap();
    archive.create_bucket(&Caller::local(0), "files", NewBucket::default()).await.unwrap();
    archive.change_bucket(&Caller::local(0), "files", BucketChange::Share).await.unwrap();
    let row = ShareRow {
        number: 7,
        volume: "share-files".to_owned(),
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
    };
    node.registry().unwrap().add("files", &row).await.unwrap();
    let start = Instant::now();
    let alarms = || node.alarms.came().get("share").copied().unwrap_or_default();
    for seconds in [0, 3, 10] {
        node.open_shares_at(start + StdDuration::from_secs(seconds)).await.unwrap();
        assert_eq!((node.shares.unopened.list().len(), alarms()), (1, 1), "one alarm for one reason");
    }

    for (size, why) in [(Bytes(16 * MIB - 1), "too small"), (Bytes(1 << 50), "takes 2 PiB on drives")] {
        let refused = node.make_cache("share-files".to_owned(), "mirror-2".parse().unwrap(), size).await.unwrap_err();
        assert!(refused.kind == Kind::Usage && refused.error.to_string().contains(why), "{}", refused.error);
    }
    node.make_cache("share-files".to_owned(), "mirror-2".parse().unwrap(), Bytes(16 * MIB)).await.unwrap();
    node.open_shares_at(start + StdDuration::from_secs(11)).await.unwrap();
    assert!(node.shares.get("files").is_none(), "the pause has not passed");
    let later = start + StdDuration::from_secs(30);
    let turn = node.shares.turn.lock().await;
    node.open_shares_at(later).await.unwrap();
    assert!(node.shares.get("files").is_none(), "it is being changed");
    drop(turn);
    node.open_shares_at(later).await.unwrap();
    let open = node.shares.get("files").expect("the share is open");
    assert!(node.shares.unopened.list().is_empty());
    node.open_shares_at(later + StdDuration::from_secs(300)).await.unwrap();
    assert!(Arc::ptr_eq(&open, &node.shares.get("files").unwrap()), "it is not opened a second time");
}

#[test]
fn pauses_between_attempts_grow_to_a_minute() {
    let (mut attempts, start) = (Attempts::default(), Instant::now());
    let mut due = Vec::new();
    for second in 0..200 {
        if attempts.is_due(start + StdDuration::from_secs(second)) {
            due.push(second);
        }
    }
    assert_eq!(due, [0, 2, 6, 14, 30, 62, 122, 182]);
}
