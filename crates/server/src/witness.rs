//! `stele witness`: a small process on another machine that countersigns heads of audit logs.
//!
//! A store can show different logs to different readers, after a restore or on purpose. A witness
//! signs one line of heads for each store: each later head must come with the proof that its log
//! begins with the one signed before. It refuses everything else, and keeps the head that
//! contradicts.
//!
//! Failure model: every byte of a request may be hostile; only heads that a known store signed are
//! looked at. A head is durable in the witness's log before its countersignature leaves, so a
//! witness that was killed never signs a second line. A witness whose disk was set back could; keep
//! its directory on storage that is not the store's.

mod journal;
#[cfg(any(test, feature = "samples"))]
pub mod samples;
pub mod service;

use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use serde::{Deserialize, Serialize};
use stele_archive::{ConsistencyProof, Finding, SignedHead, check_head};

/// The format that a countersigned head names, and the first line of its signed text.
pub const FORMAT: &str = "stele witness 1";

/// A head, and the signature of a witness that saw it in line with all that it signed before.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Countersigned {
    pub format: String,
    pub head: SignedHead,
    /// When the witness signed, by its own clock.
    pub time: String,
    /// The public key of the witness.
    pub witness: String,
    pub signature: String,
}

/// A head for the witness.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Submission {
    /// The store whose last countersigned head is asked for, if there is no head.
    pub store: String,
    pub head: Option<SignedHead>,
    /// That the log under the head begins with the one that the witness signed last.
    pub proof: Option<ConsistencyProof>,
}

/// What the witness answers.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Answer {
    /// The head just countersigned; after a refusal or a question, the last one.
    pub countersigned: Option<Countersigned>,
    pub refused: Option<String>,
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16).filter(|_| !byte.is_ascii_uppercase());
    let digits: Option<Vec<u32>> = text.as_bytes().iter().map(digit).collect();
    let pair = |pair: &[u32]| match pair {
        [high, low] => u8::try_from(high << 4 | low).ok(),
        _ => None,
    };
    digits?.chunks(2).map(pair).collect()
}

/// Whether the text is the name of a store: 32 hexadecimal digits, and therefore also the name of a
/// file.
pub fn is_store(text: &str) -> bool {
    text.len() == 32 && unhex(text).is_some()
}

impl Countersigned {
    pub fn sign(head: SignedHead, time: String, key: &Ed25519KeyPair) -> Countersigned {
        let witness = hex(key.public_key().as_ref());
        let mut made = Countersigned { format: FORMAT.to_owned(), head, time, witness, signature: String::new() };
        made.signature = hex(key.sign(&made.text()).as_ref());
        made
    }

    /// The text that is signed: the head's own text with its signature, and the time.
    fn text(&self) -> Vec<u8> {
        let SignedHead { store, records, link, root, time, public_key, signature } = &self.head;
        let at = &self.time;
        format!("{FORMAT}\n{store}\n{records}\n{link}\n{root}\n{time}\n{public_key}\n{signature}\n{at}\n").into_bytes()
    }

    /// Checks both signatures: that of the witness, and that of the store whose key the head names.
    pub fn verify(&self, witness: &[u8; 32]) -> Result<(), Finding> {
        if self.format != FORMAT {
            return Err(format!("it is of the format '{}', this version reads '{FORMAT}'", self.format));
        }
        if self.witness != hex(witness) {
            return Err("another witness signed it".into());
        }
        let signature = unhex(&self.signature).unwrap_or_default();
        if UnparsedPublicKey::new(&ED25519, witness).verify(&self.text(), &signature).is_err() {
            return Err("the signature of the witness does not hold: it was changed".into());
        }
        let store = unhex(&self.head.public_key).unwrap_or_default();
        check_head(&self.head, &store)
    }
}

/// What the witness does with a head that the store signed.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Verdict {
    Sign,
    /// The witness has signed that much, at this head's date or later. To sign it again would let
    /// anyone who holds the head fill the disk.
    Signed,
    /// The witness has signed more already. This is no fork by itself: old heads may be sent again.
    Behind(u64),
    /// The head is not in line with the one signed before. Both are kept.
    Fork(String),
}

/// Compares a head with the last one that was countersigned. Both are signed by this key.
fn judge(last: Option<&SignedHead>, head: &SignedHead, proof: Option<&ConsistencyProof>, key: &[u8]) -> Verdict {
    let Some(last) = last.filter(|last| last.records > 0) else { return Verdict::Sign };
    let records = last.records;
    if head.records < records {
        return Verdict::Behind(records);
    }
    if head.records == records {
        return match (&head.link, &head.root) == (&last.link, &last.root) {
            true if head.time <= last.time => Verdict::Signed,
            true => Verdict::Sign,
            false => Verdict::Fork(format!("it ends another log at record {records}")),
        };
    }
    match proof {
        None => Verdict::Fork(format!("nothing proves that its log begins with the {records} records signed before")),
        Some(proof) if proof.head != *head => Verdict::Fork("its proof is about another head".into()),
        Some(proof) => match proof.verify(last, key) {
            Ok(()) => Verdict::Sign,
            Err(finding) => Verdict::Fork(finding),
        },
    }
}

#[cfg(test)]
mod tests;
