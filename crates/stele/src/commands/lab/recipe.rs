//! A recipe on real storage. It opens its targets again for each half of its cells, with and
//! without the page cache. A cell may run on two targets at once, or on the second one alone.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use stele_lab::hosts::of_targets;
use stele_lab::job::{Job, JobCell};
use stele_lab::live::purge::purge;
use stele_lab::live::target::{Ready, Target};
use stele_lab::record::CellRecord;
use stele_lab::sweep::Step;
use stele_lab::{environment, sweep};
use stele_papers::recipe::live::{Asked, Next, next, opening, purges};
use stele_server::failure::{Failure, Outcome};

use super::modelled::Came;
use super::progress::Progress;

/// The cells to measure, and their targets.
pub struct Measured<'a> {
    pub job: &'a Job,
    pub targets: &'a [Target],
    pub asked: &'a [Asked],
    pub destroy: bool,
    pub keep: bool,
}

/// The targets as they are open now.
struct Open {
    way: Way,
    readies: Vec<Ready>,
}

/// How targets are opened: through the page cache, and with a memory of what is written.
#[derive(Clone, Copy, PartialEq)]
struct Way {
    buffered: bool,
    verify: bool,
}

impl Way {
    fn of(asked: &Asked) -> Way {
        Way { buffered: asked.buffered, verify: asked.cell.setup.content.verify }
    }
}

impl Measured<'_> {
    /// Measures the cells that `out` lacks, and removes the files that it made for them.
    pub fn measure(&self, json: bool, out: &Path, resume: bool, stop: &AtomicBool) -> Outcome<Came> {
        let mut open: Option<Open> = None;
        let measured = self.in_halves(json, out, resume, stop, &mut open);
        let mut removed = Ok(());
        for ready in open.iter().flat_map(|open| &open.readies).filter(|_| !self.keep) {
            removed = removed.and(ready.remove().map_err(Failure::from));
        }
        measured.and_then(|came| removed.map(|()| came))
    }

    fn in_halves(
        &self,
        json: bool,
        out: &Path,
        resume: bool,
        stop: &AtomicBool,
        open: &mut Option<Open>,
    ) -> Outcome<Came> {
        if let Some(first) = self.targets.first() {
            super::admit(Some(out), resume, &super::head_before(self.job, first, None))?;
        }
        let all: Vec<JobCell> = self.asked.iter().map(|asked| asked.cell.clone()).collect();
        let filling = Progress::new(json, &all);
        let mut fitting: Vec<&Asked> = Vec::new();
        let mut reached: Vec<String> = Vec::new();
        for buffered in [false, true] {
            let of_half: Vec<&Asked> = self.asked.iter().filter(|asked| asked.buffered == buffered).collect();
            if of_half.is_empty() {
                continue;
            }
            let readies = self.opened(Way { buffered, verify: false }, &filling, stop, open)?;
            reached.extend(readies.iter().map(|ready| ready.description.clone()));
            let fits = |asked: &&Asked| {
                let whole = |ready: &Ready| {
                    asked.cell.setup.spec.sizes.iter().all(|(length, _)| length.is_multiple_of(ready.block.0))
                };
                readies.iter().all(whole)
            };
            fitting.extend(of_half.into_iter().filter(fits));
        }
        let Some(first) = self.targets.first().filter(|_| !fitting.is_empty()) else {
            return Err(Failure::usage("the target takes none of the recipe's accesses: its blocks are larger"));
        };
        let bytes = open.iter().flat_map(|open| &open.readies).map(|ready| ready.size.0).sum();
        let mut known = environment::capture(first.path());
        // A file that exists is gone on with, or refused below: neither purges.
        let is_new = !out.exists();
        if purges(self.job) && is_new {
            let readies = open.iter().flat_map(|open| &open.readies);
            known.extend(readies.map(|ready| ("purge".to_owned(), purge(ready).said().to_owned())));
        }
        let head = super::head_of(self.job, first, (reached.join("; "), bytes, known));
        let (recorder, mut cells) = super::recorder(Some(out), resume, &head)?;
        let mut recorder = recorder;
        let mut before = cells.clone();
        let in_order: Vec<JobCell> = fitting.iter().map(|asked| asked.cell.clone()).collect();
        let progress = Progress::new(json, &in_order);
        progress.begin(&head, cells.len());
        let ending =
            super::in_turn(&in_order, &mut cells, &mut recorder, &progress, stop, &mut |number, cell, watch, draft| {
                let Some(asked) = fitting.get(number) else { return Ok(None) };
                let Next::Run(cell) = next(self.job, cell, &before)? else { return Ok(None) };
                let readies = self.opened(Way::of(asked), &filling, stop, open)?;
                let readies = readies.get(asked.targets.clone()).unwrap_or(readies);
                let found = together(readies, self.targets, number, &cell, stop, watch)?;
                let found = match (found, readies) {
                    (Some(found), [ready]) => {
                        Some(super::read_back(ready, &cell, found, true, (&progress, stop), draft)?)
                    }
                    (found, _) => found,
                };
                before.extend(found.clone());
                Ok(found)
            });
        let (ending, digest) = ending.finish(recorder);
        Ok(Came { head, cells, digest, ending })
    }

    /// The targets, opened in this way. It first closes targets opened in another way, so that they
    /// are not locked.
    fn opened<'o>(
        &self,
        way: Way,
        progress: &Progress<'_>,
        stop: &AtomicBool,
        open: &'o mut Option<Open>,
    ) -> Outcome<&'o [Ready]> {
        if open.as_ref().is_none_or(|open| open.way != way) {
            *open = None;
            let open = open.insert(Open { way, readies: Vec::new() });
            for target in self.targets {
                let opening = opening(self.job, target, self.asked, (way.buffered, way.verify), self.destroy)?;
                let ready = target.open(opening, &mut |done, all| {
                    progress.filling(done, all);
                    !stop.load(Ordering::Relaxed)
                })?;
                open.readies.push(ready);
            }
        }
        Ok(open.as_ref().map_or(&[], |open| open.readies.as_slice()))
    }
}

/// Runs one cell on all targets at once, from a common beginning.
fn together(
    readies: &[Ready],
    targets: &[Target],
    number: usize,
    cell: &JobCell,
    stop: &AtomicBool,
    watch: sweep::SweepWatch<'_>,
) -> Outcome<Option<CellRecord>> {
    if let [ready] = readies {
        return Ok(sweep::cell(ready, number, cell, stop, watch)?);
    }
    let pairs: Vec<(&Ready, &JobCell)> = readies.iter().map(|ready| (ready, cell)).collect();
    // The progress shows the first target.
    let ran = sweep::together(&pairs, stop, &mut |step| match step.cell {
        0 => watch(Step { cell: number, ..step }),
        _ => true,
    });
    let names: Vec<String> = targets.iter().map(Target::to_string).collect();
    let found = of_targets(&names, ran)?;
    Ok(found.map(|found| CellRecord { number, ..found }))
}
