//! The command line: the arguments of every command, with help and examples. `commands` carries the
//! commands out.

pub mod act;
pub mod audit;
pub mod backup;
pub mod bucket;
pub mod class;
pub mod config;
pub mod disposal;
pub mod evidence;
pub mod export;
pub mod find;
mod help;
pub mod key;
pub mod lab;
pub mod master_key;
pub mod matter;
pub mod notifications;
pub mod pool;
pub mod serve;
pub mod share;
pub mod show;
pub mod upgrade;
pub mod volume;
pub mod witness;
pub mod words;

use std::path::PathBuf;
use std::sync::LazyLock;

use clap::{Args, Parser, Subcommand};

/// Storage for records that must survive: volumes and S3 objects on a self-healing array, under
/// retention that no interface can shorten.
#[derive(Parser, Debug)]
#[command(
    name = "stele",
    version = version(),
    propagate_version = true,
    after_help = "\
Examples:
  stele up                                    # start with a pool of file drives under ./stele-data
  stele pool status                           # drives, health, space, rebuild
  stele bucket create records --lock --retention compliance:7y
  stele why records/2026/ledger.pdf           # why a version cannot be deleted, and when it can be

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 refused, 4 no such thing, 5 damaged or too few drives,
6 full, 7 busy or no server, 8 drives did not answer in time, 9 there already; of measurements:
10 not steady, 11 void, 12 partial, 13 regressed; those of backups: `stele backup --help`."
)]
pub struct Cli {
    #[command(flatten)]
    pub place: GlobalArgs,
    #[command(subcommand)]
    pub command: Command,
}

/// The place of the server or of the drives.
#[derive(Args, Clone, Debug, Default)]
pub struct GlobalArgs {
    /// Data directory [default: ./stele-data]
    #[arg(long, global = true, env = "STELE_DIR", value_name = "DIR", display_order = 900)]
    pub dir: Option<PathBuf>,
    /// Configuration file [default: DIR/stele.toml]. It names the data directory, also where
    /// STELE_DIR is set
    #[arg(long, global = true, value_name = "FILE", display_order = 901)]
    pub config: Option<PathBuf>,
    /// Print JSON for machines
    #[arg(long, global = true, display_order = 902)]
    pub json: bool,
}

#[derive(Subcommand, Debug)]
pub enum Command {
    /// Start everything with built-in defaults; make a pool of file drives if there is none
    Up(serve::Up),
    /// Serve an existing pool as its configuration says
    Serve(serve::Serve),
    /// Pools: the drives of one declustered array
    #[command(subcommand)]
    Pool(pool::PoolCommand),
    /// Volumes of the pool
    #[command(subcommand)]
    Volume(volume::Volume),
    /// Volumes that hosts reach as block devices
    #[command(subcommand)]
    Export(export::Export),
    /// Shares: buckets as trees of files, over NFS, SMB, FUSE and S3
    #[command(subcommand)]
    Share(share::Share),
    /// Buckets, their locks and their default retention
    #[command(subcommand)]
    Bucket(bucket::Bucket),
    /// Notifications: the targets that buckets tell of their changes
    #[command(subcommand)]
    Notifications(notifications::Notifications),
    /// Backups: encrypted, deduplicated snapshots of files
    #[command(subcommand)]
    Backup(backup::Backup),
    /// Access keys
    #[command(subcommand)]
    Key(key::Key),
    /// The master key, which encrypts all other keys: export and verify a copy
    #[command(subcommand)]
    MasterKey(master_key::MasterKeyCommand),
    /// Explain why a version cannot be deleted, and when it can be
    #[command(
        after_help = "Examples:\n  stele why records/2026/ledger.pdf\n  stele why records/2026/ledger.pdf@7f3a09c2e4b1d8650193f3c2aa57e01b --json"
    )]
    Why {
        /// BUCKET/KEY or BUCKET/KEY@VERSION
        object: String,
    },
    /// Matters: named holds on versions
    #[command(subcommand)]
    Matter(matter::Matter),
    /// Find versions by tags, metadata, dates, class, matter or size; print their names, CSV or
    /// JSON
    Find(find::Find),
    /// Management classes: how long versions are kept, and from when
    #[command(subcommand)]
    Class(class::Class),
    /// Tell the event from which the retention of versions counts
    Event(class::Event),
    /// The audit log: show, verify, export
    #[command(subcommand)]
    Audit(audit::Audit),
    /// Receipts: signed statements of what was stored, held or deleted
    #[command(subcommand)]
    Receipt(evidence::Receipt),
    /// Removed versions, and the signed certificates of their disposal
    #[command(subcommand)]
    Disposal(disposal::Disposal),
    /// Countersign heads of other machines' audit logs, each only if it continues the one signed
    /// before
    Witness(witness::Witness),
    /// Retention proofs: directories that an auditor can check without this machine
    #[command(subcommand)]
    Proof(evidence::Proof),
    /// Try on canary objects what must be refused, and record the refusals
    #[command(after_help = "\
Examples:
  stele self-test
  stele self-test --bucket records --json

Each bucket with Object Lock gets an object `.stele/canary` under COMPLIANCE retention of two days, which every test
renews. The bucket cannot be deleted while it is there. The test tries with every right to delete it, to weaken its
retention, and to lower the bucket's protection. It does so in the archive itself, over S3 and over the administration
socket. In a share `.stele/canary` is a file, and the test also acts as root over NFS and through a mount.
`[archive] self_test_hours` repeats the test. Exit codes: 0 everything was refused, 3 a bucket could not be tested, 5
something was allowed.")]
    SelfTest {
        /// Only this bucket
        #[arg(long)]
        bucket: Option<String>,
    },
    /// The compliance clock, which retention counts by
    #[command(subcommand)]
    Clock(show::Clock),
    /// Approve or refuse a request of another retention officer; without an argument, list the
    /// waiting requests
    Approve(show::Approve),
    /// Acts that can take two officers, or be switched off for good
    #[command(subcommand)]
    Act(act::Act),
    /// The catalog
    #[command(subcommand)]
    Catalog(show::Catalog),
    /// One drive: show its contents, take it back, locate it, wipe it
    #[command(subcommand)]
    Drive(show::Drive),
    /// Name the objects, volumes and snapshots that have unreadable data
    Affected(show::Affected),
    /// The laboratory: measure any storage, and find its sustained load
    #[command(subcommand)]
    Lab(Box<lab::Lab>),
    /// Export or import all that a server needs besides its drives, in one file
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// Show load, drives, background work and alarms, updated every second
    #[command(after_help = "\
Examples:
  stele top
  stele top --once
  stele top --once --json

Ctrl-C ends it. Rates are those of the last second. The load is known for drives that are devices, not for files.")]
    Top {
        /// Show one report, after a second
        #[arg(long)]
        once: bool,
    },
    /// Show how this version of Stele reads the stored formats
    #[command(subcommand)]
    Upgrade(upgrade::Upgrade),
    /// Report the problems of this machine, with a next step for each
    #[command(after_help = "\
Examples:
  stele doctor
  stele doctor --dir /srv/stele --json

It reads only and changes nothing. It works with a running server and without one. Run it as the server's user.
Exit codes: 0 no problem found, 1 a problem will come in time, 5 a problem exists now.")]
    Doctor,
    /// Write man pages and shell completions, for packages
    #[command(hide = true)]
    Manual {
        /// The folder in which to make `man` and `completions`
        #[arg(long, value_name = "DIR")]
        into: PathBuf,
    },
}

/// The version, and the commit that a package was built from. A build outside packaging names no
/// commit, because a commit in the version would force a rebuild for every commit.
fn version() -> &'static str {
    static VERSION: LazyLock<String> = LazyLock::new(|| {
        let commit =
            option_env!("STELE_COMMIT").map_or("not a package".to_owned(), |commit| format!("commit {commit}"));
        format!("{} ({commit})", env!("CARGO_PKG_VERSION"))
    });
    VERSION.as_str()
}

#[cfg(test)]
mod tests;
