//! A disposal certificate: what a removed version was, why it could go, and when its key was
//! destroyed. It is verified without a store.
//!
//! Nothing here is believed because the file says so. Every statement about the version is read
//! from records of the audit log, once by the store and again by the verifier, and each record is
//! proven to be under the signed head. The signature covers the statements and the choice of
//! records.

use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};
use serde::{Deserialize, Serialize};

use crate::evidence::bundle::retention_in;
use crate::evidence::receipt::{ContentDigests, Finding, ProvenRecord, check_head, content_in, exact_hex, own_part};
use crate::model::action::Action;
use crate::model::checksum::{from_base64, to_hex};
use crate::model::head::SignedHead;
use crate::model::matter::S3;
use crate::record::audit::AuditRow;

/// The first line of a certificate's signed text, and the format that its file names.
pub(crate) const DISPOSAL: &str = "stele disposal 1";
/// How the details of the records begin that only disposals have.
pub(crate) const DESTROYED: &str = "key destroyed: ";
pub(crate) const REPLACED: &str = "replaced: ";
const EXPIRED: &str = "disposed of: ";
const LIFECYCLE: &str = "lifecycle rule `";
/// Records about one version in a certificate at most.
pub(crate) const RECORDS_MAX: usize = 1000;

/// A hold that the version was under.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PastHold {
    /// `s3` is S3's legal hold.
    pub matter: String,
    pub put: String,
    pub put_by: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub released: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub released_by: Option<String>,
}

/// A decision of two people that concerned the version.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PastApproval {
    pub approved: String,
    pub approved_by: String,
    pub asked_by: String,
    pub says: String,
}

/// A segment that held content of the version when it was removed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PastSegment {
    pub segment: u32,
    /// When zeros were written over the whole segment. None: the log has no record of that yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overwritten: Option<String>,
}

/// What records say of a removed version. Times are RFC 3339 on the wall clock, except the
/// compliance time.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Removal {
    pub size_bytes: u64,
    pub blake3: String,
    /// SHA-256 of the content, if the client sent it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stored: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stored_by: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention_mode: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_until: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class_version: Option<u64>,
    /// `expired`, `lifecycle`, `requested`, `governance bypassed` or `replaced`.
    pub cause: String,
    /// Id of the lifecycle rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    pub removed: String,
    pub removed_by: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compliance_time: Option<String>,
    pub holds: Vec<PastHold>,
    pub approvals: Vec<PastApproval>,
    /// When zeros over the entry of its key were durable. None: the log has no record of that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_destroyed: Option<String>,
    /// Segments with its content. None: the log does not name them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub segments: Option<Vec<PastSegment>>,
}

impl Removal {
    fn content(&self) -> (u64, String) {
        (self.size_bytes, self.blake3.clone())
    }
}

/// A signed statement about a removed version, with the records that it rests on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DisposalCertificate {
    pub format: String,
    pub store: String,
    pub bucket: String,
    pub key: String,
    pub version: String,
    pub removal: Removal,
    /// The number of the record of the removal.
    pub record: u64,
    /// When the certificate was signed.
    pub signed: String,
    pub records: Vec<ProvenRecord>,
    pub head: SignedHead,
    pub signature: String,
}

/// Whether a record says that a version with content was removed.
pub(crate) fn is_removal(row: &AuditRow) -> bool {
    let Some(detail) = row.detail.as_deref().map(own_part) else { return false };
    let says = match row.action {
        Action::DeleteObject => detail != "delete marker",
        Action::Expire => detail.starts_with(EXPIRED) || detail.starts_with(LIFECYCLE),
        Action::Dispose => detail.starts_with(REPLACED),
        _ => false,
    };
    says && row.refused.is_none() && row.bucket.is_some() && row.key.is_some() && removed_content(row).is_some()
}

/// Whether a record says how a version was stored.
pub(crate) fn stores(row: &AuditRow) -> bool {
    matches!(row.action, Action::PutObject | Action::CompleteUpload | Action::AddDeleteMarker)
}

/// The segment that a record says was overwritten.
pub(crate) fn segment_overwritten(row: &AuditRow) -> Option<u32> {
    if row.action != Action::Dispose || row.bucket.is_some() {
        return None;
    }
    row.detail.as_deref()?.strip_prefix("segment ")?.strip_suffix(" overwritten and freed")?.parse().ok()
}

/// The decision that an officer approved, and the words of the request.
fn approval_in(row: &AuditRow) -> Option<PastApproval> {
    if row.action != Action::Approve {
        return None;
    }
    let (head, says) = row.detail.as_deref()?.split_once(": ")?;
    let asked = head.strip_prefix("request ")?.split_once(", asked by ")?.1;
    Some(PastApproval {
        approved: row.time.to_string(),
        approved_by: row.actor.to_string(),
        asked_by: asked.to_string(),
        says: says.to_string(),
    })
}

/// Whether an approval is about this version, or about a matter that it was under. A key may have
/// any characters, so words alone do not tell one object from another. Records of older versions
/// have words alone: with grave accents but the two around the name, they are about no version.
pub(crate) fn approves(row: &AuditRow, bucket: &str, key: &str, version: &str, holds: &[PastHold]) -> bool {
    let Some(PastApproval { says, .. }) = approval_in(row) else { return false };
    let closes = |matter: &str| says.starts_with(&format!("the matter `{matter}` is closed for good"));
    let about = says.starts_with(&format!("the event of `{bucket}/{key}` version {version} is taken back: "))
        || says.starts_with(&format!("`{bucket}/{key}` version {version} is deleted"));
    match (&row.bucket, &row.key, &row.version) {
        (None, None, None) => {
            let plain = says.bytes().filter(|byte| *byte == b'`').count() == 2;
            about && plain || holds.iter().any(|hold| closes(&hold.matter))
        }
        named => about && named == (&Some(bucket.into()), &Some(key.into()), &Some(version.into())),
    }
}

/// Parts of the detail of a removal that Stele wrote: behind the rule's id, which a client chose.
fn removal_words(row: &AuditRow) -> &str {
    let detail = row.detail.as_deref().map_or("", own_part);
    match detail.starts_with(LIFECYCLE) {
        true => detail.rsplit_once("`: ").map_or("", |(_, own)| own),
        false => detail,
    }
}

fn removed_content(row: &AuditRow) -> Option<(u64, String)> {
    content_of(removal_words(row))
}

/// Size and BLAKE3, the latter in hexadecimal.
fn content_of(words: &str) -> Option<(u64, String)> {
    let (before, after) = words.split_once(" bytes, blake3 ")?;
    let size = before.rsplit(' ').next()?.parse().ok()?;
    let digest = from_base64(after.split(',').next()?)?;
    (digest.len() == 32).then(|| (size, to_hex(&digest)))
}

/// The text behind a word and before the next comma.
fn field<'a>(words: &'a str, name: &str) -> Option<&'a str> {
    words.split(", ").find_map(|part| part.strip_prefix(name)?.strip_prefix(' '))
}

/// Mode, end, and the class with its version, as the record of an expiration or a replacement
/// states them.
fn kept_in(words: &str, removal: &mut Removal) {
    let Some((mode, rest)) = words.split(", ").find_map(|part| part.split_once(" until ")) else { return };
    let (until, class) = rest.split_once(" by ").unwrap_or((rest, ""));
    (removal.retention_mode, removal.keep_until) = (Some(mode.into()), Some(until.into()));
    class_in(class, removal);
}

fn class_in(words: &str, removal: &mut Removal) {
    let named = words.strip_prefix("class `").and_then(|rest| rest.split_once("` version "));
    if let Some((name, version)) = named {
        (removal.class, removal.class_version) = (Some(name.into()), version.parse().ok());
    }
}

/// A removed version, and the records that say what became of it.
pub(crate) struct Removed<'a> {
    pub bucket: &'a str,
    pub key: &'a str,
    pub version: &'a str,
    /// The number of the record of its removal.
    pub record: u64,
}

impl Removed<'_> {
    /// Whether a record is about the version itself. Approvals stand beside these.
    pub fn concerns(&self, row: &AuditRow) -> bool {
        let names = (row.bucket.as_deref(), row.key.as_deref(), row.version.as_deref());
        names == (Some(self.bucket), Some(self.key), Some(self.version)) && row.action != Action::Approve
    }

    /// What the records say: those about the version in the order of their numbers, approvals, and
    /// overwritten segments. A record that does not belong to the version is a finding.
    pub fn read(&self, rows: &[(u64, AuditRow)]) -> Result<Removal, Finding> {
        let mut removal = Removal::default();
        let (mut first, mut removed) = (None, false);
        for (place, (number, row)) in rows.iter().enumerate() {
            if place > 0 && rows.get(place - 1).is_some_and(|(before, _)| before >= number) {
                return Err(format!("record {number} is not in order"));
            }
            if row.refused.is_some() {
                return Err(format!("record {number} is of a refusal: nothing took place"));
            }
            if !self.concerns(row) {
                continue;
            }
            match number.cmp(&self.record) {
                std::cmp::Ordering::Less if first.is_some() && stores(row) => {
                    return Err(format!("record {number} is about another version of that name"));
                }
                std::cmp::Ordering::Less => self.read_before(row, &mut removal),
                std::cmp::Ordering::Equal => {
                    removed = true;
                    self.read_removal(row, &mut removal)?;
                }
                std::cmp::Ordering::Greater => self.read_after(*number, row, &mut removal)?,
            }
            first = first.or(Some(row));
        }
        if !removed {
            return Err(format!("record {} of the removal is missing", self.record));
        }
        let content = first.filter(|row| stores(row)).and_then(content_in);
        if content.is_some_and(|(size, blake3)| (size, to_hex(&blake3)) != removal.content()) {
            return Err("the version was stored with another content than was removed".into());
        }
        for (number, row) in rows.iter().filter(|(_, row)| !self.concerns(row)) {
            self.read_other(*number, row, &mut removal)?;
        }
        Ok(removal)
    }

    fn read_before(&self, row: &AuditRow, removal: &mut Removal) {
        let detail = row.detail.as_deref().map_or("", own_part);
        if stores(row) {
            removal.stored = Some(row.time.to_string());
            removal.stored_by = Some(row.actor.to_string());
            detail.split(", ").for_each(|part| class_in(part, removal));
            if detail.ends_with(", legal hold") {
                hold(removal, S3, row, None);
            }
        }
        match retention_in(row) {
            Some(Some((mode, until))) => {
                (removal.retention_mode, removal.keep_until) = (Some(mode), Some(until));
            }
            Some(None) => (removal.retention_mode, removal.keep_until) = (None, None),
            None => {}
        }
        match row.action {
            Action::SetLegalHold if detail == "on" => hold(removal, S3, row, None),
            Action::SetLegalHold => release(removal, S3, row, None),
            Action::Matter => {
                let named = detail.strip_prefix("the matter `").and_then(|rest| rest.split_once("` "));
                let Some((matter, rest)) = named else { return };
                let (word, by) = rest.split_once(", asked for by ").map_or((rest, None), |(word, by)| (word, Some(by)));
                match word {
                    "on" => hold(removal, matter, row, by),
                    "off" => release(removal, matter, row, by),
                    _ => {}
                }
            }
            _ => {}
        }
    }

    fn read_removal(&self, row: &AuditRow, removal: &mut Removal) -> Result<(), Finding> {
        if !is_removal(row) {
            return Err(format!("record {} does not say that the version was removed", self.record));
        }
        let words = removal_words(row);
        (removal.size_bytes, removal.blake3) = removed_content(row).unwrap_or_default();
        (removal.removed, removal.removed_by) = (row.time.to_string(), row.actor.to_string());
        let cause = match row.action {
            Action::Dispose => "replaced",
            Action::Expire if words.starts_with(EXPIRED) => "expired",
            Action::Expire => "lifecycle",
            _ if words.ends_with(", GOVERNANCE bypassed") => "governance bypassed",
            _ => "requested",
        };
        removal.cause = cause.into();
        if cause == "lifecycle" {
            let detail = row.detail.as_deref().map_or("", own_part);
            let rule = detail.strip_prefix(LIFECYCLE).and_then(|rest| rest.rsplit_once("`: "));
            removal.rule = rule.map(|(rule, _)| rule.to_owned());
        }
        if matches!(cause, "expired" | "replaced") {
            kept_in(words, removal);
        }
        removal.compliance_time = field(words, "compliance time").map(str::to_owned);
        if let Some(stored) = field(words, "stored") {
            removal.stored = Some(stored.into());
        }
        Ok(())
    }

    /// The only record about it behind its removal: the key is destroyed.
    fn read_after(&self, number: u64, row: &AuditRow, removal: &mut Removal) -> Result<(), Finding> {
        let other = || format!("record {number} is not about the removed version");
        let detail = row.detail.as_deref().filter(|_| row.action == Action::Dispose).ok_or_else(other)?;
        let words = detail.strip_prefix(DESTROYED).ok_or_else(other)?;
        let again = removal.key_destroyed.is_some();
        let stored = field(words, "stored").map(str::to_owned);
        // These removals state when the version was stored; of others the storing record is all
        // there is.
        let exact = matches!(removal.cause.as_str(), "expired" | "lifecycle" | "replaced");
        if again || content_of(words) != Some(removal.content()) || exact && stored != removal.stored {
            return Err(other());
        }
        removal.key_destroyed = Some(row.time.to_string());
        removal.stored = stored.or(removal.stored.take());
        removal.sha256 = field(words, "sha256").map(str::to_owned);
        removal.segments = field(words, "segments").map(|list| {
            let numbers = list.split(' ').filter_map(|number| number.parse().ok());
            numbers.map(|segment| PastSegment { segment, overwritten: None }).collect()
        });
        Ok(())
    }

    fn read_other(&self, number: u64, row: &AuditRow, removal: &mut Removal) -> Result<(), Finding> {
        if let Some(segment) = segment_overwritten(row).filter(|_| number > self.record) {
            let mut segments = removal.segments.iter_mut().flatten();
            if let Some(held) = segments.find(|held| held.segment == segment && held.overwritten.is_none()) {
                held.overwritten = Some(row.time.to_string());
                return Ok(());
            }
        }
        match approval_in(row) {
            Some(approval) if approves(row, self.bucket, self.key, self.version, &removal.holds) => {
                removal.approvals.push(approval);
                Ok(())
            }
            _ => Err(format!("record {number} is not about the removed version")),
        }
    }
}

fn hold(removal: &mut Removal, matter: &str, row: &AuditRow, by: Option<&str>) {
    let under = |hold: &&PastHold| hold.matter == matter && hold.released.is_none();
    if removal.holds.iter().any(|hold| under(&hold)) {
        return;
    }
    removal.holds.push(PastHold {
        matter: matter.into(),
        put: row.time.to_string(),
        put_by: by.map_or_else(|| row.actor.to_string(), str::to_owned),
        released: None,
        released_by: None,
    });
}

fn release(removal: &mut Removal, matter: &str, row: &AuditRow, by: Option<&str>) {
    let mut open = removal.holds.iter_mut().filter(|hold| hold.matter == matter && hold.released.is_none());
    if let Some(hold) = open.next() {
        hold.released = Some(row.time.to_string());
        hold.released_by = Some(by.map_or_else(|| row.actor.to_string(), str::to_owned));
    }
}

impl DisposalCertificate {
    /// The text that is signed: the format, and then a line for each statement, with its length
    /// before its value.
    pub(crate) fn text(&self) -> Vec<u8> {
        let removal = &self.removal;
        let number = |number: Option<u64>| number.map(|number| number.to_string());
        let mut fields = vec![
            ("store", Some(self.store.clone())),
            ("bucket", Some(self.bucket.clone())),
            ("key", Some(self.key.clone())),
            ("version", Some(self.version.clone())),
            ("size", Some(removal.size_bytes.to_string())),
            ("blake3", Some(removal.blake3.clone())),
            ("sha256", removal.sha256.clone()),
            ("stored", removal.stored.clone()),
            ("stored-by", removal.stored_by.clone()),
            ("retention", removal.retention_mode.clone()),
            ("until", removal.keep_until.clone()),
            ("class", removal.class.clone()),
            ("class-version", number(removal.class_version)),
            ("cause", Some(removal.cause.clone())),
            ("rule", removal.rule.clone()),
            ("removed", Some(removal.removed.clone())),
            ("removed-by", Some(removal.removed_by.clone())),
            ("compliance-time", removal.compliance_time.clone()),
        ];
        let or_none = |text: &Option<String>| text.clone().unwrap_or_default();
        for hold in &removal.holds {
            let lines = [&hold.matter, &hold.put, &hold.put_by].map(String::clone).join("\n");
            let value = format!("{lines}\n{}\n{}", or_none(&hold.released), or_none(&hold.released_by));
            fields.push(("hold", Some(value)));
        }
        for approval in &removal.approvals {
            let PastApproval { approved, approved_by, asked_by, says } = approval;
            fields.push(("approval", Some(format!("{approved}\n{approved_by}\n{asked_by}\n{says}"))));
        }
        fields.push(("key-destroyed", removal.key_destroyed.clone()));
        if let Some(segments) = &removal.segments {
            fields.push(("segments", Some(segments.len().to_string())));
            for segment in segments {
                let value = format!("{}\n{}", segment.segment, or_none(&segment.overwritten));
                fields.push(("segment", Some(value)));
            }
        }
        let numbers: Vec<String> = self.records.iter().map(|record| record.record.to_string()).collect();
        fields.push(("record", Some(self.record.to_string())));
        fields.push(("records", Some(numbers.join(","))));
        fields.push(("signed", Some(self.signed.clone())));
        fields.push(("head", Some(self.head.signature.clone())));
        let mut text = format!("{DISPOSAL}\n");
        for (name, value) in fields {
            if let Some(value) = value {
                text.push_str(&format!("{name} {} {value}\n", value.len()));
            }
        }
        text.into_bytes()
    }

    /// Whether this content, hashed as one piece, is that of the removed version.
    pub fn check_content(&self, digests: &ContentDigests) -> Result<(), Finding> {
        let removal = &self.removal;
        if removal.size_bytes != digests.size {
            return Err(format!("the content has {} bytes, the version had another number", digests.size));
        }
        if removal.blake3 != to_hex(&digests.blake3) {
            return Err("the BLAKE3 of the content is another, or the version was stored in parts".into());
        }
        match removal.sha256.as_deref() {
            Some(sha256) if sha256 != to_hex(&digests.sha256) => Err("the SHA-256 of the content is another".into()),
            _ => Ok(()),
        }
    }

    /// Checks everything that the certificate states, with the store's public key and nothing else.
    pub fn verify(&self, public: &[u8]) -> Result<(), Finding> {
        if self.format != DISPOSAL {
            return Err(format!("it is of the format '{}', this version reads '{DISPOSAL}'", self.format));
        }
        check_head(&self.head, public)?;
        let signature = exact_hex(&self.signature).unwrap_or_default();
        if UnparsedPublicKey::new(&ED25519, public).verify(&self.text(), &signature).is_err() {
            return Err(
                "the signature of the certificate does not hold: it was changed, or another key signed it".into()
            );
        }
        if self.store != self.head.store {
            return Err("the head is of another store".into());
        }
        let mut rows = Vec::with_capacity(self.records.len());
        for record in &self.records {
            rows.push((record.record, record.verify(&self.head)?));
        }
        let removed = Removed { bucket: &self.bucket, key: &self.key, version: &self.version, record: self.record };
        match removed.read(&rows)? == self.removal {
            true => Ok(()),
            false => Err("the records of the audit log say something else of the removal".into()),
        }
    }
}
