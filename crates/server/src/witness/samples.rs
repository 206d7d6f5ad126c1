//! Keys and signed heads for tests.

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use stele_archive::SignedHead;

use super::hex;

/// The key pair of this number.
pub fn key(seed: u8) -> Ed25519KeyPair {
    Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap()
}

pub fn public(key: &Ed25519KeyPair) -> [u8; 32] {
    key.public_key().as_ref().try_into().unwrap()
}

/// A head as a store signs it (FORMAT/archive.md).
pub fn head(store: &Ed25519KeyPair, records: u64, root: &str) -> SignedHead {
    dated(store, records, root, "2027-01-15T08:00:00.000Z")
}

pub fn dated(store: &Ed25519KeyPair, records: u64, root: &str, time: &str) -> SignedHead {
    let mut head = SignedHead {
        store: "0a".repeat(16),
        records,
        link: format!("link {root}"),
        root: root.into(),
        time: time.into(),
        public_key: hex(&public(store)),
        signature: String::new(),
    };
    let SignedHead { store: name, records, link, root, time, .. } = &head;
    let text = format!("stele audit head 1\n{name}\n{records}\n{link}\n{root}\n{time}\n");
    head.signature = hex(store.sign(text.as_bytes()).as_ref());
    head
}
