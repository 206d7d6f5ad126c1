//! Backup over GPFS Native RAID: streams of writes (backup), of reads (restore) and of both, by the
//! number of sessions, from one server and from two.
//!
//! The paper gives neither the sessions nor the size of an access. Here a session is a thread with
//! one access of 1 MiB under way, which continues where its last one ended. One access in a hundred
//! begins elsewhere, as at the start of another object, so that sessions on one space of bytes do
//! not all follow the same path.
//!
//! Where the target is a repository of backups, the code of backups is at work: a session saves or
//! restores objects of 16 MiB, each in a segment of its own.

use super::{Plan, cell_of, live};
use stele_lab::error::LabError;
use stele_lab::job::{Axes, Job};
use stele_lab::live::target::Target;
use stele_lab::modelled::run::QueryPlan;
use stele_lab::modelled::{Array, Effort, LogPlace, Maker, Query};
use stele_lab::raid::Level;
use stele_lab::record::{CellRecord, Recorded, RunRecord};
use stele_lab::workload::{AccessSpec, Alignment};

pub mod paper;

/// Sessions of each server.
pub const SESSIONS: [u32; 8] = [1, 2, 4, 8, 16, 32, 64, 128];
const QUICK_SESSIONS: [u32; 3] = [1, 8, 64];
/// Sessions of backups: each has the memory of a segment.
pub const BACKUP_SESSIONS: [u32; 5] = [1, 2, 4, 8, 16];
const QUICK_BACKUP_SESSIONS: [u32; 3] = [1, 4, 16];
/// The kinds of streams, and their percent of reads.
pub const DIRECTIONS: [(&str, u8); 3] = [("backup", 0), ("restore", 100), ("mixed", 50)];
/// Bytes of an access.
pub const ACCESS: u64 = 1 << 20;
/// Bytes of an object of backups.
pub const OBJECT: u64 = 16 << 20;
/// Percent of accesses at which a session moves to another place.
const ELSEWHERE: u8 = 1;
/// Drives of the published machine.
pub const DRIVES: u32 = 116;
/// Percent of each drive in use.
const STROKE: u8 = 8;
/// Processors of the modelled server: one thread serves a pool.
const PROCESSORS: u32 = 1;
/// The axis of cells whose processors are modelled.
const CHARGED: &str = "processors";
/// Accesses of a round in virtual time; a quick run has fewer.
const ROUND: u64 = 400;
const QUICK_ROUND: u64 = 200;

fn spec(direction: &str, read: u8, length: u64) -> AccessSpec {
    AccessSpec { name: direction.to_owned(), random: Some(ELSEWHERE), read: Some(read), sizes: vec![(length, 100)] }
}

fn sessions(quick: bool) -> &'static [u32] {
    if quick { &QUICK_SESSIONS } else { &SESSIONS }
}

/// Sessions of each server, of backups if they are.
pub fn sessions_of(is_backup: bool, quick: bool) -> &'static [u32] {
    match (is_backup, quick) {
        (false, quick) => sessions(quick),
        (true, false) => &BACKUP_SESSIONS,
        (true, true) => &QUICK_BACKUP_SESSIONS,
    }
}

/// Whether the target is a repository of backups.
pub fn is_backup(target: &str) -> bool {
    matches!(target.parse(), Ok(Target::Backup(_)))
}

fn axes(direction: &str, servers: Option<usize>) -> Axes {
    let servers = servers.map(|servers| ("servers".to_owned(), servers.to_string()));
    servers.into_iter().chain([("direction".to_owned(), direction.to_owned())]).collect()
}

/// The parts that a quick run leaves out.
pub fn left_out(quick: bool, is_backup: bool) -> Vec<String> {
    let sessions = if is_backup { "2 and 8 sessions" } else { "2, 4, 16, 32 and 128 sessions" };
    if quick { vec![sessions.to_owned()] } else { Vec::new() }
}

/// The cells on real storage: each target is reached by a server of its own.
pub fn live(job: &Job, quick: bool, targets: &[Target]) -> Result<Vec<live::Asked>, LabError> {
    let of_backups = |target: &Target| matches!(target, Target::Backup(_));
    let is_backup = targets.iter().any(of_backups);
    if is_backup && !targets.iter().all(of_backups) {
        return Err(LabError::Usage(
            "recipe 'gnr-tsm': two servers are of one kind; give two repositories, or none".into(),
        ));
    }
    let (length, job) = if is_backup { (OBJECT, &timed(job, quick)) } else { (ACCESS, job) };
    let mut asked = Vec::new();
    for servers in 1..=targets.len() {
        for (direction, read) in DIRECTIONS {
            for count in sessions_of(is_backup, quick) {
                let mut axes = axes(direction, Some(servers));
                axes.push(("workers".into(), count.to_string()));
                let cell = live::threads(job, spec(direction, read, length), *count, axes)?;
                asked.push(live::Asked { cell, buffered: false, targets: 0..servers });
            }
        }
    }
    Ok(asked)
}

/// Rounds are long enough for several objects of each session.
fn timed(job: &Job, quick: bool) -> Job {
    let mut job = job.clone();
    let time = &mut job.time;
    let (warm_up, round, least, most) = if quick { ("1s", "500ms", "3s", "3s") } else { ("4s", "2s", "20s", "60s") };
    if time.least.is_none() && time.most.is_none() {
        (time.least, time.most) = (Some(least.into()), Some(most.into()));
        time.warm_up.get_or_insert_with(|| warm_up.into());
        time.round.get_or_insert_with(|| round.into());
    }
    job
}

/// The plan on modelled drives, without and with a server's processors: a cell holds all numbers of
/// sessions.
pub fn plan(quick: bool) -> Result<Plan, LabError> {
    let mut cells = Vec::new();
    let makers = [Maker::Stele, Maker::SteleOn(PROCESSORS)];
    for (maker, (direction, read)) in makers.into_iter().flat_map(|maker| DIRECTIONS.map(|one| (maker, one))) {
        let array =
            Array { maker, level: Level::Raid6, drives: DRIVES, cached: true, stroke: STROKE, log: LogPlace::Memory };
        array.check()?;
        let loads: Vec<u64> = sessions(quick).iter().map(|count| u64::from(*count)).collect();
        let planned = QueryPlan {
            array,
            spec: spec(direction, read, ACCESS),
            alignment: Alignment::Request,
            streams: loads.iter().copied().max().unwrap_or(1),
            ask: Query::Loads(loads),
            effort: Effort { round: if quick { QUICK_ROUND } else { ROUND }, probes_max: 1 },
        };
        let mut cell = cell_of(&planned);
        cell.axes = axes(direction, None);
        if let Maker::SteleOn(count) = maker {
            cell.axes.push((CHARGED.to_owned(), count.to_string()));
        }
        cells.push((cell, planned));
    }
    Ok(Plan { cells, left_out: left_out(quick, false) })
}

/// The results, by question.
#[derive(Clone, Copy)]
struct Found<'a> {
    recorded: &'a Recorded,
}

impl<'a> Found<'a> {
    /// Runs by their sessions at each server.
    fn curve(self, direction: &str, servers: u32) -> Vec<(u32, &'a RunRecord)> {
        self.runs(direction, servers, false)
    }

    /// The same on modelled drives behind modelled processors.
    fn charged(self, direction: &str) -> Vec<(u32, &'a RunRecord)> {
        self.runs(direction, 1, true)
    }

    fn runs(self, direction: &str, servers: u32, charged: bool) -> Vec<(u32, &'a RunRecord)> {
        let matches = |cell: &&CellRecord| {
            let of_cell = cell.axis("servers").map_or(1, |servers| servers.parse().unwrap_or(1));
            let is_charged = cell.axis(CHARGED).is_some();
            cell.axis("direction") == Some(direction) && of_cell == servers && is_charged == charged
        };
        let cells = self.recorded.cells.iter().filter(matches);
        let runs = cells.flat_map(|cell| &cell.runs).map(|run| (run.outstanding.unwrap_or(1) / servers, run));
        let mut runs: Vec<_> = runs.collect();
        runs.sort_by_key(|(sessions, _)| *sessions);
        runs
    }

    /// Measured directions and servers.
    fn kinds(self) -> Vec<(&'static str, u32)> {
        let all = [1, 2].into_iter().flat_map(|servers| DIRECTIONS.map(|(direction, _)| (direction, servers)));
        all.filter(|(direction, servers)| !self.curve(direction, *servers).is_empty()).collect()
    }

    fn highest(self, direction: &str, servers: u32) -> Option<(u32, &'a RunRecord)> {
        highest(self.curve(direction, servers))
    }
}

fn highest(runs: Vec<(u32, &RunRecord)>) -> Option<(u32, &RunRecord)> {
    let by = |run: &RunRecord| super::page::megabytes(run);
    runs.into_iter().max_by(|left, right| by(left.1).total_cmp(&by(right.1)))
}

#[cfg(test)]
mod tests;
