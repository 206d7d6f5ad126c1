//! Clients of other projects, unmodified: boto3, the AWS command line, rclone and restic against
//! `stele up`.
//!
//! Each test starts a server of its own and stops it at the end. If a client is not installed, the
//! test says so and passes, except in CI; `.ci/run` installs all clients, those from PyPI under
//! `target/clients`.

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// `stele up` in a directory of its own.
struct Server {
    child: Child,
    directory: PathBuf,
    endpoint: String,
    access_key: String,
    secret_key: String,
}

impl Server {
    fn start(name: &str) -> Server {
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("clients-{name}-{}", std::process::id()));
        if directory.exists() {
            std::fs::remove_dir_all(&directory).expect("a former run's directory can be removed");
        }
        std::fs::create_dir_all(&directory).expect("a directory for the server");
        let log = std::fs::File::create(directory.join("server.log")).expect("a log for the server");
        let mut child = Command::new(env!("CARGO_BIN_EXE_stele"))
            .args(["up", "--json", "--listen", "127.0.0.1:0", "--drive-size", "256MiB", "--dir"])
            .arg(directory.join("data"))
            .env_remove("STELE_DIR")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .expect("stele starts");
        let mut ready = String::new();
        let output = child.stdout.take().expect("stdout is piped");
        BufReader::new(output).read_line(&mut ready).expect("stdout can be read");
        let said: serde_json::Value = serde_json::from_str(&ready).unwrap_or_else(|error| {
            let log = std::fs::read_to_string(directory.join("server.log")).unwrap_or_default();
            panic!("stele up said '{ready}' ({error}); its log:\n{log}")
        });
        let text = |field: &str| said[field].as_str().unwrap_or_else(|| panic!("no {field} in {ready}")).to_owned();
        let key = std::fs::read_to_string(text("key_file")).expect("the first key's file can be read");
        let key: serde_json::Value = serde_json::from_str(&key).expect("it is JSON");
        let secret = |field: &str| key[field].as_str().expect("the key is in it").to_owned();
        let (endpoint, access_key, secret_key) = (text("endpoint"), secret("access_key"), secret("secret_key"));
        Server { child, directory, endpoint, access_key, secret_key }
    }

    /// A client's command with the keys in its environment, where S3 clients expect them.
    fn client(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(&self.directory)
            .env("PATH", path())
            .env("HOME", &self.directory)
            .env("AWS_ACCESS_KEY_ID", &self.access_key)
            .env("AWS_SECRET_ACCESS_KEY", &self.secret_key)
            .env("AWS_DEFAULT_REGION", "us-east-1")
            .env("AWS_ENDPOINT_URL", &self.endpoint)
            .env("AWS_EC2_METADATA_DISABLED", "true")
            .env("AWS_PAGER", "")
            .env_remove("AWS_PROFILE")
            .env_remove("AWS_CA_BUNDLE")
            .stdin(Stdio::null());
        command
    }

    /// Runs a command that must succeed; returns its output.
    fn must(&self, command: &mut Command) -> String {
        let (success, text) = output(command);
        assert!(success, "{command:?} failed:\n{text}\nserver:\n{}", self.log());
        text
    }

    /// Runs a command that must be refused with these words.
    fn must_not(&self, command: &mut Command, words: &str) {
        let (success, text) = output(command);
        assert!(!success && text.contains(words), "{command:?} was not refused with {words}:\n{text}\n{}", self.log());
    }

    fn aws(&self, arguments: &[&str]) -> Command {
        let mut command = self.client("aws");
        // Given twice, because older versions know only the option.
        command.args(["--endpoint-url", &self.endpoint]).args(arguments);
        command
    }

    fn log(&self) -> String {
        let text = std::fs::read_to_string(self.directory.join("server.log")).unwrap_or_default();
        text.lines().rev().take(30).collect::<Vec<_>>().into_iter().rev().collect::<Vec<_>>().join("\n")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
        if !std::thread::panicking() {
            std::fs::remove_dir_all(&self.directory).ok();
        }
    }
}

/// Finds the programs of `.ci/run` before those of the machine.
fn path() -> OsString {
    let mut path = OsString::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/clients/bin:"));
    path.push(std::env::var_os("PATH").unwrap_or_default());
    path
}

fn output(command: &mut Command) -> (bool, String) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?} cannot be run: {error}"));
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

/// Whether a client is installed; prints a note if not.
fn installed(probe: &[&str]) -> bool {
    let found = Command::new(probe[0]).args(&probe[1..]).env("PATH", path()).stdin(Stdio::null()).output();
    let found = found.is_ok_and(|output| output.status.success());
    if !found {
        assert!(std::env::var_os("CI").is_none(), "'{}' does not run here, and CI leaves nothing out", probe.join(" "));
        println!("left out: '{}' does not run here", probe.join(" "));
    }
    found
}

/// A small tree with an empty file, a large one, and names that need escaping.
fn tree(directory: &Path) -> PathBuf {
    let tree = directory.join("tree");
    std::fs::create_dir_all(tree.join("a b/ü & +")).expect("a tree");
    for (name, length) in [("empty", 0), ("a b/one.txt", 1), ("a b/ü & +/100%.bin", 70_000), ("large.bin", 20 << 20)] {
        let bytes: Vec<u8> = (0..length as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        std::fs::write(tree.join(name), bytes).expect("a file");
    }
    tree
}

fn same_trees(left: &Path, right: &Path) {
    let (same, text) = output(Command::new("diff").arg("-r").arg(left).arg(right));
    assert!(same, "{text}");
}

/// Runs a script against a server, if Python has these modules.
fn all_holds(script: &str, modules: &str) {
    if !installed(&["python3", "-c", &format!("import {modules}")]) {
        return;
    }
    let server = Server::start(script);
    let script = format!("{}/tests/clients/{script}", env!("CARGO_MANIFEST_DIR"));
    let said = server.must(server.client("python3").arg(script));
    assert!(said.trim_end().ends_with("all held"), "{said}");
}

#[test]
fn boto3_finds_what_it_expects_of_s3() {
    all_holds("boto.py", "boto3");
}

#[test]
fn the_aws_common_runtime_transfers_objects_in_parts() {
    all_holds("crt.py", "boto3, awscrt");
}

#[test]
fn a_backup_repository_stays_immutable() {
    all_holds("immutable.py", "boto3");
}

#[test]
fn the_aws_command_line_archives_under_retention() {
    if !installed(&["aws", "--version"]) {
        return;
    }
    let server = Server::start("aws");
    let tree = tree(&server.directory);
    let made = ["s3api", "create-bucket", "--bucket", "records", "--object-lock-enabled-for-bucket"];
    server.must(&mut server.aws(&made));
    server.must(server.aws(&["s3", "cp", "--recursive"]).arg(&tree).arg("s3://records/in/"));
    let listed = server.must(&mut server.aws(&["s3", "ls", "--recursive", "s3://records/"]));
    assert!(listed.contains("in/a b/ü & +/100%.bin") && listed.contains("20971520"), "{listed}");
    let back = server.directory.join("back");
    server.must(server.aws(&["s3", "cp", "--recursive", "s3://records/in/"]).arg(&back));
    same_trees(&tree, &back);
    server.must(&mut server.aws(&["s3", "sync", "s3://records/in/", "s3://records/copy/"]));

    let object = ["--bucket", "records", "--key", "in/large.bin"];
    let version = ["s3api", "list-object-versions", "--bucket", "records", "--prefix", "in/large.bin"];
    let version = server.must(server.aws(&version).args(["--query", "Versions[0].VersionId", "--output", "text"]));
    let version = version.trim();
    let lock = "Mode=COMPLIANCE,RetainUntilDate=2099-01-01T00:00:00Z";
    server.must(server.aws(&["s3api", "put-object-retention", "--retention", lock]).args(object));
    let remove = ["s3api", "delete-object", "--version-id", version];
    server.must_not(server.aws(&remove).args(object), "AccessDenied");
    let shorter = "Mode=COMPLIANCE,RetainUntilDate=2098-01-01T00:00:00Z";
    server
        .must_not(server.aws(&["s3api", "put-object-retention", "--retention", shorter]).args(object), "AccessDenied");
    // A delete marker may always be put over it, and the version below stays.
    server.must(&mut server.aws(&["s3", "rm", "s3://records/in/large.bin"]));
    let read = ["s3api", "get-object", "--version-id", version, "still"];
    server.must(server.aws(&read[..4]).args(object).arg(read[4]));
    same_trees(&tree.join("large.bin"), &server.directory.join("still"));
}

#[test]
fn rclone_syncs_and_checks_a_tree() {
    if !installed(&["rclone", "version"]) {
        return;
    }
    let server = Server::start("rclone");
    let tree = tree(&server.directory);
    let rclone = |arguments: &[&str]| {
        let mut command = server.client("rclone");
        command
            .env("RCLONE_CONFIG_S_TYPE", "s3")
            .env("RCLONE_CONFIG_S_PROVIDER", "Other")
            .env("RCLONE_CONFIG_S_ENV_AUTH", "true")
            .env("RCLONE_CONFIG_S_ENDPOINT", &server.endpoint)
            .env("RCLONE_CONFIG_S_CHUNK_SIZE", "5Mi")
            .env("RCLONE_CONFIG_S_UPLOAD_CUTOFF", "8Mi")
            .env("RCLONE_RETRIES", "1")
            // rclone logs the absence of a configuration file.
            .env("RCLONE_LOG_LEVEL", "ERROR")
            .args(arguments);
        command
    };
    server.must(&mut rclone(&["mkdir", "s:tree"]));
    server.must(rclone(&["sync"]).arg(&tree).arg("s:tree/x"));
    server.must(rclone(&["check", "--download"]).arg(&tree).arg("s:tree/x"));
    std::fs::remove_file(tree.join("a b/one.txt")).expect("a file to remove");
    std::fs::write(tree.join("empty"), "no more").expect("a file to change");
    server.must(rclone(&["sync"]).arg(&tree).arg("s:tree/x"));
    server.must(rclone(&["check"]).arg(&tree).arg("s:tree/x"));
    let back = server.directory.join("back");
    server.must(rclone(&["copy", "s:tree/x"]).arg(&back));
    same_trees(&tree, &back);
    server.must(&mut rclone(&["purge", "s:tree/x"]));
    assert_eq!(server.must(&mut rclone(&["lsf", "-R", "s:tree"])).trim(), "");
}

#[test]
fn restic_backs_up_verifies_and_restores() {
    if !installed(&["restic", "version"]) {
        return;
    }
    let server = Server::start("restic");
    let tree = tree(&server.directory);
    let restic = |arguments: &[&str]| {
        let mut command = server.client("restic");
        command
            .env("RESTIC_REPOSITORY", format!("s3:{}/backups/main", server.endpoint))
            .env("RESTIC_PASSWORD", "correct horse")
            .env("RESTIC_CACHE_DIR", server.directory.join("cache"))
            .args(arguments);
        command
    };
    server.must(&mut restic(&["init"]));
    server.must(&mut restic(&["backup", "tree"]));
    std::fs::write(tree.join("empty"), "no more").expect("a file to change");
    server.must(&mut restic(&["backup", "tree"]));
    server.must(&mut restic(&["check", "--read-data"]));
    server.must(&mut restic(&["forget", "--keep-last", "1", "--prune"]));
    server.must(&mut restic(&["check", "--read-data"]));
    server.must(&mut restic(&["restore", "latest", "--target", "restored"]));
    same_trees(&tree, &server.directory.join("restored/tree"));
}

/// Runs a script that starts servers of its own.
fn run_with_own_server(script: &str) {
    if !installed(&["python3", "-c", "import boto3"]) {
        return;
    }
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{script}-{}", std::process::id()));
    if directory.exists() {
        std::fs::remove_dir_all(&directory).expect("a former run's directory can be removed");
    }
    std::fs::create_dir_all(&directory).expect("a directory for the server");
    let mut command = Command::new("python3");
    command
        .arg(format!("{}/tests/clients/{script}", env!("CARGO_MANIFEST_DIR")))
        .env("PATH", path())
        .env("STELE", env!("CARGO_BIN_EXE_stele"))
        .env("DIRECTORY", &directory)
        .env("AWS_EC2_METADATA_DISABLED", "true")
        .env_remove("STELE_DIR")
        .stdin(Stdio::null());
    let (success, text) = output(&mut command);
    println!("{text}");
    let log = std::fs::read_to_string(directory.join("server.log")).unwrap_or_default();
    assert!(success, "{script} failed:\n{text}\nserver:\n{log}");
    std::fs::remove_dir_all(&directory).ok();
}

#[test]
fn boto3_and_kill_9_find_every_notification_sent() {
    run_with_own_server("notifications.py");
}

#[test]
fn boto3_reads_the_access_log_of_a_bucket() {
    run_with_own_server("access_log.py");
}

#[test]
fn boto3_and_a_command_make_inventories() {
    run_with_own_server("inventory.py");
}
