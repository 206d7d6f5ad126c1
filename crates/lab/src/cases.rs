//! Published cells as questions to modelled arrays.

use stele_ground::Duration;

use crate::modelled::run::Planned;
use crate::modelled::{Array, Ask, Effort, LogPlace, Maker};
use crate::published::{Cell, workload_of};
use crate::search::{Goal, Statistic};
use crate::workload::{self, AccessSpec, Alignment};

/// The mean response of all published cells.
pub const RESPONSE: Duration = Duration::from_millis(20);
/// Percent of each drive that all cells use unless they say otherwise.
pub const STROKE: u8 = 8;
/// Outstanding accesses at most.
const LOAD_MAX: u64 = 20_000;

/// The array that a cell speaks of.
pub fn array_of(cell: &Cell, maker: Maker) -> Array {
    Array {
        maker,
        level: cell.level,
        drives: cell.drives as u32,
        cached: cell.cached,
        stroke: STROKE,
        log: LogPlace::Memory,
    }
}

/// The published goal, looked for from so many outstanding accesses on.
pub fn goal(start: u64, effort: Effort) -> Goal {
    Goal { response: RESPONSE, statistic: Statistic::Mean, start, load_max: LOAD_MAX, probes_max: effort.probes_max }
}

/// The workload of a cell.
pub fn spec_of(cell: &Cell) -> Result<AccessSpec, String> {
    let name = workload_of(cell);
    workload::named(&name).ok_or_else(|| format!("there is no access specification '{name}'"))
}

/// The question for a cell's highest load, looked for from the published rate on.
pub fn question(cell: &Cell, array: Array, effort: Effort) -> Result<Planned, String> {
    let start = (cell.rate * RESPONSE.as_secs_f64()) as u64;
    Ok(Planned {
        array,
        spec: spec_of(cell)?,
        alignment: Alignment::Request,
        ask: Ask::Highest { goal: goal(start, effort), curve: false },
        effort,
        streams: 1,
    })
}
