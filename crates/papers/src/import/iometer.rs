//! Iometer's configuration (`.icf`): a job for each access specification assigned to a worker, in
//! their order. If none is assigned, a job for each specification.
//!
//! Iometer's outstanding accesses are for each worker and each of its targets; here the sum is
//! outstanding. In Iometer each line of a specification has its own share of reads and of random
//! accesses; here all lines must agree. A worker that has started a burst waits for its transfer
//! delay before the next, while accesses under way continue. Two features are missing here: replies
//! of network workers, and alignments other than the sector and the access's own size.

use super::{Complaints, Imported};
use stele_lab::error::LabError;
use stele_lab::job::{Align, Given, Job, When};

/// Headings whose values only concern display, storage or processes of Iometer.
const WITHOUT_EFFECT: &[&str] = &[
    "test description",
    "default disk workers to spawn",
    "default network workers to spawn",
    "record results",
    "worker cycling",
    "start",
    "disk cycling",
    "record last update results",
    "bar chart",
    "manager id",
    "manager network address",
    "worker type",
    "use fixed seed",
    "hours",
];

#[derive(Default)]
struct Spec {
    line: usize,
    name: String,
    /// Bytes, share, reads, random, align, and the number of the line.
    lines: Vec<(u64, u64, u64, u64, u64, usize)>,
    /// Milliseconds between bursts and accesses of a burst, for each line.
    bursts: Vec<(u64, u64)>,
    default: String,
}

#[derive(Default)]
struct Setup {
    seconds: u64,
    ramp: u64,
    cycles: Option<(u32, u32, u32, bool)>,
    cycling: bool,
}

#[derive(Default)]
struct WorkerPart {
    disk: bool,
    outstanding: u32,
    sectors: u64,
    specs: Vec<String>,
    targets: Vec<String>,
}

pub fn iometer(text: &str, lenient: bool) -> Result<Vec<Imported>, LabError> {
    let mut complaints = Complaints::new(lenient);
    let (mut setup, mut specs, mut workers) = (Setup::default(), Vec::<Spec>::new(), Vec::<WorkerPart>::new());
    let (mut section, mut heading) = (String::new(), String::new());
    for (at, raw) in text.lines().enumerate() {
        let (number, line) = (at + 1, raw.trim());
        if let Some(said) = line.strip_prefix('\'') {
            let said = said.trim().trim_end_matches('=').trim().to_ascii_lowercase();
            match said.as_str() {
                "test setup" | "results display" | "access specifications" | "manager list" => section = said,
                // Titles of columns stand below their heading.
                _ if said.starts_with("end ") => heading.clear(),
                _ => heading = said,
            }
            if heading == "worker" {
                workers.push(WorkerPart::default());
                heading = "name of the worker".into();
            }
            continue;
        }
        if line.is_empty() || line.starts_with("Version") || section == "results display" {
            continue;
        }
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        let bad = |what: &str| LabError::Usage(format!("line {number}: {line}: {what}"));
        let field = |at: usize| -> Result<u64, LabError> {
            let value = fields.get(at).and_then(|field| field.parse().ok());
            value.ok_or_else(|| bad(&format!("value {} has to be a whole number", at + 1)))
        };
        match (section.as_str(), heading.as_str()) {
            ("test setup", "run time") => {}
            ("test setup", heading) if heading.starts_with("hours") => {
                let words: Vec<u64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
                let [hours, minutes, seconds] = words.as_slice() else {
                    return Err(bad("hours, minutes and seconds are needed"));
                };
                let sum = hours.checked_mul(3600).zip(minutes.checked_mul(60));
                let sum = sum.and_then(|(hours, minutes)| hours.checked_add(minutes)?.checked_add(*seconds));
                setup.seconds = sum.ok_or_else(|| bad("that is too long"))?;
            }
            ("test setup", "ramp up time (s)") => setup.ramp = field(0)?,
            ("test setup", heading) if heading.starts_with("start") && heading.contains("end") => {
                let words: Vec<&str> = line.split_whitespace().collect();
                let [start, end, step, kind] = words.as_slice() else {
                    return Err(bad("start, end, step and its type are needed"));
                };
                let whole = |word: &str| word.parse::<u32>().map_err(|_| bad("whole numbers are needed"));
                setup.cycles = Some((whole(start)?, whole(end)?, whole(step)?, *kind == "EXPONENTIAL"));
            }
            ("test setup", "test type") => match line {
                "NORMAL" => {}
                "CYCLE_OUTSTANDING_IOS" => setup.cycling = true,
                _ => complaints.lost(number, &format!("'Test Type {line} has no counterpart"))?,
            },
            ("access specifications", heading) if heading.starts_with("access specification name") => {
                let (name, default) = line.rsplit_once(',').unwrap_or((line, "NONE"));
                let (name, default) = (name.trim().to_owned(), default.trim().to_owned());
                specs.push(Spec { line: number, name, default, ..Spec::default() });
            }
            ("access specifications", heading) if heading.starts_with("size") => {
                let values = (0..8).map(field).collect::<Result<Vec<u64>, LabError>>()?;
                let [bytes, share, read, random, delay, burst, align, reply] = values.as_slice() else {
                    return Err(bad("eight values are needed"));
                };
                if *reply > 0 {
                    complaints.lost(number, "replies are of network workers, which are not known here")?;
                }
                if ![0, *bytes].contains(align) {
                    complaints.lost(
                        number,
                        &format!("an alignment of {align} bytes is not known here; 0 and the access's own size are"),
                    )?;
                }
                let Some(spec) = specs.last_mut() else { return Err(bad("it belongs to no access specification")) };
                spec.lines.push((*bytes, *share, *read, *random, *align, number));
                spec.bursts.push((*delay, *burst));
            }
            ("manager list", "name of the worker") => {}
            ("manager list", heading) => {
                let Some(worker) = workers.last_mut() else {
                    if !WITHOUT_EFFECT.iter().any(|known| heading.starts_with(known)) {
                        complaints.lost(number, &format!("'{heading} is not known here"))?;
                    }
                    continue;
                };
                match heading {
                    "worker type" => {
                        worker.disk = line == "DISK";
                        if !worker.disk {
                            complaints.lost(number, &format!("a worker of type {line} is not known here"))?;
                        }
                    }
                    heading if heading.starts_with("number of outstanding ios") => {
                        worker.outstanding = field(0)?.min(1 << 20) as u32
                    }
                    heading if heading.starts_with("disk maximum size") => {
                        worker.sectors = field(0)?;
                        if field(1)? > 0 {
                            complaints.lost(number, "a first sector other than 0 is not known here")?;
                        }
                    }
                    "assigned access specs" => worker.specs.push(line.to_owned()),
                    "target" => worker.targets.push(line.to_owned()),
                    "target type" | "target assignments" | "default target settings for worker" => {}
                    heading if WITHOUT_EFFECT.iter().any(|known| heading.starts_with(known)) => {}
                    heading => complaints.lost(number, &format!("'{heading} is not known here"))?,
                }
            }
            ("test setup", heading) if WITHOUT_EFFECT.iter().any(|known| heading.starts_with(known)) => {}
            ("test setup", "queue depth cycling") => {}
            (section, heading) => {
                complaints.lost(number, &format!("'{heading} of the section '{section}' is not known here"))?
            }
        }
    }
    jobs(&setup, &specs, &workers, complaints)
}

fn jobs(
    setup: &Setup,
    specs: &[Spec],
    workers: &[WorkerPart],
    mut complaints: Complaints,
) -> Result<Vec<Imported>, LabError> {
    let workers: Vec<&WorkerPart> = workers.iter().filter(|worker| worker.disk).collect();
    let assigned = |spec: &&Spec| workers.iter().any(|worker| worker.specs.contains(&spec.name));
    let mut chosen: Vec<&Spec> = specs.iter().filter(assigned).collect();
    if chosen.is_empty() {
        chosen = specs.iter().filter(|spec| spec.default != "NONE").collect();
    }
    if chosen.is_empty() {
        chosen = specs.iter().collect();
    }
    for name in workers.iter().flat_map(|worker| &worker.specs) {
        if !specs.iter().any(|spec| spec.name == *name) {
            return Err(LabError::Usage(format!("a worker is assigned '{name}', which the file does not have")));
        }
    }
    let mut places: Vec<&str> = workers.iter().flat_map(|worker| &worker.targets).map(String::as_str).collect();
    places.sort_unstable();
    places.dedup();
    let on = match places.as_slice() {
        [only] if only.starts_with('/') => Some((*only).to_owned()),
        [] => None,
        _ => {
            complaints
                .warnings
                .push(format!("its targets ({}) are named by Iometer: name one with --on", places.join(", ")));
            None
        }
    };
    let of_one = |worker: &&WorkerPart| u64::from(worker.outstanding.max(1)) * worker.targets.len().max(1) as u64;
    let outstanding: u64 = workers.iter().map(of_one).sum::<u64>().max(1);
    let copies: u64 = workers.iter().map(|worker| worker.targets.len().max(1) as u64).sum::<u64>().max(1);
    let warnings = |complaints: &Complaints| complaints.warnings.clone();
    let mut found = Vec::new();
    for spec in chosen {
        let mut job = Job { on: on.clone(), ..Job::default() };
        add_spec(&mut job, spec, &mut complaints)?;
        job.load.outstanding = Some(match setup.cycles.filter(|_| setup.cycling) {
            Some(cycle) => depths(cycle, copies)?,
            None => Given::One(u32::try_from(outstanding).unwrap_or(u32::MAX)),
        });
        if !workers.is_empty() {
            job.load.workers = Some(Given::One(workers.len() as u32));
        }
        if let Some(sectors) = workers.iter().map(|worker| worker.sectors).max().filter(|sectors| *sectors > 0) {
            job.size = Some(sectors.saturating_mul(512).to_string());
        }
        if setup.seconds > 0 {
            let text = format!("{}s", setup.seconds);
            (job.time.least, job.time.most) = (Some(text.clone()), Some(text));
        }
        job.time.warm_up = Some(format!("{}s", setup.ramp));
        found.push(Imported { name: spec.name.clone(), job, warnings: warnings(&complaints) });
    }
    match found.is_empty() {
        true => Err(LabError::Usage("the file has no access specification".into())),
        false => Ok(found),
    }
}

fn add_spec(job: &mut Job, spec: &Spec, complaints: &mut Complaints) -> Result<(), LabError> {
    let Some((_, _, read, random, align, _)) = spec.lines.first().copied() else {
        return Err(LabError::Usage(format!(
            "line {}: the access specification '{}' has no line",
            spec.line, spec.name
        )));
    };
    let sector = align == 0;
    for (bytes, _, other_read, other_random, other_align, number) in &spec.lines {
        if (*other_read, *other_random) != (read, random) || (*other_align == 0) != sector {
            let why = format!(
                "accesses of {bytes} bytes have other shares of reads or random ones, or another alignment, than the first of '{}': \
                 one of each is known here, and the first one's counts",
                spec.name
            );
            complaints.lost(*number, &why)?;
        }
    }
    let percent = |what: &str, value: u64| {
        let value = u8::try_from(value).ok().filter(|value| *value <= 100);
        value.ok_or_else(|| {
            LabError::Usage(format!("line {}: '{}': {what} are more than 100 percent", spec.line, spec.name))
        })
    };
    job.workload.read = Some(Given::One(percent("reads", read)?));
    job.workload.random = Some(Given::One(percent("random accesses", random)?));
    job.workload.align = Some(if sector { Align::Sector } else { Align::Request });
    add_bursts(job, spec, complaints)?;
    let said: Vec<String> = spec.lines.iter().map(|line| format!("{}:{}", line.0, line.1)).collect();
    job.workload.access = Some(Given::One(said.join("/")));
    // The shares must add up to 100.
    job.cells().map(drop).map_err(|error| LabError::Usage(format!("line {}: '{}': {error}", spec.line, spec.name)))
}

/// Each worker starts a burst and then pauses for the delay, while accesses under way continue.
/// Without a delay there are no bursts.
fn add_bursts(job: &mut Job, spec: &Spec, complaints: &mut Complaints) -> Result<(), LabError> {
    let Some((delay, burst)) = spec.bursts.first().copied() else { return Ok(()) };
    for (other, line) in spec.bursts.iter().zip(&spec.lines) {
        // Iometer draws the line for each burst, while the job draws the size for each access.
        if *other != (delay, burst) || (spec.lines.len() > 1 && other.0 > 0 && other.1 > 1) {
            let why = format!(
                "a delay of {} ms between bursts of {} accesses: one delay for the whole of '{}', and one size where bursts have several \
                 accesses, are known here",
                other.0, other.1, spec.name
            );
            return complaints.lost(line.5, &why);
        }
    }
    if delay > 0 {
        job.load.pause = Some(format!("{delay}ms"));
        job.load.burst = Some(u32::try_from(burst.max(1)).unwrap_or(u32::MAX));
        job.load.pause_when = Some(When::Overlapping);
    }
    Ok(())
}

fn depths((start, end, step, doubling): (u32, u32, u32, bool), copies: u64) -> Result<Given<u32>, LabError> {
    const STEPS_MAX: usize = 1000;
    let (mut depth, mut depths) = (u64::from(start.max(1)), Vec::new());
    while depth <= u64::from(end) && depths.len() < STEPS_MAX {
        depths.push(u32::try_from(depth * copies).unwrap_or(u32::MAX));
        depth = if doubling { depth * u64::from(step.max(2)) } else { depth + u64::from(step.max(1)) };
    }
    match depths.is_empty() {
        true => Err(LabError::Usage(format!("queue depths from {start} to {end} are none"))),
        false => Ok(Given::Many(depths)),
    }
}

#[cfg(test)]
mod tests;
