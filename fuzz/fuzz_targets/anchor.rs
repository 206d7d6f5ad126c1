//! An anchor from untrusted bytes: as read, and as a body under a right header. A decoded anchor
//! must survive encoding and decoding again.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use stele_array::anchor::{Anchor, FORMAT, MAGIC};
use stele_ground::digest::crc32c;

fuzz_target!(|input: &[u8]| {
    let _ = Anchor::decode(&Bytes::copy_from_slice(input));
    let mut sealed = Vec::with_capacity(24 + input.len());
    sealed.extend_from_slice(MAGIC);
    sealed.extend_from_slice(&FORMAT.to_le_bytes());
    sealed.extend_from_slice(&(24 + input.len() as u32).to_le_bytes());
    sealed.extend_from_slice(&crc32c(input).to_le_bytes());
    sealed.extend_from_slice(&[0; 4]);
    sealed.extend_from_slice(input);
    if let Some(anchor) = Anchor::decode(&sealed.into()) {
        let again = anchor.encode().expect("it was short enough to be read");
        assert_eq!(Anchor::decode(&again), Some(anchor));
    }
});
