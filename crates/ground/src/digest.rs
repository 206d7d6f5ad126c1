//! The digest of stored blocks: CRC-32C (Castagnoli). A caller binds it to a place by mixing in a
//! context (pool, slot, strip, block, generation), so that right bytes in a wrong place do not verify.

use crc_fast::CrcAlgorithm;

/// CRC-32C of `data` as in iSCSI (RFC 3720, appendix B.4).
pub fn crc32c(data: &[u8]) -> u32 {
    crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, data) as u32
}

/// A digest bound to its place: the CRC of the data xored with a well-mixed 32-bit word of the context.
/// Every error pattern CRC-32C detects stays detected, and equal data under another context differs.
pub fn bound(data: &[u8], context: u64) -> u32 {
    bind(crc32c(data), context)
}

/// As `bound`, of data whose CRC-32C is known.
pub fn bind(crc: u32, context: u64) -> u32 {
    crc ^ mix(context)
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
