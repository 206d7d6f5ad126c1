//! The chain of chunk signatures of an aws-chunked body: each covers the previous one.

use super::stamp::Stamp;
use aws_lc_rs::{digest, hmac};

const EMPTY_SHA256: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/// Verifies chunk after chunk, then the trailer.
pub struct ChunkSigner {
    key: hmac::Key,
    stamp: Stamp,
    scope: String,
    previous: [u8; 64],
    hash: digest::Context,
}

impl ChunkSigner {
    /// A chain that starts at the request's own signature (`seed`, 64 hexadecimal digits).
    pub fn new(key: hmac::Key, stamp: Stamp, region: &str, service: &str, seed: &str) -> Self {
        let mut previous = [0; 64];
        if seed.len() == previous.len() {
            previous.copy_from_slice(seed.as_bytes());
        }
        ChunkSigner {
            key,
            stamp,
            scope: format!("{}/{region}/{service}/aws4_request", stamp.date()),
            previous,
            hash: digest::Context::new(&digest::SHA256),
        }
    }

    /// Adds data of the current chunk.
    pub fn update(&mut self, data: &[u8]) {
        self.hash.update(data);
    }

    /// Ends the current chunk; returns whether `signature` matches its data.
    pub fn chunk(&mut self, signature: &[u8]) -> bool {
        let hash = std::mem::replace(&mut self.hash, digest::Context::new(&digest::SHA256));
        let data = hex_lower(hash.finish().as_ref());
        self.check("AWS4-HMAC-SHA256-PAYLOAD", &[EMPTY_SHA256, &data], signature)
    }

    /// Ends the body; returns whether `signature` covers the trailer lines, written `name:value\n`.
    pub fn trailer(&mut self, lines: &[u8], signature: &[u8]) -> bool {
        let data = hex_lower(digest::digest(&digest::SHA256, lines).as_ref());
        self.check("AWS4-HMAC-SHA256-TRAILER", &[&data], signature)
    }

    fn check(&mut self, algorithm: &str, hashes: &[&str], signature: &[u8]) -> bool {
        let expected = self.sign(algorithm, hashes);
        let matches = aws_lc_rs::constant_time::verify_slices_are_equal(&expected, signature);
        self.previous = expected;
        matches.is_ok()
    }

    fn sign(&self, algorithm: &str, hashes: &[&str]) -> [u8; 64] {
        let mut context = hmac::Context::with_key(&self.key);
        for part in [algorithm, "\n", self.stamp.text(), "\n", &self.scope, "\n"] {
            context.update(part.as_bytes());
        }
        context.update(&self.previous);
        for hash in hashes {
            context.update(b"\n");
            context.update(hash.as_bytes());
        }
        let mut text = [0; 64];
        let hex = hex_lower(context.sign().as_ref());
        text.copy_from_slice(hex.as_bytes());
        text
    }
}

/// Lower-case hexadecimal.
pub fn hex_lower(bytes: &[u8]) -> String {
    hex_simd::encode_to_string(bytes, hex_simd::AsciiCase::Lower)
}
