//! Stored formats over time. A pool of an earlier version is opened, read completely and verified.
//! A pool of a later version is refused by name, even if this version could read parts of it.
//!
//! `pool-1.tar.xz` is such a pool of file drives, killed with records in its log. `pool-2.tar.xz`
//! has the records of [`recent`] as well, and `pool-3.tar.xz` those of [`today`]. The pool of
//! [`sharded`] has two shards. `./x fixture FILE` makes one with the present formats. A changed
//! format gets a further fixture, and an existing fixture is never made again.

mod recent;
mod sharded;
mod today;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use stele_ground::digest::crc32c;
use stele_media::Buffer;

use crate::support::pool::{Leave, on_volume};
use crate::support::server::good;
use crate::support::{Place, Server, content, installed};

/// Contents of the fixture: key, seed and length. The first is longer than a frame.
const OBJECTS: &[(&str, u64, usize)] =
    &[("records/long", 11, 70_000), ("records/short", 12, 5), ("records/empty", 13, 0), ("drafts/note", 14, 3000)];
/// Written after the pool was closed and opened again: only the log has it.
const LATE: (&str, u64, usize) = ("records/late", 15, 900);
const VOLUME: u64 = 8 << 20;
const BLOCKS: u64 = 24;
const LOCK: &str = "compliance:50y";

/// Blocks that contain their own place, and compress well.
fn blocks(word: &str) -> Vec<u8> {
    (0..BLOCKS).flat_map(|block| format!("{word:>24} block {block:>32}\n").repeat(64).into_bytes()).collect()
}

/// Makes the fixture if `./x fixture` asks for it.
#[test]
fn the_fixture_is_made_where_asked() {
    let Some(to) = std::env::var_os("STELE_FIXTURE") else { return };
    let place = Place::new("fixture");
    place.pool(4);
    let here = format!("{}/", place.0.display());
    place.edit_config(|text| recent::configured(&text.replace(&here, "")));
    std::fs::write(place.0.join("phrase"), "correct horse battery staple\n").unwrap();
    let server = place.serve();
    place.json(&["bucket", "create", "records", "--lock", "--retention", LOCK]);
    place.json(&["bucket", "create", "drafts", "--versioning"]);
    for (name, seed, length) in OBJECTS {
        server.put(&format!("/{name}"), &content(*seed, *length));
    }
    server.put("/drafts/note", &content(16, 10));
    good(server.delete("/drafts/note"));
    recent::fill(&place, &server);
    place.json(&["volume", "create", "vm1", "--code", "mirror-2", "--size", "8MiB"]);
    place.json(&["volume", "export", "vm1", "--nbd"]);
    let keys = server.keys();
    server.stop();
    let write = |word: &'static str, leave| {
        on_volume(&place, "vm1", leave, async |handle| {
            handle.write(0, vec![Buffer::copy_of(&blocks(word)).freeze()], true).await.unwrap();
        });
    };
    write("before the snapshot", Leave::Closed);
    place.json(&["volume", "snapshot", "vm1", "monday"]);
    let server = place.serve().with_keys(keys);
    place.json(&["config", "export", "--to", &place.path("stele.backup"), "--passphrase-file", &place.path("phrase")]);
    server.put(&format!("/{}", LATE.0), &content(LATE.1, LATE.2));
    server.kill();
    write("after the snapshot", Leave::Killed);
    let _ = std::fs::remove_file(place.0.join("log"));
    let _ = std::fs::remove_file(place.0.join("stele.sock"));
    let _ = std::fs::remove_file(place.0.join("nbd.sock"));
    let packed = Command::new("tar")
        .args(["--create", "--sparse", "--format=gnu", "--owner=0", "--group=0", "--directory"])
        .arg(&place.0)
        .args(["--use-compress-program=xz -9e", "--file"])
        .args([to.as_os_str(), ".".as_ref()])
        .status();
    assert!(packed.unwrap().success());
}

/// A copy of the fixture to work on.
fn unpacked(name: &str, fixture: &str) -> (Place, (String, String)) {
    let place = Place::new(name);
    let fixture = format!("{}/tests/formats/{fixture}.tar.xz", env!("CARGO_MANIFEST_DIR"));
    let done = Command::new("tar").args(["--extract", "--file", &fixture, "--directory"]).arg(&place.0).status();
    assert!(done.unwrap().success());
    let key: Value = serde_json::from_str(&std::fs::read_to_string(place.0.join("first-key.json")).unwrap()).unwrap();
    let text = |name: &str| key[name].as_str().unwrap().to_owned();
    let keys = (text("access_key"), text("secret_key"));
    (place, keys)
}

/// Every file with its length and the time of its last change.
fn everything(dir: &Path) -> BTreeMap<String, (u64, std::time::SystemTime)> {
    let files = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    let about = files.map(|file| (file.path().display().to_string(), file.metadata().unwrap()));
    about.map(|(path, about)| (path, (about.len(), about.modified().unwrap()))).collect()
}

/// Exit code and output of `stele upgrade check`.
fn check(place: &Place) -> (i32, Value) {
    let output = place.stele(&["upgrade", "check", "--json"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let view = text.lines().next().map(|line| serde_json::from_str(line).unwrap()).unwrap_or_default();
    (output.status.code().unwrap(), view)
}

fn newer(view: &Value) -> Vec<&str> {
    let formats = view["formats"].as_array().map(Vec::as_slice).unwrap_or_default();
    let newer = formats.iter().filter(|format| format["verdict"] == "newer");
    newer.filter_map(|format| format["format"].as_str()).collect()
}

#[test]
fn a_pool_of_an_earlier_version_is_read_to_its_last_byte() {
    if installed(&["xz", "--version"]) {
        read_whole("pool-1", "rewrites", |_, _| ());
    }
}

#[test]
fn a_pool_with_the_newer_records_is_read_to_its_last_byte() {
    if installed(&["xz", "--version"]) {
        read_whole("pool-2", "rewrites", recent::check);
    }
}

#[test]
fn a_pool_of_todays_formats_is_read_to_its_last_byte() {
    if installed(&["xz", "--version"]) {
        read_whole("pool-3", "good", today::check);
    }
}

/// Reads everything that each fixture has, and what `more` knows of this one. The first two have
/// checkpoints of format 1, and the first start rewrites them in format 2.
fn read_whole(fixture: &str, verdict: &str, more: impl FnOnce(&Place, &Server)) {
    let (place, keys) = unpacked(&format!("formats-{fixture}"), fixture);
    let before = everything(&place.0);
    let (code, view) = check(&place);
    let rewrites = i32::from(verdict == "rewrites");
    assert_eq!((code, &view["verdict"], &view["server"]), (rewrites, &json!(verdict), &Value::Null), "{view}");
    let words: Vec<&str> = view["formats"].as_array().unwrap().iter().map(|f| f["format"].as_str().unwrap()).collect();
    for format in
        ["configuration", "exports", "label", "checkpoint", "tables", "log", "catalog", "b-tree", "archive", "segments"]
    {
        assert!(words.contains(&format), "{format} is looked at: {words:?}");
    }
    assert!(everything(&place.0) == before, "the check writes nothing");

    let server = place.serve().with_keys(keys);
    let (code, view) = check(&place);
    assert_eq!((code, view["server"].is_string()), (0, true), "{view}");
    assert!(view["formats"].as_array().unwrap().iter().any(|format| format["format"] == "segments"), "{view}");
    for (name, seed, length) in OBJECTS.iter().chain([&LATE]).filter(|(name, ..)| name.starts_with("records/")) {
        assert!(good(server.get(&format!("/{name}"))).body == content(*seed, *length), "{name}");
    }
    assert_eq!(server.get("/drafts/note").status, 404, "a delete marker is the newest");
    let listed = good(server.get("/drafts?versions")).text();
    assert_eq!((listed.matches("<Version>").count(), listed.matches("<DeleteMarker>").count()), (2, 1), "{listed}");
    let id = listed.split("<VersionId>").nth(3).and_then(|rest| rest.split('<').next()).unwrap();
    assert!(good(server.get(&format!("/drafts/note?versionId={id}"))).body == content(14, 3000));

    // Retention is still in force.
    for name in ["records/long", "records/late"] {
        let why = place.json(&["why", name]);
        assert_eq!(why["protected"], true, "{why}");
        let (version, until) = (why["version"].as_str().unwrap(), why["retained_until"].as_str().unwrap());
        assert!(until > "2070", "{why}");
        assert_eq!(server.delete(&format!("/{name}?versionId={version}")).status, 403, "{name}");
    }
    let verified = place.json(&["audit", "verify"]);
    assert_eq!(verified["findings"], json!([]), "{verified}");
    assert!(verified["records"].as_u64().is_some_and(|records| records > 10), "{verified}");
    let scrubbed = place.json(&["pool", "scrub", "--wait"]);
    assert_eq!(scrubbed["findings"], json!([]), "{scrubbed}");
    assert_eq!(place.json(&["export", "list"])[0]["volume"], "vm1");
    more(&place, &server);
    server.stop();
    for (name, word) in [("vm1", "after the snapshot"), ("monday", "before the snapshot")] {
        let read =
            on_volume(&place, name, Leave::Closed, async |handle| handle.read(0, VOLUME as usize).await.unwrap());
        let mut whole = blocks(word);
        whole.resize(VOLUME as usize, 0);
        assert!(read[..] == whole[..], "{name}");
    }

    // The backup of the configuration makes another directory the server.
    let new = Place::new(&format!("formats-import-{fixture}"));
    let (backup, phrase) = (place.path("stele.backup"), place.path("phrase"));
    let mut arguments = vec!["config", "import", &backup, "--passphrase-file", &phrase];
    let drives: Vec<String> =
        (0..4).map(|number| format!("{}@{number}", place.path(&format!("d{number}.img")))).collect();
    drives.iter().for_each(|drive| arguments.extend(["--drive", drive]));
    new.json(&arguments);
    assert_eq!(new.json(&["pool", "recover", "--read-only"])["state"], "read-only");
}

/// Changes a drive's file at a place.
fn patch(drive: &Path, at: u64, change: impl FnOnce(&mut Vec<u8>), length: usize) {
    use std::os::unix::fs::FileExt;
    let file = std::fs::OpenOptions::new().read(true).write(true).open(drive).unwrap();
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, at).unwrap();
    change(&mut bytes);
    file.write_all_at(&bytes, at).unwrap();
}

/// Labels and checkpoints at the beginning of a drive.
fn start(drive: &Path) -> Vec<u8> {
    let mut bytes = vec![0; 4 << 20];
    std::io::Read::read_exact(&mut std::fs::File::open(drive).unwrap(), &mut bytes).unwrap();
    bytes
}

fn number(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// Writes the next label of each drive as a version with one more feature would; the previous pair
/// stays.
fn newer_labels(place: &Place) {
    for drive in 0..4 {
        let path = place.0.join(format!("d{drive}.img"));
        let file = start(&path);
        let copy = |at: usize| &file[at..at + (64 << 10)];
        let (first, second) = (copy(0), copy(64 << 10));
        let newest = if number(first, 64) > number(second, 64) { first } else { second };
        let mut label = newest.to_vec();
        let sequence = number(newest, 64) + 1;
        label[64..72].copy_from_slice(&sequence.to_le_bytes());
        label[40] |= 8;
        let length = u32::from_le_bytes(label[12..16].try_into().unwrap()) as usize;
        let crc = crc32c(&label[24..length]);
        label[16..20].copy_from_slice(&crc.to_le_bytes());
        let at = if sequence % 2 == 1 { 0 } else { 64 << 10 };
        patch(&path, at, |bytes| bytes.copy_from_slice(&label), 64 << 10);
    }
}

/// Gives the newest checkpoint of each drive another format; the previous one stays.
fn newer_checkpoint(place: &Place) {
    for drive in 0..4 {
        let path = place.0.join(format!("d{drive}.img"));
        let file = start(&path);
        let slots = [128 << 10, 1152 << 10].map(|at: usize| (number(&file, at + 40), number(&file, at + 48), at));
        let newest = slots.into_iter().max().unwrap().2;
        patch(&path, newest as u64, |bytes| bytes[8] = 3, 4096);
    }
}

/// Gives the first copy of the catalog's superblock another version; the second stays.
fn newer_catalog(place: &Place) {
    on_volume(place, "catalog", Leave::Closed, async |handle| {
        let mut block = handle.read(0, 4096).await.unwrap().to_vec();
        block[8] = 2;
        let digest = blake3::hash(&block[..4064]);
        block[4064..].copy_from_slice(digest.as_bytes());
        handle.write(0, vec![Buffer::copy_of(&block).freeze()], true).await.unwrap();
    });
}

/// Gives the first copy of the archive's superblock another format; the second stays.
fn newer_archive(place: &Place) {
    on_volume(place, "data", Leave::Closed, async |handle| {
        let mut block = handle.read(0, 4096).await.unwrap().to_vec();
        block[8] = 3;
        let crc = crc32c(&block[..56]);
        block[56..60].copy_from_slice(&crc.to_le_bytes());
        handle.write(0, vec![Buffer::copy_of(&block).freeze()], true).await.unwrap();
    });
}

fn newer_exports(place: &Place) {
    let path = place.0.join("exports.json");
    let text = std::fs::read_to_string(&path).unwrap();
    let later = text.replacen("\"version\": 1", "\"version\": 2, \"restrictions\": {}", 1);
    assert_ne!(later, text);
    std::fs::write(&path, later).unwrap();
}

/// In each case an older part lies beside it that this version could read; using it would undo the
/// later version's work.
#[test]
fn what_a_later_version_wrote_is_refused_by_name() {
    if !installed(&["xz", "--version"]) {
        return;
    }
    type Change = fn(&Place);
    let cases: &[(&str, Change, &str)] = &[
        ("label", newer_labels, "newer version of Stele"),
        ("checkpoint", newer_checkpoint, "checkpoint of this pool has format 3"),
        ("catalog", newer_catalog, "superblock has version 2"),
        ("archive", newer_archive, "store of format 3"),
        ("exports", newer_exports, "is of version 2"),
    ];
    let mut wrong = Vec::new();
    for (format, change, says) in cases {
        let (place, _) = unpacked(&format!("formats-newer-{format}"), "pool-1");
        change(&place);
        let before = everything(&place.0);
        let (code, view) = check(&place);
        if code != 3 || newer(&view) != [*format] {
            wrong.push(format!("{format}: the check ends with {code} and says {:?}: {view}", newer(&view)));
        }
        if everything(&place.0) != before {
            wrong.push(format!("{format}: the check wrote something"));
        }
        place.listen_anywhere();
        match Server::start(&place, &["serve"]) {
            Ok(server) => {
                wrong.push(format!("{format}: it is served: {}", server.ready));
                server.kill();
            }
            Err(said) if !said.contains(says) || said.contains("panicked") => wrong.push(format!("{format}: {said}")),
            Err(_) => {}
        }
        // No replacement is made.
        if *format == "catalog" {
            let rebuilt = place.stele(&["catalog", "rebuild", "--yes", "--force"]);
            if rebuilt.status.code() != Some(3) {
                wrong.push(format!("{format}: it is rebuilt: {rebuilt:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
