//! The published tables of the DS4500 in virtual time: its profile, and Stele on the same modelled drives.
//!
//! The figures do not come from this machine's clock, so there are no rounds and no spread: the same digits at each run. A
//! whole run also writes `docs/virtual.md`.

use stele_lab::modelled::Effort;
use stele_lab::set::{self, Asked};
use stele_lab::{published, report};

use crate::harness::{Bench, Unit};

const PAGE: &str = "docs/virtual.md";
const RATE: Unit = Unit::more("IO/s");

fn case(cell: &published::Cell, asked: Asked) -> String {
    let who = match asked {
        Asked::Profile => "profile",
        Asked::Stele => "Stele",
        Asked::SteleLogOnDrives => "Stele, log on the drives",
    };
    format!("{} {who}", set::name(cell))
}

fn stroke_case(level: published::Level, percent: u32) -> String {
    format!("stroke {} {percent}% profile", level.name())
}

pub fn run(bench: &mut Bench) -> Result<(), String> {
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    let rows = {
        let (wants, whole) = (bench.filter(), bench.is_whole());
        let rows = set::rows(&|cell, who| wants(&case(cell, who)), (Effort::FULL, Effort::POOL), threads)?;
        let strokes = set::strokes(&|stroke| wants(&stroke_case(stroke.level, stroke.percent)), Effort::FULL, threads)?;
        if whole {
            std::fs::write(PAGE, report::markdown(&rows, &strokes)).map_err(|error| format!("{PAGE}: {error}"))?;
        }
        for row in &strokes {
            let name = stroke_case(row.level, row.percent);
            bench.figure(&name, Unit::more("of 8 %"), row.ours, Some(("published", row.published)), None);
        }
        rows
    };
    for row in &rows {
        let cell = &row.cell;
        bench.figure(&case(cell, Asked::Profile), RATE, row.profile.rate, Some(("published", cell.rate)), None);
        if let Some(figure) = row.stele {
            let reference = Some(("DS4500 profile", row.profile.rate));
            bench.figure(&case(cell, Asked::Stele), RATE, figure.rate, reference, Some(1.0));
        }
        if let (Some(figure), Some(memory)) = (row.stele_log_on_drives, row.stele) {
            let reference = Some(("log in memory", memory.rate));
            bench.figure(&case(cell, Asked::SteleLogOnDrives), RATE, figure.rate, reference, None);
        }
    }
    if bench.is_whole() {
        for (name, found) in report::nearness_lines(&rows) {
            let case = format!("error of the profile: {name}");
            bench.figure(&case, Unit::less("%"), found.error * 100.0, None, None);
        }
        bench.note(&format!("the tables are in {PAGE}"));
    }
    Ok(())
}
