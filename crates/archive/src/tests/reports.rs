//! Access logs and inventories: where they may go, and what an inventory has.

use std::io::Read;
use std::sync::Arc;

use stele_catalog::{Direction, KeyRange, MemoryCatalog, Transaction};

use super::*;
use crate::buckets::inventory::run_key;
use crate::model::inventory::{InventoryRun, UnfinishedRun};
use crate::record::{INVENTORY_RUNS, encode};

const DAY: u64 = 86_400_000;

fn inventory(id: &str) -> Inventory {
    Inventory {
        id: id.into(),
        enabled: true,
        bucket: "reports".into(),
        prefix: Some("inv".into()),
        filter: None,
        all_versions: true,
        weekly: false,
        fields: ["Size", "ETag", "ObjectLockMode", "IsMultipartUploaded"].map(str::to_owned).to_vec(),
    }
}

async fn with_buckets(world: &World) -> Archive {
    let archive = world.create().await;
    let locked = NewBucket { object_lock: true, versioning: true, ..NewBucket::default() };
    archive.create_bucket(&admin(), "source", locked).await.unwrap();
    archive.create_bucket(&admin(), "reports", NewBucket::default()).await.unwrap();
    archive
}

async fn change(archive: &Archive, caller: &Caller, change: BucketChange) -> Result<BucketInfo> {
    archive.change_bucket(caller, "source", change).await
}

fn log_to(bucket: &str, prefix: &str) -> BucketChange {
    BucketChange::Logging(Some(AccessLog { bucket: bucket.into(), prefix: prefix.into() }))
}

async fn text(archive: &Archive, key: &str) -> Vec<u8> {
    get(archive, "reports", key).await.unwrap()
}

#[tokio::test]
async fn reports_go_only_where_their_author_may_write() {
    let world = World::new(1);
    let archive = with_buckets(&world).await;
    let narrow = |prefix: &str| {
        let grant = Grant { bucket: Some("reports".into()), prefix: prefix.into(), access: [Access::Write].into() };
        let list = Grant { bucket: Some("source".into()), prefix: String::new(), access: [Access::List].into() };
        let roles = [Role::StorageAdministrator, Role::User].into();
        let rights = Rights { roles, grants: vec![grant, list], bypass_governance: false };
        Caller { rights: Arc::new(rights), ..admin() }
    };
    for (name, caller, setting, allowed) in [
        ("everything", admin(), log_to("reports", "log/"), true),
        ("no such bucket", admin(), log_to("nowhere", "log/"), false),
        ("within the grant", narrow("log/"), log_to("reports", "log/"), true),
        ("beside the grant", narrow("log/"), log_to("reports", "lo"), false),
        ("an inventory within", narrow("inv/"), BucketChange::Inventory(inventory("a")), true),
        ("an inventory beside", narrow("other/"), BucketChange::Inventory(inventory("a")), false),
    ] {
        let changed = change(&archive, &caller, setting).await;
        assert_eq!(changed.is_ok(), allowed, "{name}: {changed:?}");
    }
    let default = DefaultRetention { mode: RetentionMode::Compliance, period: Period::Days(9) };
    let new = NewBucket { object_lock: true, default_retention: Some(default), ..NewBucket::default() };
    archive.create_bucket(&admin(), "kept", new).await.unwrap();
    assert!(change(&archive, &admin(), log_to("kept", "")).await.is_err());
}

#[tokio::test]
async fn a_policy_that_denies_listing_denies_inventories() {
    let world = World::new(11);
    let archive = with_buckets(&world).await;
    let key = archive.create_access_key(&admin(), "all", Rights::all()).await.unwrap().id;
    let author = archive.credentials(&key).await.unwrap().caller;
    let set = async |all_versions| {
        let inventory = Inventory { all_versions, filter: Some("a/".into()), ..inventory("a") };
        change(&archive, &author, BucketChange::Inventory(inventory)).await.is_ok()
    };
    for (denied, condition, current, all) in [
        ("ListBucket", "", false, false),
        ("ListBucketVersions", "", true, false),
        ("ListBucket", r#","Condition":{"StringLike":{"s3:prefix":"a/*"}}"#, false, false),
        ("ListBucket", r#","Condition":{"StringLike":{"s3:prefix":"b/*"}}"#, true, true),
    ] {
        let statement = format!(
            r#"{{"Effect":"Deny","Principal":{{"AWS":"{key}"}},"Action":"s3:{denied}","Resource":"arn:aws:s3:::source"{condition}}}"#
        );
        let policy = format!(r#"{{"Version":"2012-10-17","Statement":[{statement}]}}"#);
        change(&archive, &admin(), BucketChange::Policy(Some(policy))).await.unwrap();
        assert_eq!((set(false).await, set(true).await), (current, all), "{denied} {condition}");
        change(&archive, &admin(), BucketChange::NoInventory("a".into())).await.unwrap();
    }
}

#[tokio::test]
async fn no_report_is_stored_under_a_default_retention() {
    let world = World::new(12);
    let archive = with_buckets(&world).await;
    let default = DefaultRetention { mode: RetentionMode::Compliance, period: Period::Days(9) };
    let new = NewBucket { object_lock: true, default_retention: Some(default), ..NewBucket::default() };
    archive.create_bucket(&admin(), "kept", new).await.unwrap();
    let source = archive.store().buckets().by_name("source").unwrap();
    // As if the retention was set after the run had begun.
    let stored = archive.store_report("inventory", &source, "kept", "file", "text/plain", "x".into()).await;
    assert!(matches!(stored, Err(ArchiveError::InvalidArgument(_))), "{stored:?}");
}

#[tokio::test]
async fn a_log_is_no_longer_stored_where_reports_stopped_to_fit() {
    let world = World::new(2);
    let archive = with_buckets(&world).await;
    change(&archive, &admin(), log_to("reports", "log/")).await.unwrap();
    archive.store_access_log("source", "1", b"line\n".as_slice().into()).await.unwrap();
    assert_eq!(text(&archive, "log/1").await, b"line\n");
    // No report replaces an object.
    let again = archive.store_access_log("source", "1", b"other\n".as_slice().into()).await;
    assert!(matches!(again, Err(ArchiveError::PreconditionFailed(_))), "{again:?}");
    archive.delete_bucket(&admin(), "source").await.unwrap();
    assert!(archive.store_access_log("source", "2", b"x".as_slice().into()).await.is_err());
}

#[tokio::test]
async fn an_inventory_lists_every_version_and_says_so_in_its_manifest() {
    let world = World::new(3);
    let archive = with_buckets(&world).await;
    change(&archive, &admin(), BucketChange::Inventory(inventory("all"))).await.unwrap();
    let current = Inventory { all_versions: false, filter: Some("a".into()), ..inventory("current") };
    change(&archive, &admin(), BucketChange::Inventory(current)).await.unwrap();
    for number in 0..700 {
        put(&archive, "source", &format!("many {number}"), b"x").await.unwrap();
    }
    put(&archive, "source", "a \"b\"", b"old").await.unwrap();
    let until = archive.store().compliance_now().plus_days(9);
    let request = PutRequest {
        bucket: "source".into(),
        key: "a \"b\"".into(),
        retention: Some(Retention { mode: RetentionMode::Governance, until }),
        ..PutRequest::default()
    };
    crate::testing::put_as(&archive, &admin(), request, b"newer").await.unwrap();
    put(&archive, "source", "gone", b"x").await.unwrap();
    let delete = DeleteRequest { bucket: "source".into(), key: "gone".into(), ..DeleteRequest::default() };
    archive.delete(&admin(), delete).await.unwrap();
    assert_eq!(archive.inventories_due().unwrap().len(), 2);
    let report = archive.run_inventory(&admin(), "source", "all").await.unwrap();
    assert_eq!((report.objects, report.files), (704, 1));
    let manifest = text(&archive, &report.manifest).await;
    let said: serde_json::Value = serde_json::from_slice(&manifest).unwrap();
    let schema = "Bucket, Key, VersionId, IsLatest, IsDeleteMarker, Size, ETag, ObjectLockMode, IsMultipartUploaded";
    assert_eq!(said["fileSchema"], schema);
    let checksum = text(&archive, &report.manifest.replace("manifest.json", "manifest.checksum")).await;
    use md5::{Digest, Md5};
    assert_eq!(String::from_utf8(checksum).unwrap(), crate::model::checksum::to_hex(&Md5::digest(&manifest)));
    let packed = text(&archive, said["files"][0]["key"].as_str().unwrap()).await;
    let mut csv = String::new();
    flate2::read::GzDecoder::new(packed.as_slice()).read_to_string(&mut csv).unwrap();
    assert_eq!(csv.lines().count(), 704);
    let of = |key: &str| csv.lines().filter(|line| line.contains(&format!("\"{key}\""))).collect::<Vec<_>>();
    let quoted = of("a%20%22b%22");
    assert!(quoted[0].contains("\"true\",\"false\",\"5\",") && quoted[0].contains("\"GOVERNANCE\""), "{quoted:?}");
    assert!(quoted[1].contains("\"false\",\"false\",\"3\","), "{quoted:?}");
    assert!(of("gone")[0].contains("\"true\",\"true\",\"\""), "{:?}", of("gone"));
    let report = archive.run_inventory(&admin(), "source", "current").await.unwrap();
    assert_eq!(report.objects, 1);
    // One that is made is due again after its period, also after a restart.
    assert!(archive.inventories_due().unwrap().is_empty());
    drop(archive);
    let archive = world.open().await;
    assert!(archive.inventories_due().unwrap().is_empty());
    world.stage.pass(DAY);
    assert_eq!(archive.inventories_due().unwrap().len(), 2);
    let user = Caller { rights: Arc::new(Rights::user("source", "")), ..admin() };
    assert!(archive.run_inventory(&user, "source", "all").await.is_err());
}

async fn keys(archive: &Archive) -> Vec<String> {
    let request = ListVersionsRequest { bucket: "reports".into(), limit: 1000, ..ListVersionsRequest::default() };
    archive.list_versions(&admin(), request).await.unwrap().versions.into_iter().map(|info| info.key).collect()
}

fn alarmed(archive: &Archive) -> bool {
    archive.standing_alarms().iter().any(|alarm| alarm.kind == AlarmKind::Inventory)
}

#[tokio::test]
async fn an_inventory_that_fails_leaves_no_files_and_waits() {
    let world = World::new(6);
    let archive = with_buckets(&world).await;
    change(&archive, &admin(), BucketChange::Inventory(inventory("all"))).await.unwrap();
    put(&archive, "source", "a", b"x").await.unwrap();
    let report = archive.run_inventory(&admin(), "source", "all").await.unwrap();
    let before = keys(&archive).await;
    // The manifest of this minute is there.
    let again = archive.run_inventory(&admin(), "source", "all").await;
    assert!(matches!(again, Err(ArchiveError::PreconditionFailed(_))), "{again:?}");
    assert_eq!(keys(&archive).await, before, "the failed run deleted its own files, and no other");
    assert!(text(&archive, &report.manifest).await.starts_with(b"{"));
    change(&archive, &admin(), BucketChange::Inventory(Inventory { id: "b".into(), ..inventory("all") }))
        .await
        .unwrap();
    let due = || archive.inventories_due().unwrap();
    let expected = [("source".to_owned(), "b".to_owned())];
    assert_eq!(due(), expected);
    archive.create_bucket(&admin(), "other", NewBucket::default()).await.unwrap();
    let elsewhere = Inventory { bucket: "other".into(), ..inventory("b") };
    change(&archive, &admin(), BucketChange::Inventory(elsewhere)).await.unwrap();
    archive.delete_bucket(&admin(), "other").await.unwrap();
    for (failures, hours) in [(1, 1), (2, 2), (3, 4), (4, 8), (5, 16), (6, 24), (7, 24)] {
        assert!(due().contains(&expected[0]), "before failure {failures}");
        assert!(archive.run_inventory(&admin(), "source", "b").await.is_err());
        assert_eq!(alarmed(&archive), failures >= 2, "after failure {failures}");
        world.stage.pass(hours * 3_600_000 - 1);
        assert!(!due().contains(&expected[0]), "after failure {failures}");
        world.stage.pass(1);
    }
    change(&archive, &admin(), BucketChange::NoInventory("b".into())).await.unwrap();
    assert!(!alarmed(&archive));
}

#[tokio::test]
async fn no_file_that_a_manifest_names_is_deleted() {
    let world = World::new(13);
    let archive = with_buckets(&world).await;
    change(&archive, &admin(), BucketChange::Inventory(inventory("all"))).await.unwrap();
    let minute = stele_ground::calendar::moment(archive.store().wall().seconds()).replace(':', "-");
    let folder = format!("inv/source/all/{}Z", &minute[..16]);
    // The manifest can be stored, and its checksum cannot.
    put(&archive, "reports", &format!("{folder}/manifest.checksum"), b"x").await.unwrap();
    assert!(archive.run_inventory(&admin(), "source", "all").await.is_err());
    let manifest = text(&archive, &format!("{folder}/manifest.json")).await;
    world.stage.pass(60_000);
    archive.run_inventory(&admin(), "source", "all").await.unwrap();
    let said: serde_json::Value = serde_json::from_slice(&manifest).unwrap();
    assert!(!text(&archive, said["files"][0]["key"].as_str().unwrap()).await.is_empty());
}

#[tokio::test]
async fn files_that_a_crash_left_are_deleted_by_the_next_run() {
    let world = World::new(7);
    let archive = with_buckets(&world).await;
    change(&archive, &admin(), BucketChange::Inventory(inventory("all"))).await.unwrap();
    let bucket = archive.store().buckets().by_name("source").unwrap();
    let prefix = "inv/source/all/data/00000000000000aa".to_owned();
    let left = InventoryRun {
        begun: Timestamp(0),
        unfinished: Some(UnfinishedRun { bucket: "reports".into(), prefix: prefix.clone() }),
    };
    let row = Transaction::new().put(INVENTORY_RUNS, run_key(&bucket, "all"), encode(&left));
    archive.store().catalog().commit(row).await.unwrap();
    for versioning in [Versioning::Off, Versioning::Enabled] {
        if versioning == Versioning::Enabled {
            archive.change_bucket(&admin(), "reports", BucketChange::Versioning(versioning)).await.unwrap();
        }
        put(&archive, "reports", &format!("{prefix}01.csv.gz"), b"x").await.unwrap();
    }
    put(&archive, "reports", "inv/source/all/data/other", b"x").await.unwrap();
    let report = archive.run_inventory(&admin(), "source", "all").await.unwrap();
    let keys = keys(&archive).await;
    assert!(!keys.iter().any(|key| key.starts_with(&prefix)), "{keys:?}");
    assert!(keys.contains(&"inv/source/all/data/other".to_owned()) && keys.contains(&report.manifest), "{keys:?}");
    assert_eq!(keys.len(), 4, "{keys:?}");
}

#[tokio::test]
async fn an_inventory_is_made_once_at_a_time() {
    let world = World::new(8);
    let archive = with_buckets(&world).await;
    change(&archive, &admin(), BucketChange::Inventory(inventory("all"))).await.unwrap();
    let store = archive.store();
    let name = (store.buckets().by_name("source").unwrap().number, "all".to_owned());
    let running = store.inventories().begin(&name).unwrap();
    let second = archive.run_inventory(&admin(), "source", "all").await;
    assert!(matches!(second, Err(ArchiveError::InvalidState(_))), "{second:?}");
    assert!(archive.inventories_due().unwrap().is_empty());
    drop(running);
    archive.run_inventory(&admin(), "source", "all").await.unwrap();
}

#[tokio::test]
async fn a_clock_that_was_ahead_silences_no_inventory() {
    let world = World::new(9);
    let archive = with_buckets(&world).await;
    change(&archive, &admin(), BucketChange::Inventory(inventory("all"))).await.unwrap();
    let right = archive.store().wall();
    world.stage.set_wall(Timestamp(right.0 + 365 * DAY));
    archive.run_inventory(&admin(), "source", "all").await.unwrap();
    assert!(archive.inventories_due().unwrap().is_empty());
    world.stage.set_wall(right);
    assert_eq!(archive.inventories_due().unwrap().len(), 1);
    archive.run_inventory(&admin(), "source", "all").await.unwrap();
    world.stage.set_wall(Timestamp(right.0 - 1000));
    assert!(archive.inventories_due().unwrap().is_empty(), "a clock that is set back by a second makes none due");
}

#[tokio::test]
async fn an_inventory_that_is_set_anew_is_due() {
    let world = World::new(10);
    let archive = with_buckets(&world).await;
    let rows = || {
        let snapshot = archive.store().snapshot().unwrap();
        snapshot.range(INVENTORY_RUNS, &KeyRange::all(), 10, Direction::Forward).unwrap().len()
    };
    archive.create_bucket(&admin(), "other", NewBucket::default()).await.unwrap();
    let set = async |bucket: &str| {
        let inventory = Inventory { bucket: bucket.into(), ..inventory("all") };
        change(&archive, &admin(), BucketChange::Inventory(inventory)).await.unwrap();
    };
    set("reports").await;
    archive.run_inventory(&admin(), "source", "all").await.unwrap();
    change(&archive, &admin(), BucketChange::NoInventory("all".into())).await.unwrap();
    assert_eq!(rows(), 0);
    set("reports").await;
    assert_eq!(archive.inventories_due().unwrap().len(), 1, "after a removal");
    world.stage.pass(60_000);
    archive.run_inventory(&admin(), "source", "all").await.unwrap();
    set("other").await;
    assert_eq!(archive.inventories_due().unwrap().len(), 1, "with another destination");
    archive.run_inventory(&admin(), "source", "all").await.unwrap();
    archive.delete_bucket(&admin(), "source").await.unwrap();
    assert_eq!(rows(), 0);
}

#[tokio::test]
async fn an_inventory_gives_way_after_each_page() {
    let world = World::new(5);
    let archive = with_buckets(&world).await;
    let current = |id: &str, filter: &str| {
        let inventory = Inventory { all_versions: false, filter: Some(filter.into()), ..inventory(id) };
        BucketChange::Inventory(inventory)
    };
    change(&archive, &admin(), current("none", "nothing")).await.unwrap();
    change(&archive, &admin(), current("gone", "gone")).await.unwrap();
    for number in 0..2_100 {
        let delete =
            DeleteRequest { bucket: "source".into(), key: format!("gone {number}"), ..DeleteRequest::default() };
        archive.delete(&admin(), delete).await.unwrap();
    }
    let turns = async |id: &str| {
        let (mut turns, caller) = (0_u32, admin());
        let run = archive.run_inventory(&caller, "source", id);
        let others = async {
            loop {
                turns += 1;
                tokio::task::yield_now().await;
            }
        };
        tokio::select! { biased; report = run => assert_eq!(report.unwrap().objects, 0), () = others => {} }
        turns
    };
    let (none, gone) = (turns("none").await, turns("gone").await);
    assert!(gone >= none + 4, "no line is written for delete markers: {none} and {gone} turns");
}

#[tokio::test]
async fn settings_of_reports_survive_a_rebuild_and_are_audited() {
    let world = World::new(4);
    let archive = with_buckets(&world).await;
    change(&archive, &admin(), BucketChange::Inventory(inventory("all"))).await.unwrap();
    change(&archive, &admin(), log_to("reports", "log/")).await.unwrap();
    let log = archive.audit_records(&admin(), 1, 1000).await.unwrap();
    let details: Vec<&str> = log.iter().filter_map(|record| record.detail.as_deref()).collect();
    assert!(details.contains(&"inventory `all` to `reports/inv`"), "{details:?}");
    assert!(details.contains(&"access log to `reports/log/`"), "{details:?}");
    archive.close().await.unwrap();
    drop(archive);
    let world = World { catalog: Arc::new(MemoryCatalog::new()), ..world };
    let filled = Archive::fill(&world.foundation(), &world.options, Rebuild::default()).await.unwrap();
    let (archive, _) = filled.adopt(world.foundation(), world.options.clone()).await.unwrap();
    assert_eq!(archive.inventories(&admin(), "source").await.unwrap(), [inventory("all")]);
    assert!(archive.access_log(&admin(), "source").await.unwrap().is_some());
    change(&archive, &admin(), BucketChange::NoInventory("all".into())).await.unwrap();
    assert!(archive.inventories(&admin(), "source").await.unwrap().is_empty());
}
