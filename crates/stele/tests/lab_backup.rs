//! The laboratory against repositories of backups: sessions that save and restore generated
//! streams.

use std::process::{Command, Output, Stdio};

use crate::support::{Place, Server, content, wait_for};
use serde_json::Value;

const ROUNDS: [&str; 4] = ["--round", "50ms", "--warm-up", "0s"];
const SHORT: &str = "600ms";

/// A server with a bucket, and the keys to it.
struct Desk {
    place: Place,
    server: Server,
}

impl Desk {
    fn new(name: &str) -> Desk {
        let place = Place::new(name);
        let server = place.up();
        assert!(place.stele(&["bucket", "create", "bench"]).status.success());
        std::fs::write(place.path("password"), "correct horse\n").unwrap();
        Desk { place, server }
    }

    fn on(&self, prefix: &str) -> String {
        format!("backup+http://{}/bench{prefix}", self.server.address)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.place.command(arguments);
        let (access, secret) = self.server.keys();
        command.env("AWS_ACCESS_KEY_ID", access).env("AWS_SECRET_ACCESS_KEY", secret);
        command.env_remove("STELE_BACKUP_PASSWORD_FILE").env_remove("STELE_BACKUP_PASSWORD_COMMAND");
        command.env("XDG_CACHE_HOME", self.place.path("cache"));
        command
    }

    fn lab(&self, on: &str, more: &[&str]) -> Output {
        self.lab_for(SHORT, on, more)
    }

    fn lab_for(&self, time: &str, on: &str, more: &[&str]) -> Output {
        self.command(&[&["lab", "run", "--on", on, "--json", "--time", time], more, &ROUNDS].concat()).output().unwrap()
    }

    #[track_caller]
    fn cells(&self, on: &str, more: &[&str]) -> Vec<Value> {
        self.cells_for(SHORT, on, more)
    }

    #[track_caller]
    fn cells_for(&self, time: &str, on: &str, more: &[&str]) -> Vec<Value> {
        let output = self.lab_for(time, on, more);
        assert!(Place::measured(&output), "{more:?}: {output:?}");
        Place::cells_of(&output)
    }

    #[track_caller]
    fn backup(&self, repository: &str, arguments: &[&str]) -> Value {
        let mut command = self.command(&[&["backup"], arguments, &["--json"]].concat());
        command.env("STELE_BACKUP_REPOSITORY", repository);
        command.env("STELE_BACKUP_PASSWORD_FILE", self.place.path("password"));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        serde_json::from_slice(&output.stdout).unwrap_or_default()
    }

    /// What the bucket holds.
    fn objects(&self) -> u64 {
        let shown = self.place.json(&["bucket", "show", "bench"]);
        shown["versions"].as_u64().unwrap_or_else(|| panic!("{shown}"))
    }
}

#[test]
fn sessions_save_and_restore_streams_and_leave_nothing() {
    let desk = Desk::new("lab-backup");
    let on = desk.on("/own");
    for more in [
        &["--read", "0,50,100", "--access", "1MiB", "--outstanding", "1,4", "--files", "8"][..],
        &["--read", "50", "--access", "256KiB", "--outstanding", "4", "--files", "16", "--verify"],
        &["--read", "50", "--access", "1MiB", "--outstanding", "2", "--files", "8", "--dedupe", "4", "--compress", "2"],
    ] {
        // How many is a matter of the machine and of what else it does.
        let enough = |cell: &Value| cell["runs"][0]["response"]["count"].as_u64() > Some(0);
        for cell in Place::answered(|time| desk.cells_for(time, &on, more), enough) {
            assert_eq!(cell["wrong_sectors"].as_u64().unwrap_or(0), 0, "{cell}");
        }
        assert_eq!(desk.objects(), 0, "{more:?}: all is removed");
    }
    // A directory of this machine.
    let directory = desk.place.path("here");
    desk.cells(&format!("backup:{directory}"), &["--read", "50", "--access", "1MiB", "--files", "8", "--verify"]);
    assert!(!std::path::Path::new(&directory).exists(), "a directory that the run made is removed");
    // What was there stays, and the folders of the repository go.
    std::fs::create_dir_all(format!("{directory}/keys")).unwrap();
    std::fs::write(format!("{directory}/keys/own"), "own").unwrap();
    desk.cells(&format!("backup:{directory}"), &["--read", "50", "--access", "1MiB", "--files", "8"]);
    assert_eq!(std::fs::read(format!("{directory}/keys/own")).unwrap(), b"own");
    assert!(!std::path::Path::new(&format!("{directory}/repository")).exists());
    desk.server.stop();
}

#[test]
fn a_repository_that_is_there_loses_nothing() {
    let desk = Desk::new("lab-backup-there");
    let repository = format!("s3+http://{}/bench/mine", desk.server.address);
    std::fs::create_dir_all(desk.place.path("files")).unwrap();
    std::fs::write(desk.place.path("files/file"), content(1, 3_000_000)).unwrap();
    desk.backup(&repository, &["init"]);
    desk.backup(&repository, &["run", &desk.place.path("files")]);
    let before = desk.backup(&repository, &["snapshots"]);
    let on = format!("{}?password-file={}", desk.on("/mine"), desk.place.path("password"));
    let run = ["--read", "50", "--access", "1MiB", "--outstanding", "4", "--files", "8", "--verify"];
    desk.cells(&on, &run);
    assert_eq!(desk.backup(&repository, &["snapshots"]), before, "its own snapshots are gone, and no other one");
    let checked = desk.backup(&repository, &["verify", "--data"]);
    assert_eq!(checked["snapshots"], 1, "{checked}");
    // Kept snapshots are those of a host of their own, and hold all that was saved.
    desk.cells(&on, &[&run[..], &["--keep"]].concat());
    let kept = desk.backup(&repository, &["snapshots"]);
    let own = kept.as_array().unwrap().iter().filter(|one| one["host"] == "stele-lab").count();
    assert!(own > 0 && kept.as_array().unwrap().len() == own + 1, "{kept}");
    let checked = desk.backup(&repository, &["verify", "--data"]);
    assert!(checked["lost_files"] == 0 && checked["snapshots"].as_u64() == Some(own as u64 + 1), "{checked}");
    // They go by their names, as any others do.
    let own: Vec<&str> = kept.as_array().unwrap().iter().filter_map(|one| one["snapshot"].as_str()).collect();
    let first = before[0]["snapshot"].as_str().unwrap();
    let names: Vec<&str> = own.into_iter().filter(|name| *name != first).collect();
    desk.backup(&repository, &[&["forget"], &names[..]].concat());
    assert_eq!(desk.backup(&repository, &["snapshots"]), before);
    // Without the password nothing is touched.
    let refused = desk.lab(&desk.on("/mine"), &["--read", "100", "--access", "1MiB"]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(2) && said.contains("password"), "{said}");
    desk.server.stop();
}

#[test]
fn what_a_killed_run_left_is_taken_over_only_if_asked() {
    let desk = Desk::new("lab-backup-killed");
    let on = desk.on("");
    let arguments = ["lab", "run", "--on", &on, "--read", "0", "--access", "1MiB", "--time", "60s"];
    let mut run = desk.command(&arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_for("segments of the run", || (desk.objects() > 8).then_some(()));
    run.kill().unwrap();
    run.wait().unwrap();
    let more = ["--read", "50", "--access", "1MiB", "--files", "4"];
    let refused = desk.lab(&on, &more);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(3) && said.contains("--destroy"), "{said}");
    desk.cells(&on, &[&more[..], &["--destroy"]].concat());
    assert_eq!(desk.objects(), 0, "what the killed run left is gone too");
    desk.server.stop();
}

/// Nothing could be removed: that is said before anything is stored.
#[test]
fn a_bucket_that_locks_every_object_is_refused_at_once() {
    let desk = Desk::new("lab-backup-locked");
    let create = ["bucket", "create", "locked", "--lock", "--retention", "governance:1d"];
    assert!(desk.place.stele(&create).status.success());
    let on = format!("backup+http://{}/locked/own", desk.server.address);
    for more in [&["--read", "50"][..], &["--read", "50", "--destroy"]] {
        let refused = desk.lab(&on, more);
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(refused.status.code() == Some(3) && said.contains("locks every new object"), "{said}");
    }
    assert_eq!(desk.place.json(&["bucket", "show", "locked"])["versions"], 0);
    desk.server.stop();
}

/// Those of the table in OPERATIONS.md.
#[test]
fn targets_that_cannot_be_used_have_their_own_exit_codes() {
    let desk = Desk::new("lab-backup-codes");
    let (host, bad) = (&desk.server.address, ("AWS_SECRET_ACCESS_KEY", "another"));
    let check = |code: i32, on: String, variable: Option<(&str, &str)>| {
        let mut command = desk
            .command(&[&["lab", "run", "--on", &on, "--read", "100", "--json", "--time", SHORT][..], &ROUNDS].concat());
        let output = command.envs(variable).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{on}: {}", String::from_utf8_lossy(&output.stderr));
    };
    for scheme in ["s3+http", "backup+http"] {
        check(3, format!("{scheme}://{host}/bench"), Some(bad));
        check(4, format!("{scheme}://{host}/nowhere"), None);
    }
    // A port that was given and given back listens no more.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for (scheme, rest) in [("s3+http", "bench"), ("nbd", "x"), ("iscsi", "iqn.2026-11.example:x/0")] {
        check(7, format!("{scheme}://{free}/{rest}"), None);
    }
    desk.server.stop();
}

/// A repository that the laboratory made and kept may have become that of real backups.
#[test]
fn a_repository_with_snapshots_is_never_removed_unasked() {
    let desk = Desk::new("lab-backup-kept");
    let on = format!("{}?password-file={}", desk.on("/kept"), desk.place.path("password"));
    let run = ["--read", "0", "--access", "1MiB", "--files", "4"];
    desk.cells(&on, &[&run[..], &["--keep"]].concat());
    let repository = format!("s3+http://{}/bench/kept", desk.server.address);
    std::fs::create_dir_all(desk.place.path("files")).unwrap();
    std::fs::write(desk.place.path("files/file"), content(1, 100_000)).unwrap();
    desk.backup(&repository, &["run", &desk.place.path("files")]);
    let before = desk.backup(&repository, &["snapshots"]);
    let refused = desk.lab(&on, &run);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(3) && said.contains("it still has snapshots"), "{said}");
    assert_eq!(desk.backup(&repository, &["snapshots"]), before);
    // Nor does another repository come to look like one of the laboratory's.
    let init = ["backup", "init", "--label", "stele-lab", "--repository", &desk.place.path("other")];
    let refused = desk.command(&init).env("STELE_BACKUP_PASSWORD_FILE", desk.place.path("password")).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(2) && said.contains("choose another label"), "{said}");
    desk.server.stop();
}
