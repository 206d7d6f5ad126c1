//! Words of pages that a checkpoint has left out.

use super::field::Field;
use crate::formats::codec::{Reader, Writer};
use crate::model::place::{PAGE, PageId};

/// A page, and its words that differ from the page as it is stored: byte offset and value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PagePatch {
    pub id: PageId,
    pub words: Vec<(u16, u32)>,
}

impl Field for PagePatch {
    const SIZES: &'static [usize] = &[4, 4, 4, 4];

    fn size(&self) -> usize {
        PagePatch::least() + 8 * self.words.len()
    }

    fn encode(&self, w: &mut Writer<'_>) {
        w.u32(self.id.table);
        w.u32(self.id.index);
        w.u32(self.words.len() as u32);
        w.u32(0);
        for (at, word) in &self.words {
            w.u32(u32::from(*at));
            w.u32(*word);
        }
    }

    fn decode(r: &mut Reader) -> Option<PagePatch> {
        let (table, index, count, _) = (r.u32()?, r.u32()?, r.u32()? as usize, r.u32()?);
        if !r.can_hold(count, 8) {
            return None;
        }
        let word = |r: &mut Reader| {
            let (at, word) = (u16::try_from(r.u32()?).ok()?, r.u32()?);
            let inside = at.is_multiple_of(4) && usize::from(at) + 4 <= PAGE;
            inside.then_some((at, word))
        };
        let words = (0..count).map(|_| word(r)).collect::<Option<_>>()?;
        Some(PagePatch { id: PageId { table, index }, words })
    }
}
