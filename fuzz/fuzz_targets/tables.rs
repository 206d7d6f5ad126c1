//! The pages of a checkpoint: the root, descriptions of volumes, rows, slot entries, maps. A
//! decoded page must survive encoding and decoding again, which `inspect` asserts.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stele_array::inspect;

fuzz_target!(|input: &[u8]| {
    let Some((kind, rest)) = input.split_first() else { return };
    match kind % 4 {
        0 => _ = inspect::root(rest),
        1 => _ = inspect::volume(rest),
        2 => {
            let mut record = vec![1, 0, 0, 0, 0, 0, 0, 0];
            record.extend_from_slice(rest);
            inspect::row(&record);
        }
        _ => inspect::pages(rest, &inspect::shape_of(rest), u32::from(*kind)),
    }
});
