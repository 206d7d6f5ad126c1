//! `stele upgrade`.

use clap::Subcommand;

#[derive(Subcommand, Debug)]
pub enum Upgrade {
    /// Say of every stored format which version is stored, and whether this binary opens it. It writes nothing
    #[command(after_help = "\
Examples:
  /tmp/stele-0.2.0 upgrade check --dir /srv/stele
  stele upgrade check --json

Run it with the binary that is to serve from now on, before it does: the server that runs may be of another version. Without
a server it opens the drives for reading only. FORMAT/compatibility.md has the rules.
Exit codes: 0 this binary opens everything, and the former one still could afterwards; 1 it opens everything, but its first
start writes what the former one does not open; 3 something is newer than this binary; 4 nothing is there;
5 something could not be looked at or is damaged.")]
    Check,
}
