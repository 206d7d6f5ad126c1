//! The compliance clock of an open store: its status, its alarms, and an officer's acceptance of an
//! alarm.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use stele_catalog::Transaction;

use crate::audit::Event;
use crate::model::act::{Act, People};
use crate::model::action::Action;
use crate::model::alarm::{Alarm, AlarmKind};
use crate::model::error::{ArchiveError, Result};
use crate::model::principal::{Caller, Role};
use crate::record::settings::CLOCK;
use crate::record::{SETTINGS, encode};
use crate::state::clock::ComplianceClock;
use crate::store::{Archive, Store};

/// The state of the compliance clock, for operators.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ClockStatus {
    pub compliance_time: String,
    pub wall_time: String,
    /// Why expiration is frozen.
    pub frozen: Option<String>,
}

impl Archive {
    pub fn clock(&self) -> ClockStatus {
        let compliance_time = self.store().compliance_now().to_string();
        let frozen = self.store().frozen();
        ClockStatus { compliance_time, wall_time: self.store().wall().to_string(), frozen }
    }

    /// The clock is accepted after an alarm. Expiration continues; the clock does not step.
    pub async fn accept_clock(&self, caller: &Caller) -> Result<()> {
        let alarm = self.store().frozen();
        self.accept_clock_alarm(caller, alarm.as_deref()).await
    }

    /// The same for the alarm that the officer was shown. Refused if the clock has another one now.
    pub async fn accept_clock_alarm(&self, caller: &Caller, alarm: Option<&str>) -> Result<()> {
        self.store().writable()?;
        let rules = self.store().rules();
        let allowed = caller.require_role(&[Role::RetentionOfficer], Action::ClockAccept);
        let instead = "`stele clock accept --officer FILE` asks, and another officer approves";
        let allowed = allowed.and_then(|()| self.store().require_one(Act::ClockAccept, instead));
        self.store().audited(allowed, || Event::new(caller, Action::ClockAccept)).await?;
        let now = self.store().frozen();
        if now.as_deref() != alarm {
            let now = now.unwrap_or_else(|| "none stands".to_owned());
            return Err(ArchiveError::InvalidState(format!("the clock's alarm is another one now, look again: {now}")));
        }
        let (said, alarm) = match alarm {
            Some(alarm) => (format!("expiration continues; accepted: {alarm}"), alarm),
            None => ("expiration continues".to_owned(), ""),
        };
        let event = Event::new(caller, Action::ClockAccept).detail(said);
        self.store().change_clock(rules.stand(Transaction::new()), event, |clock| clock.accept(alarm)).await
    }
}

impl Store {
    /// Who ends a freeze, for people.
    pub(crate) fn frozen_until(&self) -> &'static str {
        match self.people_for(Act::ClockAccept) {
            People::One => {
                "expiration is frozen until an administrator of this machine or a retention officer accepts the clock"
            }
            People::Two => "expiration is frozen until two retention officers accept the clock",
            People::Off => "expiration is frozen for good, since the acceptance of clock alarms is switched off",
        }
    }

    /// Changes the clock together with a transaction and its record. The clock changes only once
    /// that is durable. An alarm that comes meanwhile stands, in the clock and in its row.
    pub(crate) async fn change_clock(
        &self,
        transaction: Transaction,
        event: Event,
        change: impl Fn(&mut ComplianceClock),
    ) -> Result<()> {
        let _turn = self.clock_turn().await;
        let row = {
            let mut after = self.clock().look(Clone::clone);
            change(&mut after);
            after.row()
        };
        let transaction = transaction.with_reserve().put(SETTINGS, CLOCK, encode(&row));
        self.record(transaction, event).await?;
        self.clock().step(change);
        Ok(())
    }

    /// Records a clock alarm that has not been reported, and returns it. One whose record is
    /// refused, as by a busy catalog, is recorded at the next call.
    pub(crate) async fn alarm_clock(self: &Arc<Store>) -> Result<Option<Alarm>> {
        let _turn = self.clock_turn().await;
        let Some(alarm) = self.clock().look(ComplianceClock::alarm) else { return Ok(None) };
        tracing::warn!("compliance clock: {alarm}; {}", self.frozen_until());
        let event = Event::new(&Caller::system("clock"), Action::ClockAlarm).detail(alarm.clone());
        let row = self.clock_row();
        let transaction = Transaction::new().with_reserve().put(SETTINGS, CLOCK, encode(&row));
        self.record(transaction, event).await?;
        self.clock().step(|clock| clock.reported(&alarm));
        self.note_identity().await?;
        Ok(Some(Alarm::new(AlarmKind::Clock, alarm)))
    }
}
