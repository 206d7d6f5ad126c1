//! `stele receipt` and `stele proof`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Subcommand, Debug)]
pub enum Receipt {
    /// Get the signed receipt of a stored version, with its proof from the audit log
    #[command(after_help = "\
Examples:
  stele receipt get records/2026/ledger.pdf --to ledger.receipt
  stele receipt get records/2026/ledger.pdf@7f3a09c2e4b1d8650193f3c2aa57e01b
  stele receipt get records/2026/ledger.pdf --record 4711

A receipt states names, size, digests and retention. Clients get one with an act, by the header `x-stele-receipt: 1`.
Without --record it is for the record of the audit log that says how the version was stored.")]
    Get {
        /// BUCKET/KEY or BUCKET/KEY@VERSION
        object: String,
        /// Another record about the object, as `stele audit show` numbers it: a deletion, a hold
        #[arg(long, value_name = "N")]
        record: Option<u64>,
        /// New file; `-` is standard output
        #[arg(long, default_value = "-")]
        to: String,
    },
    /// Check a receipt or a certificate of disposal with the store's public key; needs no server
    /// and no pool
    #[command(after_help = "\
Examples:
  stele receipt verify ledger.receipt --key stele.pub
  stele receipt verify ledger.receipt --key stele.pub --content ledger.pdf
  stele receipt verify ledger.receipt --key stele.pub --later later.proof
  stele receipt verify ledger.receipt --key stele.pub --later later.proof --anchor 1300.witness --witness witness.pub

FILE is a receipt as `stele receipt get` writes it, the value of the header x-stele-receipt, or a certificate by
`stele disposal certificate`. The public key comes from `stele audit key`, on a way that you trust. Exit code 5 if
anything does not hold, 3 if a later version of Stele wrote it.")]
    Verify {
        /// The receipt or certificate
        file: PathBuf,
        /// File with the store's public key
        #[arg(long, value_name = "FILE")]
        key: PathBuf,
        /// A copy of the object: compare size, BLAKE3 and SHA-256 with those of the receipt
        #[arg(long, value_name = "FILE")]
        content: Option<PathBuf>,
        #[command(flatten)]
        beyond: Beyond,
    },
}

/// What leads beyond the head of a receipt or a proof.
#[derive(Args, Debug)]
pub struct Beyond {
    /// A proof by `stele audit prove`: the log under a later head still begins with this one's
    #[arg(long, value_name = "FILE")]
    pub later: Option<PathBuf>,
    /// A head that a witness countersigned, the one to which --later leads: its file ends in
    /// .witness
    #[arg(long, value_name = "HEAD", requires = "witness")]
    pub anchor: Option<PathBuf>,
    /// File with the public key of that witness
    #[arg(long, value_name = "PUB", requires = "anchor")]
    pub witness: Option<PathBuf>,
}

#[derive(Subcommand, Debug)]
pub enum Proof {
    /// Write what an auditor needs into a new directory: versions, digests, history, and the proofs
    /// for them
    #[command(after_help = "\
Examples:
  stele proof export --bucket records --to proof-2026
  stele proof export --bucket records --prefix 2026/ --to proof-2026
  stele proof export --bucket records --matter s3 --to held

The directory names every selected object and those who acted on it: treat it like the records themselves. It does not
hold their content. The export reads the whole audit log once, and is recorded in it.")]
    Export {
        /// The bucket
        #[arg(long)]
        bucket: String,
        /// Only keys that begin with this
        #[arg(long, default_value = "", hide_default_value = true)]
        prefix: String,
        /// Only versions under this matter; `s3` is the matter of S3's legal hold
        #[arg(long)]
        matter: Option<String>,
        /// New directory
        #[arg(long, value_name = "DIR")]
        to: PathBuf,
    },
    /// Check such a directory; needs no server and no pool
    #[command(after_help = "\
Examples:
  stele proof verify proof-2026 --key stele.pub
  stele proof verify proof-2026
  stele proof verify proof-2026 --key stele.pub --content copies
  stele proof verify proof-2026 --key stele.pub --later later.proof --anchor 1300.witness --witness witness.pub

Without --key the check uses the key in the directory: it then shows only that nothing was altered since the holder of
that key signed it. --content compares copies of the objects: the newest version of a key with the file of that name
below DIR, an older one with the file KEY@VERSION if it is there. Exit code 5 if anything does not hold, 3 if a later
version of Stele wrote it.")]
    Verify {
        /// The directory that `stele proof export` made
        dir: PathBuf,
        /// File with the store's public key, as `stele audit key` prints it
        #[arg(long, value_name = "FILE")]
        key: Option<PathBuf>,
        /// Directory with copies of the objects: compare size, BLAKE3 and SHA-256 with those of the
        /// proof
        #[arg(long, value_name = "DIR")]
        content: Option<PathBuf>,
        #[command(flatten)]
        beyond: Beyond,
    },
}
