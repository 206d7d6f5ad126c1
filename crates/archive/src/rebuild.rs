//! Rebuilding the catalog from the data volume alone.
//!
//! The volume has all facts that matter: frames and notes in segments, and the existing objects in
//! the key table. Every note carries a rising sequence number; of several notes of one thing the
//! highest counts. A version exists if its entry in the key table does.
//!
//! A crash between a note and its commit can thus bring back a write that was never acknowledged. A
//! crash between a removal's commit and the destruction of its key can undo that removal, which was
//! not acknowledged either. In both cases data is kept rather than lost. A change of something that
//! exists and that a crash cut off is taken back by the next opening with the old catalog. Only if
//! that catalog is lost first does the newest note count. Unreadable places are reported, and
//! nothing is guessed in their stead.
//!
//! An unreadable place may hold a note. Then the newest readable note of a thing is not proven to
//! be its newest. A rebuild refuses such a volume unless losses are accepted; in that case
//! everything that exists is held (see `retention::doubt`). A record that a crash tore is no loss:
//! it was never acknowledged, and unlike bytes that drives lost it is readable. A version of whose
//! content a crash tore a piece is dropped. Where the content of a version is missing and its note
//! is among the last before a crash, it is kept as damaged, which is no loss either.
//!
//! A rebuild has two halves. The first fills an empty catalog with everything except the store's
//! identity, so an unfinished catalog is never taken for a finished one. The second verifies it and
//! writes the identity. Nothing on the data volume changes before the rebuilt catalog is opened.
//!
//! Memory: an index of all versions, pieces and entries. A rebuild is a rare operation.

mod classes;
mod doubted;
mod survey;
mod versions;
mod write;

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use stele_catalog::{Catalog, Head, Transaction};
use stele_media::Handle;

use crate::audit::Event;
use crate::audit::chain::walk_links;
use crate::model::action::Action;
use crate::model::error::{ArchiveError, Result};
use crate::model::head::SignedHead;
use crate::model::mutation::Mutation;
use crate::model::principal::Caller;
use crate::model::secrets::MasterKey;
use crate::record::access_key::AccessKeyRow;
use crate::record::bucket::BucketRow;
use crate::record::settings::{AUDIT_HEAD, IDENTITY, IdentityRow};
use crate::record::version::VersionRow;
use crate::record::{ACCESS_KEYS, BUCKETS, SETTINGS, VERSIONS, decode, encode};
use crate::seal::derive;
use crate::space::superblock::Superblock;
use crate::state::buckets::Bucket;
use crate::store::Archive;
use crate::store::foundation::{Foundation, Options};
use crate::store::scan::scan;

use self::survey::Survey;
use self::write::write;

/// The result of a rebuild.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RebuildReport {
    pub segments: u64,
    pub records: u64,
    pub buckets: u64,
    pub versions: u64,
    pub delete_markers: u64,
    pub access_keys: u64,
    pub audit_records: u64,
    /// Entries of the key table without a readable version: uploads under way, writes never
    /// acknowledged, or versions whose note is damaged. The entries stay.
    pub unclaimed_keys: u64,
    /// Unreadable and incomplete things, with their places.
    pub findings: Vec<String>,
    /// The findings that may have held the latest state of something.
    #[serde(default)]
    pub losses: Vec<String>,
    /// Why expiration is frozen, if it is.
    #[serde(default)]
    pub frozen: Option<String>,
}

/// The options of a rebuild.
#[derive(Clone, Default, Debug)]
pub struct Rebuild {
    /// Continue in spite of unreadable places, and hold everything that exists under the matter
    /// `rebuild`.
    pub accept_losses: bool,
    /// Heads of the audit log that were kept elsewhere. They show how far the log reached.
    pub heads: Vec<SignedHead>,
    /// Losses that the caller knows of.
    pub losses: Vec<String>,
}

/// A catalog with everything except the store's identity.
pub struct Filled {
    identity: IdentityRow,
    pub report: RebuildReport,
}

/// The superblock of the store on the data volume, if the key is its master key.
async fn read_superblock(data: &Handle, master: &MasterKey) -> Result<Superblock> {
    let Some(superblock) = Superblock::read(data).await? else {
        return Err(ArchiveError::InvalidState("the data volume holds no store".into()));
    };
    if Superblock::fingerprint(master, &superblock.store) != superblock.fingerprint {
        return Err(crate::seal::wrong_key("the store"));
    }
    Ok(superblock)
}

impl Archive {
    /// Whether a rebuild could begin. Asked before any catalog is wiped for it.
    pub async fn can_rebuild(data: &Handle, master: &MasterKey) -> Result<()> {
        read_superblock(data, master).await.map(drop)
    }

    /// Whether the data volume takes the pairing with a new catalog, which is the last write of a
    /// rebuild. Asked before the first one. Writes the superblock unchanged.
    pub async fn can_pair(data: &Handle, master: &MasterKey) -> Result<()> {
        read_superblock(data, master).await?.write_somewhere(data).await
    }

    /// Fills an empty catalog from the data volume and opens the store. Refuses where something
    /// cannot be read.
    pub async fn rebuild(foundation: Foundation, options: Options) -> Result<(Archive, RebuildReport)> {
        let filled = Archive::fill(&foundation, &options, Rebuild::default()).await?;
        filled.adopt(foundation, options).await
    }

    /// The first half: everything except the identity.
    pub async fn fill(foundation: &Foundation, options: &Options, rebuild: Rebuild) -> Result<Filled> {
        let superblock = read_superblock(&foundation.data, &foundation.master).await?;
        if foundation.catalog.snapshot()?.get(SETTINGS, IDENTITY)?.is_some() {
            return Err(ArchiveError::InvalidState(
                "the catalog is not empty; move it away first, a rebuild writes a new one".into(),
            ));
        }
        let mut survey = Survey { without: options.without, ..Survey::default() };
        survey.headers(&foundation.data, &superblock).await?;
        survey.key_table(&foundation.data, &superblock).await?;
        let note_key = derive(&foundation.master.0, "notes", &superblock.store);
        // Buckets first, since their keys open the notes of versions.
        survey.walk(&foundation.data, &superblock, &note_key, None).await?;
        survey.drop_withdrawn();
        survey.drop_cut_off();
        survey.begin_doubted();
        survey.rename_duplicate_buckets(foundation.surroundings.now().wall);
        let mut buckets = BTreeMap::new();
        for (number, (_, row, _)) in &survey.buckets {
            let bucket = Bucket::open(&foundation.master, *number, row.clone(), Bytes::new())?;
            buckets.insert(*number, bucket);
        }
        survey.walk(&foundation.data, &superblock, &note_key, Some(&buckets)).await?;
        survey.strengthen();
        survey.drop_torn(&rebuild.losses);
        survey.report_missing_pieces(&superblock);
        survey.losses.extend(rebuild.losses);
        let reached = survey.reached(foundation, &superblock, &rebuild.heads)?;
        if survey.without.has(Mutation::Losses) {
            survey.findings.append(&mut survey.losses);
        }
        if !rebuild.accept_losses && !survey.losses.is_empty() {
            let first: Vec<&str> = survey.losses.iter().take(3).map(String::as_str).collect();
            return Err(ArchiveError::damaged(
                "the data volume",
                format!(
                    "{} places cannot be read, so the latest retention of the stored versions is not proven; the first: {}",
                    survey.losses.len(),
                    first.join("; ")
                ),
            ));
        }
        write(foundation, &superblock, survey, &buckets, reached).await
    }
}

impl Filled {
    /// Whether this catalog is empty, or a rebuild began to fill it and did not finish.
    pub fn is_unfinished(catalog: &dyn Catalog) -> Result<bool> {
        Ok(catalog.snapshot()?.get(SETTINGS, IDENTITY)?.is_none())
    }

    /// Verifies that the catalog, when read again, holds the found records. Asked before anything
    /// depends on it.
    pub fn check(&self, catalog: &dyn Catalog) -> Result<()> {
        let mut counts = [0u64; 3];
        scan(catalog, VERSIONS, |key, value| decode::<VersionRow>(VERSIONS, key, value).map(|_| counts[0] += 1))?;
        scan(catalog, BUCKETS, |key, value| decode::<BucketRow>(BUCKETS, key, value).map(|_| counts[1] += 1))?;
        scan(catalog, ACCESS_KEYS, |key, value| {
            decode::<AccessKeyRow>(ACCESS_KEYS, key, value).map(|_| counts[2] += 1)
        })?;
        let report = &self.report;
        let expected = [report.versions + report.delete_markers, report.buckets, report.access_keys];
        let mut end = Head::default();
        let snapshot = catalog.snapshot()?;
        walk_links(&*snapshot, (0, end.link), |count, link| {
            end = Head { count, link: *link };
            true
        })?;
        let head = Head::decode(snapshot.get(SETTINGS, AUDIT_HEAD)?.as_deref())?;
        if counts != expected || end != head || head.count != report.audit_records {
            return Err(ArchiveError::damaged(
                "the rebuilt catalog",
                format!(
                    "it holds {} versions, buckets and keys where {} were found",
                    counts.map(|n| n.to_string()).join(", "),
                    expected.map(|n| n.to_string()).join(", ")
                ),
            ));
        }
        Ok(())
    }

    /// The second half: the catalog becomes the store's, and the store is opened.
    pub async fn adopt(self, foundation: Foundation, options: Options) -> Result<(Archive, RebuildReport)> {
        self.check(&*foundation.catalog)?;
        let identity = Transaction::new().put(SETTINGS, IDENTITY, encode(&self.identity));
        foundation.catalog.commit(identity).await?;
        let archive = Archive::open(foundation, options).await?;
        let report = self.report;
        let frozen = report.frozen.as_ref().map_or_else(String::new, |why| format!("; expiration is frozen: {why}"));
        let event = Event::new(&Caller::system("rebuild"), Action::Rebuild).detail(format!(
            "{} versions, {} buckets, {} audit records, {} findings, {} losses{frozen}",
            report.versions,
            report.buckets,
            report.audit_records,
            report.findings.len(),
            report.losses.len()
        ));
        archive.store().record(Transaction::new().with_reserve(), event).await?;
        Ok((archive, report))
    }
}
