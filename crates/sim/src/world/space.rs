//! Whether the pool may honestly say that it is full.

use std::collections::BTreeMap;

use stele_codes::Code;

use super::World;
use crate::setup::raw_size;
use crate::system::System;

impl<S: System> World<S> {
    /// Whether all volumes and snapshots, were they written whole, could leave too little of the drives that are here: a
    /// stripe's new slot is there before its old one is free, and spare space is kept.
    pub(super) fn may_be_full(&self) -> bool {
        let here = self.in_use().len() as u64;
        let drive = self.setup.drive_size.0 - self.setup.log.0 - (6 << 20);
        let need: u64 = self.hosts.values().map(|host| raw_size(&host.spec)).sum();
        let spare = u64::from(self.setup.spare_drives.unwrap_or_else(|| self.usual_spare()));
        !self.fits_here() || need * 3 / 2 + spare * drive > here * drive
    }

    /// Bays whose drives take new rows: they are here and up to date, stay, and nobody has given them up.
    fn in_use(&self) -> Vec<usize> {
        let absent = self.atlas.absent();
        let mut bays = self.growth.staying(&self.members);
        bays.retain(|bay| {
            self.machine.bays[*bay].present && !absent.contains(bay) && !self.growth.arriving.contains(bay)
        });
        bays
    }

    /// Whether the drives that are here make a row for every code, with at most as many strips in an enclosure as it may
    /// lose.
    fn fits_here(&self) -> bool {
        let mut crowds: BTreeMap<u32, usize> = BTreeMap::new();
        self.in_use().iter().for_each(|bay| *crowds.entry(self.machine.bays[*bay].enclosure).or_default() += 1);
        let spread =
            |code: Code, most: usize| crowds.values().map(|crowd| (*crowd).min(most)).sum::<usize>() >= code.width();
        self.hosts.values().all(|host| spread(host.spec.code, usize::MAX))
            && (self.growth.crowded
                || self.hosts.values().all(|host| spread(host.spec.code, host.spec.code.tolerates())))
    }

    /// Drives' worth of spare space where nothing else was said: the largest enclosure's, or two.
    fn usual_spare(&self) -> u32 {
        let crowd = |bay: &usize| {
            let enclosure = self.machine.bays[*bay].enclosure;
            self.members.iter().filter(|other| self.machine.bays[**other].enclosure == enclosure).count()
        };
        let largest = self.members.iter().map(crowd).max().unwrap_or(0);
        if largest < self.members.len() { largest.max(2) as u32 } else { 2 }
    }
}
