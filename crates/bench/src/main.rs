//! `./x bench NAME [--case PATTERN] [--json]`: figures beside the peer, limit or target.
//!
//! docs/marks.md lists every target, with the case that shows it. No case has a softer one.
//!
//! # To add a bench or a case
//!
//! A bench is a module here with `pub fn run(bench: &mut Bench) -> Result<(), String>`, listed in
//! [`BENCHES`]. For each case it contains:
//!
//! ```ignore
//! // Skips the costly set-up when --case leaves this case out.
//! if bench.wants("put 4 KiB, 8 clients") {
//!     let mut server = start()?;
//!     bench
//!         .case("put 4 KiB, 8 clients", Unit::more("objects/s"))
//!         .target(2.0)                                        // the ratio to reach; leave out where there is none
//!         .beside("btrfs raid6", || peer.round())             // a peer measured now, its rounds between ours; or
//!         // .against("MinIO, reference machine", 592.0)      // a figure taken elsewhere: say where; or neither
//!         .run(|| server.round())?;                           // one round: does the work, returns the figure
//! }
//! ```
//!
//! A round returns `Result<f64, String>` and should take 50 ms to a few seconds. One round of each
//! is thrown away, then `--rounds` of each are taken in turns. The report shows the medians, their
//! ratio (above 1: we are better, in either direction of the unit) and the spread of ours, (max -
//! min) / median. [`Bench::figure`] reports further figures of the same work (CPU, memory).
//! [`process::Usage`] reads a process's CPU time and peak memory. `rate` times a closure.
//! `--before` sets every case beside that of an older version of this program ([`before`]).

mod archive;
mod array;
mod backup;
mod before;
mod block;
mod catalog;
mod codes;
mod destage;
mod digests;
mod file;
mod harness;
mod lab;
mod large;
mod process;
mod rebuild;
mod rig;
mod s3;
mod served;
mod streams;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

use harness::{Bench, Options};

/// With the system's allocator a small write takes 50 % more processor time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

type Run = fn(&mut Bench) -> Result<(), String>;

/// Name, subject, and function.
const BENCHES: &[(&str, &str, Run)] = &[
    ("archive", "retention over many versions: holds, expiration, why, find, proofs, receipts", archive::run),
    ("array", "the pool on memory drives: streams and small blocks", array::run),
    ("backup", "a tree of 65,623 files: backup, restore and verify beside restic and borg", backup::run),
    ("block", "a volume over NBD and iSCSI: server CPU and rates beside nbdkit, qemu-nbd and tgt", block::run),
    ("catalog", "commits, reads, and reopening 10 million versions after kill -9", catalog::run),
    ("codes", "parity, reconstruction and digests beside ISA-L", codes::run),
    ("destage", "prototypes of destage: by stripe, in batches, relocated; on memory and hard drives", destage::run),
    ("digests", "MD5 of 1 to 16 streams side by side, beside the md-5 crate", digests::run),
    ("file", "the file gateway over NFS and SMB, beside NFS-Ganesha and Samba; archiving, retrieval", file::run),
    ("lab", "the load generator beside fio: processor time for each access", lab::run),
    ("large", "24 drives of 20 TB: opening after kill -9, the first write, memory", large::run),
    ("rebuild", "rebuild time and critical share against the number of drives, in virtual time", rebuild::run),
    ("s3", "PUT and GET over S3 by 8 clients, with the server's CPU and memory", s3::run),
    ("streams", "sequential streams on modelled hard drives beside their heads, in virtual time", streams::run),
];

/// The benches that can write a page of docs/.
const WITH_PAGES: [&str; 3] = ["block", "rebuild", "streams"];

const HELP: &str = "\
Each line shows Stele's figure, the figure of a peer, a limit or a target, and the ratio of both: above 1, Stele is
better. docs/marks.md lists the targets.

Exit codes: 0 done, 1 failed or, with --check, a target was missed, 2 wrong usage or no such case.

Examples:
  ./x bench
  ./x bench codes
  ./x bench codes --case '8+2 64 KiB' --json
  ./x bench block --write-docs
  ./x bench array --case 'random read' --before ../before/target/release/stele-bench";

/// Measure Stele beside its peers and limits
#[derive(Parser)]
#[command(name = "stele-bench", bin_name = "./x bench", after_help = HELP)]
struct Arguments {
    /// The bench to run [default: list the benches].
    name: Option<String>,
    /// Only cases whose name contains every word of PATTERN, in upper or lower case. A pattern that
    /// fits none lists them.
    #[arg(long, value_name = "PATTERN")]
    case: Option<String>,
    /// One JSON object a line instead of a table.
    #[arg(long)]
    json: bool,
    /// Number of rounds of each case.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Number of versions in the bench `archive` [default: 1000000].
    #[arg(long, value_parser = clap::value_parser!(u64).range(1000..=100_000_000))]
    versions: Option<u64>,
    /// Show the figures of an older version beside ours. PROGRAM is its stele-bench
    /// (CONTRIBUTING.md, "Compare with an older version").
    #[arg(long, value_name = "PROGRAM", conflicts_with_all = ["versions", "write_docs"])]
    before: Option<PathBuf>,
    /// Exit with 1 if a target is missed.
    #[arg(long)]
    check: bool,
    /// Write the page of the benches block, rebuild and streams: docs/NAME.md.
    #[arg(long, conflicts_with = "case")]
    write_docs: bool,
}

/// Why the options do not fit the bench.
fn misfit(name: &str, arguments: &Arguments) -> Option<String> {
    if arguments.versions.is_some() && name != "archive" {
        return Some(format!("--versions is for the bench archive, not for {name}"));
    }
    let writes = arguments.write_docs && !WITH_PAGES.contains(&name);
    writes.then(|| format!("{name} writes no page; --write-docs is for {}", WITH_PAGES.join(", ")))
}

fn list() -> String {
    BENCHES.iter().map(|(name, about, _)| format!("  ./x bench {name:<10} {about}\n")).collect()
}

fn main() -> ExitCode {
    let given: Vec<String> = std::env::args().skip(1).collect();
    if let [role, path, first] = given.as_slice()
        && role == catalog::CHILD
    {
        return catalog::child(path, first).map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS);
    }
    if given == [served::cleaner::CHILD] {
        served::cleaner::child();
        return ExitCode::SUCCESS;
    }
    let arguments = Arguments::parse();
    let Some(name) = arguments.name.as_deref() else {
        print!("{}", list());
        return ExitCode::SUCCESS;
    };
    let Some((name, _, run)) = BENCHES.iter().find(|(listed, ..)| *listed == name) else {
        eprint!("bench: there is no '{name}'; there are:\n{}", list());
        return ExitCode::from(2);
    };
    if let Some(reason) = misfit(name, &arguments) {
        eprintln!("bench: {reason}");
        return ExitCode::from(2);
    }
    let options = Options {
        pattern: arguments.case.unwrap_or_default(),
        json: arguments.json,
        rounds: arguments.rounds,
        versions: arguments.versions,
        write_docs: arguments.write_docs,
    };
    let mut bench = Bench::new(name, options);
    eprintln!("{}", process::machine());
    let ran = match arguments.before {
        Some(program) => before::run(&mut bench, &program),
        None => run(&mut bench),
    };
    if let Err(reason) = ran {
        eprintln!("bench: {name} stopped: {reason}");
        return ExitCode::FAILURE;
    }
    match bench.finish() {
        Ok(missed) => ExitCode::from(u8::from(arguments.check && missed > 0)),
        Err(reason) => {
            eprintln!("bench: {reason}");
            ExitCode::from(2)
        }
    }
}

#[cfg(test)]
mod tests;
