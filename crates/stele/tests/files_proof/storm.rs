//! Several clients at once, and a server that is killed while they wait for answers. In some rounds
//! a drive is away, or the next start is killed too. What was answered is there afterwards; what
//! was under way took place or did not.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use stele_ground::Dice;

use super::smb::{Refusal, Smb};
use super::{Known, LENGTH_MAX, Served, kill_among, number};
use crate::support::nfs::{Client, GONE};
use crate::support::{Away, Server, content};

const WORKERS: usize = 4;
const FILES_MAX: usize = 8;
/// A file that all write, each its own blocks of it.
const COMMON: &str = "common";
const COMMON_BLOCKS: u64 = 32;
const BLOCK: u64 = 4096;
const WHOLE: &str = "smbclient writes whole files";
/// Milliseconds within which a server is killed while it opens.
pub const OPENING: u64 = 800;
/// Statuses of NFS, and of a mount whose server is dead.
const NO_ENTRY: i64 = 2;
const DEAD: [i32; 4] = [libc::ENOTCONN, libc::ECONNABORTED, libc::EIO, libc::ENODEV];

/// Why an act failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Failure {
    /// The server went away before it answered.
    Gone,
    Status(i64),
}

type Outcome<T> = Result<T, Failure>;

/// How a worker reaches the share.
enum Way {
    Nfs { client: Client, root: Vec<u8> },
    Mount(PathBuf),
    Smb(Smb),
}

fn of_nfs<T>(result: Result<T, u32>) -> Outcome<T> {
    result.map_err(|status| if status == GONE { Failure::Gone } else { Failure::Status(status.into()) })
}

fn of_mount<T>(result: io::Result<T>) -> Outcome<T> {
    result.map_err(|error| match error.raw_os_error() {
        Some(code) if DEAD.contains(&code) => Failure::Gone,
        code => Failure::Status(code.map_or(-1, i64::from)),
    })
}

/// smbd says in many words that the server is gone.
fn of_smb<T>(result: Result<T, Refusal>) -> Outcome<T> {
    result.map_err(|refusal| match refusal.is_no_entry() {
        true => Failure::Status(NO_ENTRY),
        false => {
            println!("smbclient: {refusal:?}");
            Failure::Gone
        }
    })
}

impl Way {
    fn of(served: &Served, number: usize) -> Way {
        match (&served.mount, &served.smb) {
            (_, Some(smb)) if number == 1 => Way::Smb(smb.clone()),
            (Some(directory), _) if number.is_multiple_of(2) => Way::Mount(directory.clone()),
            _ => {
                let (client, root) = served.connected();
                Way::Nfs { client, root }
            }
        }
    }

    fn create(&mut self, name: &str) -> Outcome<()> {
        match self {
            Way::Nfs { client, root } => of_nfs(client.create(root, name)),
            Way::Mount(directory) => of_mount(File::create_new(directory.join(name)).map(drop)),
            Way::Smb(smb) => of_smb(smb.put(name, &[])),
        }
    }

    fn remove(&mut self, name: &str) -> Outcome<()> {
        match self {
            Way::Nfs { client, root } => of_nfs(client.remove(root, name)),
            Way::Mount(directory) => of_mount(fs::remove_file(directory.join(name))),
            Way::Smb(smb) => of_smb(smb.remove(name)),
        }
    }

    fn rename(&mut self, from: &str, to: &str) -> Outcome<()> {
        match self {
            Way::Nfs { client, root } => of_nfs(client.rename(root, from, to)),
            Way::Mount(directory) => of_mount(fs::rename(directory.join(from), directory.join(to))),
            Way::Smb(smb) => of_smb(smb.rename(from, to)),
        }
    }

    fn replace(&mut self, name: &str, data: &[u8]) -> Outcome<()> {
        match self {
            Way::Smb(smb) => of_smb(smb.put(name, data)),
            Way::Nfs { .. } | Way::Mount(_) => unreachable!("they write parts of files"),
        }
    }

    /// `durable`: it is durable when this returns.
    fn write(&mut self, name: &str, offset: u64, data: &[u8], durable: bool) -> Outcome<()> {
        match self {
            Way::Nfs { client, root } => {
                let file = of_nfs(client.lookup(root, name))?;
                of_nfs(client.write(&file, offset, data, durable))
            }
            Way::Mount(directory) => {
                let file = of_mount(OpenOptions::new().write(true).open(directory.join(name)))?;
                of_mount(file.write_all_at(data, offset))?;
                if durable { of_mount(file.sync_all()) } else { Ok(()) }
            }
            Way::Smb(_) => unreachable!("{WHOLE}"),
        }
    }

    fn set_size(&mut self, name: &str, size: u64) -> Outcome<()> {
        match self {
            Way::Nfs { client, root } => {
                let file = of_nfs(client.lookup(root, name))?;
                of_nfs(client.set_size(&file, size))
            }
            Way::Mount(directory) => {
                let file = of_mount(OpenOptions::new().write(true).open(directory.join(name)))?;
                of_mount(file.set_len(size))
            }
            Way::Smb(_) => unreachable!("{WHOLE}"),
        }
    }

    fn commit(&mut self, name: &str) -> Outcome<()> {
        match self {
            Way::Nfs { client, root } => {
                let file = of_nfs(client.lookup(root, name))?;
                of_nfs(client.commit(&file))
            }
            Way::Mount(directory) => {
                let file = of_mount(OpenOptions::new().write(true).open(directory.join(name)))?;
                of_mount(file.sync_all())
            }
            Way::Smb(_) => unreachable!("{WHOLE}"),
        }
    }

    fn read(&mut self, name: &str) -> Outcome<Vec<u8>> {
        match self {
            Way::Nfs { client, root } => {
                let file = of_nfs(client.lookup(root, name))?;
                of_nfs(client.try_read_all(&file))
            }
            Way::Mount(directory) => of_mount(fs::read(directory.join(name))),
            Way::Smb(smb) => of_smb(smb.get(name)),
        }
    }

    fn exists(&mut self, name: &str) -> bool {
        match self.read(name) {
            Ok(_) => true,
            Err(Failure::Status(NO_ENTRY)) => false,
            Err(failure) => panic!("{name}: {failure:?}"),
        }
    }
}

/// A change of names that waits for its answer.
enum Pending {
    Nothing,
    Create(String),
    Remove(String),
    Rename(String, String),
}

struct Worker {
    number: usize,
    way: Way,
    files: BTreeMap<String, Known>,
    /// The common file; of others' blocks it says nothing.
    common: Known,
    pending: Pending,
    dice: Dice,
    made: u64,
    /// The cache is off: a write needs no commit.
    durable: bool,
}

impl Worker {
    fn name(&mut self) -> String {
        self.made += 1;
        format!("w{}-{}", self.number, self.made)
    }

    fn known(&mut self, name: &str) -> &mut Known {
        self.files.get_mut(name).expect("a known file")
    }

    fn act(&mut self) -> Outcome<()> {
        let names: Vec<String> = self.files.keys().cloned().collect();
        let picked = self.dice.pick(&names).cloned();
        let is_whole = matches!(self.way, Way::Smb(_));
        match (self.dice.below(20), picked) {
            (0..=2, _) | (_, None) if self.files.len() < FILES_MAX => self.create(),
            (0..=11 | 16.., Some(name)) if is_whole => self.replace(&name),
            (3..=9, Some(name)) => self.write(&name),
            (10..=11, Some(name)) => self.truncate(&name),
            (12, Some(name)) => self.rename(&name),
            (13, Some(name)) => self.remove(&name),
            (14..=15, Some(name)) => {
                let found = self.way.read(&name)?;
                assert!(found == self.known(&name).now(), "{name} differs");
                Ok(())
            }
            (16..=17, _) if !is_whole => self.write_common(),
            (_, Some(name)) => {
                self.way.commit(&name)?;
                self.known(&name).is_durable();
                Ok(())
            }
            (_, None) => Ok(()),
        }
    }

    fn create(&mut self) -> Outcome<()> {
        let name = self.name();
        self.pending = Pending::Create(name.clone());
        self.way.create(&name)?;
        self.pending = Pending::Nothing;
        self.files.insert(name, Known(vec![Vec::new()]));
        Ok(())
    }

    fn write(&mut self, name: &str) -> Outcome<()> {
        let offset = self.dice.below(LENGTH_MAX) & if self.dice.one_in(2) { !4095 } else { !0 };
        let most = if self.dice.one_in(4) { 300_000 } else { 20_000 };
        let length = 1 + self.dice.below(most);
        let data = content(self.dice.roll(), length as usize);
        let end = (offset + length) as usize;
        let put = |content: &mut Vec<u8>| {
            content.resize(content.len().max(end), 0);
            content[offset as usize..end].copy_from_slice(&data);
        };
        self.known(name).changed(put);
        let durable = self.dice.one_in(3);
        self.way.write(name, offset, &data, durable)?;
        match (&self.way, durable) {
            _ if self.durable => self.known(name).is_durable(),
            (_, false) => {}
            (Way::Mount(_) | Way::Smb(_), true) => self.known(name).is_durable(),
            // Of earlier unstable writes it says nothing.
            (Way::Nfs { .. }, true) => self.known(name).0.iter_mut().for_each(put),
        }
        Ok(())
    }

    /// Another content for the whole file.
    fn replace(&mut self, name: &str) -> Outcome<()> {
        let length = self.dice.below(300_000);
        let data = content(self.dice.roll(), length as usize);
        let known = self.known(name);
        known.changed(Vec::clear);
        known.changed(|content| content.clone_from(&data));
        self.way.replace(name, &data)?;
        if self.durable {
            self.known(name).is_durable();
        }
        Ok(())
    }

    fn truncate(&mut self, name: &str) -> Outcome<()> {
        let size = self.dice.below(LENGTH_MAX);
        self.known(name).changed(|content| content.resize(size as usize, 0));
        self.way.set_size(name, size)?;
        self.known(name).is_durable();
        Ok(())
    }

    fn rename(&mut self, name: &str) -> Outcome<()> {
        let to = self.name();
        self.pending = Pending::Rename(name.into(), to.clone());
        self.way.rename(name, &to)?;
        self.pending = Pending::Nothing;
        let known = self.files.remove(name).expect("a known file");
        self.files.insert(to, known);
        Ok(())
    }

    fn remove(&mut self, name: &str) -> Outcome<()> {
        self.pending = Pending::Remove(name.into());
        self.way.remove(name)?;
        self.pending = Pending::Nothing;
        self.files.remove(name);
        Ok(())
    }

    fn write_common(&mut self) -> Outcome<()> {
        let block = self.number as u64 + WORKERS as u64 * self.dice.below(COMMON_BLOCKS);
        let data = content(self.dice.roll(), BLOCK as usize);
        let offset = block * BLOCK;
        let put = |content: &mut Vec<u8>| {
            content[offset as usize..][..BLOCK as usize].copy_from_slice(&data);
        };
        self.common.changed(put);
        self.way.write(COMMON, offset, &data, true)?;
        self.common.0.iter_mut().for_each(put);
        self.common.is_durable();
        Ok(())
    }

    /// Acts until the server is killed. How many acts were answered counts in `done`.
    fn run(&mut self, done: &AtomicU64, killed: &AtomicBool) {
        loop {
            match self.act() {
                Ok(()) => drop(done.fetch_add(1, Ordering::Relaxed)),
                Err(Failure::Gone) if killed.load(Ordering::Acquire) => return,
                // To smbd the files of a dead mount are not there.
                Err(Failure::Status(NO_ENTRY)) if matches!(self.way, Way::Smb(_)) && killed.load(Ordering::Acquire) => {
                    return;
                }
                Err(failure) => panic!("worker {}: {failure:?}", self.number),
            }
        }
    }

    /// After a kill: what was answered is there. The worker goes on with what it finds.
    fn check(&mut self, served: &Served) {
        self.way = Way::of(served, self.number);
        match std::mem::replace(&mut self.pending, Pending::Nothing) {
            Pending::Nothing => {}
            Pending::Create(name) => {
                if self.way.exists(&name) {
                    self.files.insert(name, Known(vec![Vec::new()]));
                }
            }
            Pending::Remove(name) => {
                if !self.way.exists(&name) {
                    self.files.remove(&name);
                }
            }
            Pending::Rename(from, to) => {
                let (old, new) = (self.way.exists(&from), self.way.exists(&to));
                assert!(old != new, "{from} was renamed to {to}: {old}, {new}");
                if new {
                    let known = self.files.remove(&from).expect("a known file");
                    self.files.insert(to, known);
                }
            }
        }
        let (mut client, root) = served.connected();
        let mine = format!("w{}-", self.number);
        let mut listed: Vec<String> = client.names(&root).into_iter().filter(|name| name.starts_with(&mine)).collect();
        listed.sort();
        let known: Vec<String> = self.files.keys().cloned().collect();
        assert_eq!(listed, known, "the names after a kill");
        for name in known {
            let found = self.way.read(&name).expect("it is there");
            let known = self.known(&name);
            known.check_bytes(&name, &found);
            *known = Known(vec![found]);
        }
        let found = self.way.read(COMMON).expect("it is there");
        let own = |block: u64| (block * BLOCK) as usize..((block + 1) * BLOCK) as usize;
        for block in (0..COMMON_BLOCKS).map(|nth| own(self.number as u64 + WORKERS as u64 * nth)) {
            let had = |byte: usize| self.common.0.iter().any(|content| content[byte] == found[byte]);
            assert!(block.clone().all(had), "the common file at {block:?} has what was never written");
        }
        self.common = Known(vec![found]);
    }
}

#[test]
fn a_kill_among_waiting_clients_loses_nothing_that_was_answered() {
    prove("on");
}

#[test]
fn with_caching_off_a_kill_among_waiting_clients_loses_no_write() {
    prove("off");
}

fn prove(caching: &str) {
    let begun = Instant::now();
    let lasts = Duration::from_secs(number("STELE_FILES_SECONDS").unwrap_or(0));
    let seed = number("STELE_FILES_SEED").unwrap_or(1);
    let mut dice = Dice::new(seed);
    let mut served = Served::new(&format!("storm-{caching}"), caching, true);
    let (mut client, root) = served.connected();
    client.create(&root, COMMON).unwrap();
    let file = client.lookup(&root, COMMON).unwrap();
    let whole = (WORKERS as u64 * COMMON_BLOCKS * BLOCK) as usize;
    client.write(&file, 0, &vec![0; whole], true).unwrap();
    let mut workers: Vec<Worker> = (0..WORKERS)
        .map(|number| Worker {
            number,
            way: Way::of(&served, number),
            files: BTreeMap::new(),
            common: Known(vec![vec![0; whole]]),
            pending: Pending::Nothing,
            dice: dice.fork(),
            made: 0,
            durable: caching == "off",
        })
        .collect();
    let (mut round, mut away) = (0, Away::default());
    while round < 4 || begun.elapsed() < lasts || away.is_away() {
        let acts = 20 + dice.below(400);
        let work = |worker: &mut Worker, done: &_, killed: &_| worker.run(done, killed);
        kill_among(&mut workers, acts, work, || served.kill());
        away.turn(&served.place, round);
        if dice.one_in(3) {
            Server::kill_after(&served.place, &["serve"], Duration::from_millis(dice.below(OPENING)));
        }
        served.start();
        workers.iter_mut().for_each(|worker| worker.check(&served));
        away.settle(&served.place);
        round += 1;
        println!("storm, caching {caching}, round {round}: {acts} acts, {:.0} s", begun.elapsed().as_secs_f64());
    }
    assert!(served.place.json(&["audit", "verify"])["findings"].as_array().unwrap().is_empty());
    served.unmount();
    served.server.take().unwrap().stop();
}
