//! Charts as SVG: points joined by lines over linear or logarithmic axes, one line of reference, a legend. Colours are left to the
//! page's style sheet, so that a chart is good on dark and light ground and in print.

use std::fmt::Write as _;

/// Points of one kind, in the order in which they are joined.
#[derive(Clone, PartialEq, Debug)]
pub struct Series {
    pub name: String,
    pub points: Vec<(f64, f64)>,
    /// With a mark at each point.
    pub marked: bool,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Chart {
    pub title: String,
    pub across: Axis,
    pub up: Axis,
    pub series: Vec<Series>,
    /// A height that is drawn across, with its name.
    pub line: Option<(f64, String)>,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Axis {
    pub name: String,
    pub logarithmic: bool,
}

impl Axis {
    pub fn linear(name: &str) -> Axis {
        Axis { name: name.to_owned(), logarithmic: false }
    }

    pub fn logarithmic(name: &str) -> Axis {
        Axis { name: name.to_owned(), logarithmic: true }
    }
}

/// The drawing's size and the room around the plot, in units of the drawing.
const WIDE: f64 = 720.0;
const HIGH: f64 = 400.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 52.0;
/// Series that can be told apart; the page has as many colours.
pub const SERIES_MAX: usize = 8;

/// Text that may stand in markup.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            letter => out.push(letter),
        }
    }
    out
}

/// A figure with as many digits as say something: `71,565`, `4.3`, `0.052`.
pub fn figure(value: f64) -> String {
    let digits = match value.abs() {
        size if size >= 100.0 || size == 0.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 1.0 => 2,
        size => (2.0 - size.log10().floor()).clamp(0.0, 9.0) as usize,
    };
    let text = format!("{value:.digits$}");
    let (sign, rest) = text.strip_prefix('-').map_or(("", text.as_str()), |rest| ("-", rest));
    let (whole, part) = rest.split_once('.').map_or((rest, None), |(whole, part)| (whole, Some(part)));
    let mut grouped = String::new();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    match part {
        Some(part) => format!("{sign}{grouped}.{part}"),
        None => format!("{sign}{grouped}"),
    }
}

/// Values along an axis: where the drawing begins and ends, and the marks between.
struct Scale {
    low: f64,
    high: f64,
    logarithmic: bool,
    ticks: Vec<f64>,
}

impl Scale {
    fn over(values: impl Iterator<Item = f64> + Clone, logarithmic: bool) -> Option<Scale> {
        let values = values.filter(|value| value.is_finite() && (!logarithmic || *value > 0.0));
        let low = values.clone().fold(f64::MAX, f64::min);
        let high = values.fold(f64::MIN, f64::max);
        if low > high {
            return None;
        }
        Some(if logarithmic { Scale::of_decades(low, high) } else { Scale::of_steps(high) })
    }

    /// From 0 in round steps.
    fn of_steps(high: f64) -> Scale {
        let high = if high > 0.0 { high } else { 1.0 };
        let rough = high / 5.0;
        let decade = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 2.5, 5.0, 10.0].iter().map(|factor| factor * decade).find(|step| *step >= rough);
        let step = step.unwrap_or(decade * 10.0);
        let count = (high / step).ceil().max(1.0) as usize;
        Scale {
            low: 0.0,
            high: step * count as f64,
            logarithmic: false,
            ticks: (0..=count).map(|at| step * at as f64).collect(),
        }
    }

    fn of_decades(low: f64, high: f64) -> Scale {
        let (first, last) =
            (low.log10().floor() as i32, (high.log10() - 1e-9).ceil().max(low.log10().floor() + 1.0) as i32);
        // Between few decades, also their twos and fives.
        let steps: &[f64] = if last - first <= 2 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let mut ticks: Vec<f64> =
            (first..last).flat_map(|decade| steps.iter().map(move |step| step * 10f64.powi(decade))).collect();
        ticks.push(10f64.powi(last));
        Scale { low: 10f64.powi(first), high: 10f64.powi(last), logarithmic: true, ticks }
    }

    /// 0 at the beginning, 1 at the end.
    fn place(&self, value: f64) -> f64 {
        match self.logarithmic {
            true => (value / self.low).log10() / (self.high / self.low).log10(),
            false => (value - self.low) / (self.high - self.low),
        }
    }
}

impl Chart {
    /// None where there is nothing to draw.
    pub fn svg(&self) -> Option<String> {
        let points = || self.series.iter().flat_map(|series| series.points.iter().copied());
        let across = Scale::over(points().map(|point| point.0), self.across.logarithmic)?;
        let line = self.line.iter().map(|line| line.0);
        let up = Scale::over(points().map(|point| point.1).chain(line), self.up.logarithmic)?;
        let x = |value: f64| LEFT + across.place(value) * (WIDE - LEFT - RIGHT);
        let y = |value: f64| HIGH - BOTTOM - up.place(value) * (HIGH - TOP - BOTTOM);
        let legend_rows = if self.series.len() > 1 { self.series.len().div_ceil(2) } else { 0 };
        let high = HIGH + legend_rows as f64 * 20.0;
        let mut out = String::new();
        let title = escaped(&self.title);
        let _ = write!(
            out,
            "<svg class=\"chart\" viewBox=\"0 0 {WIDE} {high}\" role=\"img\" aria-label=\"{title}\">\
             <text class=\"title\" x=\"{LEFT}\" y=\"20\">{title}</text>"
        );
        for tick in &across.ticks {
            let at = x(*tick);
            let _ = write!(
                out,
                "<path class=\"grid\" d=\"M{at:.1} {TOP}V{:.1}\"/><text class=\"tick\" x=\"{at:.1}\" y=\"{:.1}\" \
                 text-anchor=\"middle\">{}</text>",
                HIGH - BOTTOM,
                HIGH - BOTTOM + 16.0,
                short(*tick)
            );
        }
        for tick in &up.ticks {
            let at = y(*tick);
            let _ = write!(
                out,
                "<path class=\"grid\" d=\"M{LEFT} {at:.1}H{:.1}\"/><text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" \
                 text-anchor=\"end\">{}</text>",
                WIDE - RIGHT,
                LEFT - 6.0,
                at + 4.0,
                short(*tick)
            );
        }
        let _ = write!(
            out,
            "<text class=\"axis\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\
             <text class=\"axis\" transform=\"translate(14 {:.1}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
            (LEFT + WIDE - RIGHT) / 2.0,
            HIGH - BOTTOM + 36.0,
            escaped(&self.across.name),
            (TOP + HIGH - BOTTOM) / 2.0,
            escaped(&self.up.name)
        );
        if let Some((height, name)) = &self.line {
            let at = y(*height);
            let _ = write!(
                out,
                "<path class=\"limit\" d=\"M{LEFT} {at:.1}H{:.1}\"/><text class=\"limit\" x=\"{:.1}\" y=\"{:.1}\" \
                 text-anchor=\"end\">{}</text>",
                WIDE - RIGHT,
                WIDE - RIGHT,
                at - 5.0,
                escaped(name)
            );
        }
        for (number, series) in self.series.iter().take(SERIES_MAX).enumerate() {
            let shown = |point: &&(f64, f64)| {
                point.0.is_finite()
                    && point.1.is_finite()
                    && (!across.logarithmic || point.0 > 0.0)
                    && (!up.logarithmic || point.1 > 0.0)
            };
            let places: Vec<(f64, f64)> =
                series.points.iter().filter(shown).map(|point| (x(point.0), y(point.1))).collect();
            let path: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
            let _ = write!(out, "<path class=\"s{number}\" d=\"M{}\"/>", path.join("L"));
            for (x, y) in places.iter().filter(|_| series.marked) {
                let _ = write!(out, "<circle class=\"s{number}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.2\"/>");
            }
            if legend_rows > 0 {
                let (column, row) = ((number % 2) as f64, (number / 2) as f64);
                let (left, top) = (LEFT + column * (WIDE - LEFT - RIGHT) / 2.0, HIGH + row * 20.0 + 4.0);
                let _ = write!(
                    out,
                    "<path class=\"s{number}\" d=\"M{left:.1} {top:.1}h22\"/><text class=\"legend\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                    left + 28.0,
                    top + 4.0,
                    escaped(&series.name)
                );
            }
        }
        out.push_str("</svg>");
        Some(out)
    }
}

/// For a mark: `20k` instead of `20,000`.
fn short(value: f64) -> String {
    for (scale, letter) in [(1e9, "G"), (1e6, "M"), (1e3, "k")] {
        if value.abs() >= scale {
            let scaled = value / scale;
            let digits = usize::from((scaled - scaled.round()).abs() > 0.01);
            return format!("{scaled:.digits$}{letter}");
        }
    }
    if value == 0.0 {
        return "0".into();
    }
    let text = format!("{value:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests;
