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

The first two retention officers are made by this command alone. From then on the key of a new one is void until an officer
approves it (`stele approve`).")]
pub struct Create {
    /// Whose it is, for people
    #[arg(long, default_value = "")]
    pub name: String,
    /// What it may do to the store; several are separated by commas, or the option is given again
    #[arg(long, value_enum, value_name = "ROLES", value_delimiter = ',', default_values_t = [Role::User])]
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
