//! `stele volume export` and `stele export`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use stele_block::Protocol;
use stele_block::export::{Fingerprint, Network};

#[derive(Args, Debug)]
#[command(group = clap::ArgGroup::new("protocol").required(true).args(["nbd", "iscsi"]))]
#[command(after_help = "\
Examples:
  stele volume export vm1 --nbd
  stele volume export vm1-monday --nbd --read-only --json
  stele volume export vm1 --nbd --name web --allow 10.1.0.0/16 --tls
  stele volume export db --iscsi --allow 10.1.0.0/16 --chap-user host1 --chap-secret host1.secret

An export that is there is changed with `stele export set`. The same command again changes nothing.")]
pub struct VolumeExport {
    /// The volume or snapshot
    pub volume: String,
    /// Serve it as a network block device
    #[arg(long)]
    pub nbd: bool,
    /// Serve it as an iSCSI target
    #[arg(long)]
    pub iscsi: bool,
    /// Name that clients ask for
    /// [default: the volume's name; for iSCSI iqn.2026-01.local.stele:VOLUME]
    #[arg(long)]
    pub name: Option<String>,
    /// Refuse every write
    #[arg(long)]
    pub read_only: bool,
    /// Network of clients that may connect over TCP; repeat for more
    /// [default: every client that reaches the listener]
    #[arg(long, value_name = "NETWORK")]
    pub allow: Vec<Network>,
    /// Accept TLS connections only
    #[arg(long)]
    pub tls: bool,
    /// SHA-256 fingerprint of a client certificate that may connect; repeat for more
    #[arg(long, value_name = "SHA256")]
    pub client_certificate: Vec<Fingerprint>,
    /// iSCSI: the name that initiators use for CHAP login
    // The parser passes over a requirement that another option rules out, hence the conflict.
    #[arg(long, value_name = "NAME", requires_all = ["iscsi", "chap_secret"], conflicts_with = "nbd")]
    pub chap_user: Option<String>,
    /// iSCSI: file with the initiators' CHAP secret, at least 12 characters
    #[arg(long, value_name = "FILE", requires = "chap_user", conflicts_with = "nbd")]
    pub chap_secret: Option<PathBuf>,
    /// iSCSI: the name with which the target authenticates itself to initiators that ask
    #[arg(long, value_name = "NAME", requires_all = ["chap_user", "mutual_secret"])]
    pub mutual_user: Option<String>,
    /// iSCSI: file with the target's own CHAP secret
    #[arg(long, value_name = "FILE", requires = "mutual_user")]
    pub mutual_secret: Option<PathBuf>,
    /// iSCSI: show a removable disk, which initiators can eject
    #[arg(long, requires = "iscsi", conflicts_with = "nbd")]
    pub removable: bool,
    /// iSCSI: report physical blocks as large as logical ones, for initiators that do not support
    /// 512e disks
    #[arg(long, requires = "iscsi", conflicts_with = "nbd")]
    pub native_blocks: bool,
}

#[derive(Subcommand, Debug)]
pub enum Export {
    /// List the exports, and how clients reach them
    #[command(after_help = "Example:\n  stele export list --json")]
    List,
    /// Change which clients may reach an export, how, and by which name. Its connections end;
    /// clients reconnect under the new settings. If nothing differs, no connection ends
    Set(ExportSet),
    /// Remove an export; its connections end
    #[command(after_help = "\
Examples:
  stele export remove vm1
  stele export remove iqn.2026-01.local.stele:db --protocol iscsi")]
    Remove {
        /// The export, as `stele export list` shows it
        name: String,
        /// The protocol of the export
        #[arg(long, value_enum, default_value_t = ProtocolArg::Nbd)]
        protocol: ProtocolArg,
    },
}

#[derive(Args, Debug)]
#[command(group = clap::ArgGroup::new("change").required(true).multiple(true).args(["name_to", "read_only", "allow", "tls", "client_certificate", "chap_user", "mutual_user", "no_chap"]))]
#[command(after_help = "\
Examples:
  stele export set vm1 --read-only yes
  stele export set vm1 --allow 10.1.0.0/16 --allow 10.2.0.7
  stele export set vm1 --name web
  stele export set iqn.2026-01.local.stele:db --protocol iscsi --chap-user host1 --chap-secret new.secret

Settings that are not given keep their value. --allow and --client-certificate replace the whole list; `any` empties
it.")]
pub struct ExportSet {
    /// The export, as `stele export list` shows it
    pub name: String,
    /// The protocol of the export
    #[arg(long, value_enum, default_value_t = ProtocolArg::Nbd)]
    pub protocol: ProtocolArg,
    /// New name that clients ask for
    #[arg(long = "name", value_name = "NEW")]
    pub name_to: Option<String>,
    /// Whether the export refuses every write
    #[arg(long, value_name = "YES|NO", value_parser = super::bucket::yes_or_no)]
    pub read_only: Option<bool>,
    /// Networks of clients that may connect over TCP, or `any`
    #[arg(long, value_name = "NETWORK")]
    pub allow: Vec<String>,
    /// Whether the export accepts TLS connections only
    #[arg(long, value_name = "YES|NO", value_parser = super::bucket::yes_or_no)]
    pub tls: Option<bool>,
    /// SHA-256 fingerprints of client certificates that may connect, or `any`
    #[arg(long, value_name = "SHA256")]
    pub client_certificate: Vec<String>,
    /// iSCSI: the name that initiators use for CHAP login
    #[arg(long, value_name = "NAME", requires = "chap_secret", conflicts_with = "no_chap")]
    pub chap_user: Option<String>,
    /// iSCSI: file with the initiators' CHAP secret, at least 12 characters
    #[arg(long, value_name = "FILE", requires = "chap_user", conflicts_with = "no_chap")]
    pub chap_secret: Option<PathBuf>,
    /// iSCSI: the name with which the target authenticates itself to initiators that ask
    #[arg(long, value_name = "NAME", requires = "mutual_secret", conflicts_with = "no_chap")]
    pub mutual_user: Option<String>,
    /// iSCSI: file with the target's own CHAP secret
    #[arg(long, value_name = "FILE", requires = "mutual_user", conflicts_with = "no_chap")]
    pub mutual_secret: Option<PathBuf>,
    /// iSCSI: no longer ask initiators for CHAP, nor authenticate the target
    #[arg(long)]
    pub no_chap: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum ProtocolArg {
    Nbd,
    Iscsi,
}

impl From<ProtocolArg> for Protocol {
    fn from(protocol: ProtocolArg) -> Protocol {
        match protocol {
            ProtocolArg::Nbd => Protocol::Nbd,
            ProtocolArg::Iscsi => Protocol::Iscsi,
        }
    }
}
