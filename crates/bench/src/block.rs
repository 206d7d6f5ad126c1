//! Block devices over NBD, against nbdkit's memory plugin and qemu-nbd in the same run: the same client (fio), unix socket and TCP
//! on the loopback, everything in memory.
//!
//! Stele serves a volume of 1 GiB on file drives in /dev/shm, two copies of every block and its digest checked with every read;
//! its peers hand out memory, or one file in memory. What is judged is the server's CPU an operation, since fio itself
//! takes most of the time on a small machine. Writes are counted with what follows them: over many times the dirty limit, and
//! until nothing is dirty any more.
//!
//! The rounds of Stele and its peers alternate; medians are shown, and of Stele's the spread.

mod fio;
mod servers;

use std::time::{Duration, Instant};

use crate::harness::{Bench, Unit};
use fio::{Load, Ran, cpu_time};
use servers::{Nbdkit, QemuNbd, Stele};

const RATE: Unit = Unit::more("IOPS");
const STREAM: Unit = Unit::more("MB/s");
const CPU: Unit = Unit::less("us/op");

/// One workload of the table.
struct Case {
    name: &'static str,
    load: Load,
    /// Of nbdkit's server CPU an operation, at most so many times as much.
    cpu_target: Option<f64>,
    /// Of the best peer's rate, at least.
    rate_target: Option<f64>,
}

const fn case(name: &'static str, load: Load, cpu_target: Option<f64>, rate_target: Option<f64>) -> Case {
    Case { name, load, cpu_target, rate_target }
}

const CASES: &[Case] = &[
    case("4 KiB random read", Load::small("randread"), Some(1.0), Some(1.0)),
    case("4 KiB random read, 2 jobs", Load::small("randread").jobs(2), Some(1.0), None),
    case("4 KiB random read, 64 MiB that stay cached", Load::small("randread").span("64m"), Some(1.0), Some(1.0)),
    case("4 KiB random write", Load::small("randwrite"), Some(0.5), None),
    case("4 KiB random write, 2 jobs", Load::small("randwrite").jobs(2), Some(0.5), None),
    case("50/50 at 512 B, 4 and 8 KiB", Load::mixed(), None, None),
    case("50/50 at 512 B, 4 and 8 KiB, 2 jobs", Load::mixed().jobs(2), None, None),
    case("256 KiB read", Load::large("read"), None, Some(1.0)),
    case("256 KiB write", Load::large("write"), None, None),
];

pub fn run(bench: &mut Bench) -> Result<(), String> {
    for program in ["fio", "nbdkit", "qemu-nbd", "nbdcopy"] {
        if !fio::is_installed(program) {
            return Err(format!(
                "{program} is not installed; Debian: apt-get install fio nbdkit qemu-utils libnbd-bin"
            ));
        }
    }
    let stele = Stele::start(&["vm:mirror-2"])?;
    bench.note("Stele: a volume of 1 GiB of two copies on 12 file drives in memory, digests checked, write-back, 128 MiB of cache");
    bench.note(
        "peers: nbdkit memory (1 GiB), qemu-nbd on a file in memory; client: fio's nbd engine, depth 32 (256 KiB: 8)",
    );
    for transport in ["unix", "tcp"] {
        let nbdkit = Nbdkit::start(stele.dir(), transport)?;
        let qemu = QemuNbd::start(stele.dir(), transport)?;
        for url in [stele.url("vm", transport), nbdkit.url.clone(), qemu.url.clone()] {
            fio::fill(&url)?;
        }
        for case in CASES {
            compare(bench, case, transport, &stele, &nbdkit, &qemu)?;
        }
        if transport == "unix" {
            duplex(bench, &stele, &nbdkit)?;
            latency(bench, &stele, &nbdkit)?;
            copying(bench, &stele, &nbdkit)?;
        }
    }
    coded(bench)
}

/// Medians of one side.
#[derive(Default)]
struct Side {
    rate: Vec<f64>,
    cpu: Vec<f64>,
}

impl Side {
    fn add(&mut self, ran: &Ran, cpu_nanoseconds: u64, large: bool) {
        self.rate.push(if large { ran.megabytes } else { ran.rate });
        self.cpu.push(cpu_nanoseconds as f64 / 1000.0 / ran.operations.max(1.0));
    }
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}

fn compare(
    bench: &mut Bench,
    case: &Case,
    transport: &str,
    stele: &Stele,
    nbdkit: &Nbdkit,
    qemu: &QemuNbd,
) -> Result<(), String> {
    let name = format!("{} over {transport}", case.name);
    let cpu_name = format!("{name}, server CPU");
    if !bench.wants(&name) && !bench.wants(&cpu_name) {
        return Ok(());
    }
    let large = case.load.is_large();
    let (mut ours, mut kit, mut emulator) = (Side::default(), Side::default(), Side::default());
    for round in 0..=bench.rounds().min(3) {
        let url = stele.url("vm", transport);
        let begun = cpu_time(stele.process);
        let ran = fio::run(&url, &case.load)?;
        stele.settle("vm")?;
        let used = cpu_time(stele.process) - begun;
        let peer = |side: &mut Side, process: u32, url: &str| -> Result<(), String> {
            let begun = cpu_time(process);
            let ran = fio::run(url, &case.load)?;
            side.add(&ran, cpu_time(process) - begun, large);
            Ok(())
        };
        // The first round warms all of them up.
        let mut thrown = (Side::default(), Side::default(), Side::default());
        let (ours, kit, emulator) = match round {
            0 => (&mut thrown.0, &mut thrown.1, &mut thrown.2),
            _ => (&mut ours, &mut kit, &mut emulator),
        };
        ours.add(&ran, used, large);
        peer(kit, nbdkit.process, &nbdkit.url)?;
        peer(emulator, qemu.process, &qemu.url)?;
    }
    let unit = if large { STREAM } else { RATE };
    let (kit_rate, qemu_rate) = (median(&kit.rate), median(&emulator.rate));
    let best = if kit_rate >= qemu_rate { ("nbdkit memory", kit_rate) } else { ("qemu-nbd", qemu_rate) };
    bench.figures(&name, unit, &ours.rate, Some(best), case.rate_target);
    bench.figures(&cpu_name, CPU, &ours.cpu, Some(("nbdkit memory", median(&kit.cpu))), case.cpu_target);
    bench.note(&format!("{name}: qemu-nbd {qemu_rate:.0} {} at {:.1} us/op", unit.name, median(&emulator.cpu)));
    Ok(())
}

/// Reading and writing at once, as in the second table of the paper "fc8-end-to-end": 786 + 751 MB/s at depth 32 over one
/// 8 Gb Fibre Channel link, there limited by the link.
fn duplex(bench: &mut Bench, stele: &Stele, nbdkit: &Nbdkit) -> Result<(), String> {
    let name = "256 KiB full duplex";
    if !bench.wants(name) {
        return Ok(());
    }
    let both = |url: &str| -> Result<(f64, f64), String> {
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| fio::run(url, &Load::large("read").span("512m")));
            let writer = fio::run(url, &Load::large("write").span("512m"))?;
            let reader = reader.join().map_err(|_| "the reader died".to_owned())??;
            Ok((reader.megabytes, writer.megabytes))
        })
    };
    let ours = both(&stele.url("vm", "unix"))?;
    let peer = both(&nbdkit.url)?;
    let reference = |value| Some(("nbdkit memory", value));
    bench.figures("256 KiB full duplex, read", STREAM, &[ours.0], reference(peer.0), None);
    bench.figures("256 KiB full duplex, write", STREAM, &[ours.1], reference(peer.1), None);
    bench.figures(
        "256 KiB full duplex, sum",
        STREAM,
        &[ours.0 + ours.1],
        Some(("fc8-end-to-end, table 2", 1537.0)),
        None,
    );
    Ok(())
}

/// One request at a time, beside the least that two threads need to wake each other with as many bytes.
fn latency(bench: &mut Bench, stele: &Stele, nbdkit: &Nbdkit) -> Result<(), String> {
    let name = "4 KiB read, depth 1";
    if !bench.wants(name) {
        return Ok(());
    }
    let load = Load::small("randread").depth(1).span("64m");
    let limit = fio::ping_pong().map_err(|error| format!("ping-pong: {error}"))?;
    let unit = Unit::less("us");
    let ours = 1e6 / fio::run(&stele.url("vm", "unix"), &load)?.rate;
    let peer = 1e6 / fio::run(&nbdkit.url, &load)?.rate;
    bench.figures(name, unit, &[ours], Some(("blocking ping-pong of this run", limit)), None);
    bench.note(&format!("{name}: nbdkit memory {peer:.0} us"));
    Ok(())
}

fn copying(bench: &mut Bench, stele: &Stele, nbdkit: &Nbdkit) -> Result<(), String> {
    let name = "nbdcopy of 1 GiB to null";
    if !bench.wants(name) {
        return Ok(());
    }
    let ours = fio::copy(&stele.url("vm", "unix"))?;
    let peer = fio::copy(&nbdkit.url)?;
    bench.figures(name, STREAM, &[ours], Some(("nbdkit memory", peer)), None);
    Ok(())
}

/// The same small writes on 8+2, which no peer codes.
fn coded(bench: &mut Bench) -> Result<(), String> {
    let name = "4 KiB random write on 8+2, server CPU";
    if !bench.wants(name) {
        return Ok(());
    }
    let stele = Stele::start(&["vm:8+2"])?;
    let url = stele.url("vm", "unix");
    fio::fill(&url)?;
    stele.settle("vm")?;
    let begun = cpu_time(stele.process);
    let since = Instant::now();
    let ran = fio::run(&url, &Load::small("randwrite"))?;
    stele.settle("vm")?;
    let used = cpu_time(stele.process) - begun;
    bench.figures(name, CPU, &[used as f64 / 1000.0 / ran.operations.max(1.0)], None, None);
    bench.note(&format!("{:.0} IOPS; {:.1} s with the destage behind it", ran.rate, since.elapsed().as_secs_f64()));
    Ok(())
}

/// How long a round of fio takes.
const ROUND: Duration = Duration::from_secs(3);
