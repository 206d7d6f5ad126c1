//! Work that nobody waits for, done in steps when the caller says so: nothing here spawns or sleeps.
//!
//! The caller calls [`Archive::step`] every second or so; a step does a bounded amount of what is due and says whether more
//! is. Dropping its future between awaits is safe: each piece of work is a transaction of its own.

use std::collections::VecDeque;
use std::sync::Mutex;

use crate::record::disposal::DisposalRow;

/// What background work remembers between steps.
#[derive(Default)]
pub(crate) struct Work {
    /// Slots of short disposals, to be made free.
    pub settled: Mutex<Vec<u64>>,
    /// Disposals of long content.
    pub long: Mutex<VecDeque<(u64, DisposalRow)>>,
}

impl crate::store::Store {
    /// Records a clock alarm that nobody was told of yet, and passes it on.
    pub(crate) async fn alarm_clock(&self) -> crate::Result<Option<String>> {
        let alarm = crate::store::locked(&self.clock).take_alarm();
        if let Some(alarm) = &alarm {
            tracing::warn!("compliance clock: {alarm}; expiration is frozen until a retention officer accepts it");
            let event = crate::audit::Event::new(&crate::Caller::system("clock"), crate::Action::ClockAlarm)
                .detail(alarm.clone());
            let row = crate::store::locked(&self.clock).row();
            let transaction = stele_catalog::Transaction::new().with_reserve().put(
                crate::record::SETTINGS,
                crate::record::settings::CLOCK,
                crate::record::encode(&row),
            );
            self.record(transaction, event).await?;
        }
        Ok(alarm)
    }
}
