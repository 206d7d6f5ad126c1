//! `stele disposal`.

use std::path::PathBuf;

use clap::Subcommand;

#[derive(Subcommand, Debug)]
pub enum Disposal {
    /// List the versions that were removed: when, by which actor, and why they could go
    #[command(after_help = "\
Examples:
  stele disposal list --from 2026-10-01 --to 2026-11-01
  stele disposal list --bucket records --prefix hr/ --json

It reads the audit log. Times are those of its records, on the wall clock. Every version with content is listed whose
removal has a record: expired, deleted, ended by a lifecycle rule, or replaced after its retention.
`stele class expiring` lists what is due.")]
    List {
        /// Removed at this time or later: 2026-10-01 or 2026-10-01T12:00:00Z
        #[arg(long, value_name = "DATE")]
        from: Option<String>,
        /// Removed before this time
        #[arg(long, value_name = "DATE")]
        to: Option<String>,
        /// Only versions of this bucket
        #[arg(long)]
        bucket: Option<String>,
        /// Only keys that begin with this
        #[arg(long, default_value = "", hide_default_value = true)]
        prefix: String,
    },
    /// Show whether expiration is paused, and its rate
    #[command(after_help = "Example:\n  stele disposal status --json")]
    Status,
    /// Pause expiration and lifecycle rules: nothing is deleted at its end until they are resumed
    #[command(after_help = "\
Example:
  stele disposal pause --reason 'the tax audit of 2026'

The pause stays over restarts and rebuilds. It keeps versions longer and changes no retention. Clients may still delete
what has passed.")]
    Pause {
        /// Why, for the audit log and `stele disposal status`
        #[arg(long, value_parser = super::words::reason)]
        reason: Option<String>,
    },
    /// Resume expiration and lifecycle rules
    #[command(after_help = "Example:\n  stele disposal resume")]
    Resume,
    /// Limit how many versions expiration and lifecycle rules delete, hide or notify of in a second
    #[command(after_help = "Examples:\n  stele disposal rate 100\n  stele disposal rate none")]
    Rate {
        /// Versions a second, or none
        rate: String,
    },
    /// Ask to delete a version before its GOVERNANCE retention ends; another officer approves
    #[command(after_help = "\
Example, by two officers who are two users of this machine:
  anna$ stele disposal delete records/a.pdf@7f3a09c2e4b1d8650193f3c2aa57e01b \\
      --reason 'wrong file' --officer anna.json
  ben$  stele approve 7k2m9xqa --officer ben.json

A version under COMPLIANCE, under a hold, or in a bucket of level compliance is refused.")]
    Delete {
        /// BUCKET/KEY@VERSION
        object: String,
        /// Why, for the audit log and the officer who approves
        #[arg(long, value_parser = super::words::reason)]
        reason: String,
        /// File with the officer's access_key and secret_key, as `stele key create --json` prints
        /// them
        #[arg(long, value_name = "FILE")]
        officer: PathBuf,
    },
    /// Get the signed certificate of a removed version
    #[command(after_help = "\
Examples:
  stele disposal certificate records/hr/smith.pdf@7f3a09c2e4b1d8650193f3c2aa57e01b --to smith.disposal
  stele disposal certificate records/hr/smith.pdf@7f3a09c2e4b1d8650193f3c2aa57e01b --to smith.disposal --page smith.pdf

It states what the version was, the rule and the holds it was under, the approvals of officers, and when its key was
destroyed. `stele receipt verify` checks it without a server. The page is for people and proves nothing by itself.")]
    Certificate {
        /// BUCKET/KEY@VERSION
        object: String,
        /// The record of the removal, as `stele disposal list` numbers it
        /// [default: the last removal]
        #[arg(long, value_name = "N")]
        record: Option<u64>,
        /// New file; `-` is standard output
        #[arg(long, default_value = "-")]
        to: String,
        /// Write a page for people too: a new file that ends with .pdf or .html
        #[arg(long, value_name = "FILE")]
        page: Option<PathBuf>,
    },
}
