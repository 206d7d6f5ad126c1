//! Digests of stored data. A caller binds a digest to a place by mixing in a context (pool, slot,
//! strip, block, generation), so that right bytes in a wrong place do not verify.
//!
//! A host's data is identified by [`fingerprint`], never by a CRC. Blocks of file systems,
//! databases and test programs contain a CRC-32C of their own header. All versions of such a block
//! have the same CRC-32C, so an older content on a drive would verify. So are our own structures in
//! places where a host's data may have lain before. Others, in places where only Stele writes, have
//! CRC-32C.

use crc_fast::CrcAlgorithm;
use twox_hash::XxHash3_64;

/// CRC-32C of `data` as in iSCSI (RFC 3720, appendix B.4).
pub fn crc32c(data: &[u8]) -> u32 {
    crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, data) as u32
}

/// XXH3-64 of `data`, without a seed: as fast as a CRC, and not linear, so that no checksum inside
/// the data cancels a change. It is not cryptographic: an attacker can make two contents with the
/// same fingerprint.
pub fn fingerprint(data: &[u8]) -> u64 {
    XxHash3_64::oneshot(data)
}

/// A CRC-32C bound to its place: the CRC of the data xored with a well-mixed 32-bit word of the
/// context. Every error pattern CRC-32C detects stays detected, and equal data under another
/// context differs.
pub fn bound(data: &[u8], context: u64) -> u32 {
    bind(crc32c(data), context)
}

/// Like `bound`, for data with a known CRC-32C.
pub fn bind(crc: u32, context: u64) -> u32 {
    crc ^ mix(context)
}

/// A fingerprint bound to its place, in 32 bits.
pub fn bind_fingerprint(fingerprint: u64, context: u64) -> u32 {
    let z = self::context(fingerprint, context);
    (z ^ (z >> 32)) as u32
}

/// Joins two context words into one; not commutative.
pub fn context(left: u64, right: u64) -> u64 {
    let mut z = left.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ right;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

fn mix(context: u64) -> u32 {
    let z = self::context(context, 0x5354_454C_4521);
    (z ^ (z >> 32)) as u32
}

#[cfg(test)]
mod tests;
