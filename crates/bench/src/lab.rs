//! What the laboratory's generator costs, beside fio on the same target in the same run: processor time of the process for each
//! access, that of the whole machine (kernel workers hide some), and accesses a second. Histograms are always on.

mod search;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use stele_ground::{Bytes, Duration, MIB};
use stele_lab::live::content::Content;
use stele_lab::live::run::{Load, Of, Setup, Timing, run as run_live};
use stele_lab::live::target::{Opening, Ready, Target};
use stele_lab::usage::Usage;
use stele_lab::workload::{AccessSpec, Alignment};

use crate::harness::{Bench, Unit};

const SECONDS: u64 = 2;
const SIZE: u64 = 512 * MIB;

/// What a generator did in one round.
#[derive(Clone, Copy)]
struct Ran {
    rate: f64,
    /// Microseconds for each access.
    cpu: f64,
    machine: f64,
    mean_us: f64,
}

/// fio as it comes, and as it costs least: no time-stamps but one, accesses started and taken in batches, registered files
/// and buffers.
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
    /// Against fio's best, in processor time: 1 is as good.
    goal: f64,
}

#[derive(Clone, Copy, PartialEq)]
enum Place {
    Null,
    Memory,
    Disk,
}

const CASES: &[Case] = &[
    Case { name: "null, depth 1", target: Place::Null, depth: 1, engine: "null", best: BEST_NULL, goal: 1.0 },
    Case { name: "null, depth 32", target: Place::Null, depth: 32, engine: "null", best: BEST_NULL, goal: 1.0 },
    Case { name: "tmpfs, depth 1", target: Place::Memory, depth: 1, engine: "psync", best: BEST_NULL, goal: 1.0 },
    Case {
        name: "O_DIRECT file, depth 1",
        target: Place::Disk,
        depth: 1,
        engine: "io_uring",
        best: &["--gtod_reduce=1", "--fixedbufs", "--registerfiles"],
        goal: 1.0,
    },
    Case {
        name: "O_DIRECT file, depth 32",
        target: Place::Disk,
        depth: 32,
        engine: "io_uring",
        best: BEST_RING,
        goal: 1.0,
    },
    Case {
        name: "O_DIRECT file, depth 128",
        target: Place::Disk,
        depth: 128,
        engine: "io_uring",
        best: BEST_RING,
        goal: 1.0,
    },
];

/// The targets, gone when dropped.
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
    if !CASES.iter().any(|case| wants(bench, case)) {
        return Ok(());
    }
    if Command::new("fio").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err() {
        return Err("fio is not installed; Debian: apt-get install fio".into());
    }
    bench.note("4 KiB random reads for 2 s a round; our histograms are on, fio's best settings have none");
    let name = format!("stele-bench-lab-{}", std::process::id());
    let files = Files(vec![Path::new("/dev/shm").join(&name), std::env::temp_dir().join(&name)]);
    for case in CASES {
        if wants(bench, case) {
            one(bench, case, &files)?;
        }
    }
    Ok(())
}

fn wants(bench: &Bench, case: &Case) -> bool {
    let figures =
        ["CPU, beside fio's best", "CPU, beside fio as it comes", "machine's CPU", "accesses", "mean response"];
    figures.iter().any(|figure| bench.wants(&format!("{}, {figure}", case.name)))
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
    let (mut ours, mut plain, mut best) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..=bench.rounds() {
        let all = [live(&ready, case)?, fio(case, path, &[])?, fio(case, path, case.best)?];
        // The first of each warms up.
        if round > 0 {
            ours.push(all[0]);
            plain.push(all[1]);
            best.push(all[2]);
        }
    }
    let values = |all: &[Ran], of: fn(&Ran) -> f64| all.iter().map(of).collect::<Vec<f64>>();
    let median = |all: &[Ran], of: fn(&Ran) -> f64| {
        let mut values = values(all, of);
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or(0.0)
    };
    let name = case.name;
    let mut show = |what: &str, unit, of: fn(&Ran) -> f64, peer: &str, theirs: f64, goal| {
        bench.figures(&format!("{name}, {what}"), unit, &values(&ours, of), Some((peer, theirs)), goal);
    };
    let (least, us) = (Unit::less("us"), Unit::less("us"));
    show(
        "CPU, beside fio's best",
        least,
        |ran| ran.cpu,
        "fio, best settings",
        median(&best, |ran| ran.cpu),
        Some(case.goal),
    );
    show(
        "CPU, beside fio as it comes",
        us,
        |ran| ran.cpu,
        "fio, default settings",
        median(&plain, |ran| ran.cpu),
        None,
    );
    show("machine's CPU", us, |ran| ran.machine, "fio, best settings", median(&best, |ran| ran.machine), None);
    let fastest = median(&best, |ran| ran.rate).max(median(&plain, |ran| ran.rate));
    show("accesses", Unit::more("1/s"), |ran| ran.rate, "fio, the faster settings", fastest, Some(0.98));
    show("mean response", us, |ran| ran.mean_us, "fio, default settings", median(&plain, |ran| ran.mean_us), None);
    Ok(())
}

fn live(ready: &Ready, case: &Case) -> Result<Ran, String> {
    let span = Duration::from_secs(SECONDS);
    let setup = Setup {
        spec: AccessSpec { name: "random read".into(), random: Some(100), read: Some(100), sizes: vec![(4096, 100)] },
        alignment: Alignment::Request,
        load: Load::Outstanding(case.depth),
        // As fio's best settings have it.
        pause: None,
        batch: if case.depth >= 32 { 32 } else { 1 },
        workers: 1,
        timing: Timing {
            warm_up: Duration::from_millis(100),
            round: Duration::from_millis(100),
            least: span,
            most: span,
        },
        content: Content::default(),
        of: Of::Data,
        seed: 1,
    };
    let found = run_live(ready, &setup, &mut |_, _| true).map_err(|error| error.to_string())?;
    let total = found.total();
    let count = total.read.count().max(1) as f64;
    Ok(Ran {
        rate: total.rate,
        cpu: total.cpu_own * 1e6 / count,
        machine: total.cpu_machine * 1e6 / count,
        mean_us: total.read.mean().0 as f64 / 1e3,
    })
}

fn fio(case: &Case, path: Option<&PathBuf>, more: &[&str]) -> Result<Ran, String> {
    let before = Usage::now();
    let mut command = Command::new("fio");
    command.args(["--name=lab", "--rw=randread", "--bs=4k", "--time_based", "--norandommap", "--randrepeat=0"]);
    command.args(["--output-format=json", "--thread", &format!("--size={SIZE}"), &format!("--runtime={SECONDS}")]);
    command.args([&format!("--ioengine={}", case.engine), &format!("--iodepth={}", case.depth)]).args(more);
    if let Some(path) = path {
        command.arg(format!("--filename={}", path.display()));
    }
    if case.target == Place::Disk {
        command.arg("--direct=1");
    }
    let output = command.stdin(Stdio::null()).output().map_err(|error| format!("fio: {error}"))?;
    if !output.status.success() {
        return Err(format!("fio: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    let said = String::from_utf8_lossy(&output.stdout);
    let json = said.find('{').and_then(|at| said.get(at..)).unwrap_or_default();
    let said: Value =
        serde_json::from_str(json).map_err(|error| format!("fio said something else than JSON: {error}"))?;
    let number = |value: &Value| value.as_f64().unwrap_or(0.0);
    let job = &said["jobs"][0];
    let count = number(&job["read"]["total_ios"]).max(1.0);
    let seconds = number(&job["read"]["runtime"]) / 1e3;
    let share = (number(&job["usr_cpu"]) + number(&job["sys_cpu"])) / 100.0;
    Ok(Ran {
        rate: count / seconds,
        cpu: share * seconds * 1e6 / count,
        machine: (Usage::now().machine - before.machine) * 1e6 / count,
        mean_us: number(&job["read"]["lat_ns"]["mean"]) / 1e3,
    })
}
