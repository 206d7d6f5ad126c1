//! The part of a recipe on real storage: its cells, and the opening of the targets for each.
//!
//! The cells follow from the job and from the kinds of targets, so that a stopped result can be
//! resumed. A recipe that a target cannot carry out is refused before any target is opened.

use std::fs::File;
use std::ops::Range;
use std::path::Path;

use stele_ground::Bytes;
use stele_media::system;

use super::unknown;
use stele_lab::error::LabError;
use stele_lab::job::{Axes, Job, JobCell, RecipePart};
use stele_lab::live::content::Content;
use stele_lab::live::run::{Load, Of, Setup};
use stele_lab::live::target::{Opening, Target};
use stele_lab::record::CellRecord;
use stele_lab::search::Goal;
use stele_lab::workload::{AccessSpec, Alignment};

/// One cell.
#[derive(Clone, Debug)]
pub struct Asked {
    pub cell: JobCell,
    /// Whether the page cache is used.
    pub buffered: bool,
    /// The targets that carry it out at once, of those that the command names.
    pub targets: Range<usize>,
}

/// The files of a quick run are smaller, so that making them takes less time than the measurement.
const QUICK_SIZE: Bytes = Bytes(100 << 20);
/// Size of a file that a recipe makes.
const FILE_SIZE: Bytes = Bytes(1 << 30);

/// Objects of backups that restores read.
const OBJECTS: u32 = 64;
const QUICK_OBJECTS: u32 = 16;

/// All cells, in the order in which they run.
pub fn plan(job: &Job, targets: &[Target]) -> Result<Vec<Asked>, LabError> {
    let part = part_of(job)?;
    check(part, targets)?;
    match part.name.as_str() {
        "ds4500" => super::ds4500::live::plan(job, part.quick),
        "dr550" => {
            let halves = match targets.iter().all(has_page_cache) {
                _ if targets.len() == 2 => Halves::Targets,
                true => Halves::PageCache,
                false => Halves::One,
            };
            super::dr550::live(job, part.quick, halves)
        }
        "gnr-tsm" => super::gnr_tsm::live(job, part.quick, targets),
        "fc8" => super::fc8::live(job),
        "snia-pts" => super::snia_pts::live(job, part.quick),
        "spc1-like" => super::spc1_like::live(job, part.quick),
        other => Err(unknown(other)),
    }
}

/// What becomes of a planned cell, now that those before it are measured.
#[derive(Clone, Debug)]
pub enum Next {
    /// It runs like this.
    Run(Box<JobCell>),
    /// It is not needed, or cannot follow.
    Skip,
}

/// The next cell of a recipe, as it follows from the cells before it.
pub fn next(job: &Job, cell: &JobCell, before: &[CellRecord]) -> Result<Next, LabError> {
    Ok(match part_of(job)?.name.as_str() {
        "snia-pts" => super::snia_pts::next(cell, before),
        "spc1-like" => super::spc1_like::next(cell, before),
        _ => Next::Run(Box::new(cell.clone())),
    })
}

/// Whether a recipe wants its target to be as new before it begins.
pub fn purges(job: &Job) -> bool {
    job.recipe.as_ref().is_some_and(|part| part.name == "snia-pts")
}

fn part_of(job: &Job) -> Result<&RecipePart, LabError> {
    job.recipe.as_ref().ok_or_else(|| LabError::Usage("the job names no recipe".into()))
}

/// What a recipe that measures with and without a cache does for its two halves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Halves {
    /// The target has no cache that can be passed by: all is measured as it is.
    One,
    /// With the page cache of this machine, and past it.
    PageCache,
    /// Two targets: the first one is without its cache, the second one with it. Both are accessed
    /// past the page cache.
    Targets,
}

/// The property of a target that matters to a recipe.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// One space of bytes.
    Blocks,
    Files,
    Objects,
    /// Sessions of backups.
    Sessions,
    /// Answers every request without data.
    Null,
}

fn kind_of(target: &Target) -> Kind {
    match target {
        Target::Null => Kind::Null,
        Target::Directory(_) => Kind::Files,
        Target::Path(path) if path.is_dir() => Kind::Files,
        Target::S3(_) => Kind::Objects,
        Target::Backup(_) => Kind::Sessions,
        _ => Kind::Blocks,
    }
}

fn check(part: &RecipePart, targets: &[Target]) -> Result<(), LabError> {
    let name = part.name.as_str();
    let most = if matches!(name, "gnr-tsm" | "dr550") { 2 } else { 1 };
    if targets.len() > most {
        let most = if most == 2 { "two targets" } else { "one target" };
        return Err(LabError::Usage(format!("recipe '{name}': is for {most}; leave out an --on")));
    }
    for target in targets {
        let kind = kind_of(target);
        let (carries, wants) = match name {
            name if kind == Kind::Sessions => (name == "gnr-tsm", "other storage than backups"),
            // A file of an NFS server counts as a file server.
            "dr550" => {
                (kind != Kind::Blocks || matches!(target, Target::Nfs(_)), "files: give dir:PATH, nfs:// or s3+http://")
            }
            "fc8" => (
                matches!(kind, Kind::Blocks | Kind::Null) && !matches!(target, Target::Nfs(_)),
                "blocks: give nbd://, iscsi://, a file or a block device",
            ),
            "snia-pts" | "spc1-like" => (
                matches!(kind, Kind::Blocks | Kind::Null),
                "blocks that are written over: give a block device, a file, nbd:// or iscsi://",
            ),
            "ds4500" => {
                (kind != Kind::Objects, "places to read and write at: give a file, a device, nbd:// or iscsi://")
            }
            _ => (true, ""),
        };
        if !carries {
            return Err(LabError::Usage(format!("recipe '{name}' on {target}: the paper is about {wants}")));
        }
    }
    Ok(())
}

/// Whether it can be accessed both with and without the page cache of this machine.
fn has_page_cache(target: &Target) -> bool {
    let Some(path) = target.path() else { return false };
    // A file that does not exist yet will be in its directory's file system.
    let there = path.ancestors().find(|place| place.exists()).filter(|place| !place.as_os_str().is_empty());
    File::open(there.unwrap_or(Path::new("."))).is_ok_and(|file| !system::in_memory(&file))
}

/// The way of opening a target for these cells.
pub fn opening(
    job: &Job,
    target: &Target,
    asked: &[Asked],
    (buffered, verify): (bool, bool),
    destroy: bool,
) -> Result<Opening, LabError> {
    let part = part_of(job)?;
    let cells: Vec<JobCell> = asked.iter().map(|asked| asked.cell.clone()).collect();
    let opening = job.opening(&cells, destroy)?;
    let size = match (opening.size, kind_of(target)) {
        (None, Kind::Files) if part.quick => Some(QUICK_SIZE),
        (None, Kind::Blocks) if target.path().is_some_and(|path| !path.exists()) => {
            Some(if part.quick { QUICK_SIZE } else { FILE_SIZE })
        }
        (size, _) => size,
    };
    let content = Content { verify, ..opening.content };
    let files = match (job.files, kind_of(target)) {
        (None, Kind::Sessions) => {
            if part.quick {
                QUICK_OBJECTS
            } else {
                OBJECTS
            }
        }
        _ => opening.files,
    };
    Ok(Opening { size, buffered, files, content, ..opening })
}

/// A cell with one worker for each outstanding access: the threads and sessions of the papers.
pub fn threads(job: &Job, spec: AccessSpec, count: u32, axes: Axes) -> Result<JobCell, LabError> {
    cell(job, spec, (count, count), None, axes)
}

/// A cell with this number of outstanding accesses, and the workers to keep them.
pub fn cell(
    job: &Job,
    spec: AccessSpec,
    (outstanding, workers): (u32, u32),
    goal: Option<Goal>,
    axes: Axes,
) -> Result<JobCell, LabError> {
    let part = part_of(job)?;
    let content = job.content()?;
    let setup = Setup {
        spec,
        alignment: Alignment::Request,
        load: Load::Outstanding(outstanding),
        profile: None,
        trace: None,
        pause: None,
        batch: 1,
        workers,
        timing: timed(job, part.quick).timing()?,
        content,
        of: Of::Data,
        seed: content.seed,
    };
    Ok(JobCell { axes, setup, goal, objective: None, precondition: None, buffered: false })
}

/// The job, with the recipe's measuring times for those that the job does not set.
fn timed(job: &Job, quick: bool) -> Job {
    let mut job = job.clone();
    let time = &mut job.time;
    let (warm_up, round, least, most) =
        if quick { ("200ms", "100ms", "600ms", "600ms") } else { ("2s", "1s", "10s", "30s") };
    let is_given = time.least.is_some() || time.most.is_some();
    for (given, usual) in [(&mut time.warm_up, warm_up), (&mut time.round, round)] {
        given.get_or_insert_with(|| usual.into());
    }
    if !is_given {
        (time.least, time.most) = (Some(least.into()), Some(most.into()));
    }
    job
}

#[cfg(test)]
mod tests;
