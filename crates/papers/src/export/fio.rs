//! fio's JSON with its histograms (`json+`), as far as the laboratory has counterparts.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value, json};

use super::{Side, bytes, errors, runs, seconds};
use stele_lab::fio::{DirectionStats, JobResult};
use stele_lab::histogram::Histogram;
use stele_lab::record::{CellRecord, Recorded, RunRecord};

/// The percentiles that fio prints.
const PERCENTILES: [f64; 17] =
    [1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95, 99.99];

pub fn fio(recorded: &Recorded) -> String {
    let head = &recorded.head;
    let jobs: Vec<Value> = runs(recorded).map(|(cell, run)| job(recorded, cell, run)).collect();
    let all = json!({
        "fio version": head.program,
        "timestamp": head.begun,
        "timestamp_ms": head.begun.saturating_mul(1000),
        "global options": { "filename": head.target },
        "jobs": jobs,
    });
    let mut text = serde_json::to_string_pretty(&all).unwrap_or_default();
    text.push('\n');
    text
}

/// Results of fio jobs in fio's format (`--output-format=json`). Jobs with `group_reporting` count
/// as one within their group. Queue depths and disk utilisation are unknown here, and left out.
pub fn ran(all: &[JobResult]) -> Value {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let begun = |one: &&JobResult| one.begun.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
    let mut jobs: Vec<Value> = Vec::new();
    let mut rest = all;
    while let Some(first) = rest.first() {
        let with = |one: &&JobResult| one.with_group && one.group == first.group;
        let count = if first.with_group { rest.iter().take_while(with).count() } else { 1 };
        let (group, others) = rest.split_at(count);
        jobs.push(reported(first, group, begun(&first)));
        rest = others;
    }
    json!({
        "fio version": format!("stele-{}", env!("CARGO_PKG_VERSION")),
        "timestamp": since.as_secs(),
        "timestamp_ms": since.as_millis() as u64,
        "global options": {},
        "jobs": jobs,
    })
}

/// One job, or all jobs of a group together.
fn reported(first: &JobResult, group: &[JobResult], begun: u64) -> Value {
    let longest = group.iter().map(|one| one.tally.span).max().unwrap_or(0);
    let used = group.iter().fold(stele_lab::fio::Used::default(), |sum, one| sum.and(one.tally.used));
    let spans: f64 = group.iter().map(|one| one.tally.span as f64 / 1e9).sum();
    let syncs = group.iter().fold(Histogram::default(), |mut sum, one| {
        sum.merge(&one.tally.syncs);
        sum
    });
    let way = |number: usize| {
        let ways: Vec<(&DirectionStats, u64)> =
            group.iter().map(|one| (&one.tally.ways[number], one.tally.span)).collect();
        way_of(&ways)
    };
    let options: Map<String, Value> =
        first.options.iter().map(|(key, value)| (key.clone(), Value::from(value.as_str()))).collect();
    let whole = group.iter().flat_map(|one| &one.tally.ways).fold(Histogram::default(), |mut sum, way| {
        sum.merge(&way.whole);
        sum
    });
    let cpu = |seconds: f64| seconds / spans.max(1e-9) * 100.0;
    let error = group.iter().find_map(|one| one.tally.failed.as_deref()).map_or(0, error_number);
    let mut said = json!({
        "jobname": first.name,
        "groupid": first.group,
        "job_start": begun,
        "error": error,
        "eta": 0,
        "elapsed": longest.div_ceil(1_000_000_000),
        "job options": options,
        "read": way(0),
        "write": way(1),
        "trim": way_of(&[]),
        "sync": { "total_ios": syncs.count(), "lat_ns": with_percentiles(&syncs) },
        "job_runtime": longest / 1_000_000,
        "usr_cpu": cpu(used.user),
        "sys_cpu": cpu(used.system),
        "ctx": used.switches,
        "majf": used.major_faults,
        "minf": used.minor_faults,
    });
    const BELOW: [u64; 10] = [2, 4, 10, 20, 50, 100, 250, 500, 750, 1000];
    if let Value::Object(fields) = &mut said {
        for (name, unit, from) in [("ns", 1, 0), ("us", 1_000, 1_000), ("ms", 1_000_000, 1_000_000)] {
            fields.insert(format!("latency_{name}"), shares(&whole, unit, from, &BELOW).into());
        }
        if let Some(why) = group.iter().find_map(|one| one.tally.failed.as_ref()) {
            fields.insert("error text".into(), why.as_str().into());
        }
    }
    said
}

/// The number of the system's error that a text names, as `(os error 28)`; otherwise EIO.
fn error_number(why: &str) -> u32 {
    let named = why.split("(os error ").nth(1).and_then(|rest| rest.split(')').next()?.parse().ok());
    named.filter(|number| *number > 0).unwrap_or(5)
}

/// Percent of the accesses between each of these times and the previous one.
fn shares(whole: &Histogram, unit: u64, from: u64, below: &[u64]) -> Map<String, Value> {
    let mut shares = Map::new();
    let share = |from: u64, to: u64| {
        let within = whole.spans().filter(|(span, _)| span.0 >= from && span.0 < to).map(|(_, count)| count);
        within.sum::<u64>() as f64 * 100.0 / whole.count().max(1) as f64
    };
    let mut last = from;
    for bound in below {
        shares.insert(bound.to_string(), share(last, bound * unit).into());
        last = bound * unit;
    }
    if unit == 1_000_000 {
        shares.insert("2000".into(), share(last, 2 * last).into());
        shares.insert(">=2000".into(), share(2 * last, u64::MAX).into());
    }
    shares
}

/// One direction of several copies, with the nanoseconds of each.
fn way_of(ways: &[(&DirectionStats, u64)]) -> Value {
    let merged = |of: fn(&DirectionStats) -> &Histogram| {
        ways.iter().fold(Histogram::default(), |mut sum, (way, _)| {
            sum.merge(of(way));
            sum
        })
    };
    let whole = merged(|way| &way.whole);
    let bytes: u64 = ways.iter().map(|(way, _)| way.bytes).sum();
    let used = ways.iter().filter(|(way, _)| way.whole.count() > 0);
    let milliseconds = used.map(|(_, span)| (span / 1_000_000).max(1)).max().unwrap_or(0);
    let seconds = milliseconds.max(1) as f64 / 1e3;
    let mut said = json!({
        "io_bytes": bytes,
        "io_kbytes": bytes / 1024,
        "bw_bytes": (bytes as f64 / seconds) as u64,
        "bw": (bytes as f64 / seconds / 1024.0) as u64,
        "iops": whole.count() as f64 / seconds,
        "runtime": milliseconds,
        "total_ios": whole.count(),
        "short_ios": 0,
        "drop_ios": 0,
        "slat_ns": spans(&merged(|way| &way.submission)),
        "clat_ns": with_percentiles(&merged(|way| &way.completion)),
        "lat_ns": spans(&whole),
    });
    let samples = |of: fn(&(f64, f64)) -> f64| -> Vec<Vec<f64>> {
        ways.iter().map(|(way, _)| way.samples.iter().map(of).collect()).collect()
    };
    if let Value::Object(fields) = &mut said {
        sampled("bw", "bw_dev", &samples(|sample| sample.0 / 1024.0), fields);
        sampled("iops", "iops_stddev", &samples(|sample| sample.1), fields);
    }
    said
}

/// From the samples of each copy. Copies run at once: as in fio, those of a group are added up.
fn sampled(name: &str, deviation: &str, copies: &[Vec<f64>], fields: &mut Map<String, Value>) {
    let (mut mean, mut squares, mut least, mut most, mut count) = (0.0, 0.0, 0.0, 0.0, 0);
    for samples in copies.iter().filter(|samples| !samples.is_empty()) {
        let own = samples.iter().sum::<f64>() / samples.len() as f64;
        mean += own;
        squares += samples.iter().map(|sample| (sample - own).powi(2)).sum::<f64>();
        least += samples.iter().copied().reduce(f64::min).unwrap_or(0.0);
        most += samples.iter().copied().fold(0.0, f64::max);
        count += samples.len();
    }
    fields.insert(format!("{name}_min"), json!(least as u64));
    fields.insert(format!("{name}_max"), json!(most as u64));
    fields.insert(format!("{name}_mean"), json!(mean));
    fields.insert(deviation.into(), json!((squares / count.max(1) as f64).sqrt()));
    fields.insert(format!("{name}_samples"), json!(count));
}

fn with_percentiles(histogram: &Histogram) -> Value {
    let mut said = spans(histogram);
    if let (Value::Object(fields), true) = (&mut said, histogram.count() > 0) {
        fields.insert("percentile".into(), percentiles(histogram).into());
    }
    said
}

fn percentiles(histogram: &Histogram) -> Map<String, Value> {
    let one = |percent: f64| (format!("{percent:.6}"), json!(histogram.percentile(percent / 100.0).0));
    PERCENTILES.into_iter().map(one).collect()
}

fn job(recorded: &Recorded, cell: &CellRecord, run: &RunRecord) -> Value {
    let (total, seconds, bytes) = (run.total(), seconds(run), bytes(run));
    let milliseconds = (seconds * 1e3).round() as u64;
    let read = side(Side { histogram: &total.read, bytes: bytes.0, seconds });
    let write = side(Side { histogram: &total.write, bytes: bytes.1, seconds });
    let trim = side(Side { histogram: &Histogram::default(), bytes: 0.0, seconds });
    let depth = run.outstanding.unwrap_or(0);
    let cpu: f64 = run.rounds.iter().map(|round| round.cpu_own).sum();
    let found = errors(cell);
    // EILSEQ for wrong data, as fio says it of what its own checks find.
    let error = match &found {
        None => 0,
        Some(_) if cell.is_damaged() => 84,
        Some((_, why)) => error_number(why),
    };
    let mut said = json!({
        "jobname": cell.name,
        "groupid": cell.number,
        "job_start": recorded.head.begun.saturating_mul(1000),
        "error": error,
        "eta": 0,
        "elapsed": seconds.round() as u64,
        "job options": {
            "name": cell.name, "iodepth": depth.to_string(), "numjobs": run.workers.to_string(),
            "runtime": format!("{milliseconds}ms"), "description": cell.workload,
        },
        "read": read,
        "write": write,
        "trim": trim,
        "sync": { "total_ios": 0, "lat_ns": { "min": 0, "max": 0, "mean": 0.0, "stddev": 0.0, "N": 0 } },
        "job_runtime": milliseconds,
        "usr_cpu": cpu / seconds * 100.0,
        "sys_cpu": 0.0,
        "ctx": 0,
        "majf": 0,
        "minf": 0,
        "latency_depth": depth,
        "latency_target": 0,
        "latency_percentile": 100.0,
        "latency_window": 0,
    });
    if let (Value::Object(fields), Some((_, why))) = (&mut said, found) {
        fields.insert("error text".into(), why.into());
    }
    said
}

fn side(side: Side<'_>) -> Value {
    let rate = side.bytes / side.seconds;
    let none = spans(&Histogram::default());
    let mut latency = spans(side.histogram);
    if side.histogram.count() > 0 {
        let bins: Map<String, Value> =
            side.histogram.spans().map(|(span, count)| (span.0.to_string(), json!(count))).collect();
        if let Value::Object(fields) = &mut latency {
            fields.insert("percentile".into(), percentiles(side.histogram).into());
            fields.insert("bins".into(), bins.into());
        }
    }
    json!({
        "io_bytes": side.bytes.round() as u64,
        "io_kbytes": (side.bytes / 1024.0).round() as u64,
        "bw_bytes": rate.round() as u64,
        "bw": (rate / 1024.0).round() as u64,
        "iops": side.rate(),
        "runtime": (side.seconds * 1e3).round() as u64,
        "total_ios": side.histogram.count(),
        "short_ios": 0,
        "drop_ios": 0,
        "slat_ns": none,
        "clat_ns": latency,
        "lat_ns": latency,
    })
}

fn spans(histogram: &Histogram) -> Value {
    let count = histogram.count();
    let mean = histogram.sum() as f64 / count.max(1) as f64;
    let least = histogram.spans().next().map_or(0, |(span, _)| span.0);
    let squares = histogram.spans().map(|(span, count)| (span.0 as f64 - mean).powi(2) * count as f64);
    // The sum of nothing is -0.
    let deviation = (squares.fold(0.0, |sum, square| sum + square) / count.max(1) as f64).sqrt();
    json!({ "min": least, "max": histogram.longest().0, "mean": mean, "stddev": deviation, "N": count })
}
