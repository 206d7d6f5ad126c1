//! Files of evidence: receipts, heads, certificates and public keys.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::failure::{Failure, Kind, Outcome, io_failure};

/// Largest file that holds a receipt, a certificate, a head or a proof. A certificate has up to
/// 1000 records.
const EVIDENCE_MAX: u64 = 16 << 20;

/// The text of a file of evidence.
pub fn read_text(path: &Path) -> Outcome<String> {
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|error| io_failure("read", path, &error))?;
    let read = file.take(EVIDENCE_MAX + 1).read_to_end(&mut bytes);
    read.map_err(|error| io_failure("read", path, &error))?;
    if bytes.len() as u64 > EVIDENCE_MAX {
        return Err(Failure::usage(format!("{} has more than {EVIDENCE_MAX} bytes", path.display())));
    }
    String::from_utf8(bytes).map_err(|_| {
        Failure::new(Kind::Damaged, format!("{} does not hold: it is not text", path.display()))
            .next("get it again from its source; if it stays so, it was changed or is of another store")
    })
}

/// The public key in a file, as `stele audit key` prints it.
pub fn public_key(path: &Path) -> Outcome<[u8; 32]> {
    stele_archive::public_key(read_text(path)?.as_bytes()).map_err(|finding| {
        Failure::usage(format!("{}: {finding}", path.display())).next("`stele audit key` prints the key of a store")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evidence_with_a_byte_of_no_text_does_not_hold() {
        let path = std::env::temp_dir().join(format!("stele-evidence-text-{}", std::process::id()));
        for (bytes, kind) in [(&b"{\"format\":\"stele receipt 1\"}"[..], None), (b"{\xff}", Some(Kind::Damaged))] {
            std::fs::write(&path, bytes).unwrap();
            assert_eq!(read_text(&path).err().map(|failure| failure.kind), kind, "{bytes:?}");
        }
        std::fs::remove_file(&path).unwrap();
    }
}
