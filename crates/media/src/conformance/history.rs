//! The simple twin: for each sector of 512 bytes, every write that a read may still return.
//!
//! Each write stamps its sectors with its own number, so that one word read back identifies the
//! write. A read returns, block by block, one write that began before the read ended. No later
//! write may have overwritten it: a write that began after the first one ended, and itself ended
//! before the read began. After a power cut, only durable writes overwrite others.

pub const SECTOR: u64 = 512;

/// Undefined content: discarded space on a drive that does not zero it. It matches every stamp.
pub const ANYTHING: u64 = u64::MAX;

#[derive(Clone, Copy)]
struct Written {
    stamp: u64,
    began: u64,
    /// `u64::MAX` while in flight.
    ended: u64,
    durable: bool,
}

/// The possible contents of the drive. Time is a count of events.
pub struct History {
    sectors: Vec<Vec<Written>>,
    clock: u64,
}

impl History {
    /// A drive of zeros; stamp 0 is a sector of zeros.
    pub fn new(size: u64) -> History {
        let zeros = Written { stamp: 0, began: 0, ended: 0, durable: true };
        History { sectors: vec![vec![zeros]; (size / SECTOR) as usize], clock: 1 }
    }

    /// Advances the clock and returns it.
    pub fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    fn range(&mut self, at: u64, length: u64) -> impl Iterator<Item = &mut Vec<Written>> {
        self.sectors[(at / SECTOR) as usize..((at + length) / SECTOR) as usize].iter_mut()
    }

    /// Begins a write and returns its time, which identifies the write.
    pub fn begin_write(&mut self, at: u64, length: u64, stamp: u64) -> u64 {
        let began = self.tick();
        for sector in self.range(at, length) {
            sector.push(Written { stamp, began, ended: u64::MAX, durable: false });
        }
        began
    }

    pub fn end_write(&mut self, at: u64, length: u64, began: u64, durable: bool) {
        let ended = self.tick();
        for write in self.range(at, length).flatten().filter(|write| write.began == began) {
            (write.ended, write.durable) = (ended, durable);
        }
    }

    /// A flush that began at `began` has completed.
    pub fn flushed(&mut self, began: u64) {
        for write in self.sectors.iter_mut().flatten().filter(|write| write.ended < began) {
            write.durable = true;
        }
    }

    /// Whether a read of this sector that began at `began` and ends now may return `stamp`.
    pub fn allows(&self, sector: u64, began: u64, stamp: u64) -> bool {
        let writes = &self.sectors[sector as usize];
        writes.iter().any(|write| {
            (write.stamp == stamp || write.stamp == ANYTHING)
                && !writes.iter().any(|later| later.began > write.ended && later.ended < began)
        })
    }

    /// Whether the sector may hold `stamp` after power went at this instant.
    pub fn survives(&self, sector: u64, stamp: u64) -> bool {
        let writes = &self.sectors[sector as usize];
        writes.iter().any(|write| {
            (write.stamp == stamp || write.stamp == ANYTHING)
                && !writes.iter().any(|later| later.began > write.ended && later.durable)
        })
    }

    /// Records the content of the sector, seen while nothing was in flight: from now on only this
    /// content is allowed.
    pub fn settle(&mut self, sector: u64, stamp: u64, durable: bool) {
        let now = self.tick();
        let kept = &mut self.sectors[sector as usize];
        let durable = durable || kept.iter().any(|write| write.stamp == stamp && write.durable);
        if durable {
            kept.clear();
        } else {
            // A power cut may bring older durable content back.
            kept.retain(|write| write.stamp != stamp);
            kept.iter_mut().for_each(|write| write.ended = write.ended.min(now - 1));
        }
        kept.push(Written { stamp, began: now, ended: now, durable });
    }

    /// Drops writes that no power cut and no read from `oldest` on can bring back, to keep the
    /// lists short.
    pub fn prune(&mut self, oldest: u64) {
        for sector in &mut self.sectors {
            let settled = sector.iter().filter(|write| write.durable && write.ended < oldest);
            if let Some(last) = settled.map(|write| write.began).max() {
                sector.retain(|write| write.ended >= last);
            }
        }
    }
}

/// Fills `bytes` for offset `at` of the drive with the stamp: each sector names its write and its
/// place.
pub fn paint(bytes: &mut [u8], at: u64, stamp: u64) {
    for (index, sector) in bytes.chunks_mut(SECTOR as usize).enumerate() {
        let place = at / SECTOR + index as u64;
        let mut word = if stamp == 0 { 0 } else { stamp.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ place };
        for (n, eight) in sector.chunks_mut(8).enumerate() {
            let value = if n == 0 { stamp } else { word };
            eight.copy_from_slice(&value.to_le_bytes()[..eight.len()]);
            word = if stamp == 0 { 0 } else { word.rotate_left(7).wrapping_add(n as u64 + 1) };
        }
    }
}

/// The stamp of a sector read from `place`; `None` if no single write put these bytes there.
pub fn stamp_of(sector: &[u8], place: u64) -> Option<u64> {
    let first = sector.first_chunk::<8>()?;
    let stamp = u64::from_le_bytes(*first);
    let mut expected = [0; SECTOR as usize];
    paint(&mut expected, place * SECTOR, stamp);
    (sector == expected).then_some(stamp)
}
