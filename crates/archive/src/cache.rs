//! A bounded cache in two generations. A used value moves to the young generation. When the young
//! one is full, the old one is dropped.
//!
//! The weights of all values add up to at most the limit. A value in steady use stays; a value used
//! once is dropped after one generation.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

pub(crate) struct Cache<K, V> {
    young: BTreeMap<K, (V, usize)>,
    old: BTreeMap<K, (V, usize)>,
    weight: usize,
    half: usize,
}

impl<K: Ord + Clone, V: Clone> Cache<K, V> {
    /// `limit`: the greatest sum of weights. 0 keeps nothing.
    pub fn new(limit: usize) -> Cache<K, V> {
        Cache { young: BTreeMap::new(), old: BTreeMap::new(), weight: 0, half: limit / 2 }
    }

    pub fn get(&mut self, key: &K) -> Option<V> {
        if let Some((value, _)) = self.young.get(key) {
            return Some(value.clone());
        }
        let (value, weight) = self.old.remove(key)?;
        self.insert(key.clone(), value.clone(), weight);
        Some(value)
    }

    pub fn insert(&mut self, key: K, value: V, weight: usize) {
        if weight > self.half {
            self.remove(&key);
            return;
        }
        self.remove(&key);
        if self.weight + weight > self.half {
            self.old = std::mem::take(&mut self.young);
            self.weight = 0;
        }
        self.weight += weight;
        self.young.insert(key, (value, weight));
    }

    pub fn remove(&mut self, key: &K) {
        if let Some((_, weight)) = self.young.remove(key) {
            self.weight -= weight;
        }
        self.old.remove(key);
    }

    pub fn remove_range(&mut self, range: RangeInclusive<K>) {
        for (_, weight) in self.young.extract_if(range.clone(), |_, _| true).map(|(_, value)| value) {
            self.weight -= weight;
        }
        self.old.extract_if(range, |_, _| true).for_each(drop);
    }
}

#[cfg(test)]
mod tests;
