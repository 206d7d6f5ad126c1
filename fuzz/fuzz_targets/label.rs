//! A drive label from untrusted bytes: as read, and as a body under a right header, so that the
//! parser behind the checksum is reached. A decoded label must survive encoding and decoding again.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use stele_array::label::LABEL_SIZE;
use stele_array::label::codec::{FORMAT, Label, MAGIC, encoded};
use stele_ground::digest::crc32c;

fuzz_target!(|input: &[u8]| {
    let _ = Label::decode(&Bytes::copy_from_slice(input));
    let mut sealed = Vec::with_capacity(24 + input.len());
    sealed.extend_from_slice(MAGIC);
    sealed.extend_from_slice(&FORMAT.to_le_bytes());
    sealed.extend_from_slice(&(24 + input.len() as u32).to_le_bytes());
    sealed.extend_from_slice(&crc32c(input).to_le_bytes());
    sealed.extend_from_slice(&[0; 4]);
    sealed.extend_from_slice(input);
    if let Ok(label) = Label::decode(&sealed.into())
        && encoded(&label.configuration) as u64 <= LABEL_SIZE
    {
        assert_eq!(Label::decode(&label.encode()).as_ref(), Ok(&label));
    }
});
