//! A rate that changes over a run: a ramp, steps, or a day in an hour.
//!
//! Points join times with rates, and between two of them the rate changes evenly. How many accesses
//! are to have started at a time is the area below that line, and an access starts when the area is
//! so large: exact, however fast the rate changes. With drawn arrivals the area between two starts
//! is drawn instead, which is a Poisson process whose rate is the profile's.

use stele_ground::Duration;

use crate::error::LabError;
use crate::job::parse_duration;

/// Points of a profile.
const POINTS_MAX: usize = 100_000;
const LIKE: &str = "say it like 0s=100, 60s=5000: times that do not fall, from 0 on, each with a rate";

#[derive(Clone, PartialEq, Debug)]
pub struct Profile {
    /// Seconds, accesses a second, and accesses before. Two points at one time are a step.
    points: Vec<Point>,
}

#[derive(Clone, Copy, PartialEq, Debug)]
struct Point {
    at: f64,
    rate: f64,
    before: f64,
}

impl Profile {
    /// From texts like `60s=5000`; time runs `speed` times as fast as they say.
    pub fn parse(texts: &[String], speed: f64) -> Result<Profile, LabError> {
        let bad = |text: &str| LabError::Usage(format!("load.profile = {text}: {LIKE}"));
        if texts.len() > POINTS_MAX {
            return Err(LabError::Usage(format!(
                "load.profile: {} points are too many; at most {POINTS_MAX}",
                texts.len()
            )));
        }
        if !(speed.is_finite() && speed > 0.0) {
            return Err(LabError::Usage(format!("load.speed = {speed}: more than 0; 2 is twice as fast")));
        }
        let mut points: Vec<(f64, f64)> = Vec::new();
        for text in texts {
            let parsed = text.split_once('=').and_then(|(at, rate)| {
                let at = parse_duration(at)?.as_secs_f64() / speed;
                let rate: f64 = rate.trim().parse().ok()?;
                (rate.is_finite() && rate >= 0.0).then_some((at, rate))
            });
            let point = parsed.ok_or_else(|| bad(text))?;
            if points.last().is_some_and(|last| point.0 < last.0) {
                return Err(bad(text));
            }
            points.push(point);
        }
        let whole =
            points.first().is_some_and(|first| first.0 == 0.0) && points.last().is_some_and(|last| last.0 > 0.0);
        let profile = Profile::of(&points);
        match whole && profile.mean() > 0.0 {
            true => Ok(profile),
            false => Err(bad(&texts.join(", "))),
        }
    }

    /// From seconds and rates, which were checked.
    pub fn of(points: &[(f64, f64)]) -> Profile {
        let mut all: Vec<Point> = Vec::with_capacity(points.len());
        for (at, rate) in points.iter().copied() {
            let before = all.last().map_or(0.0, |last| last.before + (at - last.at) * (last.rate + rate) / 2.0);
            all.push(Point { at, rate, before });
        }
        Profile { points: all }
    }

    /// The same behind a time with its first rate.
    pub fn after(&self, warm_up: Duration) -> Profile {
        let first = self.points.first().map_or(0.0, |first| first.rate);
        let shifted = self.points.iter().map(|point| (point.at + warm_up.as_secs_f64(), point.rate));
        Profile::of(&std::iter::once((0.0, first)).chain(shifted).collect::<Vec<_>>())
    }

    /// Seconds and rates.
    pub fn points(&self) -> Vec<(f64, f64)> {
        self.points.iter().map(|point| (point.at, point.rate)).collect()
    }

    pub fn length(&self) -> Duration {
        Duration((self.points.last().map_or(0.0, |last| last.at) * 1e9) as u64)
    }

    /// Accesses a second over all of it.
    pub fn mean(&self) -> f64 {
        self.points.last().map_or(0.0, |last| last.before / last.at.max(1e-9))
    }

    /// Accesses that were started by then; behind the end the last rate goes on.
    pub fn started(&self, seconds: f64) -> f64 {
        let number = self.points.partition_point(|point| point.at <= seconds);
        let Some(from) = number.checked_sub(1).and_then(|number| self.points.get(number)) else { return 0.0 };
        let span = seconds - from.at;
        let rise = self.points.get(number).map_or(0.0, |to| (to.rate - from.rate) / (to.at - from.at));
        from.before + span * (from.rate + rise * span / 2.0)
    }

    /// The time at which so many accesses were started; none: never, since the last rate is 0.
    pub fn when(&self, count: f64) -> Option<f64> {
        let number = self.points.partition_point(|point| point.before <= count);
        let from = self.points.get(number.checked_sub(1)?)?;
        let rise = self.points.get(number).map_or(0.0, |to| (to.rate - from.rate) / (to.at - from.at));
        let area = count - from.before;
        // The root of rise / 2 x^2 + rate x = area, in the form that holds where the rise is 0.
        let under = (from.rate * from.rate + 2.0 * rise * area).max(0.0).sqrt() + from.rate;
        if area == 0.0 {
            return Some(from.at);
        }
        let at = from.at + 2.0 * area / under;
        at.is_finite().then_some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str, speed: f64) -> Result<Profile, LabError> {
        Profile::parse(&text.split(',').map(|point| point.trim().to_owned()).collect::<Vec<_>>(), speed)
    }

    #[test]
    fn starts_are_where_the_area_below_the_line_is_whole() {
        for (text, wanted) in [
            ("0s=10, 10s=10", &[(0.0, 0.0), (5.0, 50.0), (10.0, 100.0), (12.0, 120.0)][..]),
            // A ramp: rate t, area t^2 / 2.
            ("0s=0, 10s=10", &[(2.0, 2.0), (4.0, 8.0), (10.0, 50.0), (11.0, 60.0)]),
            ("0s=10, 10s=0", &[(2.0, 18.0), (10.0, 50.0)]),
            // A step.
            ("0s=1, 10s=1, 10s=100, 20s=100", &[(9.0, 9.0), (10.0, 10.0), (11.0, 110.0)]),
            // Nothing for a while.
            ("0s=0, 10s=0, 10s=5, 20s=5", &[(12.0, 10.0)]),
        ] {
            let profile = parse(text, 1.0).unwrap();
            for (at, count) in wanted {
                assert!((profile.started(*at) - count).abs() < 1e-9, "{text}: {count} at {at}");
                let when = profile.when(*count).unwrap();
                assert!((when - at).abs() < 1e-6, "{text}: {count} when {when}, not {at}");
            }
        }
        assert_eq!(parse("0s=10, 10s=0", 1.0).unwrap().when(51.0), None);
    }

    #[test]
    fn a_day_runs_as_fast_as_it_is_told_and_behind_the_warm_up() {
        let day = parse("0h=100, 12h=300, 24h=100", 1440.0).unwrap();
        assert_eq!((day.length(), day.mean()), (Duration::from_secs(60), 200.0));
        let after = day.after(Duration::from_secs(2));
        assert_eq!((after.length(), after.started(2.0)), (Duration::from_secs(62), 200.0));
        assert!((after.started(62.0) - 200.0 - 12_000.0).abs() < 1e-6);
    }

    #[test]
    fn what_is_no_profile_is_an_error_that_says_how() {
        for (text, speed) in [
            ("", 1.0),
            ("0s=5", 1.0),
            ("1s=5, 2s=5", 1.0),
            ("0s=5, 5s=5, 4s=5", 1.0),
            ("0s=-1, 5s=5", 1.0),
            ("0s=inf, 5s=5", 1.0),
            ("0s=0, 5s=0", 1.0),
            ("0=5, 5=5", 1.0),
            ("0s=5, 5s=5", 0.0),
            ("0s=5, 5s=5", f64::NAN),
        ] {
            assert!(parse(text, speed).is_err(), "{text} at {speed}");
        }
    }
}
