//! Records of the log's payload, one after another, until the bytes are no record. Each accepted
//! record must shorten the rest.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stele_array::records::Record;

fuzz_target!(|input: &[u8]| {
    let mut rest = bytes::Bytes::copy_from_slice(input);
    let mut left = rest.len();
    while Record::decode(&mut rest).is_some() {
        assert!(rest.len() < left, "a record of no length would be read for ever");
        left = rest.len();
    }
});
