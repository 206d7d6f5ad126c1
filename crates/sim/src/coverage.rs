//! How often each thing happened, so that a green run can be seen to have tried something.

use std::collections::BTreeMap;
use std::fmt;

/// Counts by name.
#[derive(Clone, Default, Debug)]
pub struct Coverage {
    counts: BTreeMap<String, u64>,
}

impl Coverage {
    pub fn count(&mut self, name: impl AsRef<str>) {
        self.add(name, 1);
    }

    /// Called at every drive operation: a name that is known is not made into a string again.
    pub fn add(&mut self, name: impl AsRef<str>, times: u64) {
        match self.counts.get_mut(name.as_ref()) {
            Some(count) => *count += times,
            None => drop(self.counts.insert(name.as_ref().to_owned(), times)),
        }
    }

    pub fn of(&self, name: &str) -> u64 {
        self.counts.get(name).copied().unwrap_or(0)
    }

    pub fn merge(&mut self, other: &Coverage) {
        for (name, times) in &other.counts {
            self.add(name, *times);
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
