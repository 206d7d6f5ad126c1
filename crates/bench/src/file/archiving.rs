//! From the first byte of a file to its verified version in the archive, and back.

use std::time::{Duration, Instant};

use crate::harness::{Bench, TARGET, Unit};
use crate::process::Usage;

use super::client::{Call, NfsClient};
use super::content;
use super::servers::SteleFileServer;

const FILES: Unit = Unit::more("files/s");
const MEGABYTES: Unit = Unit::more("MB/s");
const FILE_CPU: Unit = Unit::less("us/file");

/// Small files, enough for ten seconds of steady work.
const SMALL: u64 = 24_000;
/// Bytes of the large file, several times the cache that it goes through.
const LARGE: u64 = 512 << 20;
const CACHE: &str = "64MiB";
const PIECE: u64 = 256 << 10;

const SMALL_NAME: &str = "4 KiB files through to archived";
const SMALL_CPU_NAME: &str = "4 KiB files through to archived, server CPU";
const LARGE_NAME: &str = "512 MiB file through to archived";
const COLD_NAME: &str = "retrieval, cold";
const CACHED_NAME: &str = "retrieval, cached";
pub const NAMES: [&str; 5] = [SMALL_NAME, SMALL_CPU_NAME, LARGE_NAME, COLD_NAME, CACHED_NAME];

/// Small files that are to be archived in a second.
const SMALL_RATE: f64 = 3000.0;

pub fn run(bench: &mut Bench, stele: &SteleFileServer) -> Result<(), String> {
    if bench.wants_any("", [SMALL_NAME, SMALL_CPU_NAME]) {
        small(bench, stele)?;
    }
    if bench.wants_any("", [LARGE_NAME, COLD_NAME, CACHED_NAME]) {
        large(bench, stele)?;
    }
    Ok(())
}

fn small(bench: &mut Bench, stele: &SteleFileServer) -> Result<(), String> {
    let mut client = stele.share("small", "1GiB", "1")?;
    let before = Usage::of(stele.process()).cpu_nanoseconds;
    let begun = Instant::now();
    client.records(SMALL, 32, |index| format!("record-{index:06}"), &content(4096))?;
    archived(stele, "small", SMALL)?;
    let elapsed = begun.elapsed().as_secs_f64();
    let spent = Usage::of(stele.process()).cpu_nanoseconds - before;
    bench.figure(SMALL_NAME, FILES, SMALL as f64 / elapsed, Some((TARGET, SMALL_RATE)), Some(1.0));
    bench.figure(SMALL_CPU_NAME, FILE_CPU, spent as f64 / 1e3 / SMALL as f64, None, None);
    Ok(())
}

fn large(bench: &mut Bench, stele: &SteleFileServer) -> Result<(), String> {
    let mut client = stele.share("large", CACHE, "0")?;
    let begun = Instant::now();
    let file = client.make("large")?;
    // Parts that each fit the cache: a file leaves it only as a whole.
    let part = 32 << 20;
    let mut parts = vec![file];
    for index in 1..LARGE / part {
        parts.push(client.make(&format!("large-{index}"))?);
    }
    let data = content(PIECE as usize);
    for part_file in &parts {
        client.fill(part_file, part, &data).map_err(|error| format!("writing the large file: {error}"))?;
    }
    archived(stele, "large", parts.len() as u64)?;
    let megabytes = LARGE as f64 / 1e6;
    bench.figure(LARGE_NAME, MEGABYTES, megabytes / begun.elapsed().as_secs_f64(), None, None);
    let begun = Instant::now();
    read(&mut client, &parts, part)?;
    bench.figure(COLD_NAME, MEGABYTES, megabytes / begun.elapsed().as_secs_f64(), None, None);
    let last = &parts[parts.len() - 1..];
    read(&mut client, last, part)?;
    let begun = Instant::now();
    for _ in 0..16 {
        read(&mut client, last, part)?;
    }
    bench.figure(CACHED_NAME, MEGABYTES, 16.0 * part as f64 / 1e6 / begun.elapsed().as_secs_f64(), None, None);
    Ok(())
}

fn read(client: &mut NfsClient, files: &[Vec<u8>], length: u64) -> Result<(), String> {
    for file in files {
        let calls = client.many(length / PIECE, 8, |index| Call::read(file, index * PIECE, PIECE as u32));
        calls.map_err(|error| format!("reading the large file: {error}"))?;
    }
    Ok(())
}

/// Waits until this many files are archived and none is open.
fn archived(stele: &SteleFileServer, share: &str, files: u64) -> Result<(), String> {
    let begun = Instant::now();
    loop {
        let status = stele.status(share)?["status"].clone();
        if status["archived_files"].as_u64() >= Some(files) && status["open_files"].as_u64() == Some(0) {
            return Ok(());
        }
        if begun.elapsed() > Duration::from_secs(120) {
            return Err(format!("not archived in time: {status}"));
        }
        // Each look starts a process, which takes time from the server.
        std::thread::sleep(Duration::from_millis(100));
    }
}
