//! A chart as shapes on a sheet, with what each is for in place of its colour: what draws them
//! chooses that.
//!
//! Series are told apart without colours too: each has a dash pattern and a form of its marks, and
//! bars have hatchings. A drawing is made for a frame: a broad one for pages and paper, or a slim
//! one for phones, in which text has the same size.

use super::scale::Scale;
use super::{Axis, Bars, COLOURS, Chart, Plot, SERIES_MAX, Series, figure, short};
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

/// The form of a mark.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    Disc,
    Square,
    Triangle,
    Diamond,
    Plus,
    Down,
    Cross,
    Hourglass,
}

/// Forms of marks and dash patterns (drawn and left out in turn), in the order of the series.
const FORMS: [Form; COLOURS] =
    [Form::Disc, Form::Square, Form::Triangle, Form::Diamond, Form::Plus, Form::Down, Form::Cross, Form::Hourglass];
const DASHES: [&[f64]; COLOURS] = [
    &[],
    &[8.0, 4.0],
    &[2.0, 3.0],
    &[9.0, 3.0, 2.0, 3.0],
    &[14.0, 4.0],
    &[5.0, 2.5],
    &[9.0, 3.0, 2.0, 3.0, 2.0, 3.0],
    &[2.0, 6.0],
];

/// Series with the same colour have another pattern and another form.
fn turn(number: usize) -> usize {
    (number + number / COLOURS) % COLOURS
}

pub fn form_of(number: usize) -> Form {
    FORMS.get(turn(number)).copied().unwrap_or(Form::Disc)
}

pub fn dash_of(number: usize) -> &'static [f64] {
    DASHES.get(turn(number)).copied().unwrap_or_default()
}

impl Form {
    /// Its corners around a centre; a disc has none.
    pub fn corners(self, (x, y): (f64, f64), radius: f64) -> Vec<(f64, f64)> {
        // The thickness of a cross's arms.
        let arm = 0.38;
        let cross = [
            (-arm, -1.2),
            (arm, -1.2),
            (arm, -arm),
            (1.2, -arm),
            (1.2, arm),
            (arm, arm),
            (arm, 1.2),
            (-arm, 1.2),
            (-arm, arm),
            (-1.2, arm),
            (-1.2, -arm),
            (-arm, -arm),
        ];
        let half = std::f64::consts::FRAC_1_SQRT_2;
        let corners: Vec<(f64, f64)> = match self {
            Form::Disc => Vec::new(),
            Form::Square => vec![(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)],
            Form::Triangle => vec![(0.0, -1.2), (1.1, 0.8), (-1.1, 0.8)],
            Form::Down => vec![(0.0, 1.2), (1.1, -0.8), (-1.1, -0.8)],
            Form::Diamond => vec![(0.0, -1.3), (1.3, 0.0), (0.0, 1.3), (-1.3, 0.0)],
            Form::Hourglass => vec![(-1.0, -1.1), (1.0, -1.1), (-1.0, 1.1), (1.0, 1.1)],
            Form::Plus => cross.to_vec(),
            Form::Cross => cross.iter().map(|(a, b)| ((a - b) * half, (a + b) * half)).collect(),
        };
        corners.into_iter().map(|(a, b)| (x + a * radius, y + b * radius)).collect()
    }
}

/// Coordinates grow to the right and down.
#[derive(Clone, PartialEq, Debug)]
pub enum Shape {
    Path {
        points: Vec<(f64, f64)>,
        ink: Ink,
    },
    Mark {
        at: (f64, f64),
        form: Form,
        ink: Ink,
    },
    Bar {
        at: (f64, f64),
        wide: f64,
        high: f64,
        ink: Ink,
    },
    /// Lines in the colour of the ground, over a bar.
    Hatch {
        lines: Vec<[(f64, f64); 2]>,
    },
    Text {
        at: (f64, f64),
        text: String,
        anchor: Anchor,
        upright: bool,
        ink: Ink,
    },
}

#[derive(Clone, PartialEq, Debug)]
pub struct Drawing {
    pub wide: f64,
    pub high: f64,
    pub title: String,
    pub shapes: Vec<Shape>,
}

/// The room of a drawing, in its units: text is of 12 of them, the title of 14.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Frame {
    pub wide: f64,
    high: f64,
    pub left: f64,
    pub right: f64,
    /// Names beside each other in the legend.
    columns: usize,
    /// Bars lie, with the names of their groups above them: upright ones would be too narrow for
    /// names.
    lying: bool,
}

impl Frame {
    /// For a page and for paper.
    pub const BROAD: Frame = Frame { wide: 720.0, high: 366.0, left: 70.0, right: 30.0, columns: 2, lying: false };
    /// For a screen of a phone, and for half the width of a sheet.
    pub const SLIM: Frame = Frame { wide: 372.0, high: 290.0, left: 50.0, right: 16.0, columns: 1, lying: true };

    /// For paper, where a broad one has no room: as wide, and not as high.
    pub const LOW: Frame = Frame { high: 216.0, ..Frame::BROAD };

    fn room(self) -> f64 {
        self.wide - self.left - self.right
    }
}

const TOP: f64 = 34.0;
const BOTTOM: f64 = 52.0;
const TEXT: f64 = 12.0;
const TITLE: f64 = 14.0;
const TITLE_LEADING: f64 = 17.0;
const LEGEND: f64 = 20.0;
/// A page's own font is up to so much wider than the one that lengths are known of.
const WIDER: f64 = 1.2;
/// Lines of a group's name at most, below upright bars.
const NAME_LINES: usize = 3;
/// Above so many bars their values are not written.
const VALUES_MAX: usize = 30;
pub const RADIUS: f64 = 3.2;
/// A bar that lies, and what is between them and between groups.
const LYING: f64 = 12.0;
const LYING_APART: f64 = 3.0;
const GROUP_APART: f64 = 8.0;
/// Between the lines of a hatching.
const HATCH: f64 = 6.0;

impl Chart {
    /// The broad drawing; none where there is nothing to draw.
    pub fn drawing(&self) -> Option<Drawing> {
        self.drawing_in(Frame::BROAD)
    }

    pub fn drawing_in(&self, frame: Frame) -> Option<Drawing> {
        if self.is_empty() {
            return None;
        }
        let frame = Frame { lying: frame.lying || !self.has_room_below_bars(frame), ..frame };
        let drawing = Drawing { wide: frame.wide, high: 0.0, title: self.heading(), shapes: Vec::new() };
        let mut plan = Plan { frame, top: TOP, high: frame.high, drawing };
        plan.title(&self.heading());
        match &self.plot {
            Plot::Lines { across, series } => self.draw_lines(&mut plan, across, series)?,
            Plot::Bars { groups, bars } if frame.lying => self.draw_lying(&mut plan, groups, bars)?,
            Plot::Bars { groups, bars } => self.draw_bars(&mut plan, groups, bars)?,
        }
        self.legend(&mut plan);
        Some(plan.drawing)
    }

    fn draw_lines(&self, plan: &mut Plan, axis: &Axis, series: &[Series]) -> Option<()> {
        let frame = plan.frame;
        let points = || series.iter().flat_map(|series| series.points.iter().copied());
        let across = Scale::over(points().map(|point| point.0), axis)?;
        let up = self.scale_up(points().map(|point| point.1))?;
        let x = |place: f64| frame.left + place * frame.room();
        let (top, ground) = (plan.top, plan.ground());
        // Where names would run into each other, some are left out.
        let mut free = f64::MIN;
        for (value, name) in &across.ticks {
            let Some(at) = across.place(*value).map(x) else { continue };
            plan.path(vec![(at, top), (at, ground)], Ink::Grid);
            let half = width(Face::Plain, TEXT, name) * WIDER / 2.0;
            // The last one may be wider than the room beside the plot.
            let middle = at.min(frame.wide - half);
            if middle - half >= free {
                plan.text((middle, ground + 16.0), name.clone(), Anchor::Middle, Ink::Tick);
                free = middle + half + 4.0;
            }
        }
        plan.heights(&up);
        plan.names(&axis.name, &self.up.name, ground + 36.0);
        self.limit(plan, &up);
        for (number, series) in series.iter().take(SERIES_MAX).enumerate() {
            let place = |point: &(f64, f64)| Some((x(across.place(point.0)?), plan.y(up.place(point.1)?)));
            let ink = Ink::Series(number);
            let lines = series.points.split(|point| !(point.0.is_finite() && point.1.is_finite()));
            let lines: Vec<Vec<(f64, f64)>> = lines.map(|line| line.iter().filter_map(place).collect()).collect();
            for places in lines {
                if series.marked {
                    let form = form_of(number);
                    plan.drawing.shapes.extend(places.iter().map(|at| Shape::Mark { at: *at, form, ink }));
                }
                plan.path(places, ink);
            }
        }
        plan.drawing.high = plan.high;
        Some(())
    }

    /// A name that loses its end may be that of another group.
    fn has_room_below_bars(&self, frame: Frame) -> bool {
        let Plot::Bars { groups, .. } = &self.plot else { return true };
        let room = room_of_group(frame, groups);
        groups.iter().all(|name| wrapped(Face::Plain, TEXT, name, room / WIDER - 4.0).len() <= NAME_LINES)
    }

    fn draw_bars(&self, plan: &mut Plan, groups: &[String], bars: &[Bars]) -> Option<()> {
        let frame = plan.frame;
        let up = self.scale_of_bars(bars)?;
        let ground = plan.y(up.place(0.0)?);
        let bottom = plan.ground();
        let room = room_of_group(frame, groups);
        let shown = bars.len().min(SERIES_MAX);
        let wide = (room * 0.8 / shown.max(1) as f64).min(60.0);
        plan.heights(&up);
        let mut lines_most = 1;
        for (group, name) in groups.iter().enumerate() {
            let middle = frame.left + room * (group as f64 + 0.5);
            let lines = wrapped(Face::Plain, TEXT, name, room / WIDER - 4.0);
            lines_most = lines_most.max(lines.len());
            for (number, line) in lines.into_iter().enumerate() {
                let at = (middle, bottom + 16.0 + number as f64 * 14.0);
                plan.text(at, line, Anchor::Middle, Ink::Tick);
            }
            for (number, one) in bars.iter().take(SERIES_MAX).enumerate() {
                let Some(value) = value_of(one, group) else { continue };
                let Some(top) = up.place(value).map(|place| plan.y(place)) else { continue };
                let left = middle + wide * (number as f64 - shown as f64 / 2.0);
                let (high, at) = ((ground - top).abs(), (left + wide * 0.05, top.min(ground)));
                plan.bar(at, wide * 0.9, high, number);
                // Alone in its group, a value may be as wide as the group.
                let most = if shown == 1 { room } else { wide };
                let fits = |said: &String| width(Face::Plain, TEXT, said) * WIDER <= most;
                let said = [figure(value), short(value), short(rough(value))].into_iter().find(fits);
                if let Some(said) = said.filter(|_| groups.len() * shown <= VALUES_MAX) {
                    plan.text((left + wide / 2.0, at.1 - 4.0), said, Anchor::Middle, Ink::Tick);
                }
            }
        }
        let below = bottom + 22.0 + lines_most as f64 * 14.0;
        plan.drawing.high = plan.high.max(below);
        plan.names("", &self.up.name, below);
        self.limit(plan, &up);
        Some(())
    }

    /// Bars from left to right, one group below the other, each with its value behind it.
    fn draw_lying(&self, plan: &mut Plan, groups: &[String], bars: &[Bars]) -> Option<()> {
        let frame = plan.frame;
        let along = self.scale_of_bars(bars)?;
        let (left, room) = (frame.right, frame.wide - 2.0 * frame.right);
        // Behind the longest bar its value needs room.
        let x = |place: f64| left + place * (room - 64.0);
        let ground = x(along.place(0.0)?);
        let begin = plan.top;
        let mut y = begin;
        for (group, name) in groups.iter().enumerate() {
            for line in wrapped(Face::Plain, TEXT, name, room / WIDER) {
                plan.text((left, y + 11.0), line, Anchor::Start, Ink::Legend);
                y += 15.0;
            }
            for (number, one) in bars.iter().take(SERIES_MAX).enumerate() {
                let Some(value) = value_of(one, group) else { continue };
                let Some(end) = along.place(value).map(x) else { continue };
                plan.bar((ground.min(end), y), (end - ground).abs(), LYING, number);
                plan.text((end.max(ground) + 4.0, y + 10.0), figure(value), Anchor::Start, Ink::Tick);
                y += LYING + LYING_APART;
            }
            y += GROUP_APART;
        }
        if let Some((height, name)) = &self.line
            && let Some(at) = along.place(*height).map(x)
        {
            plan.path(vec![(at, begin), (at, y)], Ink::Limit);
            plan.text((at, y + 12.0), name.clone(), Anchor::Middle, Ink::Limit);
            y += 16.0;
        }
        plan.text((left, y + 12.0), self.up.name.clone(), Anchor::Start, Ink::Axis);
        plan.drawing.high = y + 26.0;
        Some(())
    }

    /// A bar stands on 0, which a logarithmic axis has not.
    fn scale_of_bars(&self, bars: &[Bars]) -> Option<Scale> {
        let values = bars.iter().flat_map(|one| one.values.iter().flatten().copied());
        let axis = Axis { logarithmic: false, ..self.up.clone() };
        Scale::over(values.chain(self.line.iter().map(|line| line.0)), &axis)
    }

    fn scale_up(&self, values: impl Iterator<Item = f64> + Clone) -> Option<Scale> {
        Scale::over(values.chain(self.line.iter().map(|line| line.0)), &self.up)
    }

    fn limit(&self, plan: &mut Plan, up: &Scale) {
        let Some((height, name)) = &self.line else { return };
        let Some(at) = up.place(*height).map(|place| plan.y(place)) else { return };
        let (left, right) = (plan.frame.left, plan.frame.wide - plan.frame.right);
        plan.path(vec![(left, at), (right, at)], Ink::Limit);
        plan.text((right, at - 5.0), name.clone(), Anchor::End, Ink::Limit);
    }

    fn legend(&self, plan: &mut Plan) {
        let names = self.names();
        if names.len() < 2 {
            return;
        }
        let frame = plan.frame;
        let begin = if frame.lying { frame.right } else { frame.left };
        let column = (frame.wide - begin - frame.right) / frame.columns as f64;
        let marked = |number: usize| match &self.plot {
            Plot::Bars { .. } => None,
            Plot::Lines { series, .. } => Some(series.get(number).is_some_and(|one| one.marked)),
        };
        let top = plan.drawing.high;
        for (number, name) in names.iter().take(SERIES_MAX).enumerate() {
            let left = begin + (number % frame.columns) as f64 * column;
            let at = top + (number / frame.columns) as f64 * LEGEND + 4.0;
            let ink = Ink::Series(number);
            match marked(number) {
                None => plan.bar((left, at - 5.0), 22.0, 10.0, number),
                Some(marked) => {
                    plan.path(vec![(left, at), (left + 30.0, at)], ink);
                    if marked {
                        let form = form_of(number);
                        plan.drawing.shapes.push(Shape::Mark { at: (left + 15.0, at), form, ink });
                    }
                }
            }
            let name = cut(Face::Plain, TEXT, name, (column - 44.0) / WIDER.sqrt());
            plan.text((left + 36.0, at + 4.0), name, Anchor::Start, Ink::Legend);
        }
        let rows = names.len().min(SERIES_MAX).div_ceil(frame.columns) as f64;
        plan.drawing.high += rows * LEGEND;
        if let Some(more) = names.len().checked_sub(SERIES_MAX).filter(|more| *more > 0) {
            let below = plan.drawing.high + 8.0;
            plan.text((begin, below), format!("{more} more are not drawn"), Anchor::Start, Ink::Legend);
            plan.drawing.high += LEGEND;
        }
    }
}

/// The width that upright bars leave for each group.
fn room_of_group(frame: Frame, groups: &[String]) -> f64 {
    frame.room() / groups.len().max(1) as f64
}

fn value_of(bars: &Bars, group: usize) -> Option<f64> {
    bars.values.get(group).copied().flatten().filter(|value| value.is_finite())
}

/// To two digits.
fn rough(value: f64) -> f64 {
    let unit = 10f64.powf(value.abs().max(1e-9).log10().floor() - 1.0);
    (value / unit).round() * unit
}

/// A drawing that is under way.
struct Plan {
    frame: Frame,
    /// Where the plot begins, below the title.
    top: f64,
    /// Where its axis and the axis's name end.
    high: f64,
    drawing: Drawing,
}

impl Plan {
    /// The title, in as many lines as it takes; the plot begins below it.
    fn title(&mut self, title: &str) {
        let left = if self.frame.lying { self.frame.right } else { self.frame.left };
        let lines = wrapped(Face::Bold, TITLE, title, (self.frame.wide - left - 8.0) / WIDER.sqrt());
        let more = lines.len().saturating_sub(1) as f64 * TITLE_LEADING;
        for (number, line) in lines.into_iter().enumerate() {
            self.text((left, 20.0 + number as f64 * TITLE_LEADING), line, Anchor::Start, Ink::Title);
        }
        self.top += more;
        self.high += more + TOP;
    }

    fn ground(&self) -> f64 {
        self.high - BOTTOM
    }

    /// From a share of the plot's height.
    fn y(&self, place: f64) -> f64 {
        self.ground() - place * (self.ground() - self.top)
    }

    fn path(&mut self, points: Vec<(f64, f64)>, ink: Ink) {
        self.drawing.path(points, ink);
    }

    fn text(&mut self, at: (f64, f64), text: String, anchor: Anchor, ink: Ink) {
        self.drawing.text(at, text, anchor, ink);
    }

    fn bar(&mut self, at: (f64, f64), wide: f64, high: f64, number: usize) {
        self.drawing.shapes.push(Shape::Bar { at, wide, high, ink: Ink::Series(number) });
        let lines = hatching(at, wide, high, turn(number));
        if !lines.is_empty() {
            self.drawing.shapes.push(Shape::Hatch { lines });
        }
    }

    fn heights(&mut self, up: &Scale) {
        let (left, right) = (self.frame.left, self.frame.wide - self.frame.right);
        for (value, name) in &up.ticks {
            let Some(at) = up.place(*value).map(|place| self.y(place)) else { continue };
            self.path(vec![(left, at), (right, at)], Ink::Grid);
            self.text((left - 6.0, at + 4.0), name.clone(), Anchor::End, Ink::Tick);
        }
    }

    fn names(&mut self, across: &str, up: &str, below: f64) {
        let middle = (self.frame.left + self.frame.wide - self.frame.right) / 2.0;
        self.text((middle, below), across.to_owned(), Anchor::Middle, Ink::Axis);
        let at = (if self.frame.lying { 11.0 } else { 16.0 }, (self.top + self.ground()) / 2.0);
        let text = up.to_owned();
        self.drawing.shapes.push(Shape::Text { at, text, anchor: Anchor::Middle, upright: true, ink: Ink::Axis });
    }
}

/// The lines over a bar that tell its kind: none, rising, falling, level, upright, and
/// combinations.
fn hatching(at: (f64, f64), wide: f64, high: f64, kind: usize) -> Vec<[(f64, f64); 2]> {
    let (rising, falling, level, upright, step) = match kind {
        0 => return Vec::new(),
        1 => (true, false, false, false, HATCH),
        2 => (false, true, false, false, HATCH),
        3 => (false, false, true, false, HATCH),
        4 => (false, false, false, true, HATCH),
        5 => (true, true, false, false, HATCH),
        6 => (false, false, true, true, HATCH),
        _ => (true, false, false, false, HATCH / 2.0),
    };
    let (x, y) = at;
    let mut lines = Vec::new();
    let steps = |length: f64| (1..).map(move |number| f64::from(number) * step).take_while(move |at| *at < length);
    if level {
        lines.extend(steps(high).map(|down| [(x, y + down), (x + wide, y + down)]));
    }
    if upright {
        lines.extend(steps(wide).map(|across| [(x + across, y), (x + across, y + high)]));
    }
    // On a slanting line the distances from two sides have the same sum, within the bar.
    for sum in steps(wide + high) {
        let (first, last) = ((sum - high).max(0.0), sum.min(wide));
        if rising {
            lines.push([(x + first, y + sum - first), (x + last, y + sum - last)]);
        }
        if falling {
            lines.push([(x + wide - first, y + sum - first), (x + wide - last, y + sum - last)]);
        }
    }
    lines
}

impl Drawing {
    pub(crate) fn path(&mut self, points: Vec<(f64, f64)>, ink: Ink) {
        if points.len() > 1 {
            self.shapes.push(Shape::Path { points, ink });
        }
    }

    pub(crate) fn text(&mut self, at: (f64, f64), text: String, anchor: Anchor, ink: Ink) {
        if !text.is_empty() {
            self.shapes.push(Shape::Text { at, text, anchor, upright: false, ink });
        }
    }
}
