use stele_ground::Duration;

use super::*;
use crate::recipe::page::Order;
use stele_lab::histogram::Histogram;
use stele_lab::job::Job;
use stele_lab::live::run::{Found, Round};
use stele_lab::record::{CellRecord, Head, Recorded, RunRecord, SearchRecord, VERSION};
use stele_lab::report::html;
use stele_lab::search;

/// The page of a result of a recipe.
pub fn page_of(recorded: &Recorded, against: bool) -> String {
    let part = recorded.head.job.recipe.as_ref().unwrap();
    html::page(&paper(Order { recorded, part, title: None, against }).unwrap()).unwrap()
}

/// A result without a run: each cell's rate follows from its number.
pub fn made_up(job: &Job, cells: &[JobCell], digest: Option<&str>) -> Recorded {
    let on = job.on.clone().unwrap_or_default();
    let head = Head {
        version: VERSION,
        program: "stele".into(),
        begun: 0,
        against: None,
        target: on,
        reached: "100 files".into(),
        target_bytes: 1 << 30,
        environment: vec![("processors".into(), "2".into())],
        job: job.clone(),
    };
    let record = |(number, cell): (usize, &JobCell)| {
        let rate = 1000.0 + number as f64;
        let bytes = rate * cell.setup.spec.mean_length() as f64;
        let reads = f64::from(cell.setup.spec.read.unwrap_or(100)) / 100.0;
        let mut read = Histogram::default();
        read.record(Duration::from_millis(20));
        let round = Round {
            rate,
            read_bytes_rate: bytes * reads,
            written_bytes_rate: bytes * (1.0 - reads),
            read,
            span: 1.0,
            ..Round::default()
        };
        let found = Found {
            setup: cell.setup.clone(),
            workers: 1,
            rounds: vec![round; 5],
            steady: true,
            stopped: false,
            wrong: Default::default(),
            left_behind: false,
            unanswered: Default::default(),
            is_apart: false,
        };
        let Some(goal) = cell.goal else { return CellRecord::plain(number, cell, &found) };
        let goal = search::Goal { probes_max: 1, ..goal };
        let run = RunRecord::of(&found);
        let highest = search::highest(goal, |outstanding| Ok(stele_lab::sweep::probe_of(outstanding, &run))).unwrap();
        CellRecord::with(number, cell, vec![run], Some(SearchRecord::of(goal, &highest)))
    };
    let cells = cells.iter().enumerate().map(record).collect();
    Recorded { head, cells, digest: digest.map(str::to_owned) }
}

#[test]
fn every_recipe_that_is_listed_is_known_and_another_is_not() {
    for recipe in RECIPES {
        let part = RecipePart { name: recipe.name.into(), quick: true, beside: Vec::new() };
        match plan(&part) {
            Ok(plan) => assert!(!plan.cells.is_empty(), "{}", recipe.name),
            Err(error) => assert!(error.to_string().contains("--on"), "{error}"),
        }
    }
    let other = RecipePart { name: "ds9999".into(), quick: true, beside: Vec::new() };
    assert!(plan(&other).unwrap_err().to_string().contains("dr550, gnr-tsm, fc8"));
}
