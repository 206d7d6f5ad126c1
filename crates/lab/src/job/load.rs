//! How hard a job drives its target: so many outstanding, with pauses between bursts, or so many a
//! second.

use serde::{Deserialize, Serialize};
use stele_ground::{Bytes, Duration};

use super::{Axes, Given, bad, duration, processors};
use crate::error::LabError;
use crate::live::run::{Load, Pause, PauseWhen, WORKERS_MAX};
use crate::profile::Profile;
use crate::search::Goal;

/// Accesses a second: more than any generator starts.
const RATE_MAX: f64 = 1e9;

#[derive(Clone, PartialEq, Default, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct LoadPart {
    pub outstanding: Option<Given<u32>>,
    /// Accesses a second, whatever the answers.
    pub rate: Option<Given<f64>>,
    /// Bytes a second, whatever the answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_bytes: Option<Given<String>>,
    /// Accesses a second that change: points like `60s=5000`, with straight lines between.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<Vec<String>>,
    /// A profile's time runs so many times as fast (1).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speed: Option<f64>,
    /// Gaps between starts: `even`, or `drawn` from the exponential distribution.
    pub arrivals: Option<Arrivals>,
    /// Threads; those of a target in memory are as many as accesses outstanding.
    pub workers: Option<Given<u32>>,
    /// Answers that a thread waits for at once.
    pub batch: Option<u32>,
    /// Time for which each thread of a closed loop starts nothing, between bursts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pause: Option<String>,
    /// Accesses between two pauses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst: Option<u32>,
    /// A pause begins when the burst is `answered`, when it is `started` (and then all of it
    /// answered), or `overlapping` what is under way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pause_when: Option<When>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum When {
    Answered,
    Started,
    Overlapping,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arrivals {
    Even,
    Drawn,
}

impl LoadPart {
    /// Threads of each cell.
    pub fn workers(&self) -> Result<Vec<u32>, LabError> {
        let Some(given) = &self.workers else { return Ok(vec![processors()]) };
        let values = given.values();
        match values.iter().find(|workers| !(1..=WORKERS_MAX).contains(*workers)) {
            Some(workers) => Err(bad("load.workers", workers, &format!("from 1 to {WORKERS_MAX} threads"))),
            None => Ok(values),
        }
    }

    pub(super) fn pause(&self) -> Result<Option<Pause>, LabError> {
        if self.pause.is_none() && (self.burst.is_some() || self.pause_when.is_some()) {
            return Err(LabError::Usage("load: bursts have pauses between them; give load.pause, like 1ms".into()));
        }
        let each = duration("load.pause", &self.pause, Duration(0))?;
        let burst = self.burst.unwrap_or(1);
        if burst == 0 {
            return Err(bad("load.burst", burst, "at least one access"));
        }
        let when = match self.pause_when {
            None | Some(When::Answered) => PauseWhen::Answered,
            Some(When::Started) => PauseWhen::Started,
            Some(When::Overlapping) => PauseWhen::Overlapping,
        };
        Ok((each.0 > 0).then_some(Pause { each, burst, when }))
    }

    /// What a search in open loops begins with.
    fn first_of_rates(&self, random: bool) -> Result<Vec<(Axes, Load)>, LabError> {
        let first = match &self.rate {
            None => 0.0,
            Some(Given::One(rate)) if *rate >= 1.0 => *rate,
            Some(_) => return Err(LabError::Usage("load.rate: a search begins with one rate of at least 1".into())),
        };
        if self.outstanding.is_some() || self.rate_bytes.is_some() || self.profile.is_some() || self.pause.is_some() {
            return Err(LabError::Usage(
                "search.objective raises accesses a second; leave all of load but rate, arrivals and workers out"
                    .into(),
            ));
        }
        Ok(vec![(Vec::new(), Load::Rate { each_second: first, random })])
    }

    pub(super) fn profile(&self) -> Result<Option<Profile>, LabError> {
        if self.speed.is_some() && self.profile.is_none() {
            return Err(LabError::Usage(
                "load.speed: only a profile has a time that runs faster; give load.profile".into(),
            ));
        }
        let parse = |texts: &Vec<String>| Profile::parse(texts, self.speed.unwrap_or(1.0));
        self.profile.as_ref().map(parse).transpose()
    }

    /// Each load, with the axes that tell it from the others.
    pub(super) fn of_cells(&self, goal: Option<Goal>) -> Result<Vec<(Axes, Load)>, LabError> {
        let searching = goal.is_some();
        let of_rates = goal.is_some_and(|goal| goal.of_rates);
        let axis = |name: &str, many: bool, value: String| match many {
            true => vec![(name.to_owned(), value)],
            false => Vec::new(),
        };
        let random = self.arrivals == Some(Arrivals::Drawn);
        let given =
            [self.outstanding.is_some(), self.rate.is_some(), self.rate_bytes.is_some(), self.profile.is_some()];
        if given.into_iter().filter(|given| *given).count() > 1 {
            return Err(LabError::Usage(
                "load: outstanding keeps so many under way; rate, rate-bytes and profile start so many: give one of them"
                    .into(),
            ));
        }
        if self.arrivals.is_some() && given == [given[0], false, false, false] && !of_rates {
            return Err(LabError::Usage(
                "load.arrivals: only a rate has them; give load.rate, load.rate-bytes or load.profile".into(),
            ));
        }
        if of_rates {
            return self.first_of_rates(random);
        }
        if let Some(profile) = self.profile()? {
            if self.pause.is_some() {
                return Err(LabError::Usage("load.pause: a profile has gaps of its own; give load.outstanding".into()));
            }
            return Ok(vec![(Vec::new(), Load::Rate { each_second: profile.mean(), random })]);
        }
        match (&self.rate_bytes, &self.rate) {
            (Some(_), _) | (_, Some(_)) if searching => {
                Err(LabError::Usage("search: it looks for the outstanding accesses; leave load.rate out".into()))
            }
            (Some(_), _) | (_, Some(_)) if self.pause.is_some() => {
                Err(LabError::Usage("load.pause: a rate has gaps of its own; give load.outstanding".into()))
            }
            (Some(bytes), _) => {
                let values = bytes.values();
                let many = values.len() > 1;
                let load = |text: String| {
                    let each = Bytes::parse(&text).filter(|bytes| bytes.0 > 0);
                    let each = each.ok_or_else(|| bad("load.rate-bytes", &text, "bytes a second, like 10MiB"))?;
                    let load = Load::Bytes { each_second: each.0 as f64, random };
                    Ok((axis("rate-bytes", many, format!("{each}/s")), load))
                };
                values.into_iter().map(load).collect()
            }
            (None, None) => {
                let outstanding = &self.outstanding;
                let values = outstanding.as_ref().map_or(vec![1], Given::values);
                let many = values.len() > 1;
                if values.contains(&0) {
                    return Err(bad("load.outstanding", 0, "at least 1 access"));
                }
                if searching && many {
                    return Err(LabError::Usage(
                        "search: it chooses the outstanding accesses; give the first one only".into(),
                    ));
                }
                Ok(values
                    .into_iter()
                    .map(|count| (axis("outstanding", many, count.to_string()), Load::Outstanding(count)))
                    .collect())
            }
            (None, Some(rate)) => {
                let values = rate.values();
                let many = values.len() > 1;
                if let Some(wrong) = values.iter().find(|rate| !(**rate > 0.0 && **rate <= RATE_MAX)) {
                    let is_long = wrong.is_finite() && wrong.abs() > RATE_MAX;
                    let said = if is_long { format!("{wrong:e}") } else { wrong.to_string() };
                    return Err(bad("load.rate", said, "more than 0 accesses a second, and at most 1000000000"));
                }
                let load = |each_second| Load::Rate { each_second, random };
                Ok(values.into_iter().map(|rate| (axis("rate", many, rate.to_string()), load(rate))).collect())
            }
        }
    }
}
