//! A document as a PDF: A4 pages with numbers, a list of contents, charts as lines, and an outline.
//! Tables continue over pages with their head, and figures in sentences link to their place in a
//! table. Its fonts are embedded, so that a file looks the same on every machine. They have the
//! letters of Western Europe; others become question marks.
//!
//! A chart that does not fit on a page is drawn lower, or waits for the top of the next page while
//! the text goes on, so that pages have no gaps. Two charts of lines that follow each other share
//! the width.

mod file;
mod font;
mod grid;
mod sheet;

use std::collections::{BTreeMap, VecDeque};

use file::{File, title};
use sheet::{ACCENT, Colour, FAINT, GRID, HIGH, INK, Link, Sheet, WIDE};
use stele_lab::error::LabError;
use stele_lab::report::chart::drawing::{Drawing, Frame};
use stele_lab::report::chart::{Chart, Plot};
use stele_lab::report::document::{Block, Document, Said, Sound, Text, heading_id};
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
/// Lines of the list of contents.
const LISTED: f64 = 9.0;
const LISTED_LEADING: f64 = 12.5;
const CODE_LEADING: f64 = 10.5;
/// Between two charts beside each other, and above and below a figure.
const BETWEEN: f64 = 12.0;
const FIGURE_ABOVE: f64 = 4.0;
const FIGURE_BELOW: f64 = 12.0;

/// Writes the file; an error if the document contradicts itself.
pub fn file(document: &Document) -> Result<Vec<u8>, LabError> {
    Ok(laid_out(document)?.finish(&document.title))
}

fn laid_out(document: &Document) -> Result<Layout, LabError> {
    let sound = document.check()?;
    let mut layout = Layout { sheets: vec![Sheet::default()], y: TOP, ..Layout::default() };
    layout.head(document);
    layout.contents(document);
    let mut rest = document.blocks.as_slice();
    while let Some((block, following)) = rest.split_first() {
        rest = match (block, following) {
            (Block::Chart(one), [Block::Chart(other), behind @ ..]) if are_lines(one, other) => {
                layout.figure(Figure::pair(one, other));
                behind
            }
            _ => {
                layout.block(&sound, block, following);
                following
            }
        };
    }
    layout.flush();
    layout.number_contents();
    layout.foot(&document.title);
    Ok(layout)
}

/// Whether two charts can stand beside each other: groups of bars need the width.
fn are_lines(one: &Chart, other: &Chart) -> bool {
    [one, other].iter().all(|chart| matches!(chart.plot, Plot::Lines { .. }))
}

/// What is drawn, and has to be on one page.
enum Figure {
    Alone(Chart),
    Pair(Box<[Chart; 2]>),
    Drawn(Drawing),
}

/// A drawing with its place across the page, and its scale.
type Placed = (Drawing, f64, f64);

impl Figure {
    fn pair(one: &Chart, other: &Chart) -> Figure {
        Figure::Pair(Box::new([one.clone(), other.clone()]))
    }

    /// The drawings, from the highest to the lowest ones that are possible.
    fn ways(&self) -> Vec<Vec<Placed>> {
        let over_all = |drawing: Drawing| {
            let scale = ROOM / drawing.wide;
            vec![(drawing, MARGIN, scale)]
        };
        let alone = |chart: &Chart| {
            let frames = [Frame::BROAD, Frame::LOW];
            frames.into_iter().filter_map(|frame| chart.drawing_in(frame)).map(over_all).collect::<Vec<_>>()
        };
        match self {
            Figure::Drawn(drawing) => vec![over_all(drawing.clone())],
            Figure::Alone(chart) => alone(chart),
            Figure::Pair(charts) => {
                let [one, other] = &**charts;
                match one.drawing_in(Frame::SLIM).zip(other.drawing_in(Frame::SLIM)) {
                    Some((left, right)) => {
                        let wide = (ROOM - BETWEEN) / 2.0;
                        let (first, second) = (wide / left.wide, wide / right.wide);
                        vec![vec![(left, MARGIN, first), (right, MARGIN + wide + BETWEEN, second)]]
                    }
                    None => [one, other].into_iter().flat_map(alone).collect(),
                }
            }
        }
    }
}

fn high_of(drawings: &[Placed]) -> f64 {
    drawings.iter().map(|(drawing, _, scale)| drawing.high * scale).fold(0.0, f64::max)
}

/// A place in the file: the number of its page, and the height on it.
type Spot = (usize, f64);

#[derive(Default)]
struct Layout {
    sheets: Vec<Sheet>,
    /// The used height of the page.
    y: f64,
    /// Where text begins on this page: below figures that waited for it.
    begin: f64,
    places: BTreeMap<String, Spot>,
    /// Sections, and with `true` their parts.
    outline: Vec<(String, bool, Spot)>,
    /// Figures that wait for the next page.
    waiting: VecDeque<Figure>,
    /// Lines of the list of contents that lack their page.
    listed: Vec<Spot>,
    /// How far each page but the last is used.
    ends: Vec<f64>,
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

    /// A new page, at whose top stand the figures that wait, as far as there is room.
    fn turn(&mut self) {
        self.go_on();
        while let Some(figure) = self.waiting.pop_front() {
            if let Some(figure) = self.placed(figure, 0.0) {
                self.waiting.push_front(figure);
                break;
            }
        }
        self.begin = self.y;
    }

    /// A new page for what goes on there.
    fn go_on(&mut self) {
        self.ends.push(self.y);
        self.sheets.push(Sheet::default());
        (self.y, self.begin) = (TOP, TOP);
    }

    /// Draws a figure if one of its ways fits; hands it back if none does.
    fn placed(&mut self, figure: Figure, above: f64) -> Option<Figure> {
        let room = BOTTOM - self.y - above;
        let is_empty = self.y <= TOP;
        let mut ways = figure.ways();
        let fitting =
            ways.iter().position(|way| high_of(way) <= room).or(is_empty.then_some(ways.len().saturating_sub(1)));
        let Some(way) = fitting.filter(|at| *at < ways.len()).map(|at| ways.swap_remove(at)) else {
            // Nothing to draw is drawn.
            return (!ways.is_empty()).then_some(figure);
        };
        let (top, high) = (self.y + above, high_of(&way));
        for (drawing, left, scale) in way {
            self.sheet().drawing(&drawing, (left, top), scale);
        }
        self.y = top + high + FIGURE_BELOW;
        None
    }

    /// Draws a figure here, or lets it wait for the next page.
    fn figure(&mut self, figure: Figure) {
        let held = if self.waiting.is_empty() { self.placed(figure, FIGURE_ABOVE) } else { Some(figure) };
        self.waiting.extend(held);
    }

    /// Draws all figures that wait.
    fn flush(&mut self) {
        while let Some(figure) = self.waiting.pop_front() {
            match self.placed(figure, FIGURE_ABOVE) {
                None => {}
                Some(figure) => {
                    self.waiting.push_front(figure);
                    self.turn();
                }
            }
        }
    }

    /// Starts a new page if this one has too little room.
    fn need(&mut self, high: f64) {
        // Figures that waited may leave too little of the next page, too.
        while self.y + high > BOTTOM && self.y > TOP {
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
        if let Some(byline) = &document.byline {
            self.lines(Face::Plain, 10.0, 14.0, INK, byline);
        }
        self.y += 8.0;
    }

    /// The list of contents, without its page numbers: they are known at the end.
    fn contents(&mut self, document: &Document) {
        let all = document.contents();
        if all.is_empty() {
            return;
        }
        self.lines(Face::Bold, PART, PART * 1.3, INK, "Contents");
        for (number, (title, part)) in all.into_iter().enumerate() {
            self.need(LISTED_LEADING);
            let left = MARGIN + if part { 14.0 } else { 0.0 };
            let title = stele_lab::report::metrics::cut(Face::Plain, LISTED, title, ROOM - 60.0);
            self.line(Face::Plain, LISTED, INK, left, &title);
            let (top, right, to) = (self.y, MARGIN + ROOM, heading_id(number));
            self.sheet().links.push(Link { left, top, right, bottom: top + LISTED_LEADING, to });
            self.listed.push(self.spot());
            self.y += LISTED_LEADING;
        }
        self.y += 6.0;
    }

    fn number_contents(&mut self) {
        let pages: Vec<usize> = self.outline.iter().map(|(.., (page, _))| *page).collect();
        for ((sheet, y), page) in std::mem::take(&mut self.listed).into_iter().zip(pages) {
            let said = (page + 1).to_string();
            let left = MARGIN + ROOM - width(Face::Plain, LISTED, &said);
            if let Some(sheet) = self.sheets.get_mut(sheet) {
                sheet.text(Face::Plain, LISTED, INK, (left, y + LISTED), &said);
            }
        }
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
            Block::Chart(chart) => self.figure(Figure::Alone(chart.clone())),
            Block::Diagram(diagram) => self.figure(Figure::Drawn(diagram.drawing(Frame::BROAD))),
            Block::Code(text) => self.code(text),
        }
    }

    fn heading(&mut self, title: &str, size: f64, part: bool, following: &[Block]) {
        // Figures stay in their section, and before those of the next part.
        if !part || matches!(following.first(), Some(Block::Chart(_) | Block::Diagram(_))) {
            self.flush();
        }
        self.y += if part { 8.0 } else { 14.0 };
        // A heading must not be alone at the end of a page.
        self.need(size * 1.3 + 4.0 + begins(following));
        let spot = self.spot();
        self.places.insert(heading_id(self.outline.len()), spot);
        self.outline.push((title.to_owned(), part, spot));
        self.lines(Face::Bold, size, size * 1.3, INK, title);
        self.y += 4.0;
    }

    fn note(&mut self, sound: &Sound<'_>, text: &Text) {
        let (pages, top) = (self.sheets.len(), self.y);
        self.text(sound, text, 12.0, INK);
        let from = if self.sheets.len() == pages { top } else { self.begin };
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
        let fonts = font::add_all(&mut file);
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
                "<< /Type /Page /Parent {tree} 0 R /MediaBox [0 0 {WIDE} {HIGH}] /Resources << /Font << {fonts} >> >> \
                 /Contents {content} 0 R /Annots [{links}] >>"
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
        Block::Chart(chart) => {
            let figure = match rest.first() {
                Some(Block::Chart(other)) if are_lines(chart, other) => Figure::pair(chart, other),
                _ => Figure::Alone(chart.clone()),
            };
            figure.ways().iter().map(|way| high_of(way)).fold(f64::MAX, f64::min).min(BOTTOM - TOP) + FIGURE_ABOVE
        }
        Block::Diagram(diagram) => {
            high_of(&[(diagram.drawing(Frame::BROAD), MARGIN, ROOM / Frame::BROAD.wide)]) + FIGURE_ABOVE
        }
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
