use super::*;
use crate::recipe::page::Order;
use crate::recipe::tests::{made_up, page_of};
use stele_lab::job::RecipePart;
use stele_lab::live::run::Load;

fn job(quick: bool) -> Job {
    let recipe = RecipePart { name: "snia-pts".into(), quick, beside: Vec::new() };
    Job { on: Some("/dev/sdx".into()), recipe: Some(recipe), ..Job::default() }
}

fn cells(quick: bool) -> Vec<Cell> {
    live(&job(quick), quick).unwrap().into_iter().map(|asked| asked.cell).collect()
}

#[test]
fn the_plan_has_five_rounds_of_each_test_behind_its_preconditioning() {
    let all = cells(false);
    assert_eq!(all.len(), 1 + 5 * (7 * 8 + 2 * 2 + 3 * 3));
    let written: Vec<String> = all.iter().filter(|cell| cell.precondition == Some(2)).map(Cell::name).collect();
    assert_eq!(written.len(), 3, "{written:?}");
    assert!(
        written[0].starts_with("test iops, round 1") && written[2].starts_with("test latency, round 1"),
        "{written:?}"
    );
    let minute = all[1].setup.timing.least;
    assert_eq!((minute.0, all[0].setup.timing.most.0), (60_000_000_000, 30 * minute.0));
    for cell in all.iter().filter(|cell| cell.name().starts_with("test latency")) {
        assert_eq!((cell.setup.load, cell.setup.workers), (Load::Outstanding(1), 1));
    }
    let ordered = |cell: &&Cell| cell.setup.spec.random == Some(0);
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
        "Nothing is purged",
        "the rule is",
        "--recipe snia-pts --on /dev/sdx --quick",
    ] {
        assert!(page.contains(said), "{said}: {page}");
    }
    assert!(page.contains("href=\"#iops-4096-read-100\""), "sentences lead to their places");
    let half = page_of(&made_up(&job(true), &all[..10], None), false);
    assert!(half.contains("Throughput: was not measured whole"), "{half}");
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
