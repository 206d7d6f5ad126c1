//! The catalog's superblock and checkpoint record. A superblock that decodes must name places
//! within its volume.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stele_catalog::embedded::base::Checkpoint;
use stele_catalog::embedded::layout::Layout;

const DIGEST_AT: usize = 4096 - 32;

fuzz_target!(|input: &[u8]| {
    let _ = Layout::decode(input);
    if let Ok(checkpoint) = Checkpoint::decode(input) {
        assert_eq!(checkpoint.encode(), input);
    }
    let mut block = vec![0; DIGEST_AT];
    block[..8].copy_from_slice(b"STELECAT");
    block[8..12].copy_from_slice(&1u32.to_le_bytes());
    let length = input.len().min(DIGEST_AT - 16);
    block[16..16 + length].copy_from_slice(&input[..length]);
    let digest = blake3::hash(&block);
    block.extend_from_slice(digest.as_bytes());
    if let Ok(layout) = Layout::decode(&block) {
        let layout = layout.expect("a sealed superblock must verify");
        assert!(layout.area_at + layout.area <= layout.volume);
        assert_eq!(Layout::decode(&layout.encode()).ok().flatten().map(|layout| layout.id), Some(layout.id));
    }
});
