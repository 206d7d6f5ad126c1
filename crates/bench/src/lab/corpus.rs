//! The first job of each job file of `crates/lab/data/fio`, limited by time, through the laboratory
//! and through fio: the ratio of their rates, in blocks of ABBA or BAAB. A test of `stele-lab`
//! shows that they do the same; this bench compares the speed.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;

use serde_json::Value;
use stele_ground::Dice;
use stele_lab::fio;

use super::agreement::{DISTANCE, shown};
use crate::harness::Bench;

/// Appended to a job's own keys, which it overrides. Without `ramp_time`: fio counts the accesses
/// of the ramp where the first look at the clock behind it comes late, and not its time (10 % of a
/// job with pauses).
const TIMED: &str = "time_based=1\nruntime=500ms\nunlink=0\n";

/// The files made, removed when dropped.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../lab/data/fio");
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    files.sort();
    files
}

fn name(file: &Path) -> String {
    format!("corpus, {}", file.file_stem().unwrap_or_default().to_string_lossy())
}

pub fn wants(bench: &Bench) -> bool {
    files().iter().fold(false, |any, file| any | bench.wants_any(&name(file), ["", DISTANCE]))
}

pub fn run(bench: &mut Bench) -> Result<(), String> {
    let folder = Folder(std::env::temp_dir().join(format!("stele-bench-fio-{}", std::process::id())));
    bench.note("the first job of each file for 500 ms: rates of the laboratory over fio's");
    let mut dice = Dice::new(1);
    for file in files() {
        if !bench.wants_any(&name(&file), ["", DISTANCE]) {
            continue;
        }
        let text = std::fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        let text = first_job(&text, &folder.0);
        std::fs::create_dir_all(&folder.0).map_err(|error| error.to_string())?;
        let job = folder.0.join("job.fio");
        std::fs::write(&job, &text).map_err(|error| error.to_string())?;
        // Both warm up, and the files exist.
        let mut logarithms = Vec::new();
        ours(&text)?;
        theirs(&job)?;
        for _ in 0..bench.rounds().max(3) {
            let order = if dice.below(2) == 0 { [true, false, false, true] } else { [false, true, true, false] };
            let mut logarithm = 0.0;
            for is_ours in order {
                let rate = if is_ours { ours(&text)? } else { theirs(&job)? };
                logarithm += if is_ours { 0.5 } else { -0.5 } * rate.max(1e-9).ln();
            }
            logarithms.push(logarithm);
        }
        shown(bench, &name(&file), &logarithms);
        drop(std::fs::remove_dir_all(&folder.0));
    }
    Ok(())
}

fn first_job(text: &str, folder: &Path) -> String {
    let mut out = format!("[global]\ndirectory={}\n", folder.display());
    let mut jobs = 0;
    for line in text.lines() {
        jobs += u32::from(line.starts_with('[') && line != "[global]");
        if jobs == 2 {
            break;
        }
        out.push_str(line);
        out.push('\n');
    }
    out.push_str(TIMED);
    out
}

/// Accesses a second.
fn ours(text: &str) -> Result<f64, String> {
    let jobs = fio::jobs(text).map_err(|error| error.to_string())?;
    // fio may have made the files before.
    let ran = fio::run(&jobs, true, &AtomicBool::new(false), &|_| ()).map_err(|error| error.to_string())?;
    let mut rate = 0.0;
    for one in &ran {
        if let Some(why) = &one.tally.failed {
            return Err(format!("job '{}': {why}", one.name));
        }
        let count: u64 = one.tally.ways.iter().map(|way| way.whole.count()).sum();
        rate += count as f64 / (one.tally.span.max(1) as f64 / 1e9);
    }
    Ok(rate)
}

fn theirs(job: &Path) -> Result<f64, String> {
    let output = Command::new("fio").arg(job).arg("--output-format=json").stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("fio: {error}"))?;
    let said = String::from_utf8_lossy(&output.stdout);
    let json = said.find('{').and_then(|at| said.get(at..)).unwrap_or_default();
    let json: Value =
        serde_json::from_str(json).map_err(|error| format!("fio said something else than JSON: {error}"))?;
    let number = |value: &Value| value.as_f64().unwrap_or(0.0);
    let of_job = |job: &Value| number(&job["read"]["iops"]) + number(&job["write"]["iops"]);
    Ok(json["jobs"].as_array().into_iter().flatten().map(of_job).sum())
}
