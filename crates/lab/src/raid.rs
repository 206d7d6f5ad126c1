//! Classic RAID as an address map: arrays of ten drives, 64 KiB segments, no declustering.

/// A RAID level.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    Raid5,
    Raid10,
    /// Two parities, as 8+2: of no published table, but of the machine behind published streams.
    Raid6,
}

impl Level {
    pub fn name(self) -> &'static str {
        match self {
            Level::Raid5 => "RAID-5",
            Level::Raid10 => "RAID-10",
            Level::Raid6 => "RAID-6",
        }
    }

    /// As a job names it.
    pub fn number(self) -> u8 {
        match self {
            Level::Raid5 => 5,
            Level::Raid10 => 10,
            Level::Raid6 => 6,
        }
    }

    pub fn numbered(number: u8) -> Option<Level> {
        [Level::Raid5, Level::Raid10, Level::Raid6].into_iter().find(|level| level.number() == number)
    }
}

/// Bytes of a segment.
pub const SEGMENT: u64 = 64 << 10;
/// Drives of an array.
pub const ARRAY: usize = 10;

/// A range on one drive of an array.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Piece {
    pub drive: usize,
    pub at: u64,
    pub length: u64,
}

/// Where the bytes of one access lie: data, and for each piece of data its twin (RAID-10); or the
/// parity of each row touched.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Spread {
    pub data: Vec<Piece>,
    /// RAID-10: the copies, in the order of the data. RAID-5 and RAID-6: parity, one piece a row
    /// and parity or two that lie apart.
    pub cover: Vec<Piece>,
}

/// Bytes of data that an array gives when so many bytes of each drive are used.
pub fn capacity(level: Level, used: u64) -> u64 {
    let rows = used / SEGMENT;
    rows * SEGMENT * row_segments(level)
}

fn row_segments(level: Level) -> u64 {
    match level {
        Level::Raid5 => ARRAY as u64 - 1,
        Level::Raid10 => ARRAY as u64 / 2,
        Level::Raid6 => ARRAY as u64 - 2,
    }
}

/// Cuts an access into pieces. Parity rotates (left-symmetric), the second one of RAID-6 on the
/// drive behind the first; RAID-10 drives are mirrored in neighbouring pairs.
pub fn spread(level: Level, at: u64, length: u64) -> Spread {
    let mut spread = Spread::default();
    let (mut here, end) = (at, at + length);
    while here < end {
        let segment = here / SEGMENT;
        let (row, column) = (segment / row_segments(level), (segment % row_segments(level)) as usize);
        let inside = here % SEGMENT;
        let length = (SEGMENT - inside).min(end - here);
        let place = row * SEGMENT + inside;
        here += length;
        match level {
            Level::Raid10 => {
                spread.data.push(Piece { drive: 2 * column, at: place, length });
                spread.cover.push(Piece { drive: 2 * column + 1, at: place, length });
            }
            Level::Raid5 | Level::Raid6 => {
                let parity = ARRAY - 1 - (row % ARRAY as u64) as usize;
                let parities = ARRAY - row_segments(level) as usize;
                spread.data.push(Piece { drive: (parity + parities + column) % ARRAY, at: place, length });
                for number in 0..parities {
                    widen(&mut spread.cover, Piece { drive: (parity + number) % ARRAY, at: place, length });
                }
            }
        }
    }
    spread
}

/// Parity of the parts of one row that touch or overlap is one command; parts that lie apart are
/// commands of their own.
fn widen(cover: &mut Vec<Piece>, next: Piece) {
    let meets = |last: &&mut Piece| {
        last.drive == next.drive && last.at <= next.at + next.length && next.at <= last.at + last.length
    };
    match cover.iter_mut().rev().find(meets) {
        Some(last) => {
            let end = (last.at + last.length).max(next.at + next.length);
            last.at = last.at.min(next.at);
            last.length = end - last.at;
        }
        None => cover.push(next),
    }
}

#[cfg(test)]
mod tests;
