//! Mutants by machine: small changes of the array's code, one at a time. For each, at least one
//! test must fail.
//!
//! All changes are woven, inactive, into one copy of the sources. The tests are built once, and an
//! environment variable activates one change. A mutant therefore costs a test run and no build.
//! Each test runs alone once, to learn which changes it reaches: a mutant is put to these tests
//! only.

mod detectors;
mod hunt;
mod report;
mod sites;
mod tree;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use clap::Parser;

/// Files in which an error would cost records: agreement, log, recovery, checkpoints, redo, moving,
/// rebuild.
const FILES: [&str; 26] = [
    "drives/label.rs",
    "drives/label/agreement.rs",
    "drives/label/commit.rs",
    "drives/label/discover.rs",
    "drives/label/silence.rs",
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
    after_help = "A hunt that was stopped goes on: which test noticed a mutant, and which let it live, is kept in \
                  target/mutants as long as the code of the mutant's function stays the same. Use --again after tests \
                  were changed: it runs the test that noticed each mutant once more. Exit code 0 if every survivor has a reason in crates/mutants/reasons.tsv, \
                  1 if not, 2 if the hunt failed.\n\n\
                  Examples:\n  ./x mutate --list\n  ./x mutate --sample 100 --seed 1\n  \
                  ./x mutate --in label --in rebuild\n  ./x mutate --write-docs"
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
    /// Forget what earlier hunts found.
    #[arg(long)]
    anew: bool,
    /// Run the test that noticed a mutant once more, and the others where it no longer does.
    #[arg(long, conflicts_with = "anew")]
    again: bool,
    /// The tests of one mutant, the quickest first, take at most so many seconds together without
    /// it.
    #[arg(long, value_name = "N", default_value_t = 30)]
    seconds: u64,
    /// Mutants asked at the same time; default: one a processor.
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// Show the mutants and build nothing.
    #[arg(long)]
    list: bool,
    /// Write the table of survivors to docs/machine-mutants.md; only for all mutants.
    #[arg(long, conflicts_with_all = ["within", "only", "sample"])]
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

/// Runs the hunt, and returns the number of survivors without a reason.
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
    let folder = detectors::folder(&root)?;
    let reasons = report::Reason::read(&root)?;
    let programs = tree::build(&root, &woven)?;
    let jobs = arguments.jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from)).max(1);
    let fingerprint = detectors::fingerprint(&programs)?;
    let tests = detectors::find(&programs, &fingerprint, jobs, &folder)?;
    let budget = Duration::from_secs(arguments.seconds);
    let book = hunt::Book::open(&folder, &fingerprint, arguments.anew)?;
    let verdicts =
        hunt::Hunt { programs: &programs, tests: &tests, jobs, budget, again: arguments.again }.hunt(&chosen, &book)?;
    let report = report::Report { verdicts, reasons, budget };
    println!("{}", report.sum());
    if arguments.write_docs {
        report.idle().for_each(|reason| println!("a reason without a survivor: {reason}"));
        let path = root.join("docs/machine-mutants.md");
        std::fs::write(&path, report.page(all)).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(report.unexplained())
}

/// Does the work for every item, so many at a time, and returns the results in order.
fn abreast<T: Sync, R: Send>(jobs: usize, items: &[T], work: impl Fn(usize, &T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::with_capacity(items.len()));
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                while let Some((place, item)) =
                    Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|at| Some((at, items.get(at)?)))
                {
                    let result = work(place, item);
                    done.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push((place, result));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    done.sort_by_key(|(place, _)| *place);
    done.into_iter().map(|(_, result)| result).collect()
}

fn place(site: &sites::Site) -> String {
    format!("{}:{}", site.file, site.line)
}
