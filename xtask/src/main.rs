//! What people and CI do with this repository, on one command each: `./x test`, `./x demo`, `./x bench`.
//!
//! Depends on nothing but the argument parser and what writes a package, so that it builds in seconds; everything heavy is a
//! cargo it starts.

mod fuzz;
mod mutants;
mod package;
mod step;
mod suite;
mod tidy;

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "x", bin_name = "./x", about = "What people and CI do with this repository")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Everything that is tested; the same in CI. Ends with 'N passed, N failed'.
    #[command(after_help = "Examples:\n  ./x test\n  ./x test fmt clippy tidy")]
    Test {
        /// Only these steps, of: fmt, tidy, clippy, unit, seeds, crashes, kills, fuzz, documents.
        steps: Vec<String>,
    },
    /// Whether everything compiles, tests too: seconds after a small change.
    Check,
    /// The tests of one crate, or those whose names contain a word, built quickly: for daily work.
    #[command(after_help = "Examples:\n  ./x t array\n  ./x t array write\n  ./x t stele --test command")]
    T {
        /// A folder under crates/, or xtask.
        #[arg(value_name = "CRATE")]
        name: String,
        /// What the names of tests contain, and what else cargo test takes.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        rest: Vec<OsString>,
    },
    /// The main job on real input, shown step by step. Ends with 'demo: ok'.
    #[command(disable_help_flag = true)]
    Demo {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        rest: Vec<OsString>,
    },
    /// Figures beside the peer or limit they are judged by: ./x bench codes.
    #[command(disable_help_flag = true)]
    Bench {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        rest: Vec<OsString>,
    },
    /// Simulated machines under faults, seed after seed; a failing one prints the command that replays it.
    #[command(disable_help_flag = true)]
    Soak {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        rest: Vec<OsString>,
    },
    /// Takes each protection of the array away in turn and shows which tests notice; one that none misses is a hole.
    #[command(after_help = "Examples:\n  ./x mutants\n  ./x mutants --first\n  ./x mutants LogFlush ReadDigest")]
    Mutants {
        /// Only these; leave out for all.
        names: Vec<String>,
        /// Whoever notices first is enough: faster, and the table says nothing of the others.
        #[arg(long)]
        first: bool,
    },
    /// Changes the array's code in small ways, one at a time, and shows which changes no test notices.
    #[command(disable_help_flag = true)]
    Mutate {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        rest: Vec<OsString>,
    },
    /// Random bytes, steered by coverage, into a parser of stored bytes.
    #[command(after_help = "Examples:\n  ./x fuzz\n  ./x fuzz label --seconds 600")]
    Fuzz {
        /// What to fuzz; leave out for a list.
        target: Option<String>,
        #[arg(long, default_value_t = 60)]
        seconds: u64,
    },
    /// A Debian package and a tarball, under target/package.
    #[command(after_help = "Examples:\n  ./x package\n  sudo ./x package --check")]
    Package {
        /// Install, start, upgrade and remove the package as well, on an overlay of this machine; takes root.
        #[arg(long)]
        check: bool,
        /// The check's second half, within namespaces.
        #[arg(long, hide = true, num_args = 2)]
        inside: Option<Vec<PathBuf>>,
    },
    /// A pool of the formats of today in one compressed file, for tests of later versions.
    #[command(after_help = "Example:\n  ./x fixture crates/stele/tests/formats/pool-2.tar.xz")]
    Fixture { file: PathBuf },
    /// Formats every file.
    Fmt,
    /// The house rules that no compiler knows.
    Tidy,
}

fn main() -> ExitCode {
    let root = root();
    if let Err(reason) = std::env::set_current_dir(&root) {
        eprintln!("x: cannot enter {}: {reason}", root.display());
        return ExitCode::FAILURE;
    }
    match Arguments::parse().task {
        Task::Test { steps } => suite::run(&root, &steps),
        Task::Check => hand_over(cargo().args(["check", "--workspace", "--all-targets"])),
        Task::T { name, rest } => test_crate(&root, &name, &rest),
        Task::Demo { rest } => become_crate("stele-demo", rest),
        Task::Bench { rest } => become_crate("stele-bench", rest),
        Task::Soak { rest } if rest.first().is_some_and(|first| first == "--block") => prove_block(&rest),
        Task::Soak { rest } if rest.first().is_some_and(|first| first == "--admin") => prove_admin(&rest),
        Task::Soak { rest } if rest.first().is_some_and(|first| first == "--days") => live_days(&rest),
        Task::Soak { rest } => become_crate("stele-sim", rest),
        Task::Mutate { rest } => become_crate("stele-mutants", rest),
        Task::Mutants { names, first } => mutants::run(&root, &names, first),
        Task::Fuzz { target, seconds } => fuzz::run(&root, target.as_deref(), seconds),
        Task::Package { inside: Some(packages), .. } => match packages.as_slice() {
            [deb, newer] => package::run_inside(&root, deb, newer),
            _ => ExitCode::from(2),
        },
        Task::Package { check, .. } => package::run(&root, check),
        Task::Fixture { file } => {
            let test = ["--test", "pool", "formats::the_fixture", "--", "--nocapture"];
            hand_over(tests().args(test).env("STELE_FIXTURE", root.join(file)))
        }
        Task::Fmt => hand_over(cargo().args(["fmt", "--all"])),
        Task::Tidy => {
            let faults = tidy::check(&root);
            faults.iter().for_each(|fault| println!("{fault}"));
            println!("tidy: {} faults", faults.len());
            ExitCode::from(u8::from(!faults.is_empty()))
        }
    }
}

/// The cargo this was started by.
fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Tests of the workspace, built as `./x test` builds them: another choice of packages would build all of them anew, with
/// other features of their libraries. Without the demonstration, which has no tests.
fn tests() -> Command {
    let mut command = cargo();
    command.args(["test", "--locked", "--release", "--workspace", "--exclude", "stele-demo"]);
    command
}

/// The repository: cargo tells where the manifest of what it runs is.
fn root() -> PathBuf {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    manifest.and_then(|xtask| xtask.parent().map(PathBuf::from)).unwrap_or_else(|| PathBuf::from("."))
}

/// Builds a crate's binary, and `stele` beside it for those that start it, and becomes the former. Cargo tells of its
/// progress on standard error, so that a first build of minutes does not look like a hang.
fn become_crate(package: &str, rest: Vec<OsString>) -> ExitCode {
    let first = rest.first().and_then(|first| first.to_str()).unwrap_or_default();
    let starts_servers = package == "stele-demo" || ["s3", "block", "--drives"].contains(&first);
    let packages: &[&str] = if starts_servers { &["stele", package] } else { &[package] };
    let built =
        cargo().args(["build", "--release"]).args(packages.iter().flat_map(|name| ["--package", name])).status();
    if !built.is_ok_and(|status| status.success()) {
        return ExitCode::FAILURE;
    }
    // This one was built in the same place. `cargo run` would build what both need with other features, once more.
    match std::env::current_exe() {
        Ok(own) => {
            let mut command = Command::new(own.with_file_name(package));
            if package == "stele-sim" {
                // As in `Site::world`.
                command.env("MIMALLOC_PURGE_DELAY", "-1");
            }
            hand_over(command.args(rest))
        }
        Err(error) => {
            eprintln!("x: cannot tell where '{package}' was built: {error}");
            ExitCode::FAILURE
        }
    }
}

/// `./x soak --block SECONDS`: the proofs of the block face for as long, each, that the tests run for seconds.
fn prove_block(rest: &[OsString]) -> ExitCode {
    let seconds = rest.get(1).and_then(|text| text.to_str()?.parse::<u64>().ok());
    let (Some(seconds), true) = (seconds, rest.len() == 2) else {
        eprintln!("usage: ./x soak --block SECONDS");
        return ExitCode::from(2);
    };
    let test = ["--test", "block_proof", "--", "--nocapture", "--test-threads=1"];
    hand_over(tests().args(test).env("STELE_BLOCK_SECONDS", seconds.to_string()))
}

/// `./x soak --admin [SECONDS]`: histories of the administrator for as long, or until one breaks a promise.
fn prove_admin(rest: &[OsString]) -> ExitCode {
    let numbers: Option<Vec<u64>> = rest.iter().skip(1).map(|text| text.to_str()?.parse().ok()).collect();
    let (seconds, first) = match numbers.as_deref() {
        Some([]) => (u64::from(u32::MAX), 0),
        Some([seconds]) => (*seconds, 0),
        Some([seconds, first]) => (*seconds, *first),
        _ => {
            eprintln!("usage: ./x soak --admin [SECONDS [FIRST_SEED]]");
            return ExitCode::from(2);
        }
    };
    let test = ["--bin", "stele", "node::model", "--", "--nocapture"];
    hand_over(
        tests().args(test).env("STELE_ADMIN_SECONDS", seconds.to_string()).env("STELE_ADMIN_SEED", first.to_string()),
    )
}

/// `./x soak --days [N [SEED]] [--json]`: so many days of an operator on real processes, or until one brings a surprise.
fn live_days(rest: &[OsString]) -> ExitCode {
    let (json, rest): (Vec<&OsString>, Vec<&OsString>) = rest.iter().skip(1).partition(|word| *word == "--json");
    let numbers: Option<Vec<u64>> = rest.iter().map(|text| text.to_str()?.parse().ok()).collect();
    let (days, seed) = match numbers.as_deref() {
        Some([]) => (200, 1),
        Some([days]) => (*days, 1),
        Some([days, seed]) => (*days, *seed),
        _ => {
            eprintln!("usage: ./x soak --days [N [SEED]] [--json]");
            return ExitCode::from(2);
        }
    };
    let test = ["--test", "days", "--", "--nocapture"];
    let mut command = tests();
    command.args(test).env("STELE_DAYS", days.to_string()).env("STELE_DAYS_SEED", seed.to_string());
    if !json.is_empty() {
        command.env("STELE_DAYS_JSON", "1");
    }
    hand_over(&mut command)
}

/// `./x t CRATE [TEST]`: with the development profile, which compiles only what changed and checks arithmetic.
fn test_crate(root: &Path, name: &str, rest: &[OsString]) -> ExitCode {
    let package = match name {
        "stele" | "xtask" => name.to_owned(),
        other => format!("stele-{}", other.strip_prefix("stele-").unwrap_or(other)),
    };
    let folder = package.strip_prefix("stele-").unwrap_or(&package);
    if name != "xtask" && !root.join("crates").join(folder).is_dir() {
        eprintln!("x: there is no crate '{name}'; the crates are the folders under crates/, and xtask");
        return ExitCode::from(2);
    }
    hand_over(cargo().args(["test", "--package", &package]).args(rest))
}

fn hand_over(command: &mut Command) -> ExitCode {
    let reason = command.exec();
    eprintln!("x: cannot start {}: {reason}", command.get_program().display());
    ExitCode::FAILURE
}
