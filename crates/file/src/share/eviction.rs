//! Content that is archived leaves the cache: the order in which eviction looks at files, and the
//! transactions that take their slots.
//!
//! The order is a clock whose hand passes over those that were used since it came last. Only files
//! that may have slots and are not open are in it. An open file leaves it when the hand comes to
//! it, and comes back when it is archived. A step of the hand looks at a bounded number of files,
//! and the next one goes on behind them.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::{OwnedMutexGuard, OwnedRwLockWriteGuard};

use super::Share;
use super::archiving::Worked;
use super::core::Core;
use super::records::{BLOCKS, GROUP, Group, numbered_key};
use crate::{FileError, Result};

/// Files that one look passes over at most.
const LOOKS_MAX: usize = 4096;
/// Files that one step of eviction looks at, and those of which one transaction takes the slots.
const EVICTED_AT_ONCE: usize = 256;
const EVICTED_TOGETHER: usize = 32;
/// As `EVICTED_AT_ONCE`, where the pool needs space: it asks a few times a second.
const EVICTED_FOR_THE_POOL: usize = 16 * EVICTED_AT_ONCE;
/// Shares of the cache, in percent, at which eviction begins, and down to which it goes on.
pub(super) const HIGH: u64 = 90;
const LOW: u64 = 80;
/// The share of a nearly full cache, in percent, below which what can leave it is little.
pub(super) const EVICTABLE_MIN: u64 = 25;
/// Groups that one transaction drops.
pub(super) const GROUPS_MAX: usize = 4096;

/// A file whose slots are taken. Until this is dropped no one reads it, writes it or saves it.
struct Victim {
    inode: u64,
    groups: Vec<(u64, Group)>,
    _held: OwnedRwLockWriteGuard<()>,
    _turn: OwnedMutexGuard<()>,
}

/// Files, and the tickets with which they were put here. One whose content has another ticket, or
/// none, is here no longer.
#[derive(Default)]
pub struct Clock {
    hand: VecDeque<(u64, u64)>,
    tickets: u64,
}

impl Clock {
    pub fn is_empty(&self) -> bool {
        self.hand.is_empty()
    }

    fn push(&mut self, inode: u64) -> u64 {
        self.tickets += 1;
        self.hand.push_back((inode, self.tickets));
        self.tickets
    }
}

impl Core {
    /// A file that may have slots is to be looked at. An open one is not: its content cannot go.
    pub fn enqueue(&mut self, inode: u64) {
        let Some(content) = self.contents.get_mut(&inode) else { return };
        if content.queued.is_none() && !self.active.contains(inode) {
            content.queued = Some(self.clock.push(inode));
        }
    }

    /// The file is not open any more: what the cache has of it may go.
    pub fn archived(&mut self, inode: u64) {
        self.deactivate(inode);
        if self.slots.held(inode) > 0 && self.content(inode).is_ok() {
            self.enqueue(inode);
        }
    }

    /// The next file to take slots from. One that was used since the last look gets another round.
    /// None: there is none, or those that could go come later in the order.
    pub fn next_victim(&mut self) -> Option<u64> {
        self.next_file(true)
    }

    /// The next file that has slots and is archived, also one that is used or pinned.
    pub fn next_archived(&mut self) -> Option<u64> {
        self.next_file(false)
    }

    fn next_file(&mut self, spares: bool) -> Option<u64> {
        for _ in 0..LOOKS_MAX.min(2 * self.clock.hand.len()) {
            #[cfg(test)]
            {
                self.victim_looks += 1;
            }
            let (inode, ticket) = self.clock.hand.pop_front()?;
            let content = self.contents.get_mut(&inode).filter(|content| content.queued == Some(ticket));
            let Some(content) = content else { continue };
            if self.active.contains(inode) {
                content.queued = None;
                continue;
            }
            self.clock.hand.push_back((inode, ticket));
            if spares && (std::mem::take(&mut content.touched) || self.pinned.contains(&inode)) {
                continue;
            }
            return Some(inode);
        }
        None
    }

    /// Entries of files, also of such as are here no longer.
    pub fn queued(&self) -> usize {
        self.clock.hand.len()
    }

    /// Eviction has taken all slots of the file.
    pub fn evicted(&mut self, inode: u64) {
        let Some(content) = self.contents.get_mut(&inode) else { return };
        let ticket = content.queued.take();
        // It was put behind all others when it was picked. From elsewhere the hand takes it.
        if self.clock.hand.back().is_some_and(|(other, last)| *other == inode && Some(*last) == ticket) {
            self.clock.hand.pop_back();
        }
    }
}

impl Share {
    /// Drops groups of files, and gives their slots back once that is durable. Under the gates and
    /// in turn. `archived`: the archive has their content. The transaction itself sees to it: what
    /// a row shows may be of one that fails.
    pub(super) async fn drop_groups(&self, files: &[(u64, &[(u64, Group)])], archived: bool) -> Result<()> {
        self.change(|change, _| {
            change.with_reserve();
            for (inode, groups) in files {
                if archived {
                    let row = change.row(*inode)?;
                    if row.open || row.links == 0 {
                        return Err(FileError::Retry("the file has changed meanwhile; try again".into()));
                    }
                }
                for (group, _) in *groups {
                    let key = numbered_key(change.share(), *inode, *group);
                    change.delete(BLOCKS, key);
                }
            }
            Ok(())
        })
        .await?;
        self.step(|core| {
            for (inode, groups) in files {
                let mut places = Vec::new();
                let content = core.content(*inode)?.1;
                for (group, value) in *groups {
                    content.set_group(*group, Group::default());
                    content.unsaved.remove(group);
                    places.extend(value.slots.iter().filter(|slot| slot.place != 0).map(|slot| slot.place - 1));
                }
                places.into_iter().for_each(|slot| core.slots.free(*inode, slot));
            }
            Ok(())
        })
    }

    /// Takes content that is archived out of the cache, where the cache is nearly full, or where
    /// the pool needs so many slots.
    pub(super) async fn evict(&self, needed: u64, worked: &mut Worked) -> Result<()> {
        let used = || self.step(|core| Ok(core.slots.used()));
        let (before, count) = (used()?, self.step(|core| Ok(core.slots.count()))?);
        let wanted = self.wanted();
        if self.bypasses() {
            return self.give_back_all(worked).await;
        }
        let mut most = before.saturating_sub(needed);
        if before > count * HIGH / 100 || wanted {
            most = most.min(count * LOW / 100);
        }
        let mut looks = if needed > 0 { EVICTED_FOR_THE_POOL } else { EVICTED_AT_ONCE };
        while looks > 0 {
            let surplus = used()?.saturating_sub(most);
            if surplus == 0 {
                return Ok(());
            }
            let (victims, last) = self.next_victims(&mut looks, surplus)?;
            worked.evicted += self.take_slots(victims).await?;
            if last {
                return Ok(());
            }
            // Writers wait for it.
            self.room.notify_waiters();
        }
        worked.more = true;
        Ok(())
    }

    /// Files whose slots one transaction can take, no more than make `surplus` slots free; and
    /// whether there are no others.
    fn next_victims(&self, looks: &mut usize, surplus: u64) -> Result<(Vec<Victim>, bool)> {
        let (mut victims, mut groups, mut slots) = (Vec::new(), 0, 0);
        while *looks > 0 && victims.len() < EVICTED_TOGETHER && groups < GROUPS_MAX && slots < surplus {
            *looks -= 1;
            let Some(inode) = self.step(|core| Ok(core.next_victim()))? else { return Ok((victims, true)) };
            let victim = match self.victim(inode, None) {
                // Those at hand have left the order: their slots are taken first.
                Err(_) if !victims.is_empty() => break,
                found => found?,
            };
            if let Some(victim) = victim {
                groups += victim.groups.len();
                slots += victim.groups.iter().map(|(_, group)| group.taken()).sum::<u64>();
                victims.push(victim);
            }
        }
        Ok((victims, false))
    }

    /// Whether slots came free.
    #[cfg(test)]
    pub(super) async fn evict_file(&self, inode: u64) -> Result<bool> {
        self.evict_version(inode, None).await
    }

    /// As eviction, of one file. `epoch`: only while the file is this version. Answers whether
    /// slots came free.
    pub(super) async fn evict_version(&self, inode: u64, epoch: Option<u64>) -> Result<bool> {
        match self.victim(inode, epoch)? {
            Some(victim) => Ok(self.take_slots(vec![victim]).await? > 0),
            None => Ok(false),
        }
    }

    /// A file that no one uses, and whose slots can go. None: there is nothing to take now.
    fn victim(&self, inode: u64, epoch: Option<u64>) -> Result<Option<Victim>> {
        let Ok((gate, saving)) = self.step(|core| {
            let content = core.content(inode)?.1;
            Ok((Arc::clone(&content.gate), Arc::clone(&content.saving)))
        }) else {
            return Ok(None);
        };
        // A file in use is not worth waiting for.
        let (Ok(held), Ok(turn)) = (gate.try_write_owned(), saving.try_lock_owned()) else { return Ok(None) };
        let groups = self.step(|core| {
            let (row, content) = core.content(inode)?;
            // Nothing that the archive does not have leaves the cache.
            let another = epoch.is_some_and(|epoch| epoch != content.epoch);
            if row.open || content.grown.is_some() || row.links == 0 || another {
                return Ok(Vec::new());
            }
            let mut groups = core.first_groups(inode, GROUPS_MAX + 1)?;
            // The rest of a large file goes with the next look.
            if groups.len() <= GROUPS_MAX {
                core.evicted(inode);
            }
            groups.truncate(GROUPS_MAX);
            Ok(groups)
        })?;
        Ok((!groups.is_empty()).then_some(Victim { inode, groups, _held: held, _turn: turn }))
    }

    /// Takes the slots of these files: in one transaction, or each alone if that fails. Answers of
    /// how many files.
    async fn take_slots(&self, victims: Vec<Victim>) -> Result<u64> {
        let files: Vec<(u64, &[(u64, Group)])> =
            victims.iter().map(|victim| (victim.inode, victim.groups.as_slice())).collect();
        if files.len() > 1 && self.drop_groups(&files, true).await.is_ok() {
            return Ok(files.len() as u64);
        }
        let (mut taken, mut failed) = (0, Ok(()));
        for file in files {
            match self.drop_groups(&[file], true).await {
                Ok(()) => taken += 1,
                Err(error) => {
                    self.step(|core| {
                        core.enqueue(file.0);
                        Ok(())
                    })?;
                    if !matches!(error, FileError::Retry(_)) {
                        failed = Err(error);
                    }
                }
            }
        }
        failed.map(|()| taken)
    }
}

const _: () =
    assert!(GROUPS_MAX as u64 * GROUP < 1 << 20, "a removal's transaction stays far below the catalog's limit");
