//! Output for people: aligned tables, bars, durations. Colour only on a terminal, and never as the
//! only sign.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _};

use stele_server::failure::{Failure, Kind, Outcome};

/// Writes the buffered output, which may fail only now.
pub fn flush() -> Outcome<()> {
    std::io::stdout().flush().map_err(|error| cut_off(&error))
}

/// The failure of output that ended early: its reader went away, or it could not be written.
pub fn cut_off(error: &std::io::Error) -> Failure {
    match error.kind() {
        std::io::ErrorKind::BrokenPipe => Failure::new(Kind::Unread, error.to_string()),
        _ => unwritten(&error.to_string()),
    }
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

    /// Whether it is shown as a table, and not as records.
    pub fn fits(&self) -> bool {
        self.narrow(&mut self.widths(), room())
    }

    fn widths(&self) -> Vec<usize> {
        let of = |(column, (head, _)): (usize, &(&'static str, Align))| {
            let cells = self.rows.iter().filter_map(|row| row.get(column)).map(|cell| width(cell));
            cells.chain([width(head)]).max().unwrap_or(0)
        };
        self.heads.iter().enumerate().map(of).collect()
    }

    pub fn render(&self) -> String {
        let mut widths = self.widths();
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

/// The text in at most `most` columns: beginning and end stay, since they distinguish names and
/// paths.
fn elided(text: &str, most: usize) -> Cow<'_, str> {
    if width(text) <= most || text.contains('\u{1b}') {
        return text.into();
    }
    let (head, tail) = (most.saturating_sub(1) / 3, most.saturating_sub(1) - most.saturating_sub(1) / 3);
    let start: String = within(text.chars(), head).collect();
    let end: Vec<char> = within(text.chars().rev(), tail).collect();
    let end: String = end.into_iter().rev().collect();
    format!("{start}\u{2026}{end}").into()
}

/// The first of the characters, as many as fit into the columns.
fn within(text: impl Iterator<Item = char>, columns: usize) -> impl Iterator<Item = char> {
    text.scan(0, move |wide, c| {
        *wide += columns_of(c);
        (*wide <= columns).then_some(c)
    })
}

/// Columns on screen, without escape sequences.
fn width(text: &str) -> usize {
    let mut escaped = false;
    text.chars()
        .map(|c| {
            match (escaped, c) {
                (false, '\u{1b}') => escaped = true,
                (true, 'm') => escaped = false,
                (false, c) => return columns_of(c),
                _ => {}
            }
            0
        })
        .sum()
}

/// The columns of a character on a terminal: none for marks that join the one before, two for the
/// wide ones of East Asia and for pictures. Names are mostly of one column each.
fn columns_of(c: char) -> usize {
    match u32::from(c) {
        0x300..=0x36f | 0x1ab0..=0x1aff | 0x1dc0..=0x1dff | 0x200b..=0x200f | 0x20d0..=0x20ff => 0,
        0xfe00..=0xfe0f | 0xfe20..=0xfe2f | 0xfeff | 0xe0100..=0xe01ef => 0,
        0x1100..=0x115f | 0x2e80..=0x303e | 0x3041..=0x33ff | 0x3400..=0x4dbf | 0x4e00..=0x9fff => 2,
        0xa000..=0xa4cf | 0xa960..=0xa97f | 0xac00..=0xd7a3 | 0xf900..=0xfaff | 0xfe30..=0xfe6f => 2,
        0xff01..=0xff60 | 0xffe0..=0xffe6 | 0x1f300..=0x1f64f | 0x1f680..=0x1f6ff | 0x1f900..=0x1faff => 2,
        0x20000..=0x3fffd => 2,
        _ => 1,
    }
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

/// A bar of twenty characters: `[#########.....]`. It is empty while the total is not known.
pub fn bar(done: u64, total: u64) -> String {
    let filled = (u128::from(done.min(total)) * 20 / u128::from(total.max(1))) as usize;
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
