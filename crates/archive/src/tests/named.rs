//! Objects whose clients named the content by its BLAKE3: they have no MD5.

use std::sync::Arc;

use super::*;
use crate::testing::put_as;

fn named(key: &str, data: &[u8]) -> PutRequest {
    let expected = Expected { blake3: Some(*blake3::hash(data).as_bytes()), ..Expected::default() };
    PutRequest { bucket: "named".into(), key: key.into(), expected, ..PutRequest::default() }
}

#[tokio::test]
async fn a_named_content_is_verified_scrubbed_and_rebuilt() {
    let world = World::new(1);
    let archive = world.create().await;
    archive.create_bucket(&admin(), "named", NewBucket::default()).await.unwrap();
    let data = content(1, 300_000);
    for (key, length) in [("none", 0), ("short", 100), ("long", data.len())] {
        let info = put_as(&archive, &admin(), named(key, &data[..length]), &data[..length]).await.unwrap();
        assert_eq!((info.etag, info.parts), (ETag::of_blake3(&info.blake3), None), "{key}");
    }
    put(&archive, "named", "plain", &data).await.unwrap();
    let refused = put_as(&archive, &admin(), named("other", b"another"), &data).await;
    assert!(matches!(&refused, Err(ArchiveError::BadDigest { algorithm: "BLAKE3", .. })), "{refused:?}");
    assert_eq!(scrub(&archive).await.findings, Vec::<String>::new());

    let request = GetRequest { bucket: "named".into(), key: "long".into(), ..GetRequest::default() };
    let (stored, _) = archive.head(&admin(), request.clone()).await.unwrap();
    archive.close().await.unwrap();
    let world = World { catalog: Arc::new(stele_catalog::MemoryCatalog::new()), ..world };
    let filled = Archive::fill(&world.foundation(), &world.options, Rebuild::default()).await.unwrap();
    let (archive, _) = filled.adopt(world.foundation(), world.options.clone()).await.unwrap();
    assert_eq!(archive.head(&admin(), request).await.unwrap().0.etag, stored.etag);
    assert_eq!(scrub(&archive).await.findings, Vec::<String>::new());
    assert_eq!(get(&archive, "named", "long").await.unwrap(), data);
}
