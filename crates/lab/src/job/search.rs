//! What a job looks for: the highest load at a response time.

use serde::{Deserialize, Serialize};
use stele_ground::Duration;

use super::{bad, duration};
use crate::error::LabError;
use crate::objective::Objective;
use crate::search::{Goal, Statistic};

/// Outstanding accesses that a search tries at most where nothing is said.
const OUTSTANDING_MAX: u64 = 512;
/// Accesses a second that a search begins with, and tries at most.
const RATE_START: u64 = 1_000;
const RATE_MAX: u64 = 100_000_000;
/// Runs of one search.
const PROBES_MAX: usize = 12;
const RATE_PROBES_MAX: usize = 20;

#[derive(Clone, PartialEq, Default, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct SearchPart {
    /// The response that must not be exceeded.
    pub response: Option<String>,
    /// That of so many percent of the accesses; none: the mean.
    pub percentile: Option<f64>,
    pub outstanding_max: Option<u64>,
    /// Raises accesses a second, in open loops, as long as this is kept, like `p99=2ms`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub objective: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_max: Option<u64>,
}

impl SearchPart {
    pub(super) fn goal(&self) -> Result<Goal, LabError> {
        if let Some(objective) = &self.objective {
            return self.goal_of_rates(objective.parse()?);
        }
        if self.rate_max.is_some() {
            return Err(LabError::Usage("search.rate-max: only a search with search.objective raises rates".into()));
        }
        let statistic = match self.percentile {
            None => Statistic::Mean,
            Some(percent) if percent > 0.0 && percent < 100.0 => Statistic::Percentile(percent / 100.0),
            Some(percent) => return Err(bad("search.percentile", percent, "between 0 and 100")),
        };
        let load_max = self.outstanding_max.unwrap_or(OUTSTANDING_MAX);
        if load_max == 0 {
            return Err(bad("search.outstanding-max", load_max, "at least one access"));
        }
        let response = duration("search.response", &self.response, Duration::from_millis(20))?;
        if response == Duration(0) {
            return Err(bad("search.response", "0", "longer than no time: no access has such a response"));
        }
        Ok(Goal { response, statistic, start: 8, load_max, probes_max: PROBES_MAX, of_rates: false })
    }

    fn goal_of_rates(&self, objective: Objective) -> Result<Goal, LabError> {
        if self.response.is_some() || self.percentile.is_some() || self.outstanding_max.is_some() {
            return Err(LabError::Usage(
                "search.objective says the response and raises rates: leave search.response, search.percentile and \
                 search.outstanding-max out"
                    .into(),
            ));
        }
        let load_max = self.rate_max.unwrap_or(RATE_MAX);
        if load_max == 0 {
            return Err(bad("search.rate-max", load_max, "at least one access a second"));
        }
        Ok(Goal {
            response: objective.response,
            statistic: objective.statistic,
            start: RATE_START,
            load_max,
            probes_max: RATE_PROBES_MAX,
            of_rates: true,
        })
    }
}
