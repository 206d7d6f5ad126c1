//! One row of a report, as a line of a table or as a JSON object.

use serde_json::json;

/// A measured case.
#[derive(Clone, Debug)]
pub struct Row {
    pub bench: &'static str,
    pub case: String,
    pub value: f64,
    pub unit: &'static str,
    pub more_is_better: bool,
    /// The peer or limit, with its figure in the same unit.
    pub reference: Option<(String, f64)>,
    /// A ratio above 1 is better than the reference.
    pub ratio: Option<f64>,
    /// The ratio to reach.
    pub target: Option<f64>,
    pub spread: f64,
}

impl Row {
    pub fn missed(&self) -> bool {
        matches!((self.ratio, self.target), (Some(ratio), Some(target)) if ratio < target)
    }

    pub fn heading() -> String {
        format!(
            "{:<44} {:>10} {:<10} {:>6}  {:>7} {:>7} {:<6}  {:>10} {}",
            "case", "figure", "unit", "spread", "ratio", "target", "", "beside", "which is"
        )
    }

    pub fn line(&self) -> String {
        let optional = |value: Option<f64>| value.map_or(String::new(), |value| format!("{value:.2}"));
        let verdict = match (self.ratio, self.target) {
            (Some(_), Some(_)) if self.missed() => "MISSED",
            (Some(_), Some(_)) => "met",
            _ => "",
        };
        let (name, figure) = match &self.reference {
            Some((name, value)) => (name.as_str(), short(*value)),
            None => ("", String::new()),
        };
        let line = format!(
            "{:<44} {:>10} {:<10} {:>5.0}%  {:>7} {:>7} {:<6}  {:>10} {}",
            self.case,
            short(self.value),
            self.unit,
            self.spread * 100.0,
            optional(self.ratio),
            optional(self.target),
            verdict,
            figure,
            name
        );
        line.trim_end().to_owned()
    }

    pub fn json(&self) -> String {
        json!({
            "bench": self.bench,
            "case": self.case,
            "value": self.value,
            "unit": self.unit,
            "more_is_better": self.more_is_better,
            "reference": self.reference.as_ref().map(|(name, _)| name),
            "reference_value": self.reference.as_ref().map(|(_, value)| value),
            "ratio": self.ratio,
            "target": self.target,
            "spread": self.spread,
        })
        .to_string()
    }
}

/// At least three digits, without false precision.
fn short(value: f64) -> String {
    match value.abs() {
        magnitude if magnitude >= 100.0 => format!("{value:.0}"),
        magnitude if magnitude >= 10.0 => format!("{value:.1}"),
        magnitude if magnitude >= 1.0 || value == 0.0 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}
