//! Readers that take their time, while what they read is moved, removed and written over.

use bytes::Bytes;

use super::*;
use crate::testing::MIB;

const SIZE: usize = 3 << 20;

/// A store in which a long object lies scattered among others, and a reader that has begun it.
struct Scene {
    world: World,
    archive: Archive,
    data: Vec<u8>,
    reader: ObjectReader,
    /// What it has read.
    read: Vec<u8>,
}

async fn scene() -> Scene {
    let world = World::sized(1, 32 * MIB, 256 << 10);
    let archive = world.create().await;
    archive.create_bucket(&admin(), "slow", NewBucket::default()).await.unwrap();
    let data = content(1, SIZE);
    let request = PutRequest { bucket: "slow".into(), key: "long".into(), ..PutRequest::default() };
    let mut writer = archive.put(&admin(), request).await.unwrap();
    for (n, piece) in data.chunks(64 << 10).enumerate() {
        writer.write(Bytes::copy_from_slice(piece)).await.unwrap();
        put(&archive, "slow", &format!("between {n}"), &content(n as u64, 180_000)).await.unwrap();
    }
    writer.finish(Expected::default()).await.unwrap();
    let request = GetRequest { bucket: "slow".into(), key: "long".into(), ..GetRequest::default() };
    let mut reader = archive.get(&admin(), request).await.unwrap();
    let read = reader.next().await.unwrap().unwrap().to_vec();
    Scene { world, archive, data, reader, read }
}

impl Scene {
    async fn remove(&self, key: &str) {
        let request = DeleteRequest { bucket: "slow".into(), key: key.into(), ..DeleteRequest::default() };
        self.archive.delete(&admin(), request).await.unwrap();
    }

    /// Background work until none is due. Answers how many segments were freed.
    async fn work(&self) -> u64 {
        let mut freed = 0;
        loop {
            let report = self.archive.step().await.unwrap();
            freed += report.freed;
            if !report.more {
                return freed;
            }
        }
    }

    /// Empties the segments of the object, waits until no reader delays them, and writes other
    /// content there.
    async fn overtake(&self) {
        for n in 0..SIZE / (64 << 10) {
            self.remove(&format!("between {n}")).await;
        }
        assert_eq!(self.work().await, 0, "the reader is waited for");
        self.world.stage.pass(590_000);
        assert_eq!(self.work().await, 0, "for ten minutes");
        self.world.stage.pass(11_000);
        assert!(self.work().await > 30, "and no longer");
        for n in 0..100 {
            put(&self.archive, "slow", &format!("later {n}"), &content(1000 + n, 150_000)).await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_slow_reader_delays_freed_segments_for_ten_minutes() {
    let mut scene = scene().await;
    scene.overtake().await;
    while let Some(bytes) = scene.reader.next().await {
        scene.read.extend_from_slice(&bytes.unwrap());
    }
    assert!(scene.read == scene.data);
}

#[tokio::test]
async fn a_slow_reader_of_a_removed_version_gets_no_other_bytes() {
    let mut scene = scene().await;
    scene.remove("long").await;
    scene.overtake().await;
    let error = loop {
        match scene.reader.next().await.expect("it does not end as if it were whole") {
            Ok(bytes) => scene.read.extend_from_slice(&bytes),
            Err(error) => break error,
        }
    };
    assert!(matches!(&error, ArchiveError::Conflict(message) if message.contains("removed")), "{error}");
    assert!(scene.read.len() < SIZE && scene.read == scene.data[..scene.read.len()]);
    assert!(scene.reader.next().await.is_none());
}

#[tokio::test]
async fn an_object_replaced_before_it_is_opened_is_not_damaged() {
    let world = World::sized(1, 32 * MIB, 256 << 10);
    let archive = world.create().await;
    archive.create_bucket(&admin(), "busy", NewBucket::default()).await.unwrap();
    let old = content(1, 100_000);
    put(&archive, "busy", "key", &old).await.unwrap();
    let request = GetRequest { bucket: "busy".into(), key: "key".into(), ..GetRequest::default() };
    let opened = archive.open_version(&admin(), &request).unwrap();
    // Its key's slot goes to another object.
    put(&archive, "busy", "key", &content(2, 100_000)).await.unwrap();
    while archive.step().await.unwrap().more {}
    for n in 0..40 {
        put(&archive, "busy", &format!("other {n}"), &content(n, 5000)).await.unwrap();
    }
    assert!(archive.read_opened(&request, opened).await.unwrap().is_none(), "it is looked up anew");
    let mut reader = archive.get(&admin(), request).await.unwrap();
    let mut read = Vec::new();
    while let Some(bytes) = reader.next().await {
        read.extend_from_slice(&bytes.unwrap());
    }
    assert!(read == content(2, 100_000));
}
