//! The paper of the recipe: both tables, with the results beside the printed figures.

use super::{found, rows};
use crate::published::{self, Cached, Duplex};
use crate::recipe::page::{self, Order, rate};
use crate::recipe::set_up;
use stele_ground::Bytes;
use stele_lab::error::LabError;
use stele_lab::record::{CellRecord, Recorded, RunRecord};
use stele_lab::report::chart::{Axis, Chart, Series, figure};
use stele_lab::report::document::{Document, Entry, Place, Table, Text};

const SOURCE: &str = "IBM's “Enabling 8Gbps Fibre Channel End-to-End Performance” (2009)";

/// A measured row of Table 1.
struct Small<'a> {
    printed: Cached,
    run: &'a RunRecord,
}

/// A measured row of Table 2.
struct Streams<'a> {
    printed: Duplex,
    run: &'a RunRecord,
}

pub fn document(order: Order<'_>) -> Result<Document, LabError> {
    let Order { recorded, against, .. } = order;
    let (small, streams) = (small(recorded), streams(recorded));
    let own = format!("Accesses at queue depths of 16 and 32, and both directions at once: {}", recorded.head.target);
    let mut page = order.begin(own, ", beside 8 Gbps Fibre Channel");
    summary(&mut page, recorded, &small, &streams, against);
    let shorter = page::shorter(recorded, "a cell", 10.0, "ten and more");
    page::lacks(&mut page, recorded, &Vec::from_iter(shorter));
    method(&mut page, against);
    page::environment(&mut page, recorded);
    if against {
        page.diagram(set_up::fc8());
    }
    page.section("Accesses a second");
    page.table(table_1(&small, against));
    page.chart(bars(&small, against));
    page.chart(over_size(&small, against));
    page.section("Both directions at once");
    page.table(table_2(&streams, against));
    page::odd(&mut page, odd(recorded, &small), if against { &["Fibre Channel"] } else { &[] });
    limits(&mut page, recorded);
    conclusion(&mut page, recorded, &small);
    page::again(&mut page, order, SOURCE);
    Ok(page)
}

/// The rows' runs, in the order of the tables.
fn runs(recorded: &Recorded) -> impl Iterator<Item = Option<&RunRecord>> {
    rows().into_iter().map(|row| found(recorded, &row).and_then(|cell: &CellRecord| cell.runs.last()))
}

fn small(recorded: &Recorded) -> Vec<Small<'_>> {
    let pairs = published::cached().into_iter().zip(runs(recorded));
    pairs.filter_map(|(printed, run)| Some(Small { printed, run: run? })).collect()
}

fn streams(recorded: &Recorded) -> Vec<Streams<'_>> {
    let pairs = published::duplex().into_iter().zip(runs(recorded).skip(published::cached().len()));
    pairs.filter_map(|(printed, run)| Some(Streams { printed, run: run? })).collect()
}

/// Millions of bytes a second, read and written.
fn directions(run: &RunRecord) -> (f64, f64) {
    let sum = |of: fn(&stele_lab::record::RoundRecord) -> f64| run.mean(of) / 1e6;
    (sum(|round| round.read_bytes), sum(|round| round.written_bytes))
}

fn row_1(printed: &Cached) -> String {
    format!("small-{}-{}-{}", printed.read, printed.depth, printed.size)
}

fn row_2(printed: &Duplex) -> String {
    format!("duplex-{}", printed.depth)
}

fn name_of(printed: &Cached) -> String {
    format!("{}, {}", printed.name, Bytes(printed.size))
}

fn summary(page: &mut Document, recorded: &Recorded, small: &[Small<'_>], streams: &[Streams<'_>], against: bool) {
    page.section("Summary");
    page.paragraph(format!(
        "{} had the load of the published measurement, which drove two storage arrays behind one port of 8 Gbit/s: small accesses, 16 or \
         32 of them outstanding, and accesses of 256 KiB in both directions at once.",
        recorded.head.target
    ));
    let mut lines: Vec<Text> = Vec::new();
    let mut line = |name: String, row: String, column: &str, unit: &str| {
        let ours = Place::new(row.as_str(), column);
        let mut text = Text::from(format!("{name}: ")).cell_as(&ours, unit);
        if against {
            let theirs = Place::new(row.as_str(), "published");
            text = text.say(". Published: ").cell(&theirs).say("; the ratio is ").ratio_shown(&ours, &theirs);
        }
        lines.push(text.say("."));
    };
    for Small { printed, .. } in small {
        line(format!("{}, depth {}", name_of(printed), printed.depth), row_1(printed), "rate", " accesses a second");
    }
    for Streams { printed, .. } in streams {
        let name = format!("{} both ways, depth {}", Bytes(printed.size), printed.depth);
        line(name, row_2(printed), "both", " MB/s");
    }
    page.list(lines);
}

fn method(page: &mut Document, against: bool) {
    page.section("Tool, workloads and method");
    page.paragraph(
        "The published tool is Iometer. A closed loop keeps as many accesses outstanding as the row's queue depth says, over all threads of \
         the generator together. The published paper does not state whether its depth counts for a worker, a drive or all together. Accesses \
         begin at random places, at multiples of their size. Where both directions are busy at once, half of the accesses are reads: the \
         published share is not stated, but the published throughputs are nearly equal.",
    );
    page.paragraph(
        "The caches of four controllers answered every published access. Whether the caches of this target did follows from their size and \
         from the bytes in use, which stand below.",
    );
    page::clock(page);
    if against {
        page::unit(page);
    }
}

fn table_1(small: &[Small<'_>], against: bool) -> Table {
    let mut table = Table::new("Table 1. Accesses a second")
        .left("workload", "workload")
        .right("depth", "depth")
        .right("size", "access")
        .right("rate", "accesses/s");
    if against {
        table = table.right("published", "published").right("ratio", "here / published");
    }
    table = table.right("mean", "mean response").right("p99", "99 %").right("bytes", "MB/s");
    for Small { printed, run } in small {
        let ours = rate(run);
        let response = run.total().response;
        let mut row = vec![
            Entry::text(printed.name.as_str()),
            Entry::said(f64::from(printed.depth), printed.depth.to_string()),
            Entry::text(Bytes(printed.size).to_string()),
            page::measured(run, ours).strong(),
        ];
        if against {
            row.extend([page::printed(Some(printed.rate)), page::times(ours, Some(printed.rate))]);
        }
        row.extend([
            Entry::span(response.mean()).if_any(response.count()),
            Entry::span(response.percentile(0.99)).if_any(response.count()),
            Entry::number(page::megabytes(run)),
        ]);
        table.row(row_1(printed), row);
    }
    table
}

fn table_2(streams: &[Streams<'_>], against: bool) -> Table {
    let mut table = Table::new("Table 2. Both directions at once, MB/s")
        .right("depth", "depth")
        .right("size", "access")
        .right("read", "read")
        .right("written", "written")
        .right("both", "both");
    if against {
        table = table
            .right("published-read", "published: read")
            .right("published-written", "written")
            .right("published", "both")
            .right("ratio", "here / published");
    }
    table = table.right("mean", "mean response");
    for Streams { printed, run } in streams {
        let (read, written) = directions(run);
        let mut row = vec![
            Entry::said(f64::from(printed.depth), printed.depth.to_string()),
            Entry::text(Bytes(printed.size).to_string()),
            Entry::number(read),
            Entry::number(written),
            page::measured(run, read + written).strong(),
        ];
        if against {
            row.extend([printed.read, printed.written, printed.both].map(|value| page::printed(Some(value))));
            row.push(page::times(read + written, Some(printed.both)));
        }
        row.push(Entry::span(run.total().response.mean()));
        table.row(row_2(printed), row);
    }
    if against {
        table.remark = Some(Text::from(
            "One direction of a link of 8 Gbit/s carries about 800 million bytes a second. The laboratory does not know the links to this \
             target.",
        ));
    }
    table
}

fn bars(small: &[Small<'_>], against: bool) -> Chart {
    let ours = small.iter().map(|row| Some(rate(row.run))).collect();
    let theirs = against.then(|| ("as published", small.iter().map(|row| Some(row.printed.rate)).collect()));
    let groups = small.iter().map(|row| name_of(&row.printed)).collect();
    page::bars(("The rows of Table 1", "accesses/s"), groups, ("measured here", ours), theirs)
}

fn over_size(small: &[Small<'_>], against: bool) -> Chart {
    let mixed = || small.iter().filter(|row| row.printed.read == 50);
    let series = |name: &str, of: fn(&Small<'_>) -> f64| Series {
        name: name.into(),
        points: mixed().map(|row| (row.printed.size as f64, of(row))).collect(),
        marked: true,
    };
    let mut all = vec![series("measured here", |row| rate(row.run))];
    if against {
        all.push(series("as published", |row| row.printed.rate));
    }
    let marks = mixed().map(|row| (row.printed.size as f64, Bytes(row.printed.size).to_string()));
    let across = Axis::logarithmic("bytes of an access").marked(marks.collect::<Vec<_>>());
    Chart::lines("Half reads, depth 32: accesses/s over the size of an access", across, Axis::linear("accesses/s"), all)
}

fn odd(recorded: &Recorded, small: &[Small<'_>]) -> Vec<String> {
    let mut lines = page::remarks(recorded);
    let mixed: Vec<&Small<'_>> = small.iter().filter(|row| row.printed.read == 50).collect();
    for pair in mixed.windows(2) {
        let [before, after] = pair else { continue };
        let (less, more) = (page::rate_estimated(before.run), page::rate_estimated(after.run));
        if less.is_below(more) {
            lines.push(format!(
                "Half reads: {} accesses a second of {} and {} of {}: the longer ones are faster.",
                figure(less.value),
                Bytes(before.printed.size),
                figure(more.value),
                Bytes(after.printed.size)
            ));
        }
    }
    lines
}

fn conclusion(page: &mut Document, recorded: &Recorded, small: &[Small<'_>]) {
    let best = small.iter().max_by(|left, right| rate(left.run).total_cmp(&rate(right.run)));
    let says = match best {
        Some(best) => Text::from(format!("The highest rate is that of {}: ", name_of(&best.printed)))
            .cell_as(&Place::new(row_1(&best.printed), "rate"), " accesses a second")
            .say("."),
        None => Text::from("Small accesses were not measured."),
    };
    let says_not =
        "The figures are those of one target with its caches: they say nothing of drives, and compare no parts.";
    page::conclusion(page, recorded, says, says_not);
}

fn limits(page: &mut Document, recorded: &Recorded) {
    page.section("Limits");
    let always = [
        "The published machine is a server of 2009 with one port, a switch, and two arrays with four controllers: a ratio compares two \
         whole systems, not their parts.",
        "Where generator and target share a machine, they share its processors: the generator's share is not subtracted.",
        "As long as caches answer, nothing here depends on drives. With more bytes in use than the caches hold, the figures do.",
    ];
    page.list(page::unmeasured(recorded, rows().len()).into_iter().chain(always.map(str::to_owned)));
}
