//! A batch of the catalog's journal with a right digest: untrusted keys, values and counts. A
//! decoded batch must survive encoding and decoding again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stele_catalog::embedded::journal::{Position, decode, encode};

const ID: [u8; 16] = *b"a catalog's name";
/// Number of bytes before the changes; below, the number of them that the digest covers.
const HEADER: usize = 128;
const DIGESTED: usize = 80;

fuzz_target!(|input: &[u8]| {
    let _ = decode(input, &ID, None);
    let mut batch = vec![0; HEADER];
    batch[..8].copy_from_slice(b"STELEJNL");
    batch[8..24].copy_from_slice(&ID);
    let (count, payload) = input.split_at(input.len().min(2));
    batch[40..44].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    batch[44..44 + count.len()].copy_from_slice(count);
    batch.extend_from_slice(payload);
    let mut hasher = blake3::Hasher::new();
    hasher.update(&batch[..DIGESTED]).update(&batch[HEADER..]);
    batch[DIGESTED..DIGESTED + 32].copy_from_slice(hasher.finalize().as_bytes());
    match decode(&batch, &ID, None) {
        Ok(Some(read)) => {
            let position = Position::first(&ID);
            let (again, digest) = encode(&ID, &position, read.commit, &read.changes);
            let twice = decode(&again, &ID, Some(&position.previous)).expect("what was encoded is no nonsense");
            let twice = twice.expect("what was encoded is a batch");
            assert_eq!((twice.changes, twice.digest), (read.changes, digest));
        }
        Ok(None) => panic!("a sealed batch must verify"),
        Err(_) => {}
    }
});
