//! What a check found, for people who read a pull request and for machines that gather tests.

use std::fmt::Write as _;

use stele_ground::Duration;

use super::{Checked, Metric, Verdict};

/// As JUnit writes the outcome of tests: a cell that regressed or is missing is a failure, one that
/// is unclear an error.
pub fn junit(checked: &[Checked], result: &str) -> String {
    let count = |of: &[Verdict]| checked.iter().filter(|cell| of.contains(&cell.verdict)).count();
    let mut text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"stele lab check\" tests=\"{}\" failures=\"{}\" errors=\"{}\">\n",
        checked.len(),
        count(&[Verdict::Regressed, Verdict::Missing]),
        count(&[Verdict::Unclear])
    );
    for cell in checked {
        let (class, name, why) = (attribute(result), attribute(&cell.name), attribute(&cell.why));
        let _ = write!(text, "  <testcase classname=\"{class}\" name=\"{name}\"");
        let _ = match cell.verdict {
            Verdict::Kept => writeln!(text, "/>"),
            Verdict::Unclear => writeln!(text, "><error message=\"{why}\"/></testcase>"),
            Verdict::Regressed | Verdict::Missing => writeln!(text, "><failure message=\"{why}\"/></testcase>"),
        };
    }
    text.push_str("</testsuite>\n");
    text
}

/// Text of an attribute. XML has no way to write most control characters.
fn attribute(text: &str) -> String {
    text.chars().fold(String::new(), |mut out, c| {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push('\u{fffd}'),
            c => out.push(c),
        }
        out
    })
}

/// A table.
pub fn markdown(checked: &[Checked], result: &str, baseline: &str, tolerance: f64) -> String {
    let mut text = format!(
        "`{}` against `{}`, {} % tolerated. Ratios above 1 are better.\n\n\
         | cell | baseline | result | ratio | 95 % | verdict |\n| --- | ---: | ---: | ---: | ---: | --- |\n",
        cell(result),
        cell(baseline),
        tolerance * 100.0
    );
    for one in checked {
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} |",
            cell(&one.name),
            figure(one.metric, Some(one.baseline)),
            figure(one.metric, one.result),
            one.ratio.map_or("-".into(), |ratio| format!("{ratio:.3}")),
            span(one.interval),
            cell(&said(one))
        );
    }
    text
}

/// Within a cell of a table in Markdown.
fn cell(text: &str) -> String {
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().map(plain).collect::<String>().replace('\\', "\\\\").replace('|', "\\|").replace('`', "'")
}

/// A figure with its unit.
pub fn figure(metric: Metric, value: Option<f64>) -> String {
    match (metric, value) {
        (_, None) => "-".into(),
        (Metric::Rate, Some(rate)) => format!("{rate:.0}/s"),
        (Metric::Response, Some(mean)) => Duration(mean as u64).to_string(),
    }
}

pub fn span(interval: Option<(f64, f64)>) -> String {
    interval.map_or("-".into(), bounds)
}

/// The bounds of a ratio. Few rounds that differ much allow nearly any: such a number is not
/// written out.
pub fn bounds((low, high): (f64, f64)) -> String {
    let said = |bound: f64| if bound < BOUND_MAX { format!("{bound:.3}") } else { format!("{bound:.0e}") };
    format!("{} to {}", said(low), said(high))
}

const BOUND_MAX: f64 = 10_000.0;

/// The verdict, and why.
pub fn said(checked: &Checked) -> String {
    match checked.why.as_str() {
        "" => checked.verdict.to_string(),
        why => format!("{}: {why}", checked.verdict),
    }
}
