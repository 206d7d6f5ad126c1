//! The published figures as data, and the figures that contradict themselves.
//!
//! The files in `data/` hold every value as printed. A cell is suspect if its own table, or the
//! text beside it, contradicts it. No parameter is fitted to a suspect cell, and errors are stated
//! with and without them.

use stele_lab::csv::rows;
use stele_lab::raid::Level;

/// One cell of a table of rates.
#[derive(Clone, PartialEq, Debug)]
pub struct Printed {
    pub table: String,
    pub workload: String,
    /// Bytes of an access; `None` for mixed sizes.
    pub size: Option<u64>,
    pub drives: u64,
    pub cached: bool,
    /// Accesses a second.
    pub rate: Option<f64>,
    /// MiB/s.
    pub throughput: Option<f64>,
    /// Half the width of the interval of a measured figure, in its unit; 0 of a printed one, which
    /// has none.
    pub margin: f64,
}

impl Printed {
    pub fn level(&self) -> Level {
        match self.table.as_str() {
            "Table 5" | "Table 7" | "Table 8" => Level::Raid10,
            _ => Level::Raid5,
        }
    }

    /// The name of its workload among the access specifications.
    pub fn workload_name(&self) -> String {
        match self.size {
            Some(size) => format!("{}_{}k", self.workload, size >> 10),
            None => self.workload.clone(),
        }
    }
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

fn level(name: &str) -> Option<Level> {
    match name {
        "RAID-5" => Some(Level::Raid5),
        "RAID-10" => Some(Level::Raid10),
        _ => None,
    }
}

fn drives_and_cache(drives: &str, cache: &str) -> Option<(u64, bool)> {
    Some((drives.parse().ok()?, cache == "write_enabled"))
}

/// The tables of rates and transfer rates of the DS4500 paper, as printed.
pub fn ds4500_tables() -> Vec<Printed> {
    let mut cells = Vec::new();
    for text in [include_str!("../data/ds4500_oltp.csv"), include_str!("../data/ds4500_random.csv")] {
        for row in rows(text) {
            let [raid, drives, cache, workload, size, rate, throughput] = row.as_slice() else { continue };
            let Some((drives, cached)) = drives_and_cache(drives, cache) else { continue };
            let table = match (*workload, *raid) {
                ("oltp", "RAID-5") => 1,
                ("oltp", _) => 5,
                (_, "RAID-5") => 4,
                _ => 8,
            };
            cells.push(Printed {
                table: format!("Table {table}"),
                workload: (*workload).to_owned(),
                size: size.parse().ok(),
                drives,
                cached,
                rate: rate.parse().ok(),
                throughput: throughput.parse().ok(),
                margin: 0.0,
            });
        }
    }
    for row in rows(include_str!("../data/ds4500_mixed.csv")) {
        let [raid, drives, cache, workload, throughput] = row.as_slice() else { continue };
        let Some((drives, cached)) = drives_and_cache(drives, cache) else { continue };
        cells.push(Printed {
            table: if *raid == "RAID-5" { "Table 3".into() } else { "Table 7".into() },
            workload: (*workload).to_owned(),
            size: None,
            drives,
            cached,
            rate: None,
            throughput: throughput.parse().ok(),
            margin: 0.0,
        });
    }
    cells
}

/// The cells printed as accesses a second of one size: of tables 1, 4, 5 and 8, without those
/// printed as N/A.
pub fn rated() -> Vec<Printed> {
    ds4500_tables().into_iter().filter(|cell| cell.size.is_some() && cell.rate.is_some()).collect()
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

/// The stated values of a property of a published system, in their order.
pub fn facts(source: &str, system: &str, property: &str) -> Vec<String> {
    let value = |row: Vec<&str>| {
        let [of, part, name, value, ..] = row.as_slice() else { return None };
        ((*of, *part, *name) == (source, system, property) && !value.is_empty()).then(|| (*value).to_owned())
    };
    rows(include_str!("../data/environment.csv")).filter_map(value).collect()
}

/// The same of a property that has one value.
pub fn fact(source: &str, system: &str, property: &str) -> Option<String> {
    facts(source, system, property).into_iter().next()
}

/// The reason to doubt a cell; `None` if there is none.
pub fn suspicion(cell: &Printed) -> Option<&'static str> {
    let table: u8 = cell.table.strip_prefix("Table ")?.parse().ok()?;
    let kib = cell.size? >> 10;
    match (table, cell.drives, cell.cached, cell.workload.as_str(), kib) {
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
    /// Section of the chart; the next section shows the same in accesses a second.
    pub section: u8,
    /// `random` or `sequential`.
    pub pattern: String,
    /// `read` or `write`.
    pub direction: String,
    pub cached: bool,
    /// The best numbers of threads; several mean any of them.
    pub threads: Vec<u32>,
    /// MB/s; the paper does not state the size of its unit.
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
    /// MB/s; the paper does not state the size of its unit.
    pub rate: f64,
    /// Nominal capacity of all servers' links together, in millions of bytes a second.
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
    /// Percent of reads.
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

/// One row of the Fibre Channel paper's Table 2: both directions at once, in MB/s of an unstated
/// unit.
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

#[cfg(test)]
mod tests;
