//! Mutants by machine: small changes of the array's code, one at a time. For each, at least one test must fail.
//!
//! All changes are woven, inactive, into one copy of the sources. The tests are built once, and an environment variable
//! activates one change. A mutant therefore costs a test run and no build.

mod hunt;
mod sites;
mod tree;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

/// Files in which an error would cost records: agreement, log, recovery, checkpoints, redo, moving, rebuild.
const FILES: [&str; 25] = [
    "drives/label.rs",
    "drives/label/agreement.rs",
    "drives/label/commit.rs",
    "drives/label/discover.rs",
    "durable/log.rs",
    "durable/log/commit.rs",
    "durable/log/membership.rs",
    "durable/log/recover.rs",
    "durable/log/relief.rs",
    "durable/log/space.rs",
    "pool/recovery.rs",
    "destage/checkpoint.rs",
    "state/redo.rs",
    "stripe/redo.rs",
    "upkeep/moving.rs",
    "upkeep/rebuild.rs",
    "upkeep/rebuild/breadth.rs",
    "upkeep/rebuild/leave.rs",
    "stripe/missed.rs",
    "members/membership.rs",
    "members/joining.rs",
    "members/growth.rs",
    "destage/relog.rs",
    "destage.rs",
    "stripe/repair.rs",
];

#[derive(Parser)]
#[command(
    name = "stele-mutants",
    bin_name = "./x mutate",
    about = "Changes the array's code in small ways, one at a time, and shows which changes no test notices",
    after_help = "Examples:\n  ./x mutate --list\n  ./x mutate --sample 100 --seed 1\n  \
                  ./x mutate --in label --in rebuild --write-docs"
)]
struct Arguments {
    /// Only files whose path contains this; may be given several times.
    #[arg(long = "in", value_name = "PATH")]
    within: Vec<String>,
    /// Only the mutants with these numbers, as --list prints them.
    #[arg(long = "only", value_name = "N")]
    only: Vec<u32>,
    /// Only so many, chosen evenly by --seed.
    #[arg(long, value_name = "N")]
    sample: Option<usize>,
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Show the mutants and build nothing.
    #[arg(long)]
    list: bool,
    /// Write the table of survivors to docs/machine-mutants.md.
    #[arg(long)]
    write_docs: bool,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(reason) => {
            eprintln!("mutants: {reason}");
            ExitCode::from(2)
        }
    }
}

/// Runs the hunt, and returns the number of survivors.
fn run(arguments: &Arguments) -> Result<usize, String> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let root = root.canonicalize().map_err(|error| format!("{}: {error}", root.display()))?;
    let files: Vec<&str> = FILES
        .into_iter()
        .filter(|file| arguments.within.is_empty() || arguments.within.iter().any(|part| file.contains(part.as_str())))
        .collect();
    if files.is_empty() {
        return Err(format!("no file contains {:?}; known: {}", arguments.within, FILES.join(", ")));
    }
    let woven = tree::weave(&root, &FILES)?;
    let mut chosen: Vec<_> = woven.sites.iter().filter(|site| files.contains(&site.file.as_str())).cloned().collect();
    if !arguments.only.is_empty() {
        chosen.retain(|site| arguments.only.contains(&site.number));
    }
    let all = chosen.len();
    if let Some(count) = arguments.sample {
        hunt::sample(&mut chosen, count, arguments.seed);
    }
    if arguments.list {
        for site in &chosen {
            println!(
                "{:>5}  {:<22} {:<24} {:<12} {}",
                site.number,
                place(site),
                site.function,
                site.change.word(),
                site.text
            );
        }
        println!("{} of {all} mutants", chosen.len());
        return Ok(0);
    }
    let detectors = tree::build(&root, &woven)?;
    let report = hunt::hunt(&detectors, &chosen)?;
    println!("{}", report.sum());
    if arguments.write_docs {
        let path = root.join("docs/machine-mutants.md");
        std::fs::write(&path, report.page(all)).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(report.survivors())
}

fn place(site: &sites::Site) -> String {
    format!("{}:{}", site.file, site.line)
}
