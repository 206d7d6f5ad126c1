//! Plans, outcomes and `.lab` files, for people and machines.

use std::path::Path;

use stele_ground::shown::{Shown, shown};
use stele_ground::{Bytes, Duration};
use stele_lab::ab_test::{self, Judged, Ratio};
use stele_lab::baseline;
use stele_lab::compare::Apart;
use stele_lab::job::{Job, JobCell};
use stele_lab::objective;
use stele_lab::record::{CellRecord, Recorded, RunRecord};
use stele_server::failure::{Failure, Outcome};

use super::progress::{cells as count_of, lasting};
use crate::commands::print_json;
use crate::output::{Align, Table};

/// Cells that an error names.
const CELLS_SHOWN: usize = 8;

pub fn plan(job: &Job, cells: &[JobCell], json: bool) -> Outcome<()> {
    let (least, most) = lasting(cells);
    if json {
        let rows: Vec<_> =
            cells.iter().map(|cell| serde_json::json!({ "cell": cell.name(), "axes": cell.axes })).collect();
        return print_json(&serde_json::json!({
            "on": job.on, "cells": rows, "least_seconds": least.as_secs_f64(), "most_seconds": most.as_secs_f64(),
        }));
    }
    let mut table =
        Table::new(&[("", Align::Right), ("cell", Align::Left), ("workload", Align::Left), ("load", Align::Left)]);
    for (number, cell) in cells.iter().enumerate() {
        let load = match cell.goal {
            Some(goal) if goal.of_rates => {
                format!("the highest rate with {} within {}", objective::said(goal.statistic), goal.response)
            }
            Some(goal) => format!("the highest at {}", goal.response),
            None if cell.setup.profile.is_some() => format!("profile of {} on the mean", cell.setup.load),
            None => cell.setup.load.to_string(),
        };
        table.row(vec![(number + 1).to_string(), cell.name(), cell.setup.spec.name.clone(), load]);
    }
    print!("{}", table.render());
    if job.modelled.is_some() || (job.recipe.is_some() && job.on.is_none()) {
        println!("\n{} in virtual time", count_of(cells.len()));
        return Ok(());
    }
    let drains = cells.iter().any(JobCell::is_open);
    let then = if drains { ", and that in which a target that fell behind catches up" } else { "" };
    println!("\n{}: {least} at least, {most} at most, and the time to fill the target{then}", count_of(cells.len()));
    Ok(())
}

/// The results at the end of a run.
pub fn outcome(cells: &[CellRecord], json: bool, out: Option<&Path>, digest: Option<&str>) {
    if cells.is_empty() {
        return;
    }
    if json {
        for cell in cells {
            // Fails for no value that JSON has.
            drop(print_json(&summary(cell)));
        }
        return;
    }
    print!("{}", super::table(cells));
    for (cell, read) in cells.iter().filter_map(|cell| Some((cell, cell.read_back.as_ref()?))) {
        if read.wrong.is_none() {
            println!("\nread back behind {}: {}, all as written", cell.name, Bytes(read.bytes));
        }
    }
    if let (Some(path), Some(digest)) = (out, digest) {
        println!("\nkept in {}, BLAKE3 {digest}", path.display());
    }
}

fn summary(cell: &CellRecord) -> serde_json::Value {
    let runs: Vec<_> = cell
        .runs
        .iter()
        .map(|run| {
            let total = run.total();
            let spans = |histogram: &stele_lab::histogram::Histogram| {
                serde_json::json!({
                    "count": histogram.count(), "mean_ns": histogram.mean().0, "p50_ns": histogram.percentile(0.5).0,
                    "p99_ns": histogram.percentile(0.99).0, "p999_ns": histogram.percentile(0.999).0,
                    "longest_ns": histogram.longest().0,
                })
            };
            serde_json::json!({
                "outstanding": run.outstanding, "rate_asked": run.rate_asked, "workers": run.workers, "rate": total.rate,
                "bytes": total.bytes, "response": spans(&total.response), "read": spans(&total.read),
                "write": spans(&total.write), "cpu_us": total.cpu_own, "machine_cpu_us": total.cpu_machine,
                "steady": run.is_steady(), "unsteady_why": run.shortfall(), "stopped": run.stopped, "lag_share": run.lag_share,
            })
        })
        .collect();
    serde_json::json!({
        "cell": cell.number, "name": cell.name, "axes": cell.axes, "workload": cell.workload, "runs": runs,
        "search": cell.search, "objective": cell.objective, "hosts": cell.hosts, "precondition": cell.precondition,
        "failed": cell.failed, "remark": stele_lab::report::remark(cell),
        "wrong_sectors": cell.wrong_sectors, "read_back": cell.read_back,
    })
}

pub fn file(recorded: &Recorded, json: bool, rounds: bool) -> Outcome<()> {
    let head = &recorded.head;
    if json {
        let cells: Vec<_> = match rounds {
            true => recorded.cells.iter().map(|cell| serde_json::json!(cell)).collect(),
            false => recorded.cells.iter().map(summary).collect(),
        };
        return print_json(&serde_json::json!({ "head": head, "cells": cells, "blake3": recorded.digest }));
    }
    println!("target    {} ({}, {})", Shown(&head.target), Shown(&head.reached), Bytes(head.target_bytes));
    for (name, value) in &head.environment {
        println!("{:9} {}", shown(name), Shown(value));
    }
    match &recorded.digest {
        Some(digest) => println!("whole     BLAKE3 {digest}, measured by {}\n", Shown(&head.program)),
        None => println!("not whole: the run did not come to its end; `stele lab run` with --resume goes on\n"),
    }
    print!("{}", super::table(&recorded.cells));
    if let (Some(judged), Some(against)) = (ab_test::of(recorded), &head.against) {
        println!("\nA is {}, B is {}", Shown(&head.target), Shown(against));
        compared(&judged, false)?;
    }
    if rounds {
        for cell in &recorded.cells {
            println!("\n{}", Shown(&cell.name));
            print!("{}", rounds_of(cell));
        }
    }
    Ok(())
}

/// Accesses a second; a few of them with decimals, since 0 would say that nothing was answered.
pub fn a_second(rate: f64) -> String {
    match rate > 0.0 && rate < 9.995 {
        true => format!("{rate:.2}"),
        false => format!("{rate:.0}"),
    }
}

fn rounds_of(cell: &CellRecord) -> String {
    let mut table = Table::new(&[
        ("load", Align::Right),
        ("round", Align::Right),
        ("accesses/s", Align::Right),
        ("MB/s", Align::Right),
        ("mean", Align::Right),
        ("99 %", Align::Right),
    ]);
    for run in &cell.runs {
        for (number, round) in run.rounds.iter().enumerate() {
            let one = RunRecord { rounds: vec![round.clone()], ..run.clone() };
            let total = one.total();
            // Without an answer there is no response.
            let said = |span: Duration| if total.response.count() == 0 { "-".into() } else { span.to_string() };
            table.row(vec![
                run.load(),
                (number + 1).to_string(),
                a_second(round.rate),
                format!("{:.1}", (round.read_bytes + round.written_bytes) / 1e6),
                said(total.response.mean()),
                said(total.response.percentile(0.99)),
            ]);
        }
    }
    table.render()
}

pub fn difference(first: &Recorded, second: &Recorded, json: bool) -> Outcome<()> {
    let (both, alone) = stele_lab::compare::compare(first, second);
    let apart = stele_lab::compare::apart(&first.head, &second.head);
    if both.is_empty() {
        let (shown, more) = alone.split_at(alone.len().min(CELLS_SHOWN));
        let names = match (shown, more) {
            ([], _) => "no cell was measured in both".to_owned(),
            (shown, []) => format!("only in one of them: {}", shown.join("; ")),
            (shown, more) => format!("only in one of them: {}; and {} more", shown.join("; "), more.len()),
        };
        let message = format!("the two files have no cell in common; {names}");
        return Err(Failure::missing(message).next("name two results of the same job"));
    }
    if json {
        let rows: Vec<_> = both
            .iter()
            .map(|cell| {
                serde_json::json!({
                    "cell": cell.name, "rates": cell.rates, "mean_ns": cell.responses, "ratio": cell.ratio,
                    "interval": cell.interval, "differs": cell.differs(), "unsteady_runs": cell.unsteady,
                })
            })
            .collect();
        let apart: Vec<_> = apart
            .iter()
            .map(|apart| serde_json::json!({ "name": apart.name, "first": apart.values.0, "second": apart.values.1 }))
            .collect();
        return print_json(&serde_json::json!({ "cells": rows, "alone": alone, "apart": apart }));
    }
    let mut table = Table::new(&[
        ("cell", Align::Whole),
        ("first", Align::Right),
        ("second", Align::Right),
        ("ratio", Align::Right),
        ("95 %", Align::Right),
        ("mean, first", Align::Right),
        ("second", Align::Right),
        ("", Align::Left),
    ]);
    for cell in &both {
        let interval = cell.interval.map_or("one round".into(), baseline::bounds);
        table.row(vec![
            shown(&cell.name),
            a_second(cell.rates.0),
            a_second(cell.rates.1),
            format!("{:.3}", cell.ratio),
            interval,
            Duration(cell.responses.0).to_string(),
            Duration(cell.responses.1).to_string(),
            marks(cell.differs(), cell.unsteady),
        ]);
    }
    print!("{}", table.render());
    if !alone.is_empty() {
        println!("\nonly in one of them: {}", Shown(&alone.join("; ")));
    }
    print!("{}", apart_said(&apart, ["in the first", "in the second"]));
    Ok(())
}

/// What may have caused a difference beside the targets: figures of two machines are no comparison
/// of two drives.
pub fn apart_said(apart: &[Apart], [first, second]: [&'static str; 2]) -> String {
    if apart.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&[("not the same", Align::Whole), (first, Align::Left), (second, Align::Left)]);
    let said = |value: &String| if value.is_empty() { "not known".to_owned() } else { shown(value) };
    for one in apart {
        table.row(vec![shown(&one.name), said(&one.values.0), said(&one.values.1)]);
    }
    format!("\n{}", table.render())
}

/// The result of a comparison in blocks.
pub fn compared(all: &[Judged], json: bool) -> Outcome<()> {
    if json {
        let ratio = |ratio: &Ratio| serde_json::json!({ "ratio": ratio.ratio, "interval": ratio.interval, "differs": ratio.differs() });
        for cell in all {
            let line = serde_json::json!({
                "cell": cell.name, "blocks": cell.blocks, "rates": cell.rates, "responses_ns": cell.responses,
                "rate": ratio(&cell.rate), "response": ratio(&cell.response), "unsteady_runs": cell.unsteady,
            });
            print_json(&line)?;
        }
        return Ok(());
    }
    let mut table = Table::new(&[
        ("cell", Align::Whole),
        ("A", Align::Right),
        ("B", Align::Right),
        ("B/A", Align::Right),
        ("95 %", Align::Right),
        ("mean, A", Align::Right),
        ("B", Align::Right),
        ("95 % of B/A", Align::Right),
        ("blocks", Align::Right),
        ("", Align::Left),
    ]);
    let interval = |ratio: &Ratio| ratio.interval.map_or("one block".into(), baseline::bounds);
    for cell in all {
        table.row(vec![
            shown(&cell.name),
            a_second(cell.rates.0),
            a_second(cell.rates.1),
            format!("{:.3}", cell.rate.ratio),
            interval(&cell.rate),
            Duration(cell.responses.0 as u64).to_string(),
            Duration(cell.responses.1 as u64).to_string(),
            interval(&cell.response),
            cell.blocks.to_string(),
            marks(cell.rate.differs(), cell.unsteady),
        ]);
    }
    print!("{}", table.render());
    Ok(())
}

fn marks(differs: bool, unsteady: usize) -> String {
    let mut marks = Vec::new();
    if !differs {
        marks.push("no difference shown".to_owned());
    }
    match unsteady {
        0 => {}
        1 => marks.push("one run did not reach a steady state".to_owned()),
        many => marks.push(format!("{many} runs did not reach a steady state")),
    }
    marks.join("; ")
}

pub fn published(json: bool) -> Outcome<()> {
    let found = stele_papers::oddities::published();
    if json {
        let rows: Vec<_> = found
            .iter()
            .map(|odd| serde_json::json!({ "place": odd.place, "kind": format!("{:?}", odd.kind), "why": odd.why }))
            .collect();
        return print_json(&rows);
    }
    let mut table = Table::new(&[("place", Align::Left), ("what is odd", Align::Left)]);
    for odd in &found {
        table.row(vec![odd.place.clone(), odd.why.clone()]);
    }
    print!("{}", table.render());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::a_second;

    #[test]
    fn a_rate_below_one_is_no_zero() {
        for (rate, shown) in [(0.0, "0"), (0.667, "0.67"), (9.99, "9.99"), (9.996, "10"), (1234.6, "1235")] {
            assert_eq!(a_second(rate), shown);
        }
    }
}
