//! The report of the recipe: each test's steady state window, its tables and its charts.

use super::{OUTSTANDING, ROUNDS, ROUNDS_MAX, SATURATED, TESTS, Test, WRITTEN, counted, found, tracked};
use crate::recipe::page::{self, Order};
use stele_ground::Bytes;
use stele_lab::error::LabError;
use stele_lab::histogram::Histogram;
use stele_lab::record::{CellRecord, Recorded, RunRecord};
use stele_lab::report::chart::{Axis, Chart, Series};
use stele_lab::report::document::{Document, Entry, Place, Table, Text};
use stele_lab::steady;

/// Number of points in the write saturation's charts.
const POINTS: usize = 400;

pub fn document(order: Order<'_>) -> Result<Document, LabError> {
    let Order { recorded, part, against, .. } = order;
    if against {
        return Err(LabError::Usage("recipe 'snia-pts': no figures were published for it; leave out --against".into()));
    }
    let quick = part.quick;
    let mut page = order.begin(format!("Solid state storage performance test: {}", recorded.head.target), "");
    summary(&mut page, recorded, quick);
    let shorter = page::shorter(recorded, "a cell", 60.0, "a minute");
    page::lacks(&mut page, recorded, &left_out(quick).into_iter().chain(shorter).collect::<Vec<_>>());
    method(&mut page, recorded);
    page::environment(&mut page, recorded);
    saturation(&mut page, recorded);
    for test in &TESTS {
        section(&mut page, recorded, test, quick);
    }
    page::odd(&mut page, page::remarks(recorded), &[]);
    limits(&mut page);
    conclusion(&mut page, recorded);
    page::again(&mut page, order, "");
    Ok(page)
}

fn left_out(quick: bool) -> Vec<String> {
    match quick {
        false => Vec::new(),
        true => vec![
            "most mixes of reads and writes, and most sizes".to_owned(),
            "rounds beyond the fifth, where those do not keep the rule".to_owned(),
            "a long write saturation: it ran for five times the time of a cell".to_owned(),
        ],
    }
}

fn unit(test: &Test) -> &'static str {
    match test.name {
        "iops" => "accesses a second",
        "throughput" => "MB/s",
        _ => "mean response, ms",
    }
}

/// The window's mean; `None` if rounds are missing.
fn mean(values: &[f64]) -> Option<f64> {
    (values.len() == ROUNDS as usize).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// The tracked figures of the rounds that count.
fn window_of(recorded: &Recorded, test: &Test) -> Vec<f64> {
    let all = tracked(&recorded.cells, test);
    counted(&recorded.cells, test).filter_map(|round| all.get(round as usize - 1).copied()).collect()
}

fn summary(page: &mut Document, recorded: &Recorded, quick: bool) {
    page.section("Summary");
    let mut lines: Vec<Text> = Vec::new();
    for test in &TESTS {
        let window = window_of(recorded, test);
        if mean(&window).is_none() {
            lines.push(Text::from(format!("{}: not all of its rounds were measured.", test.title)));
            continue;
        }
        let state = if steady::keeps_rule(&window) { "in a steady state" } else { "without a steady state" };
        for read in test.reads(quick) {
            let (_, size) = test.tracked;
            let at = Place::new(row_of(test, size), column_of(*read));
            let kind = format!("{}, {read} % read, {}", test.title, Bytes(size));
            lines.push(
                Text::from(format!("{kind}: ")).cell_as(&at, &format!(" {}", unit(test))).say(format!(", {state}.")),
            );
        }
    }
    page.list(lines);
}

fn method(page: &mut Document, recorded: &Recorded) {
    page.section("Method, and where it departs from the specification");
    page.paragraph(format!(
        "As in the SNIA's Solid State Storage Performance Test Specification, the tests measure mixes of reads and writes over sizes of \
         accesses, round by round, with {OUTSTANDING} accesses outstanding (one, for latencies). A test is steady where over a window of \
         {ROUNDS} rounds the range of its tracked figure is at most 20 % of the mean, and its rise at most 10 %."
    ));
    page.list([
        format!("Purge: {}. An erasure by the drive itself (nvme format) has to be made by hand before the command.", purged(recorded)),
        format!(
            "Before each test the whole used space is written {WRITTEN} times in order, in accesses of 128 KiB. Before random tests it is then \
             written at random places, until the rates of five rounds keep the rule or 25 rounds are over. Then come rounds of all cells of the \
             test, until {ROUNDS} in a row keep the rule, {ROUNDS_MAX} at most. Figures are of those {ROUNDS} rounds, or of the last ones where \
             none keep the rule."
        ),
        "The write saturation is measured first. It lasts half an hour at least and six hours at most, and ends as soon as the rates of \
         all its rounds are of one state."
            .to_owned(),
    ]);
    let done = recorded.cells.iter().filter_map(|cell| Some((cell, cell.precondition.as_ref()?)));
    let mut table = Table::new("Written before each test")
        .left("test", "test")
        .right("ordered", "in order")
        .right("random", "at random places")
        .left("steady", "");
    for (cell, done) in done {
        let steady = match done.steady {
            Some(true) => "became steady",
            Some(false) => "did not become steady",
            None => "",
        };
        table.row(
            format!("written {}", cell.number),
            vec![
                Entry::text(cell.axis("test").unwrap_or_default()),
                Entry::text(Bytes(done.ordered_bytes).to_string()),
                Entry::text(Bytes(done.random_bytes).to_string()),
                Entry::text(steady),
            ],
        );
    }
    page.table(table);
    page::clock(page);
}

/// What became of the purge, from the record.
fn purged(recorded: &Recorded) -> &str {
    let known = recorded.head.environment.iter().find(|(name, _)| name == "purge");
    known.map_or("nothing was purged", |(_, said)| said)
}

fn saturation(page: &mut Document, recorded: &Recorded) {
    let cell = recorded.cells.iter().find(|cell| cell.axis("test") == Some(SATURATED));
    let Some(run) = cell.and_then(|cell: &CellRecord| cell.runs.last()) else { return };
    page.section("Write saturation");
    page.paragraph(format!(
        "Random writes of 4 KiB, {OUTSTANDING} outstanding, over the whole used space, from the state in which the purge left the target."
    ));
    let every = run.rounds.len().div_ceil(POINTS).max(1);
    let mut points: Vec<(f64, f64, f64)> = Vec::new();
    let mut at = 0.0;
    for rounds in run.rounds.chunks(every) {
        let some = RunRecord { rounds: rounds.to_vec(), ..run.clone() };
        at += rounds.iter().map(|round| round.seconds).sum::<f64>();
        let total = some.total();
        points.push((at, total.rate, total.response.mean().0 as f64 / 1e6));
    }
    let line = |of: fn(&(f64, f64, f64)) -> f64| {
        let points = points.iter().map(|point| (point.0, of(point))).collect();
        vec![Series { name: "random writes of 4 KiB".into(), points, marked: false }]
    };
    let across = || Axis::linear("seconds");
    page.chart(Chart::lines(
        "Write saturation: rate",
        across(),
        Axis::linear("accesses a second"),
        line(|point| point.1),
    ));
    page.chart(Chart::lines(
        "Write saturation: mean response",
        across(),
        Axis::logarithmic("ms"),
        line(|point| point.2),
    ));
}

fn section(page: &mut Document, recorded: &Recorded, test: &Test, quick: bool) {
    if !recorded.cells.iter().any(|cell| cell.axis("test") == Some(test.name)) {
        return;
    }
    page.section(test.title);
    page.table(means(recorded, test, quick));
    if test.name == "latency" {
        page.table(longest(recorded, quick));
    }
    page.chart(over_sizes(recorded, test, quick));
    page.part("Steady state");
    let rounds = tracked(&recorded.cells, test);
    page.chart(all_rounds(test, &rounds));
    let window = window_of(recorded, test);
    let (first, last) = counted(&recorded.cells, test).into_inner();
    page.paragraph(match steady::keeps_rule(&window) && window.len() == ROUNDS as usize {
        true => format!("Of {} rounds, rounds {first} to {last} keep the rule.", rounds.len()),
        false => format!("Of {} rounds, no {ROUNDS} in a row keep the rule: the last ones are shown.", rounds.len()),
    });
    page.chart(window_chart(test, &window));
    page.chart(convergence(recorded, test, quick));
    page.table(rule(test, &window));
}

fn row_of(test: &Test, size: u64) -> String {
    format!("{} {size}", test.name)
}

fn column_of(read: u8) -> String {
    format!("read-{read}")
}

/// The cells of the window, all rounds of one mix and size.
fn rounds<'a>(recorded: &'a Recorded, test: &Test, read: u8, size: u64) -> Vec<&'a RunRecord> {
    let counted = counted(&recorded.cells, test);
    counted.filter_map(|round| found(&recorded.cells, test, round, read, size)?.runs.last()).collect()
}

/// The tracked figure over all rounds of the test, where they are more than a window has.
fn all_rounds(test: &Test, rounds: &[f64]) -> Chart {
    let points = rounds.iter().enumerate().map(|(number, value)| (number as f64 + 1.0, *value));
    let points = if rounds.len() > ROUNDS as usize { points.collect() } else { Vec::new() };
    let series = vec![Series { name: "tracked".into(), points, marked: true }];
    let title = format!("{}: the tracked figure over all rounds", test.title);
    Chart::lines(title, Axis::linear("round"), Axis::linear(unit(test)), series)
}

fn means(recorded: &Recorded, test: &Test, quick: bool) -> Table {
    let caption = format!("{}: {}, the mean over {ROUNDS} rounds", test.title, unit(test));
    let mut table = Table::new(caption).right("size", "access");
    for read in test.reads(quick) {
        table = table.right(&column_of(*read), &format!("{read} % read"));
    }
    for size in test.sizes(quick) {
        let mut row = vec![Entry::text(Bytes(*size).to_string())];
        for read in test.reads(quick) {
            let values: Vec<f64> =
                rounds(recorded, test, *read, *size).into_iter().map(|run| test.value(run)).collect();
            row.push(match mean(&values) {
                Some(mean) => Entry::number(mean).if_steady(steady::keeps_rule(&values)),
                None => Entry::absent(),
            });
        }
        table.row(row_of(test, *size), row);
    }
    table.remark = Some(Text::from("A figure in parentheses is of rounds that do not keep the rule."));
    table
}

/// Percentiles over all rounds together.
fn longest(recorded: &Recorded, quick: bool) -> Table {
    let [.., test] = &TESTS;
    let mut table = Table::new("Latency: percentiles over all rounds")
        .left("mix", "")
        .right("p50", "50 %")
        .right("p99", "99 %")
        .right("p999", "99.9 %")
        .right("p99999", "99.999 %")
        .right("longest", "longest");
    for size in test.sizes(quick) {
        for read in test.reads(quick) {
            let mut all = Histogram::default();
            rounds(recorded, test, *read, *size).into_iter().for_each(|run| all.merge(&run.total().response));
            if all.count() == 0 {
                continue;
            }
            let shares = [0.5, 0.99, 0.999, 0.99999].map(|share| Entry::span(all.percentile(share)));
            let mut row = vec![Entry::text(format!("{}, {read} % read", Bytes(*size)))];
            row.extend(shares.into_iter().chain([Entry::span(all.longest())]));
            table.row(format!("tail {size} {read}"), row);
        }
    }
    table
}

fn over_sizes(recorded: &Recorded, test: &Test, quick: bool) -> Chart {
    let sizes = test.sizes(quick);
    let marks = sizes.iter().map(|size| (*size as f64, Bytes(*size).to_string()));
    let series = test.reads(quick).iter().map(|read| {
        let point = |size: &u64| {
            let values: Vec<f64> =
                rounds(recorded, test, *read, *size).into_iter().map(|run| test.value(run)).collect();
            Some((*size as f64, mean(&values)?))
        };
        Series { name: format!("{read} % read"), points: sizes.iter().filter_map(point).collect(), marked: true }
    });
    let across = Axis::logarithmic("bytes of an access").marked(marks);
    let chart = Chart::lines(
        format!("{} over the size of an access", test.title),
        across,
        Axis::linear(unit(test)),
        series.collect(),
    );
    if sizes.len() > 1 { chart } else { Chart::lines("", Axis::default(), Axis::default(), Vec::new()) }
}

/// The tracked figure, with its allowed band and the line through it.
fn window_chart(test: &Test, window: &[f64]) -> Chart {
    let Some(mean) = mean(window) else { return Chart::lines("", Axis::default(), Axis::default(), Vec::new()) };
    let at = |number: usize| number as f64 + 1.0;
    let last = window.len() as f64;
    let flat =
        |name: &str, value: f64| Series { name: name.into(), points: vec![(1.0, value), (last, value)], marked: false };
    let (slope, middle) = (slope(window), (last + 1.0) / 2.0);
    let fitted = [1.0, last].map(|at| (at, mean + slope * (at - middle)));
    let points = window.iter().enumerate().map(|(number, value)| (at(number), *value)).collect();
    let series = vec![
        Series { name: "tracked".into(), points, marked: true },
        flat("mean", mean),
        Series { name: "line through them".into(), points: fitted.into(), marked: false },
        flat("110 % of the mean", mean * 1.1),
        flat("90 % of the mean", mean * 0.9),
    ];
    let (read, size) = test.tracked;
    let title = format!("{}: steady state window, {read} % read, {}", test.title, Bytes(size));
    let across = Axis::linear("round").marked((1..=ROUNDS).map(|round| (f64::from(round), round.to_string())));
    Chart::lines(title, across, Axis::linear(unit(test)), series)
}

/// Least squares over the numbers of the rounds.
fn slope(values: &[f64]) -> f64 {
    let middle = (values.len() as f64 - 1.0) / 2.0;
    let mean = values.iter().sum::<f64>() / values.len().max(1) as f64;
    let (over, under) = values.iter().enumerate().fold((0.0, 0.0), |(over, under), (at, value)| {
        let from = at as f64 - middle;
        (over + from * (value - mean), under + from * from)
    });
    if under > 0.0 { over / under } else { 0.0 }
}

/// All write sizes, round by round, relative to the first round.
fn convergence(recorded: &Recorded, test: &Test, quick: bool) -> Chart {
    let (read, _) = test.tracked;
    let series = test.sizes(quick).iter().map(|size| {
        let values: Vec<f64> = rounds(recorded, test, read, *size).into_iter().map(|run| test.value(run)).collect();
        let first = values.first().copied().unwrap_or(1.0).max(1e-9);
        let points = values.iter().enumerate().map(|(number, value)| (number as f64 + 1.0, value / first));
        Series { name: Bytes(*size).to_string(), points: points.collect(), marked: true }
    });
    let across = Axis::linear("round").marked((1..=ROUNDS).map(|round| (f64::from(round), round.to_string())));
    let title = format!("{}: convergence of {read} % read, all sizes", test.title);
    Chart::lines(title, across, Axis::linear("times the first round"), series.collect())
}

fn rule(test: &Test, window: &[f64]) -> Table {
    let mut table =
        Table::new("The rule of the steady state").left("what", "").right("found", "found").right("most", "at most");
    let Some(mean) = mean(window) else { return table };
    let (least, most) =
        window.iter().fold((f64::MAX, f64::MIN), |(least, most), value| (least.min(*value), most.max(*value)));
    let share = |value: f64| Entry::said(value, format!("{:.1} %", value / mean * 100.0));
    let rise = slope(window).abs() * (window.len() as f64 - 1.0);
    for (what, found, most) in [("range over the mean", most - least, "20 %"), ("rise over the mean", rise, "10 %")] {
        let entries = vec![Entry::text(what), share(found), Entry::text(most)];
        table.row(format!("{} {what}", test.name), entries);
    }
    let kept = if steady::keeps_rule(window) { "kept" } else { "not kept" };
    table.row(format!("{} kept", test.name), vec![Entry::text("the rule is"), Entry::text(kept), Entry::text("")]);
    table
}

fn limits(page: &mut Document) {
    page.section("Limits");
    page.list([
        "Flash may take longer than the write saturation to come to its lasting state. The specification also ends that test after four \
         times the capacity was written."
            .to_owned(),
        "A drive that gets warm slows itself down. The environment has its temperature from before the tests, where the system knows it."
            .to_owned(),
        "A file shares its device with others, and its file system has costs of its own: the tests are meant for whole devices.".to_owned(),
    ]);
}

fn conclusion(page: &mut Document, recorded: &Recorded) {
    let steady: Vec<&str> =
        TESTS.iter().filter(|test| super::window(&recorded.cells, test).is_some()).map(|test| test.title).collect();
    let says = match steady.len() {
        0 => "No test came to a steady state: the figures are those of a device on its way to one.".to_owned(),
        all if all == TESTS.len() => {
            "All three tests came to a steady state: their figures are those of lasting use.".to_owned()
        }
        _ => format!(
            "These tests came to a steady state, and their figures are those of lasting use: {}.",
            steady.join(", ")
        ),
    };
    page::conclusion(
        page,
        recorded,
        says,
        "Rates at the beginning of the write saturation are those of a device that is new or nearly empty: do not quote them as lasting.",
    );
}
