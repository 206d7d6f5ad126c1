//! `./x test`: the steps in order, cheapest first. A failed step does not stop the ones after it.

use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Instant;

use crate::step::{self, Outcome};
use crate::{cargo, fuzz, tidy};

/// Seeds of the simulated world in one run of the tests.
const SEEDS: &str = "300";
/// Times that a process at work on file drives is killed.
const KILLS: &str = "200";

type Work = fn(&Path) -> Outcome;

const WORLD: [&str; 7] = ["run", "--quiet", "--locked", "--release", "--package", "stele-sim", "--"];

const STEPS: &[(&str, Work)] = &[
    ("fmt", |_| step::command(cargo().args(["fmt", "--all", "--check"]))),
    ("tidy", |root| {
        let faults = tidy::check(root);
        Outcome::of(faults.is_empty(), faults)
    }),
    ("clippy", |_| {
        let workspace = ["clippy", "--quiet", "--locked", "--release", "--workspace", "--all-targets"];
        step::command(cargo().args(workspace).args(["--", "-D", "warnings"]))
    }),
    // Real clients (S3 libraries and tools) are driven from these tests too, and say so where a client is absent.
    ("unit", |_| step::tests(cargo().args(["test", "--locked", "--release", "--workspace", "--no-fail-fast"]))),
    ("seeds", |_| seeds(cargo().args(WORLD))),
    // Every crash point of every short workload, and of each so many outcomes; `./x soak --enumerate` tries all.
    ("crashes", |_| step::command(cargo().args(WORLD).args(["--enumerate", "--outcomes", "8"]))),
    ("kills", |root| kills(root, cargo().args(WORLD))),
    ("fuzz", fuzz::briefly),
    ("documents", |root| {
        let built = step::command(cargo().args(["build", "--quiet", "--locked", "--release", "--package", "stele"]));
        if built.failed > 0 {
            return built;
        }
        let faults = tidy::commands(root);
        Outcome::of(faults.is_empty(), faults)
    }),
];

pub fn run(root: &Path, chosen: &[String]) -> ExitCode {
    if let Some(unknown) = chosen.iter().find(|name| !STEPS.iter().any(|(step, _)| step == name)) {
        let names: Vec<&str> = STEPS.iter().map(|(name, _)| *name).collect();
        eprintln!("x: there is no step '{unknown}'; the steps are {}", names.join(", "));
        return ExitCode::from(2);
    }
    let start = Instant::now();
    let (mut passed, mut failed) = (0, 0);
    for (name, work) in STEPS.iter().filter(|(name, _)| chosen.is_empty() || chosen.iter().any(|c| c == name)) {
        let outcome = step::take(name, || work(root));
        passed += outcome.passed;
        failed += outcome.failed;
    }
    println!("in {}", step::lasted(start.elapsed()));
    println!("{passed} passed, {failed} failed");
    ExitCode::from(u8::from(failed > 0))
}

/// Each kill counts as a test.
fn kills(root: &Path, command: &mut Command) -> Outcome {
    let scratch = root.join("target/tmp");
    if let Err(error) = std::fs::create_dir_all(&scratch) {
        return Outcome::of(false, vec![format!("{}: {error}", scratch.display())]);
    }
    let outcome = step::command(command.args(["--kills", KILLS, "--dir"]).arg(scratch));
    let passed = if outcome.failed == 0 { KILLS.parse().unwrap_or(1) } else { 0 };
    Outcome { passed, ..outcome }
}

/// Each seed counts as a test; a seed that fails ends the run with the command that replays it.
fn seeds(command: &mut Command) -> Outcome {
    let outcome = step::command(command.args(["--seeds", SEEDS]));
    let passed = if outcome.failed == 0 { SEEDS.parse().unwrap_or(1) } else { 0 };
    Outcome { passed, ..outcome }
}
