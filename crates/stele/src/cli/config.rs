//! `stele config`.

use std::path::PathBuf;

use clap::Subcommand;

use crate::drives::DriveArgument;

#[derive(Subcommand, Debug)]
pub enum Config {
    /// Put all that a server needs besides its drives into one file: configuration, exports, reservations, signed heads, keys
    #[command(after_help = "\
Example:
  stele config export --to /media/usb/stele.backup --passphrase-file phrase

Secrets in it (the master key, CHAP secrets, keys of TLS) are sealed under the passphrase, and so is what the file says
otherwise: it cannot be changed without it. Lose the passphrase and the master key, and every record is lost. The server must
run: the audit log records that the key was handed out.")]
    Export {
        /// New file, made readable by its owner only
        #[arg(long, value_name = "FILE")]
        to: PathBuf,
        /// File with the passphrase, at least 12 characters; the last line break does not count
        #[arg(long, value_name = "FILE")]
        passphrase_file: PathBuf,
    },
    /// Make a data directory on a new machine from such a file; nothing that exists is written over
    #[command(after_help = "\
Examples:
  stele config import /media/usb/stele.backup --passphrase-file phrase --dir /srv/stele
  stele config import stele.backup --passphrase-file phrase --dir new --drive /dev/sdq@1 --drive /dev/sdr@2

What is stored is on the drives, and what retains it too: an import brings no state of the archive, and shortens nothing. Heads
come back with it, so that a pool that was set back is still noticed.")]
    Import {
        file: PathBuf,
        /// File with the passphrase
        #[arg(long, value_name = "FILE")]
        passphrase_file: PathBuf,
        /// Where the drives are on this machine, instead of where they were; once for each
        #[arg(long = "drive", value_name = "PATH[@ENCLOSURE]")]
        drives: Vec<DriveArgument>,
    },
}
