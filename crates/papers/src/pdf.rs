//! A document as a PDF: A4 pages with numbers, charts as lines, tables that continue over pages with their head,
//! figures in sentences that link to their place in a table, and an outline. It uses the standard fonts of every
//! reader, so that a file is small and the same on every machine. Letters outside Western Europe are missing in those
//! fonts, and become question marks.

mod file;
mod grid;
mod sheet;

use std::collections::BTreeMap;

use file::{File, title};
use sheet::{ACCENT, Colour, FAINT, GRID, HIGH, INK, Link, Sheet, WIDE};
use stele_lab::error::LabError;
use stele_lab::report::document::{Block, Document, Said, Sound, Text};
use stele_lab::report::metrics::{Face, pieces, width, wrapped};

const MARGIN: f64 = 54.0;
const TOP: f64 = 60.0;
const BOTTOM: f64 = HIGH - 64.0;
/// Width between the margins.
const ROOM: f64 = WIDE - 2.0 * MARGIN;
const SECTION: f64 = 14.0;
const PART: f64 = 11.0;
const BODY: f64 = 10.0;
const LEADING: f64 = 14.0;
const CODE: f64 = 8.0;
const CODE_LEADING: f64 = 10.5;

/// Writes the file; an error if the document contradicts itself.
pub fn file(document: &Document) -> Result<Vec<u8>, LabError> {
    Ok(laid_out(document)?.finish(&document.title))
}

fn laid_out(document: &Document) -> Result<Layout, LabError> {
    let sound = document.check()?;
    let mut layout = Layout { sheets: vec![Sheet::default()], y: TOP, places: BTreeMap::new(), outline: Vec::new() };
    layout.head(document);
    for (number, block) in document.blocks.iter().enumerate() {
        layout.block(&sound, block, &document.blocks[number + 1..]);
    }
    layout.foot(&document.title);
    Ok(layout)
}

/// A place in the file: the number of its page, and the height on it.
type Spot = (usize, f64);

struct Layout {
    sheets: Vec<Sheet>,
    /// The used height of the page.
    y: f64,
    places: BTreeMap<String, Spot>,
    /// Sections, and with `true` their parts.
    outline: Vec<(String, bool, Spot)>,
}

/// A word to set, with its link.
struct Word {
    text: String,
    face: Face,
    link: Option<String>,
    /// Whether a blank precedes it.
    apart: bool,
}

impl Layout {
    fn sheet(&mut self) -> &mut Sheet {
        if self.sheets.is_empty() {
            self.sheets.push(Sheet::default());
        }
        let last = self.sheets.len() - 1;
        &mut self.sheets[last]
    }

    fn turn(&mut self) {
        self.sheets.push(Sheet::default());
        self.y = TOP;
    }

    /// Starts a new page if this one has too little room.
    fn need(&mut self, high: f64) {
        if self.y + high > BOTTOM && self.y > TOP {
            self.turn();
        }
    }

    fn spot(&self) -> Spot {
        (self.sheets.len() - 1, self.y)
    }

    fn line(&mut self, face: Face, size: f64, colour: Colour, x: f64, text: &str) {
        let y = self.y + size;
        self.sheet().text(face, size, colour, (x, y), text);
    }

    fn lines(&mut self, face: Face, size: f64, leading: f64, colour: Colour, text: &str) {
        for line in wrapped(face, size, text, ROOM) {
            self.need(leading);
            self.line(face, size, colour, MARGIN, &line);
            self.y += leading;
        }
    }

    fn head(&mut self, document: &Document) {
        self.lines(Face::Bold, 20.0, 25.0, INK, &document.title);
        self.lines(Face::Plain, 9.0, 13.0, FAINT, &document.about);
        self.y += 8.0;
    }

    fn block(&mut self, sound: &Sound<'_>, block: &Block, following: &[Block]) {
        match block {
            Block::Section(title) => self.heading(title, SECTION, false, following),
            Block::Part(title) => self.heading(title, PART, true, following),
            Block::Paragraph(text) => {
                self.text(sound, text, 0.0, INK);
                self.y += 5.0;
            }
            Block::Note(text) => self.note(sound, text),
            Block::List(lines) => {
                for line in lines {
                    self.need(LEADING);
                    self.line(Face::Plain, BODY, INK, MARGIN + 3.0, "•");
                    self.text(sound, line, 14.0, INK);
                    self.y += 2.0;
                }
                self.y += 4.0;
            }
            Block::Table(table) => self.table(sound, table),
            Block::Chart(chart) => {
                let Some(drawing) = chart.drawing() else { return };
                let scale = ROOM / drawing.wide;
                let high = drawing.high * scale;
                self.need(high + 10.0);
                let top = self.y + 4.0;
                self.sheet().drawing(&drawing, (MARGIN, top), scale);
                self.y += high + 16.0;
            }
            Block::Code(text) => self.code(text),
        }
    }

    fn heading(&mut self, title: &str, size: f64, part: bool, following: &[Block]) {
        self.y += if part { 8.0 } else { 14.0 };
        // A heading must not be alone at the end of a page.
        self.need(size * 1.3 + 4.0 + begins(following));
        let spot = self.spot();
        self.outline.push((title.to_owned(), part, spot));
        self.lines(Face::Bold, size, size * 1.3, INK, title);
        self.y += 4.0;
    }

    fn note(&mut self, sound: &Sound<'_>, text: &Text) {
        let (pages, top) = (self.sheets.len(), self.y);
        self.text(sound, text, 12.0, INK);
        let from = if self.sheets.len() == pages { top } else { TOP };
        let bar = [(MARGIN + 2.0, from + 2.0), (MARGIN + 2.0, self.y)];
        self.sheet().path(&bar, 2.0, ACCENT, "");
        self.y += 7.0;
    }

    fn code(&mut self, text: &str) {
        let wide = ROOM - 16.0;
        self.y += 2.0;
        for line in text.trim_end().split('\n') {
            // Unchanged, including blanks; text wider than the page continues in the next line.
            for piece in pieces(Face::Code, CODE, line, wide) {
                self.need(CODE_LEADING);
                let y = self.y;
                self.sheet().block((MARGIN, y), 1.5, CODE_LEADING, GRID);
                self.line(Face::Code, CODE, INK, MARGIN + 10.0, &piece);
                self.y += CODE_LEADING;
            }
        }
        self.y += 8.0;
    }

    /// Sets a text with its lines indented by this much.
    fn text(&mut self, sound: &Sound<'_>, text: &Text, indent: f64, colour: Colour) {
        let room = ROOM - indent;
        let blank = width(Face::Plain, BODY, " ");
        let mut line: Vec<(f64, Word)> = Vec::new();
        let mut x = 0.0;
        for word in words_of(sound, text, room) {
            let wide = width(word.face, size_of(word.face), &word.text);
            let before = if word.apart && x > 0.0 { blank } else { 0.0 };
            if x > 0.0 && x + before + wide > room {
                self.set(std::mem::take(&mut line), indent, colour);
                line.push((0.0, word));
                x = wide;
            } else {
                line.push((x + before, word));
                x += before + wide;
            }
        }
        self.set(line, indent, colour);
    }

    fn set(&mut self, line: Vec<(f64, Word)>, indent: f64, colour: Colour) {
        if line.is_empty() {
            return;
        }
        self.need(LEADING);
        let (top, ground) = (self.y, self.y + BODY);
        for (x, word) in line {
            let size = size_of(word.face);
            let (left, right) = (MARGIN + indent + x, MARGIN + indent + x + width(word.face, size, &word.text));
            let sheet = self.sheet();
            sheet.text(word.face, size, colour, (left, ground), &word.text);
            if let Some(to) = word.link {
                sheet.path(&[(left, ground + 1.5), (right, ground + 1.5)], 0.4, FAINT, "");
                sheet.links.push(Link { left, top, right, bottom: ground + 2.5, to });
            }
        }
        self.y += LEADING;
    }

    fn foot(&mut self, name: &str) {
        let pages = self.sheets.len();
        for (number, sheet) in self.sheets.iter_mut().enumerate() {
            let y = HIGH - 36.0;
            let said = format!("{} / {pages}", number + 1);
            let left = stele_lab::report::metrics::cut(Face::Plain, 8.0, name, ROOM - 60.0);
            sheet.text(Face::Plain, 8.0, FAINT, (MARGIN, y), &left);
            let right = WIDE - MARGIN - width(Face::Plain, 8.0, &said);
            sheet.text(Face::Plain, 8.0, FAINT, (right, y), &said);
        }
    }

    fn finish(self, name: &str) -> Vec<u8> {
        let mut file = File::default();
        let fonts: Vec<String> = ["Helvetica", "Helvetica-Bold", "Courier"]
            .iter()
            .enumerate()
            .map(|(number, font)| {
                let body = format!("<< /Type /Font /Subtype /Type1 /BaseFont /{font} /Encoding /WinAnsiEncoding >>");
                format!("/F{} {} 0 R", number + 1, file.add(body))
            })
            .collect();
        let tree = file.reserve();
        let pages: Vec<usize> = self.sheets.iter().map(|_| file.reserve()).collect();
        let goal = |(page, y): Spot| {
            let page = pages.get(page).copied().unwrap_or_default();
            format!("[{page} 0 R /XYZ 0 {:.1} null]", HIGH - y + 6.0)
        };
        for (sheet, number) in self.sheets.iter().zip(&pages) {
            let content = file.add_stream(&sheet.content);
            let mut links = String::new();
            for link in &sheet.links {
                let Some(spot) = self.places.get(&link.to) else { continue };
                let annotation = file.add(format!(
                    "<< /Type /Annot /Subtype /Link /Rect [{:.1} {:.1} {:.1} {:.1}] /Border [0 0 0] /Dest {} >>",
                    link.left,
                    HIGH - link.bottom,
                    link.right,
                    HIGH - link.top,
                    goal(*spot)
                ));
                links.push_str(&format!("{annotation} 0 R "));
            }
            let page = format!(
                "<< /Type /Page /Parent {tree} 0 R /MediaBox [0 0 {WIDE} {HIGH}] /Resources << /Font << {} >> >> \
                 /Contents {content} 0 R /Annots [{links}] >>",
                fonts.join(" ")
            );
            file.set(*number, page);
        }
        let kids: Vec<String> = pages.iter().map(|page| format!("{page} 0 R")).collect();
        file.set(tree, format!("<< /Type /Pages /Kids [{}] /Count {} >>", kids.join(" "), pages.len()));
        let outline = outline(&mut file, &self.outline, goal);
        let catalogue = file.add(format!(
            "<< /Type /Catalog /Pages {tree} 0 R /Lang (en) /Outlines {outline} 0 R /ViewerPreferences << /DisplayDocTitle true >> >>"
        ));
        let about = file.add(format!("<< /Title {} /Producer (stele lab) >>", title(name)));
        file.finish(catalogue, about)
    }
}

/// Writes sections with their parts below; returns its number.
fn outline(file: &mut File, entries: &[(String, bool, Spot)], goal: impl Fn(Spot) -> String) -> usize {
    let root = file.reserve();
    let numbers: Vec<usize> = entries.iter().map(|_| file.reserve()).collect();
    // The parent of each entry: the preceding section for a part.
    let mut parents = Vec::with_capacity(entries.len());
    let mut section = root;
    for ((_, part, _), number) in entries.iter().zip(&numbers) {
        parents.push(if *part { section } else { root });
        if !part {
            section = *number;
        }
    }
    let under = |parent: usize| -> Vec<usize> {
        numbers.iter().zip(&parents).filter(|(_, of)| **of == parent).map(|(number, _)| *number).collect()
    };
    let ends = |children: &[usize]| match (children.first(), children.last()) {
        (Some(first), Some(last)) => format!(" /First {first} 0 R /Last {last} 0 R /Count {}", children.len()),
        _ => String::new(),
    };
    for (((text, _, spot), number), parent) in entries.iter().zip(&numbers).zip(&parents) {
        let beside = under(*parent);
        let at = beside.iter().position(|other| other == number).unwrap_or_default();
        let before =
            at.checked_sub(1).and_then(|at| beside.get(at)).map_or(String::new(), |n| format!(" /Prev {n} 0 R"));
        let after = beside.get(at + 1).map_or(String::new(), |n| format!(" /Next {n} 0 R"));
        let (children, dest) = (ends(&under(*number)), goal(*spot));
        let body = format!("<< /Title {} /Parent {parent} 0 R{before}{after}{children} /Dest {dest} >>", title(text));
        file.set(*number, body);
    }
    file.set(root, format!("<< /Type /Outlines{} >>", ends(&under(root))));
    root
}

/// Smallest height on the heading's page of the block after a heading.
fn begins(following: &[Block]) -> f64 {
    let Some((first, rest)) = following.split_first() else { return 0.0 };
    match first {
        Block::Section(_) => SECTION * 1.3 + 18.0 + begins(rest),
        Block::Part(_) => PART * 1.3 + 12.0 + begins(rest),
        Block::Chart(chart) => chart.drawing().map_or(0.0, |drawing| drawing.high * ROOM / drawing.wide + 10.0),
        Block::Table(table) => grid::begins(table),
        Block::Paragraph(_) | Block::Note(_) | Block::List(_) | Block::Code(_) => 3.0 * LEADING,
    }
}

fn size_of(face: Face) -> f64 {
    if face == Face::Code { BODY * 0.9 } else { BODY }
}

/// The words of a text; words wider than a line are split.
fn words_of(sound: &Sound<'_>, text: &Text, room: f64) -> Vec<Word> {
    let mut words = Vec::new();
    // A blank at the end of a span belongs to the next word.
    let mut apart = false;
    for said in sound.spans(text) {
        let (text, face, link) = match said {
            Said::Plain(text) => (text, Face::Plain, None),
            Said::Code(text) => (text, Face::Code, None),
            Said::Figure(text, to) => (text, Face::Plain, Some(to)),
        };
        apart |= text.starts_with(char::is_whitespace);
        for word in text.split_whitespace() {
            for (number, piece) in pieces(face, size_of(face), word, room).into_iter().enumerate() {
                words.push(Word { text: piece, face, link: link.clone(), apart: apart && number == 0 });
            }
            apart = true;
        }
        apart = text.ends_with(char::is_whitespace);
    }
    words
}

#[cfg(test)]
mod tests;
