//! Values along an axis: where it begins and ends, and the marks between.

use super::{Axis, exact};

#[derive(Clone, PartialEq, Debug)]
pub struct Scale {
    pub low: f64,
    pub high: f64,
    logarithmic: bool,
    pub ticks: Vec<(f64, String)>,
}

impl Scale {
    /// None where there is no value to be shown.
    pub fn over(values: impl Iterator<Item = f64> + Clone, axis: &Axis) -> Option<Scale> {
        let values = values.filter(|value| value.is_finite() && (!axis.logarithmic || *value > 0.0));
        let low = values.clone().fold(f64::MAX, f64::min);
        let high = values.fold(f64::MIN, f64::max);
        if low > high {
            return None;
        }
        let mut scale = if axis.logarithmic { Scale::of_decades(low, high) } else { Scale::of_steps(low, high) };
        if !axis.marks.is_empty() {
            let marked = axis.marks.iter().map(|(value, _)| *value);
            let (least, most) = marked.fold((low, high), |(least, most), value| (least.min(value), most.max(value)));
            // A single value stands in the middle.
            let (least, most) = if least < most { (least, most) } else { (least / 2.0, most * 2.0 + 1e-9) };
            (scale.low, scale.high) = if axis.logarithmic { (least, most) } else { (0.0, most) };
            scale.ticks = axis.marks.clone();
        }
        Some(scale)
    }

    /// In round steps from 0, or from below it.
    pub fn of_steps(low: f64, high: f64) -> Scale {
        let (low, high) = (low.min(0.0), high.max(0.0));
        let high = if high > low { high } else { 1.0 };
        let rough = (high - low) / 5.0;
        if !rough.is_normal() {
            // Beyond what has steps: a file may hold any number.
            return Scale::of_steps(0.0, 1.0);
        }
        let decade = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 2.5, 5.0, 10.0].iter().map(|factor| factor * decade).find(|step| *step >= rough);
        let step = step.unwrap_or(decade * 10.0);
        let (first, last) = ((low / step).floor() as i64, (high / step).ceil().max(1.0) as i64);
        let ticks = (first..=last).map(|at| step * at as f64).map(|value| (value, exact(value))).collect();
        Scale { low: step * first as f64, high: step * last as f64, logarithmic: false, ticks }
    }

    /// From a 1, 2 or 5 of a decade to another.
    pub fn of_decades(low: f64, high: f64) -> Scale {
        const STEPS: [f64; 3] = [1.0, 2.0, 5.0];
        let first = low.log10().floor() as i32;
        let last = (high.log10() - 1e-9).ceil() as i32;
        let all = (first..=last).flat_map(|decade| STEPS.iter().map(move |step| step * 10f64.powi(decade)));
        let all: Vec<f64> = all.collect();
        let low = all.iter().copied().filter(|value| *value <= low * (1.0 + 1e-9)).fold(10f64.powi(first), f64::max);
        let high = all.iter().copied().filter(|value| *value >= high * (1.0 - 1e-9)).fold(10f64.powi(last), f64::min);
        let high = if high > low { high } else { low * 10.0 };
        // Over many decades, their ones only.
        let narrow = high / low <= 200.0;
        let ones = |value: &f64| narrow || (value.log10() - value.log10().round()).abs() < 1e-9;
        let mut ticks: Vec<f64> =
            all.into_iter().filter(|value| *value >= low && *value <= high).filter(ones).collect();
        ticks.dedup();
        Scale { low, high, logarithmic: true, ticks: ticks.into_iter().map(|value| (value, exact(value))).collect() }
    }

    /// 0 at the beginning, 1 at the end; none where the axis has no place for it.
    pub fn place(&self, value: f64) -> Option<f64> {
        let place = match self.logarithmic {
            true if value <= 0.0 => return None,
            true => (value / self.low).log10() / (self.high / self.low).log10(),
            false => (value - self.low) / (self.high - self.low),
        };
        place.is_finite().then_some(place)
    }
}
