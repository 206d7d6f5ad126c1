//! Making a retention proof, piece by piece.
//!
//! The archive itself computes the digests of what it hands out and signs the manifest over them.
//! It signs nothing that a caller composed. The head is taken after the versions were read, so that
//! the records under it say how each of them was stored. An export reads the whole audit log once;
//! memory is bounded by the constants below.

mod page;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use aws_lc_rs::digest::{Context, SHA256};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use stele_catalog::{Direction, KeyRange, Transaction};

use crate::audit::Event;
use crate::audit::chain::RUN;
use crate::evidence::bundle::{
    ListedFile, MANIFEST, Manifest, PAGE, POLICY, PROOF, PUBLIC_KEY, ProvenVersion, RECORDS, VERSIONS, is_selected,
};
use crate::evidence::issue::{parts_of, whole_sha256};
use crate::evidence::log::{log_length, proven};
use crate::model::action::Action;
use crate::model::checksum::to_hex;
use crate::model::error::{ArchiveError, Result};
use crate::model::head::SignedHead;
use crate::model::matter::S3;
use crate::model::principal::{Caller, Role};
use crate::record::audit::AuditRow;
use crate::record::{AUDIT, MATTERS, VERSIONS as VERSION_TABLE, decode, keys};
use crate::state::buckets::Bucket;
use crate::store::lookup::Found;
use crate::store::{Archive, Store};
use page::Summary;

/// Versions in one piece, and runs of the audit log read for one piece.
const VERSIONS_MAX: usize = 500;
const RUNS_MAX: u64 = 4;
/// Versions of a matter in one bundle: their ids are kept in memory.
const MATTER_MAX: usize = 1_000_000;
/// What a retention proof is about.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ProofSelection {
    pub bucket: String,
    pub prefix: String,
    /// Only versions under this matter. `s3`: under S3's legal hold.
    pub matter: Option<String>,
}

/// A part of a file of the bundle. Pieces of one file come in order.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ProofPiece {
    pub file: String,
    pub text: String,
    /// Of the last piece, the manifest: its Ed25519 signature, in hexadecimal.
    pub signature: Option<String>,
}

/// An export under way.
pub struct ProofExport {
    archive: Archive,
    selection: ProofSelection,
    bucket: Arc<Bucket>,
    stage: Stage,
    /// SHA-256 and size of each file so far.
    files: BTreeMap<&'static str, (Context, u64)>,
    versions: u64,
    records: u64,
    /// The selected versions, where a matter selects them.
    chosen: Option<BTreeSet<(String, String)>>,
    summary: Summary,
}

enum Stage {
    Versions { after: Option<Bytes> },
    Records { head: SignedHead, run: u64 },
    Policy { head: SignedHead },
    Key { head: SignedHead },
    Page { head: SignedHead },
    Manifest { head: SignedHead },
    Ended,
}

impl Archive {
    /// Begins a retention proof. It takes an auditor, and is recorded.
    pub async fn export_proof(&self, caller: &Caller, selection: ProofSelection) -> Result<ProofExport> {
        let store = &self.store();
        let event = || Event::new(caller, Action::Audit).bucket(&selection.bucket);
        let allowed = caller.require_role(&[Role::Auditor], Action::Audit);
        store.audited(allowed, event).await?;
        let bucket = store.buckets().by_name(&selection.bucket)?;
        if let Some(matter) = selection.matter.as_deref().filter(|matter| *matter != S3)
            && store.snapshot()?.get(MATTERS, matter.as_bytes())?.is_none()
        {
            return Err(ArchiveError::NoSuchThing(format!(
                "there is no matter `{matter}`; the matter of S3's legal hold is `{S3}`"
            )));
        }
        if !store.is_read_only() {
            let matter = selection.matter.as_deref().map(|matter| format!(" under the matter {matter}"));
            let detail = format!(
                "retention proof of `{}/{}`{} exported",
                selection.bucket,
                selection.prefix,
                matter.unwrap_or_default()
            );
            store.record(Transaction::new(), event().detail(detail)).await?;
        }
        Ok(ProofExport {
            archive: self.clone(),
            chosen: selection.matter.is_some().then(BTreeSet::new),
            selection,
            bucket,
            stage: Stage::Versions { after: None },
            files: [PAGE, POLICY, PUBLIC_KEY, RECORDS, VERSIONS]
                .into_iter()
                .map(|name| (name, (Context::new(&SHA256), 0)))
                .collect(),
            versions: 0,
            records: 0,
            summary: Summary::default(),
        })
    }
}

fn line<T: Serialize>(value: &T, text: &mut String) -> Result<()> {
    let json = serde_json::to_string(value);
    text.push_str(&json.map_err(|error| ArchiveError::InvalidState(format!("a line of JSON: {error}")))?);
    text.push('\n');
    Ok(())
}

impl ProofExport {
    /// The next piece. None: the last one, the manifest, was given.
    pub async fn next(&mut self) -> Result<Option<ProofPiece>> {
        let store = self.archive.store();
        let (file, text, next) = match std::mem::replace(&mut self.stage, Stage::Ended) {
            Stage::Versions { after } => {
                let (text, after) = self.read_versions(&store, after)?;
                let next = match after {
                    Some(after) => Stage::Versions { after: Some(after) },
                    None => Stage::Records { head: self.archive.audit_head_to_send().await?, run: 0 },
                };
                (VERSIONS, text, next)
            }
            Stage::Records { head, run } => {
                let end = head.records.div_ceil(RUN).min(run + RUNS_MAX);
                let mut text = String::new();
                for run in run..end {
                    self.read_run(&store, &head, run, &mut text).await?;
                }
                let next = match end * RUN >= head.records {
                    true => Stage::Policy { head },
                    false => Stage::Records { head, run: end },
                };
                (RECORDS, text, next)
            }
            Stage::Policy { head } => (POLICY, self.policy()?, Stage::Key { head }),
            Stage::Key { head } => (PUBLIC_KEY, format!("{}\n", head.public_key), Stage::Page { head }),
            Stage::Page { head } => {
                let page = self.summary.page(&self.selection, &head, self.versions, self.records);
                (PAGE, page, Stage::Manifest { head })
            }
            Stage::Manifest { head } => return self.manifest(&store, head).map(Some),
            Stage::Ended => return Ok(None),
        };
        if let Some((digest, size)) = self.files.get_mut(file) {
            digest.update(text.as_bytes());
            *size += text.len() as u64;
        }
        self.stage = next;
        Ok(Some(ProofPiece { file: file.into(), text, signature: None }))
    }

    fn read_versions(&mut self, store: &Store, after: Option<Bytes>) -> Result<(String, Option<Bytes>)> {
        let snapshot = store.snapshot()?;
        let as_of = log_length(&*snapshot)?;
        let range = KeyRange::prefix(keys::prefix(self.bucket.number, &self.selection.prefix));
        let range = match after {
            Some(after) => range.after(after),
            None => range,
        };
        let page = snapshot.range(VERSION_TABLE, &range, VERSIONS_MAX, Direction::Forward)?;
        let next = page.last().filter(|_| page.len() == VERSIONS_MAX).map(|(key, _)| key.clone());
        let mut text = String::new();
        for (record_key, value) in &page {
            let (_, key, _) = keys::split(record_key)?;
            let found = Found::of(record_key, value, false)?;
            let row = &found.row;
            if self.selection.matter.as_deref().is_some_and(|matter| !row.is_under(matter)) {
                continue;
            }
            let version = ProvenVersion {
                key,
                version: found.id().to_string(),
                delete_marker: row.marker,
                size_bytes: row.size,
                blake3: to_hex(&row.blake3),
                parts: parts_of(row, &*snapshot)?,
                sha256: whole_sha256(row),
                stored: row.modified.to_string(),
                owner: row.owner.to_string(),
                retention_mode: row.retention.map(|retention| retention.mode.to_string()),
                keep_until: row.retention.map(|retention| retention.until.to_string()),
                legal_hold: row.hold,
                as_of,
            };
            if let Some(chosen) = &mut self.chosen {
                if chosen.len() == MATTER_MAX {
                    return Err(ArchiveError::InvalidArgument(format!(
                        "the matter has more than {MATTER_MAX} versions below this prefix; export it prefix by prefix"
                    )));
                }
                chosen.insert((version.key.clone(), version.version.clone()));
            }
            self.versions += 1;
            line(&version, &mut text)?;
            self.summary.add_version(version);
        }
        Ok((text, next))
    }

    async fn read_run(&mut self, store: &Store, head: &SignedHead, run: u64, text: &mut String) -> Result<()> {
        let (read, log_path) = store.proven_run(run, head).await?;
        let view = read.run.view(read.run.records());
        for (place, (number, value)) in read.values.iter().enumerate() {
            let row: AuditRow = decode(AUDIT, &keys::number(*number), value)?;
            if !is_selected(&row, &self.selection.bucket, &self.selection.prefix) || !self.is_chosen(&row) {
                continue;
            }
            let place = place as u64;
            let previous = read.run.links_at(place).map(|(_, before)| before).unwrap_or_default();
            line(&proven(*number, previous, value, view.path(place), log_path.clone()), text)?;
            self.records += 1;
            self.summary.add_record(*number, row);
        }
        Ok(())
    }

    /// Where a matter selects, a record about a key is chosen with its version.
    fn is_chosen(&self, row: &AuditRow) -> bool {
        let (Some(chosen), Some(key)) = (&self.chosen, &row.key) else { return true };
        row.version.as_ref().is_some_and(|version| chosen.contains(&(key.clone(), version.clone())))
    }

    /// The bucket's settings now. Its history is in the records.
    fn policy(&self) -> Result<String> {
        let info = self.archive.store().buckets().by_name(&self.selection.bucket)?.row.info();
        let default = info.object_lock.and_then(|lock| lock.default);
        let mut text = String::new();
        let policy = serde_json::json!({
            "bucket": info.name,
            "created": info.created.to_string(),
            "owner": info.owner,
            "object_lock": info.object_lock.is_some(),
            "default_mode": default.map(|default| default.mode.to_string()),
            "default_days": default.map(|default| default.period.days()),
            "protection": format!("{:?}", info.protection).to_lowercase(),
            "expiry": format!("{:?}", info.expiry).to_lowercase(),
        });
        line(&policy, &mut text)?;
        Ok(text)
    }

    fn manifest(&mut self, store: &Store, head: SignedHead) -> Result<ProofPiece> {
        let files = std::mem::take(&mut self.files).into_iter().map(|(name, (digest, size))| ListedFile {
            name: name.into(),
            size_bytes: size,
            sha256: to_hex(digest.finish().as_ref()),
        });
        let manifest = Manifest {
            format: PROOF.into(),
            store: head.store.clone(),
            exported: store.wall().to_string(),
            bucket: self.selection.bucket.clone(),
            prefix: self.selection.prefix.clone(),
            matter: self.selection.matter.clone(),
            versions: self.versions,
            records: self.records,
            head,
            files: files.collect(),
        };
        let mut text = String::new();
        line(&manifest, &mut text)?;
        let signature = store.signing().sign(format!("{PROOF}\n{text}").as_bytes());
        Ok(ProofPiece { file: MANIFEST.into(), text, signature: Some(to_hex(&signature)) })
    }
}
