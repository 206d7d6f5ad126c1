//! Output for people: aligned tables, bars, durations. Colour only on a terminal, and never as the
//! only sign.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _};

use stele_server::failure::{Failure, Kind, Outcome};

/// Writes the buffered output, which may fail only now.
pub fn flush() -> Outcome<()> {
    std::io::stdout().flush().map_err(|error| match error.kind() {
        std::io::ErrorKind::BrokenPipe => Failure::new(Kind::Unread, error.to_string()),
        _ => unwritten(&error.to_string()),
    })
}

/// The failure of output that could not be written.
pub fn unwritten(cause: &str) -> Failure {
    Failure::failed(format!("cannot write the answer to standard output: {cause}"))
        .next("what the command was to do may be done; look before it is repeated")
}

/// The alignment of a column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Align {
    Left,
    /// Left, and never cut: names, numbers and times that people copy into commands.
    Whole,
    Right,
}

/// Columns of a terminal into which every table fits.
const WIDTH: usize = 80;

/// The largest width of a table: the value of COLUMNS, or the columns of the terminal, but at least
/// 80. Elsewhere, where programs may read the table, nothing is cut.
fn room() -> usize {
    if cfg!(test) {
        return WIDTH;
    }
    let out = std::io::stdout();
    let told = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    let seen = || out.is_terminal().then(|| rustix::termios::tcgetwinsize(&out).map_or(0, |size| size.ws_col.into()));
    told.or_else(seen).map_or(usize::MAX, |columns| WIDTH.max(columns))
}

/// The smallest width to which a column of text is cut.
const COLUMN_MIN: usize = 8;

/// Rows under headings, each column as wide as its widest cell. In a table that is too wide, long
/// texts lose their middle. If it is too wide even so, each row becomes a record of lines, one for
/// each heading.
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

    /// Narrows the widest columns of text until the table fits. Returns whether it does.
    fn narrow(&self, widths: &mut [usize], room: usize) -> bool {
        // Two blanks after each column except the last.
        let all = |widths: &[usize]| widths.iter().sum::<usize>() + 2 * widths.len().saturating_sub(1);
        while all(widths) > room {
            let texts = widths.iter_mut().zip(&self.heads).filter(|(_, (_, align))| *align == Align::Left);
            match texts.map(|(wide, (head, _))| (*wide, wide, COLUMN_MIN.max(width(head)))).max_by_key(|(now, ..)| *now)
            {
                Some((now, wide, least)) if now > least => *wide -= 1,
                _ => return false,
            }
        }
        true
    }

    /// Each row as lines of a heading and its cell; empty cells are left out.
    fn records(&self) -> String {
        let wide = self.heads.iter().map(|(head, _)| width(head)).max().unwrap_or(0);
        let record = |row: &Vec<String>| {
            let filled = self.heads.iter().zip(row).filter(|(_, cell)| !cell.is_empty());
            filled.map(|((head, _), cell)| format!("{head:wide$}  {cell}").trim_end().to_owned() + "\n").collect()
        };
        self.rows.iter().map(record).collect::<Vec<String>>().join("\n")
    }

    pub fn render(&self) -> String {
        let mut widths: Vec<usize> = self
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
        if !self.narrow(&mut widths, room()) {
            return self.records();
        }
        let mut text = String::new();
        let mut line = |cells: &mut dyn Iterator<Item = &str>| {
            let mut out = String::new();
            for ((cell, (_, align)), wide) in cells.zip(&self.heads).zip(&widths) {
                let cell = &*elided(cell, *wide);
                let gap = " ".repeat(wide.saturating_sub(width(cell)));
                let _ = match align {
                    Align::Left | Align::Whole => write!(out, "{cell}{gap}  "),
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

/// The text in at most `most` characters: beginning and end stay, since they distinguish names and
/// paths.
fn elided(text: &str, most: usize) -> Cow<'_, str> {
    if width(text) <= most || text.contains('\u{1b}') {
        return text.into();
    }
    let count = text.chars().count();
    let (head, tail) = (most.saturating_sub(1) / 3, most.saturating_sub(1) - most.saturating_sub(1) / 3);
    let start: String = text.chars().take(head).collect();
    let end: String = text.chars().skip(count.saturating_sub(tail)).collect();
    format!("{start}\u{2026}{end}").into()
}

/// Characters on screen, without escape sequences.
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

/// Colours the text if standard output is a terminal and NO_COLOR is not set.
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

/// A bar of twenty characters: `[#########.....]`.
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

#[cfg(test)]
mod tests;
