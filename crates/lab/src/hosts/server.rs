//! A host that measures what another one asks for: one connection at a time.

use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::wire::{Ask, Cause, LINE_MAX, LOOK, Link, STRANGER_MAX, Say, Silence, VERSION, is_proof};
use crate::environment;
use crate::error::LabError;
use crate::job::{Job, JobCell};
use crate::live::read_back;
use crate::live::run::{Found, Load, Setup, run_kept};
use crate::live::target::{Ready, Target};
use crate::record::RunRecord;
use crate::sweep;

/// A stranger has so long to prove that it is none.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often who asked is told that a cell goes on: at its end what is under way is waited for,
/// however long answers come.
const BUSY: Duration = Duration::from_secs(5);

/// What those who ask may have.
#[derive(Clone, Debug)]
pub struct Grant {
    pub secret: Vec<u8>,
    /// What the laboratory did not make may be written over, if they ask for it.
    pub destroy: bool,
}

/// Serves one connection to its end. `end` ends it, and what is running.
pub fn serve(stream: TcpStream, grant: &Grant, end: &AtomicBool) -> Result<(), String> {
    let mut link = Link::new(stream, STRANGER_MAX).map_err(|error| error.to_string())?;
    let mut nonce = [0; 32];
    aws_lc_rs::rand::fill(&mut nonce).map_err(|_| "the system gives no random numbers".to_owned())?;
    let nonce: String = nonce.iter().map(|byte| format!("{byte:02x}")).collect();
    link.say(&Say::Challenge { version: VERSION, nonce: nonce.clone() })?;
    match link.hear::<Ask>(Instant::now() + PATIENCE) {
        Ok(Ask::Prove { proof }) if is_proof(&grant.secret, &nonce, &proof) => {}
        Ok(_) => {
            link.say(&Say::failed(&LabError::Refused("the secret is another one".into())))?;
            return Err("a caller came without the secret".into());
        }
        Err(_) => return Err("a caller came and proved nothing".into()),
    }
    link.lines.line_max = LINE_MAX;
    link.say(&Say::Welcome)?;
    let mut opened: Option<(Ready, Vec<JobCell>)> = None;
    let ended = converse(&mut link, grant, end, &mut opened);
    // The conversation broke off: what was made for it is of no use.
    if let (Err(_), Some((ready, _))) = (&ended, &opened) {
        let _ = ready.remove();
    }
    ended
}

fn converse(
    link: &mut Link,
    grant: &Grant,
    end: &AtomicBool,
    opened: &mut Option<(Ready, Vec<JobCell>)>,
) -> Result<(), String> {
    // Something of a run may still be under way, and be written late.
    let mut left_behind = false;
    loop {
        let ask = match link.hear::<Ask>(Instant::now() + LOOK) {
            Ok(ask) => ask,
            Err(Silence::Late) if end.load(Ordering::Relaxed) => return Err("it was told to end".into()),
            Err(Silence::Late) => continue,
            Err(Silence::Ended(why)) => return Err(why),
        };
        let answer = match ask {
            Ask::Open { job, destroy } => open(link, &job, destroy && grant.destroy, end, opened),
            Ask::Run { cell, outstanding } => {
                let (ready, cells) = opened.as_ref().ok_or("a cell is asked for before a job")?;
                match cells.get(cell) {
                    Some(cell) => {
                        let load = outstanding.map_or(cell.setup.load, Load::Outstanding);
                        Ok(run(link, ready, &Setup { load, ..cell.setup.clone() }, end, &mut left_behind)?)
                    }
                    None => Err(LabError::Failed("there is no such cell".into())),
                }
            }
            Ask::ReadBack => {
                let (ready, cells) = opened.as_ref().ok_or("a reading is asked for before a job")?;
                let content = cells.first().map(|cell| cell.setup.content).filter(|content| content.verify);
                match content.filter(|_| !left_behind) {
                    Some(content) => {
                        let read = beside(link, end, |stop| {
                            read_back::read_back(ready, content, &mut |_, _| !stop.load(Ordering::Relaxed))
                        })?;
                        read.map(|found| Say::WasReadBack { found })
                    }
                    None => Ok(Say::WasReadBack { found: None }),
                }
            }
            // What it was meant for has just ended.
            Ask::Stop => continue,
            Ask::Close { keep } => {
                let removed = match opened.take() {
                    Some((ready, _)) if !keep => ready.remove(),
                    _ => Ok(()),
                };
                return link.say(&removed.map_or_else(|error| Say::failed(&error), |()| Say::Closed));
            }
            Ask::Prove { .. } => Err(LabError::Failed("that was proved already".into())),
        };
        link.say(&answer.unwrap_or_else(|error| Say::failed(&error)))?;
    }
}

fn open(
    link: &mut Link,
    job: &Job,
    destroy: bool,
    end: &AtomicBool,
    opened: &mut Option<(Ready, Vec<JobCell>)>,
) -> Result<Say, LabError> {
    let cells = job.cells()?;
    let target: Target = job.on.as_deref().unwrap_or_default().parse()?;
    let mut told = Instant::now();
    let ready = target.open(job.opening(&cells, destroy)?, &mut |done, all| {
        if end.load(Ordering::Relaxed) {
            return false;
        }
        if told.elapsed() < Duration::from_secs(1) {
            return true;
        }
        told = Instant::now();
        link.say(&Say::Filling { done, all }).is_ok()
    })?;
    // What a later cell asks for is refused before the first one is measured.
    if let Err(error) = cells.iter().try_for_each(|cell| sweep::admit(&ready, cell)) {
        let _ = ready.remove();
        return Err(error);
    }
    let answer = Say::Ready {
        reached: ready.description.clone(),
        target_bytes: ready.size.0,
        environment: environment::capture(target.path()),
    };
    *opened = Some((ready, cells));
    Ok(answer)
}

fn run(link: &mut Link, ready: &Ready, setup: &Setup, end: &AtomicBool, left_behind: &mut bool) -> Result<Say, String> {
    let ran = beside(link, end, |stop| run_kept(ready, setup, stop, &mut |_| true))?;
    *left_behind |= ran.as_ref().is_ok_and(|(found, _)| found.left_behind);
    Ok(said(ran))
}

/// Works beside the connection, so that who asked may end it, and ends it when who asked is gone.
fn beside<T: Send>(
    link: &mut Link,
    end: &AtomicBool,
    work: impl FnOnce(&AtomicBool) -> Result<T, LabError> + Send,
) -> Result<Result<T, LabError>, String> {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let work = scope.spawn(|| work(&stop));
        let (mut gone, mut told) = (None, Instant::now());
        while !work.is_finished() {
            if told.elapsed() >= BUSY {
                told = Instant::now();
                // Who does not take it is gone, and seen below.
                let _ = link.say(&Say::Busy);
            }
            match link.hear::<Ask>(Instant::now() + LOOK) {
                Err(Silence::Late) if !end.load(Ordering::Relaxed) => continue,
                Ok(Ask::Stop) => {}
                Ok(_) => gone = Some("another thing is asked for while a cell runs".to_owned()),
                Err(Silence::Late) => gone = Some("it was told to end".to_owned()),
                Err(Silence::Ended(why)) => gone = Some(why),
            }
            stop.store(true, Ordering::Relaxed);
            if gone.is_some() {
                break;
            }
        }
        let ran = work.join().unwrap_or_else(|_| Err(LabError::Failed("the run panicked".into())));
        gone.map_or_else(|| Ok(ran), Err)
    })
}

/// Wrong data is told as what it is, and not as a host that is lost.
fn said(ran: Result<(Found, Option<LabError>), LabError>) -> Say {
    match ran {
        Ok((found, None)) => Say::Ran { run: Box::new(RunRecord::of(&found)) },
        Ok((found, Some(error))) => {
            Say::Failed { why: error.to_string(), cause: Cause::of(&error), wrong_sectors: found.wrong.sectors }
        }
        Err(error) => Say::failed(&error),
    }
}
