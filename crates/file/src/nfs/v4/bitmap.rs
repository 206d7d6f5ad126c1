//! Sets of attributes on the wire (`bitmap4`).

use super::super::xdr::{Malformed, Reader, Writer};

/// Words that hold attributes of this minor version.
const WORDS: usize = 3;
/// The most words that a request may have.
const WORDS_MAX: usize = 16;

/// A set of attribute numbers below 96.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Bitmap {
    words: [u32; WORDS],
    /// The request named further attributes, which this server does not know.
    beyond: bool,
}

impl Bitmap {
    pub const fn of(numbers: &[u32]) -> Bitmap {
        let mut words = [0; WORDS];
        let mut rest = numbers;
        while let [number, others @ ..] = rest {
            words[*number as usize / 32] |= 1 << (*number % 32);
            rest = others;
        }
        Bitmap { words, beyond: false }
    }

    pub const fn or(&self, other: &Bitmap) -> Bitmap {
        let ([a, b, c], [d, e, f]) = (self.words, other.words);
        Bitmap { words: [a | d, b | e, c | f], beyond: self.beyond || other.beyond }
    }

    pub fn read(reader: &mut Reader) -> Result<Bitmap, Malformed> {
        let count = reader.u32()? as usize;
        if count > WORDS_MAX {
            return Err(Malformed);
        }
        let mut bitmap = Bitmap::default();
        for number in 0..count {
            let word = reader.u32()?;
            match bitmap.words.get_mut(number) {
                Some(into) => *into = word,
                None => bitmap.beyond |= word != 0,
            }
        }
        Ok(bitmap)
    }

    pub fn put(&self, out: &mut Vec<u8>) {
        let used = self.words.iter().rposition(|word| *word != 0).map_or(0, |last| last + 1);
        out.put_u32(used as u32);
        self.words.iter().take(used).for_each(|word| out.put_u32(*word));
    }

    pub fn has(&self, number: u32) -> bool {
        self.words.get(number as usize / 32).is_some_and(|word| word & 1 << (number % 32) != 0)
    }

    pub fn add(&mut self, number: u32) {
        if let Some(word) = self.words.get_mut(number as usize / 32) {
            *word |= 1 << (number % 32);
        }
    }

    pub fn is_empty(&self) -> bool {
        *self == Bitmap::default()
    }

    /// The members that are in the other set too.
    pub fn and(mut self, other: &Bitmap) -> Bitmap {
        for (word, other) in self.words.iter_mut().zip(other.words) {
            *word &= other;
        }
        self.beyond = false;
        self
    }

    /// Whether the other set has every member of this one.
    pub fn is_within(&self, other: &Bitmap) -> bool {
        !self.beyond && self.and(other) == *self
    }

    /// The members in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + use<> {
        let words = self.words;
        (0..)
            .zip(words)
            .flat_map(|(place, word)| (0..32).filter(move |bit| word & 1 << bit != 0).map(move |bit| place * 32 + bit))
    }
}
