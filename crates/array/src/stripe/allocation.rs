//! Finding a free slot for a stripe, and new rows when the old ones are full.

use std::collections::BTreeSet;

use stele_ground::Duration;

use crate::drives::label::DriveState;
use crate::durable::log::{Purpose, Reservation};
use crate::durable::records::Record;
use crate::engine::Engine;
use crate::engine::apply::Pages;
use crate::formats::entry;
use crate::model::place::{DriveNumber, SlotId, StripeKey};
use crate::model::{AlarmKind, ArrayError, Severity};
use crate::space::layout::{Row, RowClass};
use crate::volumes::Volume;

/// Rows to write to in turn at most.
const SPREAD_MAX: usize = 16;

/// A slot that no other task will write, and the generation it will have. Given back by `abandon`
/// or turned into a stripe by a `Map` record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Allocation {
    pub slot: SlotId,
    pub generation: u64,
}

/// The outcome of an attempt to add a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Growth {
    /// A row was added, by this task or another.
    Grown,
    /// No cells are left for one.
    NoRoom,
    /// There are cells, and too few of their drives answer.
    TooFewHere,
}

impl Engine {
    /// Allocates a slot for the stripe. `entitled`: one was promised to it. None when there is no
    /// room beside what is promised to others.
    pub async fn allocate(
        &self,
        volume: &Volume,
        stripe: u64,
        entitled: bool,
    ) -> Result<Option<Allocation>, ArrayError> {
        let class = volume.class;
        self.widen(class).await?;
        loop {
            let room = if entitled {
                self.look(|core| core.space.free(class))
            } else {
                self.look(|core| core.space.unpromised(class))
            };
            if room == 0 {
                let key = StripeKey { volume: volume.id, stripe };
                if !self.grow(class, Some(key)).await? {
                    return Ok(None);
                }
                continue;
            }
            let Some((row, cursor)) = self.step(|core| core.space.next_row(class, self.spread(class))) else {
                // All rows with room are frozen for a moment.
                self.check_writable()?;
                self.io.sleep(Duration::from_millis(1)).await;
                continue;
            };
            if let Some(allocation) = self.allocate_in(volume, row, cursor).await? {
                return Ok(Some(allocation));
            }
        }
    }

    /// Searches the row from `cursor` on, once around. None when others were faster.
    async fn allocate_in(
        &self,
        volume: &Volume,
        row: crate::model::place::RowId,
        cursor: u32,
    ) -> Result<Option<Allocation>, ArrayError> {
        let (class, slots) = (volume.class, self.look(|core| core.space.slots(row)));
        for step in 0..slots {
            let slot = SlotId { row, index: (cursor + step) % slots };
            if self.look(|core| core.space.is_held(slot)) {
                continue;
            }
            let (page, at) = self.slot_page(&volume.shape, slot).await?;
            let head = page.read(|bytes| entry::head(bytes, at));
            // The row may be gone by now, and its number another's.
            let same = self.look(|core| core.space.row_class(row)) == Some(class) && !page.is_forgotten();
            if !same || self.look(|core| core.space.is_frozen(row)) {
                return Ok(None);
            }
            if head.is_free() && self.step(|core| core.space.hold(slot)) {
                let generation = head.generation.max(self.look(|core| core.space.generation_floor)) + 1;
                return Ok(Some(Allocation { slot, generation }));
            }
        }
        Ok(None)
    }

    /// Nothing came of the allocation.
    pub fn abandon(&self, allocation: Allocation) {
        self.step(|core| core.space.let_go(allocation.slot));
    }

    /// Rows to write to in turn, so that a stream keeps all drives busy.
    fn spread(&self, class: RowClass) -> usize {
        (self.drives.labels.configuration().drives.len() / class.code.width()).clamp(1, SPREAD_MAX)
    }

    /// Begins another row before those that are open are full, so that stripes that take rows in
    /// turn lie on all drives. Only where the pool has plenty of room, and nothing has to be waited
    /// for.
    async fn widen(&self, class: RowClass) -> Result<(), ArrayError> {
        let rows = self.spread(class);
        let is_wide = || self.look(|core| core.space.open_rows(class)) >= rows;
        if rows < 2 || is_wide() || !self.layout.read().has_plenty(class, rows) {
            return Ok(());
        }
        let Some(mut reservation) = self.log.try_reserve(self.log.cost_of(1024), Purpose::Inside) else {
            return Ok(());
        };
        let Some(row) = self.choose_beside(class) else { return Ok(()) };
        let pages = self.pages_for(&Record::RowCreate { row: row.clone() }).await?;
        // The choice is made again after the wait: another writer may have begun the row meanwhile.
        if let Some(row) = self.choose_beside(class).filter(|again| again.id == row.id && !is_wide()) {
            self.create_row(row, &pages, &mut reservation);
        }
        Ok(())
    }

    /// A row that takes turns with those of the class that are still mostly free. It is on other
    /// drives than theirs where it can be, since a drive with two of them would make a stream half
    /// as fast.
    fn choose_beside(&self, class: RowClass) -> Option<Row> {
        let fresh = self.look(|core| core.space.fresh_rows(class));
        let layout = self.layout.read();
        let taken: BTreeSet<DriveNumber> = fresh
            .iter()
            .filter_map(|id| layout.row(*id))
            .flat_map(|row| row.members.iter().map(|member| member.cell.drive))
            .collect();
        let sound = |drive: DriveNumber| self.drives.is_sound(drive);
        let apart = |drive: DriveNumber| sound(drive) && !taken.contains(&drive);
        // Never beyond the rule for the sake of speed, unless no row of the pool can keep it.
        let allows = layout.enclosures_allow(class, &|_| true);
        let choose = |allowed: &dyn Fn(DriveNumber) -> bool| {
            layout.choose_row(class, allowed).filter(|row| layout.within_enclosure_rule(row) || !allows)
        };
        choose(&apart).or_else(|| choose(&sound))
    }

    /// Adds a row to the class, unless one came while this waited: the caller looks again. False
    /// when no cells are left for one. `stripe`: the one that needs a slot, whose destage may be
    /// what the log waits for.
    pub async fn grow(&self, class: RowClass, stripe: Option<StripeKey>) -> Result<bool, ArrayError> {
        let grown = self.try_grow(class, stripe).await?;
        if grown == Growth::NoRoom {
            self.warn_full(class);
            // Not waited for: this may hold a stripe that the log waits for. The next one finds the
            // room.
            self.reclaiming.want();
        }
        Ok(grown == Growth::Grown)
    }

    /// As `grow`, for a request that is refused as a whole where there is no room: that the pool
    /// lacks room for it is no alarm.
    pub async fn grow_if_roomy(&self, class: RowClass) -> Result<bool, ArrayError> {
        Ok(self.try_grow(class, None).await? == Growth::Grown)
    }

    async fn try_grow(&self, class: RowClass, stripe: Option<StripeKey>) -> Result<Growth, ArrayError> {
        let next = self.layout.read().free_id();
        let cost = self.log.cost_of(1024);
        let mut reservation = match stripe {
            Some(key) => self.room_while_held(key, cost).await?,
            None => self.log.reserve(cost, Purpose::Inside).await?,
        };
        if let Some(lsn) = self.take_back_cells()
            && self.layout.read().choose_row(class, &|_| true).is_none()
        {
            self.log.durable(lsn).await?;
            self.take_back_cells();
        }
        if self.layout.read().free_id() != next {
            return Ok(Growth::Grown);
        }
        let sound = |drive: DriveNumber| self.drives.is_sound(drive);
        let present = |drive: DriveNumber| self.drives.index(drive).is_some();
        let allowed: [&dyn Fn(DriveNumber) -> bool; 2] = [&sound, &present];
        let choice = {
            let layout = self.layout.read();
            allowed.iter().find_map(|allowed| Some((layout.choose_row(class, allowed)?, allowed)))
        };
        let Some((row, allowed)) = choice else {
            // A pool as wide as its code goes on with rows that lack a drive, away or given up;
            // nothing else is left.
            return self.grow_degraded(class, reservation).await;
        };
        self.check_row(&row, allowed);
        let pages = self.pages_for(&Record::RowCreate { row: row.clone() }).await?;
        // The choice is made again after the wait: cells may have gone meanwhile.
        let again = self.layout.read().choose_row(class, &|drive| row.uses(drive));
        let Some(row) = again.filter(|again| again.id == row.id) else { return Ok(Growth::Grown) };
        self.create_row(row, &pages, &mut reservation);
        Ok(Growth::Grown)
    }

    fn create_row(&self, row: Row, pages: &Pages, reservation: &mut Reservation) {
        if !self.layout.read().within_enclosure_rule(&row) {
            self.moving.note_crowded();
        }
        let class = row.class;
        self.append(&Record::RowCreate { row }, pages, reservation);
        self.step(|core| core.space.note_room(false));
        self.offer_emptied(class);
    }

    /// Where the pool has little room left for the class, rows that discards emptied are room for
    /// all.
    pub fn offer_emptied(&self, class: RowClass) {
        if !self.layout.read().has_plenty(class, 1) && self.step(|core| core.space.take_emptied()) {
            self.reclaiming.want();
        }
    }

    async fn grow_degraded(&self, class: RowClass, mut reservation: Reservation) -> Result<Growth, ArrayError> {
        let Some(row) = self.choose_lacking(class) else { return Ok(Growth::NoRoom) };
        let is_here = |drive: DriveNumber| self.drives.index(drive).is_some() && self.drive_state(drive).votes();
        let lacking = row.members.iter().filter(|member| !is_here(member.cell.drive)).count();
        if lacking > class.code.tolerates() {
            return Ok(Growth::TooFewHere);
        }
        let pages = self.pages_for(&Record::RowCreate { row: row.clone() }).await?;
        let again = self.choose_lacking(class);
        let Some(row) = again.filter(|again| *again == row) else { return Ok(Growth::Grown) };
        self.create_row(row, &pages, &mut reservation);
        Ok(Growth::Grown)
    }

    fn choose_lacking(&self, class: RowClass) -> Option<Row> {
        let votes = |drive: DriveNumber| self.drive_state(drive).votes();
        let count = self.drives.labels.configuration().drives.len();
        let drives = (0..count).map(|at| DriveNumber(at as u16));
        let given_up: Vec<DriveNumber> =
            drives.filter(|drive| self.drive_state(*drive) == DriveState::Failed).collect();
        let layout = self.layout.read();
        layout.choose_row(class, &votes).or_else(|| layout.choose_row_lacking(class, &votes, &given_up))
    }

    fn warn_full(&self, class: RowClass) {
        if self.step(|core| core.space.note_room(true)) {
            self.alarm(
                AlarmKind::SpaceLow,
                Severity::Warning,
                None,
                format!("no room for another row of {}; delete or discard data, or add drives", class.code),
            );
        }
    }

    /// Invariant 12: distinct drives, and no more members in an enclosure than the drives that may
    /// be chosen force.
    fn check_row(&self, row: &Row, allowed: &dyn Fn(DriveNumber) -> bool) {
        let mut drives: Vec<DriveNumber> = row.members.iter().map(|member| member.cell.drive).collect();
        drives.sort_unstable();
        drives.dedup();
        assert_eq!(drives.len(), row.class.code.width(), "invariant 12: a row lies on distinct drives");
        let layout = self.layout.read();
        assert!(
            layout.within_enclosure_rule(row) || !layout.enclosures_allow(row.class, allowed),
            "invariant 12: a row crowds an enclosure although the drives allow better"
        );
    }

    /// Makes sure that a stripe without a slot can get one, and promises it. Synchronous where room
    /// is at hand.
    pub async fn promise_slot(&self, volume: &Volume, stripe: u64) -> Result<(), ArrayError> {
        let key = StripeKey { volume: volume.id, stripe };
        loop {
            if volume.spec().fully_allocated || self.look(|core| core.promised.contains(&key)) {
                return Ok(());
            }
            if self.look(|core| core.space.unpromised(volume.class)) > 0 {
                self.step(|core| core.space.promise(volume.class, 1));
                self.step(|core| core.promised.insert(key));
                return Ok(());
            }
            if !self.grow(volume.class, None).await? {
                return Err(self.full(volume));
            }
        }
    }

    /// No slot can be had. Where drives are absent that may be why.
    pub fn full(&self, volume: &Volume) -> ArrayError {
        let configuration = self.drives.labels.configuration();
        let voters = (0..configuration.drives.len()).map(|at| DriveNumber(at as u16));
        let voters = voters.filter(|drive| configuration.drives[usize::from(drive.0)].state.votes());
        let absent = voters.filter(|drive| self.drives.index(*drive).is_none()).count();
        let name = volume.name();
        ArrayError::Full(match absent {
            0 => {
                format!("volume '{name}' needs space and the pool has none left; delete or discard data, or add drives")
            }
            _ => format!(
                "volume '{name}' needs space and the pool has none left on the drives that answer ({absent} do not); \
                 bring them back, delete or discard data, or add drives"
            ),
        })
    }
}
