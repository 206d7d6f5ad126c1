//! A volume's map: where each stripe lives. One 8-byte word per stripe, in pages of its own table.

use crate::model::place::SlotId;

/// Words of a page.
pub const PER_PAGE: u64 = (crate::model::place::PAGE / 8) as u64;

const UNMAPPED: u64 = 0;
const ZERO: u64 = 1;
/// Slots are stored as their number plus this.
const FIRST_SLOT: u64 = 2;

/// Where a stripe is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Home {
    /// Never written, or discarded: reads as zeros, owns nothing.
    Unmapped,
    /// Written with zeros: reads as zeros, owns nothing.
    Zero,
    Slot(SlotId),
}

/// The page and the offset in it of a stripe's word.
pub fn locate(stripe: u64) -> (u32, usize) {
    ((stripe / PER_PAGE) as u32, (stripe % PER_PAGE) as usize * 8)
}

pub fn get(page: &[u8], at: usize) -> Home {
    let word = page.get(at..at + 8).and_then(|field| field.try_into().ok()).map_or(0, u64::from_le_bytes);
    match word {
        UNMAPPED => Home::Unmapped,
        ZERO => Home::Zero,
        packed => Home::Slot(SlotId::unpack(packed - FIRST_SLOT)),
    }
}

pub fn set(page: &mut [u8], at: usize, home: Home) {
    let word = match home {
        Home::Unmapped => UNMAPPED,
        Home::Zero => ZERO,
        Home::Slot(slot) => slot.packed() + FIRST_SLOT,
    };
    page[at..at + 8].copy_from_slice(&word.to_le_bytes());
}
