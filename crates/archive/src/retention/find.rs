//! Search for versions by their properties, page by page: by the index, or by a scan below a
//! prefix. It reads the catalog alone.

pub(crate) mod candidates;

use serde::{Deserialize, Serialize};
use stele_catalog::Snapshot;

use crate::audit::Event;
use crate::model::action::Action;
use crate::model::checksum::to_hex;
use crate::model::error::{ArchiveError, Result};
use crate::model::matter::Selection;
use crate::model::principal::{Caller, Role};
use crate::model::version::Tags;
use crate::record::properties::{INDEX, IndexRow, IndexStage};
use crate::record::version::VersionRow;
use crate::record::{SETTINGS, keys};
use crate::retention::find::candidates::{Below, Candidates};
use crate::retention::holding::{selects, version_after};
use crate::retention::matters::is_reserved;
use crate::store::lookup::Found;
use crate::store::{Archive, Store};

/// Rows per read, and the rows and finds after which a page ends.
const ROWS: usize = if cfg!(test) { 20 } else { 1000 };
const SEEN_MAX: u64 = 10_000;
const FOUND_MAX: usize = 1000;
/// The beginning of a page's name, if no index is quicker than the scan of all versions behind it.
const SCANNED: &str = "scan-";

/// The properties that a version must have, all of them.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct FindQuery {
    pub selection: Selection,
    pub class: Option<String>,
    /// Under this matter; `s3` is the legal hold.
    pub matter: Option<String>,
    /// Bytes, both included.
    pub size_min: Option<u64>,
    pub size_max: Option<u64>,
    /// The beginning of the content type.
    pub content_type: String,
    /// The client's own metadata, with these values.
    pub metadata: Tags,
}

/// A version that was found.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FoundVersion {
    pub bucket: String,
    pub key: String,
    pub version: String,
    pub size_bytes: u64,
    /// RFC 3339.
    pub stored: String,
    pub owner: String,
    pub blake3: String,
    pub content_type: Option<String>,
    pub retention_mode: Option<String>,
    pub keep_until: Option<String>,
    pub class: Option<String>,
    /// The date of the event of its class.
    pub event: Option<String>,
    pub matters: Vec<String>,
    pub tags: Tags,
}

impl FindQuery {
    pub(crate) fn finds(&self, row: &VersionRow) -> bool {
        let content_type = row.metadata.headers.get("content-type").map_or("", String::as_str);
        selects(&self.selection, row)
            && self.class.as_ref().is_none_or(|class| row.class.as_ref().is_some_and(|mark| mark.name == *class))
            && self.matter.as_ref().is_none_or(|matter| row.is_under(matter))
            && self.size_min.is_none_or(|least| row.size >= least)
            && self.size_max.is_none_or(|most| row.size <= most)
            && content_type.starts_with(self.content_type.as_str())
            && self.metadata.iter().all(|(name, value)| row.metadata.user.get(name) == Some(value))
    }
}

impl Archive {
    /// A page of the versions that the query finds, in the order of keys, the newest first. Delete
    /// markers are never found.
    pub async fn find(
        &self,
        caller: &Caller,
        query: &FindQuery,
        after: Option<&str>,
    ) -> Result<(Vec<FoundVersion>, Option<String>)> {
        let store = &self.store();
        let allowed =
            caller.require_role(&[Role::RetentionOfficer, Role::Auditor, Role::StorageAdministrator], Action::List);
        store.audited(allowed, || Event::new(caller, Action::List).bucket(&query.selection.bucket)).await?;
        let bucket = store.selectable(&query.selection)?;
        // An empty answer to a mistyped name reads as if nothing were held.
        if let Some(class) = &query.class {
            store.existing_class(class)?;
        }
        if let Some(matter) = query.matter.as_deref().filter(|matter| !is_reserved(matter)) {
            store.existing_matter(matter)?;
        }
        if let (Some(least), Some(most)) = (query.size_min, query.size_max)
            && least > most
        {
            return Err(ArchiveError::InvalidArgument(format!("no size is {least} bytes at least and {most} at most")));
        }
        // The page before found no index that is quicker than the scan.
        let scanned = after.and_then(|after| after.strip_prefix(SCANNED));
        let mut after = version_after(scanned.or(after))?;
        let snapshot = store.snapshot()?;
        let below = Below { snapshot: &*snapshot, bucket: bucket.number, prefix: &query.selection.prefix };
        let mut candidates = match store.has_index(&*snapshot)? {
            true if scanned.is_none() => below.plan(query, after.as_ref()).await?,
            _ => Candidates::All,
        };
        let (mut found, mut seen) = (Vec::new(), 0);
        loop {
            let (rows, next) = below.page(&mut candidates, after.as_ref(), ROWS)?;
            seen += rows.len() as u64;
            for (record_key, value) in &rows {
                let version = Found::of(record_key, value, false)?;
                if query.finds(&version.row) {
                    found.push(FoundVersion::of(bucket.name(), keys::split(record_key)?.1, &version));
                }
            }
            after = next;
            if after.is_none() || seen >= SEEN_MAX || found.len() >= FOUND_MAX {
                let mode = if matches!(candidates, Candidates::All) { SCANNED } else { "" };
                return Ok((found, after.map(|key| format!("{mode}{}", to_hex(&key)))));
            }
            // Requests on the same thread go on.
            tokio::task::yield_now().await;
        }
    }
}

impl Store {
    /// Whether the index of properties is complete, and of this opening.
    fn has_index(&self, snapshot: &dyn Snapshot) -> Result<bool> {
        let last = self.identity().look(|identity| identity.pairing);
        let known = IndexRow::known(snapshot.get(SETTINGS, INDEX)?.as_deref(), last);
        Ok(known.is_some_and(|row| row.stage == IndexStage::Complete))
    }
}

impl FoundVersion {
    fn of(bucket: &str, key: String, version: &Found) -> FoundVersion {
        let row = &version.row;
        FoundVersion {
            bucket: bucket.to_string(),
            key,
            version: version.id().to_string(),
            size_bytes: row.size,
            stored: row.modified.to_string(),
            owner: row.owner.to_string(),
            blake3: to_hex(&row.blake3),
            content_type: row.metadata.headers.get("content-type").cloned(),
            retention_mode: row.retention.map(|retention| retention.mode.to_string()),
            keep_until: row.retention.map(|retention| retention.until.to_string()),
            class: row.class.as_ref().map(|mark| mark.name.clone()),
            event: row.class.as_ref().and_then(|mark| mark.event.as_ref()).map(|event| event.at.to_string()),
            matters: row.matters().map(str::to_string).collect(),
            tags: row.tags.clone(),
        }
    }
}
