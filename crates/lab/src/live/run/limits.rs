//! What a target takes of a load, before anything of it runs: lengths, places, workers, and as many
//! accesses under way as there is memory for.

use stele_ground::{Bytes, Duration};

use super::{Load, Of, Setup, WORKERS_MAX};
use crate::environment;
use crate::error::LabError;
use crate::live::target::{AccessMethod, Ready};
use crate::live::uring::SLOTS_MAX;
use crate::workload::Alignment;

/// Accesses of an open loop that may be under way at once on a volume in this process, and wherever
/// reads are checked.
pub const OPEN_MAX: u32 = 4096;
/// Elsewhere, as far as their buffers fit into this share of the memory that is free. More that are
/// due wait in no memory: the times of their starts follow from the rate.
const OPEN_LIMIT: u64 = 65_536;
const OPEN_MEMORY_SHARE: u64 = 8;
const OPEN_MEMORY_UNKNOWN: u64 = 256 << 20;
/// With fewer for each worker a rate cannot be kept up.
const OPEN_LEAST: u64 = 4;
/// What is due within this time may be under way, and so many for each worker in any case.
const OPEN_AHEAD: Duration = Duration(500_000_000);
const OPEN_AHEAD_LEAST: u64 = 64;

/// Whether a run can begin, as far as that is known before.
pub fn admit(ready: &Ready, setup: &Setup) -> Result<(), LabError> {
    let workers = workers_for(ready, setup)?;
    open_slots(ready, setup, workers)?;
    own_part(ready, setup, workers).map(|_| ())
}

/// Bytes of the target that each worker has to itself where reads are checked.
pub fn own_part(ready: &Ready, setup: &Setup, workers: u32) -> Result<u64, LabError> {
    // Parts of workers begin where a file does.
    let grain = ready.file.map_or(ready.block.0.max(4096), |file| file.0);
    let own = ready.size.0 / u64::from(workers) / grain * grain;
    if setup.content.verify && own < setup.spec.length_max() {
        return Err(LabError::Usage(format!(
            "where reads are checked each worker has its own part of the target, and {} are too little for {workers}; \
             make the target larger, or ask for fewer",
            ready.size
        )));
    }
    Ok(own)
}

/// Whether the target takes the lengths and the places of the accesses, and has names where they
/// are of names.
pub fn fits(ready: &Ready, setup: &Setup) -> Result<(), LabError> {
    let (block, size) = (ready.block, ready.size);
    for (length, _) in &setup.spec.sizes {
        if *length == 0 || !length.is_multiple_of(block.0) {
            return Err(LabError::Usage(format!(
                "workload '{}' has accesses of {length} bytes; this target takes multiples of {}",
                setup.spec.name, block.0
            )));
        }
        if *length > size.0 {
            return Err(LabError::Usage(format!("the target's {size} are less than one access of {length} bytes")));
        }
    }
    if setup.alignment == Alignment::Sector && block.0 > 512 {
        return Err(LabError::Usage(format!(
            "this target takes offsets that are multiples of {}, not of 512",
            block.0
        )));
    }
    if let Some(file) = ready.file
        && setup.spec.length_max() > file.0
    {
        let longest = Bytes(setup.spec.length_max());
        return Err(LabError::Usage(format!("accesses of {longest} are longer than a file, which has {file}")));
    }
    if setup.of == Of::Names
        && !matches!(ready.way, AccessMethod::Null | AccessMethod::Directory(_) | AccessMethod::S3(_))
    {
        return Err(LabError::Usage(
            "workload.of = names: only a directory and a bucket have names; give dir:PATH, or s3+http://".into(),
        ));
    }
    Ok(())
}

pub fn workers_for(ready: &Ready, setup: &Setup) -> Result<u32, LabError> {
    fits(ready, setup)?;
    let workers = match (setup.load, &ready.way) {
        (Load::Outstanding(0), _) => return Err(LabError::Usage("at least one access has to be outstanding".into())),
        (Load::Rate { each_second, .. } | Load::Bytes { each_second, .. }, _)
            if !(each_second.is_finite() && each_second > 0.0) =>
        {
            return Err(LabError::Usage("a rate is greater than 0".into()));
        }
        // One at a time for each worker.
        (Load::Outstanding(count), way) if way.is_one_each() => count,
        (_, way) if way.is_alone() => 1,
        (Load::Outstanding(count), _) => setup.workers.min(count),
        (Load::Rate { .. } | Load::Bytes { .. }, _) => setup.workers,
    };
    // A ring has no more; the others have memory for each.
    if let Load::Outstanding(count) = setup.load
        && count.div_ceil(workers.max(1)) > SLOTS_MAX
    {
        return Err(LabError::Usage(format!(
            "{count} accesses under way are too many for {workers} workers, which take {SLOTS_MAX} each; ask for fewer, or \
             for more workers with --workers"
        )));
    }
    if workers > WORKERS_MAX {
        return Err(LabError::Usage(format!(
            "{workers} accesses at a time take as many threads on this target; at most {WORKERS_MAX}"
        )));
    }
    if let Load::Outstanding(count) = setup.load
        && !matches!(ready.way, AccessMethod::Null)
    {
        refuse_beyond_memory(u64::from(count), setup.spec.length_max())?;
    }
    Ok(workers.max(1))
}

/// Each access under way has a buffer; what does not fit into the free memory would end the
/// process.
fn refuse_beyond_memory(count: u64, length: u64) -> Result<(), LabError> {
    let wanted = count.saturating_mul(length);
    match environment::memory_available() {
        Some(free) if wanted > free.0 => Err(LabError::Usage(format!(
            "{count} accesses of {} under way take {}, and {free} of memory are free; ask for fewer",
            Bytes(length),
            Bytes(wanted)
        ))),
        _ => Ok(()),
    }
}

/// Accesses that a worker of an open loop may have under way; those of a closed loop count them
/// themselves.
pub fn open_slots(ready: &Ready, setup: &Setup, workers: u32) -> Result<u32, LabError> {
    let Some(each_second) = starts(setup) else { return Ok(0) };
    let (workers, length) = (u64::from(workers), setup.spec.length_max());
    let most = match ready.way {
        AccessMethod::Volume(_) => u64::from(OPEN_MAX) / workers,
        _ if setup.content.verify => u64::from(OPEN_MAX) / workers,
        AccessMethod::Ring(_) => (OPEN_LIMIT / workers).min(u64::from(SLOTS_MAX)),
        _ => OPEN_LIMIT / workers,
    };
    // A trace has the queue that it has.
    let most = if setup.trace.is_some() { most } else { most.min(ahead(each_second, workers)) };
    let free = environment::memory_available().map_or(OPEN_MEMORY_UNKNOWN, |free| free.0 / OPEN_MEMORY_SHARE);
    let fit = fitting(free, workers, length);
    // These have one buffer, whatever the slots.
    let is_one = ready.way.is_one_each() || matches!(ready.way, AccessMethod::Null);
    match fit {
        _ if is_one => Ok(most.max(1) as u32),
        fit if fit < OPEN_LEAST.min(most) => Err(LabError::Usage(format!(
            "an open loop has several accesses of {} under way in each of {workers} workers, and an eighth of the free memory \
             holds {fit} in each; ask for shorter ones, or for fewer workers",
            Bytes(length)
        ))),
        fit => Ok(most.min(fit).max(1) as u32),
    }
}

/// Accesses a second that are to start, where it is the most. None: of a closed loop.
fn starts(setup: &Setup) -> Option<f64> {
    let mean = match setup.load {
        Load::Outstanding(_) => return None,
        Load::Rate { each_second, .. } => each_second,
        Load::Bytes { each_second, .. } => each_second / setup.spec.mean_length().max(1) as f64,
    };
    let points = setup.profile.as_ref().map_or_else(Vec::new, |profile| profile.points());
    Some(points.into_iter().map(|(_, rate)| rate).fold(mean, f64::max))
}

/// As many as are due in this time: a target that is behind by more has its queue, and at the end
/// all of it is waited for.
fn ahead(each_second: f64, workers: u64) -> u64 {
    ((each_second * OPEN_AHEAD.as_secs_f64()) as u64).div_ceil(workers).max(OPEN_AHEAD_LEAST)
}

/// Accesses of each worker whose buffers fit.
fn fitting(free: u64, workers: u64, length: u64) -> u64 {
    free / workers.max(1) / length.max(4096)
}

#[cfg(test)]
mod tests;
