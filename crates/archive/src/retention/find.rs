//! Search for versions by their properties: a scan below a prefix, page by page. It reads the catalog alone.

use serde::{Deserialize, Serialize};

use crate::audit::Event;
use crate::model::action::Action;
use crate::model::checksum::to_hex;
use crate::model::error::Result;
use crate::model::matter::Selection;
use crate::model::principal::{Caller, Role};
use crate::model::version::Tags;
use crate::record::keys;
use crate::record::version::VersionRow;
use crate::retention::holding::{page_after, selects};
use crate::store::Archive;
use crate::store::lookup::Found;

/// Rows per read, and the rows and finds after which a page ends.
const ROWS: usize = 1000;
const SEEN_MAX: u64 = 10_000;
const FOUND_MAX: usize = 1000;

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
    fn finds(&self, row: &VersionRow) -> bool {
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
    /// A page of the versions that the query finds, in the order of keys, the newest first. Delete markers are never
    /// found.
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
        let mut after = page_after(after)?;
        let (mut found, mut seen) = (Vec::new(), 0);
        loop {
            let (rows, next) = store.version_page(bucket.number, &query.selection.prefix, after, ROWS)?;
            seen += rows.len() as u64;
            for (record_key, value) in &rows {
                let version = Found::of(record_key, value, false)?;
                let row = &version.row;
                if !query.finds(row) {
                    continue;
                }
                found.push(FoundVersion {
                    bucket: bucket.name().to_string(),
                    key: keys::split(record_key)?.1,
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
                });
            }
            after = next;
            if after.is_none() || seen >= SEEN_MAX || found.len() >= FOUND_MAX {
                return Ok((found, after.map(|key| to_hex(&key))));
            }
        }
    }
}
