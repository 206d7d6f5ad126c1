//! Proof that people may trust a bucket. Several clients store, read and delete versions over S3,
//! and the server is killed while they wait for answers. In some rounds a drive is away, or the
//! next start is killed too. What was answered is there afterwards, with its retention; what was
//! under way took place or did not.
//!
//! Here the proof runs for some seconds; `./x soak --objects SECONDS` runs it for the given time
//! (`STELE_OBJECTS_SECONDS`), from the seed in `STELE_OBJECTS_SEED`.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use stele_ground::Dice;

use crate::files_proof::storm::OPENING;
use crate::files_proof::{kill_among, number};
use crate::support::http::{Answer, Ask, between};
use crate::support::{Away, Place, Server, content};

const BUCKET: &str = "records";
const WORKERS: u64 = 4;
const KEYS: u64 = 5;
/// Versions of a worker that are not retained, at most.
const VERSIONS_MAX: usize = 16;
/// Longer than any run.
const UNTIL: &str = "2090-01-01T00:00:00Z";

/// The server went away before it answered.
struct Gone;

struct Version {
    key: String,
    content: Vec<u8>,
    retained: bool,
}

/// A change that waits for its answer.
enum Pending {
    Nothing,
    Store(Version),
    Delete(String),
    Retain(String),
}

struct Worker {
    number: u64,
    /// By version id.
    versions: BTreeMap<String, Version>,
    /// What a key holds now: a version, or none. A key that is absent here is not known.
    current: BTreeMap<String, Option<String>>,
    pending: Pending,
    dice: Dice,
    /// The store had no room.
    refused: u64,
}

fn answered(answer: Answer) -> Result<Answer, Gone> {
    let promised = answer.header("content-length").map_or(0, |text| text.parse().unwrap_or(0));
    match answer.status == 0 || answer.closed && answer.body.len() < promised {
        true => Err(Gone),
        false => Ok(answer),
    }
}

impl Worker {
    fn key(&mut self) -> String {
        format!("w{}/{}", self.number, self.dice.below(KEYS))
    }

    fn one_of(&mut self, retained: bool) -> Option<String> {
        let ids = self.versions.iter().filter(|(_, version)| version.retained == retained);
        let ids: Vec<String> = ids.map(|(id, _)| id.clone()).collect();
        self.dice.pick(&ids).cloned()
    }

    fn target(&self, id: &str) -> String {
        format!("/{BUCKET}/{}?versionId={id}", self.versions[id].key)
    }

    fn act(&mut self, server: &Server) -> Result<(), Gone> {
        let loose = self.versions.values().filter(|version| !version.retained).count();
        match self.dice.below(20) {
            _ if loose >= VERSIONS_MAX => self.delete(server),
            0..=6 => self.store(server),
            7 => self.store_in_parts(server),
            8..=9 => self.mark(server),
            10..=12 => self.delete(server),
            13 => self.retain(server),
            14 => self.delete_retained(server),
            15..=16 => self.read_current(server),
            _ => {
                let retained = self.dice.one_in(4);
                self.one_of(retained).map_or(Ok(()), |id| self.read(server, &id))
            }
        }
    }

    fn length(&mut self) -> u64 {
        let most = match self.dice.below(10) {
            0 => 1_500_000,
            1..=3 => 100_000,
            _ => 2_000,
        };
        self.dice.below(most)
    }

    /// The request that creates a version was answered.
    fn stored(&mut self, answer: &Answer) {
        let Pending::Store(version) = std::mem::replace(&mut self.pending, Pending::Nothing) else {
            panic!("nothing was being stored")
        };
        match answer.status {
            200 => {
                let id = answer.header("x-amz-version-id").expect("the bucket has versions");
                self.current.insert(version.key.clone(), Some(id.clone()));
                self.versions.insert(id, version);
            }
            // Deletions have to make room first.
            503 | 507 => self.refused += 1,
            _ => panic!("{}\n{}", answer.head, answer.text()),
        }
    }

    fn store(&mut self, server: &Server) -> Result<(), Gone> {
        let retained = self.dice.one_in(6);
        let length = if retained { self.dice.below(2_000) } else { self.length() };
        let (key, content) = (self.key(), content(self.dice.roll(), length as usize));
        let mut ask = server.ask("PUT", &format!("/{BUCKET}/{key}")).body(content.clone());
        if retained {
            ask = locked(ask);
        }
        self.pending = Pending::Store(Version { key, content, retained });
        let answer = answered(server.send(ask))?;
        self.stored(&answer);
        Ok(())
    }

    fn store_in_parts(&mut self, server: &Server) -> Result<(), Gone> {
        let length = self.length();
        let (key, content) = (self.key(), content(self.dice.roll(), length as usize));
        let created = answered(server.send(server.ask("POST", &format!("/{BUCKET}/{key}?uploads="))))?;
        let Some(upload) = between(&created.text(), "<UploadId>", "</UploadId>") else {
            assert!(matches!(created.status, 503 | 507), "{}", created.text());
            return Ok(());
        };
        let part = format!("/{BUCKET}/{key}?partNumber=1&uploadId={upload}");
        let put = answered(server.send(server.ask("PUT", &part).body(content.clone())))?;
        let Some(etag) = put.header("etag").filter(|_| put.status == 200) else {
            assert!(matches!(put.status, 503 | 507), "{}", put.text());
            return Ok(());
        };
        let parts = format!("<Part><PartNumber>1</PartNumber><ETag>{etag}</ETag></Part>");
        let complete = format!("<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>");
        let ask = server.ask("POST", &format!("/{BUCKET}/{key}?uploadId={upload}")).body(complete);
        self.pending = Pending::Store(Version { key, content, retained: false });
        let answer = answered(server.send(ask))?;
        self.stored(&answer);
        Ok(())
    }

    /// A deletion without a version: a marker hides the key.
    fn mark(&mut self, server: &Server) -> Result<(), Gone> {
        let key = self.key();
        self.current.remove(&key);
        let answer = answered(server.delete(&format!("/{BUCKET}/{key}")))?;
        match answer.status {
            204 => drop(self.current.insert(key, None)),
            status => assert!(matches!(status, 503 | 507), "{}", answer.text()),
        }
        Ok(())
    }

    fn delete(&mut self, server: &Server) -> Result<(), Gone> {
        let Some(id) = self.one_of(false) else { return Ok(()) };
        let target = self.target(&id);
        self.current.remove(&self.versions[&id].key);
        self.pending = Pending::Delete(id.clone());
        let answer = answered(server.delete(&target))?;
        self.pending = Pending::Nothing;
        assert_eq!(answer.status, 204, "{}", answer.text());
        self.versions.remove(&id);
        let again = answered(server.get(&target))?;
        assert_eq!(again.status, 404, "a deleted version is read");
        Ok(())
    }

    fn retain(&mut self, server: &Server) -> Result<(), Gone> {
        let Some(id) = self.one_of(false) else { return Ok(()) };
        if self.versions[&id].content.len() > 2_000 {
            return Ok(());
        }
        let target = self.target(&id).replace("?versionId", "?retention=&versionId");
        let body = format!("<Retention><Mode>COMPLIANCE</Mode><RetainUntilDate>{UNTIL}</RetainUntilDate></Retention>");
        let md5 = crate::support::md5_base64(body.as_bytes());
        let ask = server.ask("PUT", &target).header("content-md5", &md5).body(body);
        self.pending = Pending::Retain(id.clone());
        let answer = answered(server.send(ask))?;
        self.pending = Pending::Nothing;
        match answer.status {
            200 => self.versions.get_mut(&id).expect("a known version").retained = true,
            status => assert!(matches!(status, 503 | 507), "{}", answer.text()),
        }
        Ok(())
    }

    fn delete_retained(&mut self, server: &Server) -> Result<(), Gone> {
        let Some(id) = self.one_of(true) else { return Ok(()) };
        let ask = server.ask("DELETE", &self.target(&id)).header("x-amz-bypass-governance-retention", "true");
        let answer = answered(server.send(ask))?;
        assert_eq!(answer.status, 403, "a retained version was deleted: {}", answer.text());
        Ok(())
    }

    fn read(&self, server: &Server, id: &str) -> Result<(), Gone> {
        let answer = answered(server.get(&self.target(id)))?;
        assert_eq!(answer.status, 200, "{}: {}", self.target(id), answer.text());
        assert!(answer.body == self.versions[id].content, "{} differs", self.target(id));
        Ok(())
    }

    fn read_current(&mut self, server: &Server) -> Result<(), Gone> {
        let key = self.key();
        let Some(current) = self.current.get(&key) else { return Ok(()) };
        let answer = answered(server.get(&format!("/{BUCKET}/{key}")))?;
        match current {
            None => assert_eq!(answer.status, 404, "{key} is deleted"),
            Some(id) => {
                assert_eq!(answer.header("x-amz-version-id").as_deref(), Some(&id[..]), "the version of {key}");
                assert!(answer.body == self.versions[id].content, "{key} differs");
            }
        }
        Ok(())
    }

    /// Acts until the server is killed. How many acts were answered counts in `done`.
    fn run(&mut self, server: &Server, done: &AtomicU64, killed: &AtomicBool) {
        while self.act(server).is_ok() {
            done.fetch_add(1, Ordering::Relaxed);
        }
        assert!(killed.load(Ordering::Acquire), "the server went away by itself");
    }

    /// After a kill: what was answered is there. The worker goes on with what it finds.
    fn check(&mut self, server: &Server) {
        let listed = self.listed(server);
        let pending = std::mem::replace(&mut self.pending, Pending::Nothing);
        if let Pending::Delete(id) = &pending
            && !listed.contains_key(id)
        {
            self.versions.remove(id);
        }
        for (id, version) in &self.versions {
            assert!(listed.contains_key(id), "version {id} of {} is gone", version.key);
        }
        let mut new: Vec<&String> = listed.keys().filter(|id| !self.versions.contains_key(*id)).collect();
        match pending {
            Pending::Store(version) => {
                if let Some(id) = new.pop() {
                    assert_eq!(listed[id], version.key, "the key of the version under way");
                    self.versions.insert(id.clone(), version);
                }
            }
            Pending::Retain(id) => {
                let target = self.target(&id).replace("?versionId", "?retention=&versionId");
                self.versions.get_mut(&id).expect("a known version").retained = server.get(&target).status == 200;
            }
            Pending::Nothing | Pending::Delete(_) => {}
        }
        assert!(new.is_empty(), "versions that were never stored: {new:?}");
        self.current.clear();
        for id in self.versions.keys() {
            assert!(self.read(server, id).is_ok());
        }
        assert!(self.delete_retained(server).is_ok());
    }

    /// The worker's versions as they are listed, with their keys.
    fn listed(&self, server: &Server) -> BTreeMap<String, String> {
        let (mut listed, mut from) = (BTreeMap::new(), String::new());
        loop {
            let text = server.get(&format!("/{BUCKET}?prefix=w{}%2F&versions={from}", self.number)).text();
            for version in text.split("<Version>").skip(1) {
                let part = |name: &str| between(version, &format!("<{name}>"), "<").expect("a field");
                listed.insert(part("VersionId"), part("Key"));
            }
            let next = |name: &str| between(&text, &format!("<{name}>"), "<");
            match (next("NextKeyMarker"), next("NextVersionIdMarker")) {
                (Some(key), Some(id)) => {
                    from = format!("&key-marker={}&version-id-marker={id}", key.replace('/', "%2F"));
                }
                _ => return listed,
            }
        }
    }
}

fn locked(ask: Ask) -> Ask {
    ask.header("x-amz-object-lock-mode", "COMPLIANCE").header("x-amz-object-lock-retain-until-date", UNTIL)
}

#[test]
fn a_kill_among_waiting_s3_clients_loses_nothing_that_was_answered() {
    let begun = Instant::now();
    let lasts = Duration::from_secs(number("STELE_OBJECTS_SECONDS").unwrap_or(0));
    let seed = number("STELE_OBJECTS_SEED").unwrap_or(1);
    let mut dice = Dice::new(seed);
    let place = Place::new("objects-proof");
    place.pool(5);
    let mut server = place.serve();
    let keys = server.keys();
    let create = server.ask("PUT", &format!("/{BUCKET}")).header("x-amz-bucket-object-lock-enabled", "true");
    assert_eq!(server.send(create).status, 200);
    let mut workers: Vec<Worker> = (0..WORKERS)
        .map(|number| Worker {
            number,
            versions: BTreeMap::new(),
            current: BTreeMap::new(),
            pending: Pending::Nothing,
            dice: dice.fork(),
            refused: 0,
        })
        .collect();
    let (mut round, mut away) = (0, Away::default());
    while round < 4 || begun.elapsed() < lasts || away.is_away() {
        let acts = 20 + dice.below(400);
        let work = |worker: &mut Worker, done: &_, killed: &_| worker.run(&server, done, killed);
        kill_among(&mut workers, acts, work, || server.kill_now());
        server.kill();
        away.turn(&place, round);
        if dice.one_in(3) {
            Server::kill_after(&place, &["serve"], Duration::from_millis(dice.below(OPENING)));
        }
        server = place.serve().with_keys(keys.clone());
        workers.iter_mut().for_each(|worker| worker.check(&server));
        away.settle(&place);
        round += 1;
        let versions: usize = workers.iter().map(|worker| worker.versions.len()).sum();
        let refused: u64 = workers.iter().map(|worker| worker.refused).sum();
        println!(
            "objects, round {round}: {acts} acts, {versions} versions, {refused} without room, {:.0} s",
            begun.elapsed().as_secs_f64()
        );
    }
    place.json(&["pool", "scrub", "--wait"]);
    assert!(place.json(&["audit", "verify"])["findings"].as_array().unwrap().is_empty());
    server.stop();
}
