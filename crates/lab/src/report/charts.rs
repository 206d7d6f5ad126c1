//! The charts of a `.lab` file, each by its name.

use std::collections::BTreeMap;

use stele_ground::{Bytes, Duration, are, counted};

use super::chart::{Axis, Bars, Chart, SERIES_MAX, Series, exact};
use super::chosen;
use crate::record::{CellRecord, Recorded, RunRecord};
use crate::steady;

/// What a chart shows, by the name that a command line gives it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChartKind {
    ResponseRate,
    RateSize,
    BytesSize,
    RateThreads,
    BytesThreads,
    LatencyTime,
    RateTime,
    Distribution,
    Tail,
    Bars,
    Multipliers,
}

/// All of them, in the order in which a report has them.
pub const KINDS: &[(&str, ChartKind, &str)] = &[
    ("response-rate", ChartKind::ResponseRate, "mean response against the rate, with the response asked for"),
    ("rate-size", ChartKind::RateSize, "accesses a second against the size of an access"),
    ("bytes-size", ChartKind::BytesSize, "MB a second against the size of an access"),
    ("rate-threads", ChartKind::RateThreads, "accesses a second against threads"),
    ("bytes-threads", ChartKind::BytesThreads, "MB a second against threads"),
    ("rate-time", ChartKind::RateTime, "accesses a second over time, round by round, with gaps and dips"),
    ("latency-time", ChartKind::LatencyTime, "mean response over time, round by round"),
    ("distribution", ChartKind::Distribution, "share of accesses answered within a time"),
    ("tail", ChartKind::Tail, "share of accesses that took longer than a time, logarithmic: 10 %, 1 %, 0.1 %"),
    ("bars", ChartKind::Bars, "the cells' rates side by side"),
    ("multipliers", ChartKind::Multipliers, "each cell's rate over that of the first"),
];

impl ChartKind {
    pub fn named(name: &str) -> Option<ChartKind> {
        KINDS.iter().find(|known| known.0 == name).map(|known| known.1)
    }

    /// It may be empty: a file may lack what it is about. Where figures of cells are drawn, a note
    /// tells how many of them are not steady.
    pub fn of(self, recorded: &Recorded) -> Chart {
        let chart = self.drawn(recorded);
        match self {
            ChartKind::RateTime | ChartKind::LatencyTime | ChartKind::Distribution | ChartKind::Tail => chart,
            _ => Chart { note: unsteady(recorded), ..chart },
        }
    }

    fn drawn(self, recorded: &Recorded) -> Chart {
        match self {
            ChartKind::ResponseRate => response_over_rate(recorded),
            ChartKind::RateSize => over(recorded, &Over::ACCESS, &Measure::RATE),
            ChartKind::BytesSize => over(recorded, &Over::ACCESS, &Measure::BYTES),
            ChartKind::RateThreads => over(recorded, &Over::WORKERS, &Measure::RATE),
            ChartKind::BytesThreads => over(recorded, &Over::WORKERS, &Measure::BYTES),
            ChartKind::RateTime => rate_over_time(recorded),
            ChartKind::LatencyTime => latency_over_time(recorded),
            ChartKind::Distribution => distribution(recorded),
            ChartKind::Tail => tail(recorded),
            ChartKind::Bars => bars(recorded),
            ChartKind::Multipliers => multipliers(recorded),
        }
    }
}

/// How many cells are not steady; nothing where all are.
fn unsteady(recorded: &Recorded) -> String {
    let count = recorded.cells.iter().filter(|cell| !cell.is_steady()).count() as u64;
    match count {
        0 => String::new(),
        count => format!("{count} of {} {} not steady", counted(recorded.cells.len() as u64, "cell"), are(count)),
    }
}

fn millis(span: Duration) -> f64 {
    span.0 as f64 / 1e6
}

/// A line's name and its runs, each with its place.
type Curve = (String, Vec<(f64, RunRecord)>);

/// Which runs of a cell are points.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Runs {
    /// All probes of a search too.
    All,
    /// The one that stands for it.
    Chosen,
}

/// Lines of cells that differ in these axes only, in the order in which they were measured; each
/// point is a run, with its value on the first of the axes, or its load.
pub fn curves(recorded: &Recorded, apart_from: &[&str], of: Runs) -> Vec<Curve> {
    let mut curves: Vec<Curve> = Vec::new();
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
        let runs: Vec<&RunRecord> = match of {
            Runs::All => cell.runs.iter().collect(),
            Runs::Chosen => chosen(cell).into_iter().collect(),
        };
        for run in runs {
            let load = run.outstanding.map(f64::from).or(run.rate_asked).unwrap_or(0.0);
            let point = (place.unwrap_or(load), run.clone());
            match curves.iter_mut().find(|(known, _)| *known == name) {
                Some((_, curve)) => curve.push(point),
                None => curves.push((name.clone(), vec![point])),
            }
        }
    }
    for (_, curve) in &mut curves {
        curve.sort_by(|left, right| left.0.total_cmp(&right.0));
    }
    curves
}

fn response_over_rate(recorded: &Recorded) -> Chart {
    let curves = curves(recorded, &["outstanding", "rate"], Runs::All);
    // Where each has one load only there is no curve to be seen.
    let curves = if curves.iter().any(|(_, curve)| curve.len() > 1) { curves } else { Vec::new() };
    let series = curves.into_iter().map(|(name, curve)| Series {
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
    let line = asked.map(|search| (millis(Duration(search.response_ns)), Duration(search.response_ns).to_string()));
    let (across, up) = (Axis::linear("accesses a second"), Axis::logarithmic("mean response, ms"));
    Chart::lines("Mean response against the rate", across, up, series.collect()).with_line(line)
}

/// Rounds that stand out are marked: those in which nothing was answered for a while, and those of
/// a dip. The marks are a series that is drawn also where there are more than can be told apart.
fn rate_over_time(recorded: &Recorded) -> Chart {
    let mut series: Vec<Series> = Vec::new();
    // With the number of the series whose rounds they are.
    let mut odd: Vec<(usize, (f64, f64))> = Vec::new();
    for cell in &recorded.cells {
        let Some(run) = chosen(cell) else { continue };
        let mut at = 0.0;
        let mut points = Vec::new();
        for round in &run.rounds {
            at += round.seconds;
            points.push((at, round.rate));
        }
        if !run.profile.is_empty() {
            let asked = points.iter().map(|point| point.0).zip(run.asked()).collect();
            series.push(Series { name: format!("{}: asked for", cell.name), points: asked, marked: false });
        }
        // A load that changes has ups and downs of its own.
        let changes = !run.profile.is_empty() || run.replay.is_some();
        let dip = steady::dip(&run.rates()).filter(|_| !changes);
        let dips = |number: usize| dip.is_some_and(|dip| (dip.first..dip.first + dip.rounds).contains(&number));
        let gaps = |number: usize| run.rounds.get(number).is_some_and(|round| steady::is_gap(Duration(round.gap_ns)));
        let stands_out = points.iter().enumerate().filter(|(number, _)| dips(*number) || gaps(*number));
        odd.extend(stands_out.map(|(_, point)| (series.len(), *point)));
        series.push(Series { name: cell.name.clone(), points, marked: false });
    }
    let place = series.len().min(SERIES_MAX - 1);
    // A gap behind each: rounds of several cells are not to be joined.
    let drawn = odd.into_iter().filter(|(number, _)| *number < place);
    let points: Vec<(f64, f64)> = drawn.flat_map(|(_, point)| [point, (f64::NAN, f64::NAN)]).collect();
    if !points.is_empty() {
        series.insert(place, Series { name: "gaps and dips".into(), points, marked: true });
    }
    let (across, up) = (Axis::linear("seconds after the warm-up"), Axis::linear("accesses a second"));
    Chart::lines("Rate over time", across, up, series)
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
    let (across, up) = (Axis::linear("seconds after the warm-up"), Axis::logarithmic("mean response, ms"));
    Chart::lines("Mean response over time", across, up, series.collect())
}

fn distribution(recorded: &Recorded) -> Chart {
    let series = recorded.cells.iter().filter_map(|cell| {
        let response = chosen(cell)?.total().response;
        let points = response.distribution().into_iter().map(|(span, share)| (millis(span), share * 100.0));
        Some(Series { name: cell.name.clone(), points: points.collect(), marked: false })
    });
    let (across, up) = (Axis::logarithmic("response, ms"), Axis::linear("percent of accesses"));
    Chart::lines("Share of accesses answered within a time", across, up, series.collect())
}

/// The share that took longer, on a logarithmic scale: a straight distribution hides all behind 99
/// %.
fn tail(recorded: &Recorded) -> Chart {
    let mut least = 1.0f64;
    let series = recorded.cells.iter().filter_map(|cell| {
        let response = chosen(cell)?.total().response;
        let longer = response.distribution().into_iter().map(|(span, share)| (millis(span), 1.0 - share));
        // Less than one access is none: what is left of 1 is an error of rounding.
        let whole = 0.5 / response.count().max(1) as f64;
        // All took longer than anything below the shortest one.
        let first = response.distribution().first().map(|(span, _)| (millis(*span), 1.0));
        let points: Vec<(f64, f64)> = first.into_iter().chain(longer.filter(|(_, share)| *share > whole)).collect();
        least = points.iter().fold(least, |least, (_, share)| least.min(*share));
        Some(Series { name: cell.name.clone(), points, marked: false })
    });
    let series: Vec<Series> = series.collect();
    let decades = least.log10().floor().clamp(-9.0, -1.0) as i32;
    let name = |decade: i32| format!("{} %", figure_of_share(decade));
    let marks = (decades..=0).map(|decade| (10f64.powi(decade), name(decade)));
    let up = Axis::logarithmic("share that took longer").marked(marks);
    let across = Axis::logarithmic("response, ms");
    Chart::lines("Share of accesses that took longer than a time", across, up, series)
}

/// A power of ten in percent: `100`, `1`, `0.01`.
fn figure_of_share(decade: i32) -> String {
    let digits = usize::try_from(-2 - decade).unwrap_or(0);
    format!("{:.digits$}", 10f64.powi(decade + 2))
}

/// What is varied.
struct Over {
    axis: &'static str,
    words: &'static str,
    name: &'static str,
    said: fn(f64) -> String,
}

impl Over {
    const ACCESS: Over = Over {
        axis: "access",
        words: "the size of an access",
        name: "bytes of an access",
        said: |value| Bytes(value as u64).to_string(),
    };
    const WORKERS: Over = Over { axis: "workers", words: "threads", name: "threads", said: exact };
}

/// What is measured.
struct Measure {
    words: &'static str,
    name: &'static str,
    of: fn(&RunRecord) -> f64,
}

impl Measure {
    const RATE: Measure = Measure { words: "Rate", name: "accesses a second", of: |run| run.total().rate };
    const BYTES: Measure = Measure { words: "Throughput", name: "MB/s", of: |run| run.total().bytes / 1e6 };
}

fn over(recorded: &Recorded, what: &Over, measure: &Measure) -> Chart {
    let has = recorded.cells.iter().any(|cell| cell.axes.iter().any(|(name, _)| name == what.axis));
    let curves = if has { curves(recorded, &[what.axis], Runs::Chosen) } else { Vec::new() };
    let mut marks: Vec<f64> = curves.iter().flat_map(|(_, curve)| curve).map(|(place, _)| *place).collect();
    marks.sort_by(f64::total_cmp);
    marks.dedup();
    let marks = marks.into_iter().map(|value| (value, (what.said)(value)));
    let series = |(name, curve): Curve| Series {
        name,
        points: curve.iter().map(|(place, run)| (*place, (measure.of)(run))).collect(),
        marked: true,
    };
    Chart::lines(
        format!("{} against {}", measure.words, what.words),
        Axis::logarithmic(what.name).marked(marks),
        Axis::linear(measure.name),
        curves.into_iter().map(series).collect(),
    )
}

/// What a cell sustains.
pub fn rate_of(cell: &CellRecord) -> Option<f64> {
    cell.search.as_ref().map(|search| search.rate).or_else(|| chosen(cell).map(|run| run.total().rate))
}

fn bars(recorded: &Recorded) -> Chart {
    // The axis with the fewest values tells bars apart; the others tell groups apart.
    let mut values: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, value) in recorded.cells.iter().flat_map(|cell| &cell.axes) {
        let seen = values.entry(name.as_str()).or_default();
        if !seen.contains(&value.as_str()) {
            seen.push(value.as_str());
        }
    }
    let apart = values.iter().min_by_key(|(_, values)| values.len()).filter(|_| values.len() > 1);
    let bar_of = |cell: &CellRecord| match apart {
        Some((axis, _)) => cell
            .axes
            .iter()
            .find(|(name, _)| name == axis)
            .map_or(String::new(), |(name, value)| format!("{name} {value}")),
        None => String::new(),
    };
    let group_of = |cell: &CellRecord| {
        let rest = cell.axes.iter().filter(|(name, _)| apart.is_none_or(|(axis, _)| name != axis));
        let rest: Vec<String> = rest.map(|(name, value)| format!("{name} {value}")).collect();
        if rest.is_empty() { cell.name.clone() } else { rest.join(", ") }
    };
    let (mut groups, mut bars): (Vec<String>, Vec<Bars>) = (Vec::new(), Vec::new());
    for cell in &recorded.cells {
        let (group, bar) = (group_of(cell), bar_of(cell));
        if !groups.contains(&group) {
            groups.push(group);
        }
        if !bars.iter().any(|one| one.name == bar) {
            bars.push(Bars { name: bar, values: Vec::new() });
        }
    }
    for one in &mut bars {
        one.values = groups
            .iter()
            .map(|group| recorded.cells.iter().find(|cell| group_of(cell) == *group && bar_of(cell) == one.name))
            .map(|cell| cell.and_then(rate_of))
            .collect();
    }
    Chart::bars("Rates of the cells", Axis::linear("accesses a second"), groups, bars)
}

fn multipliers(recorded: &Recorded) -> Chart {
    let first = recorded.cells.first().and_then(rate_of).filter(|rate| *rate > 0.0);
    let values = recorded.cells.iter().map(|cell| Some(rate_of(cell)? / first?)).collect();
    let groups = recorded.cells.iter().map(|cell| cell.name.clone()).collect();
    let bars = vec![Bars { name: "multiplier".into(), values }];
    Chart::bars("Rates over that of the first cell", Axis::linear("times the first"), groups, bars)
        .with_line(Some((1.0, "the first cell".into())))
}

#[cfg(test)]
mod tests;
