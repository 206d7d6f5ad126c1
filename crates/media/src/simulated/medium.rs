//! What a simulated drive holds: its durable content, and over it the writes that a power cut may
//! lose.

use std::rc::Rc;

use stele_ground::{BLOCK, Bytes, Dice};

use super::cache::{Cache, Cut, Unsettled};
use super::leaf;
use super::platter::{Page, Platter, SECTOR, bytes_of, page_of};
use crate::{Extent, ExtentState, Op, Shared};

/// Durable content with a volatile write cache.
#[derive(Clone, Debug)]
pub struct Medium {
    platter: Platter,
    cache: Cache,
}

impl Medium {
    /// `tear` is the unit that a power cut never splits: 512 or 4096 bytes.
    pub fn new(tear: Bytes) -> Medium {
        Medium::holding(Platter::default(), tear)
    }

    /// A medium that holds an earlier image.
    pub fn holding(platter: Platter, tear: Bytes) -> Medium {
        assert!(tear.0 == SECTOR as u64 || tear.0 == BLOCK as u64, "drives tear at 512 or 4096 bytes");
        Medium { platter, cache: Cache::new(tear.0 as usize) }
    }

    /// A mark of all operations carried out so far. A flush that is submitted now covers them.
    pub fn mark(&self) -> u64 {
        self.cache.mark()
    }

    /// Carries out an operation within the drive's size; of a flush, `mark` is from its submission.
    pub fn carry_out(&mut self, op: &mut Op, mark: u64) {
        match op {
            Op::Read { at, buffer } => self.read(*at, buffer),
            Op::Write { at, data, fua } => self.write(*at, length_of(data), Some(data), *fua),
            Op::Zero { at, length } | Op::Discard { at, length } => self.write(*at, *length, None, false),
            Op::Flush => self.cache.flush(&mut self.platter, mark),
            Op::Extents { at, length, extents, .. } => *extents = self.extents(*at, *length),
            Op::View { .. } => unreachable!("no drive admits a view"),
        }
    }

    /// The power goes in the middle of this operation: a write may or may not reach the medium.
    pub fn break_off(&mut self, op: &Op) {
        match op {
            Op::Write { at, data, .. } => self.write(*at, length_of(data), Some(data), false),
            Op::Zero { at, length } | Op::Discard { at, length } => self.write(*at, *length, None, false),
            _ => {}
        }
    }

    fn write(&mut self, at: u64, length: u64, data: Option<&[Shared]>, through: bool) {
        let sequence = self.cache.next();
        cut_into_pages(at, length, data, |page, mask, content| {
            if through {
                self.cache.put_through(&mut self.platter, page, mask, content);
            } else {
                self.cache.put(&mut self.platter, sequence, page, mask, content);
            }
        });
    }

    /// Fills the bytes with what a reader sees from `at` on.
    pub fn read(&self, at: u64, bytes: &mut [u8]) {
        let length = bytes.len() as u64;
        let Some((first, last)) = pages_between(at, length) else { return };
        let mut rest = bytes;
        self.cache.view(&self.platter, first, last, |page, content| {
            let (from, to) = part_of(page, at, length);
            let start = (from % BLOCK as u64) as usize;
            let (into, after) = std::mem::take(&mut rest).split_at_mut((to - from) as usize);
            match content {
                Some(content) => into.copy_from_slice(&content[start..start + into.len()]),
                None => into.fill(0),
            }
            rest = after;
        });
    }

    fn extents(&self, at: u64, length: u64) -> Vec<Extent> {
        let mut extents = Vec::new();
        let Some((first, last)) = pages_between(at, length) else { return extents };
        self.cache.view(&self.platter, first, last, |page, content| {
            let (from, to) = part_of(page, at, length);
            let state = if content.is_some() { ExtentState::Data } else { ExtentState::Hole };
            Extent::append(&mut extents, Extent { length: to - from, state });
        });
        extents
    }

    /// The places of which a power cut may lose something, in order.
    pub fn unsettled(&self) -> Vec<Unsettled> {
        self.cache.unsettled()
    }

    /// Cuts the power: `choose` selects the content of each unsettled place.
    pub fn cut(&mut self, choose: impl FnMut(Unsettled) -> usize) {
        self.cache.cut(&mut self.platter, choose);
    }

    /// Cuts the power; the dice decide how much of the cache is lost.
    pub fn power_cut(&mut self, dice: &mut Dice) -> Cut {
        let cut = Cut::drawn(dice);
        self.cut(|place| cut.choose(dice, place));
        cut
    }

    /// The durable content after a power cut in which `choose` selects the content of each
    /// unsettled place.
    pub fn after_cut(&self, choose: impl FnMut(Unsettled) -> usize) -> Platter {
        let mut platter = self.platter.clone();
        self.cache.clone().cut(&mut platter, choose);
        platter
    }

    /// Makes all writes durable, whatever earlier flushes claimed.
    pub fn settle(&mut self) {
        self.cache.flush(&mut self.platter, u64::MAX);
    }

    /// The durable content.
    pub fn platter(&self) -> &Platter {
        &self.platter
    }

    /// The content that a reader sees.
    pub fn image(&self) -> Platter {
        let mut platter = self.platter.clone();
        self.cache.clone().flush(&mut platter, u64::MAX);
        platter
    }

    /// Replaces everything by this image.
    pub fn restore(&mut self, image: Platter) {
        self.platter = image;
        self.cut(|_| 0);
    }

    /// Inverts bits of one durable byte, like decay at rest. A cached newer version hides it.
    pub fn flip(&mut self, at: u64, bits: u8) {
        let index = at / BLOCK as u64;
        let mut content = bytes_of(self.platter.page(index).as_ref());
        content[(at % BLOCK as u64) as usize] ^= bits;
        self.platter.set(index, page_of(&content));
    }
}

fn length_of(data: &[Shared]) -> u64 {
    data.iter().map(|piece| piece.len() as u64).sum()
}

/// The first and the last page of a range; `None` if it is empty.
fn pages_between(at: u64, length: u64) -> Option<(u64, u64)> {
    (length > 0).then(|| (at / BLOCK as u64, (at + length - 1) / BLOCK as u64))
}

/// The part of a page that belongs to a range: first byte and end.
fn part_of(page: u64, at: u64, length: u64) -> (u64, u64) {
    let begin = page * BLOCK as u64;
    (begin.max(at), (begin + BLOCK as u64).min(at + length))
}

/// Cuts a write into pages: page index, mask of the sectors touched, and the content of those
/// sectors.
fn cut_into_pages(at: u64, length: u64, data: Option<&[Shared]>, mut put: impl FnMut(u64, u8, Page)) {
    let Some((first, last)) = pages_between(at, length) else { return };
    let mut rest = Rest { pieces: data.unwrap_or_default(), from: 0, whole: None };
    for page in first..=last {
        let (from, to) = part_of(page, at, length);
        let (start, count) = ((from % BLOCK as u64) as usize, (to - from) as usize);
        let mask = (start / SECTOR..(start + count) / SECTOR).fold(0, |mask, sector| mask | 1 << sector);
        let content = match data {
            None => None,
            Some(_) if count == BLOCK => rest.page(),
            Some(_) => {
                let mut content = [0; BLOCK];
                rest.copy_to(&mut content[start..start + count]);
                page_of(&content)
            }
        };
        put(page, mask, content);
    }
}

/// What is left of a write.
struct Rest<'a> {
    pieces: &'a [Shared],
    /// Bytes of the first piece that are used up.
    from: usize,
    /// The pages of the first piece.
    whole: Option<Rc<[Page]>>,
}

impl Rest<'_> {
    fn drop_used(&mut self) {
        while let Some((first, others)) = self.pieces.split_first()
            && self.from >= first.len()
        {
            (self.pieces, self.from, self.whole) = (others, 0, None);
        }
    }

    /// The next page, which most often lies in one piece.
    fn page(&mut self) -> Page {
        self.drop_used();
        if let Some(piece) = self.pieces.first()
            && self.from.is_multiple_of(BLOCK)
            && piece.len() >= self.from + BLOCK
        {
            let whole = self.whole.get_or_insert_with(|| leaf::pages_of(piece));
            let page = whole[self.from / BLOCK].clone();
            self.from += BLOCK;
            return page;
        }
        let mut content = [0; BLOCK];
        self.copy_to(&mut content);
        page_of(&content)
    }

    fn copy_to(&mut self, mut into: &mut [u8]) {
        while !into.is_empty() {
            self.drop_used();
            let Some(piece) = self.pieces.first() else { return };
            let here = &piece[self.from..];
            let (now, later) = into.split_at_mut(here.len().min(into.len()));
            now.copy_from_slice(&here[..now.len()]);
            self.from += now.len();
            into = later;
        }
    }
}
