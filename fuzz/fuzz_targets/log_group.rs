//! A group of the log with right checksums and a lying header: untrusted counts, lengths and
//! records.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use stele_array::log::group::{HEADER, Header, MAGIC, is_whole, records};
use stele_ground::digest::crc32c;

fuzz_target!(|input: &[u8]| {
    let _ = Header::decode(input);
    if input.len() < HEADER {
        return;
    }
    let mut group = input.to_vec();
    group[..8].copy_from_slice(MAGIC);
    // The length is sometimes the input's own, so that the records are reached, and sometimes the
    // true one.
    if input[11] & 1 == 0 {
        group[60..64].copy_from_slice(&((input.len() - HEADER) as u32).to_le_bytes());
    }
    let crc = crc32c(&group[HEADER..]);
    group[12..16].copy_from_slice(&crc.to_le_bytes());
    let crc = crc32c(&group[12..HEADER]);
    group[8..12].copy_from_slice(&crc.to_le_bytes());
    let Some(header) = Header::decode(&group) else { panic!("a sealed header must decode") };
    let group = Bytes::from(group);
    let whole = is_whole(&header, &group);
    if let Some(records) = records(&header, &group) {
        assert!(whole, "records of a group that is not whole");
        assert_eq!(records.len(), header.count as usize);
    }
});
