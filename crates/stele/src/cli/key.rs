//! `stele key`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::words::{Access, Role};

#[derive(Subcommand, Debug)]
pub enum Key {
    /// Make an access key; its secret is printed once
    Create(Create),
    /// List access keys, without secrets
    #[command(after_help = "Example:\n  stele key list")]
    List,
    /// Take rights from an access key, at once; it never gets more
    Narrow(Narrow),
    /// Revoke an access key at once
    #[command(after_help = "Example:\n  stele key revoke STELEK7Q2M4XJ9TB3HWD")]
    Revoke { id: String },
    /// Export the master key for a safe place: losing it loses every record
    #[command(after_help = "Example:\n  stele key escrow --to /media/usb/stele-master.key")]
    Escrow {
        /// New file, made readable by its owner only
        #[arg(long, value_name = "FILE")]
        to: PathBuf,
    },
    /// Prove that an escrowed master key opens this store
    #[command(after_help = "Example:\n  stele key check /media/usb/stele-master.key")]
    Check { file: PathBuf },
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  stele key create --name ingest --role user --bucket records --prefix scans/
  stele key create --name scanner --bucket records --access write,retain
  stele key create --name anna --role retention-officer --json > anna.json
  stele key create --name bert --role storage-administrator,auditor

A key may do nothing but what --role and --access say; without either none is made. `stele key narrow` takes rights away later.
The first two retention officers are made by this command alone. From then on the key of a new one is void until an officer
approves it (`stele approve`).")]
pub struct Create {
    /// Whose it is, for people
    #[arg(long, default_value = "")]
    pub name: String,
    /// What it may do to the store; several are separated by commas, or the option is given again
    #[arg(long, value_enum, value_name = "ROLES", value_delimiter = ',')]
    pub role: Vec<Role>,
    /// Only this bucket; may be given more than once
    #[arg(long, value_name = "BUCKET")]
    pub bucket: Vec<String>,
    /// Only keys that begin so
    #[arg(long, default_value = "")]
    pub prefix: String,
    /// What it may do there, separated by commas [default: by role: user read,write,delete,list; retention-officer
    /// read,list,retain; auditor read,list; storage-administrator nothing]
    #[arg(long, value_enum, value_name = "KINDS", value_delimiter = ',')]
    pub access: Vec<Access>,
    /// The same as --access read,list
    #[arg(long, conflicts_with = "access")]
    pub read_only: bool,
    /// May bypass GOVERNANCE retention when asking for it explicitly
    #[arg(long)]
    pub bypass_governance: bool,
    /// A new retention officer where no other one is left who could approve it: good after 30 days, through which an alarm
    /// stands and any officer can refuse it
    #[arg(long, conflicts_with_all = ["bucket", "prefix", "access", "read_only", "bypass_governance"])]
    pub officers_lost: bool,
}

#[derive(Args, Debug)]
#[command(group = clap::ArgGroup::new("less").required(true).multiple(true).args(["role", "bucket", "prefix", "access", "no_bypass"]))]
#[command(after_help = "\
Examples:
  stele key narrow STELEK7Q2M4XJ9TB3HWD --access read,list
  stele key narrow STELEK7Q2M4XJ9TB3HWD --bucket records --prefix scans/
  stele key narrow STELEK7Q2M4XJ9TB3HWD --role auditor --no-bypass

What is not named stays as it is. Refused where the key may not do what is named.")]
pub struct Narrow {
    pub id: String,
    /// Only these roles are left
    #[arg(long, value_enum, value_name = "ROLES", value_delimiter = ',')]
    pub role: Vec<Role>,
    /// Only in these buckets; may be given more than once
    #[arg(long, value_name = "BUCKET")]
    pub bucket: Vec<String>,
    /// Only keys that begin so
    #[arg(long)]
    pub prefix: Option<String>,
    /// Only this is left of what it may do there, separated by commas
    #[arg(long, value_enum, value_name = "KINDS", value_delimiter = ',')]
    pub access: Vec<Access>,
    /// It may no longer bypass GOVERNANCE retention
    #[arg(long)]
    pub no_bypass: bool,
}
