//! Reading the key table, also while blocks of it cannot be read.

use std::collections::BTreeSet;

use futures_util::StreamExt;
use stele_media::MediaFault;

use super::{Entry, FIRST, KeyTable};
use crate::model::error::Result;
use crate::space::BLOCK;

/// Blocks read at once.
const LOOKING: usize = 32;

impl KeyTable {
    /// The entry in a slot. The pool refuses to read a block while it does not know what became of
    /// a write to it, as after its log has stopped. No entry of an acknowledged object was changed
    /// by that write, so the block's content in memory has it. Damage is told as such.
    pub async fn read(&self, slot: u64) -> Result<Option<Entry>> {
        let (block, inside) = self.block(slot)?;
        match self.volume.read(block, BLOCK as usize).await {
            Ok(bytes) => Ok(Entry::decode(&bytes[inside..])),
            Err(error) if error.fault == MediaFault::Damaged => Err(error.into()),
            Err(error) => {
                let mut state = self.state();
                let known = state.remembered.get(&block);
                let known = known.or_else(|| state.former.get(&block)).ok_or(error)?;
                Ok(Entry::decode(&known[inside..]))
            }
        }
    }

    /// Hands out the slots of blocks that can be read again.
    pub async fn look_again(&self) -> Result<()> {
        let bad: Vec<u64> = self.state().bad.iter().copied().collect();
        for block in bad {
            match self.volume.read(block, BLOCK as usize).await {
                Ok(_) => drop(self.state().bad.remove(&block)),
                Err(error) if error.fault == MediaFault::Damaged => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Blocks whose slots are not given out, since they could not be read or written.
    pub fn bad_blocks(&self) -> usize {
        self.state().bad.len()
    }

    /// Of the table's blocks in these ranges (sorted and disjoint), those that cannot be read.
    pub async fn unreadable(&self, ranges: &[(u64, u64)]) -> BTreeSet<u64> {
        let (size, block) = (u64::from(self.segments.size), u64::from(BLOCK));
        let parts = self.state().parts.clone();
        let mut blocks = Vec::new();
        for part in parts {
            let start = self.segments.start(part);
            for &(at, length) in ranges {
                let from = (at / block * block).max(start + u64::from(FIRST));
                blocks.extend((from..at.saturating_add(length).min(start + size)).step_by(BLOCK as usize));
            }
        }
        let reads = blocks.into_iter().map(async |at| {
            let read = self.volume.read(at, BLOCK as usize).await;
            read.is_err().then_some(at)
        });
        futures_util::stream::iter(reads).buffer_unordered(LOOKING).filter_map(std::future::ready).collect().await
    }
}
