//! Errors in tables of figures that arithmetic finds, whichever laboratory measured them: broken
//! order, products that do not fit, values that contradict each other or the text beside them.
//!
//! Each check knows one relation between figures, and needs no opinion of the storage. More drives
//! do not make it slower. A larger access does not increase the number of accesses. A cache does
//! not halve the rate. A rate times a size is a throughput.

use std::collections::BTreeMap;

use stele_lab::csv::rows;

use crate::published::{Printed, ds4500_tables};

/// The kind of a finding.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum OddityKind {
    FallsWithDrives,
    MoreThanLinear,
    RisesWithSize,
    ThroughputFallsWithSize,
    CacheLoses,
    CacheOutOfLine,
    CacheWithoutEffect,
    ProductDoesNotFit,
    SamePairElsewhere,
    PercentDoesNotFit,
    OutsideItsBox,
    SumDoesNotFit,
    DeeperIsSlower,
    ClaimExceedsFigures,
    /// A necessary figure is not stated.
    NotStated,
    /// The figures of a whole and of its parts contradict each other.
    PartsDoNotFit,
    /// In one of the two usual units the figure would be impossible.
    UnitUnclear,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Oddity {
    pub place: String,
    pub kind: OddityKind,
    /// The arithmetic, with its figures.
    pub why: String,
}

/// A rate below another by more than this share falls; a smaller difference is noise of a search,
/// also in print.
const FALL: f64 = 0.02;
/// A rate per drive that rises by more than this share as drives are added is more than linear.
const SUPERLINEAR: f64 = 0.10;
/// A cache's gain that differs from both neighbours' by this factor is out of line.
const OUT_OF_LINE: f64 = 1.25;
/// Largest difference in MiB/s between a product and the printed value, however that was rounded.
const ROUNDING: f64 = 1.0;

fn place(cell: &Printed) -> String {
    let size = cell.size.map_or(String::new(), |size| match size >> 10 {
        0 => format!(" {size} B"),
        kib => format!(" {kib} KiB"),
    });
    let cache = if cell.cached { "write cache on" } else { "caches off" };
    format!("{}, {}{size}, {} drives, {cache}", cell.table, cell.workload.replace('_', " "), cell.drives)
}

/// The judged figure: accesses a second, or the throughput if none are printed.
fn value(cell: &Printed) -> Option<f64> {
    cell.rate.or(cell.throughput)
}

/// Whether the second figure is below the first one, by more than their intervals explain. Printed
/// figures have none.
fn falls((first, before): (&Printed, f64), (second, after): (&Printed, f64)) -> bool {
    before - after > first.margin.hypot(second.margin)
}

/// All checks over the cells of tables.
pub fn of_tables(cells: &[Printed]) -> Vec<Oddity> {
    let mut found = Vec::new();
    let mut add = |cell: &Printed, kind, why| found.push(Oddity { place: place(cell), kind, why });
    for curve in grouped(cells, |cell| (cell.table.clone(), cell.workload.clone(), cell.size, cell.cached)) {
        along_drives(&curve, &mut add);
    }
    for row in grouped(cells, |cell| (cell.table.clone(), cell.workload.clone(), cell.drives, cell.cached)) {
        along_sizes(&row, &mut add);
    }
    for column in grouped(cells, |cell| (cell.table.clone(), cell.workload.clone(), cell.size, 0)) {
        cache_gains(&column, &mut add);
    }
    for cell in cells {
        if let (Some(rate), Some(printed), Some(size)) = (cell.rate, cell.throughput, cell.size) {
            let exact = rate * size as f64 / f64::from(1 << 20);
            if (printed - exact).abs() > ROUNDING {
                add(
                    cell,
                    OddityKind::ProductDoesNotFit,
                    format!("{rate} x {size} B are {exact:.2} MiB/s, printed {printed}"),
                );
            }
        }
    }
    same_pairs(cells, &mut add);
    found.sort();
    found
}

fn grouped<K: Ord>(cells: &[Printed], key: impl Fn(&Printed) -> K) -> Vec<Vec<&Printed>> {
    let mut groups: BTreeMap<K, Vec<&Printed>> = BTreeMap::new();
    for cell in cells.iter().filter(|cell| value(cell).is_some()) {
        groups.entry(key(cell)).or_default().push(cell);
    }
    groups.into_values().collect()
}

type Add<'a> = dyn FnMut(&Printed, OddityKind, String) + 'a;

fn along_drives(curve: &[&Printed], add: &mut Add<'_>) {
    let mut curve = curve.to_vec();
    curve.sort_by_key(|cell| cell.drives);
    for pair in curve.windows(2) {
        let [fewer, more] = pair else { continue };
        let (Some(before), Some(after)) = (value(fewer), value(more)) else { continue };
        if after < before * (1.0 - FALL) && falls((fewer, before), (more, after)) {
            let fall = (1.0 - after / before) * 100.0;
            let why = format!("{before} with {} drives, {after} with {}: {fall:.1} % less", fewer.drives, more.drives);
            add(more, OddityKind::FallsWithDrives, why);
        }
        let each = |cell: &Printed, value: f64| value / cell.drives as f64;
        let (each_before, each_after) = (each(fewer, before), each(more, after));
        let chance = each(fewer, fewer.margin).hypot(each(more, more.margin));
        if each_after > each_before * (1.0 + SUPERLINEAR) + chance {
            let why = format!(
                "{each_before:.1} a drive with {} drives, {each_after:.1} with {}: more than linear",
                fewer.drives, more.drives
            );
            add(more, OddityKind::MoreThanLinear, why);
        }
    }
}

fn along_sizes(row: &[&Printed], add: &mut Add<'_>) {
    let mut row = row.to_vec();
    row.sort_by_key(|cell| cell.size);
    for pair in row.windows(2) {
        let [small, large] = pair else { continue };
        if let (Some(before), Some(after)) = (small.rate, large.rate)
            && falls((large, after), (small, before))
        {
            add(large, OddityKind::RisesWithSize, format!("{before} of half the size, {after} of this"));
        }
        if let (Some(before), Some(after)) = (small.throughput, large.throughput)
            && falls((small, before), (large, after))
        {
            add(
                large,
                OddityKind::ThroughputFallsWithSize,
                format!("{before} MiB/s at half the size, {after} at this"),
            );
        }
    }
}

fn cache_gains(column: &[&Printed], add: &mut Add<'_>) {
    // The cell with the cache, its figure, and the cell without.
    let mut pairs: Vec<(&Printed, f64, (&Printed, f64))> = Vec::new();
    for cached in column.iter().filter(|cell| cell.cached) {
        let plain = column.iter().find(|cell| !cell.cached && cell.drives == cached.drives);
        if let (Some(with), Some(without)) = (value(cached), plain.and_then(|cell| Some((*cell, value(cell)?)))) {
            pairs.push((cached, with, without));
        }
    }
    pairs.sort_by_key(|(cell, ..)| cell.drives);
    for (at, (cell, with, (plain, without))) in pairs.iter().enumerate() {
        let gain = with / without;
        if falls((plain, *without), (cell, *with)) {
            add(cell, OddityKind::CacheLoses, format!("{with} with the write cache, {without} without"));
        }
        let near = |at: Option<usize>| at.and_then(|at| pairs.get(at)).map(|(_, with, (_, without))| with / without);
        let (before, after) = (near(at.checked_sub(1)), near(Some(at + 1)));
        let near: Vec<f64> = before.into_iter().chain(after).collect();
        let away = |other: &f64| gain > other * OUT_OF_LINE || gain * OUT_OF_LINE < *other;
        if !near.is_empty() && near.iter().all(away) {
            let near: Vec<String> = near.iter().map(|gain| format!("{gain:.2}")).collect();
            add(
                cell,
                OddityKind::CacheOutOfLine,
                format!("the cache gains {gain:.2} times, beside {}", near.join(" and ")),
            );
        }
        let gains = |gain: &f64| *gain > 1.02;
        if with == without && near.iter().any(gains) {
            add(cell, OddityKind::CacheWithoutEffect, format!("{with} with and without the write cache"));
        }
    }
}

/// The same rate and throughput in two tables for different workloads of the same row.
fn same_pairs(cells: &[Printed], add: &mut Add<'_>) {
    for (at, cell) in cells.iter().enumerate() {
        for other in cells.iter().skip(at + 1) {
            let same = cell.rate.is_some()
                && cell.rate == other.rate
                && cell.throughput == other.throughput
                && (cell.drives, cell.cached, cell.size) == (other.drives, other.cached, other.size)
                && cell.workload != other.workload
                && cell.table != other.table;
            if same {
                let rate = cell.rate.unwrap_or(0.0);
                add(other, OddityKind::SamePairElsewhere, format!("{rate} is also that of {}", place(cell)));
            }
        }
    }
}

fn number(text: &str) -> Option<f64> {
    text.parse().ok()
}

/// All findings in the published figures.
pub fn published() -> Vec<Oddity> {
    let mut found = of_tables(&ds4500_tables());
    found.extend(comparisons());
    found.extend(strokes());
    found.extend(fibre_channel());
    found.extend(backup());
    found.extend(archive());
    found
}

/// The DR550 paper's statements on its runs and drives.
fn archive() -> Vec<Oddity> {
    let mut found = Vec::new();
    let mut add = |place: String, kind, why| found.push(Oddity { place: format!("DR550, {place}"), kind, why });
    let axis = |name: &str| {
        let row = rows(include_str!("../data/dr550.csv")).find(|row| row.get(5) == Some(&name))?;
        number(row.get(7)?)
    };
    let peaks = crate::published::archive_peaks();
    if let (Some(files), Some(size), Some(minutes)) = (axis("files_per_run"), axis("file_size"), axis("run_length")) {
        let (whole, seconds) = (files * size, minutes * 60.0);
        for peak in &peaks {
            let Some(rate) = peak.rate.filter(|rate| whole / rate < seconds / 1.5) else { continue };
            let why = format!(
                "{files} files of {size} MB are {whole} MB, {:.0} s at {rate} MB/s; a run is said to last {seconds} s, which is {:.1} MB/s",
                whole / rate,
                whole / seconds
            );
            add(format!("section {}", peak.section), OddityKind::PartsDoNotFit, why);
        }
    }
    for peak in peaks.iter().filter(|peak| peak.rate.is_none()) {
        let cache = if peak.cached { "with" } else { "without" };
        let why = format!("no peak is stated for {} {}s {cache} cache", peak.pattern, peak.direction);
        add(format!("section {}", peak.section), OddityKind::NotStated, why);
    }
    let part = |name: &str| {
        let row = rows(include_str!("../data/environment.csv"))
            .find(|row| row.first().is_some_and(|paper| *paper == "dr550-fsg") && row.get(2) == Some(&name))?;
        number(row.get(3)?.rsplit(' ').next()?)
    };
    if let (Some(drives), Some(each), Some(whole)) = (part("drives_total"), part("drive_capacity"), part("capacity")) {
        let raw = drives * each / 1000.0;
        if whole < raw * 0.95 {
            let why = format!(
                "{drives} drives of {each} GB are {raw} TB, stated are over {whole} TB: level and spares that take the rest are not stated"
            );
            add("drives".into(), OddityKind::NotStated, why);
        }
    }
    found
}

/// Percentages against the two values that they compare, and against the ranges that summarise
/// them.
fn comparisons() -> Vec<Oddity> {
    let mut found = Vec::new();
    for row in rows(include_str!("../data/ds4500_comparisons.csv")) {
        let cell = |at: usize| row.get(at).copied().unwrap_or_default();
        let place = format!("Chart {}, {} {}", cell(0), cell(1), cell(2).replace('_', " "));
        let Some(printed) = number(cell(9)) else { continue };
        let mut judged = vec![printed];
        if let (Some(ours), Some(theirs)) = (number(cell(6)), number(cell(7))) {
            let boost = number(cell(8)).unwrap_or(0.0);
            let exact = (ours / (theirs * (1.0 + boost / 100.0)) - 1.0) * 100.0;
            judged.push(exact);
            // Rounded to a whole percent, or for hundreds to ten.
            if (printed - exact).abs() > 0.51 {
                let boosted = if boost > 0.0 { format!(" boosted by {boost} %") } else { String::new() };
                let why = format!("{ours} against {theirs}{boosted} is {exact:.2} %, printed {printed}");
                found.push(Oddity { place: place.clone(), kind: OddityKind::PercentDoesNotFit, why });
            }
        }
        if let (Some(low), Some(high)) = (number(cell(14)), number(cell(15))) {
            for value in judged.iter().filter(|value| **value < low - 0.5 || **value > high + 0.5) {
                let why = format!("{value:.1} % is outside of {low} to {high} %");
                found.push(Oddity { place: place.clone(), kind: OddityKind::OutsideItsBox, why });
            }
        }
    }
    found
}

/// Multipliers that do not change although a wider stroke must cost more.
fn strokes() -> Vec<Oddity> {
    let mut found = Vec::new();
    let strokes = crate::published::strokes();
    for pair in strokes.windows(2) {
        let [narrow, wide] = pair else { continue };
        let same = (narrow.table, narrow.size) == (wide.table, wide.size) && wide.percent > narrow.percent;
        // A row stands for all sizes, and is reported once.
        if same && wide.size == 4096 && wide.multiplier >= narrow.multiplier {
            found.push(Oddity {
                place: format!("Table {}, stroke {} %", wide.table, wide.percent),
                kind: OddityKind::FallsWithDrives,
                why: format!("{} also at {} %", wide.multiplier, narrow.percent),
            });
        }
    }
    found
}

fn fibre_channel() -> Vec<Oddity> {
    let mut found = Vec::new();
    let table: Vec<Vec<&str>> = rows(include_str!("../data/fc8_iops.csv")).collect();
    let mixed: Vec<(u64, f64)> = table
        .iter()
        .filter(|row| row.first() == Some(&"50/50 R/W"))
        .filter_map(|row| Some((row.get(3)?.parse().ok()?, number(row.get(4)?)?)))
        .collect();
    for pair in mixed.windows(2) {
        let [(_, before), (size, after)] = pair else { continue };
        if after > before {
            let why = format!("{before} of half the size, {after} of this");
            found.push(Oddity {
                place: format!("Fibre Channel Table 1, half reads, {size} B"),
                kind: OddityKind::RisesWithSize,
                why,
            });
        }
    }
    let rates: Vec<f64> = table.iter().filter_map(|row| number(row.get(4)?)).collect();
    let reach = |mark: f64| rates.iter().filter(|rate| **rate >= mark).count();
    for mark in [400_000.0, 500_000.0] {
        if reach(mark) < rates.len() {
            found.push(Oddity {
                place: "Fibre Channel Table 1".into(),
                kind: OddityKind::ClaimExceedsFigures,
                why: format!("{mark} a second are reached in {} of {} rows", reach(mark), rates.len()),
            });
        }
    }
    let streams: Vec<(f64, f64, f64, f64)> = rows(include_str!("../data/fc8_throughput.csv"))
        .filter_map(|row| {
            Some((number(row.get(1)?)?, number(row.get(3)?)?, number(row.get(4)?)?, number(row.get(5)?)?))
        })
        .collect();
    for (depth, read, write, total) in &streams {
        if (read + write - total).abs() > ROUNDING {
            let why = format!("{read} and {write} are {}, printed {total}", read + write);
            found.push(Oddity {
                place: format!("Fibre Channel Table 2, depth {depth}"),
                kind: OddityKind::SumDoesNotFit,
                why,
            });
        }
    }
    // One direction of 8 Gbit/s with 8 of 10 bits for data.
    const LINK: f64 = 800e6;
    for (depth, read, _, _) in
        streams.iter().filter(|(_, read, ..)| read * f64::from(1 << 20) > LINK && read * 1e6 <= LINK)
    {
        let why = format!(
            "{read} MB/s read at depth {depth} are {:.0} million bytes a second if MB are 2^20, more than the {:.0} of a link of 8 Gbit/s",
            read * f64::from(1 << 20) / 1e6,
            LINK / 1e6
        );
        found.push(Oddity { place: "Fibre Channel Table 2".into(), kind: OddityKind::UnitUnclear, why });
    }
    for (depth, _, _, total) in &streams {
        let shallower = streams.iter().find(|(other, _, _, rate)| other < depth && rate > total);
        if let Some((other, _, _, rate)) = shallower {
            let why = format!("{total} at depth {depth}, {rate} at {other}");
            found.push(Oddity { place: "Fibre Channel Table 2".into(), kind: OddityKind::DeeperIsSlower, why });
        }
    }
    found
}

fn backup() -> Vec<Oddity> {
    let mut results = Vec::new();
    let mut claims = Vec::new();
    for row in rows(include_str!("../data/gnr_tsm.csv")) {
        let [record, servers, direction, value, ..] = row.as_slice() else { continue };
        match *record {
            "result" => results.extend(number(value).map(|value| (*servers, *direction, value))),
            "summary_claim" => claims.extend(value.strip_suffix('+').and_then(number).map(|least| (*servers, least))),
            _ => {}
        }
    }
    let mut found = Vec::new();
    let mut limits: Vec<(f64, f64)> = Vec::new();
    for row in rows(include_str!("../data/gnr_tsm.csv"))
        .filter(|row| row.first().is_some_and(|record| record.starts_with("array_limit")))
    {
        let rate = row.get(3).and_then(|value| number(value.trim_end_matches('+')));
        let drives = row.get(8).and_then(|note| number(note.split(' ').next()?));
        limits.extend(rate.zip(drives));
    }
    if let (Some((rate, drives)), Some((more, larger))) = (limits.first(), limits.last())
        && larger > drives
        && more / larger < rate / drives * (1.0 - SUPERLINEAR)
    {
        let each = |rate: f64, drives: f64| rate * 1000.0 / drives;
        found.push(Oddity {
            place: "Backup, nominal rates".into(),
            kind: OddityKind::PartsDoNotFit,
            why: format!(
                "{rate} GB/s and more of {drives} drives are {:.0} MB/s each, {more} of {larger} are {:.0}",
                each(*rate, *drives),
                each(*more, *larger)
            ),
        });
    }
    for (servers, least) in claims {
        for (_, direction, value) in results.iter().filter(|(of, _, value)| *of == servers && *value < least * 1000.0) {
            found.push(Oddity {
                place: format!("Backup, {servers} servers, {direction}"),
                kind: OddityKind::ClaimExceedsFigures,
                why: format!("{value} MB/s, said to be {least} GB/s and more"),
            });
        }
    }
    found
}

#[cfg(test)]
mod tests;
