//! `./x fuzz`: the targets under `fuzz/`, laid out for cargo-fuzz, built here without it: the coverage pass is
//! switched on by flags the stable compiler takes. Memory checks are not needed where there is no unsafe code.

use std::path::Path;
use std::process::{Command, ExitCode};

use crate::{cargo, hand_over};

/// What cargo-fuzz passes, without a sanitizer.
const FLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1 -Cdebug-assertions";

pub fn run(root: &Path, target: Option<&str>, seconds: u64) -> ExitCode {
    let targets = targets(root);
    let Some(target) = target.filter(|target| targets.iter().any(|name| name == target)) else {
        let said = target.map(|name| format!("x: there is no fuzz target '{name}'; ")).unwrap_or_default();
        eprintln!("{said}targets: {}", targets.join(", "));
        return ExitCode::from(2);
    };
    let directory = root.join("fuzz");
    // Building for a named triple keeps the flags off build scripts and procedural macros.
    let triple = "x86_64-unknown-linux-gnu";
    let built = cargo()
        .current_dir(&directory)
        .env("RUSTFLAGS", FLAGS)
        .env("CARGO_TARGET_DIR", root.join("target/fuzz"))
        .args(["build", "--quiet", "--release", "--target", triple, "--bin", target])
        .status();
    if !built.is_ok_and(|status| status.success()) {
        eprintln!("x: the fuzz target '{target}' does not build");
        return ExitCode::FAILURE;
    }
    let corpus = directory.join("corpus").join(target);
    let found = directory.join("artifacts").join(target);
    if let Err(reason) = std::fs::create_dir_all(&corpus).and_then(|()| std::fs::create_dir_all(&found)) {
        eprintln!("x: cannot create {}: {reason}", corpus.display());
        return ExitCode::FAILURE;
    }
    hand_over(
        Command::new(root.join("target/fuzz").join(triple).join("release").join(target))
            .arg(&corpus)
            .arg(format!("-max_total_time={seconds}"))
            .arg(format!("-artifact_prefix={}/", found.display())),
    )
}

/// The names of the files in `fuzz/fuzz_targets`.
fn targets(root: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(root.join("fuzz/fuzz_targets")).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.filter_map(|entry| Some(entry.path().file_stem()?.to_string_lossy().into_owned())).collect();
    names.sort();
    names
}
