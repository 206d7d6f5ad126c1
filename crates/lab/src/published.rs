//! The published figures as data, and which of them contradict themselves.
//!
//! The files in `data/` hold every value as printed. A cell is suspect where its own table, or the text beside it, speaks
//! against it; nothing is fitted to a suspect cell, and errors are stated with and without them.

/// A RAID level of the published tables.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    Raid5,
    Raid10,
}

impl Level {
    pub fn name(self) -> &'static str {
        match self {
            Level::Raid5 => "RAID-5",
            Level::Raid10 => "RAID-10",
        }
    }
}

/// One printed rate of Tables 1, 4, 5 and 8.
#[derive(Clone, PartialEq, Debug)]
pub struct Cell {
    pub table: u8,
    pub level: Level,
    pub drives: usize,
    /// Write cache enabled; else all caches disabled.
    pub cached: bool,
    /// `oltp`, `random_read` or `random_write`.
    pub workload: String,
    /// Bytes of each access.
    pub size: u64,
    /// Accesses a second at a mean response of 20 ms.
    pub rate: f64,
}

/// One printed multiplier of Tables 2 and 6. It stands for 4, 8 and 16 KiB alike.
#[derive(Clone, PartialEq, Debug)]
pub struct Stroke {
    pub table: u8,
    pub level: Level,
    pub size: u64,
    /// Percent of the drives' capacity that the working set spans.
    pub percent: u32,
    /// Factor on the rate at 8 %.
    pub multiplier: f64,
}

/// The rows of a data file, cut at commas; comments and the heading are left out.
pub fn rows(text: &str) -> impl Iterator<Item = Vec<&str>> {
    text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).skip(1).map(|line| line.split(',').collect())
}

fn level(name: &str) -> Option<Level> {
    match name {
        "RAID-5" => Some(Level::Raid5),
        "RAID-10" => Some(Level::Raid10),
        _ => None,
    }
}

/// Every cell of Tables 1, 4, 5 and 8 that is not printed as N/A.
pub fn cells() -> Vec<Cell> {
    let mut cells = Vec::new();
    for text in [include_str!("../data/ds4500_oltp.csv"), include_str!("../data/ds4500_random.csv")] {
        for row in rows(text) {
            let [raid, drives, cache, workload, size, rate, _] = row.as_slice() else { continue };
            let (Some(level), Ok(drives), Ok(size), Ok(rate)) =
                (level(raid), drives.parse(), size.parse(), rate.parse())
            else {
                continue;
            };
            let table = match (*workload, level) {
                ("oltp", Level::Raid5) => 1,
                ("oltp", Level::Raid10) => 5,
                (_, Level::Raid5) => 4,
                (_, Level::Raid10) => 8,
            };
            let (cached, workload) = (*cache == "write_enabled", (*workload).to_owned());
            cells.push(Cell { table, level, drives, cached, workload, size, rate });
        }
    }
    cells.sort_by_key(|cell| (cell.table, cell.drives, cell.cached, cell.workload.clone(), cell.size));
    cells
}

/// Every multiplier of Tables 2 and 6.
pub fn strokes() -> Vec<Stroke> {
    let mut strokes = Vec::new();
    for row in rows(include_str!("../data/ds4500_stroke.csv")) {
        let [raid, _, size, percent, multiplier] = row.as_slice() else { continue };
        let (Some(level), Ok(size), Ok(percent), Ok(multiplier)) =
            (level(raid), size.parse(), percent.parse(), multiplier.parse())
        else {
            continue;
        };
        let table = if level == Level::Raid5 { 2 } else { 6 };
        strokes.push(Stroke { table, level, size, percent, multiplier });
    }
    strokes
}

/// Why a cell is not believed; none when nothing speaks against it.
pub fn suspicion(cell: &Cell) -> Option<&'static str> {
    let kib = cell.size >> 10;
    match (cell.table, cell.drives, cell.cached, cell.workload.as_str(), kib) {
        (4, 20, true, "random_write", 8) => Some("half of the rate without the cache"),
        (4, 20, true, "random_write", 4) => Some("55 a drive, 84 at 60 drives"),
        (4, 60, true, "random_write", _) => Some("rises with size"),
        (1, 100, true, "oltp", 4) => Some("above the rates at 140 and 180 drives"),
        (5, 180, true, "oltp", 4) => Some("below the rate without the cache"),
        (8, 20, true, "random_write", _) => Some("the pair of Table 5's mixed workload"),
        (5, 60, _, "oltp", 8) => Some("the same with and without the cache"),
        (5 | 8, 180, _, "oltp" | "random_write", 4 | 8) => Some("falls from 140 to 180 drives"),
        (8, 100, false, "random_write", 4) => Some("144, 110, 116 a drive at 60, 100, 140"),
        (1, 180, false, "oltp", 4) => Some("falls from 140 to 180 drives"),
        (4, 180, true, "random_write", 4) => Some("falls from 140 to 180 drives"),
        _ => None,
    }
}

/// The name of the cell's workload among the access specifications.
pub fn workload_of(cell: &Cell) -> String {
    format!("{}_{}k", cell.workload, cell.size >> 10)
}

#[cfg(test)]
mod tests;
