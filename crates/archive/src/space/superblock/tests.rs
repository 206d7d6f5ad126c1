use super::*;

#[test]
fn a_superblock_survives_and_a_changed_bit_is_noticed() {
    let block = Superblock {
        format: 1,
        store: [1; 16],
        segment: 64 << 20,
        created: Timestamp(5),
        fingerprint: [2; 16],
        witness: None,
    };
    let mut bytes = block.encode();
    assert_eq!(Superblock::decode(&bytes), Some(block));
    for bit in 0..60 * 8 {
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(Superblock::decode(&bytes), None, "bit {bit}");
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
    assert_eq!(Superblock::decode(&bytes[..59]), None);
}
