//! `stele drive`, `stele affected`, `stele clock`, `stele approve` and `stele catalog`; and the
//! parser of sizes.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Subcommand, Debug)]
pub enum Drive {
    /// Show what is on a drive: labels, anchors, log; works on a drive of any pool, and while it is
    /// in use
    #[command(
        after_help = "Examples:\n  stele drive dump /dev/sdb\n  stele drive dump stele-data/drives/e0-0.img --json"
    )]
    Dump {
        /// The drive: a block device or a file
        path: PathBuf,
    },
    /// Change what the pool knows of a drive
    #[command(after_help = "\
Example:
  stele drive set 3 --enclosure 2

The enclosure must be the one that really holds the drive, because the pool spreads the strips of each stripe over
enclosures. Stripes that then have too many strips in one enclosure move in the background; `stele pool status`
counts them.")]
    Set {
        /// Number of the drive, as `stele pool status` shows it
        drive: u32,
        /// The enclosure (failure domain) that the drive is in
        #[arg(long, value_name = "E")]
        enclosure: u32,
    },
    /// Forget a drive's errors. A drive that failed because of them is taken back and brought up to
    /// date
    #[command(after_help = "\
Example:
  stele drive clear 3

Use it for a healthy drive whose cable, power or controller failed. The pool trusts the drive's contents again only
when all of it has been verified or rewritten. If errors continue, the pool gives the drive up again.")]
    Clear {
        /// Number of the drive, as `stele pool status` shows it
        drive: u32,
    },
    /// Take back a drive that was away, without a restart; writes that it missed are brought up to
    /// date
    #[command(after_help = "\
Examples:
  stele drive online 3
  stele drive online 3 /dev/disk/by-id/ata-WDC_WD40-1

The label must identify it as this drive. The command also takes back a drive that the pool gave up.")]
    Online {
        /// Number of the drive, as `stele pool status` shows it
        drive: u32,
        /// Its present path [default: its former path]
        path: Option<PathBuf>,
    },
    /// Remove the labels from a drive that has left its pool, so that a pool can take it again
    #[command(after_help = "\
Examples:
  stele drive wipe /dev/sdk
  stele drive wipe /dev/sdk --pool 6f1c0a4e9b7d4c258e3fa1d07b52c964

Refused for every drive that this pool knows, including missing and failed drives. Refused for a drive of another pool
unless --pool names that pool, and always if that pool holds retained records.")]
    Wipe {
        /// The drive: a block device or a file
        path: PathBuf,
        /// Identity of the pool that the drive belonged to, if that is another pool
        #[arg(long, value_name = "ID")]
        pool: Option<String>,
        /// Do not ask for confirmation
        #[arg(long)]
        yes: bool,
    },
    /// Switch on the light of the drive's enclosure slot
    #[command(after_help = "\
Examples:
  stele drive locate 3
  stele drive locate 3 --off

The command switches the light itself, on this machine, and the kernel lets only root do that.")]
    Locate {
        /// Number of the drive, as `stele pool status` shows it
        drive: u32,
        /// Switch the light off
        #[arg(long)]
        off: bool,
    },
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  stele affected
  stele affected --all
  stele affected --json

Exit code 5 if any data cannot be read. --json lists everything.")]
pub struct Affected {
    /// List everything, without a limit
    #[arg(long)]
    pub all: bool,
}

#[derive(Subcommand, Debug)]
pub enum Clock {
    /// Show the compliance clock, and whether and why expiry is frozen
    #[command(after_help = "Example:\n  stele clock show")]
    Show,
    /// Confirm that the machine's clock was checked. Expiry resumes; the compliance clock does not
    /// step
    #[command(after_help = "\
Examples:
  stele clock accept --yes
  stele clock accept --officer anna.json          # where it takes two officers (`stele act list`)")]
    Accept {
        /// Ask as this officer; another one approves
        #[arg(long, value_name = "FILE", conflicts_with = "yes")]
        officer: Option<PathBuf>,
        /// Do not ask for confirmation
        #[arg(long)]
        yes: bool,
    },
    /// Ask to count time in which the store was closed. It counts once another retention officer
    /// approves: never more than the recorded time, and never past the machine's clock
    #[command(after_help = "\
Example, by two officers who are two users of this machine:
  anna$ stele clock credit --officer anna.json
  ben$  stele approve 7k2m9xqa --officer ben.json")]
    Credit {
        /// File with the officer's access_key and secret_key, as `stele key create --json` prints
        /// them
        #[arg(long, value_name = "FILE")]
        officer: PathBuf,
    },
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  stele approve                                   # the waiting requests, and the effect of each
  stele approve --officer ben.json                # the same, for a user whom [admin] officers names
  stele approve 7k2m9xqa --officer ben.json
  stele approve 7k2m9xqa --refuse --officer ben.json

The officer who asked cannot approve: approval takes another key and another user of this machine.")]
pub struct Approve {
    /// The request [default: list all that wait]
    pub request: Option<String>,
    /// File with the officer's access_key and secret_key, as `stele key create --json` prints them
    #[arg(long, value_name = "FILE")]
    pub officer: Option<PathBuf>,
    /// Refuse the request
    #[arg(long, requires = "request")]
    pub refuse: bool,
    /// Do not ask for confirmation
    #[arg(long, requires = "request")]
    pub yes: bool,
}

#[derive(Subcommand, Debug)]
pub enum Catalog {
    /// Build the catalog again from the data volume alone; the server must not be running
    #[command(
        after_help = "Examples:\n  stele catalog rebuild --yes\n  stele catalog rebuild --force --yes\n  stele catalog rebuild --accept-losses --yes"
    )]
    Rebuild {
        /// Rebuild even if the catalog opens, or is out of reach. The audit log then ends at its
        /// last checkpoint on the data volume
        #[arg(long)]
        force: bool,
        /// Rebuild even if drives are missing or data cannot be read. Every version is then held
        /// until two officers decide
        #[arg(long)]
        accept_losses: bool,
        /// Do not ask for confirmation
        #[arg(long)]
        yes: bool,
    },
    /// Ask to end the matter `rebuild`, the hold that a rebuild with losses puts on every version.
    /// Another officer approves the request
    #[command(
        after_help = "Example:\n  stele catalog release --officer anna.json\n  stele approve REQUEST --officer ben.json"
    )]
    Release {
        /// File with an officer's access_key and secret_key, as `stele key create --json` prints
        /// them
        #[arg(long, value_name = "FILE")]
        officer: PathBuf,
    },
}
