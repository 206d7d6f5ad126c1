//! Bringing an anchor to its quorum: to as many drives that one is left whatever the pool is to
//! survive.

use stele_media::{Priority, Shared};

use super::Table;
use crate::durable::anchor;
use crate::model::ArrayError;
use crate::model::mutation::Mutation;
use crate::runtime::sync::join_all;

impl Table {
    /// Writes the anchor of this sequence to every usable drive and flushes it. `Degraded` where
    /// fewer drives have it then than must: nothing may rest on it.
    pub(super) async fn spread_anchor(&self, sequence: u64, bytes: Shared) -> Result<(), ArrayError> {
        let inner = &self.0;
        let at = anchor::slot_at(sequence);
        let (usable, since) = (inner.labels.usable(), inner.labels.attachments());
        let results = join_all(usable.iter().map(|drive| {
            let bytes = bytes.clone();
            async move {
                let index = inner.labels.index(*drive)?;
                inner.io.write(index, at, vec![bytes], Priority::Urgent).await.ok()?;
                (inner.io.is_disabled(Mutation::AnchorFlush) || self.flush(*drive, since).await).then_some(())
            }
        }))
        .await;
        let held = results.into_iter().flatten().count();
        let least = inner.labels.holders();
        let accepted = inner.labels.overridden() && held > 0;
        if held < least && !accepted && !inner.io.is_disabled(Mutation::AnchorQuorum) {
            return Err(ArrayError::Degraded(format!(
                "the anchor of checkpoint {sequence} is on {held} of the {least} drives it needs; return or replace drives"
            )));
        }
        Ok(())
    }
}
