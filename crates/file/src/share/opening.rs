//! Opening a share: what memory has to know of the records, and that it was opened.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, Weak};

use bytes::Bytes;
use stele_catalog::KeyRange;
use tokio::sync::{Mutex as Turn, Notify, Semaphore};

use super::core::Core;
use super::records::{ACTIVE, BLOCKS, Group, NUMBERS, ORPHANS, PINS, SLOT, STARTS, decode, last_number, share_key};
use super::slots::Slots;
use super::tree::Numbers;
use super::view::View;
use super::{BODY_MAX, CACHE_MIN, Caching, Counters, Ground, Root, Settings, Share, autocommit, objects, warming};
use crate::{FileError, Result};

impl Share {
    /// Opens a share whose bucket has this name. `number` is its part of the catalog's tables. A
    /// share that has no root directory yet gets one of this owner and mode.
    pub async fn open(ground: Ground, name: &str, number: u32, settings: Settings, root: Root) -> Result<Arc<Share>> {
        Share::open_with_bodies(ground, name, number, settings, root, BODY_MAX).await
    }

    /// As `open`. A file longer than `body_max` bytes is stored in parts.
    pub(super) async fn open_with_bodies(
        ground: Ground,
        name: &str,
        number: u32,
        settings: Settings,
        root: Root,
        body_max: u64,
    ) -> Result<Arc<Share>> {
        let Ground { archive, cache, cache_unit, surroundings } = ground;
        let slots = cache.geometry().size.0 / SLOT;
        if slots * SLOT < CACHE_MIN {
            return Err(FileError::Invalid(format!("a cache volume has at least {} MiB", CACHE_MIN >> 20)));
        }
        let records = archive.records();
        let ordered = cache.order().is_some_and(|order| records.order() == Some(order));
        let view = View::new(records, number);
        let steps = autocommit::Steps::new(surroundings.now());
        let mut verifier = [0; 8];
        surroundings.entropy(&mut verifier);
        let share = Arc::new_cyclic(|own| Share {
            own: Weak::clone(own),
            name: name.into(),
            archive,
            cache,
            surroundings,
            bypasses: AtomicBool::new(settings.caching == Caching::Off),
            settings: Mutex::new(settings),
            core: Mutex::new(Core::new(view, Numbers::new(None), Slots::new(slots, cache_unit.div_ceil(SLOT)), steps)),
            refreshing: Turn::default(),
            archiving: Turn::default(),
            committing: Turn::default(),
            tidying: Turn::default(),
            beginning: Turn::default(),
            uploads: Mutex::default(),
            naming: objects::Naming::default(),
            room: Notify::new(),
            wants_room: AtomicBool::new(false),
            wanted_space: AtomicU64::new(0),
            waiting_reads: AtomicU32::new(0),
            readers: Semaphore::new(warming::READERS),
            ordered,
            behind: Arc::default(),
            body_max,
            verifier,
            counters: Counters::default(),
        });
        share.begin().await?;
        share.load()?;
        if let Some(count) = share.make_tree(root).await? {
            tracing::warn!(share = %share.name, count, "the tree was made anew from archived versions");
        }
        Ok(share)
    }

    /// Counts this start, durably: the next one would otherwise come to the same change counters.
    async fn begin(&self) -> Result<()> {
        let count = self.change(|change, _| {
            let key = share_key(change.share());
            let count = match change.get(STARTS, &key)? {
                Some(bytes) => <[u8; 8]>::try_from(&*bytes).map(u64::from_be_bytes).map_err(|_| {
                    FileError::Damaged(format!("the number of starts of share {} has {} bytes", self.name, bytes.len()))
                })?,
                None => 0,
            };
            change.with_reserve();
            change.put_bytes(STARTS, key, Bytes::copy_from_slice(&(count + 1).to_be_bytes()));
            Ok(count + 1)
        });
        let start = count.await?;
        self.step(|core| {
            core.view.set_start(start);
            Ok(())
        })
    }

    /// Reads what memory has to know of the records: numbers, slots in use, files that are not
    /// archived, removed ones.
    fn load(&self) -> Result<()> {
        let now = self.surroundings.now().monotonic;
        self.step(|core| {
            let share = core.view.share;
            let prefix = KeyRange::prefix(share_key(share));
            core.numbers = Numbers::new(core.view.get(NUMBERS, &share_key(share))?.as_deref());
            for (table, orphans) in [(ACTIVE, false), (ORPHANS, true)] {
                each(core, table, &prefix, |core, key, _| {
                    let inode = last_number(key);
                    match orphans {
                        true => {
                            core.orphans.insert(inode);
                            core.note_use(inode);
                        }
                        // Archiving forgets one without an inode.
                        false => core.activate(inode, now),
                    }
                    Ok(())
                })?;
            }
            each(core, PINS, &prefix, |core, key, _| {
                core.set_pinned(last_number(key), true);
                Ok(())
            })?;
            each(core, BLOCKS, &prefix, |core, key, value| {
                let group: Group = decode(BLOCKS, key, value)?;
                let inode = key.get(4..12).map_or(0, last_number);
                for slot in group.slots.iter().filter(|slot| slot.place != 0) {
                    if !core.slots.occupy(inode, slot.place - 1) {
                        let slot = slot.place - 1;
                        return Err(FileError::Damaged(format!(
                            "slot {slot} of the cache of share {share} is named by inode {inode} and is not free"
                        )));
                    }
                }
                Ok(())
            })?;
            let held: Vec<u64> = core.slots.files().collect();
            for inode in held {
                if !core.active.contains(inode) && core.content(inode).is_ok() {
                    core.enqueue(inode);
                }
            }
            Ok(())
        })
    }
}

/// Every record of a range.
fn each(
    core: &mut Core,
    table: stele_catalog::Table,
    range: &KeyRange,
    mut act: impl FnMut(&mut Core, &[u8], &[u8]) -> Result<()>,
) -> Result<()> {
    let mut page = range.clone();
    loop {
        let records = core.view.range(table, &page, 4096)?;
        for (key, value) in &records {
            act(core, key, value)?;
        }
        match records.last() {
            Some((key, _)) if records.len() == 4096 => page = range.clone().after(key.clone()),
            _ => return Ok(()),
        }
    }
}
