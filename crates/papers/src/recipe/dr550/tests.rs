use super::*;
use crate::recipe::page;
use crate::recipe::tests::{made_up, page_of};
use stele_lab::job::RecipePart;
use stele_lab::report::chart::figure;

fn job(quick: bool) -> Job {
    let recipe = RecipePart { name: "dr550".into(), quick, beside: Vec::new() };
    Job { on: Some("dir:/files".into()), recipe: Some(recipe), ..Job::default() }
}

#[test]
fn the_whole_plan_is_the_papers_240_cells() {
    let asked = live(&job(false), false, Halves::PageCache).unwrap();
    assert_eq!(asked.len(), 240);
    let values = |name: &str| {
        let mut seen: Vec<String> = Vec::new();
        for one in &asked {
            let value = &one.cell.axes.iter().find(|(axis, _)| axis == name).unwrap().1;
            if !seen.contains(value) {
                seen.push(value.clone());
            }
        }
        seen
    };
    assert_eq!(values("cache"), ["off", "on"]);
    assert_eq!(values("pattern"), ["random", "sequential"]);
    assert_eq!(values("direction"), ["read", "write"]);
    assert_eq!(values("access"), ["512 B", "1 KiB", "2 KiB", "4 KiB", "8 KiB"]);
    assert_eq!(values("workers"), ["1", "2", "4", "8", "16", "32"]);
    for one in &asked {
        let axis = |name: &str| one.cell.axes.iter().find(|(axis, _)| axis == name).unwrap().1.as_str();
        let setup = &one.cell.setup;
        assert_eq!(one.buffered, axis("cache") == "on");
        assert_eq!(setup.spec.random, Some(if axis("pattern") == "random" { 100 } else { 0 }));
        assert_eq!(setup.spec.writes(), axis("direction") == "write");
        assert_eq!(setup.spec.sizes, [(Bytes::parse(axis("access")).unwrap().0, 100)]);
        assert_eq!(
            (setup.workers, setup.load),
            (axis("workers").parse().unwrap(), stele_lab::live::run::Load::Outstanding(setup.workers))
        );
    }
    let mut names: Vec<String> = asked.iter().map(|one| one.cell.name()).collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 240);
}

#[test]
fn a_target_without_a_page_cache_gets_one_half_and_a_quick_plan_is_part_of_the_whole() {
    let half = live(&job(false), false, Halves::One).unwrap();
    assert!(half.len() == 120 && half.iter().all(|one| !one.buffered));
    let whole = live(&job(false), false, Halves::PageCache).unwrap();
    let quick = live(&job(true), true, Halves::PageCache).unwrap();
    assert_eq!(quick.len(), 48);
    assert!(!left_out(true).is_empty() && left_out(false).is_empty());
    for one in &quick {
        assert!(whole.iter().any(|other| other.cell.name() == one.cell.name()), "{}", one.cell.name());
    }
}

#[test]
fn two_targets_are_the_two_halves() {
    let asked = live(&job(false), false, Halves::Targets).unwrap();
    assert_eq!(asked.len(), 240);
    for one in &asked {
        let cached = one.cell.axes.iter().any(|axis| *axis == ("cache".to_owned(), "on".to_owned()));
        assert_eq!((one.buffered, one.targets.clone()), (false, if cached { 1..2 } else { 0..1 }));
    }
    let recipe = RecipePart { name: "dr550".into(), quick: true, beside: vec!["dir:/on".into()] };
    let job = Job { on: Some("dir:/off".into()), recipe: Some(recipe), ..Job::default() };
    let cells: Vec<_> = live(&job, true, Halves::Targets).unwrap().into_iter().map(|one| one.cell).collect();
    let page = page_of(&made_up(&job, &cells, Some("abc123")), true);
    for said in ["dir:/off is the file server without its cache, dir:/on with it", "--on dir:/off --on dir:/on"] {
        assert!(page.contains(said), "{said}: {page}");
    }
    assert!(!page.contains("is the page cache of the machine"), "{page}");
}

#[test]
fn in_virtual_time_all_kinds_are_asked_and_reads_with_a_cache_of_its_model() {
    let plan = plan(false).unwrap();
    assert_eq!(plan.cells.len(), 40 + 30, "eight kinds of five sizes, and six of them behind a processor");
    let charged = plan.cells.iter().filter(|(_, planned)| planned.array.maker == Maker::SteleOn(1));
    assert!(charged.clone().count() == 30 && charged.clone().all(|(cell, _)| cell.axes.last().unwrap().0 == CHARGED));
    for (cell, planned) in &plan.cells {
        assert!(matches!(&planned.ask, Query::Loads(loads) if loads == &[1, 2, 4, 8, 16, 32]), "{}", cell.name());
        let reads = planned.spec.read == Some(100);
        let is_cached = cell.axes.contains(&("cache".to_owned(), "on".to_owned()));
        assert_eq!(planned.array.maker == Maker::SteleBehindCache, reads && is_cached, "{}", cell.name());
        assert_eq!(planned.array.cached, is_cached && !reads);
        assert_eq!((planned.array.drives, planned.array.level), (48, Level::Raid5));
    }
}

#[test]
fn in_virtual_time_the_peaks_behind_a_processor_have_a_table_and_stay_out_of_the_others() {
    let job = Job { on: None, ..job(false) };
    let cells: Vec<_> = plan(false).unwrap().cells.into_iter().map(|(cell, _)| cell).collect();
    let mut recorded = made_up(&job, &cells, Some("abc123"));
    let kind = kinds().next().unwrap();
    let free = Found { recorded: &recorded }.highest(kind, page::rate).unwrap();
    let (free, before) = (page::rate(free.run), page_of(&recorded, true));
    for said in ["With its processor modelled", "charged-random-read-off-rate", "charged-sequential-write-on-rate"] {
        assert!(before.contains(said), "{said}: {before}");
    }
    assert!(!before.contains("charged-random-read-on"), "the gateway's memory has no measured cost");
    for cell in recorded.cells.iter_mut().filter(|cell| cell.axis(CHARGED).is_some()) {
        for round in cell.runs.iter_mut().flat_map(|run| &mut run.rounds) {
            round.rate *= 3.0;
        }
    }
    let found = Found { recorded: &recorded };
    assert_eq!(page::rate(found.highest(kind, page::rate).unwrap().run), free);
    assert!(page::rate(found.highest_charged(kind, page::rate).unwrap().run) > free);
}

#[test]
fn the_paper_has_the_published_peaks_beside_its_own_and_sixteen_charts() {
    let job = job(false);
    let cells: Vec<_> = live(&job, false, Halves::PageCache).unwrap().into_iter().map(|one| one.cell).collect();
    let recorded = made_up(&job, &cells, Some("abc123"));
    let beside = page_of(&recorded, true);
    for number in 1..=16 {
        assert!(beside.contains(&format!("Chart {number}. ")), "chart {number}");
    }
    for said in [
        "abc123",
        "--recipe dr550 --on dir:/files --against published",
        ">110<",
        ">63<",
        "8 or 16",
        "does not say whether its MB",
    ] {
        assert!(beside.contains(said), "{said}");
    }
    let alone = page_of(&recorded, false);
    assert!(
        !alone.contains(">110<") && !alone.contains("as published"),
        "nothing published where it was not asked for"
    );
    let half = made_up(&job, &cells[..7], None);
    assert!(page_of(&half, true).contains("stopped before its end"));
    assert!(page_of(&made_up(&job, &[], None), true).contains("stopped before its end"));
}

#[test]
fn a_figure_of_an_unsteady_run_stands_in_parentheses_and_the_summary_says_how_many_there_are() {
    let job = job(true);
    let cells: Vec<_> = live(&job, true, Halves::One).unwrap().into_iter().map(|one| one.cell).collect();
    let mut recorded = made_up(&job, &cells, Some("abc123"));
    let sure = page_of(&recorded, false);
    assert!(!sure.contains("did not become steady") && !sure.contains(">("), "{sure}");
    let run = recorded.cells[0].runs.last_mut().unwrap();
    run.rounds.truncate(2);
    let said = format!(">({})<", figure(page::rate(run)));
    let page = page_of(&recorded, false);
    assert!(page.contains(&format!("1 of {} measurements did not become steady", cells.len())), "{page}");
    assert!(page.contains(&said), "{said}");
}
