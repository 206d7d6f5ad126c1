//! What outlives the close of its store: refused, never acknowledged.

use super::*;

async fn begin(archive: &Archive, key: &str, data: &[u8]) -> ObjectWriter {
    let request = PutRequest { bucket: "bucket".into(), key: key.into(), ..PutRequest::default() };
    let mut writer = archive.put(&admin(), request).await.unwrap();
    writer.write(bytes::Bytes::copy_from_slice(data)).await.unwrap();
    writer
}

#[tokio::test]
async fn nothing_is_acknowledged_once_the_store_is_closed() {
    let world = World::new(1);
    let archive = world.create().await;
    archive.create_bucket(&admin(), "bucket", NewBucket::default()).await.unwrap();
    put(&archive, "bucket", "before", b"kept").await.unwrap();
    let mut late = Vec::new();
    for (seed, length) in [10, 60_000, 300_000, 3 << 20].into_iter().enumerate() {
        late.push((
            format!("late {length}"),
            begin(&archive, &format!("late {length}"), &content(seed as u64, length)).await,
        ));
    }
    archive.close().await.unwrap();
    for (key, writer) in late {
        let answer = writer.finish(Expected::default()).await;
        assert!(matches!(answer, Err(ArchiveError::Stopped(_))), "{key}: {answer:?}");
    }
    let request = DeleteRequest { bucket: "bucket".into(), key: "before".into(), ..DeleteRequest::default() };
    assert!(matches!(archive.delete(&admin(), request).await, Err(ArchiveError::Stopped(_))));
    let bucket = archive.create_bucket(&admin(), "another", NewBucket::default()).await;
    assert!(matches!(bucket, Err(ArchiveError::Stopped(_))), "{bucket:?}");
    assert!(matches!(archive.close().await, Err(ArchiveError::Stopped(_))), "a second close says so");
    drop(archive);

    let archive = world.open().await;
    for seed in 0..40 {
        put(&archive, "bucket", &format!("after {seed}"), &content(seed, 100_000)).await.unwrap();
    }
    assert_eq!(get(&archive, "bucket", "before").await.unwrap(), b"kept");
    let request = ListRequest { bucket: "bucket".into(), prefix: "late".into(), limit: 10, ..ListRequest::default() };
    assert!(archive.list(&admin(), request).await.unwrap().objects.is_empty());
    let verdict = archive.audit_verify(&admin(), None).await.unwrap();
    assert!(verdict.findings.is_empty(), "{verdict:?}");
}

/// A store that could only be read when it was opened takes changes later, in every clone, and
/// leaves the segment alone in which an attempt that failed may still be writing.
#[tokio::test]
async fn a_store_open_for_reading_is_opened_again_for_writing() {
    let world = World::new(2);
    let archive = world.create().await;
    archive.create_bucket(&admin(), "bucket", NewBucket::default()).await.unwrap();
    put(&archive, "bucket", "before", b"kept").await.unwrap();
    let again = archive.open_again(world.foundation(), world.options.clone()).await;
    assert!(matches!(again, Err(ArchiveError::InvalidState(_))), "it takes changes already: {again:?}");
    let (last, _) = archive.store().appender().tail().unwrap();
    drop(archive);
    let reader = crate::Options { read_only: true, ..world.options.clone() };
    let archive = Archive::open(world.foundation(), reader.clone()).await.unwrap();
    let clone = archive.clone();
    assert!(matches!(put(&clone, "bucket", "early", b"x").await, Err(ArchiveError::ReadOnly(_))));
    assert!(archive.open_again(world.foundation(), reader).await.is_err());
    // What it stands on fails once more: all stays as it was.
    world.bench.cut_after(0);
    assert!(archive.open_again(world.foundation(), world.options.clone()).await.is_err());
    world.bench.power_on();
    assert_eq!(get(&clone, "bucket", "before").await.unwrap(), b"kept");
    archive.open_again(world.foundation(), world.options.clone()).await.unwrap();
    put(&clone, "bucket", "after", b"stored").await.unwrap();
    let (segment, _) = archive.store().appender().tail().unwrap();
    assert_ne!(segment, last, "nothing goes into the segment of before");
    for (key, data) in [("before", &b"kept"[..]), ("after", b"stored")] {
        assert_eq!(get(&clone, "bucket", key).await.unwrap(), data);
    }
    assert!(clone.audit_verify(&admin(), None).await.unwrap().findings.is_empty());
    archive.close().await.unwrap();
    drop((archive, clone));
    let (archive, report) = Archive::rebuild(
        crate::Foundation { catalog: std::sync::Arc::new(stele_catalog::MemoryCatalog::new()), ..world.foundation() },
        world.options.clone(),
    )
    .await
    .unwrap();
    assert_eq!((report.buckets, report.versions), (1, 2), "{report:?}");
    assert_eq!(get(&archive, "bucket", "after").await.unwrap(), b"stored");
}
