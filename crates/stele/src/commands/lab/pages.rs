//! Reports and charts of `.lab` files.

use std::path::{Path, PathBuf};

use stele_ground::Shown;
use stele_lab::error::LabError;
use stele_lab::record::{self, Recorded};
use stele_lab::report::chart;
use stele_lab::report::charts::{ChartKind, KINDS};
use stele_lab::report::document::Document;
use stele_lab::report::html;
use stele_papers::export;
use stele_papers::pdf;
use stele_server::failure::{Failure, Kind, Outcome};

use super::write_new;
use crate::cli::lab::ExportFormat;
use crate::commands::print_json;
use crate::output::{Align, Table};

/// Width of a terminal that does not report one.
const COLUMNS: usize = 80;

/// Writes a document as a page or as a PDF.
pub fn write(document: &Document, path: &Path, pdf: bool, json: bool) -> Outcome<()> {
    write_new(path, rendered(document, pdf)?, json)
}

/// The same in the place of a file that is there. It is rendered first: what was there stays if
/// anything fails.
pub fn write_over(document: &Document, path: &Path, pdf: bool, json: bool) -> Outcome<()> {
    super::write_over(path, rendered(document, pdf)?, json)
}

/// Refuses a file whose name says that it holds something else than what is written. A name without
/// an ending says nothing.
pub fn ends_in(path: &Path, endings: &[&str], next: &str) -> Outcome<()> {
    let Some(ending) = path.extension().map(|ending| ending.to_string_lossy().to_lowercase()) else { return Ok(()) };
    match endings.contains(&&*ending) {
        true => Ok(()),
        false => Err(Failure::usage(format!("{}: this command writes no .{ending} file", path.display())).next(next)),
    }
}

/// The endings of a page.
pub fn is_page(path: &Path) -> Outcome<()> {
    ends_in(path, &["html", "htm", "pdf"], "name a file that ends in .html, or in .pdf for a PDF")
}

fn rendered(document: &Document, pdf: bool) -> Outcome<Vec<u8>> {
    Ok(match pdf {
        true => pdf::file(document)?,
        false => html::page(document)?.into(),
    })
}

pub fn plot(files: &[PathBuf], name: Option<&str>, out: Option<&Path>, json: bool) -> Outcome<()> {
    if name == Some("help") {
        return charts(json);
    }
    if let Some(out) = out {
        ends_in(
            out,
            &["svg"],
            "a chart is written as SVG: name a file that ends in .svg, or write a page that ends in .html \
            with `stele lab paper`",
        )?;
    }
    let all = files.iter().map(|file| record::read(file)).collect::<Result<Vec<Recorded>, LabError>>()?;
    let shown = files.iter().map(|file| file.display().to_string()).collect::<Vec<String>>().join(", ");
    let of = |kind: ChartKind| match all.as_slice() {
        [one] => Some(kind.of(one)),
        several => {
            let named = |(name, one): (String, &Recorded)| (name, kind.of(one));
            chart::together(names_of(files).into_iter().zip(several).map(named).collect())
        }
    };
    let chart = match name {
        Some(name) => {
            let kind = ChartKind::named(name).ok_or_else(|| {
                Failure::usage(format!("--chart {name}: there is no such chart")).next("--chart help lists them")
            })?;
            of(kind)
        }
        None => KINDS.iter().filter_map(|(_, kind, _)| of(*kind)).find(|chart| !chart.is_empty()),
    };
    let chart = chart.ok_or_else(|| nothing_to_draw(&shown))?;
    match out {
        Some(out) => write_new(out, chart.svg_file().ok_or_else(|| nothing_to_draw(&shown))?, json),
        None => {
            let wide = columns();
            print!("{}", drawn(&chart.characters(wide, rows(wide)).ok_or_else(|| nothing_to_draw(&shown))?));
            Ok(())
        }
    }
}

/// What tells files apart in one chart: their names, or where two have the same name their paths.
fn names_of(files: &[PathBuf]) -> Vec<String> {
    let name = |file: &PathBuf| file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let names: Vec<String> = files.iter().map(name).collect();
    let is_twice = |name: &String| names.iter().filter(|other| *other == name).count() > 1;
    match names.iter().any(is_twice) {
        true => files.iter().map(|file| file.with_extension("").display().to_string()).collect(),
        false => names,
    }
}

/// A chart of characters, line by line: a name in it moves nothing on the terminal.
pub fn drawn(chart: &str) -> String {
    chart.lines().map(|line| format!("{}\n", Shown(line))).collect()
}

/// Width of a chart on this terminal.
pub fn columns() -> usize {
    std::env::var("COLUMNS").ok().and_then(|wide| wide.parse().ok()).unwrap_or(COLUMNS)
}

/// Height of a chart of that width.
pub fn rows(wide: usize) -> usize {
    (wide / 4).clamp(12, 30)
}

pub fn export(file: &Path, format: ExportFormat, out: Option<&Path>, json: bool) -> Outcome<()> {
    let recorded = record::read(file)?;
    let short = recorded.cells.iter().filter(|cell| !cell.is_steady()).count();
    if short > 0 {
        // Neither fio's format nor Iometer's has a field for this.
        eprintln!("stele: {short} of {} did not reach a steady state", super::progress::cells(recorded.cells.len()));
    }
    let (text, ending) = match format {
        ExportFormat::Iometer => (export::iometer(&recorded), "iometer.csv"),
        ExportFormat::Fio => (export::fio(&recorded), "json"),
        ExportFormat::Csv => (export::csv(&recorded), "csv"),
        ExportFormat::Rounds => (export::rounds(&recorded), "rounds.csv"),
    };
    write_new(&out.map_or_else(|| file.with_extension(ending), Path::to_owned), text, json)
}

fn nothing_to_draw(shown: &str) -> Failure {
    Failure::new(Kind::Missing, format!("{shown}: has nothing for this chart"))
        .next("--chart help lists them; rate-size needs cells that differ in `access`, rate-threads in `workers`")
}

fn charts(json: bool) -> Outcome<()> {
    if json {
        let rows: Vec<_> =
            KINDS.iter().map(|(name, _, words)| serde_json::json!({ "name": name, "shows": words })).collect();
        return print_json(&rows);
    }
    let mut table = Table::new(&[("chart", Align::Left), ("shows", Align::Left)]);
    for (name, _, words) in KINDS {
        table.row(vec![(*name).to_owned(), (*words).to_owned()]);
    }
    print!("{}", table.render());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_one_name_are_told_apart_by_their_paths() {
        let names = |files: &[&str]| names_of(&files.iter().map(PathBuf::from).collect::<Vec<_>>());
        assert_eq!(names(&["a/before.lab", "a/after.lab"]), ["before", "after"]);
        assert_eq!(names(&["a/night.lab", "b/night.lab"]), ["a/night", "b/night"]);
    }
}
