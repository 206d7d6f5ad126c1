//! `stele volume`.

use clap::{Args, Subcommand, ValueEnum};
use stele_ground::Bytes;

use super::show::size;

#[derive(Subcommand, Debug)]
pub enum Volume {
    /// Make a volume
    Create(Create),
    /// List the volumes
    #[command(after_help = "Examples:\n  stele volume list\n  stele volume list --all\n  stele volume list --json")]
    List {
        /// List every range that cannot be read, however many there are
        #[arg(long)]
        all: bool,
    },
    /// Show one volume
    #[command(after_help = "Examples:\n  stele volume show data\n  stele volume show vm1 --watch")]
    Show {
        name: String,
        /// Show it again every second, with what each connection does
        #[arg(long)]
        watch: bool,
    },
    /// Change how a volume is served
    #[command(after_help = "Example:\n  stele volume set media --read-ahead 8")]
    Set(Set),
    /// Make a volume larger; hosts that are connected see it when they connect again
    #[command(after_help = "Example:\n  stele volume resize vm1 40GiB")]
    Resize {
        name: String,
        /// The whole size it is to have. A volume is never made smaller: make another and copy
        #[arg(value_parser = size)]
        size: Bytes,
    },
    /// Let hosts reach a volume or snapshot as a block device
    Export(super::export::Add),
    /// Keep what a volume holds now under a name of its own, read-only
    #[command(after_help = "Example:\n  stele volume snapshot vm1 vm1-monday")]
    Snapshot { volume: String, name: String },
    /// Make a volume that begins as a snapshot and takes writes
    #[command(after_help = "Example:\n  stele volume clone vm1-monday vm1-test")]
    Clone { snapshot: String, name: String },
    /// Bring a volume back to one of its snapshots; what was written since is gone
    #[command(after_help = "Example:\n  stele volume rollback vm1 vm1-monday --yes")]
    Rollback {
        volume: String,
        snapshot: String,
        /// Although hosts that may write to it are connected
        #[arg(long)]
        force: bool,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
    /// Delete a volume or snapshot that holds nothing under retention and has no snapshots or clones
    #[command(after_help = "Example:\n  stele volume delete scratch --yes")]
    Delete {
        name: String,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  stele volume create vm1 --code mirror-3 --size 20GiB
  stele volume create media --code 8+2 --size 1TiB --strip 256KiB --digest strip")]
pub struct Create {
    pub name: String,
    /// mirror-2 to mirror-5, or k+m: 5+1, 8+2, 16+3
    #[arg(long, value_name = "CODE")]
    pub code: stele_codes::Code,
    /// Size that users of the volume see; space is taken as it is written
    #[arg(long, value_parser = size)]
    pub size: Bytes,
    /// Share of a stripe on one drive, 16 KiB to 1 MiB
    #[arg(long, default_value = "64KiB", value_parser = size)]
    pub strip: Bytes,
    /// Logical block: 512 or 4096
    #[arg(long, default_value = "4096", value_parser = size)]
    pub block: Bytes,
    /// What one digest covers: small random reads want `block`, streams `strip`
    #[arg(long, value_enum, default_value_t = Digest::Block)]
    pub digest: Digest,
    /// When a write is acknowledged
    #[arg(long, value_enum, default_value_t = Mode::WriteBack)]
    pub mode: Mode,
    /// Take all space now
    #[arg(long)]
    pub allocate: bool,
}

#[derive(Args, Debug)]
pub struct Set {
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
    /// Durable in the replicated log, or in its slot
    WriteBack,
    /// Durable in its strips on their drives
    WriteThrough,
}
