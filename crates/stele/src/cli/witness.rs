//! `stele witness`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  stele witness /srv/witness --store stele.pub
  stele witness /srv/witness --store one.pub --store two.pub --listen 192.0.2.7:9120

Run it on a machine that the administrator of the store does not control. HOME gets the key of the witness, its public
key in witness.pub, and for each store the heads that it has signed (.heads) and those that contradict them (.forks).
The server names it with `[archive] heads_witness`. `stele audit verify --witness` checks what it signed.")]
pub struct Witness {
    /// Directory of the witness
    pub home: PathBuf,
    /// Public key of a store whose heads it signs, as `stele audit key` prints it
    #[arg(long = "store", value_name = "FILE", required = true)]
    pub stores: Vec<PathBuf>,
    /// Address that it listens on
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9120")]
    pub listen: SocketAddr,
}
