//! A job from a file, with the options that take precedence over it.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use stele_ground::Bytes;
use stele_ground::calendar::stamp;
use stele_lab::error::LabError;
use stele_lab::job::{Given, Job, OfPart, SearchPart};
use stele_lab::live::target::Target;
use stele_server::failure::{Failure, Outcome};

use crate::cli::lab::{LoadArgs, Search, What};

/// A single value is no axis of a table.
fn given<T: Clone>(values: &[T]) -> Option<Given<T>> {
    match values {
        [] => None,
        [one] => Some(Given::One(one.clone())),
        many => Some(Given::Many(many.to_vec())),
    }
}

/// In a directory, the starting time names the result file, so that names sort by time.
pub fn kept_in_directory(what: What) -> Outcome<What> {
    let out = in_directory(what.out.clone(), what.resume)?;
    Ok(What { out, ..what })
}

/// The file inside the directory, if `out` names a directory.
pub fn in_directory(out: Option<PathBuf>, resume: bool) -> Outcome<Option<PathBuf>> {
    let is_missing = |out: &&PathBuf| out.as_os_str().as_encoded_bytes().ends_with(b"/") && !out.exists();
    if let Some(missing) = out.as_ref().filter(is_missing) {
        return Err(Failure::missing(format!("{}: there is no such directory", missing.display()))
            .next("make it first, as with mkdir; without the / it is the name of a file"));
    }
    let Some(directory) = out.as_ref().filter(|out| out.is_dir()) else { return Ok(out) };
    if resume {
        return Err(Failure::usage(format!("{}: is a directory", directory.display()))
            .next("name the .lab file in it that is to go on"));
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let name = stamp(now);
    Ok(Some(directory.join(format!("{name}.lab"))))
}

/// Bytes of a job at most: another file may be as large as a drive.
const JOB_MAX: u64 = 16 << 20;

/// The text of a job file, of whichever tool.
pub fn text_of(path: &Path) -> Outcome<String> {
    let cannot = |error: io::Error| LabError::of(&error, "cannot be read", path);
    let mut bytes = Vec::new();
    File::open(path).map_err(cannot)?.take(JOB_MAX + 1).read_to_end(&mut bytes).map_err(cannot)?;
    if bytes.len() as u64 > JOB_MAX {
        let most = Bytes(JOB_MAX);
        return Err(Failure::usage(format!("{}: is longer than {most}, and so no job", path.display())));
    }
    String::from_utf8(bytes).map_err(|_| Failure::usage(format!("{}: is no text, and so no job", path.display())))
}

pub fn job_of(what: &What) -> Outcome<Job> {
    let mut job = match &what.job {
        None => Job::default(),
        Some(path) => {
            let text = text_of(path)?;
            Job::parse(&text).map_err(|error| Failure::usage(format!("{}: {error}", path.display())))?
        }
    };
    fn set<T: Clone>(place: &mut Option<T>, value: Option<T>) {
        if value.is_some() {
            *place = value;
        }
    }
    if let Some(words) = &what.modelled {
        job.modelled.get_or_insert_default().set(words)?;
    }
    set(&mut job.on, what.on.clone());
    if let (Some(ca), Some(on)) = (&what.ca, &mut job.on) {
        *on = on.parse::<Target>()?.trusting(ca)?.to_string();
    }
    set(&mut job.size, what.size.clone());
    set(&mut job.precondition, what.precondition.clone());
    if let Some(buffered) = given(&what.buffered) {
        job.buffered = buffered;
    }
    if !what.workload.is_empty() {
        (job.workload.read, job.workload.random, job.workload.access) = (None, None, None);
    }
    if !(what.read.is_empty() && what.random.is_empty() && what.access.is_empty()) {
        job.workload.name = None;
    }
    set(&mut job.workload.name, given(&what.workload));
    set(&mut job.workload.read, given(&what.read));
    set(&mut job.workload.random, given(&what.random));
    set(&mut job.workload.access, given(&what.access));
    set(&mut job.workload.align, what.align.map(Into::into));
    set(&mut job.load.workers, given(&what.workers));
    set(&mut job.load.batch, what.batch);
    set(&mut job.time.least, what.time.clone().or(what.least.clone()));
    set(&mut job.time.most, what.time.clone().or(what.most.clone()));
    set(&mut job.time.warm_up, what.warm_up.clone());
    set(&mut job.time.round, what.round.clone());
    set(&mut job.time.patience, what.patience.clone());
    set(&mut job.files, what.files);
    set(&mut job.workload.of, what.names.then_some(OfPart::Names));
    set(&mut job.content.compress, what.compress);
    set(&mut job.content.dedupe, what.dedupe);
    set(&mut job.content.seed, what.seed);
    job.content.verify |= what.verify;
    // Every read there would count as damage.
    if job.content.verify && job.on.as_deref() == Some("null") {
        return Err(Failure::usage("null: keeps nothing, so no data can be checked").next("leave --verify out"));
    }
    Ok(job)
}

pub fn add_load(job: &mut Job, load: LoadArgs) {
    let part = &mut job.load;
    if !(load.outstanding.is_empty() && load.rate.is_empty() && load.rate_bytes.is_empty() && load.profile.is_empty()) {
        part.outstanding = given(&load.outstanding);
        part.profile = (!load.profile.is_empty()).then_some(load.profile);
        (part.rate, part.rate_bytes) = (given(&load.rate), given(&load.rate_bytes));
    }
    part.speed = load.speed.or(part.speed);
    part.arrivals = load.arrivals.map(Into::into).or(part.arrivals);
    part.pause = load.pause.or(part.pause.take());
    part.burst = load.burst.or(part.burst);
    part.pause_when = load.pause_when.map(Into::into).or(part.pause_when);
    job.objective = load.objective.or(job.objective.take());
}

pub fn add_search(job: &mut Job, search: &Search) {
    if let Some(outstanding) = search.outstanding {
        job.load.outstanding = Some(Given::One(outstanding));
    }
    job.load.rate = search.rate.map(Given::One).or(job.load.rate.take());
    job.load.arrivals = search.arrivals.map(Into::into).or(job.load.arrivals);
    job.search = Some(SearchPart {
        response: search.response.clone(),
        percentile: search.percentile,
        outstanding_max: search.outstanding_max,
        objective: search.objective.clone(),
        rate_max: search.rate_max,
    });
}
