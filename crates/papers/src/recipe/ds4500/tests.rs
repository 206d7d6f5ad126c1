use super::*;
use crate::published::suspicion;
use crate::recipe::tests::page_of;
use stele_lab::job::{Job, RecipePart};
use stele_lab::modelled::sweep::recorded;
use stele_lab::record::{Head, Recorded, VERSION};

#[test]
fn the_whole_plan_asks_stele_and_the_model_for_every_printed_cell() {
    let plan = plan(false).unwrap();
    assert!(plan.left_out.is_empty());
    let printed = ds4500_tables().iter().filter(|cell| cell.rate.or(cell.throughput).is_some()).count();
    assert_eq!(printed, 190);
    let of = |maker| plan.cells.iter().filter(|(_, planned)| planned.array.maker == maker).count();
    // Strokes of three sizes, streams of eleven, the log on drives.
    assert_eq!((of(Maker::Stele), of(Maker::Ds4500)), (printed + 36 + 44 + 10, printed + 36 + 44));
    assert_eq!(of(Maker::SteleOn(PROCESSORS)), printed / 5, "all that is printed of 140 drives");
    let mut names: Vec<String> = plan.cells.iter().map(|(cell, _)| cell.name()).collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), plan.cells.len(), "every cell has a name of its own");
    let curves =
        plan.cells.iter().filter(|(_, planned)| matches!(planned.ask, Query::Highest { curve: true, .. })).count();
    assert_eq!(curves, 2 * 2 * 7, "two levels, two arrays, three workloads with and without the cache and one without");
}

#[test]
fn a_quick_plan_is_part_of_the_whole_one_and_says_what_it_leaves_out() {
    let (whole, quick) = (plan(false).unwrap(), plan(true).unwrap());
    assert!(quick.cells.len() * 4 < whole.cells.len() && !quick.left_out.is_empty());
    for (cell, planned) in &quick.cells {
        let same = whole.cells.iter().find(|(other, _)| other.name() == cell.name());
        assert_eq!(same.map(|(_, other)| other.array), Some(planned.array), "{}", cell.name());
    }
}

/// A result without a run: the figures of every cell follow from its number.
fn made_up(quick: bool, cells: usize, digest: Option<&str>) -> Recorded {
    let part = RecipePart { name: "ds4500".into(), quick, beside: Vec::new() };
    let head = Head {
        version: VERSION,
        program: "stele".into(),
        begun: 0,
        against: None,
        target: "modelled arrays".into(),
        reached: String::new(),
        target_bytes: 0,
        environment: Vec::new(),
        job: Job { recipe: Some(part), ..Job::default() },
    };
    let plan = plan(quick).unwrap();
    let answer = |number: usize| {
        let mut response = stele_lab::histogram::Histogram::default();
        response.record(RESPONSE);
        let rates = vec![1000.0; 5];
        let probe =
            stele_lab::closed::Probe { outstanding: 20, rate: 1000.0 + number as f64, response, rates, steady: true };
        let goal = stele_lab::search::Goal { probes_max: 1, ..goal(20, Effort::SMALL) };
        let highest = stele_lab::search::highest(goal, |_| Ok(probe.clone())).unwrap();
        stele_lab::modelled::Answer {
            highest: Some(highest),
            runs: vec![stele_lab::modelled::MeasuredProbe { probe, rounds: Vec::new() }],
        }
    };
    let cells = plan.cells.iter().enumerate().take(cells);
    let cells = cells.map(|(number, (cell, planned))| recorded(number, cell, planned, &answer(number))).collect();
    Recorded { head, cells, digest: digest.map(str::to_owned) }
}

#[test]
fn the_paper_has_all_tables_and_charts_and_says_how_it_was_made() {
    let recorded = made_up(false, usize::MAX, Some("abc123"));
    let beside = page_of(&recorded, true);
    for number in 1..=8 {
        assert!(beside.contains(&format!("Table {number}. ")), "table {number}");
    }
    for number in 1..=12 {
        assert!(beside.contains(&format!("Chart {number}. ")), "chart {number}");
    }
    for said in [
        "abc123",
        "--recipe ds4500 --virtual --against published",
        "16,525",
        "as printed",
        "half of the rate without the cache",
        "log on the drives",
        "the model was fitted to this cell",
        "in which the model's controllers are not the bound",
        "OLTP 16 KiB, 45 %",
        "MiB/s",
        "With its processors modelled",
        "The published configuration: DS4500",
    ] {
        assert!(beside.contains(said), "{said}");
    }
    let alone = page_of(&recorded, false);
    assert!(!alone.contains("16,525") && !alone.contains("DS4400"), "nothing published where it was not asked for");
}

#[test]
fn a_paper_of_a_part_of_the_cells_says_that_they_are_missing() {
    let part = page_of(&made_up(true, 9, None), true);
    assert!(part.contains("did not come to its end") && part.contains("not the whole recipe"), "{part}");
    assert!(page_of(&made_up(true, 0, None), true).contains("did not come to its end"));
}

#[test]
fn a_paper_names_the_drives_that_its_cells_have() {
    let (whole, quick) = (made_up(false, usize::MAX, Some("a")), made_up(true, usize::MAX, Some("a")));
    assert!(page_of(&whole, false).contains("RAID-5 and RAID-10 over 20 to 180 drives: "));
    let most = quick.cells.iter().filter_map(|cell| cell.axis("drives")?.parse::<u32>().ok()).max().unwrap();
    let page = page_of(&quick, false);
    assert!(most < 180 && page.contains(&format!("RAID-5 and RAID-10 over 20 to {most} drives: ")), "{most}");
    assert!(page.contains(&format!("20 to {most} modelled drives")) && page.contains("sold as 18.2 GB"));
}

#[test]
fn a_wider_stroke_lowers_the_models_rate_as_was_published() {
    use crate::ds4500::profile::{Machine, profile};
    for (level, percent) in [(Level::Raid5, 30), (Level::Raid5, 90), (Level::Raid10, 30), (Level::Raid10, 90)] {
        let rates = [STROKE, percent].map(|stroke| {
            let cell = published::rated().into_iter().find(|cell| {
                (cell.level(), cell.drives, cell.cached, cell.workload.as_str(), cell.size)
                    == (level, 20, false, "oltp", Some(8192))
            });
            let cell = cell.unwrap();
            let array = Array { stroke, ..array_of(&cell, Maker::Ds4500) };
            let mut running = profile(&array, Machine::PUBLISHED, &spec_of(&cell).unwrap(), Alignment::Request);
            let ask = Query::Highest { goal: goal(40, Effort::SMALL), curve: false };
            let answer = stele_lab::modelled::ask(running.as_mut(), &ask, Effort::SMALL, &|| true).unwrap();
            answer.highest.unwrap().rate
        });
        let same =
            |one: &published::Stroke| (one.level, one.percent) == (level, u32::from(percent)) && one.size == 8192;
        let printed = published::strokes().into_iter().find(same).unwrap();
        assert!((rates[1] / rates[0] / printed.multiplier - 1.0).abs() < 0.15, "{printed:?} {rates:?}");
    }
}

#[test]
fn a_ratio_to_a_rate_that_controllers_set_says_so_in_its_sentence_and_stands_behind_the_others() {
    let mut recorded = made_up(false, usize::MAX, Some("abc123"));
    for cell in &mut recorded.cells {
        if cell.axis("array") == Some("ds4500") {
            let busy = if cell.axis("drives") == Some("140") { 0.97 } else { 0.4 };
            cell.runs.iter_mut().for_each(|run| run.busy = vec![("controllers".into(), busy)]);
        }
    }
    let page = page_of(&recorded, true);
    let summary = &page[page.find(">Summary</h2>").unwrap()..page.find(">Arrays, workloads and method</h2>").unwrap()];
    // Streams come afterwards.
    let lines: Vec<&str> = summary.split("<li>").skip(1).take(10).collect();
    let limited = "whose controllers set its rate; no controller is modelled for Stele";
    let told: Vec<bool> = lines.iter().map(|line| line.replace("&#39;", "'").contains(limited)).collect();
    assert_eq!(told, [[false; 5], [true; 5]].concat(), "{summary}");
    for (line, limited) in lines.iter().zip(told) {
        assert!(line.contains(if limited { "140 drives" } else { "20 drives" }), "{line}");
    }
    let suspect = ds4500_tables().iter().filter(|cell| cell.rate.is_some() && suspicion(cell).is_some()).count();
    assert!(
        summary.contains(&format!("{suspect} cells whose published figure is suspect count as neither")),
        "{summary}"
    );
    assert!(lines.iter().any(|line| line.contains("(suspect: the pair of Table 5")), "{summary}");
    assert!(!page_of(&recorded, false).contains(limited), "nothing is compared where it was not asked for");
}
