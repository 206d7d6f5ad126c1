//! `stele volume`.

use clap::{Args, Subcommand, ValueEnum};
use stele_ground::Bytes;
use stele_server::config::size;

#[derive(Subcommand, Debug)]
pub enum Volume {
    /// Make a volume
    Create(VolumeCreate),
    /// List the volumes
    #[command(after_help = "Examples:\n  stele volume list\n  stele volume list --all\n  stele volume list --json")]
    List {
        /// List every unreadable range, however many there are
        #[arg(long)]
        all: bool,
    },
    /// Show one volume
    #[command(after_help = "Examples:\n  stele volume show data\n  stele volume show vm1 --watch")]
    Show {
        /// The volume or snapshot, as `stele volume list` shows it
        name: String,
        /// Update every second, and show the activity of each connection
        #[arg(long)]
        watch: bool,
    },
    /// Change how a volume is served
    #[command(after_help = "Example:\n  stele volume set media --read-ahead 8")]
    Set(VolumeSet),
    /// Make a volume larger, or smaller if nothing lies behind its new end
    #[command(after_help = "Larger: connected hosts see the new size after they reconnect.\n\
        Smaller: hosts disconnect first. A volume with data behind the new end, with snapshots or of a clone stays\n\
        as it is; the refusal says how small it can become. No data is cut off.\n\n\
        Examples:\n\
        \x20 stele volume resize vm1 40GiB         # larger\n\
        \x20 resize2fs /dev/nbd0 20G               # on its host, before it becomes smaller\n\
        \x20 blkdiscard --offset 20GiB /dev/nbd0   # and what lies behind the new end\n\
        \x20 stele volume resize vm1 20GiB         # smaller")]
    Resize {
        /// The volume, as `stele volume list` shows it
        name: String,
        /// The new total size
        #[arg(value_parser = size)]
        size: Bytes,
    },
    /// Make a volume or snapshot available to hosts as a block device
    Export(super::export::VolumeExport),
    /// Keep the present contents of a volume under a name of their own, read-only
    #[command(after_help = "Example:\n  stele volume snapshot vm1 vm1-monday")]
    Snapshot {
        /// The volume, as `stele volume list` shows it
        volume: String,
        /// Name of the new snapshot
        name: String,
    },
    /// Make a writable volume that begins with the contents of a snapshot
    #[command(after_help = "Example:\n  stele volume clone vm1-monday vm1-test")]
    Clone {
        /// The snapshot, as `stele volume list` shows it
        snapshot: String,
        /// Name of the new volume
        name: String,
    },
    /// Return a volume to one of its snapshots; later writes are lost
    #[command(after_help = "Example:\n  stele volume rollback vm1 vm1-monday --yes")]
    Rollback {
        /// The volume, as `stele volume list` shows it
        volume: String,
        /// One of its snapshots
        snapshot: String,
        /// Roll back even if hosts that may write to the volume are connected
        #[arg(long)]
        force: bool,
        /// Do not ask for confirmation
        #[arg(long)]
        yes: bool,
    },
    /// Delete a volume or snapshot that holds nothing under retention and has no snapshots or
    /// clones
    #[command(after_help = "Example:\n  stele volume delete scratch --yes")]
    Delete {
        /// The volume or snapshot, as `stele volume list` shows it
        name: String,
        /// Do not ask for confirmation
        #[arg(long)]
        yes: bool,
    },
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  stele volume create vm1 --code mirror-3 --size 20GiB
  stele volume create media --code 8+2 --size 1TiB --strip 256KiB --digest strip")]
pub struct VolumeCreate {
    /// Name of the new volume
    pub name: String,
    /// mirror-2 to mirror-5, or k+m, for example 5+1, 8+2 or 16+3
    #[arg(long, value_name = "CODE")]
    pub code: stele_codes::Code,
    /// Size that hosts see; writes allocate space on the drives
    #[arg(long, value_parser = size)]
    pub size: Bytes,
    /// Share of a stripe on one drive, 16 KiB to 1 MiB
    #[arg(long, default_value = "64KiB", value_parser = size)]
    pub strip: Bytes,
    /// Logical block: 512 or 4096
    #[arg(long, default_value = "4096", value_parser = size)]
    pub block: Bytes,
    /// Unit that one digest covers: `block` suits small random reads, `strip` suits streams
    #[arg(long, value_enum, default_value_t = Digest::Block)]
    pub digest: Digest,
    /// When a write is acknowledged
    #[arg(long, value_enum, default_value_t = Mode::WriteBack)]
    pub mode: Mode,
    /// Allocate all space now
    #[arg(long)]
    pub allocate: bool,
}

#[derive(Args, Debug)]
pub struct VolumeSet {
    /// The volume, as `stele volume list` shows it
    pub name: String,
    /// Stripes read ahead of a sequential reader, 0 to 16; 0 reads nothing ahead
    #[arg(long, value_name = "STRIPES", value_parser = clap::value_parser!(u8).range(0..=16))]
    pub read_ahead: u8,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Digest {
    Block,
    Strip,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Mode {
    /// When the write is durable in the replicated log, or in its slot
    WriteBack,
    /// When the write is durable in its strips on their drives
    WriteThrough,
}
