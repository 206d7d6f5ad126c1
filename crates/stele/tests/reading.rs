//! A pool read without Stele. `contrib/read-pool.py` was written from FORMAT/. It reads the
//! drives of a pool that was stopped, and of one that was killed; with all drives, and with one
//! missing.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use stele_media::Buffer;

use crate::support::pool::{Leave, on_volume};
use crate::support::{Place, Server, clients, content, installed};

const DRIVES: usize = 4;
const VOLUME: usize = 8 << 20;
/// Key, seed, length: nothing, a frame and a byte, and content of several pieces.
const OBJECTS: &[(&str, u64, usize)] = &[("records/empty", 1, 0), ("records/a", 2, 65_537), ("records/b", 3, 3 << 20)];

/// Runs the reader on the drives but the missing one. None where Python or a package is missing;
/// CI leaves nothing out.
fn read(place: &Place, arguments: &[&str], missing: Option<usize>) -> Option<Vec<Value>> {
    if !installed(&["python3", "-c", "import blake3, cryptography, xxhash"]) {
        return None;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib/read-pool.py");
    let drives = (0..DRIVES).filter(|number| Some(*number) != missing);
    let output = Command::new("python3")
        .env("PATH", clients())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .arg(script)
        .args(arguments)
        .args(drives.map(|number| place.path(&format!("d{number}.img"))))
        .output()
        .unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    Some(text.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
}

/// Compares volumes, every object and the audit log with what was stored; objects also without the
/// catalog. `records`: how many the log had while the server ran.
fn compare(place: &Place, objects: &[(&str, u64, usize)], volumes: &[(&str, &[u8])], records: usize) {
    let key = place.path("master.key");
    for (round, missing) in [None, Some(1)].into_iter().enumerate() {
        for (name, content) in volumes {
            let copy = place.path(&format!("{name}-{round}"));
            let Some(_) = read(place, &["volume", name, &copy], missing) else { return };
            assert!(std::fs::read(&copy).unwrap() == *content, "{name} without drive {missing:?}");
            std::fs::remove_file(&copy).unwrap();
        }
        for without in [false, true] {
            let to = place.path(&format!("objects-{round}-{without}"));
            let mut arguments = vec!["objects", "--key", &key, "--to", &to];
            arguments.extend(without.then_some("--without-catalog"));
            let lines = read(place, &arguments, missing).unwrap();
            let found: BTreeMap<String, &Value> =
                lines.iter().map(|line| (format!("records/{}", line["key"].as_str().unwrap()), line)).collect();
            assert_eq!(found.len(), objects.len(), "{lines:?}");
            for (name, seed, length) in objects {
                let line = found[*name];
                let stored = std::fs::read(line["file"].as_str().unwrap()).unwrap();
                assert!(stored == content(*seed, *length), "{name} without drive {missing:?}: {line}");
                assert_eq!(line["retention_mode"], "COMPLIANCE", "{line}");
                assert!(line["keep_until"].as_str().unwrap() > "2070", "{line}");
            }
            std::fs::remove_dir_all(&to).unwrap();
        }
        let log = read(place, &["audit", "--key", &key], missing).unwrap();
        // The end of the server, and commands without one, add to it.
        assert!(log.len() >= records, "{records} records: {log:?}");
        let numbers = log.iter().map(|record| record["record"].as_u64().unwrap());
        assert!(numbers.eq(1..=log.len() as u64), "{log:?}");
    }
}

fn write(place: &Place, leave: Leave, at: u64, bytes: &[u8]) {
    on_volume(place, "vm1", leave, async |handle| {
        handle.write(at, vec![Buffer::copy_of(bytes).freeze()], true).await.unwrap();
    });
}

fn stored(place: &Place) -> Server {
    let server = place.serve();
    place.json(&["bucket", "create", "records", "--lock", "--retention", "compliance:50y"]);
    for (name, seed, length) in OBJECTS {
        server.put(&format!("/{name}"), &content(*seed, *length));
    }
    place.json(&["volume", "create", "vm1", "--code", "mirror-2", "--size", "8MiB"]);
    server
}

fn records(place: &Place) -> usize {
    let output = place.stele(&["audit", "show", "--json"]);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().lines().count()
}

#[test]
fn a_stopped_and_a_killed_pool_are_read_without_stele() {
    let place = Place::new("reading");
    place.pool(DRIVES);
    let server = stored(&place);
    let keys = server.keys();
    let log = records(&place);
    server.stop();
    let (first, second) = (content(11, 700 << 10), content(12, 300 << 10));
    write(&place, Leave::Closed, 4096, &first);
    place.json(&["volume", "snapshot", "vm1", "monday"]);
    let mut before = vec![0; VOLUME];
    before[4096..][..first.len()].copy_from_slice(&first);
    compare(&place, OBJECTS, &[("vm1", &before[..]), ("monday", &before[..])], log);

    // The server is killed with records in the log of the pool and the journal of the catalog.
    let server = place.serve().with_keys(keys);
    server.put("/records/late", &content(4, 900));
    let log = records(&place);
    server.kill();
    write(&place, Leave::Killed, 64 << 10, &second);
    let mut after = before.clone();
    after[64 << 10..][..second.len()].copy_from_slice(&second);
    let late = [OBJECTS, &[("records/late", 4, 900)]].concat();
    compare(&place, &late, &[("vm1", &after[..]), ("monday", &before[..])], log);
}

/// Every byte of every volume verifies, and the audit log is one chain under its signatures.
#[test]
fn pools_of_earlier_versions_are_read_without_stele() {
    if !installed(&["xz", "--version"]) {
        return;
    }
    for fixture in ["pool-1", "pool-2", "pool-3", "pool-shards"] {
        let place = Place::new(&format!("reading-{fixture}"));
        let packed = format!("{}/tests/formats/{fixture}.tar.xz", env!("CARGO_MANIFEST_DIR"));
        let done = Command::new("tar").args(["--extract", "--file", &packed, "--directory"]).arg(&place.0).status();
        assert!(done.unwrap().success());
        let key = place.path("master.key");
        let Some(whole) = read(&place, &["audit", "--key", &key], None) else { return };
        assert!(whole.len() > 10 && read(&place, &["audit", "--key", &key], Some(2)).unwrap() == whole, "{whole:?}");
        for missing in [None, Some(0)] {
            let volumes = read(&place, &["volumes"], missing).unwrap();
            assert!(volumes.len() > 3 && volumes.iter().any(|volume| volume["volume"] == "monday"), "{volumes:?}");
        }
    }
}
