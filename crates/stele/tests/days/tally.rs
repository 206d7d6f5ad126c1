//! The totals of a campaign, for people and for programs.

use std::collections::BTreeMap;
use std::time::Duration;

#[derive(Clone, Default, Debug)]
pub struct Tally {
    pub days: u64,
    pub commands: u64,
    pub events: BTreeMap<String, u64>,
    /// Bytes compared of objects; below, of volumes.
    pub objects_compared: u64,
    pub bytes_compared: u64,
    pub bytes_stored: u64,
    pub volume_compared: u64,
    pub refusals: u64,
    pub scrubs: u64,
    /// Number of statuses with each kind of alarm.
    pub standing: BTreeMap<String, u64>,
    /// The longest time for which an alarm outlasted its cause.
    pub alarms_lasted: Duration,
}

impl Tally {
    pub fn count(&mut self, event: &str) {
        *self.events.entry(event.to_owned()).or_default() += 1;
    }

    /// The totals as a table.
    pub fn table(&self) -> String {
        let mut rows = vec![
            ("days".to_owned(), self.days.to_string()),
            ("commands".to_owned(), self.commands.to_string()),
            ("scrubs without damage left".to_owned(), self.scrubs.to_string()),
            ("objects compared".to_owned(), self.objects_compared.to_string()),
            ("bytes of objects stored".to_owned(), mib(self.bytes_stored)),
            ("bytes of objects compared".to_owned(), mib(self.bytes_compared)),
            ("bytes of volumes compared".to_owned(), mib(self.volume_compared)),
            ("deletes of locked versions refused".to_owned(), self.refusals.to_string()),
            ("longest alarm after its cause".to_owned(), format!("{:.1} s", self.alarms_lasted.as_secs_f64())),
        ];
        rows.extend(self.events.iter().map(|(name, count)| (format!("event: {name}"), count.to_string())));
        rows.extend(self.standing.iter().map(|(name, count)| (format!("seen: {name}"), count.to_string())));
        rows.iter().map(|(name, value)| format!("  {name:<44} {value:>12}\n")).collect()
    }

    /// The totals as one line.
    pub fn json(&self, seed: u64, seconds: u64) -> String {
        serde_json::json!({
            "campaign": "days", "seed": seed, "seconds": seconds, "days": self.days, "commands": self.commands,
            "events": self.events, "objects_compared": self.objects_compared, "stored_bytes": self.bytes_stored,
            "compared_bytes": self.bytes_compared, "volume_compared_bytes": self.volume_compared,
            "refusals": self.refusals, "scrubs": self.scrubs, "alarms_seen": self.standing,
            "alarm_lasted_seconds": self.alarms_lasted.as_secs_f64(), "failed": null,
        })
        .to_string()
    }
}

fn mib(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}
