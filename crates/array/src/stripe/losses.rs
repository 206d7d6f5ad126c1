//! What cannot be read: stripes that are listed as lost, and stripes whose drives are away.
//!
//! The list of lost stripes is in the tables (`apply.rs`) and outlives a restart. Which stripes
//! cannot be read only because drives are away is looked up anew whenever a drive comes or goes.
//! That is done stripe by stripe, since strips that moved into spare space are there although their
//! row's drives are not. What a drive that is being filled lacks, and only drives that are away
//! could tell, is noted as the rebuild comes to it.
//!
//! Three drives lost at once may cost thousands of stripes. An operator is told of them together:
//! one alarm a volume, a moment after the first, and again after a minute where more were found.

use std::collections::BTreeSet;
use std::rc::Rc;

use stele_codes::Strips;
use stele_ground::{Bytes, Duration, VolumeId};
use stele_media::Priority;

use crate::drives::label::discover::{LABEL_COPIES, read_copy};
use crate::engine::Engine;
use crate::formats::entry::LOST;
use crate::formats::shape::Shape;
use crate::model::place::{DriveNumber, RowId, SlotId, StripCell, StripeKey};
use crate::model::{AlarmKind, ArrayError, Severity};
use crate::space::layout::{Row, RowKind};
use crate::state::losses::Unreadable;
use crate::stripe::{Columns, Stripe};
use crate::volumes::Volume;

/// From the first loss to the alarm.
const TELL_AFTER: Duration = Duration::from_secs(1);
/// From one alarm to the next.
const TELL_EVERY: Duration = Duration::from_secs(60);
/// Slots that are looked at between two turns of the driver, which serves hosts.
const SLOTS_OF_A_TURN: u32 = 1024;
/// From one look at the stripes that are listed as lost to the next. Errors of drives that are
/// pulled, and soon given back, look like damage; what is whole then leaves the list. Later than
/// that it leaves it in a scrub.
const LOOKS: [Duration; 5] = [
    Duration::from_secs(15),
    Duration::from_secs(30),
    Duration::from_secs(60),
    Duration::from_secs(180),
    Duration::from_secs(600),
];

/// Runs of stripes that follow each other, as offset and length in bytes.
pub fn ranges(stripes: impl IntoIterator<Item = u64>, length: u64) -> Vec<(u64, u64)> {
    let sorted: BTreeSet<u64> = stripes.into_iter().collect();
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for stripe in sorted {
        match ranges.last_mut() {
            Some((at, long)) if *at + *long == stripe * length => *long += length,
            _ => ranges.push((stripe * length, length)),
        }
    }
    ranges
}

impl Engine {
    /// The stripe was listed as lost just now.
    pub fn note_lost(&self, volume: &Volume, stripe: u64) {
        self.look_at_lost_again();
        if !self.losses_seen.note(volume.id, stripe, self.io.now()) {
            return;
        }
        let Some(engine) = self.weak.upgrade() else { return };
        self.io.spawn(async move {
            engine.io.sleep(TELL_AFTER).await;
            while engine.tell_losses() {
                engine.io.sleep(TELL_EVERY).await;
            }
            engine.losses_seen.stop_telling();
        });
    }

    /// Whether units of the stripe that cannot be had now may be recorded as lost for good. Listing
    /// a stripe can be undone; this cannot. Where drives answered with errors, the stripe is listed
    /// first, and nothing is discarded before all looks at it are over: a controller that resets,
    /// or drives that are being pulled, answer so too.
    pub async fn may_discard(&self, of: &Stripe, columns: &Columns) -> Result<bool, ArrayError> {
        if self.may_come_back(of, columns) {
            return Ok(false);
        }
        if columns.failed.is_empty() {
            return Ok(true);
        }
        let Some(volume) = self.look(|core| core.volumes.get(of.volume)) else { return Ok(false) };
        if !volume.has_lost(of.stripe) {
            self.record_lost(of, self.beyond_repair(of, columns)).await?;
            self.note_lost(&volume, of.stripe);
        }
        let key = StripeKey { volume: of.volume, stripe: of.stripe };
        let looked: u64 = LOOKS.iter().map(|look| look.0).sum();
        let hoped_for = columns.lost.iter().copied().filter(|(strip, unit)| of.digest(*strip, *unit) != LOST).collect();
        let waited = self.losses_seen.hoped_for(key, &hoped_for, self.io.now());
        if waited.0 == 0 {
            self.look_at_lost_again();
        }
        if waited.0 < looked {
            return Ok(false);
        }
        if self.may_answer_again(of, columns).await {
            // Nothing tells when it does: that is looked for anew.
            self.look_at_lost_again();
            return Ok(false);
        }
        // Drives that answered only now, after the reads that failed, may answer those as well.
        let sought = Strips::of(columns.lost.iter().map(|(strip, _)| *strip));
        let again = self.read_columns(of, sought, columns.units.clone(), Priority::Rebuild).await;
        Ok(columns.lost.iter().all(|unit| again.lost.contains(unit)))
    }

    /// Whether a drive with a strip of the stripe fails every read at this time, even of its
    /// labels. Then its errors say nothing of what lies on it: it may answer again. One that was
    /// given up for such errors may be taken back then.
    async fn may_answer_again(&self, of: &Stripe, columns: &Columns) -> bool {
        for strip in columns.failed.iter() {
            if !self.reads_its_label(of.places[strip].cell.drive).await {
                return true;
            }
        }
        false
    }

    async fn reads_its_label(&self, drive: DriveNumber) -> bool {
        let Some(index) = self.drives.index(drive) else { return false };
        let Some(size) = self.drives.labels.configuration().drives.get(usize::from(drive.0)).map(|entry| entry.size)
        else {
            return false;
        };
        for copy in 0..LABEL_COPIES {
            if read_copy(&self.io, index, size, copy).await.is_ok() {
                return true;
            }
        }
        false
    }

    /// Has the listed stripes verified again a few times.
    pub fn look_at_lost_again(&self) {
        if !self.losses_seen.begin_looks() {
            return;
        }
        let Some(engine) = self.weak.upgrade() else { return };
        self.io.spawn(async move {
            while let Some(wait) = engine.losses_seen.next_look(&LOOKS) {
                engine.io.sleep(wait).await;
                engine.verify_lost();
                // What was put off until the looks are over may be discarded after the last.
                engine.destaging.forgive_all();
                engine.destaging.want();
                if engine.rebuilding.end_wait_for_looks() {
                    engine.membership.note_change();
                }
            }
        });
    }

    /// Asks for all listed stripes to be verified: what is whole leaves the list.
    pub fn verify_lost(&self) {
        let listed: Vec<StripeKey> = self.look(|core| core.lost.stripes().collect());
        listed.into_iter().for_each(|key| self.ask_repair(key));
    }

    /// False where there was nothing to tell.
    fn tell_losses(&self) -> bool {
        let news = self.losses_seen.take_news();
        for (id, stripes) in &news {
            let Some(volume) = self.look(|core| core.volumes.get(*id)) else { continue };
            let ranges = ranges(stripes.iter().copied(), volume.shape.data());
            let text = format!(
                "volume '{}': {} stripes, {} in {} ranges from offset {} on, are lost in part: too many of their strips are \
                 lost or damaged; restore them from elsewhere",
                volume.name(),
                stripes.len(),
                Bytes(stripes.len() as u64 * volume.shape.data()),
                ranges.len(),
                ranges.first().map_or(0, |(at, _)| *at),
            );
            self.alarm(AlarmKind::StripeLost, Severity::Critical, None, text);
        }
        !news.is_empty()
    }

    /// Stripes that cannot be read now: those listed as lost, and those whose drives are away.
    pub fn unreadable_stripes(&self) -> u64 {
        let lost: BTreeSet<StripeKey> = self.look(|core| core.lost.stripes().collect());
        (lost.len() + self.losses_seen.unreadable_beside(&lost)) as u64
    }

    /// False while it is being found out which stripes cannot be read.
    pub fn knows_unreadable(&self) -> bool {
        self.losses_seen.knows_unreadable()
    }

    /// Runs for the pool's life: knows which stripes cannot be read while drives are away.
    pub async fn losses_flow(self: Rc<Self>) {
        if self.look(|core| core.lost.stripes().next().is_some()) {
            self.look_at_lost_again();
        }
        loop {
            let changed = self.membership.changed();
            self.losses_seen.begin_look();
            self.losses_seen.keep_waiting(|row, member| self.is_being_filled(row, member));
            match self.find_unreadable().await {
                Ok(found) => self.losses_seen.end_look(found),
                Err(error) => tracing::warn!("which stripes cannot be read is not known: {error}"),
            }
            changed.await;
        }
    }

    /// A strip of the slot lies elsewhere now: what was on its way when a drive went may be
    /// readable after all.
    pub async fn look_again(&self, shape: &Shape, slot: SlotId) -> Result<(), ArrayError> {
        if self.losses_seen.is_unreadable(slot) {
            let exceptions = self.slot_head(shape, slot).await?.exceptions;
            let places = self.places(shape, slot, exceptions);
            let away = places.iter().filter(|place| self.drives.index(place.cell.drive).is_none()).count();
            if away <= shape.code().tolerates() {
                self.losses_seen.reachable(slot);
            }
        }
        Ok(())
    }

    /// A drive that the member's strips may lie on is here and does not hold all that it should, or
    /// strips leave one that is away: the rebuild comes to them.
    fn is_being_filled(&self, row: RowId, member: u8) -> bool {
        let layout = self.layout.read();
        let member = layout.row(row).and_then(|row| row.members.get(usize::from(member)));
        let lacks = |drive| self.drives.index(drive).is_none() || self.drives.seen(drive).stale;
        member.is_some_and(|member| lacks(member.cell.drive) || member.replacement.is_some_and(|c| lacks(c.drive)))
    }

    async fn find_unreadable(&self) -> Result<Unreadable, ArrayError> {
        let away = |cell: StripCell| self.drives.index(cell.drive).is_none();
        let may_lack = |row: &Row| {
            let lacking = row.members.iter().filter(|m| away(m.cell) || m.replacement.is_some_and(away)).count();
            row.class.kind == RowKind::Data && lacking > row.class.code.tolerates()
        };
        let rows: Vec<Row> = self.layout.read().rows().filter(|row| may_lack(row)).cloned().collect();
        let mut found = Unreadable::default();
        for row in rows {
            for index in 0..self.look(|core| core.space.slots(row.id)) {
                if index % SLOTS_OF_A_TURN == SLOTS_OF_A_TURN - 1 {
                    // Where the table is in memory, none of this waits for anything.
                    self.io.sleep(Duration(1)).await;
                }
                let slot = SlotId { row: row.id, index };
                let Some(shape) = self.row_shape(slot) else { break };
                let head = self.slot_head(&shape, slot).await?;
                if head.is_free() {
                    continue;
                }
                let places = self.places(&shape, slot, head.exceptions);
                let lacking = places.iter().filter(|place| away(place.cell)).count();
                if lacking > row.class.code.tolerates() {
                    found.note(slot, StripeKey { volume: VolumeId(head.volume), stripe: head.stripe });
                }
            }
        }
        Ok(found)
    }
}
