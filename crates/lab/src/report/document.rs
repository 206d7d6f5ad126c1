//! A document before it is a page: headings, paragraphs, tables, charts. What draws it decides how
//! it looks.
//!
//! A sentence holds no figure of its own: it names the place in a table where the figure stands,
//! and the text is taken from there when the page is drawn. A sentence can so not disagree with its
//! table; one that names a place that is not there makes the document wrong as a whole, and it is
//! not drawn.

use std::collections::BTreeMap;

use super::chart::{Chart, figure};
use super::diagram::Diagram;
use crate::error::LabError;
use stele_ground::Duration;

#[derive(Clone, PartialEq, Default, Debug)]
pub struct Document {
    pub title: String,
    /// Under the title: when, and by what.
    pub about: String,
    /// Who answers for it, and its date.
    pub byline: Option<String>,
    pub blocks: Vec<Block>,
}

#[derive(Clone, PartialEq, Debug)]
pub enum Block {
    Section(String),
    /// A part of a section.
    Part(String),
    Paragraph(Text),
    List(Vec<Text>),
    Table(Table),
    Chart(Chart),
    Diagram(Diagram),
    /// Commands and files, as they are.
    Code(String),
    /// Set apart: a limit, or what to beware of.
    Note(Text),
}

/// A place in a table: the name of its row, and the name of its column. Rows' names are unique in a
/// document.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Place {
    pub row: String,
    pub column: String,
}

impl Place {
    pub fn new(row: impl Into<String>, column: impl Into<String>) -> Place {
        Place { row: row.into(), column: column.into() }
    }

    /// As a page names it.
    pub fn id(&self) -> String {
        format!("{}-{}", id_of(&self.row), id_of(&self.column))
    }
}

/// A name that may stand in a link.
pub fn id_of(name: &str) -> String {
    name.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter.to_ascii_lowercase() } else { '-' }).collect()
}

/// What a sentence takes from tables.
#[derive(Clone, PartialEq, Debug)]
pub enum Figure {
    /// What stands there, and words that belong to it.
    Of(Place, String),
    /// How many times the second the first is.
    Ratio(Place, Place),
    /// By how many percent the first differs from the second, with its sign.
    Change(Place, Place),
}

#[derive(Clone, PartialEq, Debug)]
pub enum Span {
    Plain(String),
    Code(String),
    Figure(Figure),
}

#[derive(Clone, PartialEq, Default, Debug)]
pub struct Text(pub Vec<Span>);

impl From<&str> for Text {
    fn from(text: &str) -> Text {
        Text::default().say(text)
    }
}

impl From<String> for Text {
    fn from(text: String) -> Text {
        Text::default().say(text)
    }
}

impl Text {
    pub fn say(mut self, text: impl Into<String>) -> Text {
        self.0.push(Span::Plain(text.into()));
        self
    }

    pub fn code(mut self, text: impl Into<String>) -> Text {
        self.0.push(Span::Code(text.into()));
        self
    }

    /// What stands at that place.
    pub fn cell(self, place: &Place) -> Text {
        self.cell_as(place, "")
    }

    /// The same with words that belong to it, like its unit.
    pub fn cell_as(mut self, place: &Place, words: &str) -> Text {
        self.0.push(Span::Figure(Figure::Of(place.clone(), words.to_owned())));
        self
    }

    /// `2.31`: so many times what stands at `base`.
    pub fn ratio(mut self, place: &Place, base: &Place) -> Text {
        self.0.push(Span::Figure(Figure::Ratio(place.clone(), base.clone())));
        self
    }

    /// `+131 %`.
    pub fn change(mut self, place: &Place, base: &Place) -> Text {
        self.0.push(Span::Figure(Figure::Change(place.clone(), base.clone())));
        self
    }

    /// The ratio with its arithmetic: `5,432 / 2,351 = 2.31`.
    pub fn ratio_shown(self, place: &Place, base: &Place) -> Text {
        self.cell(place).say(" / ").cell(base).say(" = ").ratio(place, base)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ColumnAlign {
    Left,
    Right,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Column {
    /// What places call it.
    pub name: String,
    /// What stands above it.
    pub title: String,
    pub align: ColumnAlign,
}

/// How an entry stands out.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Weight {
    #[default]
    Plain,
    Strong,
    Faint,
}

/// What stands in one place of a table.
#[derive(Clone, PartialEq, Debug)]
pub struct Entry {
    pub text: String,
    /// For ratios; none where the text is no figure.
    pub value: Option<f64>,
    pub weight: Weight,
}

impl Entry {
    pub fn text(text: impl Into<String>) -> Entry {
        Entry { text: text.into(), value: None, weight: Weight::Plain }
    }

    /// With as many digits as say something.
    pub fn number(value: f64) -> Entry {
        Entry::said(value, figure(value))
    }

    pub fn said(value: f64, text: impl Into<String>) -> Entry {
        Entry { text: text.into(), value: Some(value), weight: Weight::Plain }
    }

    pub fn span(span: Duration) -> Entry {
        Entry::said(span.0 as f64, span.to_string())
    }

    /// Nothing is known of a response where nothing was answered.
    pub fn if_any(self, answered: u64) -> Entry {
        if answered == 0 { Entry::absent() } else { self }
    }

    /// Nothing is known.
    pub fn absent() -> Entry {
        Entry { text: "–".into(), value: None, weight: Weight::Faint }
    }

    /// In parentheses where the steady state was not reached.
    pub fn if_steady(self, steady: bool) -> Entry {
        match steady {
            true => self,
            false => Entry { text: format!("({})", self.text), ..self },
        }
    }

    pub fn strong(self) -> Entry {
        Entry { weight: Weight::Strong, ..self }
    }

    pub fn faint(self) -> Entry {
        Entry { weight: Weight::Faint, ..self }
    }
}

#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    pub name: String,
    pub entries: Vec<Entry>,
}

/// Without titles, it has no head.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Table {
    pub caption: String,
    pub columns: Vec<Column>,
    pub rows: Vec<Row>,
    /// Below it.
    pub remark: Option<Text>,
}

impl Table {
    pub fn new(caption: impl Into<String>) -> Table {
        Table { caption: caption.into(), ..Table::default() }
    }

    pub fn left(self, name: &str, title: &str) -> Table {
        self.column(name, title, ColumnAlign::Left)
    }

    pub fn right(self, name: &str, title: &str) -> Table {
        self.column(name, title, ColumnAlign::Right)
    }

    pub fn column(mut self, name: &str, title: &str, align: ColumnAlign) -> Table {
        self.columns.push(Column { name: name.to_owned(), title: title.to_owned(), align });
        self
    }

    pub fn row(&mut self, name: impl Into<String>, entries: Vec<Entry>) {
        self.rows.push(Row { name: name.into(), entries });
    }

    pub fn has_head(&self) -> bool {
        self.columns.iter().any(|column| !column.title.is_empty())
    }

    /// Names and values without a head; `name` begins the names of its rows.
    pub fn of_pairs<'a>(name: &str, pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Table {
        let mut table = Table::default().left("name", "").left("value", "");
        for (number, (key, value)) in pairs.into_iter().enumerate() {
            table.row(format!("{name}-{number}"), vec![Entry::text(key), Entry::text(value)]);
        }
        table
    }

    /// Measured values over one of them: the multiplier table. `base` is the number of the row that
    /// is 1.
    pub fn of_multipliers(caption: &str, what: &str, name: &str, values: &[(String, f64)], base: usize) -> Table {
        let mut table =
            Table::new(caption).left("what", what).right("value", "accesses/s").right("multiplier", "multiplier");
        let one = values.get(base).map(|(_, value)| *value).filter(|value| *value > 0.0);
        for (number, (key, value)) in values.iter().enumerate() {
            let factor = one.map_or(Entry::absent(), |one| Entry::said(value / one, format!("{:.2}", value / one)));
            table.row(format!("{name}-{number}"), vec![Entry::text(key.as_str()), Entry::number(*value), factor]);
        }
        table
    }
}

/// A document of fewer sections has no list of them.
const CONTENTS_LEAST: usize = 4;

/// Where a heading stands, by its number among all headings. No place of a table has a full stop in
/// its name.
pub fn heading_id(number: usize) -> String {
    format!("at.{number}")
}

/// A span as it is drawn.
#[derive(Clone, PartialEq, Debug)]
pub enum Said {
    Plain(String),
    Code(String),
    /// With the name of the place that it comes from.
    Figure(String, String),
}

/// A document that agrees with itself, and what its sentences say.
pub struct Sound<'a> {
    pub document: &'a Document,
    places: BTreeMap<Place, &'a Entry>,
}

impl Document {
    pub fn new(title: impl Into<String>, about: impl Into<String>) -> Document {
        Document { title: title.into(), about: about.into(), byline: None, blocks: Vec::new() }
    }

    pub fn section(&mut self, title: impl Into<String>) {
        self.blocks.push(Block::Section(title.into()));
    }

    pub fn part(&mut self, title: impl Into<String>) {
        self.blocks.push(Block::Part(title.into()));
    }

    pub fn paragraph(&mut self, text: impl Into<Text>) {
        self.blocks.push(Block::Paragraph(text.into()));
    }

    pub fn note(&mut self, text: impl Into<Text>) {
        self.blocks.push(Block::Note(text.into()));
    }

    pub fn code(&mut self, text: impl Into<String>) {
        self.blocks.push(Block::Code(text.into()));
    }

    pub fn list(&mut self, lines: impl IntoIterator<Item = impl Into<Text>>) {
        self.blocks.push(Block::List(lines.into_iter().map(Into::into).collect()));
    }

    pub fn table(&mut self, table: Table) {
        self.blocks.push(Block::Table(table));
    }

    /// A chart without a point is left out.
    pub fn chart(&mut self, chart: Chart) {
        if !chart.is_empty() {
            self.blocks.push(Block::Chart(chart));
        }
    }

    /// How what was measured is put together. One without boxes is left out.
    pub fn diagram(&mut self, diagram: Diagram) {
        if !diagram.is_empty() {
            self.blocks.push(Block::Diagram(diagram));
        }
    }

    /// Sections and their parts (`true`), in their order, as a list of contents has them; empty
    /// where they are few.
    pub fn contents(&self) -> Vec<(&str, bool)> {
        let headings = self.blocks.iter().filter_map(|block| match block {
            Block::Section(title) => Some((title.as_str(), false)),
            Block::Part(title) => Some((title.as_str(), true)),
            _ => None,
        });
        let all: Vec<(&str, bool)> = headings.collect();
        let sections = all.iter().filter(|(_, part)| !part).count();
        if sections < CONTENTS_LEAST { Vec::new() } else { all }
    }

    /// What may be drawn; else an error that names all that is wrong.
    pub fn check(&self) -> Result<Sound<'_>, LabError> {
        let mut faults = Vec::new();
        let mut sound = Sound { document: self, places: BTreeMap::new() };
        let tables =
            || self.blocks.iter().filter_map(|block| if let Block::Table(table) = block { Some(table) } else { None });
        let mut ids = BTreeMap::new();
        for (table, row) in tables().flat_map(|table| table.rows.iter().map(move |row| (table, row))) {
            if row.entries.len() != table.columns.len() {
                let (has, wants) = (row.entries.len(), table.columns.len());
                faults.push(format!("row '{}' has {has} entries for {wants} columns", row.name));
            }
            for (column, entry) in table.columns.iter().zip(&row.entries) {
                let place = Place::new(row.name.as_str(), column.name.as_str());
                if let Some(other) = ids.insert(place.id(), place.clone()) {
                    faults.push(format!("two places are called '{}': {other:?} and {place:?}", place.id()));
                }
                sound.places.insert(place, entry);
            }
        }
        let texts = self.blocks.iter().flat_map(|block| match block {
            Block::Paragraph(text) | Block::Note(text) => vec![text],
            Block::List(texts) => texts.iter().collect(),
            Block::Table(table) => table.remark.iter().collect(),
            _ => Vec::new(),
        });
        faults.extend(texts.flat_map(|text| &text.0).filter_map(|span| sound.said(span).err()));
        match faults.is_empty() {
            true => Ok(sound),
            false => Err(LabError::Failed(format!("the document contradicts itself: {}", faults.join("; ")))),
        }
    }
}

impl Sound<'_> {
    /// A sentence's spans as they are drawn.
    pub fn spans(&self, text: &Text) -> Vec<Said> {
        text.0.iter().filter_map(|span| self.said(span).ok()).collect()
    }

    fn said(&self, span: &Span) -> Result<Said, String> {
        Ok(match span {
            Span::Plain(text) => Said::Plain(text.clone()),
            Span::Code(text) => Said::Code(text.clone()),
            Span::Figure(Figure::Of(place, words)) => {
                Said::Figure(format!("{}{words}", self.entry(place)?.text), place.id())
            }
            Span::Figure(Figure::Ratio(place, base)) => {
                let ratio = self.value(place)? / self.base(base)?;
                // Two digits, but not of nothing.
                let text = if ratio.abs() < 0.095 { figure(ratio) } else { format!("{ratio:.2}") };
                Said::Figure(text, place.id())
            }
            Span::Figure(Figure::Change(place, base)) => {
                let change = (self.value(place)? / self.base(base)? - 1.0) * 100.0;
                let digits = usize::from(change.abs() < 10.0);
                Said::Figure(format!("{change:+.digits$} %"), place.id())
            }
        })
    }

    fn entry(&self, place: &Place) -> Result<&Entry, String> {
        let entry = self.places.get(place).copied();
        entry.ok_or_else(|| {
            format!("a sentence speaks of row '{}', column '{}', which is not there", place.row, place.column)
        })
    }

    fn value(&self, place: &Place) -> Result<f64, String> {
        let what = self.entry(place)?;
        what.value.ok_or_else(|| format!("a sentence reckons with '{}', which is no figure", what.text))
    }

    fn base(&self, place: &Place) -> Result<f64, String> {
        match self.value(place)? {
            0.0 => Err(format!("a sentence divides by row '{}', column '{}', which is 0", place.row, place.column)),
            value => Ok(value),
        }
    }
}

#[cfg(test)]
mod tests;
