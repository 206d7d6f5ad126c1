//! Which chunks a snapshot needs, in a form that the server reads without a key: for each segment, runs of ordinals.
//!
//! The list of a file system of ten million files has about one bit for each chunk while it is made, and a few bytes for
//! each segment when it is stored.

use std::collections::BTreeMap;

use crate::codec::{Decoder, put_varint};
use crate::error::Result;
use crate::segment::{SEGMENT_CHUNKS_MAX, SegmentId};

/// A set of ordinals of one segment.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Ordinals(Vec<u64>);

impl Ordinals {
    /// All that a segment can have.
    pub fn all() -> Ordinals {
        Ordinals(vec![u64::MAX; SEGMENT_CHUNKS_MAX / 64])
    }

    pub fn insert(&mut self, ordinal: usize) {
        let word = ordinal / 64;
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        if let Some(word) = self.0.get_mut(word) {
            *word |= 1 << (ordinal % 64);
        }
    }

    pub fn merge(&mut self, other: &Ordinals) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        self.0.iter_mut().zip(&other.0).for_each(|(word, more)| *word |= more);
    }

    pub fn contains(&self, ordinal: usize) -> bool {
        self.0.get(ordinal / 64).is_some_and(|word| word >> (ordinal % 64) & 1 == 1)
    }

    pub fn count(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.0.len() * 64).filter(|ordinal| self.contains(*ordinal))
    }

    pub fn encode(&self, into: &mut Vec<u8>) {
        let mut runs: Vec<(usize, usize)> = Vec::new();
        for ordinal in self.iter() {
            match runs.last_mut() {
                Some((from, length)) if *from + *length == ordinal => *length += 1,
                _ => runs.push((ordinal, 1)),
            }
        }
        put_varint(into, runs.len() as u64);
        let mut end = 0;
        for (from, length) in runs {
            put_varint(into, (from - end) as u64);
            put_varint(into, length as u64);
            end = from + length;
        }
    }

    pub fn decode(decoder: &mut Decoder<'_>) -> Result<Ordinals> {
        let (mut ordinals, mut end) = (Ordinals::default(), 0);
        for _ in 0..decoder.count(2)? {
            let from = end + decoder.up_to(SEGMENT_CHUNKS_MAX as u64)? as usize;
            end = from + decoder.up_to(SEGMENT_CHUNKS_MAX as u64)? as usize;
            if end > SEGMENT_CHUNKS_MAX {
                return Err(decoder.damaged("an ordinal exceeds those of a segment"));
            }
            (from..end).for_each(|ordinal| ordinals.insert(ordinal));
        }
        Ok(ordinals)
    }
}

/// The chunks that a snapshot needs.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct References(pub BTreeMap<SegmentId, Ordinals>);

impl References {
    pub fn encode(&self, into: &mut Vec<u8>) {
        put_varint(into, self.0.len() as u64);
        for (segment, ordinals) in &self.0 {
            into.extend_from_slice(&segment.0);
            ordinals.encode(into);
        }
    }

    pub fn decode(decoder: &mut Decoder<'_>) -> Result<References> {
        let count = decoder.count(33)?;
        let mut references = References::default();
        for _ in 0..count {
            let segment = SegmentId(decoder.array()?);
            let after_last = references.0.last_key_value().is_none_or(|(last, _)| *last < segment);
            let ordinals = Ordinals::decode(decoder)?;
            if !after_last {
                return Err(decoder.damaged("its segments are not in order"));
            }
            references.0.insert(segment, ordinals);
        }
        Ok(references)
    }

    pub fn chunks(&self) -> usize {
        self.0.values().map(Ordinals::count).sum()
    }
}

#[cfg(test)]
mod tests;
