//! Small commands that look: `stele drive dump`, `stele catalog rebuild`; and how arguments are read.

use std::path::PathBuf;

use clap::Subcommand;
use stele_ground::Bytes;

#[derive(Subcommand, Debug)]
pub enum Drive {
    /// Show what is on a drive: labels, anchors, log; works on a drive of any pool, and while it is in use
    #[command(
        after_help = "Examples:\n  stele drive dump /dev/sdb\n  stele drive dump stele-data/drives/e0-0.img --json"
    )]
    Dump { path: PathBuf },
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
}

#[derive(Subcommand, Debug)]
pub enum Catalog {
    /// Make the catalog anew from the data volume alone; the server must not be running
    #[command(after_help = "Example:\n  stele catalog rebuild --yes")]
    Rebuild {
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
}

/// Reads `64KiB`, `1.5G` or plain bytes.
pub fn size(text: &str) -> Result<Bytes, String> {
    Bytes::parse(text).ok_or_else(|| format!("'{text}' is not a size; write 4096, 64KiB, 1.5GiB or 20TiB"))
}
