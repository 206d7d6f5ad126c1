//! The files of a retention proof, and their verification without a store. FORMAT/evidence.md
//! describes them.
//!
//! Input is not trusted: a file may be missing, cut, altered or exchanged. The signature covers the
//! manifest, the manifest covers each file, and the records in the bundle must lead to the signed
//! head and agree with the versions.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, Read};

use aws_lc_rs::digest::{Context, SHA256};
use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::evidence::receipt::{Finding, ProvenRecord, check_head, content_in, exact_hex, own_part};
use crate::model::action::Action;
use crate::model::checksum::to_hex;
use crate::model::head::SignedHead;
use crate::model::matter::S3;
use crate::record::audit::AuditRow;

/// The format that a manifest names, and the first line of what is signed.
pub(crate) const PROOF: &str = "stele proof 1";

pub(crate) const MANIFEST: &str = "manifest.json";
pub(crate) const SIGNATURE: &str = "manifest.sig";
pub(crate) const VERSIONS: &str = "versions.jsonl";
pub(crate) const RECORDS: &str = "records.jsonl";
pub(crate) const POLICY: &str = "policy.json";
pub(crate) const PUBLIC_KEY: &str = "public-key";
pub(crate) const PAGE: &str = "index.html";

/// The files that the manifest lists, all of them.
const LISTED: [&str; 5] = [PAGE, POLICY, PUBLIC_KEY, RECORDS, VERSIONS];
/// Largest manifest, and largest line of the other files.
const MANIFEST_MAX: u64 = 1 << 20;
const LINE_MAX: u64 = 4 << 20;

/// One file under the manifest.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListedFile {
    pub name: String,
    pub size_bytes: u64,
    pub sha256: String,
}

/// What a bundle is about. The store signs it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    pub format: String,
    pub store: String,
    pub exported: String,
    pub bucket: String,
    pub prefix: String,
    /// None: every version below the prefix.
    pub matter: Option<String>,
    pub versions: u64,
    pub records: u64,
    pub head: SignedHead,
    pub files: Vec<ListedFile>,
}

/// A version as it was when the archive read it for the bundle.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProvenVersion {
    pub key: String,
    pub version: String,
    pub delete_marker: bool,
    pub size_bytes: u64,
    pub blake3: String,
    pub parts: Option<Vec<(u64, u64)>>,
    pub sha256: Option<String>,
    pub stored: String,
    pub owner: String,
    pub retention_mode: Option<String>,
    pub keep_until: Option<String>,
    pub legal_hold: bool,
    /// The last record of the audit log when this was read.
    pub as_of: u64,
}

/// What a sound bundle proves.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ProofVerdict {
    pub store: String,
    pub public_key: String,
    /// The key was given from outside the bundle.
    pub key_given: bool,
    pub bucket: String,
    pub prefix: String,
    pub matter: Option<String>,
    pub versions: u64,
    pub records: u64,
    pub head_records: u64,
    pub head_time: String,
    #[serde(skip)]
    pub head: SignedHead,
}

/// The files of a bundle, wherever they are.
pub trait BundleFiles {
    /// The names of everything there.
    fn names(&self) -> Result<Vec<String>, Finding>;
    fn open(&self, name: &str) -> Result<Box<dyn Read + '_>, Finding>;
}

/// Size and BLAKE3.
type Content = (u64, [u8; 32]);

/// The mode and the end of a retention, in words.
type Kept = (String, String);

/// What the records say of a version.
#[derive(Default)]
struct History {
    /// The records of its storing: number, size and BLAKE3 if stated. A null version is stored
    /// again and again.
    stored: Vec<(u64, Option<Content>)>,
    /// Retentions that were set, and holds, with the number of the record.
    retentions: Vec<(u64, Option<Kept>)>,
    holds: Vec<(u64, bool)>,
    /// Whether it came under the matter of the manifest or left it, with the number of the record.
    under: Vec<(u64, bool)>,
    /// The records of its removal.
    removed: Vec<u64>,
}

/// Checks a bundle against this public key, or, without one, against the key in the bundle.
pub fn verify_bundle(files: &dyn BundleFiles, public: Option<&[u8]>) -> Result<ProofVerdict, Finding> {
    verify_bundle_with(files, public, &mut |_| Ok(()))
}

/// As [`verify_bundle`]. `each` is called with every version that holds, in the order of the
/// bundle: by key, the newest version of a key first. Its finding refutes the bundle.
pub fn verify_bundle_with(
    files: &dyn BundleFiles,
    public: Option<&[u8]>,
    each: &mut dyn FnMut(&ProvenVersion) -> Result<(), Finding>,
) -> Result<ProofVerdict, Finding> {
    let names: BTreeSet<String> = files.names()?.into_iter().collect();
    let known: BTreeSet<String> = LISTED.iter().chain(&[MANIFEST, SIGNATURE]).map(ToString::to_string).collect();
    if let Some(missing) = known.difference(&names).next() {
        return Err(format!("{missing} is missing"));
    }
    if let Some(strange) = names.difference(&known).next() {
        return Err(format!("{strange} is no part of a retention proof"));
    }
    let key = public_key(&whole(files, PUBLIC_KEY, 65)?)?;
    if public.is_some_and(|public| public != key) {
        return Err("the bundle names another public key than the one given".into());
    }
    let text = whole(files, MANIFEST, MANIFEST_MAX)?;
    let signature = whole(files, SIGNATURE, 64)?;
    let signed = [format!("{PROOF}\n").as_bytes(), &text].concat();
    if UnparsedPublicKey::new(&ED25519, key).verify(&signed, &signature).is_err() {
        return Err(format!("the signature of {MANIFEST} does not hold: one of them was changed"));
    }
    let manifest: Manifest = parse(MANIFEST, 1, &text)?;
    check_manifest(&manifest, &key)?;
    for file in &manifest.files {
        check_file(files, file)?;
    }
    let histories = read_records(files, &manifest)?;
    read_versions(files, &manifest, &histories, each)?;
    Ok(ProofVerdict {
        store: manifest.store,
        public_key: to_hex(&key),
        key_given: public.is_some(),
        bucket: manifest.bucket,
        prefix: manifest.prefix,
        matter: manifest.matter,
        versions: manifest.versions,
        records: manifest.records,
        head_records: manifest.head.records,
        head_time: manifest.head.time.clone(),
        head: manifest.head,
    })
}

/// Reads a public key as Stele writes it: 64 hexadecimal digits and a newline.
pub fn public_key(text: &[u8]) -> Result<[u8; 32], Finding> {
    let line = std::str::from_utf8(text).ok().and_then(|text| text.strip_suffix('\n')).unwrap_or_default();
    exact_hex(line)
        .and_then(|bytes| bytes.try_into().ok())
        .ok_or_else(|| "a public key is 64 lower-case hexadecimal digits and a newline".into())
}

fn check_manifest(manifest: &Manifest, key: &[u8]) -> Result<(), Finding> {
    if manifest.format != PROOF {
        return Err(format!("the bundle is of the format '{}', this version reads '{PROOF}'", manifest.format));
    }
    check_head(&manifest.head, key)?;
    if manifest.head.store != manifest.store {
        return Err("the head is of another store than the manifest".into());
    }
    let listed: Vec<&str> = manifest.files.iter().map(|file| file.name.as_str()).collect();
    match listed == LISTED {
        true => Ok(()),
        false => Err(format!("the manifest lists {}, not {}", listed.join(", "), LISTED.join(", "))),
    }
}

fn check_file(files: &dyn BundleFiles, file: &ListedFile) -> Result<(), Finding> {
    let (mut digest, mut size, mut buffer) = (Context::new(&SHA256), 0, vec![0; 64 << 10]);
    let mut reader = files.open(&file.name)?;
    loop {
        let count = reader.read(&mut buffer).map_err(|error| format!("{} cannot be read: {error}", file.name))?;
        let Some(read) = buffer.get(..count).filter(|read| !read.is_empty()) else { break };
        digest.update(read);
        size += count as u64;
    }
    match size == file.size_bytes && to_hex(digest.finish().as_ref()) == file.sha256 {
        true => Ok(()),
        false => Err(format!("{} is not the file that the manifest lists: it was changed", file.name)),
    }
}

fn whole(files: &dyn BundleFiles, name: &str, limit: u64) -> Result<Vec<u8>, Finding> {
    let mut bytes = Vec::new();
    let read = files.open(name)?.take(limit + 1).read_to_end(&mut bytes);
    read.map_err(|error| format!("{name} cannot be read: {error}"))?;
    match bytes.len() as u64 > limit {
        true => Err(format!("{name} has more than {limit} bytes")),
        false => Ok(bytes),
    }
}

fn parse<T: DeserializeOwned>(name: &str, line: u64, text: &[u8]) -> Result<T, Finding> {
    serde_json::from_slice(text).map_err(|error| format!("{name}, line {line}: {error}"))
}

/// Calls `each` with every line of a file.
fn lines<T: DeserializeOwned>(
    files: &dyn BundleFiles,
    name: &str,
    mut each: impl FnMut(T) -> Result<(), Finding>,
) -> Result<u64, Finding> {
    let mut reader = std::io::BufReader::new(files.open(name)?);
    let (mut count, mut line) = (0, Vec::new());
    loop {
        line.clear();
        let read = reader.by_ref().take(LINE_MAX).read_until(b'\n', &mut line);
        if read.map_err(|error| format!("{name} cannot be read: {error}"))? == 0 {
            return Ok(count);
        }
        count += 1;
        each(parse(name, count, &line)?).map_err(|finding| format!("{name}, line {count}: {finding}"))?;
    }
}

/// Whether a record belongs into a bundle of this selection, as far as bucket and prefix decide it.
pub(crate) fn is_selected(row: &AuditRow, bucket: &str, prefix: &str) -> bool {
    row.bucket.as_deref() == Some(bucket) && row.key.as_deref().is_none_or(|key| key.starts_with(prefix))
}

/// The retention that a record sets; the inner None: it lifts the retention.
pub(crate) fn retention_in(row: &AuditRow) -> Option<Option<Kept>> {
    let detail = own_part(row.detail.as_deref()?);
    let kept = || {
        let (before, after) = detail.split_once(" until ")?;
        let mode = before.rsplit(' ').next().filter(|mode| !mode.is_empty())?;
        Some((mode.to_owned(), after.split(',').next()?.to_owned()))
    };
    match row.action {
        Action::SetRetention if detail.starts_with("none") => Some(None),
        Action::SetRetention | Action::PutObject | Action::CompleteUpload => kept().map(Some),
        _ => None,
    }
}

/// Whether a record says that a version is gone. An expiration that only notifies leaves it.
fn removes(row: &AuditRow) -> bool {
    let notifies = || row.detail.as_deref().is_some_and(|detail| detail.starts_with("its "));
    row.action == Action::DeleteObject || (row.action == Action::Expire && !notifies())
}

/// Whether a record about a version says that it came under this matter, or left it.
fn under_matter(row: &AuditRow, matter: Option<&str>) -> Option<bool> {
    let (named, rest) = own_part(row.detail.as_deref()?).strip_prefix("the matter `")?.split_once("` ")?;
    match rest.split(',').next() {
        Some("on") if Some(named) == matter => Some(true),
        Some("off") if Some(named) == matter => Some(false),
        _ => None,
    }
}

fn read_records(files: &dyn BundleFiles, manifest: &Manifest) -> Result<BTreeMap<(String, String), History>, Finding> {
    let mut histories: BTreeMap<(String, String), History> = BTreeMap::new();
    let mut last = 0;
    let count = lines(files, RECORDS, |proven: ProvenRecord| {
        let row = proven.verify(&manifest.head)?;
        if proven.record <= last {
            return Err(format!("record {} comes after record {last}", proven.record));
        }
        last = proven.record;
        if !is_selected(&row, &manifest.bucket, &manifest.prefix) {
            return Err(format!("record {last} is not about the selection"));
        }
        let (None, Some(key), Some(version)) = (&row.refused, &row.key, &row.version) else { return Ok(()) };
        let history = histories.entry((key.clone(), version.clone())).or_default();
        match row.action {
            Action::PutObject | Action::CompleteUpload | Action::AddDeleteMarker => {
                history.stored.push((last, content_in(&row)));
                let held = row.detail.as_deref().is_some_and(|detail| detail.ends_with(", legal hold"));
                history.holds.extend(held.then_some((last, true)));
            }
            Action::SetLegalHold => history.holds.push((last, row.detail.as_deref().map(own_part) == Some("on"))),
            Action::Matter => {
                history.under.extend(under_matter(&row, manifest.matter.as_deref()).map(|under| (last, under)));
            }
            _ => {}
        }
        history.retentions.extend(retention_in(&row).map(|kept| (last, kept)));
        history.removed.extend(removes(&row).then_some(last));
        Ok(())
    })?;
    match count == manifest.records {
        true => Ok(histories),
        false => Err(format!("{RECORDS} has {count} records, the manifest says {}", manifest.records)),
    }
}

fn read_versions(
    files: &dyn BundleFiles,
    manifest: &Manifest,
    histories: &BTreeMap<(String, String), History>,
    each: &mut dyn FnMut(&ProvenVersion) -> Result<(), Finding>,
) -> Result<(), Finding> {
    let count = lines(files, VERSIONS, |version: ProvenVersion| {
        if !version.key.starts_with(&manifest.prefix) || version.as_of > manifest.head.records {
            return Err("the version is not of the selection".into());
        }
        let known = histories.get(&(version.key.clone(), version.version.clone()));
        let stored = known.and_then(|history| {
            let stored = history.stored.iter().rev().find(|(record, _)| *record <= version.as_of);
            stored.map(|stored| (history, *stored))
        });
        let Some((history, (number, content))) = stored else {
            return Err(format!("no record says how `{}` version {} was stored", version.key, version.version));
        };
        if let Some((size, blake3)) = content
            && (size != version.size_bytes || to_hex(&blake3) != version.blake3)
        {
            return Err(format!("record {number} says another size or BLAKE3 of `{}`", version.key));
        }
        let before = |record: &u64| (number..=version.as_of).contains(record);
        if let Some(record) = history.removed.iter().find(|record| before(record)) {
            return Err(format!("record {record} says that `{}` version {} was removed", version.key, version.version));
        }
        let kept = version.retention_mode.clone().zip(version.keep_until.clone());
        if version.retention_mode.is_some() != version.keep_until.is_some() {
            return Err(format!("the retention of `{}` has no mode or no end", version.key));
        }
        let retention = history.retentions.iter().rev().find(|(record, _)| before(record));
        if let Some((record, said)) = retention
            && *said != kept
        {
            return Err(format!("record {record} sets another retention of `{}`", version.key));
        }
        let hold = history.holds.iter().rev().find(|(record, _)| before(record));
        if let Some((record, hold)) = hold
            && *hold != version.legal_hold
        {
            return Err(format!("record {record} says something else of the legal hold of `{}`", version.key));
        }
        let under = match manifest.matter.as_deref() {
            None => true,
            Some(S3) => version.legal_hold,
            Some(_) => history.under.iter().rev().find(|(record, _)| before(record)).is_some_and(|(_, under)| *under),
        };
        match under {
            true => each(&version),
            false => Err(format!("by the records `{}` was not under the matter of the proof", version.key)),
        }
    })?;
    match count == manifest.versions {
        true => Ok(()),
        false => Err(format!("{VERSIONS} has {count} versions, the manifest says {}", manifest.versions)),
    }
}
