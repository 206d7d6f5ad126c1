//! Making content durable, and changing a file's size.
//!
//! To save is: flush the cache volume, then commit the records that lead to what was flushed. A
//! record never names a block that a power cut could take back.

use std::sync::Arc;

use super::Share;
use super::archiving::Waiting;
use super::around::{Around, Watched, guarded};
use super::core::{Core, Grown, SavedRow};
use super::reading::broken;
use super::records::{BLOCK, BLOCKS, GROUP, Group, InodeRow, SLOT, numbered_key};
use super::tree;
use super::view::Change;
use stele_ground::Duration;

use crate::files::Changed;
use crate::model::{Caller, Changes, Moment, SIZE_MAX};
use crate::rules;
use crate::{FileError, Inode, Result};

/// How long stable writes over recorded content leave the times of a file to the next record.
const SLACK: Duration = Duration::from_secs(1);
/// Groups in one transaction: 4 GiB of a file, far below the catalog's limits.
const GROUPS_MAX: usize = 4096;

/// A save under way. From the step in which the row shows what writes changed, that is not counted
/// on top of the row.
struct Saving<'a> {
    inode: u64,
    grown: Option<&'a Grown>,
}

impl Around for Saving<'_> {
    fn submitted(&mut self, core: &mut Core) -> Result<()> {
        let Some(grown) = self.grown else { return Ok(()) };
        let generation = core.view.generation();
        let (row, content) = core.content(self.inode)?;
        content.shown = Some(SavedRow { writes: grown.writes, stored: grown.stored, change: row.change, generation });
        Ok(())
    }

    fn settled(&mut self, core: &mut Core, took_place: bool) {
        let Some(content) = core.contents.get_mut(&self.inode) else { return };
        content.shown = None;
        if let Some(grown) = self.grown.filter(|_| took_place) {
            content.written(grown.writes, grown.stored);
        }
    }
}

impl Share {
    /// Makes what was written durable. Concurrent calls for one file take turns; those that find
    /// nothing left to do answer.
    pub(super) async fn save(&self, inode: u64) -> Result<()> {
        let saving = self.step(|core| Ok(Arc::clone(&core.content(inode)?.1.saving)))?;
        let _turn = saving.lock().await;
        self.save_in_turn(inode).await
    }

    /// Makes what was written durable for a stable write, or a commit. As `save`, except that times
    /// may lag for a while: the row says until when, and a start after a crash takes the latest
    /// time that they can be. So most stable writes over recorded content need no transaction.
    /// `forced`: the blocks are durable already.
    pub(super) async fn settle(&self, inode: u64, forced: bool) -> Result<()> {
        let saving = self.step(|core| Ok(Arc::clone(&core.content(inode)?.1.saving)))?;
        let _turn = saving.lock().await;
        if self.step(|core| core.is_within_slack(inode))? {
            return match forced {
                true => Ok(()),
                // The flush behind the acknowledgement of a commit.
                false => self.cache.flush().await.map_err(|error| broken(&error)),
            };
        }
        self.save_leaving(inode, Some(SLACK)).await
    }

    /// As `save`, by the holder of the file's turn.
    pub(super) async fn save_in_turn(&self, inode: u64) -> Result<()> {
        self.save_leaving(inode, None).await
    }

    /// Leaves times to lag for so long from now on.
    async fn save_leaving(&self, inode: u64, slack: Option<Duration>) -> Result<()> {
        self.locked().end_slack(inode);
        self.refresh().await?;
        self.step(|core| core.take_shown(inode))?;
        loop {
            let (groups, grown, size, lags) = self.step(|core| {
                let (row, content) = core.content(inode)?;
                let groups: Vec<(u64, Group)> = content
                    .unsaved
                    .iter()
                    .take(GROUPS_MAX)
                    .map(|group| (*group, content.group(*group).cloned().unwrap_or_default()))
                    .collect();
                let last = content.unsaved.len() <= GROUPS_MAX;
                // No block is recorded behind the recorded end, where a later growth would show it:
                // each part comes with the size up to its end.
                let reached = groups.last().filter(|_| !last).map(|(group, _)| (group + 1) * GROUP * SLOT);
                let size = content.grown.as_ref().zip(reached).map(|(grown, reached)| grown.size.min(reached));
                Ok((groups, content.grown.clone().filter(|_| last), size, row.lags.is_some()))
            })?;
            if groups.is_empty() && grown.is_none() && (slack.is_some() || !lags) {
                return Ok(());
            }
            // The flush behind the acknowledgement of every stable write and commit. A transaction
            // that has one order with the cache volume's writes is durable only if they are.
            if !self.ordered {
                self.cache.flush().await.map_err(|error| broken(&error))?;
            }
            let mut saving = Saving { inode, grown: grown.as_ref() };
            let lags = self.change_around(&mut saving, |change, _| {
                let mut row = change.row(inode)?;
                if grown.is_some() && !row.open {
                    return Err(FileError::Damaged(format!(
                        "inode {inode} has writes, and its row says that it has none"
                    )));
                }
                for (group, value) in &groups {
                    put_group(change, inode, *group, value);
                }
                if let Some(grown) = &grown {
                    apply(&mut row, grown);
                }
                row.size = row.size.max(size.unwrap_or(0));
                let lags = slack.map(|slack| change.now.plus(slack));
                row.lags = lags.map(Into::into);
                change.put_row(inode, row);
                Ok(lags)
            });
            let lags = lags.await?;
            self.step(|core| {
                let content = core.content(inode)?.1;
                content.slack = lags;
                for (group, value) in &groups {
                    if content.group(*group).unwrap_or(&Group::default()) == value {
                        content.unsaved.remove(group);
                    }
                }
                Ok(())
            })?;
            if grown.is_some() || groups.is_empty() {
                return Ok(());
            }
        }
    }

    /// Sets the size, and other attributes with it. Answers before and after.
    /// `guard`: the change time that the file must have.
    pub(super) async fn resize(
        &self,
        caller: &Caller,
        inode: Inode,
        size: u64,
        changes: &Changes,
        mut guard: Option<Moment>,
    ) -> Result<Changed> {
        if size > SIZE_MAX {
            return Err(FileError::TooLarge);
        }
        let (gate, saving) = self.step(|core| {
            core.living(inode)?;
            let content = core.content(inode.0)?.1;
            Ok((Arc::clone(&content.gate), Arc::clone(&content.saving)))
        })?;
        let held = Arc::new(gate.write_owned().await);
        let _turn = saving.lock_owned().await;
        let (before, row) = self.step(|core| Ok((core.attributes(inode.0)?, core.content(inode.0)?.0)))?;
        guarded(guard, &before)?;
        // Refused before the file is open: it would be archived once more, as a version under its
        // retention.
        let time = self.step(|core| Ok(core.now(self.stamp())))?;
        rules::changed(caller, &before, changes, time)?;
        if row.committed.is_some() && size <= before.size {
            return match size == before.size {
                true => Ok(Changed { before: before.clone(), after: before }),
                false => Err(FileError::ReadOnly("the file is committed; its content cannot change".into())),
            };
        }
        if !row.open {
            self.reopen(inode.0).await?;
        }
        let now = self.step(|core| Ok(core.attributes(inode.0)?.size))?;
        if size > now && !now.is_multiple_of(BLOCK) {
            // Bytes behind the end may be no zeros.
            let mut waiting = Waiting::default();
            let first = now / BLOCK * BLOCK;
            let cached = self.step(|core| {
                core.load(inode.0, first, first + BLOCK)?;
                let row = core.content(inode.0)?.0;
                let parts = core.content(inode.0)?.1.parts(first, first + 1, row.served());
                Ok(parts.iter().any(|part| matches!(part.source, super::core::Source::Cache(_))))
            })?;
            if cached {
                while !self.step(|core| core.allocate(inode.0, first, first + BLOCK))? {
                    self.wait_for_room(&mut waiting).await?;
                }
                self.pad(inode.0, now, Arc::clone(&held)).await?;
                // The zeros are durable before the size behind them is. Where the block is recorded
                // already, saving finds nothing to record and flushes nothing.
                if !self.ordered {
                    self.cache.flush().await.map_err(|error| broken(&error))?;
                }
            }
        }
        self.save_in_turn(inode.0).await?;
        let mut shrunk = None;
        // A large file shrinks in steps, from its end, each of which is a truncation of its own.
        loop {
            let last = self.step(|core| core.groups_behind(inode.0, size, GROUPS_MAX + 1))?;
            let Some((first, _)) = last.get(GROUPS_MAX - 1).filter(|_| last.len() > GROUPS_MAX) else { break };
            let next = first * GROUP * SLOT;
            let step = Changes { size: Some(next), ..Changes::default() };
            let changed = self.cut(caller, inode, next, &step, guard.take()).await?;
            shrunk.get_or_insert(changed.before);
        }
        let changed = self.cut(caller, inode, size, changes, guard).await?;
        drop(held);
        self.note_active(inode.0)?;
        Ok(Changed { before: shrunk.unwrap_or(changed.before), after: changed.after })
    }

    /// One transaction: the new size, and records without what lies behind it. Under the gate and
    /// in turn, with nothing unsaved.
    async fn cut(
        &self,
        caller: &Caller,
        inode: Inode,
        size: u64,
        changes: &Changes,
        guard: Option<Moment>,
    ) -> Result<Changed> {
        let (watched, inode) = (Watched::new(inode, guard), inode.0);
        let groups = self.step(|core| {
            // Memory would keep what the records lose, where no one waits for the answer. It takes
            // these groups from the records again.
            let content = core.content(inode)?.1;
            let behind = |group: &u64| *group >= size / (SLOT * GROUP);
            let known: Vec<u64> = content.groups().map(|(group, _)| group).filter(behind).collect();
            known.into_iter().for_each(|group| content.set_group(group, Group::default()));
            core.groups_behind(inode, size, GROUPS_MAX + 1)
        })?;
        let cut = self.change_watched(watched, |change, _| {
            let row = change.row(inode)?;
            if row.committed.is_some() && !(self.grows(&row) && size >= row.size) {
                return Err(FileError::ReadOnly("the file is committed; its content cannot change".into()));
            }
            let mut new = tree::set_attributes(&row, caller, changes, change.now)?;
            new.size = size;
            new.used = new.used.min(size.next_multiple_of(BLOCK));
            if let Some(archived) = &mut new.archived {
                archived.used = archived.used.min(size);
            }
            for (group, value) in &groups {
                put_group(change, inode, *group, &kept(*group, value, size));
            }
            change.put_row(inode, new);
            Ok(())
        });
        let changed = cut.await?;
        self.step(|core| {
            for (group, value) in &groups {
                let kept = kept(*group, value, size);
                let freed: Vec<u64> = value
                    .slots
                    .iter()
                    .zip(kept.slots.iter())
                    .filter(|(before, after)| before.place != 0 && after.place == 0)
                    .map(|(before, _)| before.place - 1)
                    .collect();
                freed.into_iter().for_each(|slot| core.slots.free(inode, slot));
            }
            let content = core.content(inode)?.1;
            content.generation += 1;
            Ok(())
        })?;
        Ok(changed)
    }
}

/// The part of a group before `size`: slots and blocks behind it go.
fn kept(group: u64, value: &Group, size: u64) -> Group {
    let mut kept = value.clone();
    for (index, slot) in kept.slots.iter_mut().enumerate() {
        let start = (group * GROUP + index as u64) * SLOT;
        let blocks = size.saturating_sub(start).div_ceil(BLOCK);
        if blocks == 0 {
            *slot = Default::default();
        } else if blocks < SLOT / BLOCK {
            slot.valid &= (1 << blocks) - 1;
        }
    }
    kept
}

pub(super) fn put_group(change: &mut Change<'_>, inode: u64, group: u64, value: &Group) {
    let key = numbered_key(change.share(), inode, group);
    match value.is_empty() {
        true => change.delete(BLOCKS, key),
        false => change.put(BLOCKS, key, value),
    }
}

fn apply(row: &mut InodeRow, grown: &Grown) {
    row.size = grown.size;
    row.modified = grown.modified.into();
    if Moment::from(row.changed) < grown.modified {
        row.changed = grown.modified.into();
    }
    row.change += grown.writes;
    row.used += grown.stored;
    if grown.without_set_id {
        row.mode = rules::without_set_ids(row.mode);
    }
}
