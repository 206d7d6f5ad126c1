//! What was measured as a report. `document` says what a report holds, `charts` what it draws,
//! `html` makes a page of it.

use std::collections::BTreeSet;

use stele_ground::{Bytes, Duration, are, calendar, counted};

use crate::ab_test::{self, Judged};
use crate::baseline;
use crate::environment;
use crate::error::LabError;
use crate::estimate::Estimate;
use crate::histogram::Histogram;
use crate::job::Given;
use crate::objective::{ObjectiveRecord, said};
use crate::precondition::PreconditionRecord;
use crate::record::{CellRecord, Recorded, RunRecord, Total};
use crate::search::Statistic;
use crate::sweep;
use chart::{Axis, Bars, Chart, figure};
use charts::{ChartKind, KINDS, Runs, curves};
use document::{Document, Entry, Place, Table, Text};

pub mod chart;
pub mod charts;
pub mod diagram;
pub mod document;
pub mod html;
pub mod metrics;
pub mod set_up;

/// The run that stands for a cell: of a search, the probe nearest to the answer.
pub fn chosen(cell: &CellRecord) -> Option<&RunRecord> {
    let Some(search) = &cell.search else { return cell.runs.last() };
    if search.rate_asked.is_some() {
        return cell.runs.iter().rev().find(|run| run.rate_asked == search.rate_asked);
    }
    let near = |run: &&RunRecord| (f64::from(run.outstanding.unwrap_or(0)) - search.outstanding).abs();
    cell.runs.iter().min_by(|left, right| near(left).total_cmp(&near(right)))
}

/// The figures stand by themselves: steady, whole, and of the target instead of the generator.
pub fn is_sound(cell: &CellRecord) -> bool {
    let is_void = chosen(cell).is_some_and(|run| sweep::void(run.lag_share).is_some());
    let is_whole = cell.failed.is_none() && cell.hosts.iter().all(|host| host.failed.is_none());
    cell.is_steady() && is_whole && !is_void && !cell.is_damaged()
}

/// The report of a file. `title` may be none; then the target gives it its name.
pub fn report(recorded: &Recorded, title: Option<&str>) -> Document {
    let head = &recorded.head;
    let is_modelled = head.job.modelled.is_some();
    let sustains = if is_modelled { "sustain" } else { "sustains" };
    let title = title.map_or_else(|| format!("What {} {sustains}", head.target), str::to_owned);
    let mut document = Document::new(title, format!("{}, by {}", day(head.begun), head.program));
    summary(recorded, &mut document);
    if let Some(judged) = ab_test::of(recorded) {
        comparison(recorded, &judged, &mut document);
    }
    // Bars of many cells are a forest; one cell's are none.
    let few = (2..=24).contains(&recorded.cells.len());
    // The runs of a comparison are no curve.
    let kinds = if head.against.is_some() { &[] } else { KINDS };
    for (_, kind, _) in kinds {
        if few || !matches!(kind, ChartKind::Bars | ChartKind::Multipliers) {
            document.chart(kind.of(recorded));
        }
    }
    document.section("Results");
    document.table(results(recorded));
    anomalies(recorded, &mut document);
    conclusion(recorded, &mut document);
    method(recorded, &mut document);
    document
}

/// As an HTML page.
pub fn html(recorded: &Recorded, title: Option<&str>) -> Result<String, LabError> {
    html::page(&report(recorded, title))
}

/// The day on which a result began. In virtual time there is none.
pub fn day(begun: u64) -> String {
    if begun == 0 { "in virtual time".to_owned() } else { calendar::date(begun) }
}

/// The place of a cell's figure in the table of results.
fn place(cell: &CellRecord, column: &str) -> Place {
    Place::new(format!("cell {}", cell.number), column)
}

fn summary(recorded: &Recorded, document: &mut Document) {
    let head = &recorded.head;
    document.section("Summary");
    // Modelled arrays say their parts, and no bytes.
    let used = match head.target_bytes {
        0 => String::new(),
        bytes => format!("; {} of it were in use", Bytes(bytes)),
    };
    let what = if head.job.modelled.is_some() { "targets were" } else { "target was" };
    document.paragraph(format!("The {what} {} ({}){used}.", head.target, head.reached));
    if head.against.is_some() {
        return;
    }
    let sound = || recorded.cells.iter().filter(|cell| is_sound(cell));
    let measured = || sound().filter_map(|cell| Some((cell, chosen(cell)?.total())));
    let short = recorded.cells.len() - sound().count();
    if short > 0 {
        let of = counted(recorded.cells.len() as u64, "cell");
        let left_out = match sound().next() {
            Some(_) => "are left out of the following sentences",
            None => "are not quoted here",
        };
        document.paragraph(format!(
            "{short} of {of} {} void, partial or not steady. Such figures hold for the measured time only, and {left_out}.",
            are(short as u64)
        ));
    }
    if recorded.cells.iter().any(|cell| cell.search.is_some()) {
        let quoted = recorded.cells.iter().filter(|cell| is_sound(cell) || keeps_none(cell));
        quoted.filter_map(search_said).for_each(|text| document.paragraph(text));
        return;
    }
    let most = measured().max_by(|left, right| left.1.rate.total_cmp(&right.1.rate));
    let prompt = measured().min_by_key(|(_, total)| total.response.mean());
    if let Some((cell, _)) = most {
        document.paragraph(
            Text::from("The highest rate was ")
                .cell_as(&place(cell, "rate"), " accesses a second")
                .say(format!(", in the cell “{}”, with a mean response of ", cell.name))
                .cell(&place(cell, "mean"))
                .say(" and 99 % within ")
                .cell(&place(cell, "p99"))
                .say("."),
        );
    }
    if let Some((cell, _)) = prompt {
        document.paragraph(
            Text::from("The shortest mean response was ")
                .cell(&place(cell, "mean"))
                .say(format!(", in the cell “{}”, at ", cell.name))
                .cell_as(&place(cell, "rate"), " accesses a second")
                .say("."),
        );
    }
}

/// What a search found, as a sentence.
fn search_said(cell: &CellRecord) -> Option<Text> {
    let search = cell.search.as_ref()?;
    let response = Duration(search.response_ns);
    let within = match search.percentile {
        None => format!("a mean response of {response}"),
        Some(_) => format!("{} of the responses within {response}", said(Statistic::from(search.percentile))),
    };
    let open = search.open_end.as_ref().map_or(String::new(), |end| format!(" ({end})"));
    if keeps_none(cell) {
        return Some(Text::from(format!("{}: no rate has {within}{open}.", cell.name)));
    }
    let joined = if search.percentile.is_none() { "at" } else { "with" };
    let asked = if search.is_of_rates() { " asked for" } else { "" };
    Some(
        Text::from(format!("{}: ", cell.name))
            .cell_as(&place(cell, "rate"), " accesses a second")
            .say(format!(" {joined} {within}, with "))
            .cell(&place(cell, "load"))
            .say(format!("{asked}{open}.")),
    )
}

/// No rate kept the objective of its search.
fn keeps_none(cell: &CellRecord) -> bool {
    cell.search.as_ref().is_some_and(|search| search.is_of_rates() && search.rate_asked.is_none())
}

/// The load of a cell; of a search that of its answer.
fn load_said(cell: &CellRecord, run: &RunRecord) -> Entry {
    let Some(search) = &cell.search else { return Entry::text(run.load()) };
    match search.rate_asked {
        Some(asked) => Entry::text(format!("{} a second", figure(asked))),
        None if keeps_none(cell) => Entry::absent(),
        None => Entry::text(format!("{} outstanding", figure(search.outstanding))),
    }
}

fn comparison(recorded: &Recorded, judged: &[Judged], document: &mut Document) {
    let against = recorded.head.against.as_deref().unwrap_or_default();
    document.section("Comparison");
    let mut table = Table::new(format!("A is {}, B is {against}; ratios are B over A", recorded.head.target))
        .left("cell", "cell")
        .right("a", "A, accesses/s")
        .right("b", "B, accesses/s")
        .right("ratio", "ratio")
        .right("interval", "95 %")
        .right("response", "ratio of responses")
        .right("apart", "95 %")
        .right("blocks", "blocks");
    let interval = |ratio: &ab_test::Ratio| Entry::text(ratio.interval.map_or("none".into(), baseline::bounds));
    for (number, cell) in judged.iter().enumerate() {
        let row = format!("compared {number}");
        let of = |column: &str| Place::new(row.as_str(), column);
        let text = Text::from(format!("{}: B's rate is ", cell.name))
            .cell_as(&of("ratio"), " times A's")
            .say(" (95 %: ")
            .cell(&of("interval"))
            .say(if cell.rate.differs() { ")." } else { "): no difference shown." });
        document.paragraph(text);
        table.row(
            row,
            vec![
                Entry::text(cell.name.as_str()),
                Entry::number(cell.rates.0),
                Entry::number(cell.rates.1),
                Entry::said(cell.rate.ratio, format!("{:.3}", cell.rate.ratio)),
                interval(&cell.rate),
                Entry::said(cell.response.ratio, format!("{:.3}", cell.response.ratio)),
                interval(&cell.response),
                Entry::said(cell.blocks as f64, cell.blocks.to_string()),
            ],
        );
    }
    table.remark = Some(Text::from(
        "Runs are made in blocks of ABBA or BAAB, drawn by the seed; the interval is of the mean of the logarithms of the blocks' \
         ratios, by Student's t. Where it spans 1, no difference is shown. The figures of A and B are geometric means of their \
         runs, whose ratio is that of the blocks.",
    ));
    document.table(table);
    let bars = [("A", 0), ("B", 1)].map(|(name, side)| Bars {
        name: name.into(),
        values: judged.iter().map(|cell| Some(if side == 0 { cell.rates.0 } else { cell.rates.1 })).collect(),
    });
    let groups = judged.iter().map(|cell| cell.name.clone()).collect();
    document.chart(Chart::bars("Rates of both", Axis::linear("accesses a second"), groups, bars.into()));
}

fn results(recorded: &Recorded) -> Table {
    let mut table = Table::new("").left("cell", "cell");
    for (name, title) in [
        ("load", "load"),
        ("rate", "accesses/s"),
        ("bytes", "MB/s"),
        ("mean", "mean"),
        ("p50", "50 %"),
        ("p99", "99 %"),
        ("p999", "99.9 %"),
        ("longest", "longest"),
        ("cpu", "CPU, us"),
    ] {
        table = table.right(name, title);
    }
    table = table.left("remark", "");
    for cell in &recorded.cells {
        let Some(run) = chosen(cell) else { continue };
        let total = run.total();
        let response = &total.response;
        let rate = match &cell.search {
            Some(search) => {
                let margin = search.margin().map_or(String::new(), |margin| format!(" ± {}", figure(margin)));
                Entry::said(search.rate, rate_said(cell, format!("{}{margin}", figure(search.rate))))
            }
            None => Entry::said(total.rate, rate_said(cell, figure(total.rate))),
        };
        table.row(
            place(cell, "").row,
            vec![
                Entry::text(called(cell)),
                load_said(cell, run),
                rate,
                if cell.names { Entry::absent() } else { Entry::number(bytes_of(cell, &total) / 1e6) },
                Entry::span(response.mean()).if_any(response.count()),
                Entry::span(response.percentile(0.5)).if_any(response.count()),
                Entry::span(response.percentile(0.99)).if_any(response.count()),
                Entry::span(response.percentile(0.999)).if_any(response.count()),
                Entry::span(response.longest()).if_any(response.count()),
                // It is not known of modelled arrays, nor of all tenants but the first.
                if total.cpu_own > 0.0 { Entry::number(total.cpu_own) } else { Entry::absent() },
                Entry::text(remark(cell)).faint(),
            ],
        );
        for side in sides(cell, run) {
            let response = &side.response;
            table.row(
                place(cell, side.name).row + " " + side.name,
                vec![
                    Entry::text(format!("{}, {}", cell.name, side.name)).faint(),
                    Entry::text(""),
                    Entry::number(side.rate),
                    if cell.names { Entry::absent() } else { Entry::number(side.bytes / 1e6) },
                    Entry::span(response.mean()).if_any(response.count()),
                    Entry::span(response.percentile(0.5)).if_any(response.count()),
                    Entry::span(response.percentile(0.99)).if_any(response.count()),
                    Entry::span(response.percentile(0.999)).if_any(response.count()),
                    Entry::span(response.longest()).if_any(response.count()),
                    Entry::absent(),
                    Entry::text(""),
                ],
            );
        }
    }
    table
}

/// Bytes a second at the rate that stands for a cell. The rate of a search lies between two probes,
/// so the bytes of the nearer one are those of another rate.
pub fn bytes_of(cell: &CellRecord, total: &Total) -> f64 {
    match &cell.search {
        Some(search) if total.rate > 0.0 => total.bytes * search.rate / total.rate,
        _ => total.bytes,
    }
}

/// A cell's name, and what its rate is of where that is no data.
pub fn called(cell: &CellRecord) -> String {
    if cell.names { format!("{} (names, no data)", cell.name) } else { cell.name.clone() }
}

/// One direction of a mixed load.
pub struct Side {
    pub name: &'static str,
    pub rate: f64,
    /// Bytes a second.
    pub bytes: f64,
    pub response: Histogram,
}

/// Reads and writes apart; empty where there are only the one or the other.
pub fn sides(cell: &CellRecord, run: &RunRecord) -> Vec<Side> {
    let total = run.total();
    if total.read.count() == 0 || total.write.count() == 0 {
        return Vec::new();
    }
    let all = total.response.count() as f64;
    let words = if cell.names { ["looks", "makes and removals"] } else { ["reads", "writes"] };
    let bytes = [run.mean(|round| round.read_bytes), run.mean(|round| round.written_bytes)];
    let side = |((name, response), bytes): ((&'static str, Histogram), f64)| Side {
        name,
        rate: total.rate * response.count() as f64 / all,
        bytes,
        response,
    };
    words.into_iter().zip([total.read.clone(), total.write.clone()]).zip(bytes).map(side).collect()
}

/// What was used, beside the memory that may hold it and the device that it lies on.
fn working_set(recorded: &Recorded) -> Table {
    let head = &recorded.head;
    let used = Bytes(head.target_bytes);
    let known = |name: &str| head.environment.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
    let memory = known("memory").and_then(environment::bytes);
    let beside = match memory {
        Some(memory) if used < memory => format!("{memory}: the working set fits into it"),
        Some(memory) => format!("{memory}: the working set is larger"),
        None => "not known".to_owned(),
    };
    let cache = match &head.reached {
        _ if matches!(head.job.buffered, Given::Many(_)) => "used or passed by, as the cells' axis says",
        reached if reached.contains("in memory") => "none: the target itself lies in memory",
        reached if reached.contains("past the page cache") => "passed by (O_DIRECT)",
        reached if reached.contains("through the page cache") && memory.is_some_and(|memory| used < memory) => {
            "used, and it can hold the working set: the figures are those of memory"
        }
        reached if reached.contains("through the page cache") => "used",
        _ => "not of this machine, or not used",
    };
    let device = known("device size").unwrap_or("not known");
    Table::of_pairs(
        "working-set",
        [
            ("working set", used.to_string().as_str()),
            ("page cache", cache),
            ("memory", &beside),
            ("device size", device),
            ("written before", &preconditioned(recorded)),
        ],
    )
}

/// What was done to the target before its cells were measured.
fn preconditioned(recorded: &Recorded) -> String {
    let Some(times) = &recorded.head.job.precondition else {
        return "nothing before each cell; a file that the laboratory made was filled once".to_owned();
    };
    let all = || recorded.cells.iter().filter_map(|cell| cell.precondition.as_ref());
    let sum = |of: fn(&PreconditionRecord) -> u64| Bytes(all().map(of).fold(0, u64::saturating_add));
    let (ordered, random) = (sum(|done| done.ordered_bytes), sum(|done| done.random_bytes));
    let before =
        format!("before each cell all of it {times} in order, in accesses of 128 KiB: {ordered} over all cells");
    match random.0 {
        0 => before,
        _ => format!("{before}; and before random writes at random places until that was steady: {random}"),
    }
}

/// A cell's rate as it is said: no bare number where the steady state was not reached.
pub fn rate_said(cell: &CellRecord, rate: String) -> String {
    if cell.is_steady() { rate } else { format!("not reached ({rate})") }
}

/// What has to be known of a cell beside its figures.
pub fn remark(cell: &CellRecord) -> String {
    let mut remarks = Vec::new();
    remarks.extend(cell.objective.as_ref().map(ObjectiveRecord::said));
    if let Some(beyond) = cell.search.as_ref().and_then(|search| search.beyond) {
        remarks.push(format!("{} a second miss the objective", figure(beyond)));
    }
    if let Some(open_end) = cell.search.as_ref().and_then(|search| search.open_end.clone()) {
        remarks.push(open_end);
    }
    let again = cell.search.as_ref().and_then(|search| Some((search.response_ns, search.twice.as_ref()?)));
    if let Some((_, twice)) = again.filter(|(asked, twice)| twice.response_ns <= *asked) {
        remarks.push(format!(
            "a second crossing: with {} outstanding the response is {} again, at {} a second",
            twice.outstanding,
            Duration(twice.response_ns),
            figure(twice.rate)
        ));
    }
    if !cell.is_steady() {
        let runs = chosen(cell).into_iter().chain(&cell.runs).filter(|run| !run.is_steady());
        let why = runs.filter_map(RunRecord::shortfall).next();
        remarks.push(format!("steady state not reached{}", why.map_or(String::new(), |why| format!(": {why}"))));
    }
    if cell.precondition.as_ref().is_some_and(|done| done.steady == Some(false)) {
        remarks.push("the random writes before it did not become steady".to_owned());
    }
    for host in &cell.hosts {
        if let Some(why) = &host.failed {
            remarks.push(match host.wrong_sectors {
                0 => format!("partial: host {} was lost: {why}", host.host),
                _ => format!("damaged: host {}: {why}", host.host),
            });
        }
    }
    if let Some(why) = &cell.failed {
        let what = if cell.wrong_sectors > 0 { "damaged" } else { "partial: the target failed" };
        remarks.push(format!("{what}: {why}"));
    } else if chosen(cell).is_some_and(|run| run.stopped) {
        remarks.push("stopped".to_owned());
    }
    if let Some(found) = cell.read_back.as_ref().filter(|found| !found.wrong.is_none()) {
        remarks.push(format!("damaged: of {} that were read back, {}", Bytes(found.bytes), found.wrong));
    }
    remarks.extend(chosen(cell).into_iter().flat_map(RunRecord::shortcomings));
    if let Some(void) = chosen(cell).and_then(|run| sweep::void(run.lag_share)) {
        remarks.push(format!("void: {void}"));
    }
    remarks.join("; ")
}

/// What speaks against itself, or against expectation.
pub fn found_odd(recorded: &Recorded) -> Vec<String> {
    let mut found = Vec::new();
    for cell in &recorded.cells {
        let remark = remark(cell);
        if !remark.is_empty() {
            found.push(format!("{}: {remark}.", cell.name));
        }
    }
    for (name, curve) in curves(recorded, &["outstanding"], Runs::All) {
        for pair in curve.windows(2) {
            let [(low, before), (high, after)] = pair else { continue };
            let (before, after) = (rate_of(before), rate_of(after));
            if high > low && after.is_below(before) {
                found.push(format!(
                    "{name}: the rate falls from {} to {} a second between {low} and {high} outstanding.",
                    figure(before.value),
                    figure(after.value)
                ));
            }
        }
    }
    if recorded.digest.is_none() {
        found.push("The run did not come to its end: cells may be missing.".into());
    }
    found
}

fn rate_of(run: &RunRecord) -> Estimate {
    Estimate::of_run(run, |round| round.rate)
}

fn anomalies(recorded: &Recorded, document: &mut Document) {
    document.section("What is odd");
    let found = found_odd(recorded);
    match found.is_empty() {
        true => document.paragraph(
            "Nothing: all cells are steady, and no rate falls as the load grows by more than the intervals explain.",
        ),
        false => document.list(found),
    }
}

/// How far the figures are to be relied upon.
fn conclusion(recorded: &Recorded, document: &mut Document) {
    document.section("Conclusion");
    let all = recorded.cells.len();
    let count = recorded.cells.iter().filter(|cell| is_sound(cell)).count();
    let stands = match (count, all) {
        (_, 0) => "Nothing was measured: there is nothing to conclude.".to_owned(),
        (1, 1) => {
            "The figure of the one cell stands: it is of one steady state, and neither void nor partial.".to_owned()
        }
        (count, all) if count == all => {
            format!("The figures of all {all} cells stand: each is of one steady state, and none is void or partial.")
        }
        (0, _) => {
            "None of the figures stands by itself: no cell is steady, whole and free of the generator's own limits."
                .to_owned()
        }
        (count, all) => format!(
            "The figures of {count} of {all} cells stand. The others are void, partial or not steady (see What is odd): do not quote them \
             without that word."
        ),
    };
    let they = if (count, all) == (1, 1) { "It holds" } else { "They hold" };
    let these = match recorded.head.target_bytes {
        0 => "these targets and these loads".to_owned(),
        used => format!("this target with these {} in use and these loads", Bytes(used)),
    };
    document.paragraph(format!(
        "{stands} {they} for {these}. A larger working set, another mix of accesses or another state of the drives is another measurement."
    ));
    let kept = recorded.cells.iter().filter_map(|cell| cell.objective.as_ref());
    let (kept, missed): (Vec<_>, Vec<_>) = kept.partition(|objective| objective.is_kept());
    if !kept.is_empty() || !missed.is_empty() {
        document.paragraph(format!("Objectives: {} kept, {} missed.", kept.len(), missed.len()));
    }
}

/// The machine that measured, as it was captured.
pub fn machine(recorded: &Recorded) -> Table {
    let said: Vec<(&str, String)> =
        recorded.head.environment.iter().map(|(name, value)| (name.as_str(), environment::said(value))).collect();
    Table::of_pairs("machine", said.iter().map(|(name, value)| (*name, value.as_str())))
}

fn method(recorded: &Recorded, document: &mut Document) {
    let head = &recorded.head;
    document.section("Method");
    document.paragraph(
        "The response of an access is the time from its intended start to the reading of the clock at which its answer was found. \
         No access is left out because others are late. A run is steady where its rounds pass all of these tests. Over the last five \
         rounds, the rates' range is at most 20 % of their mean and their rise at most 10 %. Among all rounds there is no change and no \
         dip by more than 10 % of the mean that chance explains with 5 % or less. No second passed without an answer. A rate is the number \
         of answers over the time that they took; all rounds of a run have the same length. Percentiles are exact to 1.6 %, means are \
         exact. “CPU” is processor time of the measuring process for each access.",
    );
    if head.target_bytes > 0 {
        document.table(working_set(recorded));
        document.note(
            "Drives, controllers and servers behind the target may have memory of their own. A working set that fits into it is measured \
             with it; to measure the drives, use a larger one (--size).",
        );
    }
    document.section("Machine");
    if head.target_bytes > 0 {
        document.diagram(set_up::set_up(recorded, &[]));
    }
    document.table(machine(recorded));
    document.section("To measure it again");
    document.paragraph(Text::from("Save this as ").code("job.toml").say(", then ").code(command(recorded)).say("."));
    document.code(toml::to_string(&head.job).unwrap_or_default());
    let digest = recorded.digest.as_deref().unwrap_or("none: the run did not come to its end");
    document.paragraph(Text::from("BLAKE3 of the raw data: ").code(digest).say("."));
}

/// The command that measures a job again.
fn command(recorded: &Recorded) -> String {
    let mut command = match &recorded.head.against {
        None => "stele lab run job.toml".to_owned(),
        Some(against) => {
            let blocks: BTreeSet<&str> = recorded.cells.iter().filter_map(|cell| cell.axis("block")).collect();
            format!("stele lab compare job.toml --against '{against}' --blocks {}", blocks.len())
        }
    };
    let hosts = recorded.cells.first().map_or(&[][..], |cell| cell.hosts.as_slice());
    if !hosts.is_empty() {
        let names: Vec<&str> = hosts.iter().map(|host| host.host.as_str()).collect();
        command.push_str(&format!(" --hosts {} --token-file FILE", names.join(",")));
    }
    command + " --out again.lab"
}

#[cfg(test)]
pub mod tests;
