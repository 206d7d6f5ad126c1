//! Block devices over NBD and iSCSI, against nbdkit's memory plugin, qemu-nbd and tgt in the same
//! run. All use the same client (fio), a Unix socket and TCP on the loopback, and keep everything
//! in memory.
//!
//! Stele serves a volume of 1 GiB on file drives in /dev/shm, with two copies of every block. It
//! verifies every block from a drive against its digest. Its cache holds the volume, as the peers'
//! memory holds theirs. The server's CPU time for each operation is judged, since fio itself takes
//! most of the time on a small machine. Writes are counted with their consequences: the bench
//! writes six times the dirty limit, and CPU time counts until no block is dirty any more.
//!
//! The rounds of Stele and its peers alternate. The medians are shown, and Stele's spread. With
//! `--write-docs` a whole run writes `docs/block.md`, with the tables of the paper "fc8-end-to-end"
//! beside it.

mod client;
mod iscsi;
mod limit;
mod page;
mod servers;

use std::time::Duration;

use crate::harness::{Bench, TARGET, Unit};
use client::{FioResult, Load, cpu_time};
use page::{Figures, Page};
use servers::{Nbdkit, QemuNbd, SteleBlockServer};

const RATE: Unit = Unit::more("IOPS");
const STREAM: Unit = Unit::more("MB/s");
const CPU: Unit = Unit::less("us/op");
/// Duration of a round of fio that is not limited by an amount to write.
const ROUND: Duration = Duration::from_secs(1);
/// Largest number of rounds counted; one more is thrown away.
const ROUNDS_MAX: u32 = 3;

/// One workload of the table.
struct Case {
    transport: &'static str,
    name: &'static str,
    load: Load,
    /// Smallest ratio of nbdkit's server CPU for an operation to ours.
    cpu_target: Option<f64>,
    /// Smallest ratio of our rate to the best peer's.
    rate_target: Option<f64>,
    /// Largest server CPU of ours for an operation.
    cpu_max: Option<f64>,
    /// Smallest share of what the copy through the socket and the array alone allow.
    limit_share: Option<f64>,
}

/// The most server CPU, in microseconds, that a write of 4 KiB is to take, its destage included.
const SMALL_WRITE_MAX: f64 = 10.0;
/// The same for a write of 256 KiB: half of the 170 us that one took when the target was set.
const LARGE_WRITE_MAX: f64 = 85.0;
/// The same for a read of 256 KiB from the drives: half of 180 us.
const COLD_READ_MAX: f64 = 90.0;
/// The same for a piece of 256 KiB where reads and writes go on at once: half of what one took
/// before. Both together were 1.4 GB/s then, with one processor thread always busy: 262,144 bytes
/// in 187 us.
const DUPLEX_MAX: f64 = 94.0;

const fn case(transport: &'static str, name: &'static str, load: Load) -> Case {
    Case { transport, name, load, cpu_target: None, rate_target: None, cpu_max: None, limit_share: None }
}

impl Case {
    const fn cpu(self, ratio: f64) -> Case {
        Case { cpu_target: Some(ratio), ..self }
    }
    const fn rate(self, ratio: f64) -> Case {
        Case { rate_target: Some(ratio), ..self }
    }
    const fn cpu_max(self, microseconds: f64) -> Case {
        Case { cpu_max: Some(microseconds), ..self }
    }
    const fn of_limit(self, share: f64) -> Case {
        Case { limit_share: Some(share), ..self }
    }

    /// What stands behind its name, for each of its figures.
    fn ends(&self) -> Vec<&'static str> {
        let more = [(self.cpu_max, CPU_MAX_SUFFIX), (self.limit_share, LIMIT_SUFFIX)];
        let more = more.into_iter().filter(|(target, _)| target.is_some()).map(|(_, end)| end);
        ["", CPU_SUFFIX].into_iter().chain(more).collect()
    }
}

const CASES: &[Case] = &[
    case("unix", "4 KiB read", Load::small("randread", "4k")).cpu(1.0).rate(1.0),
    case("unix", "4 KiB read, 2 jobs", Load::small("randread", "4k").jobs(2)).cpu(1.0).rate(1.0),
    case("unix", "4 KiB write", Load::small("randwrite", "4k").total("384m")).cpu(0.5).cpu_max(SMALL_WRITE_MAX),
    case("unix", "4 KiB write, 2 jobs", Load::small("randwrite", "4k").jobs(2).total("192m"))
        .cpu(0.5)
        .cpu_max(SMALL_WRITE_MAX),
    case("unix", "50/50 at 512 B", Load::small("randrw", "512")),
    case("unix", "50/50 at 4 KiB", Load::small("randrw", "4k")),
    case("unix", "50/50 at 8 KiB", Load::small("randrw", "8k")),
    case("unix", "50/50 at 512 B, 2 jobs", Load::small("randrw", "512").jobs(2)),
    case("unix", "50/50 at 4 KiB, 2 jobs", Load::small("randrw", "4k").jobs(2)),
    case("unix", "50/50 at 8 KiB, 2 jobs", Load::small("randrw", "8k").jobs(2)),
    case("unix", "256 KiB read", Load::large("read")).rate(1.0),
    case("unix", "256 KiB write", Load::large("write").total("1g")).cpu_max(LARGE_WRITE_MAX).of_limit(0.5),
    case("tcp", "4 KiB read", Load::small("randread", "4k")).cpu(1.0).rate(1.0),
    case("tcp", "4 KiB write", Load::small("randwrite", "4k").total("384m")).cpu(0.5).cpu_max(SMALL_WRITE_MAX),
    case("tcp", "50/50 at 4 KiB", Load::small("randrw", "4k")),
    case("tcp", "256 KiB read", Load::large("read")).rate(1.0),
    case("tcp", "256 KiB write", Load::large("write").total("1g")).cpu_max(LARGE_WRITE_MAX),
];

/// The workloads of the paper's first table besides the 50/50 mixes above; Stele alone, two jobs.
const PAPER: &[(&str, Load)] = &[
    ("50/50 at 1 KiB, 2 jobs", Load::small("randrw", "1k").jobs(2)),
    ("50/50 at 2 KiB, 2 jobs", Load::small("randrw", "2k").jobs(2)),
    ("512 B write, 2 jobs", Load::small("randwrite", "512").jobs(2)),
    ("512 B read at depth 16, 2 jobs", Load::small("randread", "512").jobs(2).depth(8)),
];

pub fn run(bench: &mut Bench) -> Result<(), String> {
    for program in ["fio", "nbdkit", "qemu-nbd", "nbdcopy"] {
        if !client::is_installed(program) {
            return Err(format!(
                "{program} is not installed; Debian: apt-get install fio nbdkit qemu-utils libnbd-bin"
            ));
        }
    }
    let mut page = Page::default();
    bench
        .note("Stele: 1 GiB, mirror-2 on 12 file drives in memory, digests, write-back, a cache that holds the volume");
    bench.note("peers: nbdkit memory (1 GiB), qemu-nbd on a file in memory; client: fio nbd, depth 32 (256 KiB: 8)");
    let transports = ["unix", "tcp"].into_iter().fold(false, |any, transport| any | wants(bench, transport));
    let paper = bench.wants_any("unix ", PAPER.iter().map(|(name, _)| *name));
    if iscsi::wants(bench) || transports || paper {
        let stele = SteleBlockServer::start("mirror-2", "1536MiB")?;
        for transport in ["unix", "tcp"] {
            beside_peers(bench, &mut page, &stele, transport)?;
        }
        iscsi::beside_tgt(bench, &mut page, &stele)?;
        for (name, load) in PAPER {
            alone(bench, &mut page, &stele, name, load)?;
        }
    }
    for code in ["mirror-2", "8+2"] {
        cold(bench, &mut page, code)?;
    }
    bench.write_page(page::PATH, &page.text())
}

/// Whether `--case` selects a case over this transport beside peers.
fn wants(bench: &Bench, transport: &str) -> bool {
    let cases = CASES.iter().filter(|case| case.transport == transport);
    let names = cases.flat_map(|case| case.ends().into_iter().map(|end| format!("{}{end}", case.name)));
    let duplex = DUPLEX.iter().flat_map(|(name, _)| DUPLEX_ENDS.map(|end| format!("{name}{end}")));
    let names: Vec<String> = names.chain(duplex).chain([LATENCY, COPY].map(str::to_owned)).collect();
    bench.wants_any(&format!("{transport} "), names.iter().map(String::as_str))
}

fn beside_peers(
    bench: &mut Bench,
    page: &mut Page,
    stele: &SteleBlockServer,
    transport: &'static str,
) -> Result<(), String> {
    if !wants(bench, transport) {
        return Ok(());
    }
    let trio =
        Trio { stele, nbdkit: &Nbdkit::start(stele.dir(), transport)?, qemu: &QemuNbd::start(stele.dir(), transport)? };
    for url in [stele.url(transport), trio.nbdkit.url.clone(), trio.qemu.url.clone()] {
        client::fill(&url)?;
        // A full read brings into the cache what the fill left out.
        client::copy(&url)?;
    }
    stele.settle()?;
    for case in CASES.iter().filter(|case| case.transport == transport) {
        compare(bench, page, case, &trio)?;
    }
    for (name, depth) in DUPLEX {
        duplex(bench, page, &trio, transport, name, *depth)?;
    }
    latency(bench, page, &trio, transport)?;
    copying(bench, page, &trio, transport)
}

/// The three servers of a transport.
struct Trio<'a> {
    stele: &'a SteleBlockServer,
    nbdkit: &'a Nbdkit,
    qemu: &'a QemuNbd,
}

impl Trio<'_> {
    /// Figures of all three, in turns; the first round warms up and is thrown away.
    fn rounds(
        &self,
        rounds: u32,
        transport: &str,
        mut round: impl FnMut(&str) -> Result<f64, String>,
    ) -> Result<[Vec<f64>; 3], String> {
        let mut values: [Vec<f64>; 3] = Default::default();
        let urls = [self.stele.url(transport), self.nbdkit.url.clone(), self.qemu.url.clone()];
        for count in 0..=rounds {
            for (url, values) in urls.iter().zip(&mut values) {
                let value = round(url)?;
                if count > 0 {
                    values.push(value);
                }
            }
        }
        Ok(values)
    }
}

const CPU_SUFFIX: &str = ": server CPU";
/// The same beside what it is to be at most.
const CPU_MAX_SUFFIX: &str = ": server CPU, beside the target";
const LIMIT_SUFFIX: &str = ", beside socket and array alone";

/// Reports server CPU beside what it is to be at most.
fn beside_most(bench: &mut Bench, name: &str, cpu: &[f64], most: Option<f64>) {
    if let Some(most) = most {
        bench.figures(&format!("{name}{CPU_MAX_SUFFIX}"), CPU, cpu, Some((TARGET, most)), Some(1.0));
    }
}

fn rounds(bench: &Bench) -> u32 {
    bench.rounds().min(ROUNDS_MAX)
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}

/// The result of a round, and the server's microseconds for each operation, until the written data
/// is on the drives.
fn measured(
    load: &Load,
    url: &str,
    process: u32,
    stele: Option<&SteleBlockServer>,
) -> Result<(FioResult, f64), String> {
    let begun = cpu_time(process);
    let ran = client::run(url, load)?;
    if let Some(stele) = stele {
        stele.settle()?;
    }
    let used = (cpu_time(process) - begun) as f64 / 1000.0 / ran.operations.max(1.0);
    Ok((ran, used))
}

fn compare(bench: &mut Bench, page: &mut Page, case: &Case, trio: &Trio<'_>) -> Result<(), String> {
    let name = format!("{} {}", case.transport, case.name);
    let cpu_name = format!("{name}{CPU_SUFFIX}");
    if !bench.wants_any(&name, case.ends()) {
        return Ok(());
    }
    let large = case.load.is_large();
    let mut cpu: [Vec<f64>; 3] = Default::default();
    let ours = trio.stele.url(case.transport);
    let rate = trio.rounds(rounds(bench), case.transport, |url| {
        let (process, stele, side) = match url {
            _ if url == ours => (trio.stele.process, Some(trio.stele), 0),
            _ if url == trio.nbdkit.url => (trio.nbdkit.process, None, 1),
            _ => (trio.qemu.process, None, 2),
        };
        let (ran, used) = measured(&case.load, url, process, stele)?;
        cpu[side].push(used);
        Ok(if large { ran.megabytes } else { ran.rate })
    })?;
    for values in &mut cpu {
        values.remove(0);
    }
    let unit = if large { STREAM } else { RATE };
    let (kit, qemu) = (median(&rate[1]), median(&rate[2]));
    let best = if kit >= qemu { ("nbdkit memory", kit) } else { ("qemu-nbd", qemu) };
    bench.figures(&name, unit, &rate[0], Some(best), case.rate_target);
    bench.figures(&cpu_name, CPU, &cpu[0], Some(("nbdkit memory", median(&cpu[1]))), case.cpu_target);
    beside_most(bench, &name, &cpu[0], case.cpu_max);
    if let Some(share) = case.limit_share {
        let alone = Some(("the copy through the socket and the array", limit::megabytes()?));
        bench.figures(&format!("{name}{LIMIT_SUFFIX}"), unit, &rate[0], alone, Some(share));
    }
    bench.note(&format!("{name}: qemu-nbd {qemu:.0} {} at {:.1} us/op", unit.name, median(&cpu[2])));
    let medians = |sides: &[Vec<f64>; 3]| [0, 1, 2].map(|side| median(&sides[side]));
    page.beside.push(Figures { name, unit: unit.name, rate: medians(&rate), cpu: Some(medians(&cpu)) });
    Ok(())
}

fn alone(bench: &mut Bench, page: &mut Page, stele: &SteleBlockServer, name: &str, load: &Load) -> Result<(), String> {
    let name = format!("unix {name}");
    if !bench.wants(&name) {
        return Ok(());
    }
    let url = stele.url("unix");
    let mut rates = Vec::new();
    for _ in 0..rounds(bench) {
        rates.push(client::run(&url, load)?.rate);
        stele.settle()?;
    }
    bench.figures(&name, RATE, &rates, None, None);
    page.alone.push((name, median(&rates)));
    Ok(())
}

/// Reading and writing at once at these depths, half of it each, as in the paper's second table.
const DUPLEX: &[(&str, u32)] = &[("256 KiB full duplex at 32", 32), ("256 KiB full duplex at 160", 160)];
const DUPLEX_ENDS: [&str; 5] = [", read", ", write", ", sum", CPU_SUFFIX, CPU_MAX_SUFFIX];

fn duplex(
    bench: &mut Bench,
    page: &mut Page,
    trio: &Trio<'_>,
    transport: &str,
    name: &str,
    depth: u32,
) -> Result<(), String> {
    let name = format!("{transport} {name}");
    if !bench.wants_any(&name, DUPLEX_ENDS) {
        return Ok(());
    }
    let load = |pattern| Load::large(pattern).span("512m").depth(depth / 2);
    let (mut writes, mut cpu) = (Vec::new(), Vec::new());
    let ours = trio.stele.url(transport);
    let reads = trio.rounds(rounds(bench), transport, |url| {
        let begun = cpu_time(trio.stele.process);
        let (read, wrote) = std::thread::scope(|scope| {
            let reader = scope.spawn(|| client::run(url, &load("read")));
            let wrote = client::run(url, &load("write"))?;
            Ok::<_, String>((reader.join().map_err(|_| "the reader died".to_owned())??, wrote))
        })?;
        if url == ours {
            trio.stele.settle()?;
            let used = (cpu_time(trio.stele.process) - begun) as f64 / 1000.0;
            cpu.push(used / (read.operations + wrote.operations).max(1.0));
        }
        writes.push(wrote.megabytes);
        Ok(read.megabytes)
    })?;
    // In the order of `rounds`: the three servers in turns; the first three are thrown away.
    let wrote = |side: usize| -> Vec<f64> { writes.iter().copied().skip(3 + side).step_by(3).collect() };
    let sum =
        |side: usize| -> Vec<f64> { reads[side].iter().zip(wrote(side)).map(|(read, wrote)| read + wrote).collect() };
    let kit = |values: &[f64]| Some(("nbdkit memory", median(values)));
    bench.figures(&format!("{name}, read"), STREAM, &reads[0], kit(&reads[1]), None);
    bench.figures(&format!("{name}, write"), STREAM, &wrote(0), kit(&wrote(1)), None);
    bench.figures(&format!("{name}, sum"), STREAM, &sum(0), kit(&sum(1)), None);
    // The first round warms up.
    bench.figures(&format!("{name}{CPU_SUFFIX}"), CPU, &cpu[1..], None, None);
    beside_most(bench, &name, &cpu[1..], Some(DUPLEX_MAX));
    let side = |side: usize| [median(&reads[side]), median(&wrote(side)), median(&sum(side))];
    page.duplex.push((name, [side(0), side(1), side(2)]));
    trio.stele.settle()
}

const LATENCY: &str = "4 KiB read at depth 1";

/// One request at a time, beside the least time that two threads need to wake each other with as
/// many bytes.
fn latency(bench: &mut Bench, page: &mut Page, trio: &Trio<'_>, transport: &str) -> Result<(), String> {
    let name = format!("{transport} {LATENCY}");
    if !bench.wants(&name) {
        return Ok(());
    }
    let load = Load::small("randread", "4k").depth(1);
    let mut limits = Vec::new();
    let times = trio.rounds(rounds(bench), transport, |url| {
        limits.push(client::ping_pong(transport).map_err(|error| format!("ping-pong: {error}"))?);
        Ok(1e6 / client::run(url, &load)?.rate)
    })?;
    let limit = median(&limits);
    bench.figures(&name, Unit::less("us"), &times[0], Some(("blocking ping-pong of this run", limit)), None);
    bench.note(&format!("{name}: nbdkit memory {:.0} us, qemu-nbd {:.0} us", median(&times[1]), median(&times[2])));
    page.latency.push((name, [median(&times[0]), median(&times[1]), median(&times[2]), limit]));
    Ok(())
}

const COPY: &str = "nbdcopy of 1 GiB to null";

fn copying(bench: &mut Bench, page: &mut Page, trio: &Trio<'_>, transport: &str) -> Result<(), String> {
    let name = format!("{transport} {COPY}");
    if !bench.wants(&name) {
        return Ok(());
    }
    let rates = trio.rounds(rounds(bench), transport, client::copy)?;
    bench.figures(&name, STREAM, &rates[0], Some(("nbdkit memory", median(&rates[1]))), None);
    let rate = [0, 1, 2].map(|side| median(&rates[side]));
    page.beside.push(Figures { name, unit: STREAM.name, rate, cpu: None });
    Ok(())
}

/// With a cache of an eighth of the volume: reads come from the drives and are verified. No peer
/// does that.
fn cold(bench: &mut Bench, page: &mut Page, code: &str) -> Result<(), String> {
    let loads = [
        ("4 KiB read", Load::small("randread", "4k"), None),
        ("4 KiB write", Load::small("randwrite", "4k").total("384m"), Some(SMALL_WRITE_MAX)),
        ("256 KiB read", Load::large("read"), Some(COLD_READ_MAX)),
        ("256 KiB write", Load::large("write").total("1g"), Some(LARGE_WRITE_MAX)),
    ];
    let named = loads.map(|(name, load, most)| (format!("{code}, small cache: {name}"), load, most));
    let figures = |most: &Option<f64>| ["", CPU_SUFFIX].into_iter().chain(most.map(|_| CPU_MAX_SUFFIX));
    if !named.iter().fold(false, |any, (name, _, most)| any | bench.wants_any(name, figures(most))) {
        return Ok(());
    }
    let stele = SteleBlockServer::start(code, "128MiB")?;
    let url = stele.url("unix");
    client::fill(&url)?;
    stele.settle()?;
    for (name, load, most) in &named {
        if !bench.wants_any(name, figures(most)) {
            continue;
        }
        let (mut rates, mut cpu) = (Vec::new(), Vec::new());
        for _ in 0..rounds(bench) {
            let (ran, used) = measured(load, &url, stele.process, Some(&stele))?;
            rates.push(if load.is_large() { ran.megabytes } else { ran.rate });
            cpu.push(used);
        }
        let unit = if load.is_large() { STREAM } else { RATE };
        bench.figures(name, unit, &rates, None, None);
        bench.figures(&format!("{name}{CPU_SUFFIX}"), CPU, &cpu, None, None);
        beside_most(bench, name, &cpu, *most);
        page.cold.push((name.clone(), unit.name, median(&rates), median(&cpu)));
    }
    Ok(())
}
