//! The command line: what can be asked, with help and examples. What each command does is in its own module.

pub mod audit;
pub mod bucket;
pub mod export;
pub mod key;
pub mod lab;
pub mod pool;
pub mod serve;
pub mod show;
pub mod volume;
pub mod words;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// Storage for records that must survive: volumes and S3 objects on a self-healing array, under retention
/// that no interface can shorten.
#[derive(Parser, Debug)]
#[command(
    name = "stele",
    version,
    propagate_version = true,
    after_help = "\
Examples:
  stele up                                    start with a pool of file drives under ./stele-data
  stele pool status                           drives, health, space, rebuild
  stele bucket create records --lock --retention compliance:7y
  stele why records/2026/ledger.pdf           why a version cannot be deleted, and when it could

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 refused, 4 no such thing, 5 damaged or too few drives,
6 full, 7 busy or no server, 8 drives did not answer in time."
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
    /// Look at one drive
    #[command(subcommand)]
    Drive(show::Drive),
    /// The laboratory: measure any storage, and find what it sustains
    #[command(subcommand)]
    Lab(Box<lab::Lab>),
}
