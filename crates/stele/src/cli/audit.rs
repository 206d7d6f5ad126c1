//! `stele audit`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Subcommand, Debug)]
pub enum Audit {
    /// Show records, newest last
    #[command(after_help = "\
Examples:
  stele audit show
  stele audit show --from 100 --limit 50 --json

A record has the BLAKE3 of a content in base64, as the log has it; receipts and other commands show it in hexadecimal.")]
    Show {
        /// First record to show [default: the most recent records]
        #[arg(long, value_name = "N")]
        from: Option<u64>,
        /// Largest number of records to show
        #[arg(long, value_name = "N", default_value_t = 50)]
        limit: u64,
    },
    /// Check the whole chain; name every edit, gap and reordering
    #[command(after_help = "Examples:
  stele audit verify
  stele audit verify --anchor heads/00000000000000001234.head
  stele audit verify --anchor heads/00000000000000001234.head --timestamp-ca authority.pem
  stele audit verify --anchor heads/00000000000000001234-20270115T080000Z.witness --witness witness.pub")]
    Verify(Anchor),
    /// Print the public key that verifies heads, receipts and proofs of this store
    #[command(after_help = "Examples:\n  stele audit key\n  stele audit key --to stele.pub")]
    Key {
        /// New file; `-` is standard output
        #[arg(long, value_name = "FILE", default_value = "-")]
        to: String,
    },
    /// Prove that the log still begins with what an earlier head or receipt covers
    #[command(after_help = "\
Examples:
  stele audit prove ledger.receipt --to later.proof
  stele audit prove heads/00000000000000001234.head --to later.proof
  stele audit prove ledger.receipt --until heads/00000000000000001300-20270115T080000Z.witness --to later.proof
  stele audit prove proof-2026/manifest.json --until heads/00000000000000001300-20270115T080000Z.witness --to later.proof

`stele receipt verify --later` and `stele proof verify --later` check the proof without a server.")]
    Prove {
        /// A signed head, a receipt, a certificate of disposal, or the manifest of a retention
        /// proof
        from: PathBuf,
        /// Lead to this later head of the store, as one that a witness countersigned
        /// [default: the newest]
        #[arg(long, value_name = "HEAD")]
        until: Option<PathBuf>,
        /// New file; `-` is standard output
        #[arg(long, value_name = "FILE", default_value = "-")]
        to: String,
    },
    /// Write all records as JSON lines, with the signed head as the last line
    #[command(after_help = "Example:\n  stele audit export --to audit.jsonl")]
    Export {
        /// New file; `-` is standard output
        #[arg(long, value_name = "FILE", default_value = "-")]
        to: String,
    },
}

#[derive(Args, Debug)]
pub struct Anchor {
    /// A signed head exported earlier and kept elsewhere: its file, a line of a syslog, a mail, or
    /// a head that a witness countersigned. With it, the check detects a cut tail or a rolled-back
    /// pool
    #[arg(long, value_name = "HEAD")]
    pub anchor: Option<PathBuf>,
    /// Check the time stamp of the head: a PEM file with the certificates of the authorities that
    /// you trust
    #[arg(long, value_name = "PEM", requires = "anchor")]
    pub timestamp_ca: Option<PathBuf>,
    /// Check that the witness with this public key countersigned the head; HEAD is then a file that
    /// ends in .witness
    #[arg(long, value_name = "PUB", requires = "anchor")]
    pub witness: Option<PathBuf>,
    /// The reply of the time stamp authority
    /// [default: the file beside HEAD whose name ends in .tsr]
    #[arg(long, value_name = "REPLY", requires = "timestamp_ca")]
    pub timestamp: Option<PathBuf>,
}
