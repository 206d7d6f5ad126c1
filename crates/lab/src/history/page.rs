//! A history as a page: how the newest result stands, a chart for each cell, and the results
//! themselves.

use stele_ground::calendar::date;
use stele_ground::{Bytes, counted};

use super::{CellHistory, History, Point};
use crate::baseline::{self, Metric};
use crate::report::chart::{Axis, Chart, Series as Line};
use crate::report::day;
use crate::report::document::{Document, Entry, Place, Table, Text};

/// Charts of single cells on one page.
const CHARTS_MAX: usize = 60;
/// Dates below a chart, so that none runs into another.
const DATES: f64 = 6.0;
/// A change of the newest result that the summary names.
const WORTH: f64 = 0.05;

/// `title` may be none; then the directory gives it its name.
pub fn document(history: &History, directory: &str, title: Option<&str>) -> Document {
    let title = title.map_or_else(|| format!("What {directory} says over time"), str::to_owned);
    let newest = history.results.last();
    let until = |begun: u64| if begun == 0 { day(begun) } else { format!("until {}", day(begun)) };
    let about = newest.map_or(String::new(), |newest| format!("{}, by {}", until(newest.begun), newest.program));
    let mut document = Document::new(title, about);
    summary(history, &mut document);
    document.chart(relative(history));
    document.table(standings(history));
    document.section("Cells");
    for series in history.series.iter().take(CHARTS_MAX).filter(|series| series.points.len() > 1) {
        document.chart(trend(history, series));
    }
    if history.series.len() > CHARTS_MAX {
        document.note(format!(
            "The page draws the charts of {CHARTS_MAX} cells, and leaves out those of {}.",
            counted((history.series.len() - CHARTS_MAX) as u64, "cell")
        ));
    }
    document.section("Results");
    document.table(results(history));
    if !history.left_out.is_empty() {
        document.part("Left out");
        document.list(history.left_out.iter().map(|(_, why)| why.clone()));
    }
    document
}

fn row(number: usize) -> String {
    format!("cell {number}")
}

fn summary(history: &History, document: &mut Document) {
    document.section("Summary");
    let (count, cells) = (history.results.len(), history.series.len());
    document.paragraph(format!("{}, {}.", counted(count as u64, "result"), counted(cells as u64, "cell")));
    let mut said = Vec::new();
    for (number, series) in history.series.iter().enumerate() {
        let Some(standing) = series.standing() else { continue };
        let at = |column: &str| Place::new(row(number), column);
        let called = history.called(series);
        if let Some((result, change)) = series.change() {
            let when = history.when(result);
            let figure = |value: f64| baseline::figure(series.metric, Some(value));
            said.push(Text::from(format!(
                "{called}: changed for good {when}, from {} to {}.",
                figure(change.from),
                figure(change.to)
            )));
        } else if standing.ratio.is_some_and(|ratio| (ratio - 1.0).abs() > WORTH) {
            let text = Text::from(format!("{called}: "))
                .cell(&at("newest"))
                .say(", and ")
                .cell(&at("median"))
                .say(" in the median before: ")
                .cell(&at("ratio"))
                .say(" times as good.");
            said.push(text);
        }
    }
    let is_silent = |series: &&CellHistory| series.standing().is_none_or(|standing| standing.ratio.is_none());
    let silent = history.series.iter().filter(is_silent).count();
    match said.is_empty() {
        true if silent == cells => {
            document.paragraph("No cell has two results that count: nothing shows whether one changed.");
            return;
        }
        true => document.paragraph(format!(
            "No cell changed for good, and no newest figure is more than {:.0} % from the median before it.",
            WORTH * 100.0
        )),
        false => document.list(said),
    }
    if silent > 0 {
        document.note(format!(
            "Of {} nothing is said here: fewer than two of the results count.",
            counted(silent as u64, "cell")
        ));
    }
}

fn standings(history: &History) -> Table {
    let mut table = Table::new("The newest result beside the median of up to 20 before it; ratios above 1 are better")
        .left("cell", "cell")
        .right("results", "results")
        .right("first", "first")
        .right("median", "median")
        .right("newest", "newest")
        .right("ratio", "ratio")
        .left("remark", "");
    for (number, series) in history.series.iter().enumerate() {
        let standing = series.standing();
        let figure = |value: Option<f64>| match value {
            Some(value) => Entry::said(value, baseline::figure(series.metric, Some(value))),
            None => Entry::absent(),
        };
        let ratio = standing.and_then(|standing| standing.ratio);
        table.row(
            row(number),
            vec![
                Entry::text(history.called(series)),
                Entry::said(series.points.len() as f64, series.points.len().to_string()),
                figure(series.first()),
                figure(standing.and_then(|standing| standing.median)),
                figure(standing.map(|standing| standing.newest)),
                ratio.map_or_else(Entry::absent, |ratio| Entry::said(ratio, format!("{ratio:.3}"))),
                Entry::text(history.remark(series)).faint(),
            ],
        );
    }
    table
}

impl History {
    /// What has to be known of a series beside its figures.
    pub fn remark(&self, series: &CellHistory) -> String {
        let mut remarks = Vec::new();
        if let Some((result, change)) = series.change() {
            let by = (change.to / change.from.max(1e-9) - 1.0) * 100.0;
            remarks.push(format!("changed {} by {by:+.1} %", self.when(result)));
        }
        let last = series.points.last();
        if last.is_some_and(|point| point.result + 1 < self.results.len()) {
            remarks.push("not in the newest result".into());
        }
        if let Some(why) = last.and_then(|point| point.unusable.as_ref()) {
            remarks.push(format!("the last one does not count: it {why}"));
        }
        let unusable = series.points.iter().filter(|point| point.unusable.is_some()).count();
        if unusable > 0 {
            remarks.push(format!("{unusable} {} not count", if unusable == 1 { "does" } else { "do" }));
        }
        remarks.join("; ")
    }

    /// The day of a result. In virtual time there is none, and its number stands for it.
    fn when(&self, result: usize) -> String {
        let begun = self.results.get(result).map_or(0, |result| result.begun);
        if begun == 0 { format!("with result {}", result + 1) } else { format!("on {}", date(begun)) }
    }

    fn days(&self, result: usize) -> f64 {
        let first = self.results.first().map_or(0, |first| first.begun);
        let at = self.results.get(result).map_or(first, |result| result.begun);
        at.saturating_sub(first) as f64 / 86_400.0
    }

    /// Dates at a few of the results; in virtual time, where there are none, the numbers of the
    /// results.
    fn across(&self) -> Axis {
        if self.is_timeless() {
            return Axis::linear("number of the result");
        }
        let mut marks: Vec<(f64, String)> = Vec::new();
        let apart = self.days(self.results.len().saturating_sub(1)) / DATES;
        for (number, result) in self.results.iter().enumerate() {
            let (at, said) = (self.days(number), date(result.begun));
            if marks.last().is_none_or(|(last, before)| at - last >= apart && *before != said) {
                marks.push((at, said));
            }
        }
        Axis::linear("day on which it was measured").marked(marks)
    }

    fn is_timeless(&self) -> bool {
        let begun = |result: usize| self.results.get(result).map(|result| result.begun);
        begun(0) == begun(self.results.len().saturating_sub(1))
    }

    fn place(&self, result: usize) -> f64 {
        if self.is_timeless() { result as f64 + 1.0 } else { self.days(result) }
    }
}

/// A cell's figures over time; those that do not count are marked and not joined.
pub fn trend(history: &History, series: &CellHistory) -> Chart {
    let scale = |value: f64| if series.metric == Metric::Rate { value } else { value / 1e6 };
    let point = |(result, value): (usize, f64)| (history.place(result), scale(value));
    let usable: Vec<(f64, f64)> = series.usable().into_iter().map(point).collect();
    // Nothing lies between those that do not count.
    let apart = |one: &Point| [point((one.result, one.value)), (f64::NAN, f64::NAN)];
    let bad = series.points.iter().filter(|point| point.unusable.is_some()).flat_map(apart).collect();
    let up = match series.metric {
        Metric::Rate => "accesses a second",
        Metric::Response => "mean response, ms",
    };
    let line = series.standing().and_then(|standing| standing.median);
    let line = line.map(|median| (scale(median), format!("median: {}", baseline::figure(series.metric, Some(median)))));
    let mut lines = vec![Line { name: "results".into(), points: usable, marked: true }];
    lines.push(Line { name: "do not count".into(), points: bad, marked: true });
    // Where none counts, those that do not still look like that.
    lines.retain(|line| line.name == "results" || !line.points.is_empty());
    Chart::lines(history.called(series), history.across(), Axis::linear(up), lines).with_line(line)
}

/// All cells in one chart, each over its first figure.
fn relative(history: &History) -> Chart {
    let lines = history.series.iter().filter(|series| series.usable().len() > 1).filter_map(|series| {
        let first = series.first().filter(|first| *first > 0.0)?;
        let ratio = |value: f64| if series.metric == Metric::Rate { value / first } else { first / value.max(1e-9) };
        let points = series.usable().into_iter().map(|(result, value)| (history.place(result), ratio(value)));
        Some(Line { name: history.called(series), points: points.collect(), marked: true })
    });
    let up = Axis::linear("times as good as the first");
    Chart::lines("Cells over their first result", history.across(), up, lines.collect())
        .with_line(Some((1.0, "the first result".into())))
}

fn results(history: &History) -> Table {
    let mut table = Table::new("")
        .left("file", "file")
        .left("begun", "begun")
        .left("program", "program")
        .left("target", "target")
        .right("bytes", "used")
        .right("cells", "cells");
    for (number, result) in history.results.iter().enumerate() {
        let name = result.path.file_name().unwrap_or(result.path.as_os_str());
        table.row(
            format!("result {number}"),
            vec![
                Entry::text(name.to_string_lossy()),
                Entry::text(day(result.begun)),
                Entry::text(result.program.as_str()),
                Entry::text(result.target.as_str()),
                Entry::text(Bytes(result.target_bytes).to_string()),
                Entry::text(result.cells.to_string()),
            ],
        );
    }
    table
}
