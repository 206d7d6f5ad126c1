//! A plan of questions to modelled arrays, divided among threads.
//!
//! Each question has its own seed and its own drives, so the digits do not depend on which others
//! are asked, nor on the number of threads. Answers are handed over in the plan's order. One
//! filling serves all questions to a pool: it is made for the first and let go of after the last.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError};

use stele_media::simulated::HardDriveSpec;

use super::{Answer, Array, Effort, Maker, Models, Query, ask, stele};
use crate::error::LabError;
use crate::pool::Filled;
use crate::raid::Level;
use crate::workload::{AccessSpec, Alignment};

/// One question.
#[derive(Clone, Debug)]
pub struct QueryPlan {
    pub array: Array,
    pub spec: AccessSpec,
    pub alignment: Alignment,
    pub ask: Query,
    pub effort: Effort,
    /// Accesses go to so many parts of the volume, each with its own end for sequential ones; of
    /// Stele's arrays only.
    pub streams: u64,
}

type Filling = (u32, Level, u8);

/// Orders questions by the maker of their array, and the longest first within one, so that threads
/// end together. Questions of one pool come near each other, so that few pools are held, but not
/// side by side, so that threads do not wait for the same filling. `at` tells a question from an
/// item.
pub fn arrange<T>(items: &mut Vec<T>, at: impl Fn(&T) -> &QueryPlan) {
    let mut seen: BTreeMap<(Filling, Maker), usize> = BTreeMap::new();
    let mut keyed: Vec<_> = std::mem::take(items)
        .into_iter()
        .map(|item| {
            let array = at(&item).array;
            let count = seen.entry((array.filling(), array.maker)).or_default();
            *count += 1;
            ((array.maker, std::cmp::Reverse(array.drives), array.stroke, *count, array.level), item)
        })
        .collect();
    keyed.sort_by_key(|(key, _)| *key);
    items.extend(keyed.into_iter().map(|(_, item)| item));
}

/// A filling, and how many questions will still be asked of it.
struct Shared {
    filled: Mutex<Option<Arc<Filled>>>,
    asked: AtomicUsize,
}

impl Shared {
    fn with<T>(&self, array: &Array, then: impl FnOnce(&Filled) -> Result<T, String>) -> Result<T, String> {
        let filled = {
            let mut held = self.filled.lock().unwrap_or_else(PoisonError::into_inner);
            let filled = match held.take() {
                Some(filled) => filled,
                None => Arc::new(array.pool(HardDriveSpec::published_15k())?.fill()?),
            };
            if self.asked.fetch_sub(1, Ordering::Relaxed) > 1 {
                *held = Some(Arc::clone(&filled));
            }
            filled
        };
        then(&filled)
    }
}

/// Asks all, so many at once. `models` builds the arrays that are not Stele's. `each` gets the
/// answers in order; where it fails, or `stop` is set, the rest is left out. Answers whether the
/// plan came to its end.
pub fn run(
    plan: &[QueryPlan],
    models: Models<'_>,
    threads: usize,
    stop: &AtomicBool,
    each: &mut dyn FnMut(usize, Answer) -> Result<(), LabError>,
) -> Result<bool, LabError> {
    let mut pools: BTreeMap<Filling, Shared> = BTreeMap::new();
    for planned in plan.iter().filter(|planned| planned.array.maker.is_stele()) {
        planned.array.check()?;
        let shared = pools.entry(planned.array.filling());
        let shared = shared.or_insert(Shared { filled: Mutex::new(None), asked: AtomicUsize::new(0) });
        *shared.asked.get_mut() += 1;
    }
    let (ended, next) = (AtomicBool::new(false), AtomicUsize::new(0));
    let goes_on = || !stop.load(Ordering::Relaxed) && !ended.load(Ordering::Relaxed);
    let one = |planned: &QueryPlan| -> Result<Answer, String> {
        let (array, spec) = (&planned.array, &planned.spec);
        let mut running = match pools.get(&array.filling()).filter(|_| array.maker.is_stele()) {
            Some(shared) => {
                shared.with(array, |filled| stele(array, filled, spec, planned.alignment, planned.streams))?
            }
            None => models(array, spec, planned.alignment),
        };
        ask(running.as_mut(), &planned.ask, planned.effort, &goes_on)
    };
    let (sender, answers) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1).min(plan.len()) {
            let (sender, one, next, goes_on) = (sender.clone(), &one, &next, &goes_on);
            scope.spawn(move || {
                while goes_on() {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(planned) = plan.get(at) else { return };
                    if sender.send((at, one(planned))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        let gathered = gather(plan, &answers, &goes_on, each);
        ended.store(true, Ordering::Relaxed);
        gathered
    })
}

fn gather(
    plan: &[QueryPlan],
    answers: &mpsc::Receiver<(usize, Result<Answer, String>)>,
    goes_on: &dyn Fn() -> bool,
    each: &mut dyn FnMut(usize, Answer) -> Result<(), LabError>,
) -> Result<bool, LabError> {
    let mut waiting: BTreeMap<usize, Answer> = BTreeMap::new();
    let mut due = 0;
    for (at, answer) in answers.iter() {
        match answer {
            Ok(answer) => waiting.insert(at, answer),
            Err(_) if !goes_on() => continue,
            Err(why) => {
                let what = plan.get(at).map_or(String::new(), |one| format!("{}, {}: ", one.array, one.spec.name));
                return Err(LabError::Failed(format!("{what}{why}")));
            }
        };
        while let Some(answer) = waiting.remove(&due) {
            each(due, answer)?;
            due += 1;
        }
    }
    // What was answered behind one that was stopped is whole too, but a result has no gaps.
    Ok(due == plan.len())
}
