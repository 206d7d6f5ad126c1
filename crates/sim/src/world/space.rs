//! Decides whether the pool may report that it is full.

use std::collections::BTreeMap;

use stele_array::{DriveHealth, PoolStatus};
use stele_codes::Code;
use stele_ground::{Instant, MIB};

use super::World;
use crate::setup::raw_size;
use crate::system::System;

/// Bytes of a drive before its log and after its last unit.
const LABELS: u64 = 6 * MIB;
/// Bytes of a drive that the tables' rows may take, and the reserve in whole units.
const TABLES: u64 = 3 * MIB;

impl<S: System> World<S> {
    /// Whether all volumes and snapshots, completely written, could leave too little space on the
    /// present drives. A stripe's new slot exists before its old one is free, and spare space is
    /// kept.
    pub(crate) fn may_be_full(&self) -> bool {
        let here = self.in_use().len() as u64;
        // Besides labels and log, the pool's tables take units on each drive, and spare space is
        // whole units.
        let drive = self.setup.drive_size.0 - self.setup.log.0 - LABELS - TABLES;
        let need: u64 = self.hosts.values().map(|host| raw_size(&host.spec)).sum();
        let spare = u64::from(self.setup.spare_drives.unwrap_or_else(|| self.usual_spare())).min(here / 2);
        !self.fits_here() || need * 3 / 2 + spare * drive > here * drive
    }

    /// Whether a request at that time may have found no space: at the latest before drives were
    /// added.
    pub(super) fn was_roomless(&self, since: Option<Instant>) -> bool {
        since.is_some_and(|since| self.growth.roomless_until.is_some_and(|until| since <= until))
    }

    /// Drives that the pool shows as up to date take rows from here on. Before, they are joining
    /// one at a time, or filled.
    pub(crate) fn note_arrived(&mut self, status: &PoolStatus) {
        let was_full = self.may_be_full();
        let bays = &self.machine.bays;
        let health = |bay: &usize| {
            let identity = bays[*bay].identity;
            status.drives.iter().find(|drive| drive.identity == identity).map(|drive| drive.health)
        };
        let before = self.growth.arriving.len();
        self.growth.arriving.retain(|bay| !matches!(health(bay), Some(DriveHealth::Healthy | DriveHealth::Suspect)));
        if was_full && self.growth.arriving.len() < before {
            self.growth.roomless_until = Some(self.machine.now);
        }
    }

    /// Bays whose drives take new rows: they are present, up to date, staying, and not given up.
    fn in_use(&self) -> Vec<usize> {
        let absent = self.atlas.absent();
        let mut bays = self.growth.staying(&self.members);
        bays.retain(|bay| {
            self.machine.bays[*bay].present && !absent.contains(bay) && !self.growth.arriving.contains(bay)
        });
        bays.retain(|bay| !self.growth.given_up.contains(bay));
        bays
    }

    /// Whether the drives can form a row for every code, with at most as many strips in an
    /// enclosure as it may lose. A row may lack as many drives as its code tolerates, which are
    /// away, or given up and not replaced.
    fn fits_here(&self) -> bool {
        let (here, staying) = (self.in_use(), self.growth.staying(&self.members));
        let is_lacking = |bay: &&usize| !here.contains(bay) && !self.growth.arriving.contains(bay);
        let lacking = staying.iter().filter(is_lacking).count();
        let mut crowds: BTreeMap<u32, usize> = BTreeMap::new();
        here.iter().for_each(|bay| *crowds.entry(self.machine.bays[*bay].enclosure).or_default() += 1);
        let spread = |code: Code, most: usize| {
            let here: usize = crowds.values().map(|crowd| (*crowd).min(most)).sum();
            here + lacking.min(code.tolerates()) >= code.width()
        };
        self.hosts.values().all(|host| spread(host.spec.code, usize::MAX))
            && (self.growth.crowded
                || self.hosts.values().all(|host| spread(host.spec.code, host.spec.code.tolerates())))
    }

    /// The default spare space in drives: that of the largest enclosure, or two; the same as when
    /// the pool was created.
    fn usual_spare(&self) -> u32 {
        let enclosures = &self.setup.enclosures;
        let crowd = |enclosure: &u32| enclosures.iter().filter(|other| *other == enclosure).count();
        let largest = enclosures.iter().map(crowd).max().unwrap_or(0);
        if largest < enclosures.len() { largest as u32 } else { 2 }
    }
}
