//! Common parts of the recipes' papers: their beginning, the description of the machine, and the
//! command to repeat them.

use stele_ground::{Bytes, are, counted};

use crate::oddities;
use stele_lab::estimate::Estimate;
use stele_lab::job::RecipePart;
use stele_lab::record::{CellRecord, Recorded, RunRecord};
use stele_lab::report::chart::{Axis, Bars, Chart, figure};
use stele_lab::report::document::{Document, Entry, Place, Text};
use stele_lab::report::machine;
use stele_lab::report::set_up::set_up;

/// A rate that rises by less than this share no longer rises.
const FLAT: f64 = 0.05;

/// Whether no target was opened, because the drives were modelled.
pub fn is_virtual(recorded: &Recorded) -> bool {
    recorded.head.job.on.is_none()
}

/// Megabytes (10^6) a second.
pub fn megabytes(run: &RunRecord) -> f64 {
    run.mean(|round| round.read_bytes + round.written_bytes) / 1e6
}

/// Accesses a second.
pub fn rate(run: &RunRecord) -> f64 {
    run.mean(|round| round.rate)
}

/// The same with their intervals.
pub fn megabytes_estimated(run: &RunRecord) -> Estimate {
    Estimate::of_run(run, |round| round.read_bytes + round.written_bytes).times(1e-6)
}

pub fn rate_estimated(run: &RunRecord) -> Estimate {
    Estimate::of_run(run, |round| round.rate)
}

/// The ratio of our figure to the published one.
pub fn times(ours: f64, theirs: Option<f64>) -> Entry {
    theirs.map_or(Entry::absent(), |theirs| Entry::said(ours / theirs, figure(ours / theirs)))
}

/// A whole number with separators.
pub fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A published figure in its printed form.
pub fn printed(value: Option<f64>) -> Entry {
    value.map_or(Entry::absent(), |value| Entry::said(value, thousands(value)))
}

/// A run's figure; in parentheses if the run did not become steady.
pub fn measured(run: &RunRecord, value: f64) -> Entry {
    Entry::number(value).if_steady(run.is_steady())
}

/// The request for a paper.
#[derive(Clone, Copy)]
pub struct Order<'a> {
    pub recorded: &'a Recorded,
    pub part: &'a RecipePart,
    /// Replaces the recipe's own title.
    pub title: Option<&'a str>,
    /// Whether published figures stand beside the results.
    pub against: bool,
}

impl Order<'_> {
    /// An empty page with its title: `beside` is added to the recipe's own title if published
    /// figures stand there.
    pub fn begin(self, own: impl Into<String>, beside: &str) -> Document {
        let Order { recorded, title, against, .. } = self;
        let when = match is_virtual(recorded) {
            true => "in virtual time".to_owned(),
            false => stele_ground::calendar::date(recorded.head.begun),
        };
        let whole = if recorded.digest.is_some() { "" } else { "; the run did not come to its end" };
        let about =
            format!("{}, {when}; {}{whole}", recorded.head.program, counted(recorded.cells.len() as u64, "cell"));
        let own = own.into() + if against { beside } else { "" };
        Document::new(title.map_or(own, str::to_owned), about)
    }
}

/// The highest rate of a kind for the summary: its place, and the count that it took.
pub struct SummaryPeak<'a> {
    pub name: String,
    pub row: String,
    /// The column of the number of threads or sessions, the name of one, and whether it was one.
    pub count: (&'a str, &'a str, bool),
    /// The column of the other property of the number.
    pub of: Option<&'a str>,
    /// Whether a published figure stands beside it.
    pub published: bool,
    /// Whether a larger count brought no more: the figure is the limit.
    pub flattened: bool,
    /// A caveat for the sentence.
    pub caveat: Option<String>,
}

/// Whether a rate had stopped rising before the highest count.
pub fn flattened(points: &[(f64, f64)]) -> bool {
    match points {
        [before @ .., (_, last)] => before.iter().any(|(_, rate)| *last < rate * (1.0 + FLAT)),
        [] => false,
    }
}

impl SummaryPeak<'_> {
    pub fn sentence(self) -> Text {
        let place = |column: &str| Place::new(self.row.as_str(), column);
        let (column, word, one) = self.count;
        let words = format!(" {word}{}", if one { "" } else { "s" });
        let most = if self.flattened { "at most " } else { "" };
        let text = Text::from(format!("{}: {most}", self.name)).cell_as(&place("rate"), " MB/s").say(", with ");
        let mut text = text.cell_as(&place(column), &words);
        if let Some(of) = self.of {
            text = text.say(" and accesses of ").cell(&place(of));
        }
        if !self.flattened {
            text = text.say(format!("; more {word}s were not tried, and the rate still rose"));
        }
        if self.published {
            text = text.say(". Published: ").cell_as(&place("published"), " MB/s").say("; the ratio is ");
            text = text.ratio_shown(&place("rate"), &place("published"));
        }
        if let Some(caveat) = self.caveat {
            text = text.say(format!("; {caveat}"));
        }
        text.say(".")
    }
}

/// The results by group, and the published ones: name and values.
pub fn bars(
    (title, unit): (&str, &str),
    groups: Vec<String>,
    (name, ours): (&str, Vec<Option<f64>>),
    published: Option<(&str, Vec<Option<f64>>)>,
) -> Chart {
    let both = std::iter::once((name, ours)).chain(published);
    let bars = both.map(|(name, values)| Bars { name: name.into(), values }).collect();
    Chart::bars(title, Axis::linear(unit), groups, bars)
}

/// The length of a usual run of these results, in seconds.
pub fn usual_length(recorded: &Recorded) -> f64 {
    let runs = recorded.cells.iter().flat_map(|cell| &cell.runs);
    let mut lengths: Vec<f64> = runs.map(|run| run.rounds.iter().map(|round| round.seconds).sum()).collect();
    lengths.sort_by(f64::total_cmp);
    lengths.get(lengths.len() / 2).copied().unwrap_or(0.0)
}

/// What runs of less than their usual time leave out, with the name of a run and the time that it
/// should have.
pub fn shorter(recorded: &Recorded, each: &str, least: f64, whole: &str) -> Option<String> {
    let usual = usual_length(recorded);
    // A round may end a little early.
    (usual > 0.0 && usual < least * 0.98).then(|| format!("the time of {each}: {} s instead of {whole}", figure(usual)))
}

/// The missing and unreliable results.
pub fn lacks(page: &mut Document, recorded: &Recorded, left_out: &[String]) {
    if !left_out.is_empty() {
        page.note("This is not the whole recipe. Left out are:");
        page.list(left_out.iter().map(String::as_str));
    }
    if recorded.digest.is_none() {
        page.note(
            "The run was stopped before its end: cells are missing, and this paper shows those that were measured.",
        );
    }
    let figures = recorded.cells.iter().flat_map(|cell| match &cell.search {
        Some(search) => vec![search.steady],
        None => cell.runs.iter().map(RunRecord::is_steady).collect(),
    });
    let (all, unsteady) = figures.fold((0, 0), |(all, unsteady), steady| (all + 1, unsteady + usize::from(!steady)));
    if unsteady > 0 {
        page.note(format!(
            "{unsteady} of {all} measurements did not become steady: a second measurement of the same length may give another figure. \
             Such figures are in parentheses."
        ));
    }
}

/// The target and the machine that measured it.
pub fn environment(page: &mut Document, recorded: &Recorded) {
    let head = &recorded.head;
    page.section("Environment");
    // What was reached often names its place.
    let target = match head.reached.contains(&head.target) {
        true => head.reached.clone(),
        false => format!("{} ({})", targets(recorded).join(" and "), head.reached),
    };
    page.paragraph(format!(
        "{} measured: {target}; {} in use. The load came from this machine:",
        if targets(recorded).len() > 1 { "These targets were" } else { "This target was" },
        Bytes(head.target_bytes)
    ));
    page.diagram(set_up(recorded, &targets(recorded).split_off(1)));
    page.table(machine(recorded));
}

fn targets(recorded: &Recorded) -> Vec<String> {
    let beside = recorded.head.job.recipe.iter().flat_map(|part| &part.beside);
    std::iter::once(&recorded.head.target).chain(beside).cloned().collect()
}

/// The method of live figures.
pub fn clock(page: &mut Document) {
    page.paragraph(
        "The response of an access is the time from its intended start to the reading of the clock at which its answer was found. \
         What is written is incompressible and without duplicates. A run is steady when over its last five rounds the rates' range is \
         at most 20 % of their mean and their rise at most 10 %.",
    );
}

/// The end of every paper: what its figures say, and what they do not. Figures that are not steady,
/// void or of a run that was stopped are counted here again, since a reader may begin with this
/// section.
pub fn conclusion(page: &mut Document, recorded: &Recorded, says: impl Into<Text>, says_not: &str) {
    page.section("Conclusion");
    page.paragraph(says);
    page.paragraph(says_not);
    let void = remarks(recorded).len();
    let unsteady = recorded.cells.iter().filter(|cell| !cell.is_steady()).count();
    let all = recorded.cells.len();
    let whole = if recorded.digest.is_none() { "; the run did not come to its end" } else { "" };
    let count = match (unsteady, void) {
        (0, 0) if all == 1 => "The one cell is steady, and not void".to_owned(),
        (0, 0) => format!("All {all} cells are steady, and none is void"),
        _ => {
            let all = counted(all as u64, "cell");
            format!("Of {all}, {unsteady} {} not steady and {void} {} void", are(unsteady as u64), are(void as u64))
        }
    };
    page.paragraph(format!("{count}{whole}."));
}

/// The reason why ratios to figures in MB/s are uncertain by a twentieth.
pub fn unit(page: &mut Document) {
    page.paragraph(
        "A MB is a million bytes here. The published paper does not say whether its MB is a million or 2^20 bytes. If it is 2^20 bytes, \
         the published figures are 4.9 % higher than they seem, and every ratio in MB/s is 4.6 % lower than stated.",
    );
}

/// Points of a curve in the order of the varied quantity, and its name.
pub struct Curve {
    pub name: String,
    /// The name of the varied quantity, for example `threads`.
    pub over: &'static str,
    pub points: Vec<(f64, Estimate)>,
}

/// Places at which a curve falls although it should rise or stay, by more than the intervals of
/// both points explain.
pub fn falls(curves: &[Curve]) -> Vec<String> {
    let mut found = Vec::new();
    for curve in curves {
        for pair in curve.points.windows(2) {
            let [(low, before), (high, after)] = pair else { continue };
            if after.is_below(*before) {
                let share = (1.0 - after.value / before.value) * 100.0;
                found.push(format!(
                    "{}: {} at {low}, {} at {high} {over}: {share:.1} % less.",
                    curve.name,
                    figure(before.value),
                    figure(after.value),
                    over = curve.over
                ));
            }
        }
    }
    found
}

/// Cells whose accesses are shorter than the target's blocks do not belong to the run.
pub fn unmeasured(recorded: &Recorded, planned: usize) -> Option<String> {
    let few = recorded.digest.is_some() && recorded.cells.len() < planned;
    few.then(|| {
        format!(
            "{} of {planned} cells were not measured: past a cache, the target takes whole blocks only, and its blocks are longer than \
             these accesses.",
            planned - recorded.cells.len()
        )
    })
}

/// The void results.
pub fn remarks(recorded: &Recorded) -> Vec<String> {
    let void = |cell: &CellRecord| {
        let late = cell.runs.iter().find_map(|run| stele_lab::sweep::void(run.lag_share))?;
        Some(format!("{}: void: {late}.", cell.name))
    };
    recorded.cells.iter().filter_map(void).collect()
}

/// `theirs` are the beginnings of the places of oddities in the published paper.
pub fn odd(page: &mut Document, ours: Vec<String>, theirs: &[&str]) {
    page.section("What is odd");
    match ours.is_empty() {
        true => page.paragraph("Arithmetic finds nothing odd in what was measured here."),
        false => {
            page.paragraph("In what was measured here:");
            page.list(ours);
        }
    }
    if !theirs.is_empty() {
        let all = oddities::published();
        let of_them = all.iter().filter(|odd| theirs.iter().any(|begin| odd.place.starts_with(begin)));
        page.paragraph("In the published paper:");
        page.list(of_them.map(|odd| format!("{}: {}.", odd.place, odd.why)));
    }
}

/// The command, and the digest of the raw data. `source` names the published paper.
pub fn again(page: &mut Document, Order { recorded, part, against, .. }: Order<'_>, source: &str) {
    page.section("To measure it again");
    page.code(command(recorded, part, against));
    let digest = recorded.digest.as_deref().unwrap_or("none: the run did not come to its end");
    let same = if is_virtual(recorded) { "; the same version of the program gives the same file" } else { "" };
    page.paragraph(Text::from("BLAKE3 of the raw data: ").code(digest).say(format!(
        ". The .lab file that the command writes beside the page holds every run with its rounds and histograms{same}."
    )));
    if against {
        page.paragraph(format!("The published figures come from {source}, as printed, with its misprints."));
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

/// Quotes a text as one word for a shell.
fn quoted(word: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "/:.,_-+=@%".contains(letter);
    match word.chars().all(plain) && !word.is_empty() {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests;
