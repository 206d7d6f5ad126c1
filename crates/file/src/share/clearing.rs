//! Files out of the share: the versions, slots and records of removed files go in the background.
//!
//! Where a bucket keeps versions, the share says what becomes of those of a removed file: they stay
//! behind a delete marker, or they go with the file. The archive decides about each deletion. While
//! retention, a legal hold or a matter keeps a version, all versions of the file stay, and the file
//! is tried again each hour. Each deletion is a transaction of its own. So a file of many versions
//! goes in parts, one in each round of background work.
//!
//! A pass over all versions finds those that were left behind, by a share that kept them then, or
//! by a rebuild of the catalog. It takes a file's versions away only if a delete marker lies above
//! them and the file has no record. Numbers of files are never used again, so no file comes to need
//! them.
//!
//! Crash points of clearing a file of several versions:
//! 1. before the delete marker: the file is cleared again;
//! 2. before the last version is gone: the same. A rebuild of the catalog finds the marker, and
//!    brings no part of the versions back as a file;
//! 3. before the last marker is gone: the same. Markers alone are no file;
//! 4. before the records are deleted: the next clearing finds no version.

use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use minicbor::{Decode, Encode};
use stele_archive::{ArchiveError, DeleteRequest, ListVersionsRequest, VersionId, VersionsPage};
use stele_ground::{Duration, Instant};

use super::Share;
use super::archiving::Worked;
use super::eviction::GROUPS_MAX;
use super::reading::{inode_of, key_of, refused};
use super::records::{ACTIVE, ORPHANS, PINS, ROOT, inode_key};
use crate::{FileError, Result};

/// Files that one step removes side by side.
const CLEARED_AT_ONCE: usize = 64;
/// After so long a removed file is tried again of which the archive keeps a version.
const KEPT_FOR: Duration = Duration::from_secs(3600);
/// Versions that one listing asks for. Few in tests, so that there are several pages.
const PAGE: usize = if cfg!(test) { 3 } else { 1000 };
/// Versions of a file that one round deletes.
const DELETED_AT_ONCE: usize = if cfg!(test) { 4 } else { 1000 };
/// Between two pages of the pass over all versions, and from its end to the next one.
const PAGE_EVERY: Duration = Duration::from_secs(1);
const PASS_EVERY: Duration = Duration::from_secs(86_400);

/// What becomes of the versions of removed files, where the bucket keeps versions.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Encode, Decode)]
#[cbor(index_only)]
pub enum RemovedVersions {
    /// They stay behind a delete marker.
    #[default]
    #[n(0)]
    Keep,
    /// They are deleted as soon as the archive allows it.
    #[n(1)]
    Delete,
}

/// Where the pass over all versions is.
#[derive(Clone, Default, Debug)]
pub struct Leftovers {
    /// The last key that it has looked at.
    behind: Option<String>,
    looked: Option<Instant>,
    ended: Option<Instant>,
}

impl Leftovers {
    fn is_due(&self, now: Instant) -> bool {
        let has_passed = |since: Option<Instant>, time: Duration| since.is_none_or(|since| now.since(since) >= time);
        has_passed(self.looked, PAGE_EVERY) && has_passed(self.ended, PASS_EVERY)
    }
}

/// Why the archive keeps versions of a file. None: they are gone, or hidden as the share wants it.
type Kept = Option<String>;

/// How far the versions of a removed file are.
enum Clearing {
    Ended(Kept),
    /// Some are gone. The rest goes with the next rounds, behind a delete marker.
    Begun,
}

impl Share {
    /// Clears away removed files that are due.
    pub(super) async fn clear_orphans(&self, worked: &mut Worked) -> Result<()> {
        let now = self.surroundings.now().monotonic;
        let due: Vec<u64> = self.step(|core| {
            let waits = |inode: &u64| core.kept.get(inode).is_some_and(|tried| now.since(*tried) < KEPT_FOR);
            let is_due = |inode: &&u64| !core.users.contains_key(inode) && !waits(inode);
            // Those that cannot go keep no others back.
            let rest = core.orphans.range(core.next_orphan..).chain(core.orphans.range(..core.next_orphan));
            let due: Vec<u64> = rest.filter(is_due).take(CLEARED_AT_ONCE).copied().collect();
            core.next_orphan = due.last().map_or(0, |last| last + 1);
            Ok(due)
        })?;
        let taken = due.len();
        let mut under_way: FuturesUnordered<_> =
            due.into_iter().map(|inode| async move { (inode, self.clear(inode).await) }).collect();
        let before = worked.cleared;
        while let Some((inode, result)) = under_way.next().await {
            match result {
                Ok(Clearing::Ended(None)) => worked.cleared += 1,
                Ok(Clearing::Begun) => {
                    worked.cleared += 1;
                    worked.more = true;
                }
                Ok(Clearing::Ended(Some(reason))) => {
                    tracing::info!(share = %self.name, inode, reason, "a removed file keeps its versions; it is tried again in an hour");
                    self.step(|core| {
                        core.kept.insert(inode, now);
                        Ok(())
                    })?;
                }
                Err(error) => {
                    tracing::warn!(share = %self.name, inode, %error, "a removed file could not be cleared away; it is tried again");
                }
            }
        }
        // Where none goes, the next round is soon enough.
        worked.more |= taken == CLEARED_AT_ONCE && worked.cleared > before;
        Ok(())
    }

    /// Takes a file without names away: its versions, its slots, its row. Each step can be
    /// repeated. The slots go in any case; the row stays while the archive keeps a version, so that
    /// the file is tried again.
    async fn clear(&self, inode: u64) -> Result<Clearing> {
        let (gate, saving) = match self.step(|core| {
            let content = core.content(inode)?.1;
            Ok((Arc::clone(&content.gate), Arc::clone(&content.saving)))
        }) {
            // It is gone already, or it never had content.
            Err(FileError::Stale | FileError::IsDirectory | FileError::Invalid(_)) => {
                return self.forget_orphan(inode).await.map(|()| Clearing::Ended(None));
            }
            other => other?,
        };
        let _held = gate.write_owned().await;
        let _turn = saving.lock_owned().await;
        let cleared = match self.settings().removed_versions {
            RemovedVersions::Keep => Clearing::Ended(self.hide_versions(inode).await?),
            RemovedVersions::Delete => self.delete_versions(inode).await?,
        };
        loop {
            // Slots that were taken and never saved are in memory alone.
            let part = self.step(|core| core.first_groups(inode, GROUPS_MAX))?;
            if part.is_empty() {
                break;
            }
            self.drop_groups(&[(inode, &part)], false).await?;
        }
        if matches!(cleared, Clearing::Ended(None)) {
            self.forget_orphan(inode).await?;
        }
        Ok(cleared)
    }

    /// Lays a delete marker above the versions of a file, or deletes the version of a bucket that
    /// keeps none. Also one that a crash left before the row named it.
    async fn hide_versions(&self, inode: u64) -> Result<Kept> {
        let keys = [key_of(inode)];
        let newest = self.archive.newest(&self.caller("removing"), &self.name, &keys);
        match newest.map_err(|error| refused(&error))?.iter().any(Option::is_some) {
            true => self.delete(inode, None).await,
            false => Ok(None),
        }
    }

    /// Deletes the versions of a file that has no name, a bounded number of them at once. Where the
    /// archive keeps one of them, all stay, behind a marker.
    async fn delete_versions(&self, inode: u64) -> Result<Clearing> {
        let keys = [key_of(inode)];
        // The keys are let go at once: the archive decides about each deletion again. Asking spares
        // the audit log a refusal for each attempt.
        let asked = self.archive.unkept(&self.caller("removing"), &self.name, &keys).await;
        let kept = asked.map_err(|error| refused(&error))?.err();
        let first = self.versions_behind(inode, None).await?;
        if let ([only], false, None) = (first.versions.as_slice(), first.truncated, &kept)
            && !only.delete_marker
        {
            return self.delete(inode, Some(only.version)).await.map(Clearing::Ended);
        }
        let hidden = self.hide_versions(inode).await?;
        if hidden.is_some() || kept.is_some() {
            return Ok(Clearing::Ended(kept.or(hidden)));
        }
        let mut places = DELETED_AT_ONCE;
        for markers in [false, true] {
            let cleared = self.delete_each(inode, markers, &mut places).await?;
            if !matches!(cleared, Clearing::Ended(None)) {
                return Ok(cleared);
            }
        }
        Ok(Clearing::Ended(None))
    }

    /// Deletes the versions of a file that are delete markers, or those that are none, and no more
    /// than there are places.
    async fn delete_each(&self, inode: u64, markers: bool, places: &mut usize) -> Result<Clearing> {
        let mut behind = None;
        loop {
            let page = self.versions_behind(inode, behind).await?;
            for version in page.versions.iter().filter(|version| version.delete_marker == markers) {
                if *places == 0 {
                    return Ok(Clearing::Begun);
                }
                *places -= 1;
                if let Some(reason) = self.delete(inode, Some(version.version)).await? {
                    return Ok(Clearing::Ended(Some(reason)));
                }
            }
            match page.next_version_marker {
                Some(version) if page.truncated => behind = Some(version),
                _ => return Ok(Clearing::Ended(None)),
            }
        }
    }

    async fn versions_behind(&self, inode: u64, version: Option<VersionId>) -> Result<VersionsPage> {
        let request = ListVersionsRequest {
            bucket: self.name.clone(),
            prefix: key_of(inode),
            key_marker: version.map(|_| key_of(inode)),
            version_marker: version,
            limit: PAGE,
            ..ListVersionsRequest::default()
        };
        let page = self.archive.list_versions(&self.caller("removing"), request).await;
        page.map_err(|error| refused(&error))
    }

    async fn delete(&self, inode: u64, version: Option<VersionId>) -> Result<Kept> {
        let request =
            DeleteRequest { bucket: self.name.clone(), key: key_of(inode), version, ..DeleteRequest::default() };
        match self.archive.delete(&self.caller("removing"), request).await {
            Ok(_) => Ok(None),
            Err(ArchiveError::Retained { message, .. }) => Ok(Some(message)),
            Err(error) => Err(refused(&error)),
        }
    }

    pub(super) async fn forget_orphan(&self, inode: u64) -> Result<()> {
        self.change(|change, _| {
            change.with_reserve();
            change.delete(ORPHANS, inode_key(change.share(), inode));
            change.delete(ACTIVE, inode_key(change.share(), inode));
            change.delete(PINS, inode_key(change.share(), inode));
            change.delete_row(inode);
            Ok(())
        })
        .await?;
        self.step(|core| {
            core.orphans.remove(&inode);
            core.kept.remove(&inode);
            core.note_use(inode);
            core.deactivate(inode);
            core.contents.remove(&inode);
            core.set_pinned(inode, false);
            Ok(())
        })
    }

    /// A page of the pass over all versions, if the share deletes those of removed files and one is
    /// due; `at_once`: in any case. Answers whether there is no more to look at now.
    pub(super) async fn clear_leftovers(&self, worked: &mut Worked, at_once: bool) -> Result<bool> {
        if self.settings().removed_versions == RemovedVersions::Keep {
            return Ok(true);
        }
        let now = self.surroundings.now().monotonic;
        let behind = self.step(|core| {
            let due = at_once || core.leftovers.is_due(now);
            Ok(due.then(|| core.leftovers.behind.clone()))
        })?;
        let Some(behind) = behind else { return Ok(true) };
        self.refresh().await?;
        let request = ListVersionsRequest {
            bucket: self.name.clone(),
            key_marker: behind.clone(),
            limit: PAGE,
            ..ListVersionsRequest::default()
        };
        let page = self.archive.list_versions(&self.caller("removing"), request).await;
        let page = page.map_err(|error| refused(&error))?;
        let (mut left, mut last) = (Vec::new(), None);
        for version in &page.versions {
            if left.len() == CLEARED_AT_ONCE {
                break;
            }
            let hidden = inode_of(&version.key).filter(|_| version.latest && version.delete_marker);
            if let Some(inode) = hidden
                && self.is_forgotten(inode)?
            {
                left.push(inode);
            }
            last = Some(&version.key);
        }
        let whole = !page.truncated && left.len() < CLEARED_AT_ONCE;
        // Where versions of a file are left, the same page comes again.
        let again = self.delete_leftovers(left, worked).await;
        let ended = whole && !again;
        let behind = if again { behind } else { last.filter(|_| !ended).cloned() };
        self.step(|core| {
            let leftovers = &mut core.leftovers;
            (leftovers.behind, leftovers.looked, leftovers.ended) = (behind, Some(now), ended.then_some(now));
            Ok(ended)
        })
    }

    /// No record names the file, which is not the root.
    fn is_forgotten(&self, inode: u64) -> Result<bool> {
        self.step(|core| match core.view.row(inode) {
            Ok(_) => Ok(false),
            Err(FileError::Stale) => Ok(inode > ROOT),
            Err(error) => Err(error),
        })
    }

    /// Answers whether versions of one of these files are left for another time.
    async fn delete_leftovers(&self, left: Vec<u64>, worked: &mut Worked) -> bool {
        let mut again = false;
        let mut under_way: FuturesUnordered<_> =
            left.into_iter().map(|inode| async move { (inode, self.delete_versions(inode).await) }).collect();
        while let Some((inode, result)) = under_way.next().await {
            match result {
                Ok(Clearing::Ended(None)) => worked.cleared += 1,
                Ok(Clearing::Begun) => again = true,
                Ok(Clearing::Ended(Some(reason))) => {
                    tracing::debug!(share = %self.name, inode, reason, "a removed file keeps its versions");
                }
                Err(error) => {
                    tracing::warn!(share = %self.name, inode, %error, "versions of a removed file could not be deleted; they are tried again");
                }
            }
        }
        again
    }

    /// Clears all removed files away that may go, those that were left behind and those that were
    /// put off too. For the removal of the share.
    pub async fn clear_all(&self) -> Result<()> {
        self.step(|core| {
            core.kept.clear();
            core.leftovers = Leftovers::default();
            Ok(())
        })?;
        while self.room_round().await?.cleared > 0 {}
        let _turn = self.tidying.lock().await;
        self.step(|core| {
            core.leftovers = Leftovers::default();
            Ok(())
        })?;
        while !self.clear_leftovers(&mut Worked::default(), true).await? {}
        Ok(())
    }
}
