//! Drives that were found slow are read now and then, so that they show that they are well again
//! while no host reads them.

use std::rc::Rc;

use stele_ground::{BLOCK, Duration};
use stele_media::Priority;

use crate::engine::Engine;
use crate::model::place::DriveNumber;

const PROBE_EVERY: Duration = Duration::from_secs(4);
/// As many as are looked at to call a drive well, at places far apart, so that no memory of the
/// drive's answers for it.
const READS: u64 = 8;

impl Engine {
    /// Runs for the pool's life: while a drive is slow it is read every few seconds, and compared.
    pub async fn probe_flow(self: Rc<Self>) {
        let mut round = 0;
        loop {
            let slowed = self.hospital.slowed();
            if !self.hospital.has_slow() {
                slowed.await;
            }
            self.io.sleep(PROBE_EVERY).await;
            for drive in self.hospital.slow() {
                self.probe(drive, round).await;
            }
            self.compare();
            round += 1;
        }
    }

    /// What is read serves nothing; a reader that needs the place meets an error again.
    async fn probe(&self, drive: DriveNumber, round: u64) {
        let size = self.drives.labels.configuration().drives.get(usize::from(drive.0)).map(|entry| entry.size);
        let Some(size) = size else { return };
        let (part, block) = (size.0 / READS, BLOCK as u64);
        for place in 0..READS {
            let Some(index) = self.drives.index(drive).filter(|_| !self.hospital.is_silent(drive)) else { return };
            let at = (place * part + round * block % part.max(block)) / block * block;
            self.io.read(index, at, BLOCK, Priority::Scrub).await.ok();
        }
    }
}
