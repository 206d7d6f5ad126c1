//! Volumes in backups, as a user meets them: a server with an exported volume, an agent beside it,
//! and hosts that write meanwhile.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::support;
use crate::support::block::{Host, export};
use crate::support::nbd::{Nbd, READ, TRIM, WRITE};
use crate::support::{Place, content, wait_for};
use serde_json::Value;
use stele_ground::Dice;

const MIB: u64 = 1 << 20;
const SIZE: u64 = 128 * MIB;

fn command(place: &Place, arguments: &[&str]) -> Command {
    let mut command = place.command(&[&["backup"], arguments].concat());
    command.arg("--dir").arg(&place.0);
    command.env("STELE_BACKUP_REPOSITORY", place.path("repository"));
    command.env("STELE_BACKUP_PASSWORD_FILE", place.path("password"));
    command.env("XDG_CACHE_HOME", place.path("cache")).stdin(Stdio::null());
    command
}

#[track_caller]
fn backup(place: &Place, expected: i32, arguments: &[&str]) -> (Value, String) {
    let output: Output = command(place, arguments).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert_eq!(output.status.code(), Some(expected), "{}\n{}", text(&output.stdout), text(&output.stderr));
    let line = text(&output.stdout)
        .lines()
        .next()
        .map_or(Value::Null, |line| serde_json::from_str(line).unwrap_or(Value::Null));
    (line, text(&output.stderr))
}

fn host(name: &str) -> Host {
    let host = Host::new(name, "");
    std::fs::write(host.place.path("password"), "correct horse\n").unwrap();
    backup(&host.place, 0, &["init"]);
    host
}

fn link(place: &Place, export: &str) -> Nbd {
    let socket = place.path("nbd.sock");
    wait_for("the export", || Nbd::unix(Path::new(&socket), export).ok())
}

/// All bytes of a volume or snapshot, by an export of its own.
fn whole(place: &Place, name: &str) -> Vec<u8> {
    export(place, &[name, "--read-only"]);
    let mut nbd = link(place, name);
    // Appended as a piece: byte by byte takes longer than the reads.
    let mut bytes = Vec::with_capacity(SIZE as usize);
    (0..SIZE / MIB).for_each(|part| bytes.append(&mut nbd.ask(READ, part * MIB, MIB as u32, b"").unwrap()));
    drop(nbd);
    place.json(&["export", "remove", name]);
    bytes
}

fn names(place: &Place) -> Vec<String> {
    let volumes = place.json(&["volume", "list"]);
    volumes.as_array().unwrap().iter().map(|volume| volume["name"].as_str().unwrap().to_owned()).collect()
}

fn bases(place: &Place) -> Vec<String> {
    names(place).into_iter().filter(|name| name.starts_with("backup-")).collect()
}

fn owned(place: &Place, name: &str) -> u64 {
    place.json(&["volume", "show", name])["refers_bytes"].as_u64().unwrap()
}

/// The backup restored into a new volume is the array's snapshot, and owns no more space. The new
/// volume goes again.
#[track_caller]
fn comes_back(place: &Place, saved: &Value) {
    let (snapshot, taken) = (saved["snapshot"].as_str().unwrap(), saved["volume"]["array_snapshot"].as_str().unwrap());
    let (restored, _) = backup(place, 0, &["restore", snapshot, "--to-volume", "again", "--verify", "--json"]);
    assert_eq!((restored["problems"].as_u64(), restored["bytes"].as_u64()), (Some(0), Some(SIZE)));
    assert!(whole(place, "again") == whole(place, taken), "the restored volume differs from the snapshot");
    assert!(owned(place, "again") <= owned(place, taken), "holes were filled");
    place.json(&["volume", "delete", "again", "--yes"]);
}

/// Ends the writer, also when a check fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_volume_is_saved_while_hosts_write_and_comes_back() {
    let mut host = host("backup-volume");
    let place = &host.place;
    let mut nbd = link(place, "vm");
    for part in [0, 1, 17, 40, 99] {
        nbd.ask(WRITE, part * MIB, MIB as u32, &content(part, MIB as usize)).unwrap();
    }
    let (ends, written) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let _ends = Ends(&ends);
        // One host writes and trims all the time: between the backups and during them.
        scope.spawn(|| {
            let mut dice = Dice::new(7);
            while !ends.load(Ordering::Relaxed) {
                let (at, length) = (dice.below(SIZE / 4096 / 4) * 4096, 4096 * (1 + dice.below(8)));
                match dice.one_in(5) {
                    true => nbd.ask(TRIM, at, length as u32, b"").unwrap(),
                    false => nbd.ask(WRITE, at, length as u32, &content(dice.roll(), length as usize)).unwrap(),
                };
                written.fetch_add(1, Ordering::Relaxed);
                std::thread::yield_now();
            }
        });
        let mut parent = Value::Null;
        for round in 0..4 {
            let before = written.load(Ordering::Relaxed);
            wait_for("writes between the backups", || (written.load(Ordering::Relaxed) > before + 3).then_some(()));
            let (saved, _) = backup(place, 0, &["run", "--volume", "vm", "--json"]);
            assert_eq!(saved["parent"], parent, "round {round}");
            parent = saved["snapshot"].clone();
            let figure = |name: &str| saved["volume"][name].as_u64().unwrap();
            assert_eq!(figure("read_bytes") + figure("unchanged_bytes") + figure("hole_bytes"), SIZE);
            assert_eq!(round > 0, figure("unchanged_bytes") > 0, "{saved}");
            assert_eq!(bases(place), [saved["volume"]["array_snapshot"].as_str().unwrap()], "one base is kept");
            comes_back(place, &saved);
        }
    });
    // Without any writes nothing is read. The command behind the snapshot of the array runs before
    // the backup stores one.
    let stored = || std::fs::read_dir(place.path("repository/snapshots")).unwrap().count();
    let (before, noted) = (stored(), place.path("after"));
    let after =
        format!("ls {} | wc -l > {noted}; echo $STELE_BACKUP_EXIT >> {noted}", place.path("repository/snapshots"));
    let (first, _) = backup(place, 0, &["run", "--volume", "vm", "--json", "--after", &after]);
    assert_eq!(std::fs::read_to_string(&noted).unwrap(), format!("{before}\n0\n"));
    assert_eq!(stored(), before + 1);
    let (second, _) = backup(place, 0, &["run", "--volume", "vm", "--json"]);
    assert_eq!(second["parent"], first["snapshot"]);
    assert_eq!((second["volume"]["read_bytes"].as_u64(), second["problems"].as_u64()), (Some(0), Some(0)));
    comes_back(place, &second);
    // The server was restarted, even killed: the map is still there.
    host.kill();
    host.restart();
    let place = &host.place;
    let (third, _) = backup(place, 0, &["run", "--volume", "vm", "--json"]);
    assert_eq!(third["volume"]["read_bytes"].as_u64(), Some(0));
    // An operator deletes the base: everything is read, and right.
    place.json(&["volume", "delete", third["volume"]["array_snapshot"].as_str().unwrap(), "--yes"]);
    let (full, _) = backup(place, 0, &["run", "--volume", "vm", "--json"]);
    assert_eq!((&full["parent"], full["volume"]["unchanged_bytes"].as_u64()), (&Value::Null, Some(0)));
    assert_eq!(full["volume"]["read_bytes"].as_u64().map(|bytes| bytes > 4 * MIB), Some(true));
    comes_back(place, &full);
    // Rolled back below the base, all of the volume may differ from it.
    place.json(&["volume", "snapshot", "vm", "monday"]);
    let (base, _) = backup(place, 0, &["run", "--volume", "vm", "--json"]);
    place.json(&["volume", "rollback", "vm", "monday", "--yes", "--force"]);
    let (rolled, _) = backup(place, 0, &["run", "--volume", "vm", "--json"]);
    assert_eq!((&rolled["parent"], rolled["volume"]["unchanged_bytes"].as_u64()), (&base["snapshot"], Some(0)));
    comes_back(place, &rolled);
    // As a file: with its holes and its content.
    let listed = backup(place, 0, &["ls", "latest:/stele-volumes/vm", "--json"]).0;
    assert_eq!((listed["kind"].as_str(), listed["bytes"].as_u64()), (Some("volume"), Some(SIZE)));
    backup(place, 0, &["restore", "latest:/stele-volumes/vm", "--to", &place.path("out")]);
    let taken = rolled["volume"]["array_snapshot"].as_str().unwrap();
    assert!(std::fs::read(place.path("out/vm")).unwrap() == whole(place, taken));
    backup(place, 0, &["verify", "--data"]);
}

#[test]
fn a_restore_writes_over_nothing_that_is_used_or_kept() {
    let host = host("backup-volume-over");
    let place = &host.place;
    let mut nbd = link(place, "vm");
    nbd.ask(WRITE, 0, MIB as u32, &content(1, MIB as usize)).unwrap();
    let (saved, _) = backup(place, 0, &["run", "--volume", "vm", "--json"]);
    let taken = saved["volume"]["array_snapshot"].as_str().unwrap().to_owned();
    nbd.ask(WRITE, 2 * MIB, MIB as u32, &content(2, MIB as usize)).unwrap();
    let now = nbd.ask(READ, 0, 4 * MIB as u32, b"").unwrap();
    let restore = |code: i32, words: &str, arguments: &[&str]| {
        let (_, said) = backup(place, code, &[&["restore", "latest"], arguments].concat());
        assert!(said.contains(words), "{words}: {said}");
    };
    restore(9, "exists", &["--to-volume", "vm"]);
    restore(3, "is exported", &["--to-volume", "vm", "--overwrite"]);
    restore(3, "is a snapshot", &["--to-volume", &taken, "--overwrite"]);
    place.json(&["volume", "create", "small", "--code", "mirror-2", "--size", "64MiB", "--block", "512"]);
    restore(3, "the backup 134217728", &["--to-volume", "small", "--overwrite"]);
    restore(2, "--to-volume", &["--to-volume", "vm", "--to", "/tmp"]);
    assert!(nbd.ask(READ, 0, 4 * MIB as u32, b"").unwrap() == now, "nothing was written");
    drop(nbd);
    // Taken from the hosts it is written over, and its content is kept.
    place.json(&["export", "remove", "vm"]);
    let (done, _) = backup(place, 0, &["restore", "latest", "--to-volume", "vm", "--overwrite", "--verify", "--json"]);
    let before = done["before"].as_str().unwrap();
    assert!(before.starts_with("vm-before-restore-"), "{done}");
    assert!(whole(place, "vm") == whole(place, &taken));
    assert!(whole(place, before)[..now.len()] == now[..]);
    place.json(&["volume", "rollback", "vm", before, "--yes"]);
    assert!(whole(place, "vm")[..now.len()] == now[..], "an administrator's mistake is undone");
    // A volume of another code, and one that is not there.
    backup(place, 0, &["restore", "latest", "--to-volume", "other", "--code", "2+1"]);
    assert!(whole(place, "other") == whole(place, &taken));
    let (_, said) = backup(place, 4, &["run", "--volume", "nothing"]);
    assert!(said.contains("no volume is called 'nothing'"), "{said}");
    let (_, said) = backup(place, 2, &["run", "--volume", &taken]);
    assert!(said.contains("is a snapshot already"), "{said}");
    assert_eq!(bases(place), [taken.as_str()]);
}

#[test]
fn a_backup_that_is_killed_leaves_nothing_wrong() {
    let host = host("backup-volume-kill");
    let place = &host.place;
    let mut nbd = link(place, "vm");
    for part in 0..60 {
        nbd.ask(WRITE, part * MIB, MIB as u32, &content(part, MIB as usize)).unwrap();
    }
    let (first, _) = backup(place, 0, &["run", "--volume", "vm", "--json"]);
    for round in 0..3 {
        for part in 0..60 {
            nbd.ask(WRITE, part * MIB, 4096, &content(round * 100 + part, 4096)).unwrap();
        }
        let mut child = command(place, &["run", "--volume", "vm"]).stdout(Stdio::null()).spawn().unwrap();
        wait_for("the snapshot", || (bases(place).len() > 1 || child.try_wait().unwrap().is_some()).then_some(()));
        let _ = child.kill();
        child.wait().unwrap();
        // Nothing of the base is lost, whatever moment that was.
        let (next, _) = backup(place, 0, &["run", "--volume", "vm", "--json"]);
        assert!(next["parent"].is_string(), "{next}");
        assert_eq!(bases(place), [next["volume"]["array_snapshot"].as_str().unwrap()]);
        comes_back(place, &next);
    }
    assert!(first["snapshot"].is_string());
    backup(place, 0, &["verify", "--data"]);
}

#[test]
fn what_a_restore_holds_is_neither_exported_nor_changed() {
    let host = host("backup-volume-held");
    let place = &host.place;
    let post = |target: &str, body: &str| {
        let output = Command::new("curl")
            .args(["--silent", "--unix-socket", &place.path("stele.sock"), "--data-binary", body])
            .arg(format!("http://stele/v1/{target}"))
            .output();
        String::from_utf8(output.unwrap().stdout).unwrap()
    };
    if !support::installed(&["curl", "--version"]) {
        return;
    }
    let create = r#"{"name":"held","code":"mirror-2","size":1048576,"strip":65536,"block":4096,
        "digest_strip":false,"write_through":false,"allocate":false}"#;
    let begun = post("volume/restore/begin", &format!("{{\"create\":{create},\"overwrite\":false}}"));
    let begun: Value = serde_json::from_str(&begun).unwrap();
    let token = begun["token"].as_u64().unwrap();
    for arguments in [
        &["volume", "export", "held", "--nbd"][..],
        &["volume", "delete", "held", "--yes"],
        &["volume", "resize", "held", "2MiB"],
        &["volume", "snapshot", "held", "s"],
        &["volume", "rollback", "held", "s", "--yes"],
    ] {
        place.refused(7, &["is being restored"], arguments);
    }
    assert!(post("volume/restore/begin", &format!("{{\"create\":{create},\"overwrite\":true}}")).contains("restored"));
    assert!(post(&format!("volume/restore/write?token={}&at=0", token ^ 1), "x").contains("has ended"));
    assert!(post(&format!("volume/restore/write?token={token}&at=1048576"), &"x".repeat(4096)).contains("no range"));
    assert!(post(&format!("volume/restore/write?token={token}&at=0"), "x").contains("no range"));
    assert_eq!(post(&format!("volume/restore/write?token={token}&at=0"), &"x".repeat(4096)), "");
    assert!(post("volume/restore/end", &format!("{{\"token\":{token},\"complete\":true}}")).starts_with('{'));
    assert!(post(&format!("volume/restore/write?token={token}&at=0"), &"x".repeat(4096)).contains("has ended"));
    place.json(&["volume", "delete", "held", "--yes"]);
}
