//! Charts 1 to 12, and bars beside the tables.

use super::found::{Found, Key, rate, throughput};
use crate::published::{Printed, ds4500_tables};
use crate::recipe::ds4500::{STREAM_DRIVES, STREAMS, STROKE};
use stele_ground::Bytes;
use stele_lab::raid::Level;
use stele_lab::record::CellRecord;
use stele_lab::report::chart::{Axis, Bars, Chart, Series};

/// One printed comparison of a chart: drives, unit, and the stated values of the DS4500 and the
/// DS4400.
pub struct Stated {
    pub ds4500: Option<f64>,
    pub ds4400: Option<f64>,
}

pub fn stated(number: u8) -> Option<Stated> {
    let all: Vec<Vec<&str>> = stele_lab::csv::rows(include_str!("../../../../data/ds4500_comparisons.csv")).collect();
    let row = all.iter().find(|row| row.first().and_then(|text| text.parse::<u8>().ok()) == Some(number))?;
    let value = |at: usize| row.get(at).and_then(|text| text.parse::<f64>().ok());
    Some(Stated { ds4500: value(6), ds4400: value(7) })
}

/// Mean response over the rate, both with and without the cache.
pub fn curves(found: Found<'_>, number: u8, workload: &str, level: Level, drives: u32, against: bool) -> Chart {
    let is_mixed = workload == "file_server";
    let mut series: Vec<Series> = Vec::new();
    for (array, who) in [("stele", "Stele"), ("ds4500", "DS4500's model")] {
        for (cached, cache) in [(true, "write cache"), (false, "no cache")] {
            let key = Key { array, level, drives, cached, stroke: STROKE, workload, log_on_drives: false };
            let Some(cell) = found.cell(key) else { continue };
            series.push(Series { name: format!("{who}, {cache}"), points: curve(cell, is_mixed), marked: true });
        }
    }
    if against {
        let same = |printed: &&Printed| {
            printed.workload_name() == workload && printed.drives == u64::from(drives) && printed.level() == level
        };
        for printed in ds4500_tables().iter().filter(same) {
            let value = if is_mixed { printed.throughput } else { printed.rate };
            let cache = if printed.cached { "write cache" } else { "no cache" };
            let points: Vec<(f64, f64)> = value.into_iter().map(|value| (value, 20.0)).collect();
            series.push(Series { name: format!("DS4500 as published, {cache}"), points, marked: true });
        }
        // Without a table of its own.
        if let Some(theirs) = stated(number).and_then(|stated| stated.ds4400).filter(|_| drives == 140) {
            series.push(Series { name: "DS4400 as published".into(), points: vec![(theirs, 20.0)], marked: true });
        }
    }
    let across = if is_mixed { "MiB/s" } else { "accesses/s" };
    let what = workload.replace('_', " ").replace("8k", "8 KiB");
    let title = format!("Chart {number}. {}, {what}, {drives} drives: mean response over the rate", level.name());
    Chart::lines(title, Axis::linear(across), Axis::logarithmic("ms"), series).with_line(Some((20.0, "20 ms".into())))
}

/// All loads that were tried, in order.
fn curve(cell: &CellRecord, is_mixed: bool) -> Vec<(f64, f64)> {
    let mut runs: Vec<(u32, f64, f64)> = cell
        .runs
        .iter()
        .map(|run| {
            let total = run.total();
            let across = if is_mixed { total.bytes / f64::from(1 << 20) } else { total.rate };
            (run.outstanding.unwrap_or(0), across, total.response.mean().0 as f64 / 1e6)
        })
        .collect();
    runs.sort_by_key(|(outstanding, ..)| *outstanding);
    runs.into_iter().map(|(_, across, response)| (across, response)).collect()
}

/// Measured streams of an array, by the size of their accesses.
pub fn of_streams<'a>(found: Found<'a>, array: &str, workload: &str, level: Level) -> Vec<(u64, &'a CellRecord)> {
    let of_size = |(size, bytes): &(&str, u64)| {
        let name = format!("{workload}_{size}");
        let key = Key {
            array,
            level,
            drives: STREAM_DRIVES,
            cached: workload == "streaming_write",
            stroke: STROKE,
            workload: &name,
            log_on_drives: false,
        };
        Some((*bytes, found.cell(key)?))
    };
    STREAMS.iter().filter_map(of_size).collect()
}

/// Throughput of streams over the size of their accesses.
pub fn streams(found: Found<'_>, number: u8, workload: &str, level: Level, against: bool) -> Chart {
    let points = |array: &str| {
        let cells = of_streams(found, array, workload, level).into_iter();
        cells.map(|(bytes, cell)| (bytes as f64, throughput(cell))).collect::<Vec<(f64, f64)>>()
    };
    let arrays = [("Stele", "stele"), ("DS4500's model", "ds4500")];
    let series = arrays.map(|(name, array)| Series { name: name.into(), points: points(array), marked: true });
    let mut series: Vec<Series> = series.into_iter().filter(|one| !one.points.is_empty()).collect();
    if let Some(stated) = stated(number).filter(|_| against && !series.is_empty()) {
        for (name, value) in [("DS4500 as published", stated.ds4500), ("DS4400 as published", stated.ds4400)] {
            series.extend(value.map(|value| Series {
                name: name.into(),
                points: vec![(65_536.0, value)],
                marked: true,
            }));
        }
    }
    let title = format!("Chart {number}. {}, {}, {STREAM_DRIVES} drives", level.name(), workload.replace('_', " "));
    let marks = STREAMS.iter().map(|(_, bytes)| (*bytes as f64, Bytes(*bytes).to_string()));
    Chart::lines(title, Axis::logarithmic("bytes of an access").marked(marks), Axis::linear("MiB/s"), series)
}

/// One workload over all numbers of drives: published, model, Stele.
pub fn bars(found: Found<'_>, workload: &str, level: Level, cached: bool, against: bool) -> Chart {
    let same =
        |printed: &Printed| printed.workload_name() == workload && printed.cached == cached && printed.level() == level;
    let all: Vec<Printed> = ds4500_tables().into_iter().filter(same).collect();
    let rows: Vec<&Printed> = all.iter().filter(|printed| found.printed("stele", printed).is_some()).collect();
    let value = |array: &str| rows.iter().map(|printed| found.printed(array, printed).map(rate)).collect();
    let mut bars = vec![Bars { name: "Stele".into(), values: value("stele") }];
    if against {
        bars.push(Bars {
            name: "DS4500 as published".into(),
            values: rows.iter().map(|printed| printed.rate).collect(),
        });
    }
    bars.push(Bars { name: "DS4500's model".into(), values: value("ds4500") });
    let cache = if cached { "with the write cache" } else { "without a cache" };
    let what = workload.replace('_', " ").replace("8k", "8 KiB");
    let title = format!("{}, {what}, {cache}: rate at 20 ms by drives", level.name());
    let groups = rows.iter().map(|printed| format!("{} drives", printed.drives)).collect();
    Chart::bars(title, Axis::linear("accesses/s"), groups, bars)
}
