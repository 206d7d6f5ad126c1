//! A replay from its job to its record.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use stele_ground::{Bytes, Duration};

use super::formats::{BEGINNING, Format, Reader};
use super::{Map, Mapping, Ordered, Replay, ReplayPart, ReplayRecord, Survey};
use crate::error::LabError;
use crate::job::{Given, Job, processors};
use crate::live::run::{Load, Of, Setup, Timing, run_kept};
use crate::live::target::{Opening, Ready};
use crate::objective::{Objective, ObjectiveRecord};
use crate::record::{BILLIONTHS, CellRecord, RunRecord, rounded};
use crate::sweep::{SweepWatch, told_as_steps};
use crate::workload::{AccessSpec, Alignment};

/// Files of one trace.
const FILES_MAX: usize = 1024;
/// Rounds of a trace that is short, and the length of all others.
const ROUNDS: u64 = 10;
const ROUND: Duration = Duration(1_000_000_000);
const ROUND_LEAST: Duration = Duration(10_000_000);

type Source = Ordered<BufReader<File>>;

/// A trace that was looked at.
#[derive(Clone, Debug)]
pub struct ReplayPlan {
    part: ReplayPart,
    pub format: Format,
    pub survey: Survey,
    /// None: as fast as it goes.
    pub speed: Option<f64>,
    issued: bool,
    objective: Option<Objective>,
}

/// Looks at all of a job's trace.
pub fn planned(job: &Job) -> Result<ReplayPlan, LabError> {
    let Some(part) = job.replay.clone() else { return Err(LabError::Usage("the job has no [replay]".into())) };
    if !job.tenant.is_empty() || job.search.is_some() || job.precondition.is_some() || job.modelled.is_some() {
        return Err(LabError::Usage("a replay is one run: leave tenant, search, precondition and virtual out".into()));
    }
    if job.workload != Default::default() || job.content.verify || matches!(job.buffered, Given::Many(_)) {
        return Err(LabError::Usage(
            "a trace says what is read and written: leave workload, content.verify and lists of buffered out".into(),
        ));
    }
    let speed = part.speed()?;
    let (load, outstanding) = (&job.load, job.load.outstanding.is_some());
    if load.rate.is_some()
        || load.rate_bytes.is_some()
        || load.profile.is_some()
        || load.pause.is_some()
        || (outstanding && speed.is_some())
    {
        return Err(LabError::Usage(
            "a trace says when accesses start: leave all of load but workers out, and outstanding where replay.speed is not 0".into(),
        ));
    }
    if part.trace.is_empty() || part.trace.len() > FILES_MAX {
        return Err(LabError::Usage(format!(
            "replay.trace: one trace has 1 to {FILES_MAX} files, and {} were named",
            part.trace.len()
        )));
    }
    let objective = job.objective.as_ref().map(|text| text.parse()).transpose()?;
    let format = match part.format {
        Some(format) => format,
        None => format_of(part.trace.first().map_or(Path::new(""), |first| first.as_path()))?,
    };
    let device = part.device.as_deref();
    let mut issued = false;
    let mut survey = Survey::of(&mut opened(&part, format, issued)?, device)?;
    if survey.accesses() == 0 && format == Format::Blktrace {
        // A trace may hold only what went to the drive.
        issued = true;
        survey = Survey::of(&mut opened(&part, format, issued)?, device)?;
    }
    if survey.accesses() == 0 {
        let known: Vec<&str> = survey.devices.iter().map(|device| device.name.as_str()).collect();
        return Err(LabError::Usage(match device {
            Some(device) => {
                format!("the trace has no access of device '{device}'; its devices are {}", known.join(", "))
            }
            None => "the trace has no access that reads or writes".to_owned(),
        }));
    }
    Ok(ReplayPlan { part, format, survey, speed, issued, objective })
}

fn format_of(path: &Path) -> Result<Format, LabError> {
    let mut beginning = Vec::new();
    let cannot = |error: std::io::Error| LabError::of(&error, "cannot be read", path);
    open(path)?.take(BEGINNING as u64).read_to_end(&mut beginning).map_err(cannot)?;
    Format::of(&beginning).ok_or_else(|| {
        LabError::Usage(format!("{}: looks like no trace that is known; name its format with --format", path.display()))
    })
}

/// A regular file: others may have no end.
fn open(path: &Path) -> Result<File, LabError> {
    let cannot = |error: std::io::Error| LabError::of(&error, "cannot be read", path);
    match std::fs::metadata(path).map_err(cannot)?.is_file() {
        true => File::open(path).map_err(cannot),
        false => Err(LabError::Usage(format!("{}: is no file", path.display()))),
    }
}

fn opened(part: &ReplayPart, format: Format, issued: bool) -> Result<Source, LabError> {
    let reader = |path: &std::path::PathBuf| -> Result<Reader<BufReader<File>>, LabError> {
        let bytes = BufReader::with_capacity(1 << 18, open(path)?);
        Ok(Reader::new(path.display().to_string(), format, issued, bytes))
    };
    Ok(Ordered::of(part.trace.iter().map(reader).collect::<Result<Vec<_>, _>>()?))
}

impl ReplayPlan {
    /// How the target is opened. Blocks of the target may make accesses longer.
    pub fn opening(&self, job: &Job, destroy: bool) -> Result<Opening, LabError> {
        let step = if self.part.fit == super::Fit::Round { 4096 } else { self.survey.step.max(1) };
        let buffered = job.buffered.values().first().copied().unwrap_or(false);
        let opening = Job { workload: Default::default(), replay: None, ..job.clone() }.opening(&[], destroy)?;
        Ok(Opening {
            writes: self.survey.writes > 0,
            buffered,
            step,
            longest: self.survey.longest.next_multiple_of(4096) + 4096,
            ..opening
        })
    }

    /// How long it is to take; none: as long as the target takes.
    pub fn length(&self) -> Option<Duration> {
        self.speed.map(|speed| Duration((self.survey.seconds() * 1e9 / speed) as u64))
    }

    /// Where its accesses go on a target.
    pub fn mapping(&self, size: Bytes, block: Bytes) -> Result<Mapping, LabError> {
        Mapping::new(&self.survey, size, block, self.part.map, self.part.fit)
    }

    pub fn map(&self) -> Map {
        self.part.map
    }

    fn setup(&self, job: &Job, ready: &Ready, replay: Replay) -> Result<Setup, LabError> {
        let survey = &self.survey;
        let own = job.time.round.as_ref().map(|_| job.timing().map(|timing| timing.round)).transpose()?;
        let tenth = self.length().map_or(ROUND, |length| Duration(length.0 / ROUNDS).max(ROUND_LEAST).min(ROUND));
        let forever = Duration(u64::MAX / 4);
        let block = ready.block.0.max(1);
        let read = (survey.reads * 100 / survey.accesses().max(1)) as u8;
        let mean = survey.accesses() as f64 / self.length().map_or(1.0, |length| length.as_secs_f64()).max(1e-3);
        let one = |given: Option<&Given<u32>>| given.and_then(|given| given.values().first().copied());
        let outstanding = one(job.load.outstanding.as_ref()).unwrap_or(32);
        Ok(Setup {
            spec: AccessSpec {
                name: "replay".into(),
                random: None,
                read: Some(if survey.writes == 0 { 100 } else { read.min(99) }),
                // Made longer at both ends.
                sizes: vec![(survey.longest.next_multiple_of(block) + block, 100)],
            },
            alignment: Alignment::Request,
            load: match self.speed {
                Some(_) => Load::Rate { each_second: mean, random: false },
                None => Load::Outstanding(outstanding),
            },
            profile: None,
            trace: Some(Arc::new(replay)),
            pause: None,
            batch: job.load.batch.unwrap_or(1),
            workers: job.load.workers()?.first().copied().unwrap_or_else(processors),
            timing: Timing { warm_up: Duration(0), round: own.unwrap_or(tenth), least: forever, most: forever },
            content: job.content()?,
            of: Of::Data,
            seed: job.content()?.seed,
        })
    }

    fn record(&self, mapping: &Mapping) -> Result<ReplayRecord, LabError> {
        // Read once more: what is moved depends on the target.
        let mut moved = 0;
        if mapping.may_move() {
            let mut trace = opened(&self.part, self.format, self.issued)?;
            while let Some(record) = trace.take()? {
                moved += u64::from(!mapping.leaves_out(&record) && mapping.moves(&record));
            }
        }
        let survey = &self.survey;
        Ok(ReplayRecord {
            format: self.format.name().to_owned(),
            seconds: rounded(survey.seconds(), BILLIONTHS),
            speed: self.speed,
            accesses: survey.accesses(),
            moved,
            left_out: survey.left_out.clone(),
            disordered: survey.disordered,
            devices: survey.devices.iter().map(|device| (device.name.clone(), device.reach)).collect(),
        })
    }
}

/// Carries it out. None: it was stopped before a round was over.
pub fn ran(
    job: &Job,
    planned: &ReplayPlan,
    ready: &Ready,
    end: &AtomicBool,
    watch: SweepWatch<'_>,
) -> Result<Option<CellRecord>, LabError> {
    let mapping = planned.mapping(ready.size, ready.block)?;
    let record = planned.record(&mapping)?;
    let source = opened(&planned.part, planned.format, planned.issued)?;
    let replay = Replay::of(source, &planned.survey, mapping, planned.speed);
    let setup = planned.setup(job, ready, replay)?;
    let load = setup.load;
    let (found, failed) = run_kept(ready, &setup, end, &mut told_as_steps(0, load, watch))?;
    if found.rounds.is_empty() {
        return failed.map_or(Ok(None), Err);
    }
    let run = RunRecord { replay: Some(record), ..RunRecord::of(&found) };
    let name = planned
        .part
        .trace
        .first()
        .and_then(|path| path.file_name())
        .map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    Ok(Some(CellRecord {
        name: format!("replay of {name}"),
        objective: planned.objective.map(|objective| ObjectiveRecord::of(objective, &run)),
        failed: failed.map(|error| error.to_string()),
        ..CellRecord::of_replay(run)
    }))
}
