//! The campaign against a real process: a pool on file drives, and a process that works on it.
//! `kill -9` ends the process at a random moment, in the middle of opening, serving, destaging or
//! checkpointing. The oracle then checks the state that the next process finds. At times drives are
//! away for some kills and come back stale.
//!
//! A kill does not lose data that the kernel already has; the simulated world tries the losses of a
//! power cut. This campaign tries the parts that are not simulated: the reactor, the ring, the
//! files, and opening again after another process died.

mod journal;
mod worker;

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Process, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration as Wall, Instant as WallInstant};

use stele_array::server::{DrivePlace, NewDrives, PoolServer, ServerOptions};
use stele_array::{ArrayError, Command, CreateOptions, DigestUnit, DriveHealth, OpenOptions, PoolStatus, Reply};
use stele_array::{VolumeSpec, WriteMode};
use stele_ground::{Bytes, Dice, Duration, KIB, MIB, PoolId};
use stele_media::Space;

use crate::oracle::{Began, Oracle, Violation, WriteOutcome};
use journal::{Entry, Kind};
pub use worker::work;

const DRIVES: usize = 8;
const DRIVE_SIZE: Bytes = Bytes(64 * MIB);
const LOG: Bytes = Bytes(8 * MIB);
/// The unit that is written and checked as a whole.
const UNIT: u64 = 4 * KIB;
/// Name, code, size, mode.
const VOLUMES: [(&str, &str, u64, WriteMode); 3] = [
    ("triple", "mirror-3", MIB, WriteMode::WriteBack),
    ("coded", "4+2", 2 * MIB, WriteMode::WriteBack),
    ("through", "3+2", 3 * MIB / 2, WriteMode::WriteThrough),
];
/// Number of lost drives that every code here tolerates.
const TOLERATED: u64 = 2;
/// Time after which the silence of a working process, or a wait for redundancy, is a fault.
const PATIENCE: Wall = Wall::from_secs(60);

/// The signal of `kill -9`.
const KILLED: i32 = 9;

/// The totals of the campaign.
#[derive(Clone, Copy, Default, Debug)]
pub struct KillTally {
    pub kills: u64,
    /// Those of them that came before the pool was open.
    pub while_opening: u64,
    /// Writes that were answered, and below those under way when the process died.
    pub answered: u64,
    pub cut_off: u64,
    pub reads_checked: u64,
    pub looks: u64,
    pub drives_away: u64,
}

struct Campaign<'a> {
    directory: &'a Path,
    worker: &'a Path,
    dice: Dice,
    oracles: Vec<Oracle>,
    away: Vec<(PathBuf, u64)>,
    tally: KillTally,
}

/// Kills a process `kills` times. `worker` is a program that calls [`work`] when started with
/// `--worker DIRECTORY SEED FIRST-VALUE`. `progress` is called after each kill.
pub fn campaign(
    directory: &Path,
    worker: &Path,
    kills: u64,
    seed: u64,
    mut progress: impl FnMut(&KillTally),
) -> Result<KillTally, Violation> {
    let dice = Dice::new(seed);
    let oracles = VOLUMES.iter().map(|(name, _, size, _)| Oracle::new(*name, *size, UNIT as usize)).collect();
    let mut campaign = Campaign { directory, worker, dice, oracles, away: Vec::new(), tally: KillTally::default() };
    create_pool(directory).map_err(|error| Violation(format!("creating the pool: {error}")))?;
    while campaign.tally.kills < kills {
        let number = campaign.tally.kills;
        campaign.round().map_err(|violation| Violation(format!("kill {number}: {violation}")))?;
        progress(&campaign.tally);
    }
    campaign.end()?;
    Ok(campaign.tally)
}

fn drive(directory: &Path, number: usize) -> PathBuf {
    directory.join(format!("drive-{number}"))
}

fn places(directory: &Path) -> Vec<DrivePlace> {
    (0..DRIVES).map(|number| DrivePlace::new(drive(directory, number), number as u32 / 2)).collect()
}

fn server_options() -> ServerOptions {
    ServerOptions { alarms: Some(Box::new(|_| {})), ..ServerOptions::default() }
}

fn create_pool(directory: &Path) -> Result<(), ArrayError> {
    let create = CreateOptions {
        pool: PoolId([7; 16]),
        name: "kill".into(),
        drives: Vec::new(),
        seed: 7,
        log: Some(LOG),
        spare_drives: Some(TOLERATED as u32),
        created: 0,
        shard: Default::default(),
    };
    let new = NewDrives { size: DRIVE_SIZE, space: Space::Sparse };
    let server = PoolServer::create(&places(directory), Some(new), create, options(0), server_options())?;
    for (name, code, size, mode) in VOLUMES {
        server.command_blocking(Command::CreateVolume(VolumeSpec {
            name: name.into(),
            code: code.parse().map_err(|error| ArrayError::Invalid(format!("{code}: {error}")))?,
            size: Bytes(size),
            strip: Bytes(16 * KIB),
            block: Bytes(UNIT),
            digest: DigestUnit::Block,
            mode,
            fully_allocated: false,
            spread: false,
            owner: None,
        }))?;
    }
    server.close()
}

/// Small caches, so that destage and reads from drives happen; now and then a missing drive is
/// rebuilt at once.
fn options(seed: u64) -> OpenOptions {
    let rebuild_after = if seed.is_multiple_of(2) { Duration(0) } else { Duration::from_secs(3600) };
    OpenOptions { block_cache: Bytes(2 * MIB), dirty_limit: Bytes(MIB), seed, rebuild_after, ..OpenOptions::default() }
}

/// The kernel may still be ending the operations of a dead process: its drives become free a moment
/// later.
fn open_pool(directory: &Path, seed: u64) -> Result<PoolServer, ArrayError> {
    let begun = WallInstant::now();
    loop {
        match PoolServer::open(&places(directory), options(seed), server_options()) {
            Err(ArrayError::Busy(_)) if begun.elapsed() < Wall::from_secs(5) => {
                std::thread::sleep(Wall::from_millis(1));
            }
            outcome => return outcome,
        }
    }
}

fn status(server: &PoolServer) -> Result<PoolStatus, Violation> {
    match server.command_blocking(Command::Status) {
        Ok(Reply::Status(status)) => Ok(*status),
        other => Err(Violation(format!("status was answered with {other:?}"))),
    }
}

impl Campaign<'_> {
    fn round(&mut self) -> Result<(), Violation> {
        self.bring_back(self.tally.kills);
        self.kill_one()?;
        if self.dice.one_in(2) {
            self.look()?;
        }
        Ok(())
    }

    /// Starts a process, kills it at a random moment, and reads its records.
    fn kill_one(&mut self) -> Result<(), Violation> {
        let (seed, first_value) = (self.dice.roll() >> 1, (self.tally.kills + 1) * 1_000_000);
        let mut child = Process::new(self.worker)
            .arg("--worker")
            .arg(self.directory)
            .args([seed.to_string(), first_value.to_string()])
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| Violation(format!("{}: {error}", self.worker.display())))?;
        let entries = listen(&mut child);
        // One in four dies before, during or just after opening; the others after some of their
        // operations.
        let moment = self.dice.one_in(4).then(|| Wall::from_micros(self.dice.below(40_000)));
        let most = 1 << (3 + self.dice.below(9));
        let wanted = 1 + self.dice.below(most);
        let mut taken = Vec::new();
        match moment {
            Some(moment) => std::thread::sleep(moment),
            None => while_it_works(&entries, wanted, &mut taken)?,
        }
        // The process may have ended by itself.
        let _ = child.kill();
        let ended = child.wait().map_err(|error| Violation(format!("waiting for the process: {error}")))?;
        taken.extend(entries);
        self.tally.kills += 1;
        if taken.is_empty() {
            self.tally.while_opening += 1;
        }
        // Its last record gives the reason, if it could still write one.
        self.take_in(taken)?;
        match ended.signal() {
            Some(KILLED) => Ok(()),
            _ => Err(Violation(format!("the process ended by itself: {ended}"))),
        }
    }

    fn take_in(&mut self, entries: Vec<Entry>) -> Result<(), Violation> {
        let mut flying = std::collections::BTreeMap::<u64, (Entry, Began)>::new();
        for entry in entries {
            let oracle = self.oracles.get_mut(entry.volume as usize);
            let oracle = oracle.ok_or_else(|| Violation(format!("a record of volume {}", entry.volume)))?;
            match entry.kind {
                Kind::Opened => {}
                Kind::Failed => return Err(Violation(String::from_utf8_lossy(&entry.body).into_owned())),
                Kind::WriteBegins => {
                    let began = oracle.begin_write(entry.at, entry.length, entry.value);
                    flying.insert(entry.tag, (entry, began));
                }
                Kind::ReadBegins => {
                    let began = oracle.begin_read();
                    flying.insert(entry.tag, (entry, began));
                }
                Kind::WriteEnded | Kind::ReadEnded => {
                    let begun = flying.remove(&entry.tag);
                    let (_, began) = begun.ok_or_else(|| Violation("an end without a beginning".into()))?;
                    if entry.kind == Kind::ReadEnded {
                        self.tally.reads_checked += 1;
                        oracle.end_read(entry.at, &entry.body, began)?;
                    } else {
                        self.tally.answered += 1;
                        oracle.end_write(entry.at, entry.length, began, WriteOutcome::Acknowledged);
                    }
                }
            }
        }
        self.tally.cut_off += flying.values().filter(|(entry, _)| entry.kind == Kind::WriteBegins).count() as u64;
        self.oracles.iter_mut().for_each(Oracle::crash);
        Ok(())
    }

    /// Opens the pool here, compares every byte, and leaves it closed, or as a crash leaves it.
    fn look(&mut self) -> Result<(), Violation> {
        let server = self.open()?;
        self.tally.looks += 1;
        self.read_all(&server)?;
        if self.away.is_empty() && self.dice.one_in(4) {
            // Only if no other drive is missing: the losses stay within what the codes tolerate.
            self.until_redundant(&server)?;
            self.take_away();
        }
        if self.dice.one_in(3) {
            server.close().map_err(|error| Violation(format!("closing: {error}")))?;
        }
        Ok(())
    }

    fn open(&mut self) -> Result<PoolServer, Violation> {
        let seed = self.dice.roll();
        open_pool(self.directory, seed).map_err(|error| Violation(format!("opening after the kill: {error}")))
    }

    /// Reads in pieces, then whole: two reads, perhaps of different copies, must agree.
    fn read_all(&mut self, server: &PoolServer) -> Result<(), Violation> {
        for ((name, _, size, _), oracle) in VOLUMES.iter().zip(&mut self.oracles) {
            let volume = server.volume(name).map_err(|error| Violation(error.to_string()))?;
            for piece in [64 * KIB, *size] {
                for at in (0..*size).step_by(piece as usize) {
                    let began = oracle.begin_read();
                    let length = piece.min(size - at) as usize;
                    let bytes = volume.read_blocking(at, length);
                    let bytes = bytes.map_err(|error| Violation(format!("reading {name} at {at}: {error}")))?;
                    oracle.end_read(at, &bytes, began)?;
                    self.tally.reads_checked += 1;
                }
            }
        }
        Ok(())
    }

    fn until_redundant(&self, server: &PoolServer) -> Result<(), Violation> {
        let begun = WallInstant::now();
        loop {
            let status = status(server)?;
            let healthy = status.drives.iter().all(|drive| drive.health == DriveHealth::Healthy);
            if healthy && status.rebuild.is_none() && status.copy_back.is_none() {
                return Ok(());
            }
            if begun.elapsed() > PATIENCE {
                return Err(Violation(format!("no full redundancy after {PATIENCE:?}: {status:?}")));
            }
            std::thread::sleep(Wall::from_millis(2));
        }
    }

    /// Removes one or two drives for some kills.
    fn take_away(&mut self) {
        let first = self.dice.below(DRIVES as u64);
        let second = (first + 1 + self.dice.below(DRIVES as u64 - 1)) % DRIVES as u64;
        for number in [first, second].into_iter().take(1 + self.dice.below(TOLERATED) as usize) {
            let path = drive(self.directory, number as usize);
            if std::fs::rename(&path, path.with_extension("away")).is_ok() {
                self.tally.drives_away += 1;
                self.away.push((path, self.tally.kills + 1 + self.dice.below(4)));
            }
        }
    }

    /// Returns the drives whose time is up before this kill.
    fn bring_back(&mut self, kill: u64) {
        self.away.retain(|(path, until)| *until > kill || std::fs::rename(path.with_extension("away"), path).is_err());
    }

    /// At the end everything must be redundant again, a scrub must find nothing, and every byte
    /// must be right.
    fn end(&mut self) -> Result<(), Violation> {
        self.bring_back(u64::MAX);
        let server = self.open()?;
        self.until_redundant(&server)?;
        server.command_blocking(Command::StartScrub).map_err(|error| Violation(error.to_string()))?;
        let begun = WallInstant::now();
        let scrubbed = loop {
            let status = status(&server)?;
            if status.scrubs_finished > 0 {
                break status;
            }
            if begun.elapsed() > PATIENCE {
                return Err(Violation(format!("no scrub finished within {PATIENCE:?}")));
            }
            std::thread::sleep(Wall::from_millis(2));
        };
        if scrubbed.scrub_damage_found > 0 || scrubbed.lost_stripes > 0 {
            return Err(Violation(format!(
                "the last scrub found damage in {} places and {} stripes are lost",
                scrubbed.scrub_damage_found, scrubbed.lost_stripes
            )));
        }
        self.read_all(&server)?;
        server.close().map_err(|error| Violation(format!("closing: {error}")))
    }
}

/// Takes records until `wanted` operations were reported. If the process ends by itself, its last
/// record says so.
fn while_it_works(entries: &Receiver<Entry>, wanted: u64, taken: &mut Vec<Entry>) -> Result<(), Violation> {
    for _ in 0..=wanted {
        match entries.recv_timeout(PATIENCE) {
            Ok(entry) => taken.push(entry),
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
            Err(RecvTimeoutError::Timeout) => {
                return Err(Violation(format!("the process said nothing for {PATIENCE:?}")));
            }
        }
    }
    Ok(())
}

fn listen(child: &mut Child) -> Receiver<Entry> {
    let (sender, receiver) = channel();
    let pipe = child.stdout.take();
    std::thread::spawn(move || {
        let Some(pipe) = pipe else { return };
        let mut pipe = std::io::BufReader::new(pipe);
        while let Ok(Some(entry)) = Entry::read(&mut pipe) {
            if sender.send(entry).is_err() {
                return;
            }
        }
    });
    receiver
}
