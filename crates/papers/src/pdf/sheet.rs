//! One page: its content stream, and its links. Coordinates grow to the right and downwards here;
//! those of a PDF grow upwards.

use std::fmt::Write as _;

use super::file::string;
use stele_lab::report::chart::COLOURS;
use stele_lab::report::chart::drawing::{Anchor, Drawing, Form, Ink, RADIUS, Shape, dash_of};
use stele_lab::report::metrics::{Face, encoded, width};

/// A4, in points.
pub const WIDE: f64 = 595.0;
pub const HIGH: f64 = 842.0;

pub type Colour = (f64, f64, f64);

const fn rgb(red: u8, green: u8, blue: u8) -> Colour {
    (red as f64 / 255.0, green as f64 / 255.0, blue as f64 / 255.0)
}

pub const INK: Colour = rgb(0x1c, 0x1c, 0x1a);
pub const FAINT: Colour = rgb(0x6b, 0x6b, 0x66);
pub const GRID: Colour = rgb(0xdc, 0xdc, 0xd6);
pub const ACCENT: Colour = rgb(0xa6, 0x7c, 0x00);
const PAPER: Colour = (1.0, 1.0, 1.0);
const LIMIT: Colour = rgb(0xb3, 0x26, 0x1e);
const SERIES: [Colour; COLOURS] = [
    rgb(0x1f, 0x5f, 0xa8),
    rgb(0xc2, 0x57, 0x1a),
    rgb(0x2e, 0x7d, 0x4f),
    rgb(0x8a, 0x3f, 0x9e),
    rgb(0xa6, 0x7c, 0x00),
    rgb(0x00, 0x83, 0x8f),
    rgb(0xb0, 0x30, 0x5c),
    rgb(0x5c, 0x66, 0x70),
];

fn colour_of(ink: Ink) -> Colour {
    match ink {
        Ink::Grid => GRID,
        Ink::Tick | Ink::Axis => FAINT,
        Ink::Limit => LIMIT,
        Ink::Title | Ink::Legend => INK,
        Ink::Series(number) => SERIES[number % COLOURS],
    }
}

/// A place on the page that links to a place in the document.
pub struct Link {
    pub left: f64,
    pub top: f64,
    pub right: f64,
    pub bottom: f64,
    pub to: String,
}

#[derive(Default)]
pub struct Sheet {
    pub content: Vec<u8>,
    pub links: Vec<Link>,
}

impl Sheet {
    fn put(&mut self, text: &str) {
        self.content.extend_from_slice(text.as_bytes());
    }

    /// Text that begins at this point; `y` is its baseline.
    pub fn text(&mut self, face: Face, size: f64, colour: Colour, (x, y): (f64, f64), text: &str) {
        if text.is_empty() {
            return;
        }
        self.shown(face, size, colour, &format!("1 0 0 1 {x:.2} {:.2}", HIGH - y), text);
    }

    fn shown(&mut self, face: Face, size: f64, (red, green, blue): Colour, matrix: &str, text: &str) {
        let font = match face {
            Face::Plain => "F1",
            Face::Bold => "F2",
            Face::Code => "F3",
        };
        self.put(&format!("BT {red:.3} {green:.3} {blue:.3} rg /{font} {size:.2} Tf {matrix} Tm "));
        self.content.extend(string(&encoded(text)));
        self.put(" Tj ET\n");
    }

    pub fn path(&mut self, points: &[(f64, f64)], thick: f64, (red, green, blue): Colour, dash: &str) {
        let mut path = String::new();
        for (number, (x, y)) in points.iter().enumerate() {
            let _ = write!(path, "{x:.2} {:.2} {} ", HIGH - y, if number == 0 { 'm' } else { 'l' });
        }
        self.put(&format!("{red:.3} {green:.3} {blue:.3} RG {thick:.2} w [{dash}] 0 d 1 j {path}S\n"));
    }

    pub fn block(&mut self, (x, y): (f64, f64), wide: f64, high: f64, (red, green, blue): Colour) {
        self.put(&format!("{red:.3} {green:.3} {blue:.3} rg {x:.2} {:.2} {wide:.2} {high:.2} re f\n", HIGH - y - high));
    }

    /// An area with these corners.
    fn area(&mut self, corners: &[(f64, f64)], (red, green, blue): Colour) {
        let mut path = format!("{red:.3} {green:.3} {blue:.3} rg ");
        for (number, (x, y)) in corners.iter().enumerate() {
            let _ = write!(path, "{x:.2} {:.2} {} ", HIGH - y, if number == 0 { 'm' } else { 'l' });
        }
        self.put(&path);
        self.put("h f\n");
    }

    /// A disc, from four curves.
    fn disc(&mut self, (x, y): (f64, f64), radius: f64, (red, green, blue): Colour) {
        let (y, bend) = (HIGH - y, radius * 0.5523);
        let mut path = format!("{red:.3} {green:.3} {blue:.3} rg {:.2} {y:.2} m ", x + radius);
        for (a, b) in [(1.0, 0.0), (0.0, 1.0), (-1.0, 0.0), (0.0, -1.0)] {
            // A quarter turn to the left from the direction (a, b).
            let (c, d) = (-b, a);
            let at = |p: f64, q: f64| (x + a * p + c * q, y + b * p + d * q);
            let ((x1, y1), (x2, y2), (x3, y3)) = (at(radius, bend), at(bend, radius), at(0.0, radius));
            let _ = write!(path, "{x1:.2} {y1:.2} {x2:.2} {y2:.2} {x3:.2} {y3:.2} c ");
        }
        self.put(&path);
        self.put("f\n");
    }

    /// A drawing with its upper left corner at this point.
    pub fn drawing(&mut self, drawing: &Drawing, (left, top): (f64, f64), scale: f64) {
        let place = |(x, y): (f64, f64)| (left + x * scale, top + y * scale);
        for shape in &drawing.shapes {
            match shape {
                Shape::Path { points, ink } => {
                    let points: Vec<(f64, f64)> = points.iter().copied().map(place).collect();
                    let scaled = |lengths: &[f64]| {
                        let lengths: Vec<String> =
                            lengths.iter().map(|length| format!("{:.2}", length * scale)).collect();
                        lengths.join(" ")
                    };
                    let (thick, dash) = match ink {
                        Ink::Grid => (0.5, String::new()),
                        Ink::Axis => (0.8, String::new()),
                        Ink::Limit => (1.0, "4 3".to_owned()),
                        Ink::Series(number) => (1.2, scaled(dash_of(*number))),
                        _ => (1.2, String::new()),
                    };
                    self.path(&points, thick, colour_of(*ink), &dash);
                }
                Shape::Mark { at, form: Form::Disc, ink } => self.disc(place(*at), RADIUS * scale, colour_of(*ink)),
                Shape::Mark { at, form, ink } => {
                    self.area(&form.corners(place(*at), RADIUS * scale), colour_of(*ink));
                }
                Shape::Hatch { lines } => {
                    for line in lines {
                        self.path(&line.map(place), 0.8, PAPER, "");
                    }
                }
                Shape::Bar { at, wide, high, ink } => {
                    self.block(place(*at), wide * scale, high * scale, colour_of(*ink));
                }
                Shape::Text { at, text, anchor, upright, ink } => {
                    let (face, size) = if *ink == Ink::Title { (Face::Bold, 14.0) } else { (Face::Plain, 12.0) };
                    let size = size * scale;
                    let back = match anchor {
                        Anchor::Start => 0.0,
                        Anchor::Middle => width(face, size, text) / 2.0,
                        Anchor::End => width(face, size, text),
                    };
                    let (x, y) = place(*at);
                    match upright {
                        false => self.text(face, size, colour_of(*ink), (x - back, y), text),
                        true => {
                            let matrix = format!("0 1 -1 0 {x:.2} {:.2}", HIGH - y - back);
                            self.shown(face, size, colour_of(*ink), &matrix, text);
                        }
                    }
                }
            }
        }
    }
}
