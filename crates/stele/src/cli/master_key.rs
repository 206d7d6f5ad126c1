//! `stele master-key`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Subcommand, Debug)]
pub enum MasterKeyCommand {
    /// Export the master key to a file for safekeeping. Without the master key every record is lost
    Export(MasterKeyExport),
    /// Ask to let the master key be exported once; another officer approves
    Request(MasterKeyRequest),
    /// Prove that an exported master key opens this store
    Verify(MasterKeyVerify),
}

#[derive(Args, Debug)]
#[command(after_help = "Example:\n  stele master-key export --to /media/usb/stele-master.key")]
pub struct MasterKeyExport {
    /// New file, readable by its owner only
    #[arg(long, value_name = "FILE")]
    pub to: PathBuf,
}

#[derive(Args, Debug)]
#[command(after_help = "\
Example, where the export takes two officers (`stele act list`):
  anna$ stele master-key request --officer anna.json
  ben$  stele approve 7k2m9xqa --officer ben.json
  root# stele master-key export --to /media/usb/stele-master.key")]
pub struct MasterKeyRequest {
    /// File with the officer's access_key and secret_key, as `stele key create --json` prints them
    #[arg(long, value_name = "FILE")]
    pub officer: PathBuf,
}

#[derive(Args, Debug)]
#[command(after_help = "Example:\n  stele master-key verify /media/usb/stele-master.key")]
pub struct MasterKeyVerify {
    /// The exported key
    pub file: PathBuf,
}
