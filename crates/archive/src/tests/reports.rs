//! Access logs and inventories: where they may go, and what an inventory has.

use std::io::Read;
use std::sync::Arc;

use stele_catalog::MemoryCatalog;

use super::*;

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
