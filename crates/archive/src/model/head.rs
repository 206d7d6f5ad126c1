//! The signed head of the audit log: its end at some moment. FORMAT/archive.md has the text that is
//! signed.

use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};
use serde::{Deserialize, Serialize};

use crate::model::checksum::from_hex;

/// The end of the log at some moment, signed. A copy kept elsewhere proves later that no earlier
/// record was cut or changed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SignedHead {
    pub store: String,
    pub records: u64,
    pub link: String,
    /// Of the Merkle tree over all records' links.
    pub root: String,
    pub time: String,
    pub public_key: String,
    pub signature: String,
}

impl SignedHead {
    /// The text that is signed.
    pub(crate) fn message(&self) -> Vec<u8> {
        let SignedHead { store, records, link, root, time, .. } = self;
        format!("stele audit head 1\n{store}\n{records}\n{link}\n{root}\n{time}\n").into_bytes()
    }

    /// Whether the holder of this key signed it.
    pub(crate) fn is_signed_by(&self, public: &[u8]) -> bool {
        let signature = from_hex(&self.signature).unwrap_or_default();
        UnparsedPublicKey::new(&ED25519, public).verify(&self.message(), &signature).is_ok()
    }
}
