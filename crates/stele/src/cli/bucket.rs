//! `stele bucket`.

use clap::{Args, Subcommand};

use super::words::{Expiry, Protection};

#[derive(Subcommand, Debug)]
pub enum Bucket {
    /// Make a bucket
    Create(Create),
    /// List the buckets
    #[command(after_help = "Example:\n  stele bucket list --json")]
    List,
    /// Show one bucket: versioning, lock, default retention, level, quota, usage
    #[command(after_help = "Example:\n  stele bucket show records")]
    Show { name: String },
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  stele bucket create scratch
  stele bucket create records --lock --retention compliance:7y
  stele bucket create drafts --lock --retention governance:30d --quota 100GiB
  stele bucket create ledgers --lock --retention compliance:7y --protection compliance --expiry delete")]
pub struct Create {
    pub name: String,
    /// Object Lock: versions can be retained and held; for good, and turns versioning on
    #[arg(long)]
    pub lock: bool,
    /// Keep every version
    #[arg(long)]
    pub versioning: bool,
    /// Default retention of new versions: compliance or governance, and days (d) or years (y)
    #[arg(long, value_name = "MODE:PERIOD", requires = "lock")]
    pub retention: Option<String>,
    /// Who can weaken a retention here; a level is only raised
    #[arg(long, value_enum, value_name = "LEVEL", requires = "lock")]
    pub protection: Option<Protection>,
    /// What happens to a version whose retention has passed
    #[arg(long, value_enum, value_name = "ACTION", requires = "lock")]
    pub expiry: Option<Expiry>,
    /// Most bytes that the bucket may hold
    #[arg(long, value_parser = super::show::size)]
    pub quota: Option<stele_ground::Bytes>,
    /// Anyone may read objects without a key
    #[arg(long)]
    pub public_read: bool,
}
