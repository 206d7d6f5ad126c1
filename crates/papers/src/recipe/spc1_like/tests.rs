use super::*;
use crate::recipe::page::Order;
use crate::recipe::tests::{made_up, page_of};
use stele_lab::job::RecipePart;

fn job() -> Job {
    let recipe = RecipePart { name: "spc1-like".into(), quick: true, beside: Vec::new() };
    Job { on: Some("/dev/sdx".into()), recipe: Some(recipe), ..Job::default() }
}

fn cells() -> Vec<JobCell> {
    live(&job(), true).unwrap().into_iter().map(|asked| asked.cell).collect()
}

#[test]
fn streams_make_up_the_published_mix() {
    let sum = |of: &dyn Fn(&AccessStream) -> f64| {
        STREAMS.iter().map(|one| f64::from(one.share) / 10.0 * of(one)).sum::<f64>()
    };
    assert!((sum(&|_| 1.0) - 100.0).abs() < 1e-9);
    let spec = spec();
    assert!((sum(&|one| f64::from(one.read) / 100.0) - f64::from(spec.read.unwrap())).abs() < 0.6);
    assert!(
        (sum(&|one| f64::from(one.course != AccessPattern::Ordered)) - f64::from(spec.random.unwrap())).abs() < 0.6
    );
    for (size, share) in &spec.sizes {
        let of_size = |one: &AccessStream| {
            one.sizes.iter().filter(|(own, _)| own == size).map(|(_, share)| f64::from(*share) / 100.0).sum::<f64>()
        };
        assert!((sum(&of_size) - f64::from(*share)).abs() < 0.7, "{size}");
    }
    assert_eq!(spec.sizes.iter().map(|(_, share)| u32::from(*share)).sum::<u32>(), 100);
}

#[test]
fn loads_follow_from_the_highest_rate_and_nothing_follows_without_one() {
    let all = cells();
    assert_eq!(all.len(), 1 + 1 + RAMP.len() + 4 + 1);
    assert!(matches!(next(&all[0], &[]), Next::Run(_)));
    assert!(matches!(next(&all[1], &[]), Next::Skip));
    let mut recorded = made_up(&job(), &all[..1], None);
    let search = recorded.cells[0].search.as_mut().unwrap();
    search.rate_asked = Some(2000.0);
    let rates: Vec<f64> = all[1..]
        .iter()
        .map(|cell| match next(cell, &recorded.cells) {
            Next::Run(cell) => match cell.setup.load {
                Load::Rate { each_second, random: true } => each_second,
                other => panic!("{other:?}"),
            },
            Next::Skip => panic!("{}", cell.name()),
        })
        .collect();
    let ramp = [2000.0, 1900.0, 1800.0, 1600.0, 1000.0, 200.0];
    assert_eq!(rates, [&[2000.0], &ramp[..], &[200.0, 2000.0, 200.0, 2000.0, 500.0]].concat());
    assert!(all.last().unwrap().setup.content.verify && !all[0].setup.content.verify);
}

#[test]
fn the_page_says_first_that_it_is_no_spc_result() {
    let mut recorded = made_up(&job(), &cells(), Some("abc123"));
    recorded.cells[0].search.as_mut().unwrap().rate_asked = Some(2000.0);
    let page = page_of(&recorded, false);
    let first = page.find("This is no SPC-1 result").unwrap();
    assert!(first < page.find(">Summary</h2>").unwrap(), "{page}");
    for said in [
        "Repeatability",
        "Mean response over the rate",
        "repetition 2, 100 %",
        "28.1 %",
        "was not read back whole",
        "--recipe spc1-like --on /dev/sdx --quick",
        "no audit",
    ] {
        assert!(page.to_lowercase().contains(&said.to_lowercase()), "{said}: {page}");
    }
    recorded.cells.last_mut().unwrap().wrong_sectors = 3;
    let wrong = page_of(&recorded, false);
    assert!(wrong.contains("WRONG DATA") && wrong.contains("its figures are of no use"), "{wrong}");
    let none = made_up(&job(), &cells()[..1], None);
    assert!(page_of(&none, false).contains("there are no other figures"));
}

#[test]
fn there_is_nothing_published_and_no_virtual_time() {
    let job = job();
    let recorded = made_up(&job, &cells(), Some("abc123"));
    let part = job.recipe.as_ref().unwrap();
    let error = paper::document(Order { recorded: &recorded, part, title: None, against: true }).unwrap_err();
    assert!(error.to_string().contains("leave out --against"));
    assert!(not_in_virtual_time().to_string().contains("--on /dev/sdx"));
}
