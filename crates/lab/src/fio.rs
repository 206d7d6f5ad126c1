//! fio's job files, run as they are: the keys that say what is done, to which part of which files,
//! in which order, how hard and for how long, each with fio's meaning. A key that is not known is
//! an error that names its line.
//!
//! This is another loop than that of [`crate::live`], which measures a steady state of one
//! workload. Here jobs run beside one another or in turn, end after so many bytes, sync, and touch
//! the places that fio's would. Both share engines, histograms and the rule that what the
//! laboratory did not make is written over only where the caller says so.
//!
//! What differs from fio: writes of the default content are random in every job; syncs of `fsync`
//! are counted whichever kind they are. The engines io_uring and libaio are both io_uring, whose
//! syncs wait in the queue, one behind every so many writes.

mod blocks;
mod carrier;
pub mod file;
mod layout;
mod log;
mod map;
mod options;
mod pace;
mod places;
mod process;
mod spread;
mod units;
mod used;

use std::fs::File;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use stele_ground::{Dice, Duration};
use stele_media::system;

pub use options::Options;
pub use process::{DirectionStats, Tally};
pub use units::bytes;
pub use used::Used;

use crate::error::LabError;
use crate::live::engine::Null;
use crate::live::inline::Inline;
use crate::live::local;
use crate::live::run::WORKERS_MAX;
use crate::live::target::PATIENCE;
use crate::live::uring::Uring;
use layout::{Laid, Layout, Made};
use options::IoEngine;
use places::{Places, Region};
use process::{Cached, Ends, Kept, Process};

/// All jobs of a file.
pub fn jobs(text: &str) -> Result<Vec<Options>, LabError> {
    file::sections(text)?.iter().map(Options::of).collect()
}

/// What one copy of a job did.
#[derive(Clone, Debug)]
pub struct JobResult {
    pub name: String,
    /// Where the job begins in its file.
    pub line: usize,
    /// Jobs of one group ran beside one another.
    pub group: u32,
    /// It is reported with the others of its group.
    pub with_group: bool,
    pub options: Vec<(String, String)>,
    pub depth: u32,
    pub begun: SystemTime,
    pub tally: Tally,
}

/// A copy that is to run.
struct Copy<'a> {
    options: &'a Options,
    number: u32,
    group: u32,
    layout: Layout,
}

/// What runs, before it does: each copy with its files and the part of each that it uses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JobPlan {
    pub name: String,
    pub copy: u32,
    /// Those of one number run at once.
    pub turn: u32,
    /// Path, offset, bytes, and whether the file is made.
    pub files: Vec<(PathBuf, u64, u64, bool)>,
    pub writes: bool,
    /// Its files are removed when all jobs are over.
    pub removes: bool,
    /// Why it would not begin.
    pub refused: Option<String>,
}

pub fn plan(jobs: &[Options], destroy: bool) -> Result<Vec<JobPlan>, LabError> {
    let planned = |copy: Copy<'_>| JobPlan {
        refused: layout::admit(copy.options, &copy.layout, destroy).err().map(|error| error.to_string()),
        name: copy.options.name.clone(),
        copy: copy.number,
        turn: copy.group,
        files: copy
            .layout
            .files
            .into_iter()
            .map(|laid| (laid.path, laid.region.offset, laid.region.length, laid.short))
            .collect(),
        writes: copy.options.writes,
        removes: copy.options.removes(),
    };
    let all = copies(jobs)?;
    Ok(all.into_iter().map(|(turn, copy)| JobPlan { turn, ..planned(copy) }).collect())
}

/// An error with the job that asked for it, and the line of the file where that begins.
fn in_job(options: &Options, error: LabError) -> LabError {
    error.of_place(&format!("job '{}', line {}", options.name, options.line))
}

/// Each copy with its turn; groups also end where `new_group` says so.
fn copies(jobs: &[Options]) -> Result<Vec<(u32, Copy<'_>)>, LabError> {
    let (mut all, mut made): (Vec<(u32, Copy<'_>)>, _) = (Vec::new(), Made::new());
    let (mut turn, mut group) = (0, 0);
    for options in jobs {
        let first = all.is_empty();
        turn += u32::from(options.stonewall && !first);
        group += u32::from((options.stonewall || options.new_group) && !first);
        for number in 0..options.copies {
            let layout = layout::layout(options, number, &mut made).map_err(|error| in_job(options, error))?;
            all.push((turn, Copy { options, number, group, layout }));
        }
    }
    let most = (0..=turn).map(|turn| all.iter().filter(|(of, _)| *of == turn).count()).max().unwrap_or(0);
    match most > WORKERS_MAX as usize {
        true => Err(LabError::Usage(format!("{most} copies run at once; at most {WORKERS_MAX}"))),
        false => Ok(all),
    }
}

/// Makes the files that are missing, runs all jobs, and tells what each copy did. `destroy`: what
/// the laboratory did not make may be written over. `tell` hears what is going on.
pub fn run(
    jobs: &[Options],
    destroy: bool,
    stop: &AtomicBool,
    tell: &dyn Fn(&str),
) -> Result<Vec<JobResult>, LabError> {
    let (ran, failed) = run_kept(jobs, destroy, PATIENCE, stop, tell)?;
    failed.map_or(Ok(ran), Err)
}

/// As `run`, but what was done before a turn that could not begin is kept, beside the reason. An
/// access that is not answered within `patience` ends its copy, where the engine is io_uring.
pub fn run_kept(
    jobs: &[Options],
    destroy: bool,
    patience: Duration,
    stop: &AtomicBool,
    tell: &dyn Fn(&str),
) -> Result<(Vec<JobResult>, Option<LabError>), LabError> {
    let all = copies(jobs)?;
    // All are looked at before the first is touched.
    for (_, copy) in &all {
        layout::admit(copy.options, &copy.layout, destroy).map_err(|error| in_job(copy.options, error))?;
    }
    admit_logs(&all)?;
    let goes_on = || !stop.load(Ordering::Relaxed);
    for (_, copy) in &all {
        layout::make(copy.options, &copy.layout, &goes_on, tell).map_err(|error| in_job(copy.options, error))?;
    }
    let held = hold_devices(&all)?;
    let (mut ran, mut failed) = (Vec::new(), None);
    let turns = all.last().map_or(0, |(turn, _)| turn + 1);
    for turn in 0..turns {
        let copies: Vec<&Copy<'_>> = all.iter().filter(|(of, _)| *of == turn).map(|(_, copy)| copy).collect();
        if goes_on() && failed.is_none() {
            let mut names: Vec<&str> = copies.iter().map(|copy| copy.options.name.as_str()).collect();
            names.dedup();
            tell(&format!("turn {} of {turns}: {}", turn + 1, names.join(", ")));
            match at_once(&copies, patience, stop) {
                Ok(more) => ran.extend(more),
                Err(error) => failed = Some(error),
            }
        }
    }
    drop(held);
    for (_, copy) in all.iter().filter(|(_, copy)| copy.options.removes()) {
        for Laid { path, .. } in &copy.layout.files {
            // Neither a device nor a link to somewhere else.
            if std::fs::symlink_metadata(path).is_ok_and(|found| found.is_file()) {
                let _ = std::fs::remove_file(path);
            }
        }
    }
    Ok((ran, failed))
}

/// A log is a new file, and of one copy alone: others would write over its lines.
fn admit_logs(all: &[(u32, Copy<'_>)]) -> Result<(), LabError> {
    let mut taken: Vec<&Path> = all.iter().flat_map(|(_, copy)| &copy.layout.files).map(|laid| &*laid.path).collect();
    for (_, copy) in all {
        let Some(log) = copy.options.log.as_deref().map(Path::new) else { continue };
        let refused =
            |why: &str| in_job(copy.options, LabError::Usage(format!("write_iolog={}: {why}", log.display())));
        if copy.options.copies > 1 {
            return Err(refused("a log is of one copy, and numjobs asks for several; write them as jobs of their own"));
        }
        if taken.contains(&log) {
            return Err(refused("is also a file, or the log, of a job; give each a name of its own"));
        }
        // Also a link that leads nowhere.
        if std::fs::symlink_metadata(log).is_ok() {
            return Err(in_job(copy.options, log::exists(log)));
        }
        taken.push(log);
    }
    Ok(())
}

fn hold_devices(all: &[(u32, Copy<'_>)]) -> Result<Vec<File>, LabError> {
    let (mut paths, mut held): (Vec<&PathBuf>, Vec<File>) = (Vec::new(), Vec::new());
    for (_, copy) in all.iter().filter(|(_, copy)| copy.options.writes) {
        for Laid { path, .. } in &copy.layout.files {
            let is_device = std::fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device());
            if is_device && !paths.contains(&path) {
                paths.push(path);
                held.push(local::hold_device(path).map_err(|error| in_job(copy.options, error))?);
            }
        }
    }
    Ok(held)
}

fn at_once(copies: &[&Copy<'_>], patience: Duration, stop: &AtomicBool) -> Result<Vec<JobResult>, LabError> {
    let all = AtomicBool::new(false);
    let (ends, begun) = (Ends { stop, all: &all, patience }, SystemTime::now());
    let open = |copy: &&Copy<'_>| open_all(copy).map_err(|error| in_job(copy.options, error));
    let opened: Vec<Vec<Arc<File>>> = copies.iter().map(open).collect::<Result<_, _>>()?;
    let tallies: Vec<Tally> = std::thread::scope(|scope| {
        let threads: Vec<_> = copies
            .iter()
            .zip(opened)
            .map(|(copy, files)| {
                let (copy, ends) = (*copy, &ends);
                scope.spawn(move || work(copy, files, ends))
            })
            .collect();
        let panicked = || Tally { failed: Some("its thread ended unexpectedly".into()), ..Tally::default() };
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| panicked())).collect()
    });
    let ran = |(copy, tally): (&&Copy<'_>, Tally)| JobResult {
        name: copy.options.name.clone(),
        line: copy.options.line,
        group: copy.group,
        with_group: copy.options.group_reporting,
        options: copy.options.said.clone(),
        depth: copy.options.depth,
        begun,
        tally,
    };
    Ok(copies.iter().zip(tallies).map(ran).collect())
}

fn open_all(copy: &Copy<'_>) -> Result<Vec<Arc<File>>, LabError> {
    if copy.options.engine == IoEngine::Null {
        return Ok(Vec::new());
    }
    let opened = copy.layout.files.iter().map(|laid| layout::open(copy.options, laid).map(Arc::new));
    let files: Vec<Arc<File>> = opened.collect::<Result<_, _>>()?;
    if let Some(advice) = copy.options.advice() {
        // Where it is refused, the kernel reads ahead as it does without.
        files.iter().for_each(|file| drop(system::advise(file, 0, 0, advice)));
    }
    Ok(files)
}

/// One copy, on a thread of its own.
fn work(copy: &Copy<'_>, files: Vec<Arc<File>>, ends: &Ends<'_>) -> Tally {
    let options = copy.options;
    if options.create_only {
        return Tally::default();
    }
    let mut dice = Dice::new(options.seed ^ u64::from(copy.number).rotate_left(32));
    let regions: Vec<Region> = copy.layout.files.iter().map(|laid| laid.region).collect();
    let places = Places::new(options, &regions, dice.fork());
    let paths = || copy.layout.files.iter().map(|laid| laid.path.clone()).collect();
    let log = options.log.as_ref().map(|path| log::Log::create(path.as_ref(), paths())).transpose();
    let failed = |why: String| Tally { failed: Some(why), ..Tally::default() };
    let log = match log {
        Ok(log) => log,
        Err(error) => return failed(error.to_string()),
    };
    let longest = options.block_most() as usize;
    let cached = (options.invalidate && !options.direct)
        .then(|| Cached::new(files.iter().cloned().zip(regions.iter().copied()).collect()));
    let kept = Kept { size: copy.layout.size, log, cached };
    match options.engine {
        IoEngine::Null => Process::new(Null::new(options.depth, longest), options, places, kept, ends, dice).run(),
        // One access at a time goes by plain calls.
        IoEngine::Synchronous => Process::new(Inline::new(files, longest), options, places, kept, ends, dice).run(),
        IoEngine::Ring => match Uring::over(files, options.depth, longest) {
            Ok(ring) => Process::new(ring, options, places, kept, ends, dice).run(),
            Err(why) => failed(why),
        },
    }
}

#[cfg(test)]
mod tests;
