//! The whole set of published tables, asked of the profile of the published machine and of a pool of Stele.
//!
//! Cases are divided among threads; each case has its own seed and its own drives, so the digits do not depend on which
//! other cases are asked, nor on the number of threads.

use std::sync::atomic::AtomicBool;

use crate::cases::{self, STROKE};
use crate::modelled::run::{Planned, arrange, run};
use crate::modelled::{Answer, Effort, LogPlace, Maker};
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
        let rounds = answer.nearest().map_or(&[][..], |run| &run.rounds);
        let busy: f64 = rounds.iter().filter_map(|round| round.busy.controllers).sum();
        Figure {
            rate: answer.highest.as_ref().map_or(0.0, |highest| highest.rate),
            busy: busy / rounds.len().max(1) as f64,
            steady: answer.highest.as_ref().is_some_and(|highest| highest.steady),
        }
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

/// All answers in the order of the questions.
fn ask_all(questions: Vec<Planned>, threads: usize) -> Result<Vec<Answer>, String> {
    let mut arranged: Vec<(usize, Planned)> = questions.into_iter().enumerate().collect();
    arrange(&mut arranged, |(_, planned)| planned);
    let (places, plan): (Vec<usize>, Vec<Planned>) = arranged.into_iter().unzip();
    let mut answers: Vec<(usize, Answer)> = Vec::new();
    run(&plan, threads, &AtomicBool::new(false), &mut |at, answer| {
        answers.push((places[at], answer));
        Ok(())
    })
    .map_err(|error| error.to_string())?;
    answers.sort_by_key(|(place, _)| *place);
    Ok(answers.into_iter().map(|(_, answer)| answer).collect())
}

/// Every cell that `wants` lets through for one or another of those asked. The profile is always asked, since the others
/// are judged by it.
pub fn rows(
    wants: &(dyn Fn(&Cell, Asked) -> bool + Sync),
    efforts: (Effort, Effort),
    threads: usize,
) -> Result<Vec<Row>, String> {
    let asked = [Asked::Profile, Asked::Stele, Asked::SteleLogOnDrives];
    let cells: Vec<Cell> =
        published::cells().into_iter().filter(|cell| asked.iter().any(|who| wants(cell, *who))).collect();
    let mut questions: Vec<Planned> = Vec::new();
    let mut places: Vec<(usize, Asked)> = Vec::new();
    for (at, cell) in cells.iter().enumerate() {
        for who in asked {
            let (maker, effort) = match who {
                Asked::Profile => (Maker::Ds4500, efforts.0),
                Asked::Stele => (Maker::Stele, efforts.1),
                Asked::SteleLogOnDrives => (Maker::Stele, efforts.1),
            };
            let mut array = cases::array_of(cell, maker);
            if who == Asked::SteleLogOnDrives {
                array.log = LogPlace::Drives;
            }
            let wanted = who == Asked::Profile || wants(cell, who);
            if wanted && (who != Asked::SteleLogOnDrives || asks_for_log_on_drives(cell)) {
                questions.push(cases::question(cell, array, effort)?);
                places.push((at, who));
            }
        }
    }
    let none = Figure { rate: 0.0, busy: 0.0, steady: false };
    let row = |cell: Cell| Row { cell, profile: none, stele: None, stele_log_on_drives: None };
    let mut rows: Vec<Row> = cells.into_iter().map(row).collect();
    for ((at, who), answer) in places.into_iter().zip(ask_all(questions, threads)?) {
        let figure = Figure::of(&answer);
        match who {
            Asked::Profile => rows[at].profile = figure,
            Asked::Stele => rows[at].stele = Some(figure),
            Asked::SteleLogOnDrives => rows[at].stele_log_on_drives = Some(figure),
        }
    }
    Ok(rows)
}

/// Tables 2 and 6, at 20 drives without the cache.
pub fn strokes(wants: &dyn Fn(&Stroke) -> bool, effort: Effort, threads: usize) -> Result<Vec<StrokeRow>, String> {
    let wanted: Vec<Stroke> = published::strokes().into_iter().filter(|stroke| wants(stroke)).collect();
    let mut asked: Vec<(Level, u64, u32)> = Vec::new();
    for stroke in &wanted {
        for percent in [u32::from(STROKE), stroke.percent] {
            if !asked.contains(&(stroke.level, stroke.size, percent)) {
                asked.push((stroke.level, stroke.size, percent));
            }
        }
    }
    let cells = published::cells();
    let questions = asked.iter().map(|(level, size, percent)| {
        let same = |cell: &&Cell| {
            (cell.level, cell.size, cell.drives, cell.cached, cell.workload.as_str())
                == (*level, *size, 20, false, "oltp")
        };
        let cell = cells.iter().find(same).ok_or("a cell of 20 drives is missing")?;
        let mut array = cases::array_of(cell, Maker::Ds4500);
        array.stroke = *percent as u8;
        cases::question(cell, array, effort)
    });
    let answers = ask_all(questions.collect::<Result<_, String>>()?, threads)?;
    let rates: Vec<f64> = answers.iter().map(|answer| Figure::of(answer).rate).collect();
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
        let ours: Vec<f64> =
            same.map(|s| rate(s.level, s.size, s.percent) / rate(s.level, s.size, u32::from(STROKE))).collect();
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

#[cfg(test)]
mod tests;
