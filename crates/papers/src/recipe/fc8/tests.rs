use super::*;
use crate::recipe::tests::{made_up, page_of};
use stele_lab::job::RecipePart;
use stele_lab::live::run::Load;

fn job() -> Job {
    let recipe = RecipePart { name: "fc8".into(), quick: true, beside: Vec::new() };
    Job { on: Some("nbd://host/vm1".into()), recipe: Some(recipe), ..Job::default() }
}

#[test]
fn the_plan_has_the_nine_rows_as_they_are_printed() {
    let asked = live(&job()).unwrap();
    let rows: Vec<(u8, u32, u64)> = asked
        .iter()
        .map(|asked| {
            let setup = &asked.cell.setup;
            let Load::Outstanding(depth) = setup.load else { panic!("{setup:?}") };
            (setup.spec.read.unwrap(), depth, setup.spec.sizes[0].0)
        })
        .collect();
    assert_eq!(
        rows,
        [
            (50, 32, 512),
            (50, 32, 1024),
            (50, 32, 2048),
            (50, 32, 4096),
            (50, 32, 8192),
            (0, 32, 512),
            (100, 16, 512),
            (50, 160, 262_144),
            (50, 32, 262_144),
        ]
    );
}

#[test]
fn the_paper_states_both_directions_apart_and_the_printed_figures_beside() {
    let job = job();
    let cells: Vec<_> = live(&job).unwrap().into_iter().map(|asked| asked.cell).collect();
    let recorded = made_up(&job, &cells, Some("abc123"));
    let page = |against| page_of(&recorded, against);
    let beside = page(true);
    for said in [
        "401,605",
        "474,858",
        "1,534",
        ">764<",
        "--recipe fc8 --on nbd://host/vm1 --quick --against published",
        "abc123",
    ] {
        assert!(beside.contains(said), "{said}");
    }
    // 1,007 a second of 256 KiB, half of them read.
    assert!(beside.contains(">132<") && beside.contains(">264<"), "{beside}");
    assert!(!page(false).contains("401,605"), "nothing published where it was not asked for");
    let half = made_up(&job, &cells[..3], None);
    assert!(!page_of(&half, true).contains("were not measured"), "it was stopped");
    let few = made_up(&job, &cells[..3], Some("abc123"));
    assert!(page_of(&few, true).contains(&format!("{} of {} cells were not measured", cells.len() - 3, cells.len())));
}

#[test]
fn virtual_time_is_refused_with_what_to_do_instead() {
    assert!(not_in_virtual_time().to_string().contains("--on nbd://"));
}
