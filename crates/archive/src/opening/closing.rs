//! Closing a store in order.

use stele_catalog::Transaction;

use crate::model::error::Result;
use crate::record::settings::{CLOCK, IDENTITY};
use crate::record::{SEGMENTS, SETTINGS, encode, keys};
use crate::store::Archive;

impl Archive {
    /// Writes the state that the next opening would otherwise have to find again. Requests that are
    /// under way or follow are refused, so none is acknowledged that the next opening would not
    /// find.
    pub async fn close(&self) -> Result<()> {
        let store = &self.store();
        if store.is_read_only() {
            return Ok(());
        }
        store.compliance_now();
        store.summarise_refusals(true).await;
        store.seal_if_there_is_room().await?;
        store.settle_abandoned().await?;
        store.compensate_or_warn().await;
        store.note_audit_end().await?;
        store.renew_witness(true).await?;
        // Until the end: a change of the clock or the identity under way is known in memory then.
        let _turn = store.clock_turn().await;
        let identity_lock = store.lock_identity().await?;
        store.note_close(&identity_lock).await?;
        // The appender closes before the catalog. A record that has its place already may still be
        // committed before the end is stored, and lies before the tail.
        let tails = store.appender().close();
        let last = || {
            for (number, tail) in &tails {
                store.segments().change(*number, |row| row.used = *tail);
            }
            let mut identity = store.identity().look(Clone::clone);
            identity.clean = true;
            let clock = store.clock_row();
            let mut transaction = Transaction::new().with_reserve().put(SETTINGS, IDENTITY, encode(&identity)).put(
                SETTINGS,
                CLOCK,
                encode(&clock),
            );
            // Changes that are still under way may be refused, and compensating notes may not have
            // had room.
            transaction = store.compensations().last_rows().apply(transaction);
            transaction = store.keys().settle(store.numbers().settle(transaction));
            for (number, row) in store.segments().take_dirty() {
                transaction = transaction.put(SEGMENTS, keys::short(number), encode(&row));
            }
            transaction
        };
        store.commit_last(last).await
    }
}
