//! What people read: aligned tables, bars, durations. Colour only on a terminal, and never the only sign.

use std::fmt::Write as _;
use std::io::IsTerminal;

/// How a column is set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Align {
    Left,
    Right,
}

/// Rows under headings, each column as wide as its widest cell.
#[derive(Debug)]
pub struct Table {
    heads: Vec<(&'static str, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new(heads: &[(&'static str, Align)]) -> Table {
        Table { heads: heads.to_vec(), rows: Vec::new() }
    }

    /// Adds a row with one cell for each heading.
    pub fn row(&mut self, cells: Vec<String>) {
        assert_eq!(cells.len(), self.heads.len(), "a row has one cell for each heading");
        self.rows.push(cells);
    }

    pub fn render(&self) -> String {
        let widths: Vec<usize> = self
            .heads
            .iter()
            .enumerate()
            .map(|(column, (head, _))| {
                self.rows
                    .iter()
                    .filter_map(|row| row.get(column))
                    .map(|cell| width(cell))
                    .chain([width(head)])
                    .max()
                    .unwrap_or(0)
            })
            .collect();
        let mut text = String::new();
        let mut line = |cells: &mut dyn Iterator<Item = &str>| {
            let mut out = String::new();
            for ((cell, (_, align)), wide) in cells.zip(&self.heads).zip(&widths) {
                let gap = " ".repeat(wide.saturating_sub(width(cell)));
                let _ = match align {
                    Align::Left => write!(out, "{cell}{gap}  "),
                    Align::Right => write!(out, "{gap}{cell}  "),
                };
            }
            let _ = writeln!(text, "{}", out.trim_end());
        };
        line(&mut self.heads.iter().map(|(head, _)| *head));
        for row in &self.rows {
            line(&mut row.iter().map(String::as_str));
        }
        text
    }
}

/// Characters on screen, escape sequences not counted.
fn width(text: &str) -> usize {
    let mut escaped = false;
    text.chars()
        .filter(|&c| {
            match (escaped, c) {
                (false, '\u{1b}') => escaped = true,
                (true, 'm') => escaped = false,
                (false, _) => return true,
                _ => {}
            }
            false
        })
        .count()
}

/// Paints where standard output is a terminal and NO_COLOR is not set.
pub fn paint(text: &str, code: &str) -> String {
    if std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none() {
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    } else {
        text.to_owned()
    }
}

pub const GREEN: &str = "32";
pub const YELLOW: &str = "33";
pub const RED: &str = "31";
pub const BOLD: &str = "1";

/// `[#########.....]` of twenty.
pub fn bar(done: u64, total: u64) -> String {
    let filled = if total == 0 { 20 } else { (u128::from(done.min(total)) * 20 / u128::from(total)) as usize };
    format!("[{}{}]", "#".repeat(filled), ".".repeat(20 - filled))
}

/// `3 d 4 h`, `2 min 5 s`, `12 s`.
pub fn span(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3600..86400 => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{} d {} h", seconds / 86400, seconds % 86400 / 3600),
    }
}

/// A moment in UTC as RFC 3339, from seconds since 1970. (Days to date: Howard Hinnant, chrono-compatible algorithms.)
pub fn moment(seconds: i64) -> String {
    let days = seconds.div_euclid(86400);
    let rest = seconds.rem_euclid(86400);
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_shifted + 2) / 5 + 1;
    let month = if month_shifted < 10 { month_shifted + 3 } else { month_shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", rest / 3600, rest % 3600 / 60, rest % 60)
}

#[cfg(test)]
mod tests;
