use std::sync::atomic::AtomicBool;

use stele_archive::{BucketChange, Caller, NewBucket};
use stele_ground::MIB;

use super::*;
use crate::serving::services;

fn row() -> ShareRow {
    ShareRow {
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
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_share_that_did_not_open_is_tried_again() {
    let hangs = Arc::new(AtomicBool::new(false));
    let node = services::tests::node(&hangs).await;
    let archive = node.archive().unwrap();
    archive.create_bucket(&Caller::local(0), "files", NewBucket::default()).await.unwrap();
    archive.change_bucket(&Caller::local(0), "files", BucketChange::Share).await.unwrap();
    let row = row();
    node.registry().unwrap().add("files", &row).await.unwrap();
    let start = Instant::now();
    let alarms = || node.alarms.came().get("share").copied().unwrap_or_default();
    for seconds in [0, 3, 10] {
        node.open_shares_at(start + StdDuration::from_secs(seconds)).await.unwrap();
        assert_eq!((node.shares.unopened.list().len(), alarms()), (1, 1), "one alarm for one reason");
    }
    let awaited = || node.shares.running().is_some_and(|server| server.exports().is_awaited(row.number));
    assert!(awaited(), "NFS clients wait for it");

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
    assert!(node.shares.unopened.list().is_empty() && !awaited());
    node.open_shares_at(later + StdDuration::from_secs(300)).await.unwrap();
    assert!(Arc::ptr_eq(&open, &node.shares.get("files").unwrap()), "it is not opened a second time");
}

#[test]
fn a_network_that_cannot_be_understood_has_a_next_step() {
    let failure = networks(&ShareRow { networks: vec!["10.1/many".to_owned()], ..row() }, &[]).err().unwrap();
    assert!(failure.kind == Kind::Usage && failure.next.contains("10.1.0.0/16"), "{failure}");
}

/// Drives are only one of the reasons.
#[tokio::test(flavor = "multi_thread")]
async fn a_share_that_is_not_served_has_the_next_step_of_its_own_reason() {
    let node = services::tests::node(&Arc::new(AtomicBool::new(false))).await;
    node.registry().unwrap().add("files", &row()).await.unwrap();
    let start = Instant::now();
    let told = async |seconds: u64| {
        node.open_shares_at(start + StdDuration::from_secs(seconds)).await.unwrap();
        let standing = node.shares.unopened.standing("share", "").pop().expect("an alarm that stands");
        let alarm = node.alarms.list().into_iter().rfind(|alarm| alarm.kind == "share").expect("an alarm");
        assert_eq!((&alarm.kind, &alarm.message, &alarm.next), (&standing.kind, &standing.message, &standing.next));
        alarm
    };
    let alarm = told(0).await;
    assert!(alarm.message.contains("cache volume") && alarm.next.contains("`stele volume list`"), "{alarm:?}");
    node.make_cache("share-files".to_owned(), "mirror-2".parse().unwrap(), Bytes(16 * MIB)).await.unwrap();
    let alarm = told(60).await;
    assert!(alarm.message.contains("its bucket is gone"), "{alarm:?}");
    assert!(alarm.next.starts_with("`stele share remove files`"), "{alarm:?}");
}

/// A share that was not open must not stay awaited once it is removed: its handles are stale then.
#[tokio::test(flavor = "multi_thread")]
async fn no_client_waits_for_a_share_that_is_removed() {
    let node = services::tests::node(&Arc::new(AtomicBool::new(false))).await;
    let row = ShareRow { number: 8, volume: "share-gone".to_owned(), ..row() };
    node.announce_shares(&[("gone".to_owned(), row.clone())]).unwrap();
    let server = node.shares.running().unwrap();
    assert!(server.exports().is_awaited(8) && !server.exports().is_awaited(9));
    node.withdraw("gone", &row).for_good();
    assert!(!server.exports().is_awaited(8));
    node.announce_shares(&[("gone".to_owned(), row)]).unwrap();
    node.announce_shares(&[]).unwrap();
    assert!(!server.exports().is_awaited(8));
}

#[test]
fn this_machine_may_use_a_share_at_its_own_address_too() {
    let own: IpAddr = "10.1.0.5".parse().unwrap();
    let admits = |row: &ShareRow, client: &str| {
        let networks = networks(row, &[own]).unwrap();
        networks.iter().any(|network| network.contains(client.parse().unwrap()))
    };
    for (client, expected) in
        [("127.0.0.1", true), ("::1", true), ("10.1.0.5", true), ("::ffff:10.1.0.5", true), ("10.1.0.6", false)]
    {
        assert_eq!(admits(&row(), client), expected, "{client}");
    }
    let named = ShareRow { networks: vec!["10.2.0.0/16".to_owned()], ..row() };
    assert!(!admits(&named, "10.1.0.5") && !admits(&named, "127.0.0.1"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_the_configuration_names_is_this_machine() {
    let mut node = Arc::into_inner(services::tests::node(&Arc::new(AtomicBool::new(false))).await).unwrap();
    let mut own = |nfs: &str, smb: &str| -> Vec<String> {
        let at = |text: &str| (!text.is_empty()).then(|| text.parse().unwrap());
        (node.config.nfs.listen, node.config.smb.listen) = (at(nfs), at(smb));
        node.own_addresses().iter().map(ToString::to_string).collect()
    };
    assert_eq!(own("10.1.0.5:2049", "10.1.0.5:445"), ["10.1.0.5"]);
    assert_eq!(own("10.1.0.5:2049", "[fd00::5]:445"), ["10.1.0.5", "fd00::5"]);
    for listen in ["127.0.0.1:2049", "0.0.0.0:2049", "[::]:2049", "[::1]:2049", ""] {
        assert!(own(listen, "").is_empty(), "{listen}");
    }
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

#[test]
fn a_start_with_many_shares_is_one_line_of_the_log() {
    let names = |count: usize| (0..count).map(|number| format!("s{number:03}")).collect::<Vec<_>>();
    assert_eq!(open_now(&names(1)), "the share 's000' is open");
    assert_eq!(open_now(&names(2)), "2 shares are open: s000, s001");
    let many = open_now(&names(1000));
    assert!(many.starts_with("1000 shares are open: s000, ") && many.len() < 400, "{many}");
}
