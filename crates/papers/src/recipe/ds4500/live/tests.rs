use super::*;
use crate::recipe::tests::{made_up, page_of};
use stele_lab::job::RecipePart;

fn job(quick: bool) -> Job {
    let recipe = RecipePart { name: "ds4500".into(), quick, beside: Vec::new() };
    Job { on: Some("/dev/sdx".into()), recipe: Some(recipe), ..Job::default() }
}

#[test]
fn every_access_specification_of_the_tables_is_searched_for_once() {
    let asked = plan(&job(false), false).unwrap();
    let names: Vec<&str> = asked.iter().map(|asked| asked.cell.setup.spec.name.as_str()).collect();
    for name in [
        "oltp_4k",
        "oltp_8k",
        "oltp_16k",
        "oltp_32k",
        "oltp_64k",
        "file_server",
        "web_server",
        "random_read_4k",
        "random_write_8k",
    ] {
        assert_eq!(names.iter().filter(|one| **one == name).count(), 1, "{name} in {names:?}");
    }
    assert!(asked.iter().all(|asked| asked.cell.goal.is_some_and(|goal| goal.response == RESPONSE)));
    assert_eq!(plan(&job(true), true).unwrap().len(), QUICK.len());
}

#[test]
fn the_target_is_one_row_beside_the_published_ones() {
    let job = job(false);
    let cells: Vec<_> = plan(&job, false).unwrap().into_iter().map(|asked| asked.cell).collect();
    let recorded = made_up(&job, &cells, Some("abc123"));
    let page = |against| page_of(&recorded, against);
    let beside = page(true);
    for said in
        ["this target", "Table 1 and Table 5", "Table 3 and Table 7", "Table 4 and Table 8", "16,525", "--on /dev/sdx"]
    {
        assert!(beside.contains(said), "{said}");
    }
    assert!(!page(false).contains("16,525"), "nothing published where it was not asked for");
    assert!(!beside.contains("were not measured"));
    let few = made_up(&job, &cells[..9], Some("abc123"));
    assert!(page_of(&few, true).contains(&format!("{} of {} cells were not measured", cells.len() - 9, cells.len())));
}

#[test]
fn a_search_of_the_recipe_ends_as_the_law_of_its_target_says() {
    use stele_lab::closed::Probe;
    use stele_lab::search::{Ending, highest};
    for quick in [true, false] {
        for Asked { cell, .. } in plan(&job(quick), quick).unwrap() {
            let ended = |millis: fn(u64) -> f64| {
                let found = highest(cell.goal.unwrap(), |load| {
                    let mut response = stele_lab::histogram::Histogram::default();
                    response.record(stele_ground::Duration((millis(load) * 1e6) as u64));
                    let rate = load as f64 / millis(load) * 1000.0;
                    Ok(Probe { outstanding: load, rate, response, rates: Vec::new(), steady: true })
                });
                let found = found.unwrap();
                (found.ending, found.load.round() as u64)
            };
            assert_eq!(ended(|_| 0.001), (Ending::NeverExceeded, LOAD_MAX));
            assert_eq!(ended(|_| 50.0), (Ending::AlwaysExceeded, 1));
            // A generator that takes 0.1 ms for each access beside those that wait.
            assert_eq!(ended(|load| 0.1 * load as f64), (Ending::Found, 200));
        }
    }
}
