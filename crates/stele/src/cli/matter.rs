//! `stele matter`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Subcommand, Debug)]
pub enum Matter {
    /// Open a matter: a named hold, with a reason
    #[command(after_help = "\
Examples:
  stele matter open smith-v-jones --reason 'Smith v. Jones, letter of 2026-04-02'
  stele matter open tax-2026 --reason 'audit by the tax office' --officer anna.json

It holds nothing until it is put on versions. A name is used once. From the first matter on, older versions of Stele
refuse the store.")]
    Open {
        /// Name of the new matter
        name: String,
        /// Why versions are held, for the audit log and for `stele why`
        #[arg(long, value_parser = super::words::reason)]
        reason: String,
        #[command(flatten)]
        officer: OfficerArgs,
    },
    /// List all matters, closed ones included
    #[command(after_help = "Example:\n  stele matter list --json")]
    List,
    /// Show a matter, the number of versions under it, and its last job
    #[command(after_help = "\
Examples:
  stele matter show smith-v-jones
  stele matter show smith-v-jones --versions > held.txt

`s3` is the matter of S3's legal hold. Lines of --versions can be given to `stele matter release --list`.")]
    Show {
        /// The matter, as `stele matter list` shows it
        name: String,
        /// Print every version under it instead, as BUCKET/KEY@VERSION
        #[arg(long)]
        versions: bool,
    },
    /// Put a matter on versions: none of them can be deleted, replaced or expire from then on
    #[command(after_help = "\
Examples:
  stele matter put smith-v-jones --bucket mail --prefix jones/ --dry-run
  stele matter put smith-v-jones --bucket mail --prefix jones/ --stored-before 2026-04-02
  stele matter put smith-v-jones --list found.txt

A selection takes the versions that exist when the command is given, also those that a newer version or a delete
marker hides. The server works on it page by page and continues after a restart. A version is held from the moment the
job reaches it.")]
    Put(Change),
    /// Release versions from a matter; other matters and retention stay
    #[command(after_help = "\
Examples:
  stele matter release smith-v-jones --bucket mail --prefix jones/private/ --dry-run
  stele matter release smith-v-jones --list cleared.txt --yes

A released version without another hold or retention can be deleted.")]
    Release {
        #[command(flatten)]
        change: Change,
        /// Do not ask for confirmation
        #[arg(long)]
        yes: bool,
    },
    /// Ask to close a matter for good and to release everything under it. Another officer approves
    /// the request
    #[command(
        after_help = "Example:\n  stele matter close smith-v-jones --officer anna.json\n  stele approve REQUEST --officer ben.json"
    )]
    Close {
        /// The matter, as `stele matter list` shows it
        name: String,
        /// File with an officer's access_key and secret_key, as `stele key create --json` prints
        /// them
        #[arg(long, value_name = "FILE")]
        officer: PathBuf,
    },
}

#[derive(Args, Debug)]
pub struct OfficerArgs {
    /// Act as the officer whose access_key and secret_key are in this file
    /// [default: as the local user]
    #[arg(long, value_name = "FILE")]
    pub officer: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub struct Change {
    /// The matter, as `stele matter list` shows it
    pub name: String,
    /// Versions in this bucket
    #[arg(long, required_unless_present = "list")]
    pub bucket: Option<String>,
    /// Only keys that begin with this
    #[arg(long, default_value = "", hide_default_value = true)]
    pub prefix: String,
    /// Only versions with this tag; may be repeated, and then takes all of them
    #[arg(long, value_name = "KEY=VALUE", value_parser = tag)]
    pub tag: Vec<(String, String)>,
    /// Only versions stored at this time or later: 2026-04-02 or 2026-04-02T12:00:00Z
    #[arg(long, value_name = "DATE")]
    pub stored_after: Option<String>,
    /// Only versions stored before this time
    #[arg(long, value_name = "DATE")]
    pub stored_before: Option<String>,
    /// The versions in this file instead, one BUCKET/KEY or BUCKET/KEY@VERSION on each line, as
    /// `stele find` prints them; `-` is standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["bucket", "prefix", "tag", "stored_after", "stored_before", "dry_run"])]
    pub list: Option<PathBuf>,
    /// Count the versions and name the first few; change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Return at once, while the server works on it
    #[arg(long)]
    pub no_wait: bool,
    #[command(flatten)]
    pub officer: OfficerArgs,
}

pub fn tag(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("write KEY=VALUE")?;
    Ok((key.to_owned(), value.to_owned()))
}
