//! fio's JSON with its histograms (`json+`), as far as there are counterparts.

use serde_json::{Map, Value, json};

use super::{Side, bytes, runs, seconds};
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

fn job(recorded: &Recorded, cell: &CellRecord, run: &RunRecord) -> Value {
    let (total, seconds, bytes) = (run.total(), seconds(run), bytes(run));
    let milliseconds = (seconds * 1e3).round() as u64;
    let read = side(Side { histogram: &total.read, bytes: bytes.0, seconds });
    let write = side(Side { histogram: &total.write, bytes: bytes.1, seconds });
    let trim = side(Side { histogram: &Histogram::default(), bytes: 0.0, seconds });
    let depth = run.outstanding.unwrap_or(0);
    let cpu: f64 = run.rounds.iter().map(|round| round.cpu_own).sum();
    json!({
        "jobname": cell.name,
        "groupid": cell.number,
        "job_start": recorded.head.begun.saturating_mul(1000),
        "error": 0,
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
    })
}

fn side(side: Side<'_>) -> Value {
    let rate = side.bytes / side.seconds;
    let none = spans(&Histogram::default());
    let mut latency = spans(side.histogram);
    if side.histogram.count() > 0 {
        let mut percentiles = Map::new();
        for percent in PERCENTILES {
            percentiles.insert(format!("{percent:.6}"), json!(side.histogram.percentile(percent / 100.0).0));
        }
        let bins: Map<String, Value> =
            side.histogram.spans().map(|(span, count)| (span.0.to_string(), json!(count))).collect();
        if let Value::Object(fields) = &mut latency {
            fields.insert("percentile".into(), percentiles.into());
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
    let deviation = (squares.sum::<f64>() / count.max(1) as f64).sqrt();
    json!({ "min": least, "max": histogram.longest().0, "mean": mean, "stddev": deviation, "N": count })
}
