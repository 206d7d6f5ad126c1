//! The published figures as data, and which of them contradict themselves.
//!
//! The files in `data/` hold every value as printed. A cell is suspect where its own table, or the text beside it, speaks
//! against it; nothing is fitted to a suspect cell, and errors are stated with and without them.

/// A RAID level of the published tables.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    Raid5,
    Raid10,
    /// Two parities, as 8+2: of no published table, but of the machine behind published streams.
    Raid6,
}

impl Level {
    pub fn name(self) -> &'static str {
        match self {
            Level::Raid5 => "RAID-5",
            Level::Raid10 => "RAID-10",
            Level::Raid6 => "RAID-6",
        }
    }

    /// As a job names it.
    pub fn number(self) -> u8 {
        match self {
            Level::Raid5 => 5,
            Level::Raid10 => 10,
            Level::Raid6 => 6,
        }
    }

    pub fn numbered(number: u8) -> Option<Level> {
        [Level::Raid5, Level::Raid10, Level::Raid6].into_iter().find(|level| level.number() == number)
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
                _ => 8,
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

/// The highest rate of one of the DR550 paper's charts in MB/s, as far as its text states it.
#[derive(Clone, PartialEq, Debug)]
pub struct Peak {
    /// Of the chart; the one behind it shows the same in accesses a second.
    pub section: u8,
    /// `random` or `sequential`.
    pub pattern: String,
    /// `read` or `write`.
    pub direction: String,
    pub cached: bool,
    /// Those that were best; several: either.
    pub threads: Vec<u32>,
    /// MB/s; whose unit is not stated.
    pub rate: Option<f64>,
}

/// The eight charts in MB/s of the DR550 paper.
pub fn archive_peaks() -> Vec<Peak> {
    let peak = |row: Vec<&str>| {
        let [kind, section, pattern, direction, cache, metric, threads, value, ..] = row.as_slice() else {
            return None;
        };
        ((*kind, *metric) == ("section", "mbps")).then_some(())?;
        Some(Peak {
            section: section.parse().ok()?,
            pattern: (*pattern).to_owned(),
            direction: (*direction).to_owned(),
            cached: *cache == "on",
            threads: threads.split(';').filter_map(|text| text.parse().ok()).collect(),
            rate: value.parse().ok(),
        })
    };
    rows(include_str!("../data/dr550.csv")).filter_map(peak).collect()
}

/// One printed result of backup and restore over GPFS Native RAID.
#[derive(Clone, PartialEq, Debug)]
pub struct Streamed {
    pub servers: u32,
    /// `backup`, `restore` or `mixed`.
    pub direction: String,
    /// MB/s; whose unit is not stated.
    pub rate: f64,
    /// Millions of bytes a second that the links of all servers carry by name.
    pub link: f64,
}

pub fn streamed() -> Vec<Streamed> {
    let result = |row: Vec<&str>| {
        let ["result", servers, direction, value, _, _, link, ..] = row.as_slice() else { return None };
        Some(Streamed {
            servers: servers.parse().ok()?,
            direction: (*direction).to_owned(),
            rate: value.parse().ok()?,
            link: link.parse().ok()?,
        })
    };
    rows(include_str!("../data/gnr_tsm.csv")).filter_map(result).collect()
}

/// One row of the Fibre Channel paper's Table 1.
#[derive(Clone, PartialEq, Debug)]
pub struct Cached {
    /// As printed.
    pub name: String,
    /// Percent.
    pub read: u8,
    pub depth: u32,
    /// Bytes of an access.
    pub size: u64,
    /// Accesses a second.
    pub rate: f64,
}

pub fn cached() -> Vec<Cached> {
    let cell = |row: Vec<&str>| {
        let [name, read, depth, size, rate] = row.as_slice() else { return None };
        Some(Cached {
            name: (*name).to_owned(),
            read: read.parse().ok()?,
            depth: depth.parse().ok()?,
            size: size.parse().ok()?,
            rate: rate.parse().ok()?,
        })
    };
    rows(include_str!("../data/fc8_iops.csv")).filter_map(cell).collect()
}

/// One row of the Fibre Channel paper's Table 2: both directions at once, in MB/s whose unit is not stated.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Duplex {
    pub depth: u32,
    /// Bytes of an access.
    pub size: u64,
    pub read: f64,
    pub written: f64,
    pub both: f64,
}

pub fn duplex() -> Vec<Duplex> {
    let cell = |row: Vec<&str>| {
        let [_, depth, size, read, written, both] = row.as_slice() else { return None };
        Some(Duplex {
            depth: depth.parse().ok()?,
            size: size.parse().ok()?,
            read: read.parse().ok()?,
            written: written.parse().ok()?,
            both: both.parse().ok()?,
        })
    };
    rows(include_str!("../data/fc8_throughput.csv")).filter_map(cell).collect()
}

/// The name of the cell's workload among the access specifications.
pub fn workload_of(cell: &Cell) -> String {
    format!("{}_{}k", cell.workload, cell.size >> 10)
}

#[cfg(test)]
mod tests;
