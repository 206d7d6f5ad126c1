//! Which chunks a snapshot needs, in a form that the server reads without a key: for each segment,
//! runs of ordinals.
//!
//! The list of a file system of ten million files has at most one bit for each chunk while it is
//! made, and a few bytes for each segment when it is stored. Read back it takes a few times the
//! stored bytes.

use std::collections::BTreeMap;

use crate::codec::{Decoder, put_varint};
use crate::error::Result;
use crate::segment::{SEGMENT_CHUNKS_MAX, SegmentId};

/// A set of ordinals of one segment.
///
/// Lists come from untrusted writers. So a set takes memory by the runs that were stored, and never
/// more than a bit for each possible ordinal.
#[derive(Clone)]
pub struct Ordinals(Form);

/// From the first ordinal up to the one behind the last.
type Run = (u32, u32);

#[derive(Clone)]
enum Form {
    /// In order, with gaps between them.
    Runs(Vec<Run>),
    /// A bit for each ordinal.
    Bits(Vec<u64>),
}

/// With so many runs the bits take no more memory.
const RUNS_MAX: usize = SEGMENT_CHUNKS_MAX / 64;

impl Default for Ordinals {
    fn default() -> Ordinals {
        Ordinals(Form::Runs(Vec::new()))
    }
}

/// Both forms of a set are equal.
impl PartialEq for Ordinals {
    fn eq(&self, other: &Ordinals) -> bool {
        self.runs().eq(other.runs())
    }
}

impl Eq for Ordinals {}

impl std::fmt::Debug for Ordinals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.runs()).finish()
    }
}

impl Ordinals {
    /// All that a segment can have.
    pub fn all() -> Ordinals {
        Ordinals::first(SEGMENT_CHUNKS_MAX)
    }

    /// The first ones of a segment.
    pub fn first(count: usize) -> Ordinals {
        Ordinals(Form::Runs(if count == 0 { Vec::new() } else { vec![(0, count as u32)] }))
    }

    pub fn insert(&mut self, ordinal: usize) {
        self.insert_run((ordinal as u32, ordinal as u32 + 1));
    }

    fn insert_run(&mut self, (from, to): Run) {
        match &mut self.0 {
            Form::Runs(runs) => {
                // Those that touch the new one become one with it.
                let first = runs.partition_point(|run| run.1 < from);
                let behind = first + runs.get(first..).unwrap_or_default().partition_point(|run| run.0 <= to);
                let touched = runs.get(first..behind).unwrap_or_default();
                let from = touched.first().map_or(from, |run| run.0.min(from));
                let to = touched.last().map_or(to, |run| run.1.max(to));
                runs.splice(first..behind, [(from, to)]);
                if runs.len() > RUNS_MAX {
                    self.0 = Form::Bits(bits(runs));
                }
            }
            Form::Bits(bits) => set(bits, (from, to)),
        }
    }

    pub fn merge(&mut self, other: &Ordinals) {
        other.runs().for_each(|run| self.insert_run(run));
    }

    pub fn contains(&self, ordinal: usize) -> bool {
        match &self.0 {
            Form::Runs(runs) => {
                let behind = runs.partition_point(|run| run.0 as usize <= ordinal);
                behind.checked_sub(1).and_then(|at| runs.get(at)).is_some_and(|run| ordinal < run.1 as usize)
            }
            Form::Bits(bits) => bits.get(ordinal / 64).is_some_and(|word| word >> (ordinal % 64) & 1 == 1),
        }
    }

    pub fn count(&self) -> usize {
        match &self.0 {
            Form::Runs(runs) => runs.iter().map(|run| (run.1 - run.0) as usize).sum(),
            Form::Bits(bits) => bits.iter().map(|word| word.count_ones() as usize).sum(),
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.runs().flat_map(|(from, to)| from as usize..to as usize)
    }

    fn runs(&self) -> impl Iterator<Item = Run> + '_ {
        let (runs, bits) = match &self.0 {
            Form::Runs(runs) => (runs.as_slice(), [].as_slice()),
            Form::Bits(bits) => ([].as_slice(), bits.as_slice()),
        };
        let mut at = 0;
        let of_bits = std::iter::from_fn(move || {
            let from = next(bits, at, true)?;
            at = next(bits, from, false).unwrap_or(bits.len() as u32 * 64);
            Some((from, at))
        });
        runs.iter().copied().chain(of_bits)
    }

    #[cfg(test)]
    pub fn heap_bytes(&self) -> usize {
        match &self.0 {
            Form::Runs(runs) => runs.capacity() * size_of::<Run>(),
            Form::Bits(bits) => bits.capacity() * 8,
        }
    }

    pub fn encode(&self, into: &mut Vec<u8>) {
        put_varint(into, self.runs().count() as u64);
        let mut end = 0;
        for (from, to) in self.runs() {
            put_varint(into, u64::from(from - end));
            put_varint(into, u64::from(to - from));
            end = to;
        }
    }

    pub fn decode(decoder: &mut Decoder<'_>) -> Result<Ordinals> {
        let count = decoder.count(2)?;
        let (mut ordinals, mut end) = (Ordinals(Form::Runs(Vec::with_capacity(count.min(RUNS_MAX)))), 0);
        for _ in 0..count {
            let from = end + decoder.up_to(SEGMENT_CHUNKS_MAX as u64)? as u32;
            end = from + decoder.up_to(SEGMENT_CHUNKS_MAX as u64)? as u32;
            if end > SEGMENT_CHUNKS_MAX as u32 {
                return Err(decoder.damaged("an ordinal exceeds those of a segment"));
            }
            if from < end {
                ordinals.insert_run((from, end));
            }
        }
        Ok(ordinals)
    }
}

fn bits(runs: &[Run]) -> Vec<u64> {
    let mut bits = Vec::with_capacity(SEGMENT_CHUNKS_MAX / 64);
    runs.iter().for_each(|run| set(&mut bits, *run));
    bits
}

fn set(bits: &mut Vec<u64>, (from, to): Run) {
    if bits.len() < to.div_ceil(64) as usize {
        bits.resize(to.div_ceil(64) as usize, 0);
    }
    for ordinal in from..to {
        if let Some(word) = bits.get_mut(ordinal as usize / 64) {
            *word |= 1 << (ordinal % 64);
        }
    }
}

/// The first ordinal from `at` on that is in the set, or not.
fn next(bits: &[u64], at: u32, wanted: bool) -> Option<u32> {
    let (mut word, mut skipped) = (at as usize / 64, at % 64);
    while let Some(bits) = bits.get(word) {
        let bits = if wanted { *bits } else { !*bits } >> skipped << skipped;
        if bits != 0 {
            return Some(word as u32 * 64 + bits.trailing_zeros());
        }
        (word, skipped) = (word + 1, 0);
    }
    None
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

    /// Checks a list and goes behind it, in the memory of one segment.
    pub fn skip(decoder: &mut Decoder<'_>) -> Result<()> {
        let mut last = None;
        for _ in 0..decoder.count(33)? {
            let segment = SegmentId(decoder.array()?);
            Ordinals::decode(decoder)?;
            if last.replace(segment).is_some_and(|last| last >= segment) {
                return Err(decoder.damaged("its segments are not in order"));
            }
        }
        Ok(())
    }

    pub fn chunks(&self) -> usize {
        self.0.values().map(Ordinals::count).sum()
    }
}

#[cfg(test)]
mod tests;
