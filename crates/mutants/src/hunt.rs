//! The hunt: each mutant alone, quick tests first.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::place;
use crate::sites::Site;
use crate::tree::Detectors;

/// The slowest of the array's tests: they run last.
const SLOW: [&str; 14] = [
    "drives::label::agreement::model",
    "pool::tests::agreement",
    "pool::tests::relog",
    "pool::tests::absent",
    "pool::tests::protections",
    "pool::tests::redo",
    "reactor::tests",
    "upkeep::moving::tests",
    "upkeep::enclosures::tests::a_crash",
    "layers::tests::model",
    "pool::commands::tests",
    "space::layout::tests::rebuild_load",
    "hosts::ahead::tests",
    "durable::table::tests",
];
/// Seconds after which tests without a verdict count as failed, since a mutant may hang: for the quick tests, and for
/// all.
const PATIENCE: [&str; 2] = ["180", "900"];

/// Draws `count` of the mutants, in order and with equal probability.
pub fn sample(sites: &mut Vec<Site>, count: usize, seed: u64) {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut keyed: Vec<(u64, Site)> = sites
        .drain(..)
        .map(|site| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 20, site)
        })
        .collect();
    keyed.sort_by_key(|(key, _)| *key);
    keyed.truncate(count);
    keyed.sort_by_key(|(_, site)| site.number);
    sites.extend(keyed.into_iter().map(|(_, site)| site));
}

pub struct Report {
    verdicts: Vec<(Site, Option<String>)>,
    begun: Instant,
}

pub fn hunt(detectors: &Detectors, chosen: &[Site]) -> Result<Report, String> {
    if let Some(red) = noticed(detectors, 0)? {
        return Err(format!("already red without any mutant, so nothing can be learnt: {red}"));
    }
    let mut report = Report { verdicts: Vec::new(), begun: Instant::now() };
    for (at, site) in chosen.iter().enumerate() {
        let verdict = noticed(detectors, site.number)?;
        let told = verdict.clone().unwrap_or_else(|| "SURVIVED".into());
        let left = report.begun.elapsed().as_secs() * (chosen.len() - at - 1) as u64 / (at as u64 + 1);
        println!(
            "{:>5} {:<26} {:<24} {:<12} {:.60}  {told:.90}  ({} of {}, {left} s left)",
            site.number,
            place(site),
            site.function,
            site.change.word(),
            site.text,
            at + 1,
            chosen.len()
        );
        report.verdicts.push((site.clone(), verdict));
    }
    Ok(report)
}

/// The first test that fails with this mutant active.
fn noticed(detectors: &Detectors, number: u32) -> Result<Option<String>, String> {
    let quick: Vec<&str> = SLOW.iter().flat_map(|slow| ["--skip", slow]).collect();
    let [soon, late] = PATIENCE;
    if let Some(red) = red(&detectors.array, &quick, soon, number)? {
        return Ok(Some(red));
    }
    for program in &detectors.world {
        if let Some(red) = red(program, &[], soon, number)? {
            return Ok(Some(red));
        }
    }
    red(&detectors.array, &[], late, number)
}

fn red(
    (folder, program): &(PathBuf, PathBuf),
    arguments: &[&str],
    patience: &str,
    number: u32,
) -> Result<Option<String>, String> {
    let mut tests = Command::new("timeout");
    tests.args(["--kill-after=5", patience]).arg(program).args(arguments).arg("--format=pretty");
    tests.current_dir(folder).env("STELE_MUTANT", number.to_string()).env("RUST_BACKTRACE", "0").stderr(Stdio::null());
    let failed = |error: std::io::Error| format!("{}: {error}", program.display());
    let mut running = tests.stdout(Stdio::piped()).spawn().map_err(failed)?;
    for line in BufReader::new(running.stdout.take().ok_or("a program without output")?).split(b'\n') {
        let line = String::from_utf8_lossy(&line.map_err(failed)?).into_owned();
        if let Some(test) = line.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... FAILED")) {
            // One failed test is enough. `timeout` hands the signal on.
            Command::new("kill").arg(running.id().to_string()).status().map_err(failed)?;
            running.wait().map_err(failed)?;
            return Ok(Some(test.to_owned()));
        }
    }
    let ended = running.wait().map_err(failed)?;
    Ok((!ended.success()).then(|| "no verdict: it hangs or aborts".into()))
}

impl Report {
    pub fn survivors(&self) -> usize {
        self.verdicts.iter().filter(|(_, verdict)| verdict.is_none()).count()
    }

    pub fn sum(&self) -> String {
        format!(
            "{} of {} mutants noticed, {} survived, in {} s",
            self.verdicts.len() - self.survivors(),
            self.verdicts.len(),
            self.survivors(),
            self.begun.elapsed().as_secs()
        )
    }

    /// The survivors as a page.
    pub fn page(&self, all: usize) -> String {
        let mut page = format!(
            "# Mutants by machine\n\nWritten by `./x mutate --write-docs`: statements are left out and conditions turned\n\
             round, one at a time, in the files of the array that agreement, log, recovery and rebuild live in. Asked: {} of\n\
             {all}; noticed by a test: {}. The survivors:\n\n| place | function | change | code |\n| --- | --- | --- | --- |\n",
            self.verdicts.len(),
            self.verdicts.len() - self.survivors()
        );
        for (site, _) in self.verdicts.iter().filter(|(_, verdict)| verdict.is_none()) {
            let code = site.text.replace('|', "\\|");
            page += &format!("| {} | {} | {} | `{code}` |\n", place(site), site.function, site.change.word());
        }
        page
    }
}
