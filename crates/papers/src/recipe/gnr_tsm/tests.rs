use super::*;
use crate::recipe::tests::{made_up, page_of};
use stele_lab::job::RecipePart;
use stele_lab::live::run::Load;

fn job(beside: &[&str]) -> Job {
    let beside = beside.iter().map(|target| (*target).to_owned()).collect();
    let recipe = RecipePart { name: "gnr-tsm".into(), quick: false, beside };
    Job { on: Some("dir:/files".into()), recipe: Some(recipe), ..Job::default() }
}

#[test]
fn a_plan_has_all_directions_by_sessions_and_servers() {
    let one = live(&job(&[]), false, 1).unwrap();
    assert_eq!(one.len(), 3 * 8);
    let two = live(&job(&["dir:/more"]), false, 2).unwrap();
    assert_eq!(two.len(), 2 * 3 * 8);
    assert!(two.iter().filter(|asked| asked.targets == (0..2)).count() == 24);
    for asked in &two {
        let setup = &asked.cell.setup;
        assert_eq!(setup.load, Load::Outstanding(setup.workers), "a session has one access under way");
        assert_eq!(setup.spec.sizes, [(1 << 20, 100)]);
    }
    assert!(live(&job(&[]), true, 1).unwrap().len() < one.len() && !left_out(true).is_empty());
}

#[test]
fn in_virtual_time_streams_run_on_8_2_over_116_drives_each_in_a_part_of_its_own() {
    let plan = plan(false).unwrap();
    assert_eq!(plan.cells.len(), 3);
    for (_, planned) in &plan.cells {
        assert_eq!((planned.array.level, planned.array.drives, planned.streams), (Level::Raid6, 116, 128));
    }
}

#[test]
fn the_paper_sets_its_peaks_beside_the_five_published_results() {
    let job = job(&["dir:/more"]);
    let cells: Vec<_> = live(&job, false, 2).unwrap().into_iter().map(|asked| asked.cell).collect();
    let mut recorded = made_up(&job, &cells, Some("abc123"));
    for cell in &mut recorded.cells {
        let servers: u32 = cell.axis("servers").unwrap().parse().unwrap();
        cell.runs.iter_mut().for_each(|run| run.outstanding = run.outstanding.map(|count| count * servers));
    }
    let page = page_of(&recorded, true);
    for said in [
        "4,017",
        "3,834",
        "4,981",
        "5,424",
        "4,821",
        "80.3 %",
        "54.2 %",
        "two servers",
        "--on dir:/files --on dir:/more",
    ] {
        assert!(page.contains(said), "{said}");
    }
    let alone = page_of(&recorded, false);
    assert!(!alone.contains("4,017"), "nothing published where it was not asked for");
}
