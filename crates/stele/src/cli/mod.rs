//! The command line: what can be asked, with help and examples. What each command does is in its own module.

pub mod audit;
pub mod bucket;
pub mod config;
pub mod export;
pub mod key;
pub mod lab;
pub mod pool;
pub mod serve;
pub mod show;
pub mod upgrade;
pub mod volume;
pub mod words;

use std::path::PathBuf;
use std::sync::LazyLock;

use clap::{Args, Parser, Subcommand};

/// Storage for records that must survive: volumes and S3 objects on a self-healing array, under retention
/// that no interface can shorten.
#[derive(Parser, Debug)]
#[command(
    name = "stele",
    version = version(),
    propagate_version = true,
    after_help = "\
Examples:
  stele up                                    start with a pool of file drives under ./stele-data
  stele pool status                           drives, health, space, rebuild
  stele bucket create records --lock --retention compliance:7y
  stele why records/2026/ledger.pdf           why a version cannot be deleted, and when it could

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 refused, 4 no such thing, 5 damaged or too few drives,
6 full, 7 busy or no server, 8 drives did not answer in time, 9 there already; of measurements:
10 not steady, 11 void, 12 partial, 13 regressed."
)]
pub struct Cli {
    #[command(flatten)]
    pub place: Place,
    #[command(subcommand)]
    pub command: Command,
}

/// Where the server or the drives are.
#[derive(Args, Clone, Debug, Default)]
pub struct Place {
    /// Data directory [default: ./stele-data]
    #[arg(long, global = true, env = "STELE_DIR", value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Configuration file [default: DIR/stele.toml]
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print JSON for machines
    #[arg(long, global = true)]
    pub json: bool,
}

#[derive(Subcommand, Debug)]
pub enum Command {
    /// Start everything on embedded defaults, making a pool of file drives if there is none
    Up(serve::Up),
    /// Serve a pool that exists, by its configuration
    Serve(serve::Serve),
    /// Pools: the drives of one declustered array
    #[command(subcommand)]
    Pool(pool::Pool),
    /// Volumes of the pool
    #[command(subcommand)]
    Volume(volume::Volume),
    /// Volumes that hosts reach as block devices
    #[command(subcommand)]
    Export(export::Export),
    /// Buckets, their locks and their default retention
    #[command(subcommand)]
    Bucket(bucket::Bucket),
    /// Access keys, and the escrow of the master key
    #[command(subcommand)]
    Key(key::Key),
    /// Say why a version cannot be deleted, and when it could
    #[command(
        after_help = "Examples:\n  stele why records/2026/ledger.pdf\n  stele why records/2026/ledger.pdf@7f3a09c2e4b1d8650193f3c2aa57e01b --json"
    )]
    Why {
        /// BUCKET/KEY or BUCKET/KEY@VERSION
        object: String,
    },
    /// The audit log: show it, verify it, export it
    #[command(subcommand)]
    Audit(audit::Audit),
    /// The compliance clock, from which retention counts
    #[command(subcommand)]
    Clock(show::Clock),
    /// Approve what another retention officer asked for, or refuse it; without a request, show what waits
    Approve(show::Approve),
    /// The catalog
    #[command(subcommand)]
    Catalog(show::Catalog),
    /// Look at one drive, take it back, find it, wipe it
    #[command(subcommand)]
    Drive(show::Drive),
    /// Name the objects, volumes and snapshots of which something cannot be read
    Affected(show::Affected),
    /// The laboratory: measure any storage, and find what it sustains
    #[command(subcommand)]
    Lab(Box<lab::Lab>),
    /// What a server needs besides its drives, in one file for another machine
    #[command(subcommand)]
    Config(config::Config),
    /// Show load, drives, work and alarms, anew every second
    #[command(after_help = "\
Examples:
  stele top
  stele top --once
  stele top --once --json

Ends with Ctrl-C. Rates are those of the last second. The load of drives is known of devices, not of files.")]
    Top {
        /// Show it once, after a second
        #[arg(long)]
        once: bool,
    },
    /// Say what another version of Stele finds in what is stored
    #[command(subcommand)]
    Upgrade(upgrade::Upgrade),
    /// Say what on this machine will hurt, with a next step each
    #[command(after_help = "\
Examples:
  stele doctor
  stele doctor --dir /srv/stele --json

It looks and changes nothing, with a server or without one. Run it as the user that the server runs as.
Exit codes: 0 nothing will hurt, 1 something will in time, 5 something is wrong now.")]
    Doctor,
    /// Write man pages and completions of shells, for packages
    #[command(hide = true)]
    Manual {
        /// The folder, in which `man` and `completions` are made
        #[arg(long, value_name = "DIR")]
        into: PathBuf,
    },
}

/// The version, and the commit that a package was built from. A build that nobody packaged names none: it would be built anew
/// for every commit.
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
