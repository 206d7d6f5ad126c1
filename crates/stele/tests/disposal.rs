//! Remains of disposed versions on the drives, read from the drives themselves.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::support::Place;
use crate::support::server::good;
use rustix::fs::{SeekFrom, seek};
use stele_ground::digest::crc32c;

const DRIVES: usize = 5;

/// Bytes of an entry of the key table.
const ENTRY: usize = 128;

/// Entries of the key table anywhere on the drives: the object, and the number of copies of its
/// wrapped key. An entry is object, bucket, 1, the wrapped key, 48 zeros and a checksum, as
/// FORMAT/archive.md says; the master key unwraps it.
fn wrapped_keys(place: &Path) -> BTreeMap<u64, usize> {
    let mut found = BTreeMap::new();
    for number in 0..DRIVES {
        let drive = File::open(place.join(format!("d{number}.img"))).unwrap();
        let size = drive.metadata().unwrap().len();
        // Any place counts, including a part of a log group. What was never written is zeros, and
        // holds no entry.
        let mut end = 0;
        while let Ok(begin) = seek(&drive, SeekFrom::Data(end)) {
            end = seek(&drive, SeekFrom::Hole(begin)).unwrap();
            // An entry that begins on the last page may end behind it.
            let mut bytes = vec![0; (size.min(end + ENTRY as u64) - begin) as usize];
            drive.read_exact_at(&mut bytes, begin).unwrap();
            let begins = (0..(end - begin) as usize).step_by(8);
            for entry in begins.filter_map(|at| bytes.get(at..at + ENTRY)) {
                let word = |at: usize| u32::from_le_bytes(entry[at..at + 4].try_into().unwrap());
                let shaped = || word(12) == 1 && entry[76..124].iter().all(|byte| *byte == 0);
                let wraps = || entry[16..76].iter().any(|byte| *byte != 0);
                if shaped() && wraps() && crc32c(&entry[..124]) == word(124) {
                    *found.entry(u64::from_le_bytes(entry[..8].try_into().unwrap())).or_default() += 1;
                }
            }
        }
    }
    found
}

#[test]
fn disposal_leaves_no_key_on_any_drive() {
    let place = Place::new("disposal");
    place.pool(DRIVES);
    let server = place.serve();
    place.json(&["bucket", "create", "records"]);
    for n in 0..5 {
        good(server.put(&format!("/records/{n}"), &vec![n; 200_000]));
    }
    for n in 0..4 {
        good(server.send(server.ask("DELETE", &format!("/records/{n}"))));
    }
    // The log's ring still holds the entry that the key table has lost.
    let before = wrapped_keys(&place.0);
    assert!(before.len() > 1, "what is looked for is there to be found: {before:?}");
    place.json(&["pool", "wash"]);
    let after = wrapped_keys(&place.0);
    assert_eq!(after.len(), 1, "only the object that is still there has a key: {after:?}");
    server.stop();
    // The same without a server.
    place.json(&["pool", "wash"]);
    assert_eq!(wrapped_keys(&place.0).len(), 1);
}

#[test]
fn a_server_that_stops_leaves_no_destroyed_key() {
    let place = Place::new("disposal-stop");
    place.pool(DRIVES);
    let server = place.serve();
    place.json(&["bucket", "create", "records"]);
    for n in 0..5 {
        good(server.put(&format!("/records/{n}"), &vec![n; 200_000]));
    }
    good(server.send(server.ask("DELETE", "/records/0")));
    // The drives may leave the machine as soon as it has stopped.
    let keys = server.keys();
    server.stop();
    let left = wrapped_keys(&place.0);
    assert_eq!(left.len(), 4, "the objects that are still there have keys: {left:?}");

    // A killed server's destroyed keys are washed away by the next server that stops.
    let server = place.serve().with_keys(keys);
    good(server.send(server.ask("DELETE", "/records/1")));
    server.kill();
    assert!(wrapped_keys(&place.0).len() > 3, "what is looked for is there to be found");
    place.serve().stop();
    let left = wrapped_keys(&place.0);
    assert_eq!(left.len(), 3, "the objects that are still there have keys: {left:?}");
}
