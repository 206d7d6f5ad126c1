//! A table from ids to numbers, in seven bytes each and a little room.
//!
//! It keeps 40 bits of an id: 8 say which of 256 parts has it, and 32 are its fingerprint there. A
//! part is an array of fingerprints in ascending order, with gaps. Each belongs at the place that
//! its value has in proportion, or as near behind it as those before it allow. So a search looks at
//! a few places in a row, and it ends with a gap or a greater fingerprint. Another array has the
//! numbers, which only a match reads.
//!
//! A part that is 15/16 full grows by a sixteenth: one pass over it, in order. Parts grow one at a
//! time, so the table is never there twice. Ids are to be random. Equal ones, which an untrusted
//! writer may repeat, cost time in proportion to their number, and no more memory than others.

/// Bits of a number. 0 is none.
pub const NUMBER_BITS: u32 = 24;
const PARTS: usize = 256;
/// Places of a part at first.
const PLACES_LEAST: usize = 16;
/// Places behind those that fingerprints belong at, for what has no room before the end.
const END: usize = 16;

/// What the table needs to know of an id.
#[derive(Clone, Copy)]
struct Key {
    part: usize,
    /// Never 0, which is a gap.
    print: u32,
}

impl Key {
    fn of(id: &[u8; 32]) -> Key {
        let [part, _, _, _, _, _, _, _, a, b, c, d, ..] = *id;
        Key { part: part.into(), print: u32::from_le_bytes([a, b, c, d]).max(1) }
    }
}

type Number = [u8; 3];

#[derive(Default)]
struct Part {
    /// Ascending, with gaps.
    prints: Vec<u32>,
    /// Of the same length.
    numbers: Vec<Number>,
    /// The fingerprints belong at the first places, so many.
    places: usize,
    used: usize,
}

impl Part {
    /// The place of a fingerprint: its value in proportion.
    fn place(print: u32, places: usize) -> usize {
        ((u64::from(print) * places as u64) >> u32::BITS) as usize
    }

    fn find(&self, print: u32) -> impl Iterator<Item = Number> + '_ {
        let from = Part::place(print, self.places);
        let prints = self.prints.get(from..).unwrap_or_default();
        let numbers = self.numbers.get(from..).unwrap_or_default();
        let near = prints.iter().zip(numbers).skip_while(move |(there, _)| (1..print).contains(*there));
        near.take_while(move |(there, _)| **there == print).map(|(_, number)| *number)
    }

    fn insert(&mut self, print: u32, number: Number) {
        if self.used * 16 >= self.places * 15 {
            self.grow();
        }
        let from = Part::place(print, self.places);
        let run = self.prints.get(from..).unwrap_or_default();
        // Both ends are mostly near.
        let at = run.iter().position(|there| *there == 0 || *there > print).unwrap_or(run.len());
        let gap = run.iter().skip(at).position(|there| *there == 0).map_or(run.len(), |gap| at + gap);
        let (at, gap) = (from + at, from + gap);
        if gap == self.prints.len() {
            self.lengthen();
        }
        self.prints.copy_within(at..gap, at + 1);
        self.numbers.copy_within(at..gap, at + 1);
        if let (Some(there), Some(its)) = (self.prints.get_mut(at), self.numbers.get_mut(at)) {
            (*there, *its) = (print, number);
        }
        self.used += 1;
    }

    /// Adds places at the end, where many fingerprints are among the greatest.
    fn lengthen(&mut self) {
        let length = self.prints.len() + END.max(self.places / 64);
        self.prints.reserve_exact(length - self.prints.len());
        self.numbers.reserve_exact(length - self.numbers.len());
        self.prints.resize(length, 0);
        self.numbers.resize(length, Number::default());
    }

    fn grow(&mut self) {
        let places = (self.places + self.places / 16).max(self.places + PLACES_LEAST);
        let mut grown = Part { places, used: self.used, ..Part::default() };
        grown.prints = vec![0; places + END];
        grown.numbers = vec![Number::default(); places + END];
        let mut next = 0;
        for (print, number) in self.prints.iter().zip(&self.numbers).filter(|(print, _)| **print != 0) {
            next = next.max(Part::place(*print, places));
            if next == grown.prints.len() {
                grown.lengthen();
            }
            if let (Some(there), Some(its)) = (grown.prints.get_mut(next), grown.numbers.get_mut(next)) {
                (*there, *its) = (*print, *number);
            }
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

    /// Adds a number of an id, which may have several. It has at most [`NUMBER_BITS`].
    pub fn insert(&mut self, id: &[u8; 32], number: u32) {
        let (key, [low, middle, high, _]) = (Key::of(id), number.to_le_bytes());
        if let Some(part) = self.parts.get_mut(key.part) {
            part.insert(key.print, [low, middle, high]);
        }
    }

    /// The numbers of the id, and those of others that look like it.
    pub fn find(&self, id: &[u8; 32]) -> impl Iterator<Item = u32> + '_ {
        let key = Key::of(id);
        let part = self.parts.get(key.part).into_iter();
        part.flat_map(move |part| part.find(key.print))
            .map(|[low, middle, high]| u32::from_le_bytes([low, middle, high, 0]))
    }

    pub fn len(&self) -> usize {
        self.parts.iter().map(|part| part.used).sum()
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        let of =
            |part: &Part| part.prints.capacity() * size_of::<u32>() + part.numbers.capacity() * size_of::<Number>();
        self.parts.iter().map(of).sum()
    }
}

#[cfg(test)]
mod tests;
