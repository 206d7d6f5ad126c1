//! A table from ids to numbers, in seven bytes each and a little room.
//!
//! It keeps 40 bits of an id: 8 say which of 256 parts has it, and 32 are its fingerprint there. A
//! part is an array of fingerprints in ascending order, with gaps. Each belongs at the place that
//! its value has in proportion, or as near behind it as those before it allow. So a search looks at
//! a few places in a row, and it ends with a gap or a greater fingerprint. Another array has the
//! numbers, which only a match reads.
//!
//! A part that is 31/32 full grows by 1/32: one pass over it, in order. Parts grow one at a time,
//! so the table is never there twice. With more and smaller parts the allocator loses more memory
//! between them than shorter fingerprints save. Ids are to be random. Equal ones, which an
//! untrusted writer may repeat, cost time in proportion to their number, and at most twice the
//! memory of others.

/// Bits of a number.
pub const NUMBER_BITS: u32 = 24;
const PARTS: usize = 256;
/// A part grows by one in so many places, when fewer than one in so many are free.
const SHARE: usize = 32;
/// Places of a part at first.
const PLACES_LEAST: usize = 16;
/// Places behind those that fingerprints belong at, for what has no room before the end.
const END: usize = 16;

type Number = [u8; 3];

#[derive(Default)]
struct Part {
    /// Ascending. Between them are gaps, which are 0.
    prints: Vec<u32>,
    /// Of the same length.
    numbers: Vec<Number>,
    /// The fingerprints belong at the first places, so many.
    places: usize,
    used: usize,
}

impl Part {
    fn new(places: usize) -> Part {
        let length = places + END;
        Part { prints: vec![0; length], numbers: vec![Number::default(); length], places, used: 0 }
    }

    /// Where a fingerprint belongs.
    fn place(&self, print: u32) -> usize {
        ((u64::from(print) * self.places as u64) >> u32::BITS) as usize
    }

    fn find(&self, print: u32) -> impl Iterator<Item = Number> + '_ {
        let from = self.place(print);
        let prints = self.prints.get(from..).unwrap_or_default();
        let numbers = self.numbers.get(from..).unwrap_or_default();
        let near = prints.iter().zip(numbers).skip_while(move |(there, _)| (1..print).contains(*there));
        near.take_while(move |(there, _)| **there == print).map(|(_, number)| *number)
    }

    fn insert(&mut self, print: u32, number: Number) {
        if self.used + self.places / SHARE >= self.places {
            self.grow();
        }
        let from = self.place(print);
        let run = self.prints.get(from..).unwrap_or_default();
        let at = run.iter().position(|there| *there == 0 || *there > print).unwrap_or(run.len());
        let moved = run.get(at..).unwrap_or_default();
        let gap = at + moved.iter().position(|there| *there == 0).unwrap_or(moved.len());
        let (at, gap) = (from + at, from + gap);
        if gap == self.prints.len() {
            self.lengthen();
        }
        self.prints.copy_within(at..gap, at + 1);
        self.numbers.copy_within(at..gap, at + 1);
        self.put(at, print, number);
    }

    fn put(&mut self, at: usize, print: u32, number: Number) {
        if let (Some(there), Some(its)) = (self.prints.get_mut(at), self.numbers.get_mut(at)) {
            (*there, *its) = (print, number);
            self.used += 1;
        }
    }

    /// Adds places at the end, where many fingerprints are among the greatest.
    fn lengthen(&mut self) {
        let more = END.max(self.places / SHARE);
        self.prints.reserve_exact(more);
        self.prints.resize(self.prints.len() + more, 0);
        self.numbers.reserve_exact(more);
        self.numbers.resize(self.prints.len(), Number::default());
    }

    fn grow(&mut self) {
        let mut grown = Part::new(self.places + PLACES_LEAST.max(self.places / SHARE));
        let mut next = 0;
        for (print, number) in self.prints.iter().zip(&self.numbers).filter(|(print, _)| **print != 0) {
            next = next.max(grown.place(*print));
            if next == grown.prints.len() {
                grown.lengthen();
            }
            grown.put(next, *print, *number);
            next += 1;
        }
        *self = grown;
    }
}

pub struct Table {
    parts: Vec<Part>,
}

impl Table {
    pub fn new() -> Table {
        Table { parts: std::iter::repeat_with(Part::default).take(PARTS).collect() }
    }

    /// The part of an id, and its fingerprint there, which is not 0.
    fn key(id: &[u8; 32]) -> (usize, u32) {
        let [part, _, _, _, _, _, _, _, a, b, c, d, ..] = *id;
        (part.into(), u32::from_le_bytes([a, b, c, d]).max(1))
    }

    /// Adds a number of an id, which may have several. It has at most [`NUMBER_BITS`].
    pub fn insert(&mut self, id: &[u8; 32], number: u32) {
        let ((part, print), [low, middle, high, _]) = (Table::key(id), number.to_le_bytes());
        if let Some(part) = self.parts.get_mut(part) {
            part.insert(print, [low, middle, high]);
        }
    }

    /// The numbers of the id, and those of others that look like it.
    pub fn find(&self, id: &[u8; 32]) -> impl Iterator<Item = u32> + '_ {
        let (part, print) = Table::key(id);
        let numbers = self.parts.get(part).into_iter().flat_map(move |part| part.find(print));
        numbers.map(|[low, middle, high]| u32::from_le_bytes([low, middle, high, 0]))
    }

    pub fn len(&self) -> usize {
        self.parts.iter().map(|part| part.used).sum()
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        let places: usize = self.parts.iter().map(|part| part.prints.len()).sum();
        places * (size_of::<u32>() + size_of::<Number>())
    }
}

#[cfg(test)]
mod tests;
