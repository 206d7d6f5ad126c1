//! The file gateway over NFSv3, beside NFS-Ganesha (its VFS module on a directory in memory) in the
//! same run. One plain client measures both, over TCP on the loopback. Version 4.1 is measured
//! beside version 3, and SMB beside a plain Samba.
//!
//! Stele serves a share on 6 file drives in memory. Its cache volume keeps two copies of every
//! block; each is digested when it is written and verified when a drive is read. Ganesha's
//! directory keeps one copy without digests, and a flush there costs nothing.
//!
//! Both have filled the file and read it once before they are measured, so a write overwrites on
//! both sides. Ganesha's file has its memory then. Stele writes a whole stripe into a free slot,
//! and its drives are sparse files that stand for block devices. The uncounted first round goes
//! through most of the slots, so that they have their memory too. Of the bytes that a counted round
//! of 256 KiB writes stores, less than a twentieth goes to fresh pages.
//!
//! The rounds alternate; the medians are shown, and Stele's spread. The server's CPU time is that
//! of its process. The blocking limit is the rate of empty calls, one at a time, on the same
//! connection.
//!
//! Archiving, retrieval and memory have no peer: no file server archives.

mod archiving;
mod client;
mod client41;
mod limit;
mod million;
mod servers;
mod smb;
mod versions;

use std::time::Instant;

use crate::harness::{Bench, Unit};
use crate::process::Usage;
use client::{Call, NfsClient};
use limit::LeastWork;
use servers::{Ganesha, SteleFileServer};

const RATE: Unit = Unit::more("op/s");
const CPU: Unit = Unit::less("us/op");
const MEMORY: Unit = Unit::less("MiB");
const CPU_SUFFIX: &str = ", server CPU";
const LIMIT_SUFFIX: &str = ", of what the machine allows";
const PEER: &str = "Ganesha";

/// Bytes of the file that is read and written.
const LENGTH: u64 = 256 << 20;
/// Bytes of a long call.
const LONG: u32 = 256 << 10;
const FILE: &str = "file";
/// Files of a round of metadata calls.
const FILES: u64 = 1500;
/// At most; fewer with `--rounds`.
const ROUNDS_MAX: u32 = 5;

/// One workload of the table, and the smallest ratios to reach: of rates, and of CPU times.
struct Case {
    name: &'static str,
    load: Load,
    rate: f64,
    cpu: f64,
    /// Code of the cache volume.
    code: &'static str,
    /// How often the code stores what is written, where the rate is shown beside what the machine
    /// allows.
    copies: Option<f64>,
}

#[derive(Clone, Copy)]
enum Load {
    /// Calls of one size at random or successive offsets.
    Data {
        writes: bool,
        stable: bool,
        size: u32,
        count: u64,
        depth: u64,
    },
    /// Makes files, and removes them uncounted.
    Create {
        depth: u64,
    },
    /// Writes 4 KiB into a file each, and commits.
    Commit {
        depth: u64,
    },
    Stat {
        depth: u64,
    },
    Unlink {
        depth: u64,
    },
}

const MIRROR: &str = "mirror-2";
const CODED: &str = "4+1";

const fn data(name: &'static str, size: u32, count: u64, depth: u64) -> Case {
    let load = Load::Data { writes: false, stable: false, size, count, depth };
    Case { name, load, rate: 1.5, cpu: 2.0, code: MIRROR, copies: None }
}

const fn names(name: &'static str, load: Load) -> Case {
    Case { name, load, rate: 1.5, cpu: 1.0, code: MIRROR, copies: None }
}

impl Case {
    const fn writing(self, stable: bool) -> Case {
        let load = match self.load {
            Load::Data { size, count, depth, .. } => Load::Data { writes: true, stable, size, count, depth },
            other => other,
        };
        Case { load, ..self }
    }

    const fn marks(self, rate: f64, cpu: f64) -> Case {
        Case { rate, cpu, ..self }
    }

    /// Whether `--case` selects one of its figures.
    fn is_wanted(&self, bench: &Bench) -> bool {
        bench.wants_any(self.name, ["", CPU_SUFFIX]) | (self.copies.is_some() && bench.wants(&self.limit()))
    }

    /// The name of the figure beside what the machine allows.
    fn limit(&self) -> String {
        format!("{}{LIMIT_SUFFIX}", self.name)
    }

    const fn stored(self, code: &'static str, copies: f64) -> Case {
        Case { code, copies: Some(copies), ..self }
    }
}

const CASES: &[Case] = &[
    data("4 KiB read, depth 32", 4 << 10, 30_000, 32),
    data("4 KiB write, depth 32", 4 << 10, 30_000, 32).writing(false),
    data("4 KiB stable write, depth 32", 4 << 10, 20_000, 32).writing(true),
    data("256 KiB read, depth 8", LONG, 2000, 8).marks(1.5, 1.0),
    data("256 KiB write, depth 8", LONG, 2000, 8).writing(false).marks(1.0, 1.0).stored(MIRROR, 2.0),
    data("256 KiB write, depth 8, cache of 4+1", LONG, 2000, 8).writing(false).marks(1.0, 1.0).stored(CODED, 1.25),
    data("4 KiB read, depth 1", 4 << 10, 5000, 1).marks(1.0, 1.0),
    data("4 KiB stable write, depth 1", 4 << 10, 3000, 1).writing(true).marks(1.0, 1.0),
    names("create, depth 1", Load::Create { depth: 1 }),
    names("create, depth 32", Load::Create { depth: 32 }),
    names("write 4 KiB and commit, depth 1", Load::Commit { depth: 1 }),
    names("write 4 KiB and commit, depth 32", Load::Commit { depth: 32 }),
    names("stat, depth 1", Load::Stat { depth: 1 }),
    names("stat, depth 32", Load::Stat { depth: 32 }),
    names("unlink, depth 1", Load::Unlink { depth: 1 }),
    names("unlink, depth 32", Load::Unlink { depth: 32 }),
];

/// What a round came to.
#[derive(Clone, Copy)]
struct Ran {
    rate: f64,
    /// Microseconds of the server's time for an operation.
    cpu: f64,
    /// The same of this program, the client.
    client: f64,
}

const PEAK: &str = "memory of the server after all cases";

pub fn run(bench: &mut Bench) -> Result<(), String> {
    // Names first: the servers take root, and seconds to start.
    let calls = CASES.iter().fold(bench.wants_any(PING, ["", CPU_SUFFIX]), |any, case| any | case.is_wanted(bench));
    let versions = versions::wants(bench);
    let few = bench.wants_any("", archiving::NAMES.into_iter().chain([PEAK])) || calls;
    let (many, smb) = (million::wants(bench), smb::wants(bench));
    if !few && !versions && !many && !smb {
        return Ok(());
    }
    servers::apart()?;
    if few {
        let stele = SteleFileServer::start("1GiB")?;
        if calls {
            bench.note(
                "Stele: cache volume with 2 copies and digests on 6 file drives in memory; Ganesha: VFS on memory",
            );
            beside_ganesha(bench, &stele)?;
        }
        archiving::run(bench, &stele)?;
        let peak = Usage::of(stele.process()).resident_peak_bytes as f64 / f64::from(1 << 20);
        bench.figure(PEAK, MEMORY, peak, None, None);
    }
    if versions {
        bench.note("NFSv4.1 and version 3: the same share, the same client program, one connection each");
        versions::run(bench, &SteleFileServer::start("1GiB")?)?;
    }
    if smb {
        smb::run(bench)?;
    }
    million::run(bench)
}

/// A server under measurement.
struct Side {
    client: NfsClient,
    process: u32,
    file: Vec<u8>,
    seed: u64,
}

impl Side {
    fn new(mut client: NfsClient, process: u32) -> Result<Side, String> {
        let file = client.make(FILE).map_err(|error| format!("making a file: {error}"))?;
        client.fill(&file, LENGTH, &content(LONG as usize)).map_err(|error| format!("filling a file: {error}"))?;
        let mut side = Side { client, process, file, seed: 1 };
        // So that both have it in their caches.
        side.transfer(false, false, LONG, LENGTH / u64::from(LONG), 8)?;
        Ok(side)
    }

    fn measured(&mut self, count: u64, act: impl FnOnce(&mut NfsClient) -> Result<(), String>) -> Result<Ran, String> {
        measured(self.process, count, || act(&mut self.client))
    }

    fn ping(&mut self, count: u64) -> Result<Ran, String> {
        self.measured(count, |client| client.many(count, 1, |_| Call::nothing()))
    }

    fn round(&mut self, load: Load) -> Result<Ran, String> {
        match load {
            Load::Data { writes, stable, size, count, depth } => self.transfer(writes, stable, size, count, depth),
            Load::Create { depth } => {
                let ran = self.create(depth)?;
                self.remove(depth.max(8))?;
                Ok(ran)
            }
            Load::Unlink { depth } => {
                self.create(8)?;
                self.remove(depth)
            }
            Load::Stat { depth } => {
                self.create(8)?;
                let handles = self.handles()?;
                let ran = self.measured(FILES, |client| {
                    client.many(FILES, depth, |index| Call::attributes(&handles[index as usize]))
                })?;
                self.remove(8)?;
                Ok(ran)
            }
            Load::Commit { depth } => {
                self.create(8)?;
                let (handles, data) = (self.handles()?, content(4096));
                let ran = self.measured(FILES, |client| client.write_and_commit(&handles, depth, &data))?;
                self.remove(8)?;
                Ok(ran)
            }
        }
    }

    fn transfer(&mut self, writes: bool, stable: bool, size: u32, count: u64, depth: u64) -> Result<Ran, String> {
        let offsets = offsets(&mut self.seed, size, count);
        let (file, data) = (self.file.clone(), content(size as usize));
        self.measured(count, |client| {
            client.many(count, depth, |index| {
                let offset = offsets[index as usize];
                match writes {
                    true => Call::write(&file, offset, &data, stable),
                    false => Call::read(&file, offset, size),
                }
            })?;
            // An unstable write counts once it is durable.
            if writes && !stable { client.many(1, 1, |_| Call::commit(&file)) } else { Ok(()) }
        })
    }

    fn handles(&mut self) -> Result<Vec<Vec<u8>>, String> {
        (0..FILES).map(|index| self.client.find(&name(index))?.ok_or_else(|| "a file is not there".into())).collect()
    }

    fn create(&mut self, depth: u64) -> Result<Ran, String> {
        let root = self.client.root().to_vec();
        self.measured(FILES, |client| client.many(FILES, depth, |index| Call::create(&root, &name(index))))
    }

    fn remove(&mut self, depth: u64) -> Result<Ran, String> {
        let root = self.client.root().to_vec();
        self.measured(FILES, |client| client.many(FILES, depth, |index| Call::remove(&root, &name(index))))
    }
}

/// Measures `count` calls to the server of this process.
fn measured(process: u32, count: u64, act: impl FnOnce() -> Result<(), String>) -> Result<Ran, String> {
    let usage = || [Usage::of(process), Usage::own()].map(|usage| usage.cpu_nanoseconds);
    let before = usage();
    let begun = Instant::now();
    act()?;
    let elapsed = begun.elapsed().as_secs_f64();
    let after = usage();
    let each = |at: usize| after[at].saturating_sub(before[at]) as f64 / 1e3 / count as f64;
    Ok(Ran { rate: count as f64 / elapsed, cpu: each(0), client: each(1) })
}

/// Where calls of one size go: long ones one after another, others at random.
fn offsets(seed: &mut u64, size: u32, count: u64) -> Vec<u64> {
    let places = LENGTH / u64::from(size);
    let successive = size >= 64 << 10;
    let mut random = || {
        // xorshift64: the same offsets for both servers.
        *seed ^= *seed << 13;
        *seed ^= *seed >> 7;
        *seed ^= *seed << 17;
        *seed
    };
    (0..count).map(|index| if successive { index % places } else { random() % places } * u64::from(size)).collect()
}

fn name(index: u64) -> String {
    format!("small-{index:05}")
}

/// Bytes that no server takes for zeros.
fn content(length: usize) -> Vec<u8> {
    (0..length.div_ceil(8) as u64).flat_map(|word| (word ^ 0x5bd1_e995_9d1b_54a3).to_le_bytes()).take(length).collect()
}

const PING: &str = "empty call, depth 1";

fn beside_ganesha(bench: &mut Bench, stele: &SteleFileServer) -> Result<(), String> {
    let ganesha = Ganesha::start()?;
    // Nothing is archived while calls are measured.
    let mut ours = Side::new(stele.share("calls", "1GiB", "100000")?, stele.process())?;
    let mut theirs = Side::new(ganesha.mount()?, ganesha.process).map_err(|error| format!("{PEER}: {error}"))?;
    let mut coded = match CASES.iter().filter(|case| case.code == CODED).any(|case| case.is_wanted(bench)) {
        true => Some(Side::new(stele.coded_share("coded", "1GiB", CODED, "100000")?, stele.process())?),
        false => None,
    };
    let rounds = bench.rounds().min(ROUNDS_MAX);
    let units = (RATE, CPU);
    let ping = Comparison { name: PING, peer: PEER, units, marks: (None, None), rounds };
    if bench.wants_any(PING, ["", CPU_SUFFIX]) {
        compare(bench, &ping, &mut || ours.ping(10_000), &mut || theirs.ping(10_000))?;
    }
    let mut least = None;
    for case in CASES {
        if !case.is_wanted(bench) {
            continue;
        }
        let side = coded.as_mut().filter(|_| case.code == CODED).unwrap_or(&mut ours);
        let comparison = Comparison { name: case.name, marks: (Some(case.rate), Some(case.cpu)), ..ping };
        let ran = compare(bench, &comparison, &mut || side.round(case.load), &mut || theirs.round(case.load))?;
        let Some(copies) = case.copies else { continue };
        let work = match least.take() {
            Some(work) => work,
            None => {
                let work = LeastWork::measure()?;
                bench.note(&work.text());
                work
            }
        };
        let allowed = least.insert(work).rate(median(ran.iter().map(|ran| ran.client)), copies);
        let rates: Vec<f64> = ran.iter().map(|ran| ran.rate).collect();
        let reference = Some(("client, socket, digest and copies alone", allowed));
        bench.figures(&case.limit(), RATE, &rates, reference, None);
    }
    Ok(())
}

/// A case on two sides.
#[derive(Clone, Copy)]
struct Comparison<'a> {
    name: &'a str,
    peer: &'a str,
    /// Of rates, and of CPU times.
    units: (Unit, Unit),
    /// The ratios to reach.
    marks: (Option<f64>, Option<f64>),
    rounds: u32,
}

type Round<'a> = &'a mut dyn FnMut() -> Result<Ran, String>;

/// Takes the rounds of both sides in turns, and reports rates and CPU times. Returns our rounds.
fn compare(bench: &mut Bench, case: &Comparison, ours: Round, theirs: Round) -> Result<Vec<Ran>, String> {
    let Comparison { name, peer, units, marks, rounds } = *case;
    let (mut our, mut their) = (Vec::new(), Vec::new());
    for count in 0..=rounds {
        let us = ours().map_err(|error| format!("{name}: {error}"))?;
        let them = theirs().map_err(|error| format!("{peer}: {error}"))?;
        // The first round of each fills caches.
        if count > 0 {
            our.push(us);
            their.push(them);
        }
    }
    let (peer_rate, peer_cpu) = (median(their.iter().map(|ran| ran.rate)), median(their.iter().map(|ran| ran.cpu)));
    let rates: Vec<f64> = our.iter().map(|ran| ran.rate).collect();
    let cpus: Vec<f64> = our.iter().map(|ran| ran.cpu).collect();
    bench.figures(name, units.0, &rates, Some((peer, peer_rate)), marks.0);
    bench.figures(&format!("{name}{CPU_SUFFIX}"), units.1, &cpus, Some((peer, peer_cpu)), marks.1);
    Ok(our)
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}
