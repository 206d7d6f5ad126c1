//! Where strips lie: rows of neighbouring stripes, over the drives in turn.

use stele_ground::BLOCK;

pub const PAGE: u64 = BLOCK as u64;

/// A code over drives. Quantities are blocks of 4 KiB and numbers of stripes.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Data strips, and strips of parity; a mirror has one data strip and its copies as parity.
    pub k: usize,
    pub m: usize,
    pub drives: usize,
    /// Blocks of a strip.
    pub strip: u64,
    /// Stripes of a row: their strips are neighbours on each drive of the row.
    pub row: u64,
    /// The roles of strips change with every stripe of a row, too. In the array they do not.
    pub turns: bool,
}

impl Layout {
    pub fn width(&self) -> usize {
        self.k + self.m
    }

    /// Data blocks of a stripe.
    pub fn stripe(&self) -> u64 {
        self.k as u64 * self.strip
    }

    pub fn is_mirror(&self) -> bool {
        self.k == 1
    }

    /// Rows until each drive had as many units as the others.
    fn turn(&self) -> u64 {
        let (mut common, mut rest) = (self.width(), self.drives);
        while rest > 0 {
            (common, rest) = (rest, common % rest);
        }
        (self.drives / common) as u64
    }

    /// The drive and the byte of a block of a strip. Rows take the drives in turn, and the roles of
    /// strips change from turn to turn, so that all drives have as much parity.
    pub fn place(&self, stripe: u64, strip: usize, at: u64) -> (usize, u64) {
        let (row, inside) = (stripe / self.row, stripe % self.row);
        let width = self.width() as u64;
        let turned = if self.turns { inside } else { 0 };
        let unit = row * width + (strip as u64 + row / self.turn() + turned) % width;
        let drives = self.drives as u64;
        ((unit % drives) as usize, ((unit / drives * self.row + inside) * self.strip + at) * PAGE)
    }

    /// Stripe, strip and block of the strip of a data block.
    pub fn of(&self, block: u64) -> (u64, usize, u64) {
        let inside = block % self.stripe();
        (block / self.stripe(), (inside / self.strip) as usize, inside % self.strip)
    }

    /// Bytes of each drive that so many stripes take.
    pub fn drive_bytes(&self, stripes: u64) -> u64 {
        let units = stripes.div_ceil(self.row) * self.width() as u64;
        units.div_ceil(self.drives as u64) * self.row * self.strip * PAGE
    }
}
