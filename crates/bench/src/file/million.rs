//! Shares of many files: a directory of a million, and ten million in a hundred directories.
//! Whether a name costs as much as among few, how long a listing takes, and how the server opens
//! the share after kill -9. No file is archived meanwhile, which is the most that a server has to
//! remember.

use std::time::Instant;

use stele_ground::Dice;

use crate::harness::{Bench, Unit};
use crate::process;

use super::RATE;
use super::client::{Call, NfsClient};
use super::servers::SteleFileServer;

const PART: u64 = 100_000;
const DEPTH: u64 = 32;
const SHARE: &str = "million";

struct Tree {
    case: &'static str,
    /// Bytes of a drive. All six are sparse.
    drive: &'static str,
    directories: u64,
    /// In each directory.
    files: u64,
    /// In the first directory, at the end.
    removed: u64,
}

const TREES: [Tree; 2] = [
    Tree { case: "a million files", drive: "4GiB", directories: 1, files: 10 * PART, removed: 10 * PART },
    Tree { case: "ten million files", drive: "48GiB", directories: 100, files: PART, removed: PART },
];

/// Whether `--case` selects one of the trees.
pub fn wants(bench: &Bench) -> bool {
    bench.wants_any("", TREES.map(|tree| tree.case))
}

pub fn run(bench: &mut Bench) -> Result<(), String> {
    for tree in &TREES {
        if bench.wants(tree.case) {
            Measured { bench, tree, directories: Vec::new() }.run()?;
        }
    }
    Ok(())
}

struct Measured<'a> {
    bench: &'a mut Bench,
    tree: &'static Tree,
    /// Their handles.
    directories: Vec<Vec<u8>>,
}

fn name(index: u64) -> String {
    format!("record-{index:07}")
}

impl Measured<'_> {
    fn run(mut self) -> Result<(), String> {
        let mut stele = SteleFileServer::start(self.tree.drive)?;
        let mut client = stele.share(SHARE, "64MiB", "86400")?;
        self.create(&mut client)?;
        self.listing(&mut client)?;
        self.lookups(&mut client, "")?;
        let memory = |stele: &SteleFileServer| process::anonymous(stele.process()) as f64 / f64::from(1 << 20);
        self.figure("memory of the server", super::MEMORY, memory(&stele));

        stele.kill();
        let begun = Instant::now();
        stele.serve()?;
        self.figure("open after kill -9", Unit::less("s"), begun.elapsed().as_secs_f64());
        let mut client = stele.mount(SHARE)?;
        self.lookups(&mut client, ", after kill -9")?;
        self.listing(&mut client)?;
        let begun = Instant::now();
        client.many(self.tree.removed, DEPTH, |index| Call::remove(&self.directories[0], &name(index)))?;
        self.figure("unlink", RATE, self.tree.removed as f64 / begun.elapsed().as_secs_f64());
        self.figure("memory of the server, at the end", super::MEMORY, memory(&stele));
        Ok(())
    }

    fn figure(&mut self, what: &str, unit: Unit, value: f64) {
        self.bench.figure(&format!("{}: {what}", self.tree.case), unit, value, None, None);
    }

    fn create(&mut self, client: &mut NfsClient) -> Result<(), String> {
        let mut first = None;
        let mut last = 0.0;
        for number in 0..self.tree.directories {
            let directory = match self.tree.directories {
                1 => client.root().to_vec(),
                _ => client.make_directory(&format!("directory-{number:02}"))?,
            };
            for part in 0..self.tree.files / PART {
                let begun = Instant::now();
                client.many(PART, DEPTH, |index| Call::create(&directory, &name(part * PART + index)))?;
                last = PART as f64 / begun.elapsed().as_secs_f64();
                first.get_or_insert(last);
            }
            self.directories.push(directory);
        }
        let reference = first.map(|first| ("the first 100,000", first));
        self.bench.figure(&format!("{}: create, the last 100,000", self.tree.case), RATE, last, reference, Some(0.8));
        Ok(())
    }

    /// Names drawn at random, each of which is there.
    fn lookups(&mut self, client: &mut NfsClient, when: &str) -> Result<(), String> {
        let mut dice = Dice::new(5);
        let begun = Instant::now();
        client.many(PART, DEPTH, |_| {
            let directory = &self.directories[dice.below(self.tree.directories) as usize];
            Call::lookup(directory, &name(dice.below(self.tree.files)))
        })?;
        self.figure(&format!("lookup{when}"), RATE, PART as f64 / begun.elapsed().as_secs_f64());
        Ok(())
    }

    /// All directories; each name must be there once.
    fn listing(&mut self, client: &mut NfsClient) -> Result<(), String> {
        let begun = Instant::now();
        for directory in &self.directories {
            let mut seen = vec![false; self.tree.files as usize];
            client.list(directory, |found| {
                let index = found.strip_prefix("record-").and_then(|number| number.parse::<usize>().ok());
                let seen = index.and_then(|index| seen.get_mut(index)).ok_or_else(|| format!("`{found}` is listed"))?;
                if std::mem::replace(seen, true) { Err(format!("`{found}` is listed twice")) } else { Ok(()) }
            })?;
            let missing = seen.iter().filter(|seen| !**seen).count();
            if missing > 0 {
                return Err(format!("{missing} files are not listed"));
            }
        }
        let all = (self.tree.directories * self.tree.files) as f64;
        self.figure("listing with attributes", Unit::more("names/s"), all / begun.elapsed().as_secs_f64());
        Ok(())
    }
}
