//! Small commands that look: `stele drive dump`, `stele catalog rebuild`; and how arguments are read.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use stele_ground::Bytes;

#[derive(Subcommand, Debug)]
pub enum Drive {
    /// Show what is on a drive: labels, anchors, log; works on a drive of any pool, and while it is in use
    #[command(
        after_help = "Examples:\n  stele drive dump /dev/sdb\n  stele drive dump stele-data/drives/e0-0.img --json"
    )]
    Dump { path: PathBuf },
    /// Change what the pool knows of a drive
    #[command(after_help = "\
Example:
  stele drive set 3 --enclosure 2

The enclosure is where the drive is: what is said must be true, since the strips of each stripe are spread over
enclosures by it. Stripes that then have too many strips in one enclosure move in the background; `stele pool status`
counts them.")]
    Set {
        /// Number of the drive, as `stele pool status` shows it
        drive: u32,
        /// The enclosure (failure domain) that it is in
        #[arg(long, value_name = "E")]
        enclosure: u32,
    },
    /// Forget a drive's errors; one that was given up for them is taken back and brought up to date
    #[command(after_help = "\
Example:
  stele drive clear 3

For a drive whose cable, power or controller failed, and which is well by itself. What it holds counts only when all of it
was verified or written again. If it goes on failing it is given up again.")]
    Clear {
        /// Number of the drive, as `stele pool status` shows it
        drive: u32,
    },
    /// Take a drive back that was away, without a restart; what it missed is brought up to date
    #[command(after_help = "\
Examples:
  stele drive online 3
  stele drive online 3 /dev/disk/by-id/ata-WDC_WD40-1

Its label must say that it is this drive. One that was given up is taken back, too.")]
    Online {
        /// Number of the drive, as `stele pool status` shows it
        drive: u32,
        /// Where it is now [default: where it was]
        path: Option<PathBuf>,
    },
    /// Take the labels off a drive that has left its pool, so that it can be put into one again
    #[command(after_help = "\
Examples:
  stele drive wipe /dev/sdk
  stele drive wipe /dev/sdk --pool 6f1c0a4e9b7d4c258e3fa1d07b52c964

Refused for every drive that this pool knows, missing and failed ones among them, for drives of another pool unless --pool
names it, and always where that pool holds retained records.")]
    Wipe {
        path: PathBuf,
        /// Identity of the pool it belonged to, where that is another one
        #[arg(long, value_name = "ID")]
        pool: Option<String>,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
    /// Switch on the light of the drive's enclosure slot
    #[command(after_help = "Examples:\n  stele drive locate 3\n  stele drive locate 3 --off")]
    Locate {
        /// Number of the drive, as `stele pool status` shows it
        drive: u32,
        /// Switch it off
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

Exit code 5 where something cannot be read. With --json all of it is listed.")]
pub struct Affected {
    /// List everything, however much it is
    #[arg(long)]
    pub all: bool,
}

#[derive(Subcommand, Debug)]
pub enum Clock {
    /// Show the compliance clock, and whether and why expiry is frozen
    #[command(after_help = "Example:\n  stele clock show")]
    Show,
    /// Say that the machine's clock has been looked at: expiry goes on; the compliance clock does not step
    #[command(after_help = "Example:\n  stele clock accept --yes")]
    Accept {
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
    /// Ask that time in which the store was closed count: it does once another retention officer approves. Never more than the
    /// recorded time, and never past the machine's clock
    #[command(after_help = "\
Example, by two officers who are two users of this machine:
  anna$ stele clock credit --officer anna.json
  ben$  stele approve 7k2m9xqa --officer ben.json")]
    Credit {
        /// File with the officer's access_key and secret_key, as `stele key create --json` prints them
        #[arg(long, value_name = "FILE")]
        officer: PathBuf,
    },
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  stele approve                                   what waits for approval, and what each request would do
  stele approve 7k2m9xqa --officer ben.json
  stele approve 7k2m9xqa --refuse --officer ben.json

Who asked cannot approve: it takes another key, and another user of this machine.")]
pub struct Approve {
    /// The request; none: show all that wait
    pub request: Option<String>,
    /// File with the officer's access_key and secret_key, as `stele key create --json` prints them
    #[arg(long, value_name = "FILE", requires = "request")]
    pub officer: Option<PathBuf>,
    /// It shall not happen
    #[arg(long, requires = "request")]
    pub refuse: bool,
    /// Do not ask
    #[arg(long)]
    pub yes: bool,
}

#[derive(Subcommand, Debug)]
pub enum Catalog {
    /// Make the catalog anew from the data volume alone; the server must not be running
    #[command(
        after_help = "Examples:\n  stele catalog rebuild --yes\n  stele catalog rebuild --force --yes\n  stele catalog rebuild --accept-losses --yes"
    )]
    Rebuild {
        /// Even though the catalog opens: the audit log is cut back to its last checkpoint on the data volume
        #[arg(long)]
        force: bool,
        /// Although drives are missing or something cannot be read: all that exists is then held until two officers decide
        #[arg(long)]
        accept_losses: bool,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
    /// Ask to end the matter `rebuild`, under which a rebuild with losses holds everything; another officer approves it
    #[command(
        after_help = "Example:\n  stele catalog release --officer anna.json\n  stele approve REQUEST --officer ben.json"
    )]
    Release {
        /// File with an officer's access_key and secret_key, as `stele key create --json` prints them
        #[arg(long, value_name = "FILE")]
        officer: PathBuf,
    },
}

/// Reads `64KiB`, `1.5G` or plain bytes.
pub fn size(text: &str) -> Result<Bytes, String> {
    Bytes::parse(text).ok_or_else(|| format!("'{text}' is not a size; write 4096, 64KiB, 1.5GiB or 20TiB"))
}
