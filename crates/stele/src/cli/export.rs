//! `stele volume export` and `stele export`.

use clap::{Args, Subcommand, ValueEnum};
use stele_block::Protocol;
use stele_block::export::{Fingerprint, Network};

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  stele volume export vm1 --nbd
  stele volume export vm1-monday --nbd --read-only --json
  stele volume export vm1 --nbd --name web --allow 10.1.0.0/16 --tls")]
pub struct Add {
    /// The volume or snapshot
    pub volume: String,
    /// Serve it as a network block device
    #[arg(long, required = true)]
    pub nbd: bool,
    /// What clients ask for [default: the volume's name]
    #[arg(long)]
    pub name: Option<String>,
    /// Refuse every change
    #[arg(long)]
    pub read_only: bool,
    /// Networks of clients that may connect over TCP; several are given one after another [default: all that reach the listener]
    #[arg(long, value_name = "NETWORK")]
    pub allow: Vec<Network>,
    /// Only over TLS
    #[arg(long)]
    pub tls: bool,
    /// SHA-256 fingerprint of a client certificate that may connect; several are given one after another
    #[arg(long, value_name = "SHA256")]
    pub client_certificate: Vec<Fingerprint>,
}

#[derive(Subcommand, Debug)]
pub enum Export {
    /// List the exports, and how clients reach them
    #[command(after_help = "Example:\n  stele export list --json")]
    List,
    /// Take an export away; its connections end
    #[command(after_help = "Example:\n  stele export remove vm1")]
    Remove {
        name: String,
        #[arg(long, value_enum, default_value_t = Kind::Nbd)]
        protocol: Kind,
    },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Kind {
    Nbd,
}

impl From<Kind> for Protocol {
    fn from(kind: Kind) -> Protocol {
        match kind {
            Kind::Nbd => Protocol::Nbd,
        }
    }
}
