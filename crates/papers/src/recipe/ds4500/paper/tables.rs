//! Tables 1 to 8.

use super::charts;
use super::found::{self, Found, Key, bound_by, rate, throughput};
use crate::published;
use crate::published::{Printed, ds4500_tables};
use crate::recipe::ds4500::nearness::is_fitted;
use crate::recipe::ds4500::{
    PROCESSORS, STREAM_DRIVES, STROKE, STROKE_DRIVES, STROKE_WORKLOADS, STROKES, asks_for_log_on_drives,
};
use stele_ground::Bytes;
use stele_lab::raid::Level;
use stele_lab::record::CellRecord;
use stele_lab::report::document::{Entry, Place, Table, Text};
use stele_lab::workload;

/// The columns' names, for sentences.
pub const STELE: &str = "stele";
pub const PUBLISHED: &str = "published";

/// The row of a cell of a table.
pub fn row_of(printed: &Printed) -> String {
    let size = printed.size.map_or(String::new(), |size| format!("-{}k", size >> 10));
    let cache = if printed.cached { "on" } else { "off" };
    format!("{}-{}-{cache}-{}{size}", printed.table.replace(' ', "-"), printed.drives, printed.workload)
}

pub fn place(printed: &Printed, column: &str) -> Place {
    Place::new(row_of(printed), column)
}

/// The measured cells of a table, in its order.
pub fn measured<'a>(found: Found<'a>, table: &str) -> Vec<(Printed, &'a CellRecord)> {
    let of_table = ds4500_tables().into_iter().filter(|printed| printed.table == table);
    let mut cells: Vec<_> = of_table.filter_map(|printed| Some((found.printed("stele", &printed)?, printed))).collect();
    cells.sort_by_key(|(_, printed)| (printed.drives, printed.cached, printed.workload.clone(), printed.size));
    cells.into_iter().map(|(cell, printed)| (printed, cell)).collect()
}

fn thousand(value: f64) -> Entry {
    Entry::said(value.round(), super::whole(value))
}

fn percent(share: f64) -> Entry {
    Entry::said(share, format!("{share:+.1} %"))
}

pub fn workload_of(printed: &Printed) -> String {
    let name = printed.workload.replace('_', " ");
    printed.size.map_or(name.clone(), |size| format!("{name} {} KiB", size >> 10))
}

/// One of tables 1, 3, 4, 5, 7 and 8. `None` if no cell of it was measured.
pub fn rates(found: Found<'_>, name: &str, title: &str, against: bool) -> Option<Table> {
    let cells = measured(found, name);
    // File and web server are printed as throughput.
    let is_mixed = cells.first()?.0.size.is_none();
    let unit = if is_mixed { "MiB/s" } else { "accesses/s" };
    let mut table = Table::new(format!("{name}. {title}, {unit} at a mean response of 20 ms"))
        .right("drives", "drives")
        .left("cache", "cache")
        .left("access", "workload")
        .right(STELE, "Stele")
        .right("margin", "±");
    if !is_mixed {
        table = table.right("bytes", "Stele, MiB/s");
    }
    table = table.left("bound", "bound by");
    if against {
        table = table.right(PUBLISHED, "DS4500");
        if !is_mixed {
            table = table.right("published-bytes", "DS4500, MiB/s");
        }
        table = table.right("ratio", "Stele / DS4500");
    }
    table = table.right("model", "its model").right("of-model", "Stele / model");
    if against {
        table = table.right("error", "model's error");
    }
    table = table.left("model-bound", "model bound by");
    for (printed, cell) in &cells {
        let model = found.printed("ds4500", printed);
        let value = |cell: &CellRecord| if is_mixed { throughput(cell) } else { rate(cell) };
        let ours = value(cell);
        let margin = cell.search.as_ref().and_then(|search| search.margin).map(|margin| margin / rate(cell) * 100.0);
        let mut row = vec![
            Entry::said(printed.drives as f64, printed.drives.to_string()),
            Entry::text(if printed.cached { "on" } else { "off" }),
            Entry::text(workload_of(printed)),
            thousand(ours).if_steady(cell.is_steady()).strong(),
            margin.map_or(Entry::absent(), |margin| Entry::said(margin, format!("{margin:.1} %")).faint()),
        ];
        if !is_mixed {
            row.push(Entry::number(throughput(cell)));
        }
        row.push(Entry::text(bound_by(cell)));
        let theirs = if is_mixed { printed.throughput } else { printed.rate };
        if against {
            row.push(theirs.map_or(Entry::absent(), thousand));
            if !is_mixed {
                // As printed: rounded by no one rule, so that ratios are of accesses.
                row.push(printed.throughput.map_or(Entry::absent(), |bytes| Entry::said(bytes, bytes.to_string())));
            }
            row.push(
                theirs.map_or(Entry::absent(), |theirs| Entry::said(ours / theirs, format!("{:.2}", ours / theirs))),
            );
        }
        row.push(model.map_or(Entry::absent(), |model| thousand(value(model)).if_steady(model.is_steady())));
        let of_model = model.map(|model| ours / value(model));
        row.push(of_model.map_or(Entry::absent(), |share| Entry::said(share, format!("{share:.2}"))));
        if against {
            let error = model.zip(theirs).map(|(model, theirs)| (value(model) / theirs - 1.0) * 100.0);
            row.push(error.map_or(Entry::absent(), percent));
        }
        row.push(model.map_or(Entry::absent(), |model| Entry::text(bound_by(model))));
        table.row(row_of(printed), row);
    }
    Some(table)
}

/// Remarks on single cells of such a table.
pub fn remarks(found: Found<'_>, name: &str, against: bool) -> Vec<String> {
    let said = |(printed, cell): (Printed, &CellRecord)| {
        let remark = remark(&printed, cell, found.printed("ds4500", &printed), against);
        let cache = if printed.cached { "with the write cache" } else { "without the cache" };
        (!remark.is_empty()).then(|| format!("{} drives {cache}, {}: {remark}", printed.drives, workload_of(&printed)))
    };
    measured(found, name).into_iter().filter_map(said).collect()
}

fn remark(printed: &Printed, cell: &CellRecord, model: Option<&CellRecord>, against: bool) -> String {
    let mut remarks: Vec<String> = Vec::new();
    if let Some(end) = cell.search.as_ref().and_then(|search| search.open_end.clone()) {
        remarks.push(end);
    }
    if !cell.is_steady() {
        remarks.push("not steady".into());
    }
    if model.is_some_and(|model| !model.is_steady()) {
        remarks.push("model not steady".into());
    }
    if against && model.is_some() && is_fitted(printed) {
        remarks.push("the model was fitted to this cell".into());
    }
    if against && let Some(why) = published::suspicion(printed) {
        remarks.push(format!("printed: {why}"));
    }
    remarks.join("; ")
}

/// Table 2 or 6: the share of the rate that remains with a wider stroke, for each size that its
/// rows stand for.
pub fn strokes(found: Found<'_>, name: &str, level: Level, against: bool) -> Option<Table> {
    let key = |array, workload, stroke| Key {
        array,
        level,
        drives: STROKE_DRIVES,
        cached: false,
        stroke,
        workload,
        log_on_drives: false,
    };
    let factor = |array, workload, stroke| {
        let (wide, base) = (found.cell(key(array, workload, stroke))?, found.cell(key(array, workload, STROKE))?);
        Some(rate(wide) / rate(base))
    };
    let mut table = Table::new(format!(
        "{name}. {}: multipliers for wider strokes. {STROKE_DRIVES} drives, no cache; 1 is the rate at {STROKE} %",
        level.name()
    ))
    .left("stroke", "OLTP, of each drive")
    .right("rate", "Stele, accesses/s")
    .right("bytes", "Stele, MiB/s")
    .right(STELE, "multiplier");
    if against {
        table = table.right(PUBLISHED, "DS4500's multiplier");
    }
    table = table.right("model", "its model's");
    let printed = published::strokes();
    let mut any = false;
    for workload in STROKE_WORKLOADS {
        let size = workload::named(workload).map_or(0, |spec| spec.length_max());
        for stroke in std::iter::once(STROKE).chain(STROKES) {
            let Some(cell) = found.cell(key("stele", workload, stroke)) else { continue };
            any |= stroke != STROKE;
            let said = |factor: Option<f64>| {
                factor.map_or(Entry::absent(), |factor| Entry::said(factor, format!("{factor:.2}")))
            };
            let mut row = vec![
                Entry::text(format!("OLTP {} KiB, {stroke} %", size >> 10)),
                thousand(rate(cell)).if_steady(cell.is_steady()),
                Entry::number(throughput(cell)),
                said(factor("stele", workload, stroke)).strong(),
            ];
            if against {
                let same =
                    |one: &&published::Stroke| (one.level, one.percent, one.size) == (level, u32::from(stroke), size);
                let one = (stroke == STROKE).then_some(1.0);
                row.push(said(printed.iter().find(same).map(|one| one.multiplier).or(one)));
            }
            row.push(said(factor("ds4500", workload, stroke)));
            table.row(format!("{}-{size}-{stroke}", name.replace(' ', "-")), row);
        }
    }
    any.then_some(table)
}

/// The streams of a level: workload, its name, and the offset of its chart from the first one.
const STREAMING: [(&str, &str, u8); 2] = [("streaming_read", "reads", 0), ("streaming_write", "writes", 1)];

fn stream_row(level: Level, workload: &str, size: u64) -> String {
    format!("stream-{}-{workload}-{size}", level.number())
}

/// The published streams have one size.
const STREAM_STATED: u64 = 64 << 10;

/// Throughput of streams, beside the stated value for one size. `None` if no cell of it was
/// measured.
pub fn streams(found: Found<'_>, level: Level, first: u8, against: bool) -> Option<Table> {
    let title = format!("{}, streams of {STREAM_DRIVES} drives, MiB/s", level.name());
    let mut table = Table::new(title).left("stream", "").right("size", "access").right(STELE, "Stele");
    if against {
        table = table.right(PUBLISHED, "DS4500").right("ratio", "Stele / DS4500");
    }
    table = table.right("model", "its model");
    if against {
        table = table.right("error", "model's error");
    }
    let mut any = false;
    for (workload, words, behind) in STREAMING {
        let stated = charts::stated(first + behind).and_then(|stated| stated.ds4500);
        let models = charts::of_streams(found, "ds4500", workload, level);
        for (size, cell) in charts::of_streams(found, "stele", workload, level) {
            any = true;
            let ours = throughput(cell);
            let mut row = vec![
                Entry::text(words),
                Entry::text(Bytes(size).to_string()),
                thousand(ours).if_steady(cell.is_steady()).strong(),
            ];
            if against {
                let theirs = stated.filter(|_| size == STREAM_STATED);
                row.push(theirs.map_or(Entry::absent(), thousand));
                let times = theirs.map(|theirs| Entry::said(ours / theirs, format!("{:.2}", ours / theirs)));
                row.push(times.unwrap_or(Entry::absent()));
            }
            let model = models.iter().find(|(of, _)| *of == size).map(|(_, cell)| *cell);
            row.push(model.map_or(Entry::absent(), |model| thousand(throughput(model)).if_steady(model.is_steady())));
            if against {
                let theirs = stated.filter(|_| size == STREAM_STATED);
                let error = model.zip(theirs).map(|(model, theirs)| (throughput(model) / theirs - 1.0) * 100.0);
                row.push(error.map_or(Entry::absent(), percent));
            }
            table.row(stream_row(level, workload, size), row);
        }
    }
    any.then_some(table)
}

/// The summary of the streams: beside the stated ones, and the sizes at which larger accesses lose
/// more than half.
pub fn streams_said(found: Found<'_>) -> Vec<Text> {
    let mut said = Vec::new();
    for (level, first) in [(Level::Raid5, 2), (Level::Raid10, 8)] {
        for (workload, words, behind) in STREAMING {
            let cells = charts::of_streams(found, "stele", workload, level);
            let place = |size: u64, column: &str| Place::new(stream_row(level, workload, size), column);
            let stated = charts::stated(first + behind).and_then(|stated| stated.ds4500);
            if stated.is_none() || !cells.iter().any(|(size, _)| *size == STREAM_STATED) {
                continue;
            }
            let (ours, theirs) = (place(STREAM_STATED, STELE), place(STREAM_STATED, PUBLISHED));
            let name = level.name();
            let mut text = Text::from(format!("{name} streaming {words} of 64 KiB, {STREAM_DRIVES} drives: "))
                .cell_as(&ours, " MiB/s");
            text = text.say(", ").ratio(&ours, &theirs).say(" times the DS4500's published ").cell(&theirs);
            let most = cells.iter().map(|(_, cell)| throughput(cell)).fold(0.0, f64::max);
            if let Some((size, _)) = cells.last().filter(|(_, cell)| throughput(cell) < most / 2.0) {
                let larger = format!("; with accesses of {} Stele falls to ", Bytes(*size));
                text = text.say(larger).cell_as(&place(*size, STELE), " MiB/s");
            }
            said.push(text.say("."));
        }
    }
    said
}

/// Stele with its log in memory and on the hard drives. `None` if that was not measured.
pub fn logs(found: Found<'_>) -> Option<Table> {
    let mut table = Table::new("Write-back, log in memory and on the hard drives, accesses/s")
        .left("level", "array")
        .right("drives", "drives")
        .left("access", "workload")
        .right("memory", "log in memory")
        .right("drives-log", "log on the drives")
        .right("ratio", "ratio");
    let mut any = false;
    for printed in published::rated().into_iter().filter(asks_for_log_on_drives) {
        let (Some(memory), Some(drives)) = (found.printed("stele", &printed), found.log_on_drives(&printed)) else {
            continue;
        };
        any = true;
        let ratio = rate(drives) / rate(memory);
        let row = vec![
            Entry::text(printed.level().name()),
            Entry::said(printed.drives as f64, printed.drives.to_string()),
            Entry::text(workload_of(&printed)),
            thousand(rate(memory)).if_steady(memory.is_steady()),
            thousand(rate(drives)).if_steady(drives.is_steady()),
            Entry::said(ratio, format!("{ratio:.2}")),
        ];
        table.row(format!("log-{}", row_of(&printed)), row);
    }
    any.then_some(table)
}

/// The column of rates with processors.
pub const CHARGED: &str = "charged";

/// The row of a cell in the table of processors.
pub fn charged_place(printed: &Printed, column: &str) -> Place {
    Place::new(format!("charged-{}", row_of(printed)), column)
}

/// Stele without and with its processors modelled. `None` if that was not measured.
pub fn charged(found: Found<'_>, against: bool) -> Option<Table> {
    let of = if PROCESSORS == 1 { "one processor".to_owned() } else { format!("{PROCESSORS} processors") };
    let mut table = Table::new(format!("Stele without a model of its processors, and on {of}, accesses/s or MiB/s"))
        .left("table", "table")
        .right("drives", "drives")
        .left("cache", "cache")
        .left("access", "workload")
        .right("free", "without")
        .right(CHARGED, &format!("on {of}"))
        .right("share", "with / without")
        .left("bound", "bound by");
    if against {
        table = table.right(PUBLISHED, "DS4500").right("ratio", "with / DS4500");
    }
    let mut any = false;
    for printed in ds4500_tables() {
        let (Some(free), Some(with)) = (found.printed("stele", &printed), found.charged(&printed)) else { continue };
        any = true;
        let is_mixed = printed.size.is_none();
        let value = |cell: &CellRecord| if is_mixed { throughput(cell) } else { rate(cell) };
        let share = value(with) / value(free);
        let mut row = vec![
            Entry::text(printed.table.as_str()),
            Entry::said(printed.drives as f64, printed.drives.to_string()),
            Entry::text(if printed.cached { "on" } else { "off" }),
            Entry::text(workload_of(&printed)),
            thousand(value(free)).if_steady(free.is_steady()),
            thousand(value(with)).if_steady(with.is_steady()).strong(),
            Entry::said(share, format!("{share:.2}")),
            Entry::text(bound_by(with)),
        ];
        if against {
            let theirs = if is_mixed { printed.throughput } else { printed.rate };
            row.push(theirs.map_or(Entry::absent(), thousand));
            let times = theirs.map(|theirs| value(with) / theirs);
            row.push(times.map_or(Entry::absent(), |times| Entry::said(times, format!("{times:.2}"))));
        }
        table.row(charged_place(&printed, "").row, row);
    }
    any.then_some(table)
}

/// Stele's rate and the model's for one printed cell.
pub struct BesideModel {
    pub ours: f64,
    pub model: f64,
    pub drive_bound: bool,
}

/// Cells of both.
pub fn beside_model(found: Found<'_>) -> Vec<BesideModel> {
    let pair = |printed: Printed| {
        let (ours, model) = (found.printed("stele", &printed)?, found.printed("ds4500", &printed)?);
        Some(BesideModel { ours: rate(ours), model: rate(model), drive_bound: bound_by(model) != "controllers" })
    };
    ds4500_tables().into_iter().filter_map(pair).collect()
}

/// The results as the tables of a paper, for arithmetical checks.
pub fn as_printed(found: Found<'_>) -> Vec<Printed> {
    let mut cells = Vec::new();
    for printed in ds4500_tables() {
        if let Some(cell) = found.printed("stele", &printed) {
            let is_mixed = printed.size.is_none();
            let (rate, through) = ((!is_mixed).then(|| found::rate(cell)), is_mixed.then(|| throughput(cell)));
            let share = found::relative_margin(cell);
            let margin = share * rate.or(through).unwrap_or(0.0);
            cells.push(Printed { rate, throughput: through, margin, ..printed });
        }
    }
    cells
}

/// Cells of both, with the published figures.
pub fn beside(found: Found<'_>) -> Vec<(Printed, f64, f64)> {
    let pair = |printed: Printed| {
        let cell = found.printed("stele", &printed)?;
        let (ours, theirs) = match printed.rate {
            Some(theirs) => (rate(cell), theirs),
            None => (throughput(cell), printed.throughput?),
        };
        Some((printed, ours, theirs))
    };
    ds4500_tables().into_iter().filter_map(pair).collect()
}

pub fn of_level(printed: &Printed, level: Level) -> bool {
    printed.level() == level
}
