//! How often each thing happened, so that a green run can be seen to have tried something.

use std::collections::BTreeMap;
use std::fmt;

/// Counts by name.
#[derive(Clone, Default, Debug)]
pub struct Coverage {
    counts: BTreeMap<String, u64>,
}

impl Coverage {
    pub fn count(&mut self, name: impl Into<String>) {
        self.add(name, 1);
    }

    pub fn add(&mut self, name: impl Into<String>, times: u64) {
        *self.counts.entry(name.into()).or_default() += times;
    }

    pub fn of(&self, name: &str) -> u64 {
        self.counts.get(name).copied().unwrap_or(0)
    }

    pub fn merge(&mut self, other: &Coverage) {
        for (name, times) in &other.counts {
            self.add(name.as_str(), *times);
        }
    }
}

/// A table of two columns.
impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.counts.keys().map(String::len).max().unwrap_or(0);
        for (name, times) in &self.counts {
            writeln!(f, "  {name:<width$}  {times:>10}")?;
        }
        Ok(())
    }
}
