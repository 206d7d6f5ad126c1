//! `stele upgrade`.

use clap::Subcommand;

#[derive(Subcommand, Debug)]
pub enum Upgrade {
    /// Show the stored version of every format, and whether this binary opens it. It writes nothing
    #[command(after_help = "\
Examples:
  /tmp/stele-0.2.0 upgrade check --dir /srv/stele
  stele upgrade check --json

Run it with the new binary, before that binary serves. The running server may be of another version. Without a
server it opens the drives read-only. FORMAT/compatibility.md has the rules.
Exit codes: 0 this binary opens everything, and the previous binary still could afterwards; 1 it opens everything,
but its first start writes formats that the previous binary does not open; 3 a format is newer than this binary;
4 no pool is there; 5 a format could not be read or is damaged.")]
    Check,
}
