//! The distance of the published machine's model from the published figures.

use crate::published::{Printed, suspicion};

/// The model's controllers limit the rate if they are busy for more than this share of the time.
const BOUND: f64 = 0.9;

/// A published cell and the model's result for it.
#[derive(Clone, Debug)]
pub struct Row {
    pub cell: Printed,
    /// Accesses a second: published, and below the model's.
    pub published: f64,
    pub model: f64,
    /// Share of the time that the model's controllers were busy.
    pub busy: f64,
}

impl Row {
    pub fn error(&self) -> f64 {
        self.model / self.published - 1.0
    }

    /// Whether the controllers, not the drives, limit the rate.
    pub fn controller_bound(&self) -> bool {
        self.busy > BOUND
    }
}

/// Cells that the parameters of drives or controllers were fitted to.
pub fn is_fitted(cell: &Printed) -> bool {
    let basis = !cell.cached && cell.size.is_some() && cell.rate.is_some() && suspicion(cell).is_none();
    basis && (cell.drives == 20 || (cell.drives == 140 && cell.workload == "random_read"))
}

/// The mean absolute error over a number of cells.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub struct Nearness {
    pub cells: usize,
    pub error: f64,
}

/// The error over the rows that pass.
fn nearness(rows: &[Row], passes: impl Fn(&Row) -> bool) -> Nearness {
    let errors: Vec<f64> = rows.iter().filter(|row| passes(row)).map(|row| row.error().abs()).collect();
    Nearness { cells: errors.len(), error: errors.iter().sum::<f64>() / errors.len().max(1) as f64 }
}

/// The groups of rows, with the error of each.
pub fn lines(rows: &[Row]) -> Vec<(&'static str, Nearness)> {
    let trusted = |row: &Row| suspicion(&row.cell).is_none();
    let held_out = |row: &Row| !is_fitted(&row.cell);
    let bound = Row::controller_bound;
    vec![
        (
            "drive-bound, uncached, held out, not suspect",
            nearness(rows, |row| !row.cell.cached && held_out(row) && trusted(row) && !bound(row)),
        ),
        (
            "controller-bound, uncached, held out, not suspect",
            nearness(rows, |row| !row.cell.cached && held_out(row) && trusted(row) && bound(row)),
        ),
        ("drive-bound, cached, not suspect", nearness(rows, |row| row.cell.cached && trusted(row) && !bound(row))),
        ("controller-bound, cached, not suspect", nearness(rows, |row| row.cell.cached && trusted(row) && bound(row))),
        ("drive-bound, fitted", nearness(rows, |row| is_fitted(&row.cell) && !bound(row))),
        ("suspect, all", nearness(rows, |row| !trusted(row))),
        ("all cells", nearness(rows, |_| true)),
    ]
}
