//! Dirty blocks whose memory changed by itself. What hosts wrote lies in memory until it is
//! destaged, for minutes perhaps, and the log holds the same bytes. Each dirty block has a digest
//! taken when it came. The digest is compared before a reader gets the block, and before the block
//! is destaged or appended anew. A block that differs is taken from the log.

use crate::durable::log::Log;
use crate::durable::records::Record;
use crate::engine::Engine;
use crate::model::place::{BlockKey, Lsn, StripeKey};
use crate::model::{AlarmKind, ArrayError, Severity};
use stele_ground::BLOCK;
use stele_media::Shared;

impl Engine {
    /// Puts right whatever is dirty of the stripe and not as it came.
    pub async fn restore_memory(&self, stripe: StripeKey) -> Result<(), ArrayError> {
        loop {
            let spoilt = self.look(|core| core.cache.spoilt_of(stripe));
            let Some(block) = spoilt else { return Ok(()) };
            Box::pin(self.restore_block(block)).await?;
        }
    }

    /// Takes the block from the log, if it is dirty and not as it came.
    pub async fn restore_block(&self, key: BlockKey) -> Result<(), ArrayError> {
        let spoilt = |lsn: &Lsn| self.look(|core| core.cache.is_spoilt(key, *lsn));
        let lsn = self.look(|core| core.cache.dirty(key).map(|block| block.lsn));
        let Some(lsn) = lsn.filter(&spoilt) else { return Ok(()) };
        let record = self.log.fetch(lsn).await?;
        // Written again or destaged meanwhile: it is another block by now.
        if !spoilt(&lsn) {
            return Ok(());
        }
        let place = format!("volume {}, block {}", key.volume.0, key.block);
        let Some(data) = record.and_then(|record| content(&record, key)) else {
            return Err(ArrayError::Damaged(format!(
                "the memory that holds {place} changed by itself, and no drive of the log can give what was written; write \
                 the block anew, and have the machine's memory tested"
            )));
        };
        self.step(|core| core.cache.restore(key, lsn, data));
        self.alarm(
            AlarmKind::MemoryDamaged,
            Severity::Critical,
            None,
            format!(
                "the memory that holds {place} changed by itself; it was restored from the log; have the machine's memory \
                 tested"
            ),
        );
        Ok(())
    }
}

/// The block as the record says.
fn content(record: &Record, key: BlockKey) -> Option<Shared> {
    let at = key.block.checked_mul(BLOCK as u64)?;
    match record {
        Record::Write { volume, at: first, data } if *volume == key.volume => {
            let mut skip = at.checked_sub(*first)? as usize;
            for piece in data {
                if skip < piece.len() {
                    return piece.get(skip..skip + BLOCK).map(|_| piece.slice(skip..skip + BLOCK));
                }
                skip -= piece.len();
            }
            None
        }
        Record::Zero { volume, at: first, length, .. } if *volume == key.volume => {
            (*first..first.checked_add(*length)?).contains(&at).then(crate::cache::zero_block)
        }
        _ => None,
    }
}

impl Log {
    /// The record as a member of the log holds it. None where none does any more.
    async fn fetch(&self, lsn: Lsn) -> Result<Option<Record>, ArrayError> {
        self.durable(lsn).await?;
        let Some((header, group)) = self.group_of(lsn).await else { return Ok(None) };
        let place = (lsn.0 - header.first.0) as usize;
        Ok(crate::durable::log::group::records(&header, &group).and_then(|records| records.into_iter().nth(place)))
    }
}
