//! Charts as data: lines over linear or logarithmic axes, or groups of bars, with one line of
//! reference. `drawing` turns a chart into shapes; `svg`, the PDF and the terminal draw those, or
//! the chart itself, in their own way.

pub mod characters;
pub mod drawing;
mod scale;
pub mod svg;

/// Points of one kind, in the order in which they are joined. One that is not finite stands for a
/// gap: the line ends before it.
#[derive(Clone, PartialEq, Debug)]
pub struct Series {
    pub name: String,
    pub points: Vec<(f64, f64)>,
    /// With a mark at each point.
    pub marked: bool,
}

/// Bars of one kind, one for each group; none where nothing is known.
#[derive(Clone, PartialEq, Debug)]
pub struct Bars {
    pub name: String,
    pub values: Vec<Option<f64>>,
}

#[derive(Clone, PartialEq, Debug)]
pub enum Plot {
    Lines { across: Axis, series: Vec<Series> },
    Bars { groups: Vec<String>, bars: Vec<Bars> },
}

#[derive(Clone, PartialEq, Debug)]
pub struct Chart {
    pub title: String,
    /// What is to be known of the figures, behind the title; empty where that is nothing.
    pub note: String,
    pub plot: Plot,
    pub up: Axis,
    /// A height that is drawn across, with its name.
    pub line: Option<(f64, String)>,
}

#[derive(Clone, PartialEq, Default, Debug)]
pub struct Axis {
    pub name: String,
    pub logarithmic: bool,
    /// Values that are marked, with their names, instead of round ones.
    pub marks: Vec<(f64, String)>,
}

impl Axis {
    pub fn linear(name: &str) -> Axis {
        Axis { name: name.to_owned(), ..Axis::default() }
    }

    pub fn logarithmic(name: &str) -> Axis {
        Axis { name: name.to_owned(), logarithmic: true, ..Axis::default() }
    }

    /// Marks of another axis of the same kind, too.
    fn add_marks(&mut self, marks: Vec<(f64, String)>) {
        for (value, name) in marks {
            if !self.marks.iter().any(|(known, _)| *known == value) {
                self.marks.push((value, name));
            }
        }
        self.marks.sort_by(|left, right| left.0.total_cmp(&right.0));
    }

    pub fn marked(self, marks: impl IntoIterator<Item = (f64, String)>) -> Axis {
        Axis { marks: marks.into_iter().collect(), ..self }
    }
}

/// Colours of series; those beyond have other dashes and marks.
pub const COLOURS: usize = 8;
/// Series that can be told apart.
pub const SERIES_MAX: usize = 2 * COLOURS;

impl Chart {
    pub fn lines(title: impl Into<String>, across: Axis, up: Axis, series: Vec<Series>) -> Chart {
        Chart { title: title.into(), note: String::new(), plot: Plot::Lines { across, series }, up, line: None }
    }

    pub fn bars(title: impl Into<String>, up: Axis, groups: Vec<String>, bars: Vec<Bars>) -> Chart {
        Chart { title: title.into(), note: String::new(), plot: Plot::Bars { groups, bars }, up, line: None }
    }

    /// With a height that is not to be exceeded, like a response of 20 ms.
    pub fn with_line(self, line: Option<(f64, String)>) -> Chart {
        Chart { line, ..self }
    }

    /// The title with the note.
    pub fn heading(&self) -> String {
        if self.note.is_empty() { self.title.clone() } else { format!("{}; {}", self.title, self.note) }
    }

    /// There is nothing to draw.
    pub fn is_empty(&self) -> bool {
        match &self.plot {
            Plot::Lines { series, across } => !series.iter().flat_map(|one| &one.points).any(|point| {
                let shown = |value: f64, axis: &Axis| value.is_finite() && (!axis.logarithmic || value > 0.0);
                shown(point.0, across) && shown(point.1, &self.up)
            }),
            Plot::Bars { bars, .. } => !bars.iter().flat_map(|one| &one.values).any(Option::is_some),
        }
    }

    /// What the kinds are called.
    pub fn names(&self) -> Vec<&str> {
        match &self.plot {
            Plot::Lines { series, .. } => series.iter().map(|one| one.name.as_str()).collect(),
            Plot::Bars { bars, .. } => bars.iter().map(|one| one.name.as_str()).collect(),
        }
    }
}

/// The same chart of several results in one: what each shows stands under its name.
pub fn together(charts: Vec<(String, Chart)>) -> Option<Chart> {
    let mut charts = charts.into_iter();
    let (name, first) = charts.next()?;
    let mut all = named(&name, first);
    for (name, chart) in charts {
        let other = named(&name, chart);
        all.line = all.line.or(other.line);
        all.note = [all.note, other.note].into_iter().filter(|note| !note.is_empty()).collect::<Vec<_>>().join("; ");
        all.up.add_marks(other.up.marks);
        match (&mut all.plot, other.plot) {
            (Plot::Lines { across, series }, Plot::Lines { across: their_axis, series: theirs }) => {
                across.add_marks(their_axis.marks);
                series.extend(theirs);
            }
            (Plot::Bars { groups, bars }, Plot::Bars { groups: their_groups, bars: theirs }) => {
                add_bars(groups, bars, &their_groups, theirs);
            }
            // A chart of one name is of one kind.
            _ => {}
        }
    }
    Some(all)
}

fn named(name: &str, mut chart: Chart) -> Chart {
    let names: Vec<&mut String> = match &mut chart.plot {
        Plot::Lines { series, .. } => series.iter_mut().map(|one| &mut one.name).collect(),
        Plot::Bars { bars, .. } => bars.iter_mut().map(|one| &mut one.name).collect(),
    };
    for own in names.into_iter().chain((!chart.note.is_empty()).then_some(&mut chart.note)) {
        *own = if own.is_empty() { name.to_owned() } else { format!("{name}: {own}") };
    }
    chart
}

fn add_bars(groups: &mut Vec<String>, bars: &mut Vec<Bars>, their_groups: &[String], theirs: Vec<Bars>) {
    for group in their_groups {
        if !groups.contains(group) {
            groups.push(group.clone());
        }
    }
    for one in bars.iter_mut() {
        one.values.resize(groups.len(), None);
    }
    for one in theirs {
        let at = |group: &String| their_groups.iter().position(|own| own == group);
        let value = |group: &String| at(group).and_then(|at| one.values.get(at).copied().flatten());
        bars.push(Bars { values: groups.iter().map(value).collect(), name: one.name });
    }
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

/// For a mark: `20k` instead of `20,000`.
pub fn short(value: f64) -> String {
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

/// For a mark of an axis, which stands at its value: with all of its digits.
pub fn exact(value: f64) -> String {
    for (scale, letter) in [(1e9, "G"), (1e6, "M"), (1e3, "k")] {
        if value.abs() >= scale {
            let text = format!("{:.3}", value / scale);
            return format!("{}{letter}", text.trim_end_matches('0').trim_end_matches('.'));
        }
    }
    short(value)
}

#[cfg(test)]
mod tests;
