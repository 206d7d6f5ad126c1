//! A diagram of a set-up: rows of boxes, the upper ones above what they use, joined by lines.

use super::chart::drawing::{Anchor, Drawing, Frame, Ink, Shape};
use super::chart::svg::STYLE;
use super::metrics::{Face, wrapped};

/// One thing, or several of one kind.
#[derive(Clone, PartialEq, Debug)]
pub struct Component {
    pub name: String,
    /// What is to be known of it, a paragraph each.
    pub facts: Vec<String>,
}

impl Component {
    pub fn new(name: impl Into<String>) -> Component {
        Component { name: name.into(), facts: Vec::new() }
    }

    pub fn fact(mut self, fact: impl Into<String>) -> Component {
        let fact = fact.into();
        self.facts.extend((!fact.is_empty()).then_some(fact));
        self
    }
}

#[derive(Clone, PartialEq, Debug)]
pub struct DiagramRow {
    pub parts: Vec<Component>,
    /// How it reaches the row below.
    pub link: String,
}

#[derive(Clone, PartialEq, Default, Debug)]
pub struct Diagram {
    pub title: String,
    pub rows: Vec<DiagramRow>,
}

const TEXT: f64 = 12.0;
const LEADING: f64 = 15.0;
const TITLE: f64 = 34.0;
/// Between the sides of a box and its text, and between boxes.
const INSIDE: f64 = 8.0;
const BESIDE: f64 = 14.0;
/// A box is no wider.
const BOX_MAX: f64 = 420.0;
/// Between rows, half of it above what joins several boxes.
const APART: f64 = 40.0;
/// A page's own font is up to so much wider than the one that lengths are known of.
const WIDER: f64 = 1.12;

impl Diagram {
    pub fn new(title: impl Into<String>) -> Diagram {
        Diagram { title: title.into(), rows: Vec::new() }
    }

    /// A row below the others; `link` says how it reaches the next one.
    pub fn row(mut self, parts: Vec<Component>, link: impl Into<String>) -> Diagram {
        self.rows.push(DiagramRow { parts, link: link.into() });
        self
    }

    pub fn is_empty(&self) -> bool {
        self.rows.iter().all(|row| row.parts.is_empty())
    }

    pub fn drawing(&self, frame: Frame) -> Drawing {
        let (edge, wide) = (frame.right, frame.wide);
        let mut drawing = Drawing { wide, high: 0.0, title: self.title.clone(), shapes: Vec::new() };
        let mut y = if self.title.is_empty() { 6.0 } else { TITLE };
        for (number, line) in wrapped(Face::Bold, 14.0, &self.title, wide - 2.0 * edge).into_iter().enumerate() {
            y += if number > 0 { 17.0 } else { 0.0 };
            drawing.text((edge, y - 14.0), line, Anchor::Start, Ink::Title);
        }
        let mut above: Option<(Vec<f64>, &str)> = None;
        for row in self.rows.iter().filter(|row| !row.parts.is_empty()) {
            let count = row.parts.len() as f64;
            let each = ((wide - 2.0 * edge - BESIDE * (count - 1.0)) / count).min(BOX_MAX);
            let left = (wide - each * count - BESIDE * (count - 1.0)) / 2.0;
            let middles: Vec<f64> =
                (0..row.parts.len()).map(|at| left + (each + BESIDE) * at as f64 + each / 2.0).collect();
            if let Some((from, link)) = above.replace((middles.clone(), row.link.as_str())) {
                join(&mut drawing, &from, &middles, y, link);
                y += APART;
            }
            let texts: Vec<Vec<(String, Ink)>> = row.parts.iter().map(|part| lines_of(part, each)).collect();
            let high = texts.iter().map(Vec::len).max().unwrap_or(1) as f64 * LEADING + 2.0 * INSIDE;
            for (middle, lines) in middles.iter().zip(texts) {
                let (from, to) = (middle - each / 2.0, middle + each / 2.0);
                drawing.path(vec![(from, y), (to, y), (to, y + high), (from, y + high), (from, y)], Ink::Axis);
                for (number, (line, ink)) in lines.into_iter().enumerate() {
                    let at = (*middle, y + INSIDE + 11.0 + number as f64 * LEADING);
                    drawing.text(at, line, Anchor::Middle, ink);
                }
            }
            y += high;
        }
        drawing.high = y + 8.0;
        drawing
    }

    /// A file of its own would lack the style; in a page it is there.
    pub fn svg(&self, frame: Frame) -> String {
        debug_assert!(STYLE.contains("path.axis"), "lines of boxes have a colour");
        self.drawing(frame).svg()
    }
}

/// The lines of a box: its name, and its facts.
fn lines_of(part: &Component, wide: f64) -> Vec<(String, Ink)> {
    let room = (wide - 2.0 * INSIDE) / WIDER;
    let name = wrapped(Face::Bold, TEXT, &part.name, room).into_iter().map(|line| (line, Ink::Legend));
    let facts = part.facts.iter().flat_map(|fact| wrapped(Face::Plain, TEXT, fact, room));
    name.chain(facts.map(|line| (line, Ink::Tick))).collect()
}

/// Lines from boxes to those below them: each to its own where there are as many, else over a line
/// across.
fn join(drawing: &mut Drawing, from: &[f64], to: &[f64], y: f64, link: &str) {
    let (low, high) = (y + APART, y + APART / 2.0);
    if from.len() == to.len() {
        for x in from {
            drawing.path(vec![(*x, y), (*x, low)], Ink::Axis);
        }
    } else {
        for x in from {
            drawing.path(vec![(*x, y), (*x, high)], Ink::Axis);
        }
        for x in to {
            drawing.path(vec![(*x, high), (*x, low)], Ink::Axis);
        }
        let all = || from.iter().chain(to).copied();
        drawing.path(vec![(all().fold(f64::MAX, f64::min), high), (all().fold(f64::MIN, f64::max), high)], Ink::Axis);
    }
    if let Some(x) = from.iter().chain(to).copied().reduce(f64::max).filter(|_| !link.is_empty()) {
        let room = (drawing.wide - x - 10.0).max(60.0);
        let lines = wrapped(Face::Plain, TEXT, link, room / WIDER);
        let top = high + 4.0 - (lines.len().saturating_sub(1)) as f64 * LEADING / 2.0;
        for (number, line) in lines.into_iter().take(2).enumerate() {
            let (at, text) = ((x + 6.0, top + number as f64 * LEADING), line);
            drawing.shapes.push(Shape::Text { at, text, anchor: Anchor::Start, upright: false, ink: Ink::Tick });
        }
    }
}

#[cfg(test)]
mod tests;
