//! `./x test`: the steps in order, cheapest first. A failed step does not stop the ones after it.

use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Instant;

use crate::fuzz::{self, Building};
use crate::step::{self, Outcome};
use crate::{cargo, package, tidy, units};

/// Number of seeds of the simulated world in one run of the tests.
const SEEDS: &str = "300";
/// Number of kills of a process at work on file drives.
const KILLS: &str = "200";

/// The directories and the state of the steps.
struct Site<'a> {
    root: &'a Path,
    /// Whether the unit tests have just built every program. Built alone, the programs would be
    /// rebuilt with other features of their libraries.
    built: bool,
    /// The fuzz targets, if they are being built beside the unit tests.
    fuzz: Option<Building>,
}

impl Site<'_> {
    /// The simulated world.
    fn world(&self) -> Command {
        let mut world = self.world_as_built();
        // A seed needs the memory that the previous one released; keeping it saves a quarter of the
        // time.
        world.env("MIMALLOC_PURGE_DELAY", "-1");
        world
    }

    fn world_as_built(&self) -> Command {
        match self.built {
            true => Command::new(self.root.join("target/release/stele-sim")),
            false => {
                let mut command = cargo();
                command.args(["run", "--quiet", "--locked", "--release", "--package", "stele-sim", "--"]);
                command
            }
        }
    }
}

type Work = fn(&mut Site) -> Outcome;

const STEPS: &[(&str, Work)] = &[
    ("fmt", |_| step::command(cargo().args(["fmt", "--all", "--check"]))),
    ("tidy", |site| {
        let faults = tidy::check(site.root);
        Outcome::of(faults.is_empty(), faults)
    }),
    ("clippy", |_| {
        let workspace = ["clippy", "--quiet", "--locked", "--release", "--workspace", "--all-targets"];
        step::command(cargo().args(workspace).args(["--", "-D", "warnings"]))
    }),
    ("build", |_| step::command(crate::tests().args(units::KINDS).arg("--no-run"))),
    // These tests also drive real clients (S3 libraries and tools), and say so if a client is
    // missing.
    ("unit", |_| units::run()),
    ("seeds", |site| seeds(&mut site.world())),
    // Every crash point of every short workload, with eight outcomes each; `./x soak --enumerate`
    // tries all outcomes.
    ("crashes", |site| step::command(site.world().args(["--enumerate", "--outcomes", "8"]))),
    ("kills", |site| kills(site.root, &mut site.world())),
    ("fuzz", |site| fuzz::briefly(site.root, site.fuzz.take())),
    ("documents", |site| {
        if !site.built {
            let build = ["build", "--quiet", "--locked", "--release", "--package", "stele"];
            let built = step::command(cargo().args(build));
            if built.failed > 0 {
                return built;
            }
        }
        let faults = tidy::commands(site.root);
        Outcome::of(faults.is_empty(), faults)
    }),
    // The step before has built the program.
    ("package", |site| package::step(site.root)),
];

pub fn run(root: &Path, chosen: &[String]) -> ExitCode {
    if let Some(unknown) = chosen.iter().find(|name| !STEPS.iter().any(|(step, _)| step == name)) {
        let names: Vec<&str> = STEPS.iter().map(|(name, _)| *name).collect();
        eprintln!("x: there is no step '{unknown}'; the steps are {}", names.join(", "));
        return ExitCode::from(2);
    }
    let start = Instant::now();
    let (mut passed, mut failed) = (0, 0);
    let mut site = Site { root, built: false, fuzz: None };
    let is_chosen = |name: &str| chosen.is_empty() || chosen.iter().any(|chosen| chosen == name);
    for (name, work) in STEPS.iter().filter(|(name, _)| is_chosen(name)) {
        if *name == "unit" && is_chosen("fuzz") {
            site.fuzz = fuzz::build_beside(root);
        }
        let outcome = step::take(name, || work(&mut site));
        // Tests run only after everything is built, so a passed test shows that it is.
        site.built |= *name == "unit" && outcome.passed > 0;
        passed += outcome.passed;
        failed += outcome.failed;
    }
    println!("in {}", step::lasted(start.elapsed()));
    println!("{passed} passed, {failed} failed");
    ExitCode::from(u8::from(failed > 0))
}

/// Runs the kills; each counts as a test.
fn kills(root: &Path, command: &mut Command) -> Outcome {
    let scratch = root.join("target/tmp");
    if let Err(error) = std::fs::create_dir_all(&scratch) {
        return Outcome::of(false, vec![format!("{}: {error}", scratch.display())]);
    }
    let outcome = step::command(command.args(["--kills", KILLS, "--dir"]).arg(scratch));
    let passed = if outcome.failed == 0 { KILLS.parse().unwrap_or(1) } else { 0 };
    Outcome { passed, ..outcome }
}

/// Runs the seeds; each counts as a test. A failing seed ends the run with the command that replays
/// it.
fn seeds(command: &mut Command) -> Outcome {
    let outcome = step::command(command.args(["--seeds", SEEDS]));
    let passed = if outcome.failed == 0 { SEEDS.parse().unwrap_or(1) } else { 0 };
    Outcome { passed, ..outcome }
}
