//! The page of the recipe, in the order of an executive summary: what was measured, its figures,
//! the ramp, the repetitions, the sustained phase, and the check of the data.

use super::{CHECK, CHECKED, DATA, FOUND, LOG, RAMP, RAMPED, REPEATED, REPETITIONS, RESPONSE, SUSTAIN, USERS};
use super::{STREAMS, found, highest};
use crate::recipe::page::{self, Order, rate};
use stele_ground::{Bytes, Duration};
use stele_lab::error::LabError;
use stele_lab::mix::AccessPattern;
use stele_lab::record::{CellRecord, Recorded, RunRecord};
use stele_lab::report::chart::{Axis, Chart, Series};
use stele_lab::report::document::{Document, Entry, Place, Table, Text};

/// Repeated figures may differ from the first ones by no more than this share.
const SAME: f64 = 0.05;
/// Responses that are short may differ by this much in any case.
const SAME_RESPONSE: Duration = Duration::from_micros(250);

pub fn document(order: Order<'_>) -> Result<Document, LabError> {
    let Order { recorded, against, .. } = order;
    if against {
        return Err(LabError::Usage(
            "recipe 'spc1-like': no figures were published for it; leave out --against".into(),
        ));
    }
    let mut page = order.begin(format!("Transactions at 30 ms, in the manner of SPC-1: {}", recorded.head.target), "");
    page.note(
        "This is no SPC-1 result, and must not be called or quoted as one. It was neither submitted to the Storage Performance Council nor \
         audited, it has no price, and it departs from the specification (see Limits). Compare it only with results of this same command.",
    );
    summary(&mut page, recorded);
    let short = page::shorter(recorded, "a phase", 60.0, "a minute (the sustained one: five times that)");
    page::lacks(&mut page, recorded, &Vec::from_iter(short));
    page::environment(&mut page, recorded);
    method(&mut page);
    ramp(&mut page, recorded);
    repeated(&mut page, recorded);
    sustained(&mut page, recorded);
    persistence(&mut page, recorded);
    page::odd(&mut page, page::remarks(recorded), &[]);
    limits(&mut page);
    conclusion(&mut page, recorded);
    page::again(&mut page, order, "");
    Ok(page)
}

fn ramp_row(load: u8) -> String {
    format!("ramp-{load}")
}

fn last(cell: &CellRecord) -> Option<&RunRecord> {
    cell.runs.last()
}

fn mean(run: &RunRecord) -> Duration {
    run.total().response.mean()
}

/// The run of the ramp at this load.
fn at(recorded: &Recorded, load: u8) -> Option<&RunRecord> {
    found(recorded, RAMPED, load, None).and_then(last)
}

fn summary(page: &mut Document, recorded: &Recorded) {
    page.section("Summary");
    if highest(&recorded.cells).is_none() {
        page.paragraph(match found(recorded, FOUND, 100, None) {
            Some(_) => "No rate kept a mean response of 30 ms, so there are no other figures.",
            None => "The highest rate was not measured, so there are no other figures.",
        });
        return;
    }
    let mut lines: Vec<Text> = Vec::new();
    for (load, words) in [(100, "At full load"), (10, "At a tenth of it (least response)")] {
        if at(recorded, load).is_none() {
            continue;
        }
        let place = |column: &str| Place::new(ramp_row(load), column);
        lines.push(
            Text::from(format!("{words}: "))
                .cell_as(&place("rate"), " accesses a second")
                .say(" with a mean response of ")
                .cell(&place("mean"))
                .say(", 99 % within ")
                .cell(&place("p99"))
                .say("."),
        );
    }
    lines.push(Text::from(format!("Bytes in use: {}.", Bytes(recorded.head.target_bytes))));
    lines.push(Text::from(format!("Data check: {}.", checked(recorded).1)));
    lines.push(Text::from("Price: none is stated."));
    page.list(lines);
}

fn method(page: &mut Document) {
    page.section("Workload and method");
    page.paragraph(
        "Eight streams are at work at once, on three parts of the target: a store of data, one of users, and a log. Accesses start at drawn \
         times, whatever the answers (an open loop), as those of many independent users do. The response of an access counts from its \
         intended start.",
    );
    let mut table = Table::new("The streams")
        .left("part", "part of the target")
        .right("share", "share of accesses")
        .right("read", "reads")
        .left("course", "places")
        .left("sizes", "access");
    for (number, stream) in STREAMS.iter().enumerate() {
        let part = match stream.part {
            DATA => "data",
            USERS => "users",
            LOG => "log",
            _ => "other",
        };
        let course = match stream.course {
            AccessPattern::Even => "all equally often",
            AccessPattern::Uneven => "some far more often than others",
            AccessPattern::Ordered => "in order",
        };
        let sizes: Vec<String> = stream.sizes.iter().map(|(size, _)| Bytes(*size).to_string()).collect();
        let share = f64::from(stream.share) / 10.0;
        table.row(
            format!("stream-{number}"),
            vec![
                Entry::text(format!("{part}, {} to {} %", stream.part.0, stream.part.1)),
                Entry::said(share, format!("{share:.1} %")),
                Entry::said(f64::from(stream.read), format!("{} %", stream.read)),
                Entry::text(course),
                Entry::text(sizes.join(", ")),
            ],
        );
    }
    page.table(table);
    page.paragraph(format!(
        "First a search finds the highest rate that keeps a mean response of {RESPONSE}, and measures it twice. That rate is then sustained \
         for five times the length of a phase. The ramp follows: {} % of it. Then come two repetitions of 10 % and 100 %, and at last \
         {CHECKED} % with data that is checked.",
        RAMP.map(|load| load.to_string()).join(", ")
    ));
    page::clock(page);
}

fn ramp(page: &mut Document, recorded: &Recorded) {
    page.section("Ramp");
    let mut table = Table::new("Load and response")
        .right("load", "load")
        .right("asked", "asked for, accesses/s")
        .right("rate", "answered, accesses/s")
        .right("bytes", "MB/s")
        .right("mean", "mean response")
        .right("p99", "99 %")
        .right("p999", "99.9 %");
    let mut points: Vec<(f64, f64)> = Vec::new();
    for load in RAMP {
        let Some(run) = at(recorded, load) else { continue };
        let response = run.total().response;
        points.push((rate(run), response.mean().0 as f64 / 1e6));
        table.row(
            ramp_row(load),
            vec![
                Entry::text(format!("{load} %")),
                run.rate_asked.map_or(Entry::absent(), Entry::number),
                page::measured(run, rate(run)).strong(),
                Entry::number(page::megabytes(run)),
                Entry::span(response.mean()).strong(),
                Entry::span(response.percentile(0.99)),
                Entry::span(response.percentile(0.999)),
            ],
        );
    }
    points.reverse();
    page.table(table);
    let series = vec![Series { name: "ramp".into(), points, marked: true }];
    let (across, up) = (Axis::linear("accesses a second"), Axis::logarithmic("ms"));
    let line = (RESPONSE.0 as f64 / 1e6, RESPONSE.to_string());
    page.chart(Chart::lines("Mean response over the rate", across, up, series).with_line(Some(line)));
}

/// A figure beside the one of the ramp: their difference, and whether it is small.
fn differs(first: f64, again: f64, free: f64) -> (String, bool) {
    let share = again / first.max(f64::MIN_POSITIVE) - 1.0;
    (format!("{:+.1} %", share * 100.0), share.abs() <= SAME || (again - first).abs() <= free)
}

fn repeated(page: &mut Document, recorded: &Recorded) {
    page.section("Repeatability");
    let mut table = Table::new("Repeated loads, beside those of the ramp")
        .left("what", "")
        .right("rate", "accesses/s")
        .right("rate-apart", "difference")
        .right("mean", "mean response")
        .right("mean-apart", "difference")
        .left("same", "the same within 5 %");
    for turn in 1..=REPETITIONS {
        for load in REPEATED {
            let again = found(recorded, "repetition", load, Some(turn)).and_then(last);
            let (Some(first), Some(again)) = (at(recorded, load), again) else { continue };
            let millis = |run: &RunRecord| mean(run).0 as f64;
            let (rate_apart, rate_same) = differs(rate(first), rate(again), 0.0);
            let (mean_apart, mean_same) = differs(millis(first), millis(again), SAME_RESPONSE.0 as f64);
            table.row(
                format!("again-{turn}-{load}"),
                vec![
                    Entry::text(format!("repetition {turn}, {load} %")),
                    page::measured(again, rate(again)),
                    Entry::text(rate_apart),
                    Entry::span(mean(again)),
                    Entry::text(mean_apart),
                    Entry::text(if rate_same && mean_same { "yes" } else { "no" }),
                ],
            );
        }
    }
    table.remark =
        Some(Text::from(format!("Responses that differ by no more than {SAME_RESPONSE} count as the same.")));
    page.table(table);
}

fn sustained(page: &mut Document, recorded: &Recorded) {
    let Some(run) = found(recorded, SUSTAIN, 100, None).and_then(last) else { return };
    page.section("Sustained load");
    let mut at = 0.0;
    let (mut rates, mut responses) = (Vec::new(), Vec::new());
    for round in &run.rounds {
        at += round.seconds;
        let one = RunRecord { rounds: vec![round.clone()], ..run.clone() };
        rates.push((at, round.rate));
        responses.push((at, mean(&one).0 as f64 / 1e6));
    }
    let line = |name: &str, points| vec![Series { name: name.into(), points, marked: false }];
    page.chart(Chart::lines(
        "Rate at full load",
        Axis::linear("seconds"),
        Axis::linear("accesses a second"),
        line("answered", rates),
    ));
    page.chart(Chart::lines(
        "Mean response at full load",
        Axis::linear("seconds"),
        Axis::logarithmic("ms"),
        line("mean response", responses),
    ));
    page.paragraph(match run.shortfall() {
        None => "The load was sustained: all rounds are of one steady state.".to_owned(),
        Some(why) => format!("The load was not sustained: {why}."),
    });
}

/// Whether the data was found as it was written, and the words for it.
fn checked(recorded: &Recorded) -> (Option<bool>, String) {
    let Some(cell) = found(recorded, CHECK, CHECKED, None) else { return (None, "was not made".into()) };
    match &cell.read_back {
        _ if cell.is_damaged() => (Some(false), "WRONG DATA was read".into()),
        Some(read) => (Some(true), format!("all {} were read back as written", Bytes(read.bytes))),
        None => (None, "all reads brought what was written, but the target was not read back whole".into()),
    }
}

fn persistence(page: &mut Document, recorded: &Recorded) {
    page.section("Data check");
    page.paragraph(format!(
        "At {CHECKED} % of the highest rate, every read was compared with the last write to its place. Then the whole target was read back. \
         Result: {}. SPC-1 cuts the power in between; this check does not, so it cannot find a write that the power would have lost.",
        checked(recorded).1
    ));
}

fn limits(page: &mut Document) {
    page.section("Limits");
    page.list([
        "No audit, no price, no full disclosure report, no description of the tested product beyond what its own system says.",
        "Phases last a minute unless --time says otherwise; those of SPC-1 last ten minutes, and the sustained one eight hours. A cache that \
         takes longer to fill flatters the figures: give --time, and a --size beyond all caches.",
        "The uneven streams send three quarters of their accesses to one half of their part, and within it again, eight times over. SPC-1's \
         random walks return to places instead. Hit rates of caches may differ.",
        "One generator on one machine drives the target. SPC-1 allows several hosts.",
        "The persistence test of SPC-1 cuts the power and reads back; this one only reads back.",
    ]);
}

fn conclusion(page: &mut Document, recorded: &Recorded) {
    let says = match (highest(&recorded.cells), at(recorded, 100)) {
        (Some(_), Some(run)) if mean(run) <= RESPONSE => Text::from("The target sustains ")
            .cell_as(&Place::new(ramp_row(100), "rate"), " accesses a second")
            .say(" of this mix within a mean response of 30 ms."),
        (Some(_), Some(_)) => Text::from(
            "In the ramp the response was exceeded at full load: the highest lasting rate is lower than the one found.",
        ),
        _ => Text::from("There is no figure at full load."),
    };
    let (is_right, words) = checked(recorded);
    let says = match is_right {
        Some(false) => Text::from("The target gave wrong data: its figures are of no use."),
        _ => says.say(format!(" Data check: {words}.")),
    };
    page::conclusion(page, recorded, says, "It is no SPC-1 result.");
}
