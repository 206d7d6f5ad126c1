//! Files whose content stays in the cache.

use super::reading::READ_AHEAD;
use super::records::{PINS, inode_key};
use super::{SLOT, Share, Source};
use crate::model::Caller;
use crate::{FileError, Inode, Result};
use bytes::Bytes;
use stele_ground::Bytes as Size;

/// The part of the cache, in percent, that pinned files may take.
const PINNED_MAX: u64 = 50;
/// Bytes of a file that one step looks at.
const LOOK: u64 = 256 << 20;

impl Share {
    /// Fetches a file into the cache, and keeps it there. Answers its size.
    pub async fn pin(&self, inode: Inode) -> Result<u64> {
        if self.bypasses() {
            return Err(FileError::Refused("the cache of the share is off: it keeps no file".into()));
        }
        let size = self.step(|core| {
            let size = core.living(inode)?.size;
            core.content(inode.0)?;
            let others: Vec<u64> = core.pinned.iter().filter(|other| **other != inode.0).copied().collect();
            let mut pinned = size.next_multiple_of(SLOT);
            for other in others {
                // One that is gone is not pinned for much longer.
                pinned += core.attributes(other).map_or(0, |about| about.size.next_multiple_of(SLOT));
            }
            let most = core.slots.count() * SLOT * PINNED_MAX / 100;
            match pinned > most {
                true => Err(FileError::Refused(format!(
                    "pinned files would take {} of the cache, and {} are for them; unpin others",
                    Size(pinned),
                    Size(most)
                ))),
                false => Ok(size),
            }
        })?;
        self.set_pin(inode, true).await?;
        let mut at = 0;
        while at < size {
            let data = self.read_content(&Caller::ROOT, inode, at, READ_AHEAD as u32).await?;
            let length: u64 = data.pieces.iter().map(|piece| piece.len() as u64).sum();
            if length == 0 {
                break;
            }
            at += length;
        }
        let (mut whole, mut at) = (true, 0);
        while whole && at < size {
            let end = (at + LOOK).min(size);
            whole = self.step(|core| {
                core.load(inode.0, at, end)?;
                let (row, content) = core.content(inode.0)?;
                Ok(content.parts(at, end, row.served()).iter().all(|part| part.source != Source::Archive))
            })?;
            at = end;
        }
        match whole {
            true => Ok(size),
            false => {
                self.ask_for_room();
                Err(FileError::Retry("the cache has no room for all of the file yet; pin it again".into()))
            }
        }
    }

    pub async fn unpin(&self, inode: Inode) -> Result<()> {
        self.step(|core| core.living(inode).map(drop))?;
        self.set_pin(inode, false).await
    }

    async fn set_pin(&self, inode: Inode, pinned: bool) -> Result<()> {
        self.change(|change, _| {
            // Read, so that a removal that comes in between is not followed by a pin.
            change.row(inode.0)?;
            let key = inode_key(change.share(), inode.0);
            match pinned {
                true => change.put_bytes(PINS, key, Bytes::new()),
                false => change.delete(PINS, key),
            }
            Ok(())
        })
        .await?;
        self.step(|core| {
            core.set_pinned(inode.0, pinned);
            Ok(())
        })
    }

    pub fn is_pinned(&self, inode: Inode) -> bool {
        self.locked().pinned.contains(&inode.0)
    }
}
