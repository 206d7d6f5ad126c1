//! A receipt, a record of the audit log with its proof, and the proof that a later log begins with
//! an earlier one.
//!
//! Nothing here is believed because the file says so: what a receipt states about an object is
//! signed, and compared with the record of the audit log. The record is proven to be under the
//! signed head.

use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};
use serde::{Deserialize, Serialize};
use stele_catalog::link;

use crate::model::action::Action;
use crate::model::checksum::{from_base64, hex_into, to_hex};
use crate::model::head::SignedHead;
use crate::model::merkle::{Hash, climb, has_grown, root_of};
use crate::record::audit::AuditRow;
use crate::state::log_tree::{place_of, run_length};

/// The first line of a receipt's signed text, and the format that its file names.
pub(crate) const RECEIPT: &str = "stele receipt 1";
/// The same of a receipt that shares its signature with others, and the first line of the text that
/// they share.
pub(crate) const RECEIPT_OF_GROUP: &str = "stele receipt 2";
const GROUP: &str = "stele receipts 2";
/// The format that a consistency proof names.
pub(crate) const CONSISTENCY: &str = "stele consistency 1";

/// A record of the audit log as stored, and the way from it to the root of a signed head.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProvenRecord {
    pub record: u64,
    /// The link of the record before it.
    pub previous: String,
    /// The record as stored.
    pub value: String,
    /// From the record's link to the root of its run.
    pub run_path: Vec<String>,
    /// From there to the root of the head.
    pub log_path: Vec<String>,
}

/// What the archive did, signed, with the proof that its audit log says so.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Receipt {
    pub format: String,
    pub store: String,
    pub action: String,
    pub time: String,
    pub actor: String,
    pub bucket: String,
    pub key: String,
    pub version: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blake3: Option<String>,
    /// Of an object in parts, whose BLAKE3 is over the BLAKE3 of each part: runs of size and number
    /// of parts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parts: Option<Vec<(u64, u64)>>,
    /// SHA-256 of the content, if the client sent it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// The retention and the hold of the version when the receipt was signed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention_mode: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_until: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub legal_hold: Option<bool>,
    /// The other matters that hold the version then: named ones, and `rebuild`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub matters: Vec<String>,
    /// The management class, of a store that has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// When the receipt was signed.
    pub signed: String,
    pub entry: ProvenRecord,
    pub head: SignedHead,
    /// Of a receipt that shares its signature with those given at the same moment: its place among
    /// them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<ReceiptGroup>,
    pub signature: String,
}

/// The place of a receipt in the tree of those that share a signature. A leaf's value is the BLAKE3
/// of a receipt's text.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReceiptGroup {
    pub count: u64,
    pub index: u64,
    /// The nodes beside the way to the root, the lowest first.
    pub path: Vec<String>,
}

/// The text that the receipts of a group share, and that is signed.
pub(crate) fn group_text(count: u64, root: &Hash) -> Vec<u8> {
    format!("{GROUP}\n{count}\n{}\n", to_hex(root)).into_bytes()
}

/// The proof that the log under a later head begins with the log under an earlier one.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConsistencyProof {
    pub format: String,
    /// Records of the earlier head.
    pub from: u64,
    /// The root of the run in which the earlier log ended: as it was then, and as it is under the
    /// later head.
    pub run_before: String,
    pub run_after: String,
    pub run_path: Vec<String>,
    pub log_path: Vec<String>,
    pub head: SignedHead,
}

/// Why a receipt, a record or a proof is not what it claims to be.
pub type Finding = String;

/// Reads hexadecimal digits as Stele writes them: lower case, so that one value has one spelling.
pub(crate) fn exact_hex(text: &str) -> Option<Vec<u8>> {
    let mut bytes = vec![0; text.len() / 2];
    hex_into(text, &mut bytes, false).then_some(bytes)
}

fn hash_of(text: &str, what: &str) -> Result<Hash, Finding> {
    let mut hash = Hash::default();
    match hex_into(text, &mut hash, false) {
        true => Ok(hash),
        false => Err(format!("{what} is not 64 lower-case hexadecimal digits")),
    }
}

fn hashes_of(texts: &[String], what: &str) -> Result<Vec<Hash>, Finding> {
    texts.iter().map(|text| hash_of(text, what)).collect()
}

fn same<T: PartialEq + ?Sized>(said: &T, known: &T, what: &str) -> Result<(), Finding> {
    match said == known {
        true => Ok(()),
        false => Err(format!("{what} is not the one in the record of the audit log")),
    }
}

/// Whether the holder of this public key signed the head.
pub fn check_head(head: &SignedHead, public: &[u8]) -> Result<(), Finding> {
    if head.public_key != to_hex(public) {
        return Err("the head was signed with another key".into());
    }
    if exact_hex(&head.signature).is_none() || !head.is_signed_by(public) {
        return Err("the signature of the head does not hold".into());
    }
    Ok(())
}

impl ProvenRecord {
    /// The record, if it is under the head.
    pub(crate) fn verify(&self, head: &SignedHead) -> Result<AuditRow, Finding> {
        let number = self.record;
        if number == 0 || number > head.records {
            return Err(format!("record {number} is not among the {} records of the head", head.records));
        }
        let value = exact_hex(&self.value).ok_or("the stored record is not in lower-case hexadecimal")?;
        let leaf = link(&hash_of(&self.previous, "the link before the record")?, number, &value);
        let (run, place) = place_of(number);
        let in_run = hashes_of(&self.run_path, "a hash of the path in the run")?;
        let in_log = hashes_of(&self.log_path, "a hash of the path in the log")?;
        let root = root_of(&leaf, place, run_length(run, head.records), &in_run)
            .and_then(|root| root_of(&root, run, head.records.div_ceil(crate::state::log_tree::RUN), &in_log));
        if root != Some(hash_of(&head.root, "the root of the head")?) {
            return Err(format!("record {number} does not lead to the root of the head: one of them was changed"));
        }
        minicbor::decode(&value).map_err(|error| format!("record {number} cannot be read: {error}"))
    }
}

/// The part of a detail that Stele wrote. Where an S3 client named a file of a share by its path,
/// that path stands before it, and may contain anything.
pub(crate) fn own_part(detail: &str) -> &str {
    match detail.starts_with("path `") {
        true => detail.rsplit_once("`; ").map_or("", |(_, own)| own),
        false => detail,
    }
}

/// Size and BLAKE3 of the content, as the detail of a record about an object states them.
pub(crate) fn content_in(row: &AuditRow) -> Option<(u64, Hash)> {
    if !matches!(row.action, Action::PutObject | Action::CompleteUpload | Action::DeleteObject) {
        return None;
    }
    let (before, after) = own_part(row.detail.as_deref()?).split_once(" bytes, blake3 ")?;
    let size = before.rsplit(' ').next()?.parse().ok()?;
    let digest = from_base64(after.split(',').next()?)?;
    Some((size, digest.try_into().ok()?))
}

impl Receipt {
    /// The format that its text begins with.
    fn expected_format(&self) -> &'static str {
        if self.group.is_some() { RECEIPT_OF_GROUP } else { RECEIPT }
    }

    /// The text that is signed, alone or for the whole group.
    fn signed_text(&self) -> Result<Vec<u8>, Finding> {
        let Some(ReceiptGroup { count, index, path }) = &self.group else { return Ok(self.text()) };
        let value = *blake3::hash(&self.text()).as_bytes();
        let path = hashes_of(path, "a hash of the path in the group")?;
        let root = root_of(&value, *index, *count, &path);
        let root = root.ok_or("the place in the group is none that its path leads from")?;
        Ok(group_text(*count, &root))
    }

    /// What the receipt states: the format, and then a line for each field, with its length before
    /// its value.
    pub(crate) fn text(&self) -> Vec<u8> {
        let number = |number: Option<u64>| number.map(|number| number.to_string());
        let parts = self.parts.as_ref().map(|runs| {
            let run = |(size, count): &(u64, u64)| format!("{size}*{count}");
            runs.iter().map(run).collect::<Vec<_>>().join(",")
        });
        let hold = self.legal_hold.map(|hold| if hold { "on" } else { "off" }.to_owned());
        let before = [
            ("store", Some(self.store.clone())),
            ("action", Some(self.action.clone())),
            ("time", Some(self.time.clone())),
            ("actor", Some(self.actor.clone())),
            ("bucket", Some(self.bucket.clone())),
            ("key", Some(self.key.clone())),
            ("version", self.version.clone()),
            ("size", number(self.size_bytes)),
            ("blake3", self.blake3.clone()),
            ("parts", parts),
            ("sha256", self.sha256.clone()),
            ("retention", self.retention_mode.clone()),
            ("until", self.keep_until.clone()),
            ("hold", hold),
        ];
        // Each on a line of its own: no two lists have the same lines.
        let matters = self.matters.iter().map(|name| ("matter", Some(name.clone())));
        let after = [
            ("class", self.class.clone()),
            ("signed", Some(self.signed.clone())),
            ("record", number(Some(self.entry.record))),
            ("head", Some(self.head.signature.clone())),
        ];
        let mut text = format!("{}\n", self.expected_format());
        for (name, value) in before.into_iter().chain(matters).chain(after) {
            if let Some(value) = value {
                text.push_str(&format!("{name} {} {value}\n", value.len()));
            }
        }
        text.into_bytes()
    }

    /// The receipt as its file has it, on one line.
    pub fn to_json(&self) -> String {
        // Texts and numbers alone always have a form in JSON.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Checks everything that the receipt states, with the store's public key and nothing else.
    pub fn verify(&self, public: &[u8]) -> Result<(), Finding> {
        if self.format != self.expected_format() {
            return Err(format!(
                "it is of the format '{}', this version reads '{RECEIPT}', and '{RECEIPT_OF_GROUP}' with a group",
                self.format
            ));
        }
        check_head(&self.head, public)?;
        let signature = exact_hex(&self.signature).unwrap_or_default();
        if UnparsedPublicKey::new(&ED25519, public).verify(&self.signed_text()?, &signature).is_err() {
            return Err("the signature of the receipt does not hold: it was changed, or another key signed it".into());
        }
        if self.store != self.head.store {
            return Err("the head is of another store".into());
        }
        let row = self.entry.verify(&self.head)?;
        if row.refused.is_some() {
            return Err("the record is of a refusal: nothing took place".into());
        }
        same(self.action.as_str(), &row.action.to_string(), "the action")?;
        same(self.time.as_str(), &row.time.to_string(), "the time")?;
        same(self.actor.as_str(), &row.actor.to_string(), "the actor")?;
        same(&Some(self.bucket.clone()), &row.bucket, "the bucket")?;
        same(&Some(self.key.clone()), &row.key, "the key")?;
        same(&self.version, &row.version, "the version")?;
        if let Some((size, blake3)) = content_in(&row) {
            same(&self.size_bytes, &Some(size), "the size")?;
            same(&self.blake3, &Some(to_hex(&blake3)), "the BLAKE3")?;
        }
        Ok(())
    }

    /// Whether this content is the one that the receipt is about: its parts' sizes are those to
    /// hash apart.
    pub fn check_content(&self, digests: &ContentDigests) -> Result<(), Finding> {
        if self.size_bytes != Some(digests.size) {
            return Err(format!("the content has {} bytes, the object has another number", digests.size));
        }
        if self.blake3.as_deref() != Some(&to_hex(&digests.blake3)) {
            return Err("the BLAKE3 of the content is another".into());
        }
        match self.sha256.as_deref() {
            Some(sha256) if sha256 != to_hex(&digests.sha256) => Err("the SHA-256 of the content is another".into()),
            _ => Ok(()),
        }
    }
}

/// The digests of a content on disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ContentDigests {
    pub size: u64,
    pub blake3: Hash,
    pub sha256: Hash,
}

/// Computes the digests of a content that arrives in pieces.
pub struct ContentHasher {
    /// What is left of each run of parts, the last one first. None: the content is one piece.
    parts: Option<Vec<(u64, u64)>>,
    in_part: u64,
    size: u64,
    part: blake3::Hasher,
    over: blake3::Hasher,
    sha256: aws_lc_rs::digest::Context,
}

impl ContentHasher {
    pub fn new(parts: Option<&[(u64, u64)]>) -> ContentHasher {
        let parts = parts.map(|parts| parts.iter().rev().filter(|(_, count)| *count > 0).copied().collect());
        let sha256 = aws_lc_rs::digest::Context::new(&aws_lc_rs::digest::SHA256);
        let (part, over) = (blake3::Hasher::new(), blake3::Hasher::new());
        let mut hasher = ContentHasher { parts, in_part: 0, size: 0, part, over, sha256 };
        hasher.end_full_parts();
        hasher
    }

    pub fn update(&mut self, mut data: &[u8]) {
        self.sha256.update(data);
        self.size += data.len() as u64;
        while !data.is_empty() {
            let left = self.left_in_part().unwrap_or(u64::MAX);
            let (now, rest) = data.split_at(usize::try_from(left).map_or(data.len(), |left| left.min(data.len())));
            self.part.update(now);
            self.in_part += now.len() as u64;
            data = rest;
            self.end_full_parts();
        }
    }

    /// None: no further part is known, and what follows belongs to the last one.
    fn left_in_part(&self) -> Option<u64> {
        self.parts.as_ref()?.last().map(|(size, _)| size - self.in_part)
    }

    fn end_full_parts(&mut self) {
        while self.left_in_part() == Some(0) {
            self.end_part();
        }
    }

    fn end_part(&mut self) {
        let part = std::mem::replace(&mut self.part, blake3::Hasher::new());
        self.over.update(part.finalize().as_bytes());
        self.in_part = 0;
        if let Some(parts) = &mut self.parts
            && let Some((_, count)) = parts.last_mut()
        {
            *count -= 1;
            if *count == 0 {
                parts.pop();
            }
        }
    }

    pub fn finish(mut self) -> ContentDigests {
        let blake3 = match self.parts.is_some() {
            false => self.part.finalize(),
            true => {
                if self.in_part > 0 {
                    self.end_part();
                }
                self.over.finalize()
            }
        };
        let mut sha256 = Hash::default();
        sha256.copy_from_slice(self.sha256.finish().as_ref());
        ContentDigests { size: self.size, blake3: *blake3.as_bytes(), sha256 }
    }
}

impl ConsistencyProof {
    /// Whether the log under the later head begins with the one under `from`. Both heads are signed
    /// by this key.
    pub fn verify(&self, from: &SignedHead, public: &[u8]) -> Result<(), Finding> {
        if self.format != CONSISTENCY {
            return Err(format!("it is of the format '{}', this version reads '{CONSISTENCY}'", self.format));
        }
        check_head(from, public)?;
        check_head(&self.head, public)?;
        if from.store != self.head.store {
            return Err("the two heads are of different stores".into());
        }
        if self.from != from.records {
            return Err(format!("the proof begins at record {}, the earlier head ends at {}", self.from, from.records));
        }
        let (old, new) = (from.records, self.head.records);
        if old == 0 || old > new {
            return Err(format!("a log of {new} records does not begin with one of {old}"));
        }
        let run = place_of(old).0;
        let before = hash_of(&self.run_before, "the earlier root of the run")?;
        let after = hash_of(&self.run_after, "the later root of the run")?;
        let in_run = hashes_of(&self.run_path, "a hash of the path in the run")?;
        let in_log = hashes_of(&self.log_path, "a hash of the path in the log")?;
        let grown = has_grown(run_length(run, old), run_length(run, new), &before, &after, &in_run);
        let runs = new.div_ceil(crate::state::log_tree::RUN);
        let roots = climb(&before, &after, run, runs, &in_log).filter(|_| grown);
        let known = (hash_of(&from.root, "the earlier root")?, hash_of(&self.head.root, "the later root")?);
        match roots == Some(known) {
            true => Ok(()),
            false => Err("the later log does not begin with the earlier one: records were changed or removed".into()),
        }
    }
}
