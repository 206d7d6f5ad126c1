//! `stele lab check`: compares a result with a baseline and ends with a verdict, for scripts.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::path::Path;

use stele_ground::shown::{Shown, shown};
use stele_lab::baseline::{self, Checked, Metric, Verdict};
use stele_lab::compare::{self, Apart};
use stele_lab::error::LabError;
use stele_lab::{history, record};
use stele_server::failure::{Failure, Kind, Outcome};

use crate::cli::lab::Check;
use crate::commands::print_json;
use crate::output::{Align, Table};

/// Parses a tolerance such as `5%` as a share of the baseline's figure.
fn tolerance(text: &str) -> Outcome<f64> {
    let percent = text.trim().trim_end_matches('%').trim_end().parse::<f64>().ok();
    let percent = percent.filter(|percent| (0.0..100.0).contains(percent));
    let share = percent.map(|percent| percent / 100.0);
    share.ok_or_else(|| {
        Failure::usage(format!("--tolerance {text}: say it in percent, from 0 to less than 100, like 5%"))
    })
}

pub fn run(json: bool, asked: &Check) -> Outcome<()> {
    let share = tolerance(&asked.tolerance)?;
    let (result_path, result) = match asked.result.is_dir() {
        true => history::newest(&asked.result)?,
        false => (asked.result.clone(), record::read(&asked.result)?),
    };
    let (against, before) = match asked.against.is_dir() {
        true => history::before(&asked.against, &result)?,
        false => (asked.against.clone(), record::read(&asked.against)?),
    };
    let checked = baseline::check(&before, &result, share);
    if checked.is_empty() {
        return Err(Failure::missing(format!("{}: the baseline has no cells", against.display())));
    }
    let (name, of) = (result_path.display().to_string(), against.display().to_string());
    if !json && (asked.result.is_dir() || asked.against.is_dir()) {
        println!("{name} against {of}\n");
    }
    if let Some(path) = &asked.junit {
        write("--junit", path, &baseline::junit(&checked, &name), JUNIT)?;
    }
    if let Some(path) = &asked.markdown {
        write("--markdown", path, &baseline::markdown(&checked, &name, &of, share), MARKDOWN)?;
    }
    match json {
        true => print_json(&serde_json::json!({
            "result": name, "against": of, "tolerance_percent": share * 100.0,
            "cells": checked.iter().map(row).collect::<Vec<_>>(),
        }))?,
        false => table(&checked),
    }
    if before.head.target != result.head.target && !json {
        let (now, then) = (Shown(&result.head.target), Shown(&before.head.target));
        println!("\nnot of the same target: {now}, and {then} before");
    }
    let of_machine = |apart: &Apart| !["target", "used", "program"].contains(&apart.name.as_str());
    let apart: Vec<Apart> = compare::apart(&before.head, &result.head).into_iter().filter(of_machine).collect();
    if !json {
        print!("{}", super::show::apart_said(&apart, ["in the baseline", "in the result"]));
    }
    verdict(&checked)
}

fn row(cell: &Checked) -> serde_json::Value {
    let metric = match cell.metric {
        Metric::Rate => "rate",
        Metric::Response => "mean_ns",
    };
    serde_json::json!({
        "cell": cell.name, "metric": metric, "baseline": cell.baseline, "measured": cell.result, "ratio": cell.ratio,
        "interval": cell.interval, "verdict": cell.verdict.to_string(), "why": cell.why,
    })
}

fn table(checked: &[Checked]) {
    let mut table = Table::new(&[
        ("cell", Align::Whole),
        ("baseline", Align::Right),
        ("result", Align::Right),
        ("ratio", Align::Right),
        ("95 %", Align::Right),
        ("", Align::Left),
    ]);
    for cell in checked {
        table.row(vec![
            shown(&cell.name),
            baseline::figure(cell.metric, Some(cell.baseline)),
            baseline::figure(cell.metric, cell.result),
            cell.ratio.map_or("-".into(), |ratio| format!("{ratio:.3}")),
            baseline::span(cell.interval),
            shown(&baseline::said(cell)),
        ]);
    }
    print!("{}", table.render());
}

fn verdict(checked: &[Checked]) -> Outcome<()> {
    let all = super::progress::cells(checked.len());
    for (kind, verdict) in
        [(Kind::Regressed, Verdict::Regressed), (Kind::Partial, Verdict::Missing), (Kind::Unsteady, Verdict::Unclear)]
    {
        let count = checked.iter().filter(|cell| cell.verdict == verdict).count();
        if count > 0 {
            return Err(Failure::new(kind, format!("{count} of {all} {verdict}")));
        }
    }
    Ok(())
}

/// A report of an earlier check has these words near its beginning.
const JUNIT: &str = "<testsuite name=\"stele lab check\"";
const MARKDOWN: &str = "Ratios above 1 are better.";
/// Bytes in which they are looked for.
const HEAD: u64 = 64 << 10;

/// Writes a report for other tools. It replaces the report of an earlier check, and no other file.
fn write(option: &str, path: &Path, text: &str, words: &str) -> Outcome<()> {
    let cannot = |error: std::io::Error| LabError::of(&error, "cannot be written", path);
    // A pipe or a terminal holds nothing.
    if std::fs::metadata(path).is_ok_and(|found| found.is_file() && found.len() > 0) {
        let mut head = Vec::new();
        File::open(path).and_then(|file| file.take(HEAD).read_to_end(&mut head)).map_err(cannot)?;
        if !String::from_utf8_lossy(&head).contains(words) {
            return Err(Failure::new(
                Kind::Exists,
                format!("{}: exists already, and is no report of an earlier check", path.display()),
            )
            .next(format!("name another file with {option}")));
        }
    }
    let written = OpenOptions::new().write(true).create(true).truncate(true).open(path);
    let written = written.and_then(|mut file| file.write_all(text.as_bytes()));
    Ok(written.map_err(cannot)?)
}

#[cfg(test)]
mod tests {
    use super::{JUNIT, MARKDOWN, tolerance, write};
    use stele_lab::baseline;
    use stele_server::failure::Kind;

    #[test]
    fn a_tolerance_is_a_percentage() {
        for (text, share) in [("5%", 0.05), ("0", 0.0), (" 2.5 % ", 0.025)] {
            assert_eq!(tolerance(text), Ok(share), "{text}");
        }
        for text in ["", "100%", "-1", "5x", "NaN", "inf"] {
            assert!(tolerance(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_report_replaces_an_earlier_report_and_no_other_file() {
        let path = std::env::temp_dir().join(format!("stele-lab-check-{}", std::process::id()));
        for (option, words, text) in [
            ("--junit", JUNIT, baseline::junit(&[], "a.lab")),
            ("--markdown", MARKDOWN, baseline::markdown(&[], "a.lab", "b.lab", 0.05)),
        ] {
            std::fs::write(&path, "").unwrap();
            for _ in 0..2 {
                write(option, &path, &text, words).unwrap();
                assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
            }
            std::fs::write(&path, "the result of a night").unwrap();
            let failure = write(option, &path, &text, words).unwrap_err();
            assert!(failure.kind == Kind::Exists && failure.next.contains(option), "{}", failure.error);
            assert_eq!(std::fs::read_to_string(&path).unwrap(), "the result of a night");
        }
        std::fs::remove_file(&path).unwrap();
    }
}
