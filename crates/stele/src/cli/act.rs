//! `stele act`.

use std::path::PathBuf;

use clap::{Subcommand, ValueEnum};

use super::matter::OfficerArgs;

#[derive(Subcommand, Debug)]
pub enum Act {
    /// List the acts that come near to retention, and how many people each takes
    #[command(after_help = "Examples:\n  stele act list\n  stele act list --officer anna.json")]
    List {
        #[command(flatten)]
        officer: OfficerArgs,
    },
    /// Ask to let an act take two officers, or to switch it off for good
    #[command(after_help = "\
Examples, by two officers who are two users of this machine:
  anna$ stele act restrict bypass --to two --officer anna.json
  ben$  stele approve 7k2m9xqa --officer ben.json
  anna$ stele act restrict key-export --to off --officer anna.json

There is no way back: a rule only gets stricter. The request says what is lost. Acts: bypass (of GOVERNANCE),
clock-accept, clock-credit, key-export, new-officer.")]
    Restrict {
        /// The act, as `stele act list` names it
        act: String,
        /// How many people it takes from then on
        #[arg(long, value_enum)]
        to: People,
        /// File with the officer's access_key and secret_key, as `stele key create --json` prints
        /// them
        #[arg(long, value_name = "FILE")]
        officer: PathBuf,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum People {
    Two,
    Off,
}
