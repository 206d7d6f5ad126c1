//! The scrub: reads and verifies every strip of every slot, parity included, past every cache, then the log on its
//! members, the table on all replicas, and the labels; and has repaired what can be. One pass in 14 days unless an
//! operator asks, and again at once (once) after a pass that found damage.

use std::rc::Rc;

use stele_ground::{Duration, VolumeId};
use stele_media::Priority;

use crate::engine::{Engine, Work, add};
use crate::place::SlotId;
use crate::repair::Healed;
use crate::sync::join_all;
use crate::{AlarmKind, ArrayError, Severity};

/// A pass begins this long after the one before began.
const PERIOD: Duration = Duration::from_secs(14 * 24 * 3600);
/// Stripes verified at once.
const STRIPES: usize = 8;

impl Engine {
    /// Runs for the pool's life.
    pub async fn scrub_flow(self: Rc<Self>) {
        let mut next = self.io.now() + PERIOD;
        loop {
            let notified = self.scrub_notify.changed();
            if !self.scrub_wanted.replace(false) && self.io.now() < next {
                let sleep = self.io.sleep_until(next);
                futures_util::pin_mut!(sleep, notified);
                futures_util::future::select(sleep, notified).await;
                continue;
            }
            if self.check_writable().is_err() {
                return;
            }
            next = self.io.now() + PERIOD;
            let result = self.scrub_pass().await;
            self.scrub.set(None);
            match result {
                Ok(found) => self.report_scrub(found),
                Err(error) => {
                    tracing::warn!("the scrub stopped early: {error}");
                    next = self.io.now() + Duration::from_secs(3600);
                }
            }
        }
    }

    fn report_scrub(&self, found: Healed) {
        add(&self.count.scrubs, 1);
        self.count.scrub_found.set(found.bad + found.lost);
        self.count.scrub_repaired.set(found.repaired);
        let severity = if found.bad + found.lost > 0 { Severity::Warning } else { Severity::Notice };
        self.alarm(
            AlarmKind::ScrubFinished,
            severity,
            None,
            format!("scrub finished: {} units damaged, {} repaired, {} lost", found.bad, found.repaired, found.lost),
        );
    }

    async fn scrub_pass(self: &Rc<Self>) -> Result<Healed, ArrayError> {
        let mut sum = Healed::default();
        let rows: Vec<_> = {
            let layout = self.space.layout.borrow();
            layout.rows().map(|row| (row.id, row.class)).collect()
        };
        let rows: Vec<_> = rows.into_iter().filter(|(row, _)| self.space.row_class(*row).is_some()).collect();
        let total = rows
            .iter()
            .map(|(row, class)| u64::from(self.space.used(*row)) * class.strip.0 * class.code.width() as u64)
            .sum();
        self.scrub.set(Some(Work { done: 0, total, since: self.io.now() }));
        for (row, _) in rows {
            for first in (0..self.space.slots(row)).step_by(STRIPES) {
                let last = self.space.slots(row).min(first + STRIPES as u32);
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
                if let Some(work) = self.scrub.get() {
                    self.scrub.set(Some(Work { done: work.done + bytes, ..work }));
                }
                self.throttle(bytes, false).await;
            }
        }
        let mut go_on = |_: u64, _: u64| true;
        // What is beyond repair in one of them keeps the pass from none of the others.
        for repaired in [self.log.scrub().await, self.table.scrub(&mut go_on).await, self.drives.labels.scrub().await] {
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
        let Some(volume) = self.volumes.get(VolumeId(head.volume)) else { return Ok(Healed::default()) };
        self.heal(&volume, head.stripe, Priority::Scrub).await
    }
}
