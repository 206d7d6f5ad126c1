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
        #[arg(long)]
        bucket: Option<String>,
        /// Only keys that begin with this
        #[arg(long, default_value = "")]
        prefix: String,
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
        /// The record of the removal, as `stele disposal list` numbers it [default: the last removal]
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
