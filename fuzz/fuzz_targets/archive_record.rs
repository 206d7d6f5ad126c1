//! Untrusted records of the catalog, their keys, and blocks of the data volume. A decoded record
//! must survive encoding and decoding again, which `catalog_record` asserts.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stele_archive::inspect::{catalog_record, record_key, volume_block};

const NAMES: [&[u8]; 4] = [b"identity", b"clock", b"numbers", b"audit"];

fuzz_target!(|input: &[u8]| {
    let Some((table, value)) = input.split_first() else { return };
    let name = NAMES[usize::from(*table) % NAMES.len()];
    let _ = catalog_record(u16::from(*table % 40), name, value);
    let _ = record_key(value);
    let _ = volume_block(value);
});
