use super::*;
use crate::recipe::page::Order;
use crate::recipe::tests::{made_up, page_of};
use stele_lab::job::RecipePart;
use stele_lab::live::run::Load;

fn job(quick: bool) -> Job {
    let recipe = RecipePart { name: "snia-pts".into(), quick, beside: Vec::new() };
    Job { on: Some("/dev/sdx".into()), recipe: Some(recipe), ..Job::default() }
}

fn cells(quick: bool) -> Vec<JobCell> {
    live(&job(quick), quick).unwrap().into_iter().map(|asked| asked.cell).collect()
}

#[test]
fn the_plan_has_25_rounds_of_each_test_behind_its_preconditioning() {
    let all = cells(false);
    assert_eq!(all.len(), 1 + 25 * (7 * 8 + 2 * 2 + 3 * 3));
    let written: Vec<String> = all.iter().filter(|cell| cell.precondition == Some(2)).map(JobCell::name).collect();
    assert_eq!(written.len(), 3, "{written:?}");
    assert!(
        written[0].starts_with("test iops, round 1") && written[2].starts_with("test latency, round 1"),
        "{written:?}"
    );
    let minute = all[1].setup.timing.least;
    let saturation = all[0].setup.timing;
    let hour = 60 * minute.0;
    assert_eq!((minute.0, saturation.least.0, saturation.most.0), (60_000_000_000, hour / 2, 6 * hour));
    for cell in all.iter().filter(|cell| cell.name().starts_with("test latency")) {
        assert_eq!((cell.setup.load, cell.setup.workers), (Load::Outstanding(1), 1));
    }
    let ordered = |cell: &&JobCell| cell.setup.spec.random == Some(0);
    assert!(all.iter().filter(ordered).all(|cell| cell.name().starts_with("test throughput")));
    assert_eq!(cells(true).len(), 1 + 5 * (2 * 2 + 2 + 3));
}

#[test]
fn the_page_has_each_tests_window_table_and_rule() {
    let all = cells(true);
    let page = page_of(&made_up(&job(true), &all, Some("abc123")), false);
    for said in [
        "IOPS: steady state window, 0 % read, 4 KiB",
        "Throughput: steady state window, 0 % read, 128 KiB",
        "Latency: percentiles over all rounds",
        "Write saturation: rate",
        "nothing was purged",
        "the rule is",
        "--recipe snia-pts --on /dev/sdx --quick",
    ] {
        assert!(page.contains(said), "{said}: {page}");
    }
    assert!(page.contains("href=\"#iops-4096-read-100\""), "sentences lead to their places");
    let half = page_of(&made_up(&job(true), &all[..10], None), false);
    assert!(half.contains("Throughput: not all of its rounds were measured"), "{half}");
}

#[test]
fn there_is_nothing_published_and_no_virtual_time() {
    let job = job(true);
    let recorded = made_up(&job, &cells(true), Some("abc123"));
    let part = job.recipe.as_ref().unwrap();
    let error = paper::document(Order { recorded: &recorded, part, title: None, against: true }).unwrap_err();
    assert!(error.to_string().contains("leave out --against"));
    assert!(not_in_virtual_time().to_string().contains("--on /dev/sdx"));
}

#[test]
fn rounds_end_with_the_first_window_that_keeps_the_rule() {
    let all = cells(false);
    let [iops, ..] = &TESTS;
    let (read, size) = iops.tracked;
    let mut recorded = made_up(&job(false), &all, Some("abc123"));
    // Rates that fall by a third, six times, and stay.
    for (number, cell) in recorded.cells.iter_mut().enumerate() {
        let round = cell.axis("round").and_then(|round| round.parse::<u32>().ok()).unwrap_or(1);
        let rate = 10_000.0 * 0.67f64.powi(round.min(7) as i32) + number as f64 * 1e-3;
        cell.runs.iter_mut().flat_map(|run| &mut run.rounds).for_each(|one| one.rate = rate);
    }
    assert_eq!(window(&recorded.cells, iops), Some(11), "rounds 7 to 11");
    assert_eq!(counted(&recorded.cells, iops), 7..=11);
    let of = |round: u32| {
        let found = found(&recorded.cells, iops, round, read, size).unwrap();
        (all[found.number].clone(), recorded.cells[..found.number].to_vec())
    };
    let (eleventh, before) = of(11);
    assert!(matches!(next(&eleventh, &before), Next::Run(_)));
    let (twelfth, before) = of(12);
    assert!(matches!(next(&twelfth, &before), Next::Skip));
    let other = all.iter().find(|cell| cell.name().starts_with("test throughput, round 12")).unwrap();
    assert!(matches!(next(other, &before), Next::Run(_)), "another test has rounds of its own");
    recorded.cells.retain(|cell| cell.axis("test") != Some("iops") || cell.number <= eleventh_number(&all));
    let page = page_of(&recorded, false);
    assert!(page.contains("Of 11 rounds, rounds 7 to 11 keep the rule"), "{page}");
    assert!(page.contains("IOPS: the tracked figure over all rounds"), "{page}");
}

/// The last cell of round 11.
fn eleventh_number(all: &[JobCell]) -> usize {
    all.iter().rposition(|cell| cell.name().starts_with("test iops, round 11,")).unwrap()
}

#[test]
fn a_test_that_never_settles_shows_its_last_rounds() {
    let all = cells(false);
    let mut recorded = made_up(&job(false), &all, Some("abc123"));
    for cell in &mut recorded.cells {
        let round = cell.axis("round").and_then(|round| round.parse::<i32>().ok()).unwrap_or(1);
        cell.runs.iter_mut().flat_map(|run| &mut run.rounds).for_each(|one| one.rate = 1000.0 * 1.5f64.powi(round));
    }
    let [iops, ..] = &TESTS;
    assert_eq!((window(&recorded.cells, iops), counted(&recorded.cells, iops)), (None, 21..=25));
    let page = page_of(&recorded, false);
    assert!(page.contains("Of 25 rounds, no 5 in a row keep the rule"), "{page}");
    assert!(page.contains("without a steady state"), "{page}");
}
