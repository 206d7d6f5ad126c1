//! `stele up` and `stele serve`.

use std::net::SocketAddr;

use clap::Args;
use stele_ground::Bytes;
use stele_server::config::size;

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  stele up
  stele up --dir /srv/stele --listen 127.0.0.1:9000
  stele up --json                 # one line with endpoint and key (or its file) when ready

The first start makes 12 file drives in 6 enclosures, a mirrored catalog volume and an 8+2 data volume. It prints
the access key once; without a terminal it writes the key to first-key.json in the data directory. A later start
serves the pool as it was made, and warns where an option asks for another. Stop it with Ctrl-C.")]
pub struct Up {
    /// Address of the S3 endpoint; port 0 picks a free port
    /// [default: as configured; at the first start 127.0.0.1:9000]
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<SocketAddr>,
    /// Serve HTTPS with a self-signed certificate, made at the first start
    #[arg(long)]
    pub tls: bool,
    /// Number of file drives, at the first start [default: 12]
    #[arg(long, value_name = "N")]
    pub drives: Option<u32>,
    /// Size of each file drive, at the first start; files are sparse
    /// [default: 4 GiB, less if the disk is small]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub drive_size: Option<Bytes>,
    /// Allocate the whole file drives at the first start. The start takes longer; no later write
    /// waits for the file system to find space
    #[arg(long, alias = "written")]
    pub preallocate: bool,
    /// Code of the data volume, at the first start [default: 8+2]
    #[arg(long, value_name = "CODE")]
    pub data: Option<stele_codes::Code>,
}

#[derive(Args, Debug)]
#[command(after_help = "Example:\n  stele serve --config /etc/stele/stele.toml")]
pub struct Serve {
    /// Open writable even if fewer than a majority of the drives agree on the configuration, or if
    /// the end of the log cannot be read: writes acknowledged last may be lost. The audit log
    /// records it
    #[arg(long)]
    pub override_quorum: bool,
}
