//! The daily work of people and CI on this repository, one command each: `./x test`, `./x demo`,
//! `./x bench`.
//!
//! It depends only on the argument parser and the package writer, so that it builds in seconds. It
//! starts cargo for everything heavy.

mod fuzz;
mod guest;
mod mutants;
mod package;
mod step;
mod suite;
mod tidy;
mod units;

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
    /// Run all tests, as CI does. Ends with 'N passed, N failed'.
    #[command(after_help = "Examples:\n  ./x test\n  ./x test fmt clippy tidy")]
    Test {
        /// Only these steps: fmt, tidy, clippy, build, unit, seeds, crashes, kills, fuzz,
        /// documents, package.
        steps: Vec<String>,
    },
    /// Compile everything, including tests: seconds after a small change.
    Check,
    /// Run the tests of one crate, or those whose names contain a word, with the quick profile for
    /// daily work.
    #[command(after_help = "Examples:\n  ./x t array\n  ./x t array write\n  ./x t stele --test program command::")]
    T {
        /// A folder under crates/, or xtask.
        #[arg(value_name = "CRATE")]
        name: String,
        /// A word of the tests' names, and further arguments of cargo test.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        rest: Vec<OsString>,
    },
    /// Run the main job on real input, step by step. Ends with 'demo: ok'.
    #[command(disable_help_flag = true)]
    Demo {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        rest: Vec<OsString>,
    },
    /// Measure figures beside the peer or limit of the same run: ./x bench codes. Without a name it
    /// lists the benches.
    #[command(disable_help_flag = true)]
    Bench {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        rest: Vec<OsString>,
    },
    /// Run simulated machines under faults, seed after seed; a failing one prints the command that
    /// replays it. Other campaigns work on real processes: ./x soak --help.
    #[command(disable_help_flag = true)]
    Soak {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        rest: Vec<OsString>,
    },
    /// Remove each protection of the array in turn and show which tests fail. A protection that no
    /// test misses is a gap.
    #[command(after_help = "Examples:\n  ./x mutants\n  ./x mutants --first\n  ./x mutants LogFlush ReadDigest")]
    Mutants {
        /// Only these protections [default: all].
        names: Vec<String>,
        /// Stop at the first test that fails: faster, but the table does not show the others.
        #[arg(long)]
        first: bool,
    },
    /// Change the array's code in small ways, one at a time, and show which changes no test
    /// notices.
    #[command(disable_help_flag = true)]
    Mutate {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        rest: Vec<OsString>,
    },
    /// Feed random bytes, steered by coverage, to a parser of stored bytes.
    #[command(after_help = "Examples:\n  ./x fuzz\n  ./x fuzz label --seconds 600")]
    Fuzz {
        /// The target [default: list the targets].
        target: Option<String>,
        #[arg(long, default_value_t = 60)]
        seconds: u64,
    },
    /// Mount a share with the NFS client of a Linux kernel, in a virtual machine, and check what
    /// applications do there.
    #[command(
        after_help = "Needs qemu-system-x86 and busybox-static; fetches Debian's cloud kernel once. Takes some minutes."
    )]
    Guest {
        /// The half that runs in the virtual machine.
        #[arg(long, hide = true)]
        inside: bool,
    },
    /// Build a Debian package and a tarball, under target/package.
    #[command(after_help = "Examples:\n  ./x package\n  sudo ./x package --check\n  sudo ./x package --check --clean")]
    Package {
        /// Also install, start, upgrade and remove the package, on an overlay of this machine;
        /// takes root.
        #[arg(long)]
        check: bool,
        /// Take the program as `./x test` built it. It names no commit.
        #[arg(long)]
        built: bool,
        /// Check on a minimal Debian that debootstrap fetches, instead of an overlay of this
        /// machine.
        #[arg(long, requires = "check")]
        clean: bool,
        /// The second half of the check, inside the namespaces.
        #[arg(long, hide = true, num_args = 3)]
        inside: Option<Vec<PathBuf>>,
    },
    /// Write a pool of today's formats into one compressed file, for tests of later versions.
    #[command(after_help = "Example:\n  ./x fixture crates/stele/tests/formats/pool-4.tar.xz")]
    Fixture {
        /// A new file: a fixture that is kept is never made again.
        file: PathBuf,
    },
    /// Format every file.
    Fmt,
    /// Check the house rules that no compiler knows.
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
        Task::Soak { rest } if asks_for_help(&rest) => {
            println!("{CAMPAIGNS}");
            become_crate("stele-sim", vec!["--help".into()])
        }
        Task::Soak { rest } if rest.first().is_some_and(|first| first == "--block") => prove_block(&rest),
        Task::Soak { rest } if rest.first().is_some_and(|first| first == "--files") => prove(&rest, "files"),
        Task::Soak { rest } if rest.first().is_some_and(|first| first == "--objects") => prove(&rest, "objects"),
        Task::Soak { rest } if rest.first().is_some_and(|first| first == "--admin") => prove_admin(&rest),
        Task::Soak { rest } if rest.first().is_some_and(|first| first == "--days") => live_days(&rest),
        Task::Soak { rest } => become_crate("stele-sim", rest),
        Task::Mutate { rest } => become_crate("stele-mutants", rest),
        Task::Mutants { names, first } => mutants::run(&root, &names, first),
        Task::Fuzz { target, seconds } => fuzz::run(&root, target.as_deref(), seconds),
        Task::Guest { inside: true } => guest::inside::run(),
        Task::Guest { inside: false } => guest::run(&root),
        Task::Package { inside: Some(packages), .. } => match packages.as_slice() {
            [deb, newer, base] => package::run_inside(&root, deb, newer, base),
            _ => ExitCode::from(2),
        },
        Task::Package { check, built, clean, .. } => package::run(&root, check, built, clean),
        Task::Fixture { file } => match new_fixture(&root, &file) {
            Ok(path) => {
                let test = ["--test", "program", "formats::the_fixture", "--", "--nocapture"];
                hand_over(tests().args(test).env("STELE_FIXTURE", path))
            }
            Err(reason) => {
                eprintln!("x: {reason}");
                ExitCode::from(2)
            }
        },
        Task::Fmt => hand_over(cargo().args(["fmt", "--all"])),
        Task::Tidy => {
            let faults = tidy::check(&root);
            faults.iter().for_each(|fault| println!("{fault}"));
            println!("tidy: {} faults", faults.len());
            ExitCode::from(u8::from(!faults.is_empty()))
        }
    }
}

/// The cargo that started this program.
fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Tests of the workspace, built as `./x test` builds them: another choice of packages would
/// rebuild all with other features. The demonstration is left out: it alone needs the largest
/// library, for one test (`./x t demo`).
fn tests() -> Command {
    let mut command = cargo();
    command.args(["test", "--locked", "--release", "--workspace", "--exclude", "stele-demo"]);
    command
}

/// The repository: cargo gives the path of the manifest.
fn root() -> PathBuf {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    manifest.and_then(|xtask| xtask.parent().map(PathBuf::from)).unwrap_or_else(|| PathBuf::from("."))
}

/// Where a fixture is to be written. One that is there holds the formats of its time.
fn new_fixture(root: &Path, file: &Path) -> Result<PathBuf, String> {
    let path = root.join(file);
    match path.exists() {
        false => Ok(path),
        true => Err(format!("{} is there, and a fixture is never made again: name a new file", path.display())),
    }
}

/// The campaigns that are tests of the workspace. The help of the simulated world has the others.
const CAMPAIGNS: &str = "\
Campaigns on real processes, which are tests of the workspace and are built first:

  ./x soak --admin [SECONDS [SEED]]   all that root's commands can do to a pool that holds records
  ./x soak --block SECONDS            NBD with damage, missing drives, kills and power cuts; each for this time
  ./x soak --days [N [SEED]] [--json] an operator's days: drives pulled, lost and replaced under load
  ./x soak --files SECONDS [SEED]     a share through NFS, a mount and S3 at once, with kills and damage
  ./x soak --objects SECONDS [SEED]   versions of a bucket through S3, with kills

All other options are those of stele-sim, which ./x soak starts.
";

fn asks_for_help(rest: &[OsString]) -> bool {
    rest.iter().any(|word| word == "--help" || word == "-h")
}

/// Whether a program starts servers, so that it needs the program `stele` beside it: with one of
/// these words, the name of a bench or an option of the simulated world.
fn starts_servers(package: &str, rest: &[OsString]) -> bool {
    let words: &[&str] = match package {
        "stele-demo" => return !asks_for_help(rest),
        "stele-bench" => &["backup", "block", "file", "large", "s3"],
        "stele-sim" => &["--drives"],
        _ => &[],
    };
    rest.iter().any(|given| words.iter().any(|word| given == word)) && !asks_for_help(rest)
}

/// Builds a crate's binary, and `stele` beside it for crates that start it, and then becomes that
/// binary. Cargo reports its progress on standard error, so that a first build of minutes does not
/// look like a hang.
fn become_crate(package: &str, rest: Vec<OsString>) -> ExitCode {
    let packages: &[&str] = if starts_servers(package, &rest) { &["stele", package] } else { &[package] };
    let built =
        cargo().args(["build", "--release"]).args(packages.iter().flat_map(|name| ["--package", name])).status();
    if !built.is_ok_and(|status| status.success()) {
        return ExitCode::FAILURE;
    }
    // This binary was built in the same place. `cargo run` would rebuild the shared parts with
    // other features.
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

/// `./x soak --block SECONDS`: runs each proof of the block frontend for this time; the tests run
/// them for seconds.
fn prove_block(rest: &[OsString]) -> ExitCode {
    let seconds = rest.get(1).and_then(|text| text.to_str()?.parse::<u64>().ok());
    let (Some(seconds), true) = (seconds, rest.len() == 2) else {
        eprintln!("usage: ./x soak --block SECONDS");
        return ExitCode::from(2);
    };
    let test = ["--test", "program", "block_proof::", "--", "--nocapture", "--test-threads=1"];
    hand_over(tests().args(test).env("STELE_BLOCK_SECONDS", seconds.to_string()))
}

/// `./x soak --files SECONDS [SEED]`: changes the files of a share through NFS, a mount and S3 for
/// this time, under faults. `./x soak --objects SECONDS [SEED]`: the same with a bucket's versions.
fn prove(rest: &[OsString], what: &str) -> ExitCode {
    let numbers: Option<Vec<u64>> = rest.iter().skip(1).map(|text| text.to_str()?.parse().ok()).collect();
    let (seconds, seed) = match numbers.as_deref() {
        Some([seconds]) => (*seconds, 1),
        Some([seconds, seed]) => (*seconds, *seed),
        _ => {
            eprintln!("usage: ./x soak --{what} SECONDS [SEED]");
            return ExitCode::from(2);
        }
    };
    let proofs = format!("{what}_proof::");
    let test = ["--test", "program", &proofs, "--", "--nocapture", "--test-threads=4"];
    let variable = |end: &str| format!("STELE_{}_{end}", what.to_uppercase());
    let (time, from) = (variable("SECONDS"), variable("SEED"));
    hand_over(tests().args(test).env(time, seconds.to_string()).env(from, seed.to_string()))
}

/// `./x soak --admin [SECONDS]`: runs histories of the administrator for this time, or until one
/// breaks a promise.
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
    let test = ["--package", "stele-server", "--lib", "node::model", "--", "--nocapture"];
    hand_over(
        tests().args(test).env("STELE_ADMIN_SECONDS", seconds.to_string()).env("STELE_ADMIN_SEED", first.to_string()),
    )
}

/// `./x soak --days [N [SEED]] [--json]`: runs this many days of an operator on real processes, or
/// until one fails.
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
    let test = ["--test", "program", "days::", "--", "--nocapture"];
    let mut command = tests();
    command.args(test).env("STELE_DAYS", days.to_string()).env("STELE_DAYS_SEED", seed.to_string());
    let shown = if json.is_empty() {
        command.status().map(|status| status.success())
    } else {
        // Standard output has one line for each day, and one for the whole campaign.
        let show = |line: String| if line.starts_with('{') { println!("{line}") } else { eprintln!("{line}") };
        step::lines_of(command.env("STELE_DAYS_JSON", "1"), show).map_err(std::io::Error::other)
    };
    match shown {
        Ok(passed) => ExitCode::from(u8::from(!passed)),
        Err(error) => {
            eprintln!("x: cannot start the days: {error}");
            ExitCode::FAILURE
        }
    }
}

/// `./x t CRATE [TEST]`: with the development profile, which compiles only what changed and checks
/// arithmetic.
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

#[cfg(test)]
mod tests;
