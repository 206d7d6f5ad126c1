//! Whether the laboratory and fio measure the same. Both run the same jobs on the same file, in
//! blocks of ABBA or BAAB. The results are the ratios of their rates and mean responses, with the
//! 95 % interval of the blocks. If it contains 1, they agree as far as the blocks can tell. fio has
//! its histograms and clocks on here, as the laboratory always has.

use std::path::PathBuf;

use stele_ground::{Bytes, Dice};
use stele_lab::live::target::{Opening, Target};
use stele_lab::search::margin_of;

use super::SIZE;
use super::ran::{Asked, RoundResult, fio, live};
use crate::harness::{Bench, Unit};

/// Single accesses use plain system calls, in both.
const JOBS: [(&str, Asked); 4] = [
    ("random read, depth 1", Asked { engine: "psync", ..Asked::RANDOM_READ }),
    ("random read, depth 32", Asked { depth: 32, ..Asked::RANDOM_READ }),
    ("random write, depth 32", Asked { depth: 32, read: 0, ..Asked::RANDOM_READ }),
    ("sequential read of 128 KiB, depth 8", Asked { depth: 8, random: 0, length: 128 << 10, ..Asked::RANDOM_READ }),
];

/// A compared figure.
type Value = fn(&RoundResult) -> f64;
const VALUES: [(&str, Value); 2] = [("accesses", |ran| ran.rate), ("mean response", |ran| ran.mean_us)];

/// Behind the name of a ratio: how far it is from 1, beside the margin of its interval.
pub const DISTANCE: &str = ", distance from fio";

fn name(job: &str, value: &str) -> String {
    format!("agreement, {job}, {value}")
}

fn wants_job(bench: &Bench, job: &str) -> bool {
    VALUES.iter().fold(false, |any, (value, _)| bench.wants_any(&name(job, value), ["", DISTANCE]) || any)
}

pub fn wants(bench: &Bench) -> bool {
    JOBS.iter().fold(false, |any, (job, _)| wants_job(bench, job) || any)
}

pub fn run(bench: &mut Bench, path: &PathBuf) -> Result<(), String> {
    let opening = Opening { size: Some(Bytes(SIZE)), writes: true, longest: 128 << 10, ..Opening::default() };
    let ready = Target::Path(path.clone()).open(opening, &mut |_, _| true).map_err(|error| error.to_string())?;
    let mut dice = Dice::new(1);
    for (job, asked) in &JOBS {
        if !wants_job(bench, job) {
            continue;
        }
        // Both warm up.
        let (mut blocks, _, _) = (Vec::new(), live(&ready, asked)?, fio(asked, Some(path), &[])?);
        for _ in 0..bench.rounds().max(3) {
            let order = if dice.below(2) == 0 { [true, false, false, true] } else { [false, true, true, false] };
            let mut block: Vec<(bool, RoundResult)> = Vec::new();
            for ours in order {
                let ran = if ours { live(&ready, asked)? } else { fio(asked, Some(path), &[])? };
                block.push((ours, ran));
            }
            blocks.push(block);
        }
        for (value, of) in VALUES {
            let logarithm = |block: &Vec<(bool, RoundResult)>| {
                let sign = |ours: bool| if ours { 0.5 } else { -0.5 };
                block.iter().map(|(ours, ran)| sign(*ours) * of(ran).max(1e-9).ln()).sum::<f64>()
            };
            let logarithms: Vec<f64> = blocks.iter().map(logarithm).collect();
            shown(bench, &name(job, value), &logarithms);
        }
    }
    Ok(())
}

/// Shows the ratio of ours to fio's, with its interval, from the logarithms of the blocks. The
/// target is an interval that contains 1: the distance from it is at most the margin.
pub fn shown(bench: &mut Bench, name: &str, logarithms: &[f64]) {
    let ratios: Vec<f64> = logarithms.iter().map(|logarithm| logarithm.exp()).collect();
    bench.figures(name, Unit::more("of fio's"), &ratios, Some(("fio", 1.0)), None);
    let mean = logarithms.iter().sum::<f64>() / logarithms.len().max(1) as f64;
    let margin = margin_of(logarithms).unwrap_or(f64::INFINITY);
    let percent = |logarithm: f64| (logarithm.exp() - 1.0) * 100.0;
    let (distance, widest) = (percent(mean.abs()), ("the margin of 95 %", percent(margin)));
    bench.figure(&format!("{name}{DISTANCE}"), Unit::less("%"), distance, Some(widest), Some(1.0));
    let (low, high) = ((mean - margin).exp(), (mean + margin).exp());
    let judged = if low <= 1.0 && high >= 1.0 { "no difference shown" } else { "they differ" };
    bench.note(&format!("ratio {:.3}, 95 % from {low:.3} to {high:.3}: {judged}", mean.exp()));
}
