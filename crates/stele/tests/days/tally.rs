//! The totals of a campaign, for people and for programs.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

#[derive(Clone, Default, Debug)]
pub struct Tally {
    pub days: u64,
    pub commands: u64,
    pub events: BTreeMap<String, u64>,
    pub objects_compared: u64,
    /// Bytes compared of objects; below, bytes stored in objects, and bytes compared of volumes.
    pub bytes_compared: u64,
    pub bytes_stored: u64,
    pub volume_compared: u64,
    /// Requests under way while the events came.
    pub requests_beside: u64,
    pub refusals: u64,
    pub scrubs: u64,
    /// Alarms that an event made certain; all of them were seen.
    pub alarms_demanded: u64,
    /// Alarms by kind. The same alarm counts once a day.
    pub alarms_seen: BTreeMap<String, u64>,
    /// The longest time until a demanded alarm, and the longest time for which an alarm outlasted
    /// its cause.
    pub alarms_late: Duration,
    pub alarms_lasted: Duration,
    pub failed: Option<Failed>,
}

/// The day that failed.
#[derive(Clone, Debug)]
pub struct Failed {
    pub day: u64,
    pub what: String,
}

impl Tally {
    pub fn count(&mut self, event: &str) {
        *self.events.entry(event.to_owned()).or_default() += 1;
    }

    /// The totals as a table.
    pub fn table(&self) -> String {
        let seconds = |time: Duration| format!("{:.1} s", time.as_secs_f64());
        let mut rows = vec![
            ("days without a surprise".to_owned(), self.days.to_string()),
            ("days that failed".to_owned(), u8::from(self.failed.is_some()).to_string()),
            ("commands".to_owned(), self.commands.to_string()),
            ("scrubs without damage left".to_owned(), self.scrubs.to_string()),
            ("objects compared".to_owned(), self.objects_compared.to_string()),
            ("S3 requests while events came".to_owned(), self.requests_beside.to_string()),
            ("bytes of objects stored".to_owned(), mib(self.bytes_stored)),
            ("bytes of objects compared".to_owned(), mib(self.bytes_compared)),
            ("bytes of volumes compared".to_owned(), mib(self.volume_compared)),
            ("deletes of locked versions refused".to_owned(), self.refusals.to_string()),
            ("alarms that had to come, and came".to_owned(), self.alarms_demanded.to_string()),
            ("longest time until one came".to_owned(), seconds(self.alarms_late)),
            ("longest alarm after its cause".to_owned(), seconds(self.alarms_lasted)),
        ];
        rows.extend(self.events.iter().map(|(name, count)| (format!("event: {name}"), count.to_string())));
        rows.extend(self.alarms_seen.iter().map(|(name, count)| (format!("alarm: {name}"), count.to_string())));
        rows.iter().map(|(name, value)| format!("  {name:<44} {value:>12}\n")).collect()
    }

    /// The totals as one line.
    pub fn json(&self, seed: u64, seconds: u64) -> String {
        let mut line = self.figures();
        line["campaign"] = json!("days");
        line["seed"] = json!(seed);
        line["seconds"] = json!(seconds);
        line["days"] = json!(self.days);
        line["failed"] = self.failed.as_ref().map_or(Value::Null, |failed| {
            json!({ "day": failed.day, "what": failed.what, "repeat": format!("./x soak --days {} {seed}", failed.day) })
        });
        line.to_string()
    }

    /// One line for a day, from the totals of the evening before.
    pub fn day(&self, before: &Tally, day: u64, seconds: u64, story: &[String]) -> String {
        let less = |now: &BTreeMap<String, u64>, then: &BTreeMap<String, u64>| -> BTreeMap<String, u64> {
            let past = |name: &String| then.get(name).copied().unwrap_or(0);
            now.iter().map(|(name, count)| (name.clone(), count - past(name))).filter(|(_, count)| *count > 0).collect()
        };
        let today = Tally {
            commands: self.commands - before.commands,
            events: less(&self.events, &before.events),
            objects_compared: self.objects_compared - before.objects_compared,
            bytes_compared: self.bytes_compared - before.bytes_compared,
            bytes_stored: self.bytes_stored - before.bytes_stored,
            volume_compared: self.volume_compared - before.volume_compared,
            requests_beside: self.requests_beside - before.requests_beside,
            refusals: self.refusals - before.refusals,
            scrubs: self.scrubs - before.scrubs,
            alarms_demanded: self.alarms_demanded - before.alarms_demanded,
            alarms_seen: less(&self.alarms_seen, &before.alarms_seen),
            ..self.clone()
        };
        let mut line = today.figures();
        line["day"] = json!(day);
        line["seconds"] = json!(seconds);
        line["story"] = json!(story);
        line.to_string()
    }

    fn figures(&self) -> Value {
        json!({
            "commands": self.commands, "events": self.events, "objects_compared": self.objects_compared,
            "stored_bytes": self.bytes_stored, "compared_bytes": self.bytes_compared,
            "volume_compared_bytes": self.volume_compared, "requests_beside": self.requests_beside,
            "refusals": self.refusals, "scrubs": self.scrubs, "alarms_demanded": self.alarms_demanded,
            "alarms_seen": self.alarms_seen, "alarm_late_seconds": self.alarms_late.as_secs_f64(),
            "alarm_lasted_seconds": self.alarms_lasted.as_secs_f64(),
        })
    }
}

fn mib(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}
