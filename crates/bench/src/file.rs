//! The file gateway over NFSv3, beside NFS-Ganesha (its VFS module on a directory in memory) in the
//! same run. One plain client measures both, over TCP on the loopback.
//!
//! Stele serves a share on 6 file drives in memory. Its cache volume keeps two copies of every
//! block; each is digested when it is written and verified when a drive is read. Ganesha's
//! directory keeps one copy without digests, and a flush there costs nothing.
//!
//! Both have read the file once before they are measured. The rounds alternate; the medians are
//! shown, and Stele's spread. The server's CPU time is that of its process. The blocking limit is
//! the rate of empty calls, one at a time, on the same connection.
//!
//! Archiving, retrieval and memory have no peer: no file server archives.

mod archiving;
mod client;
mod million;
mod servers;

use std::time::Instant;

use crate::harness::{Bench, Unit};
use crate::process::Usage;
use client::{Call, NfsClient};
use servers::{Ganesha, SteleFileServer};

const RATE: Unit = Unit::more("op/s");
const CPU: Unit = Unit::less("us/op");
const MEMORY: Unit = Unit::less("MiB");
const CPU_SUFFIX: &str = ", server CPU";
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

const fn data(name: &'static str, size: u32, count: u64, depth: u64) -> Case {
    let load = Load::Data { writes: false, stable: false, size, count, depth };
    Case { name, load, rate: 1.5, cpu: 2.0 }
}

const fn names(name: &'static str, load: Load) -> Case {
    Case { name, load, rate: 1.5, cpu: 1.0 }
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
}

const CASES: &[Case] = &[
    data("4 KiB read, depth 32", 4 << 10, 30_000, 32),
    data("4 KiB write, depth 32", 4 << 10, 30_000, 32).writing(false),
    data("4 KiB stable write, depth 32", 4 << 10, 20_000, 32).writing(true),
    data("256 KiB read, depth 8", LONG, 2000, 8).marks(1.5, 1.0),
    data("256 KiB write, depth 8", LONG, 2000, 8).writing(false).marks(1.0, 1.0),
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
}

const PEAK: &str = "memory of the server after all cases";

pub fn run(bench: &mut Bench) -> Result<(), String> {
    // Names first: the servers take root, and seconds to start.
    let calls = CASES.iter().map(|case| case.name).chain([PING]);
    let calls = calls.fold(false, |any, name| any | bench.wants_any(name, ["", CPU_SUFFIX]));
    let few = bench.wants_any("", archiving::NAMES.into_iter().chain([PEAK])) || calls;
    let many = million::wants(bench);
    if !few && !many {
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

    fn random(&mut self) -> u64 {
        // xorshift64: the same offsets for both servers.
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        self.seed
    }

    fn measured(&mut self, count: u64, act: impl FnOnce(&mut NfsClient) -> Result<(), String>) -> Result<Ran, String> {
        let before = Usage::of(self.process).cpu_nanoseconds;
        let begun = Instant::now();
        act(&mut self.client)?;
        let elapsed = begun.elapsed().as_secs_f64();
        let spent = Usage::of(self.process).cpu_nanoseconds - before;
        Ok(Ran { rate: count as f64 / elapsed, cpu: spent as f64 / 1e3 / count as f64 })
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
        let places = LENGTH / u64::from(size);
        let successive = size >= 64 << 10;
        let offsets: Vec<u64> = (0..count)
            .map(|index| if successive { index % places } else { self.random() % places } * u64::from(size))
            .collect();
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
    let rounds = bench.rounds().min(ROUNDS_MAX);
    let mut both = |name: &str, round: &dyn Fn(&mut Side) -> Result<Ran, String>, marks: (Option<f64>, Option<f64>)| {
        if !bench.wants_any(name, ["", CPU_SUFFIX]) {
            return Ok::<(), String>(());
        }
        let (mut our, mut their) = (Vec::new(), Vec::new());
        for count in 0..=rounds {
            let (us, them) = (
                round(&mut ours).map_err(|error| format!("{name}: {error}"))?,
                round(&mut theirs).map_err(|error| format!("{PEER}: {error}"))?,
            );
            // The first round of each fills caches.
            if count > 0 {
                our.push(us);
                their.push(them);
            }
        }
        let (peer_rate, peer_cpu) = (median(their.iter().map(|ran| ran.rate)), median(their.iter().map(|ran| ran.cpu)));
        let rates: Vec<f64> = our.iter().map(|ran| ran.rate).collect();
        let cpus: Vec<f64> = our.iter().map(|ran| ran.cpu).collect();
        bench.figures(name, RATE, &rates, Some((PEER, peer_rate)), marks.0);
        bench.figures(&format!("{name}{CPU_SUFFIX}"), CPU, &cpus, Some((PEER, peer_cpu)), marks.1);
        Ok(())
    };
    both(PING, &|side| side.ping(10_000), (None, None))?;
    for case in CASES {
        both(case.name, &|side| side.round(case.load), (Some(case.rate), Some(case.cpu)))?;
    }
    Ok(())
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}
