//! The results of a directory, oldest first: what became of each cell over days and versions of
//! what is measured.
//!
//! Files are read one after another, and of each only its figures are kept, so that years of
//! nightly results fit into the memory. A file that cannot be read, or whose run did not come to
//! its end, is left out and named. A cell that is not steady, void, partial or damaged keeps its
//! place, but nothing is reckoned with it.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use crate::baseline::{Metric, asked_of, figure_of, metric_of, unusable};
use crate::error::LabError;
use crate::record::{self, CellRecord, Head, Recorded};
use crate::steady::{self, Change};

mod page;

pub use page::{document, trend};

/// Files of a directory that are looked at.
pub const FILES_MAX: usize = 10_000;
/// Bytes of a file's first line.
const HEAD_MAX: u64 = 16 << 20;
/// Former results whose median the newest one is held against.
const FORMER: usize = 20;

/// A result, without its cells.
#[derive(Clone, PartialEq, Debug)]
pub struct ResultSummary {
    pub path: PathBuf,
    /// Seconds since 1970.
    pub begun: u64,
    pub program: String,
    pub target: String,
    pub target_bytes: u64,
    pub cells: usize,
}

/// What one result says of a cell.
#[derive(Clone, PartialEq, Debug)]
pub struct Point {
    /// Its place among the results.
    pub result: usize,
    pub value: f64,
    /// Why nothing follows from it; none where it is good.
    pub unusable: Option<String>,
}

/// One cell over all results.
#[derive(Clone, PartialEq, Debug)]
pub struct CellHistory {
    pub target: String,
    pub name: String,
    pub metric: Metric,
    /// What was asked for: figures of another load are those of another series.
    pub load: String,
    pub points: Vec<Point>,
    /// The cell's accesses were of names.
    names: bool,
    workload: String,
}

#[derive(Clone, PartialEq, Default, Debug)]
pub struct History {
    pub results: Vec<ResultSummary>,
    pub series: Vec<CellHistory>,
    /// Files that are no result, or not a whole one, and why; the reason begins with the file.
    pub left_out: Vec<(PathBuf, String)>,
}

/// How the newest result of a cell stands beside those before it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Standing {
    pub newest: f64,
    /// Of the results before it, 20 at most; none where there are none.
    pub median: Option<f64>,
    /// How much better the newest one is than their median.
    pub ratio: Option<f64>,
}

impl CellHistory {
    /// The places and values that say something.
    pub fn usable(&self) -> Vec<(usize, f64)> {
        let good = self.points.iter().filter(|point| point.unusable.is_none());
        good.map(|point| (point.result, point.value)).collect()
    }

    /// None where no result says anything.
    pub fn standing(&self) -> Option<Standing> {
        let usable = self.usable();
        let ((_, newest), former) = usable.split_last()?;
        let former: Vec<f64> = former.iter().rev().take(FORMER).map(|(_, value)| *value).collect();
        let median = median(former);
        let better = |median: f64| match self.metric {
            Metric::Rate => newest / median.max(1e-9),
            Metric::Response => median / newest.max(1e-9),
        };
        Some(Standing { newest: *newest, median, ratio: median.map(better) })
    }

    /// The result with which the figures changed for good, and how: by ranks, as rounds of a run
    /// are judged. Fewer than eight results show none.
    pub fn change(&self) -> Option<(usize, Change)> {
        let usable = self.usable();
        let values: Vec<f64> = usable.iter().map(|(_, value)| *value).collect();
        let change = steady::change(&values)?;
        Some((usable.get(change.round)?.0, change))
    }

    /// Of the first result that says something.
    pub fn first(&self) -> Option<f64> {
        self.usable().first().map(|(_, value)| *value)
    }

    fn is_of(&self, target: &str, cell: &CellRecord, metric: Metric, load: &str) -> bool {
        let own = (self.target.as_str(), self.name.as_str(), self.workload.as_str(), self.load.as_str());
        own == (target, cell.name.as_str(), cell.workload.as_str(), load)
            && (self.names, self.metric) == (cell.names, metric)
    }
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let (low, high) = (values.get(values.len().checked_sub(1)? / 2)?, values.get(values.len() / 2)?);
    Some((low + high) / 2.0)
}

impl History {
    /// The `.lab` files of a directory.
    pub fn of(directory: &Path) -> Result<History, LabError> {
        let mut history = History::default();
        let mut files = Vec::new();
        for path in files_of(directory)? {
            match head_of(&path) {
                Ok(head) => files.push((head.begun, path)),
                Err(error) => history.left_out.push((path, error.to_string())),
            }
        }
        files.sort();
        for (_, path) in files {
            match record::read(&path) {
                Ok(recorded) if recorded.digest.is_some() => history.add(path, &recorded),
                Ok(_) => {
                    let why = format!("{}: the run did not come to its end", path.display());
                    history.left_out.push((path, why));
                }
                Err(error) => history.left_out.push((path, error.to_string())),
            }
        }
        match history.results.is_empty() {
            true => Err(LabError::Missing(format!(
                "{}: holds no whole result; `stele lab run` with --out {0} keeps one there",
                directory.display()
            ))),
            false => Ok(history),
        }
    }

    /// A result that is newer than all before it.
    pub fn add(&mut self, path: PathBuf, recorded: &Recorded) {
        let head = &recorded.head;
        let result = self.results.len();
        for cell in &recorded.cells {
            // The runs of a comparison are blocks of one answer.
            if head.against.is_some() {
                continue;
            }
            let (metric, load) = (metric_of(cell), asked_of(cell).unwrap_or_default());
            let point = Point { result, value: figure_of(cell, metric), unusable: unusable(cell) };
            match self.series.iter_mut().find(|series| series.is_of(&head.target, cell, metric, &load)) {
                Some(series) => series.points.push(point),
                None => self.series.push(CellHistory {
                    target: head.target.clone(),
                    name: cell.name.clone(),
                    metric,
                    load,
                    points: vec![point],
                    names: cell.names,
                    workload: cell.workload.clone(),
                }),
            }
        }
        self.results.push(ResultSummary {
            path,
            begun: head.begun,
            program: head.program.clone(),
            target: head.target.clone(),
            target_bytes: head.target_bytes,
            cells: recorded.cells.len(),
        });
    }

    /// What tells a series from the others.
    pub fn called(&self, series: &CellHistory) -> String {
        let same = |one: &&CellHistory| one.name == series.name;
        let several = |of: fn(&CellHistory) -> &str| self.series.iter().filter(same).any(|one| of(one) != of(series));
        let mut name = series.name.clone();
        if several(|one| &one.workload) {
            name = format!("{name} ({})", series.workload);
        }
        if several(|one| &one.load) {
            name = format!("{name} ({})", series.load);
        }
        match several(|one| &one.target) {
            true => format!("{name} on {}", series.target),
            false => name,
        }
    }
}

/// The newest whole result of a directory.
pub fn newest(directory: &Path) -> Result<(PathBuf, Recorded), LabError> {
    let missing = || LabError::Missing(format!("{}: holds no whole result", directory.display()));
    last(directory, |_| true)?.ok_or_else(missing)
}

/// The newest whole result of a directory on the same target that began before this one.
pub fn before(directory: &Path, result: &Recorded) -> Result<(PathBuf, Recorded), LabError> {
    let (begun, target) = (result.head.begun, &result.head.target);
    let missing = || {
        LabError::Missing(format!("{}: holds no whole result on {target} from before this one", directory.display()))
    };
    last(directory, |head| head.begun < begun && head.target == *target)?.ok_or_else(missing)
}

fn last(directory: &Path, fits: impl Fn(&Head) -> bool) -> Result<Option<(PathBuf, Recorded)>, LabError> {
    let heads = files_of(directory)?.into_iter().filter_map(|path| Some((head_of(&path).ok()?, path)));
    let mut files: Vec<(u64, PathBuf)> =
        heads.filter(|(head, _)| fits(head)).map(|(head, path)| (head.begun, path)).collect();
    files.sort();
    for (_, path) in files.into_iter().rev() {
        if let Ok(recorded) = record::read(&path)
            && recorded.digest.is_some()
        {
            return Ok(Some((path, recorded)));
        }
    }
    Ok(None)
}

/// In the order of their names.
fn files_of(directory: &Path) -> Result<Vec<PathBuf>, LabError> {
    let cannot = |error: std::io::Error| LabError::of(&error, "cannot be read", directory);
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(cannot)? {
        let path = entry.map_err(cannot)?.path();
        if path.extension().is_some_and(|ending| ending == "lab") && path.is_file() {
            files.push(path);
        }
    }
    if files.len() > FILES_MAX {
        return Err(LabError::Usage(format!(
            "{}: holds {} results; {FILES_MAX} at most are read: move older ones elsewhere",
            directory.display(),
            files.len()
        )));
    }
    files.sort();
    Ok(files)
}

/// The first line alone: files are put in their order before they are read whole.
fn head_of(path: &Path) -> Result<Head, LabError> {
    let cannot = |error: std::io::Error| LabError::of(&error, "cannot be read", path);
    let mut line = Vec::new();
    let mut reader = BufReader::new(File::open(path).map_err(cannot)?.take(HEAD_MAX));
    reader.read_until(b'\n', &mut line).map_err(cannot)?;
    record::head_from(&line, path)
}

#[cfg(test)]
mod tests;
