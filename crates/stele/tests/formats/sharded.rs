//! A pool of two shards, killed with records in the log of each: an archive, and a volume that lies
//! on both, with a snapshot and a clone.

use std::path::Path;

use serde_json::json;
use stele_ground::digest::{crc32c, fingerprint};

use super::{LATE, OBJECTS, VOLUME, blocks, check, newer, number, patch, unpacked};
use crate::support::pool::{Leave, on_volume};
use crate::support::server::good;
use crate::support::{content, installed};

/// Where the blocks of the volume were written: from its beginning, and in two of its units of
/// 1 MiB, which lie on different shards.
const WRITTEN: [usize; 3] = [0, 4 << 20, 5 << 20];

#[test]
fn a_pool_with_shards_is_read_to_its_last_byte() {
    if !installed(&["xz", "--version"]) {
        return;
    }
    let (place, keys) = unpacked("formats-shards", "pool-shards");
    let (code, view) = check(&place);
    assert_eq!((code, &view["verdict"]), (0, &json!("good")), "{view}");
    let label = view["formats"].as_array().unwrap().iter().find(|format| format["format"] == "label").unwrap();
    assert_eq!(label["found"], "format 1, features 0x7", "{view}");

    let server = place.serve().with_keys(keys);
    assert_eq!(place.json(&["pool", "status"])["shards"], 2);
    for (name, seed, length) in OBJECTS.iter().chain([&LATE]).filter(|(name, ..)| name.starts_with("records/")) {
        assert!(good(server.get(&format!("/{name}"))).body == content(*seed, *length), "{name}");
    }
    let why = place.json(&["why", "records/late"]);
    assert_eq!(why["protected"], true, "{why}");
    let version = why["version"].as_str().unwrap();
    assert_eq!(server.delete(&format!("/records/late?versionId={version}")).status, 403);
    assert_eq!(place.json(&["audit", "verify"])["findings"], json!([]));
    assert_eq!(place.json(&["pool", "scrub", "--wait"])["findings"], json!([]));
    server.stop();

    for (name, word) in
        [("vm1", "after the snapshot"), ("monday", "before the snapshot"), ("test", "before the snapshot")]
    {
        let read =
            on_volume(&place, name, Leave::Closed, async |handle| handle.read(0, VOLUME as usize).await.unwrap());
        let (mut whole, written) = (vec![0; VOLUME as usize], blocks(word));
        WRITTEN.iter().for_each(|at| whole[*at..*at + written.len()].copy_from_slice(&written));
        assert!(read[..] == whole[..], "{name}");
    }
}

/// Start of the second shard's part of each drive.
const SECOND: u64 = 256 << 20;

/// The newest of a part's two checkpoints on a drive: its place in the part.
fn newest_checkpoint(drive: &Path, start: u64) -> u64 {
    let mut newest = (0, 0, 0);
    for slot in [128 << 10, 1152 << 10] {
        let about = |bytes: &mut Vec<u8>| newest = newest.max((number(bytes, 40), number(bytes, 48), slot));
        patch(drive, start + slot, about, 4096);
    }
    newest.2
}

#[test]
fn a_newer_checkpoint_on_the_second_shard_is_found() {
    if !installed(&["xz", "--version"]) {
        return;
    }
    let (place, _) = unpacked("formats-shards-newer", "pool-shards");
    for drive in 0..4 {
        let path = place.0.join(format!("d{drive}.img"));
        let at = newest_checkpoint(&path, SECOND);
        patch(&path, SECOND + at, |bytes| bytes[8] = 3, 4096);
    }
    let (code, view) = check(&place);
    assert_eq!((code, newer(&view)), (3, vec!["checkpoint"]), "{view}");
    let found = view["formats"].as_array().unwrap().iter().find(|format| format["verdict"] == "newer").unwrap();
    assert!(found["place"].as_str().unwrap().ends_with(", shard 1"), "{view}");
}

/// Gives the first record that no checkpoint covers a kind that this version does not know.
fn newer_record(group: &mut [u8]) {
    assert_eq!(&group[..8], b"STELEGRP");
    group[100] = 200;
    let end = 96 + u32::from_le_bytes(group[60..64].try_into().unwrap()) as usize;
    let print = fingerprint(&group[96..end]).max(1);
    group[84..92].copy_from_slice(&print.to_le_bytes());
    let crc = crc32c(&group[12..96]);
    group[8..12].copy_from_slice(&crc.to_le_bytes());
}

#[test]
fn a_newer_record_in_the_log_of_the_second_shard_is_found() {
    if !installed(&["xz", "--version"]) {
        return;
    }
    let (place, _) = unpacked("formats-shards-log", "pool-shards");
    for drive in 0..4 {
        let path = place.0.join(format!("d{drive}.img"));
        let (at, mut replay) = (newest_checkpoint(&path, SECOND), 0);
        patch(&path, SECOND + at, |bytes| replay = number(bytes, 80), 4096);
        patch(&path, SECOND + (4 << 20) + replay, |group| newer_record(group), 256 << 10);
    }
    let (code, view) = check(&place);
    assert_eq!((code, newer(&view)), (3, vec!["log"]), "{view}");
}
