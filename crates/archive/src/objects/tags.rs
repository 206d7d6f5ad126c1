//! Tags of stored versions.

use stele_catalog::Transaction;

use crate::audit::Event;
use crate::model::action::Action;
use crate::model::bucket::check_tags;
use crate::model::error::Result;
use crate::model::principal::{Access, Caller};
use crate::model::version::{Tags, VersionId};
use crate::record::version::VersionRow;
use crate::store::Archive;

impl Archive {
    /// The tags, and the version that they belong to.
    pub async fn tags(
        &self,
        caller: &Caller,
        bucket: &str,
        key: &str,
        version: Option<VersionId>,
    ) -> Result<(Tags, VersionId)> {
        let (_, found) = self.find_version(caller, bucket, key, version).await?;
        let id = found.id();
        Ok((found.row.tags, id))
    }

    /// Replaces all tags; empty removes them. Returns the version. Retention does not protect tags,
    /// since they are no content.
    pub async fn set_tags(
        &self,
        caller: &Caller,
        bucket: &str,
        key: &str,
        version: Option<VersionId>,
        tags: Tags,
    ) -> Result<VersionId> {
        let event = Event::new(caller, Action::SetTags).object(bucket, key).detail(format!("{} tags", tags.len()));
        let event = event.happened(if tags.is_empty() { "ObjectTagging:Delete" } else { "ObjectTagging:Put" });
        let result = async {
            check_tags(&tags, 10)?;
            let locked = self.lock_version_settled(caller, Access::Write, bucket, key, version).await?;
            let (bucket, lock, settled, found) = locked;
            let event = event.clone().version(found.id());
            let (store, required) = (self.store(), Transaction::new());
            let change = |row: &mut VersionRow| row.tags = tags;
            store.change_version_settled(settled, required, &bucket, key, &found, lock, event, change).await?;
            Ok(found.id())
        };
        let result = result.await;
        self.store().audited(result, || event).await
    }
}
