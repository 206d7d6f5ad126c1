//! What the papers of recipes have in common: how they begin, what they say of the machine, and how they are made again.

use stele_ground::Bytes;

use crate::job::RecipePart;
use crate::oddities;
use crate::paper::chart::figure;
use crate::paper::document::{Document, Entry, Table, Text};
use crate::record::{Recorded, RunRecord};

/// A rate that falls by more than this where it should rise is called odd.
const FALL: f64 = 0.05;

/// Nothing was opened: the drives were modelled.
pub fn is_virtual(recorded: &Recorded) -> bool {
    recorded.head.job.on.is_none()
}

/// Megabytes (10^6) a second.
pub fn megabytes(run: &RunRecord) -> f64 {
    run.rounds.iter().map(|round| round.read_bytes + round.written_bytes).sum::<f64>()
        / run.rounds.len().max(1) as f64
        / 1e6
}

/// Accesses a second.
pub fn rate(run: &RunRecord) -> f64 {
    run.rounds.iter().map(|round| round.rate).sum::<f64>() / run.rounds.len().max(1) as f64
}

/// How many times the published figure ours is.
pub fn times(ours: f64, theirs: Option<f64>) -> Entry {
    theirs.map_or(Entry::absent(), |theirs| Entry::said(ours / theirs, figure(ours / theirs)))
}

/// A published figure as it is printed.
pub fn printed(value: Option<f64>) -> Entry {
    value.map_or(Entry::absent(), |value| Entry::said(value, crate::report::thousands(value)))
}

/// An empty page under its title.
pub fn begin(recorded: &Recorded, title: Option<&str>, own: String) -> Document {
    let when = match is_virtual(recorded) {
        true => "in virtual time".to_owned(),
        false => crate::paper::date(recorded.head.begun),
    };
    let whole = if recorded.digest.is_some() { "" } else { "; the run did not come to its end" };
    let about = format!("{}, {when}; {} cells{whole}", recorded.head.program, recorded.cells.len());
    Document::new(title.map_or(own, str::to_owned), about)
}

/// What is not there.
pub fn lacks(page: &mut Document, recorded: &Recorded, left_out: &[String]) {
    if !left_out.is_empty() {
        page.note("This is a quick run. Left out are:");
        page.list(left_out.iter().map(String::as_str));
    }
    if recorded.digest.is_none() {
        page.note(
            "The run was stopped before its end: cells are missing, and this paper is of those that were measured.",
        );
    }
}

/// The target and the machine that measured it.
pub fn environment(page: &mut Document, recorded: &Recorded) {
    let head = &recorded.head;
    page.section("Environment");
    page.paragraph(format!(
        "Measured was {}: {}; {} of it were used. The generator ran on this machine:",
        targets(recorded).join(" and "),
        head.reached,
        Bytes(head.target_bytes)
    ));
    let pairs = head.environment.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    page.table(Table::of_pairs("machine", pairs));
}

fn targets(recorded: &Recorded) -> Vec<String> {
    let beside = recorded.head.job.recipe.iter().flat_map(|part| &part.beside);
    std::iter::once(&recorded.head.target).chain(beside).cloned().collect()
}

/// How live figures come about.
pub fn clock(page: &mut Document) {
    page.paragraph(
        "The response of an access is the time from its intended start to the reading of the clock at which its answer was found. \
         What is written is incompressible and without duplicates. A run is steady when over its last five rounds the rates' range is \
         at most 20 % of their mean and their rise at most 10 %.",
    );
}

/// Why ratios to figures in MB/s are uncertain by a twentieth.
pub fn unit(page: &mut Document) {
    page.paragraph(
        "MB are millions of bytes here. The published paper does not say whether its MB are those or 2^20 bytes; if they are the latter \
         its figures are 4.9 % more than they seem, and every ratio in MB/s is 4.6 % less than stated.",
    );
}

/// Points of a curve in the order of what is varied, and what it is called.
pub struct Curve {
    pub name: String,
    /// What is varied, as words like `threads`.
    pub over: &'static str,
    pub points: Vec<(f64, f64)>,
}

/// Where a curve falls that has a reason to rise or to stay.
pub fn falls(curves: &[Curve]) -> Vec<String> {
    let mut found = Vec::new();
    for curve in curves {
        for pair in curve.points.windows(2) {
            let [(low, before), (high, after)] = pair else { continue };
            if *after < before * (1.0 - FALL) {
                let share = (1.0 - after / before) * 100.0;
                found.push(format!(
                    "{}: {} at {low}, {} at {high} {over}: {share:.1} % less.",
                    curve.name,
                    figure(*before),
                    figure(*after),
                    over = curve.over
                ));
            }
        }
    }
    found
}

/// What was not steady, or void.
pub fn remarks(recorded: &Recorded) -> Vec<String> {
    let cells = recorded.cells.iter();
    let unsteady: usize = cells.clone().filter(|cell| cell.runs.iter().any(|run| !run.steady)).count();
    let mut found = Vec::new();
    if unsteady > 0 {
        found.push(format!(
            "{unsteady} of {} cells were not steady when they ended: another run of the same length may give other figures.",
            recorded.cells.len()
        ));
    }
    for cell in cells {
        let late = cell.runs.iter().find_map(|run| crate::sweep::void(run.lag_share));
        found.extend(late.map(|late| format!("{}: void: {late}.", cell.name)));
    }
    found
}

/// `theirs` begins the places of what is odd in the published paper.
pub fn odd(page: &mut Document, ours: Vec<String>, theirs: Option<&str>) {
    page.section("What is odd");
    match ours.is_empty() {
        true => page.paragraph("Arithmetic finds nothing odd in what was measured here."),
        false => {
            page.paragraph("In what was measured here:");
            page.list(ours);
        }
    }
    let Some(theirs) = theirs else { return };
    let all = oddities::published();
    page.paragraph("In the published paper:");
    page.list(all.iter().filter(|odd| odd.place.starts_with(theirs)).map(|odd| format!("{}: {}.", odd.place, odd.why)));
}

/// The command, and the digest of the raw data. `source` names the published paper.
pub fn again(page: &mut Document, recorded: &Recorded, part: &RecipePart, source: Option<&str>) {
    page.section("To measure it again");
    page.code(command(recorded, part, source.is_some()));
    let digest = recorded.digest.as_deref().unwrap_or("none: the run did not come to its end");
    let same = if is_virtual(recorded) { "; the same version of the program gives the same file" } else { "" };
    page.paragraph(
        Text::from("BLAKE3 of the raw data: ")
            .code(digest)
            .say(format!(". The .lab file beside the page holds every run with its rounds and histograms{same}.")),
    );
    if let Some(source) = source {
        page.paragraph(format!("The published figures are those of {source}, as printed, misprints included."));
    }
}

fn command(recorded: &Recorded, part: &RecipePart, against: bool) -> String {
    let job = &recorded.head.job;
    let mut words = vec![format!("stele lab paper --recipe {}", part.name)];
    match is_virtual(recorded) {
        true => words.push("--virtual".into()),
        false => words.extend(targets(recorded).iter().map(|target| format!("--on {}", quoted(target)))),
    }
    let files = job.files.map(|files| files.to_string());
    let options = [
        ("--size", &job.size),
        ("--files", &files),
        ("--warm-up", &job.time.warm_up),
        ("--round", &job.time.round),
        ("--least", &job.time.least),
        ("--most", &job.time.most),
    ];
    words.extend(options.into_iter().filter_map(|(name, value)| Some(format!("{name} {}", quoted(value.as_ref()?)))));
    words.extend(part.quick.then(|| "--quick".to_owned()));
    words.extend(against.then(|| "--against published".to_owned()));
    words.push(format!("-o {}.html", part.name));
    words.join(" ")
}

/// As a shell takes it for one word.
fn quoted(word: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "/:.,_-+=@%".contains(letter);
    match word.chars().all(plain) && !word.is_empty() {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests;
