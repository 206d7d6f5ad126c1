//! `stele config`.

use std::path::PathBuf;

use clap::Subcommand;
use stele_server::drives::DriveArgument;

#[derive(Subcommand, Debug)]
pub enum ConfigCommand {
    /// Write all that a server needs besides its drives into one file: configuration, exports,
    /// reservations, signed heads, keys
    #[command(after_help = "\
Example:
  stele config export --to /media/usb/stele.backup --passphrase-file phrase

The passphrase seals the secrets in the file: the master key, CHAP secrets, TLS keys. It also seals the rest against
changes: an import detects a change made without the passphrase. If the passphrase and the master key are lost,
every record is lost. The server must be running, because the audit log records that the key left the store.")]
    Export {
        /// New file, readable by its owner only
        #[arg(long, value_name = "FILE")]
        to: PathBuf,
        /// File with the passphrase, at least 12 characters; a line break at its end does not count
        #[arg(long, value_name = "FILE")]
        passphrase_file: PathBuf,
    },
    /// Make a data directory on a new machine from an exported file. It overwrites no existing file
    #[command(after_help = "\
Examples:
  stele config import /media/usb/stele.backup --passphrase-file phrase --dir /srv/stele
  stele config import stele.backup --passphrase-file phrase --dir new --drive /dev/sdq@1 --drive /dev/sdr@2

Records and their retention are on the drives. An import brings no state of the archive and shortens no retention.
It brings back the signed heads, so that the server still detects a pool that was rolled back.")]
    Import {
        /// The file that `stele config export` wrote
        file: PathBuf,
        /// File with the passphrase
        #[arg(long, value_name = "FILE")]
        passphrase_file: PathBuf,
        /// Path of a drive on this machine, instead of the exported paths; once for each drive
        #[arg(long = "drive", value_name = "PATH[@ENCLOSURE]")]
        drives: Vec<DriveArgument>,
    },
}
