//! Background work, done in steps when the caller says so. Nothing here spawns or sleeps.
//!
//! The caller calls [`Archive::step`] every second or so. A step does a bounded amount of due work
//! and says whether more is due. Its future may be dropped at any await: each piece of work is a
//! transaction of its own, and the next step finds unfinished work again.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use stele_catalog::Transaction;

use crate::model::alarm::{Alarm, AlarmKind};
use crate::model::error::{ArchiveError, Result};
use crate::record::settings::CLOCK;
use crate::record::{SEGMENTS, SETTINGS, encode, keys};
use crate::store::{Archive, Store};

/// Disposals of one step.
const DISPOSALS: usize = 256;
/// Sealed segments with at most this needed share, in percent, are reclaimed. While free segments
/// are few, the limit is higher.
const NEEDED_MAX: u32 = 40;
const NEEDED_MAX_WHEN_SHORT: u32 = 80;
const FREE_SHORT: usize = 8;

/// The result of one step.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StepReport {
    /// Alarms that are reported once.
    pub alarms: Vec<Alarm>,
    pub expired: u64,
    pub notified: u64,
    /// Versions that were put under matters or released from them.
    #[serde(default)]
    pub held: u64,
    /// Keys destroyed and content cleared after deletions.
    pub disposed: u64,
    /// Records moved out of segments, and segments freed.
    pub moved: u64,
    pub freed: u64,
    pub checkpoints: u64,
    /// The protection of the volumes was lifted, because nothing is retained any more.
    pub unprotected: bool,
    /// More is due: step again without waiting.
    pub more: bool,
}

impl Archive {
    /// Does a bounded amount of background work.
    pub async fn step(&self) -> Result<StepReport> {
        let store = &self.store();
        store.writable()?;
        let mut midway = store.upkeep().begin_step().await;
        if *midway {
            // The dropped step's transactions take effect before this one reads.
            store.barrier().await?;
        }
        *midway = true;
        let mut report = StepReport::default();
        store.compliance_now();
        report.alarms.append(&mut store.upkeep().take_unreported());
        report.alarms.extend(store.alarm_clock().await?);
        store.settle_abandoned().await?;
        if store.upkeep().is_retry_due(store.elapsed()) {
            store.disposals().retry_stuck();
        }
        let stuck = store.disposals().stuck();
        report.disposed = store.finish_disposals(DISPOSALS).await? as u64;
        if store.disposals().stuck() > stuck {
            report.alarms.extend(store.disposal_alarm());
        }
        report.more |= report.disposed as usize >= DISPOSALS;
        store.hold_step(&mut report).await?;
        store.index_step(&mut report).await?;
        store.expire(&mut report).await?;
        store.age(&mut report).await?;
        match store.seal_step().await {
            Ok((checkpoints, alarm)) => {
                report.checkpoints = checkpoints;
                report.alarms.extend(alarm);
                store.renew_witness(false).await?;
            }
            // Checkpoints are noted on the data volume. They wait until reclamation has made room.
            Err(ArchiveError::NoSpace(message)) => {
                report.alarms.push(Alarm::new(AlarmKind::Space, format!("audit checkpoint: {message}")));
            }
            Err(error) => return Err(error),
        }
        store.count_step(&mut report);
        store.reclaim_step(&mut report).await?;
        store.note_left_tombstones().await?;
        store.compensate().await?;
        store.end_requests().await?;
        store.revoke_unasked().await?;
        store.summarise_refusals(false).await;
        report.unprotected = store.unprotect_if_free().await?;
        store.write_clock().await?;
        *midway = false;
        Ok(report)
    }
}

impl Store {
    /// Writes the clock and the segments' counts at intervals. After a crash both may be behind:
    /// the clock then shows less, and the counts are hints.
    async fn write_clock(self: &Arc<Store>) -> Result<()> {
        if self.upkeep().is_clock_due(self.elapsed()) {
            let _turn = self.clock_turn().await;
            let clock = self.clock_row();
            let mut transaction = Transaction::new().with_reserve().put(SETTINGS, CLOCK, encode(&clock));
            for (number, row) in self.segments().take_dirty() {
                transaction = transaction.put(SEGMENTS, keys::short(number), encode(&row));
            }
            self.catalog().commit(transaction).await?;
        }
        if self.upkeep().is_identity_due(self.elapsed()) {
            self.note_identity().await?;
            self.note_audit_end().await?;
        }
        Ok(())
    }

    /// Frees retired segments, and reclaims one segment if its needed share is small enough.
    ///
    /// Where the volume has no room for what is needed of one, each of the others is tried, one in
    /// a step: one in which nothing is needed can be freed all the same. Its count may say
    /// otherwise until the records are counted again.
    async fn reclaim_step(self: &Arc<Store>, report: &mut StepReport) -> Result<()> {
        // Records that a rebuild did not find may lie anywhere.
        if self.doubt().is_some() {
            return Ok(());
        }
        self.free_and_note(report).await?;
        let crowded = self.upkeep().crowded();
        let needed_max = match (crowded.is_empty(), self.segments().free() < FREE_SHORT) {
            (false, _) => 100,
            (true, true) => NEEDED_MAX_WHEN_SHORT,
            (true, false) => NEEDED_MAX,
        };
        let mut except = self.upkeep().unmovable();
        except.extend(crowded);
        except.extend(self.upkeep().contended(self.elapsed()));
        // Records under way are not visible to the walk.
        except.extend(self.appender().writing());
        let Some(segment) = self.segments().emptiest(needed_max, &except) else {
            // All were tried. The next step begins anew.
            self.upkeep().clear_crowded();
            return Ok(());
        };
        let reclaimed = match self.reclaim(segment).await {
            Err(ArchiveError::NoSpace(message)) => {
                if self.upkeep().add_crowded(segment) {
                    report.alarms.push(Alarm::new(AlarmKind::Space, format!("reclamation: {message}")));
                }
                return Ok(());
            }
            // It is no damage, and what changed the record is soon over. The other segments come
            // first.
            Err(ArchiveError::Conflict(_)) => {
                self.upkeep().add_contended(segment, self.elapsed());
                report.more = true;
                return Ok(());
            }
            other => other?,
        };
        report.moved += reclaimed.kept;
        if !reclaimed.retired {
            report.alarms.push(Alarm::new(
                AlarmKind::Damage,
                format!("segment {segment} has places that cannot be read; it stays as it is, scrub the pool"),
            ));
        }
        self.free_and_note(report).await?;
        report.more = true;
        Ok(())
    }

    async fn free_and_note(&self, report: &mut StepReport) -> Result<()> {
        let freed = self.free_retired().await? as u64;
        if freed > 0 {
            self.upkeep().clear_crowded();
        }
        report.freed += freed;
        Ok(())
    }
}
