//! `stele doctor`: reports the problems of this machine for a server, and the standing alarms of a
//! server that runs, with a next step for each. It reads only.
//!
//! Exit code 0: no problem, at most notes. 1: a problem will come in time. 5: a problem exists now.
//! A check that cannot be made is reported as unknown, never as good.

mod alarms;
mod files;
mod machine;
mod mounts;

use std::path::PathBuf;

use serde::Serialize;
use stele_ground::{Shown, counted, counted_are};
use stele_server::config::{Config, Site};
use stele_server::failure::{Failure, Kind, Outcome};

use crate::commands::print_json;
use crate::output::{GREEN, RED, YELLOW, paint};

/// Severity of a finding.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    Good,
    /// Worth knowing; needs no action.
    Note,
    Unknown,
    /// A problem that will come in time.
    Warning,
    /// A problem that exists now.
    Wrong,
}

/// The result of one check.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Finding {
    /// A stable word, as OPERATIONS.md lists it.
    pub check: &'static str,
    pub verdict: Verdict,
    pub message: String,
    /// The next step; empty if none is needed.
    pub next: String,
}

impl Finding {
    fn new(check: &'static str, verdict: Verdict, message: impl Into<String>, next: impl Into<String>) -> Finding {
        Finding { check, verdict, message: message.into(), next: next.into() }
    }

    fn good(check: &'static str, message: impl Into<String>) -> Finding {
        Finding::new(check, Verdict::Good, message, "")
    }

    fn unknown(check: &'static str, what: &str) -> Finding {
        Finding::new(check, Verdict::Unknown, format!("{what} cannot be read here"), "look at it by hand")
    }
}

#[derive(Serialize)]
struct View<'a> {
    /// The worst verdict of the findings.
    verdict: Verdict,
    findings: &'a [Finding],
}

/// Paths under which the machine describes itself; tests use their own.
pub struct Machine {
    pub proc: PathBuf,
    pub sys: PathBuf,
}

impl Default for Machine {
    fn default() -> Machine {
        Machine { proc: PathBuf::from("/proc"), sys: PathBuf::from("/sys") }
    }
}

pub async fn run(site: &Site, json: bool) -> Outcome<()> {
    let mut findings = examine(site, &Machine::default(), machine::server(site).await);
    findings.extend(alarms::standing(site).await);
    let worst = findings.iter().map(|finding| finding.verdict).max().unwrap_or(Verdict::Good);
    if json {
        print_json(&View { verdict: worst, findings: &findings })?;
    } else {
        print!("{}", render(&findings));
    }
    let count = |verdict| findings.iter().filter(|finding| finding.verdict == verdict).count() as u64;
    let told = |kind, what: String| Err(Failure::new(kind, what).next("follow the next step of each"));
    match worst {
        Verdict::Wrong => told(Kind::Damaged, format!("{} wrong now", counted_are(count(worst), "thing"))),
        Verdict::Warning => told(Kind::Failed, format!("{} will hurt in time", counted(count(worst), "thing"))),
        Verdict::Good | Verdict::Note | Verdict::Unknown => Ok(()),
    }
}

/// Runs every check of the machine. `server`: the process of the server that runs here, if one
/// does.
pub fn examine(site: &Site, machine: &Machine, server: Option<i32>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let config = match Config::read(&site.config_path) {
        Ok(config) => {
            findings.push(Finding::good("configuration", format!("{} is understood", site.config_path.display())));
            Some(config)
        }
        Err(failure) if failure.kind == Kind::Missing => {
            let message = format!("there is no {}: the machine is looked at without one", site.config_path.display());
            findings.push(Finding::new(
                "configuration",
                Verdict::Note,
                message,
                "make a pool with `stele pool create`",
            ));
            None
        }
        Err(failure) => {
            findings.push(Finding::new("configuration", Verdict::Wrong, failure.error, failure.next));
            None
        }
    };
    findings.push(machine::memory(machine, config.as_ref(), server));
    findings.push(machine::io_uring(machine));
    findings.push(machine::clock_source(machine));
    findings.push(machine::clock_set());
    findings.push(machine::smart());
    findings.extend(machine::limits(machine, config.as_ref(), server));
    if let Some(config) = &config {
        findings.extend(machine::drives(machine, site, config));
        findings.extend(files::permissions(site, config));
        findings.extend(files::master_key(site, config, server));
        findings.push(files::room(machine, site));
        findings.extend(files::beneath(site, config));
        findings.extend(files::heads(machine, site, config));
    }
    findings
}

fn render(findings: &[Finding]) -> String {
    let mut text = String::new();
    for Finding { check, verdict, message, next } in findings {
        let word = match verdict {
            Verdict::Good => paint("good   ", GREEN),
            Verdict::Note => "note   ".to_owned(),
            Verdict::Unknown => "unknown".to_owned(),
            Verdict::Warning => paint("warning", YELLOW),
            Verdict::Wrong => paint("wrong  ", RED),
        };
        text.push_str(&format!("{word}  {check:<14} {}\n", Shown(message)));
        if !next.is_empty() {
            text.push_str(&format!("{:25}next: {}\n", "", Shown(next)));
        }
    }
    text
}

#[cfg(test)]
mod tests;
