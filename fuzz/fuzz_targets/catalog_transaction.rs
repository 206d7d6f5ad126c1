//! An untrusted transaction. A decoded transaction is within the limits and survives encoding and
//! decoding again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stele_catalog::Transaction;

fuzz_target!(|input: &[u8]| {
    if let Ok(read) = Transaction::decode(input) {
        let again = read.encode();
        assert!(again.len() <= input.len());
        assert_eq!(Transaction::decode(&again).ok(), Some(read));
    }
});
