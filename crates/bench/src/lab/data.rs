//! The cost of unique data: the speed of making it, and the cost of writes with it beside fio,
//! which makes its buffers anew (`--refill_buffers`). Also large accesses over one NBD connection,
//! beside fio's.

use std::hint::black_box;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use stele_ground::{Bytes, Dice};
use stele_lab::live::content::Content;
use stele_lab::live::target::{Opening, Target};

use super::ran::{Asked, RoundResult, fio, live};
use super::{NO_WORSE, SIZE};
use crate::harness::{Bench, TARGET, Unit};

const MADE: &str = "unique data, made by one core";
/// The target, in GB/s.
const GOAL: f64 = 5.0;
const BUFFER: usize = 256 << 10;
const BUFFERS: usize = 8_000;

const WRITES: [(&str, u64); 2] =
    [("null, unique writes of 4 KiB", 4096), ("null, unique writes of 256 KiB", 256 << 10)];
const NBD: [(&str, u8); 2] = [("NBD, 256 KiB reads, depth 160", 100), ("NBD, 256 KiB writes, depth 160", 0)];
const FIGURES: [&str; 2] = ["rate", "CPU"];

fn wants_any(bench: &Bench, case: &str) -> bool {
    FIGURES.iter().any(|figure| bench.wants(&format!("{case}, {figure}")))
}

pub fn wants(bench: &Bench) -> bool {
    let cases = WRITES.iter().map(|(case, _)| *case).chain(NBD.iter().map(|(case, _)| *case));
    bench.wants(MADE) || cases.into_iter().any(|case| wants_any(bench, case))
}

pub fn run(bench: &mut Bench) -> Result<(), String> {
    if bench.wants(MADE) {
        let rates: Vec<f64> = (0..=bench.rounds()).map(|_| made()).skip(1).collect();
        bench.figures(MADE, Unit::more("GB/s"), &rates, Some((TARGET, GOAL)), Some(1.0));
    }
    for (case, length) in WRITES {
        if wants_any(bench, case) {
            let opening = Opening { size: Some(Bytes(SIZE)), writes: true, ..Opening::default() };
            let ready = Target::Null.open(opening, &mut |_, _| true).map_err(|error| error.to_string())?;
            let asked = Asked { engine: "null", direct: false, read: 0, length, ..Asked::RANDOM_READ };
            beside(bench, case, |more| Ok((live(&ready, &asked)?, fio(&asked, None, more)?)), &["--refill_buffers"])?;
        }
    }
    for (case, read) in NBD {
        if wants_any(bench, case) {
            let server = Server::start()?;
            let target: Target = server.url().parse().map_err(|error| format!("{error}"))?;
            let asked =
                Asked { engine: "nbd", direct: false, depth: 160, read, length: 256 << 10, ..Asked::RANDOM_READ };
            let opening = Opening { writes: read == 0, destroy: true, longest: 256 << 10, ..Opening::default() };
            let ready = target.open(opening, &mut |_, _| true).map_err(|error| error.to_string())?;
            let uri = format!("--uri={}", server.url());
            beside(
                bench,
                case,
                |more| Ok((live(&ready, &asked)?, fio(&asked, None, more)?)),
                &[&uri, "--refill_buffers"],
            )?;
        }
    }
    Ok(())
}

/// Rounds of both in turns; the first warms up.
fn beside(
    bench: &mut Bench,
    case: &str,
    mut both: impl FnMut(&[&str]) -> Result<(RoundResult, RoundResult), String>,
    more: &[&str],
) -> Result<(), String> {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 0..=bench.rounds() {
        let (our, their) = both(more)?;
        if round > 0 {
            ours.push(our);
            theirs.push(their);
        }
    }
    let median = |all: &[RoundResult], of: fn(&RoundResult) -> f64| {
        let mut values: Vec<f64> = all.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or(0.0)
    };
    let units = [Unit::more("1/s"), Unit::less("us")];
    let values: [fn(&RoundResult) -> f64; 2] = [|ran| ran.rate, |ran| ran.cpu];
    for ((figure, unit), of) in FIGURES.iter().zip(units).zip(values) {
        let all: Vec<f64> = ours.iter().map(of).collect();
        let reference = Some(("fio, --refill_buffers", median(&theirs, of)));
        bench.figures(&format!("{case}, {figure}"), unit, &all, reference, NO_WORSE);
    }
    Ok(())
}

/// The rate of making data, in GB/s.
fn made() -> f64 {
    let mut source = Content::default().source(Dice::new(1), None);
    let mut buffer = vec![0; BUFFER];
    let begun = Instant::now();
    for number in 0..BUFFERS {
        source.make(black_box(&mut buffer), (number * BUFFER) as u64);
    }
    (BUFFERS * BUFFER) as f64 / begun.elapsed().as_secs_f64() / 1e9
}

/// nbdkit with a gigabyte of memory behind a Unix socket.
struct Server {
    child: Child,
    socket: PathBuf,
}

impl Server {
    fn start() -> Result<Server, String> {
        let socket = std::env::temp_dir().join(format!("stele-bench-lab-{}.nbd", std::process::id()));
        drop(std::fs::remove_file(&socket));
        let child = Command::new("nbdkit")
            .args(["--foreground", "--unix"])
            .arg(&socket)
            .args(["memory", "1G"])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("nbdkit: {error}; Debian: apt-get install nbdkit"))?;
        let mut server = Server { child, socket };
        for _ in 0..500 {
            if server.socket.exists() {
                return Ok(server);
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        drop(server.child.kill());
        Err("nbdkit did not start within 5 s".into())
    }

    fn url(&self) -> String {
        format!("nbd+unix:///?socket={}", self.socket.display())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
        drop(std::fs::remove_file(&self.socket));
    }
}
