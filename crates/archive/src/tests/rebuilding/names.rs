//! Names of buckets that a rebuild finds.

use super::*;

/// The block of the key table that held the key of a deleted version cannot be read: the version
/// may exist, and so may its bucket. A newer bucket has its name.
#[tokio::test]
async fn a_bucket_that_comes_back_leaves_its_name_to_the_newer_one() {
    let world = World::sized(47, 16 * MIB, SEGMENT);
    let archive = world.create().await;
    archive.create_bucket(&admin(), "again", locked_bucket()).await.unwrap();
    let old = put(&archive, "again", "old", b"record").await.unwrap();
    let store = archive.store();
    let bucket = store.buckets().by_name("again").unwrap();
    let found = lookup::newest(&*store.snapshot().unwrap(), &bucket, "old").unwrap().unwrap();
    let (block, _) = store.keys().block(found.row.slot).unwrap();
    let (key, version) = (old.key, Some(old.version));
    let request = DeleteRequest { bucket: "again".into(), key, version, ..DeleteRequest::default() };
    archive.delete(&admin(), request).await.unwrap();
    archive.delete_bucket(&admin(), "again").await.unwrap();
    archive.create_bucket(&admin(), "again", NewBucket::default()).await.unwrap();
    put(&archive, "again", "new", b"record").await.unwrap();
    archive.close().await.unwrap();
    drop((store, archive));
    world.bench.lose(block..block + 4096);
    let (archive, report) = rebuild(&anew(world), losses()).await.unwrap();
    let names: Vec<String> = archive.list_buckets(&admin()).await.unwrap().into_iter().map(|info| info.name).collect();
    assert_eq!(names, ["again", "again.1"]);
    for (bucket, key) in [("again", "new"), ("again.1", "old")] {
        let request = ListVersionsRequest { bucket: bucket.into(), limit: 9, ..ListVersionsRequest::default() };
        let versions = archive.list_versions(&admin(), request).await.unwrap().versions;
        assert_eq!(versions.iter().map(|version| version.key.as_str()).collect::<Vec<_>>(), [key], "{bucket}");
    }
    let told = "a deleted bucket `again` holds versions; it is there as `again.1`";
    assert!(report.findings.iter().any(|finding| finding == told), "{:?}", report.findings);
}
