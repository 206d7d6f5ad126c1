//! Tables in a PDF: columns as wide as their text, smaller letters for a table that does not fit,
//! wrapped text if that is not enough, and the head again on each page.

use super::sheet::{Colour, FAINT, GRID, INK};
use super::{BOTTOM, Layout, MARGIN, ROOM, TOP};
use stele_lab::report::document::{Column, ColumnAlign, Entry, Place, Row, Sound, Table, Weight};
use stele_lab::report::metrics::{Face, width, wrapped};

/// Font sizes of a table; smaller ones if it is too wide.
const SIZES: [f64; 4] = [8.5, 7.5, 6.8, 6.2];
/// Space on each side of a column's text.
const BESIDE: f64 = 4.0;
const ABOVE: f64 = 2.5;
/// Smallest width of a text column.
const NARROW: f64 = 60.0;
const CAPTION: f64 = 9.0;
const CAPTION_LEADING: f64 = 12.5;
/// Space above a table.
const APART: f64 = 4.0;
/// Up to this height a table is kept on one page. A higher one would leave a gap.
const WHOLE: f64 = (BOTTOM - TOP) * 0.4;

struct Grid {
    size: f64,
    /// Widths of the columns, with the space beside their text.
    widths: Vec<f64>,
}

fn face_of(entry: &Entry) -> (Face, Colour) {
    match entry.weight {
        Weight::Plain => (Face::Plain, INK),
        Weight::Strong => (Face::Bold, INK),
        Weight::Faint => (Face::Plain, FAINT),
    }
}

/// The preferred and the smallest width of a column.
fn wishes(table: &Table, at: usize, column: &Column, size: f64) -> (f64, f64) {
    let words = column.title.split_whitespace().map(|word| width(Face::Bold, size, word));
    let title = words.fold(0.0, f64::max);
    let entries = table.rows.iter().filter_map(|row| row.entries.get(at));
    let widest = entries.map(|entry| width(face_of(entry).0, size, &entry.text)).fold(title, f64::max);
    match column.align {
        // Titles of figures are longer than the figures, and are wrapped; titles of text have the
        // room.
        ColumnAlign::Right => (widest + 2.0 * BESIDE, widest + 2.0 * BESIDE),
        ColumnAlign::Left => {
            let wish = widest.max(width(Face::Bold, size, &column.title));
            (wish + 2.0 * BESIDE, wish.min(NARROW.max(title)) + 2.0 * BESIDE)
        }
    }
}

impl Grid {
    fn of(table: &Table) -> Grid {
        let mut found = Grid { size: SIZES[0], widths: Vec::new() };
        for size in SIZES {
            let columns = table.columns.iter().enumerate();
            let wishes: Vec<(f64, f64)> = columns.map(|(at, column)| wishes(table, at, column, size)).collect();
            let (all, least) = wishes.iter().fold((0.0, 0.0), |sum, wish| (sum.0 + wish.0, sum.1 + wish.1));
            // The width beyond the smallest is divided in proportion to the columns' further
            // wishes.
            let share = if all <= ROOM { 1.0 } else { ((ROOM - least) / (all - least).max(1.0)).clamp(0.0, 1.0) };
            let cramped = if least > ROOM { ROOM / least } else { 1.0 };
            found.size = size;
            found.widths = wishes.iter().map(|(wish, least)| (least + (wish - least) * share) * cramped).collect();
            if least <= ROOM && (share >= 0.5 || all <= ROOM) {
                break;
            }
        }
        found
    }

    fn leading(&self) -> f64 {
        self.size * 1.25
    }

    fn split(&self, face: Face, at: usize, text: &str) -> Vec<String> {
        let room = self.widths.get(at).map_or(ROOM, |wide| wide - 2.0 * BESIDE);
        wrapped(face, self.size, text, room + 0.01)
    }

    fn high(&self, lines: usize) -> f64 {
        lines.max(1) as f64 * self.leading() + 2.0 * ABOVE
    }

    /// The lines of each entry of each row.
    fn rows(&self, table: &Table) -> Vec<Vec<Vec<String>>> {
        let lines = |(at, entry): (usize, &Entry)| self.split(face_of(entry).0, at, &entry.text);
        table.rows.iter().map(|row| row.entries.iter().enumerate().map(lines).collect()).collect()
    }

    fn high_of(&self, lines: &[Vec<String>]) -> f64 {
        self.high(lines.iter().map(Vec::len).max().unwrap_or(1))
    }

    /// The lines of each title; none if the table has no head.
    fn titles(&self, table: &Table) -> Vec<Vec<String>> {
        let columns = if table.has_head() { table.columns.as_slice() } else { &[] };
        columns.iter().enumerate().map(|(at, column)| self.split(Face::Bold, at, &column.title)).collect()
    }

    /// Smallest height of the table on its first page: the whole table if it is at most half a
    /// page, otherwise its head and two rows.
    fn begins(&self, table: &Table, rows: &[Vec<Vec<String>>]) -> f64 {
        let titles = self.titles(table);
        let head = if titles.is_empty() { 0.0 } else { self.high_of(&titles) };
        let caption = wrapped(Face::Bold, CAPTION, &table.caption, ROOM).len() as f64 * CAPTION_LEADING + 2.0;
        let first = |count: usize| head + caption + rows.iter().take(count).map(|row| self.high_of(row)).sum::<f64>();
        let whole = first(rows.len());
        if whole <= WHOLE { whole } else { first(2) }
    }
}

/// Smallest height of a table on its first page, with the space above it.
pub(super) fn begins(table: &Table) -> f64 {
    let grid = Grid::of(table);
    APART + grid.begins(table, &grid.rows(table))
}

impl Layout {
    pub(super) fn table(&mut self, sound: &Sound<'_>, table: &Table) {
        let grid = Grid::of(table);
        let rows = grid.rows(table);
        self.y += APART;
        self.need(grid.begins(table, &rows));
        if !table.caption.is_empty() {
            self.lines(Face::Bold, CAPTION, CAPTION_LEADING, INK, &table.caption);
            self.y += 2.0;
        }
        self.head_of(table, &grid);
        for (row, lines) in table.rows.iter().zip(&rows) {
            let high = grid.high_of(lines);
            if self.y + high > BOTTOM && self.y > TOP {
                self.go_on();
                self.head_of(table, &grid);
            }
            self.row(table, &grid, row, lines, high);
        }
        self.y += 6.0;
        if let Some(remark) = &table.remark {
            self.text(sound, remark, 0.0, FAINT);
        }
        self.y += 6.0;
    }

    fn head_of(&mut self, table: &Table, grid: &Grid) {
        let titles = grid.titles(table);
        if titles.is_empty() {
            return;
        }
        let most = titles.iter().map(Vec::len).max().unwrap_or(1);
        let high = grid.high(most);
        let mut left = MARGIN;
        for ((column, lines), wide) in table.columns.iter().zip(&titles).zip(&grid.widths) {
            // Titles are aligned to the bottom line.
            let top = self.y + (most - lines.len()) as f64 * grid.leading();
            self.entry(grid, column.align, lines, (Face::Bold, INK), (left, top, *wide));
            left += wide;
        }
        self.y += high;
        let (y, right) = (self.y, left);
        self.sheet().path(&[(MARGIN, y), (right, y)], 0.8, FAINT, "");
    }

    fn row(&mut self, table: &Table, grid: &Grid, row: &Row, lines: &[Vec<String>], high: f64) {
        let mut left = MARGIN;
        for (((column, entry), lines), wide) in table.columns.iter().zip(&row.entries).zip(lines).zip(&grid.widths) {
            let spot = self.spot();
            self.places.insert(Place::new(row.name.as_str(), column.name.as_str()).id(), spot);
            let top = self.y;
            self.entry(grid, column.align, lines, face_of(entry), (left, top, *wide));
            left += wide;
        }
        self.y += high;
        let (y, right) = (self.y, left);
        self.sheet().path(&[(MARGIN, y), (right, y)], 0.4, GRID, "");
    }

    fn entry(
        &mut self,
        grid: &Grid,
        align: ColumnAlign,
        lines: &[String],
        (face, colour): (Face, Colour),
        (left, top, wide): (f64, f64, f64),
    ) {
        for (number, line) in lines.iter().enumerate() {
            let x = match align {
                ColumnAlign::Left => left + BESIDE,
                ColumnAlign::Right => left + wide - BESIDE - width(face, grid.size, line),
            };
            let y = top + ABOVE + grid.size + number as f64 * grid.leading();
            self.sheet().text(face, grid.size, colour, (x, y), line);
        }
    }
}
