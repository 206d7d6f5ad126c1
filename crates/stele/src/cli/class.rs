//! `stele class` and `stele event`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::matter::{OfficerArgs, tag};

#[derive(Subcommand, Debug)]
pub enum Class {
    /// Make a version of a class; it applies to nothing before it is activated
    #[command(after_help = "\
Examples:
  stele class create ledger --initiation creation --retver 2557 --action keep --mode compliance
  stele class create staff --initiation event --retver 3650 --retmin 365 --action delete --mode compliance

With `creation` the retention ends --retver days after a version was stored. With `event` it ends --retver days after
the event (`stele event`) and no earlier than --retmin days after the version was stored; without an event it never
ends. From the first class on, older versions of Stele refuse the store.")]
    Create(ClassCreate),
    /// List every version of every class
    #[command(after_help = "Example:\n  stele class list --json")]
    List,
    /// Show the versions of a class
    #[command(after_help = "Example:\n  stele class show staff")]
    Show {
        /// The class, as `stele class list` shows it
        name: String,
    },
    /// Make a version of a class the active one, if it weakens nothing
    // Its own --version takes the place of the one that every command has.
    #[command(
        disable_version_flag = true,
        after_help = "\
Examples:
  stele class activate staff --dry-run
  stele class activate staff
  stele class activate staff --version 2

Every rule is compared with that of the active version. Versions of objects keep the class that they were stored with."
    )]
    Activate {
        /// The class, as `stele class list` shows it
        name: String,
        /// The version [default: the latest]
        #[arg(long, value_name = "N")]
        version: Option<u64>,
        /// Print the comparison, and change nothing
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        officer: OfficerArgs,
    },
    /// Set the classes of versions that are stored in a bucket from now on, or show them
    #[command(after_help = "\
Examples:
  stele class bind records
  stele class bind records --default ledger --rule 'staff:prefix=hr/,suffix=.pdf' --rule 'ledger:tag=kind=book,min=1KiB'
  stele class bind records --default none

The first rule that holds names the class; without one the default does. A rule is CLASS: and conditions, separated by
commas: prefix=, suffix=, tag=KEY=VALUE, min=SIZE, max=SIZE, type= (the beginning of the content type). The new rules
replace the former ones. A request names a class itself by the header x-stele-class or the tag stele:class, with the
right to set retention.")]
    Bind {
        /// The bucket
        bucket: String,
        /// The class where no rule holds; or none
        #[arg(long, value_name = "CLASS")]
        default: Option<String>,
        /// A rule; may be repeated
        #[arg(long, value_name = "CLASS:CONDITIONS")]
        rule: Vec<String>,
    },
    /// List the versions whose retention ends in a period: when, by which rule, and what happens
    /// then
    #[command(after_help = "Examples:
  stele class expiring --before 2027-01-01
  stele class expiring --from 2027-03-01 --before 2027-04-01 --bucket records --prefix hr/ --json

Dates are on the compliance clock. Without --from the list begins with what ended long ago.")]
    Expiring(ExpiringIn),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Initiation {
    Creation,
    Event,
}

#[derive(Args, Debug)]
pub struct ExpiringIn {
    /// The end of the period, not included: 2027-01-01 or 2027-01-01T12:00:00Z
    #[arg(long, value_name = "DATE")]
    pub before: String,
    /// The beginning of the period, included
    #[arg(long, value_name = "DATE")]
    pub from: Option<String>,
    /// Only versions in this bucket
    #[arg(long)]
    pub bucket: Option<String>,
    /// Only keys that begin with this
    #[arg(long, requires = "bucket")]
    pub prefix: Option<String>,
}

#[derive(Args, Debug)]
pub struct ClassCreate {
    /// Name of the class; a name that is there gets its next version
    pub name: String,
    /// What the retention counts from
    #[arg(long, value_enum)]
    pub initiation: Initiation,
    /// Days, at most 30000; `none` (no limit) for creation alone
    #[arg(long, value_name = "DAYS")]
    pub retver: String,
    /// Days from storing on, at least; for event alone
    #[arg(long, value_name = "DAYS", default_value_t = 0)]
    pub retmin: u64,
    /// Action on a version when its retention has passed: keep, delete or notify
    #[arg(long, value_enum)]
    pub action: super::words::Expiry,
    /// governance or compliance
    #[arg(long)]
    pub mode: String,
    /// Description, shown in lists of classes
    #[arg(long, default_value = "", hide_default_value = true)]
    pub description: String,
    #[command(flatten)]
    pub officer: OfficerArgs,
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  stele event records/hr/smith.pdf --at 2026-11-30
  stele event --bucket records --prefix hr/smith/ --at 2026-11-30 --dry-run
  stele event records/hr/smith.pdf --revoke --officer anna.json

An event is told once, for versions whose class counts from an event. One before a version was stored counts from
then. Only an event whose date has not come is taken back (--revoke), and another officer approves that.")]
pub struct Event {
    /// BUCKET/KEY or BUCKET/KEY@VERSION
    #[arg(required_unless_present = "bucket", conflicts_with = "bucket")]
    pub object: Option<String>,
    /// When the event was or will be: 2026-11-30 or 2026-11-30T12:00:00Z
    #[arg(long, value_name = "DATE", required_unless_present = "revoke", conflicts_with = "revoke")]
    pub at: Option<String>,
    /// All versions of this bucket that wait for an event
    #[arg(long)]
    pub bucket: Option<String>,
    // The parser asks for no option that conflicts with one that is given: what belongs to a bucket
    // also has to conflict with the object, or it would be ignored there.
    /// Only keys that begin with this
    #[arg(long, default_value = "", hide_default_value = true, requires = "bucket", conflicts_with = "object")]
    pub prefix: String,
    /// Only versions with this tag; may be repeated, and then takes all of them
    #[arg(long, value_name = "KEY=VALUE", value_parser = tag, requires = "bucket", conflicts_with = "object")]
    pub tag: Vec<(String, String)>,
    /// Count the versions of the bucket, and change nothing
    #[arg(long, requires = "bucket", conflicts_with = "object")]
    pub dry_run: bool,
    /// Ask to take the event of one version back
    #[arg(long, requires = "object", requires = "officer", conflicts_with_all = ["bucket", "prefix", "tag", "dry_run"])]
    pub revoke: bool,
    /// Act as the officer whose access_key and secret_key are in this file
    /// [default: as the local user]
    #[arg(long, value_name = "FILE")]
    pub officer: Option<PathBuf>,
}
