//! `stele find`.

use clap::Args;

use super::matter::{OfficerArgs, tag};

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  stele find --bucket mail --prefix jones/ --stored-before 2026-04-02 > found.txt
  stele find --bucket records --class staff --csv
  stele find --bucket records --tag case=4711 --min 1MiB --json

It prints BUCKET/KEY@VERSION, one on each line, as `stele matter put --list` reads them. Every given property must
hold. Versions that newer ones or delete markers hide are found too; delete markers are not. The search reads the
catalog below the prefix.

A reader of CSV gets every text as it is, line breaks too. Only texts that begin with = + - @ ' or a tab or a carriage
return have one apostrophe before them, so that no spreadsheet takes them for formulas. Tags are NAME=VALUE, joined by
& and percent-encoded, as in the header x-amz-tagging. The BLAKE3 is in hexadecimal. On a terminal, characters that
act on it are escaped.")]
pub struct Find {
    /// The bucket to search
    #[arg(long)]
    pub bucket: String,
    /// Only keys that begin with this
    #[arg(long, default_value = "", hide_default_value = true)]
    pub prefix: String,
    /// Only versions with this tag; may be repeated, and then takes all of them
    #[arg(long, value_name = "KEY=VALUE", value_parser = tag)]
    pub tag: Vec<(String, String)>,
    /// Only versions with this metadata of the client; may be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = tag)]
    pub meta: Vec<(String, String)>,
    /// Only versions stored at this time or later: 2026-04-02 or 2026-04-02T12:00:00Z
    #[arg(long, value_name = "DATE")]
    pub stored_after: Option<String>,
    /// Only versions stored before this time
    #[arg(long, value_name = "DATE")]
    pub stored_before: Option<String>,
    /// Only versions of this management class
    #[arg(long)]
    pub class: Option<String>,
    /// Only versions under this matter; `s3` is S3's legal hold
    #[arg(long)]
    pub matter: Option<String>,
    /// Only versions of at least this size
    #[arg(long, value_name = "SIZE", value_parser = stele_server::config::size)]
    pub min: Option<stele_ground::Bytes>,
    /// Only versions of at most this size
    #[arg(long, value_name = "SIZE", value_parser = stele_server::config::size)]
    pub max: Option<stele_ground::Bytes>,
    /// Only versions whose content type begins with this
    #[arg(long, value_name = "TYPE", default_value = "", hide_default_value = true)]
    pub content_type: String,
    /// Print a table as CSV (RFC 4180), with a first line of names
    #[arg(long)]
    pub csv: bool,
    #[command(flatten)]
    pub officer: OfficerArgs,
}
