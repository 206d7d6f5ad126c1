//! What cannot be read: stripes that are listed as lost, and stripes whose drives are away.
//!
//! The list of lost stripes is in the tables (`apply.rs`) and outlives a restart. Which stripes cannot be read only because
//! drives are away is looked up anew whenever a drive comes or goes, stripe by stripe, since strips that moved into spare
//! space are there although their row's drives are not.
//!
//! Three drives lost at once may cost thousands of stripes. An operator is told of them together: one alarm a volume, a
//! moment after the first, and again after a minute where more were found.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use stele_ground::{Bytes, Duration, VolumeId};

use crate::cache::StripeKey;
use crate::engine::Engine;
use crate::layout::{Row, RowKind};
use crate::place::{Cell as StripCell, RowId, SlotId};
use crate::volumes::Volume;
use crate::volumes::shape::Shape;
use crate::{AlarmKind, ArrayError, Severity};

/// From the first loss to the alarm.
const TELL_AFTER: Duration = Duration::from_secs(1);
/// From one alarm to the next.
const TELL_EVERY: Duration = Duration::from_secs(60);

#[derive(Default)]
pub struct Losses {
    /// Listed as lost, and not told of yet.
    news: RefCell<BTreeMap<VolumeId, BTreeSet<u64>>>,
    telling: Cell<bool>,
    /// Stripes that too many drives are away of, as of the last look.
    unreadable: RefCell<BTreeMap<SlotId, StripeKey>>,
    /// That look is over, and no drive came or went since it began.
    looked: Cell<bool>,
    /// Members of rows whose strips no spare cell was left for.
    pub without_spare: RefCell<BTreeSet<(RowId, u8)>>,
}

impl Losses {
    /// The slot holds something else now.
    pub fn freed(&self, slot: SlotId) {
        self.unreadable.borrow_mut().remove(&slot);
    }

    /// Stripes of the layer that cannot be read while drives are away, in order.
    pub fn unreadable_of(&self, volume: VolumeId) -> Vec<u64> {
        let unreadable = self.unreadable.borrow();
        let mut stripes: Vec<u64> =
            unreadable.values().filter(|key| key.volume == volume).map(|key| key.stripe).collect();
        stripes.sort_unstable();
        stripes
    }
}

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
        self.losses_seen.news.borrow_mut().entry(volume.id).or_default().insert(stripe);
        if self.losses_seen.telling.replace(true) {
            return;
        }
        let Some(engine) = self.weak.upgrade() else { return };
        self.io.spawn(async move {
            engine.io.sleep(TELL_AFTER).await;
            while engine.tell_losses() {
                engine.io.sleep(TELL_EVERY).await;
            }
            engine.losses_seen.telling.set(false);
        });
    }

    /// False where there was nothing to tell.
    fn tell_losses(&self) -> bool {
        let news = self.losses_seen.news.take();
        for (id, stripes) in &news {
            let Some(volume) = self.volumes.get(*id) else { continue };
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
        let lost: BTreeSet<StripeKey> = self.lost_slots.borrow().iter().flatten().copied().collect();
        let away = self.losses_seen.unreadable.borrow();
        (lost.len() + away.values().filter(|key| !lost.contains(key)).count()) as u64
    }

    /// False while it is being found out which stripes cannot be read.
    pub fn knows_unreadable(&self) -> bool {
        self.losses_seen.looked.get()
    }

    /// Runs for the pool's life: knows which stripes cannot be read while drives are away.
    pub async fn losses_flow(self: Rc<Self>) {
        loop {
            let changed = self.drives_changed.changed();
            self.losses_seen.looked.set(false);
            if self.stopped.borrow().is_some() {
                return;
            }
            match self.find_unreadable().await {
                Ok(found) => {
                    self.losses_seen.unreadable.replace(found);
                    self.losses_seen.looked.set(true);
                }
                Err(error) => tracing::warn!("which stripes cannot be read is not known: {error}"),
            }
            changed.await;
        }
    }

    /// A strip of the slot lies elsewhere now: what was on its way when a drive went may be readable after all.
    pub async fn look_again(&self, shape: &Shape, slot: SlotId) -> Result<(), ArrayError> {
        if self.losses_seen.unreadable.borrow().contains_key(&slot) {
            let exceptions = self.slot_head(shape, slot).await?.exceptions;
            let places = self.places(shape, slot, exceptions);
            let away = places.iter().filter(|place| self.drives.index(place.cell.drive).is_none()).count();
            if away <= shape.code().tolerates() {
                self.losses_seen.freed(slot);
            }
        }
        Ok(())
    }

    async fn find_unreadable(&self) -> Result<BTreeMap<SlotId, StripeKey>, ArrayError> {
        let away = |cell: StripCell| self.drives.index(cell.drive).is_none();
        let may_lack = |row: &Row| {
            let lacking = row.members.iter().filter(|m| away(m.cell) || m.replacement.is_some_and(away)).count();
            row.class.kind == RowKind::Data && lacking > row.class.code.tolerates()
        };
        let rows: Vec<Row> = self.space.layout.borrow().rows().filter(|row| may_lack(row)).cloned().collect();
        let mut found = BTreeMap::new();
        for row in rows {
            for index in 0..self.space.slots(row.id) {
                let slot = SlotId { row: row.id, index };
                let Some(shape) = self.row_shape(slot) else { break };
                let head = self.slot_head(&shape, slot).await?;
                if head.is_free() {
                    continue;
                }
                let places = self.places(&shape, slot, head.exceptions);
                let lacking = places.iter().filter(|place| away(place.cell)).count();
                if lacking > row.class.code.tolerates() {
                    found.insert(slot, StripeKey { volume: VolumeId(head.volume), stripe: head.stripe });
                }
            }
        }
        Ok(found)
    }
}
