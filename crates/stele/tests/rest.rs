//! Backups by restic over its REST protocol, into buckets of a running server.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::support::{Place, Server, content, installed, wait_for};

/// The environment of one user of restic.
struct User<'p> {
    place: &'p Place,
    server: String,
    keys: (String, String),
    password: String,
}

impl User<'_> {
    fn command(&self, repository: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("restic");
        let url = match self.server.split_once("://") {
            Some((scheme, rest)) => format!("rest:{scheme}://{}:{}@{rest}/{repository}", self.keys.0, self.keys.1),
            None => repository.to_owned(),
        };
        command.args(["--repo", &url]).args(arguments).stdin(Stdio::null());
        command.env("RESTIC_PASSWORD", &self.password).env("RESTIC_CACHE_DIR", self.place.path("restic-cache"));
        command
    }

    fn restic(&self, repository: &str, arguments: &[&str]) -> Output {
        self.command(repository, arguments).output().unwrap()
    }

    #[track_caller]
    fn good(&self, repository: &str, arguments: &[&str]) -> String {
        let output = self.restic(repository, arguments);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{arguments:?}\n{text}\n{}", String::from_utf8_lossy(&output.stderr));
        text
    }

    /// Runs a command that must fail, and returns all that it printed.
    #[track_caller]
    fn bad(&self, repository: &str, arguments: &[&str]) -> String {
        let output = self.restic(repository, arguments);
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text).into_owned();
        assert!(!output.status.success(), "{arguments:?} should fail\n{text}");
        text
    }
}

/// A place with files, and a configuration that serves the protocol on a free port.
fn start(name: &str) -> Option<(Place, Server)> {
    if !installed(&["restic", "version"]) {
        return None;
    }
    let place = Place::new(name);
    for number in 0..40_u64 {
        let path = place.path(&format!("files/{}/file {number}", number % 4));
        std::fs::create_dir_all(Path::new(&path).parent().unwrap()).unwrap();
        std::fs::write(path, content(number, (number * number * 1500) as usize)).unwrap();
    }
    let server = place.up();
    let keys = server.keys();
    server.stop();
    place.edit_config(|text| text.replace("[rest]\n", "[rest]\nlisten = \"127.0.0.1:0\"\n"));
    let server = place.serve().with_keys(keys);
    Some((place, server))
}

fn user<'p>(place: &'p Place, server: &Server, keys: (String, String)) -> User<'p> {
    let server = server.ready["rest"].as_str().unwrap().to_owned();
    User { place, server, keys, password: "correct horse".to_owned() }
}

fn agent_key(place: &Place, bucket: &str) -> (String, String) {
    let granted = ["key", "create", "--name", "agent", "--bucket", bucket, "--access", "read,write,list"];
    let key = place.json(&granted);
    let text = |name: &str| key[name].as_str().unwrap().to_owned();
    (text("access_key"), text("secret_key"))
}

#[track_caller]
fn same(place: &Place, restored: &str) {
    let output = Command::new("diff").args(["-r", &place.path("files"), restored]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn restic_backs_up_checks_restores_and_prunes() {
    let Some((place, server)) = start("rest") else { return };
    let owner = user(&place, &server, server.keys());
    let files = place.path("files");
    assert!(owner.bad("backups", &["snapshots"]).contains("unable to open config file"));
    owner.good("backups", &["init"]);
    assert!(owner.bad("backups", &["init"]).contains("already"));
    owner.good("backups", &["backup", &files]);
    owner.good("backups", &["check", "--read-data"]);
    let restored = place.path("restored");
    owner.good("backups", &["restore", "latest", "--target", &restored]);
    same(&place, &format!("{restored}{files}"));
    // A second backup, and the removal of the first one with its content.
    std::fs::remove_dir_all(place.path("files/0")).unwrap();
    owner.good("backups", &["backup", &files]);
    owner.good("backups", &["forget", "--keep-last", "1", "--prune"]);
    owner.good("backups", &["check", "--read-data"]);
    assert_eq!(owner.good("backups", &["snapshots", "--json"]).matches("short_id").count(), 1);
    // The wrong secret, and the wrong password of the repository.
    let wrong = User { keys: (server.access_key.clone(), "wrong".to_owned()), ..user(&place, &server, server.keys()) };
    assert!(wrong.bad("backups", &["snapshots"]).contains("401"));
    let wrong = User { password: "battery staple".to_owned(), ..user(&place, &server, server.keys()) };
    assert!(wrong.bad("backups", &["snapshots", "--no-lock"]).contains("wrong password"));
    // Several repositories in one bucket, each below a folder.
    owner.good("backups/clients/laptop", &["init"]);
    owner.good("backups/clients/laptop", &["backup", &files]);
    owner.good("backups/clients/laptop", &["check"]);
    // The same repository over S3: the keys are those of restic's own layout.
    let mut s3 = Command::new("restic");
    let url = format!("s3:http://{}/backups", server.address);
    s3.args(["--repo", &url, "check", "--read-data"]).env("RESTIC_PASSWORD", "correct horse");
    s3.env("AWS_ACCESS_KEY_ID", &server.access_key).env("AWS_SECRET_ACCESS_KEY", &server.secret_key);
    s3.env("RESTIC_CACHE_DIR", place.path("restic-cache"));
    let output = s3.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    server.stop();
}

#[test]
fn a_key_without_the_right_to_delete_only_appends() {
    let Some((place, server)) = start("rest-append") else { return };
    let files = place.path("files");
    assert!(place.stele(&["bucket", "create", "backups"]).status.success());
    let agent = user(&place, &server, agent_key(&place, "backups"));
    assert!(agent.bad("others", &["init"]).contains("403"));
    agent.good("backups", &["init"]);
    agent.good("backups", &["backup", &files]);
    std::fs::remove_dir_all(place.path("files/1")).unwrap();
    agent.good("backups", &["backup", &files]);
    let refused = agent.bad("backups", &["forget", "--keep-last", "1", "--prune"]);
    assert!(refused.contains("403"), "{refused}");
    assert_eq!(agent.good("backups", &["snapshots", "--json"]).matches("short_id").count(), 2);
    // The refused removal leaves neither damage nor locks, and backups go on.
    agent.good("backups", &["backup", &files]);
    agent.good("backups", &["check", "--read-data"]);
    assert_eq!(agent.good("backups", &["list", "locks", "--no-lock"]).trim(), "");
    user(&place, &server, server.keys()).good("backups", &["forget", "--keep-last", "1", "--prune"]);
    agent.good("backups", &["check", "--read-data"]);
    server.stop();
}

#[test]
fn retention_of_the_bucket_refuses_prune_politely() {
    let Some((place, server)) = start("rest-lock") else { return };
    let files = place.path("files");
    let made = place.stele(&["bucket", "create", "kept", "--lock", "--retention", "governance:1d"]);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let owner = user(&place, &server, server.keys());
    owner.good("kept", &["init"]);
    owner.good("kept", &["backup", &files]);
    std::fs::remove_dir_all(place.path("files/2")).unwrap();
    owner.good("kept", &["backup", &files]);
    let refused = owner.bad("kept", &["forget", "--keep-last", "1", "--prune"]);
    assert!(refused.contains("403"), "{refused}");
    assert_eq!(owner.good("kept", &["snapshots", "--json"]).matches("short_id").count(), 2);
    owner.good("kept", &["check", "--read-data"]);
    assert_eq!(owner.good("kept", &["list", "locks", "--no-lock"]).trim(), "");
    server.stop();
}

#[test]
fn the_quota_of_a_key_binds_what_restic_stores() {
    let Some((place, server)) = start("rest-quota") else { return };
    place.json(&["bucket", "create", "backups"]);
    let granted = ["key", "create", "--name", "agent", "--bucket", "backups", "--access", "read,write,list"];
    let key = place.json(&[&granted[..], &["--quota", "1MiB"]].concat());
    let keys = ["access_key", "secret_key"].map(|name| key[name].as_str().unwrap().to_owned());
    let limited = user(&place, &server, (keys[0].clone(), keys[1].clone()));
    limited.good("backups", &["init"]);
    // As restic stores a pack. Restic itself would try again for a quarter of an hour.
    let store = |seed: u64| {
        let pack = place.path("pack");
        std::fs::write(&pack, content(seed, 600_000)).unwrap();
        let sum = Command::new("sha256sum").arg(&pack).output().unwrap().stdout;
        let name = String::from_utf8_lossy(&sum[..64]).into_owned();
        let url = format!("{}/backups/data/{name}", limited.server);
        let mut curl = Command::new("curl");
        curl.args(["-sS", "-w", "%{http_code}", "-u", &keys.join(":"), "--data-binary", &format!("@{pack}"), &url]);
        String::from_utf8_lossy(&curl.output().unwrap().stdout).into_owned()
    };
    assert_eq!(store(1), "200");
    let refused = store(2);
    assert!(refused.ends_with("403") && refused.contains("quota"), "{refused}");
    assert_eq!(limited.good("backups", &["list", "packs"]).lines().count(), 1);
    server.stop();
}

#[test]
fn a_server_that_is_killed_during_a_backup_keeps_what_it_acknowledged() {
    let Some((place, server)) = start("rest-kill") else { return };
    let (files, keys) = (place.path("files"), server.keys());
    let port = server.ready["rest"].as_str().unwrap().rsplit(':').next().unwrap().to_owned();
    let owner = user(&place, &server, keys.clone());
    owner.good("backups", &["init"]);
    let packs = |server: &Server| server.get("/backups?list-type=2&prefix=data%2F").text().matches("<Key>").count();
    let mut backup = owner.command("backups", &["backup", &files, "--pack-size", "4", "--limit-upload", "4000"]);
    let mut backup = backup.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_for("two packs", || (packs(&server) >= 2).then_some(()));
    server.kill();
    // The next server has the same port, and restic tries again until it is there.
    place.edit_config(|text| {
        text.replace("[rest]\nlisten = \"127.0.0.1:0\"", &format!("[rest]\nlisten = \"127.0.0.1:{port}\""))
    });
    let server = place.serve().with_keys(keys);
    assert!(backup.wait().unwrap().success(), "restic finishes the backup with the new server");
    let owner = user(&place, &server, server.keys());
    owner.good("backups", &["check", "--read-data"]);
    let restored = place.path("restored");
    owner.good("backups", &["restore", "latest", "--target", &restored]);
    same(&place, &format!("{restored}{files}"));
    server.stop();
}
