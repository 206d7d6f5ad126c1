//! `stele backup key`.

use std::path::PathBuf;

use clap::Subcommand;

use super::RepositoryArgs;

#[derive(Subcommand, Debug)]
pub enum BackupKey {
    /// List the passwords by their labels
    #[command(after_help = "Example:\n  stele backup key list")]
    List {
        #[command(flatten)]
        place: RepositoryArgs,
    },
    /// Add a password
    #[command(after_help = "Example:\n  stele backup key add --new-password-file second --label office")]
    Add {
        #[command(flatten)]
        place: RepositoryArgs,
        /// File with the new password on its first line
        #[arg(long, value_name = "FILE")]
        new_password_file: PathBuf,
        /// A word about this password, stored in plain text
        #[arg(long, default_value = "", hide_default_value = true)]
        label: String,
    },
    /// Remove a password, or a damaged key; the last one stays
    #[command(after_help = "\
Example:
  stele backup key remove 5be1d7a09c3344ff8c01e2f4b6a79d30 --password-file second

Give a password that stays: it must open another key, so that no damaged key is the last one.")]
    Remove {
        #[command(flatten)]
        place: RepositoryArgs,
        /// The key, as `stele backup key list` shows it
        key: String,
    },
    /// Write the repository's key as text into a new file, for a safe
    #[command(
        alias = "escrow",
        after_help = "\
Example:
  stele backup key export --to /media/safe/backup-key

The text opens the repository in the place of a password: every command takes it by --password-file. So a person who
has lost all passwords adds a new one:

  stele backup key add --password-file /media/safe/backup-key --new-password-file second

Keep it offline."
    )]
    Export {
        #[command(flatten)]
        place: RepositoryArgs,
        /// A file that does not exist
        #[arg(long, value_name = "FILE")]
        to: PathBuf,
    },
    /// Check that an exported key opens the repository
    #[command(alias = "check", after_help = "Example:\n  stele backup key verify /media/safe/backup-key")]
    Verify {
        #[command(flatten)]
        place: RepositoryArgs,
        /// The exported key
        file: PathBuf,
    },
}
