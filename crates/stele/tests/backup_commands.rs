//! What scripts rely on in `stele backup`: which snapshot `latest` is, exit codes, schedules and
//! reports, policies, locks.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use crate::support::{Place, content, wait_for};
use serde_json::Value;

pub struct Desk {
    pub place: Place,
    repository: String,
    pub files: String,
    keys: Option<(String, String)>,
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[track_caller]
pub fn code(output: &Output, expected: i32) -> Value {
    let (said, errors) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(expected), "{said}\n{errors}");
    said.lines().next().map_or(Value::Null, |line| serde_json::from_str(line).unwrap_or(Value::Null))
}

impl Desk {
    /// A place with a password and some files.
    pub fn new(name: &str) -> Desk {
        let place = Place::new(name);
        std::fs::write(place.path("password"), "correct horse\n").unwrap();
        for (number, length) in [10, 5000, 300_000].into_iter().enumerate() {
            let path = place.path(&format!("files/{}/file {number}", number % 2));
            std::fs::create_dir_all(std::path::Path::new(&path).parent().unwrap()).unwrap();
            std::fs::write(path, content(number as u64, length)).unwrap();
        }
        let (repository, files) = (place.path("repository"), place.path("files"));
        Desk { place, repository, files, keys: None }
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.place.command(&[&["backup"], arguments].concat());
        command.env("STELE_BACKUP_REPOSITORY", &self.repository);
        command.env("STELE_BACKUP_PASSWORD_FILE", self.place.path("password"));
        command.env("XDG_CACHE_HOME", self.place.path("cache")).stdin(Stdio::null());
        if let Some((access, secret)) = &self.keys {
            command.env("AWS_ACCESS_KEY_ID", access).env("AWS_SECRET_ACCESS_KEY", secret);
        }
        command
    }

    #[track_caller]
    pub fn run(&self, expected: i32, arguments: &[&str]) -> Value {
        code(&self.command(arguments).output().unwrap(), expected)
    }

    /// The command says this on standard error.
    #[track_caller]
    pub fn says(&self, expected: i32, words: &[&str], arguments: &[&str]) {
        let output = self.command(arguments).output().unwrap();
        code(&output, expected);
        let said = text(&output.stderr);
        assert!(words.iter().all(|word| said.contains(word)), "{words:?}: {said}");
    }

    /// The new snapshot, in a second of its own.
    #[track_caller]
    pub fn save(&self, more: &[&str]) -> String {
        next_second();
        let saved = self.run(0, &[&["run", &self.files, "--json"], more].concat());
        saved["snapshot"].as_str().unwrap().to_owned()
    }

    fn snapshots(&self) -> Vec<Value> {
        self.run(0, &["snapshots", "--json"]).as_array().unwrap().clone()
    }

    pub fn segments(&self) -> Vec<PathBuf> {
        let list = |folder: PathBuf| std::fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path());
        list(self.place.path("repository/segments").into()).flat_map(list).collect()
    }

    pub fn write(&self, name: &str, text: &str) -> String {
        let path = self.place.path(name);
        std::fs::write(&path, text).unwrap();
        path
    }
}

/// Stores date what they hold in whole seconds.
fn next_second() {
    let now = || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let before = now();
    wait_for("the next second", || (now() > before).then_some(()));
}

pub fn damage(path: &PathBuf, at: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[at] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

fn signal(name: &str, child: &Child) {
    assert!(Command::new("kill").args([name, &child.id().to_string()]).status().unwrap().success());
}

#[test]
fn latest_is_of_one_host_and_by_a_date() {
    let desk = Desk::new("commands-latest");
    desk.run(0, &["init"]);
    let [first, other, third] = ["a", "b", "a"].map(|host| desk.save(&["--host", host]));
    let listed = |host: &str| desk.run(0, &["snapshots", "--host", host, "--json"]).as_array().unwrap().len();
    assert_eq!((listed("a"), listed("b")), (2, 1));
    desk.says(4, &["no snapshot of host 'c'"], &["snapshots", "--host", "c"]);
    let restored = |selector: &[&str]| {
        let to = desk.place.path("restored");
        let done = desk.run(0, &[&["restore"], selector, &["--to", &to, "--json"]].concat());
        (done["snapshot"].as_str().unwrap().to_owned(), done["host"].as_str().unwrap().to_owned())
    };
    let of = |id: &String, host: &str| (id.clone(), host.to_owned());
    // Neither is this machine: the command does not guess.
    desk.says(2, &["a, b", "--host"], &["restore", "latest", "--to", &desk.place.path("none")]);
    assert!(!std::fs::exists(desk.place.path("none")).unwrap());
    assert_eq!(restored(&["latest", "--host", "a"]), of(&third, "a"));
    assert_eq!(restored(&["latest", "--host", "b"]), of(&other, "b"));
    assert_eq!(restored(&[&first]), of(&first, "a"));
    let stored = desk.snapshots().iter().map(|is| is["stored"].as_str().unwrap().to_owned()).collect::<Vec<_>>();
    assert_eq!(restored(&["latest", "--host", "a", "--at", &stored[1]]), of(&first, "a"));
    assert_eq!(restored(&["latest", "--at", &stored[0]]), of(&first, "a"));
    desk.run(4, &["ls", "latest", "--host", "c"]);
    desk.run(4, &["ls", "latest", "--host", "a", "--at", "2020-01-01"]);
    desk.run(2, &["ls", "latest", "--at", "yesterday"]);
    desk.run(2, &["ls", &first, "--host", "a"]);
    desk.run(0, &["diff", &first, "latest", "--host", "b"]);
    desk.run(2, &["diff", &first, &third, "--host", "b"]);
    let found = desk.command(&["find", "file 1", "--host", "b"]).output().unwrap();
    assert_eq!(text(&found.stdout).lines().count(), 1, "{}", text(&found.stdout));
    // Nothing is removed by a guess, and a person reads whose files came back.
    desk.says(2, &["a, b"], &["forget", "latest"]);
    assert_eq!(desk.snapshots().len(), 3);
    let told = desk.command(&["restore", "latest", "--host", "a", "--to", &desk.place.path("told")]).output().unwrap();
    assert!(text(&told.stdout).starts_with(&format!("Snapshot {} of host 'a', stored ", &third[..8])));
    // This machine's, although another one has a newer snapshot.
    let own = desk.save(&[]);
    desk.save(&["--host", "b"]);
    assert_eq!(restored(&["latest"]).0, own);
    desk.says(2, &["several hosts"], &["forget", "latest"]);
    // How many requests are sent at once.
    desk.save(&["--sessions", "16"]);
    desk.run(2, &["run", &desk.files, "--sessions", "17"]);
    desk.run(0, &["restore", &own, "--sessions", "1", "--to", &desk.place.path("one")]);
    desk.run(2, &["restore", &own, "--sessions", "0", "--to", &desk.place.path("one")]);
}

#[test]
fn exit_code_3_lists_what_is_missing() {
    let desk = Desk::new("commands-incomplete");
    desk.run(0, &["init"]);
    // A directory is where a file should be.
    let id = desk.save(&[]);
    let to = desk.place.path("restored");
    std::fs::create_dir_all(format!("{to}/0/file 0/full")).unwrap();
    let from = format!("{id}:{}", desk.files);
    let output = desk.command(&["restore", &from, "--to", &to, "--json"]).output().unwrap();
    let done = code(&output, 3);
    assert_eq!((&done["problems"], done["issues"].as_array().unwrap().len()), (&1.into(), 1), "{done}");
    assert!(text(&output.stderr).contains("file 0"), "{}", text(&output.stderr));
    assert_eq!(std::fs::read(format!("{to}/0/file 2")).unwrap(), content(2, 300_000), "all else is there");
    // The kernel says that this file has 4096 bytes, and gives a few.
    let changing = "/sys/kernel/uevent_seqnum";
    if !std::fs::exists(changing).unwrap() {
        println!("left out: there is no {changing}");
        return;
    }
    let before = desk.snapshots().len();
    let saved = desk.run(3, &["run", changing, &desk.files, "--json"]);
    assert_eq!((&saved["problems"], &saved["issues"][0]["path"]), (&1.into(), &changing.into()), "{saved}");
    assert_eq!(desk.snapshots().len(), before + 1, "exit code 3 says that there is a snapshot");
    desk.run(0, &["restore", &format!("latest:{}", desk.files), "--to", &desk.place.path("all")]);
    // What the backup could not save is told later too, where it matters.
    assert_eq!(desk.snapshots()[before]["issues"], saved["issues"]);
    let told = format!("{changing}: when it was saved: it changed");
    desk.says(0, &[&told], &["restore", "latest", "--to", &desk.place.path("with it")]);
    let other = desk.command(&["restore", &from, "--to", &desk.place.path("without it")]).output().unwrap();
    code(&other, 0);
    assert!(!text(&other.stderr).contains("when it was saved"));
}

#[test]
fn a_signal_ends_a_backup_with_130_and_without_a_snapshot() {
    let desk = Desk::new("commands-signal");
    desk.run(0, &["init"]);
    let noted = desk.place.path("after");
    let after = format!("echo $STELE_BACKUP_EXIT > {noted}");
    // In the command before: it ends, and the command behind runs, which may start what the first
    // one stopped.
    let before = "kill -INT $PPID; exec sleep 1000";
    let failed = desk.run(130, &["run", &desk.files, "--before", before, "--after", &after, "--json"]);
    assert_eq!(failed["kind"], "interrupted");
    assert_eq!(std::fs::read_to_string(&noted).unwrap(), "130\n");
    // While a stream is saved that has no end.
    let mut command = desk.command(&["run", "--stdin-name", "dump", "--progress", "--after", &after]);
    let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stream = child.stdin.take().unwrap();
    let feeds = std::thread::spawn(move || {
        let block = content(7, 1 << 16);
        while stream.write_all(&block).is_ok() {}
    });
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(said.next().unwrap().unwrap().contains("files"));
    signal("-INT", &child);
    // It must not wait for a reader.
    let rest = std::thread::spawn(move || said.map_while(Result::ok).collect::<Vec<String>>());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    feeds.join().unwrap();
    assert!(rest.join().unwrap().iter().any(|line| line.contains("stopping")));
    assert_eq!(std::fs::read_to_string(&noted).unwrap(), "130\n");
    assert!(desk.snapshots().is_empty());
    desk.save(&[]);
    desk.run(0, &["verify", "--data"]);
}

/// The same command, behind others of a shell.
fn behind(words: &str, command: &Command) -> Command {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", &format!("{words}; exec \"$@\""), "sh"]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    shell
}

#[test]
fn a_terminal_that_goes_ends_a_backup_and_its_session() {
    let desk = Desk::new("commands-hangup");
    desk.run(0, &["init"]);
    let run = desk.command(&["run", "--stdin-name", "dump", "--progress"]);
    let begun = |words: &str| {
        let mut child = behind(words, &run);
        let mut child = child.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stream = child.stdin.take().unwrap();
        stream.write_all(&content(7, 1 << 16)).unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        assert!(line.contains("files"), "{line}");
        // From here on its words cannot be written.
        drop(said);
        signal("-HUP", &child);
        (child, stream)
    };
    let (mut child, stream) = begun(":");
    let feeds = std::thread::spawn(move || {
        let (mut stream, block) = (stream, content(7, 1 << 16));
        while stream.write_all(&block).is_ok() {}
    });
    assert_eq!(child.wait().unwrap().code(), Some(130));
    feeds.join().unwrap();
    assert!(desk.snapshots().is_empty());
    // The last byte of a session says that it has ended: prune does not wait for it.
    let sessions = std::fs::read_dir(desk.place.path("repository/sessions")).unwrap();
    let ends: Vec<u8> = sessions.map(|entry| *std::fs::read(entry.unwrap().path()).unwrap().last().unwrap()).collect();
    assert_eq!(ends, [1]);
    // As `nohup` starts it, it goes on.
    let (mut child, stream) = begun("trap '' HUP");
    drop(stream);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(desk.snapshots().len(), 1);
}

#[test]
fn words_that_cannot_be_written_end_no_backup() {
    let desk = Desk::new("commands-wordless");
    desk.run(0, &["init"]);
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = desk.command(&["run", &desk.files, "--progress", "--json"]).stderr(full).output().unwrap();
    assert_eq!(code(&output, 0)["snapshot"], desk.snapshots()[0]["snapshot"]);
}

#[test]
fn a_tree_of_many_directories_needs_few_open_files() {
    let desk = Desk::new("commands-descriptors");
    desk.run(0, &["init"]);
    for number in 0..1200 {
        let folder = desk.place.path(&format!("files/many/{number}"));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(format!("{folder}/file"), format!("{number} words ").repeat(1500)).unwrap();
    }
    // Compressing takes longer than walking. Most systems let a process have 1024 open files.
    let run = desk.command(&["run", &desk.files, "--compression", "19", "--json"]);
    let output = behind("ulimit -n 700", &run).output().unwrap();
    assert_eq!(code(&output, 0)["files"], 1203);
}

#[test]
fn a_server_that_is_silent_is_named_while_it_is_waited_for() {
    let desk = Desk::new("commands-silent");
    // The kernel accepts connections, and no answer comes.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let place = format!("s3+http://{}/bucket", silent.local_addr().unwrap());
    let mut command = desk.command(&["snapshots"]);
    command.env("STELE_BACKUP_REPOSITORY", &place);
    command.env("AWS_ACCESS_KEY_ID", "key").env("AWS_SECRET_ACCESS_KEY", "secret");
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
    let line = said.next().unwrap().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(line.starts_with(&format!("stele: waiting for an answer of {place} to a GET, for ")), "{line}");
}

#[test]
fn an_error_in_a_policy_or_a_schedule_is_one_line_with_its_place() {
    let desk = Desk::new("commands-toml");
    let policy = desk.write("policy.toml", "least_days = 9\n[[class]]\nname = 'a'\nversion = 3\n");
    desk.says(2, &["policy.toml: line 4, column 1 (`version = 3`): unknown field"], &["policy", &policy]);
    desk.run(0, &["init"]);
    let schedules = desk.write("schedules.toml", "[[schedule]]\nname = 'a'\nevery = 5\n");
    desk.says(2, &["schedules.toml: line 3, column 9 (`every = 5`): invalid type"], &["report", &schedules]);
}

/// A schedule of one slot that no test outlives.
fn schedule(name: &str, path: &str, more: &str) -> String {
    format!("[[schedule]]\nname = \"{name}\"\nevery = \"52w\"\nlate_after = \"51w\"\npaths = [\"{path}\"]\n{more}\n")
}

#[test]
fn schedules_run_once_a_slot_and_the_report_tells() {
    let desk = Desk::new("commands-schedule");
    desk.run(0, &["init"]);
    let good = schedule("good", &desk.files, "");
    let file = desk.write("schedules.toml", &good);
    let state = |expected: i32| {
        let report = desk.run(expected, &["report", &file, "--json"]);
        let states = report.as_array().unwrap().iter().map(|is| is["state"].as_str().unwrap().to_owned());
        (states.collect::<Vec<String>>().join(" "), report)
    };
    assert_eq!(state(3).0, "never");
    let saved = desk.run(0, &["schedule", &file, "--once", "--json"]);
    assert_eq!(desk.snapshots()[0]["snapshot"], saved["snapshot"]);
    let (states, report) = state(0);
    assert_eq!((states.as_str(), &report[0]["exit_code"]), ("good", &0.into()), "{report}");
    // The slot has its backup.
    assert_eq!(desk.run(0, &["schedule", &file, "--once", "--json"]), Value::Null);
    assert_eq!(desk.snapshots().len(), 1);
    // Another machine that never reports, and one here that fails.
    let other = schedule("other", "/home", "host = \"elsewhere\"");
    let failing = schedule("failing", &desk.place.path("files/1"), "options = [\"--before\", \"exit 9\"]");
    desk.write("schedules.toml", &format!("{good}{other}{failing}"));
    desk.run(3, &["schedule", &file, "--once"]);
    let (states, report) = state(3);
    assert_eq!((states.as_str(), &report[2]["exit_code"]), ("good never failed", &1.into()), "{report}");
    desk.write("schedules.toml", "[[schedule]]\nname = \"x\"\n");
    desk.run(2, &["schedule", &file, "--once"]);
    desk.run(2, &["report", &file]);
    // Without --once too: the operator is there.
    desk.run(2, &["schedule", &file]);
    desk.write("schedules.toml", &schedule("good", &desk.files, "options = [\"--excluded\", \"x\"]"));
    desk.says(2, &["schedule 'good': `options`: unexpected argument '--excluded'"], &["schedule", &file]);
}

#[test]
fn a_schedule_that_hangs_holds_up_no_other_and_ends_with_the_scheduler() {
    let desk = Desk::new("commands-hung");
    desk.run(0, &["init"]);
    let noted = desk.place.path("after");
    // The hung one comes first.
    let options =
        format!("options = [\"--before\", \"sleep 1000; true\", \"--after\", \"echo $STELE_BACKUP_EXIT > {noted}\"]");
    let hung = schedule("hung", &desk.place.path("files/0"), &options);
    let file = desk.write("schedules.toml", &format!("{hung}{}", schedule("good", &desk.files, "")));
    let mut scheduler = desk.command(&["schedule", &file]).stdout(Stdio::null()).spawn().unwrap();
    let saved = wait_for("the good schedule", || desk.snapshots().first().cloned());
    assert_eq!(saved["paths"][0], desk.files.as_str());
    signal("-TERM", &scheduler);
    assert_eq!(scheduler.wait().unwrap().code(), Some(0));
    // It was ended, with the command that hung, and ran the other one.
    assert_eq!(std::fs::read_to_string(&noted).unwrap(), "130\n");
    let report = desk.run(3, &["report", &file, "--json"]);
    assert_eq!((&report[0]["state"], &report[0]["exit_code"]), (&"failed".into(), &130.into()), "{report}");
    assert_eq!((&report[1]["state"], &report[1]["exit_code"]), (&"good".into(), &0.into()), "{report}");
    assert_eq!(desk.snapshots().len(), 1);
}

#[test]
fn a_policy_is_shown_tried_and_applied() {
    let desk = Desk::new("commands-policy");
    desk.run(0, &["init"]);
    let policy = "least_days = 0\n[[class]]\nname = \"records\"\ninclude = [\"file 0\"]\n\
                  [[class]]\nname = \"all\"\nversions = 1\ndeleted_versions = 0\n";
    let file = desk.write("policy.toml", policy);
    let shown = desk.run(0, &["policy", &file, "--json"]);
    let names: Vec<&str> =
        shown["classes"].as_array().unwrap().iter().map(|class| class["class"].as_str().unwrap()).collect();
    assert_eq!((&shown["least_days"], names), (&0.into(), vec!["records", "all"]));
    let classes = desk.run(0, &["policy", &file, "/x/file 0", "/x/file 1", "--json"]);
    assert_eq!((&classes[0]["class"], &classes[1]["class"]), (&"records".into(), &"all".into()));
    // A file of the class `all` changes from one snapshot to the next; that of `records` never
    // does.
    let ids = [1, 2, 3].map(|round| {
        desk.write("files/1/file 1", &format!("round {round}"));
        desk.save(&[])
    });
    let removed = |more: &[&str]| {
        let judged = desk.run(0, &[&["forget", "--policy", &file, "--json"], more].concat());
        judged.as_array().unwrap().iter().filter(|is| is["removed"] == true).count()
    };
    assert_eq!(removed(&["--dry-run"]), 0);
    assert_eq!(desk.snapshots().len(), 3);
    let going = removed(&[]);
    let left = desk.snapshots();
    assert_eq!(left.len() + going, 3);
    assert!(going > 0, "versions of a class with one version go");
    assert!(left.iter().any(|is| is["snapshot"] == ids[2].as_str()), "the latest stays: {left:?}");
    desk.write("policy.toml", "least = 1\n");
    desk.run(2, &["policy", &file]);
    desk.run(2, &["forget", "--policy", &file]);
    assert_eq!(desk.snapshots().len(), left.len());
}

#[test]
fn a_stored_snapshot_can_be_locked_and_its_lock_prolonged() {
    let mut desk = Desk::new("commands-lock");
    desk.run(0, &["init"]);
    desk.save(&[]);
    desk.says(2, &["Object Lock"], &["lock", "latest", "--until", "30d"]);
    let server = desk.place.up();
    code(&desk.place.stele(&["bucket", "create", "vault", "--lock"]), 0);
    let key = |access: &str| {
        let key = desk.place.json(&["key", "create", "--name", "agent", "--bucket", "vault", "--access", access]);
        let text = |name: &str| key[name].as_str().unwrap().to_owned();
        Some((text("access_key"), text("secret_key")))
    };
    let (agent, less, owner) = (key("read,write,list,retain"), key("read,write,list"), Some(server.keys()));
    desk.repository = format!("s3+http://{}/vault/laptop", server.address);
    desk.keys = agent.clone();
    desk.run(0, &["init"]);
    let id = desk.save(&[]);
    desk.run(2, &["lock", &id, "--until", "none"]);
    desk.says(2, &["a lock until 2020-01-01", "would have ended"], &["lock", &id, "--until", "2020-01-01"]);
    desk.run(2, &["lock", &format!("{id}:/etc"), "--until", "30d"]);
    desk.run(4, &["lock", "ffff", "--until", "30d"]);
    desk.keys = less;
    desk.says(3, &["retain"], &["lock", &id, "--until", "30d"]);
    assert_eq!(desk.snapshots()[0]["locked_until"], Value::Null);
    desk.keys = agent;
    let locked = desk.run(0, &["lock", "latest", "--until", "30d", "--json"]);
    assert_eq!(
        (&locked["snapshot"], &desk.snapshots()[0]["locked_until"]),
        (&id.as_str().into(), &locked["locked_until"])
    );
    // A shorter one stays without effect, and the answer says so.
    let shorter = desk.run(0, &["lock", &id, "--until", "1d", "--json"]);
    assert_eq!(shorter["locked_until"], locked["locked_until"]);
    let longer = desk.run(0, &["lock", &id, "--until", "60d", "--json"]);
    assert!(longer["locked_until"].as_str() > locked["locked_until"].as_str(), "{longer}");
    // Neither the agent nor the owner removes it, or what it needs.
    desk.run(3, &["forget", &id]);
    desk.keys = owner;
    desk.run(3, &["forget", &id]);
    let versions = server.get("/vault?prefix=laptop%2F&versions=").text();
    let part =
        |part: &str, name: &str| part.split(&format!("<{name}>")).nth(1).unwrap().split('<').next().unwrap().to_owned();
    let mut kept = 0;
    for version in versions.split("<Version>").skip(1) {
        let (key, id) = (part(version, "Key"), part(version, "VersionId"));
        let needed = ["/segments/", "/snapshots/", "/keys/", "/repository"].iter().any(|name| key.contains(name));
        let status = server.delete(&format!("/vault/{key}?versionId={id}")).status;
        assert!(!needed || status == 403, "{key} was removed: {status}");
        kept += usize::from(needed);
    }
    assert!(kept >= 5, "{versions}");
    desk.run(0, &["restore", &id, "--to", &desk.place.path("restored"), "--verify"]);
    server.stop();
}

#[test]
fn an_exported_key_lets_in_who_lost_all_passwords() {
    let desk = Desk::new("commands-escrow");
    desk.run(0, &["init"]);
    let id = desk.save(&[]);
    let key = desk.place.path("escrow");
    desk.run(0, &["key", "export", "--to", &key]);
    let from = format!("{id}:{}", desk.files);
    desk.run(0, &["restore", &from, "--to", &desk.place.path("restored"), "--password-file", &key]);
    assert_eq!(std::fs::read(desk.place.path("restored/0/file 2")).unwrap(), content(2, 300_000));
    let new = desk.write("new", "battery staple\n");
    desk.run(12, &["snapshots", "--password-file", &new]);
    desk.run(0, &["key", "add", "--new-password-file", &new, "--password-file", &key]);
    desk.run(0, &["snapshots", "--password-file", &new]);
    // That of another repository opens nothing, and a slip of the pen is told.
    let mut other = Desk::new("commands-escrow-other");
    other.run(0, &["init"]);
    other.says(12, &["opens no key"], &["snapshots", "--password-file", &key]);
    other.repository.clone_from(&desk.repository);
    let slip = desk.write("slip", &format!("{}0\n", std::fs::read_to_string(&key).unwrap().trim()));
    other.says(2, &["digit by digit"], &["snapshots", "--password-file", &slip]);
    let junk = desk.place.path("junk");
    std::fs::write(&junk, [0xff, 0xfe]).unwrap();
    desk.says(2, &["this is no escrow"], &["key", "verify", &junk]);
}

#[test]
fn a_restore_that_finds_nothing_leaves_no_directory() {
    let desk = Desk::new("commands-typo");
    desk.run(0, &["init"]);
    desk.save(&[]);
    desk.run(4, &["restore", "latest:/typo", "--to", &desk.place.path("a/b")]);
    assert!(!std::fs::exists(desk.place.path("a")).unwrap());
}

#[test]
fn commands_beside_a_backup_leave_its_json_alone() {
    let desk = Desk::new("commands-hooks");
    desk.run(0, &["init"]);
    let hooks = ["--before", "echo frozen", "--after", "echo thawed"];
    let output = desk.command(&[&["run", &desk.files, "--json"], hooks.as_slice()].concat()).output().unwrap();
    assert!(code(&output, 0)["snapshot"].is_string(), "{}", text(&output.stdout));
    assert_eq!(text(&output.stdout).lines().count(), 1);
    assert_eq!(text(&output.stderr).lines().filter(|line| ["frozen", "thawed"].contains(line)).count(), 2);
    // A person reads both where they always were.
    let output = desk.command(&[&["run", &desk.files], hooks.as_slice()].concat()).output().unwrap();
    code(&output, 0);
    assert!(text(&output.stdout).starts_with("frozen\n") && text(&output.stdout).ends_with("thawed\n"));
}

#[test]
fn find_goes_on_behind_a_snapshot_that_is_lost() {
    let desk = Desk::new("commands-find");
    desk.run(0, &["init"]);
    let lost = desk.save(&["--host", "a"]);
    let segments = desk.segments();
    // Another tree, in a segment of its own.
    desk.write("files/1/file 1", "changed");
    let good = desk.save(&["--host", "b"]);
    segments.iter().for_each(|path| damage(path, 60));
    let output = desk.command(&["find", "file 1"]).output().unwrap();
    code(&output, 5);
    let (found, said) = (text(&output.stdout), text(&output.stderr));
    assert!(found.lines().count() == 1 && found.starts_with(&good[..8]), "{found}");
    assert!(said.contains(&format!("snapshot {}: a part of the tree is lost", &lost[..8])), "{said}");
    // A host that is nowhere is the same mistake as in `ls`.
    desk.says(4, &["nohost"], &["ls", "latest", "--host", "nohost"]);
    desk.says(4, &["nohost"], &["find", "file 1", "--host", "nohost"]);
    desk.run(0, &["find", "file 1", "--host", "b"]);
    damage(&desk.place.path(&format!("repository/snapshots/{lost}")).into(), 60);
    desk.says(5, &[&lost[..8]], &["find", "file 1", "--host", "b"]);
}
