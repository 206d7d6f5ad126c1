//! Files of evidence: receipts, heads, certificates and public keys.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::failure::{Failure, Outcome, io_failure};

/// Largest file that holds a receipt, a certificate, a head or a proof. A certificate has up to
/// 1000 records.
const EVIDENCE_MAX: u64 = 16 << 20;

/// The text of a file of evidence.
pub fn read_text(path: &Path) -> Outcome<String> {
    let mut text = String::new();
    let file = File::open(path).map_err(|error| io_failure("read", path, &error))?;
    let read = file.take(EVIDENCE_MAX + 1).read_to_string(&mut text);
    read.map_err(|error| io_failure("read", path, &error))?;
    match text.len() as u64 > EVIDENCE_MAX {
        true => Err(Failure::usage(format!("{} has more than {EVIDENCE_MAX} bytes", path.display()))),
        false => Ok(text),
    }
}

/// The public key in a file, as `stele audit key` prints it.
pub fn public_key(path: &Path) -> Outcome<[u8; 32]> {
    stele_archive::public_key(read_text(path)?.as_bytes()).map_err(|finding| {
        Failure::usage(format!("{}: {finding}", path.display())).next("`stele audit key` prints the key of a store")
    })
}
