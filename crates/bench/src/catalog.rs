//! The embedded catalog alone: commits, reads, and reopening after `kill -9`.
//!
//! A commit has the contents of a PUT's. These are a version of 220 bytes under a key of 60, the
//! object's current version, a key record, two counters, and an audit record appended to the hash
//! chain. "File" means one file drive behind io_uring; the array's bench shows the additional cost
//! of a mirrored volume. Every counted commit is durable.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use stele_catalog::embedded::journal::{self, Position};
use stele_catalog::{
    Catalog, Direction, EmbeddedCatalog, Format, KeyRange, Loader, Options, Table, Template, Transaction, format,
};
use stele_ground::{Bytes, Dice, GIB, MIB};
use stele_media::{Access, Buffer, DriveFile, Engine, Handle, Shared, Space, serve_file, serve_memory};

use crate::harness::{Bench, TARGET, Unit, rate};
use crate::process::Usage;

const VERSIONS: Table = Table(1);
const CURRENT: Table = Table(2);
const KEYS: Table = Table(3);
const COUNTERS: Table = Table(4);
const AUDIT: Table = Table(5);

/// Number of versions in the reopening case, and below the figure to compare with.
const MANY: u64 = 10_000_000;
const REOPEN_MAX_SECONDS: f64 = 10.0;
/// Duration of the commits in a round.
const ROUND: Duration = Duration::from_millis(700);

pub fn run(bench: &mut Bench) -> Result<(), String> {
    for place in ["memory", "file"] {
        commits(bench, place)?;
    }
    reads(bench)?;
    reopen(bench)
}

/// A directory of this run, which is removed at its end.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Scratch, String> {
        let path = std::env::temp_dir().join(format!("stele-bench-{}", std::process::id()));
        std::fs::create_dir_all(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Scratch(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

fn words(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn file(path: &Path, size: u64, space: Space) -> Result<Handle, String> {
    let file = if path.exists() {
        DriveFile::open(path, Access::Exclusive)
    } else {
        DriveFile::create(path, Bytes(size), space)
    };
    serve_file(file.map_err(words)?, Engine::default()).map_err(words)
}

fn version_key(number: u64) -> Vec<u8> {
    format!("bucket/backups/2026/host-{:02}/object-{number:010}/{number:016x}", number % 16).into_bytes()
}

fn put(number: u64) -> Transaction {
    let key = version_key(number);
    Transaction::new()
        .absent(VERSIONS, key.clone())
        .put(VERSIONS, key.clone(), vec![number as u8; 220])
        .put(CURRENT, key[..key.len() - 17].to_vec(), number.to_be_bytes().to_vec())
        .put(KEYS, number.to_be_bytes().to_vec(), vec![7; 60])
        .add(COUNTERS, "bucket/objects", 1)
        .add(COUNTERS, "bucket/bytes", 4096)
        .append(
            (AUDIT, "head"),
            AUDIT,
            Template::new().bytes("log/").number(),
            Template::new().previous().bytes(vec![9; 150]),
        )
}

fn commits(bench: &mut Bench, place: &str) -> Result<(), String> {
    let names: Vec<String> = [1, 8, 64].iter().map(|count| format!("commit, {place}, {count} committers")).collect();
    if !names.iter().any(|name| bench.wants(name)) {
        return Ok(());
    }
    let scratch = Scratch::new()?;
    let volume = match place {
        "file" => file(&scratch.0.join("catalog"), GIB, Space::Written)?,
        _ => serve_memory(Bytes(4 * GIB)).map_err(words)?,
    };
    format(&volume, &Format { id: [1; 16], journal: None }).map_err(words)?;
    let catalog = Arc::new(EmbeddedCatalog::open(&volume, Options::default()).map_err(words)?);
    // The limit: the same batch of one transaction, forced without any other work.
    let probe = file(&scratch.0.join("probe"), 64 * MIB, Space::Written)?;
    let block =
        Buffer::copy_of(&journal::encode(&[0; 16], &Position::first(&[0; 16]), 1, &Default::default()).0).freeze();
    let mut next = 0;
    for (name, committers) in names.into_iter().zip([1u64, 8, 64]) {
        let (mut cpu, mut counted, mut batches) = (0, 0, 0);
        let mut case = bench.case(&name, Unit::more("commits/s"));
        if place == "file" {
            // The limit without grouping: each committer forces a block of its own.
            let (probe, block) = (&probe, &block);
            case = case.beside(format!("{committers} x forced 4 KiB"), move || Ok(forced(probe, block, committers)));
        }
        case.run(|| {
            let (before, status) = (Usage::own().cpu_nanoseconds, catalog.status());
            let begin = Instant::now();
            let first = next;
            next += 1 << 32;
            std::thread::scope(|scope| {
                for committer in 0..committers {
                    let catalog = &catalog;
                    scope.spawn(move || {
                        let mut number = first + (committer << 24);
                        while begin.elapsed() < ROUND {
                            catalog.commit(put(number)).wait().expect("the catalog takes commits");
                            number += 1;
                        }
                    });
                }
                // Ended threads no longer show their time, so read it before they end.
                std::thread::sleep(ROUND * 9 / 10);
                cpu += Usage::own().cpu_nanoseconds - before;
                counted += catalog.status().commits - status.commits;
            });
            batches += catalog.status().batches - status.batches;
            Ok((catalog.status().commits - status.commits) as f64 / begin.elapsed().as_secs_f64())
        })?;
        if counted > 0 {
            bench.figure(
                &format!("{name}: CPU"),
                Unit::less("us/commit"),
                cpu as f64 / 1e3 / counted as f64,
                None,
                None,
            );
            let group = counted as f64 / 0.9 / batches.max(1) as f64;
            bench.figure(&format!("{name}: group"), Unit::more("commits/batch"), group, None, None);
        }
    }
    bench.note(&format!("{place}: {:?}", catalog.status()));
    Ok(())
}

/// Forced writes a second by this many threads, each waiting for its own.
fn forced(probe: &Handle, block: &Shared, committers: u64) -> f64 {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..committers)
            .map(|committer| {
                scope.spawn(move || {
                    let mut at = committer * MIB / 2;
                    rate(ROUND / 2, || {
                        at = committer * MIB / 2 + (at + 4096) % (MIB / 2);
                        probe.write_blocking(at, vec![block.clone()], true).expect("the probe's file takes writes");
                    })
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or(0.0)).sum()
    })
}

fn reads(bench: &mut Bench) -> Result<(), String> {
    const COUNT: u64 = 1_000_000;
    let names = ["get, cached", "get, overlay", "list 1000, cached", "snapshot"];
    if !names.iter().any(|name| bench.wants(name)) {
        return Ok(());
    }
    let volume = serve_memory(Bytes(2 * GIB)).map_err(words)?;
    let mut loader = Loader::new(&volume, &Format { id: [1; 16], journal: None }).map_err(words)?;
    for number in 0..COUNT {
        loader.put(VERSIONS, version_key(number), vec![1; 220]).map_err(words)?;
    }
    loader.finish().map_err(words)?;
    let options = Options { cache: Bytes(GIB), ..Options::default() };
    let catalog = EmbeddedCatalog::open(&volume, options).map_err(words)?;
    for number in 0..10_000 {
        catalog.commit(put(COUNT + number)).wait().map_err(words)?;
    }
    // Read everything into the cache.
    let (view, mut range) = (catalog.snapshot().map_err(words)?, KeyRange::all());
    loop {
        let records = view.range(VERSIONS, &range, 1000, Direction::Forward).map_err(words)?;
        let Some((last, _)) = records.into_iter().next_back() else { break };
        range = range.after(last);
    }
    let mut dice = Dice::new(1);
    for (name, from, count) in [("get, cached", 0, COUNT), ("get, overlay", COUNT, 10_000)] {
        let view = catalog.snapshot().map_err(words)?;
        bench.case(name, Unit::more("gets/s")).run(|| {
            Ok(rate(ROUND, || {
                let found = view.get(VERSIONS, &version_key(from + dice.below(count)));
                assert!(found.is_ok_and(|found| found.is_some()), "what was put is there");
            }))
        })?;
    }
    bench.case("list 1000, cached", Unit::more("lists/s")).run(|| {
        Ok(rate(ROUND, || {
            let range = KeyRange::all().after(version_key(dice.below(COUNT)));
            std::hint::black_box(view.range(VERSIONS, &range, 1000, Direction::Forward).expect("a range is read"));
        }))
    })?;
    bench
        .case("snapshot", Unit::more("snapshots/s"))
        .run(|| Ok(rate(ROUND, || drop(std::hint::black_box(catalog.snapshot())))))
}

fn reopen(bench: &mut Bench) -> Result<(), String> {
    let name = "reopen after kill -9, 10 million versions";
    if !bench.wants(name) {
        return Ok(());
    }
    let scratch = Scratch::new()?;
    let path = scratch.0.join("catalog");
    let begin = Instant::now();
    {
        let volume = file(&path, 16 * GIB, Space::Sparse)?;
        let mut loader = Loader::new(&volume, &Format { id: [1; 16], journal: None }).map_err(words)?;
        for number in 0..MANY {
            let key = version_key(number);
            loader.put(CURRENT, key[..key.len() - 17].to_vec(), number.to_be_bytes().to_vec()).map_err(words)?;
            loader.put(VERSIONS, key, vec![number as u8; 220]).map_err(words)?;
            loader.put(KEYS, number.to_be_bytes().to_vec(), vec![7; 60]).map_err(words)?;
        }
        loader.finish().map_err(words)?;
    }
    bench.note(&format!("{MANY} versions, 3 records each, loaded in {:.0} s", begin.elapsed().as_secs_f64()));
    let (mut batches, mut first_reads) = (0, Vec::new());
    let mut next = MANY;
    let case = bench.case(name, Unit::less("s")).against(TARGET, REOPEN_MAX_SECONDS).target(1.0);
    case.run(|| {
        // Another process commits until it is killed in the middle of a commit.
        let program = std::env::current_exe().map_err(words)?;
        let mut child = Command::new(program)
            .args([CHILD, &path.to_string_lossy(), &next.to_string()])
            .stdout(Stdio::piped())
            .spawn()
            .map_err(words)?;
        let mut line = String::new();
        let stdout = child.stdout.take().ok_or("the child has no output")?;
        BufReader::new(stdout).read_line(&mut line).map_err(words)?;
        child.kill().map_err(words)?;
        child.wait().map_err(words)?;
        let acknowledged: u64 = line.trim().parse().map_err(|_| format!("the child said '{}'", line.trim()))?;
        let begin = Instant::now();
        let volume = file(&path, 0, Space::Sparse)?;
        let catalog = EmbeddedCatalog::open(&volume, Options::default()).map_err(words)?;
        let seconds = begin.elapsed().as_secs_f64();
        let view = catalog.snapshot().map_err(words)?;
        for number in [0, MANY / 3, MANY - 1, acknowledged] {
            let begin = Instant::now();
            if view.get(VERSIONS, &version_key(number)).map_err(words)?.is_none() {
                return Err(format!("version {number} was acknowledged and is gone"));
            }
            first_reads.push(begin.elapsed());
        }
        batches = catalog.status().commits;
        next = acknowledged + 1_000_000;
        Ok(seconds)
    })?;
    let slowest = first_reads.iter().max().map_or(0.0, |time| time.as_secs_f64() * 1e3);
    bench.figure("reopen: slowest first read", Unit::less("ms"), slowest, None, None);
    bench.note(&format!("{batches} transactions committed by processes that were killed"));
    Ok(())
}

/// The argument that makes this program the process to kill.
pub const CHILD: &str = "catalog-child";

/// Commits for ever; prints once, after three seconds, the acknowledged number.
pub fn child(path: &str, first: &str) -> Result<(), String> {
    let first: u64 = first.parse().map_err(words)?;
    let volume = file(Path::new(path), 0, Space::Sparse)?;
    let catalog = EmbeddedCatalog::open(&volume, Options::default()).map_err(words)?;
    let begin = Instant::now();
    let mut said = false;
    let mut number = first;
    loop {
        let pending: Vec<_> = (0..64).map(|at| catalog.commit(put(number + at))).collect();
        for pending in pending {
            pending.wait().map_err(words)?;
        }
        if !said && begin.elapsed() > Duration::from_secs(3) {
            println!("{number}");
            said = true;
        }
        number += 64;
    }
}
