//! Ranges of keys. Keys are ordered as bytes; a prefix is a range.

use std::ops::{Bound, RangeBounds};

use bytes::Bytes;

/// The direction of a scan.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Direction {
    #[default]
    Forward,
    Backward,
}

/// A range of keys within one table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyRange {
    pub low: Bound<Bytes>,
    pub high: Bound<Bytes>,
}

impl KeyRange {
    /// Every key.
    pub fn all() -> KeyRange {
        KeyRange { low: Bound::Unbounded, high: Bound::Unbounded }
    }

    /// Keys from `low` up to, but not including, `high`.
    pub fn between(low: impl Into<Bytes>, high: impl Into<Bytes>) -> KeyRange {
        KeyRange { low: Bound::Included(low.into()), high: Bound::Excluded(high.into()) }
    }

    /// Keys that start with `prefix`; an empty prefix covers every key.
    pub fn prefix(prefix: impl Into<Bytes>) -> KeyRange {
        let prefix = prefix.into();
        let high = match prefix.iter().rposition(|byte| *byte != 0xFF) {
            Some(last) => {
                let mut high = prefix[..=last].to_vec();
                high[last] += 1;
                Bound::Excluded(high.into())
            }
            None => Bound::Unbounded,
        };
        KeyRange { low: Bound::Included(prefix), high }
    }

    /// The same range, restricted to keys after `key`: the next page of a forward scan.
    pub fn after(mut self, key: impl Into<Bytes>) -> KeyRange {
        self.low = Bound::Excluded(key.into());
        self
    }

    /// The same range, restricted to `key` and the keys after it.
    pub fn from(mut self, key: impl Into<Bytes>) -> KeyRange {
        self.low = Bound::Included(key.into());
        self
    }

    /// The same range, restricted to keys before `key`: the next page of a backward scan.
    pub fn below(mut self, key: impl Into<Bytes>) -> KeyRange {
        self.high = Bound::Excluded(key.into());
        self
    }

    /// Whether the range can contain no key. Ordered maps panic on such bounds, so callers check
    /// this first.
    pub fn is_void(&self) -> bool {
        match (&self.low, &self.high) {
            (Bound::Unbounded, Bound::Excluded(high)) => high.is_empty(),
            (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
            (Bound::Included(low), Bound::Included(high)) => low > high,
            (Bound::Included(low) | Bound::Excluded(low), Bound::Excluded(high) | Bound::Included(high)) => low >= high,
        }
    }

    pub fn contains(&self, key: &[u8]) -> bool {
        RangeBounds::<[u8]>::contains(&self.as_slices(), key)
    }

    pub(crate) fn as_slices(&self) -> Slices<'_> {
        (slice(&self.low), slice(&self.high))
    }
}

pub(crate) type Slices<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

fn slice(bound: &Bound<Bytes>) -> Bound<&[u8]> {
    match bound {
        Bound::Included(key) => Bound::Included(key.as_ref()),
        Bound::Excluded(key) => Bound::Excluded(key.as_ref()),
        Bound::Unbounded => Bound::Unbounded,
    }
}

#[cfg(test)]
mod tests;
