//! Room for stripes: which slots of which rows may be written next, and what is promised.
//!
//! The slot table is the truth; here are only counts and what is on its way. A slot is *used* while
//! its entry is mapped, *held* while it was allocated to a writer or while the record that freed it
//! is not yet durable, and free otherwise. Promises: a dirty stripe without a slot has one reserved
//! in its class, and a fully allocated volume has one reserved for every stripe it has not written.
//! So nothing acknowledged can lack a place.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::place::{RowId, SlotId};
use crate::space::layout::{Row, RowClass, SharedLayout};

pub mod layout;

/// Counts of one row.
#[derive(Clone, Debug)]
struct RowUse {
    class: RowClass,
    slots: u32,
    used: u32,
    held: BTreeSet<u32>,
    /// Where the search for a free slot goes on. At first behind as many slots as are used: a row
    /// is filled in order, and each page that is searched in vain would be read from a drive.
    cursor: u32,
    /// A replacement is being released: takes no new stripes now.
    frozen: bool,
    /// Being emptied: takes no new stripes, and what is free in it is not counted.
    closed: bool,
}

impl RowUse {
    fn free(&self) -> i64 {
        if self.closed {
            return 0;
        }
        i64::from(self.slots) - i64::from(self.used) - self.held.len() as i64
    }
}

/// Counts of one class.
#[derive(Default)]
struct ClassUse {
    rows: BTreeSet<RowId>,
    /// Rows with a free slot.
    open: BTreeSet<RowId>,
    /// Free slots of all rows; for an instant below zero while an allocation turns into a stripe.
    free: i64,
    /// Stripes in all rows.
    used: u64,
    reserved: u64,
    /// The row asked last; the next stripe goes to the next row.
    rotor: RowId,
}

pub struct Space {
    layout: SharedLayout,
    rows: BTreeMap<RowId, RowUse>,
    classes: BTreeMap<RowClass, ClassUse>,
    /// Rows of which `used` differs from what the row table says.
    changed: BTreeSet<RowId>,
    /// Every generation given out is above this when a row number is used again.
    pub generation_floor: u64,
    pub generation_high: u64,
    /// No room is left for another row, and that was said.
    warned: bool,
    /// A row has lost its last stripe since this was asked last.
    emptied: bool,
}

impl Space {
    pub fn new(layout: SharedLayout) -> Space {
        Space {
            layout,
            rows: BTreeMap::new(),
            classes: BTreeMap::new(),
            changed: BTreeSet::new(),
            generation_floor: 0,
            generation_high: 0,
            warned: false,
            emptied: false,
        }
    }

    /// There is room for another row, or none. True where that there is none is news.
    pub fn note_room(&mut self, lacking: bool) -> bool {
        !std::mem::replace(&mut self.warned, lacking) && lacking
    }

    /// Whether a row has lost its last stripe since the last call.
    pub fn take_emptied(&mut self) -> bool {
        std::mem::take(&mut self.emptied)
    }

    /// A row exists now, with so many slots mapped.
    pub fn add_row(&mut self, row: &Row, used: u32) {
        let slots = self.layout.read().slots_per_row(row.class);
        assert!(used <= slots, "row {} has {slots} slots and {used} stripes", row.id.0);
        let class = self.classes.entry(row.class).or_default();
        assert!(class.rows.insert(row.id), "row {} exists already", row.id.0);
        class.free += i64::from(slots - used);
        if used < slots {
            class.open.insert(row.id);
        }
        let held = BTreeSet::new();
        let cursor = used % slots.max(1);
        let row_use = RowUse { class: row.class, slots, used, held, cursor, frozen: false, closed: false };
        self.changed.insert(row.id);
        class.used += u64::from(used);
        self.rows.insert(row.id, row_use);
    }

    pub fn remove_row(&mut self, row: RowId) {
        if let Some(gone) = self.rows.remove(&row)
            && let Some(class) = self.classes.get_mut(&gone.class)
        {
            class.rows.remove(&row);
            class.open.remove(&row);
            class.free -= gone.free();
            class.used -= u64::from(gone.used);
        }
        self.changed.remove(&row);
    }

    pub fn row_class(&self, row: RowId) -> Option<RowClass> {
        self.rows.get(&row).map(|row| row.class)
    }

    pub fn slots(&self, row: RowId) -> u32 {
        self.rows.get(&row).map_or(0, |row| row.slots)
    }

    pub fn used(&self, row: RowId) -> u32 {
        self.rows.get(&row).map_or(0, |row| row.used)
    }

    /// Rows without a stripe, allocation or pending release: may be given back.
    pub fn empty_rows(&self) -> Vec<RowId> {
        let rows = &self.rows;
        rows.iter().filter(|(_, row)| row.used == 0 && row.held.is_empty()).map(|(id, _)| *id).collect()
    }

    pub fn is_empty(&self, row: RowId) -> bool {
        self.rows.get(&row).is_some_and(|row| row.used == 0 && row.held.is_empty())
    }

    /// Rows of the class with a free slot.
    pub fn open_rows(&self, class: RowClass) -> usize {
        self.classes.get(&class).map_or(0, |class| class.open.len())
    }

    /// Rows of the class of which more than half is free.
    pub fn fresh_rows(&self, class: RowClass) -> Vec<RowId> {
        let open = self.classes.get(&class).into_iter().flat_map(|class| &class.open);
        let is_fresh = |id: &&RowId| self.rows.get(id).is_some_and(|row| row.free() * 2 > i64::from(row.slots));
        open.filter(is_fresh).copied().collect()
    }

    /// Slots of the class that are free, promised ones included.
    pub fn free(&self, class: RowClass) -> u64 {
        self.classes.get(&class).map_or(0, |class| class.free.max(0) as u64)
    }

    /// Changes a row's counts and carries the difference into its class.
    fn change<R>(&mut self, id: RowId, with: impl FnOnce(&mut RowUse) -> R) -> Option<R> {
        let row = self.rows.get_mut(&id)?;
        let before = row.free();
        let result = with(row);
        let after = row.free();
        if before != after
            && let Some(class) = self.classes.get_mut(&row.class)
        {
            class.free += after - before;
            if after > 0 {
                class.open.insert(id);
            } else {
                class.open.remove(&id);
            }
        }
        Some(result)
    }

    pub fn reserved(&self, class: RowClass) -> u64 {
        self.classes.get(&class).map_or(0, |class| class.reserved)
    }

    /// Whether this many slots could be promised or allocated without breaking a promise.
    pub fn unpromised(&self, class: RowClass) -> u64 {
        self.free(class).saturating_sub(self.reserved(class))
    }

    pub fn promise(&mut self, class: RowClass, slots: u64) {
        self.classes.entry(class).or_default().reserved += slots;
    }

    pub fn release(&mut self, class: RowClass, slots: u64) {
        let class = self.classes.entry(class).or_default();
        assert!(class.reserved >= slots, "more slots were released than were promised");
        class.reserved -= slots;
    }

    /// A row with a free slot, and where to begin searching in it: rows take turns, so that a
    /// stream spreads.
    pub fn next_row(&mut self, class: RowClass, spread: usize) -> Option<(RowId, u32)> {
        let class = self.classes.get_mut(&class)?;
        let rows = &self.rows;
        let thawed = |id: &&RowId| rows.get(id).is_some_and(|row| !row.frozen);
        let candidates: Vec<RowId> = class.open.iter().filter(thawed).copied().take(spread.max(1)).collect();
        let row = *candidates.iter().find(|id| **id > class.rotor).or(candidates.first())?;
        class.rotor = row;
        Some((row, rows.get(&row).map_or(0, |row| row.cursor)))
    }

    /// Holds the slot unless it is held already.
    pub fn hold(&mut self, slot: SlotId) -> bool {
        let hold = |row: &mut RowUse| {
            let is_new = row.held.insert(slot.index);
            if is_new {
                row.cursor = (slot.index + 1) % row.slots.max(1);
            }
            is_new
        };
        self.change(slot.row, hold).unwrap_or(false)
    }

    pub fn is_held(&self, slot: SlotId) -> bool {
        self.rows.get(&slot.row).is_some_and(|row| row.held.contains(&slot.index))
    }

    /// The hold ends: the slot was mapped, or nothing came of it, or the record that freed it is
    /// durable.
    pub fn let_go(&mut self, slot: SlotId) {
        self.change(slot.row, |row| row.held.remove(&slot.index));
    }

    /// The slot's entry became mapped or free.
    pub fn count(&mut self, slot: SlotId, mapped: bool) {
        let count = |row: &mut RowUse| {
            let before = row.used;
            row.used = if mapped { row.used + 1 } else { row.used.saturating_sub(1) };
            assert!(row.used <= row.slots, "a row cannot hold more stripes than slots");
            (row.class, before, row.used)
        };
        if let Some((class, before, after)) = self.change(slot.row, count) {
            self.changed.insert(slot.row);
            self.emptied |= before > 0 && after == 0;
            if let Some(class) = self.classes.get_mut(&class) {
                class.used = class.used - u64::from(before) + u64::from(after);
            }
        }
    }

    /// Keeps new stripes out of a row for a moment.
    pub fn freeze(&mut self, row: RowId, frozen: bool) {
        if let Some(row) = self.rows.get_mut(&row) {
            row.frozen = frozen;
        }
    }

    pub fn is_frozen(&self, row: RowId) -> bool {
        self.rows.get(&row).is_some_and(|row| row.frozen || row.closed)
    }

    pub fn is_closed(&self, row: RowId) -> bool {
        self.rows.get(&row).is_some_and(|row| row.closed)
    }

    /// Closes a row, whose stripes are about to move, to new ones, or opens it again. False where
    /// promises rest on what is free in it, or no slot would be left for a stripe to move to.
    pub fn close(&mut self, row: RowId, closed: bool) -> bool {
        let (class, free) = {
            let rows = &self.rows;
            let Some(row) = rows.get(&row) else { return false };
            (row.class, row.free())
        };
        if closed && (self.unpromised(class) as i64) <= free {
            return false;
        }
        self.change(row, |row| row.closed = closed);
        true
    }

    /// Of how many of the rows that are to be emptied the stripes fit into what is free in the
    /// others. Promised slots need a place there too: what the others lack for them is made in rows
    /// that move, although no stripe lies in them yet.
    pub fn absorbed(&self, class: RowClass, emptied: &dyn Fn(&Row) -> bool) -> usize {
        let (rows, layout) = (&self.rows, self.layout.read());
        let (mut needed, mut free, mut count, mut slots) = (self.reserved(class), 0i64, 0u64, 1u64);
        for (id, row) in rows.iter().filter(|(_, row)| row.class == class) {
            slots = u64::from(row.slots.max(1));
            if layout.row(*id).is_some_and(emptied) {
                needed += u64::from(row.used) + row.held.len() as u64;
                count += 1;
            } else {
                free += row.free();
            }
        }
        let room = u64::try_from(free).unwrap_or(0);
        count.saturating_sub(needed.saturating_sub(room).div_ceil(slots)) as usize
    }

    /// Stripes of all classes that lie in these rows.
    pub fn bytes_in(&self, rows: impl IntoIterator<Item = RowId>) -> u64 {
        let known = &self.rows;
        let bytes = |row: RowId| {
            let row = known.get(&row)?;
            Some(u64::from(row.used) * row.class.strip.0 * row.class.code.width() as u64)
        };
        rows.into_iter().filter_map(bytes).sum()
    }

    /// Slots of the row that are allocated or wait for their release.
    pub fn held(&self, row: RowId) -> usize {
        self.rows.get(&row).map_or(0, |row| row.held.len())
    }

    /// Whether any slot of the row is allocated or waits for its release.
    pub fn is_held_any(&self, row: RowId) -> bool {
        self.rows.get(&row).is_some_and(|row| !row.held.is_empty())
    }

    /// Rows whose count the row table does not have yet.
    pub fn changed(&self) -> &BTreeSet<RowId> {
        &self.changed
    }

    pub fn saved(&mut self, row: RowId) {
        self.changed.remove(&row);
    }

    /// Each class with its stripes.
    pub fn stripes(&self) -> impl Iterator<Item = (RowClass, u64)> + '_ {
        self.classes.iter().map(|(class, of)| (*class, of.used))
    }
}
