//! The whole set of published tables, asked of the profile of the published machine and of a pool of Stele.
//!
//! Cases are divided among threads; each case has its own seed and its own drives, so the digits do not depend on which
//! other cases are asked, nor on the number of threads.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::cases::{self, Answer, Effort, LogPlace, Machine, STROKE};
use crate::pool::Filled;
use crate::published::{self, Cell, Level, Stroke};

/// Who is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asked {
    /// The profile of the published machine.
    Profile,
    /// Stele, its log in the memory that the published machine has.
    Stele,
    /// Stele, its log on the hard drives.
    SteleLogOnDrives,
}

/// What is left of an answer.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Figure {
    /// Accesses a second at a mean response of 20 ms.
    pub rate: f64,
    /// Share of the time that the controllers were busy.
    pub busy: f64,
    pub steady: bool,
}

impl Figure {
    fn of(answer: &Answer) -> Figure {
        Figure { rate: answer.highest.rate, busy: answer.controllers_busy, steady: answer.highest.steady }
    }

    /// The controllers, not the drives, set the rate.
    pub fn controller_bound(&self) -> bool {
        self.busy > 0.9
    }
}

/// A published cell and what was found beside it.
#[derive(Clone, Debug)]
pub struct Row {
    pub cell: Cell,
    pub profile: Figure,
    pub stele: Option<Figure>,
    pub stele_log_on_drives: Option<Figure>,
}

impl Row {
    pub fn error(&self) -> f64 {
        self.profile.rate / self.cell.rate - 1.0
    }
}

/// A published multiplier and ours: the mean over 4, 8 and 16 KiB, as the paper states one for all three.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct StrokeRow {
    pub table: u8,
    pub level: Level,
    pub percent: u32,
    pub published: f64,
    pub ours: f64,
}

/// Cells that the parameters of drives or controllers were fitted to.
pub fn is_fitted(cell: &Cell) -> bool {
    let basis = !cell.cached && published::suspicion(cell).is_none();
    basis && (cell.drives == 20 || (cell.drives == 140 && cell.workload == "random_read"))
}

/// The log on the hard drives is asked for where a write's answer hangs on it.
fn asks_for_log_on_drives(cell: &Cell) -> bool {
    cell.cached && cell.size == 4096 && cell.workload == "random_write"
}

/// A cell asked of Stele.
#[derive(Clone, Copy, Debug)]
struct Question {
    /// Among the rows.
    at: usize,
    log: LogPlace,
}

/// One filling serves all cells of a pool; it is made for the first and let go of after the last.
#[derive(Default)]
struct Pool {
    filled: Mutex<Option<Arc<Filled>>>,
    /// How often it will still be asked.
    asked: Mutex<usize>,
}

impl Pool {
    fn with(
        &self,
        fill: impl FnOnce() -> Result<Filled, String>,
        ask: impl FnOnce(&Filled) -> Result<Answer, String>,
    ) -> Result<Answer, String> {
        let filled = {
            let mut held = self.filled.lock().unwrap_or_else(PoisonError::into_inner);
            let filled = match held.take() {
                Some(filled) => filled,
                None => Arc::new(fill()?),
            };
            let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
            *asked -= 1;
            if *asked > 0 {
                *held = Some(Arc::clone(&filled));
            }
            filled
        };
        ask(&filled)
    }
}

/// Every cell that `wants` lets through for one or another of those asked. The profile is always asked, since the others
/// are judged by it.
pub fn rows(
    wants: &(dyn Fn(&Cell, Asked) -> bool + Sync),
    efforts: (Effort, Effort),
    threads: usize,
) -> Result<Vec<Row>, String> {
    let machine = Machine::PUBLISHED;
    let asked = [Asked::Profile, Asked::Stele, Asked::SteleLogOnDrives];
    let cells: Vec<Cell> =
        published::cells().into_iter().filter(|cell| asked.iter().any(|who| wants(cell, *who))).collect();
    let profiles = in_parallel(&cells, threads, |cell| cases::ask_ds4500(cell, STROKE, machine, efforts.0));
    let profiles: Vec<Figure> =
        profiles.into_iter().map(|answer| answer.map(|a| Figure::of(&a))).collect::<Result<_, _>>()?;
    let mut rows: Vec<Row> = cells
        .into_iter()
        .zip(profiles)
        .map(|(cell, profile)| Row { cell, profile, stele: None, stele_log_on_drives: None })
        .collect();
    let mut questions: Vec<Question> = Vec::new();
    for (log, who) in [(LogPlace::Memory, Asked::Stele), (LogPlace::Drives, Asked::SteleLogOnDrives)] {
        for (at, row) in rows.iter().enumerate() {
            if wants(&row.cell, who) && (log == LogPlace::Memory || asks_for_log_on_drives(&row.cell)) {
                questions.push(Question { at, log });
            }
        }
    }
    let pool_of = |question: &Question| {
        let cell = &rows[question.at].cell;
        (std::cmp::Reverse(cell.drives), cell.level)
    };
    // The longest first, so that the threads end together; those of a pool one after another, so that few are held.
    questions.sort_by_key(pool_of);
    let mut pools: Vec<Pool> = Vec::new();
    let mut pool_at: Vec<usize> = Vec::new();
    for (number, question) in questions.iter().enumerate() {
        if number == 0 || pool_of(question) != pool_of(&questions[number - 1]) {
            pools.push(Pool::default());
        }
        let last = pools.len() - 1;
        *pools[last].asked.get_mut().unwrap_or_else(PoisonError::into_inner) += 1;
        pool_at.push(last);
    }
    let jobs: Vec<(Question, usize)> = questions.into_iter().zip(pool_at).collect();
    let found = in_parallel(&jobs, threads, |(question, pool)| {
        let row = &rows[question.at];
        let ask = |filled: &Filled| {
            let start = (row.profile.rate * cases::RESPONSE.as_secs_f64()) as u64;
            cases::ask_stele(&row.cell, filled, question.log, machine, efforts.1, start)
        };
        let answer = pools[*pool].with(|| cases::pool_like(&row.cell, STROKE, machine)?.fill(), ask);
        answer.map(|answer| Figure::of(&answer)).map_err(|why| format!("{}: {why}", name(&row.cell)))
    });
    for ((question, _), figure) in jobs.iter().zip(found) {
        match question.log {
            LogPlace::Memory => rows[question.at].stele = Some(figure?),
            LogPlace::Drives => rows[question.at].stele_log_on_drives = Some(figure?),
        }
    }
    Ok(rows)
}

/// Tables 2 and 6, at 20 drives without the cache.
pub fn strokes(wants: &dyn Fn(&Stroke) -> bool, effort: Effort, threads: usize) -> Result<Vec<StrokeRow>, String> {
    let wanted: Vec<Stroke> = published::strokes().into_iter().filter(|stroke| wants(stroke)).collect();
    let mut asked: Vec<(Level, u64, u32)> = Vec::new();
    for stroke in &wanted {
        for percent in [8, stroke.percent] {
            if !asked.contains(&(stroke.level, stroke.size, percent)) {
                asked.push((stroke.level, stroke.size, percent));
            }
        }
    }
    let cells = published::cells();
    let rates = in_parallel(&asked, threads, |(level, size, percent)| {
        let same = |cell: &&Cell| {
            (cell.level, cell.size, cell.drives, cell.cached, cell.workload.as_str())
                == (*level, *size, 20, false, "oltp")
        };
        let cell = cells.iter().find(same).ok_or("a cell of 20 drives is missing")?;
        cases::ask_ds4500(cell, f64::from(*percent) / 100.0, Machine::PUBLISHED, effort)
            .map(|answer| answer.highest.rate)
    });
    let rates: Vec<f64> = rates.into_iter().collect::<Result<_, String>>()?;
    let rate = |level, size, percent| {
        let at = asked.iter().position(|key| *key == (level, size, percent));
        at.and_then(|at| rates.get(at)).copied().unwrap_or(f64::NAN)
    };
    let mut rows: Vec<StrokeRow> = Vec::new();
    for stroke in &wanted {
        if rows.iter().any(|row| (row.level, row.percent) == (stroke.level, stroke.percent)) {
            continue;
        }
        let same = wanted.iter().filter(|other| (other.level, other.percent) == (stroke.level, stroke.percent));
        let ours: Vec<f64> = same.map(|s| rate(s.level, s.size, s.percent) / rate(s.level, s.size, 8)).collect();
        rows.push(StrokeRow {
            table: stroke.table,
            level: stroke.level,
            percent: stroke.percent,
            published: stroke.multiplier,
            ours: ours.iter().sum::<f64>() / ours.len() as f64,
        });
    }
    Ok(rows)
}

/// How near the profile comes to what was published.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub struct Nearness {
    pub cells: usize,
    /// Mean of the errors' magnitudes.
    pub error: f64,
}

/// The mean absolute error over the rows that pass.
pub fn nearness(rows: &[Row], passes: impl Fn(&Row) -> bool) -> Nearness {
    let errors: Vec<f64> = rows.iter().filter(|row| passes(row)).map(|row| row.error().abs()).collect();
    Nearness { cells: errors.len(), error: errors.iter().sum::<f64>() / errors.len().max(1) as f64 }
}

/// What a cell is called.
pub fn name(cell: &Cell) -> String {
    format!(
        "table {} {} {} drives cache {} {} {}K",
        cell.table,
        cell.level.name(),
        cell.drives,
        if cell.cached { "on" } else { "off" },
        cell.workload,
        cell.size >> 10
    )
}

/// Works on all, so many at once; the results are in the order of the jobs.
fn in_parallel<J: Sync, R: Send>(jobs: &[J], threads: usize, work: impl Fn(&J) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let results: Vec<Mutex<Option<R>>> = jobs.iter().map(|_| Mutex::new(None)).collect();
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1).min(jobs.len()) {
            scope.spawn(|| {
                while let Some(at) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|at| *at < jobs.len()) {
                    let result = work(&jobs[at]);
                    if let Ok(mut place) = results[at].lock() {
                        *place = Some(result);
                    }
                }
            });
        }
    });
    let taken = results.into_iter().filter_map(|place| place.into_inner().ok().flatten()).collect::<Vec<R>>();
    assert_eq!(taken.len(), jobs.len(), "every job has a result, or its thread has panicked");
    taken
}

#[cfg(test)]
mod tests;
