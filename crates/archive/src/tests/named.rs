//! Objects whose clients named the content by its BLAKE3, or wanted no MD5: they have none.

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
    let unwanted = PutRequest { without_md5: true, expected: Expected::default(), ..named("unwanted", &data) };
    let info = put_as(&archive, &admin(), unwanted, &data).await.unwrap();
    assert_eq!(info.etag, ETag::of_blake3(&info.blake3));
    // One that the client announced is verified all the same.
    let announced = PutRequest {
        without_md5: true,
        expected: Expected { md5: Some([7; 16]), ..Expected::default() },
        ..named("announced", &data)
    };
    let refused = put_as(&archive, &admin(), announced, &data).await;
    assert!(matches!(&refused, Err(ArchiveError::BadDigest { algorithm: "MD5", .. })), "{refused:?}");
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
