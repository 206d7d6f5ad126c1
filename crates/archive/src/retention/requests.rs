//! The open requests: until when they wait, and how they end without an approval.
//!
//! A request ends by the later of both clocks, or once the store was open for as long since, by
//! real elapsed time. The second end is for a system clock that is set back. Without it, a clock
//! that was ahead when the request was made would keep the request for as long as it was ahead. And
//! both clocks stand while the system clock is behind the compliance clock.
//!
//! Failure model: a request that is void waits no more, whether its record is there or not. The
//! record goes with the next step of background work. Time that a crash takes from the count of
//! open time, half a minute at most, is added to the life of a request.

use std::sync::Arc;

use stele_catalog::{Direction, KeyRange, Transaction};

use crate::audit::Event;
use crate::model::action::Action;
use crate::model::alarm::{Alarm, AlarmKind};
use crate::model::error::{ArchiveError, Result};
use crate::model::principal::Caller;
use crate::model::time::{SECOND, Timestamp};
use crate::record::request::{Asked, RequestRow};
use crate::record::{REQUESTS, decode};
use crate::retention::approval::{OPEN_MAX, of_peer};
use crate::store::Store;

/// By how much the end by open time has to come earlier to be the one that is shown: both drift
/// from each other as clocks do.
const SHOWN_FROM: u64 = 3600 * SECOND;

impl RequestRow {
    /// Whether the request is void. `now`: the later of both clocks. `open`: milliseconds for which
    /// the store was ever open.
    fn is_over(&self, now: Timestamp, open: u64) -> bool {
        self.expires <= now || self.open_until.is_some_and(|until| until <= open)
    }
}

impl Store {
    /// From when on the request is void, as the later of both clocks will show it.
    pub(super) fn void_from(&self, row: &RequestRow) -> Timestamp {
        let Some(until) = row.open_until else { return row.expires };
        let left = until.saturating_sub(self.open_time());
        let by_open = Timestamp(self.later_now().0.saturating_add(left));
        match by_open.0.saturating_add(SHOWN_FROM) < row.expires.0 {
            true => by_open,
            false => row.expires,
        }
    }

    /// The requests that are not void.
    pub(crate) fn open_requests(&self) -> Result<Vec<(String, RequestRow)>> {
        let rows = self.snapshot()?.range(REQUESTS, &KeyRange::all(), 4 * OPEN_MAX, Direction::Forward)?;
        let (now, time) = (self.later_now(), self.open_time());
        let mut open = Vec::new();
        for (key, value) in &rows {
            let row: RequestRow = decode(REQUESTS, key, value)?;
            if !row.is_over(now, time) {
                open.push((String::from_utf8_lossy(key).into_owned(), row));
            }
        }
        Ok(open)
    }

    /// Removes void requests and records that.
    pub(crate) async fn end_requests(self: &Arc<Store>) -> Result<()> {
        let rows = self.snapshot()?.range(REQUESTS, &KeyRange::all(), 4 * OPEN_MAX, Direction::Forward)?;
        let (now, time) = (self.later_now(), self.open_time());
        for (key, raw) in rows {
            let row: RequestRow = decode(REQUESTS, &key, &raw)?;
            if row.is_over(now, time) {
                let id = String::from_utf8_lossy(&key).into_owned();
                let event = Event::new(&Caller::system("approval"), Action::Approve)
                    .detail(format!("request {id} of {} is void without approval: {}", row.by, row.says));
                let transaction = Transaction::new().equals(REQUESTS, key.clone(), raw).delete(REQUESTS, key);
                self.end_unapproved(&row, transaction, event).await?;
            }
        }
        Ok(())
    }

    /// Ends a request without its effect, and revokes the key that waited for it. Where the key
    /// cannot be revoked for want of room, the request ends all the same: such a key is void.
    pub(super) async fn end_unapproved(
        self: &Arc<Store>,
        row: &RequestRow,
        over: Transaction,
        event: Event,
    ) -> Result<()> {
        if let Asked::Officer(key) = &row.asked {
            match self.revoke_waiting(key, over.clone(), event.clone()).await {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(error @ (ArchiveError::NoSpace(_) | ArchiveError::Damaged { .. })) => {
                    tracing::warn!(
                        "access key {key} waits for a request that is over, and could not be revoked ({error}); it is \
                         void, and `stele key revoke` ends it"
                    );
                }
                Err(error) => return Err(error),
            }
        }
        self.record(over, event).await.map(drop)
    }

    /// Stands while a request makes an officer without an officer's approval.
    pub(crate) fn officer_alarms(&self) -> Vec<Alarm> {
        let open = self.open_requests().unwrap_or_default();
        let lost = open.iter().filter(|(_, row)| row.alone_from.is_some());
        lost.map(|(id, row)| {
            let message = format!("request {id} of {}{}: {}", row.by, of_peer(row.peer), row.says);
            Alarm::new(AlarmKind::Officers, message)
        })
        .collect()
    }
}
