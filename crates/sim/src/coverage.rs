//! Counts of events, which show that a passing run has exercised the pool.

use std::collections::BTreeMap;
use std::fmt;

use stele_media::faulty::FaultKind;

/// Runs of fewer seeds may miss an event.
const FEW: u64 = 100;

/// The events that must happen besides every declared fault, with their number in 1,000 seeds.
const REQUIRED: [(&str, u64); 32] = [
    ("seeds Crashes", 100),
    ("seeds Tolerated", 100),
    ("seeds Beyond", 50),
    ("crash by kill", 100),
    ("runs of cuts", 200),
    ("traps sprung at label", 100),
    ("traps sprung at anchor", 100),
    ("power cuts that spared whole drives", 200),
    ("openings within a run of cuts", 200),
    ("crashes during recovery", 200),
    ("recoveries", 1_000),
    ("clean closes", 100),
    ("changes of the configuration endangered", 50),
    ("additions that failed", 10),
    ("drives added", 100),
    ("drives added by a command cut off", 20),
    ("drives removed", 100),
    ("drives to be removed, while others are hurt", 20),
    ("requests failed by a drive that was pulled", 20),
    ("pulled drives noticed", 20),
    ("fault MemoryFlip", 100),
    ("snapshots taken", 100),
    ("clones made", 50),
    ("rollbacks", 50),
    ("volumes grown", 20),
    ("volumes made smaller", 10),
    ("volumes deleted", 50),
    ("healings", 200),
    ("first scrubs without hidden damage", 100),
    ("proofs before any scrub", 100),
    ("proofs after a scrub", 100),
    ("proofs without an enclosure", 20),
];

/// The number of times that every declared fault must happen in 1,000 seeds.
const EVERY_FAULT: u64 = 10;

/// Counts by name.
#[derive(Clone, Default, Debug)]
pub struct Coverage {
    counts: BTreeMap<String, u64>,
}

impl Coverage {
    pub fn count(&mut self, name: impl AsRef<str>) {
        self.add(name, 1);
    }

    /// Called at every drive operation: a known name is not copied into a string again.
    pub fn add(&mut self, name: impl AsRef<str>, times: u64) {
        match self.counts.get_mut(name.as_ref()) {
            Some(count) => *count += times,
            None => drop(self.counts.insert(name.as_ref().to_owned(), times)),
        }
    }

    pub fn of(&self, name: &str) -> u64 {
        self.counts.get(name).copied().unwrap_or(0)
    }

    /// The events that this many seeds should have caused, and did not: a passing run without them
    /// proves nothing.
    pub fn lacks(&self, seeds: u64) -> Vec<String> {
        if seeds < FEW {
            return Vec::new();
        }
        let faults = FaultKind::BY_OPERATION.iter().chain(&FaultKind::BY_DRIVE);
        let faults = faults.map(|kind| (format!("fault {kind:?}"), EVERY_FAULT));
        let others = REQUIRED.iter().map(|(name, times)| ((*name).to_owned(), *times));
        let short = |(name, times): (String, u64)| {
            let least = (times * seeds / 1_000).max(1);
            let had = self.of(&name);
            (had < least)
                .then(|| format!("'{name}' happened {had} times in {seeds} seeds; at least {least} are wanted"))
        };
        faults.chain(others).filter_map(short).collect()
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

#[cfg(test)]
mod tests;
