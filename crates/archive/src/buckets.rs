//! Making, changing and removing buckets.
//!
//! All buckets are kept in memory, as their rows stand in the catalog; a transaction that depends on a bucket requires
//! its row to be exactly that, so a change that slips in between refuses it.

use std::collections::BTreeMap;
use std::sync::{Arc, RwLock};

use bytes::Bytes;
use stele_catalog::transaction::counter;
use stele_catalog::{CatalogError, Direction, KeyRange, Transaction};

use crate::Archive;
use crate::audit::{Action, Event};
use crate::bucket::{
    BucketChange, BucketInfo, NewBucket, ObjectLock, Protection, Usage, Versioning, check_bucket_name,
};
use crate::committing::{Committing, Proof};
use crate::error::{ArchiveError, Result};
use crate::key_locks::KeyLock;
use crate::multipart::Upload;
use crate::principal::{Access, Caller, Role};
use crate::record::bucket::BucketRow;
use crate::record::content::Place;
use crate::record::{BUCKETS, UPLOADS, USAGE, VERSIONS, decode, encode, keys};
use crate::restating::Doubted;
use crate::seal::{SealingKey, Secret, derive, random_secret, wrong_key};
use crate::space::header::Kind;
use crate::store::{MasterKey, Store};
use crate::version::Tags;

const TAGS_MAX: usize = 50;

/// A bucket as its row stands, with its keys unwrapped.
pub(crate) struct Bucket {
    pub number: u32,
    pub row: BucketRow,
    /// The row as stored.
    pub raw: Bytes,
    pub key: Secret,
    /// Seals the notes of its versions.
    pub note_key: Secret,
    /// Wraps the keys of its objects.
    pub wrap: SealingKey,
}

#[derive(Default)]
pub(crate) struct Buckets(RwLock<Known>);

#[derive(Default)]
struct Known {
    /// Deleted ones apart.
    by_name: BTreeMap<String, Arc<Bucket>>,
    /// Deleted ones too.
    by_number: BTreeMap<u32, Arc<Bucket>>,
}

impl Bucket {
    pub fn open(master: &MasterKey, number: u32, row: BucketRow, raw: Bytes) -> Result<Bucket> {
        let key = SealingKey::new(&derive(&master.0, "buckets", &[]))
            .unwrap(&number.to_be_bytes(), &row.wrapped)
            .map_err(|_| wrong_key(&format!("the key of bucket `{}`", row.name)))?;
        let note_key = derive(&key, "notes", &[]);
        let wrap = SealingKey::new(&derive(&key, "objects", &[]));
        Ok(Bucket { number, row, raw, key, note_key, wrap })
    }

    pub fn name(&self) -> &str {
        &self.row.name
    }

    pub fn versioned(&self) -> bool {
        self.row.versioning == Versioning::Enabled
    }

    fn usage_key(&self, kind: u8) -> Bytes {
        usage_key(self.number, kind)
    }

    /// Counts what is added or taken away, within the quota where something is added.
    pub fn count(&self, mut transaction: Transaction, versions: i64, bytes: i64) -> Transaction {
        let limits = [(b'v', versions, self.row.quota.versions), (b'b', bytes, self.row.quota.bytes)];
        for (kind, amount, limit) in limits {
            let key = self.usage_key(kind);
            if amount > 0
                && let Some(limit) = limit
            {
                let most = i64::try_from(limit).unwrap_or(i64::MAX).saturating_sub(amount);
                transaction = transaction.within(USAGE, key.clone(), i64::MIN, most);
            }
            if amount != 0 {
                transaction = transaction.add(USAGE, key, amount);
            }
        }
        transaction
    }
}

fn usage_key(bucket: u32, kind: u8) -> Bytes {
    let mut key = bucket.to_be_bytes().to_vec();
    key.push(kind);
    key.into()
}

impl Buckets {
    fn read(&self) -> std::sync::RwLockReadGuard<'_, Known> {
        self.0.read().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub fn load(&self, master: &MasterKey, key: &[u8], value: &[u8]) -> Result<()> {
        let row: BucketRow = decode(BUCKETS, key, value)?;
        let number = key.try_into().map(u32::from_be_bytes).unwrap_or_default();
        self.insert(Bucket::open(master, number, row, Bytes::copy_from_slice(value))?);
        Ok(())
    }

    pub fn insert(&self, bucket: Bucket) -> Arc<Bucket> {
        let bucket = Arc::new(bucket);
        let mut known = self.0.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        if bucket.row.deleted.is_some() {
            known.by_name.retain(|_, other| other.number != bucket.number);
        } else {
            known.by_name.insert(bucket.row.name.clone(), Arc::clone(&bucket));
        }
        known.by_number.insert(bucket.number, Arc::clone(&bucket));
        bucket
    }

    pub fn by_name(&self, name: &str) -> Result<Arc<Bucket>> {
        self.read().by_name.get(name).cloned().ok_or_else(|| ArchiveError::NoSuchBucket(name.into()))
    }

    /// Deleted ones too.
    pub fn by_number(&self, number: u32) -> Option<Arc<Bucket>> {
        self.read().by_number.get(&number).cloned()
    }

    pub fn all(&self) -> Vec<Arc<Bucket>> {
        self.read().by_name.values().cloned().collect()
    }

    pub fn even_deleted(&self) -> Vec<Arc<Bucket>> {
        self.read().by_number.values().cloned().collect()
    }

    /// `above`: numbers up to this one may be those of buckets that a rebuild did not find.
    fn next_number(&self, above: u32) -> u32 {
        self.read().by_number.keys().next_back().map_or(1, |last| last + 1).max(above.saturating_add(1))
    }
}

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
        if let Ok(there) = store.buckets.by_name(name) {
            let own = there.row.owner == caller.actor;
            return Err(ArchiveError::BucketExists { name: name.into(), own });
        }
        let number = store.buckets.next_number(store.doubt().map_or(0, |doubt| doubt.buckets));
        let key = random_secret(&*store.surroundings);
        let wrap = SealingKey::new(&derive(&store.master.0, "buckets", &[]));
        let row = BucketRow {
            name: name.into(),
            created: store.wall(),
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
            wrapped: wrap.wrap(&*store.surroundings, &number.to_be_bytes(), &key).to_vec(),
            deleted: None,
            change: 0,
            note: Place::default(),
            share: None,
        };
        let event = Event::new(caller, Action::CreateBucket).bucket(name);
        let absent = Transaction::new().absent(BUCKETS, keys::short(number));
        self.write_bucket(number, row, absent, event, buckets_lock).await
    }

    /// Notes the row, commits it together with the event, and makes it known. Under the buckets' lock.
    async fn write_bucket(
        &self,
        number: u32,
        row: BucketRow,
        transaction: Transaction,
        event: Event,
        buckets_lock: KeyLock,
    ) -> Result<BucketInfo> {
        let answer = self.store().write_bucket(number, row, transaction, Some(event), buckets_lock).await?;
        self.store().noted(Doubted::Bucket(number), answer).await
    }

    /// Refused while it holds a version or delete marker. Its unfinished uploads go with it: nothing in them was acknowledged
    /// as an object, so nothing in them can be retained.
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
        let bucket = store.buckets.by_name(name)?;
        caller.require_role(&[Role::StorageAdministrator], Action::DeleteBucket)?;
        bucket.reached_through(caller)?;
        store.undoubted(&bucket).map_err(ArchiveError::InvalidState)?;
        let inside = KeyRange::prefix(keys::prefix(bucket.number, ""));
        let snapshot = store.snapshot()?;
        for table in [VERSIONS, UPLOADS] {
            if !snapshot.range(table, &inside, 1, Direction::Forward)?.is_empty() {
                return Err(ArchiveError::BucketNotEmpty(name.into()));
            }
        }
        let mut row = bucket.row.clone();
        row.deleted = Some(store.wall());
        let transaction = Transaction::new()
            .with_reserve()
            .equals(BUCKETS, keys::short(bucket.number), bucket.raw.clone())
            .empty(VERSIONS, inside.clone())
            .empty(UPLOADS, inside);
        let event = Event::new(caller, Action::DeleteBucket).bucket(name);
        match self.write_bucket(bucket.number, row, transaction, event, buckets_lock).await {
            Err(ArchiveError::Conflict(_)) => Err(ArchiveError::BucketNotEmpty(name.into())),
            other => other.map(drop),
        }
    }

    /// Aborts the unfinished uploads of a bucket that can be deleted otherwise. One begun meanwhile refuses the deletion; one
    /// completed meanwhile is a version, and does too. A crash in between leaves the bucket with fewer uploads.
    async fn abort_uploads_of(&self, caller: &Caller, name: &str) -> Result<()> {
        let store = &self.store();
        store.writable()?;
        let bucket = store.buckets.by_name(name)?;
        caller.require_role(&[Role::StorageAdministrator], Action::DeleteBucket)?;
        store.undoubted(&bucket).map_err(ArchiveError::InvalidState)?;
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
        let buckets = self.store().buckets.all();
        Ok(buckets.iter().filter(|bucket| may_see(caller, bucket)).map(|bucket| bucket.row.info()).collect())
    }

    pub async fn bucket(&self, caller: &Caller, name: &str) -> Result<BucketInfo> {
        let bucket = self.store().buckets.by_name(name)?;
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
        let bucket = store.buckets.by_name(name)?;
        let roles: &[Role] = match change {
            BucketChange::ObjectLock(_) | BucketChange::Protection(_) | BucketChange::Expiry(_) => {
                &[Role::RetentionOfficer]
            }
            _ => &[Role::StorageAdministrator],
        };
        caller.require_role(roles, Action::ChangeBucket)?;
        let mut row = bucket.row.clone();
        let event = Event::new(caller, Action::ChangeBucket).bucket(name).detail(change.to_string());
        apply(&mut row, change)?;
        if row == bucket.row {
            return Ok(row.info());
        }
        let mut unchanged = Transaction::new().equals(BUCKETS, keys::short(bucket.number), bucket.raw.clone());
        if row.is_share() != bucket.row.is_share() {
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
        self.write_bucket(bucket.number, row, unchanged, event, buckets_lock).await
    }

    pub async fn usage(&self, caller: &Caller, name: &str) -> Result<Usage> {
        self.bucket(caller, name).await?;
        let bucket = self.store().buckets.by_name(name)?;
        let snapshot = self.store().snapshot()?;
        let count = |kind| -> Result<u64> {
            let value = counter(snapshot.get(USAGE, &bucket.usage_key(kind))?.as_deref())?;
            Ok(u64::try_from(value).unwrap_or(0))
        };
        Ok(Usage { versions: count(b'v')?, bytes: count(b'b')? })
    }
}

/// The only place where a bucket's settings change, and where a weakening is refused.
fn apply(row: &mut BucketRow, change: BucketChange) -> Result<()> {
    match change {
        BucketChange::Versioning(versioning) => {
            if versioning == Versioning::Off {
                return Err(ArchiveError::InvalidRequest(
                    "versioning can be enabled or suspended, never undone".into(),
                ));
            }
            if versioning == Versioning::Suspended && row.lock.is_some() {
                return Err(ArchiveError::InvalidState(format!(
                    "versioning of bucket `{}` cannot be suspended: Object Lock needs it, and is permanent",
                    row.name
                )));
            }
            row.versioning = versioning;
        }
        BucketChange::ObjectLock(lock) => {
            check_lock(Some(&lock))?;
            if row.lock.is_none() && row.versioning != Versioning::Enabled {
                return Err(ArchiveError::InvalidState(format!(
                    "Object Lock needs versioning; enable versioning of bucket `{}` first",
                    row.name
                )));
            }
            row.lock = Some(lock);
            row.protection = row.protection.max(Protection::Governance);
        }
        BucketChange::Protection(level) => {
            if level < row.protection {
                return Err(ArchiveError::InvalidState(format!(
                    "the protection level of bucket `{}` is {} and is only raised",
                    row.name, row.protection
                )));
            }
            row.protection = level;
        }
        BucketChange::Expiry(expiry) => row.expiry = expiry,
        BucketChange::Quota(quota) => row.quota = quota,
        BucketChange::Anonymous(anonymous) => row.anonymous = anonymous,
        BucketChange::Tags(tags) => {
            check_tags(&tags, TAGS_MAX)?;
            row.tags = tags;
        }
        BucketChange::Share => row.share = Some(true),
    }
    Ok(())
}

fn check_lock(lock: Option<&ObjectLock>) -> Result<()> {
    match lock.and_then(|lock| lock.default).map(|default| default.period.days()) {
        Some(days) if !(1..=36_500).contains(&days) => {
            Err(ArchiveError::InvalidArgument("a default retention period is 1 day to 100 years".into()))
        }
        _ => Ok(()),
    }
}

/// The rules of AWS: keys of 1 to 128 characters, values up to 256.
pub(crate) fn check_tags(tags: &Tags, most: usize) -> Result<()> {
    let refuse = |message: String| Err(ArchiveError::InvalidArgument(message));
    if tags.len() > most {
        return refuse(format!("{} tags, at most {most} are allowed", tags.len()));
    }
    for (key, value) in tags {
        if key.is_empty() || key.chars().count() > 128 || value.chars().count() > 256 {
            return refuse(format!("tag `{key}`: a key has 1 to 128 characters, a value at most 256"));
        }
        if key.starts_with("aws:") {
            return refuse(format!("tag `{key}`: keys that begin with `aws:` are reserved"));
        }
    }
    Ok(())
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

impl Bucket {
    /// Refuses a share to every caller but the file gateway: only the gateway keeps its tree and its objects in step.
    pub fn reached_through(&self, caller: &Caller) -> Result<()> {
        match self.row.is_share() && !caller.gateway {
            true => Err(ArchiveError::InvalidState(format!(
                "bucket `{}` is a share; its files are read and changed through the file gateway alone",
                self.name()
            ))),
            false => Ok(()),
        }
    }

    /// Refuses what neither the caller's grants nor the bucket's openness to everyone allow.
    pub fn authorize(&self, caller: &Caller, access: Access, prefix: &str) -> Result<()> {
        use crate::bucket::AnonymousAccess::{Read, ReadAndList};
        let open =
            matches!((access, self.row.anonymous), (Access::Read, Read | ReadAndList) | (Access::List, ReadAndList));
        if open || caller.granted(access, self.name(), prefix) {
            return Ok(());
        }
        Err(ArchiveError::Denied(format!(
            "{} may not {} `{}/{prefix}`: no grant covers it",
            caller.actor,
            format!("{access:?}").to_lowercase(),
            self.name()
        )))
    }
}

impl Store {
    /// The outer result is of the note, the inner of the commit behind it.
    pub(crate) async fn write_bucket(
        self: &Arc<Store>,
        number: u32,
        mut row: BucketRow,
        mut transaction: Transaction,
        event: Option<Event>,
        buckets_lock: KeyLock,
    ) -> Result<std::result::Result<BucketInfo, CatalogError>> {
        row.change += 1;
        let writing = self.segments.begin();
        let before = row.note;
        row.note = self.note_within(Some(&writing), true, Kind::Bucket, None, number.into(), &row).await?;
        let raw = encode(&row);
        let bucket = Bucket::open(&self.master, number, row, raw.clone())?;
        let info = bucket.row.info();
        let record_key = keys::short(number);
        transaction = transaction.put(BUCKETS, record_key.clone(), raw.clone());
        if let Some(event) = event {
            transaction = self.with_record(transaction, event);
        }
        let proof = Proof { table: BUCKETS, key: record_key, value: Some(raw) };
        let committing = Committing::new(self, proof).writing(writing).lock(buckets_lock).after(move |store| {
            store.segments.add_live(bucket.row.note);
            store.segments.drop_live(before);
            store.buckets.insert(bucket);
            None
        });
        Ok(committing.commit(transaction).await.map(|_| info))
    }

    /// The bucket, if the caller may do this to keys with this prefix.
    pub fn authorized(&self, caller: &Caller, access: Access, bucket: &str, prefix: &str) -> Result<Arc<Bucket>> {
        let bucket = self.buckets.by_name(bucket)?;
        bucket.authorize(caller, access, prefix)?;
        bucket.reached_through(caller)?;
        Ok(bucket)
    }
}
