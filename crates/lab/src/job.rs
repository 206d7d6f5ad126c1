//! A job as a file: what to run on which target, with any of its values given as a list. Each
//! combination of the lists is a cell; cells run in order, the last list's values changing fastest.
//!
//! ```toml
//! on = "/data/target"
//! size = "10GiB"
//!
//! [workload]
//! name = ["oltp_4k", "oltp_8k"]     # shipped ones; or `read`, `random` and `access` for one of your own
//!
//! [load]
//! outstanding = [1, 8, 64]          # or rate = 2000
//!
//! [time]
//! warm-up = "5s"
//! least = "20s"
//! most = "2m"
//! ```

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use stele_ground::{Bytes, Duration};

use crate::error::{LabError, toml_cause};
use crate::live::content::Content;
use crate::live::run::{Load, Of, Setup, Timing};
use crate::live::target::{FILES, Opening, PATIENCE};
use crate::modelled::sweep::VirtualPart;
use crate::objective::Objective;
use crate::precondition;
use crate::profile::Profile;
use crate::replay::ReplayPart;
use crate::search::Goal;
use crate::workload::{self, AccessSpec, Alignment, Operation};

mod load;
mod search;
mod tenant;

pub use load::{Arrivals, LoadPart, When};
pub use search::SearchPart;
pub use tenant::TenantPart;

/// One value, or several to try in turn.
#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
#[serde(untagged, expecting = "expected a value of another kind, or a list of such values")]
pub enum Given<T> {
    One(T),
    Many(Vec<T>),
}

impl<T: Default> Default for Given<T> {
    fn default() -> Given<T> {
        Given::One(T::default())
    }
}

impl<T: Clone> Given<T> {
    pub fn values(&self) -> Vec<T> {
        match self {
            Given::One(value) => vec![value.clone()],
            Given::Many(values) => values.clone(),
        }
    }
}

#[derive(Clone, PartialEq, Default, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Job {
    /// The target; the command line may name another.
    pub on: Option<String>,
    /// Bytes of it to use.
    pub size: Option<String>,
    /// Through the page cache.
    #[serde(default)]
    pub buffered: Given<bool>,
    /// Files of a target that is a directory, or objects of a bucket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files: Option<u32>,
    /// Like `2x`: before each cell all of it is written so many times in order, and for a workload
    /// that writes at random places then at random, until that is steady.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub precondition: Option<String>,
    #[serde(default)]
    pub workload: WorkloadPart,
    #[serde(default)]
    pub load: LoadPart,
    #[serde(default)]
    pub time: TimePart,
    #[serde(default)]
    pub content: ContentPart,
    /// What the accesses of each cell are to keep, like `p99=2ms`; it is told whether they did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub objective: Option<String>,
    /// Workloads that run at once, side by side, instead of one after another.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tenant: Vec<TenantPart>,
    /// Looks for the highest load at a response time in each cell, instead of running one load.
    pub search: Option<SearchPart>,
    /// Arrays of modelled drives are the target, in virtual time.
    #[serde(rename = "virtual", skip_serializing_if = "Option::is_none")]
    pub modelled: Option<VirtualPart>,
    /// A trace that is carried out again, instead of cells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replay: Option<ReplayPart>,
    /// The cells are those of a recipe; nothing else is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recipe: Option<RecipePart>,
}

/// What was asked of a recipe.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct RecipePart {
    pub name: String,
    /// Fewer cells.
    #[serde(default)]
    pub quick: bool,
    /// Targets beside the job's own, all at work at once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub beside: Vec<String>,
}

#[derive(Clone, PartialEq, Default, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct WorkloadPart {
    /// A shipped workload.
    pub name: Option<Given<String>>,
    /// Percent of accesses that read.
    pub read: Option<Given<u8>>,
    /// Percent of accesses at a random place.
    pub random: Option<Given<u8>>,
    /// Bytes of each access; or several sizes with their shares, like `4KiB:60/8KiB:40`.
    pub access: Option<Given<String>>,
    /// Where random accesses begin: `request` (multiples of their own size) or `sector` (of 512).
    pub align: Option<Align>,
    /// What accesses do: `data` (read and write), or `names` (look at a file's name; make one and
    /// remove it).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of: Option<OfPart>,
    /// Bytes of one file that are read, or written, before the next is drawn; those of reads and of
    /// writes like `40MiB/8KiB`. The share that reads is then of operations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum OfPart {
    Data,
    Names,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Align {
    Request,
    Sector,
}

#[derive(Clone, PartialEq, Default, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct TimePart {
    pub warm_up: Option<String>,
    pub round: Option<String>,
    /// Measured at least.
    pub least: Option<String>,
    /// Measured at most, where it does not become steady.
    pub most: Option<String>,
    /// A target that answers nothing for so long has failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patience: Option<String>,
}

#[derive(Clone, PartialEq, Default, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ContentPart {
    pub compress: Option<f64>,
    pub dedupe: Option<f64>,
    #[serde(default)]
    pub verify: bool,
    pub seed: Option<u64>,
}

/// Rounds of a measurement that is short.
const ROUNDS_LEAST: u64 = 10;
/// Of any time in a job: eleven years, so that sums and tens of it can be counted.
const LONGEST: Duration = Duration(100_000 * 3_600_000_000_000);
/// Cells of a job.
pub const CELLS_MAX: u64 = 100_000;

/// Values that differ between cells, by name.
pub type Axes = Vec<(String, String)>;

/// One combination of a job's values.
#[derive(Clone, PartialEq, Debug)]
pub struct JobCell {
    pub axes: Axes,
    pub setup: Setup,
    pub goal: Option<Goal>,
    /// What its accesses are to keep.
    pub objective: Option<Objective>,
    /// Times that the working set is written before.
    pub precondition: Option<u32>,
    /// The target is reached through the page cache.
    pub buffered: bool,
}

impl JobCell {
    /// What tells it from the others; the workload where nothing does.
    pub fn name(&self) -> String {
        match self.axes.is_empty() {
            true => self.setup.spec.name.clone(),
            false => self.axes.iter().map(|(name, value)| format!("{name} {value}")).collect::<Vec<_>>().join(", "),
        }
    }

    /// Its accesses start by a clock: what is under way at the end is waited for beyond its time.
    pub fn is_open(&self) -> bool {
        self.goal.map_or(!matches!(self.setup.load, Load::Outstanding(_)), |goal| goal.of_rates)
    }

    /// The least and the most time it takes.
    pub fn expected(&self) -> (Duration, Duration) {
        let timing = self.setup.timing;
        let with_warm_up = |time: Duration| timing.warm_up.0.saturating_add(time.0);
        let (least, most) = (with_warm_up(timing.least), with_warm_up(timing.most));
        match self.goal {
            None => (Duration(least), Duration(most)),
            Some(goal) => (Duration(least.saturating_mul(3)), Duration(most.saturating_mul(goal.probes_max as u64))),
        }
    }
}

fn bad(what: &str, value: impl fmt::Display, like: &str) -> LabError {
    LabError::Usage(format!("{what} = {value}: {like}"))
}

/// `500us`, `20ms`, `1.5s`, `2m`, `1h`.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let text = text.trim();
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let number: f64 = text[..split].parse().ok()?;
    let scale = match text[split..].trim() {
        "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "m" | "min" => 60e9,
        "h" => 3600e9,
        _ => return None,
    };
    let nanoseconds = number * scale;
    (nanoseconds.is_finite() && nanoseconds < u64::MAX as f64).then_some(Duration(nanoseconds as u64))
}

/// The length of rounds where none is stated: a second, or a tenth of a shorter measurement, and
/// such that they fill it.
fn round_of(least: Duration) -> Duration {
    let count = (least.0 / 1_000_000_000).max(ROUNDS_LEAST);
    Duration(least.0.div_ceil(count).max(1_000_000))
}

fn duration(what: &str, text: &Option<String>, default: Duration) -> Result<Duration, LabError> {
    let Some(text) = text else { return Ok(default) };
    match parse_duration(text) {
        None => Err(bad(what, text, "say it like 500us, 20ms, 1.5s, 2m or 1h")),
        Some(found) if found > LONGEST => Err(bad(what, text, "at most 100000h")),
        Some(found) => Ok(found),
    }
}

impl Job {
    /// From a file's text; an unknown key is an error that names it and its line.
    pub fn parse(text: &str) -> Result<Job, LabError> {
        toml::from_str(text).map_err(|error| LabError::Usage(toml_cause(text, &error)))
    }

    pub fn size(&self) -> Result<Option<Bytes>, LabError> {
        let parse =
            |text: &String| Bytes::parse(text).ok_or_else(|| bad("size", text, "say it like 512, 64KiB or 10GiB"));
        self.size.as_ref().map(parse).transpose()
    }

    fn precondition(&self) -> Result<Option<u32>, LabError> {
        let parse = |text: &String| {
            precondition::parse(text).ok_or_else(|| bad("precondition", text, "say it like 1x or 2x, up to 100x"))
        };
        self.precondition.as_ref().map(parse).transpose()
    }

    pub fn content(&self) -> Result<Content, LabError> {
        let part = &self.content;
        let ratio = |what: &str, ratio: Option<f64>| match ratio.unwrap_or(1.0) {
            ratio if (1.0..=1000.0).contains(&ratio) => Ok((ratio * 100.0).round() as u32),
            ratio => Err(bad(what, ratio, "a ratio from 1 (nothing to gain) to 1000")),
        };
        let content = Content {
            seed: part.seed.unwrap_or(1),
            compress_percent: ratio("content.compress", part.compress)?,
            dedupe_percent: ratio("content.dedupe", part.dedupe)?,
            verify: part.verify,
        };
        if content.verify && content.dedupe_percent > 100 {
            return Err(LabError::Usage(
                "content: duplicates cannot be told from misplaced data; leave verify or dedupe out".into(),
            ));
        }
        Ok(content)
    }

    /// How its target is opened for these cells, of which all or none are buffered, or the first
    /// one counts.
    pub fn opening(&self, cells: &[JobCell], destroy: bool) -> Result<Opening, LabError> {
        let of_cell = |cell: &JobCell| {
            let sector = if cell.setup.alignment == Alignment::Sector { 512 } else { 0 };
            let sector =
                if cell.precondition.is_some() { greatest_common(sector, precondition::LENGTH) } else { sector };
            cell.setup.spec.sizes.iter().fold(sector, |step, (size, _)| greatest_common(step, *size))
        };
        let longest = |cell: &JobCell| {
            cell.setup.spec.length_max().max(if cell.precondition.is_some() { precondition::LENGTH } else { 0 })
        };
        let patience = duration("time.patience", &self.time.patience, PATIENCE)?;
        if patience == Duration(0) {
            return Err(LabError::Usage("time.patience = 0s: more than 0, or every target has failed".into()));
        }
        Ok(Opening {
            size: self.size()?,
            files: self.files.unwrap_or(FILES),
            writes: cells.iter().any(|cell| cell.setup.spec.writes() || cell.precondition.is_some()),
            destroy,
            buffered: cells.first().is_some_and(|cell| cell.buffered),
            content: self.content()?,
            step: cells.iter().fold(0, |step, cell| greatest_common(step, of_cell(cell))),
            longest: cells.iter().map(longest).max().unwrap_or(4096),
            patience,
        })
    }

    /// All cells, in the order in which they run.
    pub fn cells(&self) -> Result<Vec<JobCell>, LabError> {
        if self.replay.is_some() {
            return Err(LabError::Usage("a replay has no cells but its trace".into()));
        }
        if !self.tenant.is_empty() {
            return self.tenants();
        }
        let profile = self.load.profile()?.map(Arc::new);
        let timing = match &profile {
            Some(profile) => self.timing_of(profile)?,
            None => self.timing()?,
        };
        let objective: Option<Objective> = self.objective.as_ref().map(|text| text.parse()).transpose()?;
        if objective.is_some() && self.search.is_some() {
            return Err(LabError::Usage("search.objective says what a search is to keep; leave objective out".into()));
        }
        let content = self.content()?;
        let goal = self.search.as_ref().map(SearchPart::goal).transpose()?;
        let of = self.workload.of()?;
        let precondition = self.precondition()?;
        let pause = self.load.pause()?;
        self.check_count()?;
        let workers = self.load.workers()?;
        let mut cells = Vec::new();
        // The slowest to change: the target is opened anew for it.
        let buffered = self.buffered.values();
        let specs = self.specs()?;
        for (buffered, (mut axes, spec)) in
            buffered.iter().flat_map(|one| specs.iter().cloned().map(move |spec| (*one, spec)))
        {
            let alignment = match self.workload.align {
                Some(Align::Sector) => Alignment::Sector,
                _ => Alignment::Request,
            };
            if self.workload.name.as_ref().is_some_and(|names| names.values().len() > 1) {
                axes.insert(0, ("workload".to_owned(), spec.name.clone()));
            }
            if matches!(self.buffered, Given::Many(_)) {
                axes.insert(0, ("buffered".to_owned(), buffered.to_string()));
            }
            for (load_axes, load) in self.load.of_cells(goal)? {
                for workers in &workers {
                    let mut axes: Vec<_> = axes.iter().chain(&load_axes).cloned().collect();
                    if self.load.workers.as_ref().is_some_and(|all| all.values().len() > 1) {
                        axes.push(("workers".into(), workers.to_string()));
                    }
                    let setup = Setup {
                        spec: spec.clone(),
                        alignment,
                        load,
                        profile: profile.clone(),
                        trace: None,
                        pause,
                        batch: self.load.batch.unwrap_or(1),
                        workers: *workers,
                        timing,
                        content,
                        of,
                        seed: content.seed,
                    };
                    cells.push(JobCell { axes, setup, goal, objective, precondition, buffered });
                }
            }
        }
        if cells.is_empty() {
            return Err(LabError::Usage("a list in the job is empty: there is nothing to run".into()));
        }
        let mut names = std::collections::BTreeSet::new();
        match cells.iter().map(JobCell::name).find(|name| !names.insert(name.clone())) {
            Some(twice) => Err(LabError::Usage(format!(
                "the job has two cells '{twice}', and results are compared by the names of cells: give each value once"
            ))),
            None => Ok(cells),
        }
    }

    /// Lists multiply: a slip of the pen is not to fill the memory.
    fn check_count(&self) -> Result<(), LabError> {
        fn count<T: Clone>(given: &Option<Given<T>>) -> u64 {
            given.as_ref().map_or(1, |given| given.values().len() as u64)
        }
        let (workload, load) = (&self.workload, &self.load);
        let lists = [
            self.buffered.values().len() as u64,
            count(&workload.name),
            count(&workload.read),
            count(&workload.random),
            count(&workload.access),
            count(&load.outstanding),
            count(&load.rate),
            count(&load.rate_bytes),
            count(&load.workers),
        ];
        let cells = lists.into_iter().fold(1, u64::saturating_mul);
        match cells > CELLS_MAX {
            true => Err(LabError::Usage(format!("the lists make {cells} cells; a job has {CELLS_MAX} at most"))),
            false => Ok(()),
        }
    }

    pub fn timing(&self) -> Result<Timing, LabError> {
        let part = &self.time;
        let stated = part.round.as_ref().map(|_| duration("time.round", &part.round, Duration(0))).transpose()?;
        let asked = part.least.as_ref().map(|_| duration("time.least", &part.least, Duration(0))).transpose()?;
        let round = stated.or(asked.map(round_of)).unwrap_or(Duration::from_secs(1));
        if round < Duration::from_millis(1) {
            return Err(bad("time.round", round, "at least 1ms"));
        }
        let least = duration("time.least", &part.least, Duration(round.0 * 10))?;
        if least.0 == 0 {
            return Err(bad("time.least", part.least.as_deref().unwrap_or_default(), "more than 0, at most 100000h"));
        }
        let most = duration("time.most", &part.most, Duration(least.0.saturating_mul(3)))?;
        if most < least {
            return Err(bad("time.most", most, &format!("less than time.least, which is {least}")));
        }
        if stated.is_some_and(|round| round > least) {
            return Err(bad("time.round", round, &format!("longer than the time to measure, which is {least}")));
        }
        let warm_up = duration("time.warm-up", &part.warm_up, Duration(round.0 * 2))?;
        // What is measured is whole rounds: a plan says so before.
        let whole = |time: Duration| Duration(time.0.next_multiple_of(round.0));
        Ok(Timing { warm_up: whole(warm_up), round, least: whole(least), most: whole(most) })
    }

    /// A profile is measured as long as it is, once.
    fn timing_of(&self, profile: &Profile) -> Result<Timing, LabError> {
        if self.search.is_some() || self.time.least.is_some() || self.time.most.is_some() {
            return Err(LabError::Usage(
                "load.profile: its last point says how long it is measured; leave the search, time.least and time.most out".into(),
            ));
        }
        let length = Some(format!("{}ns", profile.length().0));
        Job { time: TimePart { least: length.clone(), most: length, ..self.time.clone() }, ..Job::default() }.timing()
    }

    /// The access specifications, each with the axes that tell it from the others.
    fn specs(&self) -> Result<Vec<(Axes, AccessSpec)>, LabError> {
        let part = &self.workload;
        let own = part.read.is_some() || part.random.is_some() || part.access.is_some();
        match &part.name {
            Some(_) if own => {
                Err(LabError::Usage("workload: a shipped one has its own read, random and access: give either".into()))
            }
            Some(names) => {
                names.values().into_iter().map(|name| shipped(&name).map(|spec| (Vec::new(), spec))).collect()
            }
            None => {
                let percent = |what: &str, values: &Option<Given<u8>>| -> Result<Vec<u8>, LabError> {
                    let values = values.as_ref().map_or(vec![100], Given::values);
                    match values.iter().find(|value| **value > 100) {
                        Some(value) => Err(bad(what, value, "a percentage is at most 100")),
                        None => Ok(values),
                    }
                };
                let (reads, randoms) =
                    (percent("workload.read", &part.read)?, percent("workload.random", &part.random)?);
                let accesses = part.access.as_ref().map_or(vec!["4KiB".to_owned()], Given::values);
                let mut specs = Vec::new();
                for read in &reads {
                    for random in &randoms {
                        for access in &accesses {
                            let sizes = sizes_of(access)?;
                            let said = match sizes.as_slice() {
                                [(bytes, _)] => Bytes(*bytes).to_string(),
                                many => {
                                    let parts = many.iter().map(|(bytes, share)| format!("{}:{share}", Bytes(*bytes)));
                                    parts.collect::<Vec<_>>().join("/")
                                }
                            };
                            let mut axes = Vec::new();
                            let mut axis = |name: &str, many: bool, value: String| {
                                if many {
                                    axes.push((name.to_owned(), value));
                                }
                            };
                            axis("read", reads.len() > 1, format!("{read} %"));
                            axis("random", randoms.len() > 1, format!("{random} %"));
                            axis("access", accesses.len() > 1, said.clone());
                            let name = format!("{read} % read, {random} % random, {said}");
                            let spec = AccessSpec { name, random: Some(*random), read: Some(*read), sizes };
                            specs.push((axes, spec));
                        }
                    }
                }
                Ok(specs)
            }
        }
    }
}

impl WorkloadPart {
    fn of(&self) -> Result<Of, LabError> {
        let operation = |text: &String| {
            let (read, write) = text.split_once('/').unwrap_or((text, text));
            let bytes = |text: &str| Bytes::parse(text.trim()).map(|bytes| bytes.0).filter(|bytes| *bytes > 0);
            let operation = bytes(read).zip(bytes(write)).map(|(read, write)| Operation { read, write });
            operation
                .ok_or_else(|| bad("workload.operation", text, "say it like 40MiB, or 40MiB/8KiB for reads and writes"))
        };
        match (self.of, &self.operation) {
            (Some(OfPart::Names), Some(_)) => {
                Err(LabError::Usage("workload: operations are of data, not of names: give either".into()))
            }
            (Some(OfPart::Names), None) => Ok(Of::Names),
            (_, Some(text)) => operation(text).map(Of::Operations),
            (_, None) => Ok(Of::Data),
        }
    }
}

/// `4KiB`, or sizes with the percent of accesses that have them: `4KiB:60/8KiB:40`.
fn sizes_of(text: &str) -> Result<Vec<(u64, u8)>, LabError> {
    const LIKE: &str =
        "say it like 512 or 64KiB, up to 1GiB, or with shares that come to 100 percent like 4KiB:60/8KiB:40";
    let parts: Option<Vec<(u64, u8)>> = text
        .split('/')
        .map(|part| {
            let (size, share) = part.split_once(':').unwrap_or((part, "100"));
            let size = Bytes::parse(size.trim()).filter(|bytes| (1..=1 << 30).contains(&bytes.0))?;
            Some((size.0, share.trim().parse().ok()?))
        })
        .collect();
    let whole = |parts: &Vec<(u64, u8)>| parts.iter().map(|part| u32::from(part.1)).sum::<u32>() == 100;
    parts.filter(whole).ok_or_else(|| bad("workload.access", text, LIKE))
}

fn shipped(name: &str) -> Result<AccessSpec, LabError> {
    workload::named(name).ok_or_else(|| {
        LabError::Missing(format!("workload '{name}': there is none of that name; `stele lab workloads` lists them"))
    })
}

pub(crate) fn greatest_common(one: u64, other: u64) -> u64 {
    if other == 0 { one } else { greatest_common(other, one % other) }
}

pub fn processors() -> u32 {
    std::thread::available_parallelism().map_or(1, usize::from) as u32
}

#[cfg(test)]
mod tests;
