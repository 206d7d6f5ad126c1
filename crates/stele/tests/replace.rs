//! `pool replace` where something else goes wrong: an enclosure is lost afterwards, a second drive
//! fails meanwhile, or the configuration cannot be written.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::server::good;
use crate::support::{Place, Server, content, is_whole, wait_for};
use serde_json::Value;

const OBJECTS: u64 = 16;
const LENGTH: usize = 1 << 20;

/// Two drives in each of three enclosures. A stripe of 2+1 loses no more than one strip with an
/// enclosure.
fn three_enclosures(name: &str) -> Place {
    let place = Place::new(name);
    let mut arguments = vec!["pool", "create", "--confirm-time", "--size", "256MiB", "--data", "2+1", "--spare", "1"];
    let drives: Vec<String> =
        (0..6).map(|number| format!("{}@{}", place.path(&format!("d{number}.img")), number / 2)).collect();
    drives.iter().for_each(|drive| arguments.extend(["--drive", drive]));
    place.json(&arguments);
    place
}

fn store(place: &Place, server: &Server) {
    place.json(&["bucket", "create", "records"]);
    (0..OBJECTS).for_each(|seed| drop(server.put(&format!("/records/{seed}"), &content(seed, LENGTH))));
}

fn check(server: &Server) {
    for seed in 0..OBJECTS {
        assert!(good(server.get(&format!("/records/{seed}"))).body == content(seed, LENGTH), "{seed}");
    }
}

fn healths(status: &Value) -> Vec<&str> {
    status["drives"].as_array().unwrap().iter().map(|drive| drive["health"].as_str().unwrap()).collect()
}

#[test]
fn an_enclosure_with_a_replaced_drive_may_be_lost_as_a_whole() {
    let place = three_enclosures("replace-enclosure");
    let server = place.serve();
    let keys = server.keys();
    store(&place, &server);
    // The new drive counts in the enclosure of the old one.
    let replaced = place.json(&["pool", "replace", "4", &place.path("new.img"), "--size", "256MiB", "--wait"]);
    let new = replaced["drives"].as_array().unwrap().last().unwrap();
    assert_eq!((&new["path"], &new["enclosure"]), (&place.path("new.img").into(), &2.into()), "{replaced}");
    let settled = wait_for("no stripe to be crowded", || {
        let status = place.json(&["pool", "status"]);
        (status["crowded_stripes"] == 0 && status["moving"].is_null()).then_some(status)
    });
    assert_eq!(settled["exposed_stripes"], 0, "{settled}");
    server.kill();
    let away = place.0.join("away");
    std::fs::create_dir(&away).unwrap();
    for name in ["new.img", "d5.img"] {
        std::fs::rename(place.0.join(name), away.join(name)).unwrap();
    }
    let server = place.serve().with_keys(keys);
    check(&server);
    let status = place.json(&["pool", "status"]);
    assert_eq!((&status["unreadable_stripes"], &status["lost_stripes"]), (&0.into(), &0.into()), "{status}");
    assert_eq!(healths(&status).iter().filter(|health| **health == "missing").count(), 2, "{status}");
    server.stop();
}

/// Stores objects on a pool of drives, and takes drive 3 away.
fn without_drive_3(name: &str, drives: usize) -> (Place, (String, String)) {
    let place = Place::new(name);
    place.pool(drives);
    let server = place.serve();
    let keys = server.keys();
    store(&place, &server);
    server.stop();
    std::fs::rename(place.path("d3.img"), place.path("away.img")).unwrap();
    (place, keys)
}

/// Gives drive 3 up for a new one, and waits for the end.
fn replace_3(place: &Place, words: &[&str]) -> Value {
    let new = place.path("new.img");
    place.refused(5, words, &["pool", "replace", "3", &new, "--size", "256MiB", "--give-up", "--yes", "--wait"]);
    place.json(&["pool", "status"])
}

/// What only the two drives together held waits for one of them, which may come back.
#[test]
fn a_replacement_that_waits_for_another_drive_does_not_hang() {
    let (place, keys) = without_drive_3("replace-missing", 5);
    let second = place.path("d1.img");
    std::fs::rename(&second, place.path("second.img")).unwrap();
    let server = place.serve().with_keys(keys);
    let status = replace_3(&place, &["drive 3 is not replaced completely", "drive 1 is missing", "stele drive online"]);
    let healths = healths(&status);
    assert_eq!((healths[1], healths[3], &status["state"]), ("missing", "stale", &"unreadable".into()), "{status}");
    assert!(status["unreadable_stripes"].as_u64() > Some(0) && status["lost_stripes"] == 0, "{status}");
    // With that drive the pool goes on by itself.
    std::fs::rename(place.path("second.img"), &second).unwrap();
    place.json(&["drive", "online", "1", &second]);
    wait_for("the new drive to be filled", || is_whole(&place.json(&["pool", "status"])).then_some(()));
    assert_eq!(place.json(&["pool", "status"])["unreadable_stripes"], 0);
    check(&server);
    server.stop();
}

#[test]
fn a_replacement_during_which_stripes_are_lost_is_not_called_good() {
    let (place, keys) = without_drive_3("replace-lost", 4);
    let server = place.serve().with_keys(keys);
    // The second drive loses its content. Nothing has read it since, so the copy is what finds out.
    OpenOptions::new().write(true).open(place.path("d1.img")).unwrap().set_len(0).unwrap();
    let status = replace_3(&place, &["drive 3 is replaced, and", "cannot be read", "stele affected"]);
    assert_eq!(status["state"], "damaged", "{status}");
    assert!(status["lost_stripes"].as_u64() > Some(0), "{status}");
    let named: Vec<&str> =
        status["standing"].as_array().unwrap().iter().map(|alarm| alarm["kind"].as_str().unwrap()).collect();
    assert!(named.contains(&"stripe-lost"), "{named:?}");
    place.refused(5, &["cannot be read"], &["affected"]);
    drop(server);
}

/// A drive leaves in good health while another is away. Its copies stay until the new one has them,
/// whatever ends meanwhile; nor does it leave when the operator changes their mind.
#[test]
fn a_healthy_drive_is_replaced_beside_a_missing_one_and_after_a_kill() {
    let place = Place::new("replace-beside");
    place.pool(6);
    // The server dies in the middle of it.
    place.edit_config(|text| text.replacen("[pool]\n", "[pool]\nbackground_rate = \"1MiB\"\n", 1));
    let server = place.serve();
    let keys = server.keys();
    store(&place, &server);
    server.stop();
    let (missing, new) = (place.path("d1.img"), place.path("new.img"));
    std::fs::rename(&missing, place.path("away.img")).unwrap();
    let server = place.serve().with_keys(keys.clone());
    let replace = ["pool", "replace", "3", &new, "--size", "256MiB", "--wait"];
    // The rate holds only while hosts are active.
    let seen = AtomicBool::new(false);
    let (mut replacing, under_way) = std::thread::scope(|threads| {
        threads.spawn(|| {
            while !seen.load(Ordering::Relaxed) {
                good(server.get("/records/0"));
            }
        });
        let _end = Seen(&seen);
        let mut replacing = place.command(&replace);
        let replacing = replacing.arg("--dir").arg(&place.0).stdout(Stdio::null()).stderr(Stdio::null());
        let replacing = replacing.spawn().unwrap();
        let under_way = wait_for("the new drive to be filled in part", || {
            let status = place.json(&["pool", "status"]);
            (is_there(&status, "new.img") && !status["moving"].is_null()).then_some(status)
        });
        (replacing, under_way)
    });
    assert!(is_there(&under_way, "d3.img"), "{under_way}");
    server.kill();
    assert!(!replacing.wait().unwrap().success(), "it says that it does not know the end");

    place.edit_config(|text| text.replacen("background_rate = \"1MiB\"\n", "", 1));
    let server = place.serve().with_keys(keys.clone());
    check(&server);
    let replaced = wait_for("the old drive to leave", || {
        let status = place.json(&["pool", "status"]);
        assert_eq!((&status["unreadable_stripes"], &status["lost_stripes"]), (&0.into(), &0.into()), "{status}");
        (!is_there(&status, "d3.img")).then_some(status)
    });
    assert_eq!(healths(&replaced)[1], "missing", "{replaced}");
    check(&server);
    server.stop();

    std::fs::rename(place.path("away.img"), &missing).unwrap();
    let server = place.serve().with_keys(keys.clone());
    wait_for("all to be whole", || is_whole(&place.json(&["pool", "status"])).then_some(()));
    server.stop();
    // Strips of drive 2 are damaged, which nothing has found out, and a drive with which they could
    // be computed is away: drive 2 is still leaving at the second command.
    damage(&place.path("d2.img"));
    let (away, back) = (place.path("d4.img"), place.path("d4.away"));
    std::fs::rename(&away, &back).unwrap();
    let server = place.serve().with_keys(keys.clone());
    a_removal_is_taken_back(&place);
    assert!(is_there(&place.json(&["pool", "status"]), "d2.img"));
    server.stop();
    std::fs::rename(&back, &away).unwrap();
    let server = place.serve().with_keys(keys);
    wait_for("all to be whole again", || is_whole(&place.json(&["pool", "status"])).then_some(()));
    assert!(is_there(&place.json(&["pool", "status"]), "d2.img"));
    check(&server);
    server.stop();
}

/// Tells the thread that waits for it, also where the test fails.
struct Seen<'a>(&'a AtomicBool);

impl Drop for Seen<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Drive 2, which cannot become empty now, is told to leave, and then to stay.
fn a_removal_is_taken_back(place: &Place) {
    let mut waits = place.command(&["pool", "remove", "2", "--wait"]);
    let waits = waits.arg("--dir").arg(&place.0).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut waits = waits.spawn().unwrap();
    wait_for("the removal to begin", || {
        let leaves = place.json(&["pool", "status"])["drives"][2]["leaving"] == true;
        (leaves || waits.try_wait().unwrap().is_some()).then_some(())
    });
    place.json(&["pool", "remove", "2", "--cancel"]);
    let ended = wait_for("the command that waits", || waits.try_wait().unwrap());
    // Who waits for it is told.
    let said = std::io::read_to_string(waits.stderr.take().unwrap()).unwrap();
    let told = "the removal of drive 2 was taken back";
    assert!(ended.code() == Some(1) && said.contains(told), "{ended}: {said}");
}

/// Changes a byte in one of eight units of the drive file that hold something.
fn damage(drive: &str) {
    /// Labels, the log and tables lie before.
    const UNITS_AT: u64 = 32 << 20;
    let file = OpenOptions::new().read(true).write(true).open(drive).unwrap();
    let places = (UNITS_AT..file.metadata().unwrap().len()).step_by(64 << 10);
    let holds = |at: &u64| {
        let mut block = [0; 4096];
        file.read_exact_at(&mut block, *at).unwrap();
        block != [0; 4096]
    };
    let hurt: Vec<u64> = places.filter(holds).step_by(8).collect();
    assert!(hurt.len() > 8, "{hurt:?}");
    for at in hurt {
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[!byte[0]], at).unwrap();
    }
}

/// Whether the pool has a drive whose path ends so.
fn is_there(status: &Value, name: &str) -> bool {
    status["drives"].as_array().unwrap().iter().any(|drive| drive["path"].as_str().unwrap().ends_with(name))
}

/// The configuration cannot be written: a directory lies where its next text would be made.
fn unwritable(place: &Place) -> std::path::PathBuf {
    let obstacle = place.0.join("stele.toml.new");
    std::fs::create_dir(&obstacle).unwrap();
    obstacle
}

#[test]
fn a_configuration_that_cannot_be_written_leaves_the_pool_right() {
    let place = Place::new("replace-config");
    place.pool(5);
    let server = place.serve();
    let keys = server.keys();
    store(&place, &server);
    // Before the pool takes the drive: nothing is done.
    let (before, obstacle) = (place.config(), unwritable(&place));
    let new = place.path("new.img");
    let replace = ["pool", "replace", "3", &new, "--size", "256MiB", "--wait"];
    let said = place.refused(1, &["stele.toml", "[pool] drives", "nothing was done"], &replace);
    assert!(said.contains(&format!("{new}@3")), "the text to write: {said}");
    assert!(!std::path::Path::new(&new).exists() && place.config() == before, "{}", place.config());
    assert!(is_whole(&place.json(&["pool", "status"])));
    server.stop();
    let server = place.serve().with_keys(keys.clone());
    check(&server);
    server.stop();

    // The old drive is gone, and the operator named the new one by hand: the pool takes it, and the
    // old entry stays.
    std::fs::remove_dir(&obstacle).unwrap();
    std::fs::rename(place.path("d3.img"), place.path("away.img")).unwrap();
    place.edit_config(|text| text.replacen("drives = [", &format!("drives = [\n    \"{new}@3\","), 1));
    let server = place.serve().with_keys(keys.clone());
    let obstacle = unwritable(&place);
    let said = place.refused(1, &["drive 3 is replaced", "d3.img", "[pool] drives"], &replace);
    assert!(!said.contains("nothing was done"), "{said}");
    server.kill();
    std::fs::remove_dir(&obstacle).unwrap();
    let server = place.serve().with_keys(keys);
    wait_for("the new drive to be filled", || is_whole(&place.json(&["pool", "status"])).then_some(()));
    let status = place.json(&["pool", "status"]);
    assert_eq!(healths(&status).len(), 5, "{status}");
    check(&server);
    server.stop();
}

/// The array lists it twice: as a drive of the pool without a path, and as one that is not used.
#[test]
fn a_drive_that_was_given_up_is_shown_once_after_a_restart() {
    let place = Place::new("given-up-once");
    place.pool(5);
    let server = place.serve();
    let keys = server.keys();
    store(&place, &server);
    let path = place.0.join("d3.img");
    let whole = std::fs::read(&path).unwrap();
    OpenOptions::new().write(true).open(&path).unwrap().set_len(0).unwrap();
    wait_for("the drive to be given up", || {
        let _ = place.stele(&["pool", "scrub", "--wait"]);
        healths(&place.json(&["pool", "status"])).contains(&"failed").then_some(())
    });
    server.stop();
    std::fs::write(&path, whole).unwrap();

    let server = place.serve().with_keys(keys);
    let status = place.json(&["pool", "status"]);
    let drives = status["drives"].as_array().unwrap();
    assert_eq!((drives.len(), &drives[3]["path"]), (5, &path.to_str().unwrap().into()), "{status}");
    let told = |list: &str, kind: &str| -> Vec<Value> {
        let of = |told: &&Value| told["kind"] == kind;
        status[list].as_array().unwrap().iter().filter(of).cloned().collect()
    };
    let (standing, rejected) = (told("standing", "drive-failed"), told("alarms", "drive-rejected"));
    assert_eq!((standing.len(), rejected.len()), (1, 1), "{status}");
    assert!(told("standing", "drive-rejected").is_empty(), "{status}");
    let next = &standing[0]["next"];
    assert!(next.as_str().unwrap().contains("stele drive clear 3"), "{status}");
    assert_eq!((next, &rejected[0]["drive"]), (&rejected[0]["next"], &3.into()), "one advice: {status}");
    place.json(&["drive", "clear", "3"]);
    wait_for("the drive to be filled", || {
        let status = place.json(&["pool", "status"]);
        (healths(&status)[3] != "failed" && healths(&status)[3] != "stale").then_some(())
    });
    check(&server);
    server.stop();
}

/// A `pool add` that was cut off has named it. The server knows it by the text of the array.
#[test]
fn a_blank_drive_of_the_configuration_has_its_own_next_step() {
    let place = Place::new("blank-named");
    place.pool(3);
    let new = place.path("new.img");
    std::fs::File::create(&new).unwrap().set_len(256 << 20).unwrap();
    place.edit_config(|text| text.replacen("drives = [", &format!("drives = [\n    \"{new}@3\","), 1));
    let status = place.json(&["pool", "status"]);
    let blank = status["drives"].as_array().unwrap().iter().find(|drive| drive["path"] == new.as_str());
    let next = blank.and_then(|drive| drive["next"].as_str()).unwrap_or_default();
    assert!(next.contains("repeat `stele pool add`"), "{status}");
}
