//! Drives hosts: opens the job on all, starts each cell on all at once, and merges what they found.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::wire::{Ask, Cause, LINE_MAX, LOOK, Link, Say, Silence, VERSION, proof};
use super::{HostRecord, merged};
use crate::error::LabError;
use crate::job::{Job, JobCell};
use crate::live::stream::{self, connect};
use crate::live::wrong::Wrong;
use crate::objective::ObjectiveRecord;
use crate::record::{CellRecord, RunRecord};
use crate::sweep;

/// A host that says nothing for so long has failed; longer while it measures.
const PATIENCE: Duration = Duration::from_secs(30);

struct Host {
    name: String,
    link: Option<Link>,
    /// Why it is no longer asked.
    lost: Option<String>,
}

pub struct Hosts {
    hosts: Vec<Host>,
    /// What each says of its target and itself.
    pub reached: String,
    pub target_bytes: u64,
    pub environment: Vec<(String, String)>,
}

impl Hosts {
    /// Connects to all and makes the job's target ready on each. All must be there.
    pub fn open(
        names: &[String],
        secret: &[u8],
        job: &Job,
        destroy: bool,
        stop: &AtomicBool,
    ) -> Result<Hosts, LabError> {
        let is_named_before =
            |(number, name): &(usize, &String)| names.iter().take(*number).any(|other| other == *name);
        if let Some((_, name)) = names.iter().enumerate().find(is_named_before) {
            return Err(LabError::Usage(format!("host {name}: is named twice, and a host serves one run at a time")));
        }
        // Every host runs for the same time: what is steady is seen in the sum.
        let mut job = job.clone();
        job.time.most = job.time.least.clone().or(job.time.most);
        let open = |name: &String| {
            one(name, secret, &job, destroy, stop).map_err(|error| error.of_place(&format!("host {name}")))
        };
        let opened: Vec<Result<_, LabError>> = std::thread::scope(|scope| {
            let threads: Vec<_> = names.iter().map(|name| scope.spawn(move || open(name))).collect();
            let gone = || Err(LabError::Failed("a thread panicked".into()));
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| gone())).collect()
        });
        let mut all = Hosts { hosts: Vec::new(), reached: String::new(), target_bytes: 0, environment: Vec::new() };
        for (name, opened) in names.iter().zip(opened) {
            let (link, ready) = opened?;
            let Say::Ready { reached, target_bytes, environment } = ready else { continue };
            if !all.reached.is_empty() {
                all.reached.push_str("; ");
            }
            all.reached.push_str(&format!("{name}: {reached}"));
            all.target_bytes = all.target_bytes.saturating_add(target_bytes);
            all.environment.extend(environment.into_iter().map(|(key, value)| (format!("{name} {key}"), value)));
            all.hosts.push(Host { name: name.clone(), link: Some(link), lost: None });
        }
        Ok(all)
    }

    /// Runs a cell on all that are left. None: nothing was measured before it was stopped.
    pub fn cell(
        &mut self,
        number: usize,
        cell: &JobCell,
        patience: Duration,
        stop: &AtomicBool,
    ) -> Result<Option<CellRecord>, LabError> {
        let Some(goal) = cell.goal else {
            let (run, hosts) = self.run(number, cell, None, patience, stop)?;
            let objective = cell.objective.map(|objective| ObjectiveRecord::of(objective, &run));
            let wrong_sectors = hosts.iter().fold(0, |sum: u64, host| sum.saturating_add(host.wrong_sectors));
            let record = || CellRecord {
                hosts,
                objective,
                wrong_sectors,
                ..CellRecord::with(number, cell, vec![run.clone()], None)
            };
            // Wrong data is told also where it came before the first round was over.
            return Ok((!run.rounds.is_empty() || wrong_sectors > 0).then(record));
        };
        let mut all: Vec<(u32, Vec<HostRecord>)> = Vec::new();
        let record = sweep::searched(number, cell, goal, &mut |outstanding| {
            let (run, hosts) = self.run(number, cell, Some(outstanding), patience, stop)?;
            if hosts.iter().any(|host| host.wrong_sectors > 0) {
                return Err(lost(&hosts, &[]));
            }
            if let Some((host, why)) = hosts.iter().find_map(|host| Some((&host.host, host.failed.as_ref()?))) {
                // The load is no longer what was asked for: what the others found is no probe.
                return Err(LabError::Failed(format!("host {host} was lost while the load was searched: {why}")));
            }
            all.push((outstanding, hosts));
            Ok((!run.stopped).then_some(run))
        })?;
        Ok(record.map(|record| {
            // Of the run that stands for the cell.
            let chosen = crate::report::chosen(&record).and_then(|run| run.outstanding);
            let hosts = all.into_iter().find(|(outstanding, _)| Some(*outstanding) == chosen);
            CellRecord { hosts: hosts.map(|(_, hosts)| hosts).unwrap_or_default(), ..record }
        }))
    }

    /// One run of a cell, with what each host did: at the cell's load on each, or with so many
    /// outstanding on all together.
    fn run(
        &mut self,
        number: usize,
        cell: &JobCell,
        outstanding: Option<u32>,
        patience: Duration,
        stop: &AtomicBool,
    ) -> Result<(RunRecord, Vec<HostRecord>), LabError> {
        let timing = cell.setup.timing;
        let most = Duration::from_nanos(timing.warm_up.0.saturating_add(timing.most.0));
        let until = Instant::now() + most + patience + PATIENCE;
        let shares = shares(outstanding, self.hosts.len());
        for (host, share) in self.hosts.iter_mut().zip(&shares) {
            let ask = Ask::Run { cell: number, outstanding: *share };
            let asked = host.link.as_mut().filter(|_| *share != Some(0)).map_or(Ok(()), |link| link.say(&ask));
            host.lose(asked.err());
        }
        let asked = self.hosts.iter_mut().zip(&shares).filter(|(_, share)| **share != Some(0)).map(|(host, _)| host);
        let mut asked: Vec<&mut Host> = asked.collect();
        let answers: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = asked.iter_mut().map(|host| scope.spawn(move || host.answer(until, stop))).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(|_| Err("a thread panicked".to_owned().into())))
                .collect()
        });
        let (mut runs, mut records, mut causes) = (Vec::new(), Vec::new(), Vec::new());
        for (host, answer) in asked.into_iter().zip(answers) {
            match answer {
                Ok(Say::Ran { run }) => {
                    records.push(HostRecord::of(&host.name, &run));
                    runs.push(*run);
                }
                other => {
                    let no_run = || Lost::from("it says something else than what it measured".to_owned());
                    let Lost { why, cause, wrong_sectors } = other.err().unwrap_or_else(no_run);
                    host.lose(Some(why.clone()));
                    causes.push(cause);
                    records.push(HostRecord { wrong_sectors, ..HostRecord::failed(&host.name, why) });
                }
            }
        }
        if runs.is_empty() {
            return Err(lost(&records, &causes));
        }
        let run = merged(&runs).ok_or_else(|| LabError::Failed("a host's histogram contradicts itself".into()))?;
        Ok((run, records))
    }

    /// Reads the targets of all hosts that are left back, behind the last cell. A host that cannot,
    /// or that was lost before, is told beside the cell, whose figures are kept.
    pub fn read_back(&mut self, mut cell: CellRecord, patience: Duration, stop: &AtomicBool) -> CellRecord {
        for host in &mut self.hosts {
            let asked = host.link.as_mut().map_or(Ok(()), |link| link.say(&Ask::ReadBack));
            host.lose(asked.err());
        }
        let until = Instant::now() + patience + PATIENCE;
        let mut asked: Vec<&mut Host> = self.hosts.iter_mut().filter(|host| host.link.is_some()).collect();
        let answers: Vec<Result<Say, Lost>> = std::thread::scope(|scope| {
            let threads: Vec<_> = asked.iter_mut().map(|host| scope.spawn(move || host.answer(until, stop))).collect();
            let panicked = || Err("a thread panicked".to_owned().into());
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| panicked())).collect()
        });
        for (host, answer) in asked.into_iter().zip(answers) {
            let why = match answer {
                Ok(Say::WasReadBack { found: Some(found) }) => {
                    let places = found.wrong.places.iter().map(|place| format!("host {}: {place}", host.name));
                    let wrong = Wrong { sectors: found.wrong.sectors, places: places.collect() };
                    let all = cell.read_back.get_or_insert_default();
                    all.bytes = all.bytes.saturating_add(found.bytes);
                    all.wrong.add(wrong);
                    continue;
                }
                Ok(Say::WasReadBack { found: None }) => continue,
                Ok(_) => "it says something else than what it read back".to_owned(),
                Err(Lost { why, .. }) => why,
            };
            let why = format!("reading it back: {why}");
            match cell.hosts.iter_mut().find(|record| record.host == host.name) {
                Some(record) => drop(record.failed.get_or_insert(why)),
                None => drop(cell.failed.get_or_insert(format!("host {}: {why}", host.name))),
            }
        }
        self.tell_unread(&mut cell);
        cell
    }

    /// Says of each host that was lost in this cell, or in one before, that its target was not read
    /// back.
    fn tell_unread(&self, cell: &mut CellRecord) {
        for host in self.hosts.iter().filter(|host| host.link.is_none()) {
            let lost = host.lost.as_deref().unwrap_or("it was lost");
            match cell.hosts.iter_mut().find(|record| record.host == host.name) {
                Some(record) => {
                    let why = record.failed.take().unwrap_or_else(|| lost.to_owned());
                    record.failed = Some(format!("{why}; its target was not read back"));
                }
                None => {
                    let why = format!("{lost}; its target was not read back");
                    cell.hosts.push(HostRecord::failed(&host.name, why));
                }
            }
        }
    }

    /// Lets all go.
    pub fn close(&mut self, keep: bool) -> Result<(), LabError> {
        for host in &mut self.hosts {
            let Some(link) = &mut host.link else { continue };
            let said = link.say(&Ask::Close { keep }).and_then(|()| match link.hear(Instant::now() + PATIENCE) {
                Ok(Say::Closed) => Ok(()),
                Ok(Say::Failed { why, .. }) | Err(Silence::Ended(why)) => Err(why),
                Ok(_) | Err(Silence::Late) => Err("does not say that it has ended".into()),
            });
            said.map_err(|why| LabError::Failed(format!("host {}: {why}", host.name)))?;
        }
        Ok(())
    }
}

/// Why nothing comes of a cell: the reasons of all hosts that are lost, and wrong data before a
/// failure. Where all have the same cause, it is that of the cell.
fn lost(hosts: &[HostRecord], causes: &[Cause]) -> LabError {
    let why: Vec<String> =
        hosts.iter().filter_map(|host| Some(format!("host {}: {}", host.host, host.failed.as_ref()?))).collect();
    match hosts.iter().any(|host| host.wrong_sectors > 0) {
        true => LabError::Damaged(why.join("; ")),
        false => {
            let first = causes.first().copied().unwrap_or_default();
            let cause = if causes.iter().all(|cause| *cause == first) { first } else { Cause::Failed };
            cause.error(why.join("; "))
        }
    }
}

/// Why a host is not asked any more.
#[derive(Debug)]
struct Lost {
    why: String,
    cause: Cause,
    wrong_sectors: u64,
}

impl From<String> for Lost {
    fn from(why: String) -> Lost {
        Lost { why, cause: Cause::Failed, wrong_sectors: 0 }
    }
}

/// What each host keeps under way, so that all together have so many; the first ones have one more.
/// A host with none is not asked.
fn shares(outstanding: Option<u32>, hosts: usize) -> Vec<Option<u32>> {
    let count = hosts.max(1) as u32;
    (0..hosts as u32).map(|host| outstanding.map(|all| all / count + u32::from(host < all % count))).collect()
}

impl Host {
    fn lose(&mut self, why: Option<String>) {
        if why.is_some() && self.lost.is_none() {
            (self.lost, self.link) = (why, None);
        }
    }

    /// What it measured, or read back.
    fn answer(&mut self, mut until: Instant, stop: &AtomicBool) -> Result<Say, Lost> {
        let Some(link) = &mut self.link else {
            return Err(self.lost.clone().unwrap_or_else(|| "it was lost".into()).into());
        };
        let mut told = false;
        loop {
            match link.hear(Instant::now() + LOOK) {
                Ok(said @ (Say::Ran { .. } | Say::WasReadBack { .. })) => return Ok(said),
                Ok(Say::Busy) => until = until.max(Instant::now() + PATIENCE),
                Ok(Say::Failed { why, cause, wrong_sectors }) => return Err(Lost { why, cause, wrong_sectors }),
                Err(Silence::Ended(why)) => return Err(why.into()),
                Ok(_) => return Err("it says something else than what it measured".to_owned().into()),
                Err(Silence::Late) if Instant::now() >= until => {
                    return Err("it does not answer in time".to_owned().into());
                }
                Err(Silence::Late) if stop.load(Ordering::Relaxed) && !told => {
                    told = true;
                    link.say(&Ask::Stop)?;
                }
                Err(Silence::Late) => {}
            }
        }
    }
}

/// A host that answers, and whose target is ready.
fn one(name: &str, secret: &[u8], job: &Job, destroy: bool, stop: &AtomicBool) -> Result<(Link, Say), LabError> {
    let unreached = |error: std::io::Error| LabError::reaching(&error, stream::said(&error));
    let mut link = connect(name, stream::PATIENCE).and_then(|stream| Link::new(stream, LINE_MAX)).map_err(unreached)?;
    let say = |link: &mut Link, ask: &Ask| link.say(ask).map_err(LabError::Failed);
    match hear(&mut link, stop)? {
        Say::Challenge { version: VERSION, nonce } => {
            say(&mut link, &Ask::Prove { proof: proof(secret, &nonce) })?;
        }
        Say::Challenge { version, .. } => {
            return Err(LabError::Refused(format!(
                "it speaks version {version}, and this program {VERSION}; use the same version of Stele on both"
            )));
        }
        _ => return Err(LabError::Missing("it is no laboratory that serves".into())),
    }
    hear(&mut link, stop)?;
    say(&mut link, &Ask::Open { job: Box::new(job.clone()), destroy })?;
    loop {
        match hear(&mut link, stop)? {
            Say::Filling { .. } if stop.load(Ordering::Relaxed) => {
                return Err(LabError::Stopped("stopped while it was filled".into()));
            }
            Say::Filling { .. } => {}
            ready @ Say::Ready { .. } => return Ok((link, ready)),
            _ => return Err(LabError::Failed("it says something else than that it is ready".into())),
        }
    }
}

/// What a host says while it is opened. A failure has the host's own kind.
fn hear(link: &mut Link, stop: &AtomicBool) -> Result<Say, LabError> {
    let until = Instant::now() + PATIENCE;
    loop {
        match link.hear(Instant::now() + LOOK) {
            Ok(Say::Failed { why, cause, .. }) => return Err(cause.error(why)),
            Ok(say) => return Ok(say),
            Err(Silence::Ended(why)) => return Err(LabError::Failed(why)),
            Err(Silence::Late) if stop.load(Ordering::Relaxed) => {
                return Err(LabError::Stopped("stopped before it answered".into()));
            }
            Err(Silence::Late) if Instant::now() >= until => {
                return Err(LabError::Unreachable("it does not answer".into()));
            }
            Err(Silence::Late) => {}
        }
    }
}

#[cfg(test)]
mod tests;
