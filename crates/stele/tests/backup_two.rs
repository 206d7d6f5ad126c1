//! Two processes on one store: two agents write one repository at the same time, beside prunes. One
//! of them is killed; the server is killed under both, and a second one takes its pool over.
//!
//! The repository has segments of 1 MiB, so that each backup stores many, and a kill falls between
//! them.

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::support::{Place, Server, content, installed, wait_for};
use serde_json::Value;
use stele_backup::chunker::Lengths;
use stele_backup::keyring::Cost;
use stele_backup::repository::{Making, Repository, Surroundings};
use stele_backup::store::directory::Directory;

const PASSWORD: &str = "correct horse";
/// Files of each tree, and of both: what one agent stored the other one uses.
const OWN_FILES: u64 = 24;
const COMMON_FILES: u64 = 8;
const FILE: usize = 2 << 20;

struct Fixed(AtomicU64);

impl Surroundings for Fixed {
    fn entropy(&self, into: &mut [u8]) {
        let bytes = content(self.0.fetch_add(1, Ordering::Relaxed) + 77, into.len());
        into.copy_from_slice(&bytes);
    }

    fn elapsed(&self) -> u64 {
        0
    }

    fn instant(&self) -> u64 {
        0
    }
}

/// A place with two trees, a password, and an empty repository of small segments in its directory
/// `repository`.
fn prepared(name: &str) -> Place {
    let place = Place::new(name);
    std::fs::write(place.path("password"), PASSWORD).unwrap();
    for (tree, first) in [("one", 1000), ("two", 2000)] {
        std::fs::create_dir_all(place.path(tree)).unwrap();
        let own = (0..OWN_FILES).map(|number| (format!("own-{number:02}"), first + number));
        let common = (0..COMMON_FILES).map(|number| (format!("shared-{number:02}"), number));
        for (name, seed) in own.chain(common) {
            std::fs::write(format!("{}/{name}", place.path(tree)), content(seed, FILE)).unwrap();
        }
    }
    let surroundings = Arc::new(Fixed(AtomicU64::new(0)));
    let store = Arc::new(Directory::new(Path::new(&place.path("repository")), surroundings.clone()));
    let making = Making {
        lengths: Lengths { min: 64 << 10, average: 256 << 10, max: 1 << 20 },
        segment_bytes: 1 << 20,
        cost: Cost::LEAST,
        ..Making::default()
    };
    Repository::make(store, surroundings, PASSWORD.as_bytes(), "first", making).unwrap();
    place
}

/// The repository and who reaches it.
struct Store<'p> {
    place: &'p Place,
    repository: String,
    keys: Option<(String, String)>,
}

impl Store<'_> {
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.place.command(&[&["backup"], arguments].concat());
        command.env("STELE_BACKUP_REPOSITORY", &self.repository);
        command.env("STELE_BACKUP_PASSWORD_FILE", self.place.path("password"));
        command.env("XDG_CACHE_HOME", self.place.path("cache"));
        if let Some((access, secret)) = &self.keys {
            command.env("AWS_ACCESS_KEY_ID", access).env("AWS_SECRET_ACCESS_KEY", secret);
        }
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// The only line of a command that succeeds.
    #[track_caller]
    fn good(&self, arguments: &[&str]) -> Value {
        answer(&self.run(&[arguments, &["--json"]].concat()))
    }

    /// An agent that saves a tree as the host of that name.
    fn agent(&self, tree: &str) -> Agent {
        let path = self.place.path(tree);
        let mut command = self.command(&["run", &path, "--host", tree, "--json"]);
        Agent(Some(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()))
    }

    /// Segments that are stored.
    fn segments(&self) -> u64 {
        let report = self.run(&["prune", "--dry-run", "--json"]);
        answer(&report)["segments"].as_u64().unwrap()
    }
}

#[track_caller]
fn answer(output: &Output) -> Value {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{:?}\n{}\n{}", output.status, text(&output.stdout), text(&output.stderr));
    text(&output.stdout).lines().next().map_or(Value::Null, |line| serde_json::from_str(line).unwrap_or(Value::Null))
}

/// A running agent, which ends with its test.
struct Agent(Option<Child>);

impl Agent {
    fn signal(&self, name: &str) {
        let id = self.0.as_ref().unwrap().id().to_string();
        assert!(Command::new("kill").args([name, &id]).status().unwrap().success());
    }

    fn is_running(&mut self) -> bool {
        self.0.as_mut().unwrap().try_wait().unwrap().is_none()
    }

    #[track_caller]
    fn end(mut self) -> Value {
        answer(&self.0.take().unwrap().wait_with_output().unwrap())
    }

    fn kill(mut self) {
        let mut child = self.0.take().unwrap();
        child.kill().unwrap();
        assert!(!child.wait().unwrap().success(), "it was killed before its end");
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Prunes one after another until told to end.
struct Prunes<'s> {
    end: &'s AtomicBool,
}

impl Drop for Prunes<'_> {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
    }
}

/// Nothing that rsync would bring over differs.
fn same(first: &str, second: &str) {
    if !installed(&["rsync", "--version"]) {
        return;
    }
    let options = ["-an", "--checksum", "--delete", "--itemize-changes"];
    let output =
        Command::new("rsync").args(options).args([format!("{first}/"), format!("{second}/")]).output().unwrap();
    assert!(output.status.success() && output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stdout));
}

/// Both trees come back, and a check of every byte finds no fault.
fn whole(store: &Store<'_>, turn: &str) {
    let checked = store.good(&["verify", "--data"]);
    assert_eq!((&checked["damaged"], &checked["lost_files"]), (&Value::Array(Vec::new()), &0.into()), "{checked}");
    for tree in ["one", "two"] {
        let (from, to) = (store.place.path(tree), store.place.path(&format!("restored-{turn}-{tree}")));
        store.good(&["restore", &format!("latest:{from}"), "--host", tree, "--to", &to, "--verify"]);
        same(&from, &to);
    }
}

/// Runs both agents beside prunes. When some segments are stored both stand still, and `meanwhile`
/// happens. Then the second one is killed and repeated, and the first one goes on.
fn both_agents(store: &Store<'_>, meanwhile: impl FnOnce() + Send) {
    let end = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _prunes = Prunes { end: &end };
        let (mut one, mut two) = (store.agent("one"), store.agent("two"));
        // They run for moments only, so that neither ends while the segments are counted.
        wait_for("segments of both agents", || {
            for agent in [&one, &two] {
                agent.signal("-STOP");
            }
            let is_enough = store.segments() >= 6;
            if is_enough {
                return Some(());
            }
            for agent in [&one, &two] {
                agent.signal("-CONT");
            }
            None
        });
        assert!(one.is_running() && two.is_running(), "both are in the middle");
        meanwhile();
        let prunes = scope.spawn(|| {
            let mut count = 0;
            while !end.load(Ordering::Relaxed) {
                // The store may be about to come back.
                let pruned = store.run(&["prune", "--json"]);
                count += u64::from(pruned.status.success());
                assert!(matches!(pruned.status.code(), Some(0)), "{pruned:?}");
            }
            count
        });
        // While it stands still, so that it is in the middle for sure.
        two.kill();
        one.signal("-CONT");
        let saved = one.end();
        assert_eq!(saved["problems"], 0, "{saved}");
        let again = store.agent("two").end();
        assert_eq!((&again["problems"], &again["files"]), (&0.into(), &(OWN_FILES + COMMON_FILES).into()), "{again}");
        end.store(true, Ordering::Relaxed);
        assert!(prunes.join().unwrap() > 0, "prunes ran beside");
    });
    whole(store, "first");
    // The session of the killed agent holds its segments for a day; no prune takes what a snapshot
    // needs.
    (0..3).for_each(|_| drop(store.good(&["prune"])));
    whole(store, "pruned");
    // Prunes condemn what is in no snapshot yet, and then it is stored again. Without them nothing
    // is stored twice.
    let tree = store.place.path("two");
    let again = store.good(&["run", &tree, "--host", "two", "--read-all"]);
    assert!(again["new_bytes"].as_u64() < Some(1 << 20), "{again}");
}

#[test]
fn two_agents_write_one_directory_beside_prunes_and_a_kill() {
    let place = prepared("backup-two-directory");
    let store = Store { place: &place, repository: place.path("repository"), keys: None };
    both_agents(&store, || {});
}

#[test]
fn a_second_server_takes_the_store_over_under_two_agents() {
    let place = prepared("backup-two-servers");
    let first = place.up();
    let (address, keys) = (first.address, first.keys());
    assert!(place.stele(&["bucket", "create", "backups"]).status.success());
    // The repository of small segments, as objects.
    for folder in ["", "keys/"] {
        for entry in std::fs::read_dir(format!("{}/{folder}", place.path("repository"))).unwrap().flatten() {
            if entry.metadata().unwrap().is_file() {
                let name = entry.file_name().into_string().unwrap();
                first.put(&format!("/backups/two/{folder}{name}"), &std::fs::read(entry.path()).unwrap());
            }
        }
    }
    // The second server will listen where the first one did.
    let listened = place.config();
    place.edit_config(|text| text.replace("127.0.0.1:0", &address.to_string()));
    assert_ne!(listened, place.config(), "the address is in the configuration");
    let store =
        Store { place: &place, repository: format!("s3+http://{address}/backups/two"), keys: Some(keys.clone()) };
    let mut second = None;
    both_agents(&store, || {
        // A pool has one process at a time.
        let refused = place.stele(&["serve"]);
        assert_eq!(refused.status.code(), Some(7), "{}", String::from_utf8_lossy(&refused.stderr));
        first.kill();
        let taken = Server::start(&place, &["serve"]).unwrap_or_else(|said| panic!("{said}"));
        assert_eq!(taken.address, address);
        second = Some(taken);
    });
    // Once more: the footers that a third server finds are those of all snapshots.
    second.unwrap().kill();
    let third = Server::start(&place, &["serve"]).unwrap_or_else(|said| panic!("{said}"));
    whole(&store, "third");
    third.stop();
}
