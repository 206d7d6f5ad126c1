//! The DS4500 paper on real storage: its access specifications, each at the highest load with a
//! mean response of 20 ms, as one row beside the published ones. The target's number of drives,
//! RAID level and caches are unknown here.

use crate::oddities;
use crate::published::{Printed, ds4500_tables};
use crate::recipe::live::{Asked, cell};
use crate::recipe::page::{self, Order};
use crate::recipe::set_up;
use stele_lab::error::LabError;
use stele_lab::estimate::Estimate;
use stele_lab::job::{Job, processors};
use stele_lab::record::{CellRecord, Recorded};
use stele_lab::report::chart::Chart;
use stele_lab::report::charts::ChartKind;
use stele_lab::report::document::{Document, Entry, Place, Table, Text};
use stele_lab::report::remark;
use stele_lab::search::{Goal, Statistic};
use stele_lab::workload::{self, AccessSpec};

use super::{RESPONSE, named, paper};

/// Largest number of outstanding accesses.
const LOAD_MAX: u64 = 1024;
/// The first load.
const START: u64 = 8;
const PROBES_MAX: usize = 12;
const QUICK_PROBES_MAX: usize = 6;
const QUICK: [&str; 4] = ["oltp_8k", "file_server", "random_read_8k", "random_write_8k"];

/// Tables with the same workloads for RAID-5 and RAID-10.
const TABLES: [(&str, &str, &str); 3] = [
    ("Table 1", "Table 5", "OLTP (67 % reads)"),
    ("Table 3", "Table 7", "file server and static web server"),
    ("Table 4", "Table 8", "random reads and random writes"),
];

/// The workloads of these tables, each once, in their order.
fn workloads(tables: &[&str]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for printed in ds4500_tables().iter().filter(|printed| tables.contains(&printed.table.as_str())) {
        let name = printed.workload_name();
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// The workloads to measure on a target.
fn asked(quick: bool) -> Vec<String> {
    let all: Vec<&str> = TABLES.iter().flat_map(|(first, second, _)| [*first, *second]).collect();
    workloads(&all).into_iter().filter(|name| !quick || QUICK.contains(&name.as_str())).collect()
}

pub fn plan(job: &Job, quick: bool) -> Result<Vec<Asked>, LabError> {
    let goal = Goal {
        response: RESPONSE,
        statistic: Statistic::Mean,
        start: START,
        load_max: LOAD_MAX,
        probes_max: if quick { QUICK_PROBES_MAX } else { PROBES_MAX },
        of_rates: false,
    };
    let one = |name: String| {
        let axes = vec![("workload".to_owned(), name.clone())];
        let cell = cell(job, named(&name)?, (START as u32, processors()), Some(goal), axes)?;
        Ok(Asked { cell, buffered: false, targets: 0..1 })
    };
    asked(quick).into_iter().map(one).collect()
}

fn left_out(quick: bool) -> Vec<String> {
    match quick {
        false => Vec::new(),
        true => vec!["accesses of other sizes than 8 KiB".to_owned(), "the static web server".to_owned()],
    }
}

pub fn document(order: Order<'_>) -> Result<Document, LabError> {
    let Order { recorded, part, against, .. } = order;
    let own = format!("The highest rates at a mean response of 20 ms: {}", recorded.head.target);
    let mut page = order.begin(own, ", beside the DS4500");
    summary(&mut page, recorded, against);
    let shorter = page::shorter(recorded, "a probe", 10.0, "ten and more");
    page::lacks(&mut page, recorded, &left_out(part.quick).into_iter().chain(shorter).collect::<Vec<_>>());
    method(&mut page);
    page::environment(&mut page, recorded);
    if against {
        page.diagram(set_up::ds4500());
    }
    page.section("Results");
    for (number, tables) in TABLES.iter().enumerate() {
        if let Some(table) = table(recorded, number, *tables, against) {
            page.table(table);
        }
    }
    page.chart(bars(recorded, against));
    page.chart(ChartKind::ResponseRate.of(recorded));
    page::odd(&mut page, odd(recorded), if against { &["Table"] } else { &[] });
    limits(&mut page, page::unmeasured(recorded, asked(part.quick).len()));
    page::conclusion(
        &mut page,
        recorded,
        "Each figure is the highest rate that this target sustains at a mean response of 20 ms.",
        "The figures are those of this target as a whole: the laboratory does not know the drives, RAID level and caches behind it.",
    );
    page::again(&mut page, order, paper::SOURCE);
    Ok(page)
}

fn found<'a>(recorded: &'a Recorded, workload: &str) -> Option<&'a CellRecord> {
    recorded.cells.iter().find(|cell| cell.workload == workload && cell.search.is_some())
}

/// Accesses a second at the goal, or MiB/s for mixed sizes, as in the published tables.
fn value(recorded: &Recorded, workload: &str) -> Option<f64> {
    let search = found(recorded, workload)?.search.as_ref()?;
    let spec = workload::named(workload)?;
    Some(match spec.sizes.len() {
        1 => search.rate,
        _ => search.rate * AccessSpec::mean_length(&spec) as f64 / f64::from(1 << 20),
    })
}

/// The same; in parentheses if the steady state was not reached.
fn entry(recorded: &Recorded, workload: &str) -> Entry {
    let both = value(recorded, workload).zip(found(recorded, workload));
    both.map_or(Entry::absent(), |(value, cell)| Entry::number(value).if_steady(cell.is_steady()))
}

fn value_of(printed: &Printed) -> Option<f64> {
    printed.rate.or(printed.throughput)
}

/// The published machine's highest figure in a workload.
fn most(workload: &str) -> Option<Printed> {
    let all = ds4500_tables()
        .into_iter()
        .filter(|printed| printed.workload_name() == workload && value_of(printed).is_some());
    all.max_by(|left, right| value_of(left).unwrap_or(0.0).total_cmp(&value_of(right).unwrap_or(0.0)))
}

fn words(workload: &str) -> String {
    let name = workload.replace('_', " ");
    name.strip_suffix('k').map_or(name.clone(), |name| format!("{name} KiB"))
}

/// The row of this target in the table with this number.
fn row_here(table: usize) -> String {
    format!("this-target-{table}")
}

fn row_of(printed: &Printed) -> String {
    format!("{}-{}-{}", printed.table.replace(' ', "-"), printed.drives, if printed.cached { "on" } else { "off" })
}

fn summary(page: &mut Document, recorded: &Recorded, against: bool) {
    page.section("Summary");
    page.paragraph(format!(
        "{} had the load of the published access specifications. Every figure is the highest rate that it sustains at a mean response of \
         20 ms.",
        recorded.head.target
    ));
    let mut lines: Vec<Text> = Vec::new();
    for (number, (first, second, _)) in TABLES.iter().enumerate() {
        for workload in workloads(&[first, second]) {
            if value(recorded, &workload).is_none() {
                continue;
            }
            let ours = Place::new(row_here(number), workload.as_str());
            let unit = if number == 1 { " MiB/s" } else { " accesses a second" };
            let mut text = Text::from(format!("{}: ", words(&workload))).cell_as(&ours, unit);
            if let Some(best) = most(&workload).filter(|_| against) {
                let theirs = Place::new(row_of(&best), workload.as_str());
                let cache = if best.cached { "with" } else { "without" };
                text = text.say(format!(
                    ". The highest published figure, of {} with {} drives {cache} the write cache, is ",
                    best.level().name(),
                    best.drives
                ));
                text = text.cell(&theirs).say("; the ratio is ").ratio_shown(&ours, &theirs);
            }
            lines.push(text.say("."));
        }
    }
    page.list(lines);
}

fn method(page: &mut Document) {
    page.section("Tool, workloads and method");
    page.paragraph(
        "Workloads are Iometer's as published: OLTP is 67 % reads at random places; the file server is 80 % reads of 0.5 to 64 KiB, the \
         static web server reads of 0.5 to 512 KiB; accesses begin at multiples of their size. A closed loop keeps accesses outstanding; \
         the search multiplies their number until the mean response is beyond 20 ms, then closes in by Little's law. ± is half of the \
         95 % confidence interval from the rounds around the answer.",
    );
    page.paragraph(
        "This target is one row. The laboratory does not know its drives, its RAID level, its caches and the share of its drives that is in \
         use. So tables 2 and 6 and the charts over numbers of drives have no counterpart here.",
    );
    page::clock(page);
}

fn table(
    recorded: &Recorded,
    number: usize,
    (first, second, title): (&str, &str, &str),
    against: bool,
) -> Option<Table> {
    let names: Vec<String> =
        workloads(&[first, second]).into_iter().filter(|name| value(recorded, name).is_some()).collect();
    names.first()?;
    let unit = if number == 1 { "MiB/s" } else { "accesses/s" };
    let caption = format!("{first} and {second}. {title}, {unit} at a mean response of 20 ms");
    let mut table = Table::new(caption).left("level", "").right("drives", "drives").left("cache", "cache");
    for name in &names {
        table = table.right(name, &words(name));
    }
    let mut here = vec![Entry::text("this target").strong(), Entry::absent(), Entry::absent()];
    here.extend(names.iter().map(|name| entry(recorded, name).strong()));
    table.row(row_here(number), here);
    let mut margins = vec![Entry::text("±").faint(), Entry::absent(), Entry::absent()];
    margins.extend(names.iter().map(|name| {
        let search = found(recorded, name).and_then(|cell| cell.search.as_ref());
        let share = search.and_then(|search| Some(search.margin? / search.rate.max(1e-9) * 100.0));
        share.map_or(Entry::absent(), |share| Entry::said(share, format!("{share:.1} %")).faint())
    }));
    table.row(format!("margin-{number}"), margins);
    if against {
        published_rows(&mut table, &[first, second], &names);
    }
    Some(table)
}

fn published_rows(table: &mut Table, tables: &[&str], names: &[String]) {
    let printed: Vec<Printed> =
        ds4500_tables().into_iter().filter(|printed| tables.contains(&printed.table.as_str())).collect();
    let mut rows: Vec<&Printed> = Vec::new();
    for one in &printed {
        if !rows.iter().any(|row| row_of(row) == row_of(one)) {
            rows.push(one);
        }
    }
    for row in rows {
        let mut entries = vec![
            Entry::text(format!("DS4500, {}", row.level().name())),
            Entry::said(row.drives as f64, row.drives.to_string()),
            Entry::text(if row.cached { "on" } else { "off" }),
        ];
        entries.extend(names.iter().map(|name| {
            let cell = printed.iter().find(|one| row_of(one) == row_of(row) && one.workload_name() == *name);
            page::printed(cell.and_then(value_of))
        }));
        table.row(row_of(row), entries);
    }
}

/// Accesses of one size; the mixed ones have another unit.
fn bars(recorded: &Recorded, against: bool) -> Chart {
    let names: Vec<String> =
        workloads(&["Table 1", "Table 4"]).into_iter().filter(|name| value(recorded, name).is_some()).collect();
    let ours = names.iter().map(|name| value(recorded, name)).collect();
    let theirs = names.iter().map(|name| value_of(&most(name)?));
    let theirs = against.then(|| ("the most of the DS4500 as published", theirs.collect()));
    let groups = names.iter().map(|name| words(name)).collect();
    page::bars(("Rates at a mean response of 20 ms", "accesses/s"), groups, ("this target", ours), theirs)
}

fn odd(recorded: &Recorded) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for cell in &recorded.cells {
        let remark = remark(cell);
        if !remark.is_empty() {
            lines.push(format!("{}: {remark}.", cell.name));
        }
    }
    let printed = ds4500_tables();
    let ours = printed.iter().filter(|one| one.drives == 20 && !one.cached && one.level().number() == 5);
    let ours: Vec<Printed> = ours
        .filter_map(|one| {
            let value = value(recorded, &one.workload_name())?;
            let is_mixed = one.size.is_none();
            let search = found(recorded, &one.workload_name())?.search.as_ref()?;
            let margin = Estimate::of_search(search).relative_margin() * value;
            let (rate, throughput) = ((!is_mixed).then_some(value), is_mixed.then_some(value));
            Some(Printed { rate, throughput, margin, ..one.clone() })
        })
        .collect();
    for odd in oddities::of_tables(&ours) {
        lines.push(format!("{}: {}.", odd.place.split(',').nth(1).unwrap_or_default().trim(), odd.why));
    }
    lines
}

fn limits(page: &mut Document, unmeasured: Option<String>) {
    page.section("Limits");
    let always = [
        "One target was measured, as it is: the laboratory does not know what bounds it.",
        "A target that answers from memory never comes to 20 ms. Its figure is then that of the most accesses that were outstanding, and \
         “What is odd” says so.",
        "The published machine is of 2004, its drives of 18.2 GB at 15,000 rpm: a ratio compares two whole systems, not their parts.",
        "The published charts are lost: only the figures that the text states are known.",
    ];
    page.list(unmeasured.into_iter().chain(always.map(str::to_owned)));
}

#[cfg(test)]
mod tests;
