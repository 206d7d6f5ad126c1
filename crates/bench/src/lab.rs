//! The cost of the laboratory's generator, beside fio on the same target in the same run. It is the
//! processor time of the process for each access, that of the whole machine (kernel workers hide
//! some), and accesses a second. Histograms are always on.

mod agreement;
mod corpus;
mod data;
mod ran;
mod search;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use stele_ground::{Bytes, MIB};
use stele_lab::live::target::{Opening, Target};

use crate::harness::{Bench, Unit};
use ran::{Asked, RoundResult, fio, live};

const SIZE: u64 = 512 * MIB;

/// fio with its default and with its cheapest settings: a single time-stamp, accesses started and
/// collected in batches, registered files and buffers. Single accesses are cheapest with plain
/// system calls, in both tools.
const BEST_NULL: &[&str] = &["--gtod_reduce=1"];
const BEST_RING: &[&str] = &[
    "--gtod_reduce=1",
    "--iodepth_batch_submit=32",
    "--iodepth_batch_complete_min=32",
    "--fixedbufs",
    "--registerfiles",
];

struct Case {
    name: &'static str,
    target: Place,
    depth: u32,
    engine: &'static str,
    best: &'static [&'static str],
}

/// Rates, and processor time of the process and of the machine, are to be at least as good as
/// fio's.
const NO_WORSE: Option<f64> = Some(1.0);

#[derive(Clone, Copy, PartialEq)]
enum Place {
    Null,
    Memory,
    Disk,
}

const CASES: &[Case] = &[
    Case { name: "null, depth 1", target: Place::Null, depth: 1, engine: "null", best: BEST_NULL },
    Case { name: "null, depth 32", target: Place::Null, depth: 32, engine: "null", best: BEST_NULL },
    Case { name: "tmpfs, depth 1", target: Place::Memory, depth: 1, engine: "psync", best: BEST_NULL },
    Case {
        name: "O_DIRECT file, depth 1",
        target: Place::Disk,
        depth: 1,
        engine: "io_uring",
        best: &["--gtod_reduce=1", "--ioengine=psync"],
    },
    Case { name: "O_DIRECT file, depth 32", target: Place::Disk, depth: 32, engine: "io_uring", best: BEST_RING },
    Case { name: "O_DIRECT file, depth 128", target: Place::Disk, depth: 128, engine: "io_uring", best: BEST_RING },
];

/// The target files, removed when dropped.
struct Files(Vec<PathBuf>);

impl Drop for Files {
    fn drop(&mut self) {
        for path in &self.0 {
            drop(std::fs::remove_file(path));
        }
    }
}

pub fn run(bench: &mut Bench) -> Result<(), String> {
    if search::CASES.iter().any(|case| bench.wants(case)) {
        search::run(bench)?;
    }
    let (costs, agrees) = (CASES.iter().any(|case| wants(bench, case)), agreement::wants(bench));
    let (writes, corpus) = (data::wants(bench), corpus::wants(bench));
    if !costs && !agrees && !writes && !corpus {
        return Ok(());
    }
    if Command::new("fio").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err() {
        return Err("fio is not installed; Debian: apt-get install fio".into());
    }
    if writes {
        data::run(bench)?;
    }
    if costs {
        bench.note("4 KiB random reads for 2 s a round; our histograms are on, fio's best settings have none");
    }
    let name = format!("stele-bench-lab-{}", std::process::id());
    let files = Files(vec![Path::new("/dev/shm").join(&name), std::env::temp_dir().join(&name)]);
    for case in CASES {
        if wants(bench, case) {
            one(bench, case, &files)?;
        }
    }
    if let (true, Some(path)) = (agrees, files.0.get(1)) {
        agreement::run(bench, path)?;
    }
    if corpus { corpus::run(bench) } else { Ok(()) }
}

const FIGURES: [&str; 6] = [
    "CPU at best",
    "machine's CPU at best",
    "rate at best",
    "CPU by default",
    "rate by default",
    "response by default",
];

fn wants(bench: &Bench, case: &Case) -> bool {
    FIGURES.iter().any(|figure| bench.wants(&format!("{}, {figure}", case.name)))
}

fn one(bench: &mut Bench, case: &Case, files: &Files) -> Result<(), String> {
    let path = match case.target {
        Place::Null => None,
        Place::Memory => files.0.first(),
        Place::Disk => files.0.get(1),
    };
    let target = path.map_or(Target::Null, |path| Target::Path(path.clone()));
    let opening = Opening { size: Some(Bytes(SIZE)), ..Opening::default() };
    let ready = target.open(opening, &mut |_, _| true).map_err(|error| error.to_string())?;
    let direct = case.target == Place::Disk;
    let asked = Asked { engine: case.engine, direct, depth: case.depth, ..Asked::RANDOM_READ };
    // With batches, as in fio's best settings, and without, as in fio's default.
    let batched = (case.depth >= 32).then_some(Asked { batch: 32, ..asked });
    let [mut cheap, mut plain, mut their_cheap, mut their_plain] = [const { Vec::new() }; 4];
    for round in 0..=bench.rounds() {
        let ours = live(&ready, &asked)?;
        let all = [
            batched.map_or(Ok(ours), |asked| live(&ready, &asked))?,
            ours,
            fio(&asked, path, case.best)?,
            fio(&asked, path, &[])?,
        ];
        // The first round of each warms up.
        if round > 0 {
            for (kept, ran) in [&mut cheap, &mut plain, &mut their_cheap, &mut their_plain].into_iter().zip(all) {
                kept.push(ran);
            }
        }
    }
    let values = |all: &[RoundResult], of: fn(&RoundResult) -> f64| all.iter().map(of).collect::<Vec<f64>>();
    let median = |all: &[RoundResult], of: fn(&RoundResult) -> f64| {
        let mut values = values(all, of);
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or(0.0)
    };
    const BEST: &str = "fio, best settings";
    const PLAIN: &str = "fio, default settings";
    let name = case.name;
    let mut show = |what: &str,
                    unit,
                    of: fn(&RoundResult) -> f64,
                    (ours, peer, theirs): (&[RoundResult], &str, &[RoundResult]),
                    target| {
        bench.figures(&format!("{name}, {what}"), unit, &values(ours, of), Some((peer, median(theirs, of))), target);
    };
    let (least, most) = (|| Unit::less("us"), || Unit::more("1/s"));
    let (best, as_it_comes) = ((&cheap[..], BEST, &their_cheap[..]), (&plain[..], PLAIN, &their_plain[..]));
    let [best_cpu, machine, best_rate, plain_cpu, plain_rate, response] = FIGURES;
    show(best_cpu, least(), |ran| ran.cpu, best, NO_WORSE);
    show(machine, least(), |ran| ran.machine, best, NO_WORSE);
    show(best_rate, most(), |ran| ran.rate, best, NO_WORSE);
    show(plain_cpu, least(), |ran| ran.cpu, as_it_comes, NO_WORSE);
    show(plain_rate, most(), |ran| ran.rate, as_it_comes, NO_WORSE);
    show(response, least(), |ran| ran.mean_us, as_it_comes, None);
    Ok(())
}
