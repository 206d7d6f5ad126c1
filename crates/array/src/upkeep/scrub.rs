//! The scrub: reads and verifies every strip of every slot, parity included, past every cache, then the log on its
//! members, the table and its anchors on all replicas, and the labels; and has repaired what can be. One pass in 14 days
//! unless an operator asks, and once more an hour after a pass that found damage.
//!
//! The pool reads no calendar: what counts is the time it was open since the last whole pass began. That and the place of a
//! pass under way are in every checkpoint (and one is written every day for that alone), so that a server that is often
//! started again still gets round.

use std::rc::Rc;

use stele_ground::{Duration, VolumeId};
use stele_media::Priority;

use crate::engine::Engine;
use crate::model::place::SlotId;
use crate::model::{AlarmKind, ArrayError, Severity};
use crate::runtime::sync::join_all;
use crate::stripe::repair::Healed;

/// A pass begins when the pool was open this long since the one before began.
const PERIOD: Duration = Duration::from_secs(14 * 24 * 3600);
/// And once more so long after one that found damage.
const AGAIN: Duration = Duration::from_secs(3600);
/// How often the age of the last pass is stored at least.
const DAY: Duration = Duration::from_secs(24 * 3600);
/// Stripes verified at once.
const STRIPES: usize = 8;

impl Engine {
    /// Open time since the last whole pass began.
    pub fn scrub_age(&self) -> Duration {
        let (at, age) = self.scrubbing.begun();
        Duration(age.0.saturating_add(self.io.now().since(at).0))
    }

    /// What the checkpoint says of the last pass.
    pub fn scrubbed_at_age(&self, age: Duration, row: u32) {
        self.scrubbing.restore(age, row, self.io.now());
    }

    /// Runs for the pool's life.
    pub async fn scrub_flow(self: Rc<Self>) {
        // A pass that was under way when the pool was closed goes on.
        let mut next = match self.scrubbing.row() {
            0 => self.io.now() + Duration(PERIOD.0.saturating_sub(self.scrub_age().0)),
            _ => self.io.now(),
        };
        let mut again = false;
        loop {
            let notified = self.scrubbing.notified();
            let wanted = self.scrubbing.take_wanted();
            if !wanted && self.io.now() < next {
                let at = next.min(self.io.now() + DAY);
                {
                    let sleep = self.io.sleep_until(at);
                    futures_util::pin_mut!(sleep, notified);
                    futures_util::future::select(sleep, notified).await;
                }
                if self.io.now() >= at && self.check_writable().is_ok() {
                    self.store_age().await;
                }
                continue;
            }
            if self.check_writable().is_err() {
                return;
            }
            if wanted {
                self.scrubbing.reach(0);
            }
            if self.scrubbing.row() == 0 {
                self.scrubbing.begin(self.io.now());
            }
            let result = self.scrub_pass().await;
            self.scrubbing.work.end();
            match result {
                Ok(found) => {
                    self.scrubbing.reach(0);
                    self.report_scrub(found);
                    again = !again && found.bad + found.lost > 0;
                    let (begun, age) = self.scrubbing.begun();
                    let period = Duration(PERIOD.0.saturating_sub(age.0));
                    next = if again { self.io.now() + AGAIN } else { begun + period };
                }
                Err(error) => {
                    tracing::warn!("the scrub stopped early: {error}");
                    self.scrubbing.note_stopped(error.to_string());
                    next = self.io.now() + AGAIN;
                }
            }
        }
    }

    async fn store_age(self: &Rc<Self>) {
        if let Err(error) = self.checkpoint().await {
            tracing::warn!("the age of the last scrub is not stored: {error}");
        }
    }

    fn report_scrub(&self, found: Healed) {
        self.count.scrubs.add(1);
        self.count.scrub_found.set(found.bad + found.lost);
        self.count.scrub_repaired.set(found.repaired);
        let unreadable = self.unreadable_stripes();
        let severity = if found.bad + found.lost + unreadable > 0 { Severity::Warning } else { Severity::Notice };
        let mut text =
            format!("scrub finished: {} units damaged, {} repaired, {} lost", found.bad, found.repaired, found.lost);
        if unreadable > 0 {
            text.push_str(&format!("; {unreadable} stripes cannot be read"));
        }
        let (exposed, crowded) = self.crowded_stripes();
        if exposed > 0 {
            text.push_str(&format!(
                "; {exposed} stripes would not survive the loss of an enclosure, {crowded} of them could on the drives here"
            ));
        }
        self.alarm(AlarmKind::ScrubFinished, severity, None, text);
    }

    async fn scrub_pass(self: &Rc<Self>) -> Result<Healed, ArrayError> {
        let mut sum = Healed::default();
        let rows: Vec<_> = {
            let layout = self.layout.read();
            layout.rows().map(|row| (row.id, row.class)).collect()
        };
        let from = self.scrubbing.row();
        let rows =
            rows.into_iter().filter(|(row, _)| row.0 >= from && self.look(|core| core.space.row_class(*row)).is_some());
        let rows: Vec<_> = rows.collect();
        let total = rows
            .iter()
            .map(|(row, class)| {
                u64::from(self.look(|core| core.space.used(*row))) * class.strip.0 * class.code.width() as u64
            })
            .sum();
        self.scrubbing.work.begin(total, self.io.now());
        for (row, _) in rows {
            self.scrubbing.reach(row.0);
            for first in (0..self.look(|core| core.space.slots(row))).step_by(STRIPES) {
                let last = self.look(|core| core.space.slots(row)).min(first + STRIPES as u32);
                let checks = (first..last).map(|index| self.scrub_slot(SlotId { row, index }));
                let mut bytes = 0;
                for healed in join_all(checks).await {
                    let healed = healed?;
                    bytes += healed.bytes;
                    sum.bad += healed.bad;
                    sum.repaired += healed.repaired;
                    sum.lost += healed.lost;
                }
                self.check_writable()?;
                self.scrubbing.work.advance(bytes);
                self.throttle(bytes, false).await;
            }
        }
        let mut go_on = |_: u64, _: u64| true;
        // What is beyond repair in one of them keeps the pass from none of the others.
        let parts = [
            self.log.scrub().await,
            self.table.scrub(&mut go_on).await,
            self.table.scrub_anchors().await,
            self.drives.labels.scrub().await,
        ];
        for repaired in parts {
            self.check_writable()?;
            match repaired {
                Ok(repaired) => {
                    sum.bad += repaired;
                    sum.repaired += repaired;
                }
                Err(error) => {
                    sum.bad += 1;
                    self.alarm(AlarmKind::ScrubFinished, Severity::Warning, None, format!("scrub: {error}"));
                }
            }
        }
        Ok(sum)
    }

    async fn scrub_slot(self: &Rc<Self>, slot: SlotId) -> Result<Healed, ArrayError> {
        let Some(shape) = self.row_shape(slot) else { return Ok(Healed::default()) };
        let head = self.slot_head(&shape, slot).await?;
        if head.is_free() {
            return Ok(Healed::default());
        }
        let Some(volume) = self.look(|core| core.volumes.get(VolumeId(head.volume))) else {
            return Ok(Healed::default());
        };
        self.heal(&volume, head.stripe, Priority::Scrub).await
    }
}

#[cfg(test)]
mod tests;
