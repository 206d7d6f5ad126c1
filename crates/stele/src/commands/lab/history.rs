//! `stele lab history`: the trend of the results in a directory.

use stele_ground::shown::{Shown, shown};
use stele_lab::baseline::{self, Metric};
use stele_lab::history::{self, CellHistory, History};
use stele_server::failure::{Failure, Outcome};

use super::pages;
use crate::cli::lab::LabHistory;
use crate::commands::print_json;
use crate::output::{Align, Table};

pub fn run(json: bool, asked: &LabHistory) -> Outcome<()> {
    let found = History::of(&asked.directory)?;
    if let Some(name) = &asked.cell {
        return trends(&found, name, json);
    }
    if let Some(out) = &asked.out {
        pages::is_page(out)?;
        let pdf = out.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("pdf"));
        let page = history::document(&found, &asked.directory.display().to_string(), asked.title.as_deref());
        return pages::write(&page, out, pdf, json);
    }
    if json {
        return print_json(&serde_json::json!({
            "results": found.results.iter().map(|result| serde_json::json!({
                "file": result.path, "begun": result.begun, "program": result.program, "target": result.target,
                "target_bytes": result.target_bytes, "cells": result.cells,
            })).collect::<Vec<_>>(),
            "cells": found.series.iter().map(|series| row(&found, series)).collect::<Vec<_>>(),
            "left_out": found.left_out.iter()
                .map(|(file, why)| serde_json::json!({ "file": file, "why": why })).collect::<Vec<_>>(),
        }));
    }
    table(&found);
    Ok(())
}

fn row(found: &History, series: &CellHistory) -> serde_json::Value {
    let metric = match series.metric {
        Metric::Rate => "rate",
        Metric::Response => "mean_ns",
    };
    let standing = series.standing();
    let points: Vec<_> = series
        .points
        .iter()
        .map(|point| serde_json::json!({ "result": point.result, "value": point.value, "unusable": point.unusable }))
        .collect();
    serde_json::json!({
        "cell": series.name, "target": series.target, "load": series.load, "metric": metric, "first": series.first(),
        "newest": standing.map(|standing| standing.newest), "median": standing.and_then(|standing| standing.median),
        "ratio": standing.and_then(|standing| standing.ratio), "remark": found.remark(series), "points": points,
    })
}

fn table(found: &History) {
    let mut table = Table::new(&[
        ("cell", Align::Left),
        ("results", Align::Right),
        ("first", Align::Right),
        ("median", Align::Right),
        ("newest", Align::Right),
        ("ratio", Align::Right),
    ]);
    for series in &found.series {
        let standing = series.standing();
        let figure = |value: Option<f64>| baseline::figure(series.metric, value);
        table.row(vec![
            shown(&found.called(series)),
            series.points.len().to_string(),
            figure(series.first()),
            figure(standing.and_then(|standing| standing.median)),
            figure(standing.map(|standing| standing.newest)),
            standing.and_then(|standing| standing.ratio).map_or("-".into(), |ratio| format!("{ratio:.3}")),
        ]);
    }
    print!("{}", table.render());
    let remarks = found.series.iter().map(|series| (found.called(series), found.remark(series)));
    for (name, remark) in remarks.filter(|(_, remark)| !remark.is_empty()) {
        println!("\n{}: {}", Shown(&name), Shown(&remark));
    }
    for (_, why) in &found.left_out {
        println!("\nleft out: {}", Shown(why));
    }
}

fn trends(found: &History, name: &str, json: bool) -> Outcome<()> {
    let fits = |series: &&CellHistory| series.name == name || found.called(series) == name;
    let all: Vec<&CellHistory> = found.series.iter().filter(fits).collect();
    if all.is_empty() {
        return Err(
            Failure::missing(format!("no result has a cell '{name}'")).next("leave out --cell to see which there are")
        );
    }
    if json {
        return print_json(&all.into_iter().map(|series| row(found, series)).collect::<Vec<_>>());
    }
    let wide = pages::columns();
    for series in all {
        match history::trend(found, series).characters(wide, pages::rows(wide)) {
            Some(drawn) => print!("{}", pages::drawn(&drawn)),
            None => return Err(Failure::missing(format!("cell '{name}': no result has a figure of it"))),
        }
    }
    Ok(())
}
