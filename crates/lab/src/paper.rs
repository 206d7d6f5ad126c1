//! A report of what was measured: one HTML page that needs nothing else, readable on a phone, in the dark and on paper.
//!
//! Every figure in a sentence is taken from the cell it speaks of when the page is written, and links to that cell's row, so that
//! text and table cannot disagree.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use stele_ground::{Bytes, Duration};

use crate::histogram::Histogram;
use crate::record::{CellRecord, Recorded, RunRecord};
use crate::sweep;
use chart::{Axis, Chart, SERIES_MAX, Series, escaped, figure};

pub mod chart;

const STYLE: &str = include_str!("paper/style.css");

/// A rate that falls by more than this with more accesses outstanding is called an anomaly.
const FALL: f64 = 0.05;

/// The run that stands for a cell: of a search, the probe nearest to the answer.
pub fn chosen(cell: &CellRecord) -> Option<&RunRecord> {
    let Some(search) = &cell.search else { return cell.runs.last() };
    let near = |run: &&RunRecord| (f64::from(run.outstanding.unwrap_or(0)) - search.outstanding).abs();
    cell.runs.iter().min_by(|left, right| near(left).total_cmp(&near(right)))
}

/// The page. `title` may be none; then the target gives it its name.
pub fn html(recorded: &Recorded, title: Option<&str>) -> String {
    let head = &recorded.head;
    let title = title.map_or_else(|| format!("What {} sustains", head.target), str::to_owned);
    let title = escaped(&title);
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><title>{title}</title>\
         <style>{STYLE}</style></head><body><main>\n<h1>{title}</h1>\n<p class=\"when\">{}, by {}</p>\n",
        date(head.begun),
        escaped(&head.program)
    );
    abstract_of(recorded, &mut page);
    for chart in charts(recorded) {
        if let Some(svg) = chart.svg() {
            let _ = writeln!(page, "<figure>{svg}</figure>");
        }
    }
    table(recorded, &mut page);
    anomalies(recorded, &mut page);
    method(recorded, &mut page);
    page.push_str("</main></body></html>\n");
    page
}

/// A figure in a sentence, which leads to its cell.
fn bound(cell: &CellRecord, text: &str) -> String {
    format!("<a class=\"bound\" href=\"#cell-{}\">{}</a>", cell.number, escaped(text))
}

fn abstract_of(recorded: &Recorded, page: &mut String) {
    let head = &recorded.head;
    let _ = writeln!(
        page,
        "<h2>Summary</h2>\n<p>Measured was {} ({}), of which {} were used.</p>",
        escaped(&head.target),
        escaped(&head.reached),
        Bytes(head.target_bytes)
    );
    let searched: Vec<&CellRecord> = recorded.cells.iter().filter(|cell| cell.search.is_some()).collect();
    for cell in &searched {
        let Some(search) = &cell.search else { continue };
        let of = search
            .percentile
            .map_or("a mean response".into(), |share| format!("a response of {} %", figure(share * 100.0)));
        let margin = search.margin.map_or(String::new(), |margin| format!(" ± {}", figure(margin)));
        let rate = bound(cell, &format!("{}{margin} accesses a second", figure(search.rate)));
        let open = search.open_end.as_ref().map_or(String::new(), |end| format!(" ({end})"));
        let _ = writeln!(
            page,
            "<p>{}: {rate} at {of} of {}, with {} outstanding{open}.</p>",
            escaped(&cell.name),
            Duration(search.response_ns),
            figure(search.outstanding)
        );
    }
    if !searched.is_empty() {
        return;
    }
    let measured = || recorded.cells.iter().filter_map(|cell| Some((cell, chosen(cell)?.total())));
    let most = measured().max_by(|left, right| left.1.rate.total_cmp(&right.1.rate));
    let prompt = measured().min_by_key(|(_, total)| total.response.mean());
    if let Some((cell, total)) = most {
        let _ = writeln!(
            page,
            "<p>The highest rate was {}, in the cell “{}”, with a mean response of {} and 99 % within {}.</p>",
            bound(cell, &format!("{} accesses a second", figure(total.rate))),
            escaped(&cell.name),
            total.response.mean(),
            total.response.percentile(0.99)
        );
    }
    if let Some((cell, total)) = prompt {
        let _ = writeln!(
            page,
            "<p>The shortest mean response was {}, in the cell “{}”, at {} accesses a second.</p>",
            bound(cell, &total.response.mean().to_string()),
            escaped(&cell.name),
            figure(total.rate)
        );
    }
}

fn millis(span: Duration) -> f64 {
    span.0 as f64 / 1e6
}

fn charts(recorded: &Recorded) -> Vec<Chart> {
    let mut charts = vec![response_over_rate(recorded), latency_over_time(recorded), distribution(recorded)];
    charts.extend(rate_over(recorded, "access", "Rate against the size of an access", "bytes of an access"));
    charts.extend(rate_over(recorded, "workers", "Rate against threads", "threads"));
    charts
}

/// Lines of cells that differ in their load only.
fn curves(recorded: &Recorded, apart_from: &[&str]) -> BTreeMap<String, Vec<(f64, RunRecord)>> {
    let mut curves: BTreeMap<String, Vec<(f64, RunRecord)>> = BTreeMap::new();
    for cell in &recorded.cells {
        let rest: Vec<String> = cell
            .axes
            .iter()
            .filter(|(name, _)| !apart_from.contains(&name.as_str()))
            .map(|(name, value)| if name == "workload" { value.clone() } else { format!("{name} {value}") })
            .collect();
        let name = if rest.is_empty() { cell.workload.clone() } else { rest.join(", ") };
        let place = apart_from.first().and_then(|axis| cell.axes.iter().find(|(name, _)| name == axis));
        let place = place.and_then(|(_, value)| value.parse().ok().or(Bytes::parse(value).map(|bytes| bytes.0 as f64)));
        for run in &cell.runs {
            let load = run.outstanding.map(f64::from).or(run.rate_asked).unwrap_or(0.0);
            curves.entry(name.clone()).or_default().push((place.unwrap_or(load), run.clone()));
        }
    }
    for curve in curves.values_mut() {
        curve.sort_by(|left, right| left.0.total_cmp(&right.0));
    }
    curves
}

fn response_over_rate(recorded: &Recorded) -> Chart {
    let series = curves(recorded, &["outstanding", "rate"]).into_iter().map(|(name, curve)| Series {
        name,
        points: curve
            .iter()
            .map(|(_, run)| run.total())
            .map(|total| (total.rate, millis(total.response.mean())))
            .collect(),
        marked: true,
    });
    let asked =
        recorded.cells.iter().filter_map(|cell| cell.search.as_ref()).find(|search| search.percentile.is_none());
    Chart {
        title: "Mean response against the rate".into(),
        across: Axis::linear("accesses a second"),
        up: Axis::logarithmic("ms"),
        series: series.collect(),
        line: asked.map(|search| (millis(Duration(search.response_ns)), Duration(search.response_ns).to_string())),
    }
}

fn latency_over_time(recorded: &Recorded) -> Chart {
    let series = recorded.cells.iter().filter_map(|cell| {
        let run = chosen(cell)?;
        let mut at = 0.0;
        let points = run.rounds.iter().map(|round| {
            at += round.seconds;
            let one = RunRecord { rounds: vec![round.clone()], ..run.clone() };
            (at, millis(one.total().response.mean()))
        });
        Some(Series { name: cell.name.clone(), points: points.collect(), marked: false })
    });
    Chart {
        title: "Mean response over time".into(),
        across: Axis::linear("seconds after the warm-up"),
        up: Axis::logarithmic("ms"),
        series: series.take(SERIES_MAX).collect(),
        line: None,
    }
}

fn distribution(recorded: &Recorded) -> Chart {
    let series = recorded.cells.iter().filter_map(|cell| {
        let response: Histogram = chosen(cell)?.total().response;
        let points = response.distribution().into_iter().map(|(span, share)| (millis(span), share * 100.0));
        Some(Series { name: cell.name.clone(), points: points.collect(), marked: false })
    });
    Chart {
        title: "Share of accesses answered within a time".into(),
        across: Axis::logarithmic("ms"),
        up: Axis::linear("percent"),
        series: series.take(SERIES_MAX).collect(),
        line: None,
    }
}

fn rate_over(recorded: &Recorded, axis: &str, title: &str, across: &str) -> Option<Chart> {
    let has = recorded.cells.iter().any(|cell| cell.axes.iter().any(|(name, _)| name == axis));
    let series = |(name, curve): (String, Vec<(f64, RunRecord)>)| Series {
        name,
        points: curve.iter().map(|(place, run)| (*place, run.total().rate)).collect(),
        marked: true,
    };
    has.then(|| Chart {
        title: title.into(),
        across: Axis::logarithmic(across),
        up: Axis::linear("accesses a second"),
        series: curves(recorded, &[axis]).into_iter().map(series).collect(),
        line: None,
    })
}

fn table(recorded: &Recorded, page: &mut String) {
    page.push_str(
        "<h2>Results</h2>\n<div class=\"wide\"><table><thead><tr><th>cell</th><th>load</th><th>accesses/s</th><th>MB/s</th>\
         <th>mean</th><th>50 %</th><th>99 %</th><th>99.9 %</th><th>longest</th><th>CPU, us</th><th></th></tr></thead><tbody>\n",
    );
    for cell in &recorded.cells {
        let Some(run) = chosen(cell) else { continue };
        let total = run.total();
        let response = &total.response;
        let (rate, load) = match &cell.search {
            Some(search) => {
                let margin = search.margin.map_or(String::new(), |margin| format!(" ± {}", figure(margin)));
                (format!("{}{margin}", figure(search.rate)), format!("{} outstanding", figure(search.outstanding)))
            }
            None => (figure(total.rate), run.load()),
        };
        let _ = writeln!(
            page,
            "<tr id=\"cell-{}\"><th>{}</th><td>{load}</td><td>{rate}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>\
             <td>{}</td><td>{}</td><td class=\"remark\">{}</td></tr>",
            cell.number,
            escaped(&cell.name),
            figure(total.bytes / 1e6),
            response.mean(),
            response.percentile(0.5),
            response.percentile(0.99),
            response.percentile(0.999),
            response.longest(),
            figure(total.cpu_own),
            escaped(&remark(cell))
        );
    }
    page.push_str("</tbody></table></div>\n");
}

/// What has to be known of a cell beside its figures.
pub fn remark(cell: &CellRecord) -> String {
    let mut remarks = Vec::new();
    if let Some(open_end) = cell.search.as_ref().and_then(|search| search.open_end.clone()) {
        remarks.push(open_end);
    }
    let steady = cell.search.as_ref().map_or(chosen(cell).is_some_and(|run| run.steady), |search| search.steady);
    if !steady {
        remarks.push("not steady".to_owned());
    }
    if chosen(cell).is_some_and(|run| run.stopped) {
        remarks.push("stopped".to_owned());
    }
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
    for (name, curve) in curves(recorded, &["outstanding"]) {
        for pair in curve.windows(2) {
            let [(low, before), (high, after)] = pair else { continue };
            let (before, after) = (before.total().rate, after.total().rate);
            if high > low && after < before * (1.0 - FALL) {
                found.push(format!(
                    "{name}: the rate falls from {} to {} a second between {low} and {high} outstanding.",
                    figure(before),
                    figure(after)
                ));
            }
        }
    }
    if recorded.digest.is_none() {
        found.push("The run did not come to its end: cells may be missing.".into());
    }
    found
}

fn anomalies(recorded: &Recorded, page: &mut String) {
    page.push_str("<h2>What is odd</h2>\n");
    let found = found_odd(recorded);
    if found.is_empty() {
        page.push_str("<p>Nothing: all cells are steady, and no rate falls as the load grows.</p>\n");
        return;
    }
    page.push_str("<ul>\n");
    for line in found {
        let _ = writeln!(page, "<li>{}</li>", escaped(&line));
    }
    page.push_str("</ul>\n");
}

fn method(recorded: &Recorded, page: &mut String) {
    let head = &recorded.head;
    page.push_str(
        "<h2>Method</h2>\n<p>The response of an access is the time from its intended start to the reading of the clock at which its \
         answer was found; no access is spared because others are late. A run is steady when over its last five rounds the rates' \
         range is at most 20 % of their mean and their rise at most 10 %. Percentiles are exact to 1.6 %, means exactly. “CPU” is \
         processor time of the measuring process for each access. A target smaller than the memory between it and its drives is \
         measured with that memory.</p>\n<h2>Machine</h2>\n<table class=\"plain\"><tbody>\n",
    );
    for (name, value) in &head.environment {
        let _ = writeln!(page, "<tr><th>{}</th><td>{}</td></tr>", escaped(name), escaped(value));
    }
    let job = toml::to_string(&head.job).unwrap_or_default();
    let digest = recorded.digest.as_deref().unwrap_or("none: the run did not come to its end");
    let _ = writeln!(
        page,
        "</tbody></table>\n<h2>To measure it again</h2>\n<p>Save this as <code>job.toml</code>, then \
         <code>stele lab run job.toml --out again.lab</code>.</p>\n<pre>{}</pre>\n<p>BLAKE3 of the raw data: <code>{}</code></p>",
        escaped(&job),
        escaped(digest)
    );
}

/// The day in UTC of so many seconds since 1970.
fn date(seconds: u64) -> String {
    // Days are counted from 1 March of year 0, so that leap days end a year.
    let days = seconds / 86_400 + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (date, month) = (day - (153 * month + 2) / 5 + 1, if month < 10 { month + 3 } else { month - 9 });
    format!("{}-{month:02}-{date:02}", era * 400 + year + u64::from(month <= 2))
}

#[cfg(test)]
mod tests;
