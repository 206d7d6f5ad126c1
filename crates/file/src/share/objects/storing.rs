//! PUT, copies and completed uploads: a version becomes the content of the file of a path.
//!
//! The body arrives before anything is decided. Then requests for one path take turns. The file is
//! looked up, or gets a number. Its gate and its turn of saving are held. One transaction stores
//! the version, makes missing directories, makes or changes the file, and drops what the cache held
//! of the former content. A crash leaves the former file or the new one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::BoxFuture;
use stele_archive::{
    Access, Action, Alongside, ArchiveError, Caller, CommitBoth, CompleteRequest, ETag, Ending, Expected, ObjectInfo,
    ObjectWriter, Placement, PutRequest, Result, WriteCondition, upload_key,
};
use stele_catalog::{Pending, Receipt};
use tokio::sync::{OwnedMutexGuard, OwnedRwLockWriteGuard};

use super::key::Path;
use super::retaining::commit;
use super::{ATTEMPTS, Core, EMPTY, ObjectView, There, look, refusal, to_its_end};
use crate::files::Node;
use crate::model::{Attributes, Changes, Inode, Kind, Moment};
use crate::share::archiving::{PATH_MAX, percent};
use crate::share::core::Grown;
use crate::share::reading::key_of;
use crate::share::records::{
    ACTIVE, ArchivedRow, BLOCKS, Group, InodeRow, NUMBERS, ROOT, inode_key, numbered_key, share_key,
};
use crate::share::tree::{self, Numbers};
use crate::share::view::{Change, TransactionTicket};
use crate::share::{Share, last_number};
use crate::{FileError, rules};

/// Records of the cache's map that one transaction drops: 4 GiB of a file.
const GROUPS_MAX: usize = 4096;

/// What the body of a PUT becomes.
struct Body {
    view: ObjectView,
    caller: Caller,
    key: String,
    condition: WriteCondition,
}

/// What keeps everything else from changing the file that is to get new content: its gate and its
/// turn. None: a new file.
type Held = Option<(OwnedRwLockWriteGuard<()>, OwnedMutexGuard<()>)>;

/// The tree's part of the transaction.
struct NewContent {
    share: Arc<Share>,
    names: Vec<Vec<u8>>,
    inode: u64,
    existing: bool,
    under_way: Mutex<Option<UnderWay>>,
}

/// The transaction of a new content, and what counts again if it fails.
struct UnderWay {
    ticket: TransactionTicket,
    groups: BTreeMap<u64, Group>,
    grown: Option<Grown>,
}

impl ObjectView {
    /// Refuses a path that no file can have, or whose file cannot change. The answer says what is
    /// there.
    pub(super) fn storable(&self, key: &str, path: &Path<'_>) -> Result<There> {
        let refuse = |rule: &str| Err(ArchiveError::InvalidRequest(format!("`{key}` cannot be stored: {rule}")));
        match self.look(path)? {
            _ if path.directory => refuse("a key with a `/` at its end names a directory, which has no content"),
            There::BelowFile => refuse("a part of its path is a file and not a directory"),
            There::Directory(..) => refuse("a directory has this path"),
            There::Other => refuse("a symbolic link or a special file has this path"),
            There::File(_, row) if row.committed.is_some() => Err(refusal(committed())),
            there => Ok(there),
        }
    }

    pub(super) async fn begin_put(&self, caller: &Caller, request: PutRequest) -> Result<ObjectWriter> {
        let caller = self.on_behalf(caller, Access::Write, &request.key).await?;
        let path = Path::parse(&request.key)?;
        let body = Body {
            view: self.clone(),
            caller: caller.clone(),
            key: request.key.clone(),
            condition: request.condition.clone(),
        };
        if path.directory {
            self.check_directory(&request, &path)?;
            let request = PutRequest { key: key_of(0), condition: WriteCondition::default(), ..request };
            return Ok(self.share.archive.put(&caller, request).await?.ending(Box::new(body)));
        }
        // The archive judges the condition early for a file that has a version, and finally in any
        // case.
        let (key, condition) = match self.storable(&request.key, &path)? {
            There::File(inode, _) => {
                self.check_present(&request.condition, inode).await?;
                (key_of(inode), request.condition.clone())
            }
            _ if request.condition.etag.is_some() => return Err(self.missing(&request.key)),
            _ => (key_of(0), WriteCondition::default()),
        };
        let request = PutRequest { key: key.clone(), condition, ..request };
        let writer = self.share.archive.put(&caller, request).await;
        Ok(writer.map_err(|error| error.with_key(&key, &body.key))?.ending(Box::new(body)))
    }

    fn check_directory(&self, request: &PutRequest, path: &Path<'_>) -> Result<()> {
        let refuse =
            |rule: &str| Err(ArchiveError::InvalidRequest(format!("`{}` is a directory: {rule}", request.key)));
        if request.length != Some(0) {
            return refuse("a key with a `/` at its end takes an empty body");
        }
        if request.retention.is_some() || request.legal_hold || !request.tags.is_empty() {
            return refuse("it has no retention, no legal hold and no tags");
        }
        match self.look(path)? {
            There::BelowFile => refuse("a part of its path is a file and not a directory"),
            There::File(..) | There::Other => refuse("a file has this path"),
            _ => Ok(()),
        }
    }

    /// A condition on the present content needs a version that holds it.
    async fn check_present(&self, condition: &WriteCondition, inode: u64) -> Result<()> {
        if condition.absent {
            return Err(ArchiveError::PreconditionFailed("the key exists already".into()));
        }
        match condition.etag {
            Some(_) => self.store_present(inode).await,
            None => Ok(()),
        }
    }

    pub(super) async fn complete_upload(&self, caller: &Caller, request: CompleteRequest) -> Result<ObjectInfo> {
        let caller = self.on_behalf(caller, Access::Write, &request.key).await?;
        let view = self.clone();
        let change = async move {
            let key = request.key.clone();
            let _turn = view.share.naming.turn(&key).await;
            let (held, placement) = view.hold(&key, &request.condition).await?;
            let file = placement.key.clone();
            let request = CompleteRequest { key: upload_key(&key), ..request };
            let done = view.share.archive.complete_placed(&caller, request, placement).await;
            drop(held);
            done.map_err(|error| error.with_key(&file, &key))
        };
        to_its_end(change).await
    }

    /// Finds or numbers the file of a path, and holds it.
    async fn hold(&self, key: &str, condition: &WriteCondition) -> Result<(Held, Placement)> {
        let share = &self.share;
        let path = Path::parse(key)?;
        for _ in 0..ATTEMPTS {
            share.refresh().await.map_err(refusal)?;
            // A committed file is refused with the transaction: a repeated completion still gets
            // its answer.
            let inode = match self.look(&path)? {
                There::File(inode, _) if !path.directory => inode,
                There::Missing if condition.etag.is_some() => return Err(self.missing(key)),
                There::Missing if !path.directory => {
                    let inode = share.new_number().await.map_err(refusal)?;
                    return Ok((None, self.placement(&path, inode, None)?));
                }
                _ => return self.storable(key, &path).and_then(|_| Err(self.missing(key))),
            };
            self.check_present(condition, inode).await?;
            let (gate, saving) = share
                .step(|core| {
                    let content = core.content(inode)?.1;
                    Ok((Arc::clone(&content.gate), Arc::clone(&content.saving)))
                })
                .map_err(refusal)?;
            let gate = gate.write_owned().await;
            let saving = saving.lock_owned().await;
            let row = match self.look(&path)? {
                There::File(now, row) if now == inode && !(condition.etag.is_some() && row.open) => row,
                _ => continue,
            };
            share.free_clean_cache(inode, &row).await?;
            return Ok((Some((gate, saving)), self.placement(&path, inode, Some(&row))?));
        }
        Err(ArchiveError::Busy("the path changes too often; try again".into()))
    }

    fn placement(&self, path: &Path<'_>, inode: u64, row: Option<&InodeRow>) -> Result<Placement> {
        let share = &self.share;
        let (attributes, named) = share
            .step(|core| {
                let now = core.now(share.stamp());
                Ok(match row {
                    Some(row) => (row.attributes(inode), tree::path(&mut core.view, inode)?),
                    None => (new_file(&nearest(core, &path.names)?, inode, now), path.names.join(&b'/')),
                })
            })
            .map_err(refusal)?;
        let modified = Moment::from_nanoseconds(i128::from(share.stamp().0) * 1_000_000);
        let mut metadata = BTreeMap::from([
            ("stele-mode".to_owned(), format!("{:o}", attributes.mode)),
            ("stele-owner".to_owned(), format!("{}:{}", attributes.uid, attributes.gid)),
            ("stele-modified".to_owned(), format!("{}.{:09}", modified.seconds, modified.nanoseconds)),
        ]);
        let named = percent(&named);
        if named.len() <= PATH_MAX {
            metadata.insert("stele-path".to_owned(), named);
        }
        let alongside = NewContent {
            share: Arc::clone(share),
            names: path.owned(),
            inode,
            existing: row.is_some(),
            under_way: Mutex::new(None),
        };
        Ok(Placement { key: key_of(inode), metadata, alongside: Arc::new(alongside) })
    }

    /// Makes a directory and those above it, where they are missing.
    async fn make_directory(&self, caller: &Caller, key: &str, condition: &WriteCondition) -> Result<ObjectInfo> {
        let share = &self.share;
        let path = Path::parse(key)?;
        let _turn = share.naming.turn(key).await;
        if let There::Directory(_, row) = self.look(&path)? {
            let same = |etag: &str| etag.trim() == "*" || ETag::parse(etag) == Some(EMPTY);
            if condition.absent || condition.etag.as_deref().is_some_and(|etag| !same(etag)) {
                return Err(ArchiveError::PreconditionFailed("the directory exists".into()));
            }
            return Ok(self.directory(key.into(), &row.attributes(0)));
        }
        if condition.etag.is_some() {
            return Err(self.missing(key));
        }
        let records = share.archive.records();
        let place = (share.name.as_str(), key);
        let made = share.change_by(
            |change, numbers| directories(change, numbers, &path.names).map(|(inode, row)| row.attributes(inode)),
            |transaction| records.commit_audited(transaction, caller, Action::PutObject, place, "a directory"),
        );
        match made.await {
            Ok(attributes) => Ok(self.directory(key.into(), &attributes)),
            Err(error) => {
                share.archive.check_revoked(caller)?;
                Err(refusal(error))
            }
        }
    }
}

impl Ending for Body {
    fn finish(self: Box<Self>, mut writer: ObjectWriter, trailers: Expected) -> BoxFuture<'static, Result<ObjectInfo>> {
        let Body { view, caller, key, condition } = *self;
        Box::pin(to_its_end(async move {
            if key.ends_with('/') {
                writer.discard(trailers)?;
                return view.make_directory(&caller, &key, &condition).await;
            }
            let _turn = view.share.naming.turn(&key).await;
            let (held, placement) = view.hold(&key, &condition).await?;
            let file = placement.key.clone();
            writer.place(placement, condition);
            let done = writer.finish(trailers).await;
            drop(held);
            done.map_err(|error| error.with_key(&file, &key))
        }))
    }
}

impl Share {
    /// A number for a file whose version is stored in the same transaction. The record of numbers
    /// is ahead of it, durably: no later file gets the number of a version that a crash left
    /// without a file.
    async fn new_number(&self) -> crate::Result<u64> {
        let number = self.step(|core| Ok(core.numbers.draw()))?;
        let durable = self.step(|core| {
            let key = share_key(core.view.share);
            let stored = core.view.snapshot()?.get(NUMBERS, &key).map_err(super::super::view::failure)?;
            Ok(stored.is_some_and(|stored| last_number(&stored) > number))
        })?;
        if !durable {
            self.change(|change, numbers| {
                change.put_bytes(NUMBERS, share_key(change.share()), numbers.stored());
                Ok(())
            })
            .await?;
        }
        Ok(number)
    }

    /// Sees to it that one transaction can drop what the cache holds of a file. Under the gate and
    /// in turn.
    async fn free_clean_cache(&self, inode: u64, row: &InodeRow) -> Result<()> {
        loop {
            let groups = self.step(|core| core.first_groups(inode, GROUPS_MAX + 1)).map_err(refusal)?;
            let Some(part) = groups.get(..GROUPS_MAX).filter(|_| groups.len() > GROUPS_MAX) else { return Ok(()) };
            if row.open {
                return Err(ArchiveError::InvalidRequest(
                    "the cache holds more than 4 GiB of the file that are not archived; truncate or archive it first"
                        .into(),
                ));
            }
            self.drop_groups(&[(inode, part)], true).await.map_err(refusal)?;
        }
    }
}

/// Every group of a file, saved or not, as one transaction can drop them.
fn cached(core: &mut Core, inode: u64) -> crate::Result<BTreeMap<u64, Group>> {
    let groups = core.first_groups(inode, GROUPS_MAX + 1)?;
    match groups.len() > GROUPS_MAX {
        true => Err(FileError::Retry("the cache has got more of the file meanwhile; try again".into())),
        false => Ok(groups.into_iter().collect()),
    }
}

fn committed() -> FileError {
    FileError::ReadOnly("the file is committed; its content cannot change".into())
}

impl Alongside for NewContent {
    fn prepare(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async { self.share.refresh().await.map_err(refusal) })
    }

    fn submit(&self, version: &ObjectInfo, both: CommitBoth<'_>) -> Result<Pending<Receipt>> {
        let submitted = self.share.step(|core| {
            let groups = if self.existing { cached(core, self.inode)? } else { BTreeMap::new() };
            let writers = core.writers(self.inode);
            let now = core.now(self.share.stamp());
            // Clients have seen the change counter of writes that no row shows.
            if self.existing {
                core.take_shown(self.inode)?;
            }
            let grown = core.contents.get(&self.inode).and_then(|content| content.grown.clone());
            let writes = grown.as_ref().map_or(0, |grown| grown.writes);
            let Core { view, numbers, .. } = core;
            let mut change = view.change(now);
            self.compute(&mut change, numbers, version, (writers, writes))?;
            for group in groups.keys() {
                let key = numbered_key(change.share(), self.inode, *group);
                change.delete(BLOCKS, key);
            }
            let submitted = change.submit(both);
            // The row has them from here on.
            if let Some(content) = core.contents.get_mut(&self.inode) {
                content.grown = None;
            }
            let before = self.locked().replace(UnderWay { ticket: submitted.ticket, groups, grown });
            assert!(before.is_none(), "a change of the tree was submitted before the last one was settled");
            Ok(submitted.answer)
        });
        submitted.map_err(refusal)
    }

    fn settle(&self, took_place: bool) {
        let Some(UnderWay { ticket, groups, grown }) = self.locked().take() else { return };
        let mut core = self.share.locked();
        core.view.settle(ticket, took_place);
        if let Some(content) = core.contents.get_mut(&self.inode).filter(|_| !took_place) {
            content.grown = grown;
        }
        if took_place && self.existing {
            self.forget_former(&mut core, groups);
        }
    }
}

impl Drop for NewContent {
    fn drop(&mut self) {
        let under_way = self.under_way.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(UnderWay { grown, .. }) = under_way.take() {
            let mut core = self.share.locked();
            core.view.abandon();
            if let Some(content) = core.contents.get_mut(&self.inode) {
                content.grown = grown;
            }
        }
    }
}

impl NewContent {
    fn locked(&self) -> std::sync::MutexGuard<'_, Option<UnderWay>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Computes the rows with the version as the file's content.
    fn compute(
        &self,
        change: &mut Change<'_>,
        numbers: &mut Numbers,
        version: &ObjectInfo,
        (writers, writes): (u32, u64),
    ) -> crate::Result<()> {
        let Some((name, above)) = self.names.split_last() else { return Err(FileError::NotFound) };
        let above: Vec<&[u8]> = above.iter().map(Vec::as_slice).collect();
        let (parent, directory) = directories(change, numbers, &above)?;
        let found = tree::find(change, parent, name)?;
        let now = change.now;
        let (mut row, new) = match found {
            Some(found) if self.existing && found.entry.inode == self.inode => (found.row, false),
            None if !self.existing => {
                let attributes = new_file(&directory.attributes(parent), self.inode, now);
                (InodeRow::new(&attributes), true)
            }
            _ => return Err(FileError::Retry("the path changed while the object was stored; try again".into())),
        };
        if row.committed.is_some() {
            return Err(committed());
        }
        if writers > 0 {
            return Err(FileError::Retry("the file is open for writing; try again once it is closed".into()));
        }
        row.archived =
            Some(ArchivedRow { version: version.version.to_string(), size: version.size, used: version.size });
        (row.open, row.size, row.used) = (false, version.size, version.size);
        row.mode = rules::without_set_ids(row.mode);
        row.lags = None;
        row.change += writes;
        row.touch(now);
        let first = version.retention.is_some_and(|retention| commit(&mut row, retention.until.0, false));
        if new {
            return tree::restore(change, numbers, parent, name, self.inode, row);
        }
        let names: Vec<u64> = row.names.iter().map(|name| name.directory).collect();
        change.put_row(self.inode, row);
        change.delete(ACTIVE, inode_key(change.share(), self.inode));
        for directory in names.into_iter().filter(|_| first) {
            tree::count(change, directory)?;
        }
        Ok(())
    }

    /// The cache no longer has the former content, and nothing of it is to be archived.
    fn forget_former(&self, core: &mut Core, groups: BTreeMap<u64, Group>) {
        core.deactivate(self.inode);
        core.new_epoch(self.inode);
        let Some(content) = core.contents.get_mut(&self.inode) else { return };
        content.generation += 1;
        (content.grown, content.shown, content.slack) = (None, None, None);
        let mut places = BTreeSet::new();
        for (number, group) in groups {
            content.set_group(number, Group::default());
            content.unsaved.remove(&number);
            places.extend(group.slots.iter().filter(|slot| slot.place != 0).map(|slot| slot.place - 1));
        }
        places.into_iter().for_each(|slot| core.slots.free(self.inode, slot));
    }
}

/// A file that an S3 client makes: it belongs to the owner and the group of its directory, and
/// users who may read or write there may read or write it.
fn new_file(directory: &Attributes, inode: u64, now: Moment) -> Attributes {
    Attributes {
        inode: Inode(inode),
        kind: Kind::File,
        mode: (directory.mode & 0o666) | 0o600,
        links: 1,
        uid: directory.uid,
        gid: directory.gid,
        size: 0,
        used: 0,
        accessed: now,
        modified: now,
        changed: now,
        change: 1,
    }
}

/// The lowest directory of a path that exists.
fn nearest(core: &mut Core, names: &[&[u8]]) -> crate::Result<Attributes> {
    for length in (0..names.len()).rev() {
        if let There::Directory(inode, row) = look(core, names.get(..length).unwrap_or_default())? {
            return Ok(row.attributes(inode));
        }
    }
    Ok(core.view.row(ROOT)?.attributes(ROOT))
}

/// Walks down a path, and makes the directories that are missing. They get owner, group and mode of
/// the one above.
fn directories(change: &mut Change<'_>, numbers: &mut Numbers, names: &[&[u8]]) -> crate::Result<(u64, InodeRow)> {
    let mut at = ROOT;
    for name in names {
        at = match tree::find(change, at, name)? {
            Some(found) => found.entry.inode,
            None => {
                let above = change.row(at)?;
                let changes = Changes {
                    mode: Some((above.mode & 0o2777) | 0o700),
                    uid: Some(above.uid),
                    gid: Some(above.gid),
                    ..Changes::default()
                };
                let root = crate::Caller::ROOT;
                tree::make(change, numbers, &root, Inode(at), name, &Node::Directory, &changes)?.file.inode.0
            }
        };
        if !change.row(at)?.is_directory() {
            return Err(FileError::NotDirectory);
        }
    }
    Ok((at, change.row(at)?))
}
