//! A drawing as SVG. In a page colours are left to its style sheet, so that a chart is good on dark
//! and light ground and in print; a file of its own carries them with it.

use std::fmt::Write as _;

use super::drawing::{Anchor, Drawing, Form, Frame, Ink, RADIUS, Shape, dash_of};
use super::{COLOURS, Chart};

/// Colours and strokes, of charts in pages and in files alike.
pub const STYLE: &str = include_str!("chart.css");

/// Text that may stand in markup.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            // Characters that neither HTML nor XML lets stand.
            '\u{0}'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}' | '\u{7f}' | '\u{fffe}' | '\u{ffff}' => {
                out.push('\u{fffd}')
            }
            letter => out.push(letter),
        }
    }
    out
}

fn class(ink: Ink) -> String {
    match ink {
        Ink::Grid => "grid".into(),
        Ink::Tick => "tick".into(),
        Ink::Axis => "axis".into(),
        Ink::Limit => "limit".into(),
        Ink::Title => "title".into(),
        Ink::Legend => "legend".into(),
        Ink::Series(number) if number < COLOURS => format!("s{number}"),
        Ink::Series(number) => format!("s{} dashed", number % COLOURS),
    }
}

fn dash(ink: Ink) -> String {
    let pattern = if let Ink::Series(number) = ink { dash_of(number) } else { &[] };
    if pattern.is_empty() {
        return String::new();
    }
    let lengths: Vec<String> = pattern.iter().map(f64::to_string).collect();
    format!(" stroke-dasharray=\"{}\"", lengths.join(" "))
}

impl Chart {
    /// For a page that has the style. None where there is nothing to draw.
    pub fn svg(&self) -> Option<String> {
        self.drawing().map(|drawing| drawing.svg())
    }

    /// The same for a screen of a phone.
    pub fn svg_slim(&self) -> Option<String> {
        self.drawing_in(Frame::SLIM).map(|drawing| drawing.svg())
    }

    /// A file of its own, whose colours are those of light ground: few programs but browsers know
    /// variables.
    pub fn svg_file(&self) -> Option<String> {
        let drawing = self.drawing()?;
        let style = format!("<style>{}</style>", plain(&format!("{STYLE}svg.chart {{ background: var(--ground); }}")));
        let markup = markup(&drawing, " xmlns=\"http://www.w3.org/2000/svg\"", &style);
        Some(format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{markup}\n"))
    }
}

impl Drawing {
    /// For a page that has the style.
    pub fn svg(&self) -> String {
        markup(self, "", "")
    }
}

/// The rules of a style sheet without its variables, which have the values that they have first.
fn plain(style: &str) -> String {
    let (variables, rules) = style.split_at(style.find("svg.chart").unwrap_or(0));
    let first = variables.split('}').next().unwrap_or_default();
    let pairs = first.split([';', '{']).filter_map(|pair| pair.trim().split_once(": "));
    pairs.fold(rules.to_owned(), |rules, (name, value)| rules.replace(&format!("var({name})"), value))
}

fn path_of(points: &[(f64, f64)]) -> String {
    let path: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
    format!("M{}", path.join("L"))
}

fn markup(drawing: &Drawing, kind: &str, style: &str) -> String {
    let (wide, high, title) = (drawing.wide, drawing.high, escaped(&drawing.title));
    let mut out = format!(
        "<svg{kind} class=\"chart\" viewBox=\"0 0 {wide} {high}\" role=\"img\" \
         aria-label=\"{title}\">{style}"
    );
    for shape in &drawing.shapes {
        let _ = match shape {
            Shape::Path { points, ink } => {
                write!(out, "<path class=\"{}\"{} d=\"{}\"/>", class(*ink), dash(*ink), path_of(points))
            }
            Shape::Mark { at: (x, y), form: Form::Disc, ink } => {
                write!(out, "<circle class=\"{}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{RADIUS}\"/>", class(*ink))
            }
            Shape::Mark { at, form, ink } => {
                let path = path_of(&form.corners(*at, RADIUS));
                write!(out, "<path class=\"mark {}\" d=\"{path}Z\"/>", class(*ink))
            }
            Shape::Bar { at: (x, y), wide, high, ink } => write!(
                out,
                "<rect class=\"{}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{wide:.1}\" height=\"{high:.1}\"/>",
                class(*ink)
            ),
            Shape::Hatch { lines } => {
                let path: String = lines.iter().map(|line| path_of(line)).collect();
                write!(out, "<path class=\"hatch\" d=\"{path}\"/>")
            }
            Shape::Text { at: (x, y), text, anchor, upright, ink } => {
                let anchor = match anchor {
                    Anchor::Start => "",
                    Anchor::Middle => " text-anchor=\"middle\"",
                    Anchor::End => " text-anchor=\"end\"",
                };
                let place = match upright {
                    true => format!("transform=\"translate({x:.1} {y:.1}) rotate(-90)\""),
                    false => format!("x=\"{x:.1}\" y=\"{y:.1}\""),
                };
                write!(out, "<text class=\"{}\" {place}{anchor}>{}</text>", class(*ink), escaped(text))
            }
        };
    }
    out.push_str("</svg>");
    out
}
