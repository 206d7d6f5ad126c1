//! `stele pool`.

use clap::{Args, Subcommand};
use stele_server::drives::DriveArgument;

#[derive(Subcommand, Debug)]
pub enum PoolCommand {
    /// Make a new pool out of drives
    Create(PoolCreate),
    /// Open the pool once, replay its log, repair replicas, and close it cleanly
    #[command(alias = "open")]
    Recover(PoolRecover),
    /// Show drives by enclosure, health, space, and rebuild with time left
    Status(PoolStatus),
    /// Read and verify all data now
    Scrub(PoolScrub),
    /// Overwrite old records in the log, including keys of disposed records, and wait until that is
    /// durable
    #[command(after_help = "\
Example:
  stele pool wash

A server does this by itself within 15 minutes of each disposal, and when it stops. Drives that are away are not
washed.")]
    Wash,
    /// Replace a drive with a new one and copy the data onto it
    Replace(PoolReplace),
    /// Add drives to the pool; stripes move onto them in the background
    Add(PoolAdd),
    /// Empty a drive in the background, then take it out of the pool
    Remove(PoolRemove),
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  stele pool add --drive /dev/sdk@4 --drive /dev/sdl@4
  stele pool add --drive ./e.img@5 --size 4GiB --wait

All data on the added drives is lost. A drive with the label of a pool is refused, unless it is one that left this
pool, and without --destroy one that holds a file system or the like. The command enters the drives into [pool] drives of the configuration. Hosts keep
working, with priority over the stripes that move. The archive takes up the new space immediately, up to [archive]
data_max, and never becomes smaller. With --grow-later it waits until other drives have left.
With --wait, exit code 5 says that the drives are added, and that other drives that are away or a lack of room keep
the pool from filling them.")]
pub struct PoolAdd {
    /// A drive and its enclosure; once for each drive. Name an enclosure if the pool's drives have
    /// them
    #[arg(long = "drive", value_name = "PATH[@ENCLOSURE]", required = true)]
    pub drives: Vec<DriveArgument>,
    /// Size of drives that are files and do not exist yet
    #[arg(long, value_name = "SIZE", value_parser = stele_server::config::size)]
    pub size: Option<stele_ground::Bytes>,
    /// Let the archive take up the space only when no stripe moves any more. Use it if these drives
    /// replace others
    #[arg(long)]
    pub grow_later: bool,
    /// Write over a file system, a partition table or the like on the drives. A drive with the
    /// label of a pool is refused all the same
    #[arg(long)]
    pub destroy: bool,
    /// Show progress and return when all drives are filled evenly
    #[arg(long)]
    pub wait: bool,
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  stele pool remove 3 --wait
  stele pool remove 3 --cancel

Refused if the other drives cannot hold all data. Redundancy does not decrease during the removal, because the drive
keeps each strip until it has moved. When the drive is empty, it leaves [pool] drives of the configuration.
With --wait, exit code 1 says that the removal was taken back, and exit code 5 that other drives or a lack
of room keep the pool from it.")]
pub struct PoolRemove {
    /// Number of the drive, as `stele pool status` shows it
    pub drive: u32,
    /// Show progress and return when the drive has left the pool
    #[arg(long)]
    pub wait: bool,
    /// Cancel a removal: the drive stays and is filled again
    #[arg(long, conflicts_with = "wait")]
    pub cancel: bool,
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  stele pool create --dir /srv/stele --data 2+1 --drive /dev/sdb@1 --drive /dev/sdc@2 --drive /dev/sdd@3 --drive /dev/sde@4 --confirm-time
  stele pool create --dir ./lab --data 2+1 --drive a.img@1 --drive b.img@2 --drive c.img@3 --drive d.img@4 --size 4GiB --confirm-time

  stele pool create --dir ./fast --data none --shards 4 --drive /dev/nvme0n1 --drive /dev/nvme1n1 --drive /dev/nvme2n1 --confirm-time

A drive is a block device, or a file that --size makes. All data on it is lost. A drive with the label of any
pool is refused, and without --destroy one that holds a file system or the like. @N names the enclosure (failure domain); without it every drive is an enclosure of its own.")]
pub struct PoolCreate {
    /// A drive and its enclosure; once for each drive, 3 to 512 of them
    #[arg(long = "drive", value_name = "PATH[@ENCLOSURE]", required = true)]
    pub drives: Vec<DriveArgument>,
    /// Name of the pool
    #[arg(long, default_value = "pool")]
    pub name: String,
    /// Size of drives that are files and do not exist yet
    #[arg(long, value_name = "SIZE", value_parser = stele_server::config::size)]
    pub size: Option<stele_ground::Bytes>,
    /// Allocate the whole file now. Creation takes longer; no later write waits for the file system
    /// to find space
    #[arg(long, alias = "written", requires = "size")]
    pub preallocate: bool,
    /// Bytes of log on each log drive [default: a 64th of the drive, 8 MiB to 1 GiB]
    #[arg(long, value_name = "SIZE", value_parser = stele_server::config::size)]
    pub log: Option<stele_ground::Bytes>,
    /// Spare space, in drives, and at most half of them [default: as much as the largest enclosure,
    /// or two drives if there is one enclosure; half of the drives if that is less]
    #[arg(long, value_name = "N")]
    pub spare: Option<u32>,
    /// Shards that divide each drive, each with a processor of its own for its share of the work.
    /// Cannot be changed later. More than the processors of the machine gain nothing
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub shards: u16,
    /// Code of the archive's data volume; `none` makes a pool for block volumes only
    #[arg(long, default_value = "8+2", value_name = "CODE")]
    pub data: String,
    /// Write over a file system, a partition table or the like on the drives. A drive with the
    /// label of a pool is refused all the same
    #[arg(long)]
    pub destroy: bool,
    /// Confirm that this machine's clock is right: retention counts from it
    #[arg(long)]
    pub confirm_time: bool,
}

#[derive(Args, Debug)]
#[command(after_help = "\
Example:
  stele pool recover --dir /srv/stele

The command compares the audit log with the signed heads that were sent elsewhere, as a server does, and names one that
is newer than this pool. With --read-only it does not: the catalog stays closed.")]
pub struct PoolRecover {
    /// Open writable even if fewer than a majority of the drives agree on the configuration, or if
    /// the end of the log cannot be read: writes acknowledged last may be lost. The audit log
    /// records it
    #[arg(long)]
    pub override_quorum: bool,
    /// Replay in memory only and write nothing
    #[arg(long)]
    pub read_only: bool,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  stele pool status\n  stele pool status --watch\n  stele pool status --json")]
pub struct PoolStatus {
    /// Update every second until interrupted
    #[arg(long)]
    pub watch: bool,
}

#[derive(Args, Debug)]
#[command(after_help = "Example:\n  stele pool scrub --wait")]
pub struct PoolScrub {
    /// Show progress and return when the pass ends; exit code 5 if it found damage that it could
    /// not repair
    #[arg(long)]
    pub wait: bool,
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  stele pool replace 3 /dev/sdk --wait
  stele pool replace 3 /dev/sdk@2

A drive that answers is emptied first and then leaves. The new drive gets a number of its own, and every stripe
keeps its redundancy. A drive that is gone is replaced under its number, and the pool rebuilds its strips.
All data on the new drive is lost. One that holds a file system or the like is refused without --destroy.
With --wait, exit code 1 says that the old drive was kept after all (`stele pool remove --cancel`). Exit code 5 says
that another drive or a lack of room keeps the pool from that, or that stripes were lost meanwhile.")]
pub struct PoolReplace {
    /// Number of the drive to replace, as `stele pool status` shows it
    pub old: u32,
    /// The new drive; it gets the enclosure of the old drive unless it names another
    #[arg(value_name = "PATH[@ENCLOSURE]")]
    pub new: DriveArgument,
    /// Give the old drive up now, even if it answers or may come back; its strips are rebuilt from
    /// the other drives
    #[arg(long)]
    pub give_up: bool,
    /// Do not ask for confirmation
    #[arg(long)]
    pub yes: bool,
    /// Size of the new drive if it is a file that does not exist yet
    #[arg(long, value_name = "SIZE", value_parser = stele_server::config::size)]
    pub size: Option<stele_ground::Bytes>,
    /// Write over a file system, a partition table or the like on the new drive. A drive with the
    /// label of another pool is refused all the same
    #[arg(long)]
    pub destroy: bool,
    /// Show progress and return when all data is copied
    #[arg(long)]
    pub wait: bool,
}
