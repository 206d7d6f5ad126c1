//! Proof that people may trust a share. Files change through NFS, a mount and S3 at once, while the
//! server is killed, a drive lies and another one is away. Every byte is compared with a model.
//! With caching off, each write is durable when it is answered.
//!
//! `storm.rs` kills the server while several clients wait for answers, one of them over SMB.
//!
//! Here the proofs run for some seconds; `./x soak --files SECONDS` runs them for the given time
//! (`STELE_FILES_SECONDS`), from the seed in `STELE_FILES_SEED`.

use std::collections::BTreeMap;
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::support::nfs::Client;
use crate::support::{Place, Server, content, installed, wait_for, wait_until_whole};
use smb::Smb;
use stele_ground::Dice;

mod smb;
pub mod storm;

const SHARE: &str = "proof";
const FILES_MAX: usize = 24;
const LENGTH_MAX: u64 = 3 << 20;
/// Acts between two faults.
const ACTS: u32 = 150;

pub fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// Lets all workers act at once, and calls `kill` when so many of their acts were answered, or one
/// of them failed. A worker counts its acts, and may be left without an answer once the flag says
/// that the server is killed.
pub fn kill_among<W: Send>(
    workers: &mut [W],
    acts: u64,
    work: impl Fn(&mut W, &AtomicU64, &AtomicBool) + Sync,
    kill: impl FnOnce(),
) {
    let (done, killed, failed) = (AtomicU64::new(0), AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for worker in workers {
            let (work, done, killed, failed) = (&work, &done, &killed, &failed);
            scope.spawn(move || {
                let _failing = Failing(failed);
                work(worker, done, killed);
            });
        }
        let enough = || done.load(Ordering::Relaxed) >= acts || failed.load(Ordering::Acquire);
        wait_for("the workers", || enough().then_some(()));
        killed.store(true, Ordering::Release);
        kill();
    });
}

/// Says that a worker failed, so that no one waits for it.
struct Failing<'a>(&'a AtomicBool);

impl Drop for Failing<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Ordering::Release);
        }
    }
}

/// What a file may hold: its content as it was durable last, and after each change since.
struct Known(Vec<Vec<u8>>);

impl Known {
    fn now(&self) -> &[u8] {
        self.0.last().expect("a file has content")
    }

    fn changed(&mut self, change: impl FnOnce(&mut Vec<u8>)) {
        let mut next = self.now().to_vec();
        change(&mut next);
        self.0.push(next);
    }

    fn is_durable(&mut self) {
        self.0.drain(..self.0.len() - 1);
    }

    /// After a kill each byte is one that the file had there since it was durable last.
    fn check_after_kill(&self, name: &str, found: &[u8]) {
        assert!(self.0.iter().any(|had| had.len() == found.len()), "{name} has {} bytes", found.len());
        self.check_bytes(name, found);
    }

    /// As `check_after_kill`, where a write was under way: it may have taken place in part.
    fn check_bytes(&self, name: &str, found: &[u8]) {
        let (shorter, longer) = (|had: &Vec<u8>| had.len() <= found.len(), |had: &Vec<u8>| had.len() >= found.len());
        let possible = self.0.iter().any(shorter) && self.0.iter().any(longer);
        assert!(possible, "{name} has {} bytes", found.len());
        for (at, byte) in found.iter().enumerate() {
            let had = self.0.iter().any(|content| content.get(at) == Some(byte));
            let hole = *byte == 0 && self.0.iter().any(|content| content.len() <= at);
            assert!(had || hole, "{name}: byte {at} was never written");
        }
    }
}

/// A server with the share, which can be killed and started again.
struct Served {
    place: Place,
    server: Option<Server>,
    keys: (String, String),
    /// A directory where the share is mounted, if this machine can.
    mount: Option<PathBuf>,
    /// If it was asked for, and this machine can.
    smb: Option<Smb>,
}

impl Served {
    fn new(name: &str, caching: &str, over_smb: bool) -> Served {
        let place = Place::new(&format!("files-proof-{name}"));
        place.pool(5);
        place.edit_config(|text| text.replace("[nfs]\n", "[nfs]\nlisten = \"127.0.0.1:0\"\n"));
        let smb = over_smb.then(|| Smb::prepare(&place)).flatten();
        let server = place.serve();
        let create = [
            "share",
            "create",
            SHARE,
            "--cache",
            "32MiB",
            "--archive-after",
            "1",
            "--caching",
            caching,
            "--squash",
            "none",
            "--mode",
            "0777",
        ];
        place.json(&create);
        let mount = installed(&["sh", "-c", "test $(id -u) = 0 && test -e /dev/fuse"]).then(|| {
            let directory = PathBuf::from(place.path("mounted"));
            std::fs::create_dir(&directory).unwrap();
            directory
        });
        let (keys, server) = (server.keys(), Some(server));
        let served = Served { place, server, keys, mount, smb };
        served.mount();
        served.smb.iter().for_each(Smb::enroll);
        served
    }

    fn mount(&self) {
        if let Some(directory) = &self.mount {
            self.place.json(&["share", "mount", SHARE, &directory.display().to_string()]);
        }
    }

    fn unmount(&self) {
        if let Some(directory) = &self.mount {
            self.place.json(&["share", "unmount", &directory.display().to_string()]);
        }
    }

    fn start(&mut self) {
        if let Some(directory) = &self.mount {
            // The mount of the killed server is dead.
            let _ = std::process::Command::new("umount").arg("-l").arg(directory).output();
        }
        self.server = Some(self.place.serve().with_keys(self.keys.clone()));
        self.mount();
        self.smb.iter().for_each(Smb::wait);
    }

    fn kill(&mut self) {
        self.server.take().expect("a server runs").kill();
    }

    /// A connection over NFS, and the handle of the share's root.
    fn connected(&self) -> (Client, Vec<u8>) {
        let status = self.place.json(&["share", "status", SHARE]);
        let mut client = Client::new(status["nfs_port"].as_u64().unwrap() as u16, 0);
        let root = client.mount(&format!("/{SHARE}"));
        (client, root)
    }
}

struct Proof {
    served: Served,
    client: Client,
    root: Vec<u8>,
    files: BTreeMap<String, Known>,
    dice: Dice,
    made: u64,
    /// The cache is off: a write needs no commit.
    durable: bool,
}

impl Proof {
    fn new(seed: u64, caching: &str) -> Proof {
        let served = Served::new(caching, caching, false);
        let (client, root) = served.connected();
        let (files, dice, durable) = (BTreeMap::new(), Dice::new(seed), caching == "off");
        Proof { served, client, root, files, dice, made: 0, durable }
    }

    fn start(&mut self) {
        self.served.start();
        (self.client, self.root) = self.served.connected();
    }

    fn kill(&mut self) {
        self.served.kill();
    }

    fn handle(&mut self, name: &str) -> Vec<u8> {
        self.client.lookup(&self.root, name).unwrap_or_else(|status| panic!("{name}: NFS status {status}"))
    }

    fn read(&mut self, name: &str) -> Vec<u8> {
        let handle = self.handle(name);
        self.client.read_all(&handle)
    }

    fn act(&mut self) {
        let names: Vec<String> = self.files.keys().cloned().collect();
        let picked = self.dice.pick(&names).cloned();
        match (self.dice.below(20), picked) {
            (0..=2, _) | (_, None) if self.files.len() < FILES_MAX => self.create(),
            (3..=9, Some(name)) => self.write(&name),
            (10..=11, Some(name)) => self.truncate(&name),
            (12, Some(name)) => self.rename(&name),
            (13, Some(name)) => self.remove(&name),
            (14..=15, Some(name)) => self.compare(&name),
            (16, Some(name)) => self.put(&name),
            (17, Some(name)) => self.get(&name),
            (_, Some(name)) => {
                let handle = self.handle(&name);
                self.client.commit(&handle).unwrap();
                self.known(&name).is_durable();
            }
            (_, None) => {}
        }
    }

    fn known(&mut self, name: &str) -> &mut Known {
        self.files.get_mut(name).expect("a known file")
    }

    fn path(&self, name: &str) -> Option<PathBuf> {
        self.served.mount.as_ref().map(|directory| directory.join(name))
    }

    fn create(&mut self) {
        self.made += 1;
        let name = format!("f{}", self.made);
        match (self.path(&name), self.dice.one_in(2)) {
            (Some(path), true) => drop(std::fs::File::create_new(path).unwrap()),
            _ => self.client.create(&self.root, &name).unwrap(),
        }
        self.files.insert(name, Known(vec![Vec::new()]));
    }

    fn write(&mut self, name: &str) {
        let offset = self.dice.below(LENGTH_MAX) & if self.dice.one_in(2) { !4095 } else { !0 };
        let most = if self.dice.one_in(4) { 300_000 } else { 20_000 };
        let length = 1 + self.dice.below(most);
        let data = content(self.dice.roll(), length as usize);
        let end = (offset + length) as usize;
        self.known(name).changed(|content| {
            content.resize(content.len().max(end), 0);
            content[offset as usize..end].copy_from_slice(&data);
        });
        match self.path(name) {
            Some(path) if self.dice.one_in(2) => {
                let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
                file.write_all_at(&data, offset).unwrap();
                if self.dice.one_in(3) {
                    file.sync_all().unwrap();
                    self.known(name).is_durable();
                }
            }
            _ => {
                let stable = self.dice.one_in(3);
                let handle = self.handle(name);
                self.client.write(&handle, offset, &data, stable).unwrap();
                if stable {
                    // Of earlier unstable writes it says nothing.
                    for earlier in &mut self.known(name).0 {
                        earlier.resize(earlier.len().max(end), 0);
                        earlier[offset as usize..end].copy_from_slice(&data);
                    }
                }
            }
        }
        if self.durable {
            self.known(name).is_durable();
        }
    }

    fn truncate(&mut self, name: &str) {
        let size = self.dice.below(LENGTH_MAX);
        match self.path(name) {
            Some(path) if self.dice.one_in(2) => {
                std::fs::OpenOptions::new().write(true).open(path).unwrap().set_len(size).unwrap();
            }
            _ => {
                let handle = self.handle(name);
                self.client.set_size(&handle, size).unwrap();
            }
        }
        let known = self.known(name);
        known.changed(|content| content.resize(size as usize, 0));
        known.is_durable();
    }

    fn rename(&mut self, name: &str) {
        self.made += 1;
        let to = format!("f{}", self.made);
        match (self.path(name), self.path(&to)) {
            (Some(from), Some(to)) if self.dice.one_in(2) => std::fs::rename(from, to).unwrap(),
            _ => self.client.rename(&self.root, name, &to).unwrap(),
        }
        let known = self.files.remove(name).expect("a known file");
        self.files.insert(to, known);
    }

    fn remove(&mut self, name: &str) {
        match self.path(name) {
            Some(path) if self.dice.one_in(2) => std::fs::remove_file(path).unwrap(),
            _ => self.client.remove(&self.root, name).unwrap(),
        }
        self.files.remove(name);
    }

    fn compare(&mut self, name: &str) {
        let found = match self.path(name) {
            Some(path) if self.dice.one_in(2) => std::fs::read(path).unwrap(),
            _ => self.read(name),
        };
        assert!(found == self.known(name).now(), "{name} differs");
    }

    fn put(&mut self, name: &str) {
        let length = self.dice.below(400_000);
        let data = content(self.dice.roll(), length as usize);
        let server = self.served.server.as_ref().expect("a server runs");
        // The kernel tells of the end of a writer after its close: until then S3 clients are to ask
        // again.
        let answer = wait_for("the file to be closed", || {
            let answer = server.send(server.ask("PUT", &format!("/{SHARE}/{name}")).body(data.as_slice()));
            (answer.status != 503).then_some(answer)
        });
        assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
        let known = self.known(name);
        known.0.push(data);
        known.is_durable();
    }

    fn get(&mut self, name: &str) {
        let answer = self.served.server.as_ref().expect("a server runs").get(&format!("/{SHARE}/{name}"));
        match answer.status {
            200 => assert!(answer.body == self.known(name).now(), "{name} differs over S3"),
            status => assert_eq!(status, 503, "{}", String::from_utf8_lossy(&answer.body)),
        }
    }

    /// Everything, after a kill: as NFS shows it, and again once it is archived.
    fn check(&mut self) {
        let mut listed = self.client.names(&self.root);
        listed.sort();
        let known: Vec<String> = self.files.keys().cloned().collect();
        assert_eq!(listed, known, "the names after a kill");
        for name in known {
            let found = self.read(&name);
            let known = self.known(&name);
            known.check_after_kill(&name, &found);
            *known = Known(vec![found]);
        }
    }

    /// A drive that gives other bytes without an error; a scrub finds them.
    fn damage(&mut self, drive: u64) {
        let path = self.served.place.path(&format!("d{drive}.img"));
        let mut file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
        file.seek(SeekFrom::Start(96 << 20)).unwrap();
        file.write_all(&content(drive, 2 << 20)).unwrap();
        drop(file);
        self.served.place.json(&["pool", "scrub", "--wait"]);
    }

    fn fault(&mut self, round: u64) {
        let drive = |proof: &Proof, number: u64| proof.served.place.path(&format!("d{number}.img"));
        match round % 3 {
            0 => {
                self.kill();
                self.start();
            }
            1 => {
                let (there, away) = (drive(self, round % 5), self.served.place.path("away.img"));
                self.kill();
                std::fs::rename(&there, &away).unwrap();
                self.start();
                self.check();
                for _ in 0..ACTS / 3 {
                    self.act();
                }
                self.kill();
                std::fs::rename(&away, &there).unwrap();
                self.start();
            }
            _ => {
                self.damage(round % 5);
                self.kill();
                self.start();
            }
        }
        self.check();
        wait_until_whole(&self.served.place);
    }
}

#[test]
fn what_was_answered_is_read_through_every_protocol_while_drives_fail_and_the_server_is_killed() {
    prove("on");
}

#[test]
fn with_caching_off_nothing_answered_is_lost_while_drives_fail_and_the_server_is_killed() {
    prove("off");
}

fn prove(caching: &str) {
    let begun = Instant::now();
    let lasts = Duration::from_secs(number("STELE_FILES_SECONDS").unwrap_or(0));
    let seed = number("STELE_FILES_SEED").unwrap_or(1);
    println!("seed {seed}, caching {caching}");
    let mut proof = Proof::new(seed, caching);
    let mut round = 0;
    // Each kind of fault at least once.
    while round < 3 || begun.elapsed() < lasts {
        for _ in 0..ACTS {
            proof.act();
        }
        proof.fault(round);
        round += 1;
        println!(
            "caching {caching}, round {round}: {} files, {:.0} s",
            proof.files.len(),
            begun.elapsed().as_secs_f64()
        );
    }
    wait_for("the archive to have every file", || {
        (proof.served.place.json(&["share", "status", SHARE])["status"]["open_files"] == 0).then_some(())
    });
    for name in proof.files.keys().cloned().collect::<Vec<_>>() {
        proof.compare(&name);
        let answer = proof.served.server.as_ref().unwrap().get(&format!("/{SHARE}/{name}"));
        assert_eq!(answer.status, 200, "{name}");
        assert!(answer.body == proof.known(&name).now(), "{name} differs over S3");
    }
    assert!(proof.served.place.json(&["audit", "verify"])["findings"].as_array().unwrap().is_empty());
    proof.served.unmount();
    proof.served.server.take().unwrap().stop();
}
