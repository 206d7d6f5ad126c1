//! `/metrics` for Prometheus: the counters of the frontend, and a snapshot of the store.
//!
//! Counting a request takes no lock: operations and statuses are indices into a table of atomics.
//! `SEMANTICS/object.md` documents the names; a test compares the two.

use crate::operation::Operation;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Statuses with a series of their own; every other status counts as the first of its class.
const STATUSES: [u16; 21] =
    [200, 204, 206, 304, 400, 403, 404, 405, 409, 411, 412, 416, 429, 500, 501, 503, 507, 301, 303, 100, 499];

/// Upper bounds of the latency histogram, in microseconds.
const BUCKETS: [u64; 16] = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000,
    10_000_000, 60_000_000,
];

#[derive(Default)]
struct PerOperation {
    statuses: [AtomicU64; STATUSES.len()],
    latencies: [AtomicU64; BUCKETS.len() + 1],
    latency_sum_us: AtomicU64,
}

/// Requests of all operations together, since the start.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Totals {
    pub requests: u64,
    /// Answered with a status of 500 or more.
    pub failed: u64,
    /// Sum of the times from request head to answer head, in microseconds.
    pub took_us: u64,
    pub received: u64,
    pub sent: u64,
    /// Connections open now.
    pub connections: u64,
    pub under_way: u64,
}

/// The counters of the frontend.
pub struct Metrics {
    operations: Vec<PerOperation>,
    received: AtomicU64,
    sent: AtomicU64,
    connections: AtomicU64,
    connections_refused: AtomicU64,
    requests_now: AtomicU64,
    requests_shed: AtomicU64,
    access_lines_dropped: AtomicU64,
    responses_broken: AtomicU64,
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics {
            operations: Operation::ALL.iter().map(|_| PerOperation::default()).collect(),
            received: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            connections: AtomicU64::new(0),
            connections_refused: AtomicU64::new(0),
            requests_now: AtomicU64::new(0),
            requests_shed: AtomicU64::new(0),
            access_lines_dropped: AtomicU64::new(0),
            responses_broken: AtomicU64::new(0),
        }
    }
}

/// A request under way. Its end is counted also where the client goes away, and the answer with it.
pub struct UnderWay<'m>(&'m Metrics);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        step(&self.0.requests_now, false);
    }
}

impl Metrics {
    /// Counts an answered request.
    pub fn answered(&self, operation: Operation, status: u16, took: Duration) {
        let Some(counts) = self.operations.get(operation.index()) else {
            return;
        };
        let class = status / 100 * 100;
        let place = STATUSES
            .iter()
            .position(|known| *known == status)
            .or_else(|| STATUSES.iter().position(|known| *known == class));
        if let Some(count) = place.and_then(|place| counts.statuses.get(place)) {
            count.fetch_add(1, Relaxed);
        }
        let micros = took.as_micros() as u64;
        let bucket = BUCKETS.partition_point(|bound| *bound < micros);
        if let Some(count) = counts.latencies.get(bucket) {
            count.fetch_add(1, Relaxed);
        }
        counts.latency_sum_us.fetch_add(micros, Relaxed);
    }

    /// Counts payload bytes received.
    pub fn received(&self, bytes: u64) {
        self.received.fetch_add(bytes, Relaxed);
    }

    /// Counts payload bytes sent.
    pub fn sent(&self, bytes: u64) {
        self.sent.fetch_add(bytes, Relaxed);
    }

    /// Counts a connection that opened (`true`) or closed.
    pub fn connection(&self, came: bool) {
        step(&self.connections, came);
    }

    /// Counts a connection refused at the limit.
    pub fn connection_refused(&self) {
        self.connections_refused.fetch_add(1, Relaxed);
    }

    /// Counts a request as one under way, until what this returns is dropped.
    pub fn request(&self) -> UnderWay<'_> {
        step(&self.requests_now, true);
        UnderWay(self)
    }

    /// Counts a request that got 503 because too many were being served.
    pub fn request_shed(&self) {
        self.requests_shed.fetch_add(1, Relaxed);
    }

    /// Counts lines of access logs that were dropped.
    pub fn access_lines_dropped(&self, lines: u64) {
        self.access_lines_dropped.fetch_add(lines, Relaxed);
    }

    /// Counts a response that was cut off after its head was sent.
    pub fn response_broken(&self) {
        self.responses_broken.fetch_add(1, Relaxed);
    }

    /// The sums over all operations.
    pub fn totals(&self) -> Totals {
        let mut totals = Totals {
            received: self.received.load(Relaxed),
            sent: self.sent.load(Relaxed),
            connections: self.connections.load(Relaxed),
            under_way: self.requests_now.load(Relaxed),
            ..Totals::default()
        };
        for counts in &self.operations {
            totals.requests += counts.latencies.iter().map(|count| count.load(Relaxed)).sum::<u64>();
            totals.took_us += counts.latency_sum_us.load(Relaxed);
            let failed = STATUSES.iter().zip(&counts.statuses).filter(|(status, _)| **status >= 500);
            totals.failed += failed.map(|(_, count)| count.load(Relaxed)).sum::<u64>();
        }
        totals
    }

    /// The text for a scrape.
    pub fn render(&self, snapshot: Option<&Snapshot>) -> String {
        let mut text = String::with_capacity(16 * 1024);
        self.render_requests(&mut text);
        self.render_latencies(&mut text);
        let mut single = |name: &str, kind: &str, help: &str, value: &AtomicU64| {
            head(&mut text, name, kind, help);
            let _ = writeln!(text, "{name} {}", value.load(Relaxed));
        };
        single("stele_s3_received_bytes_total", "counter", "Payload bytes taken in.", &self.received);
        single("stele_s3_sent_bytes_total", "counter", "Payload bytes given out.", &self.sent);
        single("stele_s3_connections", "gauge", "Open connections.", &self.connections);
        single(
            "stele_s3_connections_refused_total",
            "counter",
            "Connections turned away at the connection limit.",
            &self.connections_refused,
        );
        single("stele_s3_requests_in_flight", "gauge", "Requests being served.", &self.requests_now);
        single(
            "stele_s3_requests_shed_total",
            "counter",
            "Requests answered 503 SlowDown at the limit of concurrent requests.",
            &self.requests_shed,
        );
        single(
            "stele_s3_access_lines_dropped_total",
            "counter",
            "Lines of access logs that were dropped, at the limit of memory or because they could not be stored.",
            &self.access_lines_dropped,
        );
        single(
            "stele_s3_responses_broken_total",
            "counter",
            "Responses cut off after their head was sent, because a read failed.",
            &self.responses_broken,
        );
        if let Some(snapshot) = snapshot {
            snapshot.render(&mut text);
        }
        text
    }

    fn render_requests(&self, text: &mut String) {
        let name = "stele_s3_requests_total";
        head(text, name, "counter", "Requests answered, by operation and HTTP status.");
        for (operation, counts) in Operation::ALL.iter().zip(&self.operations) {
            for (status, count) in STATUSES.iter().zip(&counts.statuses) {
                let count = count.load(Relaxed);
                if count > 0 {
                    let operation = operation.name();
                    let _ = writeln!(text, "{name}{{operation=\"{operation}\",status=\"{status}\"}} {count}");
                }
            }
        }
    }

    fn render_latencies(&self, text: &mut String) {
        let name = "stele_s3_request_seconds";
        head(text, name, "histogram", "From the request's head to the response's head, by operation.");
        for (operation, counts) in Operation::ALL.iter().zip(&self.operations) {
            let loads: Vec<u64> = counts.latencies.iter().map(|count| count.load(Relaxed)).collect();
            let total: u64 = loads.iter().sum();
            if total == 0 {
                continue;
            }
            let operation = operation.name();
            let mut cumulative = 0;
            for (bound, count) in BUCKETS.iter().zip(&loads) {
                cumulative += count;
                let bound = *bound as f64 / 1e6;
                let _ = writeln!(text, "{name}_bucket{{operation=\"{operation}\",le=\"{bound}\"}} {cumulative}");
            }
            let sum = counts.latency_sum_us.load(Relaxed) as f64 / 1e6;
            let _ = writeln!(text, "{name}_bucket{{operation=\"{operation}\",le=\"+Inf\"}} {total}");
            let _ = writeln!(text, "{name}_sum{{operation=\"{operation}\"}} {sum}");
            let _ = writeln!(text, "{name}_count{{operation=\"{operation}\"}} {total}");
        }
    }
}

fn step(gauge: &AtomicU64, up: bool) {
    if up {
        gauge.fetch_add(1, Relaxed);
    } else {
        gauge.fetch_sub(1, Relaxed);
    }
}

fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

/// The state of the store, as `/health` and `/metrics` report it.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Health {
    /// No known problem.
    #[default]
    Healthy,
    /// All data is served; redundancy is reduced, or a problem needs attention.
    Degraded,
    /// Reads only.
    ReadOnly,
    /// Some stored data is unreadable; the rest can be read.
    DataUnreadable,
    /// Requests cannot be served.
    Down,
}

impl Health {
    /// The number in the metrics: older variants keep their numbers.
    fn number(self) -> u64 {
        match self {
            Health::Healthy => 0,
            Health::Degraded => 1,
            Health::ReadOnly => 2,
            Health::Down => 3,
            Health::DataUnreadable => 4,
        }
    }

    /// The word in `/health`.
    pub fn word(self) -> &'static str {
        match self {
            Health::Healthy => "healthy",
            Health::Degraded => "degraded",
            Health::DataUnreadable => "data-unreadable",
            Health::ReadOnly => "read-only",
            Health::Down => "down",
        }
    }
}

/// A drive, for the metrics.
#[derive(Clone, Default, Debug)]
pub struct DriveSample {
    /// The drive's path or id.
    pub drive: String,
    /// The drive's enclosure.
    pub enclosure: String,
    /// The drive's state in one word, as `stele pool status` shows it.
    pub state: String,
    /// Whether the drive serves requests.
    pub online: bool,
    /// The drive's size in bytes.
    pub size: u64,
    /// The drive's allocated bytes.
    pub used: u64,
    /// Failed reads.
    pub read_errors: u64,
    /// Failed writes.
    pub write_errors: u64,
    /// Blocks whose digest did not match.
    pub digest_errors: u64,
}

/// A target of notifications, for the metrics.
#[derive(Clone, Default, Debug)]
pub struct TargetSample {
    /// The target's name in the configuration.
    pub target: String,
    /// Events that wait.
    pub pending: u64,
    /// Events dropped at the limit.
    pub dropped: u64,
}

/// A problem that an operator should know.
#[derive(Clone, Default, Debug)]
pub struct Alarm {
    /// A short stable word, as OPERATIONS.md lists it.
    pub name: String,
    /// The problem and the next step.
    pub message: String,
}

/// The state of the store, supplied by `stele` on request.
#[derive(Clone, Default, Debug)]
pub struct Snapshot {
    /// Overall state.
    pub health: Health,
    /// Raw bytes of all drives.
    pub size: u64,
    /// Raw bytes allocated.
    pub used: u64,
    /// Raw bytes that new data can still take.
    pub free: u64,
    /// The drives.
    pub drives: Vec<DriveSample>,
    /// A rebuild in progress: bytes done, bytes in all, seconds left if known.
    pub rebuild: Option<(u64, u64, Option<u64>)>,
    /// Bytes scrubbed since the pool was opened.
    pub scrubbed: u64,
    /// Strips repaired since the pool was opened.
    pub repaired: u64,
    /// Object versions stored, delete markers included.
    pub versions: u64,
    /// Bytes of object content stored.
    pub stored: u64,
    /// Bytes of parts whose uploads are neither completed nor aborted.
    pub unfinished: u64,
    /// The targets of notifications.
    pub targets: Vec<TargetSample>,
    /// Problems that need attention.
    pub alarms: Vec<Alarm>,
    /// Alarms since the server's start, by name, including ended and momentary ones.
    pub alarms_came: Vec<(String, u64)>,
    /// Further gauges by full name, with their help, for parts that this crate does not know.
    pub more: Vec<(String, String, f64)>,
}

impl Snapshot {
    fn render(&self, text: &mut String) {
        let help = "0 healthy, 1 degraded, 2 read-only, 3 down, 4 data unreadable.";
        head(text, "stele_pool_health", "gauge", help);
        let _ = writeln!(text, "stele_pool_health {}", self.health.number());
        // Of a pool that gives no status nothing else is known. A zero would look like a counter
        // that began anew, and like a pool without room.
        if self.health != Health::Down {
            self.render_pool(text);
        }
        head(text, "stele_alarm", "gauge", "1 while the alarm named stands.");
        for alarm in &self.alarms {
            let _ = writeln!(text, "stele_alarm{{alarm=\"{}\"}} 1", escaped(&alarm.name));
        }
        head(text, "stele_alarms_total", "counter", "Alarms that came since the server started.");
        for (alarm, count) in &self.alarms_came {
            let _ = writeln!(text, "stele_alarms_total{{alarm=\"{}\"}} {count}", escaped(alarm));
        }
        for (name, help, value) in &self.more {
            head(text, name, "gauge", help);
            let _ = writeln!(text, "{name} {value}");
        }
    }

    /// What the pool's status says.
    fn render_pool(&self, text: &mut String) {
        let mut single = |name: &str, kind: &str, help: &str, value: u64| {
            head(text, name, kind, help);
            let _ = writeln!(text, "{name} {value}");
        };
        single("stele_pool_size_bytes", "gauge", "Raw bytes of all drives.", self.size);
        single("stele_pool_used_bytes", "gauge", "Raw bytes allocated.", self.used);
        single("stele_pool_free_bytes", "gauge", "Raw bytes that new data can take.", self.free);
        single("stele_scrubbed_bytes_total", "counter", "Bytes scrubbed since open.", self.scrubbed);
        single("stele_repaired_total", "counter", "Strips repaired, also by earlier servers.", self.repaired);
        single("stele_versions", "gauge", "Object versions stored, markers included.", self.versions);
        single("stele_stored_bytes", "gauge", "Bytes of object content stored.", self.stored);
        single("stele_unfinished_bytes", "gauge", "Bytes of parts of unfinished uploads.", self.unfinished);
        let (done, all, left) = self.rebuild.unwrap_or((0, 0, None));
        single("stele_rebuild_total_bytes", "gauge", "Bytes the running rebuild has to move.", all);
        single("stele_rebuild_done_bytes", "gauge", "Bytes it has moved.", done);
        single(
            "stele_rebuild_seconds_left",
            "gauge",
            "Seconds the running rebuild is expected to take; 0 without one.",
            left.unwrap_or(0),
        );
        self.render_drives(text);
        head(text, "stele_notifications_pending", "gauge", "Events that wait for a target.");
        for TargetSample { target, pending, .. } in &self.targets {
            let _ = writeln!(text, "stele_notifications_pending{{target=\"{}\"}} {pending}", escaped(target));
        }
        let help = "Events of a target that were dropped at the limit, since the store was made or rebuilt.";
        head(text, "stele_notifications_dropped_total", "counter", help);
        for TargetSample { target, dropped, .. } in &self.targets {
            let _ = writeln!(text, "stele_notifications_dropped_total{{target=\"{}\"}} {dropped}", escaped(target));
        }
    }

    fn render_drives(&self, text: &mut String) {
        type Field = fn(&DriveSample) -> u64;
        let series: [(&str, &str, &str, Field); 6] = [
            ("stele_drive_online", "gauge", "1 if the drive serves.", |d| d.online.into()),
            ("stele_drive_size_bytes", "gauge", "Size of the drive.", |d| d.size),
            ("stele_drive_used_bytes", "gauge", "Allocated bytes of the drive.", |d| d.used),
            ("stele_drive_read_errors_total", "counter", "Failed reads of this drive.", |d| d.read_errors),
            ("stele_drive_write_errors_total", "counter", "Failed writes of this drive.", |d| d.write_errors),
            ("stele_drive_digest_errors_total", "counter", "Digest mismatches of this drive.", |d| d.digest_errors),
        ];
        for (name, kind, help, field) in series {
            head(text, name, kind, help);
            for drive in &self.drives {
                let (path, enclosure) = (escaped(&drive.drive), escaped(&drive.enclosure));
                let _ = writeln!(text, "{name}{{drive=\"{path}\",enclosure=\"{enclosure}\"}} {}", field(drive));
            }
        }
        // A separate series for the state: a label that changes begins another series, and a
        // counter must stay in its own.
        head(text, "stele_drive_state", "gauge", "1 for the state that the drive is in.");
        for drive in &self.drives {
            let _ = writeln!(
                text,
                "stele_drive_state{{drive=\"{}\",enclosure=\"{}\",state=\"{}\"}} 1",
                escaped(&drive.drive),
                escaped(&drive.enclosure),
                escaped(&drive.state)
            );
        }
    }

    /// The body of `/health`: one JSON object.
    pub fn health_json(&self) -> String {
        let alarms: Vec<String> = self
            .alarms
            .iter()
            .map(|alarm| {
                format!("{{\"alarm\":\"{}\",\"message\":\"{}\"}}", escaped(&alarm.name), escaped(&alarm.message))
            })
            .collect();
        let online = self.drives.iter().filter(|drive| drive.online).count();
        format!(
            "{{\"health\":\"{}\",\"drives\":{},\"drives_online\":{online},\"rebuilding\":{},\"alarms\":[{}]}}\n",
            self.health.word(),
            self.drives.len(),
            self.rebuild.is_some(),
            alarms.join(",")
        )
    }
}

// Label values of the exposition format and JSON strings share these escapes. Both know the line
// break. Other characters that must not reach a terminal are spelled out first.
fn escaped(text: &str) -> String {
    let lines = text.split('\n').map(|line| stele_ground::shown(line).replace('\\', "\\\\").replace('"', "\\\""));
    lines.collect::<Vec<_>>().join("\\n")
}

#[cfg(test)]
mod tests;
