use super::*;
use crate::testing::random;

#[test]
fn content_reads_back_and_noise_is_not_compressed() {
    let mut compressor = Compressor::new(LEVEL_DEFAULT).unwrap();
    let mut decompressor = Decompressor::new().unwrap();
    for (raw, shrinks) in [
        (b"text ".repeat(10), true),
        (b"text ".repeat(100_000), true),
        (random(1, 100), false),
        (random(2, 1 << 20), false),
        (Vec::new(), false),
    ] {
        let stored = compressor.compress(&raw).unwrap().map(<[u8]>::to_vec);
        assert_eq!(stored.is_some(), shrinks, "{} bytes", raw.len());
        if let Some(stored) = stored {
            let mut output = Vec::new();
            decompressor.decompress(&stored, raw.len(), &mut output).unwrap();
            assert_eq!(output, raw);
            for wrong in [raw.len() - 1, raw.len() + 1, CHUNK_MAX + 1] {
                assert!(decompressor.decompress(&stored, wrong, &mut output).is_err());
            }
        }
    }
}
