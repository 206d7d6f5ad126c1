//! `./x fuzz`: the targets under `fuzz/`, laid out for cargo-fuzz, but built without it: flags of
//! the stable compiler switch the coverage pass on. Memory checks are unnecessary, since the code
//! has no unsafe blocks.

use std::path::Path;
use std::process::{Command, ExitCode};
use std::thread::JoinHandle;

use crate::step::{self, Outcome};
use crate::{cargo, hand_over};

/// The flags of cargo-fuzz, without a sanitizer.
const FLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1 -Cdebug-assertions";

/// Building for a named triple keeps the flags off build scripts and procedural macros.
const TRIPLE: &str = "x86_64-unknown-linux-gnu";

/// The profile for the short runs of the tests.
const BRIEF: &str = "brief";

pub fn run(root: &Path, target: Option<&str>, seconds: u64) -> ExitCode {
    let targets = targets(root);
    let Some(target) = target else {
        println!("{}", targets.join("\n"));
        return ExitCode::SUCCESS;
    };
    if !targets.iter().any(|name| name == target) {
        eprintln!("x: there is no fuzz target '{target}'; targets: {}", targets.join(", "));
        return ExitCode::from(2);
    }
    if !build(root, "release", Priority::Usual).args(["--bin", target]).status().is_ok_and(|status| status.success()) {
        eprintln!("x: the fuzz target '{target}' does not build");
        return ExitCode::FAILURE;
    }
    match program(root, "release", target) {
        Ok(mut program) => hand_over(program.arg(format!("-max_total_time={seconds}"))),
        Err(reason) => {
            eprintln!("x: {reason}");
            ExitCode::FAILURE
        }
    }
}

/// The targets as the tests run them, being built in the background.
pub struct Building(JoinHandle<Outcome>);

/// Begins to build the targets at the lowest priority. The unit tests often wait, and leave the
/// processors to it.
pub fn build_beside(root: &Path) -> Option<Building> {
    if !has_compiler() {
        return None;
    }
    let root = root.to_owned();
    Some(Building(std::thread::spawn(move || step::command(&mut build(&root, BRIEF, Priority::Lowest)))))
}

/// Runs every target for a few seconds, as a step of the tests.
pub fn briefly(root: &Path, building: Option<Building>) -> Outcome {
    if !has_compiler() {
        let shown =
            vec!["left out: libFuzzer needs a C++ compiler; Debian: apt-get install build-essential".to_owned()];
        return Outcome { shown, ..Outcome::default() };
    }
    let built = match building {
        Some(Building(thread)) => thread.join().expect("the thread that builds the fuzz targets died"),
        None => step::command(&mut build(root, BRIEF, Priority::Usual)),
    };
    if built.failed > 0 {
        return built;
    }
    let try_out = |target: &String| match program(root, BRIEF, target) {
        Ok(mut program) => step::command(program.args(["-max_total_time=4", "-runs=200000", "-verbosity=0"])),
        Err(reason) => Outcome::of(false, vec![reason]),
    };
    let mut sum = Outcome::default();
    // Each target takes one processor for its time.
    for pair in targets(root).chunks(2) {
        let outcomes: Vec<Outcome> = std::thread::scope(|scope| {
            let threads: Vec<_> = pair.iter().map(|target| scope.spawn(|| try_out(target))).collect();
            threads.into_iter().map(|thread| thread.join().expect("a fuzzing thread died")).collect()
        });
        sum = outcomes.into_iter().fold(sum, Outcome::and);
    }
    sum
}

/// Whether libFuzzer can be built.
fn has_compiler() -> bool {
    Command::new("c++").arg("--version").output().is_ok_and(|output| output.status.success())
}

/// What a build gives way to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Priority {
    Usual,
    /// Everything else on this machine goes first.
    Lowest,
}

fn build(root: &Path, profile: &str, priority: Priority) -> Command {
    let mut build = match priority {
        Priority::Usual => cargo(),
        Priority::Lowest => {
            let mut nice = Command::new("nice");
            nice.args(["-n", "19"]).arg(cargo().get_program());
            nice
        }
    };
    build
        .current_dir(root.join("fuzz"))
        .env("RUSTFLAGS", FLAGS)
        .env("CARGO_TARGET_DIR", root.join("target/fuzz"))
        .args(["build", "--quiet", "--target", TRIPLE, "--profile", profile]);
    build
}

/// The built target with its collected inputs, and the path for an input that breaks it.
fn program(root: &Path, profile: &str, target: &str) -> Result<Command, String> {
    let corpus = root.join("fuzz/corpus").join(target);
    let found = root.join("fuzz/artifacts").join(target);
    for directory in [&corpus, &found] {
        std::fs::create_dir_all(directory)
            .map_err(|reason| format!("cannot create {}: {reason}", directory.display()))?;
    }
    let mut program = Command::new(root.join("target/fuzz").join(TRIPLE).join(profile).join(target));
    program.arg(&corpus).arg(format!("-artifact_prefix={}/", found.display()));
    Ok(program)
}

/// The names of the files in `fuzz/fuzz_targets`.
fn targets(root: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(root.join("fuzz/fuzz_targets")).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.filter_map(|entry| Some(entry.path().file_stem()?.to_string_lossy().into_owned())).collect();
    names.sort();
    names
}
