use super::*;

/// A shard's label says its place and has a feature that other versions refuse. Its identity is its
/// own, and leads back to the pool's.
#[test]
fn a_shards_label_says_its_place() {
    let test_drives = TestDrives::new(6, SIZE, 0);
    let alone = configuration(&test_drives);
    for (index, count) in [(0, 2), (1, 2), (300, 301)] {
        let shard = Shard { index, count };
        let mut divided = Configuration { shard, pool: shard.identity(alone.pool), ..alone.clone() };
        (divided.loss_accepted, divided.rolling_back) = (index == 1, (index == 0).then_some(VolumeId(0)));
        divided.features.incompatible = codec::features_of(shard);
        let read = Label::decode(&label(9, 4, divided.clone()).encode()).expect("a label");
        assert_eq!(read.configuration, divided);
        assert_eq!(read.configuration.whole_pool(), alone.pool);
        assert_eq!(shard.identity(alone.pool) == alone.pool, index == 0);
    }
    // A place behind the last one, and the only place of all, are no places.
    for shard in [Shard { index: 2, count: 2 }, Shard { index: 0, count: 0 }] {
        let divided = Configuration { shard, ..alone.clone() };
        assert_eq!(Label::decode(&label(9, 4, divided).encode()), Err(NoLabel::Damaged));
    }
}
