use super::*;

#[tokio::test]
async fn objects_of_every_size_come_back_whole_and_in_ranges() {
    let world = World::sized(1, 256 << 20, 8 << 20);
    let archive = world.create().await;
    archive.create_bucket(&admin(), "first", NewBucket::default()).await.unwrap();
    let sizes = [0, 1, 15, 4096, 65_535, 65_536, 65_537, 300_000, 1 << 20, (1 << 20) + 1, 5_000_000, 20 << 20];
    for (seed, size) in sizes.into_iter().enumerate() {
        let data = content(seed as u64, size);
        let key = format!("object of {size}");
        let info = put(&archive, "first", &key, &data).await.unwrap();
        assert_eq!(info.size, size as u64);
        assert!(get(&archive, "first", &key).await.unwrap() == data, "{size}");
        let ranges = [(0, 0), (0, size / 2), (size / 3, size), (size.saturating_sub(1), size), (65_000, 66_000)];
        for (first, last) in ranges {
            let request = GetRequest {
                bucket: "first".into(),
                key: key.clone(),
                range: ByteRange::From { first: first as u64, last: Some(last as u64) },
                ..GetRequest::default()
            };
            let got = get_with(&archive, request).await;
            if first >= size || last < first {
                assert_eq!(got, Err(ArchiveError::InvalidRange { size: size as u64 }));
            } else {
                assert!(got.unwrap() == data[first..(last + 1).min(size)], "{size}: {first} to {last}");
            }
        }
    }
    archive.close().await.unwrap();
    drop(archive);
    let archive = world.open().await;
    for (seed, size) in sizes.into_iter().enumerate() {
        assert!(get(&archive, "first", &format!("object of {size}")).await.unwrap() == content(seed as u64, size));
    }
    let page = archive
        .list(&admin(), ListRequest { bucket: "first".into(), limit: 1000, ..ListRequest::default() })
        .await
        .unwrap();
    assert_eq!(page.objects.len(), sizes.len());
    for object in &page.objects {
        let request = DeleteRequest { bucket: "first".into(), key: object.key.clone(), ..DeleteRequest::default() };
        archive.delete(&admin(), request).await.unwrap();
        assert!(matches!(get(&archive, "first", &object.key).await, Err(ArchiveError::NoSuchKey { .. })));
    }
    archive.delete_bucket(&admin(), "first").await.unwrap();
    let verdict = archive.audit_verify(&admin(), None).await.unwrap();
    assert!(verdict.findings.is_empty() && verdict.records > 20, "{verdict:?}");
}

#[tokio::test]
async fn no_stale_memory_reaches_the_volume_behind_a_record() {
    const STALE: [u8; 16] = [0xA5; 16];
    let world = World::sized(8, 64 << 20, 8 << 20);
    let archive = world.create().await;
    archive.create_bucket(&admin(), "first", NewBucket::default()).await.unwrap();
    for size in [200_001, 300_001, 1_500_001, 3_000_001] {
        // Buffers of the lengths that pieces have, left full of what must not be seen.
        let lengths = [1, 4, 16].map(|frames| 80 + frames * ((64 << 10) + 16));
        let mut left: Vec<stele_media::Buffer> = Vec::new();
        for length in lengths.into_iter().chain(lengths.map(|length| length + 1024)) {
            left.extend((0..2).map(|_| stele_media::Buffer::stale(length)));
        }
        for buffer in &mut left {
            let capacity = buffer.capacity();
            buffer.set_length(capacity);
            buffer.fill(STALE[0]);
        }
        drop(left);
        put(&archive, "first", &size.to_string(), &content(size as u64, size)).await.unwrap();
    }
    let volume = world.bench.handle();
    for at in (0..64 << 20).step_by(1 << 20) {
        let bytes = volume.read(at, 1 << 20).await.unwrap();
        assert!(bytes.as_chunks::<16>().0.iter().all(|there| *there != STALE), "stale bytes in the MiB at {at}");
    }
}
