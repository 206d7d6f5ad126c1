//! One run of the laboratory's generator and one of fio's, of the same job on the same target.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;
use stele_ground::Duration;
use stele_lab::live::content::Content;
use stele_lab::live::run::{Load, Of, Setup, Timing, run as run_live};
use stele_lab::live::target::Ready;
use stele_lab::usage::Usage;
use stele_lab::workload::{AccessSpec, Alignment};

use super::SIZE;

const SECONDS: u64 = 2;

/// The job for both.
#[derive(Clone, Copy)]
pub struct Asked {
    /// fio's engine.
    pub engine: &'static str,
    /// Without the page cache.
    pub direct: bool,
    pub depth: u32,
    /// Number of answers that ours collects at once.
    pub batch: u32,
    /// Percent of reads.
    pub read: u8,
    pub random: u8,
    pub length: u64,
}

impl Asked {
    pub const RANDOM_READ: Asked =
        Asked { engine: "io_uring", direct: true, depth: 1, batch: 1, read: 100, random: 100, length: 4096 };
}

/// The result of one round of a generator.
#[derive(Clone, Copy)]
pub struct RoundResult {
    pub rate: f64,
    /// Microseconds of CPU time for each access.
    pub cpu: f64,
    pub machine: f64,
    pub mean_us: f64,
}

pub fn live(ready: &Ready, asked: &Asked) -> Result<RoundResult, String> {
    let span = Duration::from_secs(SECONDS);
    let Asked { depth, batch, read, random, length, .. } = *asked;
    let setup = Setup {
        spec: AccessSpec {
            name: "beside fio".into(),
            random: Some(random),
            read: Some(read),
            sizes: vec![(length, 100)],
        },
        alignment: Alignment::Request,
        load: Load::Outstanding(depth),
        profile: None,
        trace: None,
        pause: None,
        batch,
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
    let response = total.response();
    let count = response.count().max(1) as f64;
    Ok(RoundResult {
        rate: total.rate,
        cpu: total.cpu_own * 1e6 / count,
        machine: total.cpu_machine * 1e6 / count,
        mean_us: response.mean().0 as f64 / 1e3,
    })
}

pub fn fio(asked: &Asked, path: Option<&PathBuf>, more: &[&str]) -> Result<RoundResult, String> {
    let before = Usage::now();
    let pattern = match (asked.random > 0, asked.read > 0) {
        (true, true) => "randread",
        (true, false) => "randwrite",
        (false, true) => "read",
        (false, false) => "write",
    };
    let mut command = Command::new("fio");
    command.args(["--name=lab", "--time_based", "--norandommap", "--randrepeat=0", "--output-format=json", "--thread"]);
    command.args([&format!("--rw={pattern}"), &format!("--bs={}", asked.length), &format!("--size={SIZE}")]);
    command.args([&format!("--runtime={SECONDS}"), &format!("--ioengine={}", asked.engine)]);
    command.arg(format!("--iodepth={}", asked.depth)).args(more);
    if let Some(path) = path {
        command.arg(format!("--filename={}", path.display()));
    }
    if asked.direct {
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
    let way = &job[if asked.read > 0 { "read" } else { "write" }];
    let count = number(&way["total_ios"]).max(1.0);
    let seconds = number(&way["runtime"]) / 1e3;
    let share = (number(&job["usr_cpu"]) + number(&job["sys_cpu"])) / 100.0;
    Ok(RoundResult {
        rate: count / seconds,
        cpu: share * seconds * 1e6 / count,
        machine: (Usage::now().machine - before.machine) * 1e6 / count,
        mean_us: number(&way["lat_ns"]["mean"]) / 1e3,
    })
}
