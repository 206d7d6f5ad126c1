//! S3 over TCP on one machine: 8 clients, each with one connection kept open, against `stele up` on
//! file drives.
//!
//! The clients are this process and the server is another, so that the server's CPU time is its
//! own: user and kernel time of the server process, divided by the operations. Every payload is
//! signed with its SHA-256, which the client hashes once beforehand and the server verifies. The
//! server also computes MD5, CRC64NVME and BLAKE3. PUTs are durable on 8+2 and encrypted; every PUT
//! makes a new key. GETs read a cached working set, as with the peers.
//!
//! The peers' figures come from the reference machine (2 vCPU EPYC Zen 5 guest), since a bench must
//! not build them from source. A ratio to them is meaningful only on that machine.

mod client;
pub mod server;

use std::cell::Cell;
use std::time::{Duration, Instant};

use crate::harness::{Bench, TARGET, Unit};
use crate::process::{Usage, machine_memory};
use client::{S3Client, Work};
use server::Server;
use stele_lab::live::s3::sign;

const CLIENTS: usize = 8;
const ROUND: Duration = Duration::from_millis(1500);
const BUCKET: &str = "bench";

const RATE: Unit = Unit::more("objects/s");
const CPU: Unit = Unit::less("us/object");
const MEMORY: Unit = Unit::less("MiB");

/// One size and direction: the peer's figures, and our target ratios.
struct Case {
    put: bool,
    name: &'static str,
    size: usize,
    /// Number of objects in the working set of a GET.
    objects: usize,
    /// MinIO, durable, on 4 directories: objects a second, and microseconds of server CPU for each.
    peer_rate: f64,
    peer_cpu: f64,
    rate_target: f64,
    cpu_target: f64,
}

const CASES: [Case; 6] = [
    // 3,000 a second.
    case(true, "4 KiB", 4 << 10, 0, (592.0, 2230.0), (5.07, 2.0)),
    // 6,000 a second.
    case(false, "4 KiB", 4 << 10, 512, (3874.0, 350.0), (1.55, 2.0)),
    case(true, "256 KiB", 256 << 10, 0, (301.0, 3450.0), (2.0, 2.0)),
    case(false, "256 KiB", 256 << 10, 64, (2340.0, 620.0), (1.6, 2.0)),
    case(true, "10 MiB", 10 << 20, 0, (35.3, 32_500.0), (1.2, 1.0)),
    case(false, "10 MiB", 10 << 20, 4, (257.0, 4500.0), (1.0, 1.0)),
];

const fn case(
    put: bool,
    name: &'static str,
    size: usize,
    objects: usize,
    (peer_rate, peer_cpu): (f64, f64),
    (rate_target, cpu_target): (f64, f64),
) -> Case {
    Case { put, name, size, objects, peer_rate, peer_cpu, rate_target, cpu_target }
}

pub fn run(bench: &mut Bench) -> Result<(), String> {
    if !CASES.iter().any(|case| bench.wants(&case.title()) || bench.wants(&case.cpu_title()))
        && !bench.wants_any("", [PEAK, PEAK_BESIDE_TARGET, OPENING])
    {
        return Ok(());
    }
    let mut server = Server::start()?;
    bench.note(
        "Stele: 12 file drives as `stele up` makes them, 8+2, durable, encrypted; payloads signed with SHA-256, MD5 entity tags, CRC64NVME",
    );
    bench.note("clients: 8 connections kept open, on the same machine; GETs from a cached working set");
    bench.note("beside: MinIO durable on 4 directories, quoted from the reference machine (2 vCPU EPYC Zen 5 guest)");
    S3Client::new(&server)?.request("PUT", &format!("/{BUCKET}"), &[])?;
    let mut number = 0;
    for case in &CASES {
        measure(bench, &server, case, &mut number)?;
    }
    let peak = Usage::of(server.process).resident_peak_bytes as f64 / f64::from(1 << 20);
    bench.figure(PEAK, MEMORY, peak, Some(("MinIO, reference machine, at least", 574.0)), None);
    bench.figure(PEAK_BESIDE_TARGET, MEMORY, peak, Some((TARGET, peak_max())), Some(1.0));
    opening(bench, &mut server, number)?;
    server.stop()
}

/// Fills the store with small objects, kills the server, and measures the time from its start until
/// it is ready.
fn opening(bench: &mut Bench, server: &mut Server, mut number: u32) -> Result<(), String> {
    if !bench.wants(OPENING) {
        return Ok(());
    }
    let body = [7; 1 << 10];
    let hash = sign::hash(&body);
    let mut objects = 0;
    while objects < MANY {
        number += 1;
        let mut clients = (0..CLIENTS).map(|_| S3Client::new(server)).collect::<Result<Vec<_>, _>>()?;
        let work = Work { put: true, size: body.len(), objects: 0, round: number, body: &body, hash: &hash };
        objects += together(&mut clients, &work, Instant::now() + 4 * ROUND)?;
    }
    bench.note(&format!("{objects} objects of 1 KiB when the server is killed"));
    bench.case(OPENING, Unit::less("s")).target(1.0).against(TARGET, OPENING_MAX_SECONDS).run(|| {
        let seconds = server.kill_and_start()?.as_secs_f64();
        S3Client::new(server)?.request("GET", &format!("/{BUCKET}/put-{}-{number}/0-0", body.len()), &[])?;
        Ok(seconds)
    })
}

/// Number of objects in the opened store.
const MANY: u64 = 100_000;
const OPENING: &str = "opening 100,000 objects after kill -9";
const OPENING_MAX_SECONDS: f64 = 2.0;

const PEAK: &str = "server memory, peak resident";
const PEAK_BESIDE_TARGET: &str = "server memory, peak resident, beside the target";
const PEAKS: [&str; 2] = [PEAK, PEAK_BESIDE_TARGET];

/// MiB that the server may take, whatever is uploaded: 512 MB, and its caches as `stele up` sets
/// them. These are an eighth of the memory for blocks, within bounds, and 64 MiB each for the
/// table, dirty blocks and the catalog (OPERATIONS.md, `[memory]`).
fn peak_max() -> f64 {
    let blocks = (machine_memory() / 8).clamp(128 << 20, 16 << 30);
    (512e6 + (blocks + 3 * (64 << 20)) as f64) / f64::from(1 << 20)
}

impl Case {
    fn title(&self) -> String {
        format!("{} {}", if self.put { "PUT" } else { "GET" }, self.name)
    }

    fn cpu_title(&self) -> String {
        format!("{} server CPU", self.title())
    }
}

fn measure(bench: &mut Bench, server: &Server, case: &Case, number: &mut u32) -> Result<(), String> {
    // The server's memory is that of all of this work, so it is needed for it too.
    if !bench.wants_any("", [case.title(), case.cpu_title()].iter().map(String::as_str).chain(PEAKS)) {
        return Ok(());
    }
    let body: Vec<u8> = (0..case.size).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let hash = sign::hash(&body);
    if !case.put {
        let mut client = S3Client::new(server)?;
        for object in 0..case.objects {
            client.request("PUT", &format!("/{BUCKET}/get-{}-{object}", case.size), &body)?;
        }
    }
    let (cpu, operations) = (Cell::new(0u64), Cell::new(0u64));
    let mut clients = (0..CLIENTS).map(|_| S3Client::new(server)).collect::<Result<Vec<_>, _>>()?;
    let mut round = || {
        *number += 1;
        let work =
            Work { put: case.put, size: case.size, objects: case.objects, round: *number, body: &body, hash: &hash };
        let before = Usage::of(server.process).cpu_nanoseconds;
        let start = Instant::now();
        let done = together(&mut clients, &work, start + ROUND)?;
        let elapsed = start.elapsed();
        let used = Usage::of(server.process).cpu_nanoseconds.saturating_sub(before);
        cpu.set(cpu.get() + used);
        operations.set(operations.get() + done);
        Ok(done as f64 / elapsed.as_secs_f64())
    };
    // CPU and memory come from the same rounds, so these are needed even if only they are selected.
    if bench.wants(&case.title()) {
        bench
            .case(case.title(), RATE)
            .target(case.rate_target)
            .against("MinIO, reference machine", case.peer_rate)
            .run(&mut round)?;
    } else {
        round()?;
    }
    let each = cpu.get() as f64 / 1000.0 / operations.get().max(1) as f64;
    let peer = Some(("MinIO, reference machine", case.peer_cpu));
    bench.figure(&case.cpu_title(), CPU, each, peer, Some(case.cpu_target));
    Ok(())
}

/// Runs all clients until the deadline; returns the number of completed operations.
fn together(clients: &mut [S3Client], work: &Work<'_>, deadline: Instant) -> Result<u64, String> {
    std::thread::scope(|scope| {
        let running: Vec<_> = clients
            .iter_mut()
            .enumerate()
            .map(|(index, client)| scope.spawn(move || client.work(work, index, deadline)))
            .collect();
        running
            .into_iter()
            .map(|client| client.join().map_err(|_| "a client panicked".to_owned())?)
            .sum::<Result<u64, String>>()
    })
}
