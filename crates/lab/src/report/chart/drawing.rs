//! A chart as shapes on a sheet, with what each is for in place of its colour: what draws them chooses that.

use super::scale::Scale;
use super::{Axis, Bars, Chart, Plot, SERIES_MAX, Series, figure, short};
use crate::report::metrics::{Face, cut, width, wrapped};

/// What a shape is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ink {
    Grid,
    Tick,
    Axis,
    Limit,
    Title,
    Legend,
    Series(usize),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Anchor {
    Start,
    Middle,
    End,
}

/// Coordinates grow to the right and down.
#[derive(Clone, PartialEq, Debug)]
pub enum Shape {
    Path { points: Vec<(f64, f64)>, ink: Ink },
    Mark { at: (f64, f64), ink: Ink },
    Bar { at: (f64, f64), wide: f64, high: f64, ink: Ink },
    Text { at: (f64, f64), text: String, anchor: Anchor, upright: bool, ink: Ink },
}

#[derive(Clone, PartialEq, Debug)]
pub struct Drawing {
    pub wide: f64,
    pub high: f64,
    pub title: String,
    pub shapes: Vec<Shape>,
}

/// The drawing's size and the room around the plot, in units of the drawing; text is of 12 of them, the title of 14.
pub const WIDE: f64 = 720.0;
const HIGH: f64 = 400.0;
pub const LEFT: f64 = 70.0;
pub const RIGHT: f64 = 30.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 52.0;
const TEXT: f64 = 12.0;
const TITLE: f64 = 14.0;
const LEGEND: f64 = 20.0;
/// A page's own font is up to so much wider than the one that lengths are known of.
const WIDER: f64 = 1.2;
/// Lines of a group's name.
const NAME_LINES: usize = 3;
/// Above so many bars their values are not written.
const VALUES_MAX: usize = 30;

impl Chart {
    /// None where there is nothing to draw.
    pub fn drawing(&self) -> Option<Drawing> {
        if self.is_empty() {
            return None;
        }
        let mut drawing = Drawing { wide: WIDE, high: HIGH, title: self.title.clone(), shapes: Vec::new() };
        let title = cut(Face::Bold, TITLE, &self.title, (WIDE - LEFT) / WIDER);
        drawing.text((LEFT, 20.0), title, Anchor::Start, Ink::Title);
        match &self.plot {
            Plot::Lines { across, series } => self.draw_lines(&mut drawing, across, series)?,
            Plot::Bars { groups, bars } => self.draw_bars(&mut drawing, groups, bars)?,
        }
        self.legend(&mut drawing);
        Some(drawing)
    }

    fn draw_lines(&self, drawing: &mut Drawing, axis: &Axis, series: &[Series]) -> Option<()> {
        let points = || series.iter().flat_map(|series| series.points.iter().copied());
        let across = Scale::over(points().map(|point| point.0), axis)?;
        let up = self.scale_up(points().map(|point| point.1))?;
        let x = |place: f64| LEFT + place * (WIDE - LEFT - RIGHT);
        for (value, name) in &across.ticks {
            let Some(at) = across.place(*value).map(x) else { continue };
            drawing.path(vec![(at, TOP), (at, HIGH - BOTTOM)], Ink::Grid);
            drawing.text((at, HIGH - BOTTOM + 16.0), name.clone(), Anchor::Middle, Ink::Tick);
        }
        drawing.heights(&up);
        drawing.names(&axis.name, &self.up.name, HIGH - BOTTOM + 36.0);
        self.limit(drawing, &up);
        for (number, series) in series.iter().take(SERIES_MAX).enumerate() {
            let place = |point: &(f64, f64)| Some((x(across.place(point.0)?), y(up.place(point.1)?)));
            let ink = Ink::Series(number);
            for line in series.points.split(|point| !(point.0.is_finite() && point.1.is_finite())) {
                let places: Vec<(f64, f64)> = line.iter().filter_map(place).collect();
                if series.marked {
                    drawing.shapes.extend(places.iter().map(|at| Shape::Mark { at: *at, ink }));
                }
                drawing.path(places, ink);
            }
        }
        Some(())
    }

    fn draw_bars(&self, drawing: &mut Drawing, groups: &[String], bars: &[Bars]) -> Option<()> {
        let values = || bars.iter().flat_map(|one| one.values.iter().flatten().copied());
        // A bar stands on 0, which a logarithmic axis has not.
        let axis = Axis { logarithmic: false, ..self.up.clone() };
        let up = Scale::over(values().chain(self.line.iter().map(|line| line.0)), &axis)?;
        let ground = y(up.place(0.0)?);
        let room = (WIDE - LEFT - RIGHT) / groups.len().max(1) as f64;
        let shown = bars.len().min(SERIES_MAX);
        let wide = (room * 0.8 / shown.max(1) as f64).min(60.0);
        drawing.heights(&up);
        let mut lines_most = 1;
        for (group, name) in groups.iter().enumerate() {
            let middle = LEFT + room * (group as f64 + 0.5);
            let mut lines = wrapped(Face::Plain, TEXT, name, room / WIDER - 4.0);
            lines.truncate(NAME_LINES);
            lines_most = lines_most.max(lines.len());
            for (number, line) in lines.into_iter().enumerate() {
                let at = (middle, HIGH - BOTTOM + 16.0 + number as f64 * 14.0);
                drawing.text(at, line, Anchor::Middle, Ink::Tick);
            }
            for (number, one) in bars.iter().take(SERIES_MAX).enumerate() {
                let Some(value) = one.values.get(group).copied().flatten().filter(|value| value.is_finite()) else {
                    continue;
                };
                let Some(top) = up.place(value).map(y) else { continue };
                let left = middle + wide * (number as f64 - shown as f64 / 2.0);
                let (high, at) = ((ground - top).abs(), (left + wide * 0.05, top.min(ground)));
                drawing.shapes.push(Shape::Bar { at, wide: wide * 0.9, high, ink: Ink::Series(number) });
                // Alone in its group, a value may be as wide as the group.
                let most = if shown == 1 { room } else { wide };
                let fits = |said: &String| width(Face::Plain, TEXT, said) * WIDER <= most;
                let said = [figure(value), short(value), short(rough(value))].into_iter().find(fits);
                if let Some(said) = said.filter(|_| groups.len() * shown <= VALUES_MAX) {
                    drawing.text((left + wide / 2.0, at.1 - 4.0), said, Anchor::Middle, Ink::Tick);
                }
            }
        }
        let below = HIGH - BOTTOM + 22.0 + lines_most as f64 * 14.0;
        drawing.high = drawing.high.max(below);
        drawing.names("", &self.up.name, below);
        self.limit(drawing, &up);
        Some(())
    }

    fn scale_up(&self, values: impl Iterator<Item = f64> + Clone) -> Option<Scale> {
        Scale::over(values.chain(self.line.iter().map(|line| line.0)), &self.up)
    }

    fn limit(&self, drawing: &mut Drawing, up: &Scale) {
        let Some((height, name)) = &self.line else { return };
        let Some(at) = up.place(*height).map(y) else { return };
        drawing.path(vec![(LEFT, at), (WIDE - RIGHT, at)], Ink::Limit);
        drawing.text((WIDE - RIGHT, at - 5.0), name.clone(), Anchor::End, Ink::Limit);
    }

    fn legend(&self, drawing: &mut Drawing) {
        let names = self.names();
        if names.len() < 2 {
            return;
        }
        let column = (WIDE - LEFT - RIGHT) / 2.0;
        let bars = matches!(self.plot, Plot::Bars { .. });
        let top = drawing.high;
        for (number, name) in names.iter().take(SERIES_MAX).enumerate() {
            let (left, at) = (LEFT + (number % 2) as f64 * column, top + (number / 2) as f64 * LEGEND + 4.0);
            let ink = Ink::Series(number);
            match bars {
                true => drawing.shapes.push(Shape::Bar { at: (left, at - 5.0), wide: 22.0, high: 10.0, ink }),
                false => drawing.path(vec![(left, at), (left + 22.0, at)], ink),
            }
            drawing.text(
                (left + 28.0, at + 4.0),
                cut(Face::Plain, TEXT, name, column - 36.0),
                Anchor::Start,
                Ink::Legend,
            );
        }
        let rows = names.len().min(SERIES_MAX).div_ceil(2) as f64;
        drawing.high += rows * LEGEND;
        if let Some(more) = names.len().checked_sub(SERIES_MAX).filter(|more| *more > 0) {
            drawing.text((LEFT, drawing.high + 8.0), format!("{more} more are not drawn"), Anchor::Start, Ink::Legend);
            drawing.high += LEGEND;
        }
    }
}

/// To two digits.
fn rough(value: f64) -> f64 {
    let unit = 10f64.powf(value.abs().max(1e-9).log10().floor() - 1.0);
    (value / unit).round() * unit
}

/// From a share of the plot's height.
fn y(place: f64) -> f64 {
    HIGH - BOTTOM - place * (HIGH - TOP - BOTTOM)
}

impl Drawing {
    fn path(&mut self, points: Vec<(f64, f64)>, ink: Ink) {
        if points.len() > 1 {
            self.shapes.push(Shape::Path { points, ink });
        }
    }

    fn text(&mut self, at: (f64, f64), text: String, anchor: Anchor, ink: Ink) {
        self.shapes.push(Shape::Text { at, text, anchor, upright: false, ink });
    }

    fn heights(&mut self, up: &Scale) {
        for (value, name) in &up.ticks {
            let Some(at) = up.place(*value).map(y) else { continue };
            self.path(vec![(LEFT, at), (WIDE - RIGHT, at)], Ink::Grid);
            self.text((LEFT - 6.0, at + 4.0), name.clone(), Anchor::End, Ink::Tick);
        }
    }

    fn names(&mut self, across: &str, up: &str, below: f64) {
        self.text(((LEFT + WIDE - RIGHT) / 2.0, below), across.to_owned(), Anchor::Middle, Ink::Axis);
        let (at, text) = ((16.0, (TOP + HIGH - BOTTOM) / 2.0), up.to_owned());
        self.shapes.push(Shape::Text { at, text, anchor: Anchor::Middle, upright: true, ink: Ink::Axis });
    }
}
