//! Creating, changing and deleting buckets.
//!
//! All buckets are in memory, as their rows are in the catalog. A transaction that depends on a
//! bucket requires its row to be unchanged, so a concurrent change makes it fail.

mod forgetting;
pub(crate) mod inventory;
pub(crate) mod reports;
pub(crate) mod settings;

use self::inventory::run_key;
use stele_catalog::{Direction, KeyRange, Transaction, VALUE_MAX};

use crate::audit::Event;
use crate::model::action::Action;
use crate::model::bucket::check_tags;
use crate::model::bucket::{
    AnonymousAccess, BucketChange, BucketInfo, ExpiryAction, NewBucket, ObjectLock, Period, Protection, Usage,
    Versioning, check_bucket_name,
};
use crate::model::error::{ArchiveError, Result};
use crate::model::inventory::{INVENTORIES_MAX, Inventory};
use crate::model::logging::AccessLog;
use crate::model::principal::{Caller, Role};
use crate::model::{cors, lifecycle, notification};
use crate::record::bucket::BucketRow;
use crate::record::content::Place;
use crate::record::settings::EXPIRY;
use crate::record::{BUCKETS, INVENTORY_RUNS, SETTINGS, UPLOADS, VERSIONS, decode, encode, keys};
use crate::seal::{SealingKey, derive, random_secret};
use crate::state::buckets::{Bucket, Policing};
use crate::state::key_locks::KeyLock;
use crate::store::Archive;
use crate::store::uploads::{Upload, parts_of_bucket};

const TAGS_MAX: usize = 50;
/// The longest default retention.
const PERIOD_MAX: Period = Period::Years(100);
/// Bytes of all settings of a bucket: its row is one value of the catalog. The rest is for what
/// changes of the row itself add.
const SETTINGS_MAX: usize = VALUE_MAX - 1024;

impl Archive {
    pub async fn create_bucket(&self, caller: &Caller, name: &str, new: NewBucket) -> Result<BucketInfo> {
        let store = &self.store();
        let result = self.try_create(caller, name, new).await;
        store.audited(result, || Event::new(caller, Action::CreateBucket).bucket(name)).await
    }

    async fn try_create(&self, caller: &Caller, name: &str, new: NewBucket) -> Result<BucketInfo> {
        let store = &self.store();
        caller.require_role(&[Role::StorageAdministrator], Action::CreateBucket)?;
        store.writable()?;
        check_bucket_name(name)?;
        check_tags(&new.tags, TAGS_MAX)?;
        let lock = (new.object_lock || new.default_retention.is_some())
            .then_some(ObjectLock { default: new.default_retention });
        check_lock(lock.as_ref())?;
        let buckets_lock = store.lock(0, "").await?;
        if let Ok(there) = store.buckets().by_name(name) {
            let own = there.row.owner == caller.actor;
            return Err(ArchiveError::BucketExists { name: name.into(), own });
        }
        let number = store.buckets().next_number(store.doubt().map_or(0, |doubt| doubt.buckets));
        let key = random_secret(store.surroundings());
        let wrap = SealingKey::new(&derive(&store.master().0, "buckets", &[]));
        let row = BucketRow {
            name: name.into(),
            created: store.later_now(),
            owner: caller.actor.clone(),
            region: new.region,
            versioning: if lock.is_some() || new.versioning { Versioning::Enabled } else { Versioning::Off },
            lock,
            protection: new.protection.unwrap_or(if lock.is_some() {
                Protection::Governance
            } else {
                Protection::Basic
            }),
            expiry: new.expiry,
            quota: new.quota,
            anonymous: new.anonymous,
            tags: new.tags,
            wrapped: wrap.wrap(store.surroundings(), &number.to_be_bytes(), &key).to_vec(),
            deleted: None,
            change: 0,
            note: Place::default(),
            share: None,
            lifecycle: None,
            cors: None,
            policy: None,
            access_block: None,
            classes: None,
            notifications: None,
            logging: None,
            inventories: None,
        };
        let event = Event::new(caller, Action::CreateBucket).bucket(name);
        let absent = Transaction::new().absent(BUCKETS, keys::short(number));
        self.write_bucket(number, row, absent, event, buckets_lock).await
    }

    /// Notes the row, commits it together with the event, and updates the buckets in memory. The
    /// caller holds the buckets' lock.
    async fn write_bucket(
        &self,
        number: u32,
        row: BucketRow,
        transaction: Transaction,
        event: Event,
        buckets_lock: KeyLock,
    ) -> Result<BucketInfo> {
        let answer = self.store().write_bucket(number, row, transaction, Some(event), buckets_lock).await?;
        self.store().compensated(answer).await
    }

    /// Deletes a bucket. Refused while it holds a version or a delete marker. Its unfinished
    /// uploads are aborted: none of their content was acknowledged as an object, so none of it can
    /// be retained.
    pub async fn delete_bucket(&self, caller: &Caller, name: &str) -> Result<()> {
        let store = &self.store();
        let result = self.try_delete_bucket(caller, name).await;
        store.audited(result, || Event::new(caller, Action::DeleteBucket).bucket(name)).await
    }

    async fn try_delete_bucket(&self, caller: &Caller, name: &str) -> Result<()> {
        let store = &self.store();
        self.abort_uploads_of(caller, name).await?;
        let buckets_lock = store.lock(0, "").await?;
        store.writable()?;
        let bucket = store.buckets().by_name(name)?;
        caller.require_role(&[Role::StorageAdministrator], Action::DeleteBucket)?;
        bucket.deleted_through(caller)?;
        store.check_doubt(&bucket).map_err(ArchiveError::InvalidState)?;
        let inside = KeyRange::prefix(keys::prefix(bucket.number, ""));
        let snapshot = store.snapshot()?;
        for table in [VERSIONS, UPLOADS] {
            if !snapshot.range(table, &inside, 1, Direction::Forward)?.is_empty() {
                return Err(ArchiveError::BucketNotEmpty(name.into()));
            }
        }
        let mut row = bucket.row.clone();
        row.deleted = Some(store.wall());
        let mut transaction = Transaction::new()
            .with_reserve()
            .equals(BUCKETS, keys::short(bucket.number), bucket.raw.clone())
            .empty(VERSIONS, inside.clone())
            .empty(UPLOADS, inside);
        for id in ended_inventories(&bucket.row, None) {
            transaction = transaction.delete(INVENTORY_RUNS, run_key(&bucket, &id));
        }
        let event = Event::new(caller, Action::DeleteBucket).bucket(name);
        match self.write_bucket(bucket.number, row, transaction, event, buckets_lock).await {
            Err(ArchiveError::Conflict(_)) => Err(ArchiveError::BucketNotEmpty(name.into())),
            other => other.map(drop),
        }
    }

    /// Aborts the unfinished uploads of a bucket that could otherwise be deleted. An upload begun
    /// or completed meanwhile makes the deletion fail. A crash in between leaves the bucket with
    /// fewer uploads.
    async fn abort_uploads_of(&self, caller: &Caller, name: &str) -> Result<()> {
        let store = &self.store();
        store.writable()?;
        let bucket = store.buckets().by_name(name)?;
        caller.require_role(&[Role::StorageAdministrator], Action::DeleteBucket)?;
        bucket.deleted_through(caller)?;
        store.check_doubt(&bucket).map_err(ArchiveError::InvalidState)?;
        let inside = KeyRange::prefix(keys::prefix(bucket.number, ""));
        loop {
            let snapshot = store.snapshot()?;
            if !snapshot.range(VERSIONS, &inside, 1, Direction::Forward)?.is_empty() {
                return Err(ArchiveError::BucketNotEmpty(name.into()));
            }
            let Some((record_key, _)) = snapshot.range(UPLOADS, &inside, 1, Direction::Forward)?.pop() else {
                return Ok(());
            };
            drop(snapshot);
            let (_, key, number) = keys::split(&record_key)?;
            let lock = store.lock(bucket.number, &key).await?;
            let Some(raw) = store.snapshot()?.get(UPLOADS, &record_key)? else { continue };
            let upload = Upload { number, row: decode(UPLOADS, &record_key, &raw)?, raw };
            store.remove_upload(caller, &bucket, &key, &upload, &upload.id(), lock).await?;
        }
    }

    /// The buckets that the caller may see, by name.
    pub async fn list_buckets(&self, caller: &Caller) -> Result<Vec<BucketInfo>> {
        let buckets = self.store().buckets().all();
        Ok(buckets.iter().filter(|bucket| may_see(caller, bucket)).map(|bucket| bucket.row.info()).collect())
    }

    /// Refuses the name of no bucket. Who may not see the bucket learns no more than from any other
    /// request.
    pub fn require_bucket(&self, name: &str) -> Result<()> {
        self.store().buckets().by_name(name).map(drop)
    }

    pub async fn bucket(&self, caller: &Caller, name: &str) -> Result<BucketInfo> {
        let bucket = self.store().buckets().by_name(name)?;
        let allowed = if may_see(caller, &bucket) {
            Ok(bucket.row.info())
        } else {
            Err(ArchiveError::Denied(format!("{} may not see bucket `{name}`", caller.actor)))
        };
        self.store().audited(allowed, || Event::new(caller, Action::Read).bucket(name)).await
    }

    pub async fn change_bucket(&self, caller: &Caller, name: &str, change: BucketChange) -> Result<BucketInfo> {
        let detail = change.to_string();
        let result = self.try_change(caller, name, change).await;
        let event = || Event::new(caller, Action::ChangeBucket).bucket(name).detail(detail);
        self.store().audited(result, event).await
    }

    async fn try_change(&self, caller: &Caller, name: &str, change: BucketChange) -> Result<BucketInfo> {
        let store = &self.store();
        let buckets_lock = store.lock(0, "").await?;
        store.writable()?;
        let bucket = store.buckets().by_name(name)?;
        let roles: &[Role] = match change {
            BucketChange::ObjectLock(_)
            | BucketChange::Lock
            | BucketChange::Protection(_)
            | BucketChange::Expiry(_)
            | BucketChange::Classes(_) => &[Role::RetentionOfficer],
            _ => &[Role::StorageAdministrator],
        };
        caller.require_role(roles, Action::ChangeBucket)?;
        let mut row = bucket.row.clone();
        let event = Event::new(caller, Action::ChangeBucket).bucket(name).detail(change.to_string());
        if let BucketChange::Policy(Some(policy)) = &change {
            self.check_policy(&bucket, policy)?;
        }
        if let BucketChange::Logging(Some(log)) = &change {
            self.check_report_target(caller, &bucket, &log.bucket, &log.prefix).await?;
        }
        if let BucketChange::Inventory(inventory) = &change {
            self.check_listed(caller, &bucket, inventory).await?;
            let folder = format!("{}/", inventory.folder(name));
            self.check_report_target(caller, &bucket, &inventory.bucket, &folder).await?;
        }
        if let BucketChange::Classes(classes) = &change {
            store.check_bindings(classes)?;
        }
        apply(&mut row, change)?;
        if row == bucket.row {
            return Ok(row.info());
        }
        check_length(&row, bucket.raw.len())?;
        let mut unchanged = Transaction::new().equals(BUCKETS, keys::short(bucket.number), bucket.raw.clone());
        if row.is_share() != bucket.row.is_share() {
            if let Policing::Policy(policy) = &bucket.policy
                && policy.asks_for_tags()
            {
                return Err(ArchiveError::InvalidState(
                    "the bucket's policy has conditions on s3:ExistingObjectTag, which no share can have".into(),
                ));
            }
            // Keys that exist already could be no path of a tree.
            let inside = KeyRange::prefix(keys::prefix(bucket.number, ""));
            let snapshot = store.snapshot()?;
            for table in [VERSIONS, UPLOADS] {
                if !snapshot.range(table, &inside, 1, Direction::Forward)?.is_empty() {
                    return Err(ArchiveError::BucketNotEmpty(name.into()));
                }
                unchanged = unchanged.empty(table, inside.clone());
            }
        }
        if let Some(rules) = row.notifications.as_ref().filter(|_| row.notifications != bucket.row.notifications) {
            unchanged = store.with_test_events(unchanged, &bucket, rules, caller.actor.to_string());
        }
        if row.expiry != bucket.row.expiry {
            // Versions that expiration passed by may go now: it begins with the first one again.
            unchanged = unchanged.delete(SETTINGS, EXPIRY);
        }
        let ended = ended_inventories(&bucket.row, Some(&row));
        for id in &ended {
            unchanged = unchanged.delete(INVENTORY_RUNS, run_key(&bucket, id));
        }
        // Requests that were judged by the settings so far end first.
        let alone = store.settings_locks.alone(bucket.number).await;
        let answer = store.write_bucket(bucket.number, row, unchanged, Some(event), buckets_lock).await;
        // A compensating note takes locks whose holders may wait for this.
        drop(alone);
        let info = store.compensated(answer?).await?;
        ended.into_iter().for_each(|id| store.inventories().forget(&(bucket.number, id)));
        Ok(info)
    }

    pub async fn usage(&self, caller: &Caller, name: &str) -> Result<Usage> {
        self.bucket(caller, name).await?;
        let bucket = self.store().buckets().by_name(name)?;
        let snapshot = self.store().snapshot()?;
        let counts = bucket.counts(&*snapshot)?;
        let unfinished = match self.store().identity().look(|identity| identity.parts_counted) {
            Some(true) => counts.unfinished(),
            // Open for reading only since a version that did not count them.
            _ => parts_of_bucket(&*snapshot, &bucket)?.unfinished(),
        };
        let shown = |count| u64::try_from(count).unwrap_or(0);
        Ok(Usage { versions: shown(counts.versions), bytes: shown(counts.bytes), unfinished: shown(unfinished) })
    }
}

/// The only place where a bucket's settings change. A weakening is refused here.
fn apply(row: &mut BucketRow, change: BucketChange) -> Result<()> {
    refuse_beside_share(row, &change)?;
    match change {
        BucketChange::Versioning(versioning) => set_versioning(row, versioning)?,
        BucketChange::Lock => set_lock(row, row.lock.unwrap_or(ObjectLock { default: None }))?,
        BucketChange::ObjectLock(lock) => set_lock(row, lock)?,
        BucketChange::Protection(level) => {
            if level < row.protection {
                return Err(ArchiveError::Denied(format!(
                    "the protection level of bucket `{}` is {} and is only raised",
                    row.name, row.protection
                )));
            }
            row.protection = level;
        }
        BucketChange::Expiry(expiry) => row.expiry = expiry,
        BucketChange::Quota(quota) => row.quota = quota,
        BucketChange::Anonymous(anonymous) => {
            if anonymous != AnonymousAccess::None && row.access_block.is_some_and(|block| block.block_acls) {
                return Err(ArchiveError::Denied(format!(
                    "bucket `{}` blocks public access; lift that first",
                    row.name
                )));
            }
            row.anonymous = anonymous;
        }
        BucketChange::Tags(tags) => {
            check_tags(&tags, TAGS_MAX)?;
            row.tags = tags;
        }
        BucketChange::Classes(classes) => {
            if row.lock.is_none() {
                return Err(ArchiveError::InvalidState(format!(
                    "classes need Object Lock; enable it for bucket `{}` first",
                    row.name
                )));
            }
            row.classes = (!classes.is_empty()).then_some(classes);
        }
        BucketChange::Share => row.share = Some(true),
        BucketChange::Lifecycle(rules) => {
            rules.as_deref().map_or(Ok(()), lifecycle::check_rules)?;
            row.lifecycle = rules;
        }
        BucketChange::Cors(rules) => {
            rules.as_deref().map_or(Ok(()), cors::check_rules)?;
            row.cors = rules;
        }
        BucketChange::Notifications(rules) => {
            rules.as_deref().map_or(Ok(()), notification::check_rules)?;
            row.notifications = rules;
        }
        BucketChange::Logging(log) => {
            log.as_ref().map_or(Ok(()), AccessLog::check)?;
            row.logging = log;
        }
        BucketChange::Inventory(inventory) => add_inventory(row, inventory)?,
        BucketChange::NoInventory(id) => {
            let mut inventories = row.inventories.take().unwrap_or_default();
            inventories.retain(|inventory| inventory.id != id);
            row.inventories = (!inventories.is_empty()).then_some(inventories);
        }
        BucketChange::Policy(policy) => row.policy = policy,
        BucketChange::AccessBlock(block) => row.access_block = block,
    }
    Ok(())
}

/// Refuses settings that come to more than a row can have, before they are noted. `before`: the
/// bytes of the present ones, which a change may always make fewer.
fn check_length(row: &BucketRow, before: usize) -> Result<()> {
    let length = encode(row).len();
    if length <= SETTINGS_MAX.max(before) {
        return Ok(());
    }
    Err(ArchiveError::InvalidRequest(format!(
        "the settings of bucket `{}` would come to {length} bytes, and at most {SETTINGS_MAX} fit together; \
         shorten its rules of lifecycle, CORS and notifications, or its other documents",
        row.name
    )))
}

/// What a share excludes is refused on a share, and a bucket that has it does not become one.
fn refuse_beside_share(row: &BucketRow, change: &BucketChange) -> Result<()> {
    let excluded = match change {
        BucketChange::Share if row.expiry == ExpiryAction::Delete || row.lifecycle.is_some() => {
            return Err(nameless(row));
        }
        BucketChange::Share if row.classes.is_some() => "has classes, and files of a share have none",
        BucketChange::Share if row.notifications.is_some() => {
            "has notifications, and files of a share change without events"
        }
        BucketChange::Share if row.inventories.is_some() => "has inventories, and no share has",
        BucketChange::Share if row.logging.is_some() => "has an access log, and no share has",
        _ if !row.is_share() => return Ok(()),
        BucketChange::Expiry(ExpiryAction::Delete) | BucketChange::Lifecycle(Some(_)) => return Err(nameless(row)),
        BucketChange::Classes(_) => "is a share: its files have no class",
        BucketChange::Notifications(Some(_)) => "is a share: its files change without events",
        BucketChange::Logging(Some(_)) => "is a share and has no access log",
        BucketChange::Inventory(_) => "is a share and has no inventories",
        _ => return Ok(()),
    };
    Err(ArchiveError::InvalidState(format!("bucket `{}` {excluded}", row.name)))
}

fn set_versioning(row: &mut BucketRow, versioning: Versioning) -> Result<()> {
    if versioning == Versioning::Off {
        return Err(ArchiveError::InvalidRequest("versioning can be enabled or suspended, never undone".into()));
    }
    if versioning == Versioning::Suspended && row.lock.is_some() {
        return Err(ArchiveError::InvalidState(format!(
            "versioning of bucket `{}` cannot be suspended: Object Lock needs it, and is permanent",
            row.name
        )));
    }
    row.versioning = versioning;
    Ok(())
}

fn set_lock(row: &mut BucketRow, lock: ObjectLock) -> Result<()> {
    check_lock(Some(&lock))?;
    if row.lock.is_none() && row.versioning != Versioning::Enabled {
        return Err(ArchiveError::InvalidState(format!(
            "Object Lock needs versioning; enable versioning of bucket `{}` first",
            row.name
        )));
    }
    row.lock = Some(lock);
    row.protection = row.protection.max(Protection::Governance);
    Ok(())
}

/// Adds the inventory, or puts it in the place of the one with its id.
fn add_inventory(row: &mut BucketRow, inventory: Inventory) -> Result<()> {
    inventory.check()?;
    let inventories = row.inventories.get_or_insert_default();
    inventories.retain(|other| other.id != inventory.id);
    if inventories.len() >= INVENTORIES_MAX {
        return Err(ArchiveError::InvalidArgument(format!("a bucket has at most {INVENTORIES_MAX} inventories")));
    }
    inventories.push(inventory);
    Ok(())
}

/// The ids of inventories that a change removes or sends to another place. None: the bucket goes.
fn ended_inventories(before: &BucketRow, after: Option<&BucketRow>) -> Vec<String> {
    let place = |inventory: &Inventory| (inventory.bucket.clone(), inventory.prefix.clone());
    let stays = |inventory: &Inventory| {
        let mut others = after.iter().flat_map(|row| row.inventories.iter().flatten());
        others.any(|other| other.id == inventory.id && place(other) == place(inventory))
    };
    let ended = before.inventories.iter().flatten().filter(|inventory| !stays(inventory));
    ended.map(|inventory| inventory.id.clone()).collect()
}

/// Expiration would take the content away from under the names of files.
fn nameless(row: &BucketRow) -> ArchiveError {
    ArchiveError::InvalidState(format!(
        "bucket `{}` cannot both be a share and delete versions by their age; users remove expired files by name",
        row.name
    ))
}

fn check_lock(lock: Option<&ObjectLock>) -> Result<()> {
    match lock.and_then(|lock| lock.default).map(|default| default.period.days()) {
        Some(days) if !(1..=PERIOD_MAX.days()).contains(&days) => {
            Err(ArchiveError::InvalidArgument("a default retention period is 1 day to 100 years".into()))
        }
        _ => Ok(()),
    }
}

fn may_see(caller: &Caller, bucket: &Bucket) -> bool {
    let roles = [Role::StorageAdministrator, Role::RetentionOfficer, Role::Auditor];
    roles.iter().any(|role| caller.has(*role))
        || caller
            .rights
            .grants
            .iter()
            .any(|grant| caller.has(Role::User) && grant.bucket.as_deref().is_none_or(|name| name == bucket.name()))
}
