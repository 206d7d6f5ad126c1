//! NFS version 4.1 beside version 3: the same calls from the same program, on the same share of one
//! server, with rounds in turns.
//!
//! A call of version 4.1 is one COMPOUND. `create` opens, makes and closes a file in it, since
//! version 3 has no state to close. `create and close apart` sends CLOSE in a call of its own, as
//! most clients do; beside one call of version 3 it has no target.
//!
//! A server that has just begun lets clients open files after 45 s, and so the bench waits.

use super::client41::{Compound, Nfs41Client, OpenFile};
use super::servers::SteleFileServer;
use super::{CPU, CPU_SUFFIX, Comparison, FILE, FILES, LONG, Load, RATE, ROUNDS_MAX, Ran, Side};
use super::{compare, content, measured, name};
use crate::harness::Bench;

const PEER: &str = "version 3";
const SHARE: &str = "versions";
/// Version 4.1 is to be within 20 % of version 3.
const TARGET: f64 = 0.8;

const fn data(writes: bool, size: u32, count: u64, depth: u64) -> Load {
    Load::Data { writes, stable: false, size, count, depth }
}

const APART: &str = "NFSv4.1 create and close apart, depth 32, beside version 3";

/// With the ratio to reach.
const CASES: &[(&str, Load, Option<f64>)] = &[
    ("NFSv4.1 4 KiB read, depth 32, beside version 3", data(false, 4 << 10, 30_000, 32), Some(TARGET)),
    ("NFSv4.1 4 KiB write, depth 32, beside version 3", data(true, 4 << 10, 30_000, 32), Some(TARGET)),
    ("NFSv4.1 256 KiB read, depth 8, beside version 3", data(false, LONG, 2000, 8), Some(TARGET)),
    ("NFSv4.1 256 KiB write, depth 8, beside version 3", data(true, LONG, 2000, 8), Some(TARGET)),
    ("NFSv4.1 create, depth 32, beside version 3", Load::Create { depth: 32 }, Some(TARGET)),
    (APART, Load::Create { depth: 32 }, None),
    ("NFSv4.1 stat, depth 32, beside version 3", Load::Stat { depth: 32 }, Some(TARGET)),
];

/// Whether `--case` selects one of them.
pub fn wants(bench: &Bench) -> bool {
    CASES.iter().fold(false, |any, (name, ..)| any | bench.wants_any(name, ["", CPU_SUFFIX]))
}

pub fn run(bench: &mut Bench, stele: &SteleFileServer) -> Result<(), String> {
    let mut three = Side::new(stele.share(SHARE, "1GiB", "100000")?, stele.process())?;
    let client = stele.mount41(SHARE);
    let mut four = Session::new(client, stele.process()).map_err(|error| format!("NFSv4.1: {error}"))?;
    let rounds = bench.rounds().min(ROUNDS_MAX);
    for (name, load, target) in CASES {
        if !bench.wants_any(name, ["", CPU_SUFFIX]) {
            continue;
        }
        let comparison = Comparison { name, peer: PEER, units: (RATE, CPU), marks: (*target, None), rounds };
        compare(bench, &comparison, &mut || four.round(*load, *name == APART), &mut || three.round(*load))?;
    }
    Ok(())
}

/// A session under measurement, as [`Side`] is for version 3.
struct Session {
    client: Nfs41Client,
    process: u32,
    file: OpenFile,
    seed: u64,
}

impl Session {
    fn new(client: Result<Nfs41Client, String>, process: u32) -> Result<Session, String> {
        let mut client = client?;
        let file = client.open(FILE)?;
        for length in [4 << 10, LONG] {
            let read = client.read_length(&file, length)?;
            if read != length as usize {
                return Err(format!("a read of {length} bytes answers {read}"));
            }
        }
        Ok(Session { client, process, file, seed: 1 })
    }

    fn round(&mut self, load: Load, apart: bool) -> Result<Ran, String> {
        match load {
            Load::Data { writes, stable, size, count, depth } => self.transfer(writes, stable, size, count, depth),
            Load::Create { depth } if apart => {
                let ran = measured(self.process, FILES, || self.client.create_and_close(FILES, depth, name))?;
                self.remove()?;
                Ok(ran)
            }
            Load::Create { depth } => {
                let root = self.client.root().to_vec();
                let ran = self.calls(FILES, depth, |index| Compound::create(&root, &name(index)))?;
                self.remove()?;
                Ok(ran)
            }
            Load::Stat { depth } => {
                let root = self.client.root().to_vec();
                self.calls(FILES, 8, |index| Compound::create(&root, &name(index)))?;
                let handles: Vec<_> =
                    (0..FILES).map(|index| self.client.find(&name(index))).collect::<Result<_, _>>()?;
                let ran = self.calls(FILES, depth, |index| Compound::attributes(&handles[index as usize]))?;
                self.remove()?;
                Ok(ran)
            }
            Load::Commit { .. } | Load::Unlink { .. } => Err("version 4.1 has no such case".into()),
        }
    }

    fn remove(&mut self) -> Result<(), String> {
        let root = self.client.root().to_vec();
        self.calls(FILES, 32, |index| Compound::remove(&root, &name(index))).map(drop)
    }

    fn calls(&mut self, count: u64, depth: u64, make: impl FnMut(u64) -> Compound) -> Result<Ran, String> {
        measured(self.process, count, || self.client.many(count, depth, make))
    }

    fn transfer(&mut self, writes: bool, stable: bool, size: u32, count: u64, depth: u64) -> Result<Ran, String> {
        let offsets = super::offsets(&mut self.seed, size, count);
        let (file, data) = (&self.file, content(size as usize));
        let client = &mut self.client;
        measured(self.process, count, || {
            client.many(count, depth, |index| {
                let offset = offsets[index as usize];
                match writes {
                    true => Compound::write(file, offset, &data, stable),
                    false => Compound::read(file, offset, size),
                }
            })?;
            // An unstable write counts once it is durable.
            if writes && !stable { client.many(1, 1, |_| Compound::commit(file)) } else { Ok(()) }
        })
    }
}
