//! A chart for a terminal: a letter for each series, or bars of blocks.

use super::scale::Scale;
use super::{Axis, Bars, Chart, Plot, Series, figure, short};

/// Letters of series, in their order.
const LETTERS: &str = "ox+*#@%&abcdefgh";
const LEFT: usize = 10;

impl Chart {
    /// Within so many columns and rows. None where there is nothing to draw.
    pub fn characters(&self, wide: usize, high: usize) -> Option<String> {
        if self.is_empty() {
            return None;
        }
        let (wide, high) = (wide.clamp(40, 400), high.clamp(8, 200));
        match &self.plot {
            Plot::Lines { across, series } => self.plotted(across, series, wide, high),
            Plot::Bars { groups, bars } => self.barred(groups, bars, wide),
        }
    }

    fn plotted(&self, axis: &Axis, series: &[Series], wide: usize, high: usize) -> Option<String> {
        let points = || series.iter().flat_map(|one| one.points.iter().copied());
        let across = Scale::over(points().map(|point| point.0), axis)?;
        let heights = points().map(|point| point.1).chain(self.line.iter().map(|line| line.0));
        let up = Scale::over(heights, &self.up)?;
        let columns = wide - LEFT - 1;
        let mut field = vec![vec![' '; columns]; high];
        let column = |place: f64| (place * (columns - 1) as f64).round().clamp(0.0, (columns - 1) as f64) as usize;
        let row = |place: f64| high - 1 - (place * (high - 1) as f64).round().clamp(0.0, (high - 1) as f64) as usize;
        if let Some(at) = self.line.as_ref().and_then(|line| up.place(line.0)) {
            field[row(at)].iter_mut().for_each(|place| *place = '-');
        }
        for (one, letter) in series.iter().zip(LETTERS.chars()) {
            let mut before: Option<(usize, usize)> = None;
            for point in &one.points {
                if !(point.0.is_finite() && point.1.is_finite()) {
                    before = None;
                }
                let (Some(x), Some(y)) = (across.place(point.0), up.place(point.1)) else { continue };
                let at = (column(x), row(y));
                if let Some(from) = before {
                    join(&mut field, from, at);
                }
                before = Some(at);
            }
            for point in &one.points {
                if let (Some(x), Some(y)) = (across.place(point.0), up.place(point.1)) {
                    field[row(y)][column(x)] = letter;
                }
            }
        }
        let mut names = vec![String::new(); high];
        for (value, name) in up.ticks.iter().rev() {
            if let Some(place) = up.place(*value) {
                names[row(place)] = name.clone();
            }
        }
        let mut out = format!("{}\n{}\n", self.heading(), self.up.name);
        for (line, name) in field.into_iter().zip(names) {
            let line: String = line.into_iter().collect();
            out.push_str(&format!("{name:>8} |{}\n", line.trim_end()));
        }
        let mut below = vec![' '; columns + LEFT + 8];
        let mut free = 0;
        for (value, name) in &across.ticks {
            let Some(place) = across.place(*value) else { continue };
            let begin = (LEFT + column(place)).saturating_sub(name.chars().count() / 2);
            if begin < free {
                continue;
            }
            free = begin + name.chars().count() + 1;
            below.iter_mut().skip(begin).zip(name.chars()).for_each(|(place, letter)| *place = letter);
        }
        let below: String = below.into_iter().collect();
        out.push_str(&format!("{:>9}+{}\n{}\n", "", "-".repeat(columns), below.trim_end()));
        out.push_str(&format!("{:>wide$}\n", axis.name));
        if series.len() > 1 {
            for (one, letter) in series.iter().zip(LETTERS.chars()) {
                out.push_str(&format!("  {letter}  {}\n", one.name));
            }
            if let Some(more) = series.len().checked_sub(LETTERS.len()).filter(|more| *more > 0) {
                out.push_str(&format!("  {more} more are not drawn\n"));
            }
        }
        if let Some((_, name)) = &self.line {
            out.push_str(&format!("  -  {name}\n"));
        }
        Some(out)
    }

    fn barred(&self, groups: &[String], bars: &[Bars], wide: usize) -> Option<String> {
        let values = bars.iter().flat_map(|one| one.values.iter().flatten().copied());
        let most = values.filter(|value| value.is_finite()).fold(0.0, f64::max);
        let names: Vec<&String> =
            if bars.len() > 1 { bars.iter().map(|one| &one.name).collect() } else { groups.iter().collect() };
        let longest = names.into_iter().map(|name| name.chars().count()).max().unwrap_or(0);
        // A name that loses its end may be that of another bar: a long one has a line of its own.
        let is_above = longest > wide / 3;
        let named = if is_above { 0 } else { longest.max(4) };
        let room = wide.saturating_sub(named + 14).max(8);
        let mut out = format!("{} ({})\n", self.heading(), self.up.name);
        for (at, group) in groups.iter().enumerate() {
            if bars.len() > 1 {
                out.push_str(&format!("{group}\n"));
            }
            for one in bars {
                let Some(value) = one.values.get(at).copied().flatten() else { continue };
                let mut name = if bars.len() > 1 { one.name.as_str() } else { group.as_str() };
                if is_above && !name.is_empty() {
                    out.push_str(&format!("  {name}\n"));
                    name = "";
                }
                let long = if most > 0.0 { (value / most * room as f64).round().max(0.0) as usize } else { 0 };
                out.push_str(&format!("  {name:named$} {:>10} {}\n", figure(value), "=".repeat(long.min(room))));
            }
        }
        if let Some((value, name)) = &self.line {
            out.push_str(&format!("  {name}: {}\n", short(*value)));
        }
        Some(out)
    }
}

/// Dots on the straight line between two places; what stands there already stays.
fn join(field: &mut [Vec<char>], from: (usize, usize), to: (usize, usize)) {
    let steps = from.0.abs_diff(to.0).max(from.1.abs_diff(to.1));
    for step in 1..steps {
        let between = |from: usize, to: usize| {
            (from as f64 + (to as f64 - from as f64) * step as f64 / steps as f64).round() as usize
        };
        let place = field.get_mut(between(from.1, to.1)).and_then(|row| row.get_mut(between(from.0, to.0)));
        if let Some(place) = place.filter(|place| **place == ' ') {
            *place = '.';
        }
    }
}
