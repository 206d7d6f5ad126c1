//! `stele pool`.

use clap::{Args, Subcommand};

use crate::drives::DriveArgument;

#[derive(Subcommand, Debug)]
pub enum Pool {
    /// Make a new pool out of drives
    Create(Create),
    /// Open the pool once, replaying its log and repairing replicas, and close it cleanly
    Open(Open),
    /// Show drives by enclosure, health, space, and rebuild with time left
    Status(Status),
    /// Read and verify everything now
    Scrub(Scrub),
    /// Overwrite what the log still holds of the past, keys of disposed records among it, and wait until that is durable
    #[command(after_help = "\
Example:
  stele pool wash

A server does so by itself within a quarter of an hour of each disposal, and when it stops. Drives that are away are not washed.")]
    Wash,
    /// Put a new drive in the place of an old one and copy back onto it
    Replace(Replace),
    /// Take more drives into the pool; stripes move onto them in the background
    Add(Add),
    /// Empty a drive in the background; then it leaves the pool
    Remove(Remove),
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  stele pool add --drive /dev/sdk@4 --drive /dev/sdl@4
  stele pool add --drive ./e.img@5 --size 4GiB --wait

Whatever was on a drive is lost; one that carries a label of any pool is refused. The drives are entered into
[pool] drives of the configuration. Hosts go on meanwhile, and before the stripes that move. The archive takes up the new
room at once, up to [archive] data_max, and is never made smaller: with --grow-later it waits until other drives have left.")]
pub struct Add {
    /// A drive and its enclosure; once for each drive. With enclosures if the drives of the pool have them
    #[arg(long = "drive", value_name = "PATH[@ENCLOSURE]", required = true)]
    pub drives: Vec<DriveArgument>,
    /// Size of drives that are files and do not exist yet
    #[arg(long, value_name = "SIZE", value_parser = crate::cli::show::size)]
    pub size: Option<stele_ground::Bytes>,
    /// Let the archive take up the room when nothing moves any more: where these drives take the place of others
    #[arg(long)]
    pub grow_later: bool,
    /// Show progress and return when all drives are filled alike
    #[arg(long)]
    pub wait: bool,
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  stele pool remove 3 --wait
  stele pool remove 3 --cancel

Refused where the other drives could not hold everything. Redundancy is never less meanwhile: the drive keeps what
has not moved yet. When it is empty it is taken out of [pool] drives of the configuration.")]
pub struct Remove {
    /// Number of the drive, as `stele pool status` shows it
    pub drive: u32,
    /// Show progress and return when the drive has left the pool
    #[arg(long)]
    pub wait: bool,
    /// Take a removal back: the drive stays, and is filled again
    #[arg(long, conflicts_with = "wait")]
    pub cancel: bool,
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  stele pool create --dir /srv/stele --drive /dev/sdb@1 --drive /dev/sdc@1 --drive /dev/sdd@2 --confirm-time
  stele pool create --dir ./lab --drive a.img@1 --drive b.img@2 --drive c.img@3 --size 4GiB --confirm-time

A drive is a block device, or a file that is made with --size. Whatever was on it is lost; a drive that
carries a label of any pool is refused. @N names the enclosure (failure domain); without it every drive is
an enclosure of its own.")]
pub struct Create {
    /// A drive and its enclosure; once for each drive, 3 to 512 of them
    #[arg(long = "drive", value_name = "PATH[@ENCLOSURE]", required = true)]
    pub drives: Vec<DriveArgument>,
    /// A name for people
    #[arg(long, default_value = "pool")]
    pub name: String,
    /// Size of drives that are files and do not exist yet
    #[arg(long, value_name = "SIZE", value_parser = crate::cli::show::size)]
    pub size: Option<stele_ground::Bytes>,
    /// Write such files out once: takes longer now, and no later write waits for the file system to find room for it
    #[arg(long, requires = "size")]
    pub written: bool,
    /// Bytes of log on each log drive [default: a 64th of the drive, 8 MiB to 1 GiB]
    #[arg(long, value_name = "SIZE", value_parser = crate::cli::show::size)]
    pub log: Option<stele_ground::Bytes>,
    /// Drives' worth of spare space [default: the largest enclosure's, or two]
    #[arg(long, value_name = "N")]
    pub spare: Option<u32>,
    /// Code of the data volume of the archive; `none` makes a pool for block volumes only
    #[arg(long, default_value = "8+2", value_name = "CODE")]
    pub data: String,
    /// Says that this machine's clock is right: retention counts from it
    #[arg(long)]
    pub confirm_time: bool,
}

#[derive(Args, Debug)]
#[command(after_help = "Example:\n  stele pool open --dir /srv/stele")]
pub struct Open {
    /// Open writable although fewer than a majority of the drives agree on the configuration; audited
    #[arg(long)]
    pub override_quorum: bool,
    /// Replay in memory only and write nothing
    #[arg(long)]
    pub read_only: bool,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  stele pool status\n  stele pool status --watch\n  stele pool status --json")]
pub struct Status {
    /// Show it anew every second until interrupted
    #[arg(long)]
    pub watch: bool,
}

#[derive(Args, Debug)]
#[command(after_help = "Example:\n  stele pool scrub --wait")]
pub struct Scrub {
    /// Show progress and return when the pass is over; exit code 5 if it found damage it could not repair
    #[arg(long)]
    pub wait: bool,
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  stele pool replace 3 /dev/sdk --wait
  stele pool replace 3 /dev/sdk@2

A drive that answers is emptied first and leaves last: the new one joins with a number of its own, and no stripe has less
redundancy meanwhile. A drive that is gone is replaced under its number, and what it held is rebuilt.")]
pub struct Replace {
    /// Number of the drive to replace, as `stele pool status` shows it
    pub old: u32,
    /// The new drive; it keeps the enclosure of the old one unless it names another
    #[arg(value_name = "PATH[@ENCLOSURE]")]
    pub new: DriveArgument,
    /// Give the old drive up at once, although it answers or may come back; what it holds is rebuilt from the others
    #[arg(long)]
    pub give_up: bool,
    /// Do not ask
    #[arg(long)]
    pub yes: bool,
    /// Size of the new drive where it is a file that does not exist yet
    #[arg(long, value_name = "SIZE", value_parser = crate::cli::show::size)]
    pub size: Option<stele_ground::Bytes>,
    /// Show progress and return when everything is copied back
    #[arg(long)]
    pub wait: bool,
}
