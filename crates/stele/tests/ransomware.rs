//! The ransomware drill of OPERATIONS.md. An intruder has root on the client: the agent's access
//! key, the repository's password, and any clock. The intruder tries everything; every locked
//! snapshot restores.

use std::process::{Command, Output, Stdio};
use std::time::{Duration, SystemTime};

use crate::support::http::{Ask, between};
use crate::support::{Place, Server, content, md5_base64};
use serde_json::Value;
use stele_backup::crypt::Keys;
use stele_backup::segment::{ChunkEntry, Footer, Prepared, SegmentWriter};

/// The policy of OPERATIONS.md: what a snapshot needs is never overwritten.
const POLICY: &str = r#"{"Version": "2012-10-17", "Statement": [{
  "Sid": "NoOverwrite", "Effect": "Deny", "Principal": "*", "Action": "s3:PutObject",
  "Resource": ["arn:aws:s3:::vault/*/segments/*", "arn:aws:s3:::vault/*/snapshots/*", "arn:aws:s3:::vault/*/keys/*",
    "arn:aws:s3:::vault/*/epochs/*", "arn:aws:s3:::vault/*/repository", "arn:aws:s3:::vault/*/defaults",
    "arn:aws:s3:::vault/segments/*", "arn:aws:s3:::vault/snapshots/*", "arn:aws:s3:::vault/keys/*",
    "arn:aws:s3:::vault/epochs/*", "arn:aws:s3:::vault/repository", "arn:aws:s3:::vault/defaults"],
  "Condition": {"StringNotEquals": {"s3:if-none-match": "*"}}}]}"#;

/// Snapshots of nothing that push out good ones; a test in the crate `stele-backup` does it with a
/// thousand.
const PUSHING: usize = 5;
/// Planted snapshots and keys. A repository has at most 64 keys.
const PLANTED: usize = 70;
const FILLING: usize = 8 << 20;
const DAY: u64 = 86_400;

type Key = (String, String);

struct Drill {
    place: Place,
    server: Server,
    agent: Key,
    owner: Key,
    repository: String,
}

/// A version of an object in the bucket.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Version {
    key: String,
    id: String,
}

impl Version {
    /// Whether a locked snapshot may need it.
    fn is_needed(&self) -> bool {
        ["/segments/", "/snapshots/", "/keys/", "/repository", "/defaults"].iter().any(|name| self.key.contains(name))
    }

    fn target(&self) -> String {
        format!("/vault/{}?versionId={}", self.key, self.id)
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[track_caller]
fn code(output: &Output, expected: i32) -> Value {
    let (said, errors) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(expected), "{said}\n{errors}");
    said.lines().next().map_or(Value::Null, |line| serde_json::from_str(line).unwrap_or(Value::Null))
}

fn same(first: &str, second: &str) {
    let diff = Command::new("diff").args(["-r", "--no-dereference", first, second]).output().unwrap();
    assert!(diff.status.success(), "{}", text(&diff.stdout));
}

impl Drill {
    /// A repository in a bucket with a lock, and two locked snapshots: their ids, with copies of
    /// what was saved.
    fn new(name: &str, policy: bool) -> (Drill, [(String, String); 2]) {
        let place = Place::new(name);
        std::fs::write(place.path("password"), "correct horse\n").unwrap();
        let server = place.up();
        code(&place.stele(&["bucket", "create", "vault", "--lock", "--quota", "48MiB"]), 0);
        let key = place.json(&[
            "key",
            "create",
            "--name",
            "laptop",
            "--bucket",
            "vault",
            "--access",
            "read,write,list,retain",
        ]);
        let part = |name: &str| key[name].as_str().unwrap().to_owned();
        let (agent, owner) = ((part("access_key"), part("secret_key")), server.keys());
        let repository = format!("s3+http://{}/vault/laptop", server.address);
        let drill = Drill { place, server, agent, owner, repository };
        if policy {
            drill.server.put("/vault?policy", POLICY.as_bytes());
        }
        code(&drill.backup(&drill.agent, &["init", "--keep-for", "30d"]), 0);
        let good = ["first", "second"].map(|copy| {
            for (number, length) in [0, 1, 5000, 300_000, 2_000_000].into_iter().enumerate() {
                let path = drill.place.path(&format!("files/{}/file {number}", number % 2));
                std::fs::create_dir_all(std::path::Path::new(&path).parent().unwrap()).unwrap();
                std::fs::write(path, content(number as u64 + copy.len() as u64, length)).unwrap();
            }
            let saved = code(&drill.backup(&drill.agent, &["run", &drill.place.path("files"), "--json"]), 0);
            assert!(saved["locked_until"].is_string(), "{saved}");
            let (files, copy) = (drill.place.path("files"), drill.place.path(copy));
            assert!(Command::new("cp").args(["-a", &files, &copy]).status().unwrap().success());
            (saved["snapshot"].as_str().unwrap().to_owned(), copy)
        });
        (drill, good)
    }

    fn backup_in(&self, repository: &str, key: &Key, arguments: &[&str]) -> Output {
        let mut command = self.place.command(&[&["backup"], arguments].concat());
        command.env("STELE_BACKUP_REPOSITORY", repository);
        command.env("STELE_BACKUP_PASSWORD_FILE", self.place.path("password"));
        command.env("XDG_CACHE_HOME", self.place.path("cache"));
        command.env("AWS_ACCESS_KEY_ID", &key.0).env("AWS_SECRET_ACCESS_KEY", &key.1);
        command.stdin(Stdio::null()).output().unwrap()
    }

    fn backup(&self, key: &Key, arguments: &[&str]) -> Output {
        self.backup_in(&self.repository, key, arguments)
    }

    /// A request of the intruder.
    fn ask(&self, method: &str, target: &str) -> Ask {
        self.server.ask(method, target).by(&self.agent)
    }

    /// The request is refused.
    #[track_caller]
    fn refused(&self, ask: Ask) {
        let answer = self.server.send(ask);
        assert!((400..500).contains(&answer.status), "{} {}", answer.head, answer.text());
    }

    fn versions(&self) -> Vec<Version> {
        self.versions_below("laptop%2F")
    }

    fn versions_below(&self, prefix: &str) -> Vec<Version> {
        let listed = self.server.get(&format!("/vault?prefix={prefix}&versions=")).text();
        assert!(listed.contains("<IsTruncated>false</IsTruncated>"), "{listed}");
        let part = |part: &str, name: &str| {
            part.split(&format!("<{name}>")).nth(1).unwrap().split('<').next().unwrap().to_owned()
        };
        let versions = listed.split("<Version>").skip(1);
        versions.map(|version| Version { key: part(version, "Key"), id: part(version, "VersionId") }).collect()
    }

    #[track_caller]
    fn restores(&self, repository: &str, key: &Key, good: &[(String, String)], turn: &str) {
        for (id, copy) in good {
            let to = self.place.path(&format!("restored-{turn}-{}", &id[..8]));
            let from = format!("{id}:{}", self.place.path("files"));
            code(&self.backup_in(repository, key, &["restore", &from, "--to", &to, "--verify"]), 0);
            same(copy, &to);
        }
    }

    /// Removals by the agent's own commands and by hand.
    fn removes(&self, good: &[(String, String)], needed: &[Version]) {
        for (id, _) in good {
            code(&self.backup(&self.agent, &["forget", id]), 3);
        }
        let _ = self.backup(&self.agent, &["forget", "--keep-tag", "nothing", "--remove-series"]);
        (0..3).for_each(|_| drop(self.backup(&self.agent, &["prune"])));
        for version in needed {
            self.refused(self.ask("DELETE", &version.target()));
            self.refused(self.ask("DELETE", &version.target()).header("x-amz-bypass-governance-retention", "true"));
            self.refused(self.ask("DELETE", &format!("/vault/{}", version.key)));
        }
        let objects: String = needed
            .iter()
            .map(|is| format!("<Object><Key>{}</Key><VersionId>{}</VersionId></Object>", is.key, is.id))
            .collect();
        let batch = format!("<Delete>{objects}</Delete>");
        let md5 = md5_base64(batch.as_bytes());
        let answer = self.server.send(self.ask("POST", "/vault?delete").header("content-md5", &md5).body(batch));
        assert!(!answer.text().contains("<Deleted>"), "{}", answer.text());
    }

    /// Every way to put another content over an object.
    fn overwrites(&self, needed: &[Version]) {
        for version in needed {
            let target = format!("/vault/{}", version.key);
            let put = || self.ask("PUT", &target).body("ransom");
            self.refused(put());
            self.refused(put().header("if-none-match", "*"));
            for etag in ["\"00\"", "", "**", "*, \"00\""] {
                self.refused(put().header("if-none-match", etag));
            }
            let copied = || self.ask("PUT", &target).header("x-amz-copy-source", "/vault/laptop/repository");
            self.refused(copied());
            self.refused(copied().header("if-none-match", "*").header("x-amz-metadata-directive", "REPLACE"));
            self.refused(self.ask("POST", &format!("{target}?uploads=")));
        }
    }

    /// Locks are not shortened, and the bucket is not changed.
    fn weakens(&self, needed: &[Version]) {
        let retention = |mode: &str, until: &str| {
            let until =
                if until.is_empty() { until.to_owned() } else { format!("<RetainUntilDate>{until}</RetainUntilDate>") };
            format!(
                "<Retention>{}{until}</Retention>",
                if mode.is_empty() { String::new() } else { format!("<Mode>{mode}</Mode>") }
            )
        };
        let soon = Ask::new(&self.server, "GET", "/").at(SystemTime::now() + Duration::from_secs(60)).stamp();
        let soon = format!(
            "{}-{}-{}T{}:{}:{}Z",
            &soon[..4],
            &soon[4..6],
            &soon[6..8],
            &soon[9..11],
            &soon[11..13],
            &soon[13..15]
        );
        for version in needed {
            let target = format!("{}&retention=", version.target());
            for body in
                [retention("COMPLIANCE", &soon), retention("GOVERNANCE", "2090-01-01T00:00:00Z"), retention("", "")]
            {
                let md5 = md5_base64(body.as_bytes());
                let ask = self.ask("PUT", &target).header("content-md5", &md5).body(body);
                self.refused(ask.header("x-amz-bypass-governance-retention", "true"));
            }
        }
        for (query, body) in [
            ("versioning", "<VersioningConfiguration><Status>Suspended</Status></VersioningConfiguration>"),
            ("object-lock", "<ObjectLockConfiguration></ObjectLockConfiguration>"),
            ("policy", r#"{"Version": "2012-10-17", "Statement": []}"#),
            (
                "lifecycle",
                "<LifecycleConfiguration><Rule><ID>a</ID><Status>Enabled</Status><Filter><Prefix></Prefix></Filter>\
                 <NoncurrentVersionExpiration><NoncurrentDays>1</NoncurrentDays></NoncurrentVersionExpiration></Rule>\
                 </LifecycleConfiguration>",
            ),
        ] {
            let md5 = md5_base64(body.as_bytes());
            self.refused(self.ask("PUT", &format!("/vault?{query}=")).header("content-md5", &md5).body(body));
        }
        self.refused(self.ask("DELETE", "/vault?policy="));
        self.refused(self.ask("DELETE", "/vault"));
        // Requests of a wrong clock are no requests.
        let now = SystemTime::now();
        for when in [now + Duration::from_secs(40 * DAY), now - Duration::from_secs(2 * DAY)] {
            self.refused(self.ask("DELETE", &needed[0].target()).at(when));
            self.refused(self.ask("PUT", "/vault/laptop/late").body("late").at(when));
        }
    }

    /// Objects under the names of a repository that are none. Returns their keys.
    fn plants(&self, needed: &[Version]) -> Vec<String> {
        let segment = needed.iter().find_map(|is| is.key.split("/segments/").nth(1)).unwrap();
        let damaged = segment.split('/').next_back().unwrap();
        let mut planted = vec![
            "laptop/epochs/ffffffffffffffff".to_owned(),
            format!("laptop/damaged/{damaged}"),
            "laptop/sessions/00000000000000000000000000000000".to_owned(),
        ];
        for number in 0..PLANTED {
            planted.push(format!("laptop/snapshots/{number:064x}"));
            planted.push(format!("laptop/keys/{number:016x}"));
        }
        for key in &planted {
            let length = match key.split('/').nth(1) {
                // Longer than any such object: no reader waits for all of it, or asks again.
                Some("damaged") => (1 << 20) + 1,
                Some("sessions") => 65,
                _ => 200,
            };
            self.plant(key, content(key.len() as u64, length));
        }
        planted
    }

    fn plant(&self, key: &str, bytes: Vec<u8>) {
        let ask = self.ask("PUT", &format!("/vault/{key}")).header("if-none-match", "*");
        let answer = self.server.send(ask.body(bytes));
        assert_eq!(answer.status, 200, "{key}: {}", answer.text());
    }

    /// Segments that claim the chunks of good ones and hold junk, and twins of the names of good
    /// ones. Returns the keys.
    fn plants_segments(&self, needed: &[Version]) -> Vec<String> {
        let mut planted = Vec::new();
        for version in needed.iter().filter(|version| version.key.contains("/segments/")) {
            let good = self.server.get(&version.target()).body;
            let footer = Footer::decode(&good).unwrap();
            let (junk, keys) = ([b'!'; 64], Keys::new([7; 32].into()));
            let mut writer = SegmentWriter::new(&keys, footer.kind, [good.len() as u8; 32], Vec::new());
            for ChunkEntry { id, length, .. } in footer.entries {
                writer.add(&Prepared { id, length, stored: &junk, compressed: true }).unwrap();
            }
            let full = writer.finish();
            let name = format!("{:?}", full.id);
            planted.push(format!("laptop/segments/{}/{name}", &name[..2]));
            self.plant(&planted[planted.len() - 1], full.bytes);
            let name = version.key.rsplit('/').next().unwrap();
            planted.push(format!("laptop/segments/{}/{name}", &name[..3]));
            self.plant(&planted[planted.len() - 1], [good, vec![0]].concat());
        }
        assert!(planted.len() >= 4);
        planted
    }

    /// Fills the bucket up to its quota. Returns the keys of what was stored.
    fn fills(&self) -> Vec<String> {
        let garbage = content(77, FILLING);
        let mut stored = Vec::new();
        for number in 0..64 {
            let key = format!("laptop/segments/00/{number:064x}");
            let ask = self.ask("PUT", &format!("/vault/{key}")).header("if-none-match", "*");
            match self.server.send(ask.body(garbage.clone())).status {
                200 => stored.push(key),
                _ => return stored,
            }
        }
        panic!("the quota let {} objects pass", stored.len());
    }

    /// Fills the bucket with parts that are never completed, until the quota refuses one. Returns
    /// the upload.
    fn fills_with_parts(&self) -> String {
        let target = "/vault/laptop/unfinished";
        let begun = self.server.send(self.ask("POST", &format!("{target}?uploads="))).text();
        let upload = between(&begun, "<UploadId>", "</UploadId>").unwrap();
        let garbage = content(78, FILLING);
        let parts = (1..=64).map(|number| {
            let ask = self.ask("PUT", &format!("{target}?partNumber={number}&uploadId={upload}"));
            self.server.send(ask.body(garbage.clone()))
        });
        let refused = parts.into_iter().find(|answer| answer.status != 200).expect("the quota lets every part pass");
        assert!(refused.status == 403 && refused.text().contains("QuotaExceeded"), "{}", refused.text());
        format!("{target}?uploadId={upload}")
    }
}

#[test]
fn every_locked_snapshot_outlasts_an_intruder() {
    let (drill, good) = Drill::new("ransomware", true);
    let needed: Vec<Version> = drill.versions().into_iter().filter(Version::is_needed).collect();
    assert!(needed.len() >= 7, "{needed:?}");
    let all_there = || {
        let now = drill.versions();
        let gone: Vec<&Version> = needed.iter().filter(|version| !now.contains(version)).collect();
        assert!(gone.is_empty(), "{gone:?}");
    };
    drill.removes(&good, &needed);
    drill.overwrites(&needed);
    drill.weakens(&needed);
    all_there();
    // Snapshots of an emptied directory, of the same host and paths, locked and not.
    let files = drill.place.path("files");
    std::fs::remove_dir_all(&files).unwrap();
    std::fs::create_dir(&files).unwrap();
    for number in 0..PUSHING {
        let lock = if number % 2 == 0 { "none" } else { "1d" };
        code(&drill.backup(&drill.agent, &["run", &files, "--keep-until", lock]), 0);
    }
    let mut planted = drill.plants(&needed);
    planted.extend(drill.plants_segments(&needed));
    let unfinished = drill.fills_with_parts();
    assert_eq!(drill.fills(), [""; 0], "the parts leave no room for an object");
    assert_eq!(drill.server.delete(&unfinished).status, 204);
    planted.extend(drill.fills());
    drill.restores(&drill.repository, &drill.agent, &good, "full");
    // A clean machine has no cache of footers.
    std::fs::remove_dir_all(drill.place.path("cache")).unwrap();
    drill.restores(&drill.repository, &drill.agent, &good, "clean");
    std::fs::write(drill.place.path("files/more"), content(5, 12 << 20)).unwrap();
    assert_ne!(drill.backup(&drill.agent, &["run", &files]).status.code(), Some(0));
    // The owner's rules pass over what is locked, whatever was pushed over it; planted objects stop
    // no restore.
    let _ = drill.backup(&drill.owner, &["forget", "--keep-last", "2"]);
    (0..3).for_each(|_| drop(drill.backup(&drill.owner, &["prune"])));
    all_there();
    drill.restores(&drill.repository, &drill.owner, &good, "pruned");
    // What was planted without a lock goes by the owner's hand, and backups go on.
    for version in drill.versions().iter().filter(|version| planted.contains(&version.key)) {
        assert_eq!(drill.server.delete(&version.target()).status, 204, "{version:?}");
    }
    code(&drill.backup(&drill.agent, &["run", &files]), 0);
    code(&drill.backup(&drill.owner, &["prune"]), 0);
    code(&drill.backup(&drill.owner, &["verify", "--data"]), 0);
    drill.restores(&drill.repository, &drill.agent, &good, "cleaned");
    drill.server.stop();
}

#[test]
fn the_policy_covers_a_repository_at_the_root_too() {
    let (drill, _) = Drill::new("ransomware-root", true);
    let root = format!("s3+http://{}/vault", drill.server.address);
    let (files, copy) = (drill.place.path("files"), drill.place.path("root"));
    code(&drill.backup_in(&root, &drill.agent, &["init", "--keep-for", "30d"]), 0);
    let saved = code(&drill.backup_in(&root, &drill.agent, &["run", &files, "--json"]), 0);
    code(&drill.backup_in(&root, &drill.owner, &["prune"]), 0);
    assert!(Command::new("cp").args(["-a", &files, &copy]).status().unwrap().success());
    let folders = ["segments/", "snapshots/", "keys/", "epochs/", "repository", "defaults"];
    let needed: Vec<Version> =
        folders.iter().flat_map(|folder| drill.versions_below(&folder.replace('/', "%2F"))).collect();
    assert!(folders.iter().all(|folder| needed.iter().any(|is| is.key.starts_with(folder))), "{needed:?}");
    drill.overwrites(&needed);
    let good = [(saved["snapshot"].as_str().unwrap().to_owned(), copy)];
    drill.restores(&root, &drill.agent, &good, "root");
    drill.server.stop();
    // The policy that an administrator copies is the one that was tried.
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../OPERATIONS.md")).unwrap();
    for resource in POLICY.split('"').filter(|part| part.starts_with("arn:")) {
        assert!(page.contains(&format!("\"{resource}\"")), "{resource}");
    }
}

#[test]
fn where_no_policy_refuses_overwriting_the_first_versions_restore() {
    let (drill, good) = Drill::new("ransomware-versions", false);
    let needed: Vec<Version> = drill.versions().into_iter().filter(Version::is_needed).collect();
    for version in &needed {
        let ask = drill.ask("PUT", &format!("/vault/{}", version.key)).body("ransom");
        let locked = ask.header("x-amz-object-lock-mode", "COMPLIANCE");
        let answer = drill.server.send(locked.header("x-amz-object-lock-retain-until-date", "2090-01-01T00:00:00Z"));
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    assert_ne!(drill.backup(&drill.agent, &["snapshots"]).status.code(), Some(0));
    // The first version of every object is a repository in a directory.
    let rescue = drill.place.path("rescue");
    for version in &needed {
        let path = format!("{rescue}/{}", version.key.strip_prefix("laptop/").unwrap());
        std::fs::create_dir_all(std::path::Path::new(&path).parent().unwrap()).unwrap();
        let answer = drill.server.get(&version.target());
        assert_eq!(answer.status, 200, "{version:?}");
        std::fs::write(path, answer.body).unwrap();
    }
    drill.restores(&rescue, &drill.owner, &good, "rescued");
    drill.server.stop();
}
