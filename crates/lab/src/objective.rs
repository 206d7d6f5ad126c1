//! What a workload is to keep: a response that its accesses do not exceed, in the mean or for a
//! share of them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use stele_ground::Duration;

use crate::error::LabError;
use crate::job::parse_duration;
use crate::record::RunRecord;
use crate::search::Statistic;

/// As `p99=2ms`, `p99.9=10ms` or `mean=5ms`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Objective {
    pub statistic: Statistic,
    pub response: Duration,
}

impl FromStr for Objective {
    type Err = LabError;
    fn from_str(text: &str) -> Result<Objective, LabError> {
        let parsed = text.split_once('=').and_then(|(statistic, response)| {
            let statistic = match statistic.trim() {
                "mean" => Statistic::Mean,
                percent => {
                    let percent: f64 = percent.strip_prefix('p')?.parse().ok()?;
                    (percent > 0.0 && percent < 100.0).then_some(Statistic::Percentile(percent / 100.0))?
                }
            };
            let response = parse_duration(response).filter(|response| response.0 > 0)?;
            Some(Objective { statistic, response })
        });
        parsed
            .ok_or_else(|| LabError::Usage(format!("objective = {text}: say it like p99=2ms, p99.9=10ms or mean=5ms")))
    }
}

impl fmt::Display for Objective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} within {}", said(self.statistic), self.response)
    }
}

/// `the mean`, or `99 %`.
pub fn said(statistic: Statistic) -> String {
    match statistic {
        Statistic::Mean => "the mean".into(),
        // Shares are kept; 0.999 times 100 is not 99.9.
        Statistic::Percentile(share) => format!("{} %", (share * 1e8).round() / 1e6),
    }
}

/// An objective, and what became of it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ObjectiveRecord {
    pub response_ns: u64,
    /// Share of the accesses; none: the mean.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub percentile: Option<f64>,
    /// What that was; the largest number where nothing was answered.
    pub found_ns: u64,
    /// Accesses that were not answered at the end and had waited for longer than the response; they
    /// are counted as missed.
    #[serde(default, skip_serializing_if = "crate::record::is_zero")]
    pub unanswered: u64,
}

impl ObjectiveRecord {
    pub fn of(objective: Objective, run: &RunRecord) -> ObjectiveRecord {
        let (response, unanswered) = run.responses_within(objective.response);
        let percentile = match objective.statistic {
            Statistic::Mean => None,
            Statistic::Percentile(share) => Some(share),
        };
        let found = objective.statistic.of_all(&response);
        ObjectiveRecord { response_ns: objective.response.0, percentile, found_ns: found.0, unanswered }
    }

    pub fn is_kept(&self) -> bool {
        self.found_ns <= self.response_ns
    }

    /// As a remark says it.
    pub fn said(&self) -> String {
        let statistic = self.percentile.map_or(Statistic::Mean, Statistic::Percentile);
        let (asked, found) = (Duration(self.response_ns), Duration(self.found_ns));
        let word = if self.is_kept() { "kept" } else { "missed" };
        let found = match self.found_ns {
            u64::MAX => "nothing was answered".to_owned(),
            _ => format!("it was {found}"),
        };
        let waited = match self.unanswered {
            0 => String::new(),
            1 => " (1 access had waited for longer and was not answered when it ended)".to_owned(),
            count => format!(" ({count} accesses had waited for longer and were not answered when it ended)"),
        };
        format!("objective {word}: {} within {asked}, and {found}{waited}", said(statistic))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::run;

    #[test]
    fn an_objective_is_a_statistic_and_a_response() {
        for (text, words) in [
            ("p99=2ms", "99 % within 2.00 ms"),
            ("p99.9=10ms", "99.9 % within 10.0 ms"),
            ("mean=1.5s", "the mean within 1.50 s"),
        ] {
            let objective: Objective = text.parse().unwrap();
            let response = objective.response;
            let words = words.split(" within ").next().unwrap();
            assert_eq!(objective.to_string(), format!("{words} within {response}"), "{text}");
        }
        for text in ["", "p99", "99=2ms", "p0=2ms", "p100=2ms", "p99=2", "p99=0ms", "mean=", "pNaN=1ms"] {
            assert!(text.parse::<Objective>().is_err(), "{text}");
        }
    }

    #[test]
    fn it_is_kept_where_the_response_is_no_longer() {
        for (text, kept) in [("mean=999us", false), ("mean=1001us", true), ("p99=900us", false), ("p99=1100us", true)] {
            let record = ObjectiveRecord::of(text.parse().unwrap(), &run(1, 100.0, 1000, true));
            assert_eq!(record.is_kept(), kept, "{text}: {record:?}");
            assert!(record.said().contains(if kept { "kept" } else { "missed" }));
        }
    }

    #[test]
    fn without_an_answer_nothing_is_kept() {
        let mut none = run(1, 0.0, 1000, true);
        none.rounds.iter_mut().for_each(|round| round.read = Default::default());
        for text in ["mean=1s", "p99=1s"] {
            let record = ObjectiveRecord::of(text.parse().unwrap(), &none);
            assert!(!record.is_kept() && record.said().contains("nothing was answered"), "{text}: {record:?}");
        }
    }
}
